/* See variance.h. */
#include "cql/solve/variance.h"

#include <math.h>
#include <string.h>
#include <stdlib.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "lib/base/hash.h"
#include "lib/stats/rank.h"
#include "lib/base/order.h"

#define STAGE_NOISE 0x6e6f0000u
#define GROUPS_MAX  40u /* the most groups of the jackknife */
/* the records of an action from which on counts are drawn by their normal limit */
#define MANY 400u

/* ---- variance split ---- */

/* One state's rewards as a matrix: y [N][A], base [N]. */
typedef struct matrix {
    size_t N, A;
    double *y, *base, *action; /* action [A]: column means */
} matrix;

typedef struct sums {
    double prompt_raw, prompt, action, rest; /* sums of squares */
    double df_prompt, df_action, df_rest, n_prompts;
    size_t n_states;
} sums;

/* Collects the prompts of a state that logged every action, without those of jackknife group
 * `without` (of `groups`; with 0 groups none is left out). */
static void collect_full_prompts(const cql_logged *l, size_t state, cql_reward reward,
                                 size_t groups, size_t without, matrix *m) {
    size_t A = l->n_actions;
    const double *from = reward == CQL_LOSS_PART && l->part != NULL ? l->part : l->sum;
    m->A = A;
    m->N = 0;
    for (size_t k = l->first[state]; k < l->first[state + 1]; ++k) {
        size_t i = l->order[k], a = 0;
        if (groups > 0 && l->cluster[l->blocks[i].prompt] % groups == without) { continue; }
        while (a < A && l->n[i * A + a] > 0) {
            m->y[m->N * A + a] = from[i * A + a] / l->n[i * A + a];
            a++;
        }
        if (a == A) { m->base[m->N++] = l->blocks[i].baseline; }
    }
}

static void add_state(matrix *m, sums *s) {
    size_t N = m->N, A = m->A;
    if (N < 2 || A < 2) { return; }
    double n = (double)N, k = (double)A, grand = 0.0, grand_raw = 0.0, total = 0.0, prompt = 0.0,
           prompt_raw = 0.0, action = 0.0;
    memset(m->action, 0, A * sizeof *m->action);
    for (size_t p = 0; p < N; ++p) {
        for (size_t a = 0; a < A; ++a) {
            grand += m->y[p * A + a] / (n * k);
            m->action[a] += m->y[p * A + a] / n;
        }
        grand_raw += m->base[p] / n;
    }
    grand_raw += grand;
    for (size_t p = 0; p < N; ++p) {
        double row = 0.0;
        for (size_t a = 0; a < A; ++a) {
            double d = m->y[p * A + a] - grand;
            row += m->y[p * A + a] / k;
            total += d * d;
        }
        prompt += k * (row - grand) * (row - grand);
        double raw = row + m->base[p] - grand_raw;
        prompt_raw += k * raw * raw;
    }
    for (size_t a = 0; a < A; ++a) {
        action += n * (m->action[a] - grand) * (m->action[a] - grand);
    }
    s->prompt += prompt;
    s->prompt_raw += prompt_raw;
    s->action += action;
    s->rest += fmax(total - prompt - action, 0.0);
    s->df_prompt += n - 1.0;
    s->df_action += k - 1.0;
    s->df_rest += (n - 1.0) * (k - 1.0);
    s->n_prompts += n;
    s->n_states++;
}

static sums sums_of(const cql_logged *l, cql_reward reward, size_t groups, size_t without,
                    matrix *m) {
    sums s = {0};
    for (size_t i = 0; i < l->n_states; ++i) {
        collect_full_prompts(l, i, reward, groups, without, m);
        add_state(m, &s);
    }
    return s;
}

static double action_component(const sums *s) {
    return (s->action / s->df_action - s->rest / s->df_rest) / (s->n_prompts / (double)s->n_states);
}

static double ratio_or_nan(double part, double whole) { return whole > 0.0 ? part / whole : NAN; }

variance_split variance_of(const cql_logged *l, cql_reward reward) {
    size_t most = 0, A = l->n_actions;
    for (size_t i = 0; i < l->n_states; ++i) {
        most = cql_logged_prompts(l, i) > most ? cql_logged_prompts(l, i) : most;
    }
    CKVC_AUTO_FREE double *memory = ckvc_alloc(most * A + most + A, sizeof *memory);
    matrix m = {.y = memory, .base = memory + most * A, .action = memory + most * A + most};
    const sums s = sums_of(l, reward, 0, 0, &m);
    /* Without states every component is 0/0, and so is what follows from it. */
    const double k = (double)A, raw = s.prompt_raw + s.action + s.rest,
                 all = s.prompt + s.action + s.rest, rest = s.rest / s.df_rest,
                 n_prompts = s.n_prompts / (double)s.n_states, action = action_component(&s),
                 signal = fmax(action, 0.0);

    /* The jackknife over groups of whole documents, with pseudo-values G theta - (G - 1)
     * theta_(-g). */
    const size_t G = l->n_clusters < GROUPS_MAX ? l->n_clusters : GROUPS_MAX;
    size_t used = 0;
    double pseudo[GROUPS_MAX];
    for (size_t g = 0; g < G && s.n_states > 0; ++g) {
        const sums without = sums_of(l, reward, G, g, &m);
        if (without.n_states > 0) {
            pseudo[used++] = (double)G * action - (double)(G - 1) * action_component(&without);
        }
    }
    return (variance_split){.n_states = s.n_states,
                            .n_prompts = n_prompts,
                            .prompt_raw = (s.prompt_raw / s.df_prompt - rest) / k,
                            .prompt = (s.prompt / s.df_prompt - rest) / k,
                            .action = action,
                            .rest = rest,
                            .share_prompt_raw = ratio_or_nan(s.prompt_raw, raw),
                            .share_prompt = ratio_or_nan(s.prompt, all),
                            .share_action = ratio_or_nan(s.action, all),
                            .share_rest = ratio_or_nan(s.rest, all),
                            .common_one = ratio_or_nan(signal, signal + rest),
                            .common_all =
                                signal + rest > 0.0 ? signal / (signal + rest / n_prompts) : NAN,
                            .action_interval = rank_mean_interval(pseudo, NULL, used)};
}

/* ---- the calibration bound ---- */

static variance_bound bound_of(const cql_logged *l, size_t state, double delta) {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    size_t A = l->n_actions, prompts[CQL_MAX_ACTIONS] = {0};
    double lo = INFINITY, hi = -INFINITY, least = INFINITY, most = -INFINITY;
    variance_bound b = {0, 0, NAN, NAN, NAN};
    cql_logged_state(l, state, NULL, CQL_ADVANTAGE, 1.0, n, mean);
    for (size_t k = l->first[state]; k < l->first[state + 1]; ++k) {
        size_t i = l->order[k];
        for (size_t a = 0; a < A; ++a) {
            if (l->n[i * A + a] == 0) { continue; }
            double v = l->sum[i * A + a] / l->n[i * A + a];
            prompts[a]++;
            lo = fmin(lo, v);
            hi = fmax(hi, v);
        }
    }
    for (size_t a = 0; a < A; ++a) {
        if (n[a] == 0) { continue; }
        b.n_prompts = b.n_actions == 0 || prompts[a] < b.n_prompts ? prompts[a] : b.n_prompts;
        b.n_actions++;
        least = fmin(least, mean[a]);
        most = fmax(most, mean[a]);
    }
    if (b.n_prompts > 0) {
        b.width = hi - lo;
        b.bound =
            b.width * sqrt(log(2.0 * (double)b.n_actions / delta) / (2.0 * (double)b.n_prompts));
        b.spread = most - least;
    }
    return b;
}

void variance_bounds(const cql_logged *l, double delta, variance_bound *of) {
    for (size_t s = 0; s < l->n_states; ++s) { of[s] = bound_of(l, s, delta); }
}

/* ---- count noise ---- */

/* Draws a count of this mean: Poisson, by its normal limit (Box and Muller). */
static uint64_t draw_count(ckvc_rng *rng, double mean) {
    double u = 1.0 - ckvc_rng_double(rng), v = ckvc_rng_double(rng);
    return (uint64_t)llround(mean + sqrt(mean) * sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

double variance_count_noise(const cql_fit *fit, const uint64_t *n, const double *mean,
                            uint32_t draws, uint64_t seed, uint64_t state) {
    const size_t A = fit->actions.n;
    uint64_t drawn[CQL_MAX_ACTIONS], total = 0;
    uint32_t logged[CQL_MAX_ACTIONS], k = 0, differ = 0;
    for (size_t a = 0; a < A; ++a) {
        drawn[a] = n[a] > 0 ? 1 : 0;
        total += n[a];
        if (n[a] > 0) { logged[k++] = (uint32_t)a; }
    }
    int fair = k > 0 ? cql_choice(&fit->actions, drawn, mean, fit->cql_alpha) : -1;
    if (fair < 0 || draws == 0) { return NAN; }
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, state, STAGE_NOISE);
    for (uint32_t d = 0; d < draws; ++d) {
        memset(drawn, 0, A * sizeof *drawn);
        if (total / k < MANY) {
            for (uint64_t i = 0; i < total; ++i) { drawn[logged[ckvc_rng_below(&rng, k)]]++; }
        } else {
            for (uint32_t i = 0; i < k; ++i) {
                drawn[logged[i]] = draw_count(&rng, (double)total / k);
            }
        }
        int a = cql_choice(&fit->actions, drawn, mean, fit->cql_alpha);
        if (a < 0) { return NAN; }
        differ += a != fair;
    }
    return (double)differ / draws;
}

#define FLAT 1e-9 /* the tie width of a choice */

/* Returns the best action by plain values; actions that were never logged do not take part. */
static int best_action(const decided_from *from, size_t state, const double *values, double *row) {
    const size_t A = from->actions.n;
    for (size_t a = 0; a < A; ++a) {
        row[a] = from->n[state * A + a] > 0 ? values[state * A + a] : -INFINITY;
    }
    return cql_choose(&from->actions, row);
}

/* Returns the exact solver's choice, or -2 where it failed. */
static int solved(const decided_from *from, size_t state, const double *mean, double *row) {
    const size_t at = state * from->actions.n;
    cql_certificate cert;
    if (!cql_solve_exact(from->actions.n, from->n + at, mean + at, from->cql_alpha, row, &cert)) {
        return -2;
    }
    return cql_choose(&from->actions, row);
}

static bool is_flat(const decided_from *from, size_t state) {
    const size_t A = from->actions.n;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = state * A; i < (state + 1) * A; ++i) {
        if (from->n[i] > 0) {
            lo = fmin(lo, from->part[i]);
            hi = fmax(hi, from->part[i]);
        }
    }
    return !(hi - lo > FLAT);
}

static double correlation(const decided_from *from, const int *chosen) {
    const size_t A = from->actions.n;
    CKVC_AUTO_FREE double *is_chosen = ckvc_alloc(from->S * A, sizeof *is_chosen);
    CKVC_AUTO_FREE double *relative = ckvc_alloc(from->S * A, sizeof *relative);
    size_t k = 0;
    for (size_t s = 0; s < from->S; ++s) {
        const uint64_t *n = from->n + s * A;
        double total = 0.0, logged = 0.0;
        for (size_t a = 0; a < A; ++a) {
            total += (double)n[a];
            logged += n[a] > 0;
        }
        for (size_t a = 0; a < A; ++a) {
            if (n[a] > 0) {
                is_chosen[k] = chosen[s] == (int)a;
                relative[k++] = (double)n[a] * logged / total;
            }
        }
    }
    return rank_spearman(is_chosen, relative, k);
}

decided decided_of(const decided_from *from) {
    const size_t S = from->S, A = from->actions.n, X = from->X, nB = from->nB;
    decided d = {.X = X, .nB = nB, .chosen = ckvc_alloc(S, sizeof *d.chosen)};
    CKVC_AUTO_FREE double *row = ckvc_alloc(A, sizeof *row);
    d.records = ckvc_alloc(S, sizeof *d.records);
    if (from->part) {
        d.by_loss = ckvc_calloc(S, sizeof *d.by_loss);
        d.flat = ckvc_calloc(S, sizeof *d.flat);
        d.split = ckvc_calloc(nB * X, sizeof *d.split);
    }
    for (size_t s = 0; s < S; ++s) {
        uint64_t total = 0;
        for (size_t a = 0; a < A; ++a) { total += from->n[s * A + a]; }
        d.chosen[s] = -1;
        if (total == 0) { continue; }
        d.records[d.n_supported++] = total;
        const int by_q = d.chosen[s] = best_action(from, s, from->q, row);
        if (by_q < 0) { continue; }
        d.n_alpha += best_action(from, s, from->mean, row) != by_q;
        if (!from->part) { continue; }
        const int by_loss = solved(from, s, from->part, row),
                  by_both = from->exact ? by_q : solved(from, s, from->mean, row);
        d.n_failed += by_loss < -1 || by_both < -1;
        d.by_loss[s] = by_loss == by_both && by_loss >= 0;
        d.flat[s] = is_flat(from, s);
        decided_split *of = &d.split[s % nB * X + s / nB % X];
        of->supported++;
        of->by_loss += d.by_loss[s];
        of->flat += d.flat[s];
    }
    qsort(d.records, d.n_supported, sizeof *d.records, ckvc_order_u64);
    const size_t k = d.n_supported, lower = k ? (k - 1) / 2 : 0, upper = k / 2;
    d.median = k ? ((double)d.records[lower] + (double)d.records[upper]) / 2 : NAN;
    d.correlation = correlation(from, d.chosen);
    return d;
}

void decided_fini(decided *d) {
    CKVC_FREE(d->chosen, d->by_loss, d->flat, d->split, d->records);
    *d = (decided){0};
}

decided_split decided_sum(const decided *d, size_t b) {
    decided_split all = {0, 0, 0};
    const size_t first = b < d->nB ? b * d->X : 0, n = b < d->nB ? d->X : d->nB * d->X;
    for (size_t i = 0; d->split && i < n; ++i) {
        all.supported += d->split[first + i].supported;
        all.by_loss += d->split[first + i].by_loss;
        all.flat += d->split[first + i].flat;
    }
    return all;
}
