/* Shard rows and header as plain bytes, which serve the durable prompt log, the hash of a pass's
 * header and the pipe from the child that reads foreign files.
 *
 * The layout of rows (formats/run/run.md): u32 n_prompts, n_baselines, n_records, and where
 * queries are logged n_queries; u32 L, G, u8 kind of pass; then the rows of each kind, field after
 * field in the order of the column tables, strings as a u8 length and their bytes. Each row is
 * followed by its wide values. Behind all rows stand the prompts' documents, if any prompt has one.
 */
#pragma once

#include "formats/shard/shard.h"
#include "lib/base/json.h"
#include "lib/base/bytes.h"

/* Encode the rows without the header, and decode them: they are appended to s. Hostile bytes are
 * CKVC_E_DATA. */
void shard_encode(const shard *s, ckvc_buffer *out);
ckvc_status shard_decode(shard *s, const uint8_t *bytes, size_t n, ckvc_err *err) CKVC_MUST_CHECK;

void shard_header_encode(const shard_header *h, ckvc_buffer *out);
/* Decodes into a zeroed header. After a failure the header owns nothing. */
ckvc_status shard_header_decode(shard_header *h, ckvc_cursor *c, ckvc_err *err) CKVC_MUST_CHECK;
