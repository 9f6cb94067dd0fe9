/* The JSON lines of `ckvc score`. */
#include "formats/lines/scores.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckvc_err err = {0};
    CKVC_AUTO(scores_free_at) scores *s = NULL;
    const ckvc_status st = scores_read(fuzz_file("s.jsonl", data, size), &s, &err);
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return 0;
    }
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        must(r->id && r->policy && r->n_kept && r->n_layers > 0);
        for (uint32_t l = 0; l < r->n_layers; l++) { must(r->n_kept[l] <= r->n_tokens); }
    }
    return 0;
}
