/* Files of a run beside its shards, and the journal's notes: see run_dir.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/run/run_internal.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

#define MAX_FILE_BYTES ((uint64_t)2 << 30)

/* Below the run's folder, whatever the journal says. */
static bool is_inside(const char *name) {
    return name && *name && *name != '/' && !strstr(name, "..");
}

ckvc_status run_publish_file(run_dir *r, const char *name, const void *data, size_t n, bool force,
                             ckvc_err *err) {
    CKVC_FAIL_IF(!is_inside(name), err, CKVC_E_BUG, "%s: not a name within a run", name);
    char *path = ckvc_path_join(r->path, name), *dir = path ? ckvc_path_dir(path) : NULL;
    ckvc_status st = dir ? ckvc_make_dirs(dir, err) : ckvc_fail_memory(err, "a path", 1);
    st = st ? st : ckvc_publish_bytes(path, data, n, force, err);
    free(dir);
    free(path);
    return st;
}

/* ---- notes ---- */
ckvc_status run_take_note(run_dir *r, const json_t *line, const char *where, ckvc_err *err) {
    const char *kind = json_string_value(json_object_get(line, "note"));
    char hash[CKVC_SHA256_HEX];
    uint64_t bytes;
    CKVC_FAIL_IF(!kind || (strcmp(kind, "file") == 0 &&
                           (!is_inside(json_string_value(json_object_get(line, "name"))) ||
                            !run_get_sha256(line, "sha256", hash) ||
                            !run_get_u64(line, "bytes", MAX_FILE_BYTES, &bytes))),
                 err, CKVC_E_DATA, "%s: not a note (note: a name; of a file: name, bytes, sha256)",
                 where);
    json_t *copy = json_deep_copy(line);
    return copy && json_array_append_new(r->notes, copy) == 0
               ? CKVC_OK
               : ckvc_fail_memory(err, "a note", 256);
}

const json_t *run_notes(const run_dir *r) { return r->notes; }

ckvc_status run_note(run_dir *r, const char *kind, json_t *o, ckvc_err *err) {
    if (!o || json_object_set_new(o, "note", json_string(kind)) != 0) {
        json_decref(o);
        return ckvc_fail_memory(err, "a note", 256);
    }
    return run_journal(r, o, err);
}

/* ---- checkpoints ---- */

/* The last line of that name: a file that was made again is what it says. */
static const json_t *find_file(const run_dir *r, const char *name) {
    for (size_t i = json_array_size(r->notes); i-- > 0;) {
        const json_t *line = json_array_get(r->notes, i);
        const char *of = json_string_value(json_object_get(line, "name"));
        if (strcmp(json_string_value(json_object_get(line, "note")), "file") == 0 &&
            strcmp(of, name) == 0) {
            return line;
        }
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
    ckvc_status st = run_publish_file(r, name, data, n, true, err);
    return st ? st : note_file(r, name, data, n, err);
}

ckvc_status run_checkpoint(run_dir *r, const char *name, ckvc_err *err) {
    char *path = ckvc_path_join(r->path, name), *data = NULL;
    size_t n = 0;
    ckvc_status st = path ? ckvc_file_read(path, (size_t)MAX_FILE_BYTES, &data, &n, err)
                          : ckvc_fail_memory(err, "a path", 1);
    st = st ? st : note_file(r, name, data, n, err);
    free(data);
    free(path);
    return st;
}

ckvc_status run_clean_folder(run_dir *r, const char *folder, ckvc_err *err) {
    char *path = ckvc_path_join(r->path, folder);
    ckvc_status st = !path               ? ckvc_fail_memory(err, "a path", 1)
                     : ckvc_is_dir(path) ? run_remove_temporaries(path, err)
                                         : CKVC_OK;
    free(path);
    return st;
}

ckvc_status run_read_file(const run_dir *r, const char *name, char **data, size_t *n,
                          ckvc_err *err) {
    const json_t *line = find_file(r, name);
    *data = NULL;
    CKVC_FAIL_IF(!line, err, CKVC_E_NOINPUT, "%s: its journal has no %s", r->path, name);
    char *path = ckvc_path_join(r->path, name), hash[CKVC_SHA256_HEX];
    const char *wanted = json_string_value(json_object_get(line, "sha256"));
    json_int_t bytes = json_integer_value(json_object_get(line, "bytes"));
    ckvc_status st = path ? ckvc_file_read(path, (size_t)MAX_FILE_BYTES, data, n, err)
                          : ckvc_fail_memory(err, "a path", 1);
    if (st == CKVC_OK) {
        ckvc_sha256_hex(*data, *n, hash);
        if ((json_int_t)*n != bytes || strcmp(hash, wanted) != 0) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s: SHA-256 %.16s... of %zu bytes, the journal says %.16s... of %lld; "
                           "the file was changed",
                           path, hash, *n, wanted, (long long)bytes);
            free(*data);
            *data = NULL;
        }
    }
    free(path);
    return st;
}

ckvc_status run_verify_files(const run_dir *r, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    for (size_t i = 0; st == CKVC_OK && i < json_array_size(r->notes); i++) {
        const json_t *line = json_array_get(r->notes, i);
        char *data;
        size_t n;
        if (strcmp(json_string_value(json_object_get(line, "note")), "file") == 0) {
            st = run_read_file(r, json_string_value(json_object_get(line, "name")), &data, &n, err);
            free(st == CKVC_OK ? data : NULL);
        }
    }
    return st;
}
