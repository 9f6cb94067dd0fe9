/* Makes a small shard with every kind of row, for the tests of the room of shards. */
#pragma once

#include "formats/shard/shard_rows.h"
#include "formats/shard/shard_codec.h"
#include "formats/shard/shard_h5.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/names.h"
#include "tests/unit/temp_folder.h"

/* Writes the shard's file at a path. */
static inline void write_shard(const shard *s, const char *path) {
    CKVC_AUTO_FREE uint8_t *image = NULL;
    size_t n;
    OK(shard_h5_image(s, &image, &n, &err));
    write_bytes(path, image, n);
}

static inline double *fixture_reals(size_t n, double first, double step) {
    double *v = ckvc_alloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) { v[i] = first + step * (double)i; }
    return v;
}

enum { FIXTURE_FEATURES = CKVC_FEATURES_1_KEY + 2 + 1, FIXTURE_POSITIONS = 6 };

static inline void fixture_features(shard_header *h) {
    h->setting.positions = FIXTURE_POSITIONS;
    h->setting.features = CKVC_FEATURES_1;
    h->setting.n_features = FIXTURE_FEATURES;
}

/* Makes a header of 2 layers, 4 heads, 2 KV heads, 3 budgets, and 3 x 2 bins. */
static inline void fixture_header(shard_header *h, const char *pass) {
    memset(h, 0, sizeof *h);
    snprintf(h->ckvc_version, sizeof h->ckvc_version, "%s", CKVC_VERSION);
    memset(h->plan, 'a', 64);
    memset(h->fingerprint, 'b', 64);
    memset(h->manifest, 'c', 64);
    snprintf(h->model_name, sizeof h->model_name, "fixture");
    snprintf(h->family, sizeof h->family, "llama");
    snprintf(h->pass, sizeof h->pass, "%s", pass);
    const shard_kind kind = shard_kind_of(h);
    snprintf(h->behaviour, sizeof h->behaviour, "%s", kind != SHARD_LOGGED ? "none" : "balanced");
    h->n_layers = 2;
    h->n_heads = 4;
    h->n_kv_heads = 2;
    h->setting.window = 8;
    h->setting.continuation = 16;
    h->setting.keep_window = 1;
    h->setting.beta_bud = 1.0;
    h->setting.seed = 0xfedcba9876543210u;
    if (kind == SHARD_SCAN) { return; }
    if (kind == SHARD_SCORE) {
        fixture_features(h);
        return;
    }
    h->n_budgets = 3;
    h->budgets = fixture_reals(
        3, 0.25, 31.875); /* budgets 0.25, 32.125, 64: the middle one is of no use but legal */
    if (kind == SHARD_DEMAND) {
        h->n_entropy_bins = h->n_ppl_bins = 1;
        h->setting.floor = 0.2;
        h->setting.recent = 8;
        snprintf(h->setting.repeat, sizeof h->setting.repeat, "Once more, s'il te pla\xc3\xaet.");
        return;
    }
    h->side[CKVC_SIDE_HEAD].n_actions = CKVC_HEAD_ACTIONS;
    h->side[CKVC_SIDE_HEAD].actions = ckvc_alloc(CKVC_HEAD_ACTIONS, sizeof(double));
    for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) {
        h->side[CKVC_SIDE_HEAD].actions[a] = ckvc_head_action(a);
    }
    h->side[CKVC_SIDE_GATE].n_actions = CKVC_GATE_ACTIONS;
    h->side[CKVC_SIDE_GATE].actions = ckvc_alloc(CKVC_GATE_ACTIONS, sizeof(double));
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) {
        h->side[CKVC_SIDE_GATE].actions[a] = ckvc_gate_action(a);
    }
    h->n_entropy_bins = 3;
    h->edges_entropy = fixture_reals(2, 1.5, 0.5);
    h->n_ppl_bins = 2;
    h->edges_ppl = fixture_reals(1, 12.0, 1);
    h->side[CKVC_SIDE_HEAD].start = ckvc_alloc(2 * 2 * 3, sizeof(float));
    h->side[CKVC_SIDE_GATE].start = ckvc_alloc(2 * 3 * 2 * 3, sizeof(float));
    for (int i = 0; i < 12; i++) { h->side[CKVC_SIDE_HEAD].start[i] = (float)ckvc_head_action(i); }
    for (int i = 0; i < 36; i++) {
        h->side[CKVC_SIDE_GATE].start[i] = (float)ckvc_gate_action(i % CKVC_GATE_ACTIONS);
    }
}

/* Adds prompt `number` with its rows; the same number gives the same rows. */
static inline void fixture_prompt(shard *s, uint32_t number, int n_records) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, 7, number, 0);
    const shard_kind kind = shard_kind_of(&s->h);
    struct shard_prompt p = {.line = number + 1,
                             .n_tokens = 100 + number,
                             .n_continuation = 16,
                             .cut = number & 1,
                             .token_hash = ckvc_rng_u64(&rng)};
    snprintf(p.id, sizeof p.id, "prompt-\xc3\xa9-%u", number);
    snprintf(p.source, sizeof p.source, "tests");
    snprintf(p.split, sizeof p.split, number % 5 == 4 ? "heldout" : "");
    p.r_struct = 3 + ckvc_rng_double(&rng);
    p.r_sem = 10 + ckvc_rng_double(&rng);
    p.loss_full = 2 + ckvc_rng_double(&rng);
    p.bin_entropy = kind != SHARD_LOGGED ? 0 : (uint16_t)(number % 3);
    p.bin_ppl = kind != SHARD_LOGGED ? 0 : (uint16_t)(number % 2);
    const size_t at = shard_add_prompt(s, &p);
    for (size_t i = 0; i < 12 && kind == SHARD_DEMAND; i++) {
        s->demand[at * 12 + i] = (uint32_t)ckvc_rng_below(&rng, p.n_tokens + 1);
        s->layer_demand[at * 6 + i / 2] = (uint32_t)ckvc_rng_below(&rng, p.n_tokens + 1);
        for (size_t w = at * SHARD_N_MIXES; s->mixed_demand && w < (at + 1) * SHARD_N_MIXES; w++) {
            s->mixed_demand[w * 12 + i] = (uint32_t)ckvc_rng_below(&rng, p.n_tokens + 1);
            s->mixed_layer_demand[w * 6 + i / 2] = (uint32_t)ckvc_rng_below(&rng, p.n_tokens + 1);
        }
    }
    for (size_t i = 0; i < 4 && shard_has_features(&s->h); i++) { /* positions alike want as much */
        enum { F = FIXTURE_FEATURES, P = FIXTURE_POSITIONS };
        const size_t head = at * 4 + i;
        s->mass[head] = ckvc_rng_double(&rng);
        s->target[head] = ckvc_rng_double(&rng);
        if (kind == SHARD_SCORE) { s->expected_loss[head] = 1 + ckvc_rng_double(&rng); }
        for (size_t k = 0; k < P * F; k++) {
            const float f = (float)ckvc_rng_double(&rng);
            s->features[head * P * F + k] = f;
            s->target_features[head * F + k % F] += s->target[head] / P * (double)f;
        }
    }
    for (size_t i = 0; i < 6 && s->mixed_length_demand; i++) {
        s->length_demand[at * 6 + i] = 1 + (number * 6 + (uint32_t)i) * 7 % p.n_tokens;
        for (size_t w = at * SHARD_N_MIXES; w < (at + 1) * SHARD_N_MIXES; w++) {
            s->mixed_length_demand[w * 6 + i] = 1 + ((uint32_t)w * 6 + (uint32_t)i) * 5 % 100;
        }
    }
    for (size_t i = at * 4; i < at * 4 + 4 && (kind == SHARD_SCAN || kind == SHARD_DEMAND); i++) {
        s->rho_sd[i] = ckvc_rng_double(&rng);
        s->own_recent[i] = ckvc_rng_double(&rng);
        s->own_entropy[i] = ckvc_rng_double(&rng);
    }
    if (kind != SHARD_LOGGED) { return; }
    for (uint16_t b = 0; b < 3; b++) {
        struct shard_baseline base = {
            .prompt = (uint32_t)at, .budget = b, .loss = 2 + ckvc_rng_double(&rng)};
        const size_t row = shard_add_baseline(s, &base);
        for (size_t l = 0; l < 2; l++) {
            s->n_candidates[row * 2 + l] = 60 + b;
            s->n_kept[row * 2 + l] = 50 + b;
            s->n_kept_window[row * 2 + l] = 8;
            s->n_candidates_lo[row * 2 + l] = 70;
            s->n_candidates_hi[row * 2 + l] = 40 + (uint32_t)l;
        }
    }
    for (int i = 0; i < n_records; i++) {
        bool gate = strcmp(s->h.pass, "gate") == 0 || (strcmp(s->h.pass, "both") == 0 && i % 2);
        struct shard_record r = {
            .prompt = (uint32_t)at,
            .side = gate,
            .action = (uint8_t)ckvc_rng_below(&rng, gate ? CKVC_GATE_ACTIONS : CKVC_HEAD_ACTIONS),
            .layer = (uint16_t)ckvc_rng_below(&rng, 2),
            .head = gate ? CKVC_NO_HEAD : (uint16_t)ckvc_rng_below(&rng, 2),
            .budget = (uint16_t)ckvc_rng_below(&rng, 3),
            .reward = ckvc_rng_double(&rng) - 0.5,
            .baseline = ckvc_rng_double(&rng) - 0.5,
            .loss = 2 + ckvc_rng_double(&rng),
            .n_candidates = (uint32_t)ckvc_rng_below(&rng, 100),
            .n_kept = 32,
            .set_hash = ckvc_rng_u64(&rng)};
        shard_add_record(s, &r);
    }
}

static inline shard *fixture_shard(const char *pass, uint32_t n_prompts, int n_records) {
    shard *s = shard_create();
    fixture_header(&s->h, pass);
    for (uint32_t i = 0; i < n_prompts; i++) { fixture_prompt(s, i, n_records); }
    return s;
}

/* Makes a shard as `calibrate --side demand` logs it today, with features and other mixes. */
static inline shard *fixture_one_pass(uint32_t n_prompts) {
    shard *s = fixture_shard("demand", 0, 0);
    fixture_features(&s->h);
    for (uint32_t i = 0; i < n_prompts; i++) { fixture_prompt(s, i, 0); }
    return s;
}

/* Do both hold the same header and rows? They are compared by the plain encoding, which holds
 * every field. */
static inline bool fixture_same(const shard *a, const shard *b) {
    ckvc_buffer x = {0}, y = {0};
    shard_header_encode(&a->h, &x);
    shard_header_encode(&b->h, &y);
    shard_encode(a, &x);
    shard_encode(b, &y);
    bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    ckvc_buffer_fini(&x), ckvc_buffer_fini(&y);
    return same;
}
