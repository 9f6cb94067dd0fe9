/* The JSON lines of `ckvc score`. */
#include "formats/lines/scores.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    CKVC_AUTO(scores_free_at) scores *s = NULL;
    if (!fuzz_took(scores_read(fuzz_file("s.jsonl", data, size), &s, err), err)) { return; }
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        must(r->id && r->policy && r->n_kept && r->n_layers > 0);
        for (uint32_t l = 0; l < r->n_layers; l++) { must(r->n_kept[l] <= r->n_tokens); }
    }
}
