/* lib/base/record: every type through JSON there and back, what is none, and what is refused with
 * the struct left as it was. */
#include "lib/base/record.h"

#include <math.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "tests/unit/unit.h"

typedef struct sample {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    int32_t bin;
    double part;
    double f64;
    enum { RED, GREEN } color;
    char text[8], hex[5], *owned;
} sample;

#define M(name, ...) RECORD(sample, #name, name, __VA_ARGS__)
static const record_member members[] = {
    M(u8, .type = RECORD_COUNT, .most = UINT8_MAX),
    M(u16, .type = RECORD_COUNT, .most = UINT16_MAX),
    M(u32, .type = RECORD_COUNT, .least = 2, .most = 9, .need = RECORD_IF_ANY),
    M(u64, .type = RECORD_COUNT, .most = HUGE_VAL),
    M(bin, .type = RECORD_BIN, .most = 7, .need = RECORD_OR_NULL),
    M(part, .type = RECORD_REAL, .least = -1, .most = 1),
    M(f64, .type = RECORD_REAL, .least = -HUGE_VAL, .most = HUGE_VAL, .need = RECORD_IF_ANY),
    M(color, .type = RECORD_NAME, .names = "red|green", .most = 1),
    M(text, .type = RECORD_TEXT),
    M(hex, .type = RECORD_HEX, .need = RECORD_OR_NULL),
    M(owned, .type = RECORD_OWNED, .need = RECORD_OR_NULL),
};
enum { N = sizeof members / sizeof *members };

/* Reads all members of an object; which is refused, NULL: none. */
static const char *read_all(const char *text, sample *out) {
    json_auto_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    for (size_t i = 0; i < N; i++) {
        if (!record_read(&members[i], json_object_get(o, members[i].name), out)) {
            return members[i].name;
        }
    }
    return NULL;
}

static void writes(const sample *s, const char *text) {
    json_auto_t *o = json_object();
    record_write(members, N, s, o);
    CKVC_AUTO_FREE char *got = ckvc_json_canonical(o);
    assert_string_equal(got, text);
}

/* clang-format off */
#define FULL                                                                                       \
    "{\"bin\":7,\"color\":\"green\",\"f64\":0.25,\"hex\":\"01ef\",\"owned\":\"mine\","                  \
    "\"part\":-0.5,\"text\":\"seven b\",\"u16\":65535,\"u32\":9,\"u64\":9007199254740993,\"u8\":255}"
#define EMPTY                                                                                      \
    "{\"bin\":null,\"color\":\"red\",\"hex\":null,\"owned\":null,\"part\":0,\"text\":\"\","              \
    "\"u16\":0,\"u64\":0,\"u8\":0}"
/* clang-format on */

TEST(json) {
    sample s = {0};
    assert_null(read_all(FULL, &s));
    assert_int_equal(s.u64, 9007199254740993); /* 2^53 + 1: no double */
    assert_int_equal(s.color, GREEN);
    assert_string_equal(s.hex, "01ef");
    assert_true(record_number(&members[8], &s) == 7); /* of a text: its length */
    writes(&s, FULL);
    record_fini(members, N, &s);
    assert_null(s.owned);
}

TEST(none) {
    sample s = {.u32 = 5};
    assert_null(read_all(EMPTY, &s));
    assert_int_equal(s.bin, -1);
    assert_int_equal(s.u32, 0);
    assert_true(isnan(s.f64));
    writes(&s, EMPTY);
    s.f64 = -0.0;
    s.part = NAN; /* must be there: null says that it is no number */
    json_auto_t *real = record_json(&members[6], &s), *must = record_json(&members[5], &s);
    assert_false(signbit(json_real_value(real)));
    assert_true(json_is_null(must));
}

TEST(refuses) {
    static const struct {
        size_t member;
        const char *value;
    } bad[] = {
        {0, "256"},       {0, "-1"},           {0, "1.0"},     {1, "65536"},    {2, "1"},
        {2, "10"},        {3, "-1"},           {4, "8"},       {4, "-1"},       {5, "1.5"},
        {6, "\"1\""},     {7, "\"blue\""},     {7, "\"\""},    {7, "1"},        {8, "null"},
        {8, "\"a\\nb\""}, {8, "\"12345678\""}, {9, "\"01e\""}, {9, "\"01EF\""}, {9, "\"01eff\""},
        {10, "1"}};
    const sample before = {.u32 = 5, .bin = 3, .f64 = 2, .color = GREEN, .text = "x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_auto_t *v = json_loads(bad[i].value, JSON_DECODE_ANY, NULL);
        sample s = before;
        assert_non_null(v);
        assert_false(record_read(&members[bad[i].member], v, &s));
        assert_memory_equal(&s, &before, sizeof s);
    }
    for (size_t i = 0; i < N; i++) { /* missing */
        sample s = before;
        assert_int_equal(record_read(&members[i], NULL, &s), members[i].need == RECORD_IF_ANY);
    }
    sample s = before;
    assert_false(record_set_number(&members[6], &s, HUGE_VAL));
    assert_false(record_set_number(&members[2], &s, 2.5));
    assert_memory_equal(&s, &before, sizeof s);
}

TEST(names) {
    size_t n;
    assert_int_equal(record_place_of("a|bc|d", "bc"), 1);
    assert_int_equal(record_place_of("a|bc|d", "b"), -1);
    assert_int_equal(record_place_of("a|bc|d", ""), -1);
    assert_memory_equal(record_name_at("a|bc|d", 2, &n), "d", 2);
    assert_int_equal(n, 1);
    assert_null(record_name_at("a|bc|d", 3, &n));
    assert_int_equal(n, 0);
}

RUN_TESTS(NULL, NULL)
