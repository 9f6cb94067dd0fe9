/* scan/coverage.json: see coverage.h. */
#include "formats/run/coverage.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { MAX_BINS = 1024, ROW_NUMBERS = 5 };
#define MAX_BYTES ((size_t)256 << 20)

void coverage_fini(coverage *c) {
    for (size_t i = 0; i < c->n_sources; i++) { free(c->sources[i]); }
    free(c->sources);
    free(c->edges_entropy);
    free(c->edges_ppl);
    free(c->from);
    free(c->rows);
    *c = (coverage){0};
}

json_t *coverage_json(const coverage *c) {
    json_t *sources = json_array(), *rows = json_array();
    uint64_t prompts = 0, drawn = 0;
    for (size_t i = 0; i < c->n_sources; i++) {
        json_array_append_new(sources, json_string(c->sources[i]));
    }
    for (size_t i = 0; i < c->n_rows; i++) {
        const coverage_row *r = &c->rows[i];
        const uint32_t numbers[ROW_NUMBERS] = {r->entropy, r->ppl, r->source, r->prompts, r->drawn};
        json_array_append_new(rows, ckvc_json_u32s(numbers, ROW_NUMBERS));
        prompts += r->prompts;
        drawn += r->drawn;
    }
    return json_pack("{s:[i,i], s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:s, s:o, s:I}", "bins",
                     (int)c->n_entropy_bins, (int)c->n_ppl_bins, "cells", rows, "drawn",
                     c->logged ? json_integer((json_int_t)drawn) : json_null(), "edges_entropy",
                     ckvc_json_reals(c->edges_entropy, c->n_entropy_bins - 1), "edges_perplexity",
                     ckvc_json_reals(c->edges_ppl, c->n_ppl_bins - 1), "from", c->from, "min_cell",
                     (json_int_t)c->min_cell, "prompts", (json_int_t)prompts, "sample",
                     (json_int_t)c->sample, "schema", "ckvc-coverage-1", "sources", sources,
                     "unscanned", (json_int_t)c->n_unscanned);
}

/* ---- reading ---- */

typedef struct reader {
    const char *path;
    const json_t *root;
    ckvc_err *err;
} reader;

#define MUST(r, holds, key, wanted)                                                                \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA,                                                  \
                 "%s: member %s must be %s; the run's command with --resume writes it anew",       \
                 (r)->path, key, wanted)

static ckvc_status read_number(const reader *r, const char *key, uint64_t most, uint64_t *out) {
    MUST(r, ckvc_json_get_count(r->root, key, most, out), key, "a number that is not negative");
    return CKVC_OK;
}

static ckvc_status read_edges(const reader *r, const char *key, uint32_t n, double **out) {
    static const char *const wanted = "the inner edges of the bins, ascending";
    const json_t *list = json_object_get(r->root, key);
    MUST(r, json_array_size(list) == n, key, wanted);
    *out = ckvc_calloc(n + 1, sizeof **out);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        (*out)[i] = json_number_value(v);
        MUST(r, ckvc_json_is_finite(v) && (!i || (*out)[i] >= (*out)[i - 1]), key, wanted);
    }
    return CKVC_OK;
}

static ckvc_status read_sources(const reader *r, coverage *c) {
    const json_t *list = json_object_get(r->root, "sources");
    const size_t n = json_array_size(list);
    MUST(r, json_is_array(list), "sources", "a list of names");
    c->sources = ckvc_calloc(n + 1, sizeof *c->sources);
    for (; c->n_sources < n; c->n_sources++) {
        const char *name = json_string_value(json_array_get(list, c->n_sources));
        MUST(r, name, "sources", "a list of names");
        c->sources[c->n_sources] = ckvc_strdup(name);
    }
    return CKVC_OK;
}

static bool ascends(const coverage_row *a, const coverage_row *b) {
    return a->entropy != b->entropy ? a->entropy < b->entropy
           : a->ppl != b->ppl       ? a->ppl < b->ppl
                                    : a->source < b->source;
}

static ckvc_status read_rows(const reader *r, coverage *c) {
    static const char *const wanted =
        "rows [entropy bin, perplexity bin, source, prompts, drawn], ascending";
    const json_t *list = json_object_get(r->root, "cells");
    const size_t n = json_array_size(list);
    const uint64_t limits[ROW_NUMBERS] = {c->n_entropy_bins, c->n_ppl_bins, c->n_sources,
                                          (uint64_t)UINT32_MAX + 1, (uint64_t)UINT32_MAX + 1};
    MUST(r, json_is_array(list), "cells", wanted);
    c->rows = ckvc_calloc(n + 1, sizeof *c->rows);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        uint32_t v[ROW_NUMBERS];
        MUST(r, json_array_size(row) == ROW_NUMBERS, "cells", wanted);
        for (size_t k = 0; k < ROW_NUMBERS; k++) {
            const json_t *number = json_array_get(row, k);
            MUST(r, limits[k] && ckvc_json_is_count(number, limits[k] - 1), "cells", wanted);
            v[k] = (uint32_t)json_integer_value(number);
        }
        c->rows[i] = (coverage_row){v[0], v[1], v[2], v[3], v[4]};
        MUST(r, v[4] <= v[3] && (!i || ascends(&c->rows[i - 1], &c->rows[i])), "cells", wanted);
    }
    c->n_rows = n;
    return CKVC_OK;
}

static ckvc_status read_all(const reader *r, coverage *c) {
    const char *schema = json_string_value(json_object_get(r->root, "schema"));
    const char *from = json_string_value(json_object_get(r->root, "from"));
    const json_t *bins = json_object_get(r->root, "bins");
    uint32_t n_bins[2];
    uint64_t min_cell, unscanned, sample;
    MUST(r, schema && strcmp(schema, "ckvc-coverage-1") == 0, "schema", "\"ckvc-coverage-1\"");
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(bins, i);
        n_bins[i] = (uint32_t)json_integer_value(v);
        MUST(r, json_array_size(bins) == 2 && ckvc_json_is_count(v, MAX_BINS) && n_bins[i] > 0,
             "bins", "[entropy bins, perplexity bins]");
    }
    MUST(r, from, "from", "text");
    CKVC_TRY(read_number(r, "min_cell", UINT32_MAX, &min_cell));
    CKVC_TRY(read_number(r, "unscanned", UINT32_MAX, &unscanned));
    CKVC_TRY(read_number(r, "sample", INT64_MAX, &sample));
    *c = (coverage){.n_entropy_bins = n_bins[0],
                    .n_ppl_bins = n_bins[1],
                    .from = ckvc_strdup(from),
                    .min_cell = (uint32_t)min_cell,
                    .sample = (int64_t)sample,
                    .logged = json_is_integer(json_object_get(r->root, "drawn")),
                    .n_unscanned = (uint32_t)unscanned};
    CKVC_TRY(read_edges(r, "edges_entropy", n_bins[0] - 1, &c->edges_entropy));
    CKVC_TRY(read_edges(r, "edges_perplexity", n_bins[1] - 1, &c->edges_ppl));
    CKVC_TRY(read_sources(r, c));
    return read_rows(r, c);
}

ckvc_status coverage_read(const char *run, coverage *out, bool *there, ckvc_err *err) {
    *out = (coverage){0};
    CKVC_AUTO_FREE char *path = ckvc_path_join(run, COVERAGE_FILE);
    *there = ckvc_file_exists(path);
    if (!*there) { return CKVC_OK; }
    json_auto_t *root = NULL;
    CKVC_TRY(ckvc_json_read(path, MAX_BYTES, &root, err));
    const ckvc_status st = read_all(&(reader){path, root, err}, out);
    if (st != CKVC_OK) { coverage_fini(out); }
    return st;
}
