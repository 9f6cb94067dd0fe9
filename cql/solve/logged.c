/* See logged.h. */
#include "cql/solve/logged.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/counts.h"
#include "lib/base/memory.h"
#include "lib/base/hash.h"
#include "lib/base/sizes.h"

#define NO_BLOCK UINT32_MAX

ckvc_status cql_logged_create(size_t n_states, size_t n_actions, bool with_part, size_t memory_max,
                              cql_logged **out, ckvc_err *err) {
    *out = NULL;
    size_t states = 0;
    CKVC_FAIL_IF(!ckvc_mul_size(n_states + 1, sizeof(size_t) + sizeof(uint32_t), &states) ||
                     states > memory_max,
                 err, CKVC_E_MEMORY,
                 "%zu states are more than the %zu bytes allowed for records hold", n_states,
                 memory_max);
    cql_logged *l = ckvc_calloc(1, sizeof *l);
    l->n_states = n_states;
    l->n_actions = n_actions;
    l->with_part = with_part;
    l->memory_max = memory_max;
    l->latest = ckvc_alloc(n_states, sizeof *l->latest);
    l->first = ckvc_calloc(n_states + 1, sizeof *l->first);
    memset(l->latest, 0xff, n_states * sizeof *l->latest);
    *out = l;
    return CKVC_OK;
}

void cql_logged_free(cql_logged *l) {
    if (!l) { return; }
    CKVC_FREE(l->key, l->cluster, l->blocks, l->n, l->sum, l->part, l->first, l->order, l->latest,
              l);
}

void cql_logged_prompt(cql_logged *l, const char *id) {
    assert(l->n_prompts < NO_BLOCK);
    CKVC_GROW(l->key, l->cap_prompts, l->n_prompts + 1);
    l->key[l->n_prompts++] = ckvc_rng_key(id);
}

static ckvc_status grow_blocks(cql_logged *l, ckvc_err *err) {
    size_t want = l->cap_blocks > 0 ? 2 * l->cap_blocks : 256, cells = 0, bytes = 0;
    size_t per = sizeof *l->n + sizeof *l->sum + (l->with_part ? sizeof *l->part : 0);
    size_t blocks = want * (sizeof *l->blocks + sizeof *l->order);
    CKVC_FAIL_IF(want >= NO_BLOCK || !ckvc_mul_size(want, l->n_actions, &cells) ||
                     !ckvc_mul_size(cells, per, &bytes) || bytes + blocks > l->memory_max,
                 err, CKVC_E_MEMORY, "records of %zu prompts need more than the %zu bytes allowed",
                 l->n_prompts, l->memory_max);
    l->blocks = ckvc_realloc_array(l->blocks, want, sizeof *l->blocks);
    l->n = ckvc_realloc_array(l->n, cells, sizeof *l->n);
    l->sum = ckvc_realloc_array(l->sum, cells, sizeof *l->sum);
    if (l->with_part) { l->part = ckvc_realloc_array(l->part, cells, sizeof *l->part); }
    l->cap_blocks = want;
    return CKVC_OK;
}

ckvc_status cql_logged_add(cql_logged *l, size_t state, size_t action, double advantage,
                           double part, double baseline, ckvc_err *err) {
    assert(state < l->n_states && action < l->n_actions && l->n_prompts > 0);
    CKVC_FAIL_IF(!(fabs(advantage) <= CQL_MAX_REWARD) || !(fabs(part) <= CQL_MAX_REWARD) ||
                     !(fabs(baseline) <= CQL_MAX_REWARD),
                 err, CKVC_E_DATA,
                 "an advantage of %.17g (loss part %.17g, baseline %.17g) nats per token; "
                 "wanted magnitudes up to %g",
                 advantage, part, baseline, CQL_MAX_REWARD);
    size_t A = l->n_actions, prompt = l->n_prompts - 1, i = l->latest[state];
    if (i == NO_BLOCK || l->blocks[i].prompt != prompt) {
        if (l->n_blocks == l->cap_blocks) { CKVC_TRY(grow_blocks(l, err)); }
        i = l->n_blocks++;
        l->latest[state] = (uint32_t)i;
        l->blocks[i] = (cql_block){.prompt = (uint32_t)prompt, .state = (uint32_t)state};
        memset(l->n + i * A, 0, A * sizeof *l->n);
        memset(l->sum + i * A, 0, A * sizeof *l->sum);
        if (l->part) { memset(l->part + i * A, 0, A * sizeof *l->part); }
    }
    uint64_t before = 0;
    for (size_t a = 0; a < A; ++a) { before += l->n[i * A + a]; }
    l->blocks[i].baseline += (baseline - l->blocks[i].baseline) / (double)(before + 1);
    l->n[i * A + action]++;
    l->sum[i * A + action] += advantage;
    if (l->part) { l->part[i * A + action] += part; }
    l->n_records++;
    return CKVC_OK;
}

void cql_logged_finish(cql_logged *l) {
    l->cluster = ckvc_alloc(l->n_prompts, sizeof *l->cluster);
    l->n_clusters = resample_clusters(l->key, l->n_prompts, l->cluster);
    l->order = ckvc_alloc(l->n_blocks, sizeof *l->order);
    /* A stable counting sort by state, in which prompts stay in their order. */
    for (size_t i = 0; i < l->n_blocks; ++i) { l->first[l->blocks[i].state + 1]++; }
    for (size_t s = 0; s < l->n_states; ++s) { l->first[s + 1] += l->first[s]; }
    for (size_t i = 0; i < l->n_blocks; ++i) {
        l->order[l->first[l->blocks[i].state]++] = (uint32_t)i;
    }
    memmove(l->first + 1, l->first, l->n_states * sizeof *l->first);
    l->first[0] = 0;
    l->balanced = l->n_blocks > 0;
    for (size_t i = 0; l->balanced && i < l->n_blocks * l->n_actions; ++i) {
        l->balanced = l->n[i] == l->n[i / l->n_actions * l->n_actions];
    }
    free(l->latest);
    l->latest = NULL;
}

size_t cql_logged_prompts(const cql_logged *l, size_t state) {
    return l->first[state + 1] - l->first[state];
}

size_t cql_logged_state(const cql_logged *l, size_t state, const uint8_t *weight, cql_reward reward,
                        double scale, uint64_t *n, double *mean) {
    size_t A = l->n_actions, prompts = 0;
    const double *sums = reward == CQL_LOSS_PART && l->part ? l->part : l->sum;
    memset(n, 0, A * sizeof *n);
    memset(mean, 0, A * sizeof *mean);
    for (size_t k = l->first[state]; k < l->first[state + 1]; ++k) {
        size_t i = l->order[k];
        const cql_block *b = &l->blocks[i];
        uint64_t w = weight ? weight[b->prompt] : 1;
        if (w == 0) { continue; }
        const uint32_t *bn = l->n + i * A;
        const double *bs = sums + i * A;
        double base = reward == CQL_RAW ? b->baseline : 0.0, dw = (double)w;
        prompts++;
        for (size_t a = 0; a < A; ++a) {
            n[a] += w * bn[a];
            mean[a] += dw * (bs[a] + base * (double)bn[a]);
        }
    }
    for (size_t a = 0; a < A; ++a) { mean[a] = n[a] > 0 ? mean[a] / (double)n[a] / scale : 0.0; }
    return prompts;
}

int cql_logged_choice(const cql_logged *l, size_t state, const uint8_t *weight,
                      const cql_fit *fit) {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    if (cql_logged_state(l, state, weight, fit->reward, fit->scale, n, mean) == 0) { return -1; }
    return cql_choice(&fit->actions, n, mean, fit->cql_alpha);
}

uint8_t *cql_logged_weights(const cql_logged *l, uint32_t n_replicates, resample_kind kind,
                            uint64_t seed) {
    CKVC_AUTO_FREE uint8_t *one = ckvc_alloc(n_replicates, 1);
    uint8_t *weight = ckvc_alloc(l->n_prompts, n_replicates);
    for (size_t p = 0; p < l->n_prompts; ++p) {
        resample_weights(seed, l->key[p], kind, n_replicates, one);
        for (uint32_t r = 0; r < n_replicates; ++r) {
            weight[(size_t)r * l->n_prompts + p] = one[r];
        }
    }
    return weight;
}

static size_t state_of(const cql_resampled *s, uint32_t r, size_t state, uint64_t *n,
                       double *mean) {
    const cql_logged *l = s->store;
    const uint8_t *weight = r == CQL_SAMPLE ? NULL : s->weight + (size_t)r * l->n_prompts;
    const size_t prompts = cql_logged_state(l, state, weight, s->reward, s->scale, n, mean);
    if (r != CQL_SAMPLE) { return prompts; }
    CKVC_AUTO_FREE uint64_t *keys = ckvc_alloc(prompts, sizeof *keys);
    for (size_t k = 0; k < prompts; ++k) {
        keys[k] = l->key[l->blocks[l->order[l->first[state] + k]].prompt];
    }
    return resample_clusters(keys, prompts, NULL);
}

cql_resampled cql_logged_resampled(const cql_logged *l, const uint8_t *weight,
                                   uint32_t n_replicates, cql_reward reward, double scale) {
    return (cql_resampled){.store = l,
                           .weight = weight,
                           .n_states = l->n_states,
                           .n_actions = l->n_actions,
                           .n_replicates = n_replicates,
                           .reward = reward,
                           .scale = scale,
                           .state = state_of};
}
