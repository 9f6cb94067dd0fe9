/* What tables bring on prompts that they were not fitted on: paired differences of reward, with the
 * tokens that paid for them.
 *
 * Rows are paired by model, manifest, prompt, budget and C; under one score, but for what compares
 * scores. Intervals hold the table fixed: they are over the prompts that it is scored on, Student's
 * t and a bootstrap.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/counts.h"
#include "cql/stats/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/rng.h"
#include "report/report_rows.h"

/* Tokens kept by two policies are called equal within this share of each other. */
#define EQUAL_TOKENS 0.02
/* More sources are not told apart. */
#define SOURCES_MAX 64

static double kept_mean(const score_row *row) {
    double sum = 0;
    for (uint32_t l = 0; l < row->n_layers; l++) {
        sum += row->n_kept[l];
    }
    return sum / row->n_layers;
}

/* Which prompts of a comparison count. */
typedef struct subset {
    const char *source;  /* NULL: any */
    const char *kind;    /* of source: "text", "retrieval"; NULL: any */
    uint32_t T_lo, T_hi; /* lengths from T_lo up to T_hi */
} subset;
static const subset everything = {NULL, NULL, 0, UINT32_MAX};
static const subset kinds[2] = {{NULL, "text", 0, UINT32_MAX}, {NULL, "retrieval", 0, UINT32_MAX}};

/* Retrieval prompts are those of sources whose names end so, as `manifest` names them: they reward
 * reach, text rewards nearness. */
static const char *kind_of(const char *source) {
    static const char ending[] = "retrieval";
    const size_t n = source ? strlen(source) : 0, m = sizeof ending - 1;
    return n >= m && strcmp(source + n - m, ending) == 0 ? "retrieval" : "text";
}

static bool in_subset(const subset *of, const score_row *x) {
    return (!of->source || strcmp(x->source ? x->source : "", of->source) == 0) &&
           (!of->kind || strcmp(kind_of(x->source), of->kind) == 0) && x->n_tokens >= of->T_lo &&
           x->n_tokens <= of->T_hi;
}

/* The median of d, and what the prompt with the largest difference has of the sum. Sorts d. */
static void spread(json_t *o, double *d, size_t n, double mean) {
    qsort(d, n, sizeof *d, ckvc_order_double);
    json_object_set_new(o, "median", ckvc_json_real(n ? (d[(n - 1) / 2] + d[n / 2]) / 2 : NAN));
    json_object_set_new(
        o, "largest_share",
        ckvc_json_real(n ? (mean < 0 ? d[0] : d[n - 1]) / (mean * (double)n) : NAN));
}

/* Sums of a difference under Poisson(1) weights of its prompts: a bootstrap over prompts, whose
 * weights a prompt has in every comparison. */
typedef struct resampled {
    uint32_t n; /* replicates; 0: none */
    uint64_t seed;
    uint8_t *weight;     /* [n] scratch */
    double *sum, *count; /* [n] */
} resampled;

static void resampled_fini(resampled *b) {
    free(b->weight);
    free(b->sum);
    free(b->count);
}

static ckvc_status resampled_init(resampled *b, uint32_t n, uint64_t seed, ckvc_err *err) {
    *b = (resampled){n, seed, ckvc_alloc(n + 1, 1), ckvc_alloc(n + 1, sizeof *b->sum),
                     ckvc_alloc(n + 1, sizeof *b->count)};
    return b->weight && b->sum && b->count
               ? CKVC_OK
               : ckvc_fail_memory(err, "report", n * sizeof *b->sum * 2);
}

static void resampled_clear(resampled *b) {
    memset(b->sum, 0, b->n * sizeof *b->sum);
    memset(b->count, 0, b->n * sizeof *b->count);
}

static void resampled_add(resampled *b, const char *id, double d) {
    cql_resample_weights(b->seed, ckvc_rng_key(id), CQL_RESAMPLE_BOOTSTRAP, b->n, b->weight);
    for (uint32_t k = 0; k < b->n; k++) {
        b->sum[k] += b->weight[k] * d;
        b->count[k] += b->weight[k];
    }
}

/* The 2.5% and 97.5% quantiles of the replicates' means; a replicate that drew no prompt has none.
 */
static ckvc_status resampled_json(resampled *b, json_t *o, ckvc_err *err) {
    double lo, hi;
    size_t n = 0;
    for (uint32_t k = 0; k < b->n; k++) {
        if (b->count[k] > 0) { b->sum[n++] = b->sum[k] / b->count[k]; }
    }
    if (n < 2) { return CKVC_OK; }
    rank_ends(b->sum, n, &lo, &hi);
    json_object_set_new(o, "bootstrap",
                        json_pack("{s:o, s:o, s:I}", "lo", ckvc_json_real(lo), "hi",
                                  ckvc_json_real(hi), "replicates", (json_int_t)n));
    return CKVC_OK;
}

/* Rows of series a against the rows of the same prompts in series b; boot, or NULL, takes each
 * pair's difference. d has room for all rows. */
static json_t *difference_json(const report_rows *s, size_t a, size_t b, const subset *of,
                               double *d, resampled *boot) {
    size_t i = s->series[a].first, k = s->series[b].first, n = 0, undefined = 0;
    double kept_a = 0, kept_b = 0, mean_a = 0, mean_b = 0;
    for (; i < s->n && s->rows[i].series == a; i++) {
        const score_row *x = s->rows[i].row;
        if (!in_subset(of, x)) { continue; }
        while (k < s->n && s->rows[k].series == b &&
               report_compare_prompts(s->rows[k].row, x) < 0) {
            k++;
        }
        if (k == s->n || s->rows[k].series != b || report_compare_prompts(s->rows[k].row, x) != 0) {
            continue; /* not scored under b */
        }
        const score_row *y = s->rows[k].row;
        if (isnan(x->reward) || isnan(y->reward)) {
            undefined++;
            continue;
        }
        d[n] = x->reward - y->reward;
        if (boot) { resampled_add(boot, x->id, d[n]); }
        n++;
        kept_a += kept_mean(x);
        kept_b += kept_mean(y);
        mean_a += x->reward;
        mean_b += y->reward;
    }
    if (n == 0 && undefined == 0) { return NULL; }
    rank_interval v = rank_mean_interval(d, n);
    double count = (double)n;
    json_t *o = json_object();
    json_object_set_new(o, "source", of->source ? json_string(of->source) : json_null());
    if (of->kind) { json_object_set_new(o, "kind", json_string(of->kind)); }
    if (of->T_hi != UINT32_MAX) {
        json_object_set_new(o, "T_lo", json_integer(of->T_lo));
        json_object_set_new(o, "T_hi", json_integer(of->T_hi));
    }
    json_object_set_new(o, "n", json_integer((json_int_t)n));
    json_object_set_new(o, "undefined", json_integer((json_int_t)undefined));
    json_object_set_new(o, "difference", ckvc_json_real(n ? v.mean : NAN));
    json_object_set_new(o, "lo", ckvc_json_real(n ? v.lo : NAN));
    json_object_set_new(o, "hi", ckvc_json_real(n ? v.hi : NAN));
    json_object_set_new(o, "standard_error", ckvc_json_real(n ? v.se : NAN));
    spread(o, d, n, v.mean);
    json_object_set_new(o, "reward", ckvc_json_real(mean_a / count));
    json_object_set_new(o, "reward_base", ckvc_json_real(mean_b / count));
    json_object_set_new(o, "kept", ckvc_json_real(kept_a / count));
    json_object_set_new(o, "kept_base", ckvc_json_real(kept_b / count));
    double ratio = kept_a / kept_b;
    json_object_set_new(o, "kept_ratio", ckvc_json_real(ratio));
    json_object_set_new(o, "equal_tokens", json_boolean(fabs(ratio - 1) <= EQUAL_TOKENS));
    return o;
}

static json_t *series_json(const report_series *s) {
    json_t *o = json_object();
    json_object_set_new(o, "title", json_string(s->title));
    json_object_set_new(o, "model", json_string(s->model));
    json_object_set_new(o, "policy", json_string(s->policy));
    json_object_set_new(o, "table", *s->table ? json_string(s->table) : json_null());
    json_object_set_new(o, "budget", ckvc_json_real(s->budget));
    json_object_set_new(o, "C", json_integer(s->continuation));
    setting_write_all(o, SETTING_LINE, &s->setting, SETTING_SCORE);
    json_object_set_new(o, "taus", ckvc_json_reals(s->taus, s->n_taus));
    json_object_set_new(o, "by_layer", json_boolean(s->layer_budgets != 0));
    return o;
}

/* A third of a series' prompts each, by length; equal lengths stay together. Returns how many of
 * the groups have prompts, 0 when there are fewer than 3 prompts or all are of one length. */
static size_t length_groups(const report_rows *s, const report_series *of, subset groups[3],
                            ckvc_status *rc, ckvc_err *err) {
    uint32_t *T = ckvc_alloc(of->n, sizeof *T);
    if (!T) {
        *rc = ckvc_fail_memory(err, "report", of->n * sizeof *T);
        return 0;
    }
    for (size_t i = 0; i < of->n; i++) {
        T[i] = s->rows[of->first + i].row->n_tokens;
    }
    qsort(T, of->n, sizeof *T, ckvc_order_u32);
    size_t n = 0;
    for (size_t g = 0, from = 0; of->n >= 3 && g < 3 && from < of->n; g++) {
        size_t to = (of->n * (g + 1) + 2) / 3; /* one behind the group */
        while (to < of->n && to > 0 && T[to] == T[to - 1]) {
            to++;
        }
        if (to > from) {
            groups[n++] = (subset){NULL, NULL, T[from], T[to - 1]};
            from = to;
        }
    }
    free(T);
    return n > 1 ? n : 0;
}

/* The other side of a comparison's parts: by source when there are several, by length. */
static json_t *parts_json(const report_rows *s, size_t a, size_t b, const subset *parts, size_t n,
                          double *d) {
    json_t *list = json_array();
    for (size_t i = 0; n > 1 && i < n; i++) {
        json_t *one = difference_json(s, a, b, &parts[i], d, NULL);
        if (one) { json_array_append_new(list, one); }
    }
    return list;
}

/* Series a against b: all prompts together, then by source and by length. Nothing when they share
 * no prompt. */
static ckvc_status comparison(const report_rows *s, size_t a, size_t b, const subset *sources,
                              size_t n_sources, resampled *boot, json_t *list, ckvc_err *err) {
    ckvc_status rc = CKVC_OK;
    subset lengths[3];
    const size_t n_lengths = length_groups(s, &s->series[a], lengths, &rc, err);
    double *d = ckvc_alloc(s->n + 1, sizeof *d);
    resampled_clear(boot);
    json_t *all = rc == CKVC_OK ? difference_json(s, a, b, &everything, d, boot) : NULL;
    if (all) {
        rc = resampled_json(boot, all, err);
        json_t *o = series_json(&s->series[a]);
        json_object_set_new(o, "base", json_string(s->series[b].title));
        json_object_set_new(o, "base_policy", json_string(s->series[b].policy));
        json_object_set_new(o, "base_table",
                            *s->series[b].table ? json_string(s->series[b].table) : json_null());
        json_object_set_new(o, "base_taus",
                            ckvc_json_reals(s->series[b].taus, s->series[b].n_taus));
        json_object_set_new(o, "one_score",
                            json_boolean(report_one_score(&s->series[a], &s->series[b])));
        json_object_set_new(o, "all", all);
        json_t *each = parts_json(s, a, b, kinds, 2, d);
        if (json_array_size(each) < 2) { /* all of one kind: that is "all" */
            json_array_clear(each);
        }
        json_object_set_new(o, "kinds", each);
        json_object_set_new(o, "sources", parts_json(s, a, b, sources, n_sources, d));
        json_object_set_new(o, "lengths", parts_json(s, a, b, lengths, n_lengths, d));
        json_array_append_new(list, o);
    }
    free(d);
    return rc;
}

static int compare_sources(const void *a, const void *b) {
    return strcmp(((const subset *)a)->source, ((const subset *)b)->source);
}

/* Tables first, then their controls, then the references. */
static size_t series_rank(const report_series *s) {
    return s->kind == SCORE_TABLE ? 0 : *s->table && !score_is_reference(s->kind) ? 1 : 2;
}

/* The lists of comparisons, by member of "scores". */
enum {
    AGAINST_IDENTITY,
    AGAINST_MATCHED,
    BETWEEN_TABLES,
    AT_EQUAL_TOKENS,
    AT_OTHER_TOKENS,
    AGAINST_CONTROLS,
    BETWEEN_SCORES,
    LISTS
};
static const char *const list_names[LISTS] = {
    "against_identity", "against_matched",  "between_tables", "at_equal_tokens",
    "at_other_tokens",  "against_controls", "between_scores"};

/* Series a against series b of its model, budget and C, in every list that the two belong to. */
static ckvc_status compare_two(const report_rows *s, size_t a, size_t b, const subset *sources,
                               size_t n_sources, resampled *boot, json_t *const lists[LISTS],
                               ckvc_err *err) {
    const report_series *x = &s->series[a], *y = &s->series[b];
    const bool own = strcmp(x->table, y->table) == 0, table = x->kind == SCORE_TABLE;
    const bool tables = table && y->kind == SCORE_TABLE && a > b;
    if (!report_one_score(x, y)) {
        /* tables under two scores, and what needs no table: the higher B under the other score */
        const bool plain = !*x->table && strcmp(x->policy, y->policy) == 0 &&
                           (x->kind == SCORE_IDENTITY || x->kind == SCORE_TOP_K);
        ckvc_status st =
            tables ? comparison(s, a, b, sources, n_sources, boot, lists[BETWEEN_TABLES], err)
                   : CKVC_OK;
        return st == CKVC_OK && plain && a > b
                   ? comparison(s, a, b, sources, n_sources, boot, lists[BETWEEN_SCORES], err)
                   : st;
    }
    bool in[LISTS] = {
        [AGAINST_IDENTITY] = y->kind == SCORE_IDENTITY,
        /* a table's match is no measure for another table, but is one for references */
        [AGAINST_MATCHED] =
            y->kind == SCORE_MATCHED && x->kind != SCORE_MATCHED && (own || !*x->table),
        [BETWEEN_TABLES] = tables,
        /* its own matched control and references; fair_opponents sorts out those that do not keep
           as many */
        [AT_EQUAL_TOKENS] = table && y->kind != SCORE_TABLE && y->kind != SCORE_IDENTITY &&
                            !score_is_control(y->kind) && (own || !*y->table),
        [AGAINST_CONTROLS] = table && own && score_is_control(y->kind),
    };
    ckvc_status rc = CKVC_OK;
    for (size_t k = 0; k < LISTS && rc == CKVC_OK; k++) {
        rc = in[k] ? comparison(s, a, b, sources, n_sources, boot, lists[k], err) : CKVC_OK;
    }
    return rc;
}

/* Two comparisons of one table in one setting with one reference: the first with the table's
 * tokens, the second with its own. */
static bool supersedes(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"title", "model", "budget", "by_layer", "C", "base_policy"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!json_equal(json_object_get(a, keys[k]), json_object_get(b, keys[k]))) { return false; }
    }
    return json_is_string(json_object_get(a, "base_table")) &&
           json_is_null(json_object_get(b, "base_table"));
}

/* Of a reference scored both ways the one with the table's tokens stays. References that keep more
 * or fewer go to a list of their own: still a comparison, but not at equal tokens. A table's
 * matched control stays, which says itself how near it came. */
static void fair_opponents(json_t *fair, json_t *other) {
    for (size_t i = json_array_size(fair); i-- > 0;) {
        for (size_t k = 0; k < json_array_size(fair); k++) {
            if (supersedes(json_array_get(fair, k), json_array_get(fair, i))) {
                json_array_remove(fair, i);
                break;
            }
        }
    }
    for (size_t i = 0; i < json_array_size(fair);) {
        json_t *o = json_array_get(fair, i);
        if (strcmp(report_str(o, "base_policy"), "matched") == 0 ||
            json_is_true(json_object_get(json_object_get(o, "all"), "equal_tokens"))) {
            i++;
        } else {
            json_array_append(other, o);
            json_array_remove(fair, i);
        }
    }
}

ckvc_status report_scores_json(report *r, ckvc_err *err) {
    json_t *o = json_object(), *files = json_array(), *all_series = json_array(), *lists[LISTS];
    json_object_set_new(r->json, "scores", o);
    json_object_set_new(o, "files", files);
    json_object_set_new(o, "series", all_series);
    for (size_t k = 0; k < LISTS; k++) {
        lists[k] = json_array();
        json_object_set_new(o, list_names[k], lists[k]);
    }
    for (size_t i = 0; i < r->n_scores; i++) {
        const char *slash = strrchr(r->scores[i]->path, '/');
        json_array_append_new(files, json_pack("{s:s, s:I}", "file",
                                               slash ? slash + 1 : r->scores[i]->path, "rows",
                                               (json_int_t)r->scores[i]->n));
    }
    report_rows s = {0};
    subset sources[SOURCES_MAX + 1];
    size_t n_sources = 0, n_marked = 0;
    resampled boot;
    ckvc_status rc = resampled_init(&boot, r->o->replicates, r->o->seed, err);
    rc = rc == CKVC_OK ? report_rows_gather(r, &s, err) : rc;
    for (size_t i = 0; i < s.n && rc == CKVC_OK; i++) {
        const char *name = s.rows[i].row->source ? s.rows[i].row->source : "";
        size_t k = 0;
        while (k < n_sources && strcmp(sources[k].source, name) != 0) {
            k++;
        }
        if (k == n_sources && n_sources <= SOURCES_MAX) {
            sources[n_sources] = everything;
            sources[n_sources++].source = name;
        }
        n_marked += s.rows[i].row->split && strcmp(s.rows[i].row->split, "heldout") == 0;
    }
    n_sources = n_sources > SOURCES_MAX ? 0 : n_sources;
    qsort(sources, n_sources, sizeof *sources, compare_sources);
    for (size_t step = 0; step < 3 * s.n_series && rc == CKVC_OK; step++) {
        size_t a = step % s.n_series;
        if (series_rank(&s.series[a]) != step / s.n_series) { continue; }
        json_array_append_new(all_series, series_json(&s.series[a]));
        for (size_t b = 0; b < s.n_series && rc == CKVC_OK; b++) {
            if (a != b && report_one_setting(&s.series[a], &s.series[b])) {
                rc = compare_two(&s, a, b, sources, n_sources, &boot, lists, err);
            }
        }
    }
    fair_opponents(lists[AT_EQUAL_TOKENS], lists[AT_OTHER_TOKENS]);
    json_object_set_new(o, "prompts_used_in_calibration_left_out",
                        json_integer((json_int_t)s.dropped_seen));
    json_object_set_new(o, "rows_of_other_splits_left_out",
                        json_integer((json_int_t)s.dropped_split));
    json_object_set_new(o, "rows_in_several_files", json_integer((json_int_t)s.dropped_twice));
    json_object_set_new(o, "rows", json_integer((json_int_t)s.n));
    json_object_set_new(o, "rows_used_in_calibration", json_integer((json_int_t)s.used_seen));
    bool checked = s.n > 0 && s.used_seen == 0 && (n_marked == s.n || r->n_runs > 0);
    json_object_set_new(o, "held_out_checked", json_boolean(checked));
    report_rows_free(&s);
    resampled_fini(&boot);
    return rc;
}
