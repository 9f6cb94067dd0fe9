/* The paper's three diagnostics, as numbers: how scores are distributed by prompt and head and
 * whether the compiled weights have two peaks; what a fixed policy's damage has to do with the
 * risks; where the worst tenth of it lies.
 *
 * The paper shows them as pictures without stating tests; where it is silent the choice is made
 * here and said on the page.
 */
#include "report/report_diagnostics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/stats/bimodality.h"
#include "cql/stats/partial.h"
#include "cql/stats/rank.h"
#include "cql/stats/worst.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_rows.h"

/* Samples behind the p value of a dip test. */
#define DIP_SAMPLES 2000
/* Cells of the risk plane on each axis: quantiles of these prompts. */
#define RISK_CELLS 4
/* Fewer prompts than this are not put into cells. */
#define DAMAGE_PROMPTS_MIN 10

/* ---- utility scores ---- */

/* Lines with quantiles, each (model, prompt) once, sorted by model and prompt. */
static int compare_prompts_of_models(const void *pa, const void *pb) {
    const score_row *a = *(const score_row *const *)pa, *b = *(const score_row *const *)pb;
    int c = strcmp(a->model, b->model);
    return c ? c : report_compare_prompts(a, b);
}

/* How far the upper tail reaches: ln of the 95% quantile over the median; NaN where the median is
 * 0. */
static double spread(const double *q) {
    return q[2] > 0 && q[4] > 0 ? log(q[4] / q[2]) : NAN;
}

/* Spread of every (prompt, head): shares of its variance between heads, between prompts, and
 * neither, as of a table with one value a cell; prompts with an undefined value left out. Also the
 * mean of each head. */
static ckvc_status heads_json(const score_row *const *rows, size_t n, json_t *o, ckvc_err *err) {
    const size_t L = rows[0]->n_layers, G = rows[0]->n_heads, H = L * G;
    double *head = ckvc_calloc(H + 1, sizeof *head);
    double all = 0, total = 0, between_heads = 0, between_prompts = 0;
    size_t used = 0;
    for (int pass = 0; pass < 2; pass++) { /* means, then squares about them */
        for (size_t i = 0; i < n; i++) {
            double prompt = 0;
            for (size_t h = 0; h < H; h++) {
                prompt += spread(rows[i]->utility + h * SCORE_QUANTILE_COUNT) / (double)H;
            }
            if (!isfinite(prompt)) { continue; }
            used += pass == 0;
            all += pass == 0 ? prompt : 0;
            between_prompts += pass == 1 ? (double)H * (prompt - all) * (prompt - all) : 0;
            for (size_t h = 0; h < H; h++) {
                double v = spread(rows[i]->utility + h * SCORE_QUANTILE_COUNT);
                head[h] += pass == 0 ? v : 0;
                total += pass == 1 ? (v - all) * (v - all) : 0;
            }
        }
        all /= pass == 0 ? (double)used : 1;
        for (size_t h = 0; h < H; h++) {
            head[h] /= pass == 0 ? (double)used : 1;
            between_heads += pass == 1 ? (double)used * (head[h] - all) * (head[h] - all) : 0;
        }
    }
    json_t *layers = json_array();
    for (size_t l = 0; l < L; l++) {
        json_t *of = json_array();
        for (size_t g = 0; g < G; g++) {
            json_array_append_new(of, ckvc_json_real(head[l * G + g]));
        }
        json_array_append_new(layers, of);
    }
    json_object_set_new(o, "prompts_used", json_integer((json_int_t)used));
    json_object_set_new(o, "spread_mean", ckvc_json_real(all));
    json_object_set_new(o, "spread_by_head", layers);
    json_object_set_new(o, "between_heads", ckvc_json_real(between_heads / total));
    json_object_set_new(o, "between_prompts", ckvc_json_real(between_prompts / total));
    json_object_set_new(o, "neither",
                        ckvc_json_real((total - between_heads - between_prompts) / total));
    free(head);
    return CKVC_OK;
}

static ckvc_status utilities_json(const report_rows *s, json_t *list, ckvc_err *err) {
    const score_row **rows = ckvc_alloc(s->n + 1, sizeof *rows);
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->rows[i].row->utility) { rows[n++] = s->rows[i].row; }
    }
    qsort(rows, n, sizeof *rows, compare_prompts_of_models);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || compare_prompts_of_models(&rows[kept - 1], &rows[i]) != 0) {
            rows[kept++] = rows[i];
        }
    }
    ckvc_status st = CKVC_OK;
    for (size_t i = 0, end; i < kept && st == CKVC_OK; i = end) {
        for (end = i + 1; end < kept && strcmp(rows[end]->model, rows[i]->model) == 0; end++) {
            if (rows[end]->n_layers != rows[i]->n_layers ||
                rows[end]->n_heads != rows[i]->n_heads) {
                st = ckvc_fail(err, CKVC_E_DATA,
                               "score lines %u and %u of model %.12s...: %u x %u heads and %u x %u",
                               rows[i]->line, rows[end]->line, rows[i]->model, rows[i]->n_layers,
                               rows[i]->n_heads, rows[end]->n_layers, rows[end]->n_heads);
            }
        }
        json_t *o = json_object(), *alpha = json_array();
        json_array_append_new(list, o);
        json_object_set_new(o, "model", json_string(rows[i]->model));
        json_object_set_new(o, "n", json_integer((json_int_t)(end - i)));
        for (size_t k = i; k < end; k++) {
            json_array_append_new(
                alpha,
                ckvc_json_reals(rows[k]->utility + (size_t)rows[k]->n_layers * rows[k]->n_heads *
                                                       SCORE_QUANTILE_COUNT,
                                SCORE_QUANTILE_COUNT));
        }
        json_object_set_new(o, "alpha_quantiles", alpha);
        st = st ? st : heads_json(rows + i, end - i, o, err);
    }
    free(rows);
    return st;
}

/* ---- bimodality of the compiled weights ---- */

static ckvc_status weights_json(const report *r, json_t *list, ckvc_err *err) {
    for (size_t i = 0; i < r->n_tables; i++) {
        const report_table *t = &r->tables[i];
        const ckvc_table *k = t->f->table;
        double *count = ckvc_alloc(k->n_head_actions + 1, sizeof *count);
        for (uint32_t b = 0; b < k->n_budgets; b++) {
            memset(count, 0, k->n_head_actions * sizeof *count);
            for (uint32_t l = 0; l < k->n_layers; l++) {
                for (uint32_t g = 0; g < k->n_heads; g++) {
                    int a = ckvc_grid_index(k->head_grid, k->n_head_actions,
                                            k->weight[ckvc_weight_index(k, l, g, b)]);
                    if (a >= 0 && report_head_supported(t, l, g, b)) { count[a] += 1; }
                }
            }
            const bimodality of =
                bimodality_test(k->head_grid, count, k->n_head_actions, DIP_SAMPLES, r->o->seed);
            json_t *o = json_object();
            json_object_set_new(o, "table", json_string(t->title));
            json_object_set_new(o, "budget", ckvc_json_real(k->budgets[b]));
            json_object_set_new(o, "n", json_integer((json_int_t)of.n));
            json_object_set_new(o, "dip", ckvc_json_real(of.dip));
            json_object_set_new(o, "p", ckvc_json_real(of.p));
            json_object_set_new(o, "sarle", ckvc_json_real(of.sarle));
            json_object_set_new(o, "at_ends", ckvc_json_real(of.at_ends));
            json_array_append_new(list, o);
        }
        free(count);
    }
    return CKVC_OK;
}

/* ---- damage of a fixed policy ---- */

/* The paper's fixed Top-k: the B largest of the window's attention; else a table's utilities
 * without its thresholds; else the start table. */
static int policy_rank(const report_series *s) {
    if (*s->table) { return strcmp(s->policy, "no-threshold") == 0 ? 2 : 0; }
    return strcmp(s->policy, "window") == 0 ? 3 : strcmp(s->policy, "identity") == 0 ? 1 : 0;
}

typedef struct damage {
    size_t n;
    double *damage, *first, *second, *tokens; /* [n]: nats per token, R_struct, R_sem, T */
    const score_row **rows;
} damage;

static size_t cell_of(double v, const double *edges) {
    size_t c = 0;
    while (c < RISK_CELLS - 1 && v >= edges[c]) {
        c++;
    }
    return c;
}

static ckvc_status cells_json(const damage *d, json_t *o, ckvc_err *err) {
    double at[RISK_CELLS - 1], edges[2][RISK_CELLS - 1], sum[RISK_CELLS][RISK_CELLS] = {{0}};
    size_t count[RISK_CELLS][RISK_CELLS] = {{0}};
    for (size_t k = 0; k < RISK_CELLS - 1; k++) {
        at[k] = (double)(k + 1) / RISK_CELLS;
    }
    rank_quantile(d->first, d->n, at, RISK_CELLS - 1, edges[0]);
    rank_quantile(d->second, d->n, at, RISK_CELLS - 1, edges[1]);
    for (size_t i = 0; i < d->n; i++) {
        size_t e = cell_of(d->first[i], edges[0]), q = cell_of(d->second[i], edges[1]);
        sum[e][q] += d->damage[i];
        count[e][q]++;
    }
    json_t *cells = json_array();
    for (size_t e = 0; e < RISK_CELLS; e++) {
        json_t *row = json_array();
        for (size_t q = 0; q < RISK_CELLS; q++) {
            json_t *c = json_object();
            json_object_set_new(c, "n", json_integer((json_int_t)count[e][q]));
            json_object_set_new(
                c, "damage", ckvc_json_real(count[e][q] ? sum[e][q] / (double)count[e][q] : NAN));
            json_array_append_new(row, c);
        }
        json_array_append_new(cells, row);
    }
    json_object_set_new(o, "edges_entropy", ckvc_json_reals(edges[0], RISK_CELLS - 1));
    json_object_set_new(o, "edges_perplexity", ckvc_json_reals(edges[1], RISK_CELLS - 1));
    json_object_set_new(o, "cells", cells);
    return CKVC_OK;
}

static ckvc_status correlations_json(const report *r, const damage *d, uint64_t stream, json_t *o,
                                     ckvc_err *err) {
    json_t *list = json_array();
    json_object_set_new(o, "correlations", list);
    for (int risk = 0; risk < 2; risk++) {
        const double *x = risk ? d->second : d->first, *other = risk ? d->first : d->second;
        for (int given = 0; given < 3; given++) {
            for (int ranks = 1; ranks >= 0; ranks--) {
                static const char *const givens[] = {"nothing", "T", "T and the other risk"};
                partial_columns c = {x, d->damage, {d->tokens, other}, (size_t)given, d->n};
                const partial_result of =
                    partial_correlation(&c, ranks, r->o->replicates, r->o->seed, stream);
                json_t *v = json_object();
                json_object_set_new(v, "risk", json_string(risk ? "r_sem" : "r_struct"));
                json_object_set_new(v, "given", json_string(givens[given]));
                json_object_set_new(v, "of", json_string(ranks ? "ranks" : "values"));
                json_object_set_new(v, "r", ckvc_json_real(of.r));
                json_object_set_new(v, "lo", ckvc_json_real(of.lo));
                json_object_set_new(v, "hi", ckvc_json_real(of.hi));
                json_object_set_new(v, "controls_used", json_integer((json_int_t)of.n_controls));
                json_array_append_new(list, v);
            }
        }
    }
    return CKVC_OK;
}

static ckvc_status worst_json(const report *r, const damage *d, uint64_t stream, json_t *o,
                              ckvc_err *err) {
    const worst_rows rows = {d->damage, d->first, d->second, d->n};
    const worst_share w = worst_low_risk(&rows, r->o->replicates, r->o->seed, stream);
    json_t *v = json_object();
    json_object_set_new(v, "n_worst", json_integer((json_int_t)w.n_worst));
    json_object_set_new(v, "n_worst_low_risk", json_integer((json_int_t)w.n_worst_low));
    json_object_set_new(v, "share", ckvc_json_real(w.share));
    json_object_set_new(v, "lo", ckvc_json_real(w.lo));
    json_object_set_new(v, "hi", ckvc_json_real(w.hi));
    json_object_set_new(v, "share_of_all_low_risk", ckvc_json_real(w.base));
    json_object_set_new(o, "worst_tenth", v);
    return CKVC_OK;
}

static ckvc_status one_damage_json(const report *r, const report_rows *s, size_t at, damage *d,
                                   json_t *list, ckvc_err *err) {
    const report_series *of = &s->series[at];
    const score_row *last = NULL;
    d->n = 0;
    for (size_t i = of->first; i < of->first + of->n; i++) {
        const score_row *row = s->rows[i].row;
        bool again = last && report_compare_prompts(row, last) == 0;
        last = row;
        if (again || isnan(row->reward) || isnan(row->r_struct) || isnan(row->r_sem)) { continue; }
        d->damage[d->n] = -row->reward;
        d->first[d->n] = row->r_struct;
        d->second[d->n] = row->r_sem;
        d->tokens[d->n] = row->n_tokens;
        d->rows[d->n++] = row;
    }
    if (d->n < DAMAGE_PROMPTS_MIN) { return CKVC_OK; }
    json_t *o = json_object(), *prompts = json_array();
    json_array_append_new(list, o);
    json_object_set_new(o, "policy", json_string(of->policy));
    json_object_set_new(o, "title", json_string(of->title));
    json_object_set_new(o, "model", json_string(of->model));
    json_object_set_new(o, "budget", ckvc_json_real(of->budget));
    json_object_set_new(o, "C", json_integer(of->continuation));
    json_object_set_new(o, "n", json_integer((json_int_t)d->n));
    rank_interval mean = rank_mean_interval(d->damage, d->n);
    json_object_set_new(o, "damage", ckvc_json_real(mean.mean));
    for (size_t i = 0; i < d->n; i++) {
        json_t *v = json_object();
        json_object_set_new(v, "id", json_string(d->rows[i]->id));
        json_object_set_new(v, "r_struct", ckvc_json_real(d->first[i]));
        json_object_set_new(v, "r_sem", ckvc_json_real(d->second[i]));
        json_object_set_new(v, "T", json_integer(d->rows[i]->n_tokens));
        json_object_set_new(v, "damage", ckvc_json_real(d->damage[i]));
        json_array_append_new(prompts, v);
    }
    json_object_set_new(o, "prompts", prompts);
    ckvc_status st = cells_json(d, o, err);
    st = st ? st : correlations_json(r, d, at, o, err);
    return st ? st : worst_json(r, d, at, o, err);
}

static ckvc_status damage_json(const report *r, const report_rows *s, json_t *list, ckvc_err *err) {
    damage d = {.damage = ckvc_alloc(4 * s->n + 1, sizeof *d.damage),
                .rows = ckvc_alloc(s->n + 1, sizeof *d.rows)};
    ckvc_status st =
        d.damage && d.rows ? CKVC_OK : ckvc_fail_memory(err, "report", 4 * s->n * sizeof *d.damage);
    if (st == CKVC_OK) {
        d.first = d.damage + s->n;
        d.second = d.damage + 2 * s->n;
        d.tokens = d.damage + 3 * s->n;
    }
    for (size_t a = 0; a < s->n_series && st == CKVC_OK; a++) {
        bool best = policy_rank(&s->series[a]) > 0;
        for (size_t b = 0; b < s->n_series && best; b++) {
            int other = report_one_setting(&s->series[a], &s->series[b]) &&
                                report_one_score(&s->series[a], &s->series[b])
                            ? policy_rank(&s->series[b])
                            : 0;
            best = other < policy_rank(&s->series[a]) ||
                   (other == policy_rank(&s->series[a]) && b >= a);
        }
        if (best) { st = one_damage_json(r, s, a, &d, list, err); }
    }
    free(d.damage);
    free(d.rows);
    return st;
}

ckvc_status report_diagnostics_json(report *r, ckvc_err *err) {
    json_t *o = json_object(), *utilities = json_array(), *weights = json_array(),
           *damages = json_array();
    json_object_set_new(r->json, "diagnostics", o);
    json_object_set_new(o, "utilities", utilities);
    json_object_set_new(o, "weights", weights);
    json_object_set_new(o, "damage", damages);
    report_rows s = {0};
    ckvc_status st = weights_json(r, weights, err);
    st = st ? st : report_rows_gather(r, &s, err);
    st = st ? st : utilities_json(&s, utilities, err);
    st = st ? st : damage_json(r, &s, damages, err);
    report_rows_free(&s);
    return st;
}
