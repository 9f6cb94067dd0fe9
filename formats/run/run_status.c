/* What a run's folder holds now, for `ckvc status` and `verify`. See run_dir.h. */
#include "formats/run/run_status.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <string.h>

#include "formats/run/durable.h"
#include "formats/run/run_internal.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/memory.h"

/* How many prompts became durable with one file, and the time of its last write in seconds. */
typedef struct mark {
    double s; /* first member, because marks are ordered by it */
    uint32_t prompts;
} mark;

/* How far a part of a pass is. */
typedef struct progress {
    /* this part's prompts; those published, logged or skipped; those skipped */
    uint32_t prompts, done, skipped;
    uint32_t shards; /* how many shards are this part's */
    mark *marks;     /* [n_marks] collected by file, then sorted by time */
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
        uint32_t first, end;
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
        for (uint32_t n = first; p->is_skipped && n < end; n++) { o->done += p->is_skipped[n]; }
        CKVC_AUTO(prompt_log_free) prompt_log log = {0};
        CKVC_TRY(prompt_log_read(path, &log, err));
        o->done += (uint32_t)log.n_records;
        add_mark(o, path, (uint32_t)log.n_records);
    }
    if (o->n_marks) { qsort(o->marks, o->n_marks, sizeof *o->marks, ckvc_order_double); }
    return CKVC_OK;
}

/* Returns the prompts a second over the last files that were written; NaN when there are fewer than
 * two. */
static double rate_of(const progress *o) {
    enum { LAST = 9 };
    const size_t first = o->n_marks > LAST ? o->n_marks - LAST : 0;
    double prompts = 0;
    if (o->n_marks < 2) { return NAN; }
    for (size_t i = first + 1; i < o->n_marks; i++) { prompts += o->marks[i].prompts; }
    const double seconds = o->marks[o->n_marks - 1].s - o->marks[first].s;
    return seconds > 0 ? prompts / seconds : NAN;
}

void run_status_of_pass(json_t *pass, bool complete, double rate, double written_s) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* the times of files are those of the wall clock */
    const double ago = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - written_s,
                 left = json_number_value(json_object_get(pass, "prompts")) -
                        json_number_value(json_object_get(pass, "done"));
    rate = complete ? NAN : rate;
    json_object_set_new(pass, "complete", json_boolean(complete));
    json_object_set_new(pass, "prompts_per_second", ckvc_json_real(rate));
    json_object_set_new(pass, "seconds_left", ckvc_json_real(left / rate));
    json_object_set_new(pass, "seconds_since_write", ckvc_json_real(ago < 0 ? 0 : ago));
}

static json_t *describe_progress(const run_pass_state *p, const progress *o) {
    json_t *pass = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "pass", p->pub.name, "prompts",
                             (json_int_t)o->prompts, "done", (json_int_t)o->done, "skipped",
                             (json_int_t)o->skipped, "shards", (json_int_t)o->shards,
                             "shards_published", (json_int_t)p->pub.n_shards);
    run_status_of_pass(pass, p->pub.stable.reached || p->pub.n_shards == o->shards, rate_of(o),
                       o->n_marks ? o->marks[o->n_marks - 1].s : NAN);
    return pass;
}

/* Tells whether all entries of a list are complete. */
static bool all_complete(const json_t *list) {
    bool complete = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        complete = complete && json_is_true(json_object_get(json_array_get(list, i), "complete"));
    }
    return complete;
}

json_t *run_status_of_part(run_part part, const json_t *passes, const json_t *skipped, bool ended) {
    json_t *name = part.count ? json_sprintf("%u/%u", part.index, part.count) : json_null();
    return json_pack("{s:o, s:O, s:O, s:b}", "part", name, "passes", passes, "skipped", skipped,
                     "complete", ended && all_complete(passes));
}

/* Lists the names of the run's checkpoints, such as "tables/pass-01.ckvt", in the order in which
 * they were written. A new reference. */
static json_t *checkpoint_names(const run_dir *r) {
    json_t *names = json_array();
    for (size_t i = 0; i < json_array_size(r->notes); i++) {
        const json_t *line = json_array_get(r->notes, i);
        const char *kind = json_string_value(json_object_get(line, "note"));
        if (kind && strcmp(kind, "file") == 0) {
            json_array_append(names, json_object_get(line, "name"));
        }
    }
    return names;
}

/* Describes the passes of one journal, what they skipped, and the checkpoints between them. */
static ckvc_status describe_part(const char *path, run_part part, json_t **out, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *r = run_new(path, part);
    CKVC_TRY(run_load(r, err));
    json_auto_t *passes = json_array();
    /* compile has fits and scores between its passes, so that it has ended only when it has its
     * table */
    const char *verb = json_string_value(json_object_get(r->plan, "verb"));
    const bool ended =
        r->n_passes > 0 && (!verb || strcmp(verb, "compile") != 0 || run_has_file(r, "table.ckvt"));
    for (size_t i = 0; i < r->n_passes; i++) {
        progress o;
        const ckvc_status st = count_pass(r, r->passes[i], &o, err);
        if (st == CKVC_OK) { json_array_append_new(passes, describe_progress(r->passes[i], &o)); }
        free(o.marks);
        CKVC_TRY(st);
    }
    *out = run_status_of_part(part, passes, r->skipped, ended);
    json_object_set_new(*out, "checkpoints", checkpoint_names(r));
    return CKVC_OK;
}

/* Lists as "I/N" each part of the last one's number that is not in the list [n]. */
static json_t *missing_parts(const run_part *list, size_t n) {
    json_t *missing = json_array();
    for (uint32_t i = 0, at = 0; n && i < list[n - 1].count; i++) {
        if (at < n && list[at].index == i) {
            at++;
        } else {
            json_array_append_new(missing, json_sprintf("%u/%u", i, list[n - 1].count));
        }
    }
    return missing;
}

void run_status_of_parts(json_t *status, json_t *parts, const run_part *list, size_t n,
                         bool merged) {
    json_t *missing = missing_parts(list, n);
    const bool complete = json_array_size(missing) == 0 && all_complete(parts);
    json_object_set(status, "parts", parts);
    json_object_set_new(status, "missing", missing);
    json_object_set_new(status, "complete", json_boolean(complete));
    json_object_set_new(status, "merged", json_boolean(merged));
}

ckvc_status run_status(const char *path, json_t **out, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *whole = run_new(path, RUN_WHOLE);
    CKVC_AUTO_FREE run_part *list = NULL;
    json_auto_t *parts = json_array();
    size_t n = 0;
    CKVC_TRY(run_load_plan(whole, err));
    if (!ckvc_file_exists(whole->journal_path)) {
        CKVC_TRY(run_list_parts(whole->path, "journal", ".jsonl", &list, &n, err));
    }
    for (size_t i = 0; i < n || i == 0; i++) {
        json_t *part;
        CKVC_TRY(describe_part(whole->path, n ? list[i] : RUN_WHOLE, &part, err));
        json_array_append_new(parts, part);
    }
    char hash[CKVC_SHA256_HEX];
    run_hash_plan(whole->plan, hash);
    *out = json_pack("{s:s, s:s, s:O?, s:O?}", "run", whole->path, "plan_hash", hash, "verb",
                     json_object_get(whole->plan, "verb"), "model_name",
                     json_object_get(whole->plan, "model_name"));
    run_status_of_parts(*out, parts, list, n, n == 0);
    return CKVC_OK;
}

/* Checks that every prompt of a shard's range has rows or was skipped. */
static ckvc_status check_range(const run_dir *r, const run_pass_state *p, const run_shard *entry,
                               ckvc_err *err) {
    uint32_t first, end, skipped = 0;
    run_shard_range(p, entry->shard, &first, &end);
    for (size_t i = 0; i < p->n_skipped; i++) {
        skipped += p->skipped[i] >= first && p->skipped[i] < end;
    }
    CKVC_FAIL_IF(entry->prompts + skipped != end - first, err, CKVC_E_DATA,
                 "%s: shard %u of %s has %u prompts and %u are skipped, its range has %u",
                 r->journal_path, entry->shard, p->pub.name, entry->prompts, skipped, end - first);
    return CKVC_OK;
}

ckvc_status run_verify(const char *path, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *r = NULL;
    CKVC_TRY(run_open(path, &r, err));
    for (size_t i = 0; i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        for (size_t k = 0; k < p->pub.n_shards; k++) {
            CKVC_AUTO(shard_free_at) shard *s = NULL;
            CKVC_TRY(run_read_shard(r, &p->pub, k, &s, err));
            CKVC_TRY(check_range(r, p, &p->shards[k], err));
        }
    }
    return run_verify_files(r, err);
}

static json_t *describe_pass(const run_pass_state *p) {
    uint64_t rows = 0, bytes = 0;
    for (size_t k = 0; k < p->pub.n_shards; k++) {
        rows += p->shards[k].rows;
        bytes += p->shards[k].bytes;
    }
    json_t *pass = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name", p->pub.name, "kind",
        p->pub.kind, "backend", p->backend, "prompts", (json_int_t)p->pub.n_prompts,
        "prompts_published", (json_int_t)p->pub.n_prompts_done, "prompts_skipped",
        (json_int_t)p->n_skipped, "shards", (json_int_t)run_shard_count(p), "shards_published",
        (json_int_t)p->pub.n_shards, "records", (json_int_t)rows, "bytes", (json_int_t)bytes,
        "complete", p->pub.complete);
    if (p->pub.stable.known) {
        json_object_set_new(pass, "until_stable", json_real(p->pub.stable.target));
        json_object_set_new(pass, "reliability", ckvc_json_real(p->pub.stable.reliability));
    }
    return pass;
}

json_t *run_describe(const run_dir *r) {
    json_t *passes = json_array();
    for (size_t i = 0; i < r->n_passes; i++) {
        json_array_append_new(passes, describe_pass(r->passes[i]));
    }
    json_t *out = json_pack("{s:s, s:s, s:O, s:o, s:O}", "format", "ckvc-run", "plan_hash",
                            r->plan_hash, "plan", r->plan, "passes", passes, "skipped", r->skipped);
    if (json_array_size(r->notes)) { json_object_set(out, "notes", r->notes); }
    return out;
}

enum { MAX_BINS = 1024, ROW_NUMBERS = 5 };
#define MAX_BYTES ((size_t)256 << 20)

void coverage_fini(coverage *c) {
    for (size_t i = 0; i < c->n_sources; i++) { free(c->sources[i]); }
    CKVC_FREE(c->sources, c->edges_entropy, c->edges_ppl, c->from, c->rows);
    *c = (coverage){0};
}

json_t *coverage_json(const coverage *c) {
    json_t *sources = ckvc_json_texts((const char *const *)c->sources, c->n_sources),
           *rows = json_array();
    uint64_t prompts = 0, drawn = 0;
    for (size_t i = 0; i < c->n_rows; i++) {
        const coverage_row *r = &c->rows[i];
        const uint32_t numbers[ROW_NUMBERS] = {r->entropy, r->ppl, r->source, r->prompts, r->drawn};
        json_array_append_new(rows, ckvc_json_u32s(numbers, ROW_NUMBERS));
        prompts += r->prompts;
        drawn += r->drawn;
    }
    return json_pack("{s:[i,i], s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:s, s:o, s:I}", "bins",
                     (int)c->n_entropy_bins, (int)c->n_ppl_bins, "cells", rows, "drawn",
                     c->logged ? json_integer((json_int_t)drawn) : json_null(), "edges_entropy",
                     ckvc_json_reals(c->edges_entropy, c->n_entropy_bins - 1), "edges_perplexity",
                     ckvc_json_reals(c->edges_ppl, c->n_ppl_bins - 1), "from", c->from, "min_cell",
                     (json_int_t)c->min_cell, "prompts", (json_int_t)prompts, "sample",
                     (json_int_t)c->sample, "schema", "ckvc-coverage-1", "sources", sources,
                     "unscanned", (json_int_t)c->n_unscanned);
}

/* ---- reading ---- */

typedef struct reader {
    const char *path;
    const json_t *root;
    ckvc_err *err;
} reader;

#define MUST(r, holds, key, wanted)                                                                \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA,                                                  \
                 "%s: member %s must be %s; the run's command with --resume writes it anew",       \
                 (r)->path, key, wanted)

static ckvc_status read_number(const reader *r, const char *key, uint64_t most, uint64_t *out) {
    MUST(r, ckvc_json_get_count(r->root, key, most, out), key, "a number that is not negative");
    return CKVC_OK;
}

static ckvc_status read_edges(const reader *r, const char *key, uint32_t n, double **out) {
    static const char *const wanted = "the inner edges of the bins, ascending";
    const json_t *list = json_object_get(r->root, key);
    MUST(r, json_array_size(list) == n, key, wanted);
    *out = ckvc_calloc(n + 1, sizeof **out);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        (*out)[i] = json_number_value(v);
        MUST(r, ckvc_json_is_finite(v) && (!i || (*out)[i] >= (*out)[i - 1]), key, wanted);
    }
    return CKVC_OK;
}

static ckvc_status read_sources(const reader *r, coverage *c) {
    const json_t *list = json_object_get(r->root, "sources");
    const size_t n = json_array_size(list);
    MUST(r, json_is_array(list), "sources", "a list of names");
    c->sources = ckvc_calloc(n + 1, sizeof *c->sources);
    for (; c->n_sources < n; c->n_sources++) {
        const char *name = json_string_value(json_array_get(list, c->n_sources));
        MUST(r, name, "sources", "a list of names");
        c->sources[c->n_sources] = ckvc_strdup(name);
    }
    return CKVC_OK;
}

static bool ascends(const coverage_row *a, const coverage_row *b) {
    return a->entropy != b->entropy ? a->entropy < b->entropy
           : a->ppl != b->ppl       ? a->ppl < b->ppl
                                    : a->source < b->source;
}

static ckvc_status read_rows(const reader *r, coverage *c) {
    static const char *const wanted =
        "rows [entropy bin, perplexity bin, source, prompts, drawn], ascending";
    const json_t *list = json_object_get(r->root, "cells");
    const size_t n = json_array_size(list);
    const uint64_t limits[ROW_NUMBERS] = {c->n_entropy_bins, c->n_ppl_bins, c->n_sources,
                                          (uint64_t)UINT32_MAX + 1, (uint64_t)UINT32_MAX + 1};
    MUST(r, json_is_array(list), "cells", wanted);
    c->rows = ckvc_calloc(n + 1, sizeof *c->rows);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        uint32_t v[ROW_NUMBERS];
        MUST(r, json_array_size(row) == ROW_NUMBERS, "cells", wanted);
        for (size_t k = 0; k < ROW_NUMBERS; k++) {
            const json_t *number = json_array_get(row, k);
            MUST(r, limits[k] && ckvc_json_is_count(number, limits[k] - 1), "cells", wanted);
            v[k] = (uint32_t)json_integer_value(number);
        }
        c->rows[i] = (coverage_row){v[0], v[1], v[2], v[3], v[4]};
        MUST(r, v[4] <= v[3] && (!i || ascends(&c->rows[i - 1], &c->rows[i])), "cells", wanted);
    }
    c->n_rows = n;
    return CKVC_OK;
}

static ckvc_status read_all(const reader *r, coverage *c) {
    const char *schema = json_string_value(json_object_get(r->root, "schema"));
    const char *from = json_string_value(json_object_get(r->root, "from"));
    const json_t *bins = json_object_get(r->root, "bins");
    uint32_t n_bins[2];
    uint64_t min_cell, unscanned, sample;
    MUST(r, schema && strcmp(schema, "ckvc-coverage-1") == 0, "schema", "\"ckvc-coverage-1\"");
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(bins, i);
        n_bins[i] = (uint32_t)json_integer_value(v);
        MUST(r, json_array_size(bins) == 2 && ckvc_json_is_count(v, MAX_BINS) && n_bins[i] > 0,
             "bins", "[entropy bins, perplexity bins]");
    }
    MUST(r, from, "from", "text");
    CKVC_TRY(read_number(r, "min_cell", UINT32_MAX, &min_cell));
    CKVC_TRY(read_number(r, "unscanned", UINT32_MAX, &unscanned));
    CKVC_TRY(read_number(r, "sample", INT64_MAX, &sample));
    *c = (coverage){.n_entropy_bins = n_bins[0],
                    .n_ppl_bins = n_bins[1],
                    .from = ckvc_strdup(from),
                    .min_cell = (uint32_t)min_cell,
                    .sample = (int64_t)sample,
                    .logged = json_is_integer(json_object_get(r->root, "drawn")),
                    .n_unscanned = (uint32_t)unscanned};
    CKVC_TRY(read_edges(r, "edges_entropy", n_bins[0] - 1, &c->edges_entropy));
    CKVC_TRY(read_edges(r, "edges_perplexity", n_bins[1] - 1, &c->edges_ppl));
    CKVC_TRY(read_sources(r, c));
    return read_rows(r, c);
}

ckvc_status coverage_read(const char *run, coverage *out, bool *there, ckvc_err *err) {
    *out = (coverage){0};
    CKVC_AUTO_FREE char *path = ckvc_path_join(run, COVERAGE_FILE);
    *there = ckvc_file_exists(path);
    if (!*there) { return CKVC_OK; }
    json_auto_t *root = NULL;
    CKVC_TRY(ckvc_json_read(path, MAX_BYTES, &root, err));
    const ckvc_status st = read_all(&(reader){path, root, err}, out);
    if (st != CKVC_OK) { coverage_fini(out); }
    return st;
}
