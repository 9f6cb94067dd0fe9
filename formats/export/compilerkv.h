/* The folder that the CompilerKV program of the paper's authors reads and writes
 * (github.com/Chengzhi-W/CompilerKV, kv_compression/core.py, CompiledTables; format_version 2):
 * W_head.npy [nB, L, H], T_gate.npy [nB, L, E, P] in float32, manifest.json. Its heads are query
 * heads, its budgets tokens, its tables the paper's alone. */
#pragma once

#include "formats/export/export.h"

ckvc_status compilerkv_write(table_file *t, const export_options *o, const char *path,
                             ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status compilerkv_read(const char *path, const import_options *o, table_file **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
