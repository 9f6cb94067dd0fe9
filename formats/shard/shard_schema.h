/* What a shard file holds: the one place where a field of the structs meets its name and type in
 * the file. Writer, reader, checks, plain bytes and description follow these tables. */
#pragma once

#include "formats/shard/shard.h"
#include "lib/base/record.h"

/* What one shard file may hold; a run cuts its prompts into shards long before any of them. */
#define SHARD_MAX_PROMPTS   ((size_t)1 << 20)
#define SHARD_MAX_BASELINES ((size_t)1 << 22)
#define SHARD_MAX_RECORDS   ((size_t)1 << 24)
#define SHARD_MAX_LAYERS    1024u
#define SHARD_MAX_HEADS     1024u
#define SHARD_MAX_BUDGETS   256u
#define SHARD_MAX_ACTIONS   256u /* record/action is one byte */
#define SHARD_MAX_BINS      1024u
/* Entries of a start table; values of a column with several a row. */
#define SHARD_MAX_TABLE        ((size_t)1 << 24)
#define SHARD_MAX_LAYER_VALUES ((size_t)1 << 27)
/* Nats a token: 0 and rounding; more than logits of float32 give. */
#define SHARD_LEAST_LOSS (-1e-3)
#define SHARD_MOST_LOSS  1e39

/* ---- rows ---- */
/* Which shards must have a column: all; ours, but not foreign ones; ours since it was thought of.
 * Missing, it reads as zeros. A new column of texts is left out where all are empty. */
typedef enum shard_need { SHARD_OF_ALL, SHARD_OF_OURS, SHARD_OF_NEW } shard_need;
/* Kinds of columns besides a shard_kind. A column of SHARD_ANY is in all shards, of SHARD_HEADS in
 * those of scans and demand, of SHARD_MIXES in those of demand that have features, and of
 * SHARD_FEATURES in all that have features. */
enum { SHARD_ANY = -1, SHARD_HEADS = -2, SHARD_MIXES = -3, SHARD_FEATURES = -4 };
typedef struct shard_column {
    /* A column of one value a row is a member of the row's struct. Of a column of several values it
     * is the pointer to all of them in struct shard; `size` is then of one value, and a `most` of 0
     * stands for the prompt's n_tokens. */
    record_member m;
    shard_need need;
    const char *axes; /* NULL: one value a row; else a letter for each axis of a row: shard_axis */
    int kind;         /* of several values: a shard_kind, or one of the above */
} shard_column;

typedef struct shard_group {
    const char *name;
    const shard_column *columns;
    size_t n_columns; /* columns of one value a row stand before the others */
    size_t row_size;
    size_t rows_offset, count_offset; /* in struct shard: the array's pointer, its number of rows */
    size_t max_rows;
} shard_group;

enum { SHARD_GROUP_PROMPT, SHARD_GROUP_BASELINE, SHARD_GROUP_RECORD, SHARD_GROUPS };
extern const shard_group shard_groups[SHARD_GROUPS];

bool shard_has_column(const shard_column *c, const shard_header *h);
/* The extent of an axis, B budgets, L layers, G KV heads, P positions, F features; and what says it
 * in the file. */
const char *shard_axis(char axis, const shard_header *h, size_t *extent);
enum { SHARD_MAX_RANK = 5 };
/* Extents of a row, dims[1] ...; returns the column's rank. */
int shard_column_dims(const shard_column *c, const shard_header *h, size_t dims[SHARD_MAX_RANK]);
size_t shard_row_values(const shard_column *c, const shard_header *h); /* of one row */
size_t *shard_count(shard *s, const shard_group *g);
size_t shard_rows(const shard *s, const shard_group *g);
/* Where the pointer of an array stands, and what it points to. */
void **shard_pointer(void *in, size_t offset);
char *shard_array(const void *in, size_t offset);
/* Makes room for so many rows in all arrays of the group; new ones are not yet counted. */
void shard_reserve(shard *s, int group, size_t rows);

/* ---- attributes ---- */
enum { SHARD_SIDE_NONE = -1, SHARD_MAX_ATTRIBUTES = 64 };
typedef struct shard_attribute {
    /* A member of shard_header. Of an array it is the pointer; type and size are of one value. */
    record_member m;
    bool list;
    size_t count_offset;          /* lists: of the u32 that counts them */
    uint32_t extra;               /* and by how much more than there are: 1 for edges */
    uint32_t most;                /* that it may count */
    int start;                    /* a side's start table, else SHARD_SIDE_NONE */
    const setting_field *setting; /* NULL: the header's own */
    char mark;                    /* of the setting's key */
    bool sparse;                  /* written only where it is not neutral */
} shard_attribute;

/* All root attributes in the file's order, settings among them (but for "format" and "version").
 * Returns how many. */
size_t shard_attributes(shard_attribute out[SHARD_MAX_ATTRIBUTES]);
/* What counts a list. */
const uint32_t *shard_attribute_count(const shard_header *h, const shard_attribute *a);
/* Extents of an attribute under this header; returns its rank, 0 of single values, -1 when it is
 * not there. A start table counts as there when `expected` or when it has entries. */
int shard_attribute_dims(const shard_header *h, const shard_attribute *a, bool expected,
                         size_t dims[4]);
