/* HDF5 shards (formats/shard/shard.md): state-action-reward records of a range of prompts. */
#ifndef CKVC_SHARD_H5_H
#define CKVC_SHARD_H5_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buffer.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"

#define SHARD_STRING 256 /* fixed string length, NUL included */

/* Root attributes: the same in every shard of a pass. Owned arrays. */
typedef struct shard_header {
    char ckvc_version[32], plan[CKVC_SHA256_HEX], fingerprint[CKVC_SHA256_HEX],
        manifest[CKVC_SHA256_HEX];
    char model_name[SHARD_STRING], family[32];
    char pass[8];       /* scan, head, gate, both */
    char behaviour[16]; /* balanced, uniform; scan: none */
    char alpha_kind[16];
    char operator_name[16]; /* a probe's operator (ckvc_operator_name); "": the paper's */
    char compute[8];        /* bf16; "": float32 */
    uint32_t n_layers, n_heads, n_kv_heads; /* L, H, G */
    uint32_t window, continuation, keep_window;
    double beta_bud; /* beta_bud: the gate's penalty per surplus candidate is lambda / T */
    ckvc_loss_reduction reduction; /* of the rewards; in the file only where it is not the mean */
    uint64_t seed;
    uint32_t n_budgets, n_entropy_bins, n_ppl_bins;
    double *budgets;
    double *edges_entropy, *edges_ppl; /* [E-1], [P-1] */
    struct shard_side {
        uint32_t n_actions;
        double *actions;      /* the grid, ascending */
        float *start;         /* the table it starts from; NULL in scan shards. Head: [L][G][nB],
                                 gate: [L][E][P][nB] */
    } side[CKVC_SIDE_COUNT];  /* by ckvc_side */
    uint32_t n_layer_budgets; /* L, or 0: every layer has each of the budgets */
    double *layer_budgets;    /* [n_layer_budgets] B of each layer, or NULL */
} shard_header;

/* Columns. prompt/baseline/record indices are within the shard. Owned; grown by shard_append. */
typedef struct shard {
    shard_header h;
    size_t n_prompts, cap_prompts;
    struct shard_prompt {
        char id[SHARD_STRING], source[SHARD_STRING], split[SHARD_STRING];
        uint32_t line, n_tokens, n_continuation;
        uint8_t cut;
        uint64_t token_hash;
        double r_struct, r_sem, loss_full;
        uint16_t bin_entropy, bin_ppl;
    } * prompts;
    double *rho_sd, *own_recent, *own_entropy; /* [n_prompts][L][G], scan shards only, else NULL */
    size_t n_baselines, cap_baselines;
    struct shard_baseline {
        uint32_t prompt;
        uint16_t budget;
        double loss;
    } * baselines;
    uint32_t *n_candidates, *n_kept, *n_kept_window, *n_candidates_lo,
        *n_candidates_hi; /* [n_baselines][L] */
    size_t n_records, cap_records;
    struct shard_record {
        uint32_t prompt;
        uint8_t side, action;
        uint16_t layer, head, budget;
        double reward, baseline, loss;
        uint32_t n_candidates, n_kept;
        uint64_t set_hash;
    } * records;
} shard;

shard *shard_create(void); /* empty, zero header; NULL when memory is out */
void shard_free(shard *s);
CKVC_AUTO_OF(shard, shard_free)
void shard_header_fini(shard_header *h);
/* Shape, window, operator, budgets, bins, grids and start entries of a table; the arrays stay the
 * table's. */
void shard_header_borrow(shard_header *h, const ckvc_table *table);
ckvc_status shard_header_copy(shard_header *dst, const shard_header *src,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Adds rows; *index (may be NULL) receives the row's number. For per-layer arrays of the row, see
 * n_candidates etc: they are grown together (zeroed) and filled by the caller. Needs h.n_layers
 * (h.n_kv_heads for scan) to be set. */
ckvc_status shard_add_prompt(shard *s, const struct shard_prompt *p, size_t *index,
                             ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_add_baseline(shard *s, const struct shard_baseline *b, size_t *index,
                               ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_add_record(shard *s, const struct shard_record *r, ckvc_err *err) CKVC_MUST_CHECK;
/* Appends all rows of src (same header) behind dst's, shifting prompt indices. */
ckvc_status shard_append(shard *dst, const shard *src, ckvc_err *err) CKVC_MUST_CHECK;
void shard_clear(shard *s); /* drops the rows, keeps header and memory */

/* False of what was made under --operator no-threshold: every layer keeps its whole budget. */
bool shard_has_thresholds(const shard_header *h);

/* The tokens that a baseline row of block `budget` allows a layer of a prompt of n_tokens; false
 * where the layer draws on another block (layer_budgets: one baseline stands under every block that
 * a layer of it draws on). */
bool shard_layer_budget(const shard_header *h, uint32_t budget, uint32_t layer, uint32_t n_tokens,
                        uint32_t *tokens);

/* The rows (not the header) as bytes for the durable prompt log, and back (appended to s; hostile
 * bytes are CKVC_E_DATA). */
void shard_encode(const shard *s, ckvc_buffer *out);
ckvc_status shard_decode(shard *s, const uint8_t *bytes, size_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* Writes the HDF5 file at `path` (a temporary name; the run directory publishes it). Same rows,
 * same bytes. */
ckvc_status shard_h5_write(const shard *s, const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads a shard of our own, already checked against its SHA-256. Every value is still checked
 * against the header. */
ckvc_status shard_h5_read(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads a bare shard of another producer as hostile: in a forked child with limits on CPU and
 * memory; a signal there is CKVC_E_DATA. Columns that formats.md does not require of them may be
 * missing and read as zeros. */
ckvc_status shard_h5_read_hostile(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* For `ckvc inspect`. New reference. */
json_t *shard_describe(const shard *s);

#endif
