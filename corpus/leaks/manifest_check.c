/* Finds repeats in a manifest and counts lengths: see manifest_check.h. */
#include "corpus/leaks/manifest_check.h"

#include <stdio.h>
#include <sys/stat.h>

#include "corpus/leaks/leak_check.h"
#include "corpus/texts.h"
#include "corpus/leaks/line_stream.h"
#include "lib/base/files.h"

static ckvc_status length_of(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                             const chat_template *chat, bool continuation, int64_t *length,
                             ckvc_err *err) {
    const entry_part part = entry_part_of(e, continuation);
    if (tok && e->n_messages && !continuation) {
        ckvc_err why = {0};
        const ckvc_status st = messages_length(tok, chat, e->messages, e->n_messages, length, &why);
        CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s:%u: %s", m->path, e->line, why.text);
        return st;
    }
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

/* Returns the group of an entry, which is valid until the next call. */
static check_group *find_group(manifest_facts *out, const manifest_entry *e) {
    const char *source = e->source ? e->source : "", *split = e->split ? e->split : "";
    CKVC_AUTO_FREE char *key = ckvc_format("%s\n%s", split, source);
    const json_t *there = json_object_get(out->group_at, key);
    if (there) { return &out->groups[json_integer_value(there)]; }
    json_object_set_new_nocheck(out->group_at, key, json_integer((json_int_t)out->n_groups));
    out->groups = ckvc_realloc_array(out->groups, out->n_groups + 1, sizeof *out->groups);
    out->groups[out->n_groups] =
        (check_group){.source = source, .split = split, .shortest = INT64_MAX};
    return &out->groups[out->n_groups++];
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void count_length(check_group *of, int64_t length) {
    of->n++;
    of->total += length;
    of->shortest = smaller(length, of->shortest);
    of->longest = length > of->longest ? length : of->longest;
}

static ckvc_status look_at(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                           const chat_template *chat, int64_t min_length, manifest_facts *out,
                           ckvc_err *err) {
    check_group *group = find_group(out, e);
    int64_t length, tail;
    CKVC_TRY(length_of(m, e, tok, chat, false, &length, err));
    if (e->continuation || e->continuation_tokens) {
        CKVC_TRY(length_of(m, e, tok, chat, true, &tail, err));
        out->shortest_continuation =
            out->shortest_continuation < 0 ? tail : smaller(tail, out->shortest_continuation);
    }
    count_length(group, length);
    count_length(&out->all, length);
    if (length < min_length) {
        out->n_short++;
        out->first_short = out->first_short ? out->first_short : e->line;
    }
    return CKVC_OK;
}

ckvc_status manifest_look(const manifest *m, const tokenizer *tok, const chat_template *chat,
                          int64_t min_length, manifest_facts *out, ckvc_err *err) {
    *out = (manifest_facts){
        .all.shortest = INT64_MAX, .shortest_continuation = -1, .group_at = json_object()};
    find_repeats(m, out);
    find_split_documents(m, out);
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < m->n_entries && status == CKVC_OK; i++) {
        status = look_at(m, &m->entries[i], tok, chat, min_length, out, err);
    }
    if (status != CKVC_OK) { manifest_facts_fini(out); }
    return status;
}

void manifest_facts_fini(manifest_facts *facts) {
    CKVC_FREE(facts->groups, facts->repeats);
    json_decref(facts->group_at);
    *facts = (manifest_facts){0};
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Refuses a clean manifest in another folder where a line has a "file", because that is a path
 * relative to the manifest's folder. */
static ckvc_status check_folder(const manifest *m, const char *path, ckvc_err *err) {
    size_t i = 0;
    while (i < m->n_entries && !m->entries[i].has_file) { i++; }
    if (i == m->n_entries) { return CKVC_OK; }
    CKVC_AUTO_FREE char *mine = ckvc_path_dir(m->path);
    CKVC_AUTO_FREE char *theirs = ckvc_path_dir(path);
    CKVC_FAIL_IF(!same_file(mine, theirs), err, CKVC_E_USAGE,
                 "%s: %s:%u names a \"file\" of the manifest's folder; write the clean manifest "
                 "there, too",
                 path, m->path, m->entries[i].line);
    return CKVC_OK;
}

ckvc_status manifest_clean_ready(const manifest *m, const char *const *read, size_t n_read,
                                 const char *path, bool force, ckvc_err *err) {
    CKVC_FAIL_IF(same_file(path, m->path), err, CKVC_E_USAGE,
                 "%s: is the manifest itself; give the clean one another name", path);
    for (size_t i = 0; i < n_read; i++) {
        CKVC_FAIL_IF(
            same_file(path, read[i]), err, CKVC_E_USAGE,
            "%s: is what the prompts are compared with; give the clean manifest another name",
            path);
    }
    CKVC_TRY(ckvc_publish_check(path, force, err));
    return check_folder(m, path, err);
}

/* Copies the lines that are not left out. The LF of a line is written only when the next line, or
 * the file's size at the end, has shown that the line has one. */
static ckvc_status copy_lines(const manifest *m, const bool *left_out, line_stream *s, FILE *f,
                              const char *path, ckvc_err *err) {
    char *text, sha256[CKVC_SHA256_HEX];
    size_t n, i = 0;
    uint64_t line, with_newlines = 0, bytes;
    bool pending = false;
    for (;;) {
        CKVC_TRY(line_stream_next(s, &text, &n, &line, err));
        if (!text || i == m->n_entries) { break; }
        if (pending) { putc('\n', f); }
        pending = !left_out[i++];
        if (pending) { fwrite(text, 1, n, f); }
        with_newlines += n + 1;
        CKVC_FAIL_ERRNO_IF(ferror(f), err, CKVC_E_IO, "%s: writing failed at line %llu", path,
                           (unsigned long long)line);
    }
    line_stream_digest(s, sha256, &bytes);
    CKVC_FAIL_IF(text || i < m->n_entries || strcmp(sha256, m->sha256) != 0, err, CKVC_E_DATA,
                 "%s: changed while it was checked; check it again", m->path);
    if (pending && bytes == with_newlines) { putc('\n', f); }
    return CKVC_OK;
}

ckvc_status manifest_clean_write(const manifest *m, const bool *left_out, const char *path,
                                 bool force, ckvc_err *err) {
    size_t kept = 0;
    for (size_t i = 0; i < m->n_entries; i++) { kept += !left_out[i]; }
    CKVC_FAIL_IF(kept == 0, err, CKVC_E_DATA,
                 "%s: none of its %zu prompts is left; %s is not written", m->path, m->n_entries,
                 path);
    CKVC_AUTO(ckvc_publish_abort) ckvc_publish p = {0};
    CKVC_AUTO(line_stream_close_at) line_stream *s = NULL;
    CKVC_TRY(ckvc_publish_begin(&p, path, force, err));
    CKVC_TRY(line_stream_open(m->path, &s, err));
    FILE *f = fopen(p.tmp_path, "wbe");
    CKVC_FAIL_ERRNO_IF(!f, err, CKVC_E_CREATE, "%s: cannot create", p.tmp_path);
    const ckvc_status st = copy_lines(m, left_out, s, f, path, err);
    CKVC_FAIL_ERRNO_IF(fclose(f) != 0 && st == CKVC_OK, err, CKVC_E_IO,
                       "%s: writing failed at the end", path);
    CKVC_TRY(st);
    return ckvc_publish_commit(&p, err);
}
