/* Every value of a shard against the format and its own header: one set of rules for what we write,
 * read and are handed. */
#include <math.h>
#include <string.h>

#include "formats/shard/shard_rows.h"
#include "lib/base/names.h"

static bool one_of(const char *text, const char *const *list) {
    for (; *list; list++) {
        if (strcmp(text, *list) == 0) { return true; }
    }
    return false;
}

/* Well-formed UTF-8 (RFC 3629) without control characters; n bytes are looked at. */
static bool clean_text(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    while (p < end) {
        unsigned char c = *p++;
        if (c < 0x80) {
            if (c < 0x20 || c == 0x7f) { return false; }
            continue;
        }
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        uint32_t code = c & (0x3fu >> more);
        if (c < 0xc2 || c > 0xf4 || end - p < more) { return false; }
        for (int i = 0; i < more; i++, p++) {
            if ((*p & 0xc0) != 0x80) { return false; }
            code = code << 6 | (*p & 0x3f);
        }
        static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            return false;
        }
    }
    return true;
}

static ckvc_status check_count(const char *where, const char *name, uint64_t got, uint64_t least,
                               uint64_t most, ckvc_err *err) {
    return got >= least && got <= most
               ? CKVC_OK
               : ckvc_fail(err, CKVC_E_DATA, "%s: attribute %s is %llu, must be %llu to %llu",
                           where, name, (unsigned long long)got, (unsigned long long)least,
                           (unsigned long long)most);
}

/* Finite, above `least` (or equal to it), each larger than the one before (or equal where ties are
 * fine). */
static ckvc_status check_grid(const char *where, const char *name, const double *v, size_t n,
                              double least, bool ascending, bool ties, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]) || v[i] < least) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: attribute %s[%zu] is %g, must be a number of at least %g", where,
                             name, i, v[i], least);
        }
        if (ascending && i && (ties ? v[i] < v[i - 1] : v[i] <= v[i - 1])) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: attribute %s[%zu] is %g after %g, must ascend",
                             where, name, i, v[i], v[i - 1]);
        }
    }
    return CKVC_OK;
}

/* A start table's entries lie within the grid (they are snapped to it by whoever uses them). */
static ckvc_status check_table(const char *where, const char *name, const float *v, size_t n,
                               const double *grid, uint32_t n_grid, ckvc_err *err) {
    const double slack = 1e-6; /* f32 rounding of a grid value */
    for (size_t i = 0; i < n; i++) {
        if (!(v[i] >= grid[0] - slack && v[i] <= grid[n_grid - 1] + slack)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: attribute %s, entry %zu, is %g, the grid goes from %g to %g",
                             where, name, i, (double)v[i], grid[0], grid[n_grid - 1]);
        }
    }
    return CKVC_OK;
}

ckvc_status shard_header_check(const shard_header *h, const char *where, ckvc_err *err) {
    static const char *const passes[] = {"scan", "head", "gate", "both", NULL};
    static const char *const alphas[] = {"paper", "visible", NULL};
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_text_attributes[i];
        const char *text = (const char *)h + a->offset;
        size_t n = strnlen(text, a->size);
        if (n == a->size || !clean_text(text, n)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: attribute %s is not UTF-8 text of at most %zu bytes", where,
                             a->name, a->size - 1);
        }
    }
    if (!one_of(h->pass, passes)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute pass is \"%s\", must be scan, head, gate or both", where,
                         h->pass);
    }
    if (!one_of(h->alpha_kind, alphas)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute alpha_kind is \"%s\", must be paper or visible", where,
                         h->alpha_kind);
    }
    static const char *const operators[] = {"", "no-utility", "no-threshold", "mean-pool", NULL};
    if (!one_of(h->operator_name, operators)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute operator is \"%s\", must be no-utility, no-threshold or "
                         "mean-pool, or missing (the paper's)",
                         where, h->operator_name);
    }
    if (*h->compute && strcmp(h->compute, "bf16") != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute compute is \"%s\", must be bf16, or missing (f32)", where,
                         h->compute);
    }
    bool scan = shard_is_scan(h);
    uint32_t least = scan ? 0 : 1;
    const struct {
        const char *name;
        uint64_t got, least, most;
    } counts[] = {
        {"n_layers", h->n_layers, 1, SHARD_MAX_LAYERS},
        {"n_heads", h->n_heads, 1, SHARD_MAX_HEADS},
        {"n_kv_heads", h->n_kv_heads, 1, h->n_heads},
        {"window", h->window, 1, 1u << 20},
        {"continuation", h->continuation, 0, 1u << 24},
        {"keep_window", h->keep_window, 0, 1u << 20},
        {"budgets (its length)", h->n_budgets, least, SHARD_MAX_BUDGETS},
        {"head_actions (its length)", h->side[CKVC_SIDE_HEAD].n_actions, least, SHARD_MAX_ACTIONS},
        {"gate_actions (its length)", h->side[CKVC_SIDE_GATE].n_actions, least, SHARD_MAX_ACTIONS},
        {"edges_entropy (bins)", h->n_entropy_bins, least, SHARD_MAX_BINS},
        {"edges_perplexity (bins)", h->n_ppl_bins, least, SHARD_MAX_BINS},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ckvc_status st =
            check_count(where, counts[i].name, counts[i].got, counts[i].least, counts[i].most, err);
        if (st != CKVC_OK) { return st; }
    }
    if (h->n_heads % h->n_kv_heads) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute n_heads=%u is not a multiple of n_kv_heads=%u", where,
                         h->n_heads, h->n_kv_heads);
    }
    if (!isfinite(h->beta_bud) || h->beta_bud < 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute lambda is %g, must be a number of at least 0", where,
                         h->beta_bud);
    }
    ckvc_status st = check_grid(where, "budgets", h->budgets, h->n_budgets, 0, false, false, err);
    for (uint32_t i = 0; st == CKVC_OK && i < h->n_budgets; i++) {
        if (h->budgets[i] == 0 || h->budgets[i] > 1e9) {
            st =
                ckvc_fail(err, CKVC_E_DATA,
                          "%s: attribute budgets[%u] is %g, must be above 0 and at most 1e9 tokens",
                          where, i, h->budgets[i]);
        }
    }
    if (st == CKVC_OK && h->n_layer_budgets && (scan || h->n_layer_budgets != h->n_layers)) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: attribute layer_budgets has %u entries, must have %s",
                       where, h->n_layer_budgets,
                       scan ? "none in a scan" : "one for each of n_layers");
    }
    for (uint32_t l = 0; st == CKVC_OK && l < h->n_layer_budgets; l++) {
        const double b = h->layer_budgets[l];
        if (!(b > 0) || b > 1e9) {
            st = ckvc_fail(
                err, CKVC_E_DATA,
                "%s: attribute layer_budgets[%u] is %g, must be above 0 and at most 1e9 tokens",
                where, l, b);
        }
    }
    st = st ? st
            : check_grid(where, "head_actions", h->side[CKVC_SIDE_HEAD].actions,
                         h->side[CKVC_SIDE_HEAD].n_actions, 0, true, false, err);
    st = st ? st
            : check_grid(where, "gate_actions", h->side[CKVC_SIDE_GATE].actions,
                         h->side[CKVC_SIDE_GATE].n_actions, 0, true, false, err);
    st = st ? st
            : check_grid(where, "edges_entropy", h->edges_entropy,
                         h->n_entropy_bins ? h->n_entropy_bins - 1 : 0, -HUGE_VAL, true, true, err);
    st = st ? st
            : check_grid(where, "edges_perplexity", h->edges_ppl,
                         h->n_ppl_bins ? h->n_ppl_bins - 1 : 0, -HUGE_VAL, true, true, err);
    if (st != CKVC_OK || scan) { return st; }
    size_t n_weight = (size_t)h->n_layers * h->n_kv_heads * h->n_budgets;
    size_t n_tau = (size_t)h->n_layers * h->n_entropy_bins * h->n_ppl_bins * h->n_budgets;
    if (n_weight > SHARD_MAX_TABLE || n_tau > SHARD_MAX_TABLE) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: start tables of %zu and %zu entries, at most %zu are read", where,
                         n_weight, n_tau, SHARD_MAX_TABLE);
    }
    if (!h->side[CKVC_SIDE_HEAD].start || !h->side[CKVC_SIDE_GATE].start) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: attribute %s is missing; only scan shards may lack it", where,
                         h->side[CKVC_SIDE_HEAD].start ? "start_tau" : "start_weight");
    }
    st = check_table(where, "start_weight", h->side[CKVC_SIDE_HEAD].start, n_weight,
                     h->side[CKVC_SIDE_HEAD].actions, h->side[CKVC_SIDE_HEAD].n_actions, err);
    return st ? st
              : check_table(where, "start_tau", h->side[CKVC_SIDE_GATE].start, n_tau,
                            h->side[CKVC_SIDE_GATE].actions, h->side[CKVC_SIDE_GATE].n_actions,
                            err);
}

/* An index or a number of row i: got must be below `below`. */
static ckvc_status bad_index(const char *where, const char *column, size_t i, uint64_t got,
                             uint64_t below, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_DATA, "%s: %s, row %zu, is %llu, must be below %llu", where,
                     column, i, (unsigned long long)got, (unsigned long long)below);
}
static ckvc_status bad_number(const char *where, const char *column, size_t i, double got,
                              ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_DATA, "%s: %s, row %zu, is %g, must be finite", where, column, i,
                     got);
}

#define INDEX(column, got, below)                                                                  \
    do {                                                                                           \
        if ((got) >= (below)) { return bad_index(where, column, i, got, below, err); }             \
    } while (0)
#define FINITE(column, got)                                                                        \
    do {                                                                                           \
        if (!isfinite(got)) { return bad_number(where, column, i, got, err); }                     \
    } while (0)

static ckvc_status check_prompts(const shard *s, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    uint32_t bins_entropy = h->n_entropy_bins ? h->n_entropy_bins : 1,
             bins_ppl = h->n_ppl_bins ? h->n_ppl_bins : 1;
    for (size_t i = 0; i < s->n_prompts; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        const struct {
            const char *name, *text;
        } texts[] = {{"id", p->id}, {"source", p->source}, {"split", p->split}};
        for (size_t t = 0; t < 3; t++) {
            size_t n = strnlen(texts[t].text, SHARD_STRING);
            if (n == SHARD_STRING || !clean_text(texts[t].text, n) || (t == 0 && n == 0)) {
                return ckvc_fail(err, CKVC_E_DATA,
                                 "%s: prompt/%s, row %zu, is not %sUTF-8 text of at most %d bytes",
                                 where, texts[t].name, i, t == 0 && n == 0 ? "a non-empty " : "",
                                 SHARD_STRING - 1);
            }
        }
        INDEX("prompt/cut", p->cut, 2);
        FINITE("prompt/r_struct", p->r_struct);
        FINITE("prompt/r_sem", p->r_sem);
        FINITE("prompt/loss_full", p->loss_full);
        INDEX("prompt/bin_entropy", p->bin_entropy, bins_entropy);
        INDEX("prompt/bin_perplexity", p->bin_ppl, bins_ppl);
    }
    const shard_group *g = &shard_groups[0];
    size_t row = (size_t)h->n_layers * h->n_kv_heads;
    for (size_t j = 0; j < g->n_wide && shard_is_scan(h); j++) {
        const double *v = *(double *const *)(const void *)((const char *)s + g->wide[j].offset);
        for (size_t k = 0; v && k < s->n_prompts * row; k++) {
            if (!isfinite(v[k])) {
                return ckvc_fail(err, CKVC_E_DATA, "%s: prompt/%s, row %zu, is %g, must be finite",
                                 where, g->wide[j].name, k / row, v[k]);
            }
        }
    }
    return CKVC_OK;
}

ckvc_status shard_rows_check(const shard *s, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    bool only_head = strcmp(h->pass, "head") == 0, only_gate = strcmp(h->pass, "gate") == 0;
    ckvc_status st = check_prompts(s, where, err);
    if (st != CKVC_OK) { return st; }
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        INDEX("baseline/prompt", b->prompt, s->n_prompts);
        INDEX("baseline/budget", b->budget, h->n_budgets);
        FINITE("baseline/loss", b->loss);
    }
    if (s->n_records && shard_is_scan(h)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: %zu records in a scan shard, must be none", where,
                         s->n_records);
    }
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        INDEX("record/prompt", r->prompt, s->n_prompts);
        INDEX("record/side", r->side, CKVC_SIDE_COUNT);
        bool head = r->side == CKVC_SIDE_HEAD;
        if (head ? only_gate : only_head) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: record/side, row %zu, is %u (%s) in a shard of pass \"%s\"",
                             where, i, r->side, ckvc_side_name((ckvc_side)r->side), h->pass);
        }
        INDEX("record/layer", r->layer, h->n_layers);
        if (head) {
            INDEX("record/head", r->head, h->n_kv_heads);
        } else if (r->head != CKVC_NO_HEAD) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: record/head, row %zu, is %u, must be %d for the gate", where, i,
                             r->head, CKVC_NO_HEAD);
        }
        INDEX("record/budget", r->budget, h->n_budgets);
        INDEX("record/action", r->action, h->side[r->side].n_actions);
        if (h->reduction == CKVC_LOSS_SUM && s->prompts[r->prompt].n_continuation == 0) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: prompt/n_continuation, row %u, is 0, must be at least 1 where "
                             "losses are summed",
                             where, r->prompt);
        }
        FINITE("record/reward", r->reward);
        FINITE("record/baseline", r->baseline);
        FINITE("record/loss", r->loss);
    }
    return CKVC_OK;
}
