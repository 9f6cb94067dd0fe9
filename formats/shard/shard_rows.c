/* Shard rows in memory: growing, appending, checking. */
#include "formats/shard/shard_rows.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/sizes.h"
#include "lib/policy/ckvc_policy.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- names and types ---- */
#define P(name, type, field, required)                                                             \
    { name, type, offsetof(struct shard_prompt, field), required }
static const shard_column prompt_columns[] = {
    P("id", SHARD_TEXT, id, true),
    P("source", SHARD_TEXT, source, false),
    P("split", SHARD_TEXT, split, false),
    P("line", SHARD_U32, line, false),
    P("n_tokens", SHARD_U32, n_tokens, false),
    P("n_continuation", SHARD_U32, n_continuation, false),
    P("cut", SHARD_U8, cut, false),
    P("token_hash", SHARD_U64, token_hash, false),
    P("r_struct", SHARD_F64, r_struct, false),
    P("r_sem", SHARD_F64, r_sem, false),
    P("loss_full", SHARD_F64, loss_full, false),
    P("bin_entropy", SHARD_U16, bin_entropy, true),
    P("bin_perplexity", SHARD_U16, bin_ppl, true),
};
#undef P
static const shard_wide prompt_wide[] = {
    {"rho_sd", SHARD_F64, offsetof(shard, rho_sd), 3},
    {"own_recent", SHARD_F64, offsetof(shard, own_recent), 3},
    {"own_entropy", SHARD_F64, offsetof(shard, own_entropy), 3},
};
#define B(name, type, field)                                                                       \
    { name, type, offsetof(struct shard_baseline, field), true }
static const shard_column baseline_columns[] = {
    B("prompt", SHARD_U32, prompt),
    B("budget", SHARD_U16, budget),
    B("loss", SHARD_F64, loss),
};
#undef B
static const shard_wide baseline_wide[] = {
    {"n_candidates", SHARD_U32, offsetof(shard, n_candidates), 2},
    {"n_kept", SHARD_U32, offsetof(shard, n_kept), 2},
    {"n_kept_window", SHARD_U32, offsetof(shard, n_kept_window), 2},
    {"n_candidates_lo", SHARD_U32, offsetof(shard, n_candidates_lo), 2},
    {"n_candidates_hi", SHARD_U32, offsetof(shard, n_candidates_hi), 2},
};
#define R(name, type, field, required)                                                             \
    { name, type, offsetof(struct shard_record, field), required }
static const shard_column record_columns[] = {
    R("prompt", SHARD_U32, prompt, true),  R("side", SHARD_U8, side, true),
    R("layer", SHARD_U16, layer, true),    R("head", SHARD_U16, head, true),
    R("budget", SHARD_U16, budget, true),  R("action", SHARD_U8, action, true),
    R("reward", SHARD_F64, reward, true),  R("baseline", SHARD_F64, baseline, true),
    R("loss", SHARD_F64, loss, true),      R("n_candidates", SHARD_U32, n_candidates, false),
    R("n_kept", SHARD_U32, n_kept, false), R("set_hash", SHARD_U64, set_hash, false),
};
#undef R
const shard_group shard_groups[SHARD_GROUPS] = {
    {"prompt", prompt_columns, COUNT(prompt_columns), prompt_wide, COUNT(prompt_wide), true,
     sizeof(struct shard_prompt), offsetof(shard, prompts), offsetof(shard, n_prompts),
     SHARD_MAX_PROMPTS},
    {"baseline", baseline_columns, COUNT(baseline_columns), baseline_wide, COUNT(baseline_wide),
     false, sizeof(struct shard_baseline), offsetof(shard, baselines), offsetof(shard, n_baselines),
     SHARD_MAX_BASELINES},
    {"record", record_columns, COUNT(record_columns), NULL, 0, false, sizeof(struct shard_record),
     offsetof(shard, records), offsetof(shard, n_records), SHARD_MAX_RECORDS},
};

#define T(name, optional)                                                                          \
    { #name, offsetof(shard_header, name), sizeof(((shard_header *)0)->name), optional }
const shard_attribute shard_text_attributes[SHARD_TEXT_ATTRIBUTES] = {
    T(ckvc_version, false),
    T(plan, false),
    T(fingerprint, false),
    T(manifest, false),
    T(model_name, false),
    T(family, false),
    T(pass, false),
    T(behaviour, false),
    T(alpha_kind, false),
    {"operator", offsetof(shard_header, operator_name), sizeof(((shard_header *)0)->operator_name),
     true},
    T(compute, true),
};
#undef T
#define U(name, optional)                                                                          \
    { #name, offsetof(shard_header, name), 0, optional }
const shard_attribute shard_u32_attributes[SHARD_U32_ATTRIBUTES] = {
    U(n_layers, false), U(n_heads, false),      U(n_kv_heads, false),
    U(window, false),   U(continuation, false), U(keep_window, true),
};
#undef U
#define A(name, type, field, count, extra, table)                                                  \
    {                                                                                              \
        name, type, offsetof(shard_header, field), offsetof(shard_header, count), extra, table,    \
            false                                                                                  \
    }
const shard_array shard_arrays[SHARD_ARRAYS] = {
    A("budgets", SHARD_F64, budgets, n_budgets, 0, false),
    A("head_actions", SHARD_F64, side[CKVC_SIDE_HEAD].actions, side[CKVC_SIDE_HEAD].n_actions, 0,
      false),
    A("gate_actions", SHARD_F64, side[CKVC_SIDE_GATE].actions, side[CKVC_SIDE_GATE].n_actions, 0,
      false),
    A("edges_entropy", SHARD_F64, edges_entropy, n_entropy_bins, 1, false),
    A("edges_perplexity", SHARD_F64, edges_ppl, n_ppl_bins, 1, false),
    A("start_weight", SHARD_F32, side[CKVC_SIDE_HEAD].start, n_kv_heads, 0, true),
    A("start_tau", SHARD_F32, side[CKVC_SIDE_GATE].start, n_kv_heads, 0, true),
    {"layer_budgets", SHARD_F64, offsetof(shard_header, layer_budgets),
     offsetof(shard_header, n_layer_budgets), 0, false, true},
};
#undef A

size_t shard_type_size(shard_type type) {
    static const size_t size[] = {1, 2, 4, 8, 4, 8, SHARD_STRING};
    return size[type];
}

bool shard_is_scan(const shard_header *h) {
    return strcmp(h->pass, "scan") == 0;
}

int shard_array_dims(const shard_header *h, const shard_array *a, size_t dims[4]) {
    if (!a->table) {
        uint32_t count = *(const uint32_t *)(const void *)((const char *)h + a->count_offset);
        dims[0] = count ? count - a->extra : 0;
        return count ? 1 : 0;
    }
    if (*(void *const *)(const void *)((const char *)h + a->offset) == NULL) { return 0; }
    dims[0] = h->n_layers;
    if (a->offset == offsetof(shard_header, side[CKVC_SIDE_HEAD].start)) {
        dims[1] = h->n_kv_heads;
        dims[2] = h->n_budgets;
        return 3;
    }
    dims[1] = h->n_entropy_bins;
    dims[2] = h->n_ppl_bins;
    dims[3] = h->n_budgets;
    return 4;
}

bool shard_has_thresholds(const shard_header *h) {
    return strcmp(h->operator_name, ckvc_operator_name(CKVC_OPERATOR_NO_THRESHOLD)) != 0;
}

bool shard_layer_budget(const shard_header *h, uint32_t budget, uint32_t layer, uint32_t n_tokens,
                        uint32_t *tokens) {
    const double of_layer = h->layer_budgets ? h->layer_budgets[layer] : h->budgets[budget];
    *tokens = ckvc_budget_tokens(of_layer, n_tokens);
    return !h->layer_budgets ||
           ckvc_nearest_budget(h->budgets, h->n_budgets, of_layer, n_tokens) == budget;
}

/* ---- the struct ---- */
void shard_header_borrow(shard_header *h, const ckvc_table *t) {
    h->n_layers = t->n_layers;
    h->n_kv_heads = t->n_heads;
    h->window = t->window;
    h->n_budgets = t->n_budgets;
    h->n_entropy_bins = t->n_entropy_bins;
    h->n_ppl_bins = t->n_ppl_bins;
    h->budgets = t->budgets;
    h->edges_entropy = t->edges_entropy;
    h->edges_ppl = t->edges_ppl;
    h->side[CKVC_SIDE_HEAD] = (struct shard_side){t->n_head_actions, t->head_grid, t->weight};
    h->side[CKVC_SIDE_GATE] = (struct shard_side){t->n_gate_actions, t->gate_grid, t->tau};
    snprintf(h->operator_name, sizeof h->operator_name, "%s",
             t->op ? ckvc_operator_name(t->op) : "");
}

shard *shard_create(void) {
    return ckvc_calloc(1, sizeof(shard));
}

void shard_header_fini(shard_header *h) {
    free(h->budgets);
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        free(h->side[s].actions);
        free(h->side[s].start);
    }
    free(h->edges_entropy);
    free(h->edges_ppl);
    free(h->layer_budgets);
    *h = (shard_header){0};
}

void shard_free(shard *s) {
    if (!s) { return; }
    shard_header_fini(&s->h);
    free(s->prompts);
    free(s->rho_sd);
    free(s->own_recent);
    free(s->own_entropy);
    free(s->baselines);
    free(s->n_candidates);
    free(s->n_kept);
    free(s->n_kept_window);
    free(s->n_candidates_lo);
    free(s->n_candidates_hi);
    free(s->records);
    free(s);
}

void shard_clear(shard *s) {
    s->n_prompts = s->n_baselines = s->n_records = 0;
}

ckvc_status shard_header_copy(shard_header *dst, const shard_header *src, ckvc_err *err) {
    shard_header copy = *src;
    for (size_t i = 0; i < SHARD_ARRAYS; i++) { /* the plain copy owns nothing yet */
        *(void **)(void *)((char *)&copy + shard_arrays[i].offset) = NULL;
    }
    for (size_t i = 0; i < SHARD_ARRAYS; i++) {
        const shard_array *a = &shard_arrays[i];
        const void *from = *(void *const *)(const void *)((const char *)src + a->offset);
        size_t dims[4];
        int rank = shard_array_dims(src, a, dims);
        if (rank == 0 || !from) { continue; }
        size_t n = shard_type_size(a->type);
        for (int d = 0; d < rank; d++) {
            if (!ckvc_mul_size(n, dims[d], &n)) {
                shard_header_fini(&copy);
                return ckvc_fail_memory(err, a->name, SIZE_MAX);
            }
        }
        void *to = ckvc_alloc(n, 1);
        memcpy(to, from, n);
        *(void **)(void *)((char *)&copy + a->offset) = to;
    }
    shard_header_fini(dst);
    *dst = copy;
    return CKVC_OK;
}

static size_t wide_values(const shard_header *h, const shard_wide *w) {
    return (size_t)h->n_layers * (w->rank == 3 ? h->n_kv_heads : 1);
}

ckvc_status shard_reserve(shard *s, int group, size_t rows, ckvc_err *err) {
    const shard_group *g = &shard_groups[group];
    size_t *capacity = group == 0   ? &s->cap_prompts
                       : group == 1 ? &s->cap_baselines
                                    : &s->cap_records;
    if (rows <= *capacity) { return CKVC_OK; }
    size_t want = *capacity > 8 ? *capacity * 2 : 16;
    want = want < rows ? rows : want;
    void **array = (void **)(void *)((char *)s + g->rows_offset);
    void *grown = ckvc_realloc_array(*array, want, g->row_size);
    *array = grown;
    for (size_t i = 0; i < g->n_wide; i++) {
        if (g->wide_scan_only && !shard_is_scan(&s->h)) { break; }
        const shard_wide *w = &g->wide[i];
        size_t row = wide_values(&s->h, w) * shard_type_size(w->type);
        array = (void **)(void *)((char *)s + w->offset);
        grown = ckvc_realloc_array(*array, want, row);
        *array = grown;
    }
    *capacity = want;
    return CKVC_OK;
}

/* Adds one row to a group, its wide values zero. */
static ckvc_status add_row(shard *s, int group, const void *row, size_t *index, ckvc_err *err) {
    const shard_group *g = &shard_groups[group];
    size_t *count = (size_t *)(void *)((char *)s + g->count_offset);
    ckvc_status st = shard_reserve(s, group, *count + 1, err);
    if (st != CKVC_OK) { return st; }
    memcpy(*(char **)(void *)((char *)s + g->rows_offset) + *count * g->row_size, row, g->row_size);
    for (size_t i = 0; i < g->n_wide; i++) {
        const shard_wide *w = &g->wide[i];
        char *values = *(char **)(void *)((char *)s + w->offset);
        size_t bytes = wide_values(&s->h, w) * shard_type_size(w->type);
        if (values) { memset(values + *count * bytes, 0, bytes); }
    }
    if (index) { *index = *count; }
    ++*count;
    return CKVC_OK;
}

ckvc_status shard_add_prompt(shard *s, const struct shard_prompt *p, size_t *index, ckvc_err *err) {
    return add_row(s, 0, p, index, err);
}

ckvc_status shard_add_baseline(shard *s, const struct shard_baseline *b, size_t *index,
                               ckvc_err *err) {
    return add_row(s, 1, b, index, err);
}

ckvc_status shard_add_record(shard *s, const struct shard_record *r, ckvc_err *err) {
    return add_row(s, 2, r, NULL, err);
}

ckvc_status shard_append(shard *dst, const shard *src, ckvc_err *err) {
    assert(dst->h.n_layers == src->h.n_layers && dst->h.n_kv_heads == src->h.n_kv_heads);
    assert(shard_is_scan(&dst->h) == shard_is_scan(&src->h));
    uint32_t shift = (uint32_t)dst->n_prompts;
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        size_t *count = (size_t *)(void *)((char *)dst + g->count_offset);
        size_t more = *(const size_t *)(const void *)((const char *)src + g->count_offset);
        ckvc_status st = shard_reserve(dst, k, *count + more, err);
        if (st != CKVC_OK) { return st; }
    }
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        size_t *count = (size_t *)(void *)((char *)dst + g->count_offset);
        size_t more = *(const size_t *)(const void *)((const char *)src + g->count_offset);
        if (more == 0) { continue; }
        char *rows = *(char **)(void *)((char *)dst + g->rows_offset) + *count * g->row_size;
        memcpy(rows, *(char *const *)(const void *)((const char *)src + g->rows_offset),
               more * g->row_size);
        for (size_t i = 0; i < g->n_wide; i++) {
            const shard_wide *w = &g->wide[i];
            size_t bytes = wide_values(&dst->h, w) * shard_type_size(w->type);
            const char *from = *(char *const *)(const void *)((const char *)src + w->offset);
            if (from) {
                memcpy(*(char **)(void *)((char *)dst + w->offset) + *count * bytes, from,
                       more * bytes);
            }
        }
        for (size_t i = 0; i < more; i++) {
            if (k == 1) {
                dst->baselines[*count + i].prompt += shift;
            } else if (k == 2) {
                dst->records[*count + i].prompt += shift;
            }
        }
        *count += more;
    }
    return CKVC_OK;
}
