/* Files of a run beside its shards, and the journal's notes: see run_dir.h. */

#include "formats/run/run_internal.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

/* Below the run's folder, whatever the journal says. */
static bool is_inside(const char *name) {
    return name && *name && *name != '/' && !strstr(name, "..");
}

ckvc_status run_publish_file(run_dir *r, const char *name, const void *data, size_t n,
                             ckvc_err *err) {
    CKVC_FAIL_IF(!is_inside(name), err, CKVC_E_BUG, "%s: not a name within a run", name);
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->path, name);
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(path);
    CKVC_TRY(ckvc_make_dirs(dir, err));
    return ckvc_publish_bytes(path, data, n, true, err);
}

/* ---- notes ---- */
static const char *text_of(const json_t *line, const char *key) {
    return json_string_value(json_object_get(line, key));
}

static bool is_of_file(const json_t *line) { return strcmp(text_of(line, "note"), "file") == 0; }

ckvc_status run_take_note(run_dir *r, const json_t *line, const char *where, ckvc_err *err) {
    uint64_t bytes;
    CKVC_FAIL_IF(!text_of(line, "note") ||
                     (is_of_file(line) &&
                      (!is_inside(text_of(line, "name")) ||
                       !ckvc_json_is_hex(json_object_get(line, "sha256"), CKVC_SHA256_HEX - 1) ||
                       !ckvc_json_get_count(line, "bytes", RUN_MAX_FILE_BYTES, &bytes))),
                 err, CKVC_E_DATA, "%s: not a note (note: a name; of a file: name, bytes, sha256)",
                 where);
    json_array_append_new(r->notes, json_deep_copy(line));
    return CKVC_OK;
}

const json_t *run_notes(const run_dir *r) { return r->notes; }

ckvc_status run_note(run_dir *r, const char *kind, json_t *o, ckvc_err *err) {
    json_object_set_new(o, "note", json_string(kind));
    return run_journal(r, o, err);
}

/* ---- checkpoints ---- */

/* The last line of that name: a file that was made again is what it says. */
static const json_t *find_file(const run_dir *r, const char *name) {
    for (size_t i = json_array_size(r->notes); i-- > 0;) {
        const json_t *line = json_array_get(r->notes, i);
        if (is_of_file(line) && strcmp(text_of(line, "name"), name) == 0) { return line; }
    }
    return NULL;
}

bool run_has_file(const run_dir *r, const char *name) { return find_file(r, name) != NULL; }

static ckvc_status note_file(run_dir *r, const char *name, const void *data, size_t n,
                             ckvc_err *err) {
    char hash[CKVC_SHA256_HEX];
    ckvc_sha256_hex(data, n, hash);
    return run_note(
        r, "file",
        json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)n, "sha256", hash), err);
}

ckvc_status run_checkpoint_file(run_dir *r, const char *name, const void *data, size_t n,
                                ckvc_err *err) {
    CKVC_TRY(run_publish_file(r, name, data, n, err));
    return note_file(r, name, data, n, err);
}

ckvc_status run_checkpoint(run_dir *r, const char *name, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->path, name);
    CKVC_AUTO_FREE char *data = NULL;
    size_t n = 0;
    CKVC_TRY(ckvc_file_read(path, (size_t)RUN_MAX_FILE_BYTES, &data, &n, err));
    return note_file(r, name, data, n, err);
}

ckvc_status run_read_file(const run_dir *r, const char *name, char **data, size_t *n,
                          ckvc_err *err) {
    const json_t *line = find_file(r, name);
    *data = NULL;
    CKVC_FAIL_IF(!line, err, CKVC_E_NOINPUT, "%s: its journal has no %s", r->path, name);
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->path, name);
    return run_read_journaled(path, (uint64_t)json_integer_value(json_object_get(line, "bytes")),
                              text_of(line, "sha256"), data, n, err);
}

ckvc_status run_verify_files(const run_dir *r, ckvc_err *err) {
    for (size_t i = 0; i < json_array_size(r->notes); i++) {
        const json_t *line = json_array_get(r->notes, i);
        CKVC_AUTO_FREE char *data = NULL;
        size_t n;
        if (is_of_file(line)) { CKVC_TRY(run_read_file(r, text_of(line, "name"), &data, &n, err)); }
    }
    return CKVC_OK;
}
