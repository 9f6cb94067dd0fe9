/* Pooling of run directories and bare shards: what may be pooled, which prompts enter, and the
 * streaming into statistics. */
#include "cql/fit/fit_pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/fit/head_signature.h"
#include "cql/solve/reward.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_side.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

#define MAX_PAIRS                                                                                  \
    ((size_t)1 << 26) /* prompts x budgets of one shard: 512 MiB of baseline losses                \
                       */

/* ---- what may be pooled ---- */

#define POOL_HINT "records of one fit must share it: fit them apart"

static ckvc_status differ(const char *field, const char *a_where, const char *a,
                          const char *b_where, const char *b, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_MISMATCH, "%s: %s is %s, but %s has %s; " POOL_HINT, b_where,
                     field, b, a_where, a);
}

static ckvc_status same_text(const char *field, const char *a_where, const char *a,
                             const char *b_where, const char *b, ckvc_err *err) {
    return strcmp(a, b) == 0 ? CKVC_OK : differ(field, a_where, a, b_where, b, err);
}

static ckvc_status same_number(const char *field, const char *a_where, double a,
                               const char *b_where, double b, ckvc_err *err) {
    char a_text[32], b_text[32];
    if (a == b) { return CKVC_OK; }
    snprintf(a_text, sizeof a_text, "%.17g", a);
    snprintf(b_text, sizeof b_text, "%.17g", b);
    return differ(field, a_where, a_text, b_where, b_text, err);
}

static ckvc_status same_doubles(const char *field, const char *a_where, const double *a, size_t n_a,
                                const char *b_where, const double *b, size_t n_b, ckvc_err *err) {
    char name[64];
    if (n_a != n_b) {
        snprintf(name, sizeof name, "length of %s", field);
        return same_number(name, a_where, (double)n_a, b_where, (double)n_b, err);
    }
    for (size_t i = 0; i < n_a; ++i) {
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        ckvc_status st = same_number(name, a_where, a[i], b_where, b[i], err);
        if (st != CKVC_OK) { return st; }
    }
    return CKVC_OK;
}

static ckvc_status same_floats(const char *field, const char *a_where, const float *a,
                               const char *b_where, const float *b, size_t n, ckvc_err *err) {
    char name[64];
    for (size_t i = 0; i < n; ++i) {
        snprintf(name, sizeof name, "%s, entry %zu,", field, i);
        ckvc_status st = same_number(name, a_where, (double)a[i], b_where, (double)b[i], err);
        if (st != CKVC_OK) { return st; }
    }
    return CKVC_OK;
}

ckvc_status fit_pool_check(const shard_header *a, const char *a_where, const shard_header *b,
                           const char *b_where, int side, ckvc_err *err) {
    const bool scan = shard_is_scan(a) || shard_is_scan(b),
               penalty = side >= 0 && side_kind_of((ckvc_side)side)->penalty;
    const unsigned groups = scan ? SETTING_WINDOW
                                 : SETTING_SCORE | SETTING_TABLE | SETTING_MEASURE |
                                       (side < 0 ? 0 : SETTING_LAYERS) |
                                       (penalty ? SETTING_PENALTY : 0);
    const setting ours = shard_setting(a), theirs = shard_setting(b);
    CKVC_TRY(same_text("fingerprint", a_where, a->fingerprint, b_where, b->fingerprint, err));
    CKVC_TRY(same_number("n_layers", a_where, a->n_layers, b_where, b->n_layers, err));
    CKVC_TRY(same_number("n_heads", a_where, a->n_heads, b_where, b->n_heads, err));
    CKVC_TRY(same_number("n_kv_heads", a_where, a->n_kv_heads, b_where, b->n_kv_heads, err));
    CKVC_TRY(setting_match(&theirs, b_where, &ours, a_where, groups, POOL_HINT, err));
    if (scan) { return CKVC_OK; }
    CKVC_TRY(same_doubles("edges_entropy", a_where, a->edges_entropy, a->n_entropy_bins - 1,
                          b_where, b->edges_entropy, b->n_entropy_bins - 1, err));
    CKVC_TRY(same_doubles("edges_perplexity", a_where, a->edges_ppl, a->n_ppl_bins - 1, b_where,
                          b->edges_ppl, b->n_ppl_bins - 1, err));
    for (int s = 0; s < CKVC_SIDE_COUNT && side >= 0; s++) {
        CKVC_TRY(same_floats(side_kind_of((ckvc_side)s)->start_name, a_where, a->side[s].start,
                             b_where, b->side[s].start, shard_side_of(a, (ckvc_side)s).n_states,
                             err));
    }
    return CKVC_OK;
}

/* ---- prompts already seen ---- */

/* A prompt is known by its id and tokens. The first source (in sorted order) that has records of it
 * for a side keeps it. */
typedef struct fit_seen {
    uint64_t hash, token_hash;
    char *id;                         /* NULL: free slot */
    uint32_t source[CKVC_SIDE_COUNT]; /* source number + 1, 0: none yet */
    bool left_out; /* held out or of another split: counted once, though it stands in several passes
                    */
} fit_seen;

static uint64_t prompt_hash(const struct shard_prompt *p) {
    uint64_t parts[2] = {ckvc_xxh64(p->id, strlen(p->id)), p->token_hash};
    return ckvc_xxh64(parts, sizeof parts);
}

static ckvc_status seen_grow(fit_pool *pool, ckvc_err *err) {
    size_t capacity = pool->cap_seen > 0 ? 2 * pool->cap_seen : 1024;
    fit_seen *table = ckvc_calloc(capacity, sizeof *table);
    for (size_t i = 0; i < pool->cap_seen; ++i) {
        if (pool->seen[i].id != NULL) {
            size_t at = pool->seen[i].hash & (capacity - 1);
            while (table[at].id != NULL) {
                at = (at + 1) & (capacity - 1);
            }
            table[at] = pool->seen[i];
        }
    }
    free(pool->seen);
    pool->seen = table;
    pool->cap_seen = capacity;
    return CKVC_OK;
}

static ckvc_status seen_find(fit_pool *pool, const struct shard_prompt *p, fit_seen **out,
                             ckvc_err *err) {
    if (2 * (pool->n_seen + 1) > pool->cap_seen) {
        ckvc_status st = seen_grow(pool, err);
        if (st != CKVC_OK) { return st; }
    }
    uint64_t hash = prompt_hash(p);
    size_t at = hash & (pool->cap_seen - 1);
    while (pool->seen[at].id != NULL &&
           !(pool->seen[at].hash == hash && pool->seen[at].token_hash == p->token_hash &&
             strcmp(pool->seen[at].id, p->id) == 0)) {
        at = (at + 1) & (pool->cap_seen - 1);
    }
    fit_seen *s = &pool->seen[at];
    if (s->id == NULL) {
        *s = (fit_seen){.hash = hash, .token_hash = p->token_hash, .id = ckvc_strdup(p->id)};
        if (s->id == NULL) { return ckvc_fail_memory(err, "a prompt's id", strlen(p->id) + 1); }
        pool->n_seen++;
    }
    *out = s;
    return CKVC_OK;
}

/* ---- one shard ---- */

static shard_header *header_clone(const shard_header *h) {
    shard *s = shard_create(); /* a header lives in a shard: shard_free knows how to free it */
    shard_header_copy(&s->h, h);
    return &s->h;
}

static void header_free(shard_header *h) {
    _Static_assert(offsetof(shard, h) == 0, "header_clone hands out the head of a shard");
    shard_free((shard *)(void *)h);
}

static bool in_splits(const fit_options *o, const char *split) {
    if (o->n_splits == 0) { return true; }
    for (size_t i = 0; i < o->n_splits; ++i) {
        if (strcmp(o->splits[i], split) == 0) { return true; }
    }
    return false;
}

static ckvc_status add_name(void **list, size_t *n, size_t *capacity, size_t size, const char *name,
                            ckvc_err *err) {
    size_t at = 0;
    while (at < *n && strcmp((const char *)*list + at * size, name) < 0) {
        at++;
    }
    if (at < *n && strcmp((const char *)*list + at * size, name) == 0) { return CKVC_OK; }
    ckvc_status st = ckvc_grow(list, capacity, *n + 1, size, err);
    if (st != CKVC_OK) { return st; }
    char *slot = (char *)*list + at * size;
    memmove(slot + size, slot, (*n - at) * size);
    snprintf(slot, size, "%s", name);
    ++*n;
    return CKVC_OK;
}

static ckvc_status side_begin(fit_pool *pool, int side, const shard_header *h, const char *where,
                              ckvc_err *err) {
    fit_pool_side *p = &pool->sides[side];
    if (p->start != NULL) { return fit_pool_check(p->start, p->where, h, where, side, err); }
    bool head = side == CKVC_SIDE_HEAD;
    p->n_states = (size_t)h->n_layers * h->n_budgets *
                  (head ? h->n_kv_heads : (size_t)h->n_entropy_bins * h->n_ppl_bins);
    p->n_actions = h->side[side].n_actions;
    if (p->n_actions > CQL_MAX_ACTIONS) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: %zu actions, at most %d are fitted", where,
                         p->n_actions, CQL_MAX_ACTIONS);
    }
    p->counts = cql_counts_create(p->n_states, p->n_actions);
    CKVC_TRY(cql_counts_resample(p->counts, pool->options->replicates, pool->options->resample,
                                 pool->options->seed, pool->options->memory_max, err));
    p->start = header_clone(h);
    p->where = ckvc_strdup(where);
    if (p->start == NULL || p->where == NULL) {
        return ckvc_fail_memory(err, "a shard's header", 0);
    }
    return CKVC_OK;
}

/* Which prompts of this shard enter, per side: not held out, of an admitted split, not seen in an
 * earlier source. */
static ckvc_status admit(fit_pool *pool, const shard *s, const char *where, uint32_t source,
                         const bool *has[CKVC_SIDE_COUNT], bool *use[CKVC_SIDE_COUNT],
                         ckvc_err *err) {
    for (size_t i = 0; i < s->n_prompts; ++i) {
        const struct shard_prompt *p = &s->prompts[i];
        fit_seen *seen = NULL;
        ckvc_status st = seen_find(pool, p, &seen, err);
        if (st != CKVC_OK) { return st; }
        bool heldout = strcmp(p->split, "heldout") == 0;
        if (heldout || !in_splits(pool->options, p->split)) {
            if (!seen->left_out) { *(heldout ? &pool->n_heldout : &pool->n_filtered) += 1; }
            seen->left_out = true;
            continue;
        }
        bool duplicate = false;
        for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
            if (!has[side][i]) { continue; }
            if (seen->source[side] == 0) {
                seen->source[side] = source + 1;
                use[side][i] = true;
                pool->sides[side].n_prompts++;
            } else if (seen->source[side] == source + 1) {
                return ckvc_fail(err, CKVC_E_DATA,
                                 "%s: prompt %zu, id \"%s\", is there a second time; ids must be "
                                 "unique in a pass",
                                 where, i, p->id);
            } else {
                duplicate = true;
            }
        }
        pool->n_duplicates += duplicate ? 1 : 0;
    }
    return CKVC_OK;
}

/* losses [n_prompts][nB] of the shard's baselines; NaN where there is none. */
static ckvc_status baseline_losses(const shard *s, const char *where, double *losses,
                                   ckvc_err *err) {
    for (size_t i = 0; i < s->n_prompts * s->h.n_budgets; ++i) {
        losses[i] = NAN;
    }
    for (size_t i = 0; i < s->n_baselines; ++i) {
        const struct shard_baseline *b = &s->baselines[i];
        double *loss = &losses[(size_t)b->prompt * s->h.n_budgets + b->budget];
        if (!isnan(*loss)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: /baseline row %zu: prompt %u, budget %u is there a second time",
                             where, i, b->prompt, b->budget);
        }
        *loss = b->loss;
    }
    return CKVC_OK;
}

/* The state of a record: [l][g][b] of the head side, [l][e][p][b] of the gate side, e and p the
 * prompt's bins. */
static size_t record_state(const shard_header *h, const struct shard_record *r,
                           const struct shard_prompt *p) {
    if (r->side == CKVC_SIDE_HEAD) {
        return ((size_t)r->layer * h->n_kv_heads + r->head) * h->n_budgets + r->budget;
    }
    return (((size_t)r->layer * h->n_entropy_bins + p->bin_entropy) * h->n_ppl_bins + p->bin_ppl) *
               h->n_budgets +
           r->budget;
}

static ckvc_status add_record(fit_pool *pool, const shard *s, const char *where, size_t row,
                              const double *losses, ckvc_err *err) {
    const struct shard_record *r = &s->records[row];
    const struct shard_prompt *p = &s->prompts[r->prompt];
    fit_pool_side *side = &pool->sides[r->side];
    bool advantage = pool->options->reward == FIT_ADVANTAGE;
    double reward = advantage ? r->reward - r->baseline : r->reward;
    double part = reward; /* the head side pays no penalty */
    if (r->side == CKVC_SIDE_GATE) {
        double reference =
            advantage ? losses[(size_t)r->prompt * s->h.n_budgets + r->budget] : p->loss_full;
        if (isnan(reference)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: /record row %zu: prompt %u has no /baseline row for budget %u",
                             where, row, r->prompt, r->budget);
        }
        part = reward_loss_part(reference, r->loss, s->h.setting.reduction, p->n_continuation);
    }
    size_t state = record_state(&s->h, r, p);
    ckvc_err inner;
    inner.status = CKVC_OK; /* its text alone would cost more to clear than a record to add */
    ckvc_status st = cql_counts_add(side->counts, state, r->action, reward, part, &inner);
    if (st != CKVC_OK) {
        return ckvc_fail(err, st, "%s: /record row %zu: %s", where, row, inner.text);
    }
    if (pool->options->solver == FIT_ADAMW) {
        void *rows = side->rows;
        st = ckvc_grow(&rows, &side->cap_rows, side->n_rows + 1, sizeof *side->rows, err);
        side->rows = rows;
        if (st != CKVC_OK) { return st; }
        side->rows[side->n_rows++] =
            (fit_row){prompt_hash(p), {(uint32_t)state, r->action, reward}};
    }
    return CKVC_OK;
}

/* Row numbers of the records ordered by prompt, stable: a counting sort, since other producers may
 * interleave prompts. first [n_prompts + 1] comes as the number of records of prompt i at i + 1,
 * and leaves as where each prompt's rows begin. */
static void order_by_prompt(const shard *s, size_t *first, uint32_t *order) {
    for (size_t i = 0; i < s->n_prompts; ++i) {
        first[i + 1] += first[i];
    }
    for (size_t i = 0; i < s->n_records; ++i) {
        order[first[s->records[i].prompt]++] = (uint32_t)i;
    }
    memmove(first + 1, first,
            s->n_prompts * sizeof *first); /* each entry moved on to its successor's start */
    first[0] = 0;
}

/* sides: which of them this shard may give. */
static ckvc_status add_shard(fit_pool *pool, const shard *s, const char *where, uint32_t source,
                             const bool sides[CKVC_SIDE_COUNT], ckvc_err *err) {
    const shard_header *h = &s->h;
    if (strcmp(h->pass, "scan") == 0) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: a shard of a scan has no records to fit", where);
    }
    ckvc_status st = CKVC_OK;
    if (pool->first == NULL) {
        pool->first = header_clone(h);
        pool->where = ckvc_strdup(where);
        if (pool->first == NULL || pool->where == NULL) {
            return ckvc_fail_memory(err, "a shard's header", 0);
        }
    } else if ((st = fit_pool_check(pool->first, pool->where, h, where, -1, err)) != CKVC_OK) {
        return st;
    }
    if (s->n_records > UINT32_MAX) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: %zu records in one shard, at most 4294967295 are read", where,
                         s->n_records);
    }
    if (s->n_prompts > MAX_PAIRS / h->n_budgets) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: %zu prompts with %u budgets in one shard, their product may be at most %zu", where,
            s->n_prompts, h->n_budgets, MAX_PAIRS);
    }

    bool *has[CKVC_SIDE_COUNT] = {0}, *use[CKVC_SIDE_COUNT] = {0};
    double *losses = ckvc_alloc(s->n_prompts * h->n_budgets, sizeof *losses);
    size_t *first = ckvc_calloc(s->n_prompts + 1, sizeof *first);
    uint32_t *order = ckvc_alloc(s->n_records, sizeof *order);
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        has[side] = ckvc_calloc(s->n_prompts, sizeof(bool));
        use[side] = ckvc_calloc(s->n_prompts, sizeof(bool));
    }
    if (losses == NULL || first == NULL || order == NULL || has[0] == NULL || has[1] == NULL ||
        use[0] == NULL || use[1] == NULL) {
        st = ckvc_fail_memory(err, "a shard's index", s->n_records * sizeof *order);
        goto done;
    }
    bool any[CKVC_SIDE_COUNT] = {false, false};
    for (size_t i = 0; i < s->n_records; ++i) {
        int side = s->records[i].side;
        uint32_t prompt = s->records[i].prompt;
        has[side][prompt] |= sides[side];
        any[side] |= sides[side];
        first[prompt + 1]++;
    }
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        if (any[side] && (st = side_begin(pool, side, h, where, err)) != CKVC_OK) { goto done; }
    }
    if ((st = baseline_losses(s, where, losses, err)) != CKVC_OK) { goto done; }
    const bool *has_const[CKVC_SIDE_COUNT] = {has[0], has[1]};
    if ((st = admit(pool, s, where, source, has_const, use, err)) != CKVC_OK) { goto done; }
    order_by_prompt(s, first, order);
    for (size_t p = 0; p < s->n_prompts; ++p) {
        for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
            if (use[side][p]) { cql_counts_prompt(pool->sides[side].counts, s->prompts[p].id); }
        }
        for (size_t i = first[p]; i < first[p + 1]; ++i) {
            if (use[s->records[order[i]].side][p] &&
                (st = add_record(pool, s, where, order[i], losses, err)) != CKVC_OK) {
                goto done;
            }
        }
    }
    if (h->plan[0] != '\0') {
        void *list = pool->plans;
        st = add_name(&list, &pool->n_plans, &pool->cap_plans, sizeof *pool->plans, h->plan, err);
        pool->plans = list;
    }
done:
    free(losses);
    free(first);
    free(order);
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        free(has[side]);
        free(use[side]);
    }
    return st;
}

/* ---- sources ---- */

typedef struct source {
    const char *path;
    run_dir *run; /* NULL: a bare shard */
    const run_pass *passes[CKVC_SIDE_COUNT], *scan;
} source;

/* Runs first, by plan, then bare shards; each by path. */
static int by_identity(const void *a, const void *b) {
    const source *x = a, *y = b;
    if ((x->run == NULL) != (y->run == NULL)) { return x->run == NULL ? 1 : -1; }
    int order = x->run != NULL ? strcmp(run_plan_hash(x->run), run_plan_hash(y->run)) : 0;
    return order != 0 ? order : strcmp(x->path, y->path);
}

static bool pass_has(const run_pass *p, int side) {
    return strcmp(p->kind, "both") == 0 || strcmp(p->kind, ckvc_side_name((ckvc_side)side)) == 0;
}

/* The pass of each side: the last complete one, or the one that was asked for, complete or not. */
static ckvc_status choose_passes(source *s, int wanted, ckvc_err *err) {
    bool incomplete = false;
    for (size_t i = 0; i < run_pass_count(s->run); ++i) {
        const run_pass *p = run_pass_at(s->run, i);
        if (p->number == 0) {
            if (p->complete) { s->scan = p; }
            continue;
        }
        for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
            if (pass_has(p, side) && (wanted > 0 ? p->number == wanted : p->complete)) {
                s->passes[side] = p;
            }
        }
        incomplete |= !p->complete;
    }
    if (s->passes[CKVC_SIDE_HEAD] == NULL && s->passes[CKVC_SIDE_GATE] == NULL) {
        if (wanted > 0) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: has no pass %d", s->path, wanted);
        }
        return ckvc_fail(
            err, CKVC_E_DATA, "%s: has no complete pass with records%s", s->path,
            incomplete ? "; finish it with calibrate --resume, or name a pass with --pass" : "");
    }
    for (int side = 0; wanted > 0 && side < CKVC_SIDE_COUNT; ++side) {
        if (s->passes[side] != NULL && !s->passes[side]->complete) {
            ckvc_warn("%s: %s is not complete: fitting the %u prompts that it has", s->path,
                      s->passes[side]->name, s->passes[side]->n_prompts_done);
            break;
        }
    }
    return CKVC_OK;
}

/* Prompt means of the scan's per-head statistics, hold-out left out: for transfer by signature. */
static ckvc_status add_scan(fit_pool *pool, const shard *s, const char *where, ckvc_err *err) {
    if (!head_signature_there(s)) { return CKVC_OK; }
    ckvc_status st = fit_pool_check(pool->first, pool->where, &s->h, where, -1, err);
    if (st != CKVC_OK) { return st; }
    size_t heads = (size_t)s->h.n_layers * s->h.n_kv_heads;
    if (pool->signature == NULL &&
        (pool->signature = ckvc_calloc(heads * 3, sizeof *pool->signature)) == NULL) {
        return ckvc_fail_memory(err, "the heads' signature", heads * 3 * sizeof *pool->signature);
    }
    for (size_t p = 0; p < s->n_prompts; ++p) {
        if (strcmp(s->prompts[p].split, "heldout") == 0 ||
            !in_splits(pool->options, s->prompts[p].split)) {
            continue;
        }
        head_signature_add(pool->signature, s, p);
        pool->n_signature++;
    }
    return CKVC_OK;
}

static ckvc_status add_stable(fit_pool *pool, const run_pass *p, const char *name, ckvc_err *err) {
    if (pool->stable == NULL) { pool->stable = json_array(); }
    json_t *o = json_pack("{s:s, s:f, s:b, s:I}", "pass", name, "target", p->stable.target,
                          "reached", p->stable.reached, "prompts", (json_int_t)p->n_prompts);
    if (o == NULL || pool->stable == NULL ||
        (!isnan(p->stable.reliability) &&
         json_object_set_new(o, "reliability", json_real(p->stable.reliability))) ||
        json_array_append(pool->stable, o)) {
        json_decref(o);
        return ckvc_fail_memory(err, "a pass", 0);
    }
    json_decref(o);
    return CKVC_OK;
}

static ckvc_status read_run(fit_pool *pool, const source *s, uint32_t number, ckvc_err *err) {
    const fit_options *o = pool->options;
    ckvc_status st = fit_leaks_add(&pool->leaks, run_plan(s->run), "", o->leak_checks,
                                   o->n_leak_checks, s->path, err);
    char where[512];
    for (int first = 0; first < CKVC_SIDE_COUNT; ++first) {
        const run_pass *p = s->passes[first];
        if (st != CKVC_OK) { return st; }
        if (p == NULL || (first == CKVC_SIDE_GATE && p == s->passes[CKVC_SIDE_HEAD])) {
            continue; /* a pass of both sides is read once */
        }
        const bool sides[CKVC_SIDE_COUNT] = {p == s->passes[CKVC_SIDE_HEAD],
                                             p == s->passes[CKVC_SIDE_GATE]};
        /* A pass of compile is the first one of a calibration of its own, whose plan its shards
         * carry. */
        char name[sizeof p->name];
        bool own_plan = strcmp(p->plan, run_plan_hash(s->run)) != 0;
        snprintf(name, sizeof name, own_plan ? "pass-01-%s" : "%s", own_plan ? p->kind : p->name);
        void *list = pool->passes;
        st = add_name(&list, &pool->n_passes, &pool->cap_passes, sizeof *pool->passes, name, err);
        pool->passes = list;
        if (st == CKVC_OK && p->stable.known) { st = add_stable(pool, p, name, err); }
        for (size_t k = 0; st == CKVC_OK && k < p->n_shards; ++k) {
            shard *rows = NULL;
            snprintf(where, sizeof where, "%s/%s, shard %zu", s->path, p->name, k);
            if ((st = run_read_shard(s->run, p, k, &rows, err)) == CKVC_OK) {
                st = add_shard(pool, rows, where, number, sides, err);
            }
            shard_free(rows);
        }
        if (st != CKVC_OK) { return st; }
    }
    for (size_t k = 0;
         pool->first != NULL && s->scan != NULL && st == CKVC_OK && k < s->scan->n_shards; ++k) {
        shard *rows = NULL;
        snprintf(where, sizeof where, "%s/scan, shard %zu", s->path, k);
        if ((st = run_read_shard(s->run, s->scan, k, &rows, err)) == CKVC_OK) {
            st = add_scan(pool, rows, where, err);
        }
        shard_free(rows);
    }
    return st;
}

static ckvc_status read_bare(fit_pool *pool, const source *s, uint32_t number, ckvc_err *err) {
    const bool sides[CKVC_SIDE_COUNT] = {true, true};
    shard *rows = NULL;
    const fit_options *o = pool->options;
    ckvc_status st = shard_h5_read_hostile(s->path, &rows, err);
    if (st == CKVC_OK) {
        st = fit_leaks_add(&pool->leaks, NULL, rows->h.manifest, o->leak_checks, o->n_leak_checks,
                           s->path, err);
    }
    if (st == CKVC_OK) { st = add_shard(pool, rows, s->path, number, sides, err); }
    if (st == CKVC_OK) {
        void *list = pool->passes;
        st = add_name(&list, &pool->n_passes, &pool->cap_passes, sizeof *pool->passes, rows->h.pass,
                      err);
        pool->passes = list;
    }
    shard_free(rows);
    return st;
}

ckvc_status fit_pool_read(fit_pool *pool, const char *const *paths, size_t n_paths,
                          const fit_options *o, ckvc_err *err) {
    *pool = (fit_pool){.options = o};
    ckvc_status st = CKVC_OK;
    source *sources = ckvc_calloc(n_paths, sizeof *sources);
    for (size_t i = 0; st == CKVC_OK && i < n_paths; ++i) {
        sources[i].path = paths[i];
        for (size_t j = 0; st == CKVC_OK && j < i; ++j) {
            if (strcmp(paths[i], paths[j]) == 0) {
                st = ckvc_fail(err, CKVC_E_USAGE, "%s is named twice", paths[i]);
            }
        }
        if (st == CKVC_OK && ckvc_is_dir(paths[i]) &&
            (st = run_open(paths[i], &sources[i].run, err)) == CKVC_OK) {
            st = choose_passes(&sources[i], o->pass, err);
        }
    }
    if (st == CKVC_OK) {
        qsort(sources, n_paths, sizeof *sources, by_identity);
        for (size_t i = 0; st == CKVC_OK && i < n_paths; ++i) {
            st = sources[i].run != NULL ? read_run(pool, &sources[i], (uint32_t)i, err)
                                        : read_bare(pool, &sources[i], (uint32_t)i, err);
        }
    }
    for (size_t i = 0; i < n_paths; ++i) {
        if (sources[i].run != NULL) { run_close(sources[i].run); }
    }
    free(sources);
    if (st != CKVC_OK) { return st; }
    if (pool->sides[0].n_prompts == 0 && pool->sides[1].n_prompts == 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: no records to fit (left out: %" PRIu64 " held-out prompts, %" PRIu64
                         " of other splits)",
                         paths[0], pool->n_heldout, pool->n_filtered);
    }
    if (pool->n_duplicates > 0) {
        ckvc_warn(
            "%" PRIu64
            " prompts have records in more than one input: each is counted once, from the first",
            pool->n_duplicates);
    }
    return CKVC_OK;
}

void fit_pool_clear(fit_pool *pool) {
    if (pool->first != NULL) { header_free(pool->first); }
    free(pool->where);
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        fit_pool_side *p = &pool->sides[side];
        if (p->start != NULL) { header_free(p->start); }
        free(p->where);
        cql_counts_free(p->counts);
        free(p->rows);
    }
    for (size_t i = 0; i < pool->cap_seen; ++i) {
        free(pool->seen[i].id);
    }
    free(pool->seen);
    free(pool->plans);
    free(pool->passes);
    free(pool->signature);
    json_decref(pool->stable);
    fit_leaks_fini(&pool->leaks);
    *pool = (fit_pool){0};
}
