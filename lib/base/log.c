/* Messages for people: see log.h. */
#include "lib/base/log.h"

#include <stdio.h>

static ckvc_log_fn log_fn;
static void *log_ctx;

void ckvc_log_set(ckvc_log_fn fn, void *ctx)
{
    log_fn = fn;
    log_ctx = ctx;
}

void ckvc_log(ckvc_log_level level, const char *fmt, ...)
{
    if (!log_fn) {
        return;
    }
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    log_fn(level, line, log_ctx);
}
