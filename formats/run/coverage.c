/* scan/coverage.json: see coverage.h. */
#include "formats/run/coverage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { MAX_BINS = 1024, ROW_NUMBERS = 5 };
#define MAX_BYTES ((size_t)256 << 20)

void coverage_fini(coverage *c) {
    for (size_t i = 0; c->sources && i < c->n_sources; i++) { free(c->sources[i]); }
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

static ckvc_status bad(const reader *r, const char *key, const char *wanted) {
    return ckvc_fail(r->err, CKVC_E_DATA,
                     "%s: member %s must be %s; the run's command with --resume writes it anew",
                     r->path, key, wanted);
}

static bool in_range(const json_t *v, json_int_t lo, json_int_t hi) {
    return json_is_integer(v) && json_integer_value(v) >= lo && json_integer_value(v) <= hi;
}

static ckvc_status read_number(const reader *r, const char *key, json_int_t hi, int64_t *out) {
    const json_t *v = json_object_get(r->root, key);
    if (!in_range(v, 0, hi)) { return bad(r, key, "a number that is not negative"); }
    *out = json_integer_value(v);
    return CKVC_OK;
}

static ckvc_status read_edges(const reader *r, const char *key, uint32_t n, double **out) {
    const json_t *list = json_object_get(r->root, key);
    if (json_array_size(list) != n) {
        return bad(r, key, "the inner edges of the bins, ascending");
    }
    *out = ckvc_calloc(n + 1, sizeof **out);
    if (!*out) { return ckvc_fail_memory(r->err, key, n * sizeof **out); }
    for (uint32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        (*out)[i] = json_number_value(v);
        if (!json_is_number(v) || !isfinite((*out)[i]) || (i && (*out)[i] < (*out)[i - 1])) {
            return bad(r, key, "the inner edges of the bins, ascending");
        }
    }
    return CKVC_OK;
}

static ckvc_status read_sources(const reader *r, coverage *c) {
    const json_t *list = json_object_get(r->root, "sources");
    const size_t n = json_array_size(list);
    if (!json_is_array(list)) { return bad(r, "sources", "a list of names"); }
    c->sources = ckvc_calloc(n + 1, sizeof *c->sources);
    for (; c->n_sources < n; c->n_sources++) {
        const char *name = json_string_value(json_array_get(list, c->n_sources));
        if (!name) { return bad(r, "sources", "a list of names"); }
        if (!(c->sources[c->n_sources] = ckvc_strdup(name))) {
            return ckvc_fail_memory(r->err, "sources", strlen(name));
        }
    }
    return CKVC_OK;
}

static ckvc_status read_rows(const reader *r, coverage *c) {
    static const char *const wanted =
        "rows [entropy bin, perplexity bin, source, prompts, drawn], ascending";
    const json_t *list = json_object_get(r->root, "cells");
    const size_t n = json_array_size(list);
    if (!json_is_array(list)) { return bad(r, "cells", wanted); }
    c->rows = ckvc_calloc(n + 1, sizeof *c->rows);
    for (; c->n_rows < n; c->n_rows++) {
        const json_t *row = json_array_get(list, c->n_rows);
        const json_int_t most[ROW_NUMBERS] = {(json_int_t)c->n_entropy_bins - 1,
                                              (json_int_t)c->n_ppl_bins - 1,
                                              (json_int_t)c->n_sources - 1, UINT32_MAX, UINT32_MAX};
        uint32_t v[ROW_NUMBERS];
        bool fits = json_array_size(row) == ROW_NUMBERS;
        for (size_t k = 0; fits && k < ROW_NUMBERS; k++) {
            fits = in_range(json_array_get(row, k), 0, most[k]);
            v[k] = fits ? (uint32_t)json_integer_value(json_array_get(row, k)) : 0;
        }
        if (!fits || v[4] > v[3]) { return bad(r, "cells", wanted); }
        c->rows[c->n_rows] = (coverage_row){v[0], v[1], v[2], v[3], v[4]};
        if (c->n_rows) {
            const coverage_row *a = &c->rows[c->n_rows - 1], *b = a + 1;
            if (a->entropy != b->entropy ? a->entropy > b->entropy
                : a->ppl != b->ppl       ? a->ppl > b->ppl
                                         : a->source >= b->source) {
                return bad(r, "cells", wanted);
            }
        }
    }
    return CKVC_OK;
}

static ckvc_status read_all(const reader *r, coverage *c) {
    const char *schema = json_string_value(json_object_get(r->root, "schema"));
    const char *from = json_string_value(json_object_get(r->root, "from"));
    const json_t *bins = json_object_get(r->root, "bins"),
                 *drawn = json_object_get(r->root, "drawn");
    int64_t min_cell = 0, unscanned = 0;
    if (!schema || strcmp(schema, "ckvc-coverage-1") != 0) {
        return bad(r, "schema", "\"ckvc-coverage-1\"");
    }
    if (json_array_size(bins) != 2 || !in_range(json_array_get(bins, 0), 1, MAX_BINS) ||
        !in_range(json_array_get(bins, 1), 1, MAX_BINS)) {
        return bad(r, "bins", "[entropy bins, perplexity bins]");
    }
    if (!from) { return bad(r, "from", "text"); }
    c->n_entropy_bins = (uint32_t)json_integer_value(json_array_get(bins, 0));
    c->n_ppl_bins = (uint32_t)json_integer_value(json_array_get(bins, 1));
    c->logged = json_is_integer(drawn);
    c->from = ckvc_strdup(from);
    ckvc_status st = read_number(r, "min_cell", UINT32_MAX, &min_cell);
    st = st ? st : read_number(r, "unscanned", UINT32_MAX, &unscanned);
    st = st ? st : read_number(r, "sample", INT64_MAX, &c->sample);
    st = st ? st : read_edges(r, "edges_entropy", c->n_entropy_bins - 1, &c->edges_entropy);
    st = st ? st : read_edges(r, "edges_perplexity", c->n_ppl_bins - 1, &c->edges_ppl);
    st = st ? st : read_sources(r, c);
    st = st ? st : read_rows(r, c);
    c->min_cell = (uint32_t)min_cell;
    c->n_unscanned = (uint32_t)unscanned;
    return st;
}

ckvc_status coverage_read(const char *run, coverage *out, bool *there, ckvc_err *err) {
    *out = (coverage){0};
    *there = false;
    char *path = ckvc_path_join(run, COVERAGE_FILE);
    json_t *root = NULL;
    ckvc_status st = CKVC_OK;
    if (ckvc_file_exists(path)) {
        *there = true;
        st = ckvc_json_read(path, MAX_BYTES, &root, err);
        const reader r = {path, root, err};
        st = st ? st : read_all(&r, out);
    }
    json_decref(root);
    free(path);
    if (st != CKVC_OK) { coverage_fini(out); }
    return st;
}
