/* A table as a GGUF file (version 3), for engines that read nothing else: what keeps sets, without
 * the evidence. Names are `ckvc.` and the section's in lower case: float32 sections are tensors
 * (dimensions in ggml's order, the last one first), all others arrays of the metadata, which keep
 * their doubles; sections of no numbers are left out. `ckvc.meta` is META's text. */
#pragma once

#include "formats/export/export.h"

ckvc_status gguf_table_write(table_file *t, const export_options *o, const char *path,
                             ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
