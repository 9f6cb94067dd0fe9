/* Messages for people. The library calls ckvc_log; the program decides where they go (stderr unless -q). */
#ifndef CKVC_BASE_LOG_H
#define CKVC_BASE_LOG_H

#include "lib/base/status.h"

typedef enum ckvc_log_level { CKVC_LOG_WARN, CKVC_LOG_INFO, CKVC_LOG_DEBUG } ckvc_log_level;
typedef void (*ckvc_log_fn)(ckvc_log_level level, const char *line, void *ctx);

void ckvc_log_set(ckvc_log_fn fn, void *ctx); /* NULL: drop everything (the library's default) */
void ckvc_log(ckvc_log_level level, const char *fmt, ...) CKVC_PRINTF(2, 3);

#endif
