/* What a scan says of prompts and risk cells, and stratified sampling over the cells (paper.md
 * section 8).
 *
 * Who is drawn depends on the prompts' ids, their cells and the seed, never on their places: in a
 * cell prompts stand in the order of a hash of (seed, id), and a cell gives the first of that
 * order. New prompts find their places in it and push out at most as many as they are. */
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

/* drawn [n]: `want` of the items (all when there are fewer), cells as even as they allow: small
 * cells whole, the others one number of items each, what is left to those whose next item has the
 * smallest hash. */
void sample_draw(const sample_item *items, size_t n, size_t want, uint64_t seed, bool *drawn);
/* prompt_hash of "sample", LF: apart from the hold-out's. */
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

/* CKVC_E_DATA: the run has no complete scan. A scan whose prompts are all held out gives n = 0. */
ckvc_status scanned_read(const run_dir *run, scanned *out, ckvc_err *err) CKVC_MUST_CHECK;
void scanned_fini(scanned *s);
/* Edges from the scanned prompts into the arrays of `out`. CKVC_E_DATA when there are none. */
ckvc_status scanned_edges(const scanned *s, const run_dir *run, edge_kind kind,
                          const risk_edges *out, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- cells of this run's prompts ---- */
typedef struct sample_options {
    risk_edges edges;
    uint32_t min_cell;
    const char *from; /* the edges' source, as in the plan */
    bool logged;      /* the prompts will be logged: not a scan alone */
    int64_t sample;   /* prompts to draw; 0: all */
    uint64_t seed;
} sample_options;

/* Counts those of the prompts that the scan knows (by id and tokens) in cells and sources; with
 * `sample`, draws among them and marks the rest as passed over, the ones that the scan does not
 * know too. *out is the caller's to coverage_fini. */
ckvc_status sample_prompts(const scanned *s, const sample_options *o, prompt_list *prompts,
                           coverage *out, ckvc_err *err) CKVC_MUST_CHECK;
