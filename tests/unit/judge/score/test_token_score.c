/* Merging by score (SentencePiece, tiktoken) against a plain statement of its rule: again and again
 * join the two neighbours whose text is the piece with the highest score, the leftmost of equals.
 * Random vocabularies and texts, short words and long ones. */
#include "lib/base/utf8.h"
#include "lib/token/tokenizer.h"
#include "tests/unit/unit.h"

#define SPACE "\xE2\x96\x81"

static token_spec *new_spec(size_t capacity) {
    token_spec *spec = calloc(1, sizeof *spec);
    spec->pieces = calloc(capacity, sizeof *spec->pieces);
    spec->merge_by_score = true;
    spec->unk_id = -1;
    return spec;
}

static int32_t find(const token_spec *spec, const char *text, size_t n) {
    for (size_t i = 0; i < spec->n_pieces; i++) {
        if (spec->pieces[i].text.size == n && memcmp(spec->pieces[i].text.bytes, text, n) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void add(token_spec *spec, const char *text, size_t n, token_piece_kind kind, float score) {
    if (find(spec, text, n) >= 0) { return; }
    token_text own = {calloc(n + 1, 1), n};
    memcpy(own.bytes, text, n);
    spec->pieces[spec->n_pieces] = (token_piece){own, (int32_t)spec->n_pieces, kind, score};
    spec->n_pieces++;
}

/* Ids by the rule as it is written, in quadratic time and without any table. */
static size_t plain_ids(const token_spec *spec, const char *text, size_t n, int32_t *ids) {
    size_t *start = malloc((n + 1) * sizeof *start), symbols = 0, used = 0;
    CKVC_AUTO_FREE bool *fixed = calloc(n + 1, sizeof *fixed);
    for (size_t i = 0, step; i < n; i += step) {
        step = ckvc_utf8_step(text + i, n - i, NULL);
        size_t longest = 0;
        for (size_t k = 0; k < spec->n_pieces; k++) {
            const token_piece *p = &spec->pieces[k];
            if (p->kind == TOKEN_PIECE_WHOLE && p->text.size <= n - i &&
                memcmp(p->text.bytes, text + i, p->text.size) == 0 && p->text.size > longest) {
                longest = p->text.size;
            }
        }
        fixed[symbols] = longest > 0;
        step = longest ? longest : step;
        start[symbols++] = i;
    }
    start[symbols] = n;
    for (;;) {
        size_t best = symbols;
        float score = -INFINITY;
        for (size_t i = 0; i + 1 < symbols; i++) {
            int32_t k = find(spec, text + start[i], start[i + 2] - start[i]);
            if (fixed[i] || fixed[i + 1] || k < 0 || spec->pieces[k].kind != TOKEN_PIECE_NORMAL) {
                continue;
            }
            if (best == symbols || spec->pieces[k].score > score) {
                best = i;
                score = spec->pieces[k].score;
            }
        }
        if (best == symbols) { break; }
        memmove(start + best + 1, start + best + 2, (symbols - best - 1) * sizeof *start);
        memmove(fixed + best + 1, fixed + best + 2, (symbols - best - 1) * sizeof *fixed);
        symbols--;
    }
    bool unknown = false;
    for (size_t i = 0; i < symbols; i++) {
        int32_t id = find(spec, text + start[i], start[i + 1] - start[i]);
        if (id >= 0 || !unknown || !spec->fuse_unk) { ids[used++] = id >= 0 ? id : spec->unk_id; }
        unknown = id < 0;
    }
    free(start);
    return used;
}

static size_t random_text(ckvc_rng *rng, size_t max_symbols, bool spaces, char *out) {
    static const char *const letters[] = {"a", "b", "\xC3\xA9", "\n", SPACE, "z" /* no piece */};
    size_t n = 1 + ckvc_rng_below(rng, max_symbols), size = 0;
    for (size_t i = 0; i < n; i++) {
        const char *letter =
            letters[ckvc_rng_below(rng, 20) ? ckvc_rng_below(rng, spaces ? 5 : 3) : 5];
        memcpy(out + size, letter, strlen(letter));
        size += strlen(letter);
    }
    return size;
}

static token_spec *random_spec(uint64_t seed, ckvc_rng *rng) {
    char text[1024];
    token_spec *spec = new_spec(128);
    spec->unk_id = 0;
    spec->fuse_unk = seed % 2;
    add(spec, "<unk>", 5, TOKEN_PIECE_RESERVED, 0);
    const char *const letters[] = {"a", "b", "\xC3\xA9", "\n", SPACE};
    for (size_t i = 0; i < 5; i++) {
        add(spec, letters[i], strlen(letters[i]), TOKEN_PIECE_NORMAL, -1000);
    }
    for (size_t i = 0; i < 60; i++) { /* scores repeat */
        size_t n = random_text(rng, 2 + i / 12, seed % 3 != 0, text);
        add(spec, text, n,
            i % 25 == 24   ? TOKEN_PIECE_WHOLE
            : i % 25 == 23 ? TOKEN_PIECE_RESERVED
                           : TOKEN_PIECE_NORMAL,
            -(float)ckvc_rng_below(rng, 30));
    }
    return spec;
}

static void one_vocabulary(uint64_t seed) {
    ckvc_rng rng, again;
    ckvc_rng_init(&rng, seed, ckvc_rng_key("vocabulary"), 0);
    again = rng;
    char text[1024];
    CKVC_AUTO(token_spec_free_at) token_spec *spec = random_spec(seed, &rng);
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    OK(tokenizer_build(random_spec(seed, &again), "spec", &t, &err));
    for (int round = 0; round < 40; round++) {
        size_t size = random_text(&rng, round % 2 ? 12 : 120, true, text), n;
        int32_t want[1024], *ids;
        size_t n_want = plain_ids(spec, text, size, want);
        OK(tokenizer_encode(t, text, size, true, &ids, &n, &err));
        if (n != n_want || memcmp(ids, want, n * sizeof *ids) != 0) {
            fail_msg("vocabulary %d, text %d \"%.*s\": %zu ids, want %zu, or others", (int)seed,
                     round, (int)size, text, n, n_want);
        }
        free(ids);
    }
}

TEST(equals_the_plain_rule) {
    for (uint64_t seed = 0; seed < 60; seed++) { one_vocabulary(seed); }
}

TEST(unknown_characters_become_bytes_after_merging) {
    token_spec *spec = new_spec(300);
    spec->byte_fallback = true;
    add(spec, "<unk>", 5, TOKEN_PIECE_RESERVED, 0);
    for (int i = 0; i < 256; i++) {
        CKVC_AUTO_FREE char *name = ckvc_format("<0x%02X>", (unsigned)i);
        add(spec, name, 6, TOKEN_PIECE_RESERVED, 0);
    }
    add(spec, "a", 1, TOKEN_PIECE_NORMAL, -2);
    add(spec, "a\xC3\xA9", 3, TOKEN_PIECE_NORMAL, -1); /* one character has no piece of its own */
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    OK(tokenizer_build(spec, "spec", &t, &err));
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n;
    OK(tokenizer_encode(t, "a\xC3\xA9\xC3\xA9!", 6, true, &ids, &n, &err));
    const int32_t want[] = {258, 1 + 0xC3, 1 + 0xA9, 1 + '!'};
    assert_int_equal(n, 4);
    assert_memory_equal(ids, want, sizeof want);
}

TEST(refuses_bad_scores_and_pieces) {
    for (int i = 0; i < 3; i++) {
        token_spec *spec = new_spec(4);
        char longest[2000];
        memset(longest, 'a', sizeof longest);
        add(spec, "a", 1, TOKEN_PIECE_NORMAL, i == 0 ? NAN : 0);
        if (i == 1) { add(spec, longest, sizeof longest, TOKEN_PIECE_NORMAL, 0); }
        if (i == 2) { add(spec, "a\xFF", 2, TOKEN_PIECE_NORMAL, 0); }
        tokenizer *t;
        SAYS(tokenizer_build(spec, "spec", &t, &err), CKVC_E_DATA,
             i == 0   ? "not a number"
             : i == 1 ? "2000 bytes"
                      : "not UTF-8");
    }
}

RUN_TESTS(NULL, NULL)
