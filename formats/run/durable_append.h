/* Appending to a file so that what was appended before is never lost: the prompt logs and the
 * journal of a run. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Writes n bytes at *size (what stands behind it, a torn append, is cut off first), syncs the file,
 * and its folder when *size is 0; then moves *size. After a failure the file ends at *size again,
 * as far as the system lets us. */
ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;
