/* Reads the prompt manifest, one JSON object a line. Every line is checked before any prompt is
 * used. The format is specified in manifest.md. */
#include "formats/lines/manifest.h"

#include <jansson.h>

#include "lib/base/json.h"
#include "lib/base/files.h"
#include "lib/base/sizes.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"

enum {
    MAX_LINE_BYTES = 64 << 20,
    MAX_NAME_BYTES =
        255, /* id, source, document and split become fixed-length strings of the shards */
    MAX_REFERENCED_MIB =
        2048 /* the texts of all "file" lines together; a short line can name a long file */
};

typedef struct line_reader {
    const char *where;  /* "FILE:LINE" */
    const char *folder; /* the manifest's folder after resolving links; "file" must stay inside */
    uint32_t line;
    uint64_t referenced; /* bytes read for "file" lines so far */
    ckvc_err *err;
} line_reader;

/* MUST states a rule of a line, MUST_KEY a rule of one of its members. */
#define MUST(r, holds, ...)              CKVC_REFUSE_IF(!(holds), (r)->err, (r)->where, __VA_ARGS__)
#define MUST_KEY(r, holds, key, problem) MUST(r, holds, "\"%s\" %s", key, problem)

static ckvc_status copy_text(line_reader *r, const char *key, const json_t *v, char **out,
                             size_t *size) {
    MUST_KEY(r, json_is_string(v), key, "must be a string");
    *size = json_string_length(v);
    *out = ckvc_copy(json_string_value(v), *size + 1, 1);
    return CKVC_OK;
}

/* Copies a short label, which is not empty and has at most 255 bytes and no control characters,
 * because reports print it. */
static ckvc_status copy_name(line_reader *r, const char *key, const json_t *v, char **out) {
    size_t size = 0;
    CKVC_TRY(copy_text(r, key, v, out, &size));
    MUST(r, size >= 1 && size <= MAX_NAME_BYTES, "\"%s\" has %zu bytes; want 1 to %d", key, size,
         MAX_NAME_BYTES);
    MUST_KEY(r, ckvc_utf8_is_line(*out, size), key, "has a control character");
    return CKVC_OK;
}

static ckvc_status copy_ids(line_reader *r, const char *key, const json_t *v, int32_t **out,
                            size_t *n) {
    MUST_KEY(r, json_array_size(v) > 0, key, "must be an array of token ids, not empty");
    *n = json_array_size(v);
    *out = ckvc_alloc(*n, sizeof **out);
    for (size_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(v, i);
        MUST(r, ckvc_json_is_count(id, INT32_MAX),
             "\"%s\"[%zu] is not a token id: want a whole number from 0 to %d", key, i, INT32_MAX);
        (*out)[i] = (int32_t)json_integer_value(id);
    }
    return CKVC_OK;
}

/* Resolves a relative path without "..". After its symbolic links are followed it must still lie
 * below the manifest's folder. */
static ckvc_status resolve_inside(line_reader *r, const char *name, char **out) {
    MUST_KEY(r, *name && *name != '/', "file", "must be a path relative to the manifest");
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        MUST_KEY(r, strncmp(part, "..", 2) != 0 || (part[2] && part[2] != '/'), "file",
                 "must stay inside the manifest's folder (no \"..\")");
    }
    CKVC_AUTO_FREE char *joined = ckvc_path_join(r->folder, name);
    CKVC_AUTO_FREE char *resolved = realpath(joined, NULL);
    CKVC_FAIL_ERRNO_IF(!resolved, r->err, CKVC_E_NOINPUT, "%s: \"file\" %s", r->where, joined);
    const size_t n = strlen(r->folder);
    MUST_KEY(r, strncmp(resolved, r->folder, n) == 0 && (resolved[n] == '/' || n == 1), "file",
             "leads outside the manifest's folder");
    *out = ckvc_take(&resolved);
    return CKVC_OK;
}

static ckvc_status span_number(line_reader *r, const json_t *object, const char *key,
                               uint64_t otherwise, uint64_t *out) {
    const json_t *v = json_object_get(object, key);
    MUST_KEY(r, !v || ckvc_json_is_count(v, INT64_MAX), key,
             "must be a whole number of bytes from 0");
    *out = v ? (uint64_t)json_integer_value(v) : otherwise;
    return CKVC_OK;
}

static ckvc_status read_file_text(line_reader *r, const json_t *object, manifest_entry *e) {
    const json_t *name = json_object_get(object, "file");
    MUST_KEY(r, json_is_string(name) && strlen(json_string_value(name)) == json_string_length(name),
             "file", "must be a path");
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    uint64_t offset = 0, bytes = 0;
    CKVC_TRY(resolve_inside(r, json_string_value(name), &path));
    CKVC_TRY(ckvc_map_open(path, &map, r->err));
    CKVC_TRY(span_number(r, object, "offset", 0, &offset));
    CKVC_TRY(span_number(r, object, "bytes", offset <= map.size ? map.size - offset : 0, &bytes));
    MUST(r, ckvc_span_ok(offset, bytes, map.size), "bytes %llu + %llu of %s, which has %llu",
         (unsigned long long)offset, (unsigned long long)bytes, path, (unsigned long long)map.size);
    MUST(r,
         bytes <= MAX_LINE_BYTES && (r->referenced += bytes) <= (uint64_t)MAX_REFERENCED_MIB << 20,
         "%llu bytes of %s; at most %d for one prompt and %d MiB for all",
         (unsigned long long)bytes, path, MAX_LINE_BYTES, MAX_REFERENCED_MIB);
    const char *text = (const char *)map.data + offset;
    const size_t good = ckvc_utf8_check(text, (size_t)bytes);
    MUST(r, good == bytes, "byte %llu of %s is not UTF-8", (unsigned long long)(offset + good),
         path);
    e->has_file = true;
    e->text_size = (size_t)bytes;
    e->text = ckvc_text_copy(text, e->text_size);
    return CKVC_OK;
}

/* Reads a message of a role and a text. Tools and contents of several parts are refused, because
 * every model family renders them differently. */
static ckvc_status read_message(line_reader *r, const json_t *m, size_t i, chat_message *out) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    const char *key, *want = "want an object of two strings, \"role\" and \"content\"";
    json_t *value;
    char *copy = NULL;
    size_t size = 0;
    MUST(r, json_is_string(role), "\"messages\"[%zu]: %s", i, want);
    CKVC_TRY(copy_text(r, "role", role, &copy, &size));
    out->role = copy;
    bool known = false;
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
        known |= strcmp(roles[k], out->role) == 0 && strlen(roles[k]) == size;
    }
    MUST(r, known, "\"messages\"[%zu] has the role \"%.32s\"; want system, user or assistant", i,
         out->role);
    json_object_foreach(ckvc_unconst(m), key, value) {
        MUST(r, strcmp(key, "role") == 0 || strcmp(key, "content") == 0,
             "\"messages\"[%zu] has \"%.64s\", which no template that ckvc knows writes; %s", i,
             key, want);
    }
    MUST(r, json_is_string(content), "\"content\" of \"messages\"[%zu] is no string; %s", i, want);
    CKVC_TRY(copy_text(r, "content", content, &copy, &out->content_size));
    out->content = copy;
    return CKVC_OK;
}

static ckvc_status read_messages(line_reader *r, const json_t *list, manifest_entry *e) {
    const size_t n = json_array_size(list);
    MUST_KEY(r, n > 0, "messages", "must be an array of messages, not empty");
    e->messages = ckvc_calloc(n, sizeof *e->messages);
    for (size_t i = 0; i < n; i++) {
        CKVC_TRY(read_message(r, json_array_get(list, i), i, &e->messages[e->n_messages++]));
    }
    ckvc_buffer text = {0};
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_printf(&text, "%s\n", e->messages[i].role);
        ckvc_buffer_append(&text, e->messages[i].content, e->messages[i].content_size);
        ckvc_buffer_text(&text, "\n");
    }
    e->text = (char *)text.data;
    e->text_size = text.size;
    return CKVC_OK;
}

manifest_key manifest_key_of(const char *word) {
#define X(name) #name,
    static const char *const names[] = {MANIFEST_KEYS(X)};
#undef X
    size_t k = 0;
    while (k < MANIFEST_KEY_COUNT && strcmp(names[k], word) != 0) { k++; }
    return (manifest_key)k;
}

static ckvc_status check_keys(line_reader *r, const json_t *object) {
    const char *key;
    json_t *value;
    MUST(r, json_is_object(object), "not a JSON object");
    json_object_foreach(ckvc_unconst(object), key, value) {
#define X(name) " " #name
        MUST(r, manifest_key_of(key) < MANIFEST_KEY_COUNT,
             "unknown key \"%.64s\"; there are" MANIFEST_KEYS(X), key);
#undef X
    }
    return CKVC_OK;
}

static ckvc_status read_entry(line_reader *r, const json_t *object, manifest_entry *e) {
    CKVC_TRY(check_keys(r, object));
#define GET(key) const json_t *key = json_object_get(object, #key);
    MANIFEST_KEYS(GET)
#undef GET
    MUST_KEY(r, id, "id", "is missing");
    const int bodies = !!text + !!tokens + !!file + !!messages;
    MUST(r, bodies == 1, "%s of \"text\", \"tokens\", \"file\" and \"messages\"; want exactly one",
         bodies ? "more than one" : "none");
    MUST_KEY(r, !continuation || !continuation_tokens, "continuation",
             "and \"continuation_tokens\" together; want at most one");
    MUST_KEY(r, file || !(offset || bytes), "offset", "and \"bytes\" belong to \"file\"");
    CKVC_TRY(copy_name(r, "id", id, &e->id));
    if (source) { CKVC_TRY(copy_name(r, "source", source, &e->source)); }
    if (document) { CKVC_TRY(copy_name(r, "document", document, &e->document)); }
    if (split) { CKVC_TRY(copy_name(r, "split", split, &e->split)); }
    if (text) { CKVC_TRY(copy_text(r, "text", text, &e->text, &e->text_size)); }
    if (file) { CKVC_TRY(read_file_text(r, object, e)); }
    if (messages) { CKVC_TRY(read_messages(r, messages, e)); }
    if (tokens) { CKVC_TRY(copy_ids(r, "tokens", tokens, &e->tokens, &e->n_tokens)); }
    if (continuation) {
        CKVC_TRY(
            copy_text(r, "continuation", continuation, &e->continuation, &e->continuation_size));
        MUST_KEY(r, e->continuation_size > 0, "continuation",
                 "is empty; leave it out to use the prompt's last tokens");
    }
    if (continuation_tokens) {
        CKVC_TRY(copy_ids(r, "continuation_tokens", continuation_tokens, &e->continuation_tokens,
                          &e->n_continuation_tokens));
    }
    return CKVC_OK;
}

static ckvc_status read_line(line_reader *r, const char *line, size_t n, manifest_entry *e) {
    e->line = r->line;
    MUST(r, n <= MAX_LINE_BYTES, "line of %zu bytes; at most %d (use \"file\" for long texts)", n,
         MAX_LINE_BYTES);
    MUST(r, r->line != 1 || n < 3 || memcmp(line, "\xEF\xBB\xBF", 3) != 0,
         "begins with a byte order mark; save the file without it");
    MUST(r, strspn(line, " \t\r") < n, "blank line; want one JSON object a line");
    const size_t good = ckvc_utf8_check(line, n);
    MUST(r, good == n, "byte %zu of the line is not UTF-8", good);
    json_error_t problem;
    json_auto_t *object =
        json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    MUST(r, object, "column %d: not valid JSON: %.200s", problem.column, problem.text);
    return read_entry(r, object, e);
}

static int by_id(const void *a, const void *b) {
    const manifest_entry *x = *(const manifest_entry *const *)a,
                         *y = *(const manifest_entry *const *)b;
    int order = strcmp(x->id, y->id);
    return order ? order : x->line < y->line ? -1 : 1;
}

static ckvc_status check_ids(const manifest *m, ckvc_err *err) {
    CKVC_AUTO_FREE const manifest_entry **sorted = ckvc_alloc(m->n_entries, sizeof(void *));
    for (size_t i = 0; i < m->n_entries; i++) { sorted[i] = &m->entries[i]; }
    qsort(sorted, m->n_entries, sizeof(void *), by_id);
    for (size_t i = 1; i < m->n_entries; i++) {
        CKVC_FAIL_IF(strcmp(sorted[i - 1]->id, sorted[i]->id) == 0, err, CKVC_E_DATA,
                     "%s:%u: \"id\" \"%s\" stands in line %u already", m->path, sorted[i]->line,
                     sorted[i]->id, sorted[i - 1]->line);
    }
    return CKVC_OK;
}

/* Finds the folder of a manifest, with its links resolved. */
static ckvc_status find_folder(const char *path, char **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(path);
    *out = realpath(folder, NULL);
    CKVC_FAIL_ERRNO_IF(!*out, err, CKVC_E_NOINPUT, "%s", folder);
    return CKVC_OK;
}

ckvc_status manifest_read(const char *path, manifest **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(manifest_free_at) manifest *m = ckvc_calloc(1, sizeof *m);
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    CKVC_AUTO_FREE char *folder = NULL;
    size_t capacity = 0;
    m->path = ckvc_strdup(path);
    CKVC_TRY(ckvc_map_open(path, &map, err));
    CKVC_TRY(find_folder(path, &folder, err));
    ckvc_sha256_hex(map.data, (size_t)map.size, m->sha256);
    CKVC_FAIL_IF(map.size == 0, err, CKVC_E_DATA, "%s: empty; want one JSON object a line", path);
    line_reader r = {.folder = folder, .err = err};
    for (ckvc_lines at = ckvc_lines_of(map.data, (size_t)map.size); ckvc_next_line(&at);) {
        CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", path, at.number);
        r.where = where;
        r.line = at.number;
        CKVC_FAIL_IF(r.line == UINT32_MAX, err, CKVC_E_DATA, "%s: more than %u lines", path,
                     UINT32_MAX - 1);
        CKVC_GROW(m->entries, capacity, m->n_entries + 1);
        m->entries[m->n_entries] = (manifest_entry){0};
        CKVC_TRY(read_line(&r, at.text, at.n, &m->entries[m->n_entries++]));
    }
    CKVC_TRY(check_ids(m, err));
    *out = ckvc_take(&m);
    return CKVC_OK;
}

ckvc_status manifest_read_line(const char *path, uint32_t line, const char *text, size_t n,
                               manifest_entry *out, ckvc_err *err) {
    *out = (manifest_entry){0};
    CKVC_AUTO_FREE char *folder = NULL;
    CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", path, line);
    CKVC_TRY(find_folder(path, &folder, err));
    line_reader r = {.where = where, .folder = folder, .line = line, .err = err};
    return read_line(&r, text, n, out);
}

void manifest_entry_fini(manifest_entry *e) {
    CKVC_FREE(e->id, e->source, e->document, e->split, e->text, e->tokens);
    for (size_t k = 0; k < e->n_messages; k++) {
        CKVC_FREE(e->messages[k].role, e->messages[k].content);
    }
    CKVC_FREE(e->messages, e->continuation, e->continuation_tokens);
    *e = (manifest_entry){0};
}

void manifest_free(manifest *m) {
    if (!m) { return; }
    for (size_t i = 0; i < m->n_entries; i++) { manifest_entry_fini(&m->entries[i]); }
    CKVC_FREE(m->entries, m->path, m);
}

static void set_ids(json_t *object, const char *key, const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) { json_array_append_new(list, json_integer(ids[i])); }
    json_object_set_new(object, key, list);
}

char *manifest_line(const manifest_entry *e) {
    json_auto_t *object = json_pack("{s:s, s:s*, s:s*, s:s*}", "id", e->id, "source", e->source,
                                    "document", e->document, "split", e->split);
    if (e->tokens) {
        set_ids(object, "tokens", e->tokens, e->n_tokens);
    } else if (e->n_messages) {
        json_t *list = json_array();
        for (size_t i = 0; i < e->n_messages; i++) {
            const chat_message *m = &e->messages[i];
            json_array_append_new(list, json_pack("{s:s, s:s%}", "role", m->role, "content",
                                                  m->content, m->content_size));
        }
        json_object_set_new(object, "messages", list);
    } else {
        json_object_set_new(object, "text", json_stringn(e->text, e->text_size));
    }
    if (e->continuation) {
        json_object_set_new(object, "continuation",
                            json_stringn(e->continuation, e->continuation_size));
    }
    if (e->continuation_tokens) {
        set_ids(object, "continuation_tokens", e->continuation_tokens, e->n_continuation_tokens);
    }
    return ckvc_json_canonical(object);
}
