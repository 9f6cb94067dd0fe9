/* The repeat pass: see repeat_pass.h. */
#include "calib/demand/repeat_pass.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 2048 }; /* tokens, where twice the prompt does not fit the context */

/* Prompt tokens that are fed at a time. */
static uint32_t chunk_of(const repeat_pass *r, uint32_t n_tokens) {
    const int64_t whole = 2 * (int64_t)n_tokens + r->n_instruction;
    return whole <= model_shape_context(r->shape) || n_tokens < CHUNK ? n_tokens : CHUNK;
}

int64_t repeat_longest(int64_t context, uint32_t n_instruction) {
    const int64_t room = context - n_instruction, chunked = room - CHUNK;
    return chunked > room / 2 ? chunked : room / 2;
}

uint32_t repeat_fed(const repeat_pass *r, uint32_t n_tokens) {
    return r->n_instruction + chunk_of(r, n_tokens);
}

uint32_t repeat_most_fed(const repeat_pass *r, const prompt_list *prompts) {
    uint32_t most = 0;
    for (size_t i = 0; i < prompts->n; i++) {
        const uint32_t fed = repeat_fed(r, prompts->items[i].n_tokens);
        most = fed > most ? fed : most;
    }
    return most;
}

uint32_t repeat_tokens(const repeat_pass *r, uint32_t n_tokens) {
    const uint32_t chunk = chunk_of(r, n_tokens);
    return n_tokens + (n_tokens + chunk - 1) / chunk * r->n_instruction;
}

ckvc_status repeat_targets(const repeat_pass *r, session *s, const int32_t *tokens,
                           uint32_t n_tokens, double *y, double *more, ckvc_err *err) {
    const uint32_t I = r->n_instruction, chunk = chunk_of(r, n_tokens);
    const size_t n = (size_t)r->shape->n_layers * (size_t)r->shape->n_kv_heads * n_tokens;
    memcpy(r->fed, r->instruction, I * sizeof *r->fed);
    for (uint32_t first = 0; first < n_tokens; first += chunk) {
        const uint32_t k = n_tokens - first < chunk ? n_tokens - first : chunk;
        memcpy(r->fed + I, tokens + first, k * sizeof *r->fed);
        const target_input in = {.tokens = r->fed,
                                 .n = I + k,
                                 .first_row = r->instruction_counts ? 0 : I,
                                 .largest = true};
        CKVC_TRY(session_targets(s, &in, first ? more : y, err));
        for (size_t i = 0; first && i < n; i++) { y[i] = fmax(y[i], more[i]); }
    }
    return CKVC_OK;
}
