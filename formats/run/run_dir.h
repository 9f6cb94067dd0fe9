/* The run directory (formats/run/run.md): plan, journal, durable prompt logs, published shards,
 * lock. A run may be made in parts, each of which takes its share of the shards (run.md, "Parts").
 *
 * Writer: run_create (with resume: of a run that is there) locks the folder; for each pass,
 * run_pass_begin says which prompts are still to do; run_log_prompt makes one finished prompt
 * durable; when a shard's range is complete it is written, published, journaled. Reader: run_open.
 */
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

/* Part `index` of `count`: of every pass the shards index, index + count, ... Count 0: the whole
 * run. */
typedef struct run_part {
    uint32_t index, count;
} run_part;
#define RUN_WHOLE     ((run_part){0, 0})
#define RUN_MAX_PARTS 100000
size_t run_part_size(run_part part, size_t n); /* of n shards, or what else is shared out so */

/* Creates `path` (missing or empty, else CKVC_E_CREATE that suggests --resume) and writes run.json
 * = canonical plan. With resume, an existing run must have the same plan: a difference is
 * CKVC_E_MISMATCH naming the fields, old and new value; a missing folder is created. Takes the lock
 * (CKVC_E_BUSY when another process has it). The plan is borrowed. Of a part, journal and lock are
 * its own, shards and plan are the run's, so that parts of one run may stand in one folder or each
 * in its own: CKVC_E_MISMATCH when the folder holds parts of another number, CKVC_E_CREATE when it
 * holds a whole run. */
ckvc_status run_create(const char *path, const json_t *plan, run_part part, bool resume,
                       run_dir **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Opens for reading: run.json and journal are parsed and checked, every published shard must be
 * there with its size. A run in parts that are not merged yet is CKVC_E_DATA. */
ckvc_status run_open(const char *path, run_dir **out, ckvc_err *err) CKVC_MUST_CHECK;
void run_close(run_dir *r); /* releases the lock */
CKVC_AUTO_OF(run_dir, run_close)
const char *run_path(const run_dir *r);
const json_t *run_plan(const run_dir *r); /* borrowed */
/* SHA-256 hex of the canonical plan without what does not change results; the same of any plan. */
const char *run_plan_hash(const run_dir *r);
void run_hash_plan(const json_t *plan, char out[CKVC_SHA256_HEX]);

/* ---- writing a pass ---- */
/* The passes begun from here on carry this plan's hash in place of the run's: a run of compile
 * holds several calibrations. */
void run_set_pass_plan(run_dir *r, const char hash[CKVC_SHA256_HEX]);
typedef struct run_pass_start {
    const char *pass;       /* "scan", "pass-01-head" ... */
    uint32_t n_prompts;     /* of the plan */
    uint32_t shard_prompts; /* S */
    const char *backend;    /* recorded in journal lines; mixing kinds is CKVC_E_MISMATCH */
} run_pass_start;
/* `header` is written to every shard (copied). Replays logs; done [n_prompts] (caller's) is set
 * true for each prompt that is already published, logged or journaled as skipped, that stands
 * behind the end of a pass that was ended early, or that is another part's. A replayed log that
 * completes its shard is published. */
ckvc_status run_pass_begin(run_dir *r, const run_pass_start *start, const shard_header *header,
                           bool *done, ckvc_err *err) CKVC_MUST_CHECK;
/* Is a prompt of the open pass this part's to do? */
bool run_is_ours(const run_dir *r, uint32_t prompt);
/* One finished prompt (number in the plan's order) with its rows (one prompt row): appended to the
 * shard's log and fsynced. Publishes the shard when its range is complete. Prompts may finish in
 * any order. */
ckvc_status run_log_prompt(run_dir *r, uint32_t prompt, const shard *rows,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* A prompt that leaves no records: one journal line with id and reason. Counts towards its shard's
 * range. */
ckvc_status run_skip_prompt(run_dir *r, uint32_t prompt, const char *id, const char *reason,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* What the open pass has: the rows of every prompt that is published or logged, in the plan's order
 * when prompts finished in it. For a pass whose next prompt depends on those before. */
ckvc_status run_pass_replay(run_dir *r, void (*fn)(void *ctx, const shard *rows), void *ctx,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* How --until-stable ended the open pass, journaled once, when its shards 0 ... n_shards-1 are
 * published and no other prompt is done: reached: the pass is complete with them; otherwise all its
 * shards are published and `reliability` (NaN: undefined) stayed below target. */
ckvc_status run_pass_stable(run_dir *r, double target, double reliability, bool reached,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Bytes of the open pass's shards and logs, of this part's. */
uint64_t run_pass_bytes(const run_dir *r);
/* True when all prompts of the pass, or of this part of it, are done; closes the pass's files. */
bool run_pass_end(run_dir *r);

/* ---- parts ---- */
/* FOLDER/STEM-0-of-3END, a part's own file; without a part FOLDER/STEMEND. free() it. */
char *run_part_path(const char *folder, const char *stem, run_part part, const char *end);
/* The parts that have such a file, ascending by count, index; the caller's to free. */
ckvc_status run_list_parts(const char *folder, const char *stem, const char *end, run_part **out,
                           size_t *n, ckvc_err *err) CKVC_MUST_CHECK;
typedef struct run_merged {
    uint32_t n_parts; /* 0: `path` was one run already */
    size_t n_passes, n_shards;
} run_merged;
/* Publishes one run at `path` from the parts in it and in `folders` [n]: their shards, byte for
 * byte, and the journal of a run that was made in one go. The parts must be all of one number, of
 * one plan, arithmetic and shard header, and complete, and no shard may be there twice: otherwise
 * CKVC_E_DATA or CKVC_E_MISMATCH names the part and what to do, and nothing is published. Parts in
 * `path` are one run afterwards; those in other folders stay as they are. Merging again is no
 * error. */
ckvc_status run_merge(const char *path, const char *const *folders, size_t n, run_merged *out,
                      ckvc_err *err) CKVC_MUST_CHECK;
/* Publishes what parts make together; the same bytes may be there already, of a merge that was
 * killed, other bytes are CKVC_E_CREATE. */
ckvc_status run_publish_once(const char *path, const void *data, size_t size,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* What a run's folder holds now, while processes write it or after: an object for `ckvc status`,
 * docs/cli.md; new reference. Takes no lock. */
ckvc_status run_status(const char *path, json_t **out, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- reading ---- */
typedef struct run_pass {
    char name[32];   /* "scan", "pass-01-head" */
    int number;      /* 0 for scan */
    char kind[8];    /* scan, demand, score, head, gate, both */
    size_t n_shards; /* published */
    uint32_t n_prompts_done;
    uint32_t n_prompts; /* that the pass takes: the plan's, fewer when it ended early */
    bool complete;      /* all shards of those prompts are published */
    /* That its shards carry: the run's, or of compile that of the calibration that it stands for.
     */
    char plan[CKVC_SHA256_HEX];
    struct {
        bool known, reached;
        double target, reliability; /* NaN: undefined */
    } stable;                       /* --until-stable */
} run_pass;
size_t run_pass_count(const run_dir *r);
const run_pass *run_pass_at(const run_dir *r, size_t i);            /* in order of their number */
const run_pass *run_pass_named(const run_dir *r, const char *name); /* NULL: not begun */
/* Reads shard k (k-th published, in order) of a pass after checking its SHA-256 against the
 * journal. */
ckvc_status run_read_shard(const run_dir *r, const run_pass *p, size_t k, shard **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Skipped prompts of all passes: array of {pass, id, reason}. Borrowed. */
const json_t *run_skipped(const run_dir *r);

/* Everything checked, shards read whole; for `ckvc verify`. */
ckvc_status run_verify(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_describe(const run_dir *r); /* for `ckvc inspect`; new reference */
/* Writes a file of the run (scan/edges.json, tables/...) atomically below the run's folder,
 * replaced when it is there. */
ckvc_status run_publish_file(run_dir *r, const char *name, const void *data, size_t n,
                             ckvc_err *err) CKVC_MUST_CHECK;

/* ---- notes: journal lines of a run of compile beside its passes ---- */
/* A file as run_publish_file, and a journal line
 * {"note":"file","name","bytes","sha256"} that makes it a checkpoint. */
ckvc_status run_checkpoint_file(run_dir *r, const char *name, const void *data, size_t n,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* The same line for a file that is published already: it is read, and replaces an older line of its
 * name. */
ckvc_status run_checkpoint(run_dir *r, const char *name, ckvc_err *err) CKVC_MUST_CHECK;
bool run_has_file(const run_dir *r, const char *name); /* such a line is there */
/* Reads a checkpoint after checking its size and SHA-256. *data is NUL-terminated; free() it. */
ckvc_status run_read_file(const run_dir *r, const char *name, char **data, size_t *n,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Appends {"note": kind, ...} with the members of `o` (taken). */
ckvc_status run_note(run_dir *r, const char *kind, json_t *o, ckvc_err *err) CKVC_MUST_CHECK;
/* All lines with a "note", in order. Borrowed. */
const json_t *run_notes(const run_dir *r);
