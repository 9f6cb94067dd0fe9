/* Ranks and counts: see demand.h. */
#include "calib/demand/demand.h"

#include <assert.h>
#include <stdbool.h>

#include "lib/base/memory.h"
#include "lib/policy/ckvc_policy.h"

void demand_ranks_init(demand_ranks *r, uint32_t n_units, uint32_t n_tokens) {
    const size_t n = (size_t)n_units * n_tokens;
    assert(n <= DEMAND_MAX_ENTRIES);
    *r = (demand_ranks){.order = ckvc_alloc(n, sizeof *r->order),
                        .other = ckvc_alloc(n, sizeof *r->other),
                        .keys = {ckvc_alloc(n, sizeof **r->keys), ckvc_alloc(n, sizeof **r->keys)},
                        .seen = ckvc_alloc(n_units, sizeof *r->seen)};
}

void demand_ranks_fini(demand_ranks *r) {
    CKVC_FREE(r->order, r->other, r->keys[0], r->keys[1], r->seen);
    *r = (demand_ranks){0};
}

size_t demand_ranks_bytes(uint32_t n_units, uint32_t n_tokens) {
    return (size_t)n_units * n_tokens * 2 * (sizeof(uint32_t) + sizeof(uint64_t)) +
           n_units * sizeof(uint32_t);
}

/* The bits of a double that is not negative ascend with it; these descend. -0 is 0. */
static uint64_t descending(double score) {
    uint64_t bits;
    score += 0.0;
    memcpy(&bits, &score, sizeof bits);
    return ~bits;
}

/* One pass of a radix sort: by byte `shift` / 8, equal ones in the order that they had. False where
 * all have the same byte, and nothing moves. */
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
    for (size_t i = 0; rest > 0; i++) { /* there are n * (T - m) of them */
        const uint32_t u = r->order[i] / T, t = T - 1 - r->order[i] % T;
        if (t == 0 || T - t <= recent) { continue; }
        if (r->seen[u] < m) { /* of its floor */
            r->seen[u]++;
        } else {
            count[u]++;
            rest--;
        }
    }
}
