/* Scanned prompts, risk cells, stratified sampling: see sample.h. */
#include "calib/prompt/sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/policy/ckvc_policy.h"

/* ---- the draw ---- */

uint64_t sample_hash(uint64_t seed, const char *id) {
    char head[40];
    const int n = snprintf(head, sizeof head, "sample\n%" PRIu64 "\n", seed);
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, head, (size_t)n);
    ckvc_sha256_update(&s, id, strlen(id));
    ckvc_sha256_final(&s, digest);
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) {
        first = first << 8 | digest[i];
    }
    return first;
}

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

/* How many items cells give in all when none gives more than `level`; items are sorted by cell. */
static size_t given(const ranked *items, size_t n, size_t level) {
    size_t total = 0;
    for (size_t i = 0, run = 0; i < n; i++) {
        run = i && items[i].cell == items[i - 1].cell ? run + 1 : 1;
        total += run <= level;
    }
    return total;
}

ckvc_status sample_draw(const sample_item *items, size_t n, size_t want, uint64_t seed, bool *drawn,
                        ckvc_err *err) {
    memset(drawn, 0, n * sizeof *drawn);
    ranked *sorted = ckvc_calloc(n, sizeof *sorted), *next = ckvc_calloc(n, sizeof *next);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = (ranked){items[i].cell, sample_hash(seed, items[i].id), items[i].id, i};
    }
    qsort(sorted, n, sizeof *sorted, by_cell);
    size_t level = 0; /* the most that every cell may give without going over `want` */
    for (size_t over = n + 1; over - level > 1;) {
        const size_t mid = level + (over - level) / 2;
        if (given(sorted, n, mid) <= want) {
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
    for (size_t i = 0; i < n_next && i < left; i++) {
        drawn[next[i].index] = true;
    }
    free(sorted);
    free(next);
    return CKVC_OK;
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

static ckvc_status take(scanned *out, const struct shard_prompt *p, ckvc_err *err) {
    ckvc_status st =
        ckvc_grow((void **)&out->items, &out->capacity, out->n + 1, sizeof *out->items, err);
    if (st != CKVC_OK) { return st; }
    struct scanned_prompt *q = &out->items[out->n];
    *q = (struct scanned_prompt){ckvc_strdup(p->id), ckvc_strdup(p->source), p->token_hash,
                                 p->r_struct, p->r_sem};
    out->n++;
    return q->id && q->source ? CKVC_OK : ckvc_fail_memory(err, "a scanned prompt", strlen(p->id));
}

ckvc_status scanned_read(const run_dir *run, scanned *out, ckvc_err *err) {
    *out = (scanned){0};
    const run_pass *scan = find_scan(run);
    if (!scan || !scan->complete) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: %s; finish it with `ckvc scan --resume`",
                         run_path(run), scan ? "its scan is not complete" : "holds no scan");
    }
    ckvc_status st = CKVC_OK;
    for (size_t k = 0; st == CKVC_OK && k < scan->n_shards; k++) {
        shard *s = NULL;
        st = run_read_shard(run, scan, k, &s, err);
        for (size_t i = 0; st == CKVC_OK && i < s->n_prompts; i++) {
            if (strcmp(s->prompts[i].split, "heldout") != 0) {
                st = take(out, &s->prompts[i], err);
            }
        }
        shard_free(s);
    }
    if (st != CKVC_OK) { scanned_fini(out); }
    return st;
}

ckvc_status scanned_edges(const scanned *s, const run_dir *run, uint32_t E, uint32_t P,
                          edge_kind kind, double *edges_entropy, double *edges_ppl, ckvc_err *err) {
    if (s->n == 0) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: every scanned prompt is held out or failed: no risk to take bin edges from",
            run_path(run));
    }
    double *values = ckvc_alloc(s->n, sizeof *values);
    for (size_t i = 0; i < s->n; i++) {
        values[i] = s->items[i].r_struct;
    }
    ckvc_status st = edges_of(values, s->n, E, kind, edges_entropy, err);
    for (size_t i = 0; i < s->n; i++) {
        values[i] = s->items[i].r_sem;
    }
    st = st ? st : edges_of(values, s->n, P, kind, edges_ppl, err);
    free(values);
    return st;
}

/* ---- cells of this run's prompts ---- */

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct scanned_prompt *)a)->id, ((const struct scanned_prompt *)b)->id);
}

/* One of this run's prompts with its place. */
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

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names in byte order, each once. */
static ckvc_status list_sources(const placed *all, size_t n, coverage *c, ckvc_err *err) {
    const char **names = ckvc_calloc(n, sizeof *names);
    c->sources = ckvc_calloc(n, sizeof *c->sources);
    ckvc_status st =
        names && c->sources ? CKVC_OK : ckvc_fail_memory(err, "sources", n * sizeof *names);
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        names[i] = all[i].source;
    }
    if (st == CKVC_OK) { qsort(names, n, sizeof *names, by_text); }
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        if (i && strcmp(names[i], names[i - 1]) == 0) { continue; }
        if (!(c->sources[c->n_sources] = ckvc_strdup(names[i]))) {
            st = ckvc_fail_memory(err, "sources", strlen(names[i]));
        } else {
            c->n_sources++;
        }
    }
    free(names);
    return st;
}

/* all [n] -> the rows, one a cell and source. */
static ckvc_status list_rows(placed *all, size_t n, coverage *c, ckvc_err *err) {
    ckvc_status st = list_sources(all, n, c, err);
    c->rows = ckvc_calloc(n, sizeof *c->rows);
    if (st != CKVC_OK) { return st; }
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_place(&all[i], &all[i - 1]) != 0) {
            char *const *at =
                bsearch(&all[i].source, c->sources, c->n_sources, sizeof *c->sources, by_text);
            c->rows[c->n_rows++] =
                (coverage_row){all[i].entropy, all[i].ppl, (uint32_t)(at - c->sources), 0, 0};
        }
        c->rows[c->n_rows - 1].prompts++;
        c->rows[c->n_rows - 1].drawn += all[i].drawn;
    }
    return CKVC_OK;
}

static ckvc_status draw(placed *all, size_t n, const sample_options *o, prompt_list *prompts,
                        ckvc_err *err) {
    sample_item *items = ckvc_calloc(n, sizeof *items);
    bool *drawn = ckvc_calloc(n, sizeof *drawn);
    ckvc_status st =
        items && drawn ? CKVC_OK : ckvc_fail_memory(err, "the sample", n * sizeof *items);
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        items[i] = (sample_item){all[i].p->entry->id, (uint64_t)all[i].entropy << 32 | all[i].ppl};
    }
    st = st ? st : sample_draw(items, n, (size_t)o->sample, o->seed, drawn, err);
    if (st == CKVC_OK) {
        for (size_t i = 0; i < prompts->n; i++) {
            prompts->items[i].passed_over = !prompts->items[i].heldout;
        }
        for (size_t i = 0; i < n; i++) {
            all[i].drawn = drawn[i];
            all[i].p->passed_over = !drawn[i];
        }
    }
    free(items);
    free(drawn);
    return st;
}

static ckvc_status copy_edges(const double *from, uint32_t n, double **to, ckvc_err *err) {
    *to = ckvc_calloc(n + 1, sizeof **to);
    if (!*to) { return ckvc_fail_memory(err, "bin edges", n * sizeof **to); }
    memcpy(*to, from, n * sizeof **to);
    return CKVC_OK;
}

static ckvc_status fill_head(const sample_options *o, coverage *c, ckvc_err *err) {
    *c = (coverage){.n_entropy_bins = o->n_entropy_bins,
                    .n_ppl_bins = o->n_ppl_bins,
                    .min_cell = o->min_cell,
                    .sample = o->sample,
                    .logged = o->logged,
                    .from = ckvc_strdup(o->from)};
    ckvc_status st = c->from ? CKVC_OK : ckvc_fail_memory(err, "coverage", strlen(o->from));
    st = st ? st : copy_edges(o->edges_entropy, o->n_entropy_bins - 1, &c->edges_entropy, err);
    return st ? st : copy_edges(o->edges_ppl, o->n_ppl_bins - 1, &c->edges_ppl, err);
}

ckvc_status sample_prompts(const scanned *s, const sample_options *o, prompt_list *prompts,
                           coverage *out, ckvc_err *err) {
    ckvc_status st = fill_head(o, out, err);
    struct scanned_prompt *known = ckvc_calloc(s->n, sizeof *known);
    placed *all = ckvc_calloc(prompts->n, sizeof *all);
    if (st == CKVC_OK && (!known || !all)) {
        st = ckvc_fail_memory(err, "risk cells", prompts->n * sizeof *all);
    }
    size_t n = 0;
    if (st == CKVC_OK && s->n) {
        memcpy(known, s->items, s->n * sizeof *known); /* shallow: to look prompts up by id */
        qsort(known, s->n, sizeof *known, by_id);
    }
    for (size_t i = 0; st == CKVC_OK && i < prompts->n; i++) {
        prompt *p = &prompts->items[i];
        if (p->heldout) { continue; }
        const struct scanned_prompt key = {.id = (char *)(uintptr_t)p->entry->id};
        const struct scanned_prompt *q = bsearch(&key, known, s->n, sizeof *known, by_id);
        if (!q || q->token_hash != p->token_hash) {
            out->n_unscanned++;
            continue;
        }
        all[n++] = (placed){p, q->source,
                            ckvc_bin_index(o->edges_entropy, o->n_entropy_bins - 1, q->r_struct),
                            ckvc_bin_index(o->edges_ppl, o->n_ppl_bins - 1, q->r_sem), o->logged};
    }
    if (st == CKVC_OK && o->sample > 0) {
        st =
            n ? draw(all, n, o, prompts, err)
              : ckvc_fail(
                    err, CKVC_E_DATA,
                    "--sample-prompts: the scan knows none of the %zu prompts that could be logged",
                    prompts->n);
    }
    st = st ? st : list_rows(all, n, out, err);
    free(known);
    free(all);
    if (st != CKVC_OK) { coverage_fini(out); }
    return st;
}
