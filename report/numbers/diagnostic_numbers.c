/* The paper's diagnostics, as numbers: how scores are distributed by prompt and
 * head; what a fixed policy's damage has to do with the
 * risks; where the worst tenth of it lies.
 *
 * The paper shows them as pictures without stating tests; where it is silent the choice is made
 * here and said on the page. */
#include <math.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "report/numbers/numbers.h"

#define DAMAGE_PROMPTS_MIN 10 /* fewer prompts than this are not put into cells */

/* ---- utility scores ---- */

/* How far the upper tail of a head's scores reaches: ln of the 95% quantile over the median; NaN
 * where the median is 0. */
static double spread(const score_row *row, size_t head) {
    const double *q = row->utility + head * SCORE_QUANTILE_COUNT;
    return q[2] > 0 && q[4] > 0 ? log(q[4] / q[2]) : NAN;
}

/* Spread of every (prompt, head): the mean of each head, and shares of its variance between heads,
 * between prompts, and neither, as of a table with one value a cell; prompts with an undefined
 * value left out. */
static void split_spread(const score_row *const *rows, size_t n, utility_numbers *o) {
    const size_t H = o->n_layers * o->n_heads;
    double all = 0, total = 0, heads = 0, prompts = 0, *head = o->spread_by_head;
    CKVC_AUTO_FREE double *x = ckvc_alloc(n * H, sizeof *x), *mean = ckvc_calloc(n, sizeof *mean);
    size_t N = 0;
    for (size_t i = 0; i < n; i++) {
        mean[N] = 0;
        for (size_t h = 0; h < H; h++) {
            mean[N] += (x[N * H + h] = spread(rows[i], h)) / (double)H;
        }
        N += isfinite(mean[N]);
    }
    const double used = (double)(o->prompts_used = N);
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
    o->spread_mean = all;
    o->between_heads = heads / total;
    o->between_prompts = prompts / total;
    o->neither = (total - heads - prompts) / total;
}

static void utilities_make(report_numbers *n) {
    const score_row *const *rows = n->in->scores.utilities;
    const size_t N = n->in->scores.n_utilities;
    n->utilities = NEW(n, N, utility_numbers);
    for (size_t i = 0, end; i < N; i = end) {
        const size_t heads = (size_t)rows[i]->n_layers * rows[i]->n_heads;
        for (end = i + 1; end < N && strcmp(rows[end]->model, rows[i]->model) == 0;) { end++; }
        utility_numbers *o = &n->utilities[n->n_utilities++];
        *o = (utility_numbers){.model = rows[i]->model, .n = end - i};
        o->n_quantiles = SCORE_QUANTILE_COUNT;
        o->n_layers = rows[i]->n_layers;
        o->n_heads = rows[i]->n_heads;
        o->alpha_quantiles = NEW(n, o->n * o->n_quantiles, double);
        o->spread_by_head = NEW(n, heads, double);
        for (size_t k = i; k < end; k++) { /* behind those of the heads */
            memcpy(o->alpha_quantiles + (k - i) * SCORE_QUANTILE_COUNT,
                   rows[k]->utility + heads * SCORE_QUANTILE_COUNT,
                   SCORE_QUANTILE_COUNT * sizeof(double));
        }
        split_spread(rows + i, end - i, o);
    }
}

/* ---- damage of a fixed policy ---- */

/* The paper's fixed Top-k: the B largest of the window's attention; else a table's utilities
 * without its thresholds; else the start table. */
static int policy_rank(const score_series *s) {
    if (*s->table) { return s->kind == SCORE_NO_THRESHOLD ? 2 : 0; }
    return s->kind == SCORE_WINDOW ? 3 : s->kind == SCORE_IDENTITY ? 1 : 0;
}

/* The first of the highest rank in its setting. */
static bool is_best(const score_files *f, const score_series *s) {
    EACH(score_series, o, f->series, f->n_series) {
        const int other = score_same_budget(s, o) && score_same_setting(s, o) ? policy_rank(o) : 0;
        if (other > policy_rank(s) || (other == policy_rank(s) && o < s)) { return false; }
    }
    return policy_rank(s) > 0;
}

/* Columns of the prompts, as the statistics take them. */
typedef struct damage_columns {
    double *damage, *first, *second, *tokens; /* [n] nats per token, R_struct, R_sem, T */
    size_t *cluster;                          /* [n] rank_clusters of their documents */
    uint64_t stream;
} damage_columns;

static size_t cell_of(double v, const double *edges) {
    size_t c = 0;
    while (c < RISK_EDGES && v >= edges[c]) { c++; }
    return c;
}

static void fill_cells(const damage_columns *d, damage_numbers *o) {
    double at[RISK_EDGES];
    for (size_t k = 0; k < RISK_EDGES; k++) { at[k] = (double)(k + 1) / RISK_CELLS; }
    rank_quantile(d->first, o->n, at, RISK_EDGES, o->edges_entropy);
    rank_quantile(d->second, o->n, at, RISK_EDGES, o->edges_perplexity);
    for (size_t i = 0; i < o->n; i++) {
        damage_cell *c = &o->cells[cell_of(d->first[i], o->edges_entropy) * RISK_CELLS +
                                   cell_of(d->second[i], o->edges_perplexity)];
        c->damage += d->damage[i];
        c->n++;
    }
    for (size_t i = 0; i < (size_t)RISK_CELLS * RISK_CELLS; i++) {
        o->cells[i].damage /= (double)o->cells[i].n;
    }
}

static void correlate(const report_options *opt, const damage_columns *d, damage_numbers *o) {
    static const char *const givens[] = {"nothing", "T", "T and the other risk"};
    for (size_t i = 0; i < CORRELATIONS; i++) {
        const bool second = i >= CORRELATIONS / 2, ranks = i % 2 == 0;
        const size_t given = i / 2 % 3;
        const partial_columns c = {.x = second ? d->second : d->first,
                                   .y = d->damage,
                                   .controls = {d->tokens, second ? d->first : d->second},
                                   .n_controls = given,
                                   .n = o->n,
                                   .cluster = d->cluster};
        o->correlations[i] = (damage_correlation){
            .risk = second ? "r_sem" : "r_struct",
            .given = givens[given],
            .of = ranks ? "ranks" : "values",
            .r = partial_correlation(&c, ranks, opt->replicates, opt->seed, d->stream)};
    }
}

static void damage_make(report_numbers *n, const score_series *of, uint64_t stream) {
    const report_options *opt = n->in->o;
    damage_columns d = {NEW(n, of->n, double), NEW(n, of->n, double), NEW(n, of->n, double),
                        NEW(n, of->n, double), NEW(n, of->n, size_t), stream};
    const char **documents = NEW(n, of->n, const char *);
    damage_numbers o = {.of = *of, .prompts = NEW(n, of->n, damage_prompt)};
    o.n_cells = RISK_CELLS;
    o.n_edges = RISK_EDGES;
    o.n_correlations = CORRELATIONS;
    for (size_t i = 0; i < of->n; i++) {
        const score_row *row = of->rows[i];
        if (isnan(row->reward) || isnan(row->r_struct) || isnan(row->r_sem)) { continue; }
        d.damage[o.n] = -row->reward;
        d.first[o.n] = row->r_struct;
        d.second[o.n] = row->r_sem;
        d.tokens[o.n] = row->n_tokens;
        documents[o.n] = row->document;
        o.prompts[o.n++] =
            (damage_prompt){row->id, row->r_struct, row->r_sem, -row->reward, row->n_tokens};
    }
    if (o.n < DAMAGE_PROMPTS_MIN) { return; }
    rank_clusters(documents, o.n, d.cluster);
    const worst_rows rows = {d.damage, d.first, d.second, o.n, d.cluster, NEW(n, o.n, bool)};
    o.damage = rank_mean_interval(d.damage, NULL, o.n).mean;
    o.worst = worst_low_risk(&rows, opt->replicates, opt->seed, stream);
    fill_cells(&d, &o);
    correlate(opt, &d, &o);
    n->damages[n->n_damages++] = o;
}

void diagnostic_numbers_make(report_numbers *n) {
    const score_files *f = &n->in->scores;
    utilities_make(n);
    n->damages = NEW(n, f->n_series, damage_numbers);
    for (size_t s = 0; s < f->n_series; s++) {
        if (is_best(f, &f->series[s])) { damage_make(n, &f->series[s], s); }
    }
}
