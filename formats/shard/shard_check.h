/* Every value of a shard against the format and its own header: one set of rules for what we write,
 * read and are handed. `where` names the file. CKVC_E_DATA. */
#pragma once

#include "formats/shard/shard.h"

ckvc_status shard_header_check(const shard_header *h, const char *where,
                               ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_rows_check(const shard *s, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
