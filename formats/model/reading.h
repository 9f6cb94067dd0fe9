/* A file while it is read, and how all readers of formats/model and formats/tokenizer refuse it. */
#pragma once

#include "lib/base/bytes.h"
#include "lib/base/status.h"

typedef struct reading {
    const char *path; /* borrowed */
    ckvc_err *err;
    ckvc_cursor c; /* the file's bytes, or the part of them in hand; unused of config.json */
    /* Of the first failure: readers of single values do nothing after it, and it is tested once. */
    ckvc_status status;
} reading;
#define NO_PLACE UINT64_MAX
/* CKVC_E_DATA with the line "PATH: ..." or "PATH: byte AT: ...". */
ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) CKVC_PRINTF(3, 4);
#define refuse(r, ...) refuse_at((r), NO_PLACE, __VA_ARGS__)
/* A rule of the format: leaves a function that returns a ckvc_status where it does not hold. After
 * an earlier failure, whose text stays, it may see values that are none. */
#define MUST_AT(r, at, holds, ...)                                                                 \
    do {                                                                                           \
        if (!(holds)) { return refuse_at((r), (at), __VA_ARGS__); }                                \
    } while (0)
#define MUST(r, holds, ...) MUST_AT((r), NO_PLACE, holds, __VA_ARGS__)
