/* The run directory: its folder, its lock, and how it is read. run_lines.c has the journal's lines,
 * and run_pass.c writes a pass. */
#include <dirent.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdlib.h>

#include "formats/run/durable.h"
#include "formats/run/run_internal.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/bytes.h"
#include "lib/base/hash.h"

/* ---- folder and lock ---- */
ckvc_status run_folder_is_fresh(const char *path, bool *fresh, ckvc_err *err) {
    DIR *dir = opendir(path);
    CKVC_FAIL_ERRNO_IF(!dir, err, CKVC_E_CREATE, "%s: cannot look into the folder", path);
    *fresh = true;
    for (struct dirent *e; (e = readdir(dir));) {
        *fresh = *fresh && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                            strncmp(e->d_name, "lock", 4) == 0 || /* also matches lock-0-of-3 */
                            strncmp(e->d_name, "run.json.tmp.", 13) == 0 ||
                            strncmp(e->d_name, "plan-", 5) == 0);
    }
    closedir(dir);
    return CKVC_OK;
}

static ckvc_status take_lock(const char *path, int operation, int *out, ckvc_err *err) {
    CKVC_AUTO(ckvc_close_at) int fd = -1;
    bool busy;
    CKVC_TRY(durable_lock(path, operation, &fd, &busy, err));
    char holder[32] = "";
    const ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
    CKVC_FAIL_IF(n > 0 && strspn(holder, "0123456789\n") < (size_t)n, err, CKVC_E_CREATE,
                 "%s: is no lock of a run, which has a process's number; move it elsewhere", path);
    holder[strcspn(holder, "\n")] = 0;
    CKVC_FAIL_IF(busy, err, CKVC_E_BUSY, "%s: %s%s is writing this run; wait for it or stop it",
                 path, *holder ? "process " : "a part of it", holder);
    /* The process number serves the message above only. The lock itself is the kernel's, so that a
     * dead process holds none. */
    if (operation == LOCK_EX && ftruncate(fd, 0) == 0) { dprintf(fd, "%ld\n", (long)getpid()); }
    *out = ckvc_take_fd(&fd);
    return CKVC_OK;
}

ckvc_status run_lock(run_dir *r, ckvc_err *err) {
    CKVC_AUTO_FREE char *whole = ckvc_path_join(r->path, "lock");
    CKVC_AUTO_FREE char *own = run_part_path(r->path, "lock", r->part, "");
    CKVC_TRY(take_lock(whole, r->part.count ? LOCK_SH : LOCK_EX, &r->lock, err));
    return r->part.count ? take_lock(own, LOCK_EX, &r->part_lock, err) : CKVC_OK;
}

void run_close(run_dir *r) {
    if (!r) { return; }
    run_writer_free(r->writer);
    for (size_t i = 0; i < r->n_passes; i++) {
        CKVC_FREE(r->passes[i]->shards, r->passes[i]->skipped, r->passes[i]->is_skipped,
                  r->passes[i]);
    }
    free(r->passes);
    const int named = r->part.count ? r->part_lock : r->lock;
    if (named >= 0 && ftruncate(named, 0) != 0) {
        /* it does not matter that an old process number stays in a file whose lock nobody holds */
        errno = 0;
    }
    ckvc_close_at(&r->lock);
    ckvc_close_at(&r->part_lock);
    json_decref(r->plan);
    json_decref(r->skipped);
    json_decref(r->notes);
    CKVC_FREE(r->path, r->journal_path, r);
}

run_dir *run_new(const char *path, run_part part) {
    run_dir *r = ckvc_calloc(1, sizeof *r);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') { n--; }
    r->lock = r->part_lock = -1;
    r->part = part;
    r->path = ckvc_format("%.*s", (int)n, path);
    r->journal_path = run_part_path(r->path, "journal", part, ".jsonl");
    r->skipped = json_array();
    r->notes = json_array();
    return r;
}

ckvc_status run_load_plan(run_dir *r, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->path, "run.json");
    CKVC_FAIL_IF(ckvc_is_dir(r->path) && !ckvc_file_exists(path), err, CKVC_E_NOINPUT,
                 "%s: holds no run.json; want the --out folder of scan, calibrate or compile",
                 r->path);
    CKVC_TRY(ckvc_json_read(path, RUN_MAX_PLAN_BYTES, &r->plan, err));
    CKVC_FAIL_IF(!json_is_object(r->plan), err, CKVC_E_DATA, "%s: not a JSON object", path);
    return CKVC_OK;
}

ckvc_status run_load(run_dir *r, ckvc_err *err) {
    CKVC_TRY(run_load_plan(r, err));
    run_hash_plan(r->plan, r->plan_hash);
    memcpy(r->pass_plan, r->plan_hash, sizeof r->pass_plan);
    CKVC_TRY(durable_read_lines(r->journal_path, run_take_line, r, &r->journal_size, err));
    CKVC_TRY(run_sort_shards(r, err));
    for (size_t i = 0; i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        for (size_t k = 0; k < p->pub.n_shards; k++) {
            CKVC_AUTO_FREE char *name = run_shard_path(r, p->pub.name, p->shards[k].shard, ".h5");
            struct stat info;
            CKVC_FAIL_ERRNO_IF(stat(name, &info) != 0, err, CKVC_E_DATA,
                               "%s: the journal says it is published, but it is not there", name);
            CKVC_FAIL_IF((uint64_t)info.st_size != p->shards[k].bytes, err, CKVC_E_DATA,
                         "%s: %lld bytes, the journal says %llu", name, (long long)info.st_size,
                         (unsigned long long)p->shards[k].bytes);
        }
    }
    return CKVC_OK;
}

/* Parts of one number may stand beside each other, but parts of another number or a whole run may
 * not. This is checked under the lock. A part whose process has just begun is visible by its lock
 * file alone. */
static ckvc_status check_neighbours(const run_dir *r, ckvc_err *err) {
    CKVC_AUTO_FREE char *whole = ckvc_path_join(r->path, "journal.jsonl");
    CKVC_AUTO_FREE run_part *parts = NULL;
    size_t n;
    const bool is_whole = ckvc_file_exists(whole);
    CKVC_FAIL_IF(r->part.count && is_whole, err, CKVC_E_CREATE,
                 "%s: is a run in one piece, not in parts; go on with it without --shard, or "
                 "choose another --out",
                 r->path);
    CKVC_TRY(run_list_parts(r->path, r->part.count ? "lock" : "journal",
                            r->part.count ? "" : ".jsonl", &parts, &n, err));
    CKVC_FAIL_IF(!r->part.count && !is_whole && n, err, CKVC_E_CREATE,
                 "%s: is a run in %u parts; go on with them (--shard), join them with `ckvc merge "
                 "%s`, or choose another --out",
                 r->path, parts[0].count, r->path);
    for (size_t i = 0; r->part.count && i < n; i++) {
        CKVC_FAIL_IF(parts[i].count != r->part.count, err, CKVC_E_MISMATCH,
                     "%s: has a part %u/%u, this one is %u/%u: parts of one run are all of one "
                     "number; say --shard I/%u, or choose another --out",
                     r->path, parts[i].index, parts[i].count, r->part.index, r->part.count,
                     parts[i].count);
    }
    return CKVC_OK;
}

/* Several parts may begin a run at the same moment, and all of them write the same run.json. A part
 * therefore publishes the plan under a name of its own and then links it to the common name: that
 * overwrites nothing, and a file that another part has put there meanwhile is no error. */
ckvc_status run_write_plan(const run_dir *r, const char *file, const json_t *plan, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(plan);
    CKVC_AUTO_FREE char *line = ckvc_format("%s\n", text);
    if (!r->part.count) { return ckvc_publish_bytes(file, line, strlen(line), false, err); }
    CKVC_AUTO_FREE char *own = run_part_path(r->path, "plan", r->part, ".json");
    CKVC_TRY(ckvc_publish_bytes(own, line, strlen(line), true, err));
    /* otherwise this file system has no hard links */
    const bool linked = link(own, file) == 0 || errno == EEXIST;
    CKVC_FAIL_ERRNO_IF(!linked && rename(own, file) != 0, err, CKVC_E_CREATE,
                       "%s: cannot rename into place", file);
    CKVC_TRY(run_remove_file(own, err));
    return ckvc_fsync_dir(r->path, err);
}

/* Refuses a folder that holds something else, and without `resume` one in which the run has begun.
 */
static ckvc_status check_out(const run_dir *r, bool resume, ckvc_err *err) {
    CKVC_AUTO_FREE char *file = ckvc_path_join(r->path, "run.json");
    bool fresh = true;
    if (ckvc_file_exists(r->path)) {
        CKVC_FAIL_IF(!ckvc_is_dir(r->path), err, CKVC_E_CREATE,
                     "%s: exists and is not a folder; choose another --out", r->path);
        CKVC_TRY(run_folder_is_fresh(r->path, &fresh, err));
        const bool begun = r->part.count ? ckvc_file_exists(r->journal_path) : !fresh;
        CKVC_FAIL_IF(begun && !resume, err, CKVC_E_CREATE,
                     "%s: exists and is not empty; go on with --resume, or choose another --out",
                     r->part.count ? r->journal_path : r->path);
    }
    CKVC_FAIL_IF(!fresh && !ckvc_file_exists(file), err, CKVC_E_CREATE,
                 "%s: is not empty and no run (it has no run.json); choose another --out", r->path);
    return CKVC_OK;
}

ckvc_status run_check_out(const char *path, run_part part, bool resume, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *r = run_new(path, part);
    return check_out(r, resume, err);
}

ckvc_status run_create(const char *path, const json_t *plan, run_part part, bool resume,
                       run_dir **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(run_close_at) run_dir *r = run_new(path, part);
    CKVC_AUTO_FREE char *file = ckvc_path_join(r->path, "run.json");
    CKVC_AUTO_FREE char *parent = ckvc_path_dir(r->path);
    CKVC_TRY(check_out(r, resume, err));
    CKVC_TRY(ckvc_make_dirs(r->path, err));
    CKVC_TRY(ckvc_fsync_dir(parent, err));
    CKVC_TRY(run_lock(r, err));
    const ckvc_status st = check_neighbours(r, err);
    if (st != CKVC_OK && part.count && !ckvc_file_exists(r->journal_path)) {
        CKVC_AUTO_FREE char *own = run_part_path(r->path, "lock", part, "");
        unlink(own); /* it would be in the way of the others */
    }
    CKVC_TRY(st);
    if (!ckvc_file_exists(file)) { CKVC_TRY(run_write_plan(r, file, plan, err)); }
    CKVC_TRY(run_load(r, err));
    CKVC_AUTO_FREE char *difference = run_plan_difference(r, plan);
    CKVC_FAIL_IF(difference, err, CKVC_E_MISMATCH,
                 "%s: %s another plan: %s; use that run's options, or another --out", file,
                 part.count ? "this part has" : "--resume with", difference);
    *out = ckvc_take(&r);
    return CKVC_OK;
}

ckvc_status run_open(const char *path, run_dir **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(run_close_at) run_dir *r = run_new(path, RUN_WHOLE);
    if (!ckvc_file_exists(r->journal_path) && ckvc_is_dir(r->path)) {
        CKVC_AUTO_FREE run_part *parts = NULL;
        size_t n;
        CKVC_TRY(run_list_parts(r->path, "journal", ".jsonl", &parts, &n, err));
        CKVC_FAIL_IF(n, err, CKVC_E_DATA,
                     "%s: is a run in %u parts that are not one yet: `ckvc status %s` says what is "
                     "missing, `ckvc merge` joins them",
                     r->path, parts[0].count, r->path);
    }
    CKVC_TRY(run_load(r, err));
    *out = ckvc_take(&r);
    return CKVC_OK;
}

const char *run_path(const run_dir *r) { return r->path; }

const json_t *run_plan(const run_dir *r) { return r->plan; }

void run_set_pass_plan(run_dir *r, const char hash[CKVC_SHA256_HEX]) {
    memcpy(r->pass_plan, hash, sizeof r->pass_plan);
}

const char *run_plan_hash(const run_dir *r) { return r->plan_hash; }

/* ---- reading ---- */
size_t run_pass_count(const run_dir *r) { return r->n_passes; }

const run_pass *run_pass_at(const run_dir *r, size_t i) { return &r->passes[i]->pub; }

const run_pass *run_pass_named(const run_dir *r, const char *name) {
    const run_pass_state *p = run_find_pass(r, name);
    return p ? &p->pub : NULL;
}

const json_t *run_skipped(const run_dir *r) { return r->skipped; }

ckvc_status run_read_shard(const run_dir *r, const run_pass *pass, size_t k, shard **out,
                           ckvc_err *err) {
    const run_shard *entry = &((const run_pass_state *)(const void *)pass)->shards[k];
    CKVC_AUTO_FREE char *path = run_shard_path(r, pass->name, entry->shard, ".h5");
    CKVC_AUTO_FREE char *bytes = NULL;
    CKVC_AUTO(shard_free_at) shard *s = NULL;
    size_t n;
    *out = NULL;
    CKVC_TRY(run_read_journaled(path, entry->bytes, entry->sha256, &bytes, &n, err));
    const shard_bytes file = {path, (const uint8_t *)bytes, n, false};
    CKVC_TRY(shard_h5_read_bytes(&file, SHARD_CPU_S, SHARD_WALL_S, &s, err));
    CKVC_FAIL_IF(strcmp(s->h.plan, pass->plan) != 0, err, CKVC_E_DATA,
                 "%s: belongs to plan %.16s..., this pass is of %.16s...", path, s->h.plan,
                 pass->plan);
    CKVC_FAIL_IF(
        strcmp(s->h.pass, pass->kind) != 0 || s->n_prompts != entry->prompts ||
            s->n_records != entry->rows,
        err, CKVC_E_DATA,
        "%s: %zu prompts and %zu records of pass \"%s\", the journal says %u and %llu of \"%s\"",
        path, s->n_prompts, s->n_records, s->h.pass, entry->prompts,
        (unsigned long long)entry->rows, pass->kind);
    *out = ckvc_take(&s);
    return CKVC_OK;
}

ckvc_status run_publish_file(run_dir *r, const char *name, const void *data, size_t n,
                             ckvc_err *err) {
    CKVC_FAIL_IF(!run_name_is_inside(name), err, CKVC_E_BUG, "%s: not a name within a run", name);
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->path, name);
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(name);
    CKVC_TRY(ckvc_make_dir_in(r->path, dir, err));
    return ckvc_publish_bytes(path, data, n, true, err);
}

/* ---- notes ---- */
const json_t *run_notes(const run_dir *r) { return r->notes; }

ckvc_status run_note(run_dir *r, const char *kind, json_t *o, ckvc_err *err) {
    json_object_set_new(o, "note", json_string(kind));
    return run_journal(r, o, err);
}

/* ---- checkpoints ---- */

/* Finds the last line of that name, since a file that was made again is what the last line says. */
static const json_t *find_file(const run_dir *r, const char *name) {
    for (size_t i = json_array_size(r->notes); i-- > 0;) {
        const json_t *line = json_array_get(r->notes, i);
        if (run_note_is_of_file(line) && strcmp(run_note_text(line, "name"), name) == 0) {
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
                              run_note_text(line, "sha256"), data, n, err);
}

ckvc_status run_verify_files(const run_dir *r, ckvc_err *err) {
    for (size_t i = 0; i < json_array_size(r->notes); i++) {
        const json_t *line = json_array_get(r->notes, i);
        CKVC_AUTO_FREE char *data = NULL;
        size_t n;
        if (run_note_is_of_file(line)) {
            CKVC_TRY(run_read_file(r, run_note_text(line, "name"), &data, &n, err));
        }
    }
    return CKVC_OK;
}
