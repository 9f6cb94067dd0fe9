/* Sketches as texts: which two are of one model. What a model's sketch is made of is tested where
 * files are read (tests/unit/formats/model/test_gguf.c). */
#include "lib/base/sketch.h"
#include "tests/unit/unit.h"

/* All numbers of vectors `v` steps of 1/8192 above 0, of matrices `m`. */
static void make(char out[SKETCH_TEXT], unsigned rounding, const char *words, const char *shape,
                 unsigned v, unsigned m) {
    int n = snprintf(out, SKETCH_TEXT, "1 %04x %s %s ", rounding, words, shape);
    for (int i = 0; i < 2 * SKETCH_NUMBERS; i++) {
        n += snprintf(out + n, SKETCH_TEXT - (size_t)n, "%s%04x", i == SKETCH_NUMBERS ? " " : "",
                      0x8000 + (i < SKETCH_NUMBERS ? v : m));
    }
}

#define WORDS "0123456789ab"
#define SHAPE "ba9876543210"
#define NONE  "000000000000"

TEST(one_model) {
    const struct {
        unsigned rounding[2], v, m;
        const char *words, *shape, *says;
        bool same;
    } cases[] = {
        {{0, 0}, 0, 0, WORDS, SHAPE, "differ by 0.0000 and", true},
        {{0, 0}, 24, 0, WORDS, SHAPE, "norms differ by 0.0029", true},
        {{0, 0}, 25, 0, WORDS, SHAPE, "norms differ by 0.0031", false},
        {{0, 0}, 0, 8, WORDS, SHAPE, "matrices by 0.0010", true},
        {{0, 0}, 0, 9, WORDS, SHAPE, "matrices by 0.0011", false},
        {{15, 15}, 0, 34, WORDS, SHAPE, "and 0.0042", true},
        {{15, 15}, 0, 35, WORDS, SHAPE, "and 0.0042", false},
        {{900, 15}, 0, 1100, WORDS, SHAPE, "and 0.1360", true},
        {{900, 900}, 0, 1572, WORDS, SHAPE, "and 0.1919", true},
        {{900, 900}, 0, 1573, WORDS, SHAPE, "and 0.1919", false},
        {{0xffff, 0}, 0, 9999, WORDS, SHAPE, "matrices by 0.0000", true},
        {{0xffff, 0}, 25, 0, WORDS, SHAPE, "norms differ by 0.0031", false},
        {{0, 0}, 0, 0, "0123456789ac", SHAPE, "their tokenizers differ", false},
        {{0, 0}, 0, 0, NONE, SHAPE, "differ by 0.0000 and", true},
        {{0, 0}, 0, 0, WORDS, "ba9876543211", "their shapes differ", false},
        {{0, 0}, 0, 0, WORDS, NONE, "differ by 0.0000 and", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char a[SKETCH_TEXT], b[SKETCH_TEXT], why[SKETCH_TEXT];
        make(a, cases[i].rounding[0], WORDS, SHAPE, 0, 0);
        make(b, cases[i].rounding[1], cases[i].words, cases[i].shape, cases[i].v, cases[i].m);
        for (int turned = 0; turned < 2; turned++) {
            assert_int_equal(sketch_same(turned ? b : a, turned ? a : b, why), cases[i].same);
            if (!strstr(why, cases[i].says)) { fail_msg("case %zu: %s", i, why); }
        }
    }
}

TEST(no_sketch) {
    char sound[SKETCH_TEXT], bad[SKETCH_TEXT], why[SKETCH_TEXT];
    make(sound, 0, WORDS, SHAPE, 0, 0);
    for (int i = 0; i < 5; i++) {
        make(bad, 0, WORDS, SHAPE, 0, 0);
        if (i == 0) { bad[0] = '\0'; }
        if (i == 1) { bad[0] = '2'; }
        if (i == 2) { bad[strlen(bad) - 1] = '\0'; }
        if (i == 3) { bad[40] = 'g'; }
        if (i == 4) { strcat(bad, "0"); }
        assert_false(sketch_same(sound, bad, why) || sketch_same(bad, sound, why));
        assert_non_null(strstr(why, "has no sketch"));
    }
}

RUN_TESTS(NULL, NULL)
