/* Repeats and lengths of a manifest: see manifest_check.h. */
#include "corpus/leaks/manifest_check.h"

#include <jansson.h>

#include "corpus/leaks/entry_part.h"
#include "corpus/texts.h"

static ckvc_status length_of(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                             bool continuation, int64_t *length, ckvc_err *err) {
    const entry_part part = entry_part_of(e, continuation);
    if (!part.is_ids) { return text_length(tok, part.text, part.size, !continuation, length, err); }
    *length = (int64_t)part.n_ids;
    for (size_t i = 0; tok && i < part.n_ids; i++) {
        CKVC_FAIL_IF(part.ids[i] >= tokenizer_vocab_size(tok), err, CKVC_E_DATA,
                     "%s:%u: token %zu is %d; the model's vocabulary ends at %d", m->path, e->line,
                     i, part.ids[i], tokenizer_vocab_size(tok) - 1);
    }
    return CKVC_OK;
}

static void find_repeats(const manifest *m, manifest_facts *out) {
    json_auto_t *lines = json_object(); /* {hash of what a prompt says: its first line} */
    out->repeats = ckvc_calloc(m->n_entries, sizeof *out->repeats);
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        char hash[CKVC_SHA256_HEX];
        if (e->tokens) {
            ckvc_sha256_hex(e->tokens, e->n_tokens * sizeof *e->tokens, hash);
        } else {
            ckvc_sha256_hex(e->text, e->text_size, hash);
        }
        const json_t *original = json_object_get(lines, hash);
        if (!original) { json_object_set_new(lines, hash, json_integer(e->line)); }
        out->repeats[i] = original;
        if (original && out->n_repeated++ == 0) {
            out->first_repeated = e->line;
            out->first_original = (uint32_t)json_integer_value(original);
        }
    }
}

static void find_split_documents(const manifest *m, manifest_facts *out) {
    json_auto_t *first = json_object(), *several = json_object(); /* {document: entry} */
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        if (!e->document || !e->split) { continue; }
        const json_t *at = json_object_get(first, e->document);
        if (!at) {
            json_object_set_new(first, e->document, json_integer((json_int_t)i));
            continue;
        }
        const manifest_entry *other = &m->entries[json_integer_value(at)];
        if (strcmp(other->split, e->split) == 0) { continue; }
        if (json_object_size(several) == 0) {
            out->first_split = e->line;
            out->first_other = other->line;
        }
        json_object_set_new(several, e->document, json_true());
    }
    out->n_split_documents = json_object_size(several);
}

static check_group *group_of(manifest_facts *out, const manifest_entry *e) {
    const char *source = e->source ? e->source : "", *split = e->split ? e->split : "";
    for (size_t i = 0; i < out->n_groups; i++) {
        check_group *group = &out->groups[i];
        if (strcmp(group->source, source) == 0 && strcmp(group->split, split) == 0) {
            return group;
        }
    }
    out->groups = ckvc_realloc_array(out->groups, out->n_groups + 1, sizeof *out->groups);
    out->groups[out->n_groups] =
        (check_group){.source = source, .split = split, .shortest = INT64_MAX};
    return &out->groups[out->n_groups++];
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void count(check_group *of, int64_t length) {
    of->n++;
    of->total += length;
    of->shortest = smaller(length, of->shortest);
    of->longest = length > of->longest ? length : of->longest;
}

static ckvc_status look_at(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                           int64_t min_length, manifest_facts *out, ckvc_err *err) {
    check_group *group = group_of(out, e);
    int64_t length, tail;
    CKVC_TRY(length_of(m, e, tok, false, &length, err));
    if (e->continuation || e->continuation_tokens) {
        CKVC_TRY(length_of(m, e, tok, true, &tail, err));
        out->shortest_continuation =
            out->shortest_continuation < 0 ? tail : smaller(tail, out->shortest_continuation);
    }
    count(group, length);
    count(&out->all, length);
    if (length < min_length) {
        out->n_short++;
        out->first_short = out->first_short ? out->first_short : e->line;
    }
    return CKVC_OK;
}

ckvc_status manifest_look(const manifest *m, const tokenizer *tok, int64_t min_length,
                          manifest_facts *out, ckvc_err *err) {
    *out = (manifest_facts){.all.shortest = INT64_MAX, .shortest_continuation = -1};
    find_repeats(m, out);
    find_split_documents(m, out);
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < m->n_entries && status == CKVC_OK; i++) {
        status = look_at(m, &m->entries[i], tok, min_length, out, err);
    }
    if (status != CKVC_OK) { manifest_facts_fini(out); }
    return status;
}

void manifest_facts_fini(manifest_facts *facts) {
    CKVC_FREE(facts->groups, facts->repeats);
    *facts = (manifest_facts){0};
}
