/* A shard in memory: see shard.h. What its arrays are is told by the tables of shard_schema.h. */
#include "formats/shard/shard.h"

#include <assert.h>

#include "formats/shard/shard_schema.h"
#include "formats/side/side.h"

/* ---- the header ---- */
static const shard_pass passes[] = {{"scan", SHARD_SCAN, 0},
                                    {"demand", SHARD_DEMAND, 0},
                                    {"score", SHARD_SCORE, 0},
                                    {"shares", SHARD_SHARES, 1u << CKVC_SIDE_HEAD},
                                    {"cuts", SHARD_SHARES, 1u << CKVC_SIDE_GATE},
                                    {"head", SHARD_LOGGED, 1u << CKVC_SIDE_HEAD},
                                    {"gate", SHARD_LOGGED, 1u << CKVC_SIDE_GATE},
                                    {"both", SHARD_LOGGED, (1u << CKVC_SIDE_COUNT) - 1}};
enum { N_PASSES = sizeof passes / sizeof *passes };

const shard_pass *shard_pass_named(const char *name) {
    for (int i = 0; i < N_PASSES; i++) {
        if (strcmp(passes[i].name, name) == 0) { return &passes[i]; }
    }
    return NULL;
}

const char *shard_pass_name(shard_kind kind, unsigned sides) {
    for (int i = 0; i < N_PASSES; i++) {
        if (passes[i].kind == kind && passes[i].sides == sides) { return passes[i].name; }
    }
    return NULL;
}

ckvc_side shard_action_side(const shard_header *h) {
    const shard_pass *p = shard_pass_named(h->pass);
    return p && p->sides == 1u << CKVC_SIDE_GATE ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD;
}

shard_kind shard_kind_of(const shard_header *h) {
    const shard_pass *p = shard_pass_named(h->pass);
    return p ? p->kind : SHARD_LOGGED;
}

bool shard_has_thresholds(const shard_header *h) {
    return h->setting.op != CKVC_OPERATOR_NO_THRESHOLD;
}

bool shard_layer_budget(const shard_header *h, uint32_t budget, uint32_t layer, uint32_t n_tokens,
                        uint32_t *tokens) {
    const double *by_layer = h->setting.layer_budgets.v;
    const double of_layer = by_layer ? by_layer[layer] : h->budgets[budget];
    *tokens = ckvc_budget_tokens(of_layer, n_tokens);
    return !by_layer || ckvc_nearest_budget(h->budgets, h->n_budgets, of_layer, n_tokens) == budget;
}

void shard_header_borrow(shard_header *h, const ckvc_table *t) {
    h->n_layers = t->n_layers;
    h->n_kv_heads = t->n_heads;
    h->setting.window = t->window;
    h->setting.op = t->op;
    h->n_budgets = t->n_budgets;
    h->n_entropy_bins = t->n_entropy_bins;
    h->n_ppl_bins = t->n_ppl_bins;
    h->budgets = t->budgets;
    h->edges_entropy = t->edges_entropy;
    h->edges_ppl = t->edges_ppl;
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(t, (ckvc_side)s);
        h->side[s] = (struct shard_side){(uint32_t)side.actions.n, side.grid, side.entries};
    }
}

setting shard_setting(const shard_header *h) {
    setting s = h->setting;
    s.budgets = (setting_list){h->budgets, h->n_budgets};
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        s.grid[side] = (setting_list){h->side[side].actions, h->side[side].n_actions};
    }
    return s;
}

void shard_header_fini(shard_header *h) {
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    for (size_t i = 0; i < n; i++) {
        if (list[i].list || list[i].start != SHARD_SIDE_NONE) {
            free(*shard_pointer(h, list[i].offset));
        }
    }
    *h = (shard_header){0};
}

void shard_header_copy(shard_header *dst, const shard_header *src) {
    shard_header copy = *src;
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        size_t dims[4], values = 1;
        if (!a->list && a->start == SHARD_SIDE_NONE) { continue; }
        const char *from = shard_array(src, a->offset);
        const int rank = shard_attribute_dims(src, a, false, dims);
        for (int d = 0; d < rank; d++) { values *= dims[d]; }
        *shard_pointer(&copy, a->offset) =
            rank > 0 && from ? ckvc_copy(from, values, shard_type_size(a->type)) : NULL;
    }
    shard_header_fini(dst);
    *dst = copy;
}

/* ---- rows ---- */
shard *shard_create(void) { return ckvc_calloc(1, sizeof(shard)); }

void shard_free(shard *s) {
    if (!s) { return; }
    shard_header_fini(&s->h);
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        free(*shard_pointer(s, g->rows_offset));
        for (size_t i = 0; i < g->n_wide; i++) { free(*shard_pointer(s, g->wide[i].offset)); }
    }
    free(s);
}

void shard_clear(shard *s) { s->n_prompts = s->n_baselines = s->n_records = 0; }

static size_t wide_bytes(const shard_wide *w, const shard_header *h) {
    return shard_wide_row(w, h) * shard_type_size(w->type);
}

void shard_reserve(shard *s, int group, size_t rows) {
    const shard_group *g = &shard_groups[group];
    size_t *capacity = &s->capacity[group];
    if (rows <= *capacity) { return; }
    size_t want = *capacity > 8 ? *capacity * 2 : 16;
    want = want < rows ? rows : want;
    void **array = shard_pointer(s, g->rows_offset);
    *array = ckvc_realloc_array(*array, want, g->row_size);
    for (size_t i = 0; i < g->n_wide; i++) {
        if (!shard_has_wide(&g->wide[i], &s->h)) { continue; }
        array = shard_pointer(s, g->wide[i].offset);
        *array = ckvc_realloc_array(*array, want, wide_bytes(&g->wide[i], &s->h));
    }
    *capacity = want;
}

/* Adds one row to a group, its wide values zero. */
static size_t add_row(shard *s, int group, const void *row) {
    const shard_group *g = &shard_groups[group];
    const size_t at = (*shard_count(s, g))++;
    shard_reserve(s, group, at + 1);
    memcpy(shard_array(s, g->rows_offset) + at * g->row_size, row, g->row_size);
    for (size_t i = 0; i < g->n_wide; i++) {
        char *values = shard_array(s, g->wide[i].offset);
        const size_t bytes = wide_bytes(&g->wide[i], &s->h);
        if (values) { memset(values + at * bytes, 0, bytes); }
    }
    return at;
}

size_t shard_add_prompt(shard *s, const struct shard_prompt *p) {
    return add_row(s, SHARD_GROUP_PROMPT, p);
}

size_t shard_add_baseline(shard *s, const struct shard_baseline *b) {
    return add_row(s, SHARD_GROUP_BASELINE, b);
}

size_t shard_add_record(shard *s, const struct shard_record *r) {
    return add_row(s, SHARD_GROUP_RECORD, r);
}

void shard_append(shard *dst, const shard *src) {
    assert(dst->h.n_layers == src->h.n_layers && dst->h.n_kv_heads == src->h.n_kv_heads);
    assert(shard_kind_of(&dst->h) == shard_kind_of(&src->h));
    const uint32_t shift = (uint32_t)dst->n_prompts;
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        size_t *count = shard_count(dst, g);
        const size_t more = shard_rows(src, g);
        if (more == 0) { continue; }
        shard_reserve(dst, k, *count + more);
        memcpy(shard_array(dst, g->rows_offset) + *count * g->row_size,
               shard_array(src, g->rows_offset), more * g->row_size);
        for (size_t i = 0; i < g->n_wide; i++) {
            const size_t bytes = wide_bytes(&g->wide[i], &dst->h);
            const char *from = shard_array(src, g->wide[i].offset);
            if (from) {
                memcpy(shard_array(dst, g->wide[i].offset) + *count * bytes, from, more * bytes);
            }
        }
        for (size_t i = *count; i < *count + more; i++) {
            if (k == SHARD_GROUP_BASELINE) { dst->baselines[i].prompt += shift; }
            if (k == SHARD_GROUP_RECORD) { dst->records[i].prompt += shift; }
        }
        *count += more;
    }
}
