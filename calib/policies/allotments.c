/* Capacities of references: see allotments.h. */
#include "calib/policies/allotments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void all_the_same(uint32_t n, uint32_t tokens, uint32_t *c) {
    for (uint32_t i = 0; i < n; i++) { c[i] = tokens; }
}

void allot_pyramid(uint32_t n_layers, uint32_t B, uint32_t window, uint32_t T, uint32_t *c) {
    enum { BETA = 20 };
    const uint32_t b = B - min_u32(B, window);
    if (b == 0 || T <= B || T < 2 * (uint64_t)b || n_layers == 1) {
        all_the_same(n_layers, min_u32(B, T), c);
        return;
    }
    uint32_t least = b / BETA, most = 2 * b - least;
    if (most >= T - window) {
        most = T - window;
        least = 2 * b - most;
    }
    const uint32_t step = (most - least) / (n_layers - 1);
    for (uint32_t l = 0; l < n_layers; l++) { c[l] = most - l * step + window; }
}

/* `total` more to those below `most`, equally, the remainder one each from the first on; until
 * nothing is left or all are full. */
static void hand_out(uint32_t n, int64_t total, uint32_t most, uint32_t *c) {
    while (total > 0) {
        uint32_t n_open = 0;
        for (uint32_t i = 0; i < n; i++) { n_open += c[i] < most; }
        if (n_open == 0) { return; }
        const int64_t each = total / n_open;
        int64_t one_more = total % n_open;
        for (uint32_t i = 0; i < n; i++) {
            if (c[i] >= most) { continue; }
            int64_t more = each + (one_more-- > 0);
            more = more < most - c[i] ? more : most - c[i];
            c[i] += (uint32_t)more;
            total -= more;
        }
    }
}

void allot_cake(uint32_t n_layers, const double *preference, uint32_t B, uint32_t window,
                uint32_t T, uint32_t *c) {
    if (T <= B || B <= window) {
        all_the_same(n_layers, min_u32(B, T), c);
        return;
    }
    const int64_t total = (int64_t)(B - window) * n_layers;
    const uint32_t most = T - window;
    double sum = 0;
    int64_t left = total;
    for (uint32_t l = 0; l < n_layers; l++) { sum += preference[l]; }
    for (uint32_t l = 0; l < n_layers; l++) {
        const double share = sum > 0 ? preference[l] / sum : 1.0 / n_layers;
        c[l] = (uint32_t)fmin(floor(share * (double)total), most);
        left -= c[l];
    }
    hand_out(n_layers, left, most, c);
    for (uint32_t l = 0; l < n_layers; l++) { c[l] += window; }
}

void allot_headkv(uint32_t n, const double *score, uint32_t B, uint32_t window, uint32_t T,
                  uint32_t *c) {
    const double beta = 1.01, b = B - min_u32(B, window), pool = floor(b / beta);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) { sum += score[i]; }
    for (uint32_t i = 0; i < n; i++) {
        const double share = sum > 0 ? score[i] / sum : 1.0 / n;
        c[i] = (uint32_t)fmin(rint(share * pool * n + b - pool) + min_u32(B, window), T);
    }
}

void allot_full_heads(uint32_t n, const double *score, uint32_t B, uint32_t least, uint32_t T,
                      uint32_t *c) {
    least = min_u32(least, min_u32(B, T));
    uint64_t left = (uint64_t)n * (min_u32(B, T) - least);
    all_the_same(n, least, c);
    while (left > 0) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (c[i] < T && (best == n || score[i] > score[best])) { best = i; }
        }
        const uint64_t more = left < T - c[best] ? left : T - c[best];
        c[best] += (uint32_t)more;
        left -= more;
    }
}

/* ---- by rank ---- */

/* A double as a number of the same order; no number is the lowest. */
static uint64_t key_of(double x) {
    uint64_t bits;
    if (isnan(x)) { return 0; }
    x += 0.0; /* -0 is 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static int descending(const void *pa, const void *pb) {
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a < b) - (a > b);
}

/* How many of the descending keys [n] are at least `key`. */
static uint32_t count_from(const uint64_t *keys, uint32_t n, uint64_t key) {
    uint32_t lo = 0;
    while (lo < n) {
        const uint32_t mid = lo + (n - lo) / 2;
        if (keys[mid] >= key) {
            lo = mid + 1;
        } else {
            n = mid;
        }
    }
    return lo;
}

void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch) {
    if (B >= T) {
        all_the_same(n, T, c);
        return;
    }
    least = min_u32(least, B);
    const uint64_t rest = (uint64_t)n * (B - least);
    const uint32_t each = T - least;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *keys = scratch + (size_t)i * T;
        for (uint32_t t = 0; t < T; t++) { keys[t] = key_of(s[(size_t)i * T + t]); }
        qsort(keys, T, sizeof *keys, descending);
    }
    uint64_t lo = 0, hi = UINT64_MAX; /* at least `rest` are from lo up; fewer are from hi up */
    while (hi - lo > 1) {
        const uint64_t mid = lo + (hi - lo) / 2;
        uint64_t count = 0;
        for (uint32_t i = 0; i < n; i++) {
            count += count_from(scratch + (size_t)i * T + least, each, mid);
        }
        if (count >= rest) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    uint64_t left = rest;
    for (uint32_t i = 0; i < n; i++) {
        c[i] = count_from(scratch + (size_t)i * T + least, each, lo + 1);
        left -= c[i];
        c[i] += least;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t equal = count_from(scratch + (size_t)i * T + least, each, lo) + least - c[i];
        const uint32_t more = left < equal ? (uint32_t)left : equal;
        c[i] += more;
        left -= more;
    }
}
