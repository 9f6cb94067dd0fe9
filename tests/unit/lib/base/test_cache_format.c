/* Rows in the formats of caches, against numbers of gguf and torch (tests/golden/cache). */
#include "lib/base/cache_format.h"

#include <complex.h>

#include "lib/base/bytes.h"
#include "lib/base/record.h"
#include "tests/unit/golden.h"

static const char *const names[] = {"f16", "bf16", "fp8", "q8_0", "q4_0"};
static const cache_format formats[] = {CACHE_F16, CACHE_BF16, CACHE_FP8, CACHE_Q8_0, CACHE_Q4_0};

/* The float32 numbers whose bits are in an array. The caller frees them. */
static float *numbers_of(const json_t *array, size_t *n) {
    *n = json_array_size(array);
    float *x = ckvc_alloc(*n, sizeof *x);
    for (size_t i = 0; i < *n; i++) {
        x[i] = ckvc_f32_of_bits((uint32_t)json_integer_value(json_array_get(array, i)));
    }
    return x;
}

static uint8_t byte_at(const char *hex, size_t i) {
    unsigned b = 0;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &b), 1);
    return (uint8_t)b;
}

/* Bytes are those of the other programs, bit by bit, and so are the numbers read of them. Of a NaN
 * it counts only that it is one. */
TEST(golden) {
    json_auto_t *root = golden_read("tests/golden/cache/expected.json");
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const cache_format f = formats[k];
        const json_t *of = json_object_get(json_object_get(root, "formats"), names[k]);
        const char *hex = json_string_value(json_object_get(of, "held"));
        size_t n, n_read;
        CKVC_AUTO_FREE float *x = numbers_of(json_object_get(of, "from"), &n),
                             *want = numbers_of(json_object_get(of, "read"), &n_read);
        assert_int_equal(n, n_read);
        assert_int_equal(strlen(hex), 2 * cache_bytes(f, n));
        CKVC_AUTO_FREE uint8_t *held = ckvc_alloc(cache_bytes(f, n), 1);
        CKVC_AUTO_FREE float *got = ckvc_alloc(n, sizeof *got);
        cache_write(f, 1, x, n, held);
        for (size_t i = 0; i < cache_bytes(f, n); i++) {
            if (held[i] != byte_at(hex, i) &&
                !(f < CACHE_Q8_0 && isnan(x[i * n / cache_bytes(f, n)]))) {
                fail_msg("%s: byte %zu is %02x, want %02x", names[k], i, held[i], byte_at(hex, i));
            }
        }
        for (size_t i = 0; i < cache_bytes(f, n); i++) { held[i] = byte_at(hex, i); }
        cache_read(f, held, n, got);
        for (size_t i = 0; i < n; i++) {
            if (ckvc_bits_of_f32(got[i]) != ckvc_bits_of_f32(want[i]) &&
                !(isnan(got[i]) && isnan(want[i]))) {
                fail_msg("%s: number %zu is %g, want %g", names[k], i, (double)got[i],
                         (double)want[i]);
            }
        }
    }
}

/* Every byte of fp8 and every 16 bits of f16 are read as what they stand for. */
TEST(all_small_numbers) {
    for (unsigned b = 0; b < 256; b++) {
        const unsigned e = b >> 3 & 15, m = b & 7;
        const double size = e ? ldexp(8 + m, (int)e - 10) : ldexp(m, -9);
        const uint8_t held = (uint8_t)b;
        float x;
        cache_read(CACHE_FP8, &held, 1, &x);
        if (e == 15 && m == 7) {
            assert_true(isnan(x));
        } else {
            assert_true((double)x == (b & 128 ? -size : size) && !signbit(x) == (b < 128));
        }
    }
    for (unsigned h = 0; h < 65536; h++) {
        uint8_t held[2];
        float x;
        ckvc_put_u16(held, (uint16_t)h);
        cache_read(CACHE_F16, held, 1, &x);
        assert_int_equal(ckvc_bits_of_f32(x), ckvc_bits_of_f32(ckvc_f32_of_f16((uint16_t)h)));
    }
}

/* Sums of up to 256 float32 numbers are rounded eight times: the bound is far above that. */
TEST(rotations) {
    json_auto_t *root = golden_read("tests/golden/cache/expected.json");
    size_t i;
    json_t *of;
    json_array_foreach(json_object_get(root, "rotations"), i, of) {
        const int32_t rotation = (int32_t)golden_number(of, "rotation");
        size_t n;
        CKVC_AUTO_FREE float *x = numbers_of(json_object_get(of, "from"), &n),
                             *before = ckvc_copy(x, n, sizeof *x);
        CKVC_AUTO_FREE double *want = golden_numbers(json_object_get(of, "to"));
        cache_rotate(x, n, rotation);
        for (size_t k = 0; k < n; k++) { assert_true(fabs((double)x[k] - want[k]) < 2e-6); }
        cache_rotate(x, n, rotation);
        for (size_t k = 0; k < n; k++) { assert_true(fabsf(x[k] - before[k]) < 2e-6F); }
    }
    const cache_formats rotated = {CACHE_Q4_0_ROT, CACHE_Q4_0_ROT}, as_they_are = {0};
    const struct {
        int32_t head, keys, values;
    } llama_cpp[] = {{64, 64, 64}, {128, 128, 64}, {192, 64, 64}, {256, 256, 64}, {320, 64, 64}};
    for (size_t k = 0; k < sizeof llama_cpp / sizeof *llama_cpp; k++) {
        assert_int_equal(cache_key_rotation(rotated, llama_cpp[k].head), llama_cpp[k].keys);
        assert_int_equal(cache_value_rotation(rotated, llama_cpp[k].head), llama_cpp[k].values);
        assert_int_equal(cache_key_rotation(as_they_are, llama_cpp[k].head), 1);
    }
}

/* What was rounded stays as it is, and is as far from what it was as the format's steps allow. */
TEST(rounds_once) {
    static const double steps[CACHE_FORMATS / 2] = {1e-6, 5e-4, 4e-3, 4e-2, 6e-3, 0.1, 0.1};
    ckvc_rng rng = rng_of(1, 2, 3);
    for (int f = 0; f < CACHE_FORMATS; f++) {
        const cache_formats both = {(cache_format)f, (cache_format)f};
        const int32_t rotation = cache_key_rotation(both, 192);
        float x[2 * 192], once[2 * 192], twice[2 * 192];
        double off = 0, size = 0;
        for (int i = 0; i < 2 * 192; i++) { x[i] = (float)(ckvc_rng_double(&rng) * 8 - 4); }
        memcpy(once, x, sizeof x);
        cache_round((cache_format)f, rotation, once, 192);
        cache_round((cache_format)f, rotation, once + 192, 192);
        memcpy(twice, once, sizeof x);
        cache_round((cache_format)f, rotation, twice, 2 * 192);
        for (int i = 0; i < 2 * 192; i++) {
            off += ((double)once[i] - (double)x[i]) * ((double)once[i] - (double)x[i]);
            size += (double)x[i] * (double)x[i];
            /* rotating back and forth moves the last bits */
            assert_true(fabsf(twice[i] - once[i]) <= (rotation > 1 ? 2e-6F : 0.0F));
        }
        if (f > CACHE_F32) { assert_true(off > 0); }
        if (sqrt(off / size) > steps[f / 2]) { fail_msg("format %d: %g", f, sqrt(off / size)); }
    }
}

/* A number that is not finite makes all of its block NaN, so that losses show it. */
TEST(blocks_that_are_not_finite) {
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        for (cache_format f = CACHE_Q8_0; f <= CACHE_Q4_0; f += 2) {
            float x[32] = {1, 2, bad[i], 4};
            cache_round(f, 1, x, 32);
            for (int k = 0; k < 32; k++) { assert_true(isnan(x[k])); }
        }
    }
}

/* Names read back, alone and in pairs, and are those of the options. */
TEST(names_of_formats) {
    char text[CACHE_FORMATS_TEXT];
    cache_formats f;
    for (int i = 0; i < CACHE_FORMATS; i++) {
        assert_int_equal(record_place_of(CACHE_FORMAT_NAMES, cache_format_name((cache_format)i)),
                         i);
        for (int k = 0; k < CACHE_Q4_0_MEAN; k++) {
            const cache_formats of = {(cache_format)i, (cache_format)k};
            assert_true(cache_formats_named(cache_formats_name(of, text), &f));
            assert_true(f.keys == of.keys && f.values == of.values);
        }
    }
    assert_string_equal(cache_formats_name((cache_formats){CACHE_Q8_0, CACHE_Q4_0_ROT}, text),
                        "q8_0/q4_0+rot");
    assert_string_equal(cache_formats_name((cache_formats){CACHE_FP8, CACHE_FP8}, text), "fp8");
    assert_true(cache_formats_named("q4_0+mean+rot", &f) && f.keys == CACHE_Q4_0_MEAN_ROT &&
                f.values == CACHE_Q4_0_ROT);
    assert_string_equal(cache_formats_name(f, text), "q4_0+mean+rot/q4_0+rot");
    static const char *const bad[] = {"",      "q8",  "q8_0/", "/q8_0", "q8_0/q8_0/q8_0",
                                      "q8_0+", "Q8_0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(cache_formats_named(bad[i], &f));
    }
}

/* Bits of a number: f16 16, fp8 8, q8_0 8.5, q4_0 4.5. */
TEST(entries_of_bytes) {
    static const struct {
        cache_formats f;
        double bits;
    } cases[] = {
        {{CACHE_F32, CACHE_F32}, 64},  {{CACHE_F16, CACHE_BF16_ROT}, 32},
        {{CACHE_FP8, CACHE_FP8}, 16},  {{CACHE_Q8_0, CACHE_Q4_0_ROT}, 13},
        {{CACHE_Q4_0, CACHE_Q4_0}, 9}, {{CACHE_Q4_0_MEAN_ROT, CACHE_Q4_0_ROT}, 9 + 32 / 96.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double want = 0.1 * 128 / (cases[i].bits * 4);
        assert_true(fabs(cache_entries_share(0.1, cases[i].f, 96) - want) < 1e-16);
    }
}

TEST(bytes_of_an_entry) {
    assert_int_equal(cache_entry_bytes((cache_formats){CACHE_Q8_0, CACHE_Q4_0_ROT}, 64), 68 + 36);
    assert_int_equal(cache_entry_bytes((cache_formats){0}, 64), 512);
    const cache_formats mean = {CACHE_Q4_0_MEAN, CACHE_Q4_0};
    assert_int_equal(cache_entry_bytes(mean, 64), 36 + 36 + 4); /* and its position */
}

/* Rotations have the bits of sums and differences that are made one after the other. */
TEST(rotations_bit_for_bit) {
    float x[1024], want[1024];
    ckvc_rng rng = rng_of(1, 2, 3);
    for (size_t size = 8; size <= 1024; size *= 2) {
        for (size_t i = 0; i < 1024; i++) { x[i] = want[i] = (float)(ckvc_rng_double(&rng) - 0.5); }
        for (size_t step = 1; step < size; step *= 2) {
            for (size_t i = 0; i < 1024; i++) {
                if (i / step % 2 == 0) {
                    const float first = want[i], second = want[i + step];
                    want[i] = first + second;
                    want[i + step] = first - second;
                }
            }
        }
        for (size_t i = 0; i < 1024; i++) { want[i] *= (float)(1.0 / sqrt((double)size)); }
        cache_rotate(x, 1024, (int32_t)size);
        assert_memory_equal(x, want, sizeof x);
    }
}

/* R(p) c is what RoPE makes of c at p: here by complex numbers, and in double. */
TEST(mean_keys) {
    enum { D = 10 };
    float c[D], x[D], cosine[D / 2], sine[D / 2];
    ckvc_rng rng = rng_of(4, 5, 6);
    for (int i = 0; i < D; i++) { c[i] = (float)(ckvc_rng_double(&rng) * 200 - 100); }
    for (int p = 0; p < 1000; p += 37) {
        double want[D];
        for (int i = 0; i < D / 2; i++) {
            const double angle = p * pow(10000.0, -2.0 * i / D);
            const double complex turned =
                ((double)c[i] + (double)c[i + D / 2] * I) * cexp(angle * I);
            cosine[i] = (float)cos(angle);
            sine[i] = (float)sin(angle);
            want[i] = creal(turned);
            want[i + D / 2] = cimag(turned);
        }
        for (int i = 0; i < D; i++) { x[i] = (float)i; }
        cache_add_mean(c, cosine, sine, D, 1, x);
        for (int i = 0; i < D; i++) { assert_true(fabs((double)x[i] - i - want[i]) < 5e-5); }
        cache_add_mean(c, cosine, sine, D, -1, x);
        for (int i = 0; i < D; i++) { assert_true(fabsf(x[i] - (float)i) < 5e-5F); }
    }
}

RUN_TESTS(NULL, NULL)
