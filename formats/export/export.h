/* The forms in which tables and records leave ckvc and come back: one row a format, which
 * `ckvc export` and `ckvc import` go by. What a format cannot hold is refused by name; whose heads
 * its rows are, KV heads or query heads, is said and never guessed. */
#pragma once

#include <jansson.h>

#include "formats/run/run_dir.h"
#include "formats/table/table_file.h"
#include "lib/base/buffer.h"

typedef struct export_options {
    bool force;         /* overwrite */
    const char *report; /* safetensors: a report.json whose verdict the card states, or NULL */
    double budget;      /* formats of one number a head: the table's budget; 0: its only one */
    uint64_t length;    /* formats of budgets in tokens: T that shares are taken of; 0: not said */
    double full_share;  /* duo-attention: share of heads that are full; 0: graded values */
} export_options;

typedef struct import_options {
    const char *model;     /* whose layers and heads the rows are, or NULL */
    const double *budgets; /* [n_budgets] of the table that is made, where the format has none */
    uint32_t n_budgets;
    double c_min; /* its floor: share of B that every head keeps */
} import_options;

typedef struct exchange_format {
    const char *name, *holds; /* of one line of help */
    /* Writes a file or folder `path`; appends to `note` what a person should know of heads and
     * budgets, one line or nothing. One of the two is there. */
    ckvc_status (*write_table)(table_file *t, const export_options *o, const char *path,
                               ckvc_buffer *note, ckvc_err *err);
    ckvc_status (*write_run)(const run_dir *r, const export_options *o, const char *path,
                             ckvc_buffer *note, ckvc_err *err);
    /* NULL: a format that is written only, because `why_not`. */
    ckvc_status (*read)(const char *path, const import_options *o, table_file **out, ckvc_err *err);
    const char *why_not;
} exchange_format;

#define IMPORT_NAMES "safetensors|npz|compilerkv|duo-attention|headkv|kvzip"
#define EXPORT_NAMES IMPORT_NAMES "|gguf|records"
extern const exchange_format exchange_formats[];
extern const size_t exchange_n_formats;
