/* Error text and exit codes: see status.h. */
#include "lib/base/status.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/utf8_step.h"

ckvc_status(ckvc_fail)(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    if (!err || err->status != CKVC_OK) { return status; }
    err->status = status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    ckvc_utf8_tame(err->text, ""); /* makes one line of it, whatever a name from outside contains */
    return status;
}

ckvc_status ckvc_refuse(ckvc_err *err, const char *where, const char *fmt, ...) {
    char what[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ckvc_fail(err, CKVC_E_DATA, "%s: %s", where, what);
}

ckvc_status(ckvc_fail_errno)(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    int saved = errno;
    if (!err || err->status != CKVC_OK) { return status; }
    char what[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ckvc_fail(err, status, "%s: %s", what, strerror(saved));
}

static ckvc_warn_fn warn_fn;

void ckvc_warn_set(ckvc_warn_fn fn) { warn_fn = fn; }

void ckvc_warn(const char *fmt, ...) {
    if (!warn_fn) { return; }
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ckvc_utf8_tame(line, "");
    warn_fn(line);
}

int ckvc_exit_code(ckvc_status status) {
    static const struct {
        ckvc_status status;
        int code;
    } codes[] = {{CKVC_OK, 0},          {CKVC_CHECK_FAILED, 1},
                 {CKVC_E_USAGE, 64},    {CKVC_E_DATA, 65},
                 {CKVC_E_MISMATCH, 65}, {CKVC_E_NOINPUT, 66},
                 {CKVC_E_DEVICE, 69},   {CKVC_E_BUG, 70},
                 {CKVC_E_MEMORY, 71},   {CKVC_E_SYSTEM, 71},
                 {CKVC_E_BUSY, 75},     {CKVC_E_CREATE, 73},
                 {CKVC_E_IO, 74},       {CKVC_E_STOPPED, 75},
                 {CKVC_E_CONFIG, 78},   {CKVC_E_INTERRUPTED, 130}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status == status) { return codes[i].code; }
    }
    return 70;
}
