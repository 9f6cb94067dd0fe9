/* Computes what a table's own records say about how far to trust it: undecided entries, learning
 * curves, gains on prompts left out, variance, the paper's calibration bound, and what other
 * settings of the fit would have chosen. */
#include <math.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "cql/solve/variance.h"
#include "lib/stats/rank.h"
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

static json_t *interval_json(const rank_interval *x) {
    return OBJECT(OF(x, mean), OF(x, lo), OF(x, hi), OF(x, n));
}

/* ---- entries ---- */

/* Adds for every entry how many refits agree with it, its advantage over the neutral action with
 * that one's lower bound, and the verdict. Adds how many entries have each verdict. */
static void judge_entries(const side_work *w, json_t *o) {
    static const char *const verdicts[] = {"no records", "neutral", "undecided", "decided"};
    const own_records *s = w->s;
    const size_t S = s->of.n_states;
    const cql_resampled boots = cql_logged_resampled(w->l, s->boot, s->n_boot, CQL_ADVANTAGE, 1.0);
    size_t counts[4] = {0};
    double agree_sum = 0;
    json_t *entries = json_array();
    for (size_t i = 0; i < S; i++) {
        int kind = cql_logged_prompts(w->l, i) == 0 ? 0 : s->chosen[i] == s->neutral ? 1 : 2;
        double agree = NAN, advantage = NAN, lower_bound = NAN;
        if (kind > 0) {
            uint32_t same = 0;
            for (uint32_t r = 0; r < s->n_boot; r++) {
                same += s->boot_choices[(size_t)r * S + i] == s->chosen[i];
            }
            agree = (double)same / s->n_boot;
            agree_sum += agree;
        }
        if (kind == 2) {
            uint64_t n[CQL_MAX_ACTIONS];
            double mean[CQL_MAX_ACTIONS];
            cql_logged_state(w->l, i, NULL, CQL_ADVANTAGE, 1.0, n, mean);
            /* the advantage of the unperturbed action is 0 by definition, logged or not */
            int other = s->neutral >= 0 && n[s->neutral] > 0 ? s->neutral : -1;
            lower_bound = cql_lower_bound(&boots, i, s->chosen[i], other, &advantage);
            kind = lower_bound > 0 ? 3 : 2;
        }
        counts[kind]++;
        APPEND_OBJECT(entries, M(agree), M(advantage), M(lower_bound),
                      {"verdict", J(verdicts[kind])});
    }
    ADD_MEMBERS(o, {"decided", J(counts[3])}, {"undecided", J(counts[2])},
                {"neutral", J(counts[1])}, {"without_records", J(counts[0])},
                {"agree", J(agree_sum / (double)(S - counts[0]))}, {"replicates", J(s->n_boot)},
                {"neutral_choice", s->neutral >= 0 ? J(s->of.grid[s->neutral]) : json_null()},
                {"states", J(S)}, {"entries", json_add_columns(json_object(), entries)});
}

/* ---- curves ---- */

/* Returns the next number of prompts of a curve. Numbers double, and the last is all prompts; no
 * two are closer than by a third. */
static size_t next_size(size_t n, size_t all) { return 8 * n <= 3 * all ? 2 * n : all; }

static ckvc_status add_point(const side_work *w, size_t prompts, uint32_t repeats, json_t *list,
                             ckvc_err *err) {
    stability_point p;
    CKVC_TRY(stability_curve_point(&w->fit, prompts, repeats, w->seed, &p, err));
    const double all = (double)w->l->n_records, per_record = all > 0 ? w->s->rollouts / all : NAN;
    APPEND_OBJECT(list, {"prompts", J(p.prompts)}, {"records", J(p.records)},
                  {"rollouts", J(p.records * per_record)}, {"supported", J(p.supported)},
                  {"corrected", J(p.corrected)}, {"rho", spread_json(&p.rho)},
                  {"to_full", spread_json(&p.to_full)});
    return CKVC_OK;
}

/* Adds the agreement of refits by how many prompts there are. */
static ckvc_status draw_curves(const side_work *w, json_t *o, ckvc_err *err) {
    const size_t N = w->l->n_prompts;
    const uint32_t repeats = repeats_for(w->l, 3);
    json_t *curve = json_array();
    ADD_MEMBERS(o, {"curve_repeats", J(repeats)}, {"curve", curve});
    for (size_t size = 1; N >= 2; size = next_size(size, N)) {
        CKVC_TRY(add_point(w, size, repeats, curve, err));
        if (size == N) { break; }
    }
    return CKVC_OK;
}

/* Computes the mean advantage on prompts left out, of fits from n random prompts. */
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

/* Adds the advantage on prompts left out, by how many prompts the choices are from. */
static ckvc_status draw_left_out(const side_work *w, json_t *o, ckvc_err *err) {
    const size_t N = w->l->n_prompts, most = N * 9 / 10;
    json_t *list = json_array();
    ADD_MEMBERS(o, {"left_out", list});
    for (size_t n = 1; n <= most; n = next_size(n, most)) {
        const double share = (double)n / (double)N; /* means over random prompts */
        rank_interval gain;
        CKVC_TRY(left_out(w, &w->fit, n, repeats_for(w->l, 2), &gain, err));
        json_array_append_new(list, ADD_MEMBERS(interval_json(&gain), {"prompts", J(n)},
                                                {"records", J((double)w->l->n_records * share)},
                                                {"rollouts", J(w->s->rollouts * share)}));
        if (n == most) { break; }
    }
    return CKVC_OK;
}

/* ---- the bound ---- */

/* Returns the paper's uniform bound with every state's own numbers; null where a state has no
 * records. */
static json_t *bounds_of(const side_work *w) {
    const size_t S = w->s->of.n_states;
    CKVC_AUTO_FREE variance_bound *of = ckvc_alloc(S, sizeof *of);
    double mean_prompts = 0, mean_width = 0;
    size_t states = 0, informative = 0;
    json_t *entries = json_array();
    variance_bounds(w->l, BOUND_DELTA, of);
    for (size_t i = 0; i < S; i++) {
        const variance_bound *x = &of[i];
        const double excess = 2 * x->bound;
        const bool bounded = x->n_prompts > 0;
#define BOUNDED(v) bounded ? J(v) : json_null()
        APPEND_OBJECT(entries, {"n_prompts", BOUNDED(x->n_prompts)},
                      {"n_actions", BOUNDED(x->n_actions)}, {"width", BOUNDED(x->width)},
                      {"uniform", BOUNDED(x->bound)}, {"excess", BOUNDED(excess)},
                      {"spread", BOUNDED(x->spread)});
#undef BOUNDED
        if (!bounded) { continue; }
        states++;
        informative += excess < x->spread;
        mean_prompts += (double)x->n_prompts;
        mean_width += x->width;
    }
    json_t *o = OBJECT({"delta", J(BOUND_DELTA)}, M(states), {"actions", J(w->l->n_actions)},
                       {"mean_prompts", J(mean_prompts / (double)states)},
                       {"mean_width", J(mean_width / (double)states)}, M(informative));
    return json_add_columns(o, entries);
}

/* ---- variance ---- */

/* the share of a common profile from which on there is more signal than noise */
#define EVEN_SHARE 0.5

/* Do prompts share a profile, and does it take many of them? */
static const char *premise_of(const variance_split *v) {
    const double lo = v->action_interval.lo, hi = v->action_interval.hi;
    if (!isfinite(lo) || !isfinite(hi)) { return "not testable"; }
    if (lo > 0 && lo / (lo + v->rest) > EVEN_SHARE) { return "refuted: one prompt is enough"; }
    if (!(hi > 0) || hi / (hi + v->rest / v->n_prompts) < EVEN_SHARE) {
        return "refuted: prompts share too little";
    }
    const bool shared = lo > 0 && v->common_one < EVEN_SHARE && v->common_all > EVEN_SHARE;
    return shared ? "supported" : "undecided";
}

static json_t *variance_json(const variance_split *v) {
    return OBJECT({"states", J(v->n_states)}, {"prompts_per_state", J(v->n_prompts)},
                  {"premise", J(premise_of(v))}, OF(v, share_prompt_raw), OF(v, share_prompt),
                  OF(v, share_action), OF(v, share_rest), OF(v, common_one), OF(v, common_all),
                  OF(v, prompt_raw), OF(v, prompt), OF(v, action), OF(v, rest),
                  {"action_interval", interval_json(&v->action_interval)});
}

/* ---- other settings of the fit ---- */

/* Returns the choices [S] of a fit of all records, -1 for states without records. */
static int *fit_choices(const side_work *w, const cql_fit *fit) {
    int *out = NEW(w->n, w->l->n_states, int);
    for (size_t i = 0; i < w->l->n_states; i++) { out[i] = cql_logged_choice(w->l, i, NULL, fit); }
    return out;
}

static double share_changed(const side_work *w, const int *a, const int *b) {
    double k = 0;
    for (size_t i = 0; i < w->l->n_states; i++) { k += a[i] != b[i]; }
    return w->supported > 0 ? k / w->supported : NAN;
}

/* Adds what the fit would choose from the same records under other weights of conservatism. */
static ckvc_status try_alphas(const side_work *w, json_t *list, ckvc_err *err) {
    static const double alphas[] = {0, 0.1, 0.25, 0.5, 0.75, 1, 2, 5};
    enum { N_ALPHAS = sizeof alphas / sizeof *alphas, DEFAULT = 4 };
    const size_t half = w->l->n_prompts / 2;
    stability_fit with = w->fit;
    int *choices[N_ALPHAS];
    for (size_t k = 0; k < N_ALPHAS; k++) {
        with.fit.cql_alpha = alphas[k];
        choices[k] = fit_choices(w, &with.fit);
    }
    for (size_t k = 0; k < N_ALPHAS; k++) {
        rank_interval gain = {.mean = NAN, .lo = NAN, .hi = NAN};
        double sum = 0;
        for (size_t i = 0; i < w->l->n_states; i++) {
            sum += choices[k][i] >= 0 ? w->s->of.grid[choices[k][i]] : 0;
        }
        with.fit.cql_alpha = alphas[k];
        if (half > 0) { CKVC_TRY(left_out(w, &with, half, repeats_for(w->l, 8), &gain, err)); }
        const double changed = share_changed(w, choices[k], choices[DEFAULT]),
                     changed_from_0 = share_changed(w, choices[k], choices[0]);
        APPEND_OBJECT(list, {"alpha", J(alphas[k])}, {"changed_from_default", J(changed)},
                      M(changed_from_0), {"mean_entry", J(sum / w->supported)},
                      {"left_out", interval_json(&gain)});
    }
    return CKVC_OK;
}

/* ---- all ---- */

static ckvc_status take_side(side_work *w, json_t *o, ckvc_err *err) {
    const cql_reward reward = w->s->of.kind->penalty ? CQL_LOSS_PART : CQL_ADVANTAGE;
    const variance_split variance = variance_of(w->l, reward);
    const int *chosen = fit_choices(w, &w->s->fit);
    json_t *alphas = json_array();
    for (size_t i = 0; i < w->l->n_states; i++) { w->supported += chosen[i] >= 0; }
    ADD_MEMBERS(o, {"prompts", J(w->l->n_prompts)}, {"records", J(w->l->n_records)},
                OF(w->s, rollouts), {"even_counts", J(w->l->balanced)},
                {"variance", variance_json(&variance)}, {"bound", bounds_of(w)}, {"alpha", alphas});
    CKVC_TRY(try_alphas(w, alphas, err));
    if (w->s->n_boot < 2) { return CKVC_OK; }
    judge_entries(w, o);
    CKVC_TRY(draw_curves(w, o, err));
    return draw_left_out(w, o, err);
}

ckvc_status trust_numbers_make(report_numbers *n, ckvc_err *err) {
    for (size_t i = 0; i < n->n_tables * CKVC_SIDE_COUNT; i++) {
        const table_numbers *of = &n->tables[i / CKVC_SIDE_COUNT];
        const ckvc_side side = (ckvc_side)(i % CKVC_SIDE_COUNT);
        const own_records *s = &of->in->sides[side];
        json_t *o = OBJECT({"missing", J(s->why)});
        json_object_set_new(json_object_get(of->json, "statistics"), ckvc_side_name(side), o);
        if (s->why) { continue; }
        side_work w = {.n = n, .s = s, .l = s->logged, .seed = n->in->o->seed};
        w.fit = own_stability(of->in, side);
        CKVC_TRY(take_side(&w, o, err));
    }
    return CKVC_OK;
}
