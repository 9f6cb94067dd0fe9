/* What tables bring on prompts that they were not fitted on: paired differences of reward, with the tokens that paid for them.
 *
 * Rows are paired by model, manifest, prompt, budget and C.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_rows.h"

/* Tokens kept by two policies are called equal within this share of each other. */
#define EQUAL_TOKENS 0.02
/* More sources are not told apart. */
#define SOURCES_MAX 64

static double kept_mean(const score_row *row)
{
    double sum = 0;
    for (uint32_t l = 0; l < row->n_layers; l++) {
        sum += row->n_kept[l];
    }
    return sum / row->n_layers;
}

/* Rows of series a against the rows of the same prompts in series b; source NULL: all. d has room for all rows. */
static json_t *difference_json(report_rows *s, size_t a, size_t b, const char *source, double *d)
{
    size_t i = s->series[a].first, k = s->series[b].first, n = 0, undefined = 0;
    double kept_a = 0, kept_b = 0, mean_a = 0, mean_b = 0;
    for (; i < s->n && s->rows[i].series == a; i++) {
        const score_row *x = s->rows[i].row;
        if (source && strcmp(x->source ? x->source : "", source) != 0) {
            continue;
        }
        while (k < s->n && s->rows[k].series == b && report_compare_prompts(s->rows[k].row, x) < 0) {
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
        d[n++] = x->reward - y->reward;
        kept_a += kept_mean(x);
        kept_b += kept_mean(y);
        mean_a += x->reward;
        mean_b += y->reward;
    }
    if (n == 0 && undefined == 0) {
        return NULL;
    }
    rank_interval v = rank_mean_interval(d, n);
    double count = (double)n;
    json_t *o = json_object();
    json_object_set_new(o, "source", source ? json_string(source) : json_null());
    json_object_set_new(o, "n", json_integer((json_int_t)n));
    json_object_set_new(o, "undefined", json_integer((json_int_t)undefined));
    json_object_set_new(o, "difference", ckvc_json_real(n ? v.mean : NAN));
    json_object_set_new(o, "lo", ckvc_json_real(n ? v.lo : NAN));
    json_object_set_new(o, "hi", ckvc_json_real(n ? v.hi : NAN));
    json_object_set_new(o, "standard_error", ckvc_json_real(n ? v.se : NAN));
    json_object_set_new(o, "reward", ckvc_json_real(mean_a / count));
    json_object_set_new(o, "reward_base", ckvc_json_real(mean_b / count));
    json_object_set_new(o, "kept", ckvc_json_real(kept_a / count));
    json_object_set_new(o, "kept_base", ckvc_json_real(kept_b / count));
    double ratio = kept_a / kept_b;
    json_object_set_new(o, "kept_ratio", ckvc_json_real(ratio));
    json_object_set_new(o, "equal_tokens", json_boolean(fabs(ratio - 1) <= EQUAL_TOKENS));
    return o;
}

static bool same_setting(const report_series *a, const report_series *b)
{
    return strcmp(a->model, b->model) == 0 && a->budget == b->budget && a->continuation == b->continuation;
}

static json_t *series_json(const report_series *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "title", json_string(s->title));
    json_object_set_new(o, "model", json_string(s->model));
    json_object_set_new(o, "policy", json_string(s->policy));
    json_object_set_new(o, "table", *s->table ? json_string(s->table) : json_null());
    json_object_set_new(o, "budget", ckvc_json_real(s->budget));
    json_object_set_new(o, "C", json_integer(s->continuation));
    json_object_set_new(o, "tau", ckvc_json_real(s->tau));
    return o;
}

/* Series a against b: all sources together, then one by one when there are several. */
static ckvc_status comparison(report_rows *s, size_t a, size_t b, const char *const *sources, size_t n_sources, json_t *list,
                              ckvc_err *err)
{
    double *d = ckvc_alloc(s->n + 1, sizeof *d);
    if (!d) {
        return ckvc_fail_memory(err, "report", s->n * sizeof *d);
    }
    json_t *all = difference_json(s, a, b, NULL, d);
    if (all) {
        json_t *o = series_json(&s->series[a]), *by_source = json_array();
        json_object_set_new(o, "base", json_string(s->series[b].title));
        json_object_set_new(o, "all", all);
        for (size_t i = 0; i < n_sources && n_sources > 1; i++) {
            json_t *one = difference_json(s, a, b, sources[i], d);
            if (one) {
                json_array_append_new(by_source, one);
            }
        }
        json_object_set_new(o, "sources", by_source);
        json_array_append_new(list, o);
    }
    free(d);
    return CKVC_OK;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_table(const report_series *s)
{
    return strcmp(s->policy, "table") == 0;
}

static size_t series_rank(const report_series *s)
{
    return is_table(s) ? 0 : *s->table ? 1 : 2;
}

ckvc_status report_scores_json(report *r, ckvc_err *err)
{
    json_t *o = json_object(), *against_identity = json_array(), *against_tables = json_array(), *against_equal = json_array(),
           *files = json_array(), *all_series = json_array();
    json_object_set_new(r->json, "scores", o);
    json_object_set_new(o, "files", files);
    json_object_set_new(o, "series", all_series);
    json_object_set_new(o, "against_identity", against_identity);
    json_object_set_new(o, "between_tables", against_tables);
    json_object_set_new(o, "at_equal_tokens", against_equal);
    for (size_t i = 0; i < r->n_scores; i++) {
        const char *slash = strrchr(r->scores[i]->path, '/');
        json_array_append_new(
            files, json_pack("{s:s, s:I}", "file", slash ? slash + 1 : r->scores[i]->path, "rows", (json_int_t)r->scores[i]->n));
    }
    report_rows s = {0};
    const char **sources = NULL;
    size_t n_sources = 0, n_marked = 0;
    ckvc_status rc = report_rows_gather(r, &s, err);
    if (rc == CKVC_OK && !(sources = ckvc_calloc(s.n + 1, sizeof *sources))) {
        rc = ckvc_fail_memory(err, "report", s.n * sizeof *sources);
    }
    for (size_t i = 0; i < s.n && rc == CKVC_OK; i++) {
        const char *name = s.rows[i].row->source ? s.rows[i].row->source : "";
        size_t k = 0;
        while (k < n_sources && strcmp(sources[k], name) != 0) {
            k++;
        }
        if (k == n_sources && n_sources <= SOURCES_MAX) {
            sources[n_sources++] = name;
        }
        n_marked += s.rows[i].row->split && strcmp(s.rows[i].row->split, "heldout") == 0;
    }
    n_sources = n_sources > SOURCES_MAX ? 0 : n_sources;
    if (sources) {
        qsort(sources, n_sources, sizeof *sources, compare_text);
    }
    /* Tables first, then their controls, then the references. */
    for (size_t step = 0; step < 3 * s.n_series && rc == CKVC_OK; step++) {
        size_t a = step % s.n_series;
        if (series_rank(&s.series[a]) != step / s.n_series) {
            continue;
        }
        json_array_append_new(all_series, series_json(&s.series[a]));
        for (size_t b = 0; b < s.n_series && rc == CKVC_OK; b++) {
            if (a == b || !same_setting(&s.series[a], &s.series[b])) {
                continue;
            }
            if (strcmp(s.series[b].policy, "identity") == 0) {
                rc = comparison(&s, a, b, sources, n_sources, against_identity, err);
            } else if (is_table(&s.series[a]) && is_table(&s.series[b]) && a > b) {
                rc = comparison(&s, a, b, sources, n_sources, against_tables, err);
            } else if (is_table(&s.series[a]) && !is_table(&s.series[b]) &&
                       (!*s.series[b].table || strcmp(s.series[b].table, s.series[a].table) == 0)) {
                /* its own matched control, or a reference policy that happens to keep as many tokens: the fair opponents */
                size_t before = json_array_size(against_equal);
                rc = comparison(&s, a, b, sources, n_sources, against_equal, err);
                if (rc == CKVC_OK && json_array_size(against_equal) > before) {
                    json_t *last = json_array_get(against_equal, before);
                    if (!*s.series[b].table && !json_is_true(json_object_get(json_object_get(last, "all"), "equal_tokens"))) {
                        json_array_remove(against_equal, before);
                    }
                }
            }
        }
    }
    json_object_set_new(o, "prompts_used_in_calibration_left_out", json_integer((json_int_t)s.dropped_seen));
    json_object_set_new(o, "rows_of_other_splits_left_out", json_integer((json_int_t)s.dropped_split));
    json_object_set_new(o, "rows", json_integer((json_int_t)s.n));
    json_object_set_new(o, "rows_used_in_calibration", json_integer((json_int_t)s.used_seen));
    bool checked = s.n > 0 && s.used_seen == 0 && (n_marked == s.n || r->n_runs > 0);
    json_object_set_new(o, "held_out_checked", json_boolean(checked));
    report_rows_free(&s);
    free(sources);
    return rc;
}
