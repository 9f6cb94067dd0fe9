/* What a run's folder holds now, for `ckvc status`: see run_dir.h. */
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "formats/run/prompt_log.h"
#include "formats/run/run_internal.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

/* Prompts that became durable up to a time, in seconds. */
typedef struct mark {
    double s; /* first: they are ordered by it */
    uint32_t prompts;
} mark;

/* What stands of a part of a pass. */
typedef struct progress {
    uint32_t prompts, done, skipped; /* this part's; of them published, logged, skipped; skipped */
    uint32_t shards;                 /* this part's */
    mark *marks;                     /* [n_marks] by file, then by time */
    size_t n_marks;
} progress;

static void add_mark(progress *o, const char *path, uint32_t prompts) {
    struct stat info;
    if (prompts > 0 && stat(path, &info) == 0) {
        o->marks[o->n_marks++] =
            (mark){(double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec, prompts};
    }
}

static ckvc_status count_pass(const run_dir *r, const run_pass_state *p, progress *o,
                              ckvc_err *err) {
    const uint32_t step = r->part.count ? r->part.count : 1;
    size_t published = 0;
    *o = (progress){.shards = run_own_shards(r, p), .skipped = (uint32_t)p->n_skipped};
    o->marks = ckvc_calloc((size_t)o->shards + 1, sizeof *o->marks);
    for (uint32_t k = r->part.index, i = 0; i < o->shards; i++, k += step) {
        uint32_t first, end, done = 0;
        run_shard_range(p, k, &first, &end);
        o->prompts += end - first;
        const bool is_published = published < p->pub.n_shards && p->shards[published].shard == k;
        CKVC_AUTO_FREE char *path =
            run_shard_path(r, p->pub.name, k, is_published ? ".h5" : ".log");
        if (is_published) {
            published++;
            o->done += end - first;
            add_mark(o, path, end - first);
            continue;
        }
        for (size_t s = 0; s < p->n_skipped; s++) {
            done += p->skipped[s] >= first && p->skipped[s] < end;
        }
        CKVC_AUTO(prompt_log_free) prompt_log log = {0};
        CKVC_TRY(prompt_log_read(path, &log, err));
        o->done += done + (uint32_t)log.n_records;
        add_mark(o, path, (uint32_t)log.n_records);
    }
    if (o->n_marks) { qsort(o->marks, o->n_marks, sizeof *o->marks, ckvc_order_double); }
    return CKVC_OK;
}

/* Prompts a second over the last files that were written; NaN: fewer than two. */
static double rate_of(const progress *o) {
    enum { LAST = 9 };
    const size_t first = o->n_marks > LAST ? o->n_marks - LAST : 0;
    double prompts = 0;
    if (o->n_marks < 2) { return NAN; }
    for (size_t i = first + 1; i < o->n_marks; i++) { prompts += o->marks[i].prompts; }
    const double seconds = o->marks[o->n_marks - 1].s - o->marks[first].s;
    return seconds > 0 ? prompts / seconds : NAN;
}

static json_t *describe_progress(const run_pass_state *p, const progress *o, double now_s) {
    const bool complete = p->pub.stable.reached || p->pub.n_shards == o->shards;
    const double rate = complete ? NAN : rate_of(o);
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "pass", p->pub.name, "prompts",
        (json_int_t)o->prompts, "done", (json_int_t)o->done, "skipped", (json_int_t)o->skipped,
        "shards", (json_int_t)o->shards, "shards_published", (json_int_t)p->pub.n_shards,
        "complete", complete, "prompts_per_second", ckvc_json_real(rate), "seconds_left",
        ckvc_json_real((o->prompts - o->done) / rate), "seconds_since_write",
        ckvc_json_real(o->n_marks ? fmax(0, now_s - o->marks[o->n_marks - 1].s) : NAN));
}

/* One journal's passes, and what they skipped. */
static ckvc_status describe_part(const char *path, run_part part, json_t **out, ckvc_err *err) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* files' times are the wall clock's */
    CKVC_AUTO(run_close_at) run_dir *r = run_new(path, part);
    CKVC_TRY(run_load(r, err));
    json_auto_t *passes = json_array();
    /* compile has fits and scores between its passes, and ends with a table */
    const char *verb = json_string_value(json_object_get(r->plan, "verb"));
    bool complete =
        r->n_passes > 0 && (!verb || strcmp(verb, "compile") != 0 || run_has_file(r, "table.ckvt"));
    for (size_t i = 0; i < r->n_passes; i++) {
        progress o;
        const ckvc_status st = count_pass(r, r->passes[i], &o, err);
        if (st == CKVC_OK) {
            json_t *pass = describe_progress(r->passes[i], &o,
                                             (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
            complete = complete && json_is_true(json_object_get(pass, "complete"));
            json_array_append_new(passes, pass);
        }
        free(o.marks);
        CKVC_TRY(st);
    }
    json_t *name = part.count ? json_sprintf("%u/%u", part.index, part.count) : json_null();
    *out = json_pack("{s:o, s:O, s:O, s:b}", "part", name, "passes", passes, "skipped", r->skipped,
                     "complete", complete);
    return CKVC_OK;
}

ckvc_status run_status(const char *path, json_t **out, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *whole = run_new(path, RUN_WHOLE);
    CKVC_AUTO_FREE run_part *list = NULL;
    json_auto_t *parts = json_array(), *missing = json_array();
    size_t n = 0;
    CKVC_TRY(run_load_plan(whole, err));
    if (!ckvc_file_exists(whole->journal_path)) {
        CKVC_TRY(run_list_parts(whole->path, "journal", ".jsonl", &list, &n, err));
    }
    bool complete = true;
    for (size_t i = 0; i < n || i == 0; i++) {
        json_t *part;
        CKVC_TRY(describe_part(whole->path, n ? list[i] : RUN_WHOLE, &part, err));
        complete = complete && json_is_true(json_object_get(part, "complete"));
        json_array_append_new(parts, part);
    }
    for (uint32_t i = 0, at = 0; n && i < list[0].count; i++) {
        if (at < n && list[at].index == i) {
            at++;
        } else {
            json_array_append_new(missing, json_sprintf("%u/%u", i, list[0].count));
        }
    }
    char hash[CKVC_SHA256_HEX];
    run_hash_plan(whole->plan, hash);
    *out = json_pack("{s:s, s:s, s:O?, s:O?, s:O, s:O, s:b, s:b}", "run", whole->path, "plan_hash",
                     hash, "verb", json_object_get(whole->plan, "verb"), "model_name",
                     json_object_get(whole->plan, "model_name"), "parts", parts, "missing", missing,
                     "complete", complete && json_array_size(missing) == 0, "merged", n == 0);
    return CKVC_OK;
}
