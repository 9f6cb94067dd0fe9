/* The next token by its logits: the likeliest, or one drawn from those that together have most of
 * the probability (nucleus sampling; Holtzman et al. 2020, "The curious case of neural text
 * degeneration"). */
#pragma once

#include "lib/base/rng.h"

typedef struct token_choice {
    double temperature; /* 0: greedy, whatever top_p */
    double top_p;       /* (0, 1]: of the fewest tokens whose probabilities add up to so much */
} token_choice;

typedef struct token_weight {
    double p;
    int32_t id;
} token_weight;

/* Of logits [vocab], of which the first of equal largest ones is the likeliest. Draws one number of
 * rng, none when greedy. scratch [vocab]. *nll: -log of its probability at temperature 1, nats. */
int32_t token_choose(const token_choice *how, const float *logits, int32_t vocab, ckvc_rng *rng,
                     token_weight *scratch, double *nll);
