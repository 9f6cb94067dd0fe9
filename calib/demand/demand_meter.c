/* Demand of a prompt: see demand_meter.h. */
#include "calib/demand/demand_meter.h"

#include <math.h>
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/policy/policy_parts.h"

/* The first positions attract attention whatever they hold, so they are not counted. */
enum { SINKS = 4 };

/* Returns the fed rows of a continuation: all of its tokens but the last are fed. */
static uint32_t rows_of(uint32_t n_continuation) {
    return n_continuation > 1 ? n_continuation - 1 : 0;
}

static size_t count_entries(const model_shape *s, uint32_t n_tokens) {
    return (size_t)s->n_layers * (size_t)s->n_kv_heads * n_tokens;
}

enum { CHUNK = 2048 }; /* tokens, where twice the prompt does not fit the context */

int64_t repeat_longest(int64_t context, uint32_t n_instruction) {
    const int64_t room = context - n_instruction, chunked = room - CHUNK;
    return chunked > room / 2 ? chunked : room / 2;
}

/* Returns how many prompt tokens are repeated at a time. */
static uint32_t repeated_at_a_time(const demand_meter *m, uint32_t n_tokens) {
    const int64_t whole = 2 * (int64_t)n_tokens + m->o.n_instruction;
    return whole <= model_shape_context(m->shape) || n_tokens < CHUNK ? n_tokens : CHUNK;
}

/* Returns the most tokens that are fed at a time behind any of the prompts. */
static uint32_t most_fed(const demand_meter *m, const prompt_list *prompts) {
    if (!m->o.n_instruction) { return rows_of(prompts->max_continuation); }
    uint32_t most = 0;
    for (size_t i = 0; i < prompts->n; i++) {
        const uint32_t chunk = repeated_at_a_time(m, prompts->items[i].n_tokens);
        most = chunk > most ? chunk : most;
    }
    return most ? m->o.n_instruction + most : 0;
}

static size_t demand_ranks_bytes(uint32_t n_units, uint32_t n_tokens) {
    return (size_t)n_units * n_tokens * 2 * (sizeof(uint32_t) + sizeof(uint64_t)) +
           n_units * (sizeof(uint32_t) + sizeof(double));
}

void demand_need(const demand_options *o, const calibrate_inputs *in, worker_options *w) {
    const demand_meter m = {.o = *o, .shape = model_get_shape(in->model)};
    const uint32_t T = in->prompts->max_tokens, fed = most_fed(&m, in->prompts),
                   n_units = (uint32_t)count_entries(m.shape, 1);
    w->max_targets = fed;
    w->beside = (count_entries(m.shape, T) * 3 + (size_t)m.shape->n_layers * T) * sizeof(double) +
                demand_ranks_bytes(n_units, T) + fed * sizeof(int32_t);
}

ckvc_status demand_meter_open(demand_meter *m, const demand_options *o, const calibrate_inputs *in,
                              ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    const uint32_t T = in->prompts->max_tokens;
    *m = (demand_meter){.o = *o, .shape = shape};
    CKVC_FAIL_IF(count_entries(shape, T) > DEMAND_MAX_ENTRIES, err, CKVC_E_DATA,
                 "a prompt of %u tokens has %zu entries over %d x %d KV heads, at most %u are "
                 "ranked; shorten prompts with --max-tokens",
                 T, count_entries(shape, T), shape->n_layers, shape->n_kv_heads,
                 DEMAND_MAX_ENTRIES);
    m->fed = ckvc_alloc(most_fed(m, in->prompts), sizeof *m->fed);
    m->y_r = ckvc_alloc(count_entries(shape, T), sizeof *m->y_r);
    m->y_c = ckvc_alloc(count_entries(shape, T), sizeof *m->y_c);
    m->more = ckvc_alloc(count_entries(shape, T), sizeof *m->more);
    m->slots = ckvc_alloc((size_t)shape->n_layers * T, sizeof *m->slots);
    demand_ranks_init(&m->ranks, (uint32_t)count_entries(shape, 1), T);
    return CKVC_OK;
}

void demand_meter_close(demand_meter *m) {
    CKVC_FREE(m->fed, m->y_r, m->y_c, m->more, m->slots);
    demand_ranks_fini(&m->ranks);
    *m = (demand_meter){0};
}

static bool has_chunk(const demand_meter *m, const prompt *p, uint32_t at) {
    return at * repeated_at_a_time(m, p->n_tokens) < p->n_tokens;
}

/* Returns the job that feeds the prompt's chunk number `at` behind the instruction. */
static target_job chunk_job(const demand_meter *m, const worker *w, const prompt *p, uint32_t at) {
    const uint32_t I = m->o.n_instruction, chunk = repeated_at_a_time(m, p->n_tokens),
                   first = at * chunk,
                   n = p->n_tokens - first < chunk ? p->n_tokens - first : chunk;
    memcpy(m->fed, m->o.instruction, I * sizeof *m->fed);
    memcpy(m->fed + I, p->tokens + first, n * sizeof *m->fed);
    return (target_job){.session = w->session,
                        .in = {.tokens = m->fed, .n = I + n, .first_row = I, .largest = true},
                        .out = at ? m->more : m->y_r};
}

/* Computes m->y_r of n prefilled prompts: the largest attention that a position gets from the rows
 * behind the instruction, over the query heads of the group. */
static ckvc_status repeat_prompts(demand_meter *const *m, worker *const *w, const prompt *const *p,
                                  int64_t n, ckvc_err *err) {
    target_job jobs[SESSIONS_TOGETHER];
    int64_t n_jobs = n;
    for (uint32_t at = 0; n_jobs > 0; at++) {
        n_jobs = 0;
        for (int64_t k = 0; k < n; k++) {
            if (has_chunk(m[k], p[k], at)) { jobs[n_jobs++] = chunk_job(m[k], w[k], p[k], at); }
        }
        if (n_jobs > 0) { CKVC_TRY(sessions_targets(jobs, n_jobs, err)); }
        for (int64_t k = 0; at > 0 && k < n; k++) {
            if (!has_chunk(m[k], p[k], at)) { continue; }
            for (size_t i = 0; i < count_entries(m[k]->shape, p[k]->n_tokens); i++) {
                m[k]->y_r[i] = fmax(m[k]->y_r[i], m[k]->more[i]);
            }
        }
    }
    for (int64_t k = 0; k < n; k++) {
        const uint32_t T = p[k]->n_tokens;
        for (size_t at = 0; at < count_entries(m[k]->shape, T); at += T) {
            memset(m[k]->y_r + at, 0, (T < SINKS ? T : SINKS) * sizeof(double));
        }
    }
    return CKVC_OK;
}

ckvc_status demand_measure(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) {
    const bool repeats = m[0]->o.n_instruction > 0;
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = count_entries(m[i]->shape, p[i]->n_tokens) * sizeof(double);
        memset(m[i]->y_c, 0, bytes); /* nothing is observed of a continuation of 1 token */
        memset(m[i]->y_r, 0, bytes);
        w[i]->attended = m[i]->y_c;
        w[i]->fed = repeats ? m[i]->o.n_instruction + repeated_at_a_time(m[i], p[i]->n_tokens) : 0;
    }
    CKVC_TRY(workers_prefill(w, p, n, err));
    const ckvc_status st = workers_full(w, n, err);
    for (int64_t i = 0; i < n; i++) { w[i]->attended = NULL; }
    CKVC_TRY(st);
    return repeats ? repeat_prompts(m, w, p, n, err) : CKVC_OK;
}

ckvc_status demand_weigh(demand_meter *m, const worker *w, bool *finite, ckvc_err *err) {
    double sum = 0.0; /* not finite where any summand is not */
    CKVC_TRY(session_value_norms(w->session, m->more, err));
    for (size_t i = 0; i < count_entries(m->shape, (uint32_t)w->stats.n_tokens); i++) {
        m->y_r[i] *= m->more[i];
        m->y_c[i] *= m->more[i];
        sum += m->y_r[i] + m->y_c[i];
    }
    *finite = isfinite(sum) != 0;
    return CKVC_OK;
}

/* Writes the mixed scores of the heads to m->more. */
static void mix_scores(const demand_meter *m, size_t n, double w) {
    double sum_r = 0.0, sum_c = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum_r += m->y_r[i];
        sum_c += m->y_c[i];
    }
    /* A part that stands alone is ranked as it is, because a factor could round two scores to the
     * same number. */
    const bool only_r = sum_c == 0.0 || (w == 0.0 && sum_r > 0.0),
               only_c = !only_r && (sum_r == 0.0 || w == 1.0);
    const double of_r = only_r   ? 1.0
                        : only_c ? 0.0
                                 : (1.0 - w) / sum_r,
                 of_c = only_c   ? 1.0
                        : only_r ? 0.0
                                 : w / sum_c;
    for (size_t i = 0; i < n; i++) { m->more[i] = of_r * m->y_r[i] + of_c * m->y_c[i]; }
}

/* Counts the entries of each unit by the scores that are ranked now, under each budget. */
static void count_all(const demand_meter *m, uint32_t *out) {
    const setting *s = &m->o.setting;
    for (uint32_t b = 0; b < s->budgets.n; b++) {
        const uint32_t B = ckvc_budget_tokens(s->budgets.v[b], m->ranks.n_tokens);
        demand_count(&m->ranks, B, s->floor, s->recent, out + (size_t)b * m->ranks.n_units);
    }
}

/* Replaces the scores of a layer's heads by the largest of them, in place: [L][G][T] -> [L][T]. */
static void pool_heads(double *score, uint32_t L, uint32_t G, uint32_t n_tokens) {
    for (uint32_t l = 0; l < L; l++) {
        const double *of = score + (size_t)l * G * n_tokens;
        double *most = score + (size_t)l * n_tokens;
        memmove(most, of, n_tokens * sizeof *most);
        for (uint32_t i = n_tokens; i < G * n_tokens; i++) {
            most[i % n_tokens] = fmax(most[i % n_tokens], of[i]);
        }
    }
}

void demand_slots(const demand_ranks *r, const double *score, uint32_t n_heads, uint32_t recent,
                  double *slots) {
    const uint32_t T = r->n_tokens;
    memset(slots, 0, (size_t)(r->n_units / n_heads) * T * sizeof *slots);
    for (uint32_t u = 0; u < r->n_units; u++) {
        r->seen[u] = recent < T ? T - recent - 1 : 0; /* where its last slot is */
        r->dropped[u] = 0.0;
    }
    for (size_t i = (size_t)r->n_units * T; i-- > 0;) {
        const uint32_t u = r->order[i] / T, t = T - 1 - r->order[i] % T;
        if (t == 0 || T - t <= recent) { continue; }
        const double s = score[(size_t)u * T + t], after = r->dropped[u], before = after + s;
        slots[(size_t)(u / n_heads) * T + r->seen[u]--] +=
            s * (before * before + before * after + after * after); /* before^3 - after^3 */
        r->dropped[u] = before;
    }
}

void demand_entries(demand_meter *m, uint32_t n_tokens, double w, uint32_t *heads, uint32_t *layers,
                    uint32_t *lengths) {
    const uint32_t L = (uint32_t)m->shape->n_layers, G = (uint32_t)m->shape->n_kv_heads;
    mix_scores(m, count_entries(m->shape, n_tokens), w);
    demand_rank(&m->ranks, m->more, L * G, n_tokens);
    count_all(m, heads);
    demand_slots(&m->ranks, m->more, G, m->o.setting.recent, m->slots);
    pool_heads(m->more, L, G, n_tokens);
    demand_rank(&m->ranks, m->more, L, n_tokens);
    count_all(m, layers);
    demand_rank(&m->ranks, m->slots, L, n_tokens);
    count_all(m, lengths);
}

void demand_ranks_init(demand_ranks *r, uint32_t n_units, uint32_t n_tokens) {
    const size_t n = (size_t)n_units * n_tokens;
    assert(n <= DEMAND_MAX_ENTRIES);
    *r = (demand_ranks){.order = ckvc_alloc(n, sizeof *r->order),
                        .other = ckvc_alloc(n, sizeof *r->other),
                        .keys = {ckvc_alloc(n, sizeof **r->keys), ckvc_alloc(n, sizeof **r->keys)},
                        .seen = ckvc_alloc(n_units, sizeof *r->seen),
                        .dropped = ckvc_alloc(n_units, sizeof *r->dropped)};
}

void demand_ranks_fini(demand_ranks *r) {
    CKVC_FREE(r->order, r->other, r->keys[0], r->keys[1], r->seen, r->dropped);
    *r = (demand_ranks){0};
}

/* The bits of a double that is not negative ascend with it, so the inverted bits descend. -0 counts
 * as 0. */
static uint64_t descending(double score) {
    uint64_t bits;
    score += 0.0;
    memcpy(&bits, &score, sizeof bits);
    return ~bits;
}

/* Makes one pass of a radix sort, by byte number `shift` / 8. Items with equal bytes stay in the
 * order that they had. Returns false where all have the same byte, and then moves nothing. */
static bool sort_by_byte(size_t n, int shift, const uint64_t *from, uint64_t *to,
                         const uint32_t *items, uint32_t *moved) {
    size_t at[256] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++) { at[from[i] >> shift & 255]++; }
    if (at[from[0] >> shift & 255] == n) { return false; }
    for (int b = 0; b < 256; b++) {
        const size_t count = at[b];
        at[b] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t k = at[from[i] >> shift & 255]++;
        to[k] = from[i];
        moved[k] = items[i];
    }
    return true;
}

static void swap(void *a_at, void *b_at) {
    void *a, *b;
    memcpy(&a, a_at, sizeof a);
    memcpy(&b, b_at, sizeof b);
    memcpy(a_at, &b, sizeof b);
    memcpy(b_at, &a, sizeof a);
}

void demand_rank(demand_ranks *r, const double *score, uint32_t n_units, uint32_t n_tokens) {
    const size_t n = (size_t)n_units * n_tokens;
    r->n_units = n_units;
    r->n_tokens = n_tokens;
    for (size_t i = 0; i < n; i++) {
        const size_t unit = i / n_tokens, position = n_tokens - 1 - i % n_tokens;
        r->order[i] = (uint32_t)i;
        r->keys[0][i] = descending(score[unit * n_tokens + position]);
    }
    for (int shift = 0; shift < 64; shift += 8) {
        if (sort_by_byte(n, shift, r->keys[0], r->keys[1], r->order, r->other)) {
            swap(&r->keys[0], &r->keys[1]);
            swap(&r->order, &r->other);
        }
    }
}

void demand_count(const demand_ranks *r, uint32_t budget, double f, uint32_t recent,
                  uint32_t *count) {
    const uint32_t T = r->n_tokens, n = r->n_units, B = budget < T ? budget : T,
                   m = ckvc_head_floor(f, recent, B, T), forced = recent < T ? recent + 1 : T;
    assert(m <= B);
    uint64_t rest = (uint64_t)n * (B - m);
    for (uint32_t u = 0; u < n; u++) {
        count[u] = m;
        r->seen[u] = forced;
    }
    /* the loop ends, because n * (T - m) entries are left to take */
    for (size_t i = 0; rest > 0; i++) {
        const uint32_t u = r->order[i] / T, t = T - 1 - r->order[i] % T;
        if (t == 0 || T - t <= recent) { continue; }
        if (r->seen[u] < m) { /* it belongs to the unit's floor */
            r->seen[u]++;
        } else {
            count[u]++;
            rest--;
        }
    }
}
