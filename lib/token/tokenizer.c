/* From text to added tokens, normalised pieces, words and ids, in the order of Hugging Face
 * `tokenizers`:
 *
 *   1. tokens that are matched in the raw text (normalized: false) cut it into pieces;
 *   2. each piece is normalised by itself, and the other added tokens (themselves normalised) are
 *      matched in it;
 *   3. what is left is cut into words by the split patterns, each of which is applied to the spans
 *      that the one before has left;
 *   4. each word is merged (bpe.c). */
#include "lib/token/tokenizer.h"

#include <ctype.h>
#include <time.h>

#include "lib/base/json.h"
#include "lib/base/hash.h"
#include "lib/base/utf8.h"
#include "lib/token/chars.h"
#include "lib/token/normalize.h"
#include "lib/token/tokenizer_internal.h"

enum {
    /* The steps of one match. A pattern such as \s*[\r\n]+ backtracks through the whole of a long
     * run of spaces, so the limit grows with the text. Whatever grows faster than the text runs
     * into it. */
    MATCH_STEPS = 1000000,
    MATCH_STEPS_PER_BYTE = 4,
    MATCH_DEPTH = 100000,
    MATCH_HEAP_KIB = 65536,
    /* Slow matches below that limit end here: so many seconds of processor time for a text, and so
     * many for each MiB of it. Ordinary patterns take a tenth of a second for a MiB. */
    PATIENCE_S = 3,
    PATIENCE_S_PER_MIB = 5,
    /* The steps of looking for added tokens, for each byte of the text; real vocabularies take one
     * or two. */
    ADDED_STEPS = 4000000,
    ADDED_STEPS_PER_BYTE = 32,
    MAX_DECODED = 1 << 30,
    MEMO_SLOTS = 4096
};

/* ---- encoding ---- */

typedef struct memo_slot { /* a word met before, whose ids are copied */
    uint64_t hash;
    const char *word;
    uint32_t size;
    uint32_t n_ids; /* 0: the slot is free */
    size_t first_id;
} memo_slot;

typedef struct encoder { /* the state of one call */
    const tokenizer *t;
    bpe_scratch scratch;
    id_list ids;
    memo_slot *memo;
    size_t memo_mask;
    /* Where the whole text and the current piece (normalised) begin. */
    const char *text, *piece;
    bool first_piece;  /* the current piece is the text's first */
    char **kept_texts; /* buffers that hold words of the memo, freed at the end */
    size_t n_kept, kept_capacity;
    pcre2_match_context *match;
    pcre2_match_data *data[MAX_SPLITS];
    size_t matches;
    uint64_t added_steps, most_added_steps;
    size_t made, most_made; /* bytes of normalised pieces */
    struct timespec started;
    double patience_s;
    ckvc_err *err;
} encoder;

/* Takes over a text that was made during the call. It stays until the end, as the memo may point to
 * words in it. */
static void encoder_keep(encoder *e, char *text) {
    CKVC_GROW(e->kept_texts, e->kept_capacity, e->n_kept + 1);
    e->kept_texts[e->n_kept++] = text;
}

static ckvc_status encode_word(encoder *e, const char *word, size_t n) {
    enum { MEMO_WORD = 64 }; /* longer words seldom occur again */
    if (n > MEMO_WORD) { return bpe_encode(e->t->model, &e->scratch, word, n, &e->ids, e->err); }
    const uint64_t hash = ckvc_xxh64(word, n);
    memo_slot *slot = &e->memo[hash & e->memo_mask];
    if (slot->n_ids && slot->hash == hash && slot->size == n && memcmp(slot->word, word, n) == 0) {
        for (uint32_t i = 0; i < slot->n_ids; i++) {
            id_list_push(&e->ids, e->ids.ids[slot->first_id + i]);
        }
        return CKVC_OK;
    }
    const size_t before = e->ids.n;
    CKVC_TRY(bpe_encode(e->t->model, &e->scratch, word, n, &e->ids, e->err));
    *slot = (memo_slot){hash, word, (uint32_t)n, (uint32_t)(e->ids.n - before), before};
    return CKVC_OK;
}

static ckvc_status match_failed(encoder *e, size_t level, int code) {
    PCRE2_UCHAR reason[160];
    if (code == PCRE2_ERROR_NOMEMORY) { ckvc_out_of_memory(1, MATCH_HEAP_KIB); }
    pcre2_get_error_message(code, reason, sizeof reason);
    return ckvc_fail(e->err, CKVC_E_DATA,
                     "%s: pre_tokenizer: pattern %zu takes too long on this text (%s)", e->t->name,
                     level, (const char *)reason);
}

/* Seconds of this thread's processor time: while a process is stopped, none pass. */
static double seconds_since(const struct timespec *then) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)(now.tv_sec - then->tv_sec) + 1e-9 * (double)(now.tv_nsec - then->tv_nsec);
}

/* Looks at the time now and then. For a costly pattern it is also called within a match, as PCRE2
 * counts a look through the whole text as one step. */
static bool out_of_patience(encoder *e) {
    return (++e->matches & 127) == 0 && seconds_since(&e->started) > e->patience_s;
}

static int look_within(pcre2_callout_block *at, void *e) {
    (void)at;
    return out_of_patience(e) ? PCRE2_ERROR_CALLOUT : 0;
}

/* Searches once from `from` on. Returns CKVC_OK with *found, and the match in data[level]. */
static ckvc_status search(encoder *e, size_t level, const char *text, size_t n, size_t from,
                          bool *found) {
    const pcre2_code *pattern = e->t->splits[level];
    int rc = out_of_patience(e) ? PCRE2_ERROR_CALLOUT
                                : pcre2_match(pattern, (PCRE2_SPTR)text, n, from,
                                              PCRE2_NO_UTF_CHECK, e->data[level], e->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        /* the interpreter keeps its stack on the heap, within MATCH_HEAP_KIB */
        rc = pcre2_match(pattern, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         e->data[level], e->match);
    }
    CKVC_FAIL_IF(
        rc == PCRE2_ERROR_CALLOUT, e->err, CKVC_E_DATA,
        "%s: pre_tokenizer: pattern %zu takes too long on this text (over %.0f s); give the "
        "model the tokenizer.json that it was published with",
        e->t->name, level, e->patience_s);
    *found = rc >= 0;
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? CKVC_OK : match_failed(e, level, rc);
}

/* Cuts a span by pattern `level`. Matches and what lies between them go to the next pattern; what
 * the last one leaves are words. */
static ckvc_status encode_span(encoder *e, size_t level, const char *text, size_t n) {
    if (n == 0) { return CKVC_OK; }
    if (level == e->t->spec->n_splits) {
        for (size_t part; n > 0; text += part, n -= part) {
            part = bpe_part(e->t->model, text, n);
            CKVC_TRY(encode_word(e, text, part));
        }
        return CKVC_OK;
    }
    size_t done = 0, from = 0;
    while (from <= n) {
        bool found = false;
        CKVC_TRY(search(e, level, text, n, from, &found));
        if (!found) { break; }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(e->data[level]);
        const size_t start = span[0], end = span[1];
        if (start < done || end < start) {
            /* A look-behind can move the start of a match backwards; such patterns match nothing
             * sensible. */
            return ckvc_fail(e->err, CKVC_E_DATA,
                             "%s: pre_tokenizer: pattern %zu matches backwards (by a look-behind), "
                             "which is not supported",
                             e->t->name, level);
        }
        if (end == start && start >= n) { break; }
        CKVC_TRY(encode_span(e, level + 1, text + done, start - done));
        CKVC_TRY(encode_span(e, level + 1, text + start, end - start));
        done = end;
        /* an empty match cuts here; the search goes on one character later */
        from = end > start ? end : start + ckvc_utf8_step(text + start, n - start, NULL);
    }
    return encode_span(e, level + 1, text + done, n - done);
}

/* Puts Metaspace's prefix in front at the text's beginning, or everywhere
 * (pre_tokenizers/metaspace.rs). */
static ckvc_status encode_metaspace(encoder *e, const char *text, size_t n) {
    const token_spec *spec = e->t->spec;
    const token_text *mark = &spec->metaspace;
    const token_normalizer spaces = {TOKEN_NORM_REPLACE, {(char[]){" "}, 1}, *mark};
    bool wanted =
        spec->metaspace_prefix == TOKEN_PREFIX_ALWAYS ||
        (spec->metaspace_prefix == TOKEN_PREFIX_FIRST && e->first_piece && text == e->piece);
    ckvc_buffer out = {0};
    if (wanted && text[0] != ' ' &&
        !(n >= mark->size && memcmp(text, mark->bytes, mark->size) == 0)) {
        ckvc_buffer_append(&out, mark->bytes, mark->size);
    }
    token_replace(&spaces, text, n, e->most_made - e->made, &out);
    encoder_keep(e, (char *)out.data);
    CKVC_FAIL_IF(out.size > e->most_made - e->made, e->err, CKVC_E_DATA,
                 "%s: pre_tokenizer: Metaspace: the text grows too much (over %zu bytes)",
                 e->t->name, e->most_made);
    e->made += out.size;
    return encode_span(e, 0, (char *)out.data, out.size);
}

static ckvc_status encode_words(encoder *e, const char *text, size_t n) {
    if (n == 0) { return CKVC_OK; }
    if (e->t->spec->metaspace.size) { return encode_metaspace(e, text, n); }
    if (e->t->spec->byte_level && e->t->spec->add_prefix_space && text[0] != ' ') {
        char *spaced = ckvc_alloc(n + 1, 1);
        spaced[0] = ' ';
        memcpy(spaced + 1, text, n);
        encoder_keep(e, spaced);
        return encode_span(e, 0, spaced, n + 1);
    }
    return encode_span(e, 0, text, n);
}

/* The reference implementation's \w: letters (circled and squared ones, too), marks, digits,
 * connectors and the joiners. */
static bool is_word_char(int32_t c) {
    enum {
        WORD = 1 << UTF8PROC_CATEGORY_LU | 1 << UTF8PROC_CATEGORY_LL | 1 << UTF8PROC_CATEGORY_LT |
               1 << UTF8PROC_CATEGORY_LM | 1 << UTF8PROC_CATEGORY_LO | 1 << UTF8PROC_CATEGORY_MN |
               1 << UTF8PROC_CATEGORY_MC | 1 << UTF8PROC_CATEGORY_ME | 1 << UTF8PROC_CATEGORY_ND |
               1 << UTF8PROC_CATEGORY_NL | 1 << UTF8PROC_CATEGORY_PC
    };
    return (WORD >> utf8proc_category(c) & 1) || c == 0x200C || c == 0x200D ||
           (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

typedef ckvc_status (*rest_fn)(encoder *e, const char *text, size_t n);

/* Finds added tokens, the leftmost first and of these the longest; `rest` gets what lies between
 * them. */
static ckvc_status cut_added(encoder *e, const trie *added, const char *text, size_t n,
                             rest_fn rest) {
    size_t done = 0;
    for (size_t at = 0; at < n;) {
        int32_t index;
        const size_t length = trie_longest(added, text + at, n - at, &index, &e->added_steps);
        CKVC_FAIL_IF(e->added_steps > e->most_added_steps, e->err, CKVC_E_DATA,
                     "%s: added_tokens: finding them takes too long in this text", e->t->name);
        if (length == 0) {
            at++;
            continue;
        }
        const token_added *token = &e->t->spec->added[index];
        size_t start = at, end = at + length, before = start ? char_before(text, start) : 0;
        at = end;
        if (token->single_word &&
            ((start > 0 && is_word_char(char_at(text + before, start - before))) ||
             (end < n && is_word_char(char_at(text + end, n - end))))) {
            continue;
        }
        while (token->lstrip && start > done &&
               is_white_space(char_at(text + before, start - before))) {
            start = before;
            before = start ? char_before(text, start) : 0;
        }
        while (token->rstrip && end < n && is_white_space(char_at(text + end, n - end))) {
            end += ckvc_utf8_step(text + end, n - end, NULL);
        }
        if (start > done) { CKVC_TRY(rest(e, text + done, start - done)); }
        id_list_push(&e->ids, token->id);
        done = end;
        at = at > done ? at : done;
    }
    return done < n ? rest(e, text + done, n - done) : CKVC_OK;
}

static ckvc_status encode_raw_piece(encoder *e, const char *text, size_t n) {
    const tokenizer *t = e->t;
    e->first_piece = text == e->text;
    e->piece = text;
    if (t->spec->n_normalizers) {
        ckvc_buffer normal = {0};
        const ckvc_status status =
            token_normalize(t->spec, t->name, text, n, e->most_made - e->made, &normal, e->err);
        encoder_keep(e, (char *)normal.data);
        CKVC_TRY(status);
        e->made += n = normal.size;
        e->piece = text = (char *)normal.data;
    }
    return cut_added(e, &t->normal_added, text, n, encode_words);
}

static void *pcre2_made(void *object) {
    if (!object) { ckvc_out_of_memory(1, sizeof object); }
    return object;
}

static void encoder_init(encoder *e, const tokenizer *t, size_t n, ckvc_err *err) {
    const uint64_t steps = MATCH_STEPS + MATCH_STEPS_PER_BYTE * (uint64_t)n;
    size_t slots = 16;
    while (slots < MEMO_SLOTS && slots < n / 8) { slots *= 2; }
    *e = (encoder){.t = t,
                   .err = err,
                   .memo = ckvc_calloc(slots, sizeof *e->memo),
                   .memo_mask = slots - 1,
                   .match = pcre2_made(pcre2_match_context_create(NULL)),
                   .patience_s = PATIENCE_S + PATIENCE_S_PER_MIB * ((double)n / 1048576.0),
                   .most_added_steps = ADDED_STEPS + ADDED_STEPS_PER_BYTE * (uint64_t)n,
                   .most_made = token_growth_limit(n)};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &e->started);
    pcre2_set_match_limit(e->match, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    pcre2_set_depth_limit(e->match, MATCH_DEPTH);
    pcre2_set_heap_limit(e->match, MATCH_HEAP_KIB);
    pcre2_set_callout(e->match, look_within, e);
    for (size_t i = 0; i < t->spec->n_splits; i++) {
        /* only the span of the whole match is read */
        e->data[i] = pcre2_made(pcre2_match_data_create(1, NULL));
    }
}

static void encoder_fini(encoder *e) {
    for (size_t i = 0; i < MAX_SPLITS; i++) { pcre2_match_data_free(e->data[i]); }
    pcre2_match_context_free(e->match);
    for (size_t i = 0; i < e->n_kept; i++) { free(e->kept_texts[i]); }
    CKVC_FREE(e->kept_texts, e->memo);
    bpe_scratch_fini(&e->scratch);
    free(e->ids.ids);
}

ckvc_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special,
                             int32_t **ids, size_t *n_ids, ckvc_err *err) {
    *ids = NULL;
    *n_ids = 0;
    CKVC_AUTO(encoder_fini) encoder e;
    encoder_init(&e, t, n, err);
    CKVC_AUTO_FREE char *replaced = NULL;
    if (ckvc_utf8_check(text, n) < n) {
        replaced = ckvc_utf8_replace(text, n, &n);
        text = replaced;
    }
    e.text = text;
    for (size_t i = 0; add_special && i < t->spec->n_prefix; i++) {
        id_list_push(&e.ids, t->spec->prefix_ids[i]);
    }
    CKVC_TRY(cut_added(&e, &t->raw_added, text, n, encode_raw_piece));
    /* so that there is something to free even without ids */
    CKVC_GROW(e.ids.ids, e.ids.capacity, 1);
    *n_ids = e.ids.n;
    *ids = ckvc_take(&e.ids.ids);
    return CKVC_OK;
}

/* ---- decoding ---- */

/* The byte of a piece that is spelled <0xNN>; else -1. */
static int fallback_byte(const id_text *text) {
    if (text->size != 6 || memcmp(text->bytes, "<0x", 3) != 0 || text->bytes[5] != '>') {
        return -1;
    }
    const char digits[3] = {text->bytes[3], text->bytes[4], '\0'};
    char *end;
    /* what Rust's from_str_radix accepts; strtol would also accept white space and a minus */
    const bool begins = digits[0] == '+' || isxdigit((unsigned char)digits[0]);
    const long value = begins ? strtol(digits, &end, 16) : -1;
    return value >= 0 && end == digits + 2 ? (int)value : -1;
}

/* A run of byte pieces is text when it is UTF-8 as a whole; else each of its bytes becomes one
 * U+FFFD. */
static void flush_bytes(ckvc_buffer *run, ckvc_buffer *out) {
    if (ckvc_utf8_check((const char *)run->data, run->size) == run->size) {
        ckvc_buffer_append(out, run->data, run->size);
    } else {
        for (size_t i = 0; i < run->size; i++) { ckvc_buffer_text(out, "\xEF\xBF\xBD"); }
    }
    run->size = 0;
}

static void decode_tokens(const tokenizer *t, const int32_t *ids, size_t n_ids, bool skip_special,
                          ckvc_buffer *out) {
    const token_spec *spec = t->spec;
    const bool byte_pieces = spec->byte_fallback && !spec->byte_level;
    const token_normalizer undo = {TOKEN_NORM_REPLACE, spec->decode_from, spec->decode_to};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer run = {0};
    for (size_t i = 0; i < n_ids && out->size <= MAX_DECODED; i++) {
        const id_text *text = &t->texts[ids[i]];
        if (skip_special && text->special) { continue; }
        const int byte = byte_pieces ? fallback_byte(text) : -1;
        if (byte >= 0) {
            ckvc_buffer_u8(&run, (uint8_t)byte);
            continue;
        }
        if (run.size) { flush_bytes(&run, out); }
        if (spec->decode_from.size) {
            token_replace(&undo, text->bytes, text->size, MAX_DECODED, out);
        } else {
            ckvc_buffer_append(out, text->bytes, text->size);
        }
    }
    if (run.size) { flush_bytes(&run, out); }
    if (spec->decode_strip_left && out->size && out->data[0] == ' ') {
        memmove(out->data, out->data + 1, out->size--); /* moves the NUL at the end along */
    }
}

ckvc_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids,
                             bool skip_special, char **text, size_t *n, ckvc_err *err) {
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < n_ids; i++) {
        CKVC_FAIL_IF(!tokenizer_has_id(t, ids[i]), err, CKVC_E_DATA,
                     "%s: id %d (number %zu) is not in the vocabulary", t->name, ids[i], i);
    }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer out = {0};
    ckvc_buffer_text(&out, ""); /* so that there is something to free even without text */
    decode_tokens(t, ids, n_ids, skip_special, &out);
    CKVC_FAIL_IF(out.size > MAX_DECODED, err, CKVC_E_DATA,
                 "%s: %zu ids stand for more than %d bytes of text", t->name, n_ids, MAX_DECODED);
    *n = out.size;
    *text = ckvc_utf8_check((const char *)out.data, out.size) == out.size
                ? ckvc_take(&out.data)
                : ckvc_utf8_replace((const char *)out.data, out.size, n);
    return CKVC_OK;
}
