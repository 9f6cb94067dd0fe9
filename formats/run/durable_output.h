/* An output of lines that a command makes prompt by prompt and may be killed over: the --out of
 * `score` and of `eval` (formats/lines/scores.md, "The checkpoint of a score"). Until it is whole,
 * OUT.checkpoint has one line with the settings of the command, then the lines of every prompt that
 * is done. A part of such an output (--shard) is the same, OUT.part-0-of-3, and stays until the
 * parts are merged. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/run/run_dir.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/status.h"

typedef struct durable_output {
    run_part part;
    const char *out; /* the final name; NULL: the lines are printed, and nothing is durable */
    size_t n_prompts, per_prompt; /* of the whole output; lines of each prompt */
    bool resume, force;
    char *path;          /* of the checkpoint or part; NULL: there is none */
    int lock;            /* the descriptor that holds the lock on path; with path */
    json_t *settings;    /* of the file that was there, NULL: none */
    uint64_t head, size; /* bytes of its first line; bytes that are durable */
    size_t n_done;       /* prompts */
    /* [n_lines bytes] The lines of prompts that are done, as they stand in the file: from _open to
     * the first _keep, and from _end on; without a path what _end was given. */
    const char *lines;
    size_t n_lines;
    ckvc_map map;
} durable_output;

/* Would `out` be taken? As ckvc_publish_check; with resume also where `out` lies beside its
 * checkpoint, because the command was killed as it ended. */
ckvc_status durable_output_check(const char *out, bool resume, bool force,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Begins one, or with resume goes on with the one that is there: n_done and `lines` are of its
 * whole prompts. One that holds lines of prompts is CKVC_E_CREATE without resume or force; other
 * settings (an object of texts, to which it adds the numbers and the part) are CKVC_E_MISMATCH that
 * names what differs; one that another process writes is CKVC_E_BUSY. */
ckvc_status durable_output_open(durable_output *o, json_t *settings, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes a prompt's lines durable, so that their maker need not hold them. ctx: the output. */
ckvc_status durable_output_keep(void *ctx, const void *lines, size_t size,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Ends it, `st` and `why` being what came of its lines. After CKVC_OK it publishes the lines that
 * were kept, or without a path `lines`; a part stays what it is. After a failure that left no
 * prompt done it removes the checkpoint; of CKVC_E_STOPPED it then makes CKVC_E_INTERRUPTED, since
 * there is nothing to go on from, with `printed` of lines that are printed. */
ckvc_status durable_output_end(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed,
                               ckvc_err *err) CKVC_MUST_CHECK;
void durable_output_fini(durable_output *o);

/* Joins the parts beside `out` and beside each of outs [n], the --out that they were made with, to
 * `out`: CKVC_E_DATA or CKVC_E_MISMATCH names what is missing, there twice or made otherwise. Parts
 * beside `out` are removed. *n_parts 0: there is no part of an output beside any of them. */
ckvc_status durable_output_merge(const char *out, const char *const *outs, size_t n,
                                 size_t *n_parts, ckvc_err *err) CKVC_MUST_CHECK;
/* How far the output is, an object as run_status gives; new reference. By its checkpoint, else its
 * parts, else the file, whose lines are `verb`'s ("score", "eval"; NULL: nobody's). It takes no
 * lock. */
ckvc_status durable_output_status(const char *out, const char *verb, json_t **status,
                                  ckvc_err *err) CKVC_MUST_CHECK;
