/* Texts from a prompt's full cache, or from what a policy keeps of it: what `ckvc generate` prints.
 *
 * A prompt is prefilled, together with others where copies of weights do not stay in memory. A
 * policy decides what stays, a sequence copies that and nothing else, and the session with the
 * whole cache is freed before the first step of decoding. Later turns are asked of the same cache,
 * after the answers. Prompts are decoded side by side, one token of each in every step; a prompt's
 * tokens do not depend on the prompts beside it. */
#pragma once

#include "judge/policies/policy_sets.h"
#include "lib/base/hash.h"

/* How the next token is chosen: it is drawn from the likeliest tokens that together have most of
 * the probability (nucleus sampling; Holtzman et al. 2020, "The curious case of neural text
 * degeneration"). A greedy choice comes from the backend (head_greedy). */
typedef struct token_choice {
    double temperature; /* 0: greedy, whatever top_p is; nothing is drawn */
    /* (0, 1]: draws from the fewest tokens whose probabilities add up to this */
    double top_p;
} token_choice;

typedef struct token_weight {
    double p;
    int32_t id;
} token_weight;

/* Draws a token by logits [vocab] at a temperature > 0, taking one number from rng. scratch is
 * [vocab]. *nll receives -log of the token's probability at temperature 1, in nats. */
int32_t token_draw(const token_choice *how, const float *logits, int32_t vocab, ckvc_rng *rng,
                   token_weight *scratch, double *nll);

typedef enum generate_end {
    GENERATE_STOP,    /* the model ended its text; the end is the last token */
    GENERATE_LENGTH,  /* it has as many tokens as were asked for */
    GENERATE_CONTEXT, /* the model's context is full */
    GENERATE_ENDS
} generate_end;
const char *generate_end_name(generate_end end); /* "stop", "length", "context" */

typedef struct generate_options {
    model *model;
    backend *be;
    const prompt_list *prompts;
    /* bytes that may be used in all; 0: three quarters of what is free */
    size_t memory;
    policy_choice choice; /* one policy under one budget, or no policy */
    bool full;            /* also, or only, generate from the full cache */
    /* [n_then] tokens of later turns, which are asked one after the other */
    const int32_t *const *then;
    /* [n_then] each >= 1; all of them count where RoPE is scaled by length */
    const size_t *then_size;
    uint32_t n_then;
    uint32_t max_new, batch;
    token_choice how; /* its seed comes from choice.setting.seed and the prompt's id */
} generate_options;

/* The result of one turn of a prompt, from one cache. */
typedef struct generated {
    const prompt *prompt;
    uint32_t turn;   /* 0: the prompt itself */
    bool compressed; /* by the policy; false: the full cache */
    bool whole;      /* compressed, but the prompt is no longer than the window, so all is kept */
    int32_t *tokens; /* [n] */
    double *nll;     /* [n] in nats */
    uint32_t n;
    generate_end end;
    uint64_t entries;   /* (layer, KV head, position) that were held of the prompt */
    size_t cache_bytes; /* bytes of these entries' keys and values */
    /* Seconds to the first token, from the group's prefill or the later turn on. NaN for a turn for
     * which the context had no room. */
    double first_s;
    double decode_s; /* of the steps that it took part in */
    double own_s;    /* its share of them, as other prompts took part, too */
} generated;

/* Is called with the results of each turn of each prompt in their order: one or two caches, the
 * full one first. The results are borrowed until it returns. CKVC_E_STOPPED after a clean stop: the
 * results that were handed over are complete. */
typedef ckvc_status (*generate_seen)(void *ctx, const generated *ways, size_t n, ckvc_err *err);
ckvc_status generate(const generate_options *o, generate_seen see, void *ctx,
                     ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the bytes that generating takes besides the model's weights, where prompts are prefilled
 * one at a time. Call it before `generate`: it also refuses what the policy cannot do
 * (policy_sets_create), before texts of the full cache are made. */
ckvc_status generate_bytes(const generate_options *o, size_t *out, ckvc_err *err) CKVC_MUST_CHECK;
