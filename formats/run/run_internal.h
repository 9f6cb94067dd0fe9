/* What the sources of the run directory share: its struct, and the functions that each source
 * offers to the others. Other folders must not include it. */
#pragma once

#include "formats/run/run_dir.h"

typedef struct run_shard {   /* one published shard, which is a line of the journal */
    uint32_t shard, prompts; /* its number; how many prompt rows it has */
    uint64_t rows, bytes;    /* how many record rows; the size of the file */
    char sha256[CKVC_SHA256_HEX];
} run_shard;

typedef struct run_pass_state {
    run_pass pub;          /* first member, because run_pass_at hands out its address */
    uint32_t plan_prompts; /* prompts of the plan, of which pub.n_prompts are the pass's */
    uint32_t shard_prompts;
    char backend[64];
    char header[CKVC_SHA256_HEX]; /* hash of the shard header that the pass was begun with */
    run_shard *shards;            /* pub.n_shards of them, ascending by number */
    size_t capacity;              /* how many fit */
    uint32_t *skipped;            /* prompt numbers, in the order of the journal */
    size_t n_skipped, cap_skipped;
    bool *is_skipped;    /* [plan_prompts]; NULL when none is skipped */
    uint32_t last_shard; /* the highest number that is published */
} run_pass_state;

/* A pass that is open for writing. */
typedef struct run_writer {
    run_pass_state *pass;
    /* has the header of the pass; scratch space for the rows of one shard */
    shard *rows;
    uint8_t *state;     /* [plan_prompts] each a prompt_state */
    uint32_t *left;     /* [n_shards] prompts still to do */
    uint64_t *log_size; /* [n_shards] bytes of whole records in the log */
    /* shards of the whole pass; those of this part that are published */
    uint32_t n_shards, n_published;
} run_writer;

struct run_dir {
    char *path, *journal_path;
    run_part part;
    json_t *plan, *skipped, *notes;
    char plan_hash[CKVC_SHA256_HEX]; /* the run's */
    char pass_plan[CKVC_SHA256_HEX]; /* the hash that a pass carries which is begun now */
    /* each -1 where there is none: a run open for reading has no lock, a whole run no part_lock */
    int lock, part_lock;
    uint64_t journal_size;
    run_pass_state **passes; /* in the order of number and name */
    size_t n_passes, cap_passes;
    run_writer *writer;
};

#define RUN_MAX_PLAN_BYTES ((size_t)16 << 20)
/* most shards of a pass, because status looks at each */
#define RUN_MAX_SHARDS     ((uint32_t)1 << 20)
#define RUN_MAX_FILE_BYTES ((uint64_t)2 << 30) /* the most of a shard or a checkpoint */

uint32_t run_shard_count(const run_pass_state *p); /* how many shards the whole pass has */
/* Gives the prompts [*first, *end) of shard k. */
void run_shard_range(const run_pass_state *p, uint32_t k, uint32_t *first, uint32_t *end);
/* Returns the name RUN/PASS/shard-00000END, which the caller frees. */
char *run_shard_path(const run_dir *r, const char *pass, uint32_t k, const char *end);
run_pass_state *run_find_pass(const run_dir *r, const char *name);
/* Reads a whole file, which must have the size and the SHA-256 that the journal says. *data ends in
 * a NUL and is the caller's to free. */
ckvc_status run_read_journaled(const char *path, uint64_t bytes, const char *sha256, char **data,
                               size_t *n, ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the fields in which `plan` differs from the run's plan, as in "bins: 3 there, 20 now", or
 * NULL when there is none. The caller frees it. */
char *run_plan_difference(const run_dir *r, const json_t *plan);

run_dir *run_new(const char *path, run_part part);
/* Takes the run's lock. A part takes the run's lock shared, and its own besides. */
ckvc_status run_lock(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the plan to `file`, the path of run.json. All parts of a run may do so at once, since
 * their plans are the same. A whole run refuses an existing file (CKVC_E_CREATE). */
ckvc_status run_write_plan(const run_dir *r, const char *file, const json_t *plan,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Reads run.json and the journal, and checks that every published shard is there with its size. */
ckvc_status run_load(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status run_load_plan(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK; /* reads run.json alone */
/* *fresh tells whether the folder has nothing but what an interrupted run_create leaves behind. */
ckvc_status run_folder_is_fresh(const char *path, bool *fresh, ckvc_err *err) CKVC_MUST_CHECK;

/* compares two run_part for qsort: by count, then by index */
int run_by_part(const void *a, const void *b);
/* Tells whether shard k is the part's. */
static inline bool run_part_has(run_part part, uint32_t k) {
    return part.count == 0 || k % part.count == part.index;
}
/* Returns how many shards of a pass are this part's. */
uint32_t run_own_shards(const run_dir *r, const run_pass_state *p);

/* Parses the name of a pass: "scan" gives 0, "pass-01-head" gives 1. *kind points into `name`.
 * Returns false when it is no name of a pass. */
bool run_pass_name(const char *name, int *number, const char **kind);
/* Make the lines that begin a pass, publish one of its shards and skip one of its prompts. New
 * references. */
json_t *run_begin_line(const run_dir *r, const run_pass_state *p);
json_t *run_shard_line(const run_pass_state *p, const run_shard *s);
json_t *run_skip_line(const char *pass, uint32_t prompt, const char *id, const char *reason);
/* Takes a journal line into the struct. ctx is the run_dir. */
ckvc_status run_take_line(void *ctx, const json_t *line, uint32_t number,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* To be called when all lines were taken: sorts the published shards, and checks that each is there
 * once. */
ckvc_status run_sort_shards(run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;
/* Appends a line to the journal, and takes it into the struct as reading it would. */
ckvc_status run_journal(run_dir *r, json_t *line /* taken */, ckvc_err *err) CKVC_MUST_CHECK;

/* What `ckvc status` says (docs/cli.md). run_status_of_pass completes the object of one part's
 * pass, which has the members `prompts` and `done`. It adds what follows from the rate, in prompts
 * a second, and from the time of the last write, in seconds (NaN: unknown). */
void run_status_of_pass(json_t *pass, bool complete, double rate, double written_s);
/* Makes the object of one part, which is complete when it has `ended` and all its passes are. A new
 * reference. */
json_t *run_status_of_part(run_part part, const json_t *passes, const json_t *skipped, bool ended);
/* Puts what holds of the whole run into the object `status`: its parts, which parts of the list's
 * number are missing, and whether all is done. The list [n] is as run_list_parts gives it. */
void run_status_of_parts(json_t *status, json_t *parts, const run_part *list, size_t n,
                         bool merged);

/* Checks the checkpoints against their lines. */
ckvc_status run_verify_files(const run_dir *r, ckvc_err *err) CKVC_MUST_CHECK;

/* a missing file is no error */
ckvc_status run_remove_file(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
void run_writer_free(run_writer *w);
/* For a line of the journal with a "note": run_note_text returns a key's text, or NULL where the
 * value is no text; run_note_is_of_file tells whether the line is about a file. */
const char *run_note_text(const json_t *line, const char *key);
bool run_note_is_of_file(const json_t *line);
/* whether the name stays below the run's folder, whatever a journal says */
bool run_name_is_inside(const char *name);
