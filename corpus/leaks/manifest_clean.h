/* A manifest without some of its prompts: its other lines byte for byte, in their order. Reads the
 * file again, one line at a time. */
#pragma once

#include "formats/lines/manifest.h"

/* Before any work: may the lines go to path? CKVC_E_CREATE where it is in the way; CKVC_E_USAGE
 * where it is the manifest or one of `read` [n_read], or where lines name files relative to another
 * folder. */
ckvc_status manifest_clean_ready(const manifest *m, const char *const *read, size_t n_read,
                                 const char *path, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* left_out [n_entries]. CKVC_E_DATA, and no file, when no line is left or the manifest changed
 * since it was read. */
ckvc_status manifest_clean_write(const manifest *m, const bool *left_out, const char *path,
                                 bool force, ckvc_err *err) CKVC_MUST_CHECK;
