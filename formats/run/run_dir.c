/* The run directory: folder, lock, plan, journal, reading. Writing a pass is run_pass.c. */
#include "formats/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/run/run_journal.h"
#include "formats/shard/shard_h5.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

#define MAX_PLAN_BYTES  ((size_t)16 << 20)
#define MAX_SHARD_BYTES ((uint64_t)2 << 30)
#define MAX_PROMPTS     ((uint32_t)1 << 28)

/* Plan keys that do not change results (formats.md, "Plan"): left out of the hash and of the
 * comparison on --resume. */
static const char *const not_hashed[] = {"threads", "shard", "limit_time", "memory",
                                         "backend", "out",   "resume",     "force",
                                         "quiet",   "json",  NULL};

static bool is_hashed(const char *key) {
    for (const char *const *name = not_hashed; *name; name++) {
        if (strcmp(*name, key) == 0) { return false; }
    }
    return true;
}

/* ---- names ---- */
char *run_shard_path(const run_dir *r, const char *pass, uint32_t k, const char *end) {
    return ckvc_format("%s/%s/shard-%05u%s", r->path, pass, k, end);
}

bool run_pass_name(const char *name, int *number, const char **kind) {
    static const char *const kinds[] = {"head", "gate", "both", NULL};
    if (strcmp(name, "scan") == 0) {
        *number = 0;
        *kind = name;
        return true;
    }
    if (strncmp(name, "pass-", 5) != 0 || name[5] < '0' || name[5] > '9' || name[6] < '0' ||
        name[6] > '9' || name[7] != '-') {
        return false;
    }
    *number = (name[5] - '0') * 10 + name[6] - '0';
    *kind = name + 8;
    for (const char *const *k = kinds; *k; k++) {
        if (strcmp(*k, *kind) == 0) { return *number > 0; }
    }
    return false;
}

uint32_t run_shard_count(const run_pass_state *p) {
    return p->pub.n_prompts / p->shard_prompts + (p->pub.n_prompts % p->shard_prompts != 0);
}

run_pass_state *run_find_pass(const run_dir *r, const char *name) {
    for (size_t i = 0; i < r->n_passes; i++) {
        if (strcmp(r->passes[i]->pub.name, name) == 0) { return r->passes[i]; }
    }
    return NULL;
}

/* ---- journal lines -> struct ---- */
bool run_get_u64(const json_t *line, const char *key, uint64_t most, uint64_t *out) {
    const json_t *v = json_object_get(line, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > most) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool get_text(const json_t *line, const char *key, size_t size, char *out) {
    const char *text = json_string_value(json_object_get(line, key));
    if (!text || strlen(text) >= size) { return false; }
    snprintf(out, size, "%s", text);
    return true;
}

bool run_get_sha256(const json_t *line, const char *key, char *out) {
    return get_text(line, key, CKVC_SHA256_HEX, out) &&
           strspn(out, "0123456789abcdef") == CKVC_SHA256_HEX - 1;
}

static int by_pass(const void *a, const void *b) {
    const run_pass *x = &(*(run_pass_state *const *)a)->pub,
                   *y = &(*(run_pass_state *const *)b)->pub;
    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : strcmp(x->name, y->name);
}

static void note_progress(run_pass_state *p) {
    p->pub.n_prompts_done = 0;
    for (size_t i = 0; i < p->pub.n_shards; i++) {
        uint64_t first = (uint64_t)p->shards[i].shard * p->shard_prompts,
                 end = first + p->shard_prompts;
        p->pub.n_prompts_done +=
            (uint32_t)((end < p->plan_prompts ? end : p->plan_prompts) - first);
    }
    p->pub.complete = p->pub.n_shards == run_shard_count(p);
}

static ckvc_status take_begin(run_dir *r, const json_t *line, const char *name, const char *where,
                              ckvc_err *err) {
    uint64_t n_prompts, shard_prompts;
    run_pass_state p = {0};
    const char *kind;
    CKVC_FAIL_IF(run_find_pass(r, name), err, CKVC_E_DATA, "%s: pass %s is begun a second time",
                 where, name);
    CKVC_FAIL_IF(
        !run_pass_name(name, &p.pub.number, &kind) ||
            !run_get_u64(line, "n_prompts", MAX_PROMPTS, &n_prompts) ||
            !run_get_u64(line, "shard_prompts", MAX_PROMPTS, &shard_prompts) ||
            shard_prompts == 0 || !get_text(line, "backend", sizeof p.backend, p.backend) ||
            !run_get_sha256(line, "header", p.header),
        err, CKVC_E_DATA,
        "%s: not a line that begins a pass (pass, n_prompts, shard_prompts, backend, header)",
        where);
    memcpy(p.pub.plan, r->plan_hash, sizeof p.pub.plan);
    CKVC_FAIL_IF(json_object_get(line, "plan") && !run_get_sha256(line, "plan", p.pub.plan), err,
                 CKVC_E_DATA, "%s: \"plan\" is no SHA-256", where);
    snprintf(p.pub.name, sizeof p.pub.name, "%s", name);
    snprintf(p.pub.kind, sizeof p.pub.kind, "%s", kind);
    p.plan_prompts = p.pub.n_prompts = (uint32_t)n_prompts;
    p.shard_prompts = (uint32_t)shard_prompts;
    note_progress(&p);
    run_pass_state *copy = ckvc_alloc(1, sizeof *copy);
    *copy = p;
    ckvc_status st =
        ckvc_grow((void **)&r->passes, &r->cap_passes, r->n_passes + 1, sizeof *r->passes, err);
    if (st != CKVC_OK) {
        free(copy);
        return st;
    }
    r->passes[r->n_passes++] = copy;
    qsort(r->passes, r->n_passes, sizeof *r->passes, by_pass);
    return CKVC_OK;
}

static ckvc_status take_shard(run_pass_state *p, const json_t *line, const char *where,
                              ckvc_err *err) {
    uint64_t number, prompts;
    run_shard s = {0};
    CKVC_FAIL_IF(
        !run_get_u64(line, "shard", UINT32_MAX, &number) || number >= run_shard_count(p) ||
            !run_get_u64(line, "prompts", p->shard_prompts, &prompts) ||
            !run_get_u64(line, "rows", SHARD_MAX_RECORDS, &s.rows) ||
            !run_get_u64(line, "bytes", MAX_SHARD_BYTES, &s.bytes) ||
            !run_get_sha256(line, "sha256", s.sha256),
        err, CKVC_E_DATA,
        "%s: not a line of a published shard of %s (shard < %u, prompts, rows, bytes, sha256)",
        where, p->pub.name, run_shard_count(p));
    s.shard = (uint32_t)number;
    s.prompts = (uint32_t)prompts;
    size_t at = p->pub.n_shards;
    while (at > 0 && p->shards[at - 1].shard > s.shard) { at--; }
    CKVC_FAIL_IF(at > 0 && p->shards[at - 1].shard == s.shard, err, CKVC_E_DATA,
                 "%s: shard %u of %s is published a second time", where, s.shard, p->pub.name);
    ckvc_status st =
        ckvc_grow((void **)&p->shards, &p->capacity, p->pub.n_shards + 1, sizeof *p->shards, err);
    if (st != CKVC_OK) { return st; }
    memmove(p->shards + at + 1, p->shards + at, (p->pub.n_shards - at) * sizeof *p->shards);
    p->shards[at] = s;
    p->pub.n_shards++;
    note_progress(p);
    return CKVC_OK;
}

static ckvc_status take_skip(run_dir *r, run_pass_state *p, const json_t *line, const char *where,
                             ckvc_err *err) {
    uint64_t prompt;
    const char *id = json_string_value(json_object_get(line, "id")),
               *reason = json_string_value(json_object_get(line, "reason"));
    CKVC_FAIL_IF(!run_get_u64(line, "prompt", UINT32_MAX, &prompt) || prompt >= p->plan_prompts ||
                     !id || !reason,
                 err, CKVC_E_DATA,
                 "%s: not a line of a skipped prompt of %s (prompt < %u, id, reason)", where,
                 p->pub.name, p->plan_prompts);
    for (size_t i = 0; i < p->n_skipped; i++) {
        CKVC_FAIL_IF(p->skipped[i] == prompt, err, CKVC_E_DATA,
                     "%s: prompt %llu of %s is skipped a second time", where,
                     (unsigned long long)prompt, p->pub.name);
    }
    ckvc_status st =
        ckvc_grow((void **)&p->skipped, &p->cap_skipped, p->n_skipped + 1, sizeof *p->skipped, err);
    if (st != CKVC_OK) { return st; }
    json_t *entry = json_pack("{s:s, s:s, s:s}", "pass", p->pub.name, "id", id, "reason", reason);
    if (!entry || json_array_append_new(r->skipped, entry) != 0) {
        return ckvc_fail_memory(err, "a skipped prompt", 256);
    }
    p->skipped[p->n_skipped++] = (uint32_t)prompt;
    return CKVC_OK;
}

/* The pass ends with the shards that are published, from 0 on. */
static ckvc_status take_stable(run_pass_state *p, const json_t *line, const char *where,
                               ckvc_err *err) {
    const json_t *target = json_object_get(line, "until_stable"),
                 *reliability = json_object_get(line, "reliability"),
                 *reached = json_object_get(line, "reached");
    uint64_t shards;
    CKVC_FAIL_IF(
        !json_is_number(target) || !(json_is_number(reliability) || json_is_null(reliability)) ||
            !json_is_boolean(reached) || !run_get_u64(line, "shards", UINT32_MAX, &shards) ||
            shards != p->pub.n_shards || shards == 0 || p->shards[shards - 1].shard != shards - 1 ||
            p->pub.stable.known || (json_is_false(reached) && !p->pub.complete),
        err, CKVC_E_DATA,
        "%s: not a line that ends %s (until_stable, reliability, reached; shards: "
        "the %zu that are published)",
        where, p->pub.name, p->pub.n_shards);
    p->pub.stable.known = true;
    p->pub.stable.reached = json_is_true(reached);
    p->pub.stable.target = json_number_value(target);
    p->pub.stable.reliability = json_is_null(reliability) ? NAN : json_number_value(reliability);
    uint64_t most = shards * p->shard_prompts;
    p->pub.n_prompts = most < p->plan_prompts ? (uint32_t)most : p->plan_prompts;
    note_progress(p);
    return CKVC_OK;
}

static ckvc_status take_line(void *ctx, const json_t *line, uint32_t number, ckvc_err *err) {
    run_dir *r = ctx;
    char *where = ckvc_format("%s:%u", r->journal_path, number);
    const char *name = json_string_value(json_object_get(line, "pass"));
    run_pass_state *p = name ? run_find_pass(r, name) : NULL;
    ckvc_status st;
    if (json_object_get(line, "note")) {
        st = run_take_note(r, line, where, err);
    } else if (!name) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: a line without \"pass\"", where);
    } else if (json_object_get(line, "n_prompts")) {
        st = take_begin(r, line, name, where, err);
    } else if (!p) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: pass %.40s has not been begun", where, name);
    } else if (json_object_get(line, "sha256")) {
        st = take_shard(p, line, where, err);
    } else if (json_object_get(line, "reason")) {
        st = take_skip(r, p, line, where, err);
    } else if (json_object_get(line, "until_stable")) {
        st = take_stable(p, line, where, err);
    } else {
        st = ckvc_fail(
            err, CKVC_E_DATA,
            "%s: neither begins or ends a pass, nor publishes a shard, nor skips a prompt", where);
    }
    free(where);
    return st;
}

ckvc_status run_journal(run_dir *r, json_t *line, ckvc_err *err) {
    if (!line) { return ckvc_fail_memory(err, "a journal line", 256); }
    ckvc_status st = journal_append(r->journal_path, &r->journal_size, line, err);
    st = st ? st : take_line(r, line, 0, err);
    json_decref(line);
    return st;
}

/* ---- plan ---- */
ckvc_status run_hash_plan(const json_t *plan, char out[CKVC_SHA256_HEX], ckvc_err *err) {
    json_t *copy = json_copy((json_t *)(uintptr_t)plan);
    for (const char *const *name = not_hashed; copy && *name; name++) {
        json_object_del(copy, *name);
    }
    char *text = copy ? ckvc_json_canonical(copy) : NULL;
    json_decref(copy);
    CKVC_FAIL_IF(!text, err, CKVC_E_BUG,
                 "the plan cannot be written as canonical JSON (out of memory, or a number "
                 "that is not finite)");
    ckvc_sha256_hex(text, strlen(text), out);
    free(text);
    return CKVC_OK;
}

typedef struct plan_diff {
    ckvc_buffer text;
    unsigned n;
} plan_diff;

static void diff_value(plan_diff *d, const char *name, const json_t *was, const json_t *is) {
    char *a = was ? ckvc_json_canonical(was) : ckvc_strdup("absent"),
         *b = is ? ckvc_json_canonical(is) : ckvc_strdup("absent");
    if (!a || !b) {
        d->text.failed = true;
    } else if (strcmp(a, b) != 0 && ++d->n <= 6) {
        ckvc_buffer_printf(&d->text, "%s%s: %.60s there, %.60s now", d->n > 1 ? "; " : "", name, a,
                           b);
    }
    free(a);
    free(b);
}

/* Fields of two objects that differ, in order of their names; objects within are walked into,
 * "bins.entropy". */
static void diff_objects(plan_diff *d, const char *prefix, const json_t *was, const json_t *is) {
    json_t *all = json_object(), *value;
    const char *key;
    if (!all || json_object_update(all, (json_t *)(uintptr_t)was) != 0 ||
        json_object_update(all, (json_t *)(uintptr_t)is) != 0) {
        d->text.failed = true;
    }
    json_object_foreach(all, key, value) {
        if (!*prefix && !is_hashed(key)) { continue; }
        const json_t *a = json_object_get(was, key), *b = json_object_get(is, key);
        char *name = ckvc_format("%s%s%s", prefix, *prefix ? "." : "", key);
        if (!name) {
            d->text.failed = true;
        } else if (json_is_object(a) && json_is_object(b) && strlen(name) < 256) {
            diff_objects(d, name, a, b);
        } else {
            diff_value(d, name, a, b);
        }
        free(name);
    }
    json_decref(all);
}

static ckvc_status same_plan(const run_dir *r, const char *hash, const json_t *plan,
                             ckvc_err *err) {
    if (strcmp(hash, r->plan_hash) == 0) { return CKVC_OK; }
    plan_diff d = {0};
    diff_objects(&d, "", r->plan, plan);
    if (d.n > 6) { ckvc_buffer_printf(&d.text, "; and %u more", d.n - 6); }
    ckvc_status st = ckvc_fail(
        err, CKVC_E_MISMATCH,
        "%s/run.json: --resume with another plan: %s; use that run's options, or another --out",
        r->path, d.text.failed || !d.text.data ? "(fields not listed)" : (const char *)d.text.data);
    ckvc_buffer_fini(&d.text);
    return st;
}

/* ---- folder and lock ---- */
/* Nothing but what a create that was cut short leaves behind. */
static ckvc_status folder_is_fresh(const char *path, bool *fresh, ckvc_err *err) {
    DIR *dir = opendir(path);
    CKVC_FAIL_ERRNO_IF(!dir, err, CKVC_E_CREATE, "%s: cannot look into the folder", path);
    *fresh = true;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, "lock") != 0 && strncmp(e->d_name, "run.json.tmp.", 13) != 0) {
            *fresh = false;
        }
    }
    closedir(dir);
    return CKVC_OK;
}

static ckvc_status take_lock(run_dir *r, ckvc_err *err) {
    char *path = ckvc_path_join(r->path, "lock");
    ckvc_status st = CKVC_OK;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot create", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char holder[32] = "";
        int why = errno;
        ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
        holder[n > 0 ? strcspn(holder, "\n") : 0] = 0;
        if (why == EWOULDBLOCK) {
            st = ckvc_fail(err, CKVC_E_BUSY,
                           "%s: process %s is writing this run; wait for it or stop it", path,
                           *holder ? holder : "(unknown)");
        } else {
            errno = why;
            st = ckvc_fail_errno(err, CKVC_E_SYSTEM, "%s: this file system gives no lock", path);
        }
        close(fd);
        fd = -1;
    } else if (ftruncate(fd, 0) == 0) { /* for the message above; the lock itself is the kernel's,
                                           so a dead process holds none */
        dprintf(fd, "%ld\n", (long)getpid());
    }
    r->lock = fd;
    free(path);
    return st;
}

void run_close(run_dir *r) {
    if (!r) { return; }
    run_writer_free(r->writer);
    for (size_t i = 0; i < r->n_passes; i++) {
        free(r->passes[i]->shards);
        free(r->passes[i]->skipped);
        free(r->passes[i]);
    }
    free(r->passes);
    if (r->lock >= 0) {
        if (ftruncate(r->lock, 0) != 0) {
            errno = 0; /* an old pid stays in a file that nobody holds */
        }
        close(r->lock);
    }
    json_decref(r->plan);
    json_decref(r->skipped);
    json_decref(r->notes);
    free(r->path);
    free(r->journal_path);
    free(r);
}

static ckvc_status new_run(const char *path, run_dir **out, ckvc_err *err) {
    run_dir *r = ckvc_calloc(1, sizeof *r);
    *out = NULL;
    if (r) {
        r->lock = -1;
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/') { n--; }
        r->path = ckvc_format("%.*s", (int)n, path);
        r->journal_path = ckvc_path_join(path, "journal.jsonl");
        r->skipped = json_array();
        r->notes = json_array();
    }
    if (!r || !r->path || !r->journal_path || !r->skipped || !r->notes) {
        run_close(r);
        return ckvc_fail_memory(err, "a run directory", sizeof *r);
    }
    *out = r;
    return CKVC_OK;
}

/* run.json and journal; every published shard is there with its size. */
static ckvc_status load(run_dir *r, ckvc_err *err) {
    char *path = ckvc_path_join(r->path, "run.json");
    ckvc_status st = path ? ckvc_json_read(path, MAX_PLAN_BYTES, &r->plan, err)
                          : ckvc_fail_memory(err, "a path", 1);
    if (st == CKVC_OK && !json_is_object(r->plan)) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: not a JSON object", path);
    }
    free(path);
    st = st ? st : run_hash_plan(r->plan, r->plan_hash, err);
    memcpy(r->pass_plan, r->plan_hash, sizeof r->pass_plan);
    st = st ? st : journal_read(r->journal_path, take_line, r, &r->journal_size, err);
    for (size_t i = 0; st == CKVC_OK && i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        for (size_t k = 0; st == CKVC_OK && k < p->pub.n_shards; k++) {
            char *name = run_shard_path(r, p->pub.name, p->shards[k].shard, ".h5");
            struct stat info;
            if (!name) {
                st = ckvc_fail_memory(err, "a path", 1);
            } else if (stat(name, &info) != 0) {
                st = ckvc_fail_errno(err, CKVC_E_DATA,
                                     "%s: the journal says it is published, but it is not there",
                                     name);
            } else if ((uint64_t)info.st_size != p->shards[k].bytes) {
                st = ckvc_fail(err, CKVC_E_DATA, "%s: %lld bytes, the journal says %llu", name,
                               (long long)info.st_size, (unsigned long long)p->shards[k].bytes);
            }
            free(name);
        }
    }
    return st;
}

static ckvc_status create_or_resume(run_dir *r, const json_t *plan, bool resume, ckvc_err *err) {
    char hash[CKVC_SHA256_HEX];
    bool fresh = true;
    ckvc_status st = run_hash_plan(plan, hash, err);
    if (st == CKVC_OK && ckvc_file_exists(r->path)) {
        CKVC_FAIL_IF(!ckvc_is_dir(r->path), err, CKVC_E_CREATE,
                     "%s: exists and is not a folder; choose another --out", r->path);
        st = folder_is_fresh(r->path, &fresh, err);
        CKVC_FAIL_IF(st == CKVC_OK && !fresh && !resume, err, CKVC_E_CREATE,
                     "%s: exists and is not empty; go on with --resume, or choose another --out",
                     r->path);
    }
    char *file = ckvc_path_join(r->path, "run.json");
    if (st == CKVC_OK && !fresh && !ckvc_file_exists(file)) {
        st = ckvc_fail(err, CKVC_E_CREATE,
                       "%s: is not empty and no run (it has no run.json); choose another --out",
                       r->path);
    }
    char *parent = ckvc_path_dir(r->path);
    st = st ? st : ckvc_make_dirs(r->path, err);
    st = st ? st : parent ? ckvc_fsync_dir(parent, err) : ckvc_fail_memory(err, "a path", 1);
    free(parent);
    st = st ? st : take_lock(r, err);
    if (st == CKVC_OK && !ckvc_file_exists(file)) {
        char *text = ckvc_json_canonical(plan);
        char *line = text ? ckvc_format("%s\n", text) : NULL;
        st = line ? ckvc_publish_bytes(file, line, strlen(line), false, err)
                  : ckvc_fail_memory(err, "the plan", 1);
        free(text);
        free(line);
    }
    free(file);
    st = st ? st : load(r, err);
    return st ? st : same_plan(r, hash, plan, err);
}

ckvc_status run_create(const char *path, const json_t *plan, bool resume, run_dir **out,
                       ckvc_err *err) {
    ckvc_status st = new_run(path, out, err);
    if (st == CKVC_OK) {
        st = create_or_resume(*out, plan, resume, err);
        if (st != CKVC_OK) {
            run_close(*out);
            *out = NULL;
        }
    }
    return st;
}

ckvc_status run_open(const char *path, run_dir **out, ckvc_err *err) {
    ckvc_status st = new_run(path, out, err);
    if (st == CKVC_OK) {
        st = load(*out, err);
        if (st != CKVC_OK) {
            run_close(*out);
            *out = NULL;
        }
    }
    return st;
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
    const run_pass_state *p = (const run_pass_state *)(const void *)pass;
    const run_shard *entry = &p->shards[k];
    *out = NULL;
    char *path = run_shard_path(r, pass->name, entry->shard, ".h5");
    char *bytes = NULL, hash[CKVC_SHA256_HEX];
    size_t n = 0;
    ckvc_status st = path ? ckvc_file_read(path, (size_t)MAX_SHARD_BYTES, &bytes, &n, err)
                          : ckvc_fail_memory(err, "a path", 1);
    if (st == CKVC_OK) {
        ckvc_sha256_hex(bytes, n, hash);
        if (n != entry->bytes || strcmp(hash, entry->sha256) != 0) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s: SHA-256 %.16s... of %zu bytes, the journal says %.16s... of %llu; "
                           "the file was changed",
                           path, hash, n, entry->sha256, (unsigned long long)entry->bytes);
        }
    }
    st = st ? st : shard_h5_read_image((const uint8_t *)bytes, n, path, out, err);
    if (st == CKVC_OK) {
        const shard *s = *out;
        if (strcmp(s->h.plan, pass->plan) != 0) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s: belongs to plan %.16s..., this pass is of %.16s...", path,
                           s->h.plan, pass->plan);
        } else if (strcmp(s->h.pass, pass->kind) != 0 || s->n_prompts != entry->prompts ||
                   s->n_records != entry->rows) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s: %zu prompts and %zu records of pass \"%s\", the journal says %u "
                           "and %llu of \"%s\"",
                           path, s->n_prompts, s->n_records, s->h.pass, entry->prompts,
                           (unsigned long long)entry->rows, pass->kind);
        }
        if (st != CKVC_OK) {
            shard_free(*out);
            *out = NULL;
        }
    }
    free(bytes);
    free(path);
    return st;
}
