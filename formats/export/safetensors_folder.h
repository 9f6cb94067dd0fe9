/* A folder as model hubs hold them: model.safetensors with a table's arrays, config.json with what
 * it is for programs, README.md with the same for people (a model card: the verdict of a report,
 * the prompts), and table.ckvt for engines. Reading takes model.safetensors alone. */
#pragma once

#include "formats/export/export.h"

/* Takes the provenance off t. */
ckvc_status safetensors_folder_write(table_file *t, const export_options *o, const char *path,
                                     ckvc_buffer *note, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status safetensors_folder_read(const char *path, const import_options *o, table_file **out,
                                    ckvc_err *err) CKVC_MUST_CHECK;
/* Writes a file into the folder, which is made. */
ckvc_status export_into(const char *folder, const char *name, const ckvc_buffer *text,
                        const export_options *o, ckvc_err *err) CKVC_MUST_CHECK;
/* The README.md; `report` is NULL or a report.json. CKVC_E_MISMATCH where it is another table's. */
ckvc_status model_card(const table_file *t, const char *report, ckvc_buffer *out,
                       ckvc_err *err) CKVC_MUST_CHECK;
