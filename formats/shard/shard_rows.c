/* Functions on a shard in memory, and the checks of its values. The tables of shard_schema.h say
 * which arrays it has. See shard.h. */
#include "formats/shard/shard_rows.h"

#include <assert.h>
#include <float.h>

#include "formats/shard/shard.h"
#include "formats/shard/shard_schema.h"
#include "formats/side/side.h"
#include "lib/base/bytes.h"
#include "lib/base/utf8.h"

/* ---- the header ---- */
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
            free(*shard_pointer(h, list[i].m.at));
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
        const char *from = shard_array(src, a->m.at);
        const int rank = shard_attribute_dims(src, a, false, dims);
        for (int d = 0; d < rank; d++) { values *= dims[d]; }
        *shard_pointer(&copy, a->m.at) =
            rank > 0 && from ? ckvc_copy(from, values, a->m.size) : NULL;
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
        for (size_t i = 0; i < g->n_columns; i++) {
            if (g->columns[i].axes) { free(*shard_pointer(s, g->columns[i].m.at)); }
        }
    }
    free(s);
}

void shard_clear(shard *s) {
    for (int k = 0; k < SHARD_GROUPS; k++) { *shard_count(s, &shard_groups[k]) = 0; }
}

/* Returns the values of a column with several a row, and in *bytes how many bytes a row has.
 * Returns NULL when the column has one value a row, or when it is absent. */
static char *wide_values(const shard *s, const shard_column *c, size_t *bytes) {
    *bytes = shard_row_values(c, &s->h) * c->m.size;
    return c->axes ? shard_array(s, c->m.at) : NULL;
}

void shard_reserve(shard *s, int group, size_t rows) {
    const shard_group *g = &shard_groups[group];
    size_t *capacity = &s->capacity[group];
    if (rows <= *capacity) { return; }
    size_t want = *capacity > 8 ? *capacity * 2 : 16;
    want = want < rows ? rows : want;
    void **array = shard_pointer(s, g->rows_offset);
    *array = ckvc_realloc_array(*array, want, g->row_size);
    for (size_t i = 0; i < g->n_columns; i++) {
        const shard_column *c = &g->columns[i];
        if (!c->axes || !shard_has_column(c, &s->h)) { continue; }
        array = shard_pointer(s, c->m.at);
        *array = ckvc_realloc_array(*array, want, shard_row_values(c, &s->h) * c->m.size);
    }
    *capacity = want;
}

/* Adds one row to a group, and sets its wide values to zero. */
static size_t append_row(shard *s, int group, const void *row) {
    const shard_group *g = &shard_groups[group];
    const size_t at = (*shard_count(s, g))++;
    shard_reserve(s, group, at + 1);
    memcpy(shard_array(s, g->rows_offset) + at * g->row_size, row, g->row_size);
    for (size_t i = 0; i < g->n_columns; i++) {
        size_t bytes;
        char *values = wide_values(s, &g->columns[i], &bytes);
        if (values) { memset(values + at * bytes, 0, bytes); }
    }
    return at;
}

size_t shard_add_prompt(shard *s, const struct shard_prompt *p) {
    return append_row(s, SHARD_GROUP_PROMPT, p);
}

size_t shard_add_baseline(shard *s, const struct shard_baseline *b) {
    return append_row(s, SHARD_GROUP_BASELINE, b);
}

size_t shard_add_record(shard *s, const struct shard_record *r) {
    return append_row(s, SHARD_GROUP_RECORD, r);
}

size_t shard_add_query(shard *s, const struct shard_query *q) {
    return append_row(s, SHARD_GROUP_QUERY, q);
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
        for (size_t i = 0; i < g->n_columns; i++) {
            size_t bytes;
            const char *from = wide_values(src, &g->columns[i], &bytes);
            char *to = wide_values(dst, &g->columns[i], &bytes);
            if (from) { memcpy(to + *count * bytes, from, more * bytes); }
        }
        for (size_t i = *count; k != SHARD_GROUP_PROMPT && i < *count + more; i++) {
            *shard_prompt_of(dst, k, i) += shift;
        }
        *count += more;
    }
}

#define BAD_IF(condition, ...) CKVC_REFUSE_IF(condition, err, where, __VA_ARGS__)

/* Tells whether the text is one line of UTF-8 that ends within `size` bytes. */
static bool clean_text(const char *text, size_t size) {
    const size_t n = strnlen(text, size);
    return n < size && ckvc_utf8_is_line(text, n);
}

/* Checks that the values are finite and at least `least`. Budgets may stand in any order; values of
 * other lists must each be larger than the one before, or for edges not smaller. */
static ckvc_status check_list(const char *where, const char *name, const double *v, size_t n,
                              double least, ckvc_err *err) {
    const bool edges = least < 0, ascending = strcmp(name, "budgets") != 0;
    for (size_t i = 0; i < n; i++) {
        BAD_IF(!isfinite(v[i]) || v[i] < least,
               "attribute %s[%zu] is %g, must be a number of at least %g", name, i, v[i], least);
        BAD_IF(ascending && i && (edges ? v[i] < v[i - 1] : v[i] <= v[i - 1]),
               "attribute %s[%zu] is %g after %g, must ascend", name, i, v[i], v[i - 1]);
        BAD_IF(!ascending && (v[i] == 0 || v[i] > 1e9),
               "attribute %s[%zu] is %g, must be above 0 and at most 1e9 tokens", name, i, v[i]);
    }
    return CKVC_OK;
}

/* Checks that a start table's entries lie within the grid. Whoever uses them snaps them to the
 * grid. */
static ckvc_status check_start(const char *where, const char *name, const shard_header *h,
                               ckvc_side side, ckvc_err *err) {
    const double slack = 1e-6; /* the rounding of a grid value to f32 */
    const struct shard_side *s = &h->side[side];
    const size_t n = shard_side_of(h, side).n_states;
    BAD_IF(n > SHARD_MAX_TABLE, "attribute %s has %zu entries, at most %zu are read", name, n,
           SHARD_MAX_TABLE);
    BAD_IF(!s->start, "attribute %s is missing; only shards of passes that log nothing may lack it",
           name);
    const double lo = s->actions[0], hi = s->actions[s->n_actions - 1];
    for (size_t i = 0; i < n; i++) {
        BAD_IF(!(s->start[i] >= lo - slack && s->start[i] <= hi + slack),
               "attribute %s, entry %zu, is %g, the grid goes from %g to %g", name, i,
               (double)s->start[i], lo, hi);
    }
    return CKVC_OK;
}

static ckvc_status check_count(const char *where, const char *name, const char *of, uint32_t got,
                               uint32_t least, uint32_t most, ckvc_err *err) {
    BAD_IF(got < least || got > most, "attribute %s%s is %u, must be %u to %u", name, of, got,
           least, most);
    return CKVC_OK;
}

static ckvc_status check_counts(const shard_header *h, const char *where,
                                const shard_attribute *list, size_t n_list, ckvc_err *err) {
    const shard_kind kind = shard_kind_of(h);
    CKVC_TRY(check_count(where, "n_layers", "", h->n_layers, 1, SHARD_MAX_LAYERS, err));
    CKVC_TRY(check_count(where, "n_heads", "", h->n_heads, 1, SHARD_MAX_HEADS, err));
    CKVC_TRY(check_count(where, "n_kv_heads", "", h->n_kv_heads, 1, h->n_heads, err));
    for (size_t i = 0; i < n_list; i++) {
        const shard_attribute *a = &list[i];
        if (!a->list || a->setting) { continue; }
        const bool needed =
            kind == SHARD_LOGGED || (kind == SHARD_DEMAND && strcmp(a->m.name, "budgets") == 0);
        CKVC_TRY(check_count(where, a->m.name, a->extra ? " (bins)" : " (its length)",
                             *shard_attribute_count(h, a), needed, a->most, err));
    }
    BAD_IF(h->n_heads % h->n_kv_heads, "attribute n_heads=%u is not a multiple of n_kv_heads=%u",
           h->n_heads, h->n_kv_heads);
    const setting *s = &h->setting;
    const bool features = shard_has_features(h);
    /* how many numbers there are besides the key, whose length is even */
    const uint32_t fixed = ckvc_features_count(s->features, 0);
    BAD_IF(kind == SHARD_SCORE && !s->positions, "attribute positions is 0, must be 1 at least");
    BAD_IF(features && !fixed, "attribute features is %u, a version that this reader does not know",
           s->features);
    BAD_IF(s->queries && (kind != SHARD_DEMAND || !features),
           "attribute queries is %u, must be 0 where there is no demand with features", s->queries);
    BAD_IF(features && (s->n_features < fixed + 2 || (s->n_features - fixed) % 2),
           "attribute n_features is %u, must be %u and the even length of a key", s->n_features,
           fixed);
    const uint32_t n = h->setting.layer_budgets.n;
    BAD_IF(n && (kind != SHARD_LOGGED || n != h->n_layers),
           "attribute layer_budgets has %u entries, must have %s", n,
           kind != SHARD_LOGGED ? "none where nothing is logged" : "one for each of n_layers");
    return CKVC_OK;
}

ckvc_status shard_header_check(const shard_header *h, const char *where, ckvc_err *err) {
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        BAD_IF(a->m.type == RECORD_TEXT && !clean_text((const char *)h + a->m.at, a->m.size),
               "attribute %s is not UTF-8 text of at most %zu bytes", a->m.name, a->m.size - 1);
    }
    BAD_IF(shard_pass_gone(h->pass), "attribute pass is \"%s\": " SHARD_GONE, h->pass);
    BAD_IF(!shard_pass_named(h->pass),
           "attribute pass is \"%s\", must be scan, demand, score, head, gate or both", h->pass);
    CKVC_TRY(check_counts(h, where, list, n, err));
    CKVC_TRY(setting_check_values(&h->setting, SETTING_SHARD, where, err));
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        size_t dims[4];
        if (a->setting || !a->list || shard_attribute_dims(h, a, false, dims) < 0) { continue; }
        CKVC_TRY(check_list(where, a->m.name, (const double *)(const void *)shard_array(h, a->m.at),
                            dims[0], a->extra ? -HUGE_VAL : 0, err));
    }
    for (size_t i = 0; i < n && shard_kind_of(h) == SHARD_LOGGED; i++) {
        if (list[i].start != SHARD_SIDE_NONE) {
            CKVC_TRY(check_start(where, list[i].m.name, h, (ckvc_side)list[i].start, err));
        }
    }
    return CKVC_OK;
}

#define INDEX(column, got, below)                                                                  \
    BAD_IF((got) >= (below), "%s, row %zu, is %llu, must be below %llu", column, i,                \
           (unsigned long long)(got), (unsigned long long)(below))
#define RANGE(column, got, least, most)                                                            \
    BAD_IF(!((got) >= (least) && (got) <= (most)), "%s, row %zu, is %g, must be %g to %g", column, \
           i, (double)(got), (double)(least), (double)(most))
#define LOSS(column, got) RANGE(column, got, SHARD_LEAST_LOSS, SHARD_MOST_LOSS)

/* Checks the columns with several values a row. */
static ckvc_status check_wide(const shard *s, int group, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const shard_group *g = &shard_groups[group];
    const bool of_prompts = group == SHARD_GROUP_PROMPT;
    for (size_t j = 0; j < g->n_columns; j++) {
        const shard_column *w = &g->columns[j];
        const void *v = w->axes && shard_has_column(w, h) ? shard_array(s, w->m.at) : NULL;
        const size_t row = v ? shard_row_values(w, h) : 0;
        /* these are counts of tokens, so that the prompt's n_tokens must be known */
        const bool counts = of_prompts && w->m.type == RECORD_COUNT;
        for (size_t k = 0; v && k < shard_rows(s, g) * row; k++) {
            const size_t i = k / row, prompt = of_prompts ? i : s->baselines[i].prompt;
            const uint32_t T = s->prompts[prompt].n_tokens;
            const double x = w->m.type == RECORD_COUNT ? ((const uint32_t *)v)[k]
                             : w->m.size == 4          ? (double)((const float *)v)[k]
                                                       : ((const double *)v)[k],
                         most = w->m.most > 0 ? w->m.most
                                : T || counts ? T
                                              : UINT32_MAX;
            BAD_IF(!(x >= w->m.least && x <= most), "%s/%s, row %zu, is %g, must be %g to %g%s",
                   g->name, w->m.name, i, x, w->m.least, most,
                   w->m.most > 0 ? "" : ", its n_tokens");
        }
    }
    return CKVC_OK;
}

static ckvc_status check_prompts(const shard *s, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const uint32_t bins_entropy = h->n_entropy_bins ? h->n_entropy_bins : 1,
                   bins_ppl = h->n_ppl_bins ? h->n_ppl_bins : 1;
    const shard_group *g = &shard_groups[SHARD_GROUP_PROMPT];
    for (size_t i = 0; i < s->n_prompts; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        for (size_t k = 0; k < g->n_columns; k++) {
            const char *text = (const char *)p + g->columns[k].m.at;
            const bool empty = k == 0 && !*text; /* an empty text is wrong for an id only */
            BAD_IF(g->columns[k].m.type == RECORD_TEXT &&
                       (empty || !clean_text(text, SHARD_STRING)),
                   "prompt/%s, row %zu, is not %sUTF-8 text of at most %d bytes",
                   g->columns[k].m.name, i, empty ? "a non-empty " : "", SHARD_STRING - 1);
        }
        INDEX("prompt/cut", p->cut, 2);
        RANGE("prompt/r_struct", p->r_struct, SHARD_LEAST_LOSS, SHARD_MOST_LOSS);
        RANGE("prompt/r_sem", p->r_sem, 0, DBL_MAX);
        LOSS("prompt/loss_full", p->loss_full);
        INDEX("prompt/bin_entropy", p->bin_entropy, bins_entropy);
        INDEX("prompt/bin_perplexity", p->bin_ppl, bins_ppl);
    }
    return check_wide(s, SHARD_GROUP_PROMPT, where, err);
}

static ckvc_status check_records(const shard *s, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const unsigned sides = shard_pass_named(h->pass)->sides; /* shard_header_check has found it */
    BAD_IF(s->n_records && shard_kind_of(h) != SHARD_LOGGED,
           "%zu records in a %s shard, must be none", s->n_records, h->pass);
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        INDEX("record/prompt", r->prompt, s->n_prompts);
        INDEX("record/side", r->side, CKVC_SIDE_COUNT);
        BAD_IF(!(sides >> r->side & 1),
               "record/side, row %zu, is %u (%s) in a shard of pass \"%s\"", i, r->side,
               ckvc_side_name((ckvc_side)r->side), h->pass);
        INDEX("record/layer", r->layer, h->n_layers);
        if (r->side == CKVC_SIDE_HEAD) {
            INDEX("record/head", r->head, h->n_kv_heads);
        } else {
            BAD_IF(r->head != CKVC_NO_HEAD, "record/head, row %zu, is %u, must be %d for the gate",
                   i, r->head, CKVC_NO_HEAD);
        }
        INDEX("record/budget", r->budget, h->n_budgets);
        INDEX("record/action", r->action, h->side[r->side].n_actions);
        BAD_IF(h->setting.reduction == CKVC_LOSS_SUM && s->prompts[r->prompt].n_continuation == 0,
               "prompt/n_continuation, row %u, is 0, must be at least 1 where losses are summed",
               r->prompt);
        const uint32_t T = s->prompts[r->prompt].n_tokens; /* 0 in a foreign shard that lacks it */
        INDEX("record/n_candidates", r->n_candidates, T ? (uint64_t)T + 1 : UINT64_MAX);
        INDEX("record/n_kept", r->n_kept, T ? (uint64_t)T + 1 : UINT64_MAX);
        RANGE("record/reward", r->reward, -DBL_MAX, DBL_MAX);
        RANGE("record/baseline", r->baseline, -DBL_MAX, DBL_MAX);
        LOSS("record/loss", r->loss);
    }
    return CKVC_OK;
}

/* Checks the queries: their order, in which no row is there twice, and that they are numbers. */
static ckvc_status check_queries(const shard *s, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t most = h->setting.queries,
                 values = (size_t)h->n_layers * h->n_heads * shard_head_dim(h);
    for (size_t i = 0; i < s->n_queries; i++) {
        const struct shard_query *q = &s->queries[i], *last = i ? q - 1 : NULL,
                                 *first = i >= most ? q - most : NULL;
        INDEX("query/prompt", q->prompt, s->n_prompts);
        INDEX("query/part", q->part, SHARD_PARTS);
        const struct shard_prompt *p = &s->prompts[q->prompt];
        const uint64_t begin = q->part == SHARD_PROMPT ? 0 : p->n_tokens,
                       end = begin + (q->part == SHARD_PROMPT ? p->n_tokens : p->n_continuation);
        BAD_IF(q->position < begin || q->position >= end,
               "query/position, row %zu, is %u, must be from %llu and below %llu", i, q->position,
               (unsigned long long)begin, (unsigned long long)end);
        const bool same_prompt = last && last->prompt == q->prompt;
        BAD_IF(last && (last->prompt > q->prompt ||
                        (same_prompt && (last->part > q->part || last->position >= q->position))),
               "query, row %zu, does not ascend by prompt, part and position", i);
        BAD_IF(first && first->prompt == q->prompt && first->part == q->part,
               "query, row %zu, is one more than the %zu (queries) of its prompt and part", i,
               most);
        size_t k = 0;
        const uint16_t *v = s->query_vectors + i * values;
        while (k < values && ckvc_f16_is_finite(v[k])) { k++; }
        BAD_IF(k < values, "query/vectors, row %zu, number %zu is not finite", i, k);
    }
    return CKVC_OK;
}

ckvc_status shard_rows_check(const shard *s, const char *where, ckvc_err *err) {
    CKVC_TRY(check_prompts(s, where, err));
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        INDEX("baseline/prompt", b->prompt, s->n_prompts);
        INDEX("baseline/budget", b->budget, s->h.n_budgets);
        LOSS("baseline/loss", b->loss);
    }
    CKVC_TRY(check_wide(s, SHARD_GROUP_BASELINE, where, err));
    CKVC_TRY(check_queries(s, where, err));
    return check_records(s, where, err);
}
