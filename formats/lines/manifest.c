/* The prompt manifest: one JSON object a line, every line checked before any prompt is used. Spec:
 * manifest.md. */
#include "formats/lines/manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"
#include "lib/base/utf8.h"

enum {
    MAX_LINE_BYTES = 64 << 20,
    MAX_NAME_BYTES = 255, /* id, source and split become fixed-length strings of the shards */
    MAX_REFERENCED_MIB =
        2048 /* texts of all "file" lines together: a short line can name a long file */
};

typedef struct line_reader {
    manifest *m;
    char *folder; /* of the manifest, resolved: "file" must stay inside */
    uint32_t line;
    uint64_t referenced; /* bytes read for "file" lines so far */
    ckvc_err *err;
} line_reader;

static ckvc_status bad(line_reader *r, const char *key, const char *problem) {
    return ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: \"%s\" %s", r->m->path, r->line, key, problem);
}

static ckvc_status copy_text(line_reader *r, const char *key, const json_t *v, char **out,
                             size_t *size) {
    if (!json_is_string(v)) { return bad(r, key, "must be a string"); }
    *size = json_string_length(v);
    *out = ckvc_alloc(*size + 1, 1);
    if (!*out) { return ckvc_fail_memory(r->err, key, *size + 1); }
    memcpy(*out, json_string_value(v), *size + 1);
    return CKVC_OK;
}

/* A short label: not empty, at most 255 bytes, no control characters (it is printed in reports). */
static ckvc_status copy_name(line_reader *r, const char *key, const json_t *v, char **out) {
    size_t size = 0;
    ckvc_status status = copy_text(r, key, v, out, &size);
    if (status != CKVC_OK) { return status; }
    CKVC_FAIL_IF(size == 0 || size > MAX_NAME_BYTES, r->err, CKVC_E_DATA,
                 "%s:%u: \"%s\" has %zu bytes; want 1 to %d", r->m->path, r->line, key, size,
                 MAX_NAME_BYTES);
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)(*out)[i] < 0x20 || (*out)[i] == 0x7F) {
            return bad(r, key, "has a control character");
        }
    }
    return CKVC_OK;
}

static ckvc_status copy_ids(line_reader *r, const char *key, const json_t *v, int32_t **out,
                            size_t *n) {
    if (!json_is_array(v) || json_array_size(v) == 0) {
        return bad(r, key, "must be an array of token ids, not empty");
    }
    size_t count = json_array_size(v);
    *out = ckvc_alloc(count, sizeof **out);
    if (!*out) { return ckvc_fail_memory(r->err, key, count * sizeof **out); }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(v, i);
        CKVC_FAIL_IF(!json_is_integer(id) || json_integer_value(id) < 0 ||
                         json_integer_value(id) > INT32_MAX,
                     r->err, CKVC_E_DATA,
                     "%s:%u: \"%s\"[%zu] is not a token id: want a whole number from 0 to %d",
                     r->m->path, r->line, key, i, INT32_MAX);
        (*out)[i] = (int32_t)json_integer_value(id);
    }
    *n = count;
    return CKVC_OK;
}

/* A relative path without "..", which after resolving symbolic links still lies below the
 * manifest's folder. */
static ckvc_status resolve_inside(line_reader *r, const char *name, char **out) {
    *out = NULL;
    if (name[0] == '/' || name[0] == '\0') {
        return bad(r, "file", "must be a path relative to the manifest");
    }
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return bad(r, "file", "must stay inside the manifest's folder (no \"..\")");
        }
    }
    char *joined = ckvc_path_join(r->folder, name),
         *resolved = joined ? realpath(joined, NULL) : NULL;
    ckvc_status status = CKVC_OK;
    size_t n = strlen(r->folder);
    if (!joined) {
        status = ckvc_fail_memory(r->err, "file", strlen(name));
    } else if (!resolved) {
        status = ckvc_fail_errno(r->err, CKVC_E_NOINPUT, "%s:%u: \"file\" %s", r->m->path, r->line,
                                 joined);
    } else if (strncmp(resolved, r->folder, n) != 0 || (resolved[n] != '/' && n > 1)) {
        status = bad(r, "file", "leads outside the manifest's folder");
    } else {
        *out = resolved;
        resolved = NULL;
    }
    free(joined);
    free(resolved);
    return status;
}

static ckvc_status span_number(line_reader *r, const char *key, const json_t *v, uint64_t otherwise,
                               uint64_t *out) {
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0)) {
        return bad(r, key, "must be a whole number of bytes from 0");
    }
    *out = v ? (uint64_t)json_integer_value(v) : otherwise;
    return CKVC_OK;
}

static ckvc_status read_file_text(line_reader *r, const json_t *object, manifest_entry *e) {
    const json_t *name = json_object_get(object, "file");
    if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name)) {
        return bad(r, "file", "must be a path");
    }
    char *path;
    ckvc_map map = {0};
    uint64_t offset = 0, bytes = 0;
    ckvc_status status = resolve_inside(r, json_string_value(name), &path);
    if (status == CKVC_OK) { status = ckvc_map_open(path, &map, r->err); }
    if (status == CKVC_OK) {
        status = span_number(r, "offset", json_object_get(object, "offset"), 0, &offset);
    }
    if (status == CKVC_OK) {
        status = span_number(r, "bytes", json_object_get(object, "bytes"),
                             offset <= map.size ? map.size - offset : 0, &bytes);
    }
    if (status == CKVC_OK && !ckvc_span_ok(offset, bytes, map.size)) {
        status = ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: bytes %llu + %llu of %s, which has %llu",
                           r->m->path, r->line, (unsigned long long)offset,
                           (unsigned long long)bytes, path, (unsigned long long)map.size);
    }
    if (status == CKVC_OK &&
        (bytes > MAX_LINE_BYTES || (r->referenced += bytes) > (uint64_t)MAX_REFERENCED_MIB << 20)) {
        status = ckvc_fail(r->err, CKVC_E_DATA,
                           "%s:%u: %llu bytes of %s; at most %d for one prompt and %d MiB for all",
                           r->m->path, r->line, (unsigned long long)bytes, path, MAX_LINE_BYTES,
                           MAX_REFERENCED_MIB);
    }
    if (status == CKVC_OK) {
        const char *text = (const char *)map.data + offset;
        size_t good = ckvc_utf8_check(text, (size_t)bytes);
        if (good < bytes) {
            status = ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: byte %llu of %s is not UTF-8",
                               r->m->path, r->line, (unsigned long long)(offset + good), path);
        } else if (!(e->text = ckvc_alloc((size_t)bytes + 1, 1))) {
            status = ckvc_fail_memory(r->err, path, (size_t)bytes + 1);
        } else {
            memcpy(e->text, text, (size_t)bytes);
            e->text[bytes] = '\0';
            e->text_size = (size_t)bytes;
        }
    }
    ckvc_map_close(&map);
    free(path);
    return status;
}

/* Tools and multi-part contents render differently in every family: not there. */
static ckvc_status read_message(line_reader *r, const json_t *m, size_t i, manifest_message *out) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    CKVC_FAIL_IF(
        !json_is_string(role) || !json_is_string(content) || json_object_size(m) != 2, r->err,
        CKVC_E_DATA,
        "%s:%u: \"messages\"[%zu] must be an object of two strings, \"role\" and \"content\"",
        r->m->path, r->line, i);
    size_t k = 0, size;
    const size_t n_roles = sizeof roles / sizeof *roles;
    while (k < n_roles && (strcmp(roles[k], json_string_value(role)) != 0 ||
                           strlen(roles[k]) != json_string_length(role))) {
        k++;
    }
    CKVC_FAIL_IF(k == n_roles, r->err, CKVC_E_DATA,
                 "%s:%u: \"messages\"[%zu] has the role \"%.32s\"; want system, user or assistant",
                 r->m->path, r->line, i, json_string_value(role));
    ckvc_status status = copy_text(r, "role", role, &out->role, &size);
    if (status == CKVC_OK) {
        status = copy_text(r, "content", content, &out->content, &out->content_size);
    }
    return status;
}

static ckvc_status read_messages(line_reader *r, const json_t *list, manifest_entry *e) {
    const size_t n = json_array_size(list);
    if (n == 0) { return bad(r, "messages", "must be an array of messages, not empty"); }
    e->messages = ckvc_calloc(n, sizeof *e->messages);
    for (size_t i = 0; i < n; i++) {
        ckvc_status status =
            read_message(r, json_array_get(list, i), i, &e->messages[e->n_messages++]);
        if (status != CKVC_OK) { return status; }
    }
    ckvc_buffer text = {0};
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_printf(&text, "%s\n", e->messages[i].role);
        ckvc_buffer_append(&text, e->messages[i].content, e->messages[i].content_size);
        ckvc_buffer_text(&text, "\n");
    }
    e->text = (char *)text.data;
    e->text_size = text.size;
    return text.failed ? ckvc_fail_memory(r->err, "messages", text.size) : CKVC_OK;
}

static ckvc_status read_entry(line_reader *r, const json_t *object, manifest_entry *e) {
    static const char *const keys[] = {
        "id",     "source", "text",     "tokens",       "file",
        "offset", "bytes",  "messages", "continuation", "continuation_tokens",
        "split"};
    const char *key;
    json_t *value;
    CKVC_FAIL_IF(!json_is_object(object), r->err, CKVC_E_DATA, "%s:%u: not a JSON object",
                 r->m->path, r->line);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i], key) != 0) { i++; }
        CKVC_FAIL_IF(i == sizeof keys / sizeof *keys, r->err, CKVC_E_DATA,
                     "%s:%u: unknown key \"%.64s\"", r->m->path, r->line, key);
    }
    const json_t *id = json_object_get(object, "id"), *source = json_object_get(object, "source");
    const json_t *split = json_object_get(object, "split"), *text = json_object_get(object, "text");
    const json_t *tokens = json_object_get(object, "tokens"),
                 *file = json_object_get(object, "file");
    const json_t *messages = json_object_get(object, "messages");
    const json_t *continuation = json_object_get(object, "continuation"),
                 *ids = json_object_get(object, "continuation_tokens");
    if (!id) { return bad(r, "id", "is missing"); }
    int bodies = (text != NULL) + (tokens != NULL) + (file != NULL) + (messages != NULL);
    CKVC_FAIL_IF(bodies != 1, r->err, CKVC_E_DATA,
                 "%s:%u: %s of \"text\", \"tokens\", \"file\" and \"messages\"; want exactly one",
                 r->m->path, r->line, bodies ? "more than one" : "none");
    if (continuation && ids) {
        return bad(r, "continuation", "and \"continuation_tokens\" together; want at most one");
    }
    if (!file && (json_object_get(object, "offset") || json_object_get(object, "bytes"))) {
        return bad(r, "offset", "and \"bytes\" belong to \"file\"");
    }
    ckvc_status status = copy_name(r, "id", id, &e->id);
    if (status == CKVC_OK && source) { status = copy_name(r, "source", source, &e->source); }
    if (status == CKVC_OK && split) { status = copy_name(r, "split", split, &e->split); }
    if (status == CKVC_OK && text) { status = copy_text(r, "text", text, &e->text, &e->text_size); }
    if (status == CKVC_OK && tokens) {
        e->has_tokens = true;
        status = copy_ids(r, "tokens", tokens, &e->tokens, &e->n_tokens);
    }
    if (status == CKVC_OK && file) {
        e->has_file = true;
        status = read_file_text(r, object, e);
    }
    if (status == CKVC_OK && messages) { status = read_messages(r, messages, e); }
    if (status == CKVC_OK && continuation) {
        e->has_continuation = true;
        status =
            copy_text(r, "continuation", continuation, &e->continuation, &e->continuation_size);
        if (status == CKVC_OK && e->continuation_size == 0) {
            status =
                bad(r, "continuation", "is empty; leave it out to use the prompt's last tokens");
        }
    }
    if (status == CKVC_OK && ids) {
        e->has_continuation_tokens = true;
        status = copy_ids(r, "continuation_tokens", ids, &e->continuation_tokens,
                          &e->n_continuation_tokens);
    }
    return status;
}

static ckvc_status read_line(line_reader *r, const char *line, size_t n, manifest_entry *e) {
    const manifest *m = r->m;
    e->line = r->line;
    CKVC_FAIL_IF(n > MAX_LINE_BYTES, r->err, CKVC_E_DATA,
                 "%s:%u: line of %zu bytes; at most %d (use \"file\" for long texts)", m->path,
                 r->line, n, MAX_LINE_BYTES);
    CKVC_FAIL_IF(r->line == 1 && n >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0, r->err,
                 CKVC_E_DATA, "%s:1: begins with a byte order mark; save the file without it",
                 m->path);
    CKVC_FAIL_IF(strspn(line, " \t\r") >= n, r->err, CKVC_E_DATA,
                 "%s:%u: blank line; want one JSON object a line", m->path, r->line);
    size_t good = ckvc_utf8_check(line, n);
    CKVC_FAIL_IF(good < n, r->err, CKVC_E_DATA, "%s:%u: byte %zu of the line is not UTF-8", m->path,
                 r->line, good);
    json_error_t problem;
    json_t *object =
        json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    CKVC_FAIL_IF(!object, r->err, CKVC_E_DATA, "%s:%u: column %d: not valid JSON: %.200s", m->path,
                 r->line, problem.column, problem.text);
    ckvc_status status = read_entry(r, object, e);
    json_decref(object);
    return status;
}

static int by_id(const void *a, const void *b) {
    const manifest_entry *x = *(const manifest_entry *const *)a,
                         *y = *(const manifest_entry *const *)b;
    int order = strcmp(x->id, y->id);
    return order ? order : x->line < y->line ? -1 : 1;
}

static ckvc_status check_ids(const manifest *m, ckvc_err *err) {
    const manifest_entry **sorted = ckvc_alloc(m->n_entries, sizeof *sorted);
    for (size_t i = 0; i < m->n_entries; i++) { sorted[i] = &m->entries[i]; }
    qsort(sorted, m->n_entries, sizeof *sorted, by_id);
    ckvc_status status = CKVC_OK;
    for (size_t i = 1; i < m->n_entries && status == CKVC_OK; i++) {
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0) {
            status = ckvc_fail(err, CKVC_E_DATA, "%s:%u: \"id\" \"%s\" stands in line %u already",
                               m->path, sorted[i]->line, sorted[i]->id, sorted[i - 1]->line);
        }
    }
    free(sorted);
    return status;
}

ckvc_status manifest_read(const char *path, manifest **out, ckvc_err *err) {
    *out = NULL;
    manifest *m = ckvc_calloc(1, sizeof *m);
    line_reader r = {m, NULL, 0, 0, err};
    ckvc_map map = {0};
    char *folder = ckvc_path_dir(path);
    size_t capacity = 0;
    ckvc_status status = CKVC_OK;
    if (!m || !folder || !(m->path = ckvc_strdup(path))) {
        status = ckvc_fail_memory(err, "manifest", sizeof *m);
        goto done;
    }
    status = ckvc_map_open(path, &map, err);
    if (status != CKVC_OK) { goto done; }
    r.folder = realpath(folder, NULL);
    if (!r.folder) {
        status = ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s", folder);
        goto done;
    }
    ckvc_sha256_hex(map.data, (size_t)map.size, m->sha256);
    if (map.size == 0) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: empty; want one JSON object a line", path);
    }
    const char *at = (const char *)map.data, *end = at + map.size;
    while (status == CKVC_OK && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        if (++r.line == UINT32_MAX) {
            status = ckvc_fail(err, CKVC_E_DATA, "%s: more than %u lines", path, UINT32_MAX - 1);
            break;
        }
        void *entries = m->entries;
        status = ckvc_grow(&entries, &capacity, m->n_entries + 1, sizeof *m->entries, err);
        m->entries = entries;
        if (status == CKVC_OK) {
            m->entries[m->n_entries] = (manifest_entry){0};
            status = read_line(&r, at, n, &m->entries[m->n_entries++]);
        }
        at += n + 1;
    }
    if (status == CKVC_OK) { status = check_ids(m, err); }
done:
    ckvc_map_close(&map);
    free(folder);
    free(r.folder);
    if (status != CKVC_OK) {
        manifest_free(m);
        return status;
    }
    *out = m;
    return CKVC_OK;
}

ckvc_status manifest_read_line(const char *path, uint32_t line, const char *text, size_t n,
                               manifest_entry *out, ckvc_err *err) {
    *out = (manifest_entry){0};
    manifest m = {.path = ckvc_strdup(path)};
    char *folder = ckvc_path_dir(path);
    line_reader r = {&m, folder ? realpath(folder, NULL) : NULL, line, 0, err};
    ckvc_status status = CKVC_OK;
    if (!m.path || !folder) {
        status = ckvc_fail_memory(err, "manifest", strlen(path));
    } else if (!r.folder) {
        status = ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s", folder);
    } else {
        status = read_line(&r, text, n, out);
    }
    free(m.path);
    free(folder);
    free(r.folder);
    return status;
}

void manifest_entry_fini(manifest_entry *e) {
    free(e->id);
    free(e->source);
    free(e->split);
    free(e->text);
    free(e->tokens);
    for (size_t k = 0; k < e->n_messages; k++) {
        free(e->messages[k].role);
        free(e->messages[k].content);
    }
    free(e->messages);
    free(e->continuation);
    free(e->continuation_tokens);
    *e = (manifest_entry){0};
}

void manifest_free(manifest *m) {
    if (!m) { return; }
    for (size_t i = 0; i < m->n_entries; i++) { manifest_entry_fini(&m->entries[i]); }
    free(m->entries);
    free(m->path);
    free(m);
}

static bool set_ids(json_t *object, const char *key, const int32_t *ids, size_t n) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        ok = json_array_append_new(list, json_integer(ids[i])) == 0;
    }
    if (!ok) {
        json_decref(list);
        return false;
    }
    return json_object_set_new(object, key, list) == 0;
}

static json_t *messages_json(const manifest_entry *e) {
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_messages; i++) {
        const manifest_message *m = &e->messages[i];
        json_array_append_new(list, json_pack("{s:s, s:s%}", "role", m->role, "content", m->content,
                                              m->content_size)); /* a NULL element fails below */
    }
    if (json_array_size(list) != e->n_messages) {
        json_decref(list);
        return NULL;
    }
    return list;
}

char *manifest_line(const manifest_entry *e) {
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "id", json_string(e->id)) == 0;
    if (ok && e->source) {
        ok = json_object_set_new(object, "source", json_string(e->source)) == 0;
    }
    if (ok && e->split) { ok = json_object_set_new(object, "split", json_string(e->split)) == 0; }
    if (ok) {
        ok = e->has_tokens ? set_ids(object, "tokens", e->tokens, e->n_tokens)
             : e->n_messages
                 ? json_object_set_new(object, "messages", messages_json(e)) == 0
                 : json_object_set_new(object, "text", json_stringn(e->text, e->text_size)) == 0;
    }
    if (ok && e->has_continuation) {
        ok = json_object_set_new(object, "continuation",
                                 json_stringn(e->continuation, e->continuation_size)) == 0;
    }
    if (ok && e->has_continuation_tokens) {
        ok = set_ids(object, "continuation_tokens", e->continuation_tokens,
                     e->n_continuation_tokens);
    }
    char *line = ok ? ckvc_json_canonical(object) : NULL;
    json_decref(object);
    return line;
}
