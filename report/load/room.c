/* See room.h. */
#include "report/load/room.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/memory.h"

void *room_keep(room *r, void *piece) {
    CKVC_GROW(r->pieces, r->cap, r->n + 1);
    return r->pieces[r->n++] = piece;
}

void *room_for(room *r, size_t n, size_t size) { return room_keep(r, ckvc_calloc(n, size)); }

char *room_text(room *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, args) < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    va_end(args);
    return room_keep(r, text);
}

void room_fini(room *r) {
    for (size_t i = 0; i < r->n; i++) { free(r->pieces[i]); }
    free(r->pieces);
    *r = (room){0};
}
