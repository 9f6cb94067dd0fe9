/* What caches cost: see eval_cost.h. */
#include "calib/eval/eval_cost.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/progress.h"
#include "lib/model/decoder.h"

enum { REPEATS = 3, STEPS = 16, N_BATCHES = 5, MOST = 16 };
static const uint32_t batches[N_BATCHES] = {1, 2, 4, 8, MOST};

/* One policy, or the full cache, at one length and budget. */
typedef struct measured {
    double prefill_s, decide_s, first_s, token_s[N_BATCHES], lookup_ns;
    double entries, bytes, peak[N_BATCHES];
    uint32_t repeat_tokens;
} measured;

typedef struct meter {
    const eval_options *o;
    const model_shape *shape;
    decoder *decoder;
    be_greedy next[MOST];
    prompt p;      /* in hand, with room for steps */
    measured full; /* of it */
    ckvc_buffer *csv;
} meter;

static void meter_fini(meter *m) { decoder_destroy(m->decoder); }

/* One policy at work on the prompt in hand. */
typedef struct subject {
    policy_choice choice; /* it alone; none: the full cache */
    policy_sets *policies;
    session *session;
    session_limits limits;
    prefill_stats stats;
    prompt_list only;
} subject;

static void subject_fini(subject *s) {
    session_destroy(s->session);
    policy_sets_free(s->policies);
}

static double least(double a, double b) { return a < b ? a : b; }

static size_t fixed_bytes(const meter *m, const subject *s) {
    return session_bytes(m->shape, s->limits) +
           session_scratch_bytes(m->o->be, m->shape, s->limits) + policy_sets_bytes(s->policies);
}

static ckvc_status subject_init(meter *m, const score_policy *policy, subject *s, ckvc_err *err) {
    s->choice = m->o->choice;
    s->choice.list = policy;
    s->choice.n = policy != NULL;
    if (!policy) { s->choice.setting.window = 1; }
    s->only = (prompt_list){.items = &m->p, .n = 1, .max_tokens = m->p.n_tokens};
    s->limits =
        (session_limits){.max_prompt = m->p.n_tokens, .max_window = s->choice.setting.window};
    CKVC_TRY(policy_sets_create(&s->choice, m->shape, &s->only, &s->policies, err));
    policy_sets_need(s->policies, &s->limits);
    const size_t bytes = fixed_bytes(m, s) + model_converted_least(m->o->model);
    CKVC_FAIL_IF(bytes > m->o->memory, err, CKVC_E_MEMORY,
                 "a prompt of %u tokens needs %.1f MB, there are %.1f: allow more with --memory",
                 m->p.n_tokens, (double)bytes / 1e6, (double)m->o->memory / 1e6);
    return session_create(m->o->model, s->limits, &s->session, err);
}

/* ---- times ---- */

static ckvc_status time_prefill(meter *m, subject *s, measured *out, ckvc_err *err) {
    out->prefill_s = DBL_MAX;
    for (int r = 0; r < REPEATS; r++) {
        const double start = ckvc_now_s();
        CKVC_TRY(policy_sets_prefill(s->policies, s->session, &m->p, &s->stats, err));
        CKVC_TRY(session_next_greedy(s->session, m->next, err));
        out->prefill_s = least(out->prefill_s, ckvc_now_s() - start);
    }
    return CKVC_OK;
}

/* *sets: NULL for the full cache. */
static ckvc_status time_decision(subject *s, uint32_t b, const kept_set **sets, measured *out,
                                 ckvc_err *err) {
    const policy_kept *kept = NULL;
    out->decide_s = s->choice.n ? DBL_MAX : 0;
    for (int r = 0; s->choice.n && r < REPEATS; r++) {
        const double start = ckvc_now_s();
        CKVC_TRY(policy_sets_decide(s->policies, 0, b, &kept, err));
        out->decide_s = least(out->decide_s, ckvc_now_s() - start);
    }
    *sets = kept ? kept->sets : NULL;
    out->repeat_tokens = kept ? kept->repeat_tokens : 0;
    return CKVC_OK;
}

typedef struct held {
    sequence *of[MOST];
} held;

static void held_fini(held *h) {
    for (int i = 0; i < MOST; i++) { sequence_free(h->of[i]); }
}

/* Steps of batches[k] sequences; where its caches do not fit, NaN. */
static ckvc_status time_batch(meter *m, subject *s, const kept_set *sets, int k, measured *out,
                              ckvc_err *err) {
    CKVC_AUTO(held_fini) held h = {{NULL}};
    const uint32_t n = batches[k];
    const double weights = (double)model_converted_least(m->o->model);
    int32_t tokens[MOST];
    double taken = DBL_MAX;
    out->token_s[k] = NAN;
    for (uint32_t i = 0; i < n; i++) {
        const double start = ckvc_now_s();
        CKVC_TRY(sequence_create(s->session, sets, m->p.n_continuation, &h.of[i], err));
        taken = least(taken, ckvc_now_s() - start);
        tokens[i] = m->p.tokens[i % m->p.n_tokens];
        out->peak[k] = (double)fixed_bytes(m, s) + (double)n * (double)sequence_bytes(h.of[0]);
        if (i == 0 && out->peak[k] + weights > (double)m->o->memory) { return CKVC_OK; }
    }
    out->entries = (double)sequence_entries(h.of[0]);
    out->bytes = out->entries * 2 * m->shape->head_dim * sizeof(float);
    if (k == 0) { out->first_s = out->prefill_s + out->decide_s + taken; }
    double best = DBL_MAX;
    for (uint32_t t = 0; t < m->p.n_continuation; t++) {
        const double start = ckvc_now_s();
        CKVC_TRY(decoder_step_greedy(m->decoder, h.of, tokens, n, m->next, err));
        best = least(best, ckvc_now_s() - start);
    }
    out->token_s[k] = best;
    return CKVC_OK;
}

/* Everything that a table is asked for a prompt, over and over for a millisecond: its block, its
 * cell, each layer's threshold, each head's weight or share. */
static double look_up(const subject *s, uint32_t b, uint32_t n_tokens) {
    const ckvc_table *t = s->choice.list[0].table->table;
    const double budget = s->choice.setting.budgets.v[b], start = ckvc_now_s();
    volatile double sink = 0; /* or there is nothing to time */
    double now;
    size_t n = 0;
    do {
        for (int r = 0; r < 16; r++, n++) {
            const uint32_t block = ckvc_nearest_budget(t->budgets, t->n_budgets, budget, n_tokens),
                           e = ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1,
                                              s->stats.r_struct),
                           p = ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, s->stats.r_sem);
            double sum = 0;
            for (uint32_t l = 0; l < t->n_layers; l++) {
                sum += (double)t->tau[ckvc_tau_index(t, l, e, p, block)];
                for (uint32_t g = 0; g < t->n_heads; g++) {
                    const size_t i = ckvc_weight_index(t, l, g, block);
                    sum += t->share ? t->share[i] : (double)t->weight[i];
                }
            }
            sink = sink + sum;
        }
        now = ckvc_now_s();
    } while (now - start < 1e-3);
    return (now - start) / (double)n * 1e9;
}

static double time_lookup(const subject *s, uint32_t b, uint32_t n_tokens) {
    double best = DBL_MAX;
    for (int r = 0; r < REPEATS; r++) { best = least(best, look_up(s, b, n_tokens)); }
    return best;
}

/* ---- rows ---- */

static void ratio(ckvc_buffer *csv, double a, double b) { ckvc_buffer_printf(csv, ",%.6g", a / b); }

static void append_rows(meter *m, const subject *s, uint32_t b, const measured *x) {
    const score_policy *policy = s->choice.n ? s->choice.list : NULL;
    for (int k = 0; k < N_BATCHES; k++) {
        if (isnan(x->token_s[k])) { continue; }
        ckvc_buffer_printf(m->csv, "%u,%s,%s,", m->p.n_tokens,
                           policy ? score_kind_name(policy->kind) : "full",
                           policy && policy->table ? policy->table->content_id : "");
        if (policy) { ckvc_buffer_printf(m->csv, "%.10g", s->choice.setting.budgets.v[b]); }
        ckvc_buffer_printf(m->csv, ",%u,%.0f,%.0f,%.0f,%.6g,%.6g,%.6g,%.6g,", batches[k],
                           x->entries, x->bytes, x->peak[k], x->prefill_s, x->decide_s, x->first_s,
                           x->token_s[k]);
        if (policy && policy->table) { ckvc_buffer_printf(m->csv, "%.4g", x->lookup_ns); }
        ratio(m->csv, x->bytes, m->full.bytes);
        ratio(m->csv, x->peak[k], m->full.peak[k]);
        ratio(m->csv, x->first_s, m->full.first_s);
        ratio(m->csv, x->token_s[k], m->full.token_s[k]);
        ckvc_buffer_printf(m->csv, ",%u\n", x->repeat_tokens);
    }
}

/* policy NULL: the full cache, which the others' ratios are to. */
static ckvc_status measure(meter *m, const score_policy *policy, ckvc_err *err) {
    CKVC_AUTO(subject_fini) subject s = {0};
    CKVC_TRY(subject_init(m, policy, &s, err));
    measured x = {0};
    CKVC_TRY(time_prefill(m, &s, &x, err));
    for (uint32_t b = 0; b < (policy ? s.choice.setting.budgets.n : 1); b++) {
        const kept_set *sets;
        CKVC_TRY(time_decision(&s, b, &sets, &x, err));
        for (int k = 0; k < N_BATCHES; k++) { CKVC_TRY(time_batch(m, &s, sets, k, &x, err)); }
        if (policy && policy->table) { x.lookup_ns = time_lookup(&s, b, m->p.n_tokens); }
        if (!policy) { m->full = x; }
        append_rows(m, &s, b, &x);
    }
    if (!policy && isnan(x.token_s[N_BATCHES - 1])) {
        ckvc_warn("of %u tokens not all batches to %d fit --memory: what does not is left out",
                  m->p.n_tokens, MOST);
    }
    return CKVC_OK;
}

/* The longest item that was made for the length. */
static const prompt *longest_of(const eval_items *items, uint32_t length) {
    const prompt *longest = NULL;
    for (size_t i = 0; i < items->prompts.n; i++) {
        const prompt *p = &items->prompts.items[i];
        if (items->items[i].task->length == length &&
            (!longest || p->n_tokens > longest->n_tokens)) {
            longest = p;
        }
    }
    return longest;
}

ckvc_status eval_cost(const eval_options *o, ckvc_buffer *csv, ckvc_err *err) {
    CKVC_AUTO(meter_fini) meter m = {.o = o, .shape = model_get_shape(o->model), .csv = csv};
    const eval_items *items = o->items;
    CKVC_TRY(decoder_create(o->model, MOST, &m.decoder, err));
    ckvc_buffer_text(csv, "length,policy,table,budget,batch,entries,cache_bytes,peak_bytes,"
                          "prefill_s,decide_s,first_s,token_s,lookup_ns,bytes_ratio,peak_ratio,"
                          "first_ratio,token_ratio,repeat_tokens\n");
    for (size_t i = 0; i < items->prompts.n; i++) {
        const uint32_t length = items->items[i].task->length;
        size_t before = 0;
        while (items->items[before].task->length != length) { before++; }
        if (before < i) { continue; } /* it is measured */
        m.p = *longest_of(items, length);
        const int64_t room = model_shape_context(m.shape) - m.p.n_tokens;
        m.p.n_continuation = room < STEPS ? (uint32_t)room : STEPS;
        CKVC_TRY(measure(&m, NULL, err));
        for (size_t k = 0; k < o->choice.n; k++) {
            CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                         "stopped while costs were measured; no file of them was written");
            CKVC_TRY(measure(&m, &o->choice.list[k], err));
        }
    }
    return CKVC_OK;
}
