/* Writing a pass of a run.
 *
 * The steps of publishing shard k follow. A crash may come after, or in the middle of, each of
 * them; the right column says what a resume then finds and does:
 *
 *   1 temporary file, write, sync   It finds a *.tmp.R file and removes it. The log is whole, so
 *                                   that the shard is written again.
 *   2 rename, sync the folder       It finds shard-k.h5 without a journal line, and writes it
 *                                   again from the log, with the same bytes.
 *   3 journal line, sync            It finds shard-k.h5, its line, and a log that nobody needs,
 *                                   which it removes. A line that was cut off is dropped, which
 *                                   leads back to step 2.
 *   4 log removed                   The shard is done.
 *
 * So the journal line is what makes a shard published, and until then the log is what makes a
 * prompt done. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/run/durable.h"
#include "formats/run/run_internal.h"
#include "formats/shard/shard_rows.h"
#include "formats/shard/shard_codec.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

typedef enum prompt_state {
    PROMPT_TODO,
    PROMPT_LOGGED,
    PROMPT_SKIPPED,
    PROMPT_PUBLISHED
} prompt_state;

/* Appends the rows of a log record to w->rows. CKVC_E_DATA names file and byte. */
static ckvc_status take_record(run_writer *w, const char *path, const prompt_log_record *record,
                               ckvc_err *err) {
    const size_t before = w->rows->n_prompts;
    ckvc_err why = {0};
    ckvc_status st = shard_decode(w->rows, record->rows, record->n, &why);
    if (st == CKVC_OK && w->rows->n_prompts != before + 1) {
        st =
            ckvc_fail(&why, CKVC_E_DATA, "%zu prompt rows, must be 1", w->rows->n_prompts - before);
    }
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s: record at byte %llu: %s", path,
                 (unsigned long long)record->offset, why.text);
    return CKVC_OK;
}

/* Reads the rows of a shard from its log into w->rows; there are none when every prompt was
 * skipped. The log's bytes are released afterwards, because the shard's image takes as much memory
 * again. */
static ckvc_status read_rows(run_writer *w, uint32_t k, const char *log_path, ckvc_err *err) {
    uint32_t first, end, logged = 0;
    run_shard_range(w->pass, k, &first, &end);
    for (uint32_t i = first; i < end; i++) { logged += w->state[i] == PROMPT_LOGGED; }
    CKVC_AUTO(prompt_log_free) prompt_log log = {0};
    CKVC_TRY(prompt_log_read(log_path, &log, err));
    CKVC_FAIL_IF(log.n_records != logged, err, CKVC_E_IO,
                 "%s: %zu whole records, %u were written; has another program touched it?",
                 log_path, log.n_records, logged);
    if (log.n_records) { qsort(log.records, log.n_records, sizeof *log.records, ckvc_order_u32); }
    shard_clear(w->rows);
    for (size_t i = 0; i < log.n_records; i++) {
        CKVC_TRY(take_record(w, log_path, &log.records[i], err));
    }
    return CKVC_OK;
}

static ckvc_status write_shard(run_writer *w, uint32_t k, const char *log_path, const char *path,
                               run_shard *entry, ckvc_err *err) {
    CKVC_TRY(read_rows(w, k, log_path, err));
    CKVC_AUTO_FREE uint8_t *image = NULL;
    size_t n = 0;
    CKVC_TRY(shard_h5_image(w->rows, &image, &n, err));
    *entry = (run_shard){.shard = k,
                         .prompts = (uint32_t)w->rows->n_prompts,
                         .rows = w->rows->n_records,
                         .bytes = n};
    ckvc_sha256_hex(image, n, entry->sha256);
    return ckvc_publish_bytes(path, image, n, true, err);
}

static ckvc_status publish_shard(run_dir *r, uint32_t k, ckvc_err *err) {
    run_writer *w = r->writer;
    run_shard entry;
    CKVC_AUTO_FREE char *log_path = run_shard_path(r, w->pass->pub.name, k, ".log");
    CKVC_AUTO_FREE char *path = run_shard_path(r, w->pass->pub.name, k, ".h5");
    CKVC_TRY(write_shard(w, k, log_path, path, &entry, err));
    CKVC_TRY(run_journal(r, run_shard_line(w->pass, &entry), err));
    uint32_t first, end;
    run_shard_range(w->pass, k, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        w->state[i] = w->state[i] == PROMPT_LOGGED ? PROMPT_PUBLISHED : w->state[i];
    }
    w->n_published++;
    w->log_size[k] = 0;
    return run_remove_file(log_path, err);
}

/* ---- beginning ---- */
/* Hashes a header. The program's version is left out, so that an upgrade between two sessions does
 * not end a run. */
static void header_hash(const shard_header *h, char out[CKVC_SHA256_HEX]) {
    shard_header same = *h;
    memset(same.ckvc_version, 0, sizeof same.ckvc_version);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer bytes = {0};
    shard_header_encode(&same, &bytes);
    ckvc_sha256_hex(bytes.data, bytes.size, out);
}

/* Enters the pass into the journal, or checks that it was begun before with the same prompts,
 * shards, backend and header. */
static ckvc_status begin_line(run_dir *r, const run_pass_start *start, const shard_header *header,
                              ckvc_err *err) {
    char hash[CKVC_SHA256_HEX];
    header_hash(header, hash);
    const run_pass_state *p = run_find_pass(r, start->pass);
    if (!p) {
        run_pass_state begun = {.plan_prompts = start->n_prompts,
                                .shard_prompts = start->shard_prompts};
        snprintf(begun.pub.name, sizeof begun.pub.name, "%s", start->pass);
        snprintf(begun.backend, sizeof begun.backend, "%s", start->backend);
        memcpy(begun.pub.plan, header->plan, sizeof begun.pub.plan);
        memcpy(begun.header, hash, sizeof begun.header);
        return run_journal(r, run_begin_line(r, &begun), err);
    }
    CKVC_FAIL_IF(
        p->plan_prompts != start->n_prompts || p->shard_prompts != start->shard_prompts, err,
        CKVC_E_MISMATCH,
        "%s: pass %s was begun with %u prompts, %u to a shard; now it has %u, %u to a shard",
        r->path, start->pass, p->plan_prompts, p->shard_prompts, start->n_prompts,
        start->shard_prompts);
    CKVC_FAIL_IF(strcmp(p->backend, start->backend) != 0, err, CKVC_E_MISMATCH,
                 "%s: pass %s was begun on backend \"%s\", this is \"%s\": their results "
                 "differ in the last bits; go on where it was begun",
                 r->path, start->pass, p->backend, start->backend);
    CKVC_FAIL_IF(strcmp(p->header, hash) != 0, err, CKVC_E_MISMATCH,
                 "%s: pass %s was begun with other start tables, bin edges, grids or model "
                 "(shard header %.16s..., now %.16s...)",
                 r->path, start->pass, p->header, hash);
    return CKVC_OK;
}

/* Reads the log of shard k into the prompts' states. */
static ckvc_status replay(run_dir *r, uint32_t k, ckvc_err *err) {
    run_writer *w = r->writer;
    uint32_t first, end;
    run_shard_range(w->pass, k, &first, &end);
    CKVC_AUTO_FREE char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
    CKVC_AUTO(prompt_log_free) prompt_log log = {0};
    CKVC_TRY(prompt_log_read(path, &log, err));
    w->log_size[k] = log.size;
    for (size_t i = 0; i < log.n_records; i++) {
        const prompt_log_record *record = &log.records[i];
        const bool foreign = record->prompt < first || record->prompt >= end;
        CKVC_FAIL_IF(foreign || w->state[record->prompt] != PROMPT_TODO, err, CKVC_E_DATA,
                     "%s: record at byte %llu: prompt %u is %s", path,
                     (unsigned long long)record->offset, record->prompt,
                     foreign ? "not of this shard" : "there twice, or skipped");
        shard_clear(w->rows);
        CKVC_TRY(take_record(w, path, record, err));
        CKVC_TRY(shard_rows_check(w->rows, path, err));
        w->state[record->prompt] = PROMPT_LOGGED;
        w->left[k]--;
    }
    if (log.dropped) { /* the next append cuts them off */
        ckvc_warn("%s: %llu bytes of an unfinished write at byte %llu are dropped", path,
                  (unsigned long long)log.dropped, (unsigned long long)log.size);
    }
    return CKVC_OK;
}

/* Tells whether shard k is the one that follows `published` others in the journal. */
static bool is_published(const run_writer *w, size_t published, uint32_t k) {
    return published < w->pass->pub.n_shards && w->pass->shards[published].shard == k;
}

/* Finds out which prompts are done, first by the journal and then by the logs. Nothing is known
 * here of other parts' shards. */
static ckvc_status find_done(run_dir *r, ckvc_err *err) {
    run_writer *w = r->writer;
    const run_pass_state *p = w->pass;
    uint32_t first, end;
    for (size_t i = 0; i < p->n_skipped; i++) { w->state[p->skipped[i]] = PROMPT_SKIPPED; }
    for (uint32_t k = 0; k < w->n_shards; k++) {
        run_shard_range(p, k, &first, &end);
        for (uint32_t i = first; i < end; i++) { w->left[k] += w->state[i] == PROMPT_TODO; }
    }
    size_t published = 0;
    for (uint32_t k = 0; k < w->n_shards; k++) {
        if (!run_part_has(r->part, k)) { continue; }
        if (is_published(w, published, k)) {
            published++;
            w->n_published++;
            run_shard_range(p, k, &first, &end);
            for (uint32_t i = first; i < end; i++) {
                w->state[i] = w->state[i] == PROMPT_TODO ? PROMPT_PUBLISHED : w->state[i];
            }
            w->left[k] = 0;
            CKVC_AUTO_FREE char *path = run_shard_path(r, p->pub.name, k, ".log");
            CKVC_TRY(run_remove_file(path, err));
            continue;
        }
        CKVC_TRY(replay(r, k, err));
        if (w->left[k] == 0) {
            const size_t before = p->pub.n_shards;
            CKVC_TRY(publish_shard(r, k, err));
            /* a replayed log can publish a shard, whose line then stands before those of later
             * shards */
            published += p->pub.n_shards - before;
        }
    }
    return CKVC_OK;
}

static ckvc_status open_writer(run_dir *r, const char *pass, const shard_header *header,
                               ckvc_err *err) {
    run_writer *w = r->writer = ckvc_calloc(1, sizeof *w);
    w->pass = run_find_pass(r, pass);
    w->n_shards = run_shard_count(w->pass);
    w->rows = shard_create();
    w->state = ckvc_calloc(w->pass->plan_prompts, 1);
    w->left = ckvc_calloc(w->n_shards, sizeof *w->left);
    w->log_size = ckvc_calloc(w->n_shards, sizeof *w->log_size);
    shard_header_copy(&w->rows->h, header);
    CKVC_TRY(ckvc_make_dir_in(r->path, pass, err));
    CKVC_TRY(ckvc_fsync_dir(r->path, err));
    return find_done(r, err);
}

ckvc_status run_pass_begin(run_dir *r, const run_pass_start *start, const shard_header *header,
                           bool *done, ckvc_err *err) {
    assert(r->lock >= 0 && !r->writer && start->shard_prompts > 0);
    int number;
    const char *kind;
    CKVC_FAIL_IF(!run_pass_name(start->pass, &number, &kind) || strcmp(kind, header->pass) != 0,
                 err, CKVC_E_BUG, "pass \"%s\" with shards of kind \"%s\"", start->pass,
                 header->pass);
    CKVC_FAIL_IF(start->n_prompts / start->shard_prompts > RUN_MAX_SHARDS, err, CKVC_E_USAGE,
                 "%s: %u prompts in shards of %u are more than %u shards; give a larger "
                 "--shard-prompts",
                 r->path, start->n_prompts, start->shard_prompts, RUN_MAX_SHARDS);
    shard_header ours = *header; /* its arrays are borrowed */
    memcpy(ours.plan, r->pass_plan, sizeof ours.plan);
    ckvc_err why = {0};
    CKVC_FAIL_IF(shard_header_check(&ours, start->pass, &why) != CKVC_OK, err, CKVC_E_BUG, "%s",
                 why.text);
    CKVC_TRY(begin_line(r, start, &ours, err));
    const ckvc_status st = open_writer(r, start->pass, &ours, err);
    if (st != CKVC_OK) {
        run_writer_free(r->writer);
        r->writer = NULL;
        return st;
    }
    for (uint32_t i = 0; i < start->n_prompts; i++) {
        done[i] = r->writer->state[i] != PROMPT_TODO || i >= r->writer->pass->pub.n_prompts ||
                  !run_is_ours(r, i);
    }
    return CKVC_OK;
}

/* ---- going on ---- */
bool run_is_ours(const run_dir *r, uint32_t prompt) {
    return run_part_has(r->part, prompt / r->writer->pass->shard_prompts);
}

static ckvc_status prompt_done(run_dir *r, uint32_t prompt, prompt_state state, ckvc_err *err) {
    run_writer *w = r->writer;
    const uint32_t k = prompt / w->pass->shard_prompts;
    w->state[prompt] = (uint8_t)state;
    return --w->left[k] == 0 ? publish_shard(r, k, err) : CKVC_OK;
}

ckvc_status run_log_prompt(run_dir *r, uint32_t prompt, const shard *rows, ckvc_err *err) {
    run_writer *w = r->writer;
    assert(w && prompt < w->pass->pub.n_prompts && rows->n_prompts == 1 && run_is_ours(r, prompt));
    assert(rows->h.n_layers == w->rows->h.n_layers && rows->h.n_kv_heads == w->rows->h.n_kv_heads);
    CKVC_FAIL_IF(w->state[prompt] != PROMPT_TODO, err, CKVC_E_BUG,
                 "prompt %u of %s is logged twice", prompt, w->pass->pub.name);
    /* Rows that the shard could not hold must not become durable, because every later resume would
     * fail on them. */
    shard_clear(w->rows);
    shard_append(w->rows, rows);
    ckvc_err why = {0};
    CKVC_FAIL_IF(shard_rows_check(w->rows, rows->prompts[0].id, &why) != CKVC_OK, err, CKVC_E_BUG,
                 "%s", why.text);
    const uint32_t k = prompt / w->pass->shard_prompts;
    CKVC_AUTO_FREE char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer bytes = {0};
    shard_encode(w->rows, &bytes);
    CKVC_TRY(prompt_log_append(path, &w->log_size[k], prompt, bytes.data, bytes.size, err));
    return prompt_done(r, prompt, PROMPT_LOGGED, err);
}

ckvc_status run_skip_prompt(run_dir *r, uint32_t prompt, const char *id, const char *reason,
                            ckvc_err *err) {
    const run_writer *w = r->writer;
    assert(w && prompt < w->pass->pub.n_prompts && run_is_ours(r, prompt));
    CKVC_FAIL_IF(w->state[prompt] != PROMPT_TODO, err, CKVC_E_BUG,
                 "prompt %u of %s is skipped when it is done", prompt, w->pass->pub.name);
    CKVC_TRY(run_journal(r, run_skip_line(w->pass->pub.name, prompt, id, reason), err));
    return prompt_done(r, prompt, PROMPT_SKIPPED, err);
}

ckvc_status run_pass_replay(run_dir *r, void (*fn)(void *ctx, const shard *rows), void *ctx,
                            ckvc_err *err) {
    run_writer *w = r->writer;
    size_t published = 0;
    for (uint32_t k = 0; k < w->n_shards; k++) {
        if (!run_part_has(r->part, k)) { continue; }
        if (is_published(w, published, k)) {
            CKVC_AUTO(shard_free_at) shard *rows = NULL;
            CKVC_TRY(run_read_shard(r, &w->pass->pub, published++, &rows, err));
            fn(ctx, rows);
            continue;
        }
        CKVC_AUTO_FREE char *path = run_shard_path(r, w->pass->pub.name, k, ".log");
        CKVC_AUTO(prompt_log_free) prompt_log log = {0};
        CKVC_TRY(prompt_log_read(path, &log, err));
        for (size_t i = 0; i < log.n_records; i++) {
            shard_clear(w->rows);
            CKVC_TRY(take_record(w, path, &log.records[i], err));
            fn(ctx, w->rows);
        }
    }
    return CKVC_OK;
}

ckvc_status run_pass_stable(run_dir *r, double target, double reliability, bool reached,
                            ckvc_err *err) {
    run_writer *w = r->writer;
    const run_pass *p = &w->pass->pub;
    const ckvc_status st =
        run_journal(r,
                    json_pack("{s:s, s:f, s:o, s:I, s:b}", "pass", p->name, "until_stable", target,
                              "reliability", ckvc_json_real(reliability), "shards",
                              (json_int_t)p->n_shards, "reached", reached),
                    err);
    w->n_shards = run_shard_count(w->pass);
    return st;
}

uint64_t run_pass_bytes(const run_dir *r) {
    const run_writer *w = r->writer;
    const run_pass_state *p = w->pass;
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->pub.n_shards; i++) { bytes += p->shards[i].bytes; }
    for (uint32_t k = 0; k < w->n_shards; k++) { bytes += w->log_size[k]; }
    return bytes;
}

bool run_pass_end(run_dir *r) {
    /* All of it is durable already, so that nothing is left that could fail. */
    const bool complete = r->writer->n_published == run_own_shards(r, r->writer->pass);
    run_writer_free(r->writer);
    r->writer = NULL;
    return complete;
}
