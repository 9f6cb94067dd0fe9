/* Pools run directories and bare shards: it decides which prompts enter, and streams them into
 * statistics. */
#include "fit/fit_pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/run/prompt_records.h"
#include "formats/side/reward.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

/* ---- prompts already seen ---- */

static const shard_kind shard_kinds[] = {[POOL_DEMAND] = SHARD_DEMAND, [POOL_SCORE] = SHARD_SCORE};

/* A prompt is identified by its id and tokens. The first source (in sorted order) that has records
 * of it for a kind keeps it. */
struct fit_seen {
    uint32_t source[POOL_KINDS]; /* the number of the source plus 1; 0: none yet */
    /* Whether it is held out or of another split. It is counted once, in however many passes it
     * stands. */
    bool left_out;
    /* whether it is held out and has given its features, which the first source does */
    bool judges;
};

/* Returns the prompt's entry, which is valid until the next call. */
static struct fit_seen *seen_find(fit_pool *pool, const struct shard_prompt *p) {
    char key[sizeof p->id + 17];
    snprintf(key, sizeof key, "%016" PRIx64 "%s", p->token_hash, p->id);
    const json_t *at = json_object_get(pool->seen_at, key);
    if (at) { return &pool->seen[json_integer_value(at)]; }
    json_object_set_new_nocheck(pool->seen_at, key, json_integer((json_int_t)pool->n_seen));
    CKVC_GROW(pool->seen, pool->cap_seen, pool->n_seen + 1);
    pool->seen[pool->n_seen] = (struct fit_seen){0};
    return &pool->seen[pool->n_seen++];
}

static bool in_splits(const fit_options *o, const char *split) {
    for (size_t i = 0; i < o->n_splits; ++i) {
        if (strcmp(o->splits[i], split) == 0) { return true; }
    }
    return o->n_splits == 0;
}

/* ---- one shard ---- */

/* A shard that is being read into the pool: which kinds it may give (bit i stands for kind i), and
 * where it is from. */
typedef struct incoming {
    const char *where;
    uint32_t source; /* number of the source */
    unsigned kinds;
} incoming;

static ckvc_status side_begin(fit_pool *pool, ckvc_side which, const shard_header *h,
                              const char *where, ckvc_err *err) {
    side_records *p = &pool->sides[which];
    const fit_options *o = pool->options;
    const struct side s = shard_side_of(h, which);
    if (p->where) { return fit_match(&p->start, p->where, h, where, (int)which, err); }
    CKVC_FAIL_IF(s.actions.n > CQL_MAX_ACTIONS, err, CKVC_E_DATA,
                 "%s: %zu actions, at most %d are fitted", where, s.actions.n, CQL_MAX_ACTIONS);
    p->counts = cql_counts_create(s.n_states, s.actions.n);
    CKVC_TRY(cql_counts_resample(p->counts, o->resampled.n_replicates, o->resampled.kind,
                                 o->resampled.seed, o->memory_max, err));
    shard_header_copy(&p->start, h);
    p->where = ckvc_strdup(where);
    return CKVC_OK;
}

/* Decides which of the kinds that prompt i has records of (`has`) the prompt enters. It enters none
 * when it is held out or of another split, and none for which an earlier source has its records. An
 * exception is POOL_SCORE, whose held-out prompts enter, because they judge the fit. */
static ckvc_status admit_prompt(fit_pool *pool, const shard *s, size_t i, const incoming *from,
                                unsigned has, unsigned *use, ckvc_err *err) {
    const struct shard_prompt *p = &s->prompts[i];
    struct fit_seen *seen = seen_find(pool, p);
    const bool heldout = strcmp(p->split, "heldout") == 0;
    bool duplicate = false;
    *use = 0;
    if (heldout || !in_splits(pool->options, p->split)) {
        if (!seen->left_out) { *(heldout ? &pool->n_heldout : &pool->n_filtered) += 1; }
        seen->left_out = true;
        if (heldout && !seen->judges) { *use = has & 1u << POOL_SCORE; }
        seen->judges |= *use != 0;
        return CKVC_OK;
    }
    for (int kind = 0; kind < POOL_KINDS; ++kind) {
        if (!(has >> kind & 1)) { continue; }
        CKVC_FAIL_IF(seen->source[kind] == from->source + 1, err, CKVC_E_DATA,
                     "%s: prompt %zu, id \"%s\", is there a second time; ids must be "
                     "unique in a pass",
                     from->where, i, p->id);
        if (seen->source[kind] > 0) {
            duplicate = true;
            continue;
        }
        seen->source[kind] = from->source + 1;
        *use |= 1u << kind;
        if (kind >= CKVC_SIDE_COUNT) { continue; }
        pool->sides[kind].n_prompts++;
        cql_counts_prompt(pool->sides[kind].counts, shard_prompt_cluster(p));
    }
    pool->n_duplicates += duplicate;
    return CKVC_OK;
}

static ckvc_status add_record(fit_pool *pool, const prompt_records *x, uint32_t row,
                              const char *where, ckvc_err *err) {
    const struct shard_record *r = &x->s->records[row];
    const struct shard_prompt *p = &x->s->prompts[r->prompt];
    side_records *side = &pool->sides[r->side];
    const bool advantage = pool->options->cql.reward == FIT_ADVANTAGE;
    const double reward = advantage ? r->reward - r->baseline : r->reward;
    double part = reward;
    if (x->sides[r->side].kind->penalty) {
        const double reference = advantage ? prompt_records_baseline(x, r) : p->loss_full;
        CKVC_FAIL_IF(isnan(reference), err, CKVC_E_DATA,
                     "%s: /record row %u: prompt %u has no /baseline row for budget %u", where, row,
                     r->prompt, r->budget);
        part = reward_loss_part(reference, r->loss, x->s->h.setting.reduction, p->n_continuation);
    }
    const size_t state = prompt_records_state(x, r);
    ckvc_err inner;
    /* Only the status is set: clearing the text would cost more than adding a record. */
    inner.status = CKVC_OK;
    const ckvc_status st = cql_counts_add(side->counts, state, r->action, reward, part, &inner);
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s: /record row %u: %s", where, row, inner.text);
    if (pool->options->cql.solver == FIT_ADAMW) {
        CKVC_GROW(side->rows, side->cap_rows, side->n_rows + 1);
        side->rows[side->n_rows++] =
            (fit_row){shard_prompt_hash(p), {(uint32_t)state, r->action, reward}};
    }
    return CKVC_OK;
}

/* The first shard of a kind says what it was made with, and the others must agree. Kind -1 stands
 * for sides. */
static ckvc_status check_made_alike(shard_header *first, char **where, const shard *s, int kind,
                                    const incoming *from, ckvc_err *err) {
    if (*where) {
        return fit_match(first, *where, &s->h, from->where, kind == POOL_SCORE ? kind : -1, err);
    }
    shard_header_copy(first, &s->h);
    *where = ckvc_strdup(from->where);
    return CKVC_OK;
}

/* Adds one prompt's numbers of a kind that is no side. */
static ckvc_status add_numbers(fit_pool *pool, const shard *s, size_t p, int kind,
                               const char *where, ckvc_err *err) {
    const uint64_t hash = shard_prompt_hash(&s->prompts[p]);
    const fit_options *o = pool->options;
    if (kind == POOL_SCORE) {
        return learned_records_add(&pool->learned, s, p, hash, o->memory_max, where, err);
    }
    if (head_signature_there(s)) { head_signature_add(&pool->demanded, s, p); }
    CKVC_TRY(bank_records_add(&pool->bank, s, p, hash, where, err));
    return demand_records_add(&pool->demand, s, p, hash, o->memory_max, where, err);
}

/* Adds a shard of kinds that are no sides (bit i stands for kind i). */
static ckvc_status add_all(fit_pool *pool, const shard *s, const incoming *from, unsigned kinds,
                           ckvc_err *err) {
    shard_header *const first[] = {
        [POOL_DEMAND] = &pool->demand.first, [POOL_SCORE] = &pool->learned.first};
    char **const where[] = {
        [POOL_DEMAND] = &pool->demand.where, [POOL_SCORE] = &pool->learned.where};
    for (int kind = POOL_DEMAND; kind < POOL_KINDS; ++kind) {
        if (!(kinds >> kind & 1)) { continue; }
        CKVC_TRY(check_made_alike(first[kind], where[kind], s, kind, from, err));
    }
    for (size_t p = 0; p < s->n_prompts; ++p) {
        unsigned use;
        CKVC_TRY(admit_prompt(pool, s, p, from, kinds, &use, err));
        for (int kind = POOL_DEMAND; kind < POOL_KINDS; ++kind) {
            if (use >> kind & 1) { CKVC_TRY(add_numbers(pool, s, p, kind, from->where, err)); }
        }
    }
    return CKVC_OK;
}

static ckvc_status add_records(fit_pool *pool, const shard *s, const incoming *from,
                               ckvc_err *err) {
    const shard_header *h = &s->h;
    CKVC_TRY(check_made_alike(&pool->first, &pool->where, s, -1, from, err));
    CKVC_AUTO(prompt_records_fini) prompt_records x = {0};
    CKVC_TRY(prompt_records_open(&x, s, from->where, err));
    CKVC_AUTO_FREE unsigned *has = ckvc_calloc(s->n_prompts, sizeof *has);
    unsigned any = 0;
    for (size_t i = 0; i < s->n_records; ++i) {
        const unsigned bit = 1u << s->records[i].side & from->kinds;
        has[s->records[i].prompt] |= bit;
        any |= bit;
    }
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        if (any >> side & 1) { CKVC_TRY(side_begin(pool, (ckvc_side)side, h, from->where, err)); }
    }
    for (size_t p = 0; p < s->n_prompts; ++p) {
        unsigned use;
        CKVC_TRY(admit_prompt(pool, s, p, from, has[p], &use, err));
        for (size_t i = x.first[p]; i < x.first[p + 1]; ++i) {
            if (use >> s->records[x.order[i]].side & 1) {
                CKVC_TRY(add_record(pool, &x, x.order[i], from->where, err));
            }
        }
    }
    return CKVC_OK;
}

static ckvc_status add_shard(fit_pool *pool, const shard *s, const incoming *from, ckvc_err *err) {
    const shard_kind kind = shard_kind_of(&s->h);
    CKVC_FAIL_IF(kind == SHARD_SCAN, err, CKVC_E_DATA,
                 "%s: a shard of a scan has no records to fit", from->where);
    unsigned kinds = 0;
    for (int k = POOL_DEMAND; k < POOL_KINDS; k++) { kinds |= (shard_kinds[k] == kind) * 1u << k; }
    if (shard_has_features(&s->h) && !pool->score_passes &&
        pool->options->budgets.score == CKVC_SCORE_LEARNED) {
        kinds |= 1u << POOL_SCORE;
    }
    CKVC_TRY(kinds ? add_all(pool, s, from, kinds, err) : add_records(pool, s, from, err));
    if (*s->h.plan) { json_array_append_new(pool->plans, json_string(s->h.plan)); }
    return CKVC_OK;
}

/* ---- sources ---- */

typedef struct source {
    const char *path;
    run_dir *run; /* NULL for a bare shard */
    const run_pass *passes[POOL_KINDS], *scan;
} source;

/* Sorts runs, by plan, before bare shards; equal ones are sorted by path. */
static int by_identity(const void *a, const void *b) {
    const source *x = a, *y = b;
    if (!x->run != !y->run) { return x->run ? -1 : 1; }
    int order = x->run ? strcmp(run_plan_hash(x->run), run_plan_hash(y->run)) : 0;
    return order != 0 ? order : strcmp(x->path, y->path);
}

static bool pass_has(const run_pass *p, int kind) {
    const shard_pass *of = shard_pass_named(p->kind);
    return kind < CKVC_SIDE_COUNT ? of->kind == SHARD_LOGGED && of->sides >> kind & 1
                                  : of->kind == shard_kinds[kind];
}

/* Chooses the pass of each kind: the last complete one or, where a number was asked for, the pass
 * of that number, complete or not. */
static ckvc_status choose_passes(source *s, int wanted, ckvc_err *err) {
    const run_pass *partial = NULL;
    bool incomplete = false, any = false;
    for (size_t i = 0; i < run_pass_count(s->run); ++i) {
        const run_pass *p = run_pass_at(s->run, i);
        if (p->number == 0) {
            if (p->complete) { s->scan = p; }
            continue;
        }
        for (int kind = 0; kind < POOL_KINDS; ++kind) {
            if (pass_has(p, kind) && (wanted > 0 ? p->number == wanted : p->complete)) {
                s->passes[kind] = p;
                any = true;
                if (!p->complete) { partial = p; }
            }
        }
        incomplete |= !p->complete;
    }
    CKVC_FAIL_IF(!any && wanted > 0, err, CKVC_E_DATA, "%s: has no pass %d", s->path, wanted);
    CKVC_FAIL_IF(!any, err, CKVC_E_DATA, "%s: has no complete pass with records%s", s->path,
                 incomplete ? "; finish it with calibrate --resume, or name a pass with --pass"
                            : "");
    if (partial) {
        ckvc_warn("%s: %s is not complete: fitting the %u prompts that it has", s->path,
                  partial->name, partial->n_prompts_done);
    }
    return CKVC_OK;
}

/* Returns where the first shard that is of no side is from, and its header in *first. The result is
 * NULL where there is no such shard. */
static const char *first_without_side(const fit_pool *pool, const shard_header **first) {
    const demand_records *d = &pool->demand;
    const learned_records *l = &pool->learned;
    *first = d->where ? &d->first : &l->first;
    return d->where ? d->where : l->where;
}

static ckvc_status add_scan(fit_pool *pool, const shard *s, const char *where, ckvc_err *err) {
    const bool sides = pool->where != NULL;
    if (!head_signature_there(s)) { return CKVC_OK; }
    const shard_header *first;
    const char *first_where = first_without_side(pool, &first);
    CKVC_TRY(fit_match(sides ? &pool->first : first, sides ? pool->where : first_where, &s->h,
                       where, -1, err));
    for (size_t p = 0; p < s->n_prompts; ++p) {
        const char *split = s->prompts[p].split;
        if (strcmp(split, "heldout") != 0 && in_splits(pool->options, split)) {
            head_signature_add(&pool->scanned, s, p);
        }
    }
    return CKVC_OK;
}

static void add_stable(fit_pool *pool, const run_pass *p, const char *name) {
    json_t *o = json_pack("{s:s, s:f, s:b, s:I}", "pass", name, "target", p->stable.target,
                          "reached", p->stable.reached, "prompts", (json_int_t)p->n_prompts);
    if (!isnan(p->stable.reliability)) {
        json_object_set_new(o, "reliability", json_real(p->stable.reliability));
    }
    if (!pool->stable) { pool->stable = json_array(); }
    json_array_append_new(pool->stable, o);
}

/* Reads one pass, for all kinds that are taken from it. */
static ckvc_status read_pass(fit_pool *pool, const source *s, const run_pass *p, uint32_t number,
                             unsigned kinds, ckvc_err *err) {
    /* A pass of `compile` counts as pass 1 of a calibration of its own, whose plan its shards
     * carry. */
    char name[sizeof p->name], where[512];
    const bool own_plan = strcmp(p->plan, run_plan_hash(s->run)) != 0;
    snprintf(name, sizeof name, own_plan ? "pass-01-%s" : "%s", own_plan ? p->kind : p->name);
    json_array_append_new(pool->passes, json_string(name));
    if (p->stable.known) { add_stable(pool, p, name); }
    for (size_t k = 0; k < p->n_shards; ++k) {
        CKVC_AUTO(shard_free_at) shard *rows = NULL;
        snprintf(where, sizeof where, "%s/%s, shard %zu", s->path, p->name, k);
        CKVC_TRY(run_read_shard(s->run, p, k, &rows, err));
        CKVC_TRY(add_shard(pool, rows, &(incoming){where, number, kinds}, err));
    }
    return CKVC_OK;
}

static ckvc_status read_run(fit_pool *pool, const source *s, uint32_t number, ckvc_err *err) {
    const fit_options *o = pool->options;
    char where[512];
    CKVC_TRY(table_leaks_add(&pool->leaks, run_plan(s->run), "", o->leak_checks, o->n_leak_checks,
                             s->path, err));
    unsigned done = 0;
    for (int i = 0; i < POOL_KINDS; ++i) {
        unsigned kinds = 0;
        for (int j = i; s->passes[i] && j < POOL_KINDS; ++j) {
            if (s->passes[j] == s->passes[i]) { kinds |= 1u << j; }
        }
        kinds &= ~done; /* a pass of several sides is read once */
        if (kinds) { CKVC_TRY(read_pass(pool, s, s->passes[i], number, kinds, err)); }
        done |= kinds;
    }
    const shard_header *first;
    const bool any = pool->where || first_without_side(pool, &first);
    for (size_t k = 0; any && s->scan && k < s->scan->n_shards; ++k) {
        CKVC_AUTO(shard_free_at) shard *rows = NULL;
        snprintf(where, sizeof where, "%s/scan, shard %zu", s->path, k);
        CKVC_TRY(run_read_shard(s->run, s->scan, k, &rows, err));
        CKVC_TRY(add_scan(pool, rows, where, err));
    }
    return CKVC_OK;
}

static ckvc_status read_bare(fit_pool *pool, const source *s, uint32_t number, ckvc_err *err) {
    const fit_options *o = pool->options;
    CKVC_AUTO(shard_free_at) shard *rows = NULL;
    CKVC_TRY(shard_h5_read(s->path, true, &rows, err));
    CKVC_TRY(table_leaks_add(&pool->leaks, NULL, rows->h.manifest, o->leak_checks, o->n_leak_checks,
                             s->path, err));
    CKVC_TRY(add_shard(pool, rows, &(incoming){s->path, number, ~0u}, err));
    json_array_append_new(pool->passes, json_string(rows->h.pass));
    return CKVC_OK;
}

static ckvc_status read_sources(fit_pool *pool, source *sources, size_t n, ckvc_err *err) {
    for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < i; ++j) {
            CKVC_FAIL_IF(strcmp(sources[i].path, sources[j].path) == 0, err, CKVC_E_USAGE,
                         "%s is named twice", sources[i].path);
        }
        if (ckvc_is_dir(sources[i].path)) {
            CKVC_TRY(run_open(sources[i].path, &sources[i].run, err));
            CKVC_TRY(choose_passes(&sources[i], pool->options->pass, err));
            pool->score_passes |= sources[i].passes[POOL_SCORE] != NULL;
        }
    }
    qsort(sources, n, sizeof *sources, by_identity);
    for (uint32_t i = 0; i < n; ++i) {
        CKVC_TRY(sources[i].run ? read_run(pool, &sources[i], i, err)
                                : read_bare(pool, &sources[i], i, err));
    }
    return CKVC_OK;
}

/* ---- the whole ---- */

/* Determines the shape of a table that has demand alone: that of the incoming table; or, without
 * one, one risk cell, the default grids, neutral entries and no thresholds. */
static ckvc_status shape_by_demand(fit_pool *pool, ckvc_err *err) {
    const table_file *in = pool->options->incoming;
    const shard_header *first;
    const char *where = first_without_side(pool, &first);
    CKVC_FAIL_IF(!pool->demand.where && !in, err, CKVC_E_DATA,
                 "%s: holds a learned ranking, which is of use only beside shares: fit it together "
                 "with a run of --side demand, or give --tables with shares",
                 where);
    shard_header h = *first; /* its arrays are borrowed */
    ckvc_table *plain = NULL;
    if (in) {
        h.setting = setting_of_table(in->table, in->meta);
        shard_header_borrow(&h, in->table);
    } else {
        plain = ckvc_table_create(h.n_layers, h.n_kv_heads, 1, 1, h.n_budgets, CKVC_HEAD_ACTIONS,
                                  CKVC_GATE_ACTIONS);
        CKVC_FAIL_IF(!plain, err, CKVC_E_DATA,
                     "%s: %u layers, %u heads and %u budgets are over a table's limits",
                     pool->demand.where, h.n_layers, h.n_kv_heads, h.n_budgets);
        plain->window = h.setting.window;
        plain->op = CKVC_OPERATOR_NO_THRESHOLD;
        memcpy(plain->budgets, h.budgets, h.n_budgets * sizeof *h.budgets);
        for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
            const struct side s = side_of_table(plain, (ckvc_side)i);
            for (size_t a = 0; a < s.actions.n; ++a) { s.grid[a] = s.kind->default_action((int)a); }
            for (size_t k = 0; k < s.n_states; ++k) {
                s.entries[k] = (float)s.grid[side_neutral(&s)];
            }
        }
        shard_header_borrow(&h, plain);
    }
    snprintf(h.pass, sizeof h.pass, "both"); /* it has the shape of a pass of both sides */
    h.setting.budgets = h.setting.layer_budgets = (setting_list){0};
    memset(h.setting.grid, 0, sizeof h.setting.grid);
    shard_header_copy(&pool->first, &h);
    pool->where = ckvc_strdup(in ? "the incoming table" : where);
    ckvc_table_free(plain);
    return CKVC_OK;
}

ckvc_status fit_pool_read(fit_pool *pool, const char *const *paths, size_t n_paths,
                          const fit_options *o, ckvc_err *err) {
    *pool = (fit_pool){
        .options = o, .plans = json_array(), .passes = json_array(), .seen_at = json_object()};
    pool->bank = (bank_records){.o = o->budgets.bank, .memory_max = o->memory_max};
    pool->bank.o.seed = o->resampled.seed;
    CKVC_AUTO_FREE source *sources = ckvc_calloc(n_paths, sizeof *sources);
    for (size_t i = 0; i < n_paths; ++i) { sources[i].path = paths[i]; }
    const ckvc_status st = read_sources(pool, sources, n_paths, err);
    for (size_t i = 0; i < n_paths; ++i) {
        if (sources[i].run) { run_close(sources[i].run); }
    }
    CKVC_TRY(st);
    uint64_t n_prompts = pool->demand.n_prompts + pool->learned.n_fitted;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) { n_prompts += pool->sides[i].n_prompts; }
    CKVC_FAIL_IF(n_prompts == 0, err, CKVC_E_DATA,
                 "%s: no records to fit (left out: %" PRIu64 " held-out prompts, %" PRIu64
                 " of other splits)",
                 paths[0], pool->n_heldout, pool->n_filtered);
    if (!pool->where) { CKVC_TRY(shape_by_demand(pool, err)); }
    if (pool->demand.n_prompts > 0) {
        CKVC_TRY(
            fit_match(&pool->first, pool->where, &pool->demand.first, pool->demand.where, -1, err));
    }
    if (pool->learned.where) {
        CKVC_TRY(fit_match(&pool->first, pool->where, &pool->learned.first, pool->learned.where, -1,
                           err));
    }
    if (pool->n_duplicates > 0) {
        ckvc_warn(
            "%" PRIu64
            " prompts have records in more than one input: each is counted once, from the first",
            pool->n_duplicates);
    }
    return CKVC_OK;
}

void fit_pool_fini(fit_pool *pool) {
    shard_header_fini(&pool->first);
    free(pool->where);
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        side_records *p = &pool->sides[i];
        shard_header_fini(&p->start);
        free(p->where);
        cql_counts_free(p->counts);
        free(p->rows);
    }
    demand_records_fini(&pool->demand);
    bank_records_fini(&pool->bank);
    learned_records_fini(&pool->learned);
    json_decref(pool->seen_at);
    free(pool->seen);
    head_signature_fini(&pool->scanned);
    head_signature_fini(&pool->demanded);
    json_decref(pool->plans);
    json_decref(pool->passes);
    json_decref(pool->stable);
    table_leaks_fini(&pool->leaks);
    *pool = (fit_pool){0};
}
