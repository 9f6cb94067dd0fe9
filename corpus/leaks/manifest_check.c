/* Repeats and lengths of a manifest: see manifest_check.h. */
#include "corpus/leaks/manifest_check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

typedef struct body { /* what a prompt says, by its hash */
    uint8_t digest[CKVC_SHA256_BYTES];
    uint32_t line;
    size_t entry;
} body;

static ckvc_status length_of(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                             bool continuation, int64_t *length, ckvc_err *err) {
    bool given_ids = continuation ? e->has_continuation_tokens : e->has_tokens;
    const int32_t *ids = continuation ? e->continuation_tokens : e->tokens;
    size_t n_ids = continuation ? e->n_continuation_tokens : e->n_tokens;
    const char *text = continuation ? e->continuation : e->text;
    size_t size = continuation ? e->continuation_size : e->text_size;
    *length = (int64_t)n_ids;
    for (size_t i = 0; given_ids && tok && i < n_ids; i++) {
        if (ids[i] >= tokenizer_vocab_size(tok)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s:%u: token %zu is %d; the model's vocabulary ends at %d", m->path,
                             e->line, i, ids[i], tokenizer_vocab_size(tok) - 1);
        }
    }
    if (given_ids) { return CKVC_OK; }
    if (tok) {
        int32_t *found;
        ckvc_status status = tokenizer_encode(tok, text, size, !continuation, &found, &n_ids, err);
        free(found);
        *length = (int64_t)n_ids;
        return status;
    }
    *length = 0;
    for (size_t i = 0; i < size; i++) {
        *length += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return CKVC_OK;
}

static int by_digest(const void *a, const void *b) {
    const body *x = a, *y = b;
    int order = memcmp(x->digest, y->digest, sizeof x->digest);
    return order ? order : x->line < y->line ? -1 : 1;
}

static ckvc_status find_repeats(const manifest *m, manifest_facts *out, ckvc_err *err) {
    body *bodies = ckvc_alloc(m->n_entries, sizeof *bodies);
    out->repeats = ckvc_calloc(m->n_entries, sizeof *out->repeats);
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        bodies[i].line = e->line;
        bodies[i].entry = i;
        if (e->has_tokens) {
            ckvc_sha256_bytes(e->tokens, e->n_tokens * sizeof *e->tokens, bodies[i].digest);
        } else {
            ckvc_sha256_bytes(e->text, e->text_size, bodies[i].digest);
        }
    }
    qsort(bodies, m->n_entries, sizeof *bodies, by_digest);
    for (size_t i = 1; i < m->n_entries; i++) {
        if (memcmp(bodies[i - 1].digest, bodies[i].digest, sizeof bodies[i].digest) == 0) {
            out->n_repeated++;
            out->repeats[bodies[i].entry] = true;
            if (!out->first_repeated || bodies[i].line < out->first_repeated) {
                out->first_repeated = bodies[i].line;
                out->first_original = bodies[i - 1].line;
            }
        }
    }
    free(bodies);
    return CKVC_OK;
}

static check_group *group_of(manifest_facts *out, const manifest_entry *e) {
    const char *source = e->source ? e->source : "", *split = e->split ? e->split : "";
    for (size_t i = 0; i < out->n_groups; i++) {
        if (strcmp(out->groups[i].source, source) == 0 &&
            strcmp(out->groups[i].split, split) == 0) {
            return &out->groups[i];
        }
    }
    check_group *grown = ckvc_realloc_array(out->groups, out->n_groups + 1, sizeof *grown);
    if (!grown) { return NULL; }
    out->groups = grown;
    out->groups[out->n_groups] = (check_group){source, split, 0, INT64_MAX, 0, 0};
    return &out->groups[out->n_groups++];
}

ckvc_status manifest_look(const manifest *m, const tokenizer *tok, int64_t min_length,
                          manifest_facts *out, ckvc_err *err) {
    *out = (manifest_facts){.shortest = INT64_MAX, .shortest_continuation = -1};
    ckvc_status status = find_repeats(m, out, err);
    for (size_t i = 0; i < m->n_entries && status == CKVC_OK; i++) {
        const manifest_entry *e = &m->entries[i];
        check_group *group = group_of(out, e);
        int64_t length = 0, tail = 0;
        status = group ? length_of(m, e, tok, false, &length, err)
                       : ckvc_fail_memory(err, "sources", sizeof *group);
        if (status == CKVC_OK && (e->has_continuation || e->has_continuation_tokens)) {
            status = length_of(m, e, tok, true, &tail, err);
            if (out->shortest_continuation < 0 || tail < out->shortest_continuation) {
                out->shortest_continuation = tail;
            }
        }
        if (status != CKVC_OK) { break; }
        group->n++;
        group->total += length;
        out->total += length;
        group->shortest = length < group->shortest ? length : group->shortest;
        group->longest = length > group->longest ? length : group->longest;
        out->shortest = length < out->shortest ? length : out->shortest;
        out->longest = length > out->longest ? length : out->longest;
        if (length < min_length) {
            out->n_short++;
            out->first_short = out->first_short ? out->first_short : e->line;
        }
    }
    if (status != CKVC_OK) { manifest_facts_fini(out); }
    return status;
}

void manifest_facts_fini(manifest_facts *facts) {
    free(facts->groups);
    free(facts->repeats);
    *facts = (manifest_facts){0};
}
