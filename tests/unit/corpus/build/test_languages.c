/* Manifests from text that is not English: where scripts without spaces are cut, what is prose in
 * them, and whole builds from made-up text of six scripts, with and without a tokenizer. */
#include <sys/stat.h>

#include "corpus/build/retrieval.h"
#include "corpus/texts.h"
#include "lib/base/utf8.h"
#include "tests/unit/corpus/build/made.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/temp_folder.h"

/* ---- cuts ---- */
/* want: the text with | where a good cut stands and / where a fine one does. */
static void cuts_are(const char *want) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0}, got = {0};
    for (const char *p = want; *p; p++) {
        if (*p != '|' && *p != '/') { ckvc_buffer_u8(&text, (uint8_t)*p); }
    }
    const char *bytes = (char *)text.data;
    for (size_t at = 0; at < text.size; at++) {
        static const char *const marks[] = {[CUT_NONE] = "", [CUT_FINE] = "/", [CUT_GOOD] = "|"};
        ckvc_buffer_text(&got, marks[cut_at(bytes, text.size, at)]);
        ckvc_buffer_u8(&got, text.data[at]);
    }
    assert_string_equal((char *)got.data, want);
}

TEST(cuts) {
    cuts_are("Plain| words,| (a.b)| x-y|  and|\n\nmore,|\twhere| spaces|  are");
    cuts_are("\u4ED6/\u8BF4\uFF1A|\u201C\u597D\u3002\u201D|\u7136/\u540E\uFF0C|\u8D70/\u4E86");
    cuts_are("\u4F60/\u597D,|\u4E16/\u754C.|\u3000\u5B83/\uFF08\u89C1/\u56FE\uFF09|\u7684");
    cuts_are("\u7528/Linux/\u7CFB/\u7EDF|\n\u65B0/\u884C| 3.5| \u500D");
    cuts_are(
        "\u30B9\u30FC/\u30D1\u30FC/\u306F\u3001|\u4EBA\u3005/\u306E/\u300C\u58F0\u300D|\u3060");
    cuts_are("\u0645\u0631\u062D\u0628\u0627\u060C| \u0643\u064A\u0641\u061F| \u0646\u0639\u0645");
    cuts_are("\u0E40\u0E1B\u0E47/\u0E19/\u0E01\u0E33"); /* a vowel in front, a mark above, am */
    cuts_are("\uD55C\uAD6D\uC5B4| \uBB38\uC7A5");
}

/* Good cuts within 256 bytes, else fine ones; never inside of a character. */
TEST(nearest_cut) {
    char text[1200] = "";
    for (int i = 0; i < 300; i++) { strcat(text, i == 20 ? "\u3002" : "\u6C34"); }
    const size_t n = strlen(text);
    assert_int_equal(n, 900);
    assert_true(cut_before(text, n, 200) == 63 && cut_before(text, n, 800) == 798);
    assert_int_equal(cut_before(text, n, 62), 57); /* none good: not in front of a full stop */
    assert_true(cut_after(text, n, 10) == 63 && cut_after(text, n, 100) == 102);
    assert_int_equal(cut_after(text, n, 700), 900);
    assert_int_equal(cut_after_fine(text, n, 10), 12);
    assert_int_equal(cut_paragraph(text, n, 1000), n);
    assert_int_equal(cut_paragraph(text, n, 500), 63);
    assert_int_equal(cut_paragraph("a\n\nb", 4, 2), 1);
    assert_int_equal(cut_paragraph("abc\nb\n\n", 7, 2), 3);
}

TEST(prose) {
    static const struct {
        const char *text;
        bool is;
    } cases[] = {
        {"Some words, as they stand in books: quite plain.", true},
        {"1 | 2 | 3\n4 | 5 | 6\n", false},
        {"\u4ED6\u8BF4\uFF1A\u201C\u597D\u3002\u201D\u7136\u540E\u8D70\u4E86\uFF0C\u6CA1\u6709",
         true},
        {"\u8868\u2502\uFF11\uFF12\u2502\uFF13\uFF14\u2502\u4E00\n\u2500\u2500\u2500\n", false},
        {"\uFF11\u3000\u7AE0\n\uFF12\u3000\u7AE0\n\uFF13\u3000\u7AE0\n", false},
        {"\u0628\u0650\u0633\u0652\u0645\u0650 \u0627\u0644\u0644\u0651\u064E\u0647\u0650", true},
        {"\u0E01\u0E33\u0E25\u0E31\u0E07\u0E17\u0E33\u0E07\u0E32\u0E19", true},
        {"\u0661\u0662 \u0663\u0664 \u0665\u0666\n", false},
        {"\u2026\u2026\u2026\u2026\u2026\u4E00\u2026\u2026\u2026\u2026", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_prose(cases[i].text, strlen(cases[i].text), false) != cases[i].is) {
            fail_msg("%s", cases[i].text);
        }
    }
    /* Greek among ASCII is a formula's. */
    assert_false(is_prose("\u03B1 = \u03B2 + \u03B3 x", 14, true));
    assert_true(is_prose("plain words", 11, true));
    /* A line of 30,000 letters is none in English; sentences in one line are, in Chinese. */
    CKVC_AUTO_FREE char *line = malloc(100000);
    memset(line, 'x', 30000);
    assert_false(is_prose(line, 30000, false));
    for (int i = 0; i < 30000; i++) { memcpy(line + 3 * i, i % 20 == 19 ? "\u3002" : "\u6C34", 3); }
    assert_true(is_prose(line, 90000, false));
}

/* ---- builds ---- */
typedef struct language {
    const char *name;
    int32_t first, n_letters; /* code points of its letters */
    const char *space, *comma, *stop;
} language;

static const language languages[] = {
    {"zh", 0x4E00, 800, "", "\uFF0C", "\u3002"}, {"ja", 0x3041, 80, "", "\u3001", "\u3002"},
    {"ar", 0x0627, 20, " ", "\u060C ", ". "},    {"th", 0x0E01, 46, "", " ", " "},
    {"ru", 0x0430, 32, " ", ", ", ". "},         {"ko", 0xAC00, 2000, " ", ", ", ".\n"},
};

/* All of it in one line, where the language has no line ends of its own. */
static void write_text(const language *l, int file, int sentences) {
    char name[32];
    ckvc_rng rng = rng_of(9, (uint64_t)file, 0);
    snprintf(name, sizeof name, "%s/%d.txt", l->name, file);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    for (int s = 0; s < sentences; s++) {
        for (uint64_t word = 0, n = 6 + ckvc_rng_below(&rng, 8); word < n; word++) {
            for (uint64_t k = 1 + ckvc_rng_below(&rng, 6); k > 0; k--) {
                utf8proc_uint8_t utf8[4];
                const int32_t c = l->first + (int32_t)ckvc_rng_below(&rng, (uint64_t)l->n_letters);
                ckvc_buffer_append(&text, utf8, (size_t)utf8proc_encode_char(c, utf8));
            }
            ckvc_buffer_text(&text, word + 1 == n ? l->stop : word % 3 == 2 ? l->comma : l->space);
        }
    }
    put_text(name, (char *)text.data);
}

static void builds(const language *l, const tokenizer *tok, int64_t min_length, int64_t max_length,
                   double retrieval) {
    const build_options o = build_of(tok, 20, min_length, max_length, 30, retrieval, 2);
    CKVC_AUTO(corpus_fini) corpus c = {0};
    CKVC_AUTO(built_manifest_fini) built_manifest m;
    OK(corpus_add(&c, l->name, in_temp_folder(l->name), &err));
    OK(manifest_build(&c, &o, &m, &err));
    assert_true(c.n_documents > 3); /* a long text in one line is cut into parts, too */
    assert_int_equal(m.n_entries, 20);
    assert_true(m.shortest >= min_length && m.longest <= max_length);
    for (size_t i = 0; i < m.n_entries; i++) {
        const manifest_entry *e = &m.entries[i];
        int64_t length;
        assert_int_equal(ckvc_utf8_check(e->text, e->text_size), e->text_size);
        assert_int_equal(ckvc_utf8_check(e->continuation, e->continuation_size),
                         e->continuation_size);
        if (strcmp(e->source, "facts") == 0) { continue; }
        OK(text_length(tok, e->continuation, e->continuation_size, false, &length, &err));
        assert_in_range(length, 30, 150);
        only_document(&c, e);
    }
}

TEST(every_language_builds) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    OK(load_tokenizer("models/ckvc-tiny-8l", &tok, &err));
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        const language *l = &languages[i];
        assert_int_equal(mkdir(in_temp_folder(l->name), 0700), 0);
        for (int file = 0; file < 3; file++) { write_text(l, file, file == 0 ? 1200 : 300); }
        builds(l, NULL, 150, 260, 0.3);
        builds(l, tok, 250, 400, 0.3);
    }
    builds(&languages[0], NULL, 200, 200, 0); /* to the character */
}

/* Chinese clauses that begin alike: the error does not ask for letters alone. */
TEST(too_few_words) {
    const build_options o = build_of(NULL, 1, 20, 60, 10, 1, 0);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    for (int i = 0; i < 60; i++) {
        ckvc_buffer_printf(&text, "\u6211\u4EEC%d\uFF0C\u4F46\u662F\u3002", i);
    }
    CKVC_AUTO(corpus_fini) corpus c = {0};
    built_manifest m;
    OK(corpus_add(&c, "zh", put_text("few.txt", (char *)text.data), &err));
    assert_int_equal(c.n_documents, 1);
    SAYS(manifest_build(&c, &o, &m, &err), CKVC_E_DATA, "only 2 different words");
    assert_non_null(strstr(err.text, "of scripts without spaces the first two or four"));
}

/* Keys and values of retrieval prompts. */
TEST(words) {
    static const char *const cases[][2] = {
        {"plain words, (quoted) Capital w0rds ab and", "plain words quoted "},
        {"\u0441\u043B\u043E\u0432\u043E, \u0421\u043B\u043E\u0432\u0430 \u0434\u0430",
         "\u0441\u043B\u043E\u0432\u043E "},
        {"\u6211\u4EEC\u8D70\uFF0C\u4F46\u662F\u3002\u4ED6", "\u6211\u4EEC \u4F46\u662F "},
        {"\u57282\u5E74\uFF0C\u5E74\u67083\u65E5", "\u5E74\u6708 "},
        {"\u0E01\u0E33\u0E25\u0E31\u0E07\u0E17\u0E33",
         "\u0E01\u0E33\u0E25\u0E31\u0E07\u0E17\u0E33 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(vocabulary_fini) vocabulary v = {0};
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer got = {0};
        vocabulary_add(&v, cases[i][0], strlen(cases[i][0]), true);
        for (size_t k = 0; k < v.n; k++) { ckvc_buffer_printf(&got, "%s ", v.words[k]); }
        assert_string_equal(got.data ? (char *)got.data : "", cases[i][1]);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
