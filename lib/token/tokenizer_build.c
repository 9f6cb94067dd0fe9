/* From a token_spec to a tokenizer: checks, what each id decodes to, added tokens, and the
 * fingerprint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buffer.h"
#include "lib/base/memory.h"
#include "lib/token/normalize.h"
#include "lib/token/tokenizer_internal.h"

enum { MAX_ID = 1 << 24 };

static ckvc_status build_added(tokenizer *t, ckvc_err *err) {
    const token_spec *spec = t->spec;
    size_t raw_bytes = 0, normal_bytes = 0;
    token_text *normal = ckvc_calloc(spec->n_added, sizeof *normal);
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < spec->n_added && status == CKVC_OK; i++) {
        const token_added *added = &spec->added[i];
        int32_t piece = bpe_piece_id(t->model, added->text.bytes, added->text.size);
        if (added->text.size == 0) {
            status =
                ckvc_fail(err, CKVC_E_DATA, "%s: added_tokens[%zu]: content is empty", t->name, i);
        } else if (piece >= 0 && piece != added->id) {
            status =
                ckvc_fail(err, CKVC_E_DATA,
                          "%s: added_tokens[%zu]: \"%.64s\" has id %d, but model.vocab gives it %d",
                          t->name, i, added->text.bytes, added->id, piece);
        } else if (!spec->added_over_pieces && piece < 0 && added->id >= 0 &&
                   added->id < t->vocab_size && t->texts[added->id].bytes) {
            status = ckvc_fail(
                err, CKVC_E_DATA,
                "%s: added_tokens[%zu]: \"%.64s\" has id %d, which stands for another token",
                t->name, i, added->text.bytes, added->id);
        }
        if (status != CKVC_OK) { break; }
        if (added->normalized) {
            ckvc_buffer text = {0};
            status = token_normalize(spec, t->name, added->text.bytes, added->text.size,
                                     token_growth_limit(added->text.size), &text, err);
            normal[i] = (token_text){(char *)text.data, text.size};
            normal_bytes += text.size;
        } else {
            raw_bytes += added->text.size;
        }
    }
    if (status == CKVC_OK) { status = trie_init(&t->raw_added, raw_bytes, "added tokens", err); }
    if (status == CKVC_OK) {
        status = trie_init(&t->normal_added, normal_bytes, "added tokens", err);
    }
    for (size_t i = 0; i < spec->n_added && status == CKVC_OK; i++) {
        const token_added *added = &spec->added[i];
        int32_t other = -1;
        if (!added->normalized) {
            other = trie_add(&t->raw_added, added->text.bytes, added->text.size, (int32_t)i);
        } else if (normal[i].size) {
            other = trie_add(&t->normal_added, normal[i].bytes, normal[i].size, (int32_t)i);
        }
        if (other >= 0) {
            status = ckvc_fail(err, CKVC_E_DATA,
                               "%s: added_tokens[%zu]: \"%.64s\" is added_tokens[%d] over again",
                               t->name, i, added->text.bytes, other);
        }
    }
    for (size_t i = 0; i < spec->n_added; i++) {
        free(normal[i].bytes);
    }
    free(normal);
    return status;
}

/* What each id decodes to. Under byte_level a token whose characters are all of the alphabet stands
 * for their bytes. */
static ckvc_status build_texts(tokenizer *t, ckvc_err *err) {
    const token_spec *spec = t->spec;
    size_t total = 1;
    int32_t largest = -1;
    for (size_t i = 0; i < spec->n_pieces + spec->n_added; i++) {
        bool piece = i < spec->n_pieces;
        const token_text *text =
            piece ? &spec->pieces[i].text : &spec->added[i - spec->n_pieces].text;
        int32_t id = piece ? spec->pieces[i].id : spec->added[i - spec->n_pieces].id;
        if (id < 0 || id >= MAX_ID) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: token \"%.64s\" has id %d; want 0 ... %d",
                             t->name, text->bytes, id, MAX_ID - 1);
        }
        largest = id > largest ? id : largest;
        total += text->size;
    }
    t->vocab_size = largest + 1;
    t->texts = ckvc_calloc((size_t)t->vocab_size, sizeof *t->texts);
    t->text_bytes = ckvc_alloc(total, 1);
    char *at = t->text_bytes;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_piece *piece = &spec->pieces[i];
        if (t->texts[piece->id].bytes) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: model.vocab: id %d stands for \"%.64s\" and for another piece",
                             t->name, piece->id, piece->text.bytes);
        }
        size_t size = piece->text.size;
        if (!spec->byte_level || !token_unspell_bytes(piece->text.bytes, size, at, &size)) {
            memcpy(at, piece->text.bytes, size = piece->text.size);
        }
        t->texts[piece->id] = (id_text){at, (uint32_t)size, false};
        at += size;
    }
    ckvc_status status = build_added(t, err); /* compares the ids with those of the pieces */
    for (size_t i = 0; i < spec->n_added && status == CKVC_OK; i++) {
        const token_added *added = &spec->added[i];
        id_text *text = &t->texts[added->id];
        bool is_piece = bpe_piece_id(t->model, added->text.bytes, added->text.size) == added->id;
        bool again = i > 0 && spec->added[i - 1].id == added->id;
        if (!text->bytes || (spec->added_over_pieces && !is_piece && !again)) {
            size_t size = added->text.size;
            if (!spec->byte_level || !token_unspell_bytes(added->text.bytes, size, at, &size)) {
                memcpy(at, added->text.bytes, size = added->text.size);
            }
            *text = (id_text){at, (uint32_t)size, false};
            at += size;
        } else if (!is_piece) {
            status = ckvc_fail(
                err, CKVC_E_DATA,
                "%s: added_tokens[%zu]: \"%.64s\" has id %d, which stands for another token",
                t->name, i, added->text.bytes, added->id);
        }
        text->special = added->special;
    }
    return status;
}

static void hash_text(ckvc_sha256 *s, const token_text *text) {
    uint64_t size = text->size; /* lengths in front: no two lists of strings look alike */
    char number[24];
    int n = snprintf(number, sizeof number, "%llu:", (unsigned long long)size);
    ckvc_sha256_update(s, number, (size_t)n);
    ckvc_sha256_update(s, text->bytes, text->size);
}

static void hash_number(ckvc_sha256 *s, const char *key, int64_t value) {
    char line[64];
    int n = snprintf(line, sizeof line, "%s=%lld\n", key, (long long)value);
    ckvc_sha256_update(s, line, (size_t)n);
}

static int by_id(const void *a, const void *b) {
    const token_piece *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int added_by_id(const void *a, const void *b) {
    const token_added *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Everything that decides ids, in an order that the file's layout does not touch (build sorts
 * pieces and added tokens). */
static void take_fingerprint(tokenizer *t) {
    const token_spec *spec = t->spec;
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, "ckvc-tokenizer-1\n", 17);
    hash_number(&s, "pieces", (int64_t)spec->n_pieces);
    for (size_t i = 0; i < spec->n_pieces; i++) {
        hash_number(&s, "id", spec->pieces[i].id);
        hash_text(&s, &spec->pieces[i].text);
        if (spec->merge_by_score) {
            uint32_t bits;
            memcpy(&bits, &spec->pieces[i].score, sizeof bits);
            hash_number(&s, "kind", spec->pieces[i].kind);
            hash_number(&s, "score", bits);
        }
    }
    hash_number(&s, "merges", (int64_t)spec->n_merges);
    for (size_t i = 0; i < spec->n_merges; i++) {
        hash_text(&s, &spec->merges[i].left);
        hash_text(&s, &spec->merges[i].right);
    }
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
    for (size_t i = 0; i < spec->n_splits; i++) {
        hash_text(&s, &spec->splits[i]);
    }
    hash_number(&s, "prefix", (int64_t)spec->n_prefix);
    for (size_t i = 0; i < spec->n_prefix; i++) {
        hash_number(&s, "id", spec->prefix_ids[i]);
    }
    hash_number(&s, "suffix", (int64_t)spec->n_suffix);
    for (size_t i = 0; i < spec->n_suffix; i++) {
        hash_number(&s, "id", spec->suffix_ids[i]);
    }
    ckvc_sha256_final(&s, digest);
    ckvc_hex(digest, sizeof digest, t->fingerprint);
}

static ckvc_status check_template(const tokenizer *t, const int32_t *ids, size_t n, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab_size || !t->texts[ids[i]].bytes) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: post_processor: id %d is not in the vocabulary",
                             t->name, ids[i]);
        }
    }
    return CKVC_OK;
}

ckvc_status tokenizer_build(token_spec *spec, const char *name, tokenizer **out, ckvc_err *err) {
    *out = NULL;
    tokenizer *t = ckvc_calloc(1, sizeof *t);
    t->spec = spec;
    t->name = ckvc_strdup(name);
    ckvc_status status = t->name ? CKVC_OK : ckvc_fail_memory(err, "tokenizer", strlen(name));
    if (status == CKVC_OK && spec->n_pieces == 0) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: model.vocab is empty", name);
    }
    if (status == CKVC_OK && spec->n_splits > MAX_SPLITS) {
        status =
            ckvc_fail(err, CKVC_E_DATA, "%s: pre_tokenizer has %zu patterns; at most %d are read",
                      name, spec->n_splits, MAX_SPLITS);
    }
    for (size_t i = 0; status == CKVC_OK && i < spec->n_normalizers; i++) {
        if (spec->normalizers[i].kind == TOKEN_NORM_REPLACE &&
            spec->normalizers[i].from.size == 0) {
            status = ckvc_fail(err, CKVC_E_DATA, "%s: normalizer: Replace of an empty text", name);
        }
    }
    if (status == CKVC_OK) {
        qsort(spec->pieces, spec->n_pieces, sizeof *spec->pieces, by_id);
        if (spec->n_added) { qsort(spec->added, spec->n_added, sizeof *spec->added, added_by_id); }
        status = bpe_build(spec, name, &t->model, err);
    }
    if (status == CKVC_OK) { status = build_texts(t, err); }
    if (status == CKVC_OK) { status = check_template(t, spec->prefix_ids, spec->n_prefix, err); }
    if (status == CKVC_OK) { status = check_template(t, spec->suffix_ids, spec->n_suffix, err); }
    for (size_t i = 0; status == CKVC_OK && i < spec->n_splits; i++) {
        status = split_pattern_compile(&spec->splits[i], name, i, &t->splits[i], err);
    }
    if (status != CKVC_OK) {
        tokenizer_free(t);
        return status;
    }
    take_fingerprint(t);
    *out = t;
    return CKVC_OK;
}

void tokenizer_free(tokenizer *t) {
    if (!t) { return; }
    for (int i = 0; i < MAX_SPLITS; i++) {
        pcre2_code_free(t->splits[i]);
    }
    trie_fini(&t->raw_added);
    trie_fini(&t->normal_added);
    bpe_free(t->model);
    token_spec_free(t->spec);
    free(t->texts);
    free(t->text_bytes);
    free(t->name);
    free(t);
}

int32_t tokenizer_vocab_size(const tokenizer *t) {
    return t->vocab_size;
}

const char *tokenizer_fingerprint(const tokenizer *t) {
    return t->fingerprint;
}
