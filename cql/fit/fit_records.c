/* From pooled statistics to a table: the fit of every state, the choice of its action, and what
 * unsupported cells get. */
#include "cql/fit/fit_records.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/fit/fit_carry.h"
#include "cql/fit/fit_meta.h"
#include "cql/solve/cql.h"
#include "cql/stats/rank.h"
#include "cql/stats/variance.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

#define NOISE_DRAWS 8 /* redrawn counts per state */

fit_options fit_defaults(void) {
    return (fit_options){.cql_alpha = 0.75, .seed = 1, .memory_max = (size_t)4 << 30};
}

/* One side of the table under construction. A state is [l][x][b]: x is the head, or the cell e * P
 * + p of the gate. */
typedef struct side_fit {
    ckvc_side side;
    const fit_options *o;
    fit_pool_side *pool;
    fit_side *out;
    size_t L, X, nB, P, S, A; /* P: perplexity bins, 1 on the head side; S = L * X * nB */
    const double *grid;       /* [A] */
    float *entries;           /* [S] of the table, written */
    double *q, *mean, *part;  /* [S][A] evidence; part NULL on the head side */
    uint64_t *n;              /* [S][A] */
    float **share;            /* where the table keeps its shares */
    int *incoming;            /* [S] actions of the incoming table */
    int *chosen;              /* [S] -1: unsupported */
} side_fit;

static cql_actions actions_of(const side_fit *f) {
    return (cql_actions){f->A, f->grid, f->side == CKVC_SIDE_HEAD ? 1.0 : 0.0};
}

static int choose(const side_fit *f, const double *q) {
    const cql_actions actions = actions_of(f);
    return cql_choose(&actions, q);
}

/* ---- pass 1: scale and fit ---- */

static void set_scale(side_fit *f) {
    f->out->scale = 1.0;
    if (f->o->reward == FIT_RAW) { return; }
    double sd = cql_counts_sd(f->pool->counts, f->side == CKVC_SIDE_GATE);
    if (sd > 0.0) {
        f->out->scale = sd;
    } else {
        ckvc_warn("%s side: no action changed a loss in %llu records, so rewards are not scaled",
                  ckvc_side_name(f->side), (unsigned long long)f->out->n_records);
    }
}

static int by_row(const void *a, const void *b) {
    const fit_row *x = a, *y = b;
    if (x->prompt != y->prompt) { return x->prompt < y->prompt ? -1 : 1; }
    if (x->record.state != y->record.state) { return x->record.state < y->record.state ? -1 : 1; }
    if (x->record.action != y->record.action) {
        return x->record.action < y->record.action ? -1 : 1;
    }
    return (x->record.reward > y->record.reward) - (x->record.reward < y->record.reward);
}

/* q [S][A] by the paper's optimiser, at the scale of the exact fit. */
static ckvc_status run_adamw(side_fit *f, double *q, ckvc_err *err) {
    fit_pool_side *p = f->pool;
    qsort(p->rows, p->n_rows, sizeof *p->rows, by_row);
    cql_record *records = ckvc_alloc(p->n_rows, sizeof *records);
    for (size_t i = 0; i < p->n_rows; ++i) {
        records[i] = p->rows[i].record;
        records[i].reward /= f->out->scale;
    }
    cql_adamw_options o = cql_adamw_defaults();
    o.cql_alpha = f->o->cql_alpha;
    uint64_t seed = f->o->seed;
    ckvc_status st = cql_adamw(&(cql_records){records, p->n_rows, f->S, f->A}, &o,
                               (cql_shuffle){cql_seeded_order, &seed}, q, err);
    free(records);
    return st;
}

static double state_size(size_t A, const uint64_t *n, const double *mean) {
    double size = 1.0;
    for (size_t a = 0; a < A; ++a) {
        if (n[a] > 0) { size = fmax(size, fabs(mean[a])); }
    }
    return size;
}

static ckvc_status fit_states(side_fit *f, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    double *adamw = NULL;
    f->out->adamw_distance = NAN;
    if (f->o->solver == FIT_ADAMW) {
        adamw = ckvc_alloc(f->S * f->A, sizeof *adamw);
        if ((st = run_adamw(f, adamw, err)) != CKVC_OK) { goto done; }
        f->out->adamw_distance = 0.0;
    }
    for (size_t s = 0; s < f->S; ++s) {
        uint64_t *n = f->n + s * f->A;
        double *q = f->q + s * f->A, *mean = f->mean + s * f->A;
        cql_certificate cert;
        cql_counts_state(f->pool->counts, s, f->out->scale, n, mean,
                         f->part != NULL ? f->part + s * f->A : NULL);
        if (!cql_solve_exact(f->A, n, mean, f->o->cql_alpha, q, &cert)) {
            st = ckvc_fail(err, CKVC_E_BUG,
                           "%s side, state %zu: the exact solver left a gradient of %g",
                           ckvc_side_name(f->side), s, cert.gradient);
            goto done;
        }
        f->out->certificate = fmax(f->out->certificate, cert.gradient / state_size(f->A, n, mean));
        for (size_t a = 0; adamw != NULL && a < f->A; ++a) {
            if (n[a] > 0) {
                f->out->adamw_distance =
                    fmax(f->out->adamw_distance, fabs(adamw[s * f->A + a] - q[a]));
                q[a] = adamw[s * f->A + a];
            }
        }
        f->chosen[s] = choose(f, q);
        f->out->n_supported += f->chosen[s] >= 0 ? 1 : 0;
    }
done:
    free(adamw);
    return st;
}

/* ---- pass 2: what decided ---- */

static int by_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Records of a supported state: least, median, most. */
static ckvc_status count_summary(side_fit *f, ckvc_err *err) {
    uint64_t *totals = ckvc_alloc(f->out->n_supported, sizeof *totals);
    size_t k = 0;
    for (size_t s = 0; s < f->S; ++s) {
        uint64_t total = 0;
        for (size_t a = 0; a < f->A; ++a) {
            total += f->n[s * f->A + a];
        }
        if (total > 0) { totals[k++] = total; }
    }
    assert(k == f->out->n_supported);
    if (k > 0) {
        qsort(totals, k, sizeof *totals, by_u64);
        f->out->count_min = totals[0];
        f->out->count_median = totals[k / 2];
        f->out->count_max = totals[k - 1];
    }
    free(totals);
    return CKVC_OK;
}

/* Whether counts choose: Spearman over logged actions of supported states, (chosen) against (count
 * / mean count of the state). */
static ckvc_status count_correlation(side_fit *f, ckvc_err *err) {
    f->out->count_correlation = NAN;
    double *is_chosen = ckvc_alloc(f->S * f->A, sizeof *is_chosen),
           *relative = ckvc_alloc(f->S * f->A, sizeof *relative);
    size_t k = 0;
    for (size_t s = 0; s < f->S; ++s) {
        double total = 0.0, logged = 0.0;
        for (size_t a = 0; a < f->A; ++a) {
            total += (double)f->n[s * f->A + a];
            logged += f->n[s * f->A + a] > 0 ? 1.0 : 0.0;
        }
        for (size_t a = 0; a < f->A; ++a) {
            if (f->n[s * f->A + a] > 0) {
                is_chosen[k] = f->chosen[s] == (int)a ? 1.0 : 0.0;
                relative[k++] = (double)f->n[s * f->A + a] * logged / total;
            }
        }
    }
    f->out->count_correlation = rank_spearman(is_chosen, relative, k);
    free(is_chosen);
    free(relative);
    return CKVC_OK;
}

static void masked(size_t A, const uint64_t *n, const double *values, double *out) {
    for (size_t a = 0; a < A; ++a) {
        out[a] = n[a] > 0 ? values[a] : -INFINITY;
    }
}

/* Against the plain mean reward, and on the gate side the exact choice against that of the loss
 * part alone, at the same scale. */
static ckvc_status what_decided(side_fit *f, ckvc_err *err) {
    double values[CQL_MAX_ACTIONS], noise = 0.0;
    f->out->n_budgets = f->nB;
    f->out->by_budget = ckvc_calloc(f->nB, sizeof *f->out->by_budget);
    for (size_t s = 0; s < f->S; ++s) {
        if (f->chosen[s] < 0) { continue; }
        const uint64_t *n = f->n + s * f->A;
        struct fit_split *split = &f->out->by_budget[s % f->nB];
        const cql_fit fit = {.cql_alpha = f->o->cql_alpha, .actions = actions_of(f)};
        noise += variance_count_noise(&fit, n, f->mean + s * f->A, NOISE_DRAWS, f->o->seed, s);
        masked(f->A, n, f->mean + s * f->A, values);
        f->out->n_alpha_decided += choose(f, values) != f->chosen[s] ? 1 : 0;
        if (f->side == CKVC_SIDE_HEAD) { continue; }
        const double *part = f->part + s * f->A;
        cql_certificate cert;
        if (!cql_solve_exact(f->A, n, part, f->o->cql_alpha, values, &cert)) {
            return ckvc_fail(
                err, CKVC_E_BUG,
                "gate side, state %zu: the solver left a gradient of %g on the loss part", s,
                cert.gradient);
        }
        int by_loss = choose(f, values), by_both = f->chosen[s];
        if (f->o->solver ==
            FIT_ADAMW) { /* like with like: how far AdamW stopped is not the penalty's doing */
            if (!cql_solve_exact(f->A, n, f->mean + s * f->A, f->o->cql_alpha, values, &cert)) {
                return ckvc_fail(err, CKVC_E_BUG,
                                 "gate side, state %zu: the solver left a gradient of %g", s,
                                 cert.gradient);
            }
            by_both = choose(f, values);
        }
        split->n_supported++;
        split->n_by_loss += by_loss == by_both ? 1 : 0;
        double lo = INFINITY, hi = -INFINITY;
        for (size_t a = 0; a < f->A; ++a) {
            if (n[a] > 0) {
                lo = fmin(lo, part[a]);
                hi = fmax(hi, part[a]);
            }
        }
        split->n_flat_loss += hi - lo <= 1e-9 ? 1 : 0;
    }
    for (size_t b = 0; b < f->nB; ++b) {
        const struct fit_split *split = &f->out->by_budget[b];
        f->out->n_by_loss += split->n_by_loss;
        f->out->n_by_penalty += split->n_supported - split->n_by_loss;
        f->out->n_flat_loss += split->n_flat_loss;
    }
    f->out->count_noise = f->out->n_supported > 0 ? noise / (double)f->out->n_supported : NAN;
    ckvc_status st = count_summary(f, err);
    return st == CKVC_OK ? count_correlation(f, err) : st;
}

/* ---- pass 3: resampling ---- */

static bool logged(const side_fit *f, size_t state, int action) {
    return f->n[state * f->A + (size_t)action] > 0;
}

static ckvc_status resample(side_fit *f, ckvc_err *err) {
    const cql_resampled resampled = cql_counts_resampled(f->pool->counts, f->out->scale);
    const cql_actions actions = actions_of(f);
    uint32_t R = resampled.n_replicates;
    if (R == 0) { return CKVC_OK; }
    f->out->choices = ckvc_alloc((size_t)R * f->S, sizeof *f->out->choices);
    ckvc_status st =
        cql_resampled_choices(&resampled, &actions, f->o->cql_alpha, f->out->choices, err);
    if (st != CKVC_OK || f->o->resample != CQL_RESAMPLE_BOOTSTRAP) { return st; }
    *f->share = ckvc_alloc(f->S * f->A, sizeof **f->share);
    if (*f->share == NULL) {
        return ckvc_fail_memory(err, "the bootstrap's shares", f->S * f->A * sizeof **f->share);
    }
    cql_choice_shares(f->out->choices, R, f->S, f->A, *f->share);
    if (!f->o->shrink) { return CKVC_OK; }
    const cql_resampled unscaled = cql_counts_resampled(f->pool->counts, 1.0);
    int neutral = ckvc_neutral_action(f->side, f->grid, (uint32_t)f->A);
    for (size_t s = 0; s < f->S; ++s) {
        int a = f->chosen[s],
            stay = neutral >= 0 && logged(f, s, neutral) ? neutral : f->incoming[s];
        if (a < 0 || a == stay) { continue; }
        /* An advantage of the unperturbed table is 0 by definition; a raw reward needs its own
         * records. */
        bool by_definition =
            f->o->reward == FIT_ADVANTAGE && stay == f->incoming[s] && !logged(f, s, stay);
        if (!(cql_lower_bound(&unscaled, s, a, by_definition ? -1 : stay, NULL) > 0.0)) {
            f->chosen[s] = stay;
            f->out->n_shrunk++;
        }
    }
    return CKVC_OK;
}

/* ---- pass 4: entries of the table ---- */

static size_t apart(size_t a, size_t b) {
    return a > b ? a - b : b - a;
}

/* The nearest supported state of the same budget: steps in layers plus steps in heads (or in both
 * bins), of equally near ones the one in the nearer layer, then the first. -1 when the budget has
 * none. */
static int neighbour_action(const side_fit *f, size_t l, size_t x, size_t b) {
    size_t best = SIZE_MAX;
    int action = -1;
    for (size_t l2 = 0; l2 < f->L; ++l2) {
        for (size_t x2 = 0; x2 < f->X; ++x2) {
            int a = f->chosen[(l2 * f->X + x2) * f->nB + b];
            if (a < 0) { continue; }
            size_t across = f->side == CKVC_SIDE_HEAD
                                ? apart(x, x2)
                                : apart(x / f->P, x2 / f->P) + apart(x % f->P, x2 % f->P);
            size_t steps = (apart(l, l2) + across) * (f->L + 1) + apart(l, l2);
            if (steps < best) {
                best = steps;
                action = a;
            }
        }
    }
    return action;
}

static int safest_action(const side_fit *f) {
    if (f->side == CKVC_SIDE_GATE) { return 0; /* the lowest threshold keeps most */ }
    int best = 0;
    for (size_t a = 1; a < f->A; ++a) {
        if (fabs(f->grid[a] - 1.0) < fabs(f->grid[best] - 1.0) - 1e-12) { best = (int)a; }
    }
    return best;
}

static void write_entries(side_fit *f) {
    for (size_t s = 0; s < f->S; ++s) {
        int a = f->chosen[s];
        if (a < 0 && f->out->fitted && f->o->unsupported == FIT_SAFEST) {
            a = safest_action(f);
        } else if (a < 0 && f->out->fitted && f->o->unsupported == FIT_NEIGHBOUR) {
            a = neighbour_action(f, s / f->nB / f->X, s / f->nB % f->X, s % f->nB);
        }
        if (a < 0) { a = f->incoming[s]; }
        f->entries[s] = (float)f->grid[a];
        f->out->n_changed += a != f->incoming[s] ? 1 : 0;
    }
}

/* ---- one side ---- */

/* Actions of the incoming table's side. */
static ckvc_status read_incoming(side_fit *f, const char *where, const float *entries,
                                 ckvc_err *err) {
    for (size_t s = 0; s < f->S; ++s) {
        f->incoming[s] = ckvc_grid_index(f->grid, (uint32_t)f->A, entries[s]);
        if (f->incoming[s] < 0) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: %s, entry %zu, is %g, which is not on the grid of actions", where,
                             f->side == CKVC_SIDE_HEAD ? "start_weight" : "start_tau", s,
                             (double)entries[s]);
        }
    }
    return CKVC_OK;
}

static ckvc_status fit_one_side(side_fit *f, const char *where, const float *incoming,
                                ckvc_err *err) {
    f->out->n_states = f->S;
    f->out->fitted = f->pool->n_prompts > 0;
    f->out->scale = 1.0;
    f->out->count_correlation = f->out->count_noise = f->out->adamw_distance = NAN;
    f->incoming = ckvc_alloc(f->S, sizeof *f->incoming);
    f->chosen = ckvc_alloc(f->S, sizeof *f->chosen);
    ckvc_status st = CKVC_OK;
    memset(f->chosen, 0xff, f->S * sizeof *f->chosen); /* -1 */
    if ((st = read_incoming(f, where, incoming, err)) != CKVC_OK) { goto done; }
    if (f->out->fitted) {
        f->out->n_prompts = f->pool->n_prompts;
        f->out->n_records = cql_counts_records(f->pool->counts);
        set_scale(f);
        if ((st = fit_states(f, err)) != CKVC_OK || (st = what_decided(f, err)) != CKVC_OK ||
            (st = resample(f, err)) != CKVC_OK) {
            goto done;
        }
    }
    write_entries(f);
done:
    free(f->incoming);
    free(f->chosen);
    return st;
}

/* ---- the whole ---- */

/* The table of --tables must be of the shards' model, score, grids, budgets and edges: its entries
 * stand in for cells without records. */
static ckvc_status check_incoming(const fit_pool *pool, const table_file *t, ckvc_err *err) {
    const ckvc_table *table = t->table;
    const json_t *fingerprint = json_object_get(t->meta, "fingerprint");
    ckvc_status st = table_file_check_score(t, "the incoming table", pool->first->alpha_kind,
                                            pool->first->keep_window, pool->first->window,
                                            pool->where, "calibrate with", err);
    if (st != CKVC_OK) { return st; }
    shard_header h = *pool->first; /* arrays borrowed from both; never freed through this copy */
    shard_header_borrow(&h, table);
    if (json_is_string(fingerprint)) {
        snprintf(h.fingerprint, sizeof h.fingerprint, "%s", json_string_value(fingerprint));
    }
    return fit_pool_check(pool->first, pool->where, &h, "the incoming table", -1, err);
}

static void fill_shape(ckvc_table *t, const shard_header *h) {
    t->window = h->window;
    t->n_query_heads = h->n_heads;
    t->head_axis = 0;
    while (*h->operator_name && strcmp(h->operator_name, ckvc_operator_name(t->op))) {
        t->op++; /* a shard's header has one of the names */
    }
    memcpy(t->budgets, h->budgets, h->n_budgets * sizeof *t->budgets);
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const table_side side = table_side_of(t, (ckvc_side)s);
        memcpy(side.grid, h->side[s].actions, side.n_actions * sizeof *side.grid);
    }
    memcpy(t->edges_entropy, h->edges_entropy, (h->n_entropy_bins - 1) * sizeof *t->edges_entropy);
    memcpy(t->edges_ppl, h->edges_ppl, (h->n_ppl_bins - 1) * sizeof *t->edges_ppl);
}

static ckvc_status fit_sides(fit_pool *pool, const fit_options *o, fit_result *r, ckvc_err *err) {
    const shard_header *h = pool->first;
    table_file *t = r->table;
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        bool head = side == CKVC_SIDE_HEAD;
        const table_side shape = table_side_of(t->table, (ckvc_side)side);
        table_evidence *e = &t->evidence[side];
        /* The start table of the side's own shards; a side without records takes it from the other
         * side's, which were logged under it. */
        const fit_pool_side *from =
            pool->sides[side].start != NULL ? &pool->sides[side] : &pool->sides[1 - side];
        const float *start = o->incoming
                                 ? table_side_of(o->incoming->table, (ckvc_side)side).entries
                                 : from->start->side[side].start;
        side_fit f = {
            .side = (ckvc_side)side,
            .o = o,
            .pool = &pool->sides[side],
            .out = &r->sides[side],
            .L = h->n_layers,
            .X = head ? h->n_kv_heads : (size_t)h->n_entropy_bins * h->n_ppl_bins,
            .nB = h->n_budgets,
            .P = head ? 1 : h->n_ppl_bins,
            .A = shape.n_actions,
            .grid = shape.grid,
            .entries = shape.entries,
            .q = e->q,
            .mean = e->m,
            .part = e->l,
            .n = e->n,
            .share = &e->share,
        };
        f.S = f.L * f.X * f.nB;
        ckvc_status st = fit_one_side(&f, from->where, start, err);
        f.out->carried = !f.out->fitted && fit_carries(o->incoming, (ckvc_side)side, o);
        if (st == CKVC_OK && f.out->carried) {
            fit_carry_evidence(t, o->incoming, (ckvc_side)side);
        }
        if (st != CKVC_OK) { return st; }
    }
    return CKVC_OK;
}

ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) {
    *out = NULL;
    if (o->shrink && (o->replicates < 20 || o->resample != CQL_RESAMPLE_BOOTSTRAP)) {
        return ckvc_fail(err, CKVC_E_USAGE, "--shrink needs --bootstrap R with R of at least 20");
    }
    for (size_t i = 0; i < o->n_splits; ++i) {
        if (strcmp(o->splits[i], "heldout") == 0) {
            return ckvc_fail(err, CKVC_E_USAGE,
                             "held-out prompts never enter a fit: --split heldout makes no sense");
        }
    }
    fit_pool pool;
    fit_result *r = ckvc_calloc(1, sizeof *r);
    ckvc_status st = fit_pool_read(&pool, paths, n_paths, o, err);
    if (st != CKVC_OK ||
        (o->incoming != NULL && (st = check_incoming(&pool, o->incoming, err)) != CKVC_OK)) {
        goto done;
    }
    r->n_replicates = o->replicates;
    r->n_heldout = pool.n_heldout;
    r->n_filtered = pool.n_filtered;
    r->n_duplicates = pool.n_duplicates;
    const shard_header *h = pool.first;
    r->table = table_file_create(h->n_layers, h->n_kv_heads, h->n_entropy_bins, h->n_ppl_bins,
                                 h->n_budgets, h->side[CKVC_SIDE_HEAD].n_actions,
                                 h->side[CKVC_SIDE_GATE].n_actions, true);
    if (r->table == NULL) {
        st = ckvc_fail(err, CKVC_E_DATA,
                       "%s: a table of %u layers, %u heads, %u x %u bins and %u budgets is over "
                       "the format's limits",
                       pool.where, h->n_layers, h->n_kv_heads, h->n_entropy_bins, h->n_ppl_bins,
                       h->n_budgets);
        goto done;
    }
    fill_shape(r->table->table, h);
    if ((st = fit_sides(&pool, o, r, err)) != CKVC_OK ||
        (st = fit_write_meta(&pool, o, r, err)) != CKVC_OK) {
        goto done;
    }
    if (pool.n_signature > 0) {
        for (size_t i = 0; i < (size_t)h->n_layers * h->n_kv_heads * 3; ++i) {
            pool.signature[i] /= (double)pool.n_signature;
        }
        r->table->signature = pool.signature;
        pool.signature = NULL;
    } else if (o->incoming != NULL && o->incoming->signature != NULL) {
        size_t n = (size_t)h->n_layers * h->n_kv_heads * 3;
        if ((r->table->signature = ckvc_alloc(n, sizeof(double))) == NULL) {
            st = ckvc_fail_memory(err, "the heads' signature", n * sizeof(double));
        } else {
            memcpy(r->table->signature, o->incoming->signature, n * sizeof(double));
        }
    }
done:
    fit_pool_clear(&pool);
    if (st == CKVC_OK) {
        *out = r;
    } else {
        fit_result_free(r);
    }
    return st;
}

void fit_result_free(fit_result *r) {
    if (r == NULL) { return; }
    table_file_free(r->table);
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        free(r->sides[side].choices);
        free(r->sides[side].by_budget);
    }
    free(r);
}
