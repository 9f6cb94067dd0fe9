/* From a token_spec to a tokenizer: checks, the texts of ids, added tokens, and the fingerprint. */
#include "lib/token/tokenizer.h"

#include <stdio.h>

#include "lib/base/json.h"
#include "lib/base/sketch.h"
#include "lib/token/normalize.h"
#include "lib/token/tokenizer_internal.h"

enum { MAX_ID = 1 << 24 };

/* ---- what each id decodes to ---- */

/* Sets what an id decodes to. Under byte_level a token whose characters are all in the alphabet
 * stands for their bytes. */
static void set_text(tokenizer *t, int32_t id, const token_text *text, char **at) {
    size_t size = text->size;
    if (!t->spec->byte_level || !token_unspell_bytes(text->bytes, text->size, *at, &size)) {
        memcpy(*at, text->bytes, size = text->size);
    }
    t->texts[id] = (id_text){*at, (uint32_t)size, false};
    *at += size;
}

static ckvc_status taken_id(const tokenizer *t, size_t i, ckvc_err *err) {
    const token_added *added = &t->spec->added[i];
    return ckvc_fail(err, CKVC_E_DATA,
                     "%s: added_tokens[%zu]: \"%.64s\" has id %d, which stands for another token",
                     t->name, i, added->text.bytes, added->id);
}

/* Adds one added token to the set in which it is searched. The pieces have their texts by then. */
static ckvc_status add_added(tokenizer *t, size_t i, ckvc_err *err) {
    const token_spec *spec = t->spec;
    const token_added *added = &spec->added[i];
    const token_text *text = &added->text;
    const int32_t piece = bpe_piece_id(t->model, text->bytes, text->size);
    int32_t other = -1;
    CKVC_FAIL_IF(text->size == 0, err, CKVC_E_DATA, "%s: added_tokens[%zu]: content is empty",
                 t->name, i);
    CKVC_FAIL_IF(piece >= 0 && piece != added->id, err, CKVC_E_DATA,
                 "%s: added_tokens[%zu]: \"%.64s\" has id %d, but model.vocab gives it %d", t->name,
                 i, text->bytes, added->id, piece);
    if (!spec->added_over_pieces && piece < 0 && tokenizer_has_id(t, added->id)) {
        return taken_id(t, i, err);
    }
    if (added->normalized) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer normal = {0};
        CKVC_TRY(token_normalize(spec, t->name, text->bytes, text->size,
                                 token_growth_limit(text->size), &normal, err));
        if (normal.size) {
            other = trie_add(&t->normal_added, (char *)normal.data, normal.size, (int32_t)i);
        }
    } else {
        other = trie_add(&t->raw_added, text->bytes, text->size, (int32_t)i);
    }
    CKVC_FAIL_IF(other >= 0, err, CKVC_E_DATA,
                 "%s: added_tokens[%zu]: \"%.64s\" is added_tokens[%d] over again", t->name, i,
                 text->bytes, other);
    return CKVC_OK;
}

/* Allocates room for the texts of all ids. */
static ckvc_status reserve_texts(tokenizer *t, ckvc_err *err) {
    const token_spec *spec = t->spec;
    size_t total = 1;
    for (size_t i = 0; i < spec->n_pieces + spec->n_added; i++) {
        const token_added *added = i < spec->n_pieces ? NULL : &spec->added[i - spec->n_pieces];
        const token_text *text = added ? &added->text : &spec->pieces[i].text;
        const int32_t id = added ? added->id : spec->pieces[i].id;
        CKVC_FAIL_IF(id < 0 || id >= MAX_ID, err, CKVC_E_DATA,
                     "%s: token \"%.64s\" has id %d; want 0 ... %d", t->name, text->bytes, id,
                     MAX_ID - 1);
        t->vocab_size = id >= t->vocab_size ? id + 1 : t->vocab_size;
        total += text->size;
    }
    t->texts = ckvc_calloc((size_t)t->vocab_size, sizeof *t->texts);
    t->text_bytes = ckvc_alloc(total, 1);
    return CKVC_OK;
}

static ckvc_status build_texts(tokenizer *t, ckvc_err *err) {
    const token_spec *spec = t->spec;
    CKVC_TRY(reserve_texts(t, err));
    char *at = t->text_bytes;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_piece *piece = &spec->pieces[i];
        CKVC_FAIL_IF(t->texts[piece->id].bytes, err, CKVC_E_DATA,
                     "%s: model.vocab: id %d stands for \"%.64s\" and for another piece", t->name,
                     piece->id, piece->text.bytes);
        set_text(t, piece->id, &piece->text, &at);
    }
    for (size_t i = 0; i < spec->n_added; i++) { CKVC_TRY(add_added(t, i, err)); }
    for (size_t i = 0; i < spec->n_added; i++) {
        const token_added *added = &spec->added[i];
        bool is_piece = bpe_piece_id(t->model, added->text.bytes, added->text.size) == added->id;
        bool again = i > 0 && spec->added[i - 1].id == added->id;
        if (!t->texts[added->id].bytes || (spec->added_over_pieces && !is_piece && !again)) {
            set_text(t, added->id, &added->text, &at);
        } else if (!is_piece) {
            return taken_id(t, i, err);
        }
        t->texts[added->id].special = added->special;
    }
    return CKVC_OK;
}

/* ---- the fingerprint ---- */

static void hash_number(ckvc_sha256 *s, const char *key, int64_t value) {
    char line[64];
    const int n = snprintf(line, sizeof line, "%s=%lld\n", key, (long long)value);
    ckvc_sha256_update(s, line, (size_t)n);
}

/* Lengths stand in front of texts, so that no two lists of strings look alike. */
static void hash_text(ckvc_sha256 *s, const token_text *text) {
    char number[24];
    const int n = snprintf(number, sizeof number, "%zu:", text->size);
    ckvc_sha256_update(s, number, (size_t)n);
    ckvc_sha256_update(s, text->bytes, text->size);
}

static void hash_ids(ckvc_sha256 *s, const char *key, const int32_t *ids, size_t n) {
    hash_number(s, key, (int64_t)n);
    for (size_t i = 0; i < n; i++) { hash_number(s, "id", ids[i]); }
}

static void hash_vocabulary(ckvc_sha256 *s, const token_spec *spec) {
    hash_number(s, "pieces", (int64_t)spec->n_pieces);
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_piece *piece = &spec->pieces[i];
        uint32_t bits;
        memcpy(&bits, &piece->score, sizeof bits);
        hash_number(s, "id", piece->id);
        hash_text(s, &piece->text);
        if (spec->merge_by_score) {
            hash_number(s, "kind", piece->kind);
            hash_number(s, "score", bits);
        }
    }
    hash_number(s, "merges", (int64_t)spec->n_merges);
    for (size_t i = 0; i < spec->n_merges; i++) {
        hash_text(s, &spec->merges[i].left);
        hash_text(s, &spec->merges[i].right);
    }
}

/* Hashes everything that decides ids, in an order that does not depend on the file's layout (build
 * has sorted pieces and added tokens). */
static void take_fingerprint(tokenizer *t) {
    const token_spec *spec = t->spec;
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, "ckvc-tokenizer-1\n", 17);
    hash_vocabulary(&s, spec);
    hash_number(&s, "unk", spec->unk_id);
    hash_number(&s, "ignore_merges", spec->ignore_merges);
    hash_number(&s, "byte_fallback", spec->byte_fallback);
    hash_number(&s, "fuse_unk", spec->fuse_unk);
    hash_number(&s, "byte_level", spec->byte_level);
    hash_number(&s, "add_prefix_space", spec->add_prefix_space);
    hash_number(&s, "added", (int64_t)spec->n_added);
    for (size_t i = 0; i < spec->n_added; i++) {
        const token_added *a = &spec->added[i];
        hash_number(&s, "id", a->id);
        hash_number(&s, "flags",
                    a->lstrip | a->rstrip << 1 | a->single_word << 2 | a->normalized << 3);
        hash_text(&s, &a->text);
    }
    hash_number(&s, "normalizers", (int64_t)spec->n_normalizers);
    for (size_t i = 0; i < spec->n_normalizers; i++) {
        hash_number(&s, "kind", spec->normalizers[i].kind);
        hash_text(&s, &spec->normalizers[i].from);
        hash_text(&s, &spec->normalizers[i].to);
    }
    if (spec->metaspace.size) {
        hash_number(&s, "metaspace", spec->metaspace_prefix);
        hash_text(&s, &spec->metaspace);
    }
    hash_number(&s, "splits", (int64_t)spec->n_splits);
    for (size_t i = 0; i < spec->n_splits; i++) { hash_text(&s, &spec->splits[i]); }
    hash_ids(&s, "prefix", spec->prefix_ids, spec->n_prefix);
    hash_ids(&s, "suffix", NULL, 0); /* no tokenizer has one */
    ckvc_sha256_final(&s, digest);
    ckvc_hex(digest, sizeof digest, t->fingerprint);
}

/* Leaves out added tokens and padding, as files do not agree on them. */
uint64_t tokenizer_words(const tokenizer *t) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer words = {0};
    const token_spec *spec = t->spec;
    for (size_t i = 0, a = 0; i < spec->n_pieces; i++) {
        const token_piece *piece = &spec->pieces[i];
        char pad[24]; /* the name that llama.cpp's convert_hf_to_gguf.py gives to padding */
        const int n = snprintf(pad, sizeof pad, "[PAD%d]", piece->id);
        while (a < spec->n_added && spec->added[a].id < piece->id) { a++; }
        if ((a < spec->n_added && spec->added[a].id == piece->id) ||
            (piece->text.size == (size_t)n && memcmp(piece->text.bytes, pad, (size_t)n) == 0)) {
            continue;
        }
        ckvc_buffer_printf(&words, "%d ", piece->id);
        ckvc_buffer_append(&words, piece->text.bytes, piece->text.size);
        ckvc_buffer_text(&words, "\n");
    }
    return sketch_digest(words.data, words.size);
}

/* ---- the whole ---- */

static int by_id(const void *a, const void *b) {
    const token_piece *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int added_by_id(const void *a, const void *b) {
    const token_added *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static ckvc_status check_template(const tokenizer *t, const int32_t *ids, size_t n, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        CKVC_FAIL_IF(!tokenizer_has_id(t, ids[i]), err, CKVC_E_DATA,
                     "%s: post_processor: id %d is not in the vocabulary", t->name, ids[i]);
    }
    return CKVC_OK;
}

ckvc_status tokenizer_build(token_spec *spec, const char *name, tokenizer **out, ckvc_err *err) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = ckvc_calloc(1, sizeof *t);
    *out = NULL;
    t->spec = spec;
    t->name = ckvc_strdup(name);
    CKVC_FAIL_IF(spec->n_pieces == 0, err, CKVC_E_DATA, "%s: model.vocab is empty", name);
    CKVC_FAIL_IF(spec->n_splits > MAX_SPLITS, err, CKVC_E_DATA,
                 "%s: pre_tokenizer has %zu patterns; at most %d are read", name, spec->n_splits,
                 MAX_SPLITS);
    for (size_t i = 0; i < spec->n_normalizers; i++) {
        CKVC_FAIL_IF(spec->normalizers[i].kind == TOKEN_NORM_REPLACE &&
                         !spec->normalizers[i].from.size,
                     err, CKVC_E_DATA, "%s: normalizer: Replace of an empty text", name);
    }
    qsort(spec->pieces, spec->n_pieces, sizeof *spec->pieces, by_id);
    if (spec->n_added) { qsort(spec->added, spec->n_added, sizeof *spec->added, added_by_id); }
    CKVC_TRY(bpe_build(spec, name, &t->model, err));
    CKVC_TRY(build_texts(t, err));
    CKVC_TRY(check_template(t, spec->prefix_ids, spec->n_prefix, err));
    for (size_t i = 0; i < spec->n_splits; i++) {
        CKVC_TRY(split_pattern_compile(&spec->splits[i], name, i, spec->costly_splits >> i & 1,
                                       &t->splits[i], err));
    }
    take_fingerprint(t);
    *out = ckvc_take(&t);
    return CKVC_OK;
}

static ckvc_status rows_for(const tokenizer *t, const char *place, const int32_t *ids, size_t n,
                            int32_t vocab, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        CKVC_FAIL_IF(ids[i] >= vocab, err, CKVC_E_DATA,
                     "%s: %s: id %d, but the model has embeddings for ids 0 to %d; this is another "
                     "model's tokenizer: put the model's own in its place",
                     t->name, place, ids[i], vocab - 1);
    }
    return CKVC_OK;
}

ckvc_status tokenizer_fits(const tokenizer *t, int32_t vocab, ckvc_err *err) {
    const token_spec *spec = t->spec;
    const token_piece *last = &spec->pieces[spec->n_pieces - 1]; /* they are sorted by id */
    CKVC_TRY(rows_for(t, "model.vocab", &last->id, 1, vocab, err));
    return rows_for(t, "post_processor", spec->prefix_ids, spec->n_prefix, vocab, err);
}

void tokenizer_free(tokenizer *t) {
    if (!t) { return; }
    for (int i = 0; i < MAX_SPLITS; i++) { pcre2_code_free(t->splits[i]); }
    trie_fini(&t->raw_added);
    trie_fini(&t->normal_added);
    bpe_free(t->model);
    token_spec_free(t->spec);
    CKVC_FREE(t->texts, t->text_bytes, t->name, t);
}

int32_t tokenizer_vocab_size(const tokenizer *t) { return t->vocab_size; }
const token_spec *tokenizer_spec(const tokenizer *t) { return t->spec; }
const char *tokenizer_fingerprint(const tokenizer *t) { return t->fingerprint; }
