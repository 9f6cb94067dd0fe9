/* A made-up shard: see bench_shard.h. */
#include "calib/bench/bench_shard.h"

#include <stdio.h>

#include "calib/actions/start_table.h"
#include "lib/base/rng.h"

ckvc_status bench_shard_create(uint64_t seed, shard **out, ckvc_err *err) {
    const double budget = 128;
    const start_table_spec spec = {
        .n_layers = 8, .n_heads = 3, .budgets = &budget, .n_budgets = 1, .window = 32};
    shard *s = *out = shard_create();
    ckvc_table *t;
    CKVC_TRY(start_table_create(&spec, &t, err));
    shard_header h = {.n_heads = 6, .setting = setting_neutral()};
    shard_header_borrow(&h, t);
    snprintf(h.pass, sizeof h.pass, "head");
    snprintf(h.behaviour, sizeof h.behaviour, "balanced");
    memset(h.plan, '0', sizeof h.plan - 1);
    memset(h.fingerprint, '0', sizeof h.fingerprint - 1);
    memset(h.manifest, '0', sizeof h.manifest - 1);
    shard_header_copy(&s->h, &h);
    ckvc_table_free(t);
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, 5, 0);
    for (uint32_t p = 0; p < BENCH_PROMPTS; p++) {
        struct shard_prompt row = {.line = p + 1,
                                   .n_tokens = 512,
                                   .n_continuation = 64,
                                   .r_struct = 4,
                                   .r_sem = 20,
                                   .loss_full = 2};
        struct shard_baseline base = {p, 0, 2.1};
        snprintf(row.id, sizeof row.id, "bench-%u", p);
        shard_add_prompt(s, &row);
        shard_add_baseline(s, &base);
    }
    for (uint32_t i = 0; i < BENCH_RECORDS; i++) {
        double loss = 2 + ckvc_rng_double(&rng) * 0.1;
        struct shard_record r = {.prompt = i % BENCH_PROMPTS,
                                 .action = (uint8_t)(i % CKVC_HEAD_ACTIONS),
                                 .layer = (uint16_t)(i % 8),
                                 .head = (uint16_t)(i % 3),
                                 .reward = 2 - loss,
                                 .baseline = -0.1,
                                 .loss = loss,
                                 .n_candidates = 200,
                                 .n_kept = 128,
                                 .set_hash = ckvc_rng_u64(&rng)};
        shard_add_record(s, &r);
    }
    return CKVC_OK;
}
