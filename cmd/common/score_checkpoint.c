/* What a stopped score goes on from: see score_checkpoint.h. */
#include "cmd/common/score_checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd/common/options.h"
#include "formats/lines/rows.h"
#include "formats/run/run_append.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/text_lines.h"

/* OUT.part-0-of-3 */
static char *part_path(const char *out, run_part part) {
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(out);
    CKVC_AUTO_FREE char *name = ckvc_path_name(out);
    CKVC_AUTO_FREE char *stem = ckvc_format("%s.part", name);
    return run_part_path(folder, stem, part, "");
}

/* Takes the lock; of a checkpoint that its holder removed meanwhile it would be worth nothing. */
static ckvc_status take_lock(score_checkpoint *c, ckvc_err *err) {
    struct stat held;
    do {
        ckvc_close_at(&c->lock);
        CKVC_TRY(ckvc_open_kept(c->path, &c->lock, err));
        const bool locked = flock(c->lock, LOCK_EX | LOCK_NB) == 0;
        CKVC_FAIL_IF(!locked && errno == EWOULDBLOCK, err, CKVC_E_BUSY,
                     "%s: another process is writing this score; wait for it or stop it", c->path);
        CKVC_FAIL_ERRNO_IF(!locked, err, CKVC_E_SYSTEM, RUN_NO_LOCK, c->path);
    } while (fstat(c->lock, &held) == 0 && held.st_nlink == 0);
    return CKVC_OK;
}

/* other, advice: of the message; "this command has", "give the same". */
static ckvc_status compare(const char *path, json_t *ours, json_t *theirs, const char *other,
                           const char *advice, ckvc_err *err) {
    json_auto_t *all = json_copy(ours);
    json_object_update_missing(all, theirs);
    const char *key;
    json_t *value;
    json_object_foreach(all, key, value) {
        const char *a = json_string_value(json_object_get(theirs, key)),
                   *b = json_string_value(json_object_get(ours, key));
        CKVC_FAIL_IF(!a || !b || strcmp(a, b) != 0, err, CKVC_E_MISMATCH,
                     "%s: was begun with %s %s, %s %s; %s, or begin anew with --force", path, key,
                     a ? a : "unset", other, b ? b : "unset", advice);
    }
    return CKVC_OK;
}

/* Whole prompts of a text: how many, and where they end. */
static size_t whole_prompts(const char *text, size_t n, size_t per_prompt, size_t *end) {
    size_t n_lines = 0;
    *end = 0;
    for (ckvc_lines at = ckvc_lines_of(text, n); ckvc_next_line(&at) && at.ended;) {
        if (++n_lines % per_prompt == 0) { *end = (size_t)(at.next - text); }
    }
    return n_lines / per_prompt;
}

/* What stands behind the first line, the settings, of a checkpoint's file, and how many bytes;
 * NULL: it was killed before the end of that line. */
static const char *behind_settings(const ckvc_map *map, size_t *n) {
    const char *text = (const char *)map->data, *end = memchr(text, '\n', map->size);
    *n = end ? map->size - (size_t)(end + 1 - text) : 0;
    return end ? end + 1 : NULL;
}

static ckvc_status read_settings(const ckvc_map *map, size_t n_behind, const char *path,
                                 json_t **out, ckvc_err *err) {
    return ckvc_json_parse((const char *)map->data, map->size - n_behind - 1, path, out, err);
}

ckvc_status score_checkpoint_open(score_checkpoint *c, json_t *settings, ckvc_err *err) {
    json_auto_t *theirs = NULL;
    size_t n;
    c->path = c->part.count ? part_path(c->out, c->part) : ckvc_format("%s.checkpoint", c->out);
    c->lock = -1;
    json_object_set_new(settings, "prompts", json_sprintf("%zu", c->n_prompts));
    json_object_set_new(settings, "lines", json_sprintf("%zu", c->per_prompt));
    if (c->part.count) {
        json_object_set_new(settings, "shard", json_sprintf("%u/%u", c->part.index, c->part.count));
    }
    CKVC_TRY(take_lock(c, err));
    CKVC_TRY(ckvc_map_open(c->path, &c->map, err));
    c->lines = behind_settings(&c->map, &n);
    const bool begun = c->lines && memchr(c->lines, '\n', n);
    CKVC_FAIL_IF(begun && !c->resume && !c->force, err, CKVC_E_CREATE,
                 "%s: a score was stopped here; go on with --resume, or begin anew with --force",
                 c->path);
    if (!begun || !c->resume) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer head = {0};
        ckvc_json_append(&head, settings);
        ckvc_buffer_u8(&head, '\n');
        const bool ours =
            c->lines ? read_settings(&c->map, n, c->path, &theirs, NULL) == CKVC_OK &&
                           json_object_get(theirs, "lines")
                     : c->map.size < head.size && memcmp(c->map.data, head.data, c->map.size) == 0;
        CKVC_FAIL_IF(!ours && !c->force, err, CKVC_E_CREATE,
                     "%s: is no checkpoint of this score; move it elsewhere, or begin anew with "
                     "--force",
                     c->path);
        ckvc_map_close(&c->map);
        c->head = head.size;
        return durable_append(c->path, &c->size, head.data, head.size, err);
    }
    CKVC_TRY(read_settings(&c->map, n, c->path, &theirs, err));
    CKVC_TRY(compare(c->path, settings, theirs, "this command has", "give the same", err));
    c->head = c->map.size - n;
    c->n_done = whole_prompts(c->lines, n, c->per_prompt, &c->n_lines);
    c->size = c->head + c->n_lines;
    return CKVC_OK;
}

ckvc_status score_checkpoint_keep(void *ctx, const void *lines, size_t size, ckvc_err *err) {
    score_checkpoint *c = ctx;
    ckvc_map_close(&c->map);
    c->n_done++;
    CKVC_TRY(durable_append(c->path, &c->size, lines, size, err));
    ckvc_progress_disk(c->path, c->size);
    return CKVC_OK;
}

static ckvc_status remove_it(const score_checkpoint *c, ckvc_err *err) {
    CKVC_FAIL_IF(c->path && unlink(c->path) != 0, err, CKVC_E_IO,
                 "%s: cannot remove it: %s; %s, which it was for, has all that was kept here",
                 c->path, strerror(errno), c->out);
    return CKVC_OK;
}

ckvc_status score_checkpoint_out_check(const char *out, bool resume, bool force, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_format("%s.checkpoint", out);
    const bool ended = resume && ckvc_file_exists(out) && ckvc_file_exists(path);
    return ended ? CKVC_OK : ckvc_publish_check(out, force, err);
}

/* Where a command before this one was killed as it ended, the file is there with these lines. */
static ckvc_status publish(const score_checkpoint *c, ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map there = {0};
    const bool same = c->resume && ckvc_file_exists(c->out) &&
                      ckvc_map_open(c->out, &there, NULL) == CKVC_OK && there.size == c->n_lines &&
                      memcmp(there.data, c->lines, c->n_lines) == 0;
    return ckvc_publish_bytes(c->out, c->lines, c->n_lines, c->force || same, err);
}

/* What was appended, before a line that a kill cut off. */
static ckvc_status map_lines(score_checkpoint *c, ckvc_err *err) {
    ckvc_map_close(&c->map);
    CKVC_TRY(ckvc_map_open(c->path, &c->map, err));
    CKVC_FAIL_IF(
        c->map.size < c->size, err, CKVC_E_IO,
        "%s: is shorter than the %llu bytes written to it; has another program touched it?",
        c->path, (unsigned long long)c->size);
    c->lines = (const char *)c->map.data + c->head;
    c->n_lines = c->size - c->head;
    return CKVC_OK;
}

ckvc_status score_checkpoint_end(score_checkpoint *c, const ckvc_buffer *lines, ckvc_status st,
                                 const ckvc_err *why, const char *printed, bool quiet,
                                 ckvc_err *err) {
    const bool for_good = st == CKVC_E_STOPPED && c->n_done == 0;
    if (st != CKVC_OK && c->n_done == 0 && remove_it(c, NULL) != CKVC_OK) {
        ckvc_warn("%s holds nothing and could not be removed", c->path);
    }
    if (!c->out && (st == CKVC_OK || for_good)) { fwrite(lines->data, 1, lines->size, stdout); }
    CKVC_FAIL_IF(for_good, err, CKVC_E_INTERRUPTED, "%.*s; %s", (int)strcspn(why->text, ";"),
                 why->text, c->out ? "nothing was written" : printed);
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why->text);
    if (c->path) {
        CKVC_TRY(map_lines(c, err));
    } else {
        c->lines = (const char *)lines->data;
        c->n_lines = lines->size;
    }
    if (c->part.count) { /* the checkpoint is the part */
        if (!quiet) { say("wrote %s; when all parts are there: ckvc merge %s\n", c->path, c->out); }
    } else if (c->out) {
        CKVC_TRY(publish(c, err));
        CKVC_TRY(remove_it(c, err));
    }
    return CKVC_OK;
}

void score_checkpoint_fini(score_checkpoint *c) {
    if (c->path) { ckvc_close_at(&c->lock); }
    ckvc_map_close(&c->map);
    free(c->path);
}

/* ---- parts ---- */
typedef struct score_part {
    run_part part;
    const char *out; /* that it was made with */
    char *path;
    ckvc_map map;
    json_t *settings;
    const char *lines;    /* into map: not taken yet */
    size_t n, per_prompt; /* bytes of these, lines of a prompt */
} score_part;

typedef struct score_parts {
    score_part *items;
    size_t n, capacity;
} score_parts;

static void parts_fini(score_parts *all) {
    for (size_t i = 0; i < all->n; i++) {
        free(all->items[i].path);
        ckvc_map_close(&all->items[i].map);
        json_decref(all->items[i].settings);
    }
    free(all->items);
}

static ckvc_status take_parts(score_parts *all, const char *out, ckvc_err *err) {
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(out);
    CKVC_AUTO_FREE char *name = ckvc_path_name(out);
    CKVC_AUTO_FREE char *stem = ckvc_format("%s.part", name);
    CKVC_AUTO_FREE run_part *list = NULL;
    size_t n = 0;
    if (!ckvc_is_dir(folder)) { return CKVC_OK; }
    CKVC_TRY(run_list_parts(folder, stem, "", &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        CKVC_GROW(all->items, all->capacity, all->n + 1);
        all->items[all->n++] =
            (score_part){.part = list[i], .out = out, .path = part_path(out, list[i])};
    }
    return CKVC_OK;
}

static size_t count_in(const json_t *settings, const char *key) {
    const char *text = json_string_value(json_object_get(settings, key));
    return text ? strtoul(text, NULL, 10) : 0;
}

/* settings NULL: it was killed before its first line. */
static ckvc_status open_part(score_part *p, ckvc_err *err) {
    CKVC_TRY(ckvc_map_open(p->path, &p->map, err));
    p->lines = behind_settings(&p->map, &p->n);
    if (!p->lines) { return CKVC_OK; }
    CKVC_TRY(read_settings(&p->map, p->n, p->path, &p->settings, err));
    p->per_prompt = count_in(p->settings, "lines");
    CKVC_FAIL_IF(p->per_prompt == 0, err, CKVC_E_DATA, "%s: not a checkpoint or part of a score",
                 p->path);
    return CKVC_OK;
}

/* Prompts of a part whose lines are there, of how many. */
static size_t prompts_of(const score_part *p, size_t *wanted, size_t *end) {
    *wanted = run_part_size(p->part, count_in(p->settings, "prompts"));
    assert(p->per_prompt > 0);
    return whole_prompts(p->lines, p->n, p->per_prompt, end);
}

/* With the lines of all its prompts. */
static ckvc_status read_part(score_part *p, ckvc_err *err) {
    size_t wanted, end;
    CKVC_TRY(open_part(p, err));
    CKVC_FAIL_IF(!p->settings, err, CKVC_E_DATA, "%s: holds no settings; begin it anew", p->path);
    const size_t got = prompts_of(p, &wanted, &end);
    CKVC_FAIL_IF(got != wanted || end < p->n, err, CKVC_E_DATA,
                 "%s: %zu of %zu prompts are done; finish it with --shard %u/%u --resume", p->path,
                 got, wanted, p->part.index, p->part.count);
    return CKVC_OK;
}

static int by_index(const void *a, const void *b) {
    const run_part x = ((const score_part *)a)->part, y = ((const score_part *)b)->part;
    return x.index != y.index ? (x.index > y.index) - (x.index < y.index)
                              : (x.count > y.count) - (x.count < y.count);
}

/* All of one number, one of each, of the same settings. */
static ckvc_status check_parts(score_parts *all, ckvc_err *err) {
    score_part *first = all->items;
    qsort(first, all->n, sizeof *first, by_index);
    for (size_t i = 0; i < all->n; i++) {
        score_part *p = &all->items[i];
        CKVC_FAIL_IF(p->part.count != first->part.count, err, CKVC_E_MISMATCH,
                     "%s: is one of %u parts, %s one of %u: all parts of a score must have one "
                     "number of parts",
                     p->path, p->part.count, first->path, first->part.count);
        CKVC_FAIL_IF(i && p->part.index == p[-1].part.index, err, CKVC_E_DATA,
                     "part %u/%u is there twice, %s and %s; leave one out", p->part.index,
                     p->part.count, p[-1].path, p->path);
        CKVC_TRY(read_part(p, err));
        json_object_del(p->settings, "shard");
        CKVC_TRY(compare(p->path, first->settings, p->settings, "part 0", "leave it out", err));
    }
    return CKVC_OK;
}

/* Takes the lines of the next prompt, none where there are no more. */
static size_t take_prompt(score_part *p) {
    const char *from = p->lines;
    ckvc_lines at = ckvc_lines_of(p->lines, p->n);
    for (size_t i = 0; i < p->per_prompt && ckvc_next_line(&at); i++) {}
    p->lines = at.next;
    p->n = (size_t)(at.end - at.next);
    return (size_t)(p->lines - from);
}

/* As score_checkpoint_keep had them, prompt by prompt over the parts. Those of a part that is gone
 * are those `there`, in the file that a merge has made which was killed as it removed the parts. */
static ckvc_status join_lines(score_parts *all, score_part *there, ckvc_buffer *lines,
                              ckvc_err *err) {
    const score_part *first = all->items;
    const size_t n = count_in(first->settings, "prompts");
    there->per_prompt = first->per_prompt;
    for (size_t prompt = 0; prompt < n; prompt++) {
        const score_part key = {
            .part = {.index = (unsigned)(prompt % first->part.count), .count = first->part.count}};
        score_part *p = bsearch(&key, all->items, all->n, sizeof key, by_index);
        const size_t of_there = take_prompt(there), size = p ? take_prompt(p) : of_there;
        CKVC_FAIL_IF(size == 0, err, CKVC_E_DATA,
                     "%s: part %u/%u is missing; make it with --shard %u/%u, or name its --out",
                     first->out, key.part.index, key.part.count, key.part.index, key.part.count);
        ckvc_buffer_append(lines, (p ? p : there)->lines - size, size);
    }
    return CKVC_OK;
}

ckvc_status score_merge(const char *out, const char *const *outs, size_t n, size_t *n_parts,
                        ckvc_err *err) {
    CKVC_AUTO(parts_fini) score_parts all = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    score_part there = {0};
    *n_parts = 0;
    CKVC_TRY(take_parts(&all, out, err));
    for (size_t i = 0; i < n; i++) { CKVC_TRY(take_parts(&all, outs[i], err)); }
    if (all.n == 0) { return CKVC_OK; }
    CKVC_TRY(check_parts(&all, err));
    if (ckvc_file_exists(out)) {
        CKVC_TRY(ckvc_map_open(out, &map, err));
        there = (score_part){.lines = (const char *)map.data, .n = map.size};
    }
    CKVC_TRY(join_lines(&all, &there, &lines, err));
    CKVC_TRY(run_publish_once(out, lines.data, lines.size, err));
    for (size_t i = 0; i < all.n; i++) {
        const char *path = all.items[i].path;
        CKVC_FAIL_IF(all.items[i].out == out && unlink(path) != 0, err, CKVC_E_IO,
                     "%s: cannot remove it: %s; %s has its lines", path, strerror(errno), out);
    }
    *n_parts = all.n;
    return CKVC_OK;
}

/* ---- status ---- */

static double seconds_of(struct statx_timestamp t) {
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As of a run's part with one pass. The rate is that of the time from the file's making, where the
 * file system knows it, to its last line. */
static ckvc_status describe_part(score_part *p, json_t **out, ckvc_err *err) {
    struct statx info = {0};
    struct timespec now;
    size_t wanted, end;
    CKVC_TRY(open_part(p, err));
    json_t *name =
        p->part.count ? json_sprintf("%u/%u", p->part.index, p->part.count) : json_null();
    if (!p->settings) {
        *out =
            json_pack("{s:o, s:[], s:[], s:b}", "part", name, "passes", "skipped", "complete", 0);
        return CKVC_OK;
    }
    const size_t done = prompts_of(p, &wanted, &end);
    const bool complete = done >= wanted,
               known = statx(AT_FDCWD, p->path, 0, STATX_BTIME | STATX_MTIME, &info) == 0,
               born = known && (info.stx_mask & STATX_BTIME) != 0;
    clock_gettime(CLOCK_REALTIME, &now); /* files' times are the wall clock's */
    const double written = seconds_of(info.stx_mtime),
                 took = born ? written - seconds_of(info.stx_btime) : 0,
                 rate = complete || done == 0 || took <= 0 ? NAN : (double)done / took,
                 ago = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - written;
    *out =
        json_pack("{s:o, s:[{s:s, s:I, s:I, s:i, s:b, s:o, s:o, s:o}], s:[], s:b}", "part", name,
                  "passes", "pass", json_object_get(p->settings, "items") ? "eval" : "score",
                  "prompts", (json_int_t)wanted, "done", (json_int_t)done, "skipped", 0, "complete",
                  complete, "prompts_per_second", ckvc_json_real(rate), "seconds_left",
                  ckvc_json_real((double)(wanted - done) / rate), "seconds_since_write",
                  ckvc_json_real(known ? fmax(0, ago) : NAN), "skipped", "complete", complete);
    return CKVC_OK;
}

ckvc_status score_status(const char *out, json_t **status, ckvc_err *err) {
    CKVC_AUTO(parts_fini) score_parts all = {0};
    CKVC_AUTO_FREE char *checkpoint = ckvc_format("%s.checkpoint", out);
    json_auto_t *parts = json_array();
    bool complete = true;
    if (ckvc_file_exists(checkpoint)) {
        CKVC_GROW(all.items, all.capacity, 1);
        all.items[all.n++] = (score_part){.out = out, .path = ckvc_strdup(checkpoint)};
    } else {
        CKVC_TRY(take_parts(&all, out, err));
    }
    const char *whole = all.n ? NULL : rows_verb(out);
    CKVC_FAIL_IF(all.n == 0 && !whole, err, ckvc_file_exists(out) ? CKVC_E_DATA : CKVC_E_NOINPUT,
                 "%s: is no run, score or eval, and no part of one; name what --out named", out);
    CKVC_AUTO_FREE run_part *there = ckvc_alloc(all.n, sizeof *there);
    for (size_t i = 0; i < all.n; i++) {
        json_t *o;
        there[i] = all.items[i].part;
        CKVC_TRY(describe_part(&all.items[i], &o, err));
        complete = complete && json_is_true(json_object_get(o, "complete"));
        json_array_append_new(parts, o);
    }
    json_auto_t *missing = run_missing(there, all.n);
    const bool merged = all.n == 0 || all.items[0].part.count == 0;
    *status = json_pack("{s:s, s:s*, s:O, s:O, s:b, s:b}", "run", out, "verb", whole, "parts",
                        parts, "missing", missing, "complete",
                        complete && json_array_size(missing) == 0, "merged", merged);
    return CKVC_OK;
}
