/* Depth mapping in exact integers (method.md section 9).
 *
 * Target i of m lies at i/(m-1) * (n-1) on a source axis of n: between floor(that) and its successor, with weights that are integers
 * over m-1. A single target takes every source with weight 1 over n; a single source repeats. Two axes multiply, so a value is
 * one integer over D1 * D2, rounded once, exact halves down.
 */
#include "cql/transfer.h"

#include <assert.h>

#define EXTENT_MAX 65536u
#define INDEX_MAX  65535u

/* Where one target position reads on an axis: sources begin ... begin+count-1, and their weights over `over`. With two sources
 * the weights are over - second and second, else all 1. */
typedef struct span {
    uint32_t begin, count;
    uint64_t second, over;
} span;

static span span_of(uint32_t n, uint32_t m, uint32_t i)
{
    if (m == 1)
        return (span){0, n, 0, n};
    uint64_t scaled = (uint64_t)i * (n - 1), over = m - 1;
    uint64_t rest = scaled % over;
    if (rest == 0)
        return (span){(uint32_t)(scaled / over), 1, 0, 1};
    return (span){(uint32_t)(scaled / over), 2, rest, over};
}

static uint64_t span_weight(const span *s, uint32_t k)
{
    if (!s->second)
        return 1;
    return k ? s->second : s->over - s->second;
}

static uint32_t round_half_down(uint64_t numerator, uint64_t denominator)
{
    uint64_t whole = numerator / denominator, rest = numerator % denominator;
    return (uint32_t)(whole + (rest > denominator - rest));
}

void transfer_heads(uint32_t L, uint32_t G, const uint32_t *source, uint32_t L2, uint32_t G2, uint32_t *target)
{
    assert(L >= 1 && L <= EXTENT_MAX && G >= 1 && G <= EXTENT_MAX);
    assert(L2 >= 1 && L2 <= EXTENT_MAX && G2 >= 1 && G2 <= EXTENT_MAX);
    for (uint32_t l2 = 0; l2 < L2; l2++) {
        span sl = span_of(L, L2, l2);
        for (uint32_t g2 = 0; g2 < G2; g2++) {
            span sg = span_of(G, G2, g2);
            uint64_t sum = 0; /* weights add up to the denominators (at most 2^16 each): below 2^48 */
            for (uint32_t i = 0; i < sl.count; i++)
                for (uint32_t j = 0; j < sg.count; j++) {
                    uint32_t index = source[(uint64_t)(sl.begin + i) * G + sg.begin + j];
                    assert(index <= INDEX_MAX);
                    sum += span_weight(&sl, i) * span_weight(&sg, j) * index;
                }
            target[(uint64_t)l2 * G2 + g2] = round_half_down(sum, sl.over * sg.over);
        }
    }
}

void transfer_layers(uint32_t L, uint32_t cells, const uint32_t *source, uint32_t L2, uint32_t *target)
{
    assert(L >= 1 && L <= EXTENT_MAX && L2 >= 1 && L2 <= EXTENT_MAX);
    for (uint32_t l2 = 0; l2 < L2; l2++) {
        span s = span_of(L, L2, l2);
        for (uint32_t c = 0; c < cells; c++) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i < s.count; i++) {
                uint32_t index = source[(uint64_t)(s.begin + i) * cells + c];
                assert(index <= INDEX_MAX);
                sum += span_weight(&s, i) * index;
            }
            target[(uint64_t)l2 * cells + c] = round_half_down(sum, s.over);
        }
    }
}
