/* The run directory (formats/run/run.md): plan, journal, durable prompt logs, published shards and
 * lock. A run may be made in parts, each of which takes its share of the shards (run.md, "Parts").
 *
 * A writer calls run_create, which locks the folder (and, with resume, goes on with a run that is
 * there). For each pass, run_pass_begin says which prompts are still to do, and run_log_prompt
 * makes one finished prompt durable. When all prompts of a shard are done, the shard is written,
 * published and entered into the journal. A reader calls run_open. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/shard/shard.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

typedef struct run_dir run_dir;

/* Part `index` of `count`: of every pass it makes the shards index, index + count, and so on. A
 * count of 0 stands for the whole run. */
typedef struct run_part {
    uint32_t index, count;
} run_part;
#define RUN_WHOLE     ((run_part){0, 0})
#define RUN_MAX_PARTS 100000
/* Returns how many of n shards (or of anything else that is shared out in this way) are the
 * part's. */
size_t run_part_size(run_part part, size_t n);

/* Creates a run at `path`, which must be missing or empty (else CKVC_E_CREATE, which suggests
 * --resume), and writes run.json, which is the canonical plan. With resume, a run that is there
 * must have the same plan: CKVC_E_MISMATCH names the fields that differ with both values; a missing
 * folder is created. The call takes the lock, and is CKVC_E_BUSY when another process has it. The
 * plan is borrowed.
 *
 * A part has its own journal and lock but shares plan and shards with the run, so that the parts of
 * one run may stand in one folder or each in its own. CKVC_E_MISMATCH: the folder holds parts of
 * another number. CKVC_E_CREATE: it holds a whole run. */
ckvc_status run_create(const char *path, const json_t *plan, run_part part, bool resume,
                       run_dir **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Refuses what run_create would refuse of the folder, so that a user hears of it before any work.
 */
ckvc_status run_check_out(const char *path, run_part part, bool resume,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Opens a run for reading. run.json and the journal are parsed and checked, and every published
 * shard must be there with its size. A run in parts that are not merged yet is CKVC_E_DATA. */
ckvc_status run_open(const char *path, run_dir **out, ckvc_err *err) CKVC_MUST_CHECK;
void run_close(run_dir *r); /* also releases the lock */
CKVC_AUTO_OF(run_dir, run_close)
const char *run_path(const run_dir *r);
const json_t *run_plan(const run_dir *r); /* borrowed */
/* Returns the SHA-256, in hex, of the canonical plan without the fields that do not change results.
 * run_hash_plan does the same for any plan. */
const char *run_plan_hash(const run_dir *r);
void run_hash_plan(const json_t *plan, char out[CKVC_SHA256_HEX]);

/* ---- writing a pass ---- */
/* Passes that are begun after this call carry this plan's hash in place of the run's, because a run
 * of compile holds several calibrations. */
void run_set_pass_plan(run_dir *r, const char hash[CKVC_SHA256_HEX]);
typedef struct run_pass_start {
    const char *pass;       /* "scan", "pass-01-head" ... */
    uint32_t n_prompts;     /* how many prompts the plan has */
    uint32_t shard_prompts; /* how many of them a shard has, S */
    /* recorded in the journal; to go on with another kind is CKVC_E_MISMATCH */
    const char *backend;
} run_pass_start;
/* Begins a pass, or goes on with it. `header` is copied, and written to every shard. The logs are
 * replayed, and a replayed log that completes its shard is published. done [n_prompts], which is
 * the caller's, becomes true for each prompt that is published, logged or entered as skipped, for
 * those behind the end of a pass that was ended early, and for those of other parts. */
ckvc_status run_pass_begin(run_dir *r, const run_pass_start *start, const shard_header *header,
                           bool *done, ckvc_err *err) CKVC_MUST_CHECK;
/* Tells whether a prompt of the open pass is this part's to do. */
bool run_is_ours(const run_dir *r, uint32_t prompt);
/* Appends one finished prompt to its shard's log and syncs it. `prompt` is its number in the plan's
 * order; `rows` has one prompt row. Publishes the shard when all its prompts are done. Prompts may
 * finish in any order. */
ckvc_status run_log_prompt(run_dir *r, uint32_t prompt, const shard *rows,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Enters a prompt that leaves no records into the journal: one line with its id and the reason. The
 * prompt counts as done in its shard. */
ckvc_status run_skip_prompt(run_dir *r, uint32_t prompt, const char *id, const char *reason,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Calls fn with the rows of every prompt of the open pass that is published or logged; they come in
 * the plan's order if the prompts finished in it. This serves a pass whose next prompt depends on
 * those before. */
ckvc_status run_pass_replay(run_dir *r, void (*fn)(void *ctx, const shard *rows), void *ctx,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Enters into the journal, once, how --until-stable ended the open pass, when its shards 0 ...
 * n_shards-1 are published and no other prompt is done. `reached` says that the pass is complete
 * with them; otherwise all its shards are published and `reliability` (NaN: undefined) stayed below
 * `target`. */
ckvc_status run_pass_stable(run_dir *r, double target, double reliability, bool reached,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the bytes of the open pass's shards and logs, as far as they are this part's. */
uint64_t run_pass_bytes(const run_dir *r);
/* Closes the files of the open pass. Returns true when all its prompts, or all of this part, are
 * done. */
bool run_pass_end(run_dir *r);

/* ---- parts ---- */
/* Returns the name of a part's own file, FOLDER/STEM-0-of-3END, or FOLDER/STEMEND for a whole run.
 * The caller frees it. */
char *run_part_path(const char *folder, const char *stem, run_part part, const char *end);
/* Lists the parts that have such a file, ascending by count and index. The caller frees *out. */
ckvc_status run_list_parts(const char *folder, const char *stem, const char *end, run_part **out,
                           size_t *n, ckvc_err *err) CKVC_MUST_CHECK;
typedef struct run_merged {
    uint32_t n_parts; /* 0 when `path` was one run already */
    size_t n_passes, n_shards;
} run_merged;
/* Publishes one run at `path` from the parts in it and in `folders` [n]. It has their shards, byte
 * for byte, and the journal of a run that was made in one go. The parts must all be of one number,
 * of one plan, arithmetic and shard header, and complete, and no shard may be there twice.
 * Otherwise CKVC_E_DATA or CKVC_E_MISMATCH names the part and what to do, and nothing is published.
 * Parts in `path` become part of the one run; those in other folders stay as they are. To merge
 * again is no error. */
ckvc_status run_merge(const char *path, const char *const *folders, size_t n, run_merged *out,
                      ckvc_err *err) CKVC_MUST_CHECK;
/* Publishes a file that parts make together. The same bytes may be there already from a merge that
 * was killed; other bytes are CKVC_E_CREATE. */
ckvc_status run_publish_once(const char *path, const void *data, size_t size,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Tells what a run's folder holds now, while processes write it or afterwards, as an object for
 * `ckvc status` (docs/cli.md); a new reference. It takes no lock. */
ckvc_status run_status(const char *path, json_t **out, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- reading ---- */
typedef struct run_pass {
    char name[32];   /* "scan", "pass-01-head" */
    int number;      /* 0 for the scan */
    char kind[8];    /* scan, demand, score, head, gate, both */
    size_t n_shards; /* shards that are published */
    uint32_t n_prompts_done;
    /* prompts that the pass takes: all of the plan, or fewer when it ended early */
    uint32_t n_prompts;
    bool complete; /* all shards with those prompts are published */
    /* The hash of the plan that its shards carry: the run's, or in a run of compile that of the
     * calibration that the pass belongs to. */
    char plan[CKVC_SHA256_HEX];
    struct {
        bool known, reached;
        double target, reliability; /* NaN when undefined */
    } stable;                       /* what --until-stable found */
} run_pass;
size_t run_pass_count(const run_dir *r);
/* Returns pass i; the passes stand in order of their number. */
const run_pass *run_pass_at(const run_dir *r, size_t i);
const run_pass *run_pass_named(const run_dir *r, const char *name); /* NULL when it was not begun */
/* Reads shard k of a pass, which is the k-th published one in order, after checking its SHA-256
 * against the journal. */
ckvc_status run_read_shard(const run_dir *r, const run_pass *p, size_t k, shard **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the skipped prompts of all passes, an array of {pass, id, reason}. Borrowed. */
const json_t *run_skipped(const run_dir *r);

/* Checks everything for `ckvc verify`, for which the shards are read whole. */
ckvc_status run_verify(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_describe(const run_dir *r); /* for `ckvc inspect`; a new reference */
/* Writes a file of the run (scan/edges.json, tables/...) atomically below the run's folder, and
 * replaces one that is there. */
ckvc_status run_publish_file(run_dir *r, const char *name, const void *data, size_t n,
                             ckvc_err *err) CKVC_MUST_CHECK;

/* ---- notes: lines in the journal of a run of compile that stand beside its passes ---- */
/* Writes a file as run_publish_file does, and the journal line
 * {"note":"file","name","bytes","sha256"} that makes it a checkpoint. */
ckvc_status run_checkpoint_file(run_dir *r, const char *name, const void *data, size_t n,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the same line for a file that is published already. The file is read, and the line
 * replaces an older one of its name. */
ckvc_status run_checkpoint(run_dir *r, const char *name, ckvc_err *err) CKVC_MUST_CHECK;
bool run_has_file(const run_dir *r, const char *name); /* whether there is such a line */
/* Reads a checkpoint after checking its size and SHA-256. *data ends in a NUL; the caller frees
 * it. */
ckvc_status run_read_file(const run_dir *r, const char *name, char **data, size_t *n,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Appends {"note": kind, ...} with the members of `o`, which is taken. */
ckvc_status run_note(run_dir *r, const char *kind, json_t *o, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns all lines with a "note", in order. Borrowed. */
const json_t *run_notes(const run_dir *r);
