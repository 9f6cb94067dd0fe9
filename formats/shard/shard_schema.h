/* What a shard file holds. This is the one place where a field of the structs meets its name and
 * type in the file: writer, reader, checks, plain bytes and description all follow these tables. */
#pragma once

#include "formats/shard/shard.h"
#include "lib/base/record.h"

/* The most that one shard file may hold. A run cuts its prompts into shards long before any of
 * these limits. */
#define SHARD_MAX_PROMPTS   ((size_t)1 << 20)
#define SHARD_MAX_BASELINES ((size_t)1 << 22)
#define SHARD_MAX_RECORDS   ((size_t)1 << 24)
#define SHARD_MAX_QUERIES   ((size_t)1 << 20)
#define SHARD_MAX_LAYERS    1024u
#define SHARD_MAX_HEADS     1024u
#define SHARD_MAX_BUDGETS   256u
#define SHARD_MAX_ACTIONS   256u /* record/action is one byte */
#define SHARD_MAX_BINS      1024u
/* The most entries of a start table, and the most values of a column that has several a row. */
#define SHARD_MAX_TABLE        ((size_t)1 << 24)
#define SHARD_MAX_LAYER_VALUES ((size_t)1 << 27)
/* The bounds of a loss, in nats a token: 0 with some rounding, and more than logits of float32 can
 * give. */
#define SHARD_LEAST_LOSS (-1e-3)
#define SHARD_MOST_LOSS  1e39

/* ---- rows ---- */
/* Which shards must have a column: all of them; those of ckvc but not foreign ones; or those that
 * ckvc wrote since the column was added. A missing column reads as zeros. A new column of texts or
 * counts is left out where all of them are empty or 0. */
typedef enum shard_need { SHARD_OF_ALL, SHARD_OF_OURS, SHARD_OF_NEW } shard_need;
/* Kinds of columns besides a shard_kind. SHARD_ANY columns are in all shards, SHARD_HEADS columns
 * in those of scans and demand, SHARD_MIXES columns in demand shards that have features, and
 * SHARD_FEATURES columns in all shards that have features. */
enum { SHARD_ANY = -1, SHARD_HEADS = -2, SHARD_MIXES = -3, SHARD_FEATURES = -4 };
typedef struct shard_column {
    /* A column of one value a row is a member of the row's struct. For a column of several values a
     * row this is instead the pointer in struct shard to all of them; `size` is then the size of
     * one value, and a `most` of 0 stands for the prompt's n_tokens. */
    record_member m;
    shard_need need;
    /* NULL for one value a row; else a letter for each axis of a row, as in shard_axis */
    const char *axes;
    int kind; /* for several values a row: a shard_kind, or one of the above */
} shard_column;

typedef struct shard_group {
    const char *name;
    const shard_column *columns;
    size_t n_columns; /* columns of one value a row come before the others */
    size_t row_size;
    /* offsets in struct shard: of the array's pointer, and of its number of rows */
    size_t rows_offset, count_offset;
    size_t max_rows;
} shard_group;

enum {
    SHARD_GROUP_PROMPT,
    SHARD_GROUP_BASELINE,
    SHARD_GROUP_RECORD,
    SHARD_GROUP_QUERY,
    SHARD_GROUPS
};
extern const shard_group shard_groups[SHARD_GROUPS];
/* Returns how many of the groups a shard has, the first ones: all, or all but that of queries. */
int shard_n_groups(const shard_header *h);
/* Returns where row `row` of a group has the number of its prompt, which is its first member; NULL
 * for prompts themselves. */
uint32_t *shard_prompt_of(shard *s, int group, size_t row);

bool shard_has_column(const shard_column *c, const shard_header *h);
/* Writes the extent of an axis (B budgets, W mixes, L layers, G KV heads, H query heads, D
 * numbers of a head, P positions, F features), and returns what the file calls it. */
const char *shard_axis(char axis, const shard_header *h, size_t *extent);
enum { SHARD_MAX_RANK = 5 };
/* Writes the extents of a row into dims[1] and on, and returns the column's rank. */
int shard_column_dims(const shard_column *c, const shard_header *h, size_t dims[SHARD_MAX_RANK]);
/* how many values one row has */
size_t shard_row_values(const shard_column *c, const shard_header *h);
size_t *shard_count(shard *s, const shard_group *g);
size_t shard_rows(const shard *s, const shard_group *g);
/* shard_pointer returns where the pointer of an array stands, shard_array what it points to. */
void **shard_pointer(void *in, size_t offset);
char *shard_array(const void *in, size_t offset);
/* Makes room for so many rows in all arrays of the group. The new rows are not counted yet. */
void shard_reserve(shard *s, int group, size_t rows);

/* ---- attributes ---- */
enum { SHARD_SIDE_NONE = -1, SHARD_MAX_ATTRIBUTES = 64 };
typedef struct shard_attribute {
    /* A member of shard_header. For an array it is the pointer; type and size are those of one
     * value. */
    record_member m;
    bool list;
    size_t count_offset;          /* for lists: the offset of the u32 that counts them */
    uint32_t extra;               /* how much larger that count is than the list: 1 for edges */
    uint32_t most;                /* the largest count that is allowed */
    int start;                    /* the side whose start table this is, else SHARD_SIDE_NONE */
    const setting_field *setting; /* NULL when it is the header's own */
    char mark;                    /* the mark of the setting's key (setting_key) */
    bool sparse;                  /* written only where it is not neutral */
} shard_attribute;

/* Writes all root attributes in the file's order, those of settings among them, except "format" and
 * "version". Returns how many there are. */
size_t shard_attributes(shard_attribute out[SHARD_MAX_ATTRIBUTES]);
/* Returns the count of a list. */
const uint32_t *shard_attribute_count(const shard_header *h, const shard_attribute *a);
/* Writes the extents of an attribute under this header. Returns its rank: 0 for a single value, -1
 * when the attribute is absent. A start table counts as present when it is `expected` or has
 * entries. */
int shard_attribute_dims(const shard_header *h, const shard_attribute *a, bool expected,
                         size_t dims[4]);
