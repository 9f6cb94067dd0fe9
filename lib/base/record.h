/* Records: the members of a struct as files know them. A table says of each member its name, type,
 * place in the struct, range, and whether it may be missing. Reading, writing and freeing a struct
 * follow from its table, so that no member is spelt a second time. Described so are settings
 * (formats/setting), lines of scores and answers and leak records (formats/lines), and the columns
 * and attributes of shards (formats/shard).
 *
 * Two descriptions look alike and stay apart, for reasons that they give themselves: options
 * (cmd/common/options.h) and the numbers of a report (report/numbers/members.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum record_type {
    RECORD_COUNT, /* an unsigned whole number of 1, 2, 4 or 8 bytes */
    RECORD_BIN,   /* int32_t from 0 up; none: -1 */
    RECORD_REAL,  /* double; none: NaN. In arrays, which their owners read and write, also float */
    RECORD_NAME,  /* an enum of 32 bits, in files one of `names` */
    RECORD_TEXT,  /* char [size] that ends within it: one line of UTF-8; none: "" */
    RECORD_HEX,   /* char [size]: size - 1 lower-case hexadecimal digits; none: "" */
    RECORD_OWNED, /* char *, the struct's to free; none: NULL */
    RECORD_OTHER  /* from here on the table's own, which its user reads and writes */
} record_type;

/* Whether a member must be in JSON. One that may be null or missing is then none; where its type
 * has no such value, none is 0. */
typedef enum record_need { RECORD_MUST, RECORD_OR_NULL, RECORD_IF_ANY } record_need;

typedef struct record_member {
    const char *name;
    int type;           /* record_type, or RECORD_OTHER + k */
    size_t at, size;    /* bytes from the struct's begin; bytes of it */
    const char *names;  /* "a|b|c", in the enum's order */
    double least, most; /* of a number and of a name's place */
    record_need need;
    const char *wanted; /* "a number or null": for messages of readers that use it */
} record_member;

/* A row of a table: RECORD(some_struct, "key", its_member, .type = RECORD_COUNT, .most = 9). */
#define RECORD(of, key, member, ...)                                                               \
    { .name = key, .at = offsetof(of, member), .size = sizeof(((of *)0)->member), __VA_ARGS__ }

/* ---- names "a|b|c" ---- */
/* The name at a place, its length in *n; NULL behind the last. */
const char *record_name_at(const char *names, uint32_t place, size_t *n);
/* The place of a name, -1: it is none of them. */
int record_place_of(const char *names, const char *name);

/* ---- one member ---- */
/* Of a name its place, of a text its length. */
double record_number(const record_member *m, const void *record);
/* A number, a name's place, or a text into the struct; false, and nothing is changed, where it is
 * not finite, not whole, out of range, too long or no single line. */
bool record_set_number(const record_member *m, void *record, double v);
bool record_set_text(const record_member *m, void *record, const char *text);
/* A value of JSON (NULL: it is missing) into the struct; false, and nothing is changed, where it
 * cannot be. Whole numbers are read to the last bit. */
bool record_read(const record_member *m, const json_t *v, void *record);
/* The member as JSON, a new reference. NULL: it is none, which is said by leaving it out. A number
 * that is not finite is null. */
json_t *record_json(const record_member *m, const void *record);

/* ---- all members ---- */
/* Into an object, but those of the table's own types. */
void record_write(const record_member *members, size_t n, const void *record, json_t *o);
/* Frees what the struct owns. */
void record_fini(const record_member *members, size_t n, void *record);
