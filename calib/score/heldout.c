/* Held-out rewards: see heldout.h. */
#include "calib/score/heldout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lines/scores.h"
#include "lib/base/memory.h"

ckvc_status heldout_prompts(const prompt_list *all, prompt_list *out, ckvc_err *err) {
    *out = (prompt_list){.items = ckvc_alloc(all->n_heldout + 1, sizeof *out->items)};
    if (!out->items) {
        return ckvc_fail_memory(err, "the held-out prompts", all->n_heldout * sizeof *out->items);
    }
    for (size_t i = 0; i < all->n; i++) {
        const prompt *p = &all->items[i];
        if (!p->heldout) { continue; }
        out->items[out->n++] = *p;
        out->n_cut += p->cut;
        out->max_tokens = p->n_tokens > out->max_tokens ? p->n_tokens : out->max_tokens;
        out->max_continuation =
            p->n_continuation > out->max_continuation ? p->n_continuation : out->max_continuation;
    }
    out->n_heldout = out->n;
    return CKVC_OK;
}

ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const table_file *table, const score_options *o, ckvc_buffer *lines,
                          ckvc_err *err) {
    const calibrate_inputs only = {in->model, in->backend, in->manifest, prompts};
    const score_policy policies[] = {
        {SCORE_IDENTITY, NULL}, {SCORE_MATCHED, table}, {SCORE_TABLE, table}};
    enum { N = sizeof policies / sizeof *policies };
    score_summary *summary = ckvc_calloc((size_t)N * o->n_budgets, sizeof *summary);
    ckvc_status st = score_prompts(&only, policies, N, o, lines, summary, err);
    free(summary);
    return st;
}

static size_t find_prompt(const prompt_list *prompts, const char *id, size_t guess) {
    for (size_t i = 0; i < prompts->n; i++) {
        size_t at = (guess + i) % prompts->n; /* the lines come in the prompts' order */
        if (strcmp(prompts->items[at].entry->id, id) == 0) { return at; }
    }
    return prompts->n;
}

/* The sums become means over what was added. */
static void finish(double *sums, const uint32_t *n, size_t n_prompts) {
    for (size_t i = 0; i < n_prompts; i++) {
        sums[i] = n[i] ? sums[i] / n[i] : NAN;
    }
}

ckvc_status heldout_read(const char *path, const prompt_list *prompts, heldout **out,
                         ckvc_err *err) {
    scores *s = NULL;
    size_t n = prompts->n, at = 0;
    *out = NULL;
    ckvc_status st = scores_read(path, &s, err);
    if (st != CKVC_OK) { return st; }
    heldout *h = ckvc_calloc(1, sizeof *h);
    uint32_t *counts = ckvc_calloc(3 * n + 1, sizeof *counts);
    double kept[3] = {0}, lines[3] = {0};
    if (h) {
        h->n = n;
        h->table = ckvc_calloc(3 * n + 1, sizeof *h->table);
    }
    h->identity = h->table + n;
    h->matched = h->table + 2 * n;
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        int policy = strcmp(r->policy, "table") == 0      ? 0
                     : strcmp(r->policy, "identity") == 0 ? 1
                     : strcmp(r->policy, "matched") == 0  ? 2
                                                          : -1;
        at = find_prompt(prompts, r->id, at);
        if (policy < 0 || at == n) {
            st = ckvc_fail(
                err, CKVC_E_DATA,
                "%s:%u: policy \"%s\" of prompt \"%s\": not of this run's held-out prompts", path,
                r->line, r->policy, r->id);
            goto done;
        }
        h->table[(size_t)policy * n + at] +=
            r->reward; /* NaN stays NaN: a prompt counts whole or not at all */
        counts[(size_t)policy * n + at]++;
        double sum = 0;
        for (uint32_t l = 0; l < r->n_layers; l++) {
            sum += r->n_kept[l];
        }
        kept[policy] += sum / r->n_layers;
        lines[policy]++;
    }
    finish(h->table, counts, 3 * n);
    h->table_kept = kept[0] / lines[0];
    h->identity_kept = kept[1] / lines[1];
    h->matched_kept = kept[2] / lines[2];
done:
    free(counts);
    scores_free(s);
    if (st != CKVC_OK) {
        heldout_free(h);
        return st;
    }
    *out = h;
    return CKVC_OK;
}

void heldout_free(heldout *h) {
    if (h) {
        free(h->table); /* identity and matched are parts of it */
        free(h);
    }
}

ckvc_status heldout_gain(const double *a, const double *b, size_t n, rank_interval *out,
                         ckvc_err *err) {
    double *d = ckvc_alloc(n + 1, sizeof *d);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        double v = b ? a[i] - b[i] : a[i];
        if (isfinite(v)) { d[k++] = v; }
    }
    *out = rank_mean_interval(d, k);
    free(d);
    return CKVC_OK;
}
