/* A table's sets by the library: see table_sets.h. */
#include "calib/actions/table_sets.h"

#include <assert.h>
#include <string.h>

#include "lib/base/memory.h"

ckvc_score table_sets_score(const table_sets_options *o, uint32_t block) {
    const ckvc_score own = ckvc_table_score(o->table, block);
    ckvc_score s = own;
    if (o->score != CKVC_SCORE_COUNT && o->score != own.kind) {
        s = ckvc_default_score(o->score, own.features);
    }
    s.mode = o->mode == CKVC_MODE_COUNT ? own.mode : o->mode;
    return s;
}

static uint32_t nearest_block(const table_sets *s, double budget) {
    const ckvc_table *t = s->o.table;
    return ckvc_nearest_budget(t->budgets, t->n_budgets, budget, s->n_tokens);
}

/* Whether two blocks rank by the same score, and by the same queries where it reads the bank. */
static bool rank_alike(const table_sets *s, uint32_t a, uint32_t b) {
    const ckvc_bank_use *use = s->o.table->bank_use;
    return memcmp(&s->scores[a], &s->scores[b], sizeof *s->scores) == 0 &&
           (s->scores[a].kind != CKVC_SCORE_BANK || memcmp(&use[a], &use[b], sizeof *use) == 0);
}

/* The first block that ranks alike, with which this block shares a workspace. */
static uint32_t first_alike(const table_sets *s, uint32_t block) {
    uint32_t b = 0;
    while (!rank_alike(s, b, block)) { b++; }
    return b;
}

static ckvc_request request_of(const table_sets *s, uint32_t block, double budget) {
    return (ckvc_request){.table = s->o.table,
                          .model = {.n_layers = s->L,
                                    .n_query_heads = s->H,
                                    .n_kv_heads = s->G,
                                    .head_dim = s->D,
                                    .inv_freq = s->attending->inv_freq,
                                    .attending = s->attending},
                          .n_tokens = s->n_tokens,
                          .budget = budget,
                          .score = &s->scores[block]};
}

static void *reserve_zeroed(table_sets *s, size_t n, size_t size) {
    s->bytes += n * size;
    return ckvc_calloc(n, size);
}

ckvc_status table_sets_open(table_sets *s, const table_sets_options *o, const model_shape *shape,
                            uint32_t max_tokens, ckvc_err *err) {
    const uint32_t n = o->table->n_budgets;
    char message[512];
    *s = (table_sets){.o = *o,
                      .L = (uint32_t)shape->n_layers,
                      .G = (uint32_t)shape->n_kv_heads,
                      .H = (uint32_t)shape->n_heads,
                      .D = (uint32_t)shape->head_dim,
                      .max_tokens = max_tokens,
                      .n_tokens = max_tokens};
    const size_t T = max_tokens, heads = (size_t)s->L * s->G;
    s->attending = reserve_zeroed(s, s->L, sizeof *s->attending);
    s->scores = reserve_zeroed(s, n, sizeof *s->scores);
    s->workspace = reserve_zeroed(s, n, sizeof *s->workspace);
    s->prefill = reserve_zeroed(s, n, sizeof(ckvc_prefill *));
    s->kept.sets = reserve_zeroed(s, s->L, sizeof *s->kept.sets);
    s->kept.n_candidates = reserve_zeroed(s, s->L, sizeof *s->kept.n_candidates);
    s->positions = reserve_zeroed(s, heads * T, sizeof *s->positions);
    s->offsets = reserve_zeroed(s, heads + s->L, sizeof *s->offsets);
    for (uint32_t b = 0; b < n; b++) { s->scores[b] = table_sets_score(o, b); }
    for (uint32_t b = 0; b < n; b++) {
        /* a budget of the whole prompt: no floor can exceed it, so only the model can be refused
         * here */
        ckvc_request r = request_of(s, b, (double)max_tokens);
        /* no tile comes, so that nothing is rotated: what matters is that there are frequencies */
        r.model.inv_freq = &r.budget;
        const size_t bytes = ckvc_prefill_bytes(&r);
        if (first_alike(s, b) != b) { continue; }
        s->workspace[b] = reserve_zeroed(s, bytes, 1);
        CKVC_FAIL_IF(!ckvc_prefill_begin(s->workspace[b], bytes, &r, message, sizeof message), err,
                     CKVC_E_MISMATCH, "the table %s", message);
    }
    return CKVC_OK;
}

void table_sets_close(table_sets *s) {
    for (uint32_t b = 0; s->workspace && b < s->o.table->n_budgets; b++) { free(s->workspace[b]); }
    CKVC_FREE(s->attending, s->scores, s->workspace, s->prefill, s->kept.sets, s->kept.n_candidates,
              s->positions, s->offsets);
    *s = (table_sets){0};
}

uint32_t table_sets_rows(const table_sets *s) {
    uint32_t rows = s->o.table->window;
    for (uint32_t b = 0; b < s->o.table->n_budgets; b++) {
        rows = s->scores[b].window > rows ? s->scores[b].window : rows;
    }
    return rows;
}

ckvc_status table_sets_begin(table_sets *s, const char *prompt, uint32_t n_tokens,
                             const session *from, ckvc_err *err) {
    s->prompt = prompt;
    s->n_tokens = n_tokens;
    assert(n_tokens > s->o.table->window && n_tokens <= s->max_tokens);
    for (uint32_t l = 0; l < s->L; l++) {
        const layer_rule rule = session_layer_rule(from, (int32_t)l);
        s->attending[l] =
            (ckvc_attending){.inv_freq = rule.inv_freq, .scale = rule.scale, .window = rule.window};
    }
    memset(s->prefill, 0, s->o.table->n_budgets * sizeof(ckvc_prefill *));
    for (uint32_t i = 0; i < s->o.n_budgets; i++) {
        const uint32_t b = first_alike(s, nearest_block(s, s->o.budgets[i]));
        char message[512];
        if (s->prefill[b]) { continue; }
        const ckvc_request r = request_of(s, b, s->o.budgets[i]);
        s->prefill[b] = ckvc_prefill_begin(s->workspace[b], ckvc_prefill_bytes(&r), &r, message,
                                           sizeof message);
        CKVC_FAIL_IF(!s->prefill[b], err, CKVC_E_DATA, "prompt \"%s\": %s", prompt, message);
    }
    return CKVC_OK;
}

void table_sets_see(table_sets *s, const prefill_head *head) {
    for (uint32_t b = 0; b < s->o.table->n_budgets; b++) {
        ckvc_prefill *p = s->prefill[b];
        const int64_t rows = p ? ckvc_prefill_rows(p) : 0;
        const uint32_t l = (uint32_t)head->layer, group = (uint32_t)head->group,
                       T = (uint32_t)head->n_tokens;
        int refused = 0;
        if (!p) { continue; }
        for (uint32_t q = 0; rows && q < group; q++) {
            const int64_t first = (q + 1) * head->n_rows - rows;
            refused |=
                ckvc_prefill_attention(p, l, (uint32_t)head->head * group + q, 0, (uint32_t)rows,
                                       head->attention + first * head->n_tokens);
        }
        refused |= ckvc_prefill_cache(p, l, (uint32_t)head->head, 0, T, head->keys, head->values);
        (void)refused; /* it means that a value of the head is not finite, which table_sets_keep
                          reports */
    }
}

/* Copies the library's sets of a layer into s->kept. */
static void copy_layer_sets(table_sets *s, const ckvc_prefill *p, uint32_t l) {
    uint32_t *offsets = s->offsets + (size_t)l * (s->G + 1),
             *positions = s->positions + (size_t)l * s->G * s->n_tokens;
    for (uint32_t g = 0; g < s->kept.n_sets; g++) {
        uint32_t n;
        const uint32_t *set = ckvc_prefill_set(p, l, g, &n);
        memcpy(positions + offsets[g], set, n * sizeof *set);
        offsets[g + 1] = offsets[g] + n;
    }
    s->kept.sets[l] = (kept_set){(int32_t)s->kept.n_sets, offsets, positions, false, {0}};
    s->kept.n_candidates[l] = ckvc_prefill_candidates(p, l);
}

/* The risk cell is found by our own statistics, because the edges were fitted to them. The
 * library's differ by rounding, and an edge may be exactly one prompt's value. */
static uint32_t entropy_bin(const ckvc_table *t, const prefill_stats *stats) {
    return ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1, stats->r_struct);
}
static uint32_t ppl_bin(const ckvc_table *t, const prefill_stats *stats) {
    return ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, stats->r_sem);
}

/* The library's state of the prompt in hand for budget number b. */
static ckvc_prefill *prefill_of(const table_sets *s, uint32_t b) {
    return s->prefill[first_alike(s, nearest_block(s, s->o.budgets[b]))];
}

ckvc_status table_sets_keep(table_sets *s, uint32_t b, const double *floor,
                            const prefill_stats *stats, const table_kept **out, ckvc_err *err) {
    const ckvc_table *t = s->o.table;
    const ckvc_score asked = s->scores[nearest_block(s, s->o.budgets[b])];
    ckvc_prefill *p = prefill_of(s, b);
    *out = &s->kept;
    CKVC_FAIL_IF(ckvc_prefill_again(p, s->o.budgets[b], floor) ||
                     ckvc_prefill_keep_in(p, entropy_bin(t, stats), ppl_bin(t, stats)),
                 err, CKVC_E_DATA, "prompt \"%s\": %s", s->prompt, ckvc_prefill_message(p));
    s->kept.mode = (ckvc_mode)asked.mode;
    s->kept.score = (ckvc_score_kind)asked.kind;
    s->kept.n_sets = ckvc_mode_by_head((ckvc_mode)asked.mode) ? s->G : 1;
    for (uint32_t l = 0; l < s->L; l++) { copy_layer_sets(s, p, l); }
    return CKVC_OK;
}

const double *table_sets_scores(table_sets *s, uint32_t b, uint32_t layer, uint32_t head) {
    return ckvc_prefill_scores(prefill_of(s, b), layer, head);
}
