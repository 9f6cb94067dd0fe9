/* See fit_side.h. */
#include "cql/fit/fit_side.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"

const char *fit_unsupported_name(fit_unsupported u) {
    static const char *const names[] = {"incoming", "safest", "neighbour"};
    return names[u];
}

json_t *fitted_side_json(const fitted_side *s, bool penalty) {
    const decided *d = &s->why;
    const uint64_t *records = d->records;
    const size_t n = d->n_supported;
    json_t *o = json_pack("{s:b}", "fitted", s->fitted);
    JSON_NUMBERS(o, {"prompts", s->n_prompts});
    if (s->n_documents < s->n_prompts) { JSON_NUMBERS(o, {"documents", s->n_documents}); }
    JSON_NUMBERS(o, {"records", s->n_records}, {"states", s->n_states}, {"supported", n},
                 {"records_per_state_min", n ? records[0] : 0},
                 {"records_per_state_median", n ? d->median : 0},
                 {"records_per_state_max", n ? records[n - 1] : 0}, {"alpha_decided", d->n_alpha},
                 {"changed", s->n_changed}, {"shrunk", s->n_shrunk});
    ckvc_json_set_real(o, "alpha_decided_share", n ? (double)d->n_alpha / (double)n : NAN);
    ckvc_json_set_real(o, "count_correlation", d->correlation);
    ckvc_json_set_real(o, "adamw_distance", s->adamw_distance);
    if (penalty) {
        const decided_split all = decided_sum(d, d->nB);
        JSON_NUMBERS(o, {"by_loss", all.by_loss}, {"by_penalty", all.supported - all.by_loss},
                     {"flat_loss", all.flat});
    }
    return o;
}

#define NOISE_DRAWS 8 /* how many times the counts of a state are drawn again */

/* ---- pass 1: scale and fit ---- */

static double scale_of(const side_fitting *f) {
    if (f->o->reward == FIT_RAW) { return 1.0; }
    double sd = cql_counts_sd(f->records->counts, f->s.kind->penalty);
    if (sd > 0.0) { return sd; }
    ckvc_warn("%s side: no action changed a loss in %llu records, so rewards are not scaled",
              ckvc_side_name(f->s.which),
              (unsigned long long)cql_counts_records(f->records->counts));
    return 1.0;
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

/* Replaces Q of the logged actions by what the paper's optimiser finds, at the scale of the exact
 * fit. */
static ckvc_status run_adamw(const side_fitting *f, fitted_side *out, ckvc_err *err) {
    side_records *p = f->records;
    const size_t cells = f->s.n_states * f->s.actions.n;
    CKVC_AUTO_FREE double *q = ckvc_alloc(cells, sizeof *q);
    CKVC_AUTO_FREE cql_record *records = ckvc_alloc(p->n_rows, sizeof *records);
    qsort(p->rows, p->n_rows, sizeof *p->rows, by_row);
    for (size_t i = 0; i < p->n_rows; ++i) {
        records[i] = p->rows[i].record;
        records[i].reward /= out->scale;
    }
    cql_adamw_options o = cql_adamw_defaults();
    o.cql_alpha = f->o->cql_alpha;
    CKVC_TRY(cql_adamw(&(cql_records){records, p->n_rows, f->s.n_states, f->s.actions.n}, &o,
                       (cql_shuffle){cql_seeded_order, &f->resampled->seed}, q, err));
    out->adamw_distance = 0.0;
    for (size_t i = 0; i < cells; ++i) {
        if (f->e->n[i] > 0) {
            out->adamw_distance = fmax(out->adamw_distance, fabs(q[i] - f->e->q[i]));
            f->e->q[i] = q[i];
        }
    }
    return CKVC_OK;
}

static double state_size(size_t A, const uint64_t *n, const double *mean) {
    double size = 1.0;
    for (size_t a = 0; a < A; ++a) {
        if (n[a] > 0) { size = fmax(size, fabs(mean[a])); }
    }
    return size;
}

static ckvc_status fit_states(const side_fitting *f, fitted_side *out, ckvc_err *err) {
    const table_evidence *e = f->e;
    const size_t A = f->s.actions.n;
    for (size_t s = 0; s < f->s.n_states; ++s) {
        cql_certificate cert;
        cql_counts_state(f->records->counts, s, out->scale, e->n + s * A, e->m + s * A,
                         e->l ? e->l + s * A : NULL);
        CKVC_FAIL_IF(
            !cql_solve_exact(A, e->n + s * A, e->m + s * A, f->o->cql_alpha, e->q + s * A, &cert),
            err, CKVC_E_BUG, "%s side, state %zu: the exact solver left a gradient of %g",
            ckvc_side_name(f->s.which), s, cert.gradient);
        out->certificate =
            fmax(out->certificate, cert.gradient / state_size(A, e->n + s * A, e->m + s * A));
    }
    return f->o->solver == FIT_ADAMW ? run_adamw(f, out, err) : CKVC_OK;
}

/* ---- pass 2: what decided ---- */

static ckvc_status explain_choices(const side_fitting *f, fitted_side *out, ckvc_err *err) {
    const size_t A = f->s.actions.n;
    const cql_fit fit = {.cql_alpha = f->o->cql_alpha, .actions = f->s.actions};
    double noise = 0.0;
    out->why = decided_of(&(decided_from){.S = f->s.n_states,
                                          .X = f->s.X,
                                          .nB = f->s.nB,
                                          .actions = f->s.actions,
                                          .n = f->e->n,
                                          .q = f->e->q,
                                          .mean = f->e->m,
                                          .part = f->e->l,
                                          .cql_alpha = f->o->cql_alpha,
                                          .exact = f->o->solver == FIT_EXACT});
    CKVC_FAIL_IF(out->why.n_failed > 0, err, CKVC_E_BUG,
                 "%s side: the exact solver failed in %zu states", ckvc_side_name(f->s.which),
                 out->why.n_failed);
    for (size_t s = 0; s < f->s.n_states; ++s) {
        if (out->why.chosen[s] < 0) { continue; }
        noise += variance_count_noise(&fit, f->e->n + s * A, f->e->m + s * A, NOISE_DRAWS,
                                      f->resampled->seed, s);
    }
    out->count_noise = out->why.n_supported > 0 ? noise / (double)out->why.n_supported : NAN;
    return CKVC_OK;
}

/* ---- pass 3: resampling ---- */

/* Takes back each choice that the bootstrap does not show to be better than the neutral action or,
 * where that was not logged, than the incoming action. */
static void shrink_choices(const side_fitting *f, const int *incoming, int *chosen,
                           fitted_side *out) {
    const size_t A = f->s.actions.n;
    const cql_resampled boots = cql_counts_resampled(f->records->counts, 1.0);
    const int neutral = side_neutral(&f->s);
    for (size_t s = 0; s < f->s.n_states; ++s) {
        const uint64_t *n = f->e->n + s * A;
        const int a = chosen[s], stay = neutral >= 0 && n[neutral] > 0 ? neutral : incoming[s];
        if (a < 0 || a == stay) { continue; }
        /* The advantage of the unperturbed table is 0 by definition, while a raw reward needs
         * records of its own. */
        const bool by_definition =
            f->o->reward == FIT_ADVANTAGE && stay == incoming[s] && n[stay] == 0;
        if (!(cql_lower_bound(&boots, s, a, by_definition ? -1 : stay, NULL) > 0.0)) {
            chosen[s] = stay;
            out->n_shrunk++;
        }
    }
}

static ckvc_status resample_choices(const side_fitting *f, fitted_side *out, ckvc_err *err) {
    const cql_resampled s = cql_counts_resampled(f->records->counts, out->scale);
    if (s.n_replicates == 0) { return CKVC_OK; }
    out->choices = ckvc_alloc(s.n_replicates * s.n_states, sizeof *out->choices);
    CKVC_TRY(cql_resampled_choices(&s, &f->s.actions, f->o->cql_alpha, out->choices, err));
    if (f->resampled->kind == RESAMPLE_BOOTSTRAP) {
        f->e->share = ckvc_alloc(s.n_states * s.n_actions, sizeof *f->e->share);
        cql_choice_shares(out->choices, s.n_replicates, s.n_states, s.n_actions, f->e->share);
    }
    return CKVC_OK;
}

/* ---- pass 4: entries of the table ---- */

/* Returns the action of the nearest supported state of the same budget, or -1 when the budget has
 * none. The distance is the steps in layers plus the steps across. Of equally near states it takes
 * the one in the nearer layer, and of these the first. */
static int neighbour_action(const struct side *s, const int *chosen, size_t state) {
    const size_t b = state % s->nB;
    const uint32_t x = (uint32_t)(state / s->nB % s->X);
    const long l = (long)(state / s->nB / s->X);
    long best = LONG_MAX;
    int action = -1;
    for (size_t i = b; i < s->n_states; i += s->nB) {
        const long layers = labs(l - (long)(i / s->nB / s->X)),
                   across = side_steps(s, x, (uint32_t)(i / s->nB % s->X)),
                   steps = (layers + across) * ((long)s->L + 1) + layers;
        if (chosen[i] >= 0 && steps < best) {
            best = steps;
            action = chosen[i];
        }
    }
    return action;
}

static void write_entries(const side_fitting *f, const int *incoming, const int *chosen,
                          fitted_side *out) {
    for (size_t s = 0; s < f->s.n_states; ++s) {
        int a = chosen[s];
        if (a < 0 && out->fitted && f->o->unsupported == FIT_SAFEST) { a = side_safest(&f->s); }
        if (a < 0 && out->fitted && f->o->unsupported == FIT_NEIGHBOUR) {
            a = neighbour_action(&f->s, chosen, s);
        }
        if (a < 0) { a = incoming[s]; }
        f->s.entries[s] = (float)f->s.grid[a];
        out->n_changed += a != incoming[s];
    }
}

/* ---- the whole ---- */

ckvc_status fit_side(const side_fitting *f, fitted_side *out, ckvc_err *err) {
    const size_t S = f->s.n_states;
    *out = (fitted_side){.fitted = f->records->n_prompts > 0,
                         .n_states = S,
                         .scale = 1.0,
                         .count_noise = NAN,
                         .adamw_distance = NAN,
                         .why = {.correlation = NAN}};
    CKVC_AUTO_FREE int *incoming = ckvc_alloc(S, sizeof *incoming);
    CKVC_AUTO_FREE int *chosen = ckvc_alloc(S, sizeof *chosen);
    for (size_t s = 0; s < S; ++s) {
        chosen[s] = -1;
        incoming[s] = side_action(&f->s, f->start[s]);
        CKVC_FAIL_IF(incoming[s] < 0, err, CKVC_E_DATA,
                     "%s: %s, entry %zu, is %g, which is not on the grid of actions", f->where,
                     f->s.kind->start_name, s, (double)f->start[s]);
    }
    if (out->fitted) {
        out->n_prompts = f->records->n_prompts;
        out->n_documents = cql_counts_clusters(f->records->counts);
        out->n_records = cql_counts_records(f->records->counts);
        out->scale = scale_of(f);
        CKVC_TRY(fit_states(f, out, err));
        CKVC_TRY(explain_choices(f, out, err));
        CKVC_TRY(resample_choices(f, out, err));
        memcpy(chosen, out->why.chosen, S * sizeof *chosen);
        if (f->o->shrink) { shrink_choices(f, incoming, chosen, out); }
    }
    write_entries(f, incoming, chosen, out);
    return CKVC_OK;
}
