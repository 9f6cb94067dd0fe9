/* Shard rows and header as plain bytes: for the durable prompt log, the hash of a pass's header and
 * the pipe from the child that reads foreign files.
 *
 * Rows (formats/run/run.md): u32 n_prompts, n_baselines, n_records, L, G, u8 kind of pass; then the
 * rows of each kind, field after field in the order of the column tables, strings as u8 length and
 * bytes; behind each row its wide values; behind all rows the prompts' documents, if one has any.
 */
#pragma once

#include "formats/shard/shard.h"
#include "lib/base/json.h"
#include "lib/base/bytes.h"

/* The rows (not the header), and back: appended to s. CKVC_E_DATA of hostile bytes. */
void shard_encode(const shard *s, ckvc_buffer *out);
ckvc_status shard_decode(shard *s, const uint8_t *bytes, size_t n, ckvc_err *err) CKVC_MUST_CHECK;

void shard_header_encode(const shard_header *h, ckvc_buffer *out);
/* Into a zeroed header; on failure nothing is owned. */
ckvc_status shard_header_decode(shard_header *h, ckvc_cursor *c, ckvc_err *err) CKVC_MUST_CHECK;
