/* Texts from a prompt's full cache, or from what a policy keeps of it: what `ckvc generate` prints.
 *
 * A prompt is prefilled, with others where copies of weights do not stay in memory, a policy
 * decides what stays, a sequence takes that over and nothing else, and the session with the whole
 * cache is gone before the first step of decoding. Later turns are asked of the same cache, behind
 * the answers. Prompts go side by side, a token each a step; a prompt's tokens do not depend on
 * those beside it. */
#pragma once

#include "judge/policies/policy_sets.h"
#include "lib/base/hash.h"

/* The next token, drawn from those that together have most of the probability (nucleus sampling;
 * Holtzman et al. 2020, "The curious case of neural text degeneration"). The likeliest comes from
 * the backend (head_greedy). */
typedef struct token_choice {
    double temperature; /* 0: greedy, whatever top_p, and nothing is drawn */
    double top_p;       /* (0, 1]: of the fewest tokens whose probabilities add up to so much */
} token_choice;

typedef struct token_weight {
    double p;
    int32_t id;
} token_weight;

/* By logits [vocab] at a temperature > 0; of rng one number. scratch [vocab]. *nll: -log of its
 * probability at temperature 1, nats. */
int32_t token_draw(const token_choice *how, const float *logits, int32_t vocab, ckvc_rng *rng,
                   token_weight *scratch, double *nll);

typedef enum generate_end {
    GENERATE_STOP,    /* the model's own end of a text, which is the last token */
    GENERATE_LENGTH,  /* as many as were asked for */
    GENERATE_CONTEXT, /* the model's context is full */
    GENERATE_ENDS
} generate_end;
const char *generate_end_name(generate_end end); /* "stop", "length", "context" */

typedef struct generate_options {
    model *model;
    backend *be;
    const prompt_list *prompts;
    size_t memory;              /* bytes that all may take; 0: three quarters of what is free */
    policy_choice choice;       /* one policy under one budget, or none */
    bool full;                  /* the full cache: alone, or beside the policy */
    const int32_t *const *then; /* [n_then] tokens of later turns, asked one after the other */
    const size_t *then_size;    /* [n_then] >= 1; where RoPE is scaled by length, all count */
    uint32_t n_then;
    uint32_t max_new, batch;
    token_choice how; /* seeded by choice.setting.seed and the prompt's id */
} generate_options;

/* What came of one turn of a prompt in one way. */
typedef struct generated {
    const prompt *prompt;
    uint32_t turn;   /* 0: the prompt itself */
    bool compressed; /* by the policy; else the full cache */
    bool whole;      /* and all is kept: the prompt is no longer than the window */
    int32_t *tokens; /* [n] */
    double *nll;     /* [n] nats */
    uint32_t n;
    generate_end end;
    uint64_t entries;   /* (layer, KV head, position) that were held of the prompt */
    size_t cache_bytes; /* these entries' keys and values */
    /* to the first token: from the group's prefill, or the later turn's, on; NaN: of a turn that
     * the context had no room for */
    double first_s;
    double decode_s; /* of the steps that it took part in */
    double own_s;    /* its share of them, where others went along */
} generated;

/* Calls `see` with what came of each turn of each prompt in order, the full cache first: one way or
 * two. Borrowed until it returns. CKVC_E_STOPPED after a clean stop: what was seen is complete. */
typedef ckvc_status (*generate_seen)(void *ctx, const generated *ways, size_t n, ckvc_err *err);
ckvc_status generate(const generate_options *o, generate_seen see, void *ctx,
                     ckvc_err *err) CKVC_MUST_CHECK;
/* Bytes that it takes besides the model's weights, where prompts are prefilled one at a time. */
size_t generate_bytes(const generate_options *o);
