/* Reads and checks the lines of `ckvc score`. scores.md says what the keys mean. See scores.h. */
#include "formats/lines/scores.h"

#include "formats/lines/rows.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

#define MAX_LAYERS 65536

/* Numbers of a line have been text in between, and the measurement itself is right to about
 * 1e-6. */
#define SLACK 1e-5

/* ---- keys of every line ---- */

enum {
    SETS = RECORD_OTHER, /* uint32_t [L][n_sets] counts of tokens; the file has [L] or [L][G] */
    SETS_OR_NULL,        /* the same, or NULL when it is null or missing */
    LAYERS_OR_NULL       /* uint32_t [L] counts of tokens, or NULL */
};
#define TABLE_ID                                                                                   \
    .type = RECORD_HEX, .need = RECORD_IF_ANY,                                                     \
    .wanted = "a table's content id, 64 hexadecimal digits"

/* The columns in the order in which they are read: counts come before what they bound. */
static const record_member columns[] = {
#define C(key, rule, member) RECORD(score_row, key, member, rule)
    C("id", ROW_TEXT, id),
    C("source", ROW_TEXT_IF_ANY, source),
    C("document", ROW_TEXT_IF_ANY, document),
    C("split", ROW_TEXT_IF_ANY, split),
    C("model", ROW_TEXT, model),
    C("manifest", ROW_TEXT, manifest),
    C("policy", ROW_TEXT, policy),
    C("T", ROW_COUNT, n_tokens),
    C("C", ROW_COUNT, n_continuation),
    C("budget", ROW_REAL_OR_NULL, budget),
    C("r_struct", ROW_REAL_OR_NULL, r_struct),
    C("r_sem", ROW_REAL_OR_NULL, r_sem),
    C("bin_entropy", ROW_BIN, bin_entropy),
    C("bin_perplexity", ROW_BIN, bin_ppl),
    C("n_kept", .type = SETS, n_kept),
    C("n_kept_window", .type = SETS_OR_NULL, n_kept_window),
    C("n_candidates", .type = LAYERS_OR_NULL, n_candidates),
    C("loss_full", ROW_REAL_OR_NULL, loss_full),
    C("loss_comp", ROW_REAL_OR_NULL, loss_comp),
    C("reward", ROW_REAL_OR_NULL, reward),
    C("kl", ROW_REAL_IF_ANY, kl),
    C("tau", ROW_REAL_IF_ANY, tau),
    C("entries", ROW_REAL_IF_ANY, entries),
    C("head_dim", ROW_REAL_IF_ANY, head_dim),
    C("repeat_tokens", ROW_REAL_IF_ANY, repeat_tokens),
    C("later_tokens", ROW_REAL_IF_ANY, later_tokens),
    C("table", TABLE_ID, table),
#undef C
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static ckvc_status get_count(const row_reader *r, uint32_t n_tokens, const char *key,
                             const json_t *v, size_t layer, uint32_t *out) {
    ROW_MUST(r, ckvc_json_is_count(v, n_tokens),
             "\"%s\"[%zu] is not a count of tokens, wanted 0 to T = %u", key, layer, n_tokens);
    *out = (uint32_t)json_integer_value(v);
    return CKVC_OK;
}

/* Reads counts by layer, or by layer and head. The first array of a row decides L and how many sets
 * a layer has; the others must agree. */
static ckvc_status get_layers(const row_reader *r, score_row *row, const record_member *column,
                              const json_t *v) {
    const char *key = column->name;
    const bool sets = column->type != LAYERS_OR_NULL;
    uint32_t **out = (void *)((char *)row + column->at);
    const size_t n = json_array_size(v), of_layer = json_is_array(json_array_get(v, 0))
                                                        ? json_array_size(json_array_get(v, 0))
                                                        : 1;
    if (n == 0 || n > MAX_LAYERS || of_layer == 0 || of_layer > MAX_LAYERS) {
        return row_wrong(r, key, "one count per layer");
    }
    ROW_MUST(r, row->n_layers == 0 || row->n_layers == n,
             "\"%s\" has %zu layers, \"n_kept\" has %u", key, n, row->n_layers);
    ROW_MUST(r, sets ? row->n_sets == 0 || row->n_sets == of_layer : of_layer == 1,
             "\"%s\" has %zu counts a layer, wanted %u", key, of_layer, sets ? row->n_sets : 1);
    /* checked before memory is allocated for them: there are only as many as the line has */
    for (size_t l = 0; l < n; l++) {
        const json_t *c = json_array_get(v, l);
        ROW_MUST(r, json_is_array(c) || of_layer == 1, "\"%s\"[%zu] is no list of %zu counts", key,
                 l, of_layer);
        ROW_MUST(r, !json_is_array(c) || json_array_size(c) == of_layer,
                 "\"%s\"[%zu] has %zu counts, wanted %zu", key, l, json_array_size(c), of_layer);
    }
    row->n_layers = (uint32_t)n;
    row->n_sets = sets ? (uint32_t)of_layer : row->n_sets;
    *out = ckvc_alloc(n * of_layer, sizeof **out);
    for (size_t l = 0; l < n; l++) {
        const json_t *c = json_array_get(v, l);
        if (!json_is_array(c)) {
            CKVC_TRY(get_count(r, row->n_tokens, key, c, l, *out + l));
            continue;
        }
        for (size_t g = 0; g < of_layer; g++) {
            CKVC_TRY(
                get_count(r, row->n_tokens, key, json_array_get(c, g), l, *out + l * of_layer + g));
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

static ckvc_status get_column(const row_reader *r, score_row *row, const record_member *c) {
    if (c->type < RECORD_OTHER) { return row_get(r, c, row); }
    const json_t *v = json_object_get(r->o, c->name);
    return c->type != SETS && (!v || json_is_null(v)) ? CKVC_OK : get_layers(r, row, c, v);
}

static ckvc_status get_hash(const row_reader *r, score_row *row) {
    const json_t *hash = json_object_get(r->o, "token_hash");
    if (!*row->table && strcmp(row->policy, "table") == 0) {
        return row_wrong(r, "table", "a table's content id, 64 hexadecimal digits");
    }
    if (hash && !ckvc_json_is_hex(hash, 16)) {
        return row_wrong(r, "token_hash", "16 hexadecimal digits");
    }
    row->token_hash = hash ? strtoull(json_string_value(hash), NULL, 16) : 0;
    return CKVC_OK;
}

/* Reads optional keys that are neutral when absent: the setting under which the row was made, and
 * the budgets by layer, of which the row has a hash, so that rows with the same hash have the same
 * budgets. */
static ckvc_status get_setting(const row_reader *r, score_row *row) {
    const json_t *layers = json_object_get(r->o, "layer_budgets");
    CKVC_TRY(row_get_setting(r, &row->setting));
    if (!layers) { return CKVC_OK; }
    if (!json_is_array(layers) || json_array_size(layers) != row->n_layers) {
        return row_wrong(r, "layer_budgets", "one budget per layer");
    }
    for (size_t l = 0; l < row->n_layers; l++) {
        const json_t *v = json_array_get(layers, l);
        const double b = json_number_value(v); /* 0 when it is no number */
        ROW_MUST(r, b > 0 && isfinite(b), "\"layer_budgets\"[%zu] is not a number above 0", l);
        uint8_t bytes[16];
        ckvc_put_u64(bytes, row->layer_budgets);
        ckvc_put_f64(bytes + 8, b);
        row->layer_budgets = ckvc_xxh64(bytes, sizeof bytes);
    }
    row->layer_budgets += row->layer_budgets == 0;
    return CKVC_OK;
}

static ckvc_status check_score_line(const row_reader *r, const score_row *row) {
    const bool has_losses = !isnan(row->loss_full) && !isnan(row->loss_comp);
    ROW_MUST(r, isnan(row->reward) != has_losses, "\"reward\" is %s although the losses are %s",
             has_losses ? "null" : "a number", has_losses ? "numbers" : "null");
    const double want = -(row->loss_comp - row->loss_full);
    ROW_MUST(r,
             !has_losses || !(fabs(row->reward - want) >
                              1e-9 * fmax(1, fabs(row->loss_full) + fabs(row->loss_comp))),
             "\"reward\" is %.10g, but -(loss_comp - loss_full) is %.10g", row->reward, want);
    ROW_MUST(r, isnan(row->kl) || row->kl >= 0, "\"kl\" is %.10g, which no divergence is", row->kl);
    ROW_MUST(r, row->budget > 0 && row->n_tokens > 0, "budget %g and T = %u, wanted both above 0",
             row->budget, row->n_tokens);
    for (uint32_t i = 0; row->n_kept_window && i < row->n_layers * row->n_sets; i++) {
        ROW_MUST(r, row->n_kept_window[i] <= row->n_kept[i],
                 "layer %u keeps %u tokens of the window but %u in all", i / row->n_sets,
                 row->n_kept_window[i], row->n_kept[i]);
    }
    /* one set of a layer stands for all its heads, however many they are */
    const double kept = kept_in_all(row);
    ROW_MUST(r,
             isnan(row->entries) || (row->n_sets > 1 ? row->entries == kept
                                     : kept == 0     ? row->entries == 0
                                                     : fmod(row->entries, kept) == 0),
             "\"entries\" is %.0f, but %.0f are kept", row->entries, kept);
    ROW_MUST(r, isnan(row->head_dim) || (row->head_dim >= 1 && fmod(row->head_dim, 1) == 0),
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

static ckvc_status get_attention(const row_reader *r, score_row *row) {
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
        ROW_MUST(
            r,
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
            ROW_MUST(r, number_at(lists[i], l, &v[i]) && v[i] >= 0,
                     "\"%s\"[%zu] is no number of at least 0", attention_keys[i], l);
            row->attention[i * L + l] = v[i];
        }
        const double bound = 2 * sqrt(rows) * v[SCORE_EPSILON];
        ROW_MUST(
            r,
            v[SCORE_EPSILON] <= 1 + SLACK && fabs(v[SCORE_BOUND] - bound) <= 1e-9 * fmax(1, bound),
            "layer %zu: attention_epsilon is %.10g and attention_bound %.10g, wanted at most 1 "
            "and 2 sqrt(C - 1) times it, %.10g",
            l, v[SCORE_EPSILON], v[SCORE_BOUND], bound);
        ROW_MUST(
            r,
            v[SCORE_ERROR] <= v[SCORE_BOUND] * (1 + SLACK) + SLACK &&
                v[SCORE_DRIFT] <= sqrt(2 * rows) * (1 + SLACK),
            "layer %zu: attention_error is %.10g and attention_drift %.10g, wanted at most the "
            "bound, %.10g, and sqrt(2 (C - 1)), %.10g",
            l, v[SCORE_ERROR], v[SCORE_DRIFT], v[SCORE_BOUND], sqrt(2 * rows));
    }
    return CKVC_OK;
}

static ckvc_status get_quantiles(const row_reader *r, const json_t *list, const char *what,
                                 double *out) {
    bool ok = json_is_array(list) && json_array_size(list) == SCORE_QUANTILE_COUNT;
    for (size_t i = 0; ok && i < SCORE_QUANTILE_COUNT; i++) {
        ok = number_at(list, i, &out[i]) && out[i] >= (i ? out[i - 1] : 0);
    }
    ROW_MUST(r, ok, "\"%s\" has a place that is no ascending list of %d numbers of at least 0",
             what, SCORE_QUANTILE_COUNT);
    return CKVC_OK;
}

static ckvc_status get_utilities(const row_reader *r, score_row *row) {
    const json_t *alpha = json_object_get(r->o, "alpha_quantiles"),
                 *layers = json_object_get(r->o, "utility_quantiles");
    if (!alpha && !layers) { return CKVC_OK; }
    const size_t L = row->n_layers, G = json_array_size(json_array_get(layers, 0));
    ROW_MUST(r, alpha && json_array_size(layers) == L && G > 0 && G <= 65535,
             "\"utility_quantiles\" is no list of %zu layers of heads beside \"alpha_quantiles\"",
             L);
    /* checked before memory is allocated for them: there are only as many as the line has */
    for (size_t l = 0; l < L; l++) {
        const size_t n = json_array_size(json_array_get(layers, l));
        ROW_MUST(r, n == G, "\"utility_quantiles\": layer %zu has %zu heads, layer 0 has %zu", l, n,
                 G);
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

static bool is_other(const char *key, const json_t *value) {
    static const char *const others[] = {"token_hash", "alpha_quantiles", "utility_quantiles"};
    bool known = setting_of_key(SETTING_LINE, key) ||
                 (strcmp(key, "whole") == 0 && json_is_true(value)) ||
                 /* written under --sets; not needed here */
                 (strcmp(key, "sets") == 0 && json_is_array(value));
    for (size_t i = 0; i < 3; i++) { known |= strcmp(key, others[i]) == 0; }
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        known |= strcmp(key, attention_keys[i]) == 0;
    }
    return known;
}

static ckvc_status read_row(const row_reader *r, void *list) {
    scores *s = list;
    CKVC_GROW(s->rows, s->capacity, s->n + 1);
    /* counted before it is read, so that a row that is read in part is freed with the others */
    score_row *row = &s->rows[s->n++];
    *row = (score_row){.line = r->line};
    for (size_t i = 0; i < N_COLUMNS; i++) { CKVC_TRY(get_column(r, row, &columns[i])); }
    CKVC_TRY(get_hash(r, row));
    CKVC_TRY(get_setting(r, row));
    CKVC_TRY(check_score_line(r, row));
    CKVC_TRY(get_attention(r, row));
    return get_utilities(r, row);
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
    c = c ? c
          : setting_compare(&a->setting, &b->setting, SETTING_SCORE | SETTING_SETS | SETTING_CACHE);
    return c ? c
             : (a->n_continuation > b->n_continuation) - (a->n_continuation < b->n_continuation);
}

static const row_kind kind = {"ckvc score", columns, N_COLUMNS, is_other, read_row, compare_rows};

ckvc_status scores_read(const char *path, scores **out, ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    CKVC_AUTO(scores_free_at) scores *s = ckvc_calloc(1, sizeof *s);
    const void *pair[2];
    CKVC_TRY(ckvc_map_open(path, &map, err));
    s->path = ckvc_strdup(path);
    CKVC_TRY(rows_read(&kind, path, map.data, (size_t)map.size, s, err));
    if (rows_repeat(&kind, s->rows, s->n, sizeof *s->rows, pair)) {
        const score_row *first = pair[0], *again = pair[1];
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s:%u: prompt \"%s\", budget %g, policy \"%s\" is on line %u already",
                         path, again->line, again->id, again->budget, again->policy, first->line);
    }
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void scores_free(scores *s) {
    if (!s) { return; }
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < N_COLUMNS; k++) {
            const int type = columns[k].type;
            if (type >= RECORD_OWNED) { ckvc_free_at((char *)&s->rows[i] + columns[k].at); }
        }
        CKVC_FREE(s->rows[i].attention, s->rows[i].utility);
    }
    CKVC_FREE(s->rows, s->path, s);
}
