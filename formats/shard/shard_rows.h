/* The sides of a shard: its grids and start entries as formats/side knows them, and the checks of a
 * shard's values. */
#pragma once

#include "formats/shard/shard.h"
#include "formats/side/side.h"

/* The side's entries are those of the start table. */
static inline struct side shard_side_of(const shard_header *h, ckvc_side which) {
    const struct shard_side *s = &h->side[which];
    return side_of_shape(
        which,
        (side_shape){h->n_layers, h->n_kv_heads, h->n_entropy_bins, h->n_ppl_bins, h->n_budgets},
        s->actions, s->n_actions, s->start);
}
static inline size_t shard_state(const struct side *s, const struct shard_record *r,
                                 const struct shard_prompt *p) {
    return side_state(s, r->layer, r->head, p->bin_entropy, p->bin_ppl, r->budget);
}

/* Check every value of a shard against the format and against the shard's own header. The same
 * rules hold for what we write, what we read and what we are handed. `where` names the file. A
 * breach is CKVC_E_DATA. */
ckvc_status shard_header_check(const shard_header *h, const char *where,
                               ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_rows_check(const shard *s, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
