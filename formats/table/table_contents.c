/* The table file in memory: what its sections are, what they must hold, and its description for
 * people (formats/table/table.md). */
#include <stdio.h>

#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/cache_format.h"
#include "lib/base/json.h"
#include "lib/base/sizes.h"

/* The dimensions of each section, a letter for each axis: L layers, G heads, E and P bins, e and p
 * their inner edges, B budgets, h and g actions of heads and gate, D features, H query heads,
 * b queries of the bank, d numbers of such a query, S numbers of SHAPE.
 * A digit stands for itself; a JSON section has no letters. */
static const struct {
    const char *name;
    ckvt_type type;
    const char *dims;
} sections[CKVT_SECTION_COUNT] = {
    [CKVT_SHAPE] = {"SHAPE", CKVT_U32, "S"},
    [CKVT_BUDGET] = {"BUDGET", CKVT_F64, "B"},
    [CKVT_GRIDHEAD] = {"GRIDHEAD", CKVT_F64, "h"},
    [CKVT_GRIDGATE] = {"GRIDGATE", CKVT_F64, "g"},
    [CKVT_WEIGHT] = {"WEIGHT", CKVT_F32, "LGB"},
    [CKVT_TAU] = {"TAU", CKVT_F32, "LEPB"},
    [CKVT_EDGEENT] = {"EDGEENT", CKVT_F64, "e"},
    [CKVT_EDGEPPL] = {"EDGEPPL", CKVT_F64, "p"},
    [CKVT_META] = {"META", CKVT_BYTES, ""},
    [CKVT_SHARE] = {"SHARE", CKVT_F64, "LGB"},
    [CKVT_LAYER_SHARE] = {"SHARELAY", CKVT_F64, "LB"},
    [CKVT_LENGTH_SHARE] = {"SHARELEN", CKVT_F64, "LB"},
    [CKVT_C_MIN] = {"CMIN", CKVT_F64, "B2"},
    [CKVT_SCORE] = {"SCORE", CKVT_U32, "B6"},
    [CKVT_THETA] = {"THETA", CKVT_F32, "LGD"},
    [CKVT_MASS] = {"MASS", CKVT_F64, "LG"},
    [CKVT_BANK] = {"BANK", CKVT_F16, "LHbd"},
    [CKVT_RIDGE] = {"RIDGE", CKVT_F64, "LB"},
    [CKVT_BANK_USE] = {"BANKUSE", CKVT_U32, "B2"},
    [CKVT_BYTE_SHARE] = {"BYTES", CKVT_F64, "B"},
    [CKVT_HELD] = {"HELD", CKVT_U32, "B2"},
    [CKVT_QHEAD] = {"QHEAD", CKVT_F64, "LGBh"},
    [CKVT_QGATE] = {"QGATE", CKVT_F64, "LEPBg"},
    [CKVT_NHEAD] = {"NHEAD", CKVT_U64, "LGBh"},
    [CKVT_NGATE] = {"NGATE", CKVT_U64, "LEPBg"},
    [CKVT_MHEAD] = {"MHEAD", CKVT_F64, "LGBh"},
    [CKVT_MGATE] = {"MGATE", CKVT_F64, "LEPBg"},
    [CKVT_LGATE] = {"LGATE", CKVT_F64, "LEPBg"},
    [CKVT_SHARE_HEAD] = {"sHEAD", CKVT_F32, "LGBh"},
    [CKVT_SHARE_GATE] = {"sGATE", CKVT_F32, "LEPBg"},
    [CKVT_SHARE_INTERVAL] = {"sSHARE", CKVT_F64, "LGB2"},
    [CKVT_SIGNATURE] = {"hSIG", CKVT_F64, "LG3"},
    [CKVT_PROV] = {"pROV", CKVT_BYTES, ""},
    [CKVT_XFER] = {"xFER", CKVT_BYTES, ""},
    [CKVT_MODEL] = {"mODEL", CKVT_BYTES, ""},
};

const char *ckvt_name(ckvt_section s) { return sections[s].name; }

ckvt_section ckvt_named(const char *name) {
    int s = 0;
    while (s < CKVT_SECTION_COUNT && strcmp(name, sections[s].name) != 0) { s++; }
    return (ckvt_section)s;
}

size_t ckvt_type_bytes(ckvt_type type) {
    static const size_t bytes[CKVT_TYPE_COUNT] = {1, 4, 8, 4, 8, 2};
    return bytes[type];
}

_Static_assert(sizeof(ckvc_c_min) == 2 * sizeof(double), "a row of CMIN");
_Static_assert(sizeof(ckvc_bank_use) == 2 * sizeof(uint32_t), "a row of BANKUSE");
_Static_assert(sizeof(ckvc_held) == 2 * sizeof(uint32_t), "a row of HELD");
_Static_assert((int)CACHE_FORMATS == CKVC_TABLE_KEY_FORMATS &&
                   (int)CACHE_Q4_0_MEAN == CKVC_TABLE_VALUE_FORMATS,
               "tables number the formats as cache_format does");
_Static_assert(sizeof(ckvc_score) == 6 * sizeof(uint32_t), "a row of SCORE");

static uint64_t axis_length(const ckvc_table *t, char letter) {
    switch (letter) {
    case 'L': return t->n_layers;
    case 'G': return t->n_heads;
    case 'E': return t->n_entropy_bins;
    case 'P': return t->n_ppl_bins;
    case 'e': return t->n_entropy_bins - 1;
    case 'p': return t->n_ppl_bins - 1;
    case 'B': return t->n_budgets;
    case 'h': return t->n_head_actions;
    case 'g': return t->n_gate_actions;
    case 'D': return t->n_features;
    case 'H': return t->n_query_heads;
    case 'b': return t->n_bank;
    case 'd': return t->bank_dim;
    case 'S': return t->visible || t->keep_window ? CKVC_TABLE_SHAPE : 8;
    default: return (uint64_t)(letter - '0');
    }
}

bool ckvt_specs(const ckvc_table *t, ckvt_spec out[CKVT_SECTION_COUNT]) {
    bool fits = true;
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        const char *dims = sections[i].dims;
        ckvt_spec s = {.name = sections[i].name,
                       .type = sections[i].type,
                       .rank = *dims ? (uint16_t)strlen(dims) : 1,
                       .bytes = *dims ? ckvt_type_bytes(sections[i].type) : 0,
                       .raw_only = i < CKVT_EVIDENCE_BEGIN || i == CKVT_MODEL};
        for (int d = 0; dims[d]; d++) {
            s.dims[d] = axis_length(t, dims[d]);
            fits = fits && ckvc_mul_size(s.bytes, s.dims[d], &s.bytes);
        }
        out[i] = s;
    }
    return fits;
}

void **ckvt_slot(table_file *t, ckvt_section s) {
    ckvc_table *c = t->table;
    table_evidence *head = &t->evidence[CKVC_SIDE_HEAD], *gate = &t->evidence[CKVC_SIDE_GATE];
    void *const slots[CKVT_SECTION_COUNT] = {
        [CKVT_BUDGET] = &c->budgets,
        [CKVT_GRIDHEAD] = &c->head_grid,
        [CKVT_GRIDGATE] = &c->gate_grid,
        [CKVT_WEIGHT] = &c->weight,
        [CKVT_TAU] = &c->tau,
        [CKVT_EDGEENT] = &c->edges_entropy,
        [CKVT_EDGEPPL] = &c->edges_ppl,
        [CKVT_SHARE] = &c->share,
        [CKVT_LAYER_SHARE] = &c->layer_share,
        [CKVT_LENGTH_SHARE] = &c->length_share,
        [CKVT_C_MIN] = &c->c_min,
        [CKVT_SCORE] = &c->score,
        [CKVT_THETA] = &c->theta,
        [CKVT_MASS] = &c->mass,
        [CKVT_BANK] = &c->bank,
        [CKVT_RIDGE] = &c->ridge,
        [CKVT_BANK_USE] = &c->bank_use,
        [CKVT_BYTE_SHARE] = &c->byte_share,
        [CKVT_HELD] = &c->held,
        [CKVT_QHEAD] = &head->q,
        [CKVT_QGATE] = &gate->q,
        [CKVT_NHEAD] = &head->n,
        [CKVT_NGATE] = &gate->n,
        [CKVT_MHEAD] = &head->m,
        [CKVT_MGATE] = &gate->m,
        [CKVT_LGATE] = &gate->l,
        [CKVT_SHARE_HEAD] = &head->share,
        [CKVT_SHARE_GATE] = &gate->share,
        [CKVT_SHARE_INTERVAL] = &t->share_interval,
        [CKVT_SIGNATURE] = &t->signature,
    };
    return slots[s];
}

void *ckvt_values(const table_file *t, ckvt_section s) {
    void **slot = ckvt_slot(ckvc_unconst(t), s);
    return slot ? *slot : NULL;
}

json_t **ckvt_json(table_file *t, ckvt_section s) {
    return s == CKVT_META    ? &t->meta
           : s == CKVT_PROV  ? &t->prov
           : s == CKVT_XFER  ? &t->xfer
           : s == CKVT_MODEL ? &t->model
                             : NULL;
}

void ckvt_shape(const ckvc_table *t, uint32_t out[CKVC_TABLE_SHAPE]) {
    const uint32_t shape[CKVC_TABLE_SHAPE] = {
        t->n_layers,  t->n_query_heads, t->n_heads,   t->n_entropy_bins, t->n_ppl_bins,
        t->n_budgets, t->window,        t->head_axis, t->visible,        t->keep_window};
    memcpy(out, shape, sizeof shape);
}

bool ckvt_rule_agrees(const table_file *t) {
    const char *alpha = json_string_value(json_object_get(t->meta, "alpha_kind"));
    const json_t *keep = json_object_get(t->meta, "keep_window");
    return (!alpha || t->table->visible == (strcmp(alpha, "visible") == 0)) &&
           (!keep || json_integer_value(keep) == t->table->keep_window);
}

table_file *table_file_around(ckvc_table *table, bool with_evidence) {
    ckvt_spec specs[CKVT_SECTION_COUNT];
    if (!table || !ckvt_specs(table, specs)) {
        ckvc_table_free(table);
        return NULL;
    }
    table_file *t = ckvc_calloc(1, sizeof *t);
    *t = (table_file){.table = table, .meta = json_object(), .has_evidence = with_evidence};
    for (int i = CKVT_EVIDENCE_BEGIN; with_evidence && i < CKVT_EVIDENCE_END; i++) {
        *ckvt_slot(t, (ckvt_section)i) = ckvc_calloc(1, specs[i].bytes);
    }
    for (int s = 0; with_evidence && s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(table, (ckvc_side)s);
        for (size_t i = 0; i < side.n_states * side.actions.n; i++) {
            t->evidence[s].q[i] = -INFINITY;
        }
    }
    return t;
}

const char *table_file_sketch(const table_file *t) {
    const char *sketch = json_string_value(json_object_get(t->model, "sketch"));
    return sketch ? sketch : "";
}

void table_file_set_sketch(table_file *t, const char *sketch) {
    json_decref(t->model);
    t->model = *sketch ? json_pack("{s:s}", "sketch", sketch) : NULL;
}

void table_file_free(table_file *t) {
    if (!t) { return; }
    for (int i = CKVT_EVIDENCE_BEGIN; i < CKVT_OWNED_END; i++) {
        if (t->table) { free(*ckvt_slot(t, (ckvt_section)i)); }
    }
    ckvc_table_free(t->table);
    json_decref(t->meta);
    json_decref(t->prov);
    json_decref(t->xfer);
    json_decref(t->model);
    free(t);
}

cache_formats table_file_held(const table_file *t, uint32_t b) {
    const ckvc_held *held = t->table->held;
    return held ? (cache_formats){(cache_format)held[b].keys, (cache_format)held[b].values}
                : (cache_formats){0};
}

/* Leaves these n elements of a list. Does nothing with NULL. */
static void take_elements(json_t *list, const uint32_t *take, uint32_t n) {
    json_auto_t *all = json_copy(list);
    json_array_clear(list);
    for (uint32_t i = 0; all && i < n; i++) {
        json_array_append(list, json_array_get(all, take[i]));
    }
}

void table_file_take_budgets(table_file *t, const uint32_t *take, uint32_t n) {
    ckvt_spec specs[CKVT_SECTION_COUNT];
    const bool fits = ckvt_specs(t->table, specs); /* a table whose sections overflow is not made */
    for (int s = 0; fits && s < CKVT_SECTION_COUNT; s++) {
        char *values = ckvt_values(t, (ckvt_section)s);
        const char *dims = sections[s].dims, *axis = strchr(dims, 'B');
        if (!values || !axis) { continue; }
        const uint64_t *size = specs[s].dims;
        size_t rows = 1, bytes = ckvt_type_bytes(sections[s].type); /* no f16 has this axis */
        for (int d = 0; d < specs[s].rank; d++) {
            rows *= dims + d < axis ? (size_t)size[d] : 1;
            bytes *= dims + d > axis ? (size_t)size[d] : 1;
        }
        for (size_t i = 0; i < rows * n; i++) {
            const size_t from = i / n * (size_t)size[axis - dims] + take[i % n];
            memmove(values + i * bytes, values + from * bytes, bytes);
        }
    }
    t->table->n_budgets = n;
    json_t *demand = json_object_get(json_object_get(t->meta, "diagnostics"), "demand"),
           *select = json_object_get(t->meta, "select"), *candidate;
    size_t i;
    take_elements(json_object_get(demand, "by_budget"), take, n);
    take_elements(json_object_get(select, "chosen"), take, n);
    json_array_foreach(json_object_get(select, "candidates"), i, candidate) {
        take_elements(json_object_get(candidate, "kl"), take, n);
        take_elements(json_object_get(candidate, "loss"), take, n);
    }
}

/* ---- invariants ---- */

#define BAD_IF(condition, ...) CKVC_FAIL_IF(condition, err, CKVC_E_DATA, __VA_ARGS__)

/* Up to this number counts are exact as doubles, and sums of them do not overflow. */
#define RECORDS_MAX ((uint64_t)1 << 53)

static ckvc_status check_side(const char *side, const table_evidence *e, size_t n, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        BAD_IF(e->n[i] ? !isfinite(e->q[i]) : !(isinf(e->q[i]) && e->q[i] < 0),
               "Q%s[%zu] is %g with %llu records: want a finite value where an action was logged, "
               "-inf elsewhere",
               side, i, e->q[i], (unsigned long long)e->n[i]);
        BAD_IF(e->n[i] > RECORDS_MAX, "N%s[%zu] is %llu, over the limit of 2^53", side, i,
               (unsigned long long)e->n[i]);
        BAD_IF(!isfinite(e->m[i]), "M%s[%zu] is %g, want a finite value", side, i, e->m[i]);
        BAD_IF(e->l && !isfinite(e->l[i]), "L%s[%zu] is %g, want a finite value", side, i, e->l[i]);
    }
    return CKVC_OK;
}

ckvc_status ckvt_check_evidence(const table_file *t, ckvc_err *err) {
    static const char *const names[CKVC_SIDE_COUNT] = {"HEAD", "GATE"};
    for (int k = 0; k < CKVC_SIDE_COUNT; k++) {
        const struct side side = side_of_table(t->table, (ckvc_side)k);
        const size_t n = side.n_states * side.actions.n;
        const float *share = t->evidence[k].share;
        if (t->has_evidence) { CKVC_TRY(check_side(names[k], &t->evidence[k], n, err)); }
        for (size_t i = 0; share && i < n; i++) {
            BAD_IF(!(share[i] >= 0.0f && share[i] <= 1.0f),
                   "s%s[%zu] is %g, want a share between 0 and 1", names[k], i, (double)share[i]);
        }
    }
    const double *interval = t->share_interval;
    BAD_IF(interval && !t->table->share, "sSHARE is there, but section SHARE is not");
    const size_t n_shares = ckvc_weight_index(t->table, t->table->n_layers, 0, 0);
    for (size_t i = 0; interval && i < n_shares; i++) {
        const double low = interval[2 * i], high = interval[2 * i + 1];
        BAD_IF(!(low >= 0.0 && low <= high && isfinite(high)),
               "sSHARE[%zu] is %g ... %g, want an interval of finite shares", i, low, high);
    }
    const size_t n = (size_t)t->table->n_layers * t->table->n_heads * 3;
    for (size_t i = 0; t->signature && i < n; i++) {
        BAD_IF(!isfinite(t->signature[i]), "hSIG[%zu] is %g, want a finite value", i,
               t->signature[i]);
    }
    return CKVC_OK;
}

json_t *ckvt_shape_json(const ckvc_table *t) {
    static const char *const names[8] = {"n_layers",       "n_heads",           "n_kv_heads",
                                         "n_entropy_bins", "n_perplexity_bins", "n_budgets",
                                         "window",         "head_axis"};
    uint32_t shape[CKVC_TABLE_SHAPE];
    json_t *o = json_object();
    ckvt_shape(t, shape);
    for (int i = 0; i < 8; i++) { json_object_set_new(o, names[i], json_integer(shape[i])); }
    return o;
}

ckvc_operator ckvt_probe_operator(const char *probe) {
    for (int op = CKVC_OPERATOR_PAPER + 1; probe && op < CKVC_OPERATOR_COUNT; op++) {
        if (!strcmp(probe, ckvc_operator_name((ckvc_operator)op))) { return (ckvc_operator)op; }
    }
    return CKVC_OPERATOR_PAPER;
}

void ckvt_content_id(const uint8_t *directory, size_t n, uint8_t digest[CKVC_SHA256_BYTES]) {
    ckvc_sha256 s;
    ckvc_sha256_init(&s);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *e = directory + i * CKVT_ENTRY_BYTES;
        if (e[0] < 'A' || e[0] > 'Z') { continue; }
        ckvc_sha256_update(&s, e + CKVT_ENTRY_NAME, 8);
        ckvc_sha256_update(&s, e + CKVT_ENTRY_TYPE, 2);
        ckvc_sha256_update(&s, e + CKVT_ENTRY_DIMS, 8 * CKVT_RANK_MAX);
        ckvc_sha256_update(&s, e + CKVT_ENTRY_SHA256, CKVC_SHA256_BYTES);
    }
    ckvc_sha256_final(&s, digest);
}

/* ---- description ---- */

/* Makes nested lists over dims[0 ... rank) of the values from index *at on, and moves *at behind
 * them. */
static json_t *nested(const ckvt_spec *spec, const void *values, int axis, size_t *at) {
    if (axis == spec->rank) {
        const size_t i = (*at)++;
        switch (spec->type) {
        case CKVT_F16:
        case CKVT_F32: return ckvc_json_real((double)((const float *)values)[i]);
        case CKVT_F64: return ckvc_json_real(((const double *)values)[i]);
        case CKVT_U32: return json_integer((json_int_t)((const uint32_t *)values)[i]);
        default: return json_integer((json_int_t)((const uint64_t *)values)[i]);
        }
    }
    json_t *list = json_array();
    for (uint64_t i = 0; i < spec->dims[axis]; i++) {
        json_array_append_new(list, nested(spec, values, axis + 1, at));
    }
    return list;
}

/* Returns the numbers of one section as nested lists, or NULL when the section is absent or is
 * JSON. */
static json_t *describe_section(const table_file *t, ckvt_section i) {
    ckvt_spec specs[CKVT_SECTION_COUNT];
    uint32_t shape[CKVC_TABLE_SHAPE];
    ckvt_shape(t->table, shape);
    const void *values = i == CKVT_SHAPE ? shape : ckvt_values(t, i);
    size_t at = 0;
    /* a table whose sections overflow was never made */
    return values && ckvt_specs(t->table, specs) ? nested(&specs[i], values, 0, &at) : NULL;
}

static json_t *describe_cells(const table_file *t) {
    json_t *out = json_object();
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        json_t *values = describe_section(t, (ckvt_section)i);
        if (values) { json_object_set_new(out, sections[i].name, values); }
    }
    json_object_set(out, "meta", t->meta);
    json_object_set_new(out, "content_id", json_string(t->content_id));
    if (t->prov) { json_object_set(out, sections[CKVT_PROV].name, t->prov); }
    if (t->xfer) { json_object_set(out, sections[CKVT_XFER].name, t->xfer); }
    if (t->model) { json_object_set(out, sections[CKVT_MODEL].name, t->model); }
    return out;
}

/* Describes the values of one budget, which are every n_budgets-th: the least, the mean, the most,
 * and the share of them that is the side's start (compared as float32). */
static json_t *describe_values(const struct side *side, const double *budgets, uint32_t b) {
    const float *values = side->entries;
    const double start = side->kind->start;
    char share_at[32];
    double least = INFINITY, most = -INFINITY, sum = 0.0;
    size_t count = 0, n_start = 0;
    for (size_t i = b; i < side->n_states; i += side->nB, count++) {
        const double x = (double)values[i];
        least = x < least ? x : least;
        most = x > most ? x : most;
        sum += x;
        n_start += values[i] == (float)start;
    }
    snprintf(share_at, sizeof share_at, "share_at_%.1f", start);
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "budget", ckvc_json_real(budgets[b]),
                     "entries", (json_int_t)count, "min", ckvc_json_real(least), "mean",
                     ckvc_json_real(sum / (double)count), "max", ckvc_json_real(most), share_at,
                     ckvc_json_real((double)n_start / (double)count));
}

static json_t *describe_side(const struct side *side, const uint64_t *n) {
    const size_t n_actions = side->actions.n;
    uint64_t records = 0, supported = 0, fewest = UINT64_MAX;
    for (size_t s = 0; s < side->n_states; s++) {
        uint64_t of_state = 0;
        for (size_t a = 0; a < n_actions; a++) { of_state += n[s * n_actions + a]; }
        records += of_state;
        supported += of_state > 0;
        if (of_state && of_state < fewest) { fewest = of_state; }
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "side", ckvc_side_name(side->which), "states",
                     (json_int_t)side->n_states, "supported", (json_int_t)supported, "records",
                     (json_int_t)records, "fewest_records", (json_int_t)(supported ? fewest : 0));
}

/* Describes what a table with shares says of each budget; NULL when it has none. */
static json_t *describe_c_min(const ckvc_table *c) {
    json_t *list = c->c_min ? json_array() : NULL;
    for (uint32_t b = 0; list && b < c->n_budgets; b++) {
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:I}", "budget", ckvc_json_real(c->budgets[b]),
                                        "floor", ckvc_json_real(c->c_min[b].floor), "recent",
                                        (json_int_t)c->c_min[b].recent));
    }
    return list;
}

static json_t *describe_score(const ckvc_table *c) {
    json_t *list = c->score ? json_array() : NULL;
    for (uint32_t b = 0; list && b < c->n_budgets; b++) {
        const ckvc_score *s = &c->score[b];
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:s, s:I, s:I, s:b, s:I}", "budget",
                                        ckvc_json_real(c->budgets[b]), "mode",
                                        ckvc_mode_name((ckvc_mode)s->mode), "score",
                                        ckvc_score_name((ckvc_score_kind)s->kind), "window",
                                        (json_int_t)s->window, "pool", (json_int_t)s->pool, "norm",
                                        (int)s->norm, "features", (json_int_t)s->features));
    }
    return list;
}

/* Describes the learned ranking; NULL when the table has none. */
static json_t *describe_features(const table_file *t) {
    const ckvc_table *c = t->table;
    return c->theta
               ? json_pack("{s:I, s:I, s:o, s:o}", "version", (json_int_t)c->score->features, "n",
                           (json_int_t)c->n_features, "theta", describe_section(t, CKVT_THETA),
                           "mass", describe_section(t, CKVT_MASS))
               : NULL;
}

/* Describes in which share of the bytes each budget was chosen, and how what it keeps is held; NULL
 * when the table has no formats. */
static json_t *describe_bytes(const ckvc_table *c) {
    json_t *list = c->byte_share ? json_array() : NULL;
    for (uint32_t b = 0; list && b < c->n_budgets; b++) {
        const double share = c->byte_share[b];
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s, s:s}", "budget", ckvc_json_real(c->budgets[b]),
                            "bytes", share > 0 ? ckvc_json_real(share) : json_null(), "keys",
                            cache_format_name((cache_format)c->held[b].keys), "values",
                            cache_format_name((cache_format)c->held[b].values)));
    }
    return list;
}

/* Describes the bank's size, with the bytes that it takes in the file, and what it is used for;
 * NULL when the table has none. */
static json_t *describe_bank(const table_file *t) {
    const ckvc_table *c = t->table;
    if (!c->bank) { return NULL; }
    json_t *use = json_array();
    for (uint32_t b = 0; b < c->n_budgets; b++) {
        json_array_append_new(use, JSON_NUMBERS(json_object(), {"budget", c->budgets[b]},
                                                {"queries", c->bank_use[b].n_queries},
                                                {"span", c->bank_use[b].span}));
    }
    const size_t n = ckvc_bank_index(c, c->n_layers, 0, 0);
    return JSON_NUMBERS(
        json_pack("{s:o, s:o}", "use", use, "ridge", describe_section(t, CKVT_RIDGE)),
        {"queries", c->n_bank}, {"head_dim", c->bank_dim}, {"bytes", n * sizeof(uint16_t)});
}

static json_t *describe_summary(const table_file *t) {
    const ckvc_table *c = t->table;
    json_t *values[CKVC_SIDE_COUNT], *evidence = json_array();
    bool shares = false;
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(c, (ckvc_side)s);
        values[s] = json_array();
        for (uint32_t b = 0; b < c->n_budgets; b++) {
            json_array_append_new(values[s], describe_values(&side, c->budgets, b));
        }
        if (t->has_evidence) {
            json_array_append_new(evidence, describe_side(&side, t->evidence[s].n));
        }
        shares = shares || t->evidence[s].share;
    }
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, "
        "s:o*, s:o, s:b, s:b, s:O, s:O*, s:O*, s:O*}",
        "content_id", t->content_id, "shape", ckvt_shape_json(c), "budgets",
        ckvc_json_reals(c->budgets, c->n_budgets), "head_actions",
        ckvc_json_reals(c->head_grid, c->n_head_actions), "gate_actions",
        ckvc_json_reals(c->gate_grid, c->n_gate_actions), "edges_entropy",
        ckvc_json_reals(c->edges_entropy, c->n_entropy_bins - 1), "edges_perplexity",
        ckvc_json_reals(c->edges_ppl, c->n_ppl_bins - 1), "weight", values[CKVC_SIDE_HEAD], "tau",
        values[CKVC_SIDE_GATE], "shares", describe_section(t, CKVT_SHARE), "layer_shares",
        describe_section(t, CKVT_LAYER_SHARE), "length_shares",
        describe_section(t, CKVT_LENGTH_SHARE), "c_min", describe_c_min(c), "score",
        describe_score(c), "features", describe_features(t), "bank", describe_bank(t), "bytes",
        describe_bytes(c), "evidence", evidence, "bootstrap", shares, "signature",
        t->signature != NULL, "meta", t->meta, "transfer", t->xfer, "provenance", t->prov, "model",
        t->model);
}

json_t *table_file_describe(const table_file *t, bool cells) {
    return cells ? describe_cells(t) : describe_summary(t);
}
