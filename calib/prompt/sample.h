/* What a scan says about prompts and risk cells, and stratified sampling over the cells (paper.md
 * section 8).
 *
 * Which prompts are drawn depends on the prompts' ids, their cells and the seed, and never on their
 * places. Within a cell prompts stand in the order of a hash of (seed, id), and the ones that a
 * cell gives are the first of that order. New prompts find their places in this order, and push out
 * at most as many others as they are themselves. */
#pragma once

#include "lib/stats/rank.h"
#include "calib/prompt/prompts.h"
#include "formats/run/run_status.h"
#include "formats/run/run_dir.h"
#include "lib/base/status.h"

/* ---- the draw ---- */
typedef struct sample_item {
    const char *id;
    uint64_t cell; /* any number */
} sample_item;

/* Draws `want` of the items, or all when there are fewer, and marks them in drawn [n]. Cells give
 * as evenly as they can: small cells give all of their items, and the others give one number of
 * items each. What is then left to draw is taken from the cells whose next item has the smallest
 * hash. */
void sample_draw(const sample_item *items, size_t n, size_t want, uint64_t seed, bool *drawn);
/* Returns prompt_hash of "sample" and LF, so that this order differs from the hold-out's. */
uint64_t sample_hash(uint64_t seed, const char *id);

/* ---- a scan's prompts, hold-out left out ---- */
typedef struct scanned {
    struct scanned_prompt {
        char *id, *source;
        uint64_t token_hash;
        double r_struct, r_sem;
    } * items;
    size_t n, capacity;
} scanned;

/* Reads the prompts of the run's scan. The status is CKVC_E_DATA when the run has no complete scan.
 * A scan whose prompts are all held out gives n = 0. */
ckvc_status scanned_read(const run_dir *run, scanned *out, ckvc_err *err) CKVC_MUST_CHECK;
void scanned_fini(scanned *s);
/* Computes edges from the scanned prompts and writes them to the arrays of `out`. The status is
 * CKVC_E_DATA when there are no such prompts. */
ckvc_status scanned_edges(const scanned *s, const run_dir *run, edge_kind kind,
                          const risk_edges *out, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- cells of this run's prompts ---- */
typedef struct sample_options {
    risk_edges edges;
    uint32_t min_cell;
    const char *from; /* where the edges come from, as in the plan */
    bool logged;      /* whether the prompts will be logged, and not scanned alone */
    int64_t sample;   /* how many prompts to draw; 0: all */
    uint64_t seed;
} sample_options;

/* Counts, in cells and sources, those of the prompts that the scan knows (by id and tokens). With
 * `sample` it draws among them and marks the rest as passed over, those that the scan does not know
 * included. The caller calls coverage_fini on *out. */
ckvc_status sample_prompts(const scanned *s, const sample_options *o, prompt_list *prompts,
                           coverage *out, ckvc_err *err) CKVC_MUST_CHECK;
