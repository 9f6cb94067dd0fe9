/* The table file in memory: what its sections are, what they must hold, and its description for
 * people (formats/table/table.md). */
#include "formats/table/table_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/table/table_layout.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

static const char *const names[CKVT_SECTION_COUNT] = {
    "SHAPE",   "BUDGET", "GRIDHEAD", "GRIDGATE", "WEIGHT", "TAU",   "EDGEENT",
    "EDGEPPL", "META",   "QHEAD",    "QGATE",    "NHEAD",  "NGATE", "MHEAD",
    "MGATE",   "LGATE",  "sHEAD",    "sGATE",    "hSIG",   "pROV",  "xFER"};

const char *ckvt_name(ckvt_section s) {
    return names[s];
}

size_t ckvt_type_bytes(ckvt_type type) {
    static const size_t bytes[CKVT_TYPE_COUNT] = {1, 4, 8, 4, 8};
    return bytes[type];
}

static ckvt_spec spec_of(const char *name, ckvt_type type, uint16_t rank, uint64_t d0, uint64_t d1,
                         uint64_t d2, uint64_t d3, uint64_t d4) {
    return (ckvt_spec){.name = name, .type = type, .rank = rank, .dims = {d0, d1, d2, d3, d4}};
}

bool ckvt_specs(const ckvc_table *t, ckvt_spec out[CKVT_SECTION_COUNT]) {
    const uint64_t L = t->n_layers, G = t->n_heads, E = t->n_entropy_bins, P = t->n_ppl_bins,
                   nB = t->n_budgets;
    const uint64_t Ah = t->n_head_actions, Ag = t->n_gate_actions;
    const ckvt_type evidence_type[7] = {CKVT_F64, CKVT_F64, CKVT_U64, CKVT_U64,
                                        CKVT_F64, CKVT_F64, CKVT_F64};
    out[CKVT_SHAPE] = spec_of(names[CKVT_SHAPE], CKVT_U32, 1, 8, 0, 0, 0, 0);
    out[CKVT_BUDGET] = spec_of(names[CKVT_BUDGET], CKVT_F64, 1, nB, 0, 0, 0, 0);
    out[CKVT_GRIDHEAD] = spec_of(names[CKVT_GRIDHEAD], CKVT_F64, 1, Ah, 0, 0, 0, 0);
    out[CKVT_GRIDGATE] = spec_of(names[CKVT_GRIDGATE], CKVT_F64, 1, Ag, 0, 0, 0, 0);
    out[CKVT_WEIGHT] = spec_of(names[CKVT_WEIGHT], CKVT_F32, 3, L, G, nB, 0, 0);
    out[CKVT_TAU] = spec_of(names[CKVT_TAU], CKVT_F32, 4, L, E, P, nB, 0);
    out[CKVT_EDGEENT] = spec_of(names[CKVT_EDGEENT], CKVT_F64, 1, E - 1, 0, 0, 0, 0);
    out[CKVT_EDGEPPL] = spec_of(names[CKVT_EDGEPPL], CKVT_F64, 1, P - 1, 0, 0, 0, 0);
    for (int i = CKVT_EVIDENCE_BEGIN; i < CKVT_EVIDENCE_END; i++) {
        bool head = i == CKVT_QHEAD || i == CKVT_NHEAD || i == CKVT_MHEAD;
        ckvt_type type = evidence_type[i - CKVT_EVIDENCE_BEGIN];
        out[i] = head ? spec_of(names[i], type, 4, L, G, nB, Ah, 0)
                      : spec_of(names[i], type, 5, L, E, P, nB, Ag);
    }
    out[CKVT_SHARE_HEAD] = spec_of(names[CKVT_SHARE_HEAD], CKVT_F32, 4, L, G, nB, Ah, 0);
    out[CKVT_SHARE_GATE] = spec_of(names[CKVT_SHARE_GATE], CKVT_F32, 5, L, E, P, nB, Ag);
    out[CKVT_SIGNATURE] = spec_of(names[CKVT_SIGNATURE], CKVT_F64, 3, L, G, 3, 0, 0);
    out[CKVT_META] = spec_of(names[CKVT_META], CKVT_BYTES, 1, 0, 0, 0, 0, 0);
    out[CKVT_PROV] = spec_of(names[CKVT_PROV], CKVT_BYTES, 1, 0, 0, 0, 0, 0);
    out[CKVT_XFER] = spec_of(names[CKVT_XFER], CKVT_BYTES, 1, 0, 0, 0, 0, 0);
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        out[i].raw_only = i < CKVT_REQUIRED;
        out[i].bytes = ckvt_type_bytes(out[i].type);
        for (int d = 0; d < out[i].rank; d++) {
            if (!ckvc_mul_size(out[i].bytes, out[i].dims[d], &out[i].bytes)) { return false; }
        }
    }
    return true;
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
        [CKVT_QHEAD] = &head->q,
        [CKVT_QGATE] = &gate->q,
        [CKVT_NHEAD] = &head->n,
        [CKVT_NGATE] = &gate->n,
        [CKVT_MHEAD] = &head->m,
        [CKVT_MGATE] = &gate->m,
        [CKVT_LGATE] = &gate->l,
        [CKVT_SHARE_HEAD] = &head->share,
        [CKVT_SHARE_GATE] = &gate->share,
        [CKVT_SIGNATURE] = &t->signature,
    };
    return slots[s];
}

void *ckvt_values(const table_file *t, ckvt_section s) {
    void **slot = ckvt_slot((table_file *)(uintptr_t)t, s);
    return slot ? *slot : NULL;
}

table_file *table_file_create(uint32_t L, uint32_t G, uint32_t E, uint32_t P, uint32_t nB,
                              uint32_t n_head_actions, uint32_t n_gate_actions,
                              bool with_evidence) {
    table_file *t = ckvc_calloc(1, sizeof *t);
    t->table = ckvc_table_create(L, G, E, P, nB, n_head_actions, n_gate_actions);
    t->meta = json_object();
    ckvt_spec specs[CKVT_SECTION_COUNT];
    if (!t->table || !ckvt_specs(t->table, specs)) {
        table_file_free(t);
        return NULL;
    }
    t->has_evidence = with_evidence;
    for (int i = CKVT_EVIDENCE_BEGIN; with_evidence && i < CKVT_EVIDENCE_END; i++) {
        *ckvt_slot(t, (ckvt_section)i) = ckvc_calloc(1, specs[i].bytes);
    }
    for (int s = 0; with_evidence && s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(t->table, (ckvc_side)s);
        for (size_t i = 0; i < side.n_states * side.actions.n; i++) {
            t->evidence[s].q[i] = -INFINITY;
        }
    }
    return t;
}

void table_file_free(table_file *t) {
    if (!t) { return; }
    for (int i = CKVT_EVIDENCE_BEGIN; t->table && i <= CKVT_SIGNATURE; i++) {
        free(*ckvt_slot(t, (ckvt_section)i));
    }
    ckvc_table_free(t->table);
    json_decref(t->meta);
    json_decref(t->prov);
    json_decref(t->xfer);
    free(t);
}

/* ---- invariants ---- */

#define FAIL(...)                                                                                  \
    (message && message_size ? (void)snprintf(message, message_size, __VA_ARGS__) : (void)0, -1)

/* Counts are exact as doubles, and sums of them do not overflow. */
#define RECORDS_MAX ((uint64_t)1 << 53)

static int check_side(const char *side, const table_evidence *e, size_t count, char *message,
                      size_t message_size) {
    for (size_t i = 0; i < count; i++) {
        if (e->n[i] ? !isfinite(e->q[i]) : !(isinf(e->q[i]) && e->q[i] < 0)) {
            return FAIL("Q%s[%zu] is %g with %llu records: want a finite value where an action was "
                        "logged, -inf elsewhere",
                        side, i, e->q[i], (unsigned long long)e->n[i]);
        }
        if (e->n[i] > RECORDS_MAX) {
            return FAIL("N%s[%zu] is %llu, over the limit of 2^53", side, i,
                        (unsigned long long)e->n[i]);
        }
        if (!isfinite(e->m[i])) {
            return FAIL("M%s[%zu] is %g, want a finite value", side, i, e->m[i]);
        }
        if (e->l && !isfinite(e->l[i])) {
            return FAIL("L%s[%zu] is %g, want a finite value", side, i, e->l[i]);
        }
    }
    return 0;
}

static int check_shares(const char *name, const float *share, size_t count, char *message,
                        size_t message_size) {
    for (size_t i = 0; share && i < count; i++) {
        if (!(share[i] >= 0.0f && share[i] <= 1.0f)) {
            return FAIL("%s[%zu] is %g, want a share between 0 and 1", name, i, (double)share[i]);
        }
    }
    return 0;
}

int ckvt_check_evidence(const table_file *t, char *message, size_t message_size) {
    static const char *const sides[] = {"HEAD", "GATE"}, *const shares[] = {"sHEAD", "sGATE"};
    size_t n[CKVC_SIDE_COUNT], n_signature = (size_t)t->table->n_layers * t->table->n_heads * 3;
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(t->table, (ckvc_side)s);
        n[s] = side.n_states * side.actions.n;
        if (t->has_evidence && check_side(sides[s], &t->evidence[s], n[s], message, message_size)) {
            return -1;
        }
    }
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        if (check_shares(shares[s], t->evidence[s].share, n[s], message, message_size)) {
            return -1;
        }
    }
    for (size_t i = 0; t->signature && i < n_signature; i++) {
        if (!isfinite(t->signature[i])) {
            return FAIL("hSIG[%zu] is %g, want a finite value", i, t->signature[i]);
        }
    }
    return 0;
}

json_t *ckvt_shape_json(const ckvc_table *t) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "n_layers",
                     (json_int_t)t->n_layers, "n_heads", (json_int_t)t->n_query_heads, "n_kv_heads",
                     (json_int_t)t->n_heads, "n_entropy_bins", (json_int_t)t->n_entropy_bins,
                     "n_perplexity_bins", (json_int_t)t->n_ppl_bins, "n_budgets",
                     (json_int_t)t->n_budgets, "window", (json_int_t)t->window, "head_axis",
                     (json_int_t)t->head_axis);
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

/* Nested lists over dims[0 ... rank) of the values at index *at on, which moves along. */
static json_t *nested(const ckvt_spec *spec, const void *values, int axis, size_t *at) {
    if (axis == spec->rank) {
        size_t i = (*at)++;
        switch (spec->type) {
        case CKVT_F32:
            return ckvc_json_real((double)((const float *)values)[i]);
        case CKVT_F64:
            return ckvc_json_real(((const double *)values)[i]);
        case CKVT_U32:
            return json_integer((json_int_t)((const uint32_t *)values)[i]);
        default:
            return json_integer((json_int_t)((const uint64_t *)values)[i]);
        }
    }
    json_t *list = json_array();
    for (uint64_t i = 0; i < spec->dims[axis]; i++) {
        if (json_array_append_new(list, nested(spec, values, axis + 1, at))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *describe_cells(const table_file *t) {
    const ckvc_table *c = t->table;
    ckvt_spec specs[CKVT_SECTION_COUNT];
    json_t *out = json_object();
    if (!out || !ckvt_specs(c, specs)) { goto fail; }
    const uint32_t shape[8] = {c->n_layers,   c->n_query_heads, c->n_heads, c->n_entropy_bins,
                               c->n_ppl_bins, c->n_budgets,     c->window,  c->head_axis};
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        const void *values = i == CKVT_SHAPE ? shape : ckvt_values(t, (ckvt_section)i);
        size_t at = 0;
        if (values && json_object_set_new(out, names[i], nested(&specs[i], values, 0, &at))) {
            goto fail;
        }
    }
    if (json_object_set(out, "meta", t->meta) ||
        json_object_set_new(out, "content_id", json_string(t->content_id)) ||
        (t->prov && json_object_set(out, names[CKVT_PROV], t->prov)) ||
        (t->xfer && json_object_set(out, names[CKVT_XFER], t->xfer))) {
        goto fail;
    }
    return out;
fail:
    json_decref(out);
    return NULL;
}

/* Of the values of one budget (every n_budgets-th): least, mean, most, and the share that is
 * `neutral` (as float32). */
static json_t *describe_values(const struct side *side, const double *budgets, uint32_t b) {
    const float *values = side->entries, neutral = (float)side->kind->start;
    char share_at[32];
    double least = INFINITY, most = -INFINITY, sum = 0.0;
    size_t count = 0, n_neutral = 0;
    for (size_t i = b; i < side->n_states; i += side->nB, count++) {
        double x = (double)values[i];
        least = x < least ? x : least;
        most = x > most ? x : most;
        sum += x;
        n_neutral += values[i] == neutral;
    }
    snprintf(share_at, sizeof share_at, "share_at_%.1f", side->kind->start);
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "budget", ckvc_json_real(budgets[b]),
                     "entries", (json_int_t)count, "min", ckvc_json_real(least), "mean",
                     ckvc_json_real(sum / (double)count), "max", ckvc_json_real(most), share_at,
                     ckvc_json_real((double)n_neutral / (double)count));
}

static json_t *describe_side(const struct side *side, const uint64_t *n) {
    const size_t n_states = side->n_states, n_actions = side->actions.n;
    uint64_t records = 0, supported = 0, fewest = UINT64_MAX;
    for (size_t s = 0; s < n_states; s++) {
        uint64_t of_state = 0;
        for (size_t a = 0; a < n_actions; a++) {
            of_state += n[s * n_actions + a];
        }
        records += of_state;
        supported += of_state > 0;
        if (of_state && of_state < fewest) { fewest = of_state; }
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "side", ckvc_side_name(side->which), "states",
                     (json_int_t)n_states, "supported", (json_int_t)supported, "records",
                     (json_int_t)records, "fewest_records", (json_int_t)(supported ? fewest : 0));
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
    json_t *out =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:O}", "content_id",
                  t->content_id, "shape", ckvt_shape_json(c), "budgets",
                  ckvc_json_reals(c->budgets, c->n_budgets), "head_actions",
                  ckvc_json_reals(c->head_grid, c->n_head_actions), "gate_actions",
                  ckvc_json_reals(c->gate_grid, c->n_gate_actions), "edges_entropy",
                  ckvc_json_reals(c->edges_entropy, c->n_entropy_bins - 1), "edges_perplexity",
                  ckvc_json_reals(c->edges_ppl, c->n_ppl_bins - 1), "weight",
                  values[CKVC_SIDE_HEAD], "tau", values[CKVC_SIDE_GATE], "evidence", evidence,
                  "bootstrap", shares, "signature", t->signature != NULL, "meta", t->meta);
    if (out && ((t->xfer && json_object_set(out, "transfer", t->xfer)) ||
                (t->prov && json_object_set(out, "provenance", t->prov)))) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *table_file_describe(const table_file *t, bool cells) {
    return cells ? describe_cells(t) : describe_summary(t);
}
