/* The split-half reliability while a pass is logged: see stable.h. */
#include "cql/rounds/stable.h"

#include <math.h>

#include "cql/solve/counts.h"
#include "lib/stats/rank.h"
#include "lib/stats/reliability.h"
#include "formats/shard/shard_rows.h"

struct stable {
    struct side side;   /* the side of the table, borrowed */
    cql_counts *counts; /* counts of its states, with RESAMPLE_HALVES */
    size_t n_shards;    /* how many shards are taken in */
    double target;
    double cql_alpha;
    fit_reward reward;
};

ckvc_status stable_create(const ckvc_table *table, double cql_alpha, fit_reward reward,
                          uint64_t seed, size_t memory_max, stable **out, ckvc_err *err) {
    CKVC_AUTO(stable_free_at) stable *s = ckvc_calloc(1, sizeof *s);
    *out = NULL;
    s->side = side_of_table(table, CKVC_SIDE_HEAD);
    s->cql_alpha = cql_alpha;
    s->reward = reward;
    s->counts = cql_counts_create(s->side.n_states, s->side.actions.n);
    CKVC_TRY(
        cql_counts_resample(s->counts, 2 * STABLE_SPLITS, RESAMPLE_HALVES, seed, memory_max, err));
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void stable_free(stable *s) {
    if (s) {
        cql_counts_free(s->counts);
        free(s);
    }
}

ckvc_status stable_add(stable *s, const shard *rows, ckvc_err *err) {
    /* Our own shards hold a prompt's records one after the other. */
    uint32_t current = UINT32_MAX;
    for (size_t i = 0; i < rows->n_records; i++) {
        const struct shard_record *r = &rows->records[i];
        if (r->side != s->side.which) { continue; }
        if (r->prompt != current) {
            current = r->prompt;
            cql_counts_prompt(s->counts, shard_prompt_cluster(&rows->prompts[current]));
        }
        const size_t state = shard_state(&s->side, r, &rows->prompts[r->prompt]);
        const double reward = s->reward == FIT_RAW ? r->reward : r->reward - r->baseline;
        CKVC_TRY(cql_counts_add(s->counts, state, r->action, reward, reward, err));
    }
    return CKVC_OK;
}

/* Returns Spearman's rho of two halves' weights in one budget, over the states that both support;
 * NaN when these are fewer than half. a and b are choices [states]; x and y are scratch [heads]. */
static double halves_rho(const stable *s, size_t budget, const uint16_t *a, const uint16_t *b,
                         double *x, double *y) {
    size_t n = 0;
    for (size_t i = budget; i < s->side.n_states; i += s->side.nB) {
        if (a[i] != CQL_NO_CHOICE && b[i] != CQL_NO_CHOICE) {
            x[n] = s->side.grid[a[i]];
            y[n++] = s->side.grid[b[i]];
        }
    }
    return 2 * n * s->side.nB >= s->side.n_states ? rank_spearman(x, y, n) : NAN;
}

ckvc_status stable_reliability(const stable *s, double *out, ckvc_err *err) {
    const size_t S = s->side.n_states;
    const double scale = s->reward == FIT_RAW ? 1.0 : cql_counts_sd(s->counts, false);
    CKVC_AUTO_FREE uint16_t *choices = ckvc_alloc(S * 2 * STABLE_SPLITS, sizeof *choices);
    CKVC_AUTO_FREE double *x = ckvc_alloc(2 * S, sizeof *x);
    double sum = 0;
    size_t defined = 0;
    *out = NAN;
    const cql_resampled halves = cql_counts_resampled(s->counts, scale > 0 ? scale : 1.0);
    CKVC_TRY(cql_resampled_choices(&halves, &s->side.actions, s->cql_alpha, choices, err));
    for (size_t k = 0; k < STABLE_SPLITS; k++) {
        const uint16_t *a = choices + 2 * k * S, *b = a + S;
        for (size_t j = 0; j < s->side.nB; j++) {
            const double rho = halves_rho(s, j, a, b, x, x + S);
            if (isfinite(rho)) {
                sum += rho;
                defined++;
            }
        }
    }
    if (2 * defined >= (size_t)STABLE_SPLITS * s->side.nB) {
        *out = spearman_brown(sum / (double)defined);
    }
    return CKVC_OK;
}

/* ---- the watch of a pass ---- */

static ckvc_status watch_open(const ckvc_table *table, const calibrate_options *o,
                              size_t memory_max, void **self, ckvc_err *err) {
    stable *s;
    CKVC_TRY(stable_create(table, o->until_cql_alpha, o->until_reward, o->setting.seed, memory_max,
                           &s, err));
    s->target = o->until_stable;
    *self = s;
    return CKVC_OK;
}

/* Takes in the shards of the run's open pass that were published since the last call. */
static ckvc_status watch_look(void *self, run_dir *run, const char *name, double *reliability,
                              bool *end, ckvc_err *err) {
    stable *s = self;
    const run_pass *pass = run_pass_named(run, name);
    const bool more = pass->n_shards > s->n_shards;
    for (; s->n_shards < pass->n_shards; s->n_shards++) {
        CKVC_AUTO(shard_free_at) shard *rows = NULL;
        CKVC_TRY(run_read_shard(run, pass, s->n_shards, &rows, err));
        CKVC_TRY(stable_add(s, rows, err));
    }
    if (more) { CKVC_TRY(stable_reliability(s, reliability, err)); }
    const bool reached = *reliability >= s->target;
    if (more && !pass->stable.known && (reached || pass->complete)) {
        CKVC_TRY(run_pass_stable(run, s->target, *reliability, reached, err));
    }
    *end = pass->stable.known && pass->stable.reached;
    return CKVC_OK;
}

static void watch_close(void *self) { stable_free(self); }

const pass_watch stable_watch = {watch_open, watch_look, watch_close};
