/* A record description: the members of a struct as files know them. A table names each member and
 * says its type, its place in the struct, its range and whether it may be missing. Reading, writing
 * and freeing the struct follow from that table, so that no member is spelt a second time. Settings
 * (formats/setting), the lines of scores and answers and the leak records (formats/lines), and the
 * columns and attributes of shards (formats/shard) are described in this way.
 *
 * Two descriptions look similar but stay separate, for reasons that they give themselves: the
 * options (cmd/common/options.h) and the numbers of a report (report/numbers/members.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum record_type {
    RECORD_COUNT, /* an unsigned whole number of 1, 2, 4 or 8 bytes */
    RECORD_BIN,   /* int32_t, 0 or more; -1 stands for none */
    /* double; NaN stands for none. An array, which its owner reads and writes, may also be of
     * float. */
    RECORD_REAL,
    RECORD_NAME,  /* an enum of 32 bits; files have its name, one of `names` */
    RECORD_TEXT,  /* char [size], NUL included: one line of UTF-8; "" stands for none */
    RECORD_HEX,   /* char [size]: size - 1 lower-case hexadecimal digits; "" stands for none */
    RECORD_OWNED, /* char *, which the struct owns; NULL stands for none */
    /* this type and all above it belong to the table's user, who reads and writes them */
    RECORD_OTHER
} record_type;

/* Whether JSON must have the member. A member that may be null, or that may be missing, becomes
 * none when it is; where its type has no value for none, it becomes 0. */
typedef enum record_need { RECORD_MUST, RECORD_OR_NULL, RECORD_IF_ANY } record_need;

typedef struct record_member {
    const char *name;
    int type;           /* record_type, or RECORD_OTHER + k */
    size_t at, size;    /* in bytes: the member's offset in the struct, and its size */
    const char *names;  /* "a|b|c", in the order of the enum */
    double least, most; /* the range of a number, or of a name's place in `names` */
    record_need need;
    const char *wanted; /* "a number or null": what messages of the readers that use it ask for */
} record_member;

/* A row of a table: RECORD(some_struct, "key", its_member, .type = RECORD_COUNT, .most = 9). */
#define RECORD(of, key, member, ...)                                                               \
    { .name = key, .at = offsetof(of, member), .size = sizeof(((of *)0)->member), __VA_ARGS__ }

/* ---- names "a|b|c" ---- */
/* Returns the name at `place` and puts its length into *n, since no NUL ends it. Behind the last
 * name it returns NULL. */
const char *record_name_at(const char *names, uint32_t place, size_t *n);
/* Returns the place of `name`, or -1 when it is none of them. */
int record_place_of(const char *names, const char *name);

/* ---- one member ---- */
/* Returns the member as a number: a name gives its place, a text its length. */
double record_number(const record_member *m, const void *record);
/* Put a number (for a name: its place) or a text into the struct. They return false, and change
 * nothing, when a number is not finite, not whole or out of range, and when a text is too long, is
 * no single line, is no name of the list or has no hexadecimal digits where they are asked for. */
bool record_set_number(const record_member *m, void *record, double v);
bool record_set_text(const record_member *m, void *record, const char *text);
/* Reads a value of JSON into the struct; v is NULL when the key is missing. It returns false, and
 * changes nothing, when the member cannot have this value. Whole numbers are read to the last bit,
 * also beyond 2^53. */
bool record_read(const record_member *m, const json_t *v, void *record);
/* Returns the member as JSON, a new reference, or NULL when the member is none and says so by being
 * left out. A number that is not finite becomes null. */
json_t *record_json(const record_member *m, const void *record);

/* ---- all members ---- */
/* Writes all members into the object `o`, except those of the table's own types. */
void record_write(const record_member *members, size_t n, const void *record, json_t *o);
/* Frees the texts that the struct owns. */
void record_fini(const record_member *members, size_t n, void *record);
