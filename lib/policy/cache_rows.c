/* Rows of an engine's cache: see cache_rows.h. */
#include "lib/policy/cache_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/base/cache_format.h"
#include "lib/policy/rounded_keys.h"

bool cache_rows_plain(ckvc_rows r) { return r.format == CKVC_HELD_F32 && !r.pairwise; }

static size_t bytes_of(ckvc_rows r, uint32_t D) { return cache_bytes((cache_format)r.format, D); }

const char *cache_rows_wrong(ckvc_rows r, cache_side side, uint32_t D) {
    if (r.format >= CACHE_Q4_0_MEAN) {
        return "no format of rows (ckvc_held_as): want one that takes no mean out of keys";
    }
    if (r.pairwise && side == CACHE_VALUES) { return "values have no pairs"; }
    if (r.pairwise && D % 2 != 0) { return "an odd number of numbers has no pairs"; }
    if (!cache_rows_plain(r) && D > CACHE_HEAD_MAX) {
        return "heads of more than 1024 numbers can be in plain float32 alone";
    }
    switch (cache_format_multiple((cache_format)r.format)) {
    case 64:
        if (D % 64 != 0) { return "heads are rotated whose size is a multiple of 64"; }
        break;
    case 32:
        if (D % 32 != 0) { return "blocks want heads whose size is a multiple of 32"; }
        break;
    default: break;
    }
    if (r.stride < bytes_of(r, D)) { return "a stride below a row's bytes"; }
    return NULL;
}

static int32_t rotation_of(uint32_t format, cache_side side, uint32_t D) {
    const cache_formats both = {(cache_format)format, (cache_format)format};
    return side == CACHE_KEYS ? cache_key_rotation(both, (int32_t)D)
                              : cache_value_rotation(both, (int32_t)D);
}

double cache_rows_most(ckvc_rows r, cache_side side, uint32_t D) {
    enum { F16_MAX = 65504 }; /* it is that of the scale of a block, too */
    double most = FLT_MAX;
    switch (r.format / 2 * 2) {
    case CKVC_HELD_F16: most = F16_MAX; break;
    case CKVC_HELD_BF16: most = 0x1.FEp127; break;
    case CKVC_HELD_Q8_0: most = 127.0 * F16_MAX; break;
    case CKVC_HELD_Q4_0: most = 8.0 * F16_MAX; break;
    default: break;
    }
    /* a rotation may put all of a row's magnitude into one number, and adds it up in float32 */
    const double rotation = rotation_of(r.format, side, D);
    return fmin(most / sqrt(rotation), FLT_MAX / rotation);
}

/* Puts pairs i, i + D/2 side by side, as engines with `pairwise` keys have them. */
static void to_pairs(uint32_t D, float *x) {
    float in[CACHE_HEAD_MAX];
    memcpy(in, x, D * sizeof *x);
    for (uint32_t i = 0; i < D / 2; i++) {
        x[2 * i] = in[i];
        x[2 * i + 1] = in[D / 2 + i];
    }
}

static void from_pairs(uint32_t D, float *x) {
    float in[CACHE_HEAD_MAX];
    memcpy(in, x, D * sizeof *x);
    for (uint32_t i = 0; i < D / 2; i++) {
        x[i] = in[2 * i];
        x[D / 2 + i] = in[2 * i + 1];
    }
}

void cache_rows_read(ckvc_rows r, cache_side side, uint32_t D, size_t i, float *x) {
    cache_read((cache_format)r.format, (const char *)r.first + i * r.stride, D, x);
    cache_rotate(x, D, rotation_of(r.format, side, D));
    if (r.pairwise) { from_pairs(D, x); }
}

void cache_rows_write(ckvc_rows r, cache_side side, uint32_t D, const float *x, void *to) {
    float in[CACHE_HEAD_MAX];
    if (r.pairwise) {
        memcpy(in, x, D * sizeof *x);
        to_pairs(D, in);
        x = in;
    }
    cache_write((cache_format)r.format, rotation_of(r.format, side, D), x, D, to);
}

void cache_rows_copy(ckvc_rows from, cache_side side, uint32_t D, size_t i, ckvc_rows as,
                     void *to) {
    if (from.format == as.format) {
        memcpy(to, (const char *)from.first + i * from.stride, bytes_of(from, D));
        return;
    }
    float x[CACHE_HEAD_MAX]; /* one of the two is not plain, so that heads are no larger */
    cache_rows_read(from, side, D, i, x);
    cache_rows_write(as, side, D, x, to);
}

/* Prepares the rounding of q4_0 keys, in the order of numbers in which they are held. NULL: they
 * are rounded one number at a time. */
static const double *prepare(const ckvc_hold *h, bool pairwise, uint32_t D, hold_by by) {
    if (h->format < CKVC_HELD_Q4_0 || by.n < 2 * (size_t)D) { return NULL; }
    memcpy(by.turned, by.queries, by.n * D * sizeof *by.turned);
    for (size_t i = 0; pairwise && i < by.n; i++) { to_pairs(D, by.turned + i * D); }
    cache_rotate(by.turned, by.n * D, rotation_of(h->format, CACHE_KEYS, D));
    double *u = by.work;
    return key_rounding_prepare(by.turned, by.n, D, u, u + (size_t)D * D) ? u : NULL;
}

/* key [D] += factor R(p) c for the head's mean key c. */
static void add_mean(const float *c, const double *inv_freq, uint32_t p, float factor, uint32_t D,
                     float *key) {
    float cosine[CACHE_HEAD_MAX / 2], sine[CACHE_HEAD_MAX / 2];
    for (uint32_t i = 0; i < D / 2; i++) {
        const double angle = (double)p * inv_freq[i];
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    cache_add_mean(c, cosine, sine, (int32_t)D, factor, key);
}

void cache_hold_keys(const ckvc_hold *h, bool pairwise, uint32_t D, hold_by by,
                     const uint32_t *positions, size_t n, float *keys) {
    const int32_t rotation = rotation_of(h->format, CACHE_KEYS, D);
    const double *u = prepare(h, pairwise, D, by);
    for (size_t i = 0; i < n; i++, keys += D) {
        if (h->mean) { add_mean(h->mean, by.inv_freq, positions[i], -1, D, keys); }
        if (pairwise) { to_pairs(D, keys); }
        if (u) {
            cache_rotate(keys, D, rotation);
            key_rounding_apply(u, D, keys);
            cache_rotate(keys, D, rotation);
        }
        cache_round((cache_format)h->format, rotation, keys, D);
        if (pairwise) { from_pairs(D, keys); }
        if (h->mean) { add_mean(h->mean, by.inv_freq, positions[i], 1, D, keys); }
    }
}
