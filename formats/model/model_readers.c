/* How a file is refused: see model_readers.h. */
#include "formats/model/model_readers.h"

#include <inttypes.h>
#include <stdio.h>

ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) {
    char place[32] = "", what[sizeof r->err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (at != NO_PLACE) { snprintf(place, sizeof place, "byte %" PRIu64 ": ", at); }
    if (r->status == CKVC_OK) { r->status = CKVC_E_DATA; }
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s%s", r->path, place, what);
}
