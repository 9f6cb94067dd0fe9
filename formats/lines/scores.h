/* The JSON lines of `ckvc score` (scores.md): one row for each prompt x budget x policy. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* The numbers of each layer under --attention-error, and the count of quantiles (5, 25, 50, 75, 95,
 * 99, 100%) under --utilities. */
enum {
    SCORE_EPSILON,
    SCORE_BOUND,
    SCORE_ERROR,
    SCORE_DRIFT,
    SCORE_ATTENTION_KEYS,
    SCORE_QUANTILE_COUNT = 7
};

typedef struct score_row {
    uint32_t line;                        /* 1-based */
    char *id, *source, *document, *split; /* all but id are NULL where the manifest had none */
    /* model is its fingerprint, manifest the SHA-256 of its bytes */
    char *model, *manifest, *policy;
    /* hash of the prompt's tokens, the same in whatever manifest they stand; 0 when there is
     * none */
    uint64_t token_hash;
    /* Content id of the table itself (policy "table"), of the table that a control was made from,
     * or, for a reference, of the table whose numbers of tokens it keeps; "" when there is none. */
    char table[CKVC_SHA256_HEX];
    /* the one threshold of a matched control; NaN for other policies */
    double tau;
    uint32_t n_tokens, n_continuation; /* T, C */
    /* tokens from 1 up, below 1 a share of T; with layer_budgets their mean */
    double budget;
    /* hash of the budgets by layer; 0 when all layers have the same */
    uint64_t layer_budgets;
    /* rewards under two SETTING_SCORE settings do not belong to one policy */
    setting setting;
    double r_struct, r_sem; /* NaN where the line has null */
    /* -1 where the line has null, because there is no table or it has no bins */
    int32_t bin_entropy, bin_ppl;
    uint32_t n_layers;      /* L */
    uint32_t n_sets;        /* sets of a layer: 1, or G where every KV head has its own */
    uint32_t *n_candidates; /* [L]; NULL when the policy has no threshold */
    /* [L][n_sets]; n_kept_window is NULL where the line has null */
    uint32_t *n_kept, *n_kept_window;
    /* tokens fed by a policy's second pass over the prompt; NaN when it has no such pass */
    double repeat_tokens;
    /* tokens fed behind the compressed prompt that are not scored; NaN when there are none */
    double later_tokens;
    /* how many (layer, KV head, position) are kept; NaN in files of earlier versions */
    double entries;
    /* how many numbers a key (and a value) has in the cache; NaN in files of earlier versions */
    double head_dim;
    /* Nats per token; NaN where the line has null (C = 0, or not finite). reward = -(loss_comp -
     * loss_full). */
    double loss_full, loss_comp, reward;
    /* KL(full || this cache) of the next token, in nats; NaN where the line has null, and in files
     * of earlier versions. */
    double kl;
    double *attention; /* [SCORE_ATTENTION_KEYS][L]; NULL when not measured */
    uint32_t n_heads;  /* G, for `utility`; else 0 */
    /* quantiles [L][G][7], then those of alpha [7]; NULL when this line has none */
    double *utility;
} score_row;

typedef struct scores {
    char *path;
    score_row *rows;
    size_t n, capacity;
} scores;

/* Reads and checks every line. Unknown, missing or duplicate keys, wrong types, counts that
 * contradict each other, a reward that is not the difference of the losses, and the same prompt x
 * budget x policy twice are CKVC_E_DATA "FILE:LINE: ...". */
ckvc_status scores_read(const char *path, scores **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns how many positions a row keeps, as the mean over its sets. */
double score_row_kept(const score_row *row);
void scores_free(scores *s);
CKVC_AUTO_OF(scores, scores_free)
