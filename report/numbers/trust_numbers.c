/* What a table's own records say about how far to trust it: undecided entries, learning curves,
 * gains on prompts left out, variance, the paper's calibration bound, and what other settings of
 * the fit would have chosen. */
#include <math.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "report/numbers/numbers.h"

#define CURVE_WORK  4e8  /* multiplications of one point of a curve */
#define CURVE_MOST  100u /* repeats of a point */
#define CURVE_LEAST 10u
#define BOUND_DELTA 0.05

/* One side of a table with its records. */
typedef struct side_work {
    report_numbers *n;
    const own_records *s;
    const cql_logged *l;
    stability_fit fit;
    uint64_t seed;
    double supported; /* states with records */
} side_work;

static uint32_t repeats_for(const cql_logged *l, double tables) {
    double fit = CURVE_WORK /
                 (tables * (double)l->n_blocks * (double)l->n_actions * (l->balanced ? 1 : 20) + 1);
    return fit > CURVE_MOST ? CURVE_MOST : fit < CURVE_LEAST ? CURVE_LEAST : (uint32_t)fit;
}

/* ---- entries ---- */

/* Every entry: how many refits agree with it, its advantage over the neutral action with the lower
 * bound, and the verdict. */
static void judge_entries(const side_work *w, side_trust *t) {
    static const char *const verdicts[] = {"no records", "neutral", "undecided", "decided"};
    const own_records *s = w->s;
    const cql_resampled boots = cql_logged_resampled(w->l, s->boot, s->n_boot, CQL_ADVANTAGE, 1.0);
    size_t counts[4] = {0};
    double agree_sum = 0;
    for (size_t i = 0; i < t->states; i++) {
        entry *e = &t->entries[i];
        int kind = cql_logged_prompts(w->l, i) == 0 ? 0 : s->chosen[i] == s->neutral ? 1 : 2;
        if (kind > 0) {
            uint32_t same = 0;
            for (uint32_t r = 0; r < s->n_boot; r++) {
                same += s->boot_choices[(size_t)r * t->states + i] == s->chosen[i];
            }
            e->agree = (double)same / s->n_boot;
            agree_sum += e->agree;
        }
        if (kind == 2) {
            uint64_t n[CQL_MAX_ACTIONS];
            double mean[CQL_MAX_ACTIONS];
            cql_logged_state(w->l, i, NULL, CQL_ADVANTAGE, 1.0, n, mean);
            /* the advantage of the unperturbed action is 0 by definition, logged or not */
            int other = s->neutral >= 0 && n[s->neutral] > 0 ? s->neutral : -1;
            e->lower_bound = cql_lower_bound(&boots, i, s->chosen[i], other, &e->advantage);
            kind = e->lower_bound > 0 ? 3 : 2;
        }
        counts[kind]++;
        e->verdict = verdicts[kind];
        e->undecided = kind == 2;
    }
    t->refits.without_records = counts[0];
    t->refits.neutral = counts[1];
    t->refits.undecided = counts[2];
    t->refits.decided = counts[3];
    t->refits.neutral_choice = s->neutral >= 0 ? s->of.grid[s->neutral] : NAN;
    t->refits.agree = agree_sum / (double)(t->states - counts[0]);
    t->refits.replicates = s->n_boot;
}

/* ---- curves ---- */

enum { SIZES = 80 }; /* a size_t doubles 64 times */

/* Doubling, then all: no two sizes closer than by a third. */
static size_t next_size(size_t n, size_t all) { return 8 * n <= 3 * all ? 2 * n : all; }

static ckvc_status add_point(const side_work *w, size_t prompts, uint32_t repeats,
                             curve_point *list, size_t *n, ckvc_err *err) {
    stability_point p;
    CKVC_TRY(stability_curve_point(&w->fit, prompts, repeats, w->seed, &p, err));
    const double all = (double)w->l->n_records, per_record = all > 0 ? w->s->rollouts / all : NAN;
    list[(*n)++] =
        (curve_point){(double)p.prompts, p.records,  p.records * per_record, p.supported, p.rho,
                      p.to_full,         p.corrected};
    return CKVC_OK;
}

static ckvc_status draw_curves(const side_work *w, side_refits *r, ckvc_err *err) {
    const size_t N = w->l->n_prompts;
    const uint32_t repeats = repeats_for(w->l, 3);
    r->curve_repeats = repeats;
    r->curve = NEW(w->n, SIZES, curve_point);
    for (size_t size = 1; N >= 2; size = next_size(size, N)) {
        CKVC_TRY(add_point(w, size, repeats, r->curve, &r->n_curve, err));
        if (size == N) { break; }
    }
    return CKVC_OK;
}

/* Mean advantage on prompts left out, of fits from n random prompts. */
static ckvc_status left_out(const side_work *w, const stability_fit *fit, size_t n,
                            uint32_t repeats, rank_interval *out, ckvc_err *err) {
    const size_t N = w->l->n_prompts;
    CKVC_AUTO_FREE double *gain = ckvc_alloc(N, sizeof *gain);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(N, sizeof *cluster);
    size_t k = 0;
    CKVC_TRY(stability_left_out(fit, n, repeats, w->seed, gain, err));
    for (size_t p = 0; p < N; p++) {
        gain[k] = gain[p];
        cluster[k] = w->l->cluster[p];
        k += isfinite(gain[p]);
    }
    *out = rank_mean_interval(gain, cluster, k);
    return CKVC_OK;
}

static ckvc_status draw_left_out(const side_work *w, side_refits *r, ckvc_err *err) {
    const size_t N = w->l->n_prompts, most = N * 9 / 10;
    r->left_out = NEW(w->n, SIZES, left_out_point);
    for (size_t n = 1; n <= most; n = next_size(n, most)) {
        left_out_point *p = &r->left_out[r->n_left_out++];
        const double share = (double)n / (double)N; /* means over random prompts */
        *p = (left_out_point){.prompts = (double)n,
                              .records = (double)w->l->n_records * share,
                              .rollouts = w->s->rollouts * share};
        CKVC_TRY(left_out(w, &w->fit, n, repeats_for(w->l, 2), &p->gain, err));
        if (n == most) { break; }
    }
    return CKVC_OK;
}

/* ---- the bound ---- */

/* The paper's uniform bound with every state's own numbers. */
static void bound_entries(const side_work *w, side_trust *t) {
    CKVC_AUTO_FREE variance_bound *of = ckvc_alloc(t->states, sizeof *of);
    bound_sums *sums = &t->bound;
    variance_bounds(w->l, BOUND_DELTA, of);
    *sums = (bound_sums){.delta = BOUND_DELTA, .actions = w->l->n_actions};
    for (size_t i = 0; i < t->states; i++) {
        entry *e = &t->entries[i];
        e->bound = of[i];
        e->bounded = of[i].n_prompts > 0;
        e->excess = 2 * of[i].bound;
        if (!e->bounded) { continue; }
        sums->states++;
        sums->informative += e->excess < of[i].spread;
        sums->mean_prompts += (double)of[i].n_prompts;
        sums->mean_width += of[i].width;
    }
    sums->mean_prompts /= (double)sums->states;
    sums->mean_width /= (double)sums->states;
}

/* ---- other settings of the fit ---- */

/* Choices [S] of a fit of all records, -1 without records. */
static int *choices_of(const side_work *w, const cql_fit *fit) {
    int *out = NEW(w->n, w->l->n_states, int);
    for (size_t i = 0; i < w->l->n_states; i++) { out[i] = cql_logged_choice(w->l, i, NULL, fit); }
    return out;
}

static double share_changed(const side_work *w, const int *a, const int *b) {
    double k = 0;
    for (size_t i = 0; i < w->l->n_states; i++) { k += a[i] != b[i]; }
    return w->supported > 0 ? k / w->supported : NAN;
}

/* Conservatism at other weights, from the same records. */
static ckvc_status try_alphas(const side_work *w, side_trust *t, ckvc_err *err) {
    static const double alphas[] = {0, 0.1, 0.25, 0.5, 0.75, 1, 2, 5};
    enum { N_ALPHAS = sizeof alphas / sizeof *alphas, DEFAULT = 4 };
    const size_t half = w->l->n_prompts / 2;
    stability_fit with = w->fit;
    int *choices[N_ALPHAS];
    t->n_alphas = N_ALPHAS;
    t->alphas = NEW(w->n, N_ALPHAS, alpha_point);
    for (size_t k = 0; k < N_ALPHAS; k++) {
        with.fit.cql_alpha = alphas[k];
        choices[k] = choices_of(w, &with.fit);
    }
    for (size_t k = 0; k < N_ALPHAS; k++) {
        alpha_point *p = &t->alphas[k];
        double sum = 0;
        for (size_t i = 0; i < t->states; i++) {
            sum += choices[k][i] >= 0 ? w->s->of.grid[choices[k][i]] : 0;
        }
        *p = (alpha_point){.alpha = alphas[k],
                           .changed_from_default = share_changed(w, choices[k], choices[DEFAULT]),
                           .changed_from_0 = share_changed(w, choices[k], choices[0]),
                           .mean_entry = sum / w->supported,
                           .left_out = {.mean = NAN, .lo = NAN, .hi = NAN, .se = NAN}};
        with.fit.cql_alpha = alphas[k];
        if (half > 0) {
            CKVC_TRY(left_out(w, &with, half, repeats_for(w->l, 8), &p->left_out, err));
        }
    }
    return CKVC_OK;
}

static ckvc_status try_settings(side_work *w, side_trust *t, ckvc_err *err) {
    const cql_fit *fit = &w->s->fit;
    const int *chosen = choices_of(w, fit);
    for (size_t i = 0; i < t->states; i++) { w->supported += chosen[i] >= 0; }
    t->even_counts = w->l->balanced;
    return try_alphas(w, t, err);
}

/* ---- all ---- */

static ckvc_status side_make(side_work *w, side_trust *t, ckvc_err *err) {
    t->known = true;
    t->prompts = w->l->n_prompts;
    t->records = w->l->n_records;
    t->rollouts = w->s->rollouts;
    t->variance = variance_of(w->l, w->s->of.kind->penalty ? CQL_LOSS_PART : CQL_ADVANTAGE);
    bound_entries(w, t);
    CKVC_TRY(try_settings(w, t, err));
    t->has_refits = w->s->n_boot >= 2;
    if (!t->has_refits) { return CKVC_OK; }
    judge_entries(w, t);
    CKVC_TRY(draw_curves(w, &t->refits, err));
    return draw_left_out(w, &t->refits, err);
}

ckvc_status trust_numbers_make(report_numbers *n, ckvc_err *err) {
    n->n_trust = n->n_tables * CKVC_SIDE_COUNT;
    n->trust = NEW(n, n->n_trust, side_trust);
    for (size_t i = 0; i < n->n_trust; i++) {
        table_numbers *of = &n->tables[i / CKVC_SIDE_COUNT];
        const ckvc_side side = (ckvc_side)(i % CKVC_SIDE_COUNT);
        const side_evidence *e = &of->evidence[side];
        const own_records *s = &of->in->sides[side];
        side_trust *t = &n->trust[i];
        of->trust = t - side;
        *t = (side_trust){.name = e->name, .missing = s->why};
        t->kind = e->side.kind;
        t->states = e->states;
        t->entries = e->entries;
        if (s->why) { continue; }
        side_work w = {.n = n, .s = s, .l = s->logged, .seed = n->in->o->seed};
        w.fit = own_stability(of->in, side);
        CKVC_TRY(side_make(&w, t, err));
    }
    return CKVC_OK;
}
