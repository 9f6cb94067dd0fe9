/* numpy's archives (.npz) of a table's arrays: a zip file, nothing compressed, of one .npy file a
 * section, as numpy.savez writes them; META is its JSON text as bytes. */
#pragma once

#include "formats/export/export.h"

ckvc_status npz_write(table_file *t, const export_options *o, const char *path, ckvc_buffer *note,
                      ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status npz_read(const char *path, const import_options *o, table_file **out,
                     ckvc_err *err) CKVC_MUST_CHECK;
