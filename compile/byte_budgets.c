/* See byte_budgets.h. */
#include "compile/byte_budgets.h"

#include <math.h>

#include "formats/setting/setting.h"
#include "lib/base/json.h"

/* Ways to spend bytes, the preferred first: of heads that can be rotated, of heads that go into
 * blocks of 32, and of others. Keys in 8 bits and values in 4 lost least of all on prompts at a
 * tenth and a twentieth of the bytes, where keys have no bias. Where they have one, keys in 4 bits
 * less their mean lose less still (docs/results.md, "In bytes"), and are preferred. */
#define PAIR(k, v)                                                                                 \
    { CACHE_##k, CACHE_##v }
static const cache_formats rotated[BYTE_WAYS] = {PAIR(Q8_0, Q4_0_ROT), PAIR(Q8_0, Q8_0),
                                                 PAIR(Q4_0_MEAN_ROT, Q4_0_ROT),
                                                 PAIR(Q4_0_ROT, Q4_0_ROT), PAIR(F16, F16)},
                           in_blocks[BYTE_WAYS] = {PAIR(Q8_0, Q4_0), PAIR(Q8_0, Q8_0),
                                                   PAIR(Q4_0_MEAN, Q4_0), PAIR(Q4_0, Q4_0),
                                                   PAIR(F16, F16)},
                           in_bytes[] = {PAIR(FP8, FP8), PAIR(F16, F16)},
                           whole[WHOLE_CACHES] = {
                               PAIR(Q8_0, Q8_0),      PAIR(FP8, FP8),
                               PAIR(Q4_0, Q4_0),      PAIR(Q4_0_ROT, Q4_0_ROT),
                               PAIR(Q4_0_MEAN, Q4_0), PAIR(Q4_0_MEAN_ROT, Q4_0_ROT)};

static const size_t of_biased[BYTE_WAYS] = {2, 0, 1, 3, 4}; /* their order where keys have a bias */

static bool goes_into(cache_formats f, int32_t head_dim) {
    ckvc_err why = {0};
    return cache_formats_check(f, head_dim, &why) == CKVC_OK;
}

/* Adds the budgets of one share. */
static ckvc_status add_ways(const byte_ask *ask, double share, byte_budgets *o, ckvc_err *err) {
    const bool rotates = goes_into(*rotated, ask->head_dim),
               blocks = goes_into(*in_blocks, ask->head_dim);
    const cache_formats *ways = ask->only ? ask->only
                                : rotates ? rotated
                                : blocks  ? in_blocks
                                          : in_bytes;
    const size_t n = ask->only           ? 1
                     : rotates || blocks ? BYTE_WAYS
                                         : sizeof in_bytes / sizeof *in_bytes;
    const uint32_t before = o->n;
    for (size_t i = 0; i < n && !(ask->first && o->n > before); i++) {
        const cache_formats way = ways[ask->biased && n == BYTE_WAYS ? of_biased[i] : i];
        const double budget = cache_entries_share(share, way, ask->head_dim);
        if (budget >= 1 || ckvc_budget_tokens(budget, ask->shortest) < ask->least) { continue; }
        for (uint32_t k = 0; k < o->n; k++) {
            CKVC_FAIL_IF(o->budget[k] == budget, err, CKVC_E_USAGE,
                         "--bytes: %.10g and %.10g are both %.10g of the entries in some format: "
                         "leave out one of them, or change it a little",
                         o->share[k], share, budget);
        }
        CKVC_FAIL_IF(o->n == BYTE_BUDGETS_MAX, err, CKVC_E_USAGE,
                     "--bytes: %u shares can be spent in more than %d ways: give fewer", ask->n,
                     BYTE_BUDGETS_MAX);
        o->share[o->n] = share;
        o->budget[o->n] = budget;
        o->held[o->n++] = way;
    }
    const bool too_much = cache_entries_share(share, ways[n - 1], ask->head_dim) >= 1 || share >= 1;
    CKVC_FAIL_IF(o->n == before && too_much, err, CKVC_E_USAGE,
                 "--bytes %.10g: holds the whole cache: give a share below 1, and below that which "
                 "the whole cache takes in the formats of --cache-keys and --cache-values",
                 share);
    CKVC_FAIL_IF(o->n == before, err, CKVC_E_USAGE,
                 "--bytes %.10g: keeps fewer than %u of the %u tokens of the shortest prompt, and "
                 "every head keeps as many (--recent, and the first): give more",
                 share, ask->least, ask->shortest);
    return CKVC_OK;
}

ckvc_status byte_budgets_make(const byte_ask *ask, byte_budgets *out, ckvc_err *err) {
    *out = (byte_budgets){0};
    if (ask->only) { CKVC_TRY(cache_formats_check(*ask->only, ask->head_dim, err)); }
    for (uint32_t i = 0; i < ask->n; i++) { CKVC_TRY(add_ways(ask, ask->shares[i], out, err)); }
    for (size_t i = 0; i < WHOLE_CACHES; i++) {
        if (goes_into(whole[i], ask->head_dim)) { out->whole[out->n_whole++] = whole[i]; }
    }
    return CKVC_OK;
}

void byte_budgets_take(const byte_budgets *o, const select_losses *s, table_file *t) {
    uint32_t take[BYTE_BUDGETS_MAX] = {0}, n = 0;
    for (uint32_t b = 0; b < o->n; b++) {
        bool first = true, chosen = false; /* of its share: b comes first; one of them is chosen */
        for (uint32_t c = 0; c < o->n; c++) {
            first &= o->share[c] != o->share[b] || c >= b;
            chosen |= s && o->share[c] == o->share[b] && s->chosen[c] < s->n;
        }
        if (chosen ? s->chosen[b] < s->n : first) { take[n++] = b; }
    }
    table_file_take_budgets(t, take, n);
    if (ckvc_table_add_bytes(t->table)) { ckvc_out_of_memory(n, sizeof *t->table->held); }
    for (uint32_t i = 0; i < n; i++) {
        const cache_formats f = o->held[take[i]];
        t->table->byte_share[i] = o->share[take[i]];
        t->table->held[i] = (ckvc_held){(uint32_t)f.keys, (uint32_t)f.values};
    }
    json_t *select = json_object_get(t->meta, "select");
    if (select) { json_object_set_new(select, "bytes", byte_budgets_json(o, s)); }
}

json_t *byte_budgets_json(const byte_budgets *o, const select_losses *s) {
    json_t *list = json_array();
    for (uint32_t b = 0; b < o->n; b++) {
        double least = NAN;
        for (size_t i = 0; s && i < s->n; i++) {
            least = fmin(least, s->loss[i * s->n_budgets + b]); /* ignores NaN */
        }
        json_t *way = json_pack("{s:f, s:f, s:s, s:s}", "bytes", o->share[b], "budget",
                                o->budget[b], "keys", cache_format_name(o->held[b].keys), "values",
                                cache_format_name(o->held[b].values));
        if (s) {
            json_object_set_new(way, s->by_kl ? "kl" : "loss", ckvc_json_real(least));
            json_object_set_new(way, "chosen", json_boolean(s->chosen[b] < s->n));
        }
        json_array_append_new(list, way);
    }
    return list;
}
