/* See scores.h. */
#include "formats/lines/scores.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lines/scores_measures.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define MAX_LAYERS     65536

static const char *const keys[] = {
    "id",           "source",   "split",         "model",       "manifest",
    "token_hash",   "policy",   "table",         "T",           "C",
    "budget",       "r_struct", "r_sem",         "bin_entropy", "bin_perplexity",
    "n_candidates", "n_kept",   "n_kept_window", "loss_full",   "loss_comp",
    "reward",       "tau"};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

typedef struct place {
    const char *path;
    uint32_t line;
} place;

static ckvc_status wrong(const place *at, ckvc_err *err, const char *key, const json_t *got,
                         const char *wanted) {
    static const char *const names[] = {"object", "array", "string", "whole number",
                                        "number", "true",  "false",  "null"};
    return ckvc_fail(err, CKVC_E_DATA, "%s:%u: \"%s\" is %s, wanted %s", at->path, at->line, key,
                     got ? names[json_typeof(got)] : "missing", wanted);
}

static ckvc_status get_text(const json_t *o, const char *key, bool may_be_null, char **out,
                            const place *at, ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    if (may_be_null && (!v || json_is_null(v))) { return CKVC_OK; }
    if (!json_is_string(v)) {
        return wrong(at, err, key, v, may_be_null ? "a string or null" : "a string");
    }
    *out = ckvc_strdup(json_string_value(v));
    return *out ? CKVC_OK : ckvc_fail_memory(err, "scores", json_string_length(v));
}

static ckvc_status get_count(const json_t *o, const char *key, uint32_t *out, const place *at,
                             ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX) {
        return wrong(at, err, key, v, "a whole number, 0 to 4294967295");
    }
    *out = (uint32_t)json_integer_value(v);
    return CKVC_OK;
}

static ckvc_status get_bin(const json_t *o, const char *key, int32_t *out, const place *at,
                           ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        *out = -1;
        return CKVC_OK;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 65535) {
        return wrong(at, err, key, v, "a bin number, 0 to 65535, or null");
    }
    *out = (int32_t)json_integer_value(v);
    return CKVC_OK;
}

static ckvc_status get_real(const json_t *o, const char *key, double *out, const place *at,
                            ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    if (json_is_null(v)) {
        *out = NAN;
        return CKVC_OK;
    }
    if (!json_is_number(v) || !isfinite(json_number_value(v))) {
        return wrong(at, err, key, v, "a number or null");
    }
    *out = json_number_value(v);
    return CKVC_OK;
}

/* Per-layer counts; the first array of a row sets L, the others must agree. */
static ckvc_status get_layers(const json_t *o, const char *key, bool may_be_null, score_row *row,
                              uint32_t **out, const place *at, ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    if (may_be_null && (!v || json_is_null(v))) { return CKVC_OK; }
    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > MAX_LAYERS) {
        return wrong(at, err, key, v, "one count per layer");
    }
    size_t n = json_array_size(v);
    CKVC_FAIL_IF(row->n_layers != 0 && row->n_layers != n, err, CKVC_E_DATA,
                 "%s:%u: \"%s\" has %zu layers, \"n_kept\" has %u", at->path, at->line, key, n,
                 row->n_layers);
    row->n_layers = (uint32_t)n;
    *out = ckvc_alloc(n, sizeof **out);
    if (!*out) { return ckvc_fail_memory(err, "scores", n * sizeof **out); }
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(v, i);
        CKVC_FAIL_IF(!json_is_integer(c) || json_integer_value(c) < 0 ||
                         json_integer_value(c) > row->n_tokens,
                     err, CKVC_E_DATA,
                     "%s:%u: \"%s\"[%zu] is not a count of tokens, wanted 0 to T = %u", at->path,
                     at->line, key, i, row->n_tokens);
        (*out)[i] = (uint32_t)json_integer_value(c);
    }
    return CKVC_OK;
}

static ckvc_status get_table(const json_t *o, score_row *row, const place *at, ckvc_err *err) {
    const json_t *v = json_object_get(o, "table");
    if ((!v || json_is_null(v)) && strcmp(row->policy, "table") != 0) { return CKVC_OK; }
    const char *text = json_string_value(v);
    if (!text || strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64) {
        return wrong(at, err, "table", v, "a table's content id, 64 hexadecimal digits");
    }
    memcpy(row->table, text, 65);
    return CKVC_OK;
}

/* An optional key: sixteen hexadecimal digits. */
static ckvc_status get_hash(const json_t *o, score_row *row, const place *at, ckvc_err *err) {
    const json_t *v = json_object_get(o, "token_hash");
    const char *text = json_string_value(v);
    if (v && (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)) {
        return wrong(at, err, "token_hash", v, "16 hexadecimal digits");
    }
    row->token_hash = text ? strtoull(text, NULL, 16) : 0;
    return CKVC_OK;
}

/* Optional keys that are neutral when absent: under which setting the row was made; and budgets by
 * layer, of which rows have the same when their hashes are. */
static ckvc_status get_setting(const json_t *o, score_row *row, const place *at, ckvc_err *err) {
    const json_t *layers = json_object_get(o, "layer_budgets");
    row->setting = setting_neutral();
    const setting_field *bad = setting_read(o, SETTING_LINE, &row->setting);
    if (bad) {
        char wanted[128], mark;
        const char *key = setting_key(bad, SETTING_LINE, &mark);
        setting_wanted(bad, mark, wanted, sizeof wanted);
        return wrong(at, err, key, json_object_get(o, key), wanted);
    }
    if (!layers) { return CKVC_OK; }
    if (!json_is_array(layers) || json_array_size(layers) != row->n_layers) {
        return wrong(at, err, "layer_budgets", layers, "one budget per layer");
    }
    for (size_t l = 0; l < row->n_layers; l++) {
        const double b = json_number_value(json_array_get(layers, l)); /* 0 of anything else */
        CKVC_FAIL_IF(!(b > 0) || !isfinite(b), err, CKVC_E_DATA,
                     "%s:%u: \"layer_budgets\"[%zu] is not a number above 0", at->path, at->line,
                     l);
        uint8_t bytes[16];
        ckvc_put_u64(bytes, row->layer_budgets);
        ckvc_put_f64(bytes + 8, b);
        row->layer_budgets = ckvc_xxh64(bytes, sizeof bytes);
    }
    row->layer_budgets += row->layer_budgets == 0;
    return CKVC_OK;
}

static ckvc_status check_losses(const score_row *row, const place *at, ckvc_err *err) {
    bool has_losses = !isnan(row->loss_full) && !isnan(row->loss_comp);
    CKVC_FAIL_IF(isnan(row->reward) == has_losses, err, CKVC_E_DATA,
                 "%s:%u: \"reward\" is %s although the losses are %s", at->path, at->line,
                 has_losses ? "null" : "a number", has_losses ? "numbers" : "null");
    if (has_losses) {
        double want = -(row->loss_comp - row->loss_full);
        CKVC_FAIL_IF(
            fabs(row->reward - want) > 1e-9 * fmax(1, fabs(row->loss_full) + fabs(row->loss_comp)),
            err, CKVC_E_DATA, "%s:%u: \"reward\" is %.10g, but -(loss_comp - loss_full) is %.10g",
            at->path, at->line, row->reward, want);
    }
    return CKVC_OK;
}

static ckvc_status read_row(const json_t *o, score_row *row, const place *at, ckvc_err *err) {
    CKVC_FAIL_IF(!json_is_object(o), err, CKVC_E_DATA,
                 "%s:%u: not an object, wanted one row of `ckvc score`", at->path, at->line);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        bool known = (strcmp(key, "sets") == 0 && json_is_array(value)) || scores_is_measure(key) ||
                     setting_of_key(SETTING_LINE, key);
        /* --sets: not needed here */
        for (size_t i = 0; i < KEY_COUNT; i++) { known = known || strcmp(key, keys[i]) == 0; }
        CKVC_FAIL_IF(!known, err, CKVC_E_DATA,
                     "%s:%u: unknown key \"%s\", wanted a row of `ckvc score`", at->path, at->line,
                     key);
    }
    row->line = at->line;
    row->tau = NAN;
    ckvc_status rc;
    if ((rc = get_text(o, "id", false, &row->id, at, err)) ||
        (rc = get_text(o, "source", true, &row->source, at, err)) ||
        (rc = get_text(o, "split", true, &row->split, at, err)) ||
        (rc = get_text(o, "model", false, &row->model, at, err)) ||
        (rc = get_text(o, "manifest", false, &row->manifest, at, err)) ||
        (rc = get_text(o, "policy", false, &row->policy, at, err)) ||
        (rc = get_table(o, row, at, err)) || (rc = get_hash(o, row, at, err)) ||
        (rc = get_count(o, "T", &row->n_tokens, at, err)) ||
        (rc = get_count(o, "C", &row->n_continuation, at, err)) ||
        (rc = get_real(o, "budget", &row->budget, at, err)) ||
        (rc = get_real(o, "r_struct", &row->r_struct, at, err)) ||
        (rc = get_real(o, "r_sem", &row->r_sem, at, err)) ||
        (rc = get_bin(o, "bin_entropy", &row->bin_entropy, at, err)) ||
        (rc = get_bin(o, "bin_perplexity", &row->bin_ppl, at, err)) ||
        (rc = get_layers(o, "n_kept", false, row, &row->n_kept, at, err)) ||
        (rc = get_layers(o, "n_kept_window", true, row, &row->n_kept_window, at, err)) ||
        (rc = get_layers(o, "n_candidates", true, row, &row->n_candidates, at, err)) ||
        (rc = get_real(o, "loss_full", &row->loss_full, at, err)) ||
        (rc = get_real(o, "loss_comp", &row->loss_comp, at, err)) ||
        (rc = get_real(o, "reward", &row->reward, at, err)) ||
        (json_object_get(o, "tau") && (rc = get_real(o, "tau", &row->tau, at, err))) ||
        (rc = get_setting(o, row, at, err)) || (rc = check_losses(row, at, err)) ||
        (rc = scores_read_measures(o, at->path, row, err))) {
        return rc;
    }
    CKVC_FAIL_IF(!(row->budget > 0) || row->n_tokens == 0, err, CKVC_E_DATA,
                 "%s:%u: budget %g and T = %u, wanted both above 0", at->path, at->line,
                 row->budget, row->n_tokens);
    for (uint32_t l = 0; row->n_kept_window && l < row->n_layers; l++) {
        CKVC_FAIL_IF(row->n_kept_window[l] > row->n_kept[l], err, CKVC_E_DATA,
                     "%s:%u: layer %u keeps %u tokens of the window but %u in all", at->path,
                     at->line, l, row->n_kept_window[l], row->n_kept[l]);
    }
    return CKVC_OK;
}

static int compare_rows(const void *pa, const void *pb) {
    const score_row *a = *(const score_row *const *)pa, *b = *(const score_row *const *)pb;
    int c = strcmp(a->id, b->id);
    c = c ? c : strcmp(a->policy, b->policy);
    c = c ? c : strcmp(a->table, b->table);
    c = c ? c : strcmp(a->model, b->model);
    c = c ? c : strcmp(a->manifest, b->manifest);
    c = c ? c : (a->budget > b->budget) - (a->budget < b->budget);
    c = c ? c : (a->layer_budgets > b->layer_budgets) - (a->layer_budgets < b->layer_budgets);
    c = c ? c : setting_compare(&a->setting, &b->setting, SETTING_SCORE);
    return c ? c
             : (a->n_continuation > b->n_continuation) - (a->n_continuation < b->n_continuation);
}

static ckvc_status refuse_duplicates(const scores *s, ckvc_err *err) {
    const score_row **order = ckvc_alloc(s->n, sizeof(void *));
    for (size_t i = 0; i < s->n; i++) { order[i] = &s->rows[i]; }
    qsort(order, s->n, sizeof(void *), compare_rows);
    ckvc_status rc = CKVC_OK;
    for (size_t i = 1; i < s->n && rc == CKVC_OK; i++) {
        if (compare_rows(&order[i - 1], &order[i]) == 0) {
            uint32_t a = order[i - 1]->line, b = order[i]->line;
            rc = ckvc_fail(err, CKVC_E_DATA,
                           "%s:%u: prompt \"%s\", budget %g, policy \"%s\" is on line %u already",
                           s->path, a > b ? a : b, order[i]->id, order[i]->budget, order[i]->policy,
                           a > b ? b : a);
        }
    }
    free(order);
    return rc;
}

ckvc_status scores_read(const char *path, scores **out, ckvc_err *err) {
    ckvc_map map;
    ckvc_status rc = ckvc_map_open(path, &map, err);
    if (rc) { return rc; }
    scores *s = ckvc_calloc(1, sizeof *s);
    char *where = NULL;
    json_t *object = NULL;
    if (!s || !(s->path = ckvc_strdup(path))) {
        rc = ckvc_fail_memory(err, "scores", sizeof *s);
        goto done;
    }
    place at = {path, 0};
    for (uint64_t pos = 0; pos < map.size;) {
        const uint8_t *start = map.data + pos, *end = memchr(start, '\n', map.size - pos);
        size_t n = end ? (size_t)(end - start) : (size_t)(map.size - pos);
        at.line++;
        if (n > LINE_MAX_BYTES) {
            rc = ckvc_fail(err, CKVC_E_DATA, "%s:%u: line of %zu bytes, wanted at most %zu", path,
                           at.line, n, LINE_MAX_BYTES);
            goto done;
        }
        free(where);
        where = ckvc_format("%s:%u", path, at.line);
        json_decref(object);
        object = NULL;
        if ((rc = ckvc_json_parse((const char *)start, n, where, &object, err)) ||
            (rc = ckvc_grow((void **)&s->rows, &s->capacity, s->n + 1, sizeof *s->rows, err))) {
            goto done;
        }
        memset(&s->rows[s->n], 0, sizeof *s->rows);
        s->n++; /* before reading: a half-read row is freed with the rest */
        if ((rc = read_row(object, &s->rows[s->n - 1], &at, err))) { goto done; }
        pos += n + 1;
    }
    if (s->n == 0) {
        rc = ckvc_fail(err, CKVC_E_DATA, "%s: no rows, wanted the output of `ckvc score`", path);
        goto done;
    }
    rc = refuse_duplicates(s, err);
done:
    json_decref(object);
    free(where);
    ckvc_map_close(&map);
    if (rc) {
        scores_free(s);
        return rc;
    }
    *out = s;
    return CKVC_OK;
}

void scores_free(scores *s) {
    if (!s) { return; }
    for (size_t i = 0; i < s->n; i++) {
        score_row *r = &s->rows[i];
        free(r->id);
        free(r->source);
        free(r->split);
        free(r->model);
        free(r->manifest);
        free(r->policy);
        free(r->n_candidates);
        free(r->n_kept);
        free(r->n_kept_window);
        scores_free_measures(r);
    }
    free(s->rows);
    free(s->path);
    free(s);
}
