/* The leak guard: words, JSON strings, spans and near-duplicates by brute force, hostile files. */
#include <sys/stat.h>
#include <zlib.h>

#include "corpus/leaks/line_stream.h"
#include "corpus/leaks/leak_check.h"
#include "corpus/leaks/shared_spans.h"
#include "corpus/leaks/word_list.h"
#include "tests/unit/temp_folder.h"

/* ---- words ---- */
/* The bytes with none behind them: the sanitizer sees a read too far. */
static char *exactly(const char *text, size_t n) { return memcpy(malloc(n ? n : 1), text, n); }

static void words_are(const char *text, size_t n, const char *want) {
    CKVC_AUTO(words_fini) word_list w = {0};
    CKVC_AUTO_FREE char *exact = exactly(text, n);
    OK(words_append(&w, exact, n, NULL));
    if (w.n_bytes != strlen(want) || (w.n_bytes && memcmp(w.bytes, want, w.n_bytes) != 0)) {
        fail_msg("got \"%.*s\", want \"%s\"", (int)w.n_bytes, w.bytes ? w.bytes : "", want);
    }
    for (size_t i = 0; i < w.n; i++) { assert_int_equal(w.bytes[w.begin[i + 1] - 1], ' '); }
}

TEST(words) {
    static const char *const cases[][2] = {
        {"", ""},
        {" \t.,;!", ""},
        {"The CAT's hat,\n42nd!", "the cat s hat 42nd "},
        {"\u00C9t\u00E9 STRASSE stra\u00DFe", "e\u0301te\u0301 strasse strasse "},
        {"\uFB01nd so\u00ADft a\u200Bb", "find soft ab "}, /* ligature, soft hyphen, no width */
        {"\u4E2D\u6587ab", "\u4E2D \u6587 ab "},
        {"don\u2019t", "don t "},
        /* Scripts without spaces: a letter is a word, half-width and full-width forms are one,
         * marks stand alone; others keep their words whatever their direction and marks. */
        {"\uFF76\uFF9E\u30AC\u3001\u4EBA\u3005\uFF21b1",
         "\u30AB \u3099 \u30AB \u3099 \u4EBA \u3005 ab1 "},
        {"\u0E01\u0E34\u0E19 \u0E02\u0E49\u0E32\u0E27",
         "\u0E01 \u0E34 \u0E19 \u0E02 \u0E49 \u0E32 \u0E27 "},
        {"\u0642\u064E\u0627\u0644\u060C \u0644\u0651\u0647\u061F",
         "\u0642\u064E\u0627\u0644 \u0644\u0651\u0647 "},
        {"\uD55C\uAD6D\uC5B4 \uBB38\uC7A5", "\u1112\u1161\u11AB\u1100\u116E\u11A8\u110B\u1165 "
                                            "\u1106\u116E\u11AB\u110C\u1161\u11BC "},
        {"x\xFF\xC3y\xE2\x80z", "x y z "},
        {"end\xE2\x80", "end "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        words_are(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    }
    words_are("a\0b", 3, "a b ");
    /* a long text: the list grows in the middle of it */
    CKVC_AUTO_FREE char *text = malloc(60001), *want = malloc(60001);
    for (int i = 0; i < 20000; i++) {
        memcpy(text + 3 * i, "Ab-", 4);
        memcpy(want + 3 * i, "ab ", 4);
    }
    words_are(text, 60000, want);
}

/* ---- JSON strings ---- */
static ckvc_status collect(void *ctx, const json_leaf *leaf, ckvc_err *err) {
    (void)err;
    ckvc_buffer *b = ctx;
    ckvc_buffer_printf(b, "%s%zu%s:", leaf->field, leaf->depth, leaf->is_string ? "" : "!");
    for (size_t i = 0; i < leaf->n; i++) {
        ckvc_buffer_u8(b, leaf->text[i] ? (uint8_t)leaf->text[i] : '0');
    }
    ckvc_buffer_text(b, ";");
    return CKVC_OK;
}

static ckvc_status scan(const char *text, size_t n, ckvc_buffer *got) {
    CKVC_AUTO(json_scratch_fini) json_scratch scratch = {0};
    CKVC_AUTO_FREE char *exact = exactly(text, n);
    ckvc_err err = {0};
    ckvc_status st = json_strings_scan(exact, n, "x", &scratch, collect, got, &err);
    if (st != CKVC_OK) { assert_non_null(strstr(err.text, "x: byte ")); }
    return st;
}

TEST(json_strings) {
    static const char *const good[][2] = {
        {"{\"a\":\"x\",\"b\":[1,\"y\",{\"c\":\"z\"}],\"n\":-1.5e3}",
         "a1:x;b1!:[;b2:y;b3:z;n1!:-1.5e3;"},
        {" { } ", ""},
        {"[]", ""},
        {"\"plain\"", "0:plain;"},
        {"{\"a\":\"\\u0041\\ud83d\\ude00\\ud800 \\\\\\n\\u0000\"}",
         "a1:A\xF0\x9F\x98\x80\xEF\xBF\xBD \\\n0;"},
        {"{\"\\u0069d\":NaN,\"x\":{\"id\":7}}", "id1!:NaN;x1!:{;"},
        {"{\"a\":\"1\",\"a\":\"2\"}", "a1:1;a1:2;"},
        {"{\"a\":\"\xFF\"}", "a1:\xFF;"},
    };
    static const char bad[] =
        "\n{\n}\n[1 2]\n{a:1}\n[1,]\n[,]\n\"cut\n\"\\\n{} {}\n[1}\n'a'\n{\"a\"}\n{\"a\":}\n"
        "{\"a\":1,}\n\"\\u12\n\"\\ud8\"\n\"\\x\"\n{\"a\":\"b\"\n{\"a\":1]\n"
        "{\"a\" \"b\"}\n[\"a\" : 1]\n{\"a\":1 \"b\":2}\n[\"\\u00g0\"]\n";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer got = {0};
        OK(scan(good[i][0], strlen(good[i][0]), &got));
        assert_string_equal(got.data ? (char *)got.data : "", good[i][1]);
    }
    for (const char *p = bad, *end; *p; p = end + 1) { /* a line each, the first one empty */
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer got = {0};
        end = strchr(p, '\n');
        if (scan(p, (size_t)(end - p), &got) != CKVC_E_DATA) { fail_msg("accepted: %s", p); }
    }
    char deep[2 * JSON_STRINGS_MAX_DEPTH + 2];
    memset(deep, '[', JSON_STRINGS_MAX_DEPTH + 1);
    memset(deep + JSON_STRINGS_MAX_DEPTH + 1, ']', JSON_STRINGS_MAX_DEPTH + 1);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer got = {0};
    OK(scan(deep + 1, 2 * JSON_STRINGS_MAX_DEPTH, &got));
    assert_int_equal(scan(deep, sizeof deep, &got), CKVC_E_DATA);
}

/* Cut and changed lines: an answer, no crash (the sanitizers look on). */
TEST(json_noise) {
    const char line[] =
        "{\"id\":\"a\\u00e9\",\"t\":[\"x\\\\y\",{\"k\":\"\\ud83d\\ude00\"},null,1e5],\"u\":{}}";
    ckvc_rng rng = rng_of(11, 0, 0);
    for (int round = 0; round < 20000; round++) {
        char text[sizeof line];
        memcpy(text, line, sizeof line);
        size_t n = 1 + ckvc_rng_below(&rng, sizeof line - 1);
        for (int k = 0; k < 3; k++) {
            text[ckvc_rng_below(&rng, n)] = "\"\\{}[]:,u0\xFF\0x"[ckvc_rng_below(&rng, 13)];
        }
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer got = {0};
        ckvc_status st = scan(text, n, &got);
        assert_true(st == CKVC_OK || st == CKVC_E_DATA);
    }
}

/* ---- spans and near-duplicates against brute force ---- */
static void random_words(ckvc_rng *rng, unsigned vocabulary, size_t n, word_list *w) {
    char word[16];
    for (size_t i = 0; i < n; i++) {
        int size = snprintf(word, sizeof word, "w%u ", (unsigned)ckvc_rng_below(rng, vocabulary));
        OK(words_append(w, word, (size_t)size, NULL));
    }
}

TEST(spans_brute_force) {
    ckvc_rng rng = rng_of(3, 0, 0);
    size_t n_spans = 0;
    for (int round = 0; round < 60; round++) {
        enum { TEXTS = 6 };
        unsigned vocabulary = round % 3 ? 2 : 3; /* few words: 13 in a row do come back */
        CKVC_AUTO(words_fini) word_list w = {0}, text = {0};
        leak_text texts[TEXTS];
        for (uint32_t t = 0; t < TEXTS; t++) {
            size_t first = w.n;
            random_words(&rng, vocabulary, ckvc_rng_below(&rng, 200), &w);
            texts[t] = (leak_text){(uint32_t)first, (uint32_t)(w.n - first), t / 2};
        }
        random_words(&rng, vocabulary, 300, &text);
        if (round % 2) { /* a copy of the end of one text */
            leak_text t = texts[ckvc_rng_below(&rng, TEXTS)];
            size_t k = t.count / 2, begin = w.begin[t.first + k];
            if (t.count) {
                OK(words_append(&text, w.bytes + begin, w.begin[t.first + t.count] - begin, NULL));
            }
        }
        leak_index *x = leak_index_create(&w, texts, TEXTS);
        uint64_t *grams = malloc((text.n + 1) * sizeof *grams);
        words_gram_hashes(&text, 0, text.n, LEAK_GRAM, grams);
        bool *covered = calloc(text.n, 1), touched[TEXTS / 2] = {false},
             want_touched[TEXTS / 2] = {false};
        leak_span s;
        for (size_t from = 0; leak_next(x, &text, grams, &from, &s); n_spans++) {
            assert_true(s.n >= LEAK_GRAM && words_equal(&w, s.place, &text, s.at, s.n));
            for (size_t k = 0; k + LEAK_GRAM <= s.n; k++) {
                assert_false(covered[s.at + k]); /* each N-gram in one span */
                covered[s.at + k] = true;
            }
        }
        for (size_t i = 0; i + LEAK_GRAM <= text.n; i++) {
            bool found = false;
            for (int t = 0; t < TEXTS; t++) {
                for (uint32_t k = 0; k + LEAK_GRAM <= texts[t].count; k++) {
                    if (words_equal(&w, texts[t].first + k, &text, i, LEAK_GRAM)) {
                        found = want_touched[texts[t].owner] = true;
                    }
                }
            }
            assert_int_equal(covered[i], found);
        }
        leak_touched(x, touched);
        assert_memory_equal(touched, want_touched, sizeof touched);
        leak_forget(x);
        memset(touched, 0, sizeof touched);
        leak_touched(x, touched);
        assert_false(touched[0] || touched[1] || touched[2]);
        free(grams), free(covered);
        leak_index_free(x);
    }
    assert_true(n_spans > 50);
}

/* Some words of a list. */
typedef struct part {
    const word_list *w;
    size_t first, n;
} part;

/* Whether one of the first n of a's shingles is b's i-th. */
static bool has_shingle(part a, size_t n, part b, size_t i) {
    bool has = false;
    for (size_t k = 0; k < n && k + NEAR_SHINGLE <= a.n; k++) {
        has |= words_equal(a.w, a.first + k, b.w, b.first + i, NEAR_SHINGLE);
    }
    return has;
}

/* How many different shingles a has, and how many of them b has, too. */
static size_t shingles(part a, part b, size_t *both) {
    size_t n = 0;
    *both = 0;
    for (size_t i = 0; i + NEAR_SHINGLE <= a.n; i++) {
        if (has_shingle(a, i, a, i)) { continue; }
        n++;
        *both += has_shingle(b, b.n, a, i);
    }
    return n;
}

static double brute_jaccard(part a, part b) {
    size_t both;
    const size_t all = shingles(b, a, &both) + shingles(a, b, &both) - both;
    return all ? (double)both / (double)all : 0;
}

/* The likeness of the nearest of n texts. */
static double brute_best(part a, const part *texts, int n) {
    double best = 0;
    for (int k = 0; k < n; k++) { best = fmax(best, brute_jaccard(a, texts[k])); }
    return best;
}

TEST(near_brute_force) {
    ckvc_rng rng = rng_of(4, 0, 0);
    static const double thresholds[] = {0.2, 0.5, 0.8, 1.0};
    size_t n_near = 0, n_far = 0;
    for (int round = 0; round < 80; round++) {
        enum { TEXTS = 10 };
        double t = thresholds[round % 4];
        part texts[TEXTS];
        CKVC_AUTO(words_fini) word_list w = {0}, text = {0};
        near_index *x = near_index_create(t);
        for (int i = 0; i < TEXTS; i++) {
            texts[i] = (part){&w, w.n, 0};
            if (i && ckvc_rng_below(&rng, 2)) { /* an earlier text with some words changed */
                const part from = texts[ckvc_rng_below(&rng, (uint64_t)i)];
                unsigned changes = (unsigned)ckvc_rng_below(&rng, 8);
                for (size_t k = 0; k < from.n; k++) {
                    if (ckvc_rng_below(&rng, 64) < changes) {
                        random_words(&rng, 1000, 1, &w);
                    } else {
                        char word[16]; /* w may move */
                        size_t b = w.begin[from.first + k], n = w.begin[from.first + k + 1] - b;
                        OK(words_append(&w, memcpy(word, w.bytes + b, n), n, NULL));
                    }
                }
            } else {
                random_words(&rng, round % 5 ? 1000 : 3, ckvc_rng_below(&rng, 60), &w);
            }
            texts[i].n = w.n - texts[i].first;
            OK(near_index_add(x, &w, texts[i].first, texts[i].n, NULL));
        }
        near_index_build(x);
        for (int i = 0; i < TEXTS; i++) {
            near_match match;
            const bool found = near_find_earlier(x, (size_t)i, &match);
            assert_int_equal(found, brute_best(texts[i], texts, i) >= t);
            if (found) {
                assert_true(match.text < (size_t)i);
                assert_float_equal(match.jaccard, brute_jaccard(texts[i], texts[match.text]),
                                   1e-12);
            }
            n_near += found;
            n_far += !found;
            /* as a foreign text, with words of its own in front */
            words_clear(&text);
            random_words(&rng, 1000000, ckvc_rng_below(&rng, 20), &text);
            const size_t begin = w.begin[texts[i].first];
            OK(words_append(&text, w.bytes + begin, w.begin[texts[i].first + texts[i].n] - begin,
                            NULL));
            assert_int_equal(near_find(x, &text, &match),
                             brute_best((part){&text, 0, text.n}, texts, TEXTS) >= t);
        }
        near_index_free(x);
    }
    assert_true(n_near > 50 && n_far > 50);
}

/* ---- whole files ---- */
#define TWELVE   "one two three four five six seven eight nine ten eleven twelve"
#define THIRTEEN "{\"id\":\"a\",\"text\":\"" TWELVE " thirteen\"}\n"

static manifest *m; /* what the next checks are of */

static void of_manifest(const char *text) {
    manifest_free(ckvc_take(&m));
    OK(manifest_read(put_text("m.jsonl", text), &m, &err));
}

static double near = 0.5;

static leak_result r; /* the last check's, or nothing */

static ckvc_status check(const char *path, const bool *held_out) {
    static const bool none[16];
    const leak_options o = {
        .near = near, .held_out = held_out ? held_out : none, .max_findings = 8};
    leak_result_fini(&r);
    return leak_check(m, &path, 1, &o, &r, &err);
}

static const leak_against *counts_of(const char *eval) {
    OK(check(put_text("e.jsonl", eval), NULL));
    return &r.record.against[0];
}

TEST(findings) {
    of_manifest("{\"id\":\"a\",\"text\":\"Before. " TWELVE
                " thirteen, after it.\",\"continuation\":\"in the tail " TWELVE
                " plus\"}\n{\"id\":\"b\",\"text\":\"something else entirely is said "
                "in this one prompt\"}\n");
    near = 1;
    const leak_against *a = counts_of("{\"_id\":\"q1\",\"context\":\"x " TWELVE "\"}\n");
    assert_int_equal(a->spans, 0); /* twelve are not thirteen */
    assert_int_equal(a->lines, 1);
    /* Another case, spacing and punctuation; nested; the span goes on to its end. */
    a = counts_of("{\"_id\":\"q1\",\"d\":{\"turns\":[\"nothing\",\"ONE two\\n\\nthree-four five "
                  "six seven EIGHT nine ten eleven twelve"
                  " thirteen after other\"]}}\n\n[\"tail one\", \"the tail " TWELVE "\"]\n");
    assert_true(a->spans == 2 && a->leaked_lines == 2 && a->leaked_prompts == 1);
    assert_true(r.record.leaked_prompts == 1 && r.n_findings == 2);
    assert_int_equal(r.findings[0].n_words, 14);
    assert_string_equal(r.findings[0].text, TWELVE " thirteen after");
    assert_string_equal(r.findings[0].id, "q1");
    assert_string_equal(r.findings[0].field, "d");
    assert_true(r.findings[0].line == 1 && r.findings[1].line == 3);
    assert_string_equal(r.findings[1].entry->id, "a");
    assert_true(r.shares[0] && !r.shares[1]);
    near = 0.5;
    /* Near, without thirteen in a row; an id. */
    a = counts_of("{\"id\":\"b\",\"q\":\"something else entirely is said in this one "
                  "thing\"}\n{\"id\":7,\"q\":\"no\"}\n");
    assert_true(a->near == 1 && a->ids == 1 && a->spans == 0 && r.n_findings == 2);
    /* Near within the manifest; a span between its own prompts is no finding. */
    of_manifest("{\"id\":\"a\",\"text\":\"" TWELVE " x\"}\n{\"id\":\"b\",\"text\":\"" TWELVE
                " y\"}\n");
    a = counts_of("{\"id\":\"z\"}\n");
    assert_int_equal(r.record.near_within, 1);
    assert_true(!r.shares[0] && r.shares[1]);
    assert_true(r.findings[0].kind == LEAK_WITHIN && r.findings[0].line == 1);
}

/* Twelve characters are not thirteen, whatever stands between; few changes are near. */
TEST(without_spaces) {
    of_manifest("{\"id\":\"zh\",\"text\":\"\u6C38\u548C\u4E5D\u5E74\uFF0C\u5C81"
                "\u5728\u7678\u4E11\uFF0C\u66AE\u6625\u4E4B\u521D\uFF0C\u4F1A"
                "\u4E8E\u4F1A\u7A3D\u5C71\u9634\u4E4B\u5170\u4EAD\u3002\"}\n"
                "{\"id\":\"en\",\"text\":\"" TWELVE "\"}\n");
    static const struct {
        const char *eval;
        uint64_t spans, near;
    } cases[] = {
        {"{\"x\":\"\u6C38\u548C\u4E5D\u5E74\u5C81\u5728\u7678\u4E11\u66AE\u6625\u4E4B\u521D"
         "\u65E5\"}\n",
         0, 0},
        {"{\"x\":\"\u6C38\u548C\u4E5D\u5E74\u5C81\u5728\u7678\u4E11\u66AE\u6625\u4E4B\u65E5"
         "\u4F1A\u4E8E\u4F1A\u7A3D\u5C71\u9634\u4E4B\u5170\u4EAD\"}\n",
         0, 1},
        {"{\"x\":\"\u66F0\uFF1A\u6C38\u548C\u4E5D\u5E74\u5C81\u5728 \u7678\u4E11\u3000\u66AE"
         "\u6625\u4E4B\u521D\\n\u4F1A\u4E8E\u4EAD\"}\n",
         1, 1}};
    near = 0.5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const leak_against *a = counts_of(cases[i].eval);
        assert_true(a->spans == cases[i].spans && a->near == cases[i].near);
        if (a->spans) {
            assert_int_equal(r.findings[0].n_words, 14);
            assert_string_equal(r.findings[0].entry->id, "zh");
        }
    }
}

TEST(own_file) {
    const char text[] = THIRTEEN
        "{\"id\":\"b\",\"text\":\"and " TWELVE
        " thirteen\"}\n{\"id\":\"c\",\"text\":\"quite different words of another kind stand here "
        "alone\"}\n";
    of_manifest(text);
    const char *same = put_text("copy.jsonl", text);
    const bool held_out[3] = {false, true, true};
    FAILS(check(same, NULL), CKVC_E_USAGE);
    OK(check(same, held_out));
    assert_true(r.record.prompts == 1 && r.record.held_out == 2);
    const leak_against *a = r.record.against; /* the held-out ones are its lines */
    assert_true(a->lines == 2 && a->spans == 1 && a->ids == 0);
    assert_true(r.shares[0] && !r.shares[1] && !r.shares[2]); /* held-out ones are not compared */
}

TEST(references) {
    of_manifest(THIRTEEN);
    put_text("t.txt", "and " TWELVE " thirteen");
    const leak_against *a = counts_of("{\"id\":\"x\",\"file\":\"t.txt\"}\n");
    assert_int_equal(a->spans, 1);
    assert_string_equal(r.findings[0].field, "file");
    /* Of another shape "file" is a word like any other, and numbers are no prompts. */
    a = counts_of(
        "{\"id\":\"x\",\"file\":\"none.txt\",\"repo\":1}\n{\"tokens\":[1,2],\"label\":\"x\"}\n");
    assert_int_equal(a->lines, 2);
    const char *tokens = put_text("e.jsonl", "{\"id\":\"x\",\"tokens\":[1,2,3]}\n");
    FAILS(check(tokens, NULL), CKVC_E_USAGE);
    assert_true(strstr(err.text, "e.jsonl:1:") && strstr(err.text, "--model"));
}

TEST(hostile_files) {
    of_manifest(THIRTEEN);
    const leak_against *a =
        counts_of("\xEF\xBB\xBF{\"t\":\"\xFF\xFE one\\u0000 \\ud800\"}\r\n \n{\"t\":\"\xC3" TWELVE
                  "\xE2 thirteen\"}");
    assert_int_equal(a->lines, 2);
    assert_int_equal(a->spans, 1);
    static const struct {
        const char *text, *says;
        size_t n;
    } bad[] = {{"", "no lines", 0},
               {"\n\n", "no lines", 2},
               {"{\"a\":1}\n{\"a\":\n", "bad.jsonl:2: byte", 14},
               {"not json\n", "bad.jsonl:1:", 9},
               {"{\"a\":\"\0\"}\0\n", "bad.jsonl:1:", 11},
               {"\x1f\x8b\x08\0\0\0\0\0\0\3garbage!", "gzip", 18}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_bytes(in_temp_folder("bad.jsonl"), bad[i].text, bad[i].n);
        SAYS(check(in_temp_folder("bad.jsonl"), NULL), CKVC_E_DATA, bad[i].says);
    }
    FAILS(check(temp_folder, NULL), CKVC_E_NOINPUT);
    FAILS(check("/dev/zero", NULL), CKVC_E_NOINPUT);
    /* A line without end, packed small: refused at the cap. */
    gzFile z = gzopen(in_temp_folder("long.gz"), "wb1");
    static char text[1 << 20];
    memset(text, 'x', sizeof text);
    for (int i = 0; i < (LINE_STREAM_MAX_BYTES >> 20) + 2; i++) {
        assert_int_equal(gzwrite(z, text, sizeof text), sizeof text);
    }
    gzclose(z);
    SAYS(check(in_temp_folder("long.gz"), NULL), CKVC_E_DATA, "long.gz:1: line of more than");
}

/* Two gzip members, many lines: the same findings as unpacked; the hash is of the packed bytes. */
TEST(packed) {
    of_manifest(THIRTEEN);
    for (int member = 0; member < 2; member++) {
        gzFile z = gzopen(in_temp_folder("e.gz"), member ? "ab" : "wb");
        for (int i = 0; i < 5000; i++) {
            gzprintf(z, "{\"id\":\"q%d\",\"x\":\"filler %d\"}\n", i, i);
        }
        gzputs(z, "{\"x\":\"" TWELVE " thirteen\"}\n");
        gzclose(z);
    }
    char hash[CKVC_SHA256_HEX];
    struct stat about;
    OK(check(in_temp_folder("e.gz"), NULL));
    const leak_against *a = r.record.against;
    assert_true(a->lines == 10002 && a->spans == 2 && r.findings[0].line == 5001);
    OK(ckvc_sha256_file(in_temp_folder("e.gz"), hash, NULL));
    assert_int_equal(stat(in_temp_folder("e.gz"), &about), 0);
    assert_string_equal(a->sha256, hash);
    assert_int_equal(a->bytes, about.st_size);
    /* The record through JSON and back. */
    json_auto_t *o = leak_record_json(&r.record);
    leak_record back;
    OK(leak_record_parse(o, "r", &back, NULL));
    assert_string_equal(back.manifest, r.record.manifest);
    assert_int_equal(back.against[0].spans, 2);
    assert_non_null(leak_record_find(&back, hash));
    assert_null(leak_record_find(&back, back.manifest));
    leak_record_fini(&back);
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) { /* every member is needed */
        json_auto_t *less = json_copy(o);
        json_object_del(less, key);
        SAYS(leak_record_parse(less, "r", &back, &err), CKVC_E_DATA, key);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
