/* The tables of a shard's columns and attributes: see shard_schema.h. */
#include "formats/shard/shard_schema.h"

#include <float.h>

#include "formats/side/side.h"
#include "formats/shard/shard.h"
#include "lib/base/json.h"

const double shard_mixes[SHARD_N_MIXES] = {0.25, 0.5, 0.75, 1};

static const shard_pass passes[] = {{"scan", SHARD_SCAN, 0},
                                    {"demand", SHARD_DEMAND, 0},
                                    {"score", SHARD_SCORE, 0},
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

bool shard_pass_gone(const char *name) {
    return strcmp(name, "shares") == 0 || strcmp(name, "cuts") == 0;
}

const char *shard_pass_name(shard_kind kind, unsigned sides) {
    for (int i = 0; i < N_PASSES; i++) {
        if (passes[i].kind == kind && passes[i].sides == sides) { return passes[i].name; }
    }
    return NULL;
}

#define N_OF(a) (sizeof(a) / sizeof *(a))

/* Like RECORD for a pointer to values: `size` is that of one value. */
#define ARRAY(of, key, field, ...)                                                                 \
    { .name = key, .at = offsetof(of, field), .size = sizeof *((of *)0)->field, __VA_ARGS__ }

/* ---- rows ---- */
#define C(row, key, of_type, field, of_need)                                                       \
    { .m = RECORD(struct row, key, field, .type = RECORD_##of_type), .need = SHARD_OF_##of_need }
#define P(key, type, field, need) C(shard_prompt, key, type, field, need)
#define B(key, type, field)       C(shard_baseline, key, type, field, ALL)
#define R(key, type, field, need) C(shard_record, key, type, field, need)
#define Q(key, field)             C(shard_query, key, COUNT, field, ALL)
#define W(field, of_type, of_kind, of_axes, of_need, lo, hi)                                       \
    {                                                                                              \
        .m = ARRAY(shard, #field, field, .type = RECORD_##of_type, .least = lo, .most = hi),       \
        .need = SHARD_OF_##of_need, .axes = of_axes, .kind = SHARD_##of_kind                       \
    }
static const shard_column prompt_columns[] = {
    P("id", TEXT, id, ALL),
    P("source", TEXT, source, OURS),
    P("split", TEXT, split, OURS),
    P("line", COUNT, line, OURS),
    P("n_tokens", COUNT, n_tokens, OURS),
    P("n_continuation", COUNT, n_continuation, OURS),
    P("cut", COUNT, cut, OURS),
    P("token_hash", COUNT, token_hash, OURS),
    P("r_struct", REAL, r_struct, OURS),
    P("r_sem", REAL, r_sem, OURS),
    P("loss_full", REAL, loss_full, OURS),
    P("bin_entropy", COUNT, bin_entropy, ALL),
    P("bin_perplexity", COUNT, bin_ppl, ALL),
    P("document", TEXT, document, NEW),
    W(rho_sd, REAL, HEADS, "LG", NEW, 0, 65536),
    W(own_recent, REAL, HEADS, "LG", NEW, 0, 1.001),
    W(own_entropy, REAL, HEADS, "LG", NEW, SHARD_LEAST_LOSS, 23),
    W(demand, COUNT, DEMAND, "BLG", ALL, 0, 0),
    W(layer_demand, COUNT, DEMAND, "BL", ALL, 0, 0),
    W(mixed_demand, COUNT, MIXES, "WBLG", ALL, 0, 0),
    W(mixed_layer_demand, COUNT, MIXES, "WBL", ALL, 0, 0),
    W(length_demand, COUNT, DEMAND, "BL", NEW, 0, 0),
    W(mixed_length_demand, COUNT, MIXES, "WBL", NEW, 0, 0),
    W(mass, REAL, FEATURES, "LG", ALL, 0, 0),
    W(target, REAL, FEATURES, "LG", ALL, 0, 2.001),
    W(target_features, REAL, FEATURES, "LGF", ALL, -SHARD_MOST_LOSS, SHARD_MOST_LOSS),
    W(features, REAL, FEATURES, "LGPF", ALL, -FLT_MAX, FLT_MAX),
    W(expected_loss, REAL, SCORE, "LG", NEW, SHARD_LEAST_LOSS, 33),
};
static const shard_column baseline_columns[] = {
    B("prompt", COUNT, prompt),
    B("budget", COUNT, budget),
    B("loss", REAL, loss),
    W(n_candidates, COUNT, ANY, "L", OURS, 0, 0),
    W(n_kept, COUNT, ANY, "L", OURS, 0, 0),
    W(n_kept_window, COUNT, ANY, "L", OURS, 0, 0),
    W(n_candidates_lo, COUNT, ANY, "L", OURS, 0, 0),
    W(n_candidates_hi, COUNT, ANY, "L", OURS, 0, 0),
};
static const shard_column record_columns[] = {
    R("prompt", COUNT, prompt, ALL),  R("side", COUNT, side, ALL),
    R("layer", COUNT, layer, ALL),    R("head", COUNT, head, ALL),
    R("budget", COUNT, budget, ALL),  R("action", COUNT, action, ALL),
    R("reward", REAL, reward, ALL),   R("baseline", REAL, baseline, ALL),
    R("loss", REAL, loss, ALL),       R("n_candidates", COUNT, n_candidates, OURS),
    R("n_kept", COUNT, n_kept, OURS), R("set_hash", COUNT, set_hash, OURS),
};
static const shard_column query_columns[] = {
    Q("prompt", prompt),
    Q("part", part),
    Q("position", position),
    {.m = ARRAY(shard, "vectors", query_vectors, .type = RECORD_COUNT),
     .need = SHARD_OF_ALL,
     .axes = "LHD",
     .kind = SHARD_ANY},
};
#undef W
#undef Q
#undef R
#undef B
#undef P
#undef C
const shard_group shard_groups[SHARD_GROUPS] = {
    {"prompt", prompt_columns, N_OF(prompt_columns), sizeof(struct shard_prompt),
     offsetof(shard, prompts), offsetof(shard, n_prompts), SHARD_MAX_PROMPTS},
    {"baseline", baseline_columns, N_OF(baseline_columns), sizeof(struct shard_baseline),
     offsetof(shard, baselines), offsetof(shard, n_baselines), SHARD_MAX_BASELINES},
    {"record", record_columns, N_OF(record_columns), sizeof(struct shard_record),
     offsetof(shard, records), offsetof(shard, n_records), SHARD_MAX_RECORDS},
    {"query", query_columns, N_OF(query_columns), sizeof(struct shard_query),
     offsetof(shard, queries), offsetof(shard, n_queries), SHARD_MAX_QUERIES},
};

int shard_n_groups(const shard_header *h) {
    return h->setting.queries ? SHARD_GROUPS : SHARD_GROUP_QUERY;
}

bool shard_has_column(const shard_column *c, const shard_header *h) {
    if (!c->axes || c->kind == SHARD_ANY) { return true; }
    const shard_kind kind = shard_kind_of(h);
    if (c->kind == SHARD_FEATURES || c->kind == SHARD_MIXES) {
        return shard_has_features(h) && (c->kind == SHARD_FEATURES || kind == SHARD_DEMAND);
    }
    return c->kind == (int)kind ||
           (c->kind == SHARD_HEADS && (kind == SHARD_SCAN || kind == SHARD_DEMAND));
}

const char *shard_axis(char axis, const shard_header *h, size_t *extent) {
    const struct {
        const char *name;
        uint32_t extent;
        char axis;
    } axes[] = {{"budgets", h->n_budgets, 'B'},
                {"mixes", SHARD_N_MIXES, 'W'},
                {"n_layers", h->n_layers, 'L'},
                {"n_kv_heads", h->n_kv_heads, 'G'},
                {"n_heads", h->n_heads, 'H'},
                {"head_dim", shard_head_dim(h), 'D'},
                {"positions", h->setting.positions, 'P'},
                {"n_features", h->setting.n_features, 'F'}};
    int i = 0;
    while (axes[i].axis != axis) { i++; }
    *extent = axes[i].extent;
    return axes[i].name;
}

int shard_column_dims(const shard_column *c, const shard_header *h, size_t dims[SHARD_MAX_RANK]) {
    int rank = 1;
    for (const char *axis = c->axes ? c->axes : ""; *axis; axis++) {
        shard_axis(*axis, h, &dims[rank++]);
    }
    return rank;
}

size_t shard_row_values(const shard_column *c, const shard_header *h) {
    size_t dims[SHARD_MAX_RANK], n = 1;
    const int rank = shard_column_dims(c, h, dims);
    for (int i = 1; i < rank; i++) { n *= dims[i]; }
    return n;
}

void **shard_pointer(void *in, size_t offset) { return (void **)(void *)((char *)in + offset); }

char *shard_array(const void *in, size_t offset) {
    return *(char *const *)(const void *)((const char *)in + offset);
}

size_t *shard_count(shard *s, const shard_group *g) {
    return (size_t *)(void *)((char *)s + g->count_offset);
}

size_t shard_rows(const shard *s, const shard_group *g) {
    return *(const size_t *)(const void *)((const char *)s + g->count_offset);
}

uint32_t *shard_prompt_of(shard *s, int group, size_t row) {
    _Static_assert(offsetof(struct shard_baseline, prompt) == 0 &&
                       offsetof(struct shard_record, prompt) == 0 &&
                       offsetof(struct shard_query, prompt) == 0,
                   "a row begins with its prompt");
    const shard_group *g = &shard_groups[group];
    if (group == SHARD_GROUP_PROMPT) { return NULL; }
    return (uint32_t *)(void *)(shard_array(s, g->rows_offset) + row * g->row_size);
}

/* ---- attributes ---- */
#define T(field)                                                                                   \
    { .m = RECORD(shard_header, #field, field, .type = RECORD_TEXT), .start = SHARD_SIDE_NONE }
#define U(field)                                                                                   \
    { .m = RECORD(shard_header, #field, field, .type = RECORD_COUNT), .start = SHARD_SIDE_NONE }
#define A(key, field, count, more, limit)                                                          \
    {                                                                                              \
        .m = ARRAY(shard_header, key, field, .type = RECORD_REAL), .start = SHARD_SIDE_NONE,       \
        .list = true, .count_offset = offsetof(shard_header, count), .extra = more, .most = limit  \
    }
/* Stands for the settings whose keys come before this one in the order of attributes, and after
 * those of the marker before. */
#define SETTINGS_BEFORE(key)                                                                       \
    { .m = {.name = key}, .start = SHARD_SIDE_NONE }
static const shard_attribute own[] = {
    T(ckvc_version),
    T(plan),
    T(fingerprint),
    T(manifest),
    T(model_name),
    T(family),
    {.m = RECORD(shard_header, "sketch", sketch, .type = RECORD_TEXT),
     .start = SHARD_SIDE_NONE,
     .mark = '?',
     .sparse = true},
    T(pass),
    T(behaviour),
    SETTINGS_BEFORE("window"),
    U(n_layers),
    U(n_heads),
    U(n_kv_heads),
    SETTINGS_BEFORE("layer_budgets"),
    A("budgets", budgets, n_budgets, 0, SHARD_MAX_BUDGETS),
#define X(NAME, name)                                                                              \
    A(#name "_actions", side[CKVC_SIDE_##NAME].actions, side[CKVC_SIDE_##NAME].n_actions, 0,       \
      SHARD_MAX_ACTIONS),
    CKVC_SIDES(X)
#undef X
        A("edges_entropy", edges_entropy, n_entropy_bins, 1, SHARD_MAX_BINS),
    A("edges_perplexity", edges_ppl, n_ppl_bins, 1, SHARD_MAX_BINS),
#define X(NAME, name)                                                                              \
    {.m = ARRAY(shard_header, NULL, side[CKVC_SIDE_##NAME].start, .type = RECORD_REAL),            \
     .start = CKVC_SIDE_##NAME},
    CKVC_SIDES(X) /* their names are start_name of the side's kind */
#undef X
    SETTINGS_BEFORE(""),
};
#undef T
#undef U
#undef A

static shard_attribute of_setting(const setting_field *f) {
    char mark;
    shard_attribute a = {.m = f->m, .start = SHARD_SIDE_NONE, .setting = f};
    a.m.name = setting_key(f, SETTING_SHARD, &mark);
    a.m.at += offsetof(shard_header, setting);
    a.mark = mark;
    a.sparse = mark == '?' || mark == '!';
    if (f->m.type == SETTING_LIST) {
        a.list = true;
        a.count_offset = a.m.at + offsetof(setting_list, n);
        a.m.at += offsetof(setting_list, v);
        a.m.type = RECORD_REAL;
        a.m.size = sizeof(double);
    }
    return a;
}

size_t shard_attributes(shard_attribute out[SHARD_MAX_ATTRIBUTES]) {
    size_t n = 0;
    const setting_field *f = setting_fields, *end = setting_fields + setting_n_fields;
    for (size_t i = 0; i < N_OF(own); i++) {
        if (own[i].m.at || i == 0) {
            out[n] = own[i];
            if (own[i].start != SHARD_SIDE_NONE) {
                out[n].m.name = side_kind_of((ckvc_side)own[i].start)->start_name;
            }
            n++;
            continue;
        }
        for (; f < end; f++) {
            const char *key = setting_key(f, SETTING_SHARD, NULL);
            if (key && strcmp(key, own[i].m.name) == 0) { break; }
            if (key) { out[n++] = of_setting(f); }
        }
    }
    return n;
}

const uint32_t *shard_attribute_count(const shard_header *h, const shard_attribute *a) {
    return (const uint32_t *)(const void *)((const char *)h + a->count_offset);
}

int shard_attribute_dims(const shard_header *h, const shard_attribute *a, bool expected,
                         size_t dims[4]) {
    if (a->sparse && (a->setting ? setting_is_neutral(a->setting, &h->setting) : !*h->sketch)) {
        return -1;
    }
    if (a->list) {
        const uint32_t count = *shard_attribute_count(h, a);
        dims[0] = count ? count - a->extra : 0;
        return count ? 1 : -1;
    }
    if (a->start == SHARD_SIDE_NONE) { return 0; }
    if (!expected && !shard_array(h, a->m.at)) { return -1; }
    dims[0] = h->n_layers;
    if (side_kind_of((ckvc_side)a->start)->axis == SIDE_OF_HEADS) {
        dims[1] = h->n_kv_heads;
        dims[2] = h->n_budgets;
        return 3;
    }
    dims[1] = h->n_entropy_bins;
    dims[2] = h->n_ppl_bins;
    dims[3] = h->n_budgets;
    return 4;
}

/* Describes a shard as JSON, for `ckvc inspect`. */

static json_t *edges(const double *v, uint32_t bins) {
    return ckvc_json_reals(v, bins ? bins - 1 : 0);
}

/* Returns the mean over prompts of entries / B, as [L][G][nB]. */
static json_t *mean_shares(const shard *s) {
    const shard_header *h = &s->h;
    const uint32_t L = h->n_layers, G = h->n_kv_heads, nB = h->n_budgets;
    json_t *layers = json_array();
    for (uint32_t l = 0; l < L; l++) {
        json_t *heads = json_array();
        for (uint32_t g = 0; g < G; g++) {
            CKVC_AUTO_FREE double *mean = ckvc_calloc(nB, sizeof *mean);
            for (size_t i = 0; i < s->n_prompts * nB; i++) {
                const uint32_t b = (uint32_t)(i % nB),
                               B = ckvc_budget_tokens(h->budgets[b], s->prompts[i / nB].n_tokens);
                const double entries = s->demand[(i * L + l) * G + g];
                mean[b] += entries / (B ? B : 1) / (double)s->n_prompts;
            }
            json_array_append_new(heads, ckvc_json_reals(mean, nB));
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

json_t *shard_describe(const shard *s) {
    const shard_header *h = &s->h;
    const struct shard_side *head = &h->side[CKVC_SIDE_HEAD], *gate = &h->side[CKVC_SIDE_GATE];
    size_t records[CKVC_SIDE_COUNT] = {0};
    for (size_t i = 0; i < s->n_records; i++) { records[s->records[i].side]++; }
    json_t *out = json_pack("{s:s, s:i}", "format", "ckvc-shard", "version", 1);
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        size_t dims[4];
        if (shard_attribute_dims(h, a, false, dims) < 0) { continue; }
        if (a->setting) {
            json_object_set_new(out, a->m.name, setting_json(a->setting, &h->setting));
        } else if (!a->list && a->start == SHARD_SIDE_NONE) {
            record_write(&a->m, 1, h, out);
        }
    }
    json_object_update_new(
        out,
        json_pack("{s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "budgets",
                  ckvc_json_reals(h->budgets, h->n_budgets), "n_head_actions",
                  (json_int_t)head->n_actions, "n_gate_actions", (json_int_t)gate->n_actions,
                  "edges_entropy", edges(h->edges_entropy, h->n_entropy_bins), "edges_perplexity",
                  edges(h->edges_ppl, h->n_ppl_bins), "prompts", (json_int_t)s->n_prompts,
                  "baselines", (json_int_t)s->n_baselines, "records", (json_int_t)s->n_records,
                  "head_records", (json_int_t)records[CKVC_SIDE_HEAD], "gate_records",
                  (json_int_t)records[CKVC_SIDE_GATE]));
    if (h->setting.queries) { JSON_NUMBERS(out, {"query_rows", s->n_queries}); }
    if (s->demand) { json_object_set_new(out, "shares", mean_shares(s)); }
    return out;
}

shard_kind shard_kind_of(const shard_header *h) {
    const shard_pass *p = shard_pass_named(h->pass);
    return p ? p->kind : SHARD_LOGGED;
}

bool shard_has_features(const shard_header *h) {
    const shard_kind kind = shard_kind_of(h);
    return kind == SHARD_SCORE || (kind == SHARD_DEMAND && h->setting.positions);
}

uint32_t shard_head_dim(const shard_header *h) {
    const uint32_t beside = ckvc_features_count(h->setting.features, 0);
    return shard_has_features(h) ? h->setting.n_features - beside : 0;
}
