/* What a stopped `ckvc score` goes on from (formats/lines/scores.md): OUT.checkpoint, one line with
 * the settings of the command, then the lines of every prompt that is done. A part of a score
 * (--shard) is the same, OUT.part-0-of-3, and stays until the parts are merged. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/run/run_dir.h"
#include "lib/base/json.h"
#include "lib/base/files.h"
#include "lib/base/status.h"

typedef struct score_checkpoint {
    const char *out; /* the score's output; NULL: it is printed, and there is no checkpoint */
    run_part part;
    size_t n_prompts, per_prompt; /* of the whole score, lines of each */
    bool resume, force;
    char *path;
    int lock;            /* descriptor of path, on which the lock stands; with path */
    uint64_t head, size; /* bytes of its first line; that are durable */
    size_t n_done;       /* prompts */
    /* [n_lines bytes] The lines of prompts that are done, as they stand in the file: from _open to
     * the first _keep, and from _end on, then without a path what it was given. */
    const char *lines;
    size_t n_lines;
    ckvc_map map;
} score_checkpoint;

/* Begins one, or with resume goes on with the one that is there: n_done and `lines` are of its
 * whole prompts. One that holds lines of prompts is CKVC_E_CREATE without resume or force; other
 * settings (an object of texts, to which it adds the numbers and the part) are CKVC_E_MISMATCH that
 * names what differs; one that another process writes is CKVC_E_BUSY. */
ckvc_status score_checkpoint_open(score_checkpoint *c, json_t *settings,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Makes a prompt's lines durable: who made them need not hold them. ctx is the checkpoint. */
ckvc_status score_checkpoint_keep(void *ctx, const void *lines, size_t size,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Would `out` be taken? As ckvc_publish_check; with resume also where it lies beside its
 * checkpoint: the command was killed as it ended. */
ckvc_status score_checkpoint_out_check(const char *out, bool resume, bool force,
                                       ckvc_err *err) CKVC_MUST_CHECK;
/* What came of all lines: `st`, and why. Writes those that were kept, prints `lines`, which no path
 * has, or leaves them to the part that they are, which quiet does not say. Where they were stopped
 * and no checkpoint holds a prompt there is nothing to go on from: CKVC_E_INTERRUPTED, with
 * `printed` of lines that are. */
ckvc_status score_checkpoint_end(score_checkpoint *c, const ckvc_buffer *lines, ckvc_status st,
                                 const ckvc_err *why, const char *printed, bool quiet,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Joins the parts beside `out` and beside each of outs [n], the --out that they were made with, to
 * `out`: CKVC_E_DATA or CKVC_E_MISMATCH names what is missing, there twice or made otherwise. Parts
 * beside `out` are removed. *n_parts 0: there is no part of a score beside any of them. */
ckvc_status score_merge(const char *out, const char *const *outs, size_t n, size_t *n_parts,
                        ckvc_err *err) CKVC_MUST_CHECK;
/* How far the score or eval of `out` is, an object as run_status gives; new reference. By its
 * checkpoint, else its parts, else the file. Takes no lock. */
ckvc_status score_status(const char *out, json_t **status, ckvc_err *err) CKVC_MUST_CHECK;
void score_checkpoint_fini(score_checkpoint *c);
