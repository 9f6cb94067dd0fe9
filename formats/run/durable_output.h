/* An output of lines that a command makes prompt by prompt, and that it can go on with after it was
 * killed: the --out of `score` and of `eval` (formats/lines/scores.md, "The checkpoint of a
 * score"). Until the output is whole, OUT.checkpoint has one line with the settings of the command,
 * and then the lines of every prompt that is done. A part of such an output (--shard) is the same
 * kind of file, for example OUT.part-0-of-3, and stays until the parts are merged. */
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
    const char *out; /* the final name; NULL when the lines are printed and nothing is durable */
    size_t n_prompts, per_prompt; /* prompts of the whole output; lines of each prompt */
    bool resume, force;
    char *path; /* the path of the checkpoint or part; NULL when there is none */
    int lock;   /* the descriptor that holds the lock on `path`, where there is one */
    /* the settings of the file that was there before; NULL when there was none */
    json_t *settings;
    uint64_t head, size; /* bytes of its first line; bytes that are durable */
    size_t n_done;       /* prompts that are done */
    /* [n_lines bytes] The lines of prompts that are done, as they stand in the file. They are valid
     * from durable_output_open to the first durable_output_keep, and again from durable_output_end
     * on. Without a path they are what durable_output_end was given. */
    const char *lines;
    size_t n_lines;
    ckvc_map map;
} durable_output;

/* Checks that `out` may be written, as ckvc_publish_check does. With `resume` it may also be there
 * already beside its checkpoint, because the command was killed as it ended. */
ckvc_status durable_output_check(const char *out, bool resume, bool force,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Begins an output, or with `resume` goes on with the one that is there; n_done and `lines` then
 * tell of its whole prompts. `settings` is an object of texts, to which this adds the numbers and
 * the part. CKVC_E_CREATE: an output that holds lines of prompts is there, and neither resume nor
 * force is given. CKVC_E_MISMATCH: it has other settings; the message names what differs.
 * CKVC_E_BUSY: another process writes it. */
ckvc_status durable_output_open(durable_output *o, json_t *settings, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes a prompt's lines durable, so that their maker need not hold them. ctx is the output. */
ckvc_status durable_output_keep(void *ctx, const void *lines, size_t size,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Ends an output; `st` and `why` are the result of making its lines. After CKVC_OK it publishes the
 * lines that were kept, or without a path `lines`; a part stays what it is. After a failure that
 * left no prompt done it removes the checkpoint. It then turns CKVC_E_STOPPED into
 * CKVC_E_INTERRUPTED, since there is nothing to go on from; when the lines are printed instead of
 * written, `printed` is what that message says of them. */
ckvc_status durable_output_end(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed,
                               ckvc_err *err) CKVC_MUST_CHECK;
void durable_output_fini(durable_output *o);

/* Joins parts of an output to `out`. The parts stand beside `out` and beside each of outs [n],
 * which are the --out that they were made with. CKVC_E_DATA or CKVC_E_MISMATCH names a part that is
 * missing, that is there twice or that was made otherwise. Parts beside `out` are removed
 * afterwards. When there is no part beside any of them, *n_parts is 0. */
ckvc_status durable_output_merge(const char *out, const char *const *outs, size_t n,
                                 size_t *n_parts, ckvc_err *err) CKVC_MUST_CHECK;
/* Tells how far the output is, as an object like that of run_status (a new reference). It looks at
 * the checkpoint, else at the parts, else at the file itself, whose lines belong to the verb `verb`
 * ("score", "eval"; NULL when to neither). It takes no lock. */
ckvc_status durable_output_status(const char *out, const char *verb, json_t **status,
                                  ckvc_err *err) CKVC_MUST_CHECK;
