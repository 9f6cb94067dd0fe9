/* Held-out rewards: see heldout.h. */
#include "calib/score/heldout.h"

#include <math.h>

#include "cql/fit/fit_result.h"
#include "formats/lines/scores.h"

prompt_list heldout_prompts(const prompt_list *all, bool select) {
    prompt_list out = {.items = ckvc_alloc(all->n_heldout, sizeof *out.items)};
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].heldout && all->items[i].select == select) {
            out.items[out.n] = all->items[i];
            prompts_add(&out);
        }
    }
    return out;
}

ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const score_options *o, ckvc_buffer *lines, ckvc_err *err) {
    calibrate_inputs only = *in;
    only.prompts = prompts;
    CKVC_AUTO_FREE score_summary *summary =
        ckvc_calloc(o->choice.n * o->choice.setting.budgets.n, sizeof *summary);
    return score_prompts(&only, o, lines, summary, err);
}

static size_t find_prompt(const prompt_list *prompts, const char *id, size_t guess) {
    for (size_t i = 0; i < prompts->n; i++) {
        size_t at = (guess + i) % prompts->n; /* the lines come in the prompts' order */
        if (strcmp(prompts->items[at].entry->id, id) == 0) { return at; }
    }
    return prompts->n;
}

/* What a line's entries cost: the price of its budget for the share of it that was kept. */
static double cost_of(const score_row *r, const table_file *prices) {
    const ckvc_table *t = prices ? prices->table : NULL;
    for (uint32_t b = 0; t && b < t->n_budgets; b++) {
        const double price = fit_price(prices, b);
        if (t->budgets[b] == r->budget && price > 0) {
            return price * score_row_kept(r) / ckvc_budget_tokens(r->budget, r->n_tokens);
        }
    }
    return 0;
}

ckvc_status heldout_read(const char *path, const prompt_list *prompts, const table_file *prices,
                         heldout **out, ckvc_err *err) {
    CKVC_AUTO(scores_free_at) scores *s = NULL;
    CKVC_AUTO(heldout_free_at) heldout *h = ckvc_calloc(1, sizeof *h);
    const size_t n = h->n = prompts->n;
    size_t at = 0;
    *out = NULL;
    CKVC_TRY(scores_read(path, &s, err));
    CKVC_AUTO_FREE uint32_t *counts = ckvc_calloc(SCORE_KIND_COUNT * n, sizeof *counts);
    double lines[SCORE_KIND_COUNT] = {0};
    CKVC_AUTO_FREE const char **documents = ckvc_alloc(n, sizeof *documents);
    for (size_t i = 0; i < n; i++) { documents[i] = prompts->items[i].entry->document; }
    h->cluster = ckvc_alloc(n, sizeof *h->cluster);
    rank_clusters(documents, n, h->cluster);
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        const score_kind k = score_kind_named(r->policy);
        at = find_prompt(prompts, r->id, at);
        CKVC_FAIL_IF(k == SCORE_KIND_COUNT || at == n, err, CKVC_E_DATA,
                     "%s:%u: policy \"%s\" of prompt \"%s\": not of this run's held-out prompts",
                     path, r->line, r->policy, r->id);
        if (!h->reward[k]) { h->reward[k] = ckvc_calloc(n, sizeof *h->reward[k]); }
        h->reward[k][at] +=
            r->reward - cost_of(r, prices); /* NaN stays NaN: a prompt counts whole or not at all */
        counts[k * n + at]++;
        h->kept[k] += score_row_kept(r);
        lines[k]++;
    }
    for (size_t k = 0; k < SCORE_KIND_COUNT; k++) { /* the sums become means */
        h->kept[k] /= lines[k];
        for (size_t i = 0; h->reward[k] && i < n; i++) {
            h->reward[k][i] = counts[k * n + i] ? h->reward[k][i] / counts[k * n + i] : NAN;
        }
    }
    CKVC_FAIL_IF(!h->reward[SCORE_TABLE], err, CKVC_E_DATA, "%s: no lines of a table", path);
    *out = ckvc_take(&h);
    return CKVC_OK;
}

void heldout_free(heldout *h) {
    for (int k = 0; h && k < SCORE_KIND_COUNT; k++) { free(h->reward[k]); }
    if (h) { free(h->cluster); }
    free(h);
}

rank_interval heldout_gain(const heldout *h, const double *a, const double *b) {
    CKVC_AUTO_FREE double *d = ckvc_alloc(h->n, sizeof *d);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(h->n, sizeof *cluster);
    size_t k = 0;
    for (size_t i = 0; i < h->n; i++) {
        const double v = b ? a[i] - b[i] : a[i];
        if (!isfinite(v)) { continue; }
        cluster[k] = h->cluster[i];
        d[k++] = v;
    }
    return rank_mean_interval(d, cluster, k);
}
