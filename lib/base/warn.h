/* Warnings: what went on all the same, and a person should know. The library calls ckvc_warn; the
 * program decides where they go. */
#ifndef CKVC_BASE_WARN_H
#define CKVC_BASE_WARN_H

#include "lib/base/status.h"

typedef void (*ckvc_warn_fn)(const char *line);

void ckvc_warn_set(ckvc_warn_fn fn); /* NULL: drop everything (the library's default) */
void ckvc_warn(const char *fmt, ...) CKVC_PRINTF(1, 2);

#endif
