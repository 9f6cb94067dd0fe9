/* ChunkKV: ranks by SnapKV's scores of 32 rows, the mean of 5 positions, summed over the heads of a
 * layer. It keeps whole chunks of 10 positions by their mean score, in one set for each layer. The
 * window has a score above all others and survives with its chunks. The number of chunks kept is to
 * that of all chunks as B is to T, rounded down, at least one. Chunks begin at position 0; the last
 * may be shorter. */
#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

enum { WINDOW = 32, CHUNK = 10 };

/* s [G][T] of a layer: the scores of head 0 become the means of the chunks. */
static void chunk_means(uint32_t G, uint32_t T, double *s) {
    const uint32_t before = T - rule_min(T, WINDOW);
    double most = 0;
    for (uint32_t i = 0; i < G * T; i++) {
        if (i % T < before && s[i] > most) { most = s[i]; }
    }
    for (uint32_t first = 0; first < T; first += CHUNK) {
        const uint32_t end = rule_min(first + CHUNK, T);
        double sum = 0;
        for (uint32_t t = first; t < end; t++) {
            for (uint32_t g = 0; g < G; g++) { sum += t < before ? s[g * T + t] : most + 1; }
        }
        for (uint32_t t = first; t < end; t++) { s[t] = sum / (end - first); }
    }
}

static ckvc_status score_prompt(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self, (void)err;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        chunk_means(p->n_heads, p->n_tokens, p->s + (size_t)l * p->n_heads * p->n_tokens);
    }
    return CKVC_OK;
}

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t T = a->n_tokens, chunks = (T + CHUNK - 1) / CHUNK, last = (chunks - 1) * CHUNK,
                   whole = (uint32_t)((uint64_t)chunks * rule_min(a->budget, T) / T),
                   kept = whole ? whole : 1;
    for (uint32_t l = 0; l < a->n_layers; l++) {
        const double *s = a->s + (size_t)l * a->n_heads * T;
        /* chunks that rank above the last one, which comes first among equals */
        uint32_t above = 0;
        for (uint32_t t = 0; t < last; t += CHUNK) { above += s[t] > s[last]; }
        allot_layer(a, l, above < kept ? (kept - 1) * CHUNK + T - last : kept * CHUNK, c);
    }
}

const policy_rule rule_chunkkv = {
    .score = {.on_head = window_see_mean, .finish = score_prompt, .window = WINDOW, .pool = 5},
    .allot = fill_capacities};
