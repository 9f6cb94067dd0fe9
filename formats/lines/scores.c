/* See scores.h; what the keys mean is in scores.md. */
#include "formats/lines/scores.h"

#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/text_lines.h"

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define MAX_LAYERS     65536

/* Numbers went through text and back, and the measurement itself is right to about 1e-6. */
#define SLACK 1e-5

typedef struct reader {
    const char *path;
    uint32_t line;
    const json_t *o; /* the line's object */
    score_row *row;
    ckvc_err *err;
} reader;

/* A rule of a line. */
#define MUST(r, holds, fmt, ...)                                                                   \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA, "%s:%u: " fmt, (r)->path, (r)->line, __VA_ARGS__)

static ckvc_status wrong(const reader *r, const char *key, const char *wanted) {
    static const char *const names[] = {"object", "array", "string", "whole number",
                                        "number", "true",  "false",  "null"};
    const json_t *got = json_object_get(r->o, key);
    return ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: \"%s\" is %s, wanted %s", r->path, r->line, key,
                     got ? names[json_typeof(got)] : "missing", wanted);
}

/* ---- keys of every line ---- */

typedef enum column_type {
    TEXT,          /* char * */
    TEXT_OR_NULL,  /* or missing: NULL */
    COUNT,         /* uint32_t */
    BIN,           /* int32_t, null or missing: -1 */
    REAL,          /* double, null: NaN */
    MAYBE_REAL,    /* missing: NaN too */
    SETS,          /* uint32_t [L][n_sets] of counts of tokens: [L], or [L][G] in the file */
    SETS_OR_NULL,  /* or missing: NULL */
    LAYERS_OR_NULL /* uint32_t [L] of counts of tokens */
} column_type;

/* In the order in which they are read: counts before what they bound. */
static const struct {
    const char *key;
    column_type type;
    size_t offset;
} columns[] = {
#define C(key, type, member)                                                                       \
    { key, type, offsetof(score_row, member) }
    C("id", TEXT, id),
    C("source", TEXT_OR_NULL, source),
    C("document", TEXT_OR_NULL, document),
    C("split", TEXT_OR_NULL, split),
    C("model", TEXT, model),
    C("manifest", TEXT, manifest),
    C("policy", TEXT, policy),
    C("T", COUNT, n_tokens),
    C("C", COUNT, n_continuation),
    C("budget", REAL, budget),
    C("r_struct", REAL, r_struct),
    C("r_sem", REAL, r_sem),
    C("bin_entropy", BIN, bin_entropy),
    C("bin_perplexity", BIN, bin_ppl),
    C("n_kept", SETS, n_kept),
    C("n_kept_window", SETS_OR_NULL, n_kept_window),
    C("n_candidates", LAYERS_OR_NULL, n_candidates),
    C("loss_full", REAL, loss_full),
    C("loss_comp", REAL, loss_comp),
    C("reward", REAL, reward),
    C("tau", MAYBE_REAL, tau),
    C("entries", MAYBE_REAL, entries),
    C("head_dim", MAYBE_REAL, head_dim),
    C("repeat_tokens", MAYBE_REAL, repeat_tokens),
#undef C
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static ckvc_status get_count(const reader *r, const char *key, const json_t *v, size_t layer,
                             uint32_t *out) {
    MUST(r, ckvc_json_is_count(v, r->row->n_tokens),
         "\"%s\"[%zu] is not a count of tokens, wanted 0 to T = %u", key, layer, r->row->n_tokens);
    *out = (uint32_t)json_integer_value(v);
    return CKVC_OK;
}

/* Counts by layer, or by layer and head; the first array of a row sets L and how many sets a layer
 * has, the others must agree. */
static ckvc_status get_layers(const reader *r, const char *key, const json_t *v, bool sets,
                              uint32_t **out) {
    score_row *row = r->row;
    const size_t n = json_array_size(v), of_layer = json_is_array(json_array_get(v, 0))
                                                        ? json_array_size(json_array_get(v, 0))
                                                        : 1;
    if (n == 0 || n > MAX_LAYERS || of_layer == 0 || of_layer > MAX_LAYERS) {
        return wrong(r, key, "one count per layer");
    }
    MUST(r, row->n_layers == 0 || row->n_layers == n, "\"%s\" has %zu layers, \"n_kept\" has %u",
         key, n, row->n_layers);
    MUST(r, sets ? row->n_sets == 0 || row->n_sets == of_layer : of_layer == 1,
         "\"%s\" has %zu counts a layer, wanted %u", key, of_layer, sets ? row->n_sets : 1);
    row->n_layers = (uint32_t)n;
    row->n_sets = sets ? (uint32_t)of_layer : row->n_sets;
    *out = ckvc_alloc(n * of_layer, sizeof **out);
    for (size_t l = 0; l < n; l++) {
        const json_t *c = json_array_get(v, l);
        if (!json_is_array(c)) {
            MUST(r, of_layer == 1, "\"%s\"[%zu] is no list of %zu counts", key, l, of_layer);
            CKVC_TRY(get_count(r, key, c, l, *out + l));
            continue;
        }
        MUST(r, json_array_size(c) == of_layer, "\"%s\"[%zu] has %zu counts, wanted %zu", key, l,
             json_array_size(c), of_layer);
        for (size_t g = 0; g < of_layer; g++) {
            CKVC_TRY(get_count(r, key, json_array_get(c, g), l, *out + l * of_layer + g));
        }
    }
    return CKVC_OK;
}

static double kept_in_all(const score_row *row) {
    double sum = 0;
    for (uint32_t i = 0; i < row->n_layers * row->n_sets; i++) { sum += row->n_kept[i]; }
    return sum;
}

double score_row_kept(const score_row *row) {
    return kept_in_all(row) / row->n_layers / row->n_sets;
}

static ckvc_status get_column(const reader *r, size_t i) {
    const char *key = columns[i].key;
    const column_type type = columns[i].type;
    const json_t *v = json_object_get(r->o, key);
    const bool none = json_is_null(v), absent = !v || none;
    void *out = (char *)r->row + columns[i].offset;
    switch (type) {
    case TEXT:
    case TEXT_OR_NULL:
        if (type == TEXT_OR_NULL && absent) { return CKVC_OK; }
        if (!json_is_string(v)) {
            return wrong(r, key, type == TEXT ? "a string" : "a string or null");
        }
        *(char **)out = ckvc_strdup(json_string_value(v));
        return CKVC_OK;
    case COUNT:
        if (!ckvc_json_is_count(v, UINT32_MAX)) {
            return wrong(r, key, "a whole number, 0 to 4294967295");
        }
        *(uint32_t *)out = (uint32_t)json_integer_value(v);
        return CKVC_OK;
    case BIN:
        if (!absent && !ckvc_json_is_count(v, 65535)) {
            return wrong(r, key, "a bin number, 0 to 65535, or null");
        }
        *(int32_t *)out = absent ? -1 : (int32_t)json_integer_value(v);
        return CKVC_OK;
    case REAL:
    case MAYBE_REAL:
        if (!(none || (type == MAYBE_REAL && !v) || ckvc_json_is_finite(v))) {
            return wrong(r, key, "a number or null");
        }
        *(double *)out = absent ? NAN : json_number_value(v);
        return CKVC_OK;
    default:
        return type != SETS && absent ? CKVC_OK
                                      : get_layers(r, key, v, type != LAYERS_OR_NULL, out);
    }
}

static ckvc_status get_table(const reader *r) {
    const json_t *v = json_object_get(r->o, "table"), *hash = json_object_get(r->o, "token_hash");
    if ((v && !json_is_null(v)) || strcmp(r->row->policy, "table") == 0) {
        if (!ckvc_json_is_hex(v, CKVC_SHA256_HEX - 1)) {
            return wrong(r, "table", "a table's content id, 64 hexadecimal digits");
        }
        memcpy(r->row->table, json_string_value(v), CKVC_SHA256_HEX);
    }
    if (hash && !ckvc_json_is_hex(hash, 16)) {
        return wrong(r, "token_hash", "16 hexadecimal digits");
    }
    r->row->token_hash = hash ? strtoull(json_string_value(hash), NULL, 16) : 0;
    return CKVC_OK;
}

/* Optional keys that are neutral when absent: under which setting the row was made; and budgets by
 * layer, of which rows have the same when their hashes are. */
static ckvc_status get_setting(const reader *r) {
    score_row *row = r->row;
    const json_t *layers = json_object_get(r->o, "layer_budgets");
    row->setting = setting_neutral();
    const setting_field *bad = setting_read(r->o, SETTING_LINE, &row->setting);
    if (bad) {
        char wanted[128], mark;
        const char *key = setting_key(bad, SETTING_LINE, &mark);
        setting_wanted(bad, mark, wanted, sizeof wanted);
        return wrong(r, key, wanted);
    }
    if (!layers) { return CKVC_OK; }
    if (!json_is_array(layers) || json_array_size(layers) != row->n_layers) {
        return wrong(r, "layer_budgets", "one budget per layer");
    }
    for (size_t l = 0; l < row->n_layers; l++) {
        const json_t *v = json_array_get(layers, l);
        const double b = json_number_value(v); /* 0 of anything else */
        MUST(r, b > 0 && isfinite(b), "\"layer_budgets\"[%zu] is not a number above 0", l);
        uint8_t bytes[16];
        ckvc_put_u64(bytes, row->layer_budgets);
        ckvc_put_f64(bytes + 8, b);
        row->layer_budgets = ckvc_xxh64(bytes, sizeof bytes);
    }
    row->layer_budgets += row->layer_budgets == 0;
    return CKVC_OK;
}

static ckvc_status check_row(const reader *r) {
    const score_row *row = r->row;
    const bool has_losses = !isnan(row->loss_full) && !isnan(row->loss_comp);
    MUST(r, isnan(row->reward) != has_losses, "\"reward\" is %s although the losses are %s",
         has_losses ? "null" : "a number", has_losses ? "numbers" : "null");
    const double want = -(row->loss_comp - row->loss_full);
    MUST(r,
         !has_losses || !(fabs(row->reward - want) >
                          1e-9 * fmax(1, fabs(row->loss_full) + fabs(row->loss_comp))),
         "\"reward\" is %.10g, but -(loss_comp - loss_full) is %.10g", row->reward, want);
    MUST(r, row->budget > 0 && row->n_tokens > 0, "budget %g and T = %u, wanted both above 0",
         row->budget, row->n_tokens);
    for (uint32_t i = 0; row->n_kept_window && i < row->n_layers * row->n_sets; i++) {
        MUST(r, row->n_kept_window[i] <= row->n_kept[i],
             "layer %u keeps %u tokens of the window but %u in all", i / row->n_sets,
             row->n_kept_window[i], row->n_kept[i]);
    }
    /* one set a layer stands for all its heads, however many */
    const double kept = kept_in_all(row);
    MUST(r,
         isnan(row->entries) || (row->n_sets > 1 ? row->entries == kept
                                 : kept == 0     ? row->entries == 0
                                                 : fmod(row->entries, kept) == 0),
         "\"entries\" is %.0f, but %.0f are kept", row->entries, kept);
    MUST(r, isnan(row->head_dim) || (row->head_dim >= 1 && fmod(row->head_dim, 1) == 0),
         "\"head_dim\" is %g, wanted a whole number above 0", row->head_dim);
    return CKVC_OK;
}

/* ---- keys of --attention-error and --utilities ---- */

static const char *const attention_keys[SCORE_ATTENTION_KEYS] = {
    "attention_epsilon", "attention_bound", "attention_error", "attention_drift"};

static bool number_at(const json_t *list, size_t i, double *out) {
    const json_t *v = json_array_get(list, i);
    *out = json_number_value(v);
    return ckvc_json_is_finite(v);
}

static ckvc_status get_attention(const reader *r) {
    score_row *row = r->row;
    const json_t *lists[SCORE_ATTENTION_KEYS];
    size_t given = 0, null = 0;
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        lists[i] = json_object_get(r->o, attention_keys[i]);
        given += lists[i] != NULL;
        null += json_is_null(lists[i]);
    }
    if (given == 0 || null == SCORE_ATTENTION_KEYS) { return CKVC_OK; }
    const size_t L = row->n_layers;
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        MUST(r,
             json_is_array(lists[i]) && json_array_size(lists[i]) == L && row->n_continuation >= 2,
             "\"%s\" is no list of %zu numbers (one per layer) beside C of at least 2, wanted all "
             "of attention_epsilon, _bound, _error, _drift or none",
             attention_keys[i], L);
    }
    row->attention = ckvc_alloc(L * SCORE_ATTENTION_KEYS, sizeof *row->attention);
    const double rows = (double)row->n_continuation - 1;
    for (size_t l = 0; l < L; l++) {
        double v[SCORE_ATTENTION_KEYS];
        for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
            MUST(r, number_at(lists[i], l, &v[i]) && v[i] >= 0,
                 "\"%s\"[%zu] is no number of at least 0", attention_keys[i], l);
            row->attention[i * L + l] = v[i];
        }
        const double bound = 2 * sqrt(rows) * v[SCORE_EPSILON];
        MUST(r,
             v[SCORE_EPSILON] <= 1 + SLACK && fabs(v[SCORE_BOUND] - bound) <= 1e-9 * fmax(1, bound),
             "layer %zu: attention_epsilon is %.10g and attention_bound %.10g, wanted at most 1 "
             "and 2 sqrt(C - 1) times it, %.10g",
             l, v[SCORE_EPSILON], v[SCORE_BOUND], bound);
        MUST(r,
             v[SCORE_ERROR] <= v[SCORE_BOUND] * (1 + SLACK) + SLACK &&
                 v[SCORE_DRIFT] <= sqrt(2 * rows) * (1 + SLACK),
             "layer %zu: attention_error is %.10g and attention_drift %.10g, wanted at most the "
             "bound, %.10g, and sqrt(2 (C - 1)), %.10g",
             l, v[SCORE_ERROR], v[SCORE_DRIFT], v[SCORE_BOUND], sqrt(2 * rows));
    }
    return CKVC_OK;
}

static ckvc_status get_quantiles(const reader *r, const json_t *list, const char *what,
                                 double *out) {
    bool ok = json_is_array(list) && json_array_size(list) == SCORE_QUANTILE_COUNT;
    for (size_t i = 0; ok && i < SCORE_QUANTILE_COUNT; i++) {
        ok = number_at(list, i, &out[i]) && out[i] >= (i ? out[i - 1] : 0);
    }
    MUST(r, ok, "\"%s\" has a place that is no ascending list of %d numbers of at least 0", what,
         SCORE_QUANTILE_COUNT);
    return CKVC_OK;
}

static ckvc_status get_utilities(const reader *r) {
    score_row *row = r->row;
    const json_t *alpha = json_object_get(r->o, "alpha_quantiles"),
                 *layers = json_object_get(r->o, "utility_quantiles");
    if (!alpha && !layers) { return CKVC_OK; }
    const size_t L = row->n_layers, G = json_array_size(json_array_get(layers, 0));
    MUST(r, alpha && json_array_size(layers) == L && G > 0 && G <= 65535,
         "\"utility_quantiles\" is no list of %zu layers of heads beside \"alpha_quantiles\"", L);
    for (size_t l = 0; l < L; l++) { /* before room is made for them: as many as the line holds */
        const size_t n = json_array_size(json_array_get(layers, l));
        MUST(r, n == G, "\"utility_quantiles\": layer %zu has %zu heads, layer 0 has %zu", l, n, G);
    }
    row->n_heads = (uint32_t)G;
    row->utility = ckvc_alloc((L * G + 1) * SCORE_QUANTILE_COUNT, sizeof *row->utility);
    CKVC_TRY(
        get_quantiles(r, alpha, "alpha_quantiles", row->utility + L * G * SCORE_QUANTILE_COUNT));
    for (size_t i = 0; i < L * G; i++) {
        CKVC_TRY(get_quantiles(r, json_array_get(json_array_get(layers, i / G), i % G),
                               "utility_quantiles", row->utility + i * SCORE_QUANTILE_COUNT));
    }
    return CKVC_OK;
}

/* ---- lines ---- */

static bool is_known(const char *key, const json_t *value) {
    static const char *const others[] = {"table", "token_hash", "alpha_quantiles",
                                         "utility_quantiles"};
    bool known = setting_of_key(SETTING_LINE, key) ||
                 (strcmp(key, "sets") == 0 && json_is_array(value)); /* --sets: not needed here */
    for (size_t i = 0; i < N_COLUMNS; i++) { known |= strcmp(key, columns[i].key) == 0; }
    for (size_t i = 0; i < 4; i++) { known |= strcmp(key, others[i]) == 0; }
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        known |= strcmp(key, attention_keys[i]) == 0;
    }
    return known;
}

static ckvc_status read_row(const reader *r) {
    const char *key;
    json_t *value;
    CKVC_FAIL_IF(!json_is_object(r->o), r->err, CKVC_E_DATA,
                 "%s:%u: not an object, wanted one row of `ckvc score`", r->path, r->line);
    json_object_foreach(ckvc_unconst(r->o), key, value) {
        MUST(r, is_known(key, value), "unknown key \"%s\", wanted a row of `ckvc score`", key);
    }
    r->row->line = r->line;
    for (size_t i = 0; i < N_COLUMNS; i++) { CKVC_TRY(get_column(r, i)); }
    CKVC_TRY(get_table(r));
    CKVC_TRY(get_setting(r));
    CKVC_TRY(check_row(r));
    CKVC_TRY(get_attention(r));
    return get_utilities(r);
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
    c = c ? c : setting_compare(&a->setting, &b->setting, SETTING_SCORE | SETTING_SETS);
    return c ? c
             : (a->n_continuation > b->n_continuation) - (a->n_continuation < b->n_continuation);
}

static ckvc_status refuse_duplicates(const scores *s, ckvc_err *err) {
    CKVC_AUTO_FREE const score_row **order = ckvc_alloc(s->n, sizeof(void *));
    for (size_t i = 0; i < s->n; i++) { order[i] = &s->rows[i]; }
    qsort(order, s->n, sizeof(void *), compare_rows);
    for (size_t i = 1; i < s->n; i++) {
        const uint32_t a = order[i - 1]->line, b = order[i]->line;
        CKVC_FAIL_IF(compare_rows(&order[i - 1], &order[i]) == 0, err, CKVC_E_DATA,
                     "%s:%u: prompt \"%s\", budget %g, policy \"%s\" is on line %u already",
                     s->path, a > b ? a : b, order[i]->id, order[i]->budget, order[i]->policy,
                     a > b ? b : a);
    }
    return CKVC_OK;
}

ckvc_status scores_read(const char *path, scores **out, ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    CKVC_AUTO(scores_free_at) scores *s = ckvc_calloc(1, sizeof *s);
    CKVC_TRY(ckvc_map_open(path, &map, err));
    s->path = ckvc_strdup(path);
    for (ckvc_lines at = ckvc_lines_of(map.data, (size_t)map.size); ckvc_next_line(&at);) {
        CKVC_FAIL_IF(at.n > LINE_MAX_BYTES, err, CKVC_E_DATA,
                     "%s:%u: line of %zu bytes, wanted at most %zu", path, at.number, at.n,
                     LINE_MAX_BYTES);
        CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", path, at.number);
        json_auto_t *object = NULL;
        CKVC_TRY(ckvc_json_parse(at.text, at.n, where, &object, err));
        CKVC_GROW(s->rows, s->capacity, s->n + 1);
        score_row *row =
            &s->rows[s->n++]; /* before reading: a half-read row is freed with the rest */
        *row = (score_row){0};
        CKVC_TRY(read_row(&(reader){path, at.number, object, row, err}));
    }
    CKVC_FAIL_IF(s->n == 0, err, CKVC_E_DATA, "%s: no rows, wanted the output of `ckvc score`",
                 path);
    CKVC_TRY(refuse_duplicates(s, err));
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void scores_free(scores *s) {
    if (!s) { return; }
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < N_COLUMNS; k++) {
            const column_type type = columns[k].type;
            if (type == TEXT || type == TEXT_OR_NULL || type >= SETS) {
                ckvc_free_at((char *)&s->rows[i] + columns[k].offset);
            }
        }
        free(s->rows[i].attention);
        free(s->rows[i].utility);
    }
    free(s->rows);
    free(s->path);
    free(s);
}
