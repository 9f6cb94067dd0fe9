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

static bool has_chunk(const repeat_job *of, uint32_t at) {
    return at * chunk_of(of->pass, of->n_tokens) < of->n_tokens;
}

/* Chunk `at` of the job's prompt. */
static target_job chunk_job(const repeat_job *of, uint32_t at) {
    const repeat_pass *r = of->pass;
    const uint32_t I = r->n_instruction, chunk = chunk_of(r, of->n_tokens), first = at * chunk,
                   k = of->n_tokens - first < chunk ? of->n_tokens - first : chunk;
    memcpy(r->fed, r->instruction, I * sizeof *r->fed);
    memcpy(r->fed + I, of->tokens + first, k * sizeof *r->fed);
    return (target_job){.session = of->session,
                        .in = {.tokens = r->fed, .n = I + k, .first_row = I, .largest = true},
                        .out = at ? of->more : of->y};
}

ckvc_status repeat_targets(const repeat_job *jobs, int64_t n, ckvc_err *err) {
    target_job targets[SESSIONS_TOGETHER];
    for (uint32_t at = 0;; at++) {
        int64_t n_targets = 0;
        for (int64_t i = 0; i < n; i++) {
            if (has_chunk(&jobs[i], at)) { targets[n_targets++] = chunk_job(&jobs[i], at); }
        }
        if (n_targets == 0) { return CKVC_OK; }
        CKVC_TRY(sessions_targets(targets, n_targets, err));
        for (const repeat_job *of = jobs; at > 0 && of < jobs + n; of++) {
            const model_shape *s = of->pass->shape;
            const size_t values = (size_t)s->n_layers * (size_t)s->n_kv_heads * of->n_tokens;
            if (!has_chunk(of, at)) { continue; }
            for (size_t i = 0; i < values; i++) { of->y[i] = fmax(of->y[i], of->more[i]); }
        }
    }
}
