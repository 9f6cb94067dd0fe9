/* A shard in memory: state-action-reward records of a range of prompts (formats/shard/shard.md). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/setting/setting.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/sketch.h"
#include "lib/base/status.h"
#include "lib/policy/policy_parts.h"

#define SHARD_STRING 256 /* fixed string length, NUL included */

/* Root attributes: the same in every shard of a pass. Owned arrays. */
typedef struct shard_header {
    char ckvc_version[32], plan[CKVC_SHA256_HEX], fingerprint[CKVC_SHA256_HEX],
        manifest[CKVC_SHA256_HEX];
    char model_name[SHARD_STRING], family[32];
    char sketch[SKETCH_TEXT]; /* of the model, lib/base/sketch.h; "": written before there were any
                               */
    char pass[8];             /* scan, demand, score, head, gate, both */
    char behaviour[16];       /* balanced, uniform, epsilon-greedy; else: none */
    uint32_t n_layers, n_heads, n_kv_heads; /* L, H, G */
    setting setting;                        /* but for budgets and grids, which stand below */
    uint32_t n_budgets, n_entropy_bins, n_ppl_bins;
    double *budgets;
    double *edges_entropy, *edges_ppl; /* [E-1], [P-1] */
    struct shard_side {
        uint32_t n_actions;
        double *actions;     /* the grid, ascending */
        float *start;        /* the table it starts from, [states]; NULL where nothing is logged */
    } side[CKVC_SIDE_COUNT]; /* by ckvc_side */
} shard_header;

/* Columns. prompt/baseline/record indices are within the shard. Owned; grown by shard_append. */
typedef struct shard {
    shard_header h;
    size_t capacity[3]; /* rows of prompts, baselines, records */
    size_t n_prompts;
    struct shard_prompt {
        char id[SHARD_STRING], source[SHARD_STRING], split[SHARD_STRING];
        uint32_t line, n_tokens, n_continuation;
        uint8_t cut;
        uint64_t token_hash;
        double r_struct, r_sem, loss_full;
        uint16_t bin_entropy, bin_ppl;
        char document[SHARD_STRING]; /* that several prompts of the run are of; "": its own */
    } * prompts;
    /* Scan and demand shards only, else NULL; 0 where the first demand shards have none. */
    double *rho_sd, *own_recent, *own_entropy; /* [n_prompts][L][G] */
    /* Demand shards only, else NULL: entries that each KV head and each layer takes of the budget
     * (method.md section 3), [n_prompts][nB][L][G] and [n_prompts][nB][L]. Those with features also
     * have the same with each of shard_mixes as the weight w of the continuation's attention, in
     * place of 0: [..][SHARD_N_MIXES][..]. */
    uint32_t *demand, *layer_demand, *mixed_demand, *mixed_layer_demand;
    /* Score shards and demand shards with features, else NULL: of each KV head the repeat pass's
     * largest attentions, summed; the targets, summed; the sum of their features weighted by them;
     * features of the positions that are logged: [n_prompts][L][G], the same, [..][F], [..][P][F]
     * (docs/method.md, section 5). Of P = setting.positions rows a prompt of fewer tokens fills the
     * first n_tokens, one of more all: P/2 at the ends and of the highest targets first, then a
     * draw of the others. expected_loss [n_prompts][L][G], of score shards: the targets'
     * cross-entropy under Expected Attention; 0: not logged, as none is any more. */
    double *mass, *target, *target_features;
    float *features;
    double *expected_loss;
    size_t n_baselines;
    struct shard_baseline {
        uint32_t prompt;
        uint16_t budget;
        double loss;
    } * baselines;
    uint32_t *n_candidates, *n_kept, *n_kept_window; /* [n_baselines][L] */
    uint32_t *n_candidates_lo, *n_candidates_hi;     /* [n_baselines][L] */
    size_t n_records;
    struct shard_record {
        uint32_t prompt;
        uint8_t side, action;
        uint16_t layer, head, budget;
        double reward, baseline, loss;
        uint32_t n_candidates, n_kept;
        uint64_t set_hash;
    } * records;
} shard;

/* What a prompt is drawn with, whole: the name of its document, else its own. */
static inline const char *shard_prompt_cluster(const struct shard_prompt *p) {
    return *p->document ? p->document : p->id;
}

shard *shard_create(void); /* empty, zero header */
void shard_free(shard *s);
CKVC_AUTO_OF(shard, shard_free)

void shard_header_fini(shard_header *h);
/* dst's own arrays; dst is released first. */
void shard_header_copy(shard_header *dst, const shard_header *src);
/* Shape, window, operator, budgets, bins, grids and start entries of a table; the arrays stay the
 * table's. */
void shard_header_borrow(shard_header *h, const ckvc_table *table);
/* The whole setting, budgets and grids borrowed from the header. */
setting shard_setting(const shard_header *h);
/* What a pass leaves: statistics of prompts; demand of heads; what a learned ranking is fitted to;
 * records of a start table's sides. A header whose pass is none is of the last. */
typedef enum shard_kind { SHARD_LOGGED, SHARD_SCAN, SHARD_DEMAND, SHARD_SCORE } shard_kind;
shard_kind shard_kind_of(const shard_header *h);
/* The weights w of mixed_demand. */
enum { SHARD_N_MIXES = 4 };
extern const double shard_mixes[SHARD_N_MIXES];
/* Has it what a learned ranking is fitted to? The first demand shards have not. */
bool shard_has_features(const shard_header *h);
typedef struct shard_pass {
    const char *name; /* "scan", "demand", "score"; of sides "head", ... */
    shard_kind kind;
    unsigned sides; /* that are logged, bit i: side i */
} shard_pass;
/* NULL: there is none. */
const shard_pass *shard_pass_named(const char *name);
/* Is it a pass that earlier versions of ckvc made, and is it said to be what follows? */
bool shard_pass_gone(const char *name);
#define SHARD_GONE                                                                                 \
    "losses under other shares, or under thresholds below them, which this version of ckvc no "    \
    "longer has"
const char *shard_pass_name(shard_kind kind, unsigned sides);
/* False of what was made under --operator no-threshold: every layer keeps its whole budget. */
bool shard_has_thresholds(const shard_header *h);
/* The tokens that a baseline row of block `budget` allows a layer of a prompt of n_tokens; false
 * where the layer draws on another block (budgets by layer: one baseline stands under every block
 * that a layer of it draws on). */
bool shard_layer_budget(const shard_header *h, uint32_t budget, uint32_t layer, uint32_t n_tokens,
                        uint32_t *tokens);

/* Add a row and return its number. Per-layer values of the row (n_candidates ...) are grown with
 * it, zeroed, and the caller's to fill. Need h.n_layers (h.n_kv_heads for scans) to be set. */
size_t shard_add_prompt(shard *s, const struct shard_prompt *p);
size_t shard_add_baseline(shard *s, const struct shard_baseline *b);
size_t shard_add_record(shard *s, const struct shard_record *r);
/* Appends all rows of src (same header) behind dst's, shifting prompt indices. */
void shard_append(shard *dst, const shard *src);
void shard_clear(shard *s); /* drops the rows, keeps header and memory */

/* For `ckvc inspect`. New reference. */
json_t *shard_describe(const shard *s);
/* Its records as lines of JSON (shard.md, "Records as lines"); `pass` is the run's name of it. */
void shard_print_records(const shard *s, const char *pass, FILE *out);
