/* A shard in memory: the state-action-reward records of a range of prompts
 * (formats/shard/shard.md). */
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

#define SHARD_STRING 256 /* the fixed size of a string, NUL included */

/* The root attributes, which are the same in every shard of a pass. The header owns its arrays. */
typedef struct shard_header {
    char ckvc_version[32], plan[CKVC_SHA256_HEX], fingerprint[CKVC_SHA256_HEX],
        manifest[CKVC_SHA256_HEX];
    char model_name[SHARD_STRING], family[32];
    /* the model's sketch (lib/base/sketch.h); "" when the shard was written before there were
     * sketches */
    char sketch[SKETCH_TEXT];
    char pass[8]; /* scan, demand, score, head, gate, both */
    /* balanced, uniform or epsilon-greedy; "none" where there is no behaviour */
    char behaviour[16];
    uint32_t n_layers, n_heads, n_kv_heads; /* L, H, G */
    /* the setting without budgets and grids, which stand below */
    setting setting;
    uint32_t n_budgets, n_entropy_bins, n_ppl_bins;
    double *budgets;
    double *edges_entropy, *edges_ppl; /* [E-1], [P-1] */
    struct shard_side {
        uint32_t n_actions;
        double *actions; /* the grid, ascending */
        /* [n_states] the entries of the table that it starts from; NULL where nothing is logged */
        float *start;
    } side[CKVC_SIDE_COUNT]; /* indexed by ckvc_side */
} shard_header;

/* The parts of a sequence whose queries are logged. */
typedef enum shard_part { SHARD_PROMPT, SHARD_CONTINUATION, SHARD_PARTS } shard_part;

/* The columns of a shard. Indices of prompts, baselines and records count within the shard. The
 * shard owns its arrays; shard_append makes them grow. */
typedef struct shard {
    shard_header h;
    size_t capacity[4]; /* how many rows of prompts, baselines, records and queries fit */
    size_t n_prompts;
    struct shard_prompt {
        char id[SHARD_STRING], source[SHARD_STRING], split[SHARD_STRING];
        uint32_t line, n_tokens, n_continuation;
        uint8_t cut;
        uint64_t token_hash;
        double r_struct, r_sem, loss_full;
        uint16_t bin_entropy, bin_ppl;
        /* the document of which several prompts of the run are parts; "" when the prompt is its
         * own */
        char document[SHARD_STRING];
    } * prompts;
    /* In scan and demand shards; NULL in others. All are 0 in the first demand shards, which were
     * written without them. */
    double *rho_sd, *own_recent, *own_entropy; /* [n_prompts][L][G] */
    /* For demand shards, NULL in others: how many entries each KV head and each layer takes of the
     * budget (method.md section 3). In `demand` [n_prompts][nB][L][G] and `layer_demand`
     * [n_prompts][nB][L] the weight w of the continuation's attention is 0. Demand shards with
     * features also have mixed_demand [n_prompts][SHARD_N_MIXES][nB][L][G] and mixed_layer_demand
     * [n_prompts][SHARD_N_MIXES][nB][L], where w is each of shard_mixes. length_demand and
     * mixed_length_demand have the shapes of layer_demand and mixed_layer_demand: they count the
     * slots of a layer. All of these counts are 0 in shards that were written without them, and
     * none is in others. */
    uint32_t *demand, *layer_demand, *mixed_demand, *mixed_layer_demand;
    uint32_t *length_demand, *mixed_length_demand;
    /* For score shards and demand shards with features, NULL in others (docs/method.md, section 5).
     * `mass` [n_prompts][L][G] sums, for each KV head, the largest attentions of the repeat pass;
     * `target`, of the same shape, sums the targets; `target_features` [n_prompts][L][G][F] sums
     * the positions' features weighted by their targets. `features` [n_prompts][L][G][P][F] has the
     * features of the positions that are logged. P is setting.positions: a prompt of fewer tokens
     * fills the first n_tokens rows, and a prompt of more fills all rows, of which P/2 are the
     * positions at the ends and those of the highest targets, and the others are drawn from what is
     * left. `expected_loss` [n_prompts][L][G], of score shards, is the targets' cross-entropy under
     * Expected Attention; 0 says that it was not logged, and it no longer is. */
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
    /* In demand shards whose setting.queries is above 0, else none. The rows ascend by prompt, then
     * by part, then by position. */
    size_t n_queries;
    struct shard_query {
        uint32_t prompt;
        uint8_t part;      /* a shard_part */
        uint32_t position; /* in the sequence; the continuation's begin at n_tokens */
    } * queries;
    /* [n_queries][L][H][D] float16, finite: the query vectors before the rotation */
    uint16_t *query_vectors;
} shard;

/* Returns the name by which a prompt is drawn: that of its document, whose prompts are all drawn
 * together, or else the prompt's own. */
static inline const char *shard_prompt_cluster(const struct shard_prompt *p) {
    return *p->document ? p->document : p->id;
}
/* Returns a hash of the prompt's id and tokens, by which it is known in several runs. */
static inline uint64_t shard_prompt_hash(const struct shard_prompt *p) {
    const uint64_t parts[] = {ckvc_xxh64(p->id, strlen(p->id)), p->token_hash};
    return ckvc_xxh64(parts, sizeof parts);
}

shard *shard_create(void); /* an empty shard whose header is zero */
void shard_free(shard *s);
CKVC_AUTO_OF(shard, shard_free)

void shard_header_fini(shard_header *h);
/* Copies a header with its arrays, which dst then owns; what dst had is released first. */
void shard_header_copy(shard_header *dst, const shard_header *src);
/* Takes shape, window, operator, budgets, bins, grids and start entries from a table. The arrays
 * still belong to the table. */
void shard_header_borrow(shard_header *h, const ckvc_table *table);
/* Returns the whole setting; budgets and grids are borrowed from the header. */
setting shard_setting(const shard_header *h);
/* What a pass leaves behind: SHARD_SCAN statistics of prompts, SHARD_DEMAND the demand of heads,
 * SHARD_SCORE what a learned ranking is fitted to, and SHARD_LOGGED records of a start table's
 * sides. A header whose pass has no known name counts as SHARD_LOGGED. */
typedef enum shard_kind { SHARD_LOGGED, SHARD_SCAN, SHARD_DEMAND, SHARD_SCORE } shard_kind;
shard_kind shard_kind_of(const shard_header *h);
/* The weights w for which mixed_demand is logged. */
enum { SHARD_N_MIXES = 4 };
extern const double shard_mixes[SHARD_N_MIXES];
/* Tells whether the shard has what a learned ranking is fitted to, which the first demand shards do
 * not have. */
bool shard_has_features(const shard_header *h);
/* Returns D, the length of a head's query, key and value, as the features' number tells it; 0 where
 * there are no features. */
uint32_t shard_head_dim(const shard_header *h);
typedef struct shard_pass {
    const char *name; /* "scan", "demand", "score"; of passes that log sides "head", ... */
    shard_kind kind;
    unsigned sides; /* the sides that are logged: bit i stands for side i */
} shard_pass;
/* Returns NULL when there is no such pass. */
const shard_pass *shard_pass_named(const char *name);
/* Tells whether only earlier versions of ckvc made passes of this name. SHARD_GONE are the words of
 * a message for what such a pass logged. */
bool shard_pass_gone(const char *name);
#define SHARD_GONE                                                                                 \
    "losses under other shares, or under thresholds below them, which this version of ckvc no "    \
    "longer has"
const char *shard_pass_name(shard_kind kind, unsigned sides);
/* Returns false for a shard that was made under --operator no-threshold, where every layer keeps
 * its whole budget. */
bool shard_has_thresholds(const shard_header *h);
/* Writes how many tokens a baseline row of block `budget` allows a layer in a prompt of n_tokens.
 * Returns false when the layer draws on another block: with budgets by layer, one baseline stands
 * under every block that a layer of it draws on. */
bool shard_layer_budget(const shard_header *h, uint32_t budget, uint32_t layer, uint32_t n_tokens,
                        uint32_t *tokens);

/* Add a row and return its number. The row's per-layer values (n_candidates and so on) grow with
 * it; they are zero until the caller fills them. h.n_layers must be set before, and for scans
 * h.n_kv_heads. */
size_t shard_add_prompt(shard *s, const struct shard_prompt *p);
size_t shard_add_baseline(shard *s, const struct shard_baseline *b);
size_t shard_add_record(shard *s, const struct shard_record *r);
size_t shard_add_query(shard *s, const struct shard_query *q);
/* Appends all rows of src, which has the same header, behind dst's, and shifts their prompt
 * indices. */
void shard_append(shard *dst, const shard *src);
void shard_clear(shard *s); /* drops the rows but keeps header and memory */

/* Describes a shard for `ckvc inspect`. Returns a new reference. */
json_t *shard_describe(const shard *s);
/* Prints the shard's records as lines of JSON (shard.md, "Records as lines"); `pass` is the name
 * that the run gives the pass. */
void shard_print_records(const shard *s, const char *pass, FILE *out);
