/* Sorts a shard's records by prompt, and averages the heads' statistics. See prompt_records.h. */
#include "formats/run/prompt_records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "formats/shard/shard.h"

/* most prompts x budgets of one shard, whose losses take 512 MiB */
#define MAX_PAIRS ((size_t)1 << 26)

static ckvc_status read_losses(prompt_records *x, const char *where, ckvc_err *err) {
    const shard *s = x->s;
    const size_t pairs = s->n_prompts * s->h.n_budgets;
    x->losses = ckvc_alloc(pairs, sizeof *x->losses);
    for (size_t i = 0; i < pairs; ++i) { x->losses[i] = NAN; }
    for (size_t i = 0; i < s->n_baselines; ++i) {
        const struct shard_baseline *b = &s->baselines[i];
        double *loss = &x->losses[(size_t)b->prompt * s->h.n_budgets + b->budget];
        CKVC_FAIL_IF(!isnan(*loss), err, CKVC_E_DATA,
                     "%s: /baseline row %zu: prompt %u, budget %u is there a second time", where, i,
                     b->prompt, b->budget);
        *loss = b->loss;
    }
    return CKVC_OK;
}

ckvc_status prompt_records_open(prompt_records *x, const shard *s, const char *where,
                                ckvc_err *err) {
    *x = (prompt_records){.s = s};
    CKVC_FAIL_IF(s->n_records > UINT32_MAX, err, CKVC_E_DATA,
                 "%s: %zu records in one shard, at most 4294967295 are read", where, s->n_records);
    CKVC_FAIL_IF(s->n_prompts > MAX_PAIRS / s->h.n_budgets, err, CKVC_E_DATA,
                 "%s: %zu prompts with %u budgets in one shard, their product may be at most %zu",
                 where, s->n_prompts, s->h.n_budgets, MAX_PAIRS);
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) { x->sides[i] = shard_side_of(&s->h, (ckvc_side)i); }
    /* A stable counting sort: while it runs, first[prompt] moves on until it stands at the next
     * prompt's start. */
    x->first = ckvc_calloc(s->n_prompts + 1, sizeof *x->first);
    x->order = ckvc_alloc(s->n_records, sizeof *x->order);
    for (size_t i = 0; i < s->n_records; ++i) { x->first[s->records[i].prompt + 1]++; }
    for (size_t i = 0; i < s->n_prompts; ++i) { x->first[i + 1] += x->first[i]; }
    for (size_t i = 0; i < s->n_records; ++i) {
        x->order[x->first[s->records[i].prompt]++] = (uint32_t)i;
    }
    memmove(x->first + 1, x->first, s->n_prompts * sizeof *x->first);
    x->first[0] = 0;
    return read_losses(x, where, err);
}

void prompt_records_fini(prompt_records *x) {
    CKVC_FREE(x->first, x->order, x->losses);
    *x = (prompt_records){0};
}

bool head_signature_there(const shard *s) {
    if (!s->rho_sd || !s->own_recent || !s->own_entropy) { return false; }
    /* entropy of window attention is above 0 somewhere, unless the statistics are missing */
    bool any = s->n_prompts == 0;
    const size_t n = s->n_prompts * s->h.n_layers * s->h.n_kv_heads;
    for (size_t i = 0; i < n && !any; ++i) { any = s->own_entropy[i] != 0.0; }
    return any;
}

void head_signature_add(head_signature *to, const shard *s, size_t p) {
    const size_t heads = (size_t)s->h.n_layers * s->h.n_kv_heads;
    if (!to->values) { to->values = ckvc_calloc(heads * 3, sizeof *to->values); }
    for (size_t i = 0; i < heads; ++i) {
        to->values[3 * i] += s->rho_sd[p * heads + i];
        to->values[3 * i + 1] += s->own_recent[p * heads + i];
        to->values[3 * i + 2] += s->own_entropy[p * heads + i];
    }
    CKVC_GROW(to->r_struct, to->capacity[0], to->n_prompts + 1);
    CKVC_GROW(to->r_sem, to->capacity[1], to->n_prompts + 1);
    to->r_struct[to->n_prompts] = s->prompts[p].r_struct;
    to->r_sem[to->n_prompts++] = s->prompts[p].r_sem;
    if (to->n_prompts == 1) { shard_header_copy(&to->h, &s->h); }
}

void head_signature_finish(head_signature *s) {
    for (size_t i = 0; s->values && i < (size_t)s->h.n_layers * s->h.n_kv_heads * 3; ++i) {
        s->values[i] /= (double)s->n_prompts;
    }
}

static ckvc_status add_shard(head_signature *out, const shard *s, const char *where,
                             ckvc_err *err) {
    CKVC_FAIL_IF(!head_signature_there(s), err, CKVC_E_DATA,
                 "%s: it has no statistics of heads; `ckvc scan` makes them", where);
    CKVC_FAIL_IF(out->values &&
                     (s->h.n_layers != out->h.n_layers || s->h.n_kv_heads != out->h.n_kv_heads),
                 err, CKVC_E_DATA, "%s: has shards of %u layers x %u heads and of %u x %u", where,
                 out->h.n_layers, out->h.n_kv_heads, s->h.n_layers, s->h.n_kv_heads);
    for (size_t p = 0; p < s->n_prompts; ++p) {
        if (strcmp(s->prompts[p].split, "heldout") != 0) { head_signature_add(out, s, p); }
    }
    return CKVC_OK;
}

ckvc_status head_signature_read(const run_dir *run, head_signature *out, ckvc_err *err) {
    *out = (head_signature){0};
    const run_pass *scan = NULL;
    for (size_t i = 0; i < run_pass_count(run); ++i) {
        const run_pass *pass = run_pass_at(run, i);
        const bool demand = strcmp(pass->kind, "demand") == 0;
        if (pass->complete && (pass->number == 0 || (demand && !scan))) { scan = pass; }
    }
    CKVC_FAIL_IF(!scan, err, CKVC_E_DATA,
                 "%s: has no complete scan or demand pass; `ckvc scan` makes one", run_path(run));
    for (size_t k = 0; k < scan->n_shards; ++k) {
        CKVC_AUTO(shard_free_at) shard *rows = NULL;
        CKVC_TRY(run_read_shard(run, scan, k, &rows, err));
        CKVC_TRY(add_shard(out, rows, run_path(run), err));
    }
    CKVC_FAIL_IF(out->n_prompts == 0, err, CKVC_E_DATA,
                 "%s: it has no prompts that are not held out", run_path(run));
    head_signature_finish(out);
    return CKVC_OK;
}

void head_signature_fini(head_signature *s) {
    shard_header_fini(&s->h);
    CKVC_FREE(s->values, s->r_struct, s->r_sem);
    *s = (head_signature){0};
}
