/* Writing a pass of a run.
 *
 * The steps of publishing shard k, each of which may be the last one before a crash, and what a
 * resume finds:
 *
 *   1 temporary file, write, sync      a *.tmp.* file: removed; the log is whole, so the shard is
 * written again 2 rename, sync the folder          shard-k.h5 without a journal line: written again
 * from the log, with the same bytes 3 journal line, sync               (torn: dropped, as 2)
 * shard-k.h5, its line, and a log that nobody needs: removed 4 log removed done
 *
 * So the journal line is what makes a shard published, and the log is what makes a prompt done
 * until then.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/run/prompt_log.h"
#include "formats/run/run_internal.h"
#include "formats/shard/shard_check.h"
#include "formats/shard/shard_codec.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

typedef enum prompt_state {
    PROMPT_TODO,
    PROMPT_LOGGED,
    PROMPT_SKIPPED,
    PROMPT_PUBLISHED
} prompt_state;

struct run_writer {
    run_pass_state *pass;
    shard *rows;        /* header of the pass; scratch for the rows of one shard */
    uint8_t *state;     /* [plan_prompts] prompt_state */
    uint32_t *left;     /* [n_shards] prompts still to do */
    uint64_t *log_size; /* [n_shards] bytes of whole records in the log */
    uint32_t n_shards, n_published;
};

void run_writer_free(run_writer *w) {
    if (w) {
        shard_free(w->rows);
        free(w->state);
        free(w->left);
        free(w->log_size);
        free(w);
    }
}

/* Prompts [*first, *end) of shard k. */
static void range_of(const run_pass_state *p, uint32_t k, uint32_t *first, uint32_t *end) {
    *first = k * p->shard_prompts;
    *end =
        p->plan_prompts - *first < p->shard_prompts ? p->plan_prompts : *first + p->shard_prompts;
}

static int by_prompt(const void *a, const void *b) {
    const prompt_log_record *x = a, *y = b;
    return (x->prompt > y->prompt) - (x->prompt < y->prompt);
}

/* Rows of a log record onto w->rows; CKVC_E_DATA names file and byte. */
static ckvc_status take_record(run_writer *w, const char *path, const prompt_log_record *record,
                               ckvc_err *err) {
    size_t before = w->rows->n_prompts;
    ckvc_err why = {0};
    ckvc_status st = shard_decode(w->rows, record->rows, record->n, &why);
    if (st == CKVC_OK && w->rows->n_prompts != before + 1) {
        st =
            ckvc_fail(&why, CKVC_E_DATA, "%zu prompt rows, must be 1", w->rows->n_prompts - before);
    }
    return st ? ckvc_fail(err, st, "%s: record at byte %llu: %s", path,
                          (unsigned long long)record->offset, why.text)
              : CKVC_OK;
}

/* Log (or, when every prompt was skipped, nothing) -> shard file. */
static ckvc_status write_shard(run_dir *r, uint32_t k, const char *log_path, const char *path,
                               run_shard *entry, ckvc_err *err) {
    run_writer *w = r->writer;
    uint32_t first, end, logged = 0;
    range_of(w->pass, k, &first, &end);
    for (uint32_t i = first; i < end; i++) { logged += w->state[i] == PROMPT_LOGGED; }
    prompt_log log;
    ckvc_status st = prompt_log_read(log_path, &log, err);
    if (st == CKVC_OK && log.n_records != logged) {
        st = ckvc_fail(err, CKVC_E_IO,
                       "%s: %zu whole records, %u were written; has another program touched it?",
                       log_path, log.n_records, logged);
    }
    if (log.n_records) { qsort(log.records, log.n_records, sizeof *log.records, by_prompt); }
    shard_clear(w->rows);
    for (size_t i = 0; st == CKVC_OK && i < log.n_records; i++) {
        st = take_record(w, log_path, &log.records[i], err);
    }
    prompt_log_free(&log);
    uint8_t *image = NULL;
    size_t n = 0;
    st = st ? st : shard_h5_image(w->rows, &image, &n, err);
    if (st == CKVC_OK) {
        *entry = (run_shard){.shard = k,
                             .prompts = (uint32_t)w->rows->n_prompts,
                             .rows = w->rows->n_records,
                             .bytes = n};
        ckvc_sha256_hex(image, n, entry->sha256);
        st = ckvc_publish_bytes(path, image, n, true, err);
    }
    free(image);
    return st;
}

static ckvc_status remove_log(const char *path, ckvc_err *err) {
    return unlink(path) == 0 || errno == ENOENT
               ? CKVC_OK
               : ckvc_fail_errno(err, CKVC_E_IO, "%s: cannot remove", path);
}

static ckvc_status publish_shard(run_dir *r, uint32_t k, ckvc_err *err) {
    run_writer *w = r->writer;
    run_shard entry;
    char *log_path = run_shard_path(r, w->pass->pub.name, k, ".log"),
         *path = run_shard_path(r, w->pass->pub.name, k, ".h5");
    ckvc_status st = log_path && path ? write_shard(r, k, log_path, path, &entry, err)
                                      : ckvc_fail_memory(err, "a path", 1);
    if (st == CKVC_OK) {
        st = run_journal(r,
                         json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "pass", w->pass->pub.name,
                                   "shard", (json_int_t)k, "prompts", (json_int_t)entry.prompts,
                                   "rows", (json_int_t)entry.rows, "bytes", (json_int_t)entry.bytes,
                                   "sha256", entry.sha256, "backend", w->pass->backend),
                         err);
    }
    if (st == CKVC_OK) {
        uint32_t first, end;
        range_of(w->pass, k, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            w->state[i] = w->state[i] == PROMPT_LOGGED ? PROMPT_PUBLISHED : w->state[i];
        }
        w->n_published++;
        st = remove_log(log_path, err);
    }
    free(log_path);
    free(path);
    return st;
}

/* ---- beginning ---- */
/* Temporary files of a process that was killed; the lock says that it is gone. */
ckvc_status run_remove_temporaries(const char *dir, ckvc_err *err) {
    DIR *folder = opendir(dir);
    CKVC_FAIL_ERRNO_IF(!folder, err, CKVC_E_IO, "%s: cannot look into the folder", dir);
    ckvc_status st = CKVC_OK;
    for (struct dirent *e; st == CKVC_OK && (e = readdir(folder));) {
        if (strstr(e->d_name, ".tmp.")) {
            char *path = ckvc_path_join(dir, e->d_name);
            st = path ? remove_log(path, err) : ckvc_fail_memory(err, "a path", 1);
            free(path);
        }
    }
    closedir(folder);
    return st;
}

static ckvc_status header_hash(const shard_header *h, char out[CKVC_SHA256_HEX], ckvc_err *err) {
    /* The program's version is no part of it: an upgrade between two sessions does not end a run.
     */
    shard_header same = *h;
    memset(same.ckvc_version, 0, sizeof same.ckvc_version);
    ckvc_buffer bytes = {0};
    shard_header_encode(&same, &bytes);
    if (bytes.failed) {
        ckvc_buffer_fini(&bytes);
        return ckvc_fail_memory(err, "a shard header", 1);
    }
    ckvc_sha256_hex(bytes.data, bytes.size, out);
    ckvc_buffer_fini(&bytes);
    return CKVC_OK;
}

/* The pass in the journal: begun now, or begun before with the same prompts, shards, backend and
 * header. */
static ckvc_status begin_line(run_dir *r, const char *pass, uint32_t n_prompts,
                              uint32_t shard_prompts, const char *backend, const char *plan,
                              const char *hash, ckvc_err *err) {
    const run_pass_state *p = run_find_pass(r, pass);
    if (!p) {
        json_t *line = json_pack("{s:s, s:I, s:I, s:s, s:s}", "pass", pass, "n_prompts",
                                 (json_int_t)n_prompts, "shard_prompts", (json_int_t)shard_prompts,
                                 "backend", backend, "header", hash);
        if (line && strcmp(plan, r->plan_hash) != 0) {
            json_object_set_new(line, "plan", json_string(plan));
        }
        return run_journal(r, line, err);
    }
    CKVC_FAIL_IF(
        p->plan_prompts != n_prompts || p->shard_prompts != shard_prompts, err, CKVC_E_MISMATCH,
        "%s: pass %s was begun with %u prompts, %u to a shard; now it has %u, %u to a shard",
        r->path, pass, p->plan_prompts, p->shard_prompts, n_prompts, shard_prompts);
    CKVC_FAIL_IF(strcmp(p->backend, backend) != 0, err, CKVC_E_MISMATCH,
                 "%s: pass %s was begun on backend \"%s\", this is \"%s\": their results "
                 "differ in the last bits; go on "
                 "where it was begun",
                 r->path, pass, p->backend, backend);
    CKVC_FAIL_IF(strcmp(p->header, hash) != 0, err, CKVC_E_MISMATCH,
                 "%s: pass %s was begun with other start tables, bin edges, grids or model "
                 "(shard header %.16s..., now %.16s...)",
                 r->path, pass, p->header, hash);
    return CKVC_OK;
}

/* Log of shard k -> states. */
static ckvc_status replay(run_dir *r, uint32_t k, ckvc_err *err) {
    run_writer *w = r->writer;
    uint32_t first, end;
    range_of(w->pass, k, &first, &end);
    char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
    if (!path) { return ckvc_fail_memory(err, "a path", 1); }
    prompt_log log;
    ckvc_status st = prompt_log_read(path, &log, err);
    for (size_t i = 0; st == CKVC_OK && i < log.n_records; i++) {
        const prompt_log_record *record = &log.records[i];
        if (record->prompt < first || record->prompt >= end ||
            w->state[record->prompt] != PROMPT_TODO) {
            st = ckvc_fail(err, CKVC_E_DATA, "%s: record at byte %llu: prompt %u is %s", path,
                           (unsigned long long)record->offset, record->prompt,
                           record->prompt < first || record->prompt >= end
                               ? "not of this shard"
                               : "there twice, or skipped");
            break;
        }
        shard_clear(w->rows);
        st = take_record(w, path, record, err);
        st = st ? st : shard_rows_check(w->rows, path, err);
        w->state[record->prompt] = PROMPT_LOGGED;
        w->left[k]--;
    }
    if (st == CKVC_OK && log.dropped) { /* cut off by the next append */
        ckvc_warn("%s: %llu bytes of an unfinished write at byte %llu are dropped", path,
                  (unsigned long long)log.dropped, (unsigned long long)log.size);
    }
    w->log_size[k] = log.size;
    prompt_log_free(&log);
    free(path);
    return st;
}

/* Which prompts are done: journal, then logs. */
static ckvc_status find_done(run_dir *r, ckvc_err *err) {
    run_writer *w = r->writer;
    const run_pass_state *p = w->pass;
    for (size_t i = 0; i < p->n_skipped; i++) { w->state[p->skipped[i]] = PROMPT_SKIPPED; }
    for (uint32_t k = 0; k < w->n_shards; k++) {
        uint32_t first, end;
        range_of(p, k, &first, &end);
        for (uint32_t i = first; i < end; i++) { w->left[k] += w->state[i] == PROMPT_TODO; }
    }
    ckvc_status st = CKVC_OK;
    size_t published = 0;
    for (uint32_t k = 0; st == CKVC_OK && k < w->n_shards; k++) {
        if (published < p->pub.n_shards && p->shards[published].shard == k) {
            published++;
            w->n_published++;
            uint32_t first, end;
            range_of(p, k, &first, &end);
            for (uint32_t i = first; i < end; i++) {
                w->state[i] = w->state[i] == PROMPT_TODO ? PROMPT_PUBLISHED : w->state[i];
            }
            w->left[k] = 0;
            char *path = run_shard_path(r, p->pub.name, k, ".log");
            st = path ? remove_log(path, err) : ckvc_fail_memory(err, "a path", 1);
            free(path);
            continue;
        }
        st = replay(r, k, err);
        if (st == CKVC_OK && w->left[k] == 0) {
            size_t before = p->pub.n_shards;
            st = publish_shard(r, k, err);
            published +=
                p->pub.n_shards - before; /* its line now stands before those of later shards */
        }
    }
    return st;
}

static ckvc_status open_writer(run_dir *r, const char *pass, const shard_header *header,
                               ckvc_err *err) {
    run_writer *w = r->writer = ckvc_calloc(1, sizeof *w);
    if (!w) { return ckvc_fail_memory(err, "a pass", sizeof *w); }
    w->pass = run_find_pass(r, pass);
    w->n_shards = run_shard_count(w->pass);
    w->rows = shard_create();
    w->state = ckvc_calloc(w->pass->plan_prompts, 1);
    w->left = ckvc_calloc(w->n_shards, sizeof *w->left);
    w->log_size = ckvc_calloc(w->n_shards, sizeof *w->log_size);
    if (!w->rows || !w->state || !w->left || !w->log_size) {
        return ckvc_fail_memory(err, "a pass", w->pass->plan_prompts);
    }
    ckvc_status st = CKVC_OK;
    shard_header_copy(&w->rows->h, header);
    char *dir = ckvc_path_join(r->path, pass);
    st = st ? st : dir ? ckvc_make_dirs(dir, err) : ckvc_fail_memory(err, "a path", 1);
    st = st ? st : ckvc_fsync_dir(r->path, err);
    st = st ? st : run_remove_temporaries(dir, err);
    st = st ? st : run_remove_temporaries(r->path, err);
    free(dir);
    return st ? st : find_done(r, err);
}

ckvc_status run_pass_begin(run_dir *r, const char *pass, uint32_t n_prompts, uint32_t shard_prompts,
                           const shard_header *header, const char *backend, bool *done,
                           ckvc_err *err) {
    assert(r->lock >= 0 && !r->writer && shard_prompts > 0);
    int number;
    const char *kind;
    CKVC_FAIL_IF(!run_pass_name(pass, &number, &kind) || strcmp(kind, header->pass) != 0, err,
                 CKVC_E_BUG, "pass \"%s\" with shards of kind \"%s\"", pass, header->pass);
    shard_header ours = *header; /* arrays borrowed */
    memcpy(ours.plan, r->pass_plan, sizeof ours.plan);
    char hash[CKVC_SHA256_HEX];
    ckvc_err why = {0};
    CKVC_FAIL_IF(shard_header_check(&ours, pass, &why) != CKVC_OK, err, CKVC_E_BUG, "%s", why.text);
    ckvc_status st = header_hash(&ours, hash, err);
    st = st ? st : begin_line(r, pass, n_prompts, shard_prompts, backend, ours.plan, hash, err);
    st = st ? st : open_writer(r, pass, &ours, err);
    if (st != CKVC_OK) {
        run_writer_free(r->writer);
        r->writer = NULL;
        return st;
    }
    for (uint32_t i = 0; i < n_prompts; i++) {
        done[i] = r->writer->state[i] != PROMPT_TODO || i >= r->writer->pass->pub.n_prompts;
    }
    return CKVC_OK;
}

/* ---- going on ---- */
static ckvc_status prompt_done(run_dir *r, uint32_t prompt, prompt_state state, ckvc_err *err) {
    run_writer *w = r->writer;
    uint32_t k = prompt / w->pass->shard_prompts;
    w->state[prompt] = (uint8_t)state;
    return --w->left[k] == 0 ? publish_shard(r, k, err) : CKVC_OK;
}

ckvc_status run_log_prompt(run_dir *r, uint32_t prompt, const shard *rows, ckvc_err *err) {
    run_writer *w = r->writer;
    assert(w && prompt < w->pass->pub.n_prompts && rows->n_prompts == 1);
    assert(rows->h.n_layers == w->rows->h.n_layers && rows->h.n_kv_heads == w->rows->h.n_kv_heads);
    CKVC_FAIL_IF(w->state[prompt] != PROMPT_TODO, err, CKVC_E_BUG,
                 "prompt %u of %s is logged twice", prompt, w->pass->pub.name);
    /* Rows that the shard could not hold must not become durable: every later resume would stumble
     * over them. */
    shard_clear(w->rows);
    ckvc_err why = {0};
    ckvc_status st = CKVC_OK;
    shard_append(w->rows, rows);
    if (st == CKVC_OK && shard_rows_check(w->rows, rows->prompts[0].id, &why) != CKVC_OK) {
        st = ckvc_fail(err, CKVC_E_BUG, "%s", why.text);
    }
    uint32_t k = prompt / w->pass->shard_prompts;
    char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
    ckvc_buffer bytes = {0};
    shard_encode(w->rows, &bytes);
    if (st == CKVC_OK && (!path || bytes.failed)) {
        st = ckvc_fail_memory(err, "the rows of a prompt", bytes.size);
    }
    st = st ? st : prompt_log_append(path, &w->log_size[k], prompt, bytes.data, bytes.size, err);
    ckvc_buffer_fini(&bytes);
    free(path);
    return st ? st : prompt_done(r, prompt, PROMPT_LOGGED, err);
}

ckvc_status run_skip_prompt(run_dir *r, uint32_t prompt, const char *id, const char *reason,
                            ckvc_err *err) {
    run_writer *w = r->writer;
    assert(w && prompt < w->pass->pub.n_prompts);
    CKVC_FAIL_IF(w->state[prompt] != PROMPT_TODO, err, CKVC_E_BUG,
                 "prompt %u of %s is skipped when it is done", prompt, w->pass->pub.name);
    ckvc_status st =
        run_journal(r,
                    json_pack("{s:s, s:I, s:s, s:s}", "pass", w->pass->pub.name, "prompt",
                              (json_int_t)prompt, "id", id, "reason", reason),
                    err);
    return st ? st : prompt_done(r, prompt, PROMPT_SKIPPED, err);
}

ckvc_status run_pass_replay(run_dir *r, void (*fn)(void *ctx, const shard *rows), void *ctx,
                            ckvc_err *err) {
    run_writer *w = r->writer;
    ckvc_status st = CKVC_OK;
    size_t published = 0;
    for (uint32_t k = 0; st == CKVC_OK && k < w->n_shards; k++) {
        if (published < w->pass->pub.n_shards && w->pass->shards[published].shard == k) {
            shard *rows = NULL;
            st = run_read_shard(r, &w->pass->pub, published++, &rows, err);
            if (st == CKVC_OK) { fn(ctx, rows); }
            shard_free(rows);
            continue;
        }
        char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
        prompt_log log = {0};
        st = path ? prompt_log_read(path, &log, err) : ckvc_fail_memory(err, "a path", 1);
        for (size_t i = 0; st == CKVC_OK && i < log.n_records; i++) {
            shard_clear(w->rows);
            st = take_record(w, path, &log.records[i], err);
            if (st == CKVC_OK) { fn(ctx, w->rows); }
        }
        prompt_log_free(&log);
        free(path);
    }
    return st;
}

ckvc_status run_pass_stable(run_dir *r, double target, double reliability, bool reached,
                            ckvc_err *err) {
    run_writer *w = r->writer;
    ckvc_status st =
        run_journal(r,
                    json_pack("{s:s, s:f, s:o, s:I, s:b}", "pass", w->pass->pub.name,
                              "until_stable", target, "reliability", ckvc_json_real(reliability),
                              "shards", (json_int_t)w->pass->pub.n_shards, "reached", reached),
                    err);
    w->n_shards = run_shard_count(w->pass);
    return st;
}

bool run_pass_end(run_dir *r) {
    const bool complete = r->writer->n_published ==
                          r->writer->n_shards; /* and durable: nothing is left that could fail */
    run_writer_free(r->writer);
    r->writer = NULL;
    return complete;
}
