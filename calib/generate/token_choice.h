/* The next token, drawn from those that together have most of the probability (nucleus sampling;
 * Holtzman et al. 2020, "The curious case of neural text degeneration"). The likeliest comes from
 * the backend (head_greedy). */
#pragma once

#include "lib/base/rng.h"

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
