/* KVzip's reconstruction: see reconstruction.h. */
#include "judge/policies/rules/reconstruction.h"

#include <string.h>

enum { CHUNK = 2048, SINKS = 4, BEFORE = 8 };

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t chunk_of(const reconstruction_texts *x) { return x->chunk ? x->chunk : CHUNK; }

/* The number of tokens in front of a chunk that begins here. */
static uint32_t lead_of(const reconstruction_texts *x, uint32_t start) {
    return start == 0 ? x->n_first : x->n_later + min_u32(BEFORE, chunk_of(x));
}

int64_t reconstruction_longest(const reconstruction_texts *x, int64_t context) {
    const int64_t chunk = chunk_of(x), twice = (context - x->n_first) / 2, later = lead_of(x, 1),
                  chunked = context - chunk - (later > x->n_first ? later : x->n_first);
    return chunked > chunk ? chunked : twice < chunk ? twice : chunk;
}

uint32_t reconstruction_fed(const reconstruction_texts *x, uint32_t n_tokens) {
    const uint32_t chunk = chunk_of(x), first = x->n_first + min_u32(n_tokens, chunk),
                   rest = n_tokens > chunk ? min_u32(n_tokens - chunk, chunk) + lead_of(x, 1) : 0;
    return first > rest ? first : rest;
}

uint32_t reconstruction_tokens(const reconstruction_texts *x, uint32_t n_tokens) {
    const uint32_t chunk = chunk_of(x);
    return n_tokens + x->n_first + (n_tokens - 1) / chunk * lead_of(x, 1);
}

uint32_t reconstruction_among(const reconstruction_texts *x, uint32_t max_tokens) {
    return max_tokens > chunk_of(x) ? min_u32(SINKS + chunk_of(x), max_tokens) : 0;
}

/* Writes to r->fed what is fed for positions start ... start + k - 1. Returns the number of
 * tokens. */
static uint32_t collect_chunk(const reconstruction *r, const int32_t *tokens, uint32_t start,
                              uint32_t k) {
    const reconstruction_texts *x = &r->texts;
    const uint32_t lead = lead_of(x, start), said = start ? x->n_later : x->n_first;
    memcpy(r->fed, start ? x->later : x->first, said * sizeof *r->fed);
    memcpy(r->fed + said, tokens + start - (lead - said), (lead - said + k) * sizeof *r->fed);
    return lead + k;
}

ckvc_status reconstruct(const reconstruction *r, session *on, const int32_t *tokens,
                        uint32_t n_tokens, double *s, double *scratch, ckvc_err *err) {
    const uint32_t chunk = chunk_of(&r->texts);
    target_input in = {.tokens = r->fed, .largest = true};
    if (n_tokens <= chunk) {
        in.n = collect_chunk(r, tokens, 0, n_tokens);
        return sessions_targets(&(target_job){on, in, s}, 1, err);
    }
    for (uint32_t start = 0; start < n_tokens; start += chunk) {
        const uint32_t k = min_u32(chunk, n_tokens - start), sinks = min_u32(SINKS, start),
                       n = sinks + k, offsets[] = {0, n};
        for (uint32_t i = 0; i < n; i++) { r->positions[i] = i < sinks ? i : start + i - sinks; }
        in.n = collect_chunk(r, tokens, start, k);
        in.counted = &(kept_set){1, offsets, r->positions, false, {0}};
        CKVC_TRY(sessions_targets(&(target_job){on, in, scratch}, 1, err));
        for (size_t u = 0; u < r->n_units; u++) {
            memcpy(s + u * n_tokens + start, scratch + u * n + sinks, k * sizeof *s);
        }
    }
    return CKVC_OK;
}
