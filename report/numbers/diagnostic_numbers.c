/* Computes the paper's diagnostics: how scores are distributed by prompt and head, what a fixed
 * policy's damage has to do with the risks, and where the worst tenth of it lies.
 *
 * The paper shows them as pictures and states no tests. Where it is silent, the choice is made
 * here and said on the page. */
#include <math.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/stats/partial.h"
#include "lib/stats/rank.h"
#include "report/numbers/numbers.h"

#define DAMAGE_PROMPTS_MIN 10 /* fewer prompts than this are not put into cells */

/* ---- utility scores ---- */

/* Returns how far the upper tail of a head's scores reaches: the logarithm of the 95% quantile
 * over the median. NaN where the median is 0. */
static double spread(const score_row *row, size_t head) {
    const double *q = row->utility + head * SCORE_QUANTILE_COUNT;
    return q[2] > 0 && q[4] > 0 ? log(q[4] / q[2]) : NAN;
}

/* Sets what the spreads of all (prompt, head) say: each head's mean, and the shares of the
 * variance that lie between heads, between prompts, and in neither, as in a table with one value
 * a cell. Prompts with an undefined value are left out. */
static void set_spread(json_t *o, const score_row *const *rows, size_t n) {
    const size_t L = rows[0]->n_layers, G = rows[0]->n_heads, H = L * G;
    double all = 0, total = 0, heads = 0, prompts = 0;
    CKVC_AUTO_FREE double *x = ckvc_alloc(n * H, sizeof *x), *mean = ckvc_calloc(n, sizeof *mean),
                          *head = ckvc_calloc(H, sizeof *head);
    size_t N = 0;
    for (size_t i = 0; i < n; i++) {
        mean[N] = 0;
        for (size_t h = 0; h < H; h++) {
            mean[N] += (x[N * H + h] = spread(rows[i], h)) / (double)H;
        }
        N += isfinite(mean[N]);
    }
    const double used = (double)N;
    for (size_t i = 0; i < N; i++) { all += mean[i]; }
    all /= used;
    for (size_t h = 0; h < H; h++) {
        for (size_t i = 0; i < N; i++) { head[h] += x[i * H + h]; }
        head[h] /= used;
        heads += used * (head[h] - all) * (head[h] - all);
    }
    for (size_t i = 0; i < N; i++) {
        prompts += (double)H * (mean[i] - all) * (mean[i] - all);
        for (size_t h = 0; h < H; h++) { total += (x[i * H + h] - all) * (x[i * H + h] - all); }
    }
    ADD_MEMBERS(o, {"prompts_used", J(N)}, {"spread_mean", J(all)},
                {"between_heads", J(heads / total)}, {"between_prompts", J(prompts / total)},
                {"neither", J((total - heads - prompts) / total)},
                {"spread_by_head", json_grid(head, L, G)});
}

/* Returns the numbers of the utilities, model by model. */
static json_t *utilities_of(const report_numbers *n) {
    const score_row *const *rows = n->in->scores.utilities;
    const size_t N = n->in->scores.n_utilities;
    json_t *list = json_array();
    for (size_t i = 0, end; i < N; i = end) {
        const size_t heads = (size_t)rows[i]->n_layers * rows[i]->n_heads;
        json_t *quantiles = json_array();
        for (end = i; end < N && strcmp(rows[end]->model, rows[i]->model) == 0; end++) {
            /* α stands behind the heads */
            const double *alpha = rows[end]->utility + heads * SCORE_QUANTILE_COUNT;
            json_array_append_new(quantiles, ckvc_json_reals(alpha, SCORE_QUANTILE_COUNT));
        }
        json_t *o = OBJECT({"model", J(rows[i]->model)});
        set_spread(o, rows + i, end - i);
        ADD_MEMBERS(o, {"n", J(end - i)}, {"alpha_quantiles", quantiles});
        json_array_append_new(list, o);
    }
    return list;
}

/* ---- damage of a fixed policy ---- */

/* Ranks series as stand-ins for the paper's fixed Top-k: first the B largest of the window's
 * attention; else a table's utilities without its thresholds; else the start table. 0 means that
 * it is none of these. */
static int policy_rank(const score_series *s) {
    if (*s->table) { return s->kind == POLICY_NO_THRESHOLD ? 2 : 0; }
    return s->kind == POLICY_WINDOW ? 3 : s->kind == POLICY_IDENTITY ? 1 : 0;
}

/* Is this the first series of the highest rank in its setting? */
static bool is_best(const score_files *f, const score_series *s) {
    EACH(score_series, o, f->series, f->n_series) {
        const int other = score_same_budget(s, o) && score_same_setting(s, o) ? policy_rank(o) : 0;
        if (other > policy_rank(s) || (other == policy_rank(s) && o < s)) { return false; }
    }
    return policy_rank(s) > 0;
}

enum { RISK_CELLS = 4, RISK_EDGES = RISK_CELLS - 1, CORRELATIONS = 12 };

/* The prompts in columns, as the statistics take them. */
typedef struct damage_columns {
    size_t n;
    double *damage, *first, *second, *tokens; /* [n] nats per token, R_struct, R_sem, T */
    size_t *cluster;                          /* [n] rank_clusters of their documents */
    uint64_t stream;
} damage_columns;

static size_t risk_bin(double v, const double *edges) {
    size_t c = 0;
    while (c < RISK_EDGES && v >= edges[c]) { c++; }
    return c;
}

/* Sets the mean damage by entropy, then perplexity, both divided at their quartiles. */
static void set_cells(json_t *o, const damage_columns *d) {
    enum { CELLS = RISK_CELLS * RISK_CELLS };
    double at[RISK_EDGES], entropy[RISK_EDGES], perplexity[RISK_EDGES], damage[CELLS] = {0};
    size_t n[CELLS] = {0};
    json_t *cells = json_array();
    for (size_t k = 0; k < RISK_EDGES; k++) { at[k] = (double)(k + 1) / RISK_CELLS; }
    rank_quantile(d->first, d->n, at, RISK_EDGES, entropy);
    rank_quantile(d->second, d->n, at, RISK_EDGES, perplexity);
    for (size_t i = 0; i < d->n; i++) {
        const size_t c =
            risk_bin(d->first[i], entropy) * RISK_CELLS + risk_bin(d->second[i], perplexity);
        damage[c] += d->damage[i];
        n[c]++;
    }
    for (size_t c = 0; c < CELLS; c++) {
        APPEND_OBJECT(cells, {"n", J(n[c])}, {"damage", J(damage[c] / (double)n[c])});
    }
    ADD_MEMBERS(o, {"edges_entropy", ckvc_json_reals(entropy, RISK_EDGES)},
                {"edges_perplexity", ckvc_json_reals(perplexity, RISK_EDGES)},
                {"cells", json_rows_of(cells, RISK_CELLS)});
}

/* Returns the correlations, by risk, then by what is given; ranks come first. */
static json_t *correlations_of(const report_options *opt, const damage_columns *d) {
    static const char *const givens[] = {"nothing", "T", "T and the other risk"};
    json_t *list = json_array();
    for (size_t i = 0; i < CORRELATIONS; i++) {
        const bool second = i >= CORRELATIONS / 2, ranks = i % 2 == 0;
        const size_t given = i / 2 % 3;
        const partial_columns c = {.x = second ? d->second : d->first,
                                   .y = d->damage,
                                   .controls = {d->tokens, second ? d->first : d->second},
                                   .n_controls = given,
                                   .n = d->n,
                                   .cluster = d->cluster};
        const partial_result r =
            partial_correlation(&c, ranks, opt->replicates, opt->seed, d->stream);
        APPEND_OBJECT(list, {"risk", J(second ? "r_sem" : "r_struct")}, {"given", J(givens[given])},
                      {"of", J(ranks ? "ranks" : "values")}, {"r", J(r.r)}, {"lo", J(r.lo)},
                      {"hi", J(r.hi)}, {"controls_used", J(r.n_controls)});
    }
    return list;
}

static json_t *worst_of(report_numbers *n, const damage_columns *d) {
    const worst_rows rows = {d->damage, d->first, d->second, d->n, d->cluster, NEW(n, d->n, bool)};
    const report_options *opt = n->in->o;
    const worst_share w = worst_low_risk(&rows, opt->replicates, opt->seed, d->stream);
    return OBJECT({"n_worst", J(w.n_worst)}, {"n_worst_low_risk", J(w.n_worst_low)},
                  {"share", J(w.share)}, {"lo", J(w.lo)}, {"hi", J(w.hi)},
                  {"share_of_all_low_risk", J(w.base)});
}

/* Returns the numbers of a series' damage; NULL means that there are too few prompts. */
static json_t *damage_of(report_numbers *n, const score_series *of, uint64_t stream) {
    damage_columns d = {.damage = NEW(n, of->n, double), .first = NEW(n, of->n, double)};
    d.second = NEW(n, of->n, double);
    d.tokens = NEW(n, of->n, double);
    d.cluster = NEW(n, of->n, size_t);
    d.stream = stream;
    const char **documents = NEW(n, of->n, const char *);
    json_auto_t *prompts = json_array();
    for (size_t i = 0; i < of->n; i++) {
        const score_row *row = of->rows[i];
        if (isnan(row->reward) || isnan(row->r_struct) || isnan(row->r_sem)) { continue; }
        d.damage[d.n] = -row->reward;
        d.first[d.n] = row->r_struct;
        d.second[d.n] = row->r_sem;
        d.tokens[d.n] = row->n_tokens;
        documents[d.n++] = row->document;
        APPEND_OBJECT(prompts, OF(row, id), OF(row, r_struct), OF(row, r_sem),
                      {"T", J(row->n_tokens)}, {"damage", J(-row->reward)});
    }
    if (d.n < DAMAGE_PROMPTS_MIN) { return NULL; }
    rank_clusters(documents, d.n, d.cluster);
    json_t *o = series_named(of);
    ADD_MEMBERS(o, {"n", J(d.n)}, {"damage", J(rank_mean_interval(d.damage, NULL, d.n).mean)},
                {"worst_tenth", worst_of(n, &d)}, {"prompts", json_incref(prompts)});
    set_cells(o, &d);
    return ADD_MEMBERS(o, {"correlations", correlations_of(n->in->o, &d)});
}

void diagnostic_numbers_make(report_numbers *n) {
    const score_files *f = &n->in->scores;
    json_t *damages = json_array();
    for (size_t s = 0; s < f->n_series; s++) {
        json_t *o = is_best(f, &f->series[s]) ? damage_of(n, &f->series[s], s) : NULL;
        if (o) { json_array_append_new(damages, o); }
    }
    json_t *o = OBJECT({"utilities", utilities_of(n)}, {"damage", damages});
    json_object_set_new(n->json, "diagnostics", o);
}
