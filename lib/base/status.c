/* Error text and exit codes: see status.h. */
#include "lib/base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

ckvc_status ckvc_vfail(ckvc_err *err, ckvc_status status, const char *fmt, va_list args) {
    if (!err || err->status != CKVC_OK) { return status; }
    err->status = status;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    /* One line, whatever a foreign name in it holds. */
    for (char *p = err->text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) { *p = ' '; }
    }
    return status;
}

ckvc_status ckvc_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    ckvc_vfail(err, status, fmt, args);
    va_end(args);
    return status;
}

ckvc_status ckvc_fail_errno(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
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

int ckvc_exit_code(ckvc_status status) {
    switch (status) {
    case CKVC_OK:
        return 0;
    case CKVC_CHECK_FAILED:
        return 1;
    case CKVC_E_USAGE:
        return 64;
    case CKVC_E_DATA:
    case CKVC_E_MISMATCH:
        return 65;
    case CKVC_E_NOINPUT:
        return 66;
    case CKVC_E_DEVICE:
        return 69;
    case CKVC_E_BUG:
        return 70;
    case CKVC_E_MEMORY:
    case CKVC_E_SYSTEM:
        return 71;
    case CKVC_E_CREATE:
        return 73;
    case CKVC_E_IO:
        return 74;
    case CKVC_E_STOPPED:
        return 75;
    case CKVC_E_CONFIG:
        return 78;
    case CKVC_E_INTERRUPTED:
        return 130;
    }
    return 70;
}
