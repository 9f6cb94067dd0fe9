/* See pass.h. */
#include "calib/log/pass.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const pass_type *pass_type_of(shard_kind rows) {
    static const pass_type *const kinds[] = {&pass_scan, &pass_demand, &pass_score};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i]->rows == rows) { return kinds[i]; }
    }
    return &pass_rewards;
}

static void copy_text(char dst[SHARD_STRING], const char *src) {
    snprintf(dst, SHARD_STRING, "%s", src ? src : "");
}

struct shard_prompt pass_prompt_row(const prompt *p, const prefill_stats *stats) {
    struct shard_prompt row = {.line = p->entry->line,
                               .n_tokens = p->n_tokens,
                               .n_continuation = p->n_continuation,
                               .cut = p->cut,
                               .token_hash = p->token_hash,
                               .r_struct = stats->r_struct,
                               .r_sem = stats->r_sem};
    copy_text(row.id, p->entry->id);
    copy_text(row.source, p->entry->source);
    copy_text(row.document, p->document);
    copy_text(row.split, p->heldout ? "heldout" : p->entry->split);
    return row;
}

void pass_put_statistics(const worker *w, size_t at, shard *rows) {
    const size_t n = (size_t)rows->h.n_layers * rows->h.n_kv_heads;
    memcpy(rows->rho_sd + at * n, w->stats.rho_sd, n * sizeof(double));
    memcpy(rows->own_recent + at * n, w->stats.own_recent, n * sizeof(double));
    memcpy(rows->own_entropy + at * n, w->stats.own_entropy, n * sizeof(double));
}

bool pass_finite_risks(const worker *w) {
    return isfinite(w->stats.r_struct) && isfinite(w->stats.r_sem);
}
