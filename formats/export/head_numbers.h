/* One number for each layer and head, as other programs give and take them; a table's budgets for
 * heads become such numbers, and such numbers a table's budgets (shares in proportion, mean 1, the
 * same at every budget).
 *
 *   duo-attention  github.com/mit-han-lab/duo-attention, duo_attn/utils.py, load_attn_pattern: a
 *                  folder with full_attention_heads.tsv, [L] lines of [G] KV heads, 0 ... 1, and
 *                  config.json (sink_size, recent_size)
 *   headkv         github.com/FYYFU/HeadKV, Important_Head/head_score: one line of JSON,
 *                  {"LAYER-HEAD": [scores of samples], ...} of [L][H] query heads, in order
 *   kvzip          github.com/snu-mllab/KVzip, utils/head_score: [L][G] KV heads; what it loads is
 * a torch pickle, here it is a .npy of float32, which torch.from_numpy(numpy.load()) makes one of
 */
#pragma once

#include "formats/export/export.h"

ckvc_status duo_attention_write(table_file *t, const export_options *o, const char *path,
                                ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status headkv_write(table_file *t, const export_options *o, const char *path,
                         ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status kvzip_write(table_file *t, const export_options *o, const char *path, ckvc_buffer *note,
                        ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status duo_attention_read(const char *path, const import_options *o, table_file **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status headkv_read(const char *path, const import_options *o, table_file **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status kvzip_read(const char *path, const import_options *o, table_file **out,
                       ckvc_err *err) CKVC_MUST_CHECK;
