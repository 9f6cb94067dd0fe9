/* Scanned prompts, risk cells, stratified sampling: see sample.h. */
#include "calib/prompt/sample.h"

#include "lib/base/order.h"
#include "lib/policy/policy_parts.h"

/* ---- the draw ---- */

uint64_t sample_hash(uint64_t seed, const char *id) { return prompt_hash("sample\n", seed, id); }

typedef struct ranked {
    uint64_t cell, hash;
    const char *id;
    size_t index;
} ranked;

static int by_hash(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->hash != y->hash) { return x->hash < y->hash ? -1 : 1; }
    return strcmp(x->id, y->id);
}

static int by_cell(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->cell != y->cell ? (x->cell < y->cell ? -1 : 1) : by_hash(a, b);
}

/* Returns how many items the cells give in all when none gives more than `level`. Items are sorted
 * by cell. */
static size_t n_given(const ranked *items, size_t n, size_t level) {
    size_t total = 0;
    for (size_t i = 0, run = 0; i < n; i++) {
        run = i && items[i].cell == items[i - 1].cell ? run + 1 : 1;
        total += run <= level;
    }
    return total;
}

void sample_draw(const sample_item *items, size_t n, size_t want, uint64_t seed, bool *drawn) {
    memset(drawn, 0, n * sizeof *drawn);
    CKVC_AUTO_FREE ranked *sorted = ckvc_calloc(n, sizeof *sorted);
    CKVC_AUTO_FREE ranked *next = ckvc_calloc(n, sizeof *next);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = (ranked){items[i].cell, sample_hash(seed, items[i].id), items[i].id, i};
    }
    qsort(sorted, n, sizeof *sorted, by_cell);
    size_t level = 0; /* the most that every cell may give without going over `want` */
    for (size_t over = n + 1; over - level > 1;) {
        const size_t mid = level + (over - level) / 2;
        if (n_given(sorted, n, mid) <= want) {
            level = mid;
        } else {
            over = mid;
        }
    }
    size_t n_next = 0, left = want;
    for (size_t i = 0, run = 0; i < n; i++) {
        run = i && sorted[i].cell == sorted[i - 1].cell ? run + 1 : 1;
        if (run <= level) {
            drawn[sorted[i].index] = true;
            left--;
        } else if (run == level + 1) {
            next[n_next++] = sorted[i];
        }
    }
    qsort(next, n_next, sizeof *next, by_hash);
    for (size_t i = 0; i < n_next && i < left; i++) { drawn[next[i].index] = true; }
}

/* ---- a scan's prompts ---- */

void scanned_fini(scanned *s) {
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].id);
        free(s->items[i].source);
    }
    free(s->items);
    *s = (scanned){0};
}

static const run_pass *find_scan(const run_dir *run) {
    for (size_t i = 0; i < run_pass_count(run); i++) {
        if (strcmp(run_pass_at(run, i)->kind, "scan") == 0) { return run_pass_at(run, i); }
    }
    return NULL;
}

static void append_prompt(scanned *out, const struct shard_prompt *p) {
    CKVC_GROW(out->items, out->capacity, out->n + 1);
    out->items[out->n++] = (struct scanned_prompt){.id = ckvc_strdup(p->id),
                                                   .source = ckvc_strdup(p->source),
                                                   .token_hash = p->token_hash,
                                                   .r_struct = p->r_struct,
                                                   .r_sem = p->r_sem};
}

ckvc_status scanned_read(const run_dir *run, scanned *out, ckvc_err *err) {
    CKVC_AUTO(scanned_fini) scanned all = {0};
    *out = all;
    const run_pass *scan = find_scan(run);
    CKVC_FAIL_IF(!scan || !scan->complete, err, CKVC_E_DATA,
                 "%s: %s; finish it with `ckvc scan --resume`", run_path(run),
                 scan ? "its scan is not complete" : "holds no scan");
    for (size_t k = 0; k < scan->n_shards; k++) {
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        CKVC_TRY(run_read_shard(run, scan, k, &s, err));
        for (size_t i = 0; i < s->n_prompts; i++) {
            if (strcmp(s->prompts[i].split, "heldout") != 0) {
                append_prompt(&all, &s->prompts[i]);
            }
        }
    }
    *out = all;
    all = (scanned){0};
    return CKVC_OK;
}

ckvc_status scanned_edges(const scanned *s, const run_dir *run, edge_kind kind,
                          const risk_edges *out, ckvc_err *err) {
    CKVC_FAIL_IF(s->n == 0, err, CKVC_E_DATA,
                 "%s: every scanned prompt is held out or failed: no risk to take bin edges from",
                 run_path(run));
    CKVC_AUTO_FREE double *r_struct = ckvc_alloc(s->n, sizeof *r_struct);
    CKVC_AUTO_FREE double *r_sem = ckvc_alloc(s->n, sizeof *r_sem);
    for (size_t i = 0; i < s->n; i++) {
        r_struct[i] = s->items[i].r_struct;
        r_sem[i] = s->items[i].r_sem;
    }
    edges_of(r_struct, s->n, out->n_entropy_bins, kind, out->entropy);
    edges_of(r_sem, s->n, out->n_ppl_bins, kind, out->ppl);
    return CKVC_OK;
}

/* ---- cells of this run's prompts ---- */

static int id_to_item(const void *id, const void *item) {
    return strcmp(id, ((const struct scanned_prompt *)item)->id);
}

static int by_id(const void *a, const void *b) {
    return id_to_item(((const struct scanned_prompt *)a)->id, b);
}

/* One of this run's prompts, with its cell and source. */
typedef struct placed {
    prompt *p;
    const char *source;
    uint32_t entropy, ppl;
    bool drawn;
} placed;

static int by_place(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->entropy != y->entropy) { return x->entropy < y->entropy ? -1 : 1; }
    return x->ppl != y->ppl ? (x->ppl < y->ppl ? -1 : 1) : strcmp(x->source, y->source);
}

/* Lists the names of the sources in byte order, each once. */
static void list_sources(const placed *all, size_t n, coverage *c) {
    CKVC_AUTO_FREE const char **names = ckvc_calloc(n, sizeof *names);
    c->sources = ckvc_calloc(n, sizeof *c->sources);
    for (size_t i = 0; i < n; i++) { names[i] = all[i].source; }
    qsort(names, n, sizeof *names, ckvc_order_text);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0) {
            c->sources[c->n_sources++] = ckvc_strdup(names[i]);
        }
    }
}

/* Makes the rows from all [n]: one for each cell and source. */
static void list_rows(placed *all, size_t n, coverage *c) {
    list_sources(all, n, c);
    c->rows = ckvc_calloc(n, sizeof *c->rows);
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_place(&all[i], &all[i - 1]) != 0) {
            char *const *at = bsearch(&all[i].source, c->sources, c->n_sources, sizeof *c->sources,
                                      ckvc_order_text);
            c->rows[c->n_rows++] = (coverage_row){.entropy = all[i].entropy,
                                                  .ppl = all[i].ppl,
                                                  .source = (uint32_t)(at - c->sources)};
        }
        c->rows[c->n_rows - 1].prompts++;
        c->rows[c->n_rows - 1].drawn += all[i].drawn;
    }
}

static void draw_prompts(placed *all, size_t n, const sample_options *o, prompt_list *prompts) {
    CKVC_AUTO_FREE sample_item *items = ckvc_calloc(n, sizeof *items);
    CKVC_AUTO_FREE bool *drawn = ckvc_calloc(n, sizeof *drawn);
    for (size_t i = 0; i < n; i++) {
        items[i] = (sample_item){all[i].p->entry->id, (uint64_t)all[i].entropy << 32 | all[i].ppl};
    }
    sample_draw(items, n, (size_t)o->sample, o->seed, drawn);
    for (size_t i = 0; i < prompts->n; i++) {
        prompts->items[i].passed_over = !prompts->items[i].heldout;
    }
    for (size_t i = 0; i < n; i++) {
        all[i].drawn = drawn[i];
        all[i].p->passed_over = !drawn[i];
    }
}

/* Writes the prompts that the scan knows, by id and tokens, with their cells to `all`. Returns how
 * many they are. */
static size_t place_prompts(const scanned *s, const sample_options *o, const prompt_list *prompts,
                            placed *all, uint32_t *n_unscanned) {
    const risk_edges *e = &o->edges;
    CKVC_AUTO_FREE struct scanned_prompt *known = ckvc_copy(s->items, s->n, sizeof *known);
    size_t n = 0;
    qsort(known, s->n, sizeof *known, by_id);
    for (size_t i = 0; i < prompts->n; i++) {
        prompt *p = &prompts->items[i];
        if (p->heldout) { continue; }
        const struct scanned_prompt *q =
            bsearch(p->entry->id, known, s->n, sizeof *known, id_to_item);
        if (!q || q->token_hash != p->token_hash) {
            ++*n_unscanned;
            continue;
        }
        all[n++] =
            (placed){.p = p,
                     .source = q->source,
                     .entropy = ckvc_bin_index(e->entropy, e->n_entropy_bins - 1, q->r_struct),
                     .ppl = ckvc_bin_index(e->ppl, e->n_ppl_bins - 1, q->r_sem),
                     .drawn = o->logged};
    }
    return n;
}

ckvc_status sample_prompts(const scanned *s, const sample_options *o, prompt_list *prompts,
                           coverage *out, ckvc_err *err) {
    CKVC_AUTO_FREE placed *all = ckvc_calloc(prompts->n, sizeof *all);
    const risk_edges *e = &o->edges;
    uint32_t n_unscanned = 0;
    const size_t n = place_prompts(s, o, prompts, all, &n_unscanned);
    *out = (coverage){0};
    CKVC_FAIL_IF(o->sample > 0 && n == 0, err, CKVC_E_DATA,
                 "--sample-prompts: the scan knows none of the %zu prompts that could be logged",
                 prompts->n);
    if (o->sample > 0) { draw_prompts(all, n, o, prompts); }
    *out = (coverage){.n_entropy_bins = e->n_entropy_bins,
                      .n_ppl_bins = e->n_ppl_bins,
                      .edges_entropy =
                          ckvc_copy(e->entropy, e->n_entropy_bins - 1, sizeof *e->entropy),
                      .edges_ppl = ckvc_copy(e->ppl, e->n_ppl_bins - 1, sizeof *e->ppl),
                      .from = ckvc_strdup(o->from),
                      .min_cell = o->min_cell,
                      .sample = o->sample,
                      .logged = o->logged,
                      .n_unscanned = n_unscanned};
    list_rows(all, n, out);
    return CKVC_OK;
}
