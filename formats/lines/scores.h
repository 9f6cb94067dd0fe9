/* The JSON lines of `ckvc score` (scores.md): one row per prompt x budget x policy. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* Per-layer numbers of --attention-error, and quantiles (5, 25, 50, 75, 95, 99, 100%) of
 * --utilities. */
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
    char *id, *source, *document, *split; /* all but id: NULL where the manifest had none */
    char *model, *manifest, *policy; /* model: its fingerprint; manifest: SHA-256 of its bytes */
    uint64_t token_hash; /* of the prompt's tokens, whatever manifest they stand in; 0: none */
    /* Content id of the table itself (policy "table"), of the one that a control is of, or whose
     * tokens a reference keeps; "" none. */
    char table[CKVC_SHA256_HEX];
    double tau;                        /* the one threshold of a matched control, NaN elsewhere */
    uint32_t n_tokens, n_continuation; /* T, C */
    double budget;                /* >= 1 tokens, < 1 a share of T; with layer_budgets their mean */
    uint64_t layer_budgets;       /* hash of the budgets by layer; 0: all layers have the same */
    setting setting;              /* rewards of two scores (SETTING_SCORE) are not of one policy */
    double r_struct, r_sem;       /* NaN where null */
    int32_t bin_entropy, bin_ppl; /* -1 where null: no table, no bins */
    uint32_t n_layers;            /* L */
    uint32_t n_sets;              /* of a layer: 1, or G where every KV head has its own */
    uint32_t *n_candidates;       /* [L]; NULL where the policy has no threshold */
    uint32_t *n_kept, *n_kept_window; /* [L][n_sets]; n_kept_window NULL where null */
    double repeat_tokens; /* fed by a policy's second pass over the prompt; NaN: it has none */
    double later_tokens;  /* fed behind the compressed prompt, not scored; NaN: none */
    double entries;       /* kept (layer, KV head, position); NaN: files of before */
    double head_dim;      /* numbers of a key, and of a value, in the cache; NaN: files of before */
    /* Nats per token, NaN where null (C = 0, not finite); reward = -(loss_comp - loss_full). */
    double loss_full, loss_comp, reward;
    /* Of the next token, full cache against this one, nats; NaN: null, files of before. */
    double kl;
    double *attention; /* [SCORE_ATTENTION_KEYS][L]; NULL: not measured */
    uint32_t n_heads;  /* G of utility, else 0 */
    double *utility;   /* quantiles [L][G][7], then alpha's [7]; NULL: not on this line */
} score_row;

typedef struct scores {
    char *path;
    score_row *rows;
    size_t n, capacity;
} scores;

/* Reads and checks every line: unknown, missing or duplicate keys, wrong types, counts that
 * contradict each other, a reward that is not the difference of the losses, or the same prompt x
 * budget x policy twice are CKVC_E_DATA with "FILE:LINE: ...". */
ckvc_status scores_read(const char *path, scores **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Mean over its sets of the positions that a row keeps. */
double score_row_kept(const score_row *row);
void scores_free(scores *s);
CKVC_AUTO_OF(scores, scores_free)
