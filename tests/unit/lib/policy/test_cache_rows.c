/* An engine's cache in any format, taken and fitted by its rows: the same as its numbers are taken
 * and fitted in float32, and rows that cannot be are refused. */
#include "lib/policy/cache_rows.h"

#include <math.h>

#include "lib/base/bytes.h"
#include "lib/base/cache_format.h"
#include "lib/stats/resample.h"
#include "tests/unit/sets_fixture.h"

enum { L = 2, G = 2, T = 90, D = 128, BANK = 2 * D, ROW = D * 4 };

/* A cache of a model whose query heads have a KV head each. Rows lie as [T][G], so that those of a
 * head have another head's between them. */
typedef struct rig {
    uint32_t format, pairwise;       /* of the prompt; */
    uint32_t keys_as, values_as;     /* and the formats of what is kept */
    size_t key_stride, value_stride; /* of what is kept */
    size_t row_bytes;                /* of a row; values have as many */
    unsigned char keys[L][T * G * ROW], values[L][T * G * ROW]; /* as they are held */
    float held_keys[L * G][T * D], held_values[L * G][T * D];   /* the numbers that these are */
    unsigned char kept_keys[T * 2 * ROW], kept_values[T * ROW];
    double inv_freq[D / 2];
    ckvc_attending attending[L];
    ckvc_table *table;
    ckvc_request request;
} rig;

static float draw(ckvc_rng *rng) { return (float)(ckvc_rng_double(rng) * 2 - 1); }

/* The rotation that a format of this side has (cache_format.h). */
static int32_t rotation(uint32_t format, cache_side side) {
    return format % 2 ? (side == CACHE_KEYS ? D & -D : 64) : 1;
}

/* Holds x [D] as a row in this format at `to`, and makes it the numbers that are held. */
static void hold(const rig *r, uint32_t format, cache_side side, float *x, void *to) {
    float pairs[D];
    const bool swaps = side == CACHE_KEYS && r->pairwise;
    for (int i = 0; i < D; i++) { pairs[i] = x[swaps ? i / 2 + i % 2 * (D / 2) : i]; }
    cache_write((cache_format)format, rotation(format, side), pairs, D, to);
    cache_read((cache_format)format, to, D, pairs);
    cache_rotate(pairs, D, rotation(format, side));
    for (int i = 0; i < D; i++) { x[swaps ? i / 2 + i % 2 * (D / 2) : i] = pairs[i]; }
}

/* Queries that lie near a plane of 4 dimensions, as a head's do. */
static void draw_bank(ckvc_rng *rng, float *bank) {
    float axes[4][D];
    for (size_t i = 0; i < 4 * D; i++) { axes[i / D][i % D] = draw(rng); }
    for (float *q = bank; q < bank + (size_t)L * G * BANK * D; q += D) {
        for (int d = 0; d < D; d++) { q[d] = 0.1f * draw(rng); }
        for (int a = 0; a < 4; a++) {
            const float part = 2 * draw(rng);
            for (int d = 0; d < D; d++) { q[d] += part * axes[a][d]; }
        }
    }
}

static void open_rig(rig *r, uint32_t format, uint32_t pairwise) {
    static const double budgets[] = {0.25};
    ckvc_rng rng = rng_of(8, format, pairwise);
    *r = (rig){.format = format,
               .pairwise = pairwise,
               .row_bytes = cache_bytes((cache_format)format, D),
               .table = new_start_table(L, G, 1, 1, budgets, 1, 16, NULL)};
    for (int i = 0; i < D / 2; i++) { r->inv_freq[i] = pow(10000, -2.0 * i / D); }
    for (size_t i = 0; i < (size_t)L * T * G; i++) {
        const size_t l = i / (T * G), t = i / G % T, g = i % G;
        float *k = r->held_keys[l * G + g] + t * D, *v = r->held_values[l * G + g] + t * D;
        for (int d = 0; d < D; d++) {
            k[d] = 2 * draw(&rng);
            v[d] = draw(&rng);
        }
        hold(r, format, CACHE_KEYS, k, r->keys[l] + (t * G + g) * r->row_bytes);
        hold(r, format, CACHE_VALUES, v, r->values[l] + (t * G + g) * r->row_bytes);
    }
    ckvc_table *t = r->table;
    const uint32_t n_features = ckvc_features_count(CKVC_FEATURES_2, D);
    t->n_query_heads = G;
    t->op = CKVC_OPERATOR_NO_THRESHOLD;
    assert_int_equal(ckvc_table_add_shares(t, 0), 0);
    assert_int_equal(ckvc_table_add_learned(t, n_features), 0);
    assert_int_equal(ckvc_table_add_bank(t, BANK, D), 0);
    for (size_t i = 0; i < (size_t)L * G * n_features; i++) { t->theta[i] = draw(&rng) / 4; }
    for (size_t i = 0; i < (size_t)L * G; i++) { t->mass[i] = t->share[i] = 1; }
    draw_bank(&rng, t->bank);
    t->bank_use[0] = (ckvc_bank_use){BANK, 96};
    t->ridge[0] = 0.1; /* and 0 in the second layer */
    t->c_min[0] = (ckvc_c_min){0.2, 8};
    t->score[0] = ckvc_default_score(CKVC_SCORE_BANK, CKVC_FEATURES_2);
    t->score[0].mode = CKVC_MODE_HEADS;
    char breach[256];
    if (ckvc_table_check(t, breach, sizeof breach)) { fail_msg("%s", breach); }
    for (int l = 0; l < L; l++) {
        r->attending[l] = (ckvc_attending){.inv_freq = r->inv_freq, .scale = 0.125};
    }
    r->request = (ckvc_request){.table = t,
                                .model = {L, G, G, D, r->inv_freq, 0, r->attending},
                                .n_tokens = T,
                                .budget = 0.25};
}

static void close_rig(rig *r) { ckvc_table_free(r->table); }

static ckvc_rows rows_of(const rig *r, cache_side side, size_t l, size_t g) {
    const unsigned char *from = side == CACHE_KEYS ? r->keys[l] : r->values[l];
    return (ckvc_rows){from + g * r->row_bytes, G * r->row_bytes, r->format,
                       side == CACHE_KEYS ? r->pairwise : 0};
}

static ckvc_prefill *begin(const rig *r) {
    char why[256];
    const size_t bytes = ckvc_prefill_bytes(&r->request);
    ckvc_prefill *p = ckvc_prefill_begin(malloc(bytes), bytes, &r->request, why, sizeof why);
    if (!p) { fail_msg("%s", why); }
    return p;
}

/* A whole prefill, by rows in tiles of 50 positions, or by the numbers that they are. */
static ckvc_prefill *prefill(const rig *r, bool by_rows) {
    ckvc_prefill *p = begin(r);
    for (uint32_t u = 0; u < L * G; u++) {
        for (uint32_t first = 0; first < T; first += by_rows ? 50 : T) {
            ckvc_rows k = rows_of(r, CACHE_KEYS, u / G, u % G),
                      v = rows_of(r, CACHE_VALUES, u / G, u % G);
            const uint32_t n = !by_rows ? T : T - first < 50 ? T - first : 50;
            k.first = (const char *)k.first + first * k.stride;
            v.first = (const char *)v.first + first * v.stride;
            const int rc = by_rows ? ckvc_prefill_cache_rows(p, u / G, u % G, first, n, k, v)
                                   : ckvc_prefill_cache(p, u / G, u % G, first, n, r->held_keys[u],
                                                        r->held_values[u]);
            if (rc) { fail_msg("%s", ckvc_prefill_message(p)); }
        }
    }
    assert_int_equal(ckvc_prefill_keep(p, NAN), 0);
    return p;
}

/* Sets the formats of what is kept. The rows of its keys have gaps. */
static void keep_as(rig *r, uint32_t keys, uint32_t values) {
    r->keys_as = keys;
    r->values_as = values;
    r->key_stride = 2 * cache_bytes((cache_format)keys, D);
    r->value_stride = cache_bytes((cache_format)values, D);
}

/* What is kept of a head, by its rows, in r->kept_keys and r->kept_values. */
static int fit_rows(rig *r, const ckvc_prefill *p, uint32_t l, uint32_t g) {
    CKVC_AUTO_FREE void *scratch = malloc(ckvc_prefill_fit_rows_bytes(p));
    const ckvc_fitting_rows f = {.attending = r->attending[0],
                                 .keys = rows_of(r, CACHE_KEYS, l % L, g),
                                 .values = rows_of(r, CACHE_VALUES, l % L, g),
                                 .scratch = scratch,
                                 .kept_keys = r->kept_keys,
                                 .kept_values = r->kept_values,
                                 .key_format = r->keys_as,
                                 .value_format = r->values_as,
                                 .key_stride = r->key_stride,
                                 .value_stride = r->value_stride};
    return ckvc_prefill_fit_rows(p, l, g, &f);
}

static ckvc_rows kept_rows(const rig *r, cache_side side) {
    return side == CACHE_KEYS ? (ckvc_rows){r->kept_keys, r->key_stride, r->keys_as, r->pairwise}
                              : (ckvc_rows){r->kept_values, r->value_stride, r->values_as, 0};
}

/* What the fit gives in float32 for a head of the first layer, from the numbers that are held. */
static void fit_numbers(const rig *r, const ckvc_prefill *p, uint32_t g, ckvc_hold hold, float *k,
                        float *v) {
    static float pairs[T * D];
    CKVC_AUTO_FREE void *scratch = malloc(ckvc_prefill_fit_bytes(p));
    for (size_t i = 0; i < (size_t)T * D; i++) {
        const size_t d = i % D, from = r->pairwise ? d / 2 + d % 2 * (D / 2) : d;
        pairs[i] = r->held_keys[g][i - d + from];
    }
    ckvc_fit f = {.n_tokens = T,
                  .head_dim = D,
                  .keys = {pairs, D * sizeof *pairs, CKVC_HELD_F32, r->pairwise},
                  .values = float_rows(r->held_values[g], D),
                  .ridge = 0.1,
                  .attending = r->attending[0],
                  .hold = hold};
    f.kept = ckvc_prefill_set(p, 0, g, &f.n_kept);
    assert_int_equal(ckvc_bank_fit(r->table, 0, g, f, scratch, k, v), 1);
}

/* By how much products with a head's reference queries differ, all in all. */
static double off_by(const rig *r, uint32_t g, const float *keys, const float *wanted, size_t n) {
    static float queries[BANK * D];
    uint32_t positions[BANK];
    double sum = 0;
    ckvc_bank_queries(r->table, 0, g, T, r->inv_freq, queries, positions);
    for (size_t i = 0; i < BANK * n; i++) {
        const float *q = queries + i / n * D, *a = keys + i % n * D, *b = wanted + i % n * D;
        double product = 0;
        for (int d = 0; d < D; d++) { product += (double)q[d] * ((double)a[d] - (double)b[d]); }
        sum += product * product;
    }
    return sqrt(sum);
}

static void same_bits(ckvc_prefill *a, ckvc_prefill *b) {
    for (uint32_t u = 0; u < L * G; u++) {
        uint32_t n, m;
        const uint32_t *x = ckvc_prefill_set(a, u / G, u % G, &n),
                       *y = ckvc_prefill_set(b, u / G, u % G, &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n * sizeof *x);
        assert_memory_equal(ckvc_prefill_scores(a, u / G, u % G),
                            ckvc_prefill_scores(b, u / G, u % G), T * sizeof(double));
    }
}

/* Checks what fit_rows gave for a head of the first layer. */
static void check_fitted(rig *r, const ckvc_prefill *p, uint32_t g) {
    static float k[T * D], v[T * D], keys[T * D], rounded[T * D];
    unsigned char room[ROW];
    uint32_t n;
    ckvc_prefill_set(p, 0, g, &n);
    fit_numbers(r, p, g, (ckvc_hold){0}, rounded, v);
    memcpy(k, rounded, n * D * sizeof *k); /* the fitted keys before they are held */
    for (uint32_t i = 0; i < n; i++) {
        cache_rows_read(kept_rows(r, CACHE_KEYS), CACHE_KEYS, D, i, keys + i * D);
        hold(r, r->keys_as, CACHE_KEYS, rounded + i * D, room);
    }
    if (r->keys_as < CACHE_Q4_0) { /* a number at a time; rotated ones are rotated back */
        const double close = r->keys_as % 2 ? 2e-6 : 0;
        for (size_t i = 0; i < (size_t)n * D; i++) {
            assert_float_equal(keys[i], rounded[i], close);
        }
    } else {
        /* at most 0.55 of it was measured; without the rounding by the bank it is 1 */
        const double by_bank = off_by(r, g, keys, k, n), alone = off_by(r, g, rounded, k, n);
        if (!(by_bank < 0.8 * alone)) { fail_msg("%g for %g", by_bank, alone); }
    }
    /* values are fitted to the keys as they are held */
    fit_numbers(r, p, g, (ckvc_hold){r->keys_as, NULL}, k, v);
    for (uint32_t i = 0; i < n; i++) {
        float value[D];
        cache_rows_read(kept_rows(r, CACHE_VALUES), CACHE_VALUES, D, i, value);
        hold(r, r->values_as, CACHE_VALUES, v + i * D, room);
        for (int d = 0; d < D; d++) {
            assert_float_equal(keys[i * D + d], k[i * D + d], 2e-6);
            assert_float_equal(value[d], v[i * D + d], 2e-6);
        }
    }
}

/* The second layer is not fitted: rows are copied, or held in the new format. */
static void check_copied(rig *r, const ckvc_prefill *p, uint32_t g) {
    const ckvc_rows keys = rows_of(r, CACHE_KEYS, 1, g);
    uint32_t n;
    const uint32_t *kept = ckvc_prefill_set(p, 1, g, &n);
    assert_int_equal(fit_rows(r, p, 1, g), 0);
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (size_t)kept[i] * D;
        const unsigned char *row = r->kept_keys + i * kept_rows(r, CACHE_KEYS).stride;
        float k[D], v[D], want[2][D];
        unsigned char room[ROW];
        if (r->keys_as == r->format) {
            assert_memory_equal(row, (const char *)keys.first + kept[i] * keys.stride,
                                r->row_bytes);
        }
        memcpy(want[0], r->held_keys[G + g] + at, sizeof want[0]);
        memcpy(want[1], r->held_values[G + g] + at, sizeof want[1]);
        if (r->keys_as != r->format) { hold(r, r->keys_as, CACHE_KEYS, want[0], room); }
        if (r->values_as != r->format) { hold(r, r->values_as, CACHE_VALUES, want[1], room); }
        cache_rows_read(kept_rows(r, CACHE_KEYS), CACHE_KEYS, D, i, k);
        cache_rows_read(kept_rows(r, CACHE_VALUES), CACHE_VALUES, D, i, v);
        assert_memory_equal(k, want[0], sizeof k);
        assert_memory_equal(v, want[1], sizeof v);
    }
}

TEST(rows_are_their_numbers) {
    for (uint32_t i = 0; i < 2 * CACHE_Q4_0_MEAN; i++) {
        CKVC_AUTO(close_rig) rig r;
        open_rig(&r, i / 2, i % 2);
        CKVC_AUTO_FREE ckvc_prefill *by_rows = prefill(&r, true), *by_numbers = prefill(&r, false);
        same_bits(by_rows, by_numbers);
        for (uint32_t g = 0; g < G; g++) {
            for (int other = 0; other < 2; other++) {
                keep_as(&r, other ? (CKVC_HELD_Q4_0 + i) % CACHE_Q4_0_MEAN : r.format,
                        other ? (CKVC_HELD_FP8 + i / 2) % CACHE_Q4_0_MEAN : r.format);
                assert_int_equal(fit_rows(&r, by_rows, 0, g), 1);
                check_fitted(&r, by_rows, g);
                check_copied(&r, by_rows, g);
            }
        }
    }
}

/* Values that fitting would put beyond what a cache's type holds stay within it. */
TEST(range) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, CKVC_HELD_F16, 0);
    keep_as(&r, CKVC_HELD_F16, CKVC_HELD_F16);
    for (size_t i = 0; i < (size_t)T * G * D; i++) {
        unsigned char *at = r.values[0] + 2 * i;
        ckvc_put_u16(at, ckvc_f16_of_f32(6e4f * ckvc_f32_of_f16(ckvc_get_u16(at))));
    }
    /* attention is sharp, so that few entries mend little, and by large changes */
    r.attending[0].scale = 1;
    CKVC_AUTO_FREE ckvc_prefill *p = prefill(&r, true);
    uint32_t n, n_most = 0;
    ckvc_prefill_set(p, 0, 0, &n);
    r.table->ridge[0] = 1e-6;
    assert_int_equal(fit_rows(&r, p, 0, 0), 1);
    for (uint32_t i = 0; i < n * D; i++) {
        const float x = ckvc_f32_of_f16(ckvc_get_u16(r.kept_values + 2 * i));
        assert_true(fabsf(x) <= 65504);
        n_most += fabsf(x) == 65504;
    }
    assert_true(n_most > 0);
}

static void refused(const rig *r, ckvc_rows keys, ckvc_rows values, const char *why) {
    CKVC_AUTO_FREE ckvc_prefill *p = begin(r);
    assert_int_equal(ckvc_prefill_cache_rows(p, 0, 0, 0, 1, keys, values), -1);
    if (!strstr(ckvc_prefill_message(p), why)) { fail_msg("%s", ckvc_prefill_message(p)); }
}

TEST(refusals) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, CKVC_HELD_Q4_0 + CKVC_HELD_ROTATED, 0);
    const ckvc_rows keys = rows_of(&r, CACHE_KEYS, 0, 0), values = rows_of(&r, CACHE_VALUES, 0, 0);
    ckvc_rows bad = keys;
    bad.format = CKVC_HELD_Q4_0_MEAN;
    refused(&r, bad, values,
            "keys of head 0 in layer 0: format 12, stride 144, heads of 128 numbers: no format of "
            "rows");
    bad.format = UINT32_MAX;
    refused(&r, keys, bad, "values of head 0 in layer 0: format 4294967295");
    bad = keys;
    bad.stride = 35;
    refused(&r, bad, values, "a stride below a row's bytes");
    bad = values;
    bad.pairwise = 1;
    refused(&r, keys, bad, "values have no pairs");
    bad = keys;
    bad.first = r.kept_keys;
    memset(r.kept_keys, 0xFF, sizeof r.kept_keys); /* scales that are NaN */
    refused(&r, bad, values, "positions 0 holds a value that is not finite");
    bad = keys;
    bad.stride = ROW;
    bad.format = CKVC_HELD_F16;
    bad.pairwise = 1;
    assert_non_null(strstr(cache_rows_wrong(bad, CACHE_KEYS, 7), "an odd number of numbers"));
    static const struct {
        ckvc_rows rows;
        uint32_t D;
        const char *why;
    } heads[] = {
        {{NULL, 9999, CKVC_HELD_Q8_0, 0}, 48, "blocks want heads whose size is a multiple of 32"},
        {{NULL, 9999, CKVC_HELD_F16 + 1, 0},
         96,
         "heads are rotated whose size is a multiple of 64"},
        {{NULL, 9999, CKVC_HELD_F16, 0}, 1026, "heads of more than 1024 numbers"},
        {{NULL, 9999, CKVC_HELD_F32, 1}, 1026, "heads of more than 1024 numbers"},
        {{NULL, 101, CKVC_HELD_Q8_0, 1}, 96, "a stride below a row's bytes"}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const char *why = cache_rows_wrong(heads[i].rows, CACHE_KEYS, heads[i].D);
        if (!why || !strstr(why, heads[i].why)) { fail_msg("%zu: %s", i, why ? why : "none"); }
    }
    assert_null(cache_rows_wrong((ckvc_rows){NULL, 102, CKVC_HELD_Q8_0, 1}, CACHE_KEYS, 96));
    assert_null(cache_rows_wrong(float_rows(NULL, 1026), CACHE_KEYS, 1026));
}

/* Where one side of what is asked for cannot be, nothing is written. */
TEST(fits_that_are_refused) {
    static const uint32_t f16 = CKVC_HELD_F16, mean = CKVC_HELD_Q4_0_MEAN;
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, f16, 0);
    CKVC_AUTO_FREE ckvc_prefill *p = begin(&r), *kept = prefill(&r, true);
    keep_as(&r, f16, f16);
    assert_int_equal(fit_rows(&r, p, 0, 0), -1); /* nothing is chosen yet */
    assert_int_equal(fit_rows(&r, kept, L, 0), -1);
    for (int side = 0; side < 2; side++) {
        keep_as(&r, side ? f16 : mean, side ? mean : f16);
        assert_int_equal(fit_rows(&r, kept, 0, 0), -1);
        keep_as(&r, f16, f16);
        *(side ? &r.value_stride : &r.key_stride) = 2 * D - 1;
        assert_int_equal(fit_rows(&r, kept, 0, 0), -1);
    }
    keep_as(&r, f16, f16);
    r.format = mean;
    assert_int_equal(fit_rows(&r, kept, 0, 0), -1);
    for (size_t b = 0; b < sizeof r.kept_keys; b++) { assert_int_equal(r.kept_keys[b], 0); }
}

/* A prompt that is no longer than the window is kept whole, in the new formats. */
TEST(kept_whole) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, CKVC_HELD_F16, 1);
    r.request.n_tokens = 16;
    CKVC_AUTO_FREE ckvc_prefill *p = begin(&r);
    assert_true(ckvc_prefill_keeps_all(p));
    assert_int_equal(ckvc_prefill_keep(p, NAN), 0);
    keep_as(&r, CKVC_HELD_Q8_0, CKVC_HELD_F32);
    assert_int_equal(fit_rows(&r, p, 1, 1), 0);
    for (uint32_t i = 0; i < 16; i++) {
        float k[D], want[D];
        unsigned char room[ROW];
        memcpy(want, r.held_keys[G + 1] + i * D, sizeof want);
        hold(&r, CKVC_HELD_Q8_0, CACHE_KEYS, want, room);
        cache_rows_read(kept_rows(&r, CACHE_KEYS), CACHE_KEYS, D, i, k);
        assert_memory_equal(k, want, sizeof k);
        cache_rows_read(kept_rows(&r, CACHE_VALUES), CACHE_VALUES, D, i, k);
        assert_memory_equal(k, r.held_values[G + 1] + i * D, sizeof k);
    }
}

/* The largest numbers that rows take stay finite when they are held; fp8 clamps by itself. */
TEST(largest_numbers) {
    for (uint32_t format = 0; format < CACHE_Q4_0_MEAN; format++) {
        for (int side = 0; side < 2; side++) {
            const ckvc_rows rows = {NULL, ROW, format, 0};
            const double most = cache_rows_most(rows, (cache_side)side, D);
            float x[D];
            unsigned char room[ROW];
            for (int d = 0; d < D; d++) { x[d] = (float)most; }
            cache_rows_write(rows, (cache_side)side, D, x, room);
            cache_rows_read((ckvc_rows){room, ROW, format, 0}, (cache_side)side, D, 0, x);
            for (int d = 0; d < D; d++) { assert_true(isfinite(x[d])); }
            /* no number that a model has is cut, but by float16's own range */
            assert_true(most >= 65504 / sqrt(rotation(format, (cache_side)side)));
        }
    }
}

RUN_TESTS(NULL, NULL)
