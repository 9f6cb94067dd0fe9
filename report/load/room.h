/* Memory of a report: given piece by piece, released at once when it is done, so that what is
 * computed needs no destructors. */
#pragma once

#include "lib/base/memory.h"

typedef struct room {
    void **pieces;
    size_t n, cap;
} room;

/* A piece of malloc's: released with the rest. */
static inline void *room_keep(room *r, void *piece) {
    CKVC_GROW(r->pieces, r->cap, r->n + 1);
    return r->pieces[r->n++] = piece;
}

/* Zeroed. */
static inline void *room_for(room *r, size_t n, size_t size) {
    return room_keep(r, ckvc_calloc(n, size));
}
#define room_text(r, ...) ((const char *)room_keep(r, ckvc_format(__VA_ARGS__)))

static inline void room_fini(room *r) {
    for (size_t i = 0; i < r->n; i++) { free(r->pieces[i]); }
    free(r->pieces);
    *r = (room){0};
}
