/* Decides what one fit may pool (formats/table/table.md): fit_match of fit_pool.h. */
#include "fit/fit_pool.h"

#include <stdio.h>
#include <string.h>

#include "formats/shard/shard_rows.h"

#define POOL_HINT "records of one fit must share it: fit them apart"

/* Where the compared values come from. */
typedef struct pairing {
    const char *a, *b;
    ckvc_err *err;
} pairing;

static ckvc_status same_text(const pairing *p, const char *field, const char *a, const char *b) {
    return strcmp(a, b) == 0
               ? CKVC_OK
               : ckvc_fail(p->err, CKVC_E_MISMATCH, "%s: %s is %s, but %s has %s; " POOL_HINT, p->b,
                           field, b, p->a, a);
}

static ckvc_status same_number(const pairing *p, const char *field, double a, double b) {
    char a_text[32], b_text[32];
    if (a == b) { return CKVC_OK; }
    snprintf(a_text, sizeof a_text, "%.17g", a);
    snprintf(b_text, sizeof b_text, "%.17g", b);
    return same_text(p, field, a_text, b_text);
}

/* Compares the inner edges of n_a and n_b bins. */
static ckvc_status same_edges(const pairing *p, const char *field, const double *a, uint32_t n_a,
                              const double *b, uint32_t n_b) {
    char name[64];
    snprintf(name, sizeof name, "length of %s", field);
    CKVC_TRY(same_number(p, name, n_a - 1.0, n_b - 1.0));
    for (uint32_t i = 0; i + 1 < n_a; ++i) {
        snprintf(name, sizeof name, "%s[%u]", field, i);
        CKVC_TRY(same_number(p, name, a[i], b[i]));
    }
    return CKVC_OK;
}

static ckvc_status same_start(const pairing *p, const struct side *a, const struct side *b) {
    char name[64];
    size_t i = 0;
    while (i < a->n_states && a->entries[i] == b->entries[i]) { i++; }
    if (i == a->n_states) { return CKVC_OK; }
    snprintf(name, sizeof name, "%s, entry %zu,", a->kind->start_name, i);
    return same_number(p, name, (double)a->entries[i], (double)b->entries[i]);
}

/* Returns what two headers must share beside the model. Where one of them does not have a member of
 * the setting, that of b is made equal to that of a. */
static unsigned groups_of(const shard_header *a, const shard_header *b, int side,
                          const setting *ours, setting *theirs) {
    const shard_kind x = shard_kind_of(a), y = shard_kind_of(b);
    if (x == SHARD_SCAN || y == SHARD_SCAN) { return SETTING_WINDOW; }
    if (side == POOL_SCORE) { /* a score pass knows no floor, no recent positions and no queries */
        theirs->floor = ours->floor;
        theirs->recent = ours->recent;
        theirs->queries = ours->queries;
        return SETTING_ATTENTION | SETTING_DEMAND | SETTING_LEARNED;
    }
    if (x == SHARD_SCORE || y == SHARD_SCORE) { return SETTING_WINDOW; }
    if (x == SHARD_DEMAND && y == SHARD_DEMAND) {
        return SETTING_TABLE | SETTING_MEASURE | SETTING_DEMAND;
    }
    if (x != y) { /* demand has budgets, and neither an operator nor actions */
        theirs->op = ours->op;
        memcpy(theirs->grid, ours->grid, sizeof theirs->grid);
        return SETTING_TABLE;
    }
    return SETTING_SCORE | SETTING_TABLE | SETTING_MEASURE | (side < 0 ? 0 : SETTING_LAYERS) |
           (side >= 0 && side_kind_of((ckvc_side)side)->penalty ? SETTING_PENALTY : 0);
}

ckvc_status fit_match(const shard_header *a, const char *a_where, const shard_header *b,
                      const char *b_where, int side, ckvc_err *err) {
    const pairing p = {a_where, b_where, err};
    const setting ours = shard_setting(a);
    setting theirs = shard_setting(b);
    const unsigned groups = groups_of(a, b, side, &ours, &theirs);
    char why[SKETCH_TEXT];
    if (!sketch_same(a->sketch, b->sketch, why)) {
        CKVC_TRY(same_text(&p, "fingerprint", a->fingerprint, b->fingerprint));
    }
    CKVC_TRY(same_number(&p, "n_layers", a->n_layers, b->n_layers));
    CKVC_TRY(same_number(&p, "n_heads", a->n_heads, b->n_heads));
    CKVC_TRY(same_number(&p, "n_kv_heads", a->n_kv_heads, b->n_kv_heads));
    CKVC_TRY(setting_match(&theirs, b_where, &ours, a_where, groups, POOL_HINT, err));
    if (shard_kind_of(a) != SHARD_LOGGED || shard_kind_of(b) != SHARD_LOGGED) { return CKVC_OK; }
    CKVC_TRY(same_edges(&p, "edges_entropy", a->edges_entropy, a->n_entropy_bins, b->edges_entropy,
                        b->n_entropy_bins));
    CKVC_TRY(same_edges(&p, "edges_perplexity", a->edges_ppl, a->n_ppl_bins, b->edges_ppl,
                        b->n_ppl_bins));
    for (int i = 0; i < CKVC_SIDE_COUNT && side >= 0; ++i) {
        const struct side sa = shard_side_of(a, (ckvc_side)i), sb = shard_side_of(b, (ckvc_side)i);
        CKVC_TRY(same_start(&p, &sa, &sb));
    }
    return CKVC_OK;
}
