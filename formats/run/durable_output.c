/* The outputs of score and eval, made prompt by prompt: see durable_output.h. */
#include "formats/run/durable_output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/run/durable.h"
#include "formats/run/run_internal.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/text_lines.h"

/* Returns the file name of a part, or of the whole output while it is not finished. */
static char *path_of(const char *out, run_part part) {
    if (part.count == 0) { return ckvc_format("%s.checkpoint", out); }
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(out);
    CKVC_AUTO_FREE char *name = ckvc_path_name(out);
    return ckvc_format("%s/%s.part-%u-of-%u", folder, name, part.index, part.count);
}

/* Checks that two sets of settings are the same. `other` and `advice` are words of the message,
 * such as "this command has" and "give the same". */
static ckvc_status check_same_settings(const char *path, json_t *ours, json_t *theirs,
                                       const char *other, const char *advice, ckvc_err *err) {
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

/* Reads the settings from the mapped file, and finds the lines behind them. Both stay NULL when the
 * file's writer was killed within the settings. */
static ckvc_status read_map(durable_output *o, ckvc_err *err) {
    const char *text = (const char *)o->map.data, *end = memchr(text, '\n', o->map.size);
    if (!end) { return CKVC_OK; }
    o->lines = end + 1;
    o->head = (uint64_t)(o->lines - text);
    o->n_lines = o->map.size - o->head;
    return ckvc_json_parse(text, o->head - 1, o->path, &o->settings, err);
}

/* Counts the prompts whose lines are all there, and returns the bytes of these lines. */
static size_t count_done(durable_output *o) {
    size_t n_lines = 0, end = 0;
    for (ckvc_lines at = ckvc_lines_of(o->lines, o->n_lines); ckvc_next_line(&at) && at.ended;) {
        if (++n_lines % o->per_prompt == 0) { end = (size_t)(at.next - o->lines); }
    }
    o->n_done = n_lines / o->per_prompt;
    return end;
}

ckvc_status durable_output_open(durable_output *o, json_t *settings, ckvc_err *err) {
    ckvc_err why = {0};
    bool busy;
    o->path = path_of(o->out, o->part);
    o->lock = -1;
    json_object_set_new(settings, "prompts", json_sprintf("%zu", o->n_prompts));
    json_object_set_new(settings, "lines", json_sprintf("%zu", o->per_prompt));
    if (o->part.count) {
        json_object_set_new(settings, "shard", json_sprintf("%u/%u", o->part.index, o->part.count));
    }
    CKVC_TRY(durable_lock(o->path, LOCK_EX, &o->lock, &busy, err));
    CKVC_FAIL_IF(busy, err, CKVC_E_BUSY,
                 "%s: another process is writing this score; wait for it or stop it", o->path);
    CKVC_TRY(ckvc_map_open(o->path, &o->map, err));
    const ckvc_status st = read_map(o, &why);
    const bool begun = o->lines && memchr(o->lines, '\n', o->n_lines);
    CKVC_FAIL_IF(begun && !o->resume && !o->force, err, CKVC_E_CREATE,
                 "%s: a score was stopped here; go on with --resume, or begin anew with --force",
                 o->path);
    if (!begun || !o->resume) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer head = {0};
        ckvc_json_append(&head, settings);
        ckvc_buffer_u8(&head, '\n');
        const bool ours =
            o->lines ? st == CKVC_OK && json_object_get(o->settings, "lines")
                     : o->map.size < head.size && memcmp(o->map.data, head.data, o->map.size) == 0;
        CKVC_FAIL_IF(!ours && !o->force, err, CKVC_E_CREATE,
                     "%s: is no checkpoint of this score; move it elsewhere, or begin anew with "
                     "--force",
                     o->path);
        ckvc_map_close(&o->map);
        o->n_lines = 0;
        o->head = head.size;
        return durable_append(o->path, &o->size, head.data, head.size, err);
    }
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why.text);
    CKVC_TRY(check_same_settings(o->path, settings, o->settings, "this command has",
                                 "give the same", err));
    o->n_lines = count_done(o);
    o->size = o->head + o->n_lines;
    return CKVC_OK;
}

ckvc_status durable_output_keep(void *ctx, const void *lines, size_t size, ckvc_err *err) {
    durable_output *o = ctx;
    ckvc_map_close(&o->map);
    o->n_done++;
    CKVC_TRY(durable_append(o->path, &o->size, lines, size, err));
    ckvc_progress_disk(o->path, o->size);
    return CKVC_OK;
}

static ckvc_status remove_it(const durable_output *o, ckvc_err *err) {
    CKVC_FAIL_IF(o->path && unlink(o->path) != 0, err, CKVC_E_IO,
                 "%s: cannot remove it: %s; %s, which it was for, has all that was kept here",
                 o->path, strerror(errno), o->out);
    return CKVC_OK;
}

ckvc_status durable_output_check(const char *out, bool resume, bool force, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = path_of(out, RUN_WHOLE);
    const bool ended = resume && ckvc_file_exists(out) && ckvc_file_exists(path);
    return ended ? CKVC_OK : ckvc_publish_check(out, force, err);
}

/* Maps the lines that were appended, without a last one that was cut off when its writer was
 * killed. */
static ckvc_status map_lines(durable_output *o, ckvc_err *err) {
    ckvc_map_close(&o->map);
    CKVC_TRY(ckvc_map_open(o->path, &o->map, err));
    CKVC_FAIL_IF(
        o->map.size < o->size, err, CKVC_E_IO,
        "%s: is shorter than the %llu bytes written to it; has another program touched it?",
        o->path, (unsigned long long)o->size);
    o->lines = (const char *)o->map.data + o->head;
    o->n_lines = o->size - o->head;
    return CKVC_OK;
}

ckvc_status durable_output_end(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed, ckvc_err *err) {
    const bool for_good = st == CKVC_E_STOPPED && o->n_done == 0;
    if (st != CKVC_OK && o->n_done == 0 && remove_it(o, NULL) != CKVC_OK) {
        ckvc_warn("%s holds nothing and could not be removed", o->path);
    }
    CKVC_FAIL_IF(for_good, err, CKVC_E_INTERRUPTED, "%.*s; %s", (int)strcspn(why->text, ";"),
                 why->text, o->out ? "nothing was written" : printed);
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why->text);
    if (o->path) {
        CKVC_TRY(map_lines(o, err));
    } else {
        o->lines = (const char *)lines->data;
        o->n_lines = lines->size;
    }
    if (!o->out || o->part.count) { return CKVC_OK; /* the checkpoint is the part */ }
    /* When an earlier command was killed as it ended, the file is there already with these
     * lines. */
    const bool same = o->resume && ckvc_file_holds(o->out, o->lines, o->n_lines);
    CKVC_TRY(ckvc_publish_bytes(o->out, o->lines, o->n_lines, o->force || same, err));
    return remove_it(o, err);
}

void durable_output_fini(durable_output *o) {
    if (o->path) { ckvc_close_at(&o->lock); }
    ckvc_map_close(&o->map);
    json_decref(o->settings);
    free(o->path);
}

/* ---- parts ---- */
typedef struct output_parts {
    durable_output *items;
    size_t n, capacity;
} output_parts;

static void parts_fini(output_parts *all) {
    for (size_t i = 0; i < all->n; i++) { durable_output_fini(&all->items[i]); }
    free(all->items);
}

static void add_part(output_parts *all, const char *out, run_part part) {
    CKVC_GROW(all->items, all->capacity, all->n + 1);
    all->items[all->n++] =
        (durable_output){.part = part, .out = out, .path = path_of(out, part), .lock = -1};
}

static ckvc_status take_parts(output_parts *all, const char *out, ckvc_err *err) {
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(out);
    CKVC_AUTO_FREE char *name = ckvc_path_name(out);
    CKVC_AUTO_FREE char *stem = ckvc_format("%s.part", name);
    CKVC_AUTO_FREE run_part *list = NULL;
    size_t n = 0;
    if (!ckvc_is_dir(folder)) { return CKVC_OK; }
    CKVC_TRY(run_list_parts(folder, stem, "", &list, &n, err));
    for (size_t i = 0; i < n; i++) { add_part(all, out, list[i]); }
    return CKVC_OK;
}

static size_t count_in(const json_t *settings, const char *key) {
    const char *text = json_string_value(json_object_get(settings, key));
    return text ? strtoul(text, NULL, 10) : 0;
}

/* Reads a part. *wanted is how many prompts it should have; n_done becomes how many it has, and
 * *end the bytes of their lines. */
static ckvc_status read_part(durable_output *p, size_t *wanted, size_t *end, ckvc_err *err) {
    CKVC_TRY(ckvc_map_open(p->path, &p->map, err));
    CKVC_TRY(read_map(p, err));
    if (!p->lines) { return CKVC_OK; }
    p->n_prompts = count_in(p->settings, "prompts");
    p->per_prompt = count_in(p->settings, "lines");
    CKVC_FAIL_IF(p->per_prompt == 0, err, CKVC_E_DATA, "%s: not a checkpoint or part of a score",
                 p->path);
    *wanted = run_part_size(p->part, p->n_prompts);
    *end = count_done(p);
    return CKVC_OK;
}

/* Reads a part that must have the lines of all its prompts. */
static ckvc_status read_whole_part(durable_output *p, ckvc_err *err) {
    size_t wanted = 0, end = 0;
    CKVC_TRY(read_part(p, &wanted, &end, err));
    CKVC_FAIL_IF(!p->lines, err, CKVC_E_DATA, "%s: holds no settings; begin it anew", p->path);
    CKVC_FAIL_IF(p->n_done != wanted || end < p->n_lines, err, CKVC_E_DATA,
                 "%s: %zu of %zu prompts are done; finish it with --shard %u/%u --resume", p->path,
                 p->n_done, wanted, p->part.index, p->part.count);
    return CKVC_OK;
}

/* Checks that all parts are of one number and of the same settings, and that each is there once. */
static ckvc_status check_parts(output_parts *all, ckvc_err *err) {
    durable_output *first = all->items;
    qsort(first, all->n, sizeof *first, run_by_part);
    for (size_t i = 0; i < all->n; i++) {
        durable_output *p = &all->items[i];
        CKVC_FAIL_IF(p->part.count != first->part.count, err, CKVC_E_MISMATCH,
                     "%s: is one of %u parts, %s one of %u: all parts of a score must have one "
                     "number of parts",
                     p->path, p->part.count, first->path, first->part.count);
        CKVC_FAIL_IF(i && p->part.index == p[-1].part.index, err, CKVC_E_DATA,
                     "part %u/%u is there twice, %s and %s; leave one out", p->part.index,
                     p->part.count, p[-1].path, p->path);
        CKVC_TRY(read_whole_part(p, err));
        json_object_del(p->settings, "shard");
        CKVC_TRY(check_same_settings(p->path, first->settings, p->settings, "part 0",
                                     "leave it out", err));
    }
    return CKVC_OK;
}

/* Takes the lines of the next prompt and returns their bytes, 0 when there are no more. */
static size_t take_prompt(durable_output *p) {
    const char *from = p->lines;
    ckvc_lines at = ckvc_lines_of(p->lines, p->n_lines);
    for (size_t i = 0; i < p->per_prompt && ckvc_next_line(&at); i++) {}
    p->lines = at.next;
    p->n_lines = (size_t)(at.end - at.next);
    return (size_t)(p->lines - from);
}

/* Joins the lines prompt by prompt over the parts, in the order in which durable_output_keep of a
 * whole output would have had them. Where a part is gone, its lines come from `there`, the file of
 * an earlier merge that was killed while it removed the parts. */
static ckvc_status join_lines(output_parts *all, durable_output *there, ckvc_buffer *lines,
                              ckvc_err *err) {
    const durable_output *first = all->items;
    there->per_prompt = first->per_prompt;
    for (size_t prompt = 0; prompt < first->n_prompts; prompt++) {
        const durable_output key = {
            .part = {.index = (unsigned)(prompt % first->part.count), .count = first->part.count}};
        durable_output *p = bsearch(&key, all->items, all->n, sizeof key, run_by_part);
        const size_t of_there = take_prompt(there), size = p ? take_prompt(p) : of_there;
        CKVC_FAIL_IF(size == 0, err, CKVC_E_DATA,
                     "%s: part %u/%u is missing; make it with --shard %u/%u, or name its --out",
                     first->out, key.part.index, key.part.count, key.part.index, key.part.count);
        ckvc_buffer_append(lines, (p ? p : there)->lines - size, size);
    }
    return CKVC_OK;
}

ckvc_status durable_output_merge(const char *out, const char *const *outs, size_t n,
                                 size_t *n_parts, ckvc_err *err) {
    CKVC_AUTO(parts_fini) output_parts all = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    CKVC_AUTO(durable_output_fini) durable_output there = {0};
    *n_parts = 0;
    CKVC_TRY(take_parts(&all, out, err));
    for (size_t i = 0; i < n; i++) { CKVC_TRY(take_parts(&all, outs[i], err)); }
    if (all.n == 0) { return CKVC_OK; }
    CKVC_TRY(check_parts(&all, err));
    if (ckvc_file_exists(out)) {
        CKVC_TRY(ckvc_map_open(out, &there.map, err));
        there.lines = (const char *)there.map.data;
        there.n_lines = there.map.size;
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

/* Describes a part like a run's part with one pass. The rate is that of the time from the creation
 * of the file, where the file system knows it, to its last line. */
static ckvc_status describe_part(durable_output *p, json_t **out, ckvc_err *err) {
    struct statx info = {0};
    size_t wanted = 0, end = 0;
    json_auto_t *passes = json_array(), *skipped = json_array();
    CKVC_TRY(read_part(p, &wanted, &end, err));
    const bool known = statx(AT_FDCWD, p->path, 0, STATX_BTIME | STATX_MTIME, &info) == 0,
               born = known && (info.stx_mask & STATX_BTIME) != 0;
    const double written = seconds_of(info.stx_mtime),
                 took = born ? written - seconds_of(info.stx_btime) : 0;
    if (p->lines) {
        const char *verb = json_object_get(p->settings, "items") ? "eval" : "score";
        json_t *pass = json_pack("{s:s, s:I, s:I, s:i}", "pass", verb, "prompts",
                                 (json_int_t)wanted, "done", (json_int_t)p->n_done, "skipped", 0);
        run_status_of_pass(pass, p->n_done >= wanted,
                           p->n_done == 0 || took <= 0 ? NAN : (double)p->n_done / took,
                           known ? written : NAN);
        json_array_append_new(passes, pass);
    }
    *out = run_status_of_part(p->part, passes, skipped, p->lines != NULL);
    return CKVC_OK;
}

ckvc_status durable_output_status(const char *out, const char *verb, json_t **status,
                                  ckvc_err *err) {
    CKVC_AUTO(parts_fini) output_parts all = {0};
    CKVC_AUTO_FREE char *checkpoint = path_of(out, RUN_WHOLE);
    json_auto_t *parts = json_array();
    if (ckvc_file_exists(checkpoint)) {
        add_part(&all, out, RUN_WHOLE);
    } else {
        CKVC_TRY(take_parts(&all, out, err));
    }
    CKVC_FAIL_IF(all.n == 0 && !ckvc_file_exists(out), err, CKVC_E_NOINPUT,
                 "%s: no such file or folder; name what --out named", out);
    CKVC_FAIL_IF(all.n == 0 && !verb, err, CKVC_E_DATA,
                 "%s: is no run, score or eval, and no part of one; name what --out named", out);
    CKVC_AUTO_FREE run_part *there = ckvc_alloc(all.n, sizeof *there);
    for (size_t i = 0; i < all.n; i++) {
        json_t *o = NULL;
        there[i] = all.items[i].part;
        CKVC_TRY(describe_part(&all.items[i], &o, err));
        json_array_append_new(parts, o);
    }
    *status = json_pack("{s:s, s:s*}", "run", out, "verb", all.n ? NULL : verb);
    run_status_of_parts(*status, parts, there, all.n, all.n == 0 || there[0].count == 0);
    return CKVC_OK;
}
