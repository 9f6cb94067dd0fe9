/* Building manifests: text of markup, the same bytes again, disjoint prompts, right answers. */
#include <sys/stat.h>
#include <zlib.h>

#include "corpus/build/convert.h"
#include "corpus/leaks/manifest_check.h"
#include "corpus/build/retrieval.h"
#include "tests/unit/corpus/build/made.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/temp_folder.h"

/* ---- converters ---- */
static void converts(bool rst, const char *from, const char *want) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer out = {0};
    text_convert(rst, from, strlen(from), &out);
    if (!out.data || strcmp((char *)out.data, want) != 0) {
        fail_msg("got \"%s\", want \"%s\"", out.data ? (char *)out.data : "", want);
    }
}

TEST(texts) {
    converts(true, "Title\n=====\n\n.. note:: x\n\n``code`` and *word*\n",
             "Title\n\ncode and *word*");
    /* Not mostly ASCII: its typographic characters stay. What was struck over is gone whole. */
    converts(false, "\u4ED6\u8BF4\uFF1A\u201C\u597D\u201D\u2014\u2014\u00A0\uFEFFx\u597D\b\u597D",
             "\u4ED6\u8BF4\uFF1A\u201C\u597D\u201D\u2014\u2014 x\u597D");
    converts(false, "B\bBo\bol\bld  \r\n\n\n\n\xE2\x80\x9Cq\xE2\x80\x9D\xC2\xA0x\x01\n\n",
             "Bold\n\n\"q\" x");
    /* Blanks that were struck over are no blanks at the end of a line any more. */
    converts(false, "abcd  \b\b\b\b\b \nx", "a\nx");
    static const struct {
        const char *text;
        bool is;
    } cases[] = {{"  <!DOCTYPE HTML>", true}, {"<html>", true},  {"<?xml?>\n<html>", true},
                 {".\\\" c\n.TH X 1", true},  {".TH X 1", true}, {"a\n\x1f\nFile: a.info", true},
                 {"a <html> page", false},    {"", false},       {"x\n.SH NAME\n", false},
                 {"<?xml?><a/>", false},      {".", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text_is_markup(cases[i].text, strlen(cases[i].text)), cases[i].is);
    }
}

/* Arbitrary bytes must convert without trouble (the sanitizers look on). */
TEST(noise) {
    ckvc_rng rng = rng_of(5, 0, 0);
    static const char *const bits[] = {
        "<",       ">",   "</",       "<pre", "&",    "&#",     ";",  "\x1f\n", "*note ",
        "* Menu:", ".de", "..",       "\\f",  "\\(",  "\\s+",   "\b", "\n",     " ",
        "::",      "`",   "\xE2\x80", "x",    "<!--", ".SH \"", "'"};
    for (int round = 0; round < 3000; round++) {
        char text[512] = "";
        for (int i = 0; i < 30; i++) {
            strcat(text, bits[ckvc_rng_below(&rng, sizeof bits / sizeof *bits)]);
        }
        for (int rst = 0; rst < 2; rst++) {
            CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer out = {0};
            text_convert(rst, text, strlen(text), &out);
            assert_int_equal(strlen((char *)out.data), out.size);
        }
    }
}

/* ---- a small corpus: sentences of made-up words, no two paragraphs alike but one ---- */
static void put_gz(const char *name, const char *text) {
    gzFile f = gzopen(in_temp_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static const char repeated[] = "This very paragraph stands at the front of every document of the "
                               "corpus, as licences do, and must be kept only once.";

static char *story(uint64_t number, int paragraphs) {
    static const char *const parts[] = {"ka",  "lo", "min", "ter", "sa", "ru",
                                        "vel", "do", "pi",  "ost", "an", "ge"};
    ckvc_buffer out = {0};
    ckvc_rng rng = rng_of(77, number, 0);
    ckvc_buffer_text(&out, repeated);
    for (int p = 0; p < paragraphs; p++) {
        ckvc_buffer_text(&out, "\n\n");
        for (int w = 0; w < 90; w++) {
            ckvc_buffer_text(&out, w ? w % 12 ? " " : "\n" : "The ");
            for (uint64_t k = 2 + ckvc_rng_below(&rng, 2); k > 0; k--) {
                ckvc_buffer_text(&out, parts[ckvc_rng_below(&rng, 12)]);
            }
        }
        ckvc_buffer_text(&out, ".");
    }
    return (char *)out.data;
}

enum { FILES = 12 };

static int make_corpus(void **state) {
    if (temp_folder_make(state) || mkdir(in_temp_folder("sub"), 0777)) { return -1; }
    for (int i = 0; i < FILES; i++) {
        /* the first is long enough to be cut into parts */
        char name[32], *text = story((uint64_t)i, i == 0 ? 150 : 12);
        static const char *const names[] = {"sub/%02d.txt", "%02d.txt.gz", "%02d.txt"};
        snprintf(name, sizeof name, names[i % 3], i);
        i % 3 == 1 ? put_gz(name, text) : (void)put_text(name, text);
        free(text);
    }
    put_text("tiny.txt", "too short");
    put_text("picture.png", "not looked at");
    CKVC_AUTO(ckvc_buffer_fini)
    ckvc_buffer garbled = {0}; /* U+FFFD and a character of private use */
    for (int i = 0; i < 300; i++) { ckvc_buffer_text(&garbled, "\xEF\xBF\xBD\xEE\x80\x80"); }
    put_text("garbled.txt", (char *)garbled.data);
    return 0;
}

static void read_corpus(corpus *c) {
    *c = (corpus){0};
    OK(corpus_add(c, "story", temp_folder, &err));
}

TEST(documents) {
    CKVC_AUTO(corpus_fini) corpus c;
    read_corpus(&c);
    assert_true(c.n_documents > FILES); /* parts */
    assert_int_equal(c.n_files, FILES + 2);
    assert_true(c.left_out[LEFT_SHORT].n == 1 && c.left_out[LEFT_GARBLED].n == 1);
    assert_string_equal(c.left_out[LEFT_SHORT].first, "tiny.txt");
    assert_string_equal(c.left_out[LEFT_GARBLED].first, "garbled.txt");
    assert_true(c.left_out[LEFT_BINARY].n == 0 && !c.left_out[LEFT_BINARY].first);
    assert_int_equal(c.n_repeated_paragraphs, FILES - 1);
    int seen = 0;
    for (size_t i = 0; i < c.n_documents; i++) {
        const corpus_document *d = &c.documents[i];
        seen += strstr(d->text, "stands at the front") != NULL;
        assert_true(d->size >= CORPUS_MIN_BYTES);
        assert_int_equal(strlen(d->text), d->size);
        assert_true(i == 0 || strcmp(d[-1].name, d->name) != 0);
        const size_t n = strcspn(d->name, "#");
        assert_true(strncmp(d->name, d->full_name, n) == 0 && !d->full_name[n]);
    }
    assert_int_equal(seen, 1);
}

TEST(damaged_gzip) {
    const char *path = put_text("bad.gz", "\x1f\x8b\x08 not gzip at all");
    corpus c = {0};
    SAYS(corpus_add(&c, "x", path, &err), CKVC_E_DATA, "damaged gzip");
    corpus_fini(&c);
    unlink(path);
    FAILS(corpus_add(&c, "x", path, &err), CKVC_E_NOINPUT);
    corpus_fini(&c);
}

static tokenizer *embedded(void) {
    tokenizer *t;
    OK(load_tokenizer("models/ckvc-tiny-8l", &t, &err));
    return t;
}

/* As many prompts as there are, and some of every split, though one document has them all. */
TEST(little_text) {
    build_options o = build_of(NULL, 0, 300, 400, 100, 0, 1);
    o.splits[0].name = "heldout", o.splits[0].share = 0.2;
    o.splits[1].name = "select", o.splits[1].share = 0.01;
    o.n_splits = 2;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    static const char line[] = "Of the towns along the river, number %d is the one that every "
                               "traveller remembers, for its bridge.\n\n";
    for (int i = 0; i < 100; i++) { ckvc_buffer_printf(&text, line, i); }
    CKVC_AUTO(corpus_fini) corpus c = {0};
    OK(corpus_add(&c, "little", put_text("little.txt", (char *)text.data), &err));
    assert_int_equal(c.n_documents, 1);
    built_manifest m;
    OK(manifest_build(&c, &o, &m, &err));
    assert_true(m.dealt && m.n_entries > 9 && m.n_entries < BUILD_PROMPTS);
    size_t of['z'] = {0}; /* by first letters */
    for (size_t i = 0; i < m.n_entries; i++) { of[(int)m.entries[i].split[0]]++; }
    assert_int_equal(of['h'], (size_t)(0.2 * (double)m.n_entries + 0.5));
    assert_int_equal(of['s'], 1);
    built_manifest_fini(&m);
    build_options all = o; /* shares that leave none for the rest, and are no whole prompts */
    all.prompts = 10;
    all.n_splits = 4;
    for (int i = 0; i < 4; i++) {
        all.splits[i].name = &"a\0b\0c\0d"[2 * i];
        all.splits[i].share = 0.25;
    }
    OK(manifest_build(&c, &all, &m, &err));
    for (size_t i = 0; i < m.n_entries; i++) { of[(int)m.entries[i].split[0]]++; }
    for (int i = 0; i < 4; i++) { assert_int_equal(of['a' + i], i % 2 ? 2 : 3); }
    built_manifest_fini(&m);
    o.prompts = 2; /* for three splits */
    SAYS(manifest_build(&c, &o, &m, &err), CKVC_E_DATA, "2 prompts are too few for 3 splits");
    o.min_length = o.max_length = 100000;
    o.prompts = 0;
    SAYS(manifest_build(&c, &o, &m, &err), CKVC_E_DATA, "text for only 0 of 100 prompts");
}

static void check_build(const tokenizer *tok) {
    int64_t unit = tok ? 1 : 4;
    build_options o = build_of(tok, 30, 120 * unit, 200 * unit, 32 * unit, 0.3, 3);
    o.splits[0].name = "heldout", o.splits[0].share = 0.4;
    o.n_splits = 1;
    CKVC_AUTO(corpus_fini) corpus c;
    built_manifest a, b;
    ckvc_buffer bytes[3] = {0}; /* the same seed twice, another one */
    read_corpus(&c);
    OK(manifest_build(&c, &o, &a, &err));
    built_manifest_write(&a, &bytes[0]);
    for (int i = 1; i < 3; i++) {
        o.seed = i < 2 ? 3 : 4;
        OK(manifest_build(&c, &o, &b, &err));
        built_manifest_write(&b, &bytes[i]);
        built_manifest_fini(&b);
        assert_int_equal(bytes[i].size == bytes[0].size &&
                             memcmp(bytes[i].data, bytes[0].data, bytes[0].size) == 0,
                         i == 1);
    }
    assert_int_equal(a.n_entries, 30);
    assert_int_equal(a.n_retrieval, 9);

    size_t heldout = 0, facts = 0;
    const char *documents[30] = {NULL};
    for (size_t i = 0; i < a.n_entries; i++) {
        const manifest_entry *e = &a.entries[i];
        heldout += strcmp(e->split, "heldout") == 0;
        if (strcmp(e->source, "facts") == 0) {
            facts++;
            continue;
        }
        /* prompt and continuation stand one behind the other in one document, in no other prompt */
        documents[i] = only_document(&c, e)->full_name;
        char start[61];
        snprintf(start, sizeof start, "%.60s", e->text);
        for (size_t k = 0; k < a.n_entries; k++) {
            if (k == i) { continue; }
            assert_null(strstr(a.entries[k].text, e->continuation));
            assert_null(strstr(a.entries[k].text, start));
        }
    }
    /* of one document, parts or not: the same name, and of no other */
    for (size_t i = 0; i < a.n_entries * a.n_entries; i++) {
        const size_t x = i / a.n_entries, y = i % a.n_entries;
        if (!documents[x] || !documents[y]) { continue; }
        assert_true((strcmp(documents[x], documents[y]) == 0) ==
                    (strcmp(a.entries[x].document, a.entries[y].document) == 0));
    }
    assert_int_equal(facts, 9);
    assert_true(heldout > 3 && heldout < 27);

    /* lengths, as the reader of the file sees them */
    const char *path = in_temp_folder("out.jsonl");
    write_bytes(path, bytes[0].data, bytes[0].size);
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    CKVC_AUTO(manifest_facts_fini) manifest_facts f;
    OK(manifest_read(path, &m, &err));
    OK(manifest_look(m, tok, NULL, o.min_length, &f, &err));
    assert_true(f.all.shortest >= o.min_length && f.all.longest <= o.max_length);
    assert_true(f.n_repeated == 0 && f.n_short == 0);
    assert_true(f.all.shortest == a.shortest && f.all.longest == a.longest);
    for (size_t i = 0; tok && i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n;
        OK(tokenizer_encode(tok, e->continuation, e->continuation_size, false, &ids, &n, &err));
        assert_true((int64_t)n >= o.continuation || strcmp(e->source, "facts") == 0);
    }
    unlink(path);

    o.prompts = 100000;
    SAYS(manifest_build(&c, &o, &b, &err), CKVC_E_DATA, "of 100000 prompts");
    built_manifest_fini(&a);
    for (int i = 0; i < 3; i++) { ckvc_buffer_fini(&bytes[i]); }
}

TEST(builds_by_characters_and_tokens) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = embedded();
    check_build(NULL);
    check_build(t);
}

/* Each length has its share of the prompts, of text and of retrieval, and `most` bounds them all
 * where the text gives more. */
TEST(lengths_take_turns) {
    build_options o = build_of(NULL, 0, 0, 0, 128, 0.5, 3);
    o.lengths[0] = 600;
    o.lengths[1] = 1500;
    o.n_lengths = 2;
    o.most = 8;
    CKVC_AUTO(corpus_fini) corpus c;
    built_manifest m;
    read_corpus(&c);
    OK(manifest_build(&c, &o, &m, &err));
    size_t short_of[2] = {0}, long_of[2] = {0}; /* by text and retrieval */
    for (size_t i = 0; i < m.n_entries; i++) {
        const manifest_entry *e = &m.entries[i];
        const bool facts = strcmp(e->source, "facts") == 0;
        assert_true(e->text_size >= 480 && e->text_size <= 1500);
        short_of[facts] += e->text_size <= 600;
        long_of[facts] += e->text_size >= 1200;
    }
    assert_int_equal(m.n_entries, 8);
    for (int k = 0; k < 2; k++) { assert_true(short_of[k] == 2 && long_of[k] == 2); }
    built_manifest_fini(&m);
}

/* Of each source's documents every split has its share, to the nearest but one. */
TEST(even_splits_of_each_source) {
    CKVC_AUTO(corpus_fini) corpus c = {0};
    for (int i = 0; i < 20; i++) { /* ten of each source */
        char name[32];
        CKVC_AUTO_FREE char *text = story((uint64_t)i, 60);
        snprintf(name, sizeof name, "even-%d.txt", i);
        OK(corpus_add(&c, i % 2 ? "x" : "y", put_text(name, text), &err));
    }
    assert_int_equal(c.n_documents, 20);
    build_options o = build_of(NULL, 20, 400, 500, 50, 0, 3);
    o.splits[0].name = "select", o.splits[0].share = 0.2;
    o.splits[1].name = "heldout", o.splits[1].share = 0.2;
    o.n_splits = 2;
    o.even_splits = true;
    built_manifest m;
    OK(manifest_build(&c, &o, &m, &err));
    int of[2][3] = {{0}};
    for (size_t i = 0; i < m.n_entries; i++) {
        const char *split = m.entries[i].split;
        of[m.entries[i].source[0] == 'y'][*split == 's' ? 0 : *split == 'h' ? 1 : 2]++;
    }
    for (int k = 0; k < 3; k++) {
        const double share = k < 2 ? 0.2 : 0.6;
        assert_true(fabs(of[0][k] - 10 * share) <= 1 && fabs(of[1][k] - 10 * share) <= 1);
    }
    built_manifest_fini(&m);
}

/* Undoes a phrasing by hand: each question has its key's value as answer, stated once. */
TEST(retrieval_answers_are_right) {
    CKVC_AUTO(vocabulary_fini) vocabulary words = {0};
    CKVC_AUTO_FREE char *text = story(1, 40);
    vocabulary_add(&words, text, strlen(text), false);
    assert_true(words.n >= RETRIEVAL_MIN_WORDS);
    bool phrasings[6] = {false};
    for (uint64_t round = 0; round < 200; round++) {
        ckvc_rng rng = rng_of(1, round, 0);
        retrieval_plan plan;
        retrieval_draw(&plan, &rng, &words, 1 + (int)(round % RETRIEVAL_MAX_FACTS));
        phrasings[plan.phrasing] = true;
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer prompt = {0}, answers = {0};
        size_t filler = strlen(text) / 4;
        while (text[filler] != ' ') { filler++; }
        retrieval_prompt(&plan, text, filler, &prompt);
        retrieval_answers(&plan, plan.n_facts, &answers);
        char *whole = malloc(prompt.size + answers.size + 1), *at;
        sprintf(whole, "%s%s", (char *)prompt.data, (char *)answers.data);
        at = whole + prompt.size;
        for (int i = 0; i < plan.n_facts; i++) {
            const char *key = plan.key[plan.asked[i]], *value = plan.value[plan.asked[i]];
            char line[160];
            static const char *const facts[] = {"The special magic number for %s is %s.\n",
                                                "\n%s: %s\n",
                                                "key %s = %s\n",
                                                "line %s: REGISTER_CONTENT is <%s>\n",
                                                "\"%s\": \"%s\",\n",
                                                "One of the values for %s is: %s.\n"};
            snprintf(line, sizeof line, facts[plan.phrasing], key, value);
            const char *text = (char *)prompt.data, *first = line + (line[0] == '\n');
            const char *stated = strncmp(text, first, strlen(first)) ? strstr(text, line) : text;
            assert_non_null(stated);
            assert_null(strstr(stated + 1, line));
            at = strstr(at, value); /* the answers come in the order of the questions */
            assert_non_null(at);
            at += strlen(value);
            for (int k = 0; k < i; k++) { assert_string_not_equal(plan.key[plan.asked[k]], key); }
        }
        free(whole);
    }
    for (int i = 0; i < 6; i++) { assert_true(phrasings[i]); }
}

/* The first question moves to the continuation, and nothing else does. */
TEST(unseen_questions_begin_the_continuation) {
    CKVC_AUTO(vocabulary_fini) vocabulary words = {0};
    CKVC_AUTO_FREE char *text = story(1, 40);
    vocabulary_add(&words, text, strlen(text), false);
    for (uint64_t round = 0; round < 50; round++) {
        ckvc_rng rng = rng_of(1, round, 0);
        retrieval_plan plan;
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer seen = {0}, rest = {0}, bare = {0}, unseen = {0};
        retrieval_draw(&plan, &rng, &words, 4);
        retrieval_prompt(&plan, text, 100, &seen);
        retrieval_answers(&plan, 3, &rest);
        ckvc_buffer_append(&seen, rest.data, rest.size);
        plan.unseen = true;
        retrieval_prompt(&plan, text, 100, &bare);
        retrieval_answers(&plan, 3, &unseen);
        assert_memory_equal(bare.data + bare.size - 5, text + 95, 5); /* it ends with the text */
        assert_true(strstr((char *)unseen.data, plan.key[plan.asked[0]]) <
                    strstr((char *)unseen.data, plan.value[plan.asked[0]]));
        assert_int_equal(seen.size, bare.size + unseen.size);
        assert_memory_equal(seen.data, bare.data, bare.size);
        assert_memory_equal(seen.data + bare.size, unseen.data, unseen.size);
    }
}

TEST(check_finds_repeats) {
    const char *path =
        put_text("r.jsonl", "{\"id\":\"a\",\"text\":\"x-y\"}\n{\"id\":\"b\",\"tokens\":[1,2]}\n"
                            "{\"id\":\"c\",\"text\":\"x-y\"}\n{\"id\":\"d\",\"tokens\":[1,2]}\n"
                            "{\"id\":\"e\",\"tokens\":[9999]}\n");
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    manifest_facts f;
    OK(manifest_read(path, &m, &err));
    OK(manifest_look(m, NULL, NULL, 3, &f, &err));
    assert_true(f.n_repeated == 2 && f.first_repeated == 3 && f.first_original == 1);
    assert_memory_equal(f.repeats, ((const bool[]){0, 0, 1, 1, 0}), 5 * sizeof(bool));
    assert_true(f.n_short == 3 && f.first_short == 2);
    manifest_facts_fini(&f);
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = embedded();
    SAYS(manifest_look(m, t, NULL, 0, &f, &err), CKVC_E_DATA, ":5: token 0 is 9999");
    unlink(path);
}

RUN_TESTS(make_corpus, temp_folder_remove)
