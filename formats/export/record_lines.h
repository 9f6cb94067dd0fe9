/* The records of a run, one JSON object a line, shard by shard in the order of passes. Keys are
 * those of CompilerKV's calibration records (github.com/Chengzhi-W/CompilerKV, docs/calibration.md)
 * where there is one; a row of a KV head that several query heads read is `kv_head` and not `head`.
 *
 *   head, gate    prompt_id, layer, head or kv_head (of head), budget (tokens), action, full_loss,
 *                 compressed_loss, reward, sequence_length, entropy, ppl, candidate_count, kept,
 *                 paired_policy (pass and plan); losses in nats per token
 *   shares, cuts  prompt_id, layer, kv_head (of shares by head), budget, action, compressed_loss,
 *                 full_loss, entries, sequence_length
 *   demand        prompt_id, layer, kv_head, budget, entries, sequence_length
 *
 * Passes of scan and score have no records. */
#pragma once

#include "formats/export/export.h"

ckvc_status record_lines_write(const run_dir *r, const export_options *o, const char *path,
                               ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
