/* Inside of lib/model: the cache of the prompt that a session has prefilled, for who takes over
 * what is kept of it. Borrowed from the session until its next prefill. */
#pragma once

#include "lib/model/model.h"

typedef struct prompt_cache {
    model *m;
    const be_cache *layers;    /* [L] */
    int64_t n_tokens, n_total; /* T; what the frequencies are for (prefill_input) */
    const double *inv_freq;    /* [D/2] */
} prompt_cache;
prompt_cache session_prompt(const session *s);
