/* Warnings: see warn.h. */
#include "lib/base/warn.h"

#include <stdio.h>

static ckvc_warn_fn warn_fn;

void ckvc_warn_set(ckvc_warn_fn fn) {
    warn_fn = fn;
}

void ckvc_warn(const char *fmt, ...) {
    if (!warn_fn) { return; }
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    warn_fn(line);
}
