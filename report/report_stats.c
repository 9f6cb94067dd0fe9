/* What a table's own records say about how far to trust it: undecided entries, learning curves,
 * gains on prompts left out, variance, the paper's calibration bound, and what other settings of
 * the fit would have chosen. One member "statistics" a table, one object a side.
 */
#include <math.h>
#include <stdlib.h>

#include "cql/solve/adamw.h"
#include "cql/stats/rank.h"
#include "cql/stats/variance.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

#define CURVE_WORK   4e8  /* multiplications of one point of a curve */
#define CURVE_MOST   100u /* repeats of a point */
#define CURVE_LEAST  10u
#define RANK_REPEATS 20u
#define NOISE_DRAWS  8u
#define BOUND_DELTA  0.05
#define ADAMW_STEPS  2e7 /* records times epochs; beyond it the comparison is left out */
#define ADAMW_WORK   2e9 /* table entries times steps */

static uint32_t repeats_for(const cql_logged *l, double tables) {
    double fit = CURVE_WORK /
                 (tables * (double)l->n_blocks * (double)l->n_actions * (l->whole ? 1 : 20) + 1);
    return fit > CURVE_MOST ? CURVE_MOST : fit < CURVE_LEAST ? CURVE_LEAST : (uint32_t)fit;
}

static json_t *spread_json(const stability_spread *s) {
    return json_pack("{s:o, s:o, s:o, s:I}", "mean", ckvc_json_real(s->mean), "lo",
                     ckvc_json_real(s->lo), "hi", ckvc_json_real(s->hi), "defined",
                     (json_int_t)s->n);
}

static json_t *interval_json(const rank_interval *i) {
    return json_pack("{s:o, s:o, s:o, s:I}", "mean", ckvc_json_real(i->mean), "lo",
                     ckvc_json_real(i->lo), "hi", ckvc_json_real(i->hi), "n", (json_int_t)i->n);
}

/* ---- entries ---- */

/* Every entry: how many refits agree with it, its advantage over the neutral action with the lower
 * bound, and the verdict. */
static ckvc_status entries_json(const report_side *s, json_t *o, ckvc_err *err) {
    static const char *const kinds[] = {"no records", "neutral", "undecided", "decided"};
    const cql_logged *l = s->logged;
    size_t counts[4] = {0};
    double *agree = ckvc_alloc(3 * l->n_states, sizeof *agree), *advantage = agree + l->n_states,
           *bound = agree + 2 * l->n_states;
    double agree_sum = 0;
    const cql_resampled boots = cql_logged_resampled(l, s->boot, s->n_boot, CQL_ADVANTAGE, 1.0);
    json_t *verdicts = json_array(), *e = json_object();
    for (size_t i = 0; i < l->n_states; i++) {
        agree[i] = advantage[i] = bound[i] = NAN;
        int kind = cql_logged_prompts(l, i) == 0 ? 0 : s->chosen[i] == s->neutral ? 1 : 2;
        if (kind > 0) {
            uint32_t same = 0;
            for (uint32_t r = 0; r < s->n_boot; r++) {
                same += s->boot_choices[(size_t)r * l->n_states + i] == s->chosen[i];
            }
            agree[i] = (double)same / s->n_boot;
            agree_sum += agree[i];
        }
        if (kind == 2) {
            uint64_t n[CQL_MAX_ACTIONS];
            double mean[CQL_MAX_ACTIONS];
            cql_logged_state(l, i, &cql_all, CQL_ADVANTAGE, 1.0, n, mean);
            /* the advantage of the unperturbed action is 0 by definition, logged or not */
            int other = s->neutral >= 0 && n[s->neutral] > 0 ? s->neutral : -1;
            bound[i] = cql_lower_bound(&boots, i, s->chosen[i], other, &advantage[i]);
            kind = bound[i] > 0 ? 3 : 2;
        }
        counts[kind]++;
        json_array_append_new(verdicts, json_string(kinds[kind]));
    }
    json_object_set_new(e, "agree", ckvc_json_reals(agree, l->n_states));
    json_object_set_new(e, "advantage", ckvc_json_reals(advantage, l->n_states));
    json_object_set_new(e, "lower_bound", ckvc_json_reals(bound, l->n_states));
    json_object_set_new(e, "verdict", verdicts);
    json_object_set_new(o, "entries", e);
    json_object_set_new(o, "states", json_integer((json_int_t)l->n_states));
    json_object_set_new(o, "decided", json_integer((json_int_t)counts[3]));
    json_object_set_new(o, "undecided", json_integer((json_int_t)counts[2]));
    json_object_set_new(o, "neutral", json_integer((json_int_t)counts[1]));
    json_object_set_new(o, "neutral_choice",
                        ckvc_json_real(s->neutral >= 0 ? s->of.grid[s->neutral] : NAN));
    json_object_set_new(o, "without_records", json_integer((json_int_t)counts[0]));
    json_object_set_new(o, "agree", ckvc_json_real(agree_sum / (double)(l->n_states - counts[0])));
    json_object_set_new(o, "replicates", json_integer((json_int_t)s->n_boot));
    free(agree);
    return CKVC_OK;
}

/* ---- curves ---- */

/* Doubling, then all: no two sizes closer than by a third. */
static size_t next_size(size_t n, size_t all) {
    return 8 * n <= 3 * all ? 2 * n : all;
}

static json_t *point_json(const stability_point *p, double rollouts) {
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "prompts", (json_int_t)p->prompts,
                     "keep", ckvc_json_real(p->keep), "records", ckvc_json_real(p->records),
                     "rollouts", ckvc_json_real(rollouts), "supported",
                     ckvc_json_real(p->supported), "rho", spread_json(&p->rho), "corrected",
                     p->corrected, "to_full", spread_json(&p->to_full));
}

static ckvc_status curve_json(const report *r, const report_side *s, const stability_fit *side,
                              json_t *o, ckvc_err *err) {
    const cql_logged *l = s->logged;
    json_t *prompts = json_array(), *thinned = json_array();
    json_object_set_new(o, "curve", prompts);
    json_object_set_new(o, "curve_fewer_states", thinned);
    double per_record = l->n_records > 0 ? s->rollouts / (double)l->n_records : NAN;
    uint32_t repeats = repeats_for(l, 3);
    ckvc_status rc = CKVC_OK;
    for (size_t n = 1; l->n_prompts >= 2 && rc == CKVC_OK; n = next_size(n, l->n_prompts)) {
        stability_point p;
        if ((rc = stability_curve_point(side, n, 1.0, repeats, r->o->seed, &p, err)) == CKVC_OK) {
            json_array_append_new(prompts, point_json(&p, p.records * per_record));
        }
        if (n == l->n_prompts) { break; }
    }
    for (double keep = 1.0 / 16; l->n_prompts >= 2 && keep <= 1.0 && rc == CKVC_OK; keep *= 2) {
        stability_point p;
        if ((rc = stability_curve_point(side, l->n_prompts, keep, repeats, r->o->seed, &p, err)) ==
            CKVC_OK) {
            json_array_append_new(thinned, point_json(&p, p.records * per_record));
        }
    }
    json_object_set_new(o, "curve_repeats", json_integer((json_int_t)repeats));
    return rc;
}

static ckvc_status left_out_json(const report *r, const report_side *s, const stability_fit *side,
                                 json_t *o, ckvc_err *err) {
    size_t N = s->logged->n_prompts, most = N * 9 / 10;
    json_t *list = json_array();
    json_object_set_new(o, "left_out", list);
    double *gain = ckvc_alloc(N, sizeof *gain);
    ckvc_status rc = gain ? CKVC_OK : ckvc_fail_memory(err, "report", N * sizeof *gain);
    for (size_t n = 1; n <= most && rc == CKVC_OK; n = next_size(n, most)) {
        if ((rc = stability_left_out(side, n, repeats_for(s->logged, 2), r->o->seed, gain, err)) ==
            CKVC_OK) {
            size_t k = 0;
            for (size_t p = 0; p < N; p++) {
                gain[k] = gain[p];
                k += isfinite(gain[p]);
            }
            rank_interval i = rank_mean_interval(gain, k);
            json_t *of = interval_json(&i);
            const double share = (double)n / (double)N; /* means over random prompts */
            json_object_set_new(of, "prompts", json_integer((json_int_t)n));
            json_object_set_new(of, "records",
                                ckvc_json_real((double)s->logged->n_records * share));
            json_object_set_new(of, "rollouts", ckvc_json_real(s->rollouts * share));
            json_array_append_new(list, of);
        }
        if (n == most) { break; }
    }
    free(gain);
    return rc;
}

static ckvc_status ranks_json(const report *r, const stability_fit *side, json_t *o,
                              ckvc_err *err) {
    CKVC_AUTO(stability_ranks_free)
    stability_ranks k = stability_rank_curve(side->l, RANK_REPEATS, r->o->seed);
    size_t A = side->l->n_actions;
    json_object_set_new(o, "ranks",
                        json_pack("{s:I, s:o, s:o, s:o, s:o}", "states", (json_int_t)k.n_states,
                                  "same", ckvc_json_reals(k.same, A), "lo",
                                  ckvc_json_reals(k.lo, A), "hi", ckvc_json_reals(k.hi, A), "other",
                                  ckvc_json_reals(k.other, A)));
    return CKVC_OK;
}

/* ---- variance and bound ---- */

static ckvc_status variance_json(const report_side *s, bool head, json_t *o, ckvc_err *err) {
    const variance_split v = variance_of(s->logged, head ? CQL_ADVANTAGE : CQL_LOSS_PART);
    json_object_set_new(
        o, "variance",
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "states",
                  (json_int_t)v.n_states, "prompts_per_state", ckvc_json_real(v.n_prompts),
                  "prompt_raw", ckvc_json_real(v.prompt_raw), "prompt", ckvc_json_real(v.prompt),
                  "action", ckvc_json_real(v.action), "rest", ckvc_json_real(v.rest),
                  "share_prompt_raw", ckvc_json_real(v.share_prompt_raw), "share_prompt",
                  ckvc_json_real(v.share_prompt), "share_action", ckvc_json_real(v.share_action),
                  "share_rest", ckvc_json_real(v.share_rest), "common_one",
                  ckvc_json_real(v.common_one), "common_all", ckvc_json_real(v.common_all),
                  "action_interval", interval_json(&v.action_interval)));
    return CKVC_OK;
}

/* The paper's uniform bound with every state's own numbers: arrays [states] in the order of the
 * entries, null without records. */
static ckvc_status bound_json(const report_side *s, json_t *o, ckvc_err *err) {
    enum { WIDTH, WIDTH_RAW, UNIFORM, EXCESS, EXCESS_RAW, SPREAD, COLUMNS };
    static const char *const names[COLUMNS] = {"width",  "width_raw",  "uniform",
                                               "excess", "excess_raw", "spread"};
    size_t S = s->logged->n_states, n = 0, informative = 0, informative_raw = 0;
    variance_bound *of = ckvc_alloc(S, sizeof *of);
    double *values = ckvc_alloc(COLUMNS * S, sizeof *values), prompts = 0, width = 0;
    json_t *n_prompts = json_array(), *n_actions = json_array();
    variance_bounds(s->logged, BOUND_DELTA, of);
    for (size_t i = 0; i < S; i++) {
        bool there = of[i].n_prompts > 0;
        const double row[COLUMNS] = {of[i].width,     of[i].width_raw,     of[i].bound,
                                     2 * of[i].bound, 2 * of[i].bound_raw, of[i].spread};
        for (size_t k = 0; k < COLUMNS; k++) {
            values[k * S + i] = there ? row[k] : NAN;
        }
        json_array_append_new(n_prompts,
                              there ? json_integer((json_int_t)of[i].n_prompts) : json_null());
        json_array_append_new(n_actions,
                              there ? json_integer((json_int_t)of[i].n_actions) : json_null());
        if (there) {
            informative += 2 * of[i].bound < of[i].spread;
            informative_raw += 2 * of[i].bound_raw < of[i].spread;
            prompts += (double)of[i].n_prompts;
            width += of[i].width;
            n++;
        }
    }
    json_t *bound = json_pack(
        "{s:f, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o}", "delta", BOUND_DELTA, "states",
        (json_int_t)n, "actions", (json_int_t)s->logged->n_actions, "mean_prompts",
        ckvc_json_real(prompts / (double)n), "mean_width", ckvc_json_real(width / (double)n),
        "informative", (json_int_t)informative, "informative_raw", (json_int_t)informative_raw,
        "n_prompts", n_prompts, "n_actions", n_actions);
    for (size_t k = 0; k < COLUMNS; k++) {
        json_object_set_new(bound, names[k], ckvc_json_reals(values + k * S, S));
    }
    json_object_set_new(o, "bound", bound);
    free(of);
    free(values);
    return CKVC_OK;
}

/* ---- other settings of the fit ---- */

/* Choices [S] of a fit of all records, -1 without records. */
static void choices_of(const cql_logged *l, const cql_fit *fit, int *out) {
    for (size_t i = 0; i < l->n_states; i++) {
        out[i] = cql_logged_choice(l, i, &cql_all, fit);
    }
}

static json_t *changed(const int *a, const int *b, size_t n, size_t supported) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += a[i] != b[i];
    }
    return ckvc_json_real(supported ? (double)k / (double)supported : NAN);
}

/* Conservatism at other weights, from the same records: changed choices, mean entry, mean advantage
 * on prompts left out. */
static ckvc_status alpha_json(const report *r, const report_side *s, const stability_fit *side,
                              size_t supported, json_t *o, ckvc_err *err) {
    static const double alphas[] = {0, 0.1, 0.25, 0.5, 0.75, 1, 2, 5};
    enum { N_ALPHAS = sizeof alphas / sizeof *alphas };
    const cql_logged *l = s->logged;
    size_t S = l->n_states, half = l->n_prompts / 2;
    int *choices = ckvc_alloc(N_ALPHAS * S, sizeof *choices);
    double *gain = ckvc_alloc(l->n_prompts, sizeof *gain);
    json_t *list = json_array();
    json_object_set_new(o, "alpha", list);
    ckvc_status rc =
        choices && gain ? CKVC_OK : ckvc_fail_memory(err, "report", N_ALPHAS * S * sizeof *choices);
    stability_fit with = *side;
    for (size_t k = 0; k < N_ALPHAS && rc == CKVC_OK; k++) {
        with.fit.cql_alpha = alphas[k];
        choices_of(l, &with.fit, choices + k * S);
    }
    for (size_t k = 0; k < N_ALPHAS && rc == CKVC_OK; k++) {
        double sum = 0;
        rank_interval i = {NAN, NAN, NAN, NAN, 0};
        for (size_t n = 0; n < S; n++) {
            sum += choices[k * S + n] >= 0 ? s->of.grid[choices[k * S + n]] : 0;
        }
        with.fit.cql_alpha = alphas[k];
        if (half > 0 && (rc = stability_left_out(&with, half, repeats_for(l, 8), r->o->seed, gain,
                                                 err)) == CKVC_OK) {
            size_t m = 0;
            for (size_t p = 0; p < l->n_prompts; p++) {
                gain[m] = gain[p];
                m += isfinite(gain[p]);
            }
            i = rank_mean_interval(gain, m);
        }
        json_array_append_new(
            list,
            json_pack("{s:f, s:o, s:o, s:o, s:o}", "alpha", alphas[k], "changed_from_default",
                      changed(choices + k * S, choices + 4 * S, S, supported), "changed_from_0",
                      changed(choices + k * S, choices, S, supported), "mean_entry",
                      ckvc_json_real(sum / (double)supported), "left_out", interval_json(&i)));
    }
    free(choices);
    free(gain);
    return rc;
}

/* The paper's optimiser on the same records, from zeros: how far from the minimum, and how many
 * choices differ. */
static ckvc_status adamw_json(const report *r, const report_side *s, const int *exact,
                              size_t supported, json_t *o, ckvc_err *err) {
    const cql_logged *l = s->logged;
    size_t S = l->n_states, A = l->n_actions, k = 0;
    cql_adamw_options options = cql_adamw_defaults();
    double steps = ceil((double)l->n_records / options.batch) * options.epochs;
    if ((double)l->n_records * options.epochs > ADAMW_STEPS ||
        steps * (double)(S * A) > ADAMW_WORK) {
        json_object_set_new(
            o, "adamw",
            json_pack("{s:s}", "skipped",
                      "too many records to repeat the paper's optimiser within a report"));
        return CKVC_OK;
    }
    options.cql_alpha = s->fit.cql_alpha;
    double *q = ckvc_alloc(S * A, sizeof *q), distance = 0;
    cql_record *records = ckvc_alloc(l->n_records, sizeof *records);
    uint64_t seed = r->o->seed;
    ckvc_status rc =
        q && records ? CKVC_OK : ckvc_fail_memory(err, "report", l->n_records * sizeof *records);
    for (size_t i = 0; rc == CKVC_OK && i < l->n_blocks; i++) {
        for (size_t a = 0; a < A; a++) {
            for (uint32_t n = 0; n < l->n[i * A + a]; n++) {
                double reward = l->sum[i * A + a] / l->n[i * A + a] +
                                (s->fit.reward == CQL_RAW ? l->blocks[i].baseline : 0);
                records[k++] = (cql_record){l->blocks[i].state, (uint32_t)a, reward / s->fit.scale};
            }
        }
    }
    if (rc == CKVC_OK) {
        rc = cql_adamw(&(cql_records){records, k, S, A}, &options,
                       (cql_shuffle){cql_seeded_order, &seed}, q, err);
    }
    size_t differ = 0;
    for (size_t i = 0; i < S && rc == CKVC_OK; i++) {
        uint64_t n[CQL_MAX_ACTIONS];
        double mean[CQL_MAX_ACTIONS], best[CQL_MAX_ACTIONS];
        cql_certificate cert;
        if (cql_logged_state(l, i, &cql_all, s->fit.reward, s->fit.scale, n, mean) == 0 ||
            !cql_solve_exact(A, n, mean, options.cql_alpha, best, &cert)) {
            continue;
        }
        for (size_t a = 0; a < A; a++) {
            distance = n[a] > 0 ? fmax(distance, fabs(q[i * A + a] - best[a])) : distance;
            best[a] = n[a] > 0 ? q[i * A + a] : -INFINITY;
        }
        differ += cql_choose(&s->fit.actions, best) != exact[i];
    }
    if (rc == CKVC_OK) {
        json_object_set_new(o, "adamw",
                            json_pack("{s:f, s:f, s:I}", "distance", distance, "changed",
                                      (double)differ / (double)supported, "updates",
                                      (json_int_t)steps));
    }
    free(q);
    free(records);
    return rc;
}

static ckvc_status settings_json(const report *r, const report_side *s, const stability_fit *side,
                                 json_t *o, ckvc_err *err) {
    const cql_logged *l = s->logged;
    size_t S = l->n_states, supported = 0;
    int *exact = ckvc_alloc(2 * S, sizeof *exact), *other = exact + S;
    double noise = 0;
    choices_of(l, &s->fit, exact);
    for (size_t i = 0; i < S; i++) {
        uint64_t n[CQL_MAX_ACTIONS];
        double mean[CQL_MAX_ACTIONS];
        if (cql_logged_state(l, i, &cql_all, s->fit.reward, s->fit.scale, n, mean) > 0) {
            supported++;
            noise += variance_count_noise(&s->fit, n, mean, NOISE_DRAWS, r->o->seed, i);
        }
    }
    bool raw = s->fit.reward == CQL_RAW;
    cql_fit turned = s->fit;
    turned.reward = raw ? CQL_ADVANTAGE : CQL_RAW;
    turned.scale = 1.0;
    choices_of(l, &turned, other);
    json_object_set_new(o, "even_counts", json_boolean(l->whole));
    json_object_set_new(o, "count_noise", ckvc_json_real(noise / (double)supported));
    json_object_set_new(o, "other_reward",
                        json_pack("{s:s, s:o}", "kind", raw ? "advantage, unscaled" : "raw",
                                  "changed", changed(exact, other, S, supported)));
    ckvc_status rc = alpha_json(r, s, side, supported, o, err);
    if (rc == CKVC_OK) { rc = adamw_json(r, s, exact, supported, o, err); }
    free(exact);
    return rc;
}

/* ---- all ---- */

static ckvc_status side_json(const report *r, const report_table *t, int side, json_t **out,
                             ckvc_err *err) {
    const report_side *s = &t->sides[side];
    json_t *o = json_object();
    *out = o;
    json_object_set_new(o, "missing", *s->why ? json_string(s->why) : json_null());
    if (*s->why) { return CKVC_OK; }
    stability_fit all = report_stability_fit(t, side);
    json_object_set_new(o, "prompts", json_integer((json_int_t)s->logged->n_prompts));
    json_object_set_new(o, "records", json_integer((json_int_t)s->logged->n_records));
    json_object_set_new(o, "rollouts", ckvc_json_real(s->rollouts));
    ckvc_status rc = variance_json(s, side == CKVC_SIDE_HEAD, o, err);
    if (rc == CKVC_OK) { rc = bound_json(s, o, err); }
    if (rc == CKVC_OK) { rc = settings_json(r, s, &all, o, err); }
    if (rc == CKVC_OK) { rc = ranks_json(r, &all, o, err); }
    if (s->n_boot < 2) { return rc; }
    if (rc == CKVC_OK) { rc = entries_json(s, o, err); }
    if (rc == CKVC_OK) { rc = curve_json(r, s, &all, o, err); }
    return rc ? rc : left_out_json(r, s, &all, o, err);
}

ckvc_status report_stats_json(report *r, ckvc_err *err) {
    for (size_t i = 0; i < r->n_tables; i++) {
        json_t *both = json_object();
        json_object_set_new(json_array_get(json_object_get(r->json, "tables"), i), "statistics",
                            both);
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            json_t *o = NULL;
            ckvc_status rc = side_json(r, &r->tables[i], side, &o, err);
            json_object_set_new(both, ckvc_side_name((ckvc_side)side), o);
            if (rc) { return rc; }
        }
    }
    return CKVC_OK;
}
