/* Inside the run directory: the struct that its sources share, and what each of them offers the
 * others. */
#pragma once

#include "formats/run/run_dir.h"

typedef struct run_shard {   /* one published shard: a journal line */
    uint32_t shard, prompts; /* its number; its prompt rows */
    uint64_t rows, bytes;    /* record rows; of the file */
    char sha256[CKVC_SHA256_HEX];
} run_shard;

typedef struct run_pass_state {
    run_pass pub;          /* first: run_pass_at hands out its address */
    uint32_t plan_prompts; /* of the plan; pub.n_prompts of them are the pass's */
    uint32_t shard_prompts;
    char backend[64];
    char header[CKVC_SHA256_HEX]; /* of the shard header that the pass was begun with */
    run_shard *shards;            /* ascending */
    size_t capacity;              /* number: pub.n_shards */
    uint32_t *skipped;            /* prompt numbers, in the journal's order */
    size_t n_skipped, cap_skipped;
    bool *is_skipped;    /* [plan_prompts]; NULL: none is */
    uint32_t last_shard; /* the highest that is published */
} run_pass_state;

/* An open pass. */
typedef struct run_writer {
    run_pass_state *pass;
    shard *rows;                    /* header of the pass; scratch for the rows of one shard */
    uint8_t *state;                 /* [plan_prompts] prompt_state */
    uint32_t *left;                 /* [n_shards] prompts still to do */
    uint64_t *log_size;             /* [n_shards] bytes of whole records in the log */
    uint32_t n_shards, n_published; /* of the pass; of them this part's */
} run_writer;

struct run_dir {
    char *path, *journal_path;
    run_part part;
    json_t *plan, *skipped, *notes;
    char plan_hash[CKVC_SHA256_HEX]; /* of the run */
    char pass_plan[CKVC_SHA256_HEX]; /* of the passes that are begun */
    int lock, part_lock;             /* -1: opened for reading; the whole run */
    uint64_t journal_size;
    run_pass_state **passes; /* in order of number and name */
    size_t n_passes, cap_passes;
    run_writer *writer;
};

#define RUN_MAX_PLAN_BYTES ((size_t)16 << 20)
#define RUN_MAX_SHARDS     ((uint32_t)1 << 20) /* of a pass: status looks at each */
#define RUN_MAX_FILE_BYTES ((uint64_t)2 << 30) /* of a shard or checkpoint */

uint32_t run_shard_count(const run_pass_state *p); /* shards of the whole pass */
/* Prompts [*first, *end) of shard k. */
void run_shard_range(const run_pass_state *p, uint32_t k, uint32_t *first, uint32_t *end);
/* RUN/PASS/shard-00000END; free() it. */
char *run_shard_path(const run_dir *r, const char *pass, uint32_t k, const char *end);
run_pass_state *run_find_pass(const run_dir *r, const char *name);
/* The whole file, which must have the size and SHA-256 that the journal says. *data is
 * NUL-terminated, the caller's to free. */
ckvc_status run_read_journaled(const char *path, uint64_t bytes, const char *sha256, char **data,
                               size_t *n, ckvc_err *err) CKVC_MUST_CHECK;

/* run_pass.c: the fields that differ from the run's plan, "bins: 3 there, 20 now"; NULL: none. The
 * caller's to free. */
char *run_plan_difference(const run_dir *r, const json_t *plan);

run_dir *run_new(const char *path, run_part part);
/* Takes the run's lock: of a part shared, and the part's own besides. */
ckvc_status run_lock(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
/* run.json, by whoever comes first. */
ckvc_status run_write_plan(const run_dir *r, const char *file, const json_t *plan,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* run.json and the journal; every published shard is there with its size. */
ckvc_status run_load(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status run_load_plan(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK; /* of it run.json alone */
/* *fresh: nothing is in the folder but what a create that was cut short leaves behind. */
ckvc_status run_folder_is_fresh(const char *path, bool *fresh, ckvc_err *err) CKVC_MUST_CHECK;

int run_by_part(const void *a, const void *b); /* of run_part, for qsort: by count, by index */
/* Is shard k the part's? */
static inline bool run_part_has(run_part part, uint32_t k) {
    return part.count == 0 || k % part.count == part.index;
}
/* Shards of a pass that are this part's. */
uint32_t run_own_shards(const run_dir *r, const run_pass_state *p);

/* "scan" -> 0, "pass-01-head" -> 1; kind points into name. False: no name of a pass. */
bool run_pass_name(const char *name, int *number, const char **kind);
/* The lines that begin a pass, publish its shard and skip its prompt. New references. */
json_t *run_begin_line(const run_dir *r, const run_pass_state *p);
json_t *run_shard_line(const run_pass_state *p, const run_shard *s);
json_t *run_skip_line(const char *pass, uint32_t prompt, const char *id, const char *reason);
/* A journal line into the struct; ctx: the run_dir. */
ckvc_status run_take_line(void *ctx, const json_t *line, uint32_t number,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Once lines were taken: the published shards in order, each there once. */
ckvc_status run_sort_shards(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
/* Appends to the journal, and takes the line into the struct as reading it would. */
ckvc_status run_journal(run_dir *r, json_t *line /* taken */, ckvc_err *err) CKVC_MUST_CHECK;

/* What `ckvc status` says (docs/cli.md). Of a pass of one part, which has members `prompts` and
 * `done`: what follows from its rate in prompts a second and from the time of its last write, in
 * seconds (NaN: unknown). */
void run_status_of_pass(json_t *pass, bool complete, double rate, double written_s);
/* Of one part, which is complete when it has `ended` and its passes are; a new reference. */
json_t *run_status_of_part(run_part part, const json_t *passes, const json_t *skipped, bool ended);
/* Of a whole, into the object `status`: its parts, which of the list's number are missing, and
 * whether all is done. The list [n] is as run_list_parts gives it. */
void run_status_of_parts(json_t *status, json_t *parts, const run_part *list, size_t n,
                         bool merged);

/* Checkpoints against their lines. */
ckvc_status run_verify_files(const run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;

ckvc_status run_remove_file(const char *path, ckvc_err *err) CKVC_MUST_CHECK; /* none is fine */
void run_writer_free(run_writer *w);
/* Of a journal's line with a "note": a key's text, NULL where it is none; whether it tells of a
 * file. */
const char *run_note_text(const json_t *line, const char *key);
bool run_note_is_of_file(const json_t *line);
bool run_name_is_inside(const char *name); /* below the run's folder, whatever a journal says */
