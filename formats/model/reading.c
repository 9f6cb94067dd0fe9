/* How a file is refused: see reading.h. */
#include "formats/model/reading.h"

#include <inttypes.h>
#include <stdio.h>

static ckvc_status refuse_with(reading *r, const char *place, const char *fmt, va_list args) {
    char what[sizeof r->err->text];
    vsnprintf(what, sizeof what, fmt, args);
    const ckvc_status st = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s%s", r->path, place, what);
    if (r->status == CKVC_OK) { r->status = st; }
    return st;
}

ckvc_status refuse(reading *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const ckvc_status st = refuse_with(r, "", fmt, args);
    va_end(args);
    return st;
}

ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) {
    char place[32];
    va_list args;
    snprintf(place, sizeof place, "byte %" PRIu64 ": ", at);
    va_start(args, fmt);
    const ckvc_status st = refuse_with(r, place, fmt, args);
    va_end(args);
    return st;
}
