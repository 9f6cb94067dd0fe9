/* Runs in parts: makes one run of many parts (run.md, "Parts"). */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/run/run_status.h"
#include "formats/run/run_internal.h"
#include "lib/base/json.h"
#include "lib/base/files.h"

#define MAX_SMALL_FILE ((size_t)256 << 20)

/* ---- what is to be merged ---- */
typedef struct merge {
    run_dir *to;     /* where they are merged to; it has plan and lock, but no journal yet */
    run_dir **parts; /* [n] sorted by index once they are checked */
    size_t n, capacity;
    ckvc_buffer journal;
} merge;

static void merge_fini(merge *m) {
    run_close(m->to);
    for (size_t i = 0; i < m->n; i++) { run_close(m->parts[i]); }
    free(m->parts);
    ckvc_buffer_fini(&m->journal);
}

/* Takes the parts of one folder. It may have none, which the caller judges. */
static ckvc_status take_parts(merge *m, const char *folder, ckvc_err *err) {
    CKVC_AUTO_FREE run_part *list = NULL;
    size_t n;
    CKVC_TRY(run_list_parts(folder, "journal", ".jsonl", &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        CKVC_GROW(m->parts, m->capacity, m->n + 1);
        m->parts[m->n] = run_new(folder, list[i]);
        CKVC_TRY(run_load(m->parts[m->n++], err));
    }
    return CKVC_OK;
}

static int by_index(const void *a, const void *b) {
    return run_by_part(&(*(run_dir *const *)a)->part, &(*(run_dir *const *)b)->part);
}

/* Checks that all parts are of one number, and that there is one of each index. */
static ckvc_status check_numbers(const merge *m, ckvc_err *err) {
    qsort(m->parts, m->n, sizeof(run_dir *), by_index);
    const uint32_t count = m->parts[0]->part.count;
    for (size_t i = 0; i < m->n; i++) {
        const run_dir *p = m->parts[i];
        CKVC_FAIL_IF(p->part.count != count, err, CKVC_E_MISMATCH,
                     "%s: part %u/%u, but %s has one of %u: parts of one run are all of one number",
                     p->path, p->part.index, p->part.count, m->parts[0]->path, count);
        CKVC_FAIL_IF(
            i && p->part.index == m->parts[i - 1]->part.index, err, CKVC_E_DATA,
            "part %u/%u is there twice, in %s and in %s: its shards overlap; leave one out",
            p->part.index, count, m->parts[i - 1]->path, p->path);
        CKVC_FAIL_IF(p->part.index != i, err, CKVC_E_DATA,
                     "%s: part %zu/%u is missing; make it with --shard %zu/%u, or name its folder",
                     m->to->path, i, count, i, count);
    }
    CKVC_FAIL_IF(m->n != count, err, CKVC_E_DATA,
                 "%s: part %zu/%u is missing; make it with --shard %zu/%u, or name its folder",
                 m->to->path, m->n, count, m->n, count);
    return CKVC_OK;
}

/* Checks a pass of one part against the first part's. */
static ckvc_status check_pass(const run_dir *part, const run_pass_state *p,
                              const run_pass_state *first, const run_dir *first_run,
                              ckvc_err *err) {
    CKVC_FAIL_IF(p->plan_prompts != first->plan_prompts || p->shard_prompts != first->shard_prompts,
                 err, CKVC_E_MISMATCH,
                 "%s: %s was begun with %u prompts, %u to a shard, in %s with %u, %u to a shard",
                 part->journal_path, p->pub.name, p->plan_prompts, p->shard_prompts,
                 first_run->journal_path, first->plan_prompts, first->shard_prompts);
    CKVC_FAIL_IF(strcmp(p->backend, first->backend) != 0, err, CKVC_E_MISMATCH,
                 "%s: %s was made on backend \"%s\", in %s on \"%s\": their results differ in the "
                 "last bits; make the part again where the others were made",
                 part->journal_path, p->pub.name, p->backend, first_run->journal_path,
                 first->backend);
    CKVC_FAIL_IF(strcmp(p->header, first->header) != 0 || strcmp(p->pub.plan, first->pub.plan) != 0,
                 err, CKVC_E_MISMATCH,
                 "%s: %s was begun with other start tables, bin edges, grids or model than in %s",
                 part->journal_path, p->pub.name, first_run->journal_path);
    for (uint32_t i = 0, k = part->part.index; k < run_shard_count(p); i++, k += part->part.count) {
        CKVC_FAIL_IF(i >= p->pub.n_shards || p->shards[i].shard != k, err, CKVC_E_DATA,
                     "%s: %s: shard %u is missing (%zu of this part's %u are published); finish it "
                     "with --shard %u/%u --resume",
                     part->journal_path, p->pub.name, k, p->pub.n_shards, run_own_shards(part, p),
                     part->part.index, part->part.count);
    }
    return CKVC_OK;
}

/* Checks that all parts have the same plan and the same passes, and that all passes are
 * complete. */
static ckvc_status check_parts(const merge *m, ckvc_err *err) {
    const run_dir *first = m->parts[0];
    const int64_t most = json_integer_value(json_object_get(first->plan, "max_failures"));
    for (size_t i = 0; i < m->n; i++) {
        const run_dir *part = m->parts[i];
        CKVC_AUTO_FREE char *difference = run_plan_difference(part, first->plan);
        CKVC_FAIL_IF(difference, err, CKVC_E_MISMATCH,
                     "%s/run.json: another plan than %s/run.json: %s; parts of one run are made "
                     "with the same options",
                     part->path, first->path, difference);
        CKVC_FAIL_IF(part->n_passes != first->n_passes || part->n_passes == 0, err, CKVC_E_DATA,
                     "%s: has begun %zu passes, part 0 %zu; go on with --shard %u/%u --resume",
                     part->journal_path, part->n_passes, first->n_passes, part->part.index,
                     part->part.count);
        for (size_t k = 0; k < part->n_passes; k++) {
            const run_pass_state *p = part->passes[k], *theirs = first->passes[k];
            CKVC_FAIL_IF(strcmp(p->pub.name, theirs->pub.name) != 0, err, CKVC_E_DATA,
                         "%s: has %s, part 0 %s", part->journal_path, p->pub.name,
                         theirs->pub.name);
            CKVC_TRY(check_pass(part, p, theirs, first, err));
        }
    }
    for (size_t k = 0; k < first->n_passes; k++) {
        size_t failures = 0;
        for (size_t i = 0; i < m->n; i++) { failures += m->parts[i]->passes[k]->n_skipped; }
        CKVC_FAIL_IF((int64_t)failures > most, err, CKVC_E_DATA,
                     "%s: %zu prompts of %s leave no records in all parts together, --max-failures "
                     "allows %" PRId64,
                     first->path, failures, first->passes[k]->pub.name, most);
    }
    return CKVC_OK;
}

/* ---- the journal of one run ---- */
static void put_line(merge *m, json_t *line) {
    ckvc_json_append(&m->journal, line);
    ckvc_buffer_u8(&m->journal, '\n');
    json_decref(line);
}

/* Writes the lines of the prompts of shard k that a part skipped, in the prompts' order, because a
 * run that does one prompt after the other has them so. */
static void put_skipped(merge *m, const run_dir *part, const run_pass_state *p, uint32_t k) {
    uint32_t first, end;
    run_shard_range(p, k, &first, &end);
    for (uint32_t prompt = first; prompt < end; prompt++) {
        /* index in p->skipped, which has one number for each entry of this pass in part->skipped */
        size_t at = 0;
        for (size_t i = 0; i < json_array_size(part->skipped); i++) {
            const json_t *line = json_array_get(part->skipped, i);
            const char *of = json_string_value(json_object_get(line, "pass"));
            if (strcmp(of, p->pub.name) != 0 || p->skipped[at++] != prompt) { continue; }
            put_line(m, run_skip_line(of, prompt, json_string_value(json_object_get(line, "id")),
                                      json_string_value(json_object_get(line, "reason"))));
        }
    }
}

static void put_journal(merge *m) {
    for (size_t i = 0; i < m->parts[0]->n_passes; i++) {
        put_line(m, run_begin_line(m->parts[0], m->parts[0]->passes[i]));
        for (uint32_t k = 0; k < run_shard_count(m->parts[0]->passes[i]); k++) {
            const run_dir *part = m->parts[k % m->n];
            if (part->passes[i]->n_skipped) { put_skipped(m, part, part->passes[i], k); }
            put_line(m, run_shard_line(part->passes[i], &part->passes[i]->shards[k / m->n]));
        }
    }
}

/* ---- publishing ---- */
/* Checks a published shard, and puts it into its place unless it stands there. */
static ckvc_status publish_shard(const merge *m, const run_dir *part, const run_pass_state *p,
                                 const run_shard *s, ckvc_err *err) {
    CKVC_AUTO_FREE char *from = run_shard_path(part, p->pub.name, s->shard, ".h5");
    CKVC_AUTO_FREE char *to = run_shard_path(m->to, p->pub.name, s->shard, ".h5");
    CKVC_AUTO_FREE char *log = run_shard_path(m->to, p->pub.name, s->shard, ".log");
    CKVC_AUTO_FREE char *data = NULL;
    size_t n;
    CKVC_TRY(run_read_journaled(from, s->bytes, s->sha256, &data, &n, err));
    if (strcmp(part->path, m->to->path) == 0) { return run_remove_file(log, err); }
    return ckvc_publish_bytes(to, data, n, true, err);
}

/* Publishes a file that part 0 writes beside the shards for all parts. */
static ckvc_status publish_small(const merge *m, const char *name, ckvc_err *err) {
    CKVC_AUTO_FREE char *from = ckvc_path_join(m->parts[0]->path, name);
    CKVC_AUTO_FREE char *data = NULL;
    size_t n;
    if (strcmp(m->parts[0]->path, m->to->path) == 0 || !ckvc_file_exists(from)) { return CKVC_OK; }
    CKVC_TRY(ckvc_file_read(from, MAX_SMALL_FILE, &data, &n, err));
    return run_publish_file(m->to, name, data, n, err);
}

static ckvc_status publish_shards(const merge *m, run_merged *out, ckvc_err *err) {
    const run_dir *first = m->parts[0];
    for (size_t i = 0; i < first->n_passes; i++) {
        CKVC_TRY(ckvc_make_dir_in(m->to->path, first->passes[i]->pub.name, err));
        for (uint32_t k = 0; k < run_shard_count(first->passes[i]); k++, out->n_shards++) {
            const run_dir *part = m->parts[k % m->n];
            const run_pass_state *p = part->passes[i];
            CKVC_TRY(publish_shard(m, part, p, &p->shards[k / m->n], err));
        }
    }
    CKVC_TRY(publish_small(m, "scan/edges.json", err));
    CKVC_TRY(publish_small(m, COVERAGE_FILE, err));
    CKVC_TRY(ckvc_fsync_dir(m->to->path, err));
    out->n_parts = (uint32_t)m->n;
    out->n_passes = first->n_passes;
    return CKVC_OK;
}

/* Removes the parts' own files, once the run is one. */
static ckvc_status remove_parts(const run_dir *to, ckvc_err *err) {
    static const char *const files[][2] = {{"journal", ".jsonl"}, {"lock", ""}, {"plan", ".json"}};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        CKVC_AUTO_FREE run_part *list = NULL;
        size_t n;
        CKVC_TRY(run_list_parts(to->path, files[f][0], files[f][1], &list, &n, err));
        for (size_t i = 0; i < n; i++) {
            CKVC_AUTO_FREE char *file = run_part_path(to->path, files[f][0], list[i], files[f][1]);
            CKVC_TRY(run_remove_file(file, err));
        }
    }
    return CKVC_OK;
}

/* Tells whether the run's pass has all shards of a part's pass. */
static bool has_all(const run_pass_state *run, const run_pass_state *part) {
    bool all = run != NULL;
    for (size_t i = 0, at = 0; all && i < part->pub.n_shards; i++) {
        const run_shard *s = &part->shards[i];
        while (at < run->pub.n_shards && run->shards[at].shard < s->shard) { at++; }
        all = at < run->pub.n_shards && run->shards[at].shard == s->shard &&
              strcmp(run->shards[at].sha256, s->sha256) == 0;
    }
    for (size_t i = 0; all && i < part->n_skipped; i++) {
        all = run->is_skipped && part->skipped[i] < run->plan_prompts &&
              run->is_skipped[part->skipped[i]];
    }
    return all;
}

/* Removes what is left of a merge that was killed before it could: these are no parts any more,
 * because the run's journal has all of them. */
static ckvc_status remove_left(const run_dir *to, ckvc_err *err) {
    CKVC_AUTO(merge_fini) merge left = {.to = run_new(to->path, RUN_WHOLE)};
    CKVC_TRY(run_load(left.to, err));
    CKVC_TRY(take_parts(&left, to->path, err));
    for (size_t i = 0; i < left.n; i++) {
        for (size_t k = 0; k < left.parts[i]->n_passes; k++) {
            const run_pass_state *p = left.parts[i]->passes[k];
            CKVC_FAIL_IF(!has_all(run_find_pass(left.to, p->pub.name), p), err, CKVC_E_MISMATCH,
                         "%s: has prompts of %s that %s lacks, which is not what these parts make; "
                         "move one of the two elsewhere",
                         left.parts[i]->journal_path, p->pub.name, left.to->journal_path);
        }
    }
    return remove_parts(to, err);
}

/* Makes the folder for the run and locks it, so that no part of it is being written. */
static ckvc_status open_target(merge *m, ckvc_err *err) {
    const char *path = m->to->path;
    bool fresh = true;
    CKVC_FAIL_IF(ckvc_file_exists(path) && !ckvc_is_dir(path), err, CKVC_E_CREATE,
                 "%s: exists and is not a folder; choose another", path);
    CKVC_TRY(ckvc_make_dirs(path, err));
    CKVC_TRY(run_lock(m->to, err));
    CKVC_TRY(run_folder_is_fresh(path, &fresh, err));
    CKVC_AUTO_FREE char *plan = ckvc_path_join(path, "run.json");
    CKVC_FAIL_IF(!fresh && !ckvc_file_exists(plan), err, CKVC_E_CREATE,
                 "%s: is not empty and no run (it has no run.json); choose another", path);
    return CKVC_OK;
}

/* Publishes run.json of the parts, or checks that the one that is there has the same plan. */
static ckvc_status publish_plan(const merge *m, ckvc_err *err) {
    CKVC_AUTO_FREE char *file = ckvc_path_join(m->to->path, "run.json");
    if (ckvc_file_exists(file)) {
        CKVC_TRY(run_load(m->to, err));
        CKVC_AUTO_FREE char *difference = run_plan_difference(m->to, m->parts[0]->plan);
        CKVC_FAIL_IF(difference, err, CKVC_E_MISMATCH,
                     "%s: another plan than that of the parts: %s; choose another folder", file,
                     difference);
        return CKVC_OK;
    }
    return run_write_plan(m->to, file, m->parts[0]->plan, err);
}

/* Publishes the journal, which makes the folder a run. */
static ckvc_status publish_journal(const merge *m, ckvc_err *err) {
    return run_publish_once(m->to->journal_path, m->journal.data, m->journal.size, err);
}

ckvc_status run_merge(const char *path, const char *const *folders, size_t n, run_merged *out,
                      ckvc_err *err) {
    CKVC_AUTO(merge_fini) merge m = {.to = run_new(path, RUN_WHOLE)};
    *out = (run_merged){0};
    const bool there = ckvc_is_dir(m.to->path);
    CKVC_FAIL_IF(!there && n == 0, err, CKVC_E_NOINPUT,
                 "%s: no folder of a run, and no parts of a score beside it (%s.part-0-of-3)", path,
                 path);
    if (there) { CKVC_TRY(open_target(&m, err)); }
    const bool whole = ckvc_file_exists(m.to->journal_path);
    if (whole) { CKVC_TRY(remove_left(m.to, err)); }
    if (whole && n == 0) { return CKVC_OK; }
    if (there) { CKVC_TRY(take_parts(&m, m.to->path, err)); }
    for (size_t i = 0; i < n; i++) {
        const size_t before = m.n;
        CKVC_TRY(take_parts(&m, folders[i], err));
        CKVC_FAIL_IF(m.n == before, err, CKVC_E_DATA,
                     "%s: holds no part of a run (journal-0-of-3.jsonl); parts are made with "
                     "--shard",
                     folders[i]);
    }
    CKVC_FAIL_IF(m.n == 0, err, CKVC_E_DATA,
                 "%s: holds no part of a run (journal-0-of-3.jsonl); parts are made with --shard",
                 path);
    CKVC_TRY(check_numbers(&m, err));
    CKVC_TRY(check_parts(&m, err));
    put_journal(&m);
    if (!there) { CKVC_TRY(open_target(&m, err)); }
    CKVC_TRY(publish_plan(&m, err));
    /* a folder that has another run is refused before its shards are touched */
    if (whole) { CKVC_TRY(publish_journal(&m, err)); }
    CKVC_TRY(publish_shards(&m, out, err));
    CKVC_TRY(publish_journal(&m, err));
    return remove_parts(m.to, err);
}
