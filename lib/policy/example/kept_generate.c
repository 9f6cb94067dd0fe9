/* Compresses a real prefill. It runs a model in this repository's own runtime over a text, hands
 * attention rows, keys and values to the policy library as they come, holds only the entries that
 * the library keeps, and decodes greedily from there. For comparison it decodes from the full cache
 * too.
 *
 *   kept_generate MODEL TABLE BUDGET TEXT N
 *
 * It prints "full: ENTRIES entries kept, BYTES bytes, TEXT" and the same line for "kept". `ckvc
 * generate` does this as a complete program; here is only what an engine in C has to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/model_files.h"
#include "formats/tokenizer/tokenizer_files.h"
#include "lib/backend/backend.h"
#include "lib/base/memory.h"
#include "lib/model/decoder.h"
#include "lib/policy/ckvc_policy.h"
#include "lib/token/tokenizer.h"

typedef struct run {
    ckvc_pool *pool;
    backend *be;
    model *m;
    tokenizer *tok;
    session *s;
    int32_t *ids;
    size_t n_ids;
    ckvc_table *table;
    ckvc_prefill *p;
    void *workspace;
    ckvc_attending *attending; /* [L] */
    bool refused;              /* a tile was refused: ckvc_prefill_message(p) says why */
} run;

/* The session shows one KV head of a layer after the other: the rows of its query heads, then its
 * cache. */
static void hand_over_head(void *ctx, const prefill_head *h) {
    run *r = ctx;
    const uint32_t l = (uint32_t)h->layer, g = (uint32_t)h->head, group = (uint32_t)h->group,
                   T = (uint32_t)h->n_tokens, R = ckvc_prefill_rows(r->p);
    for (uint32_t q = 0; R && q < group && !r->refused; q++) {
        const float *rows = h->attention + ((size_t)(q + 1) * (size_t)h->n_rows - R) * T;
        r->refused = ckvc_prefill_attention(r->p, l, g * group + q, 0, R, rows) != 0;
    }
    r->refused = r->refused || ckvc_prefill_cache(r->p, l, g, 0, T, h->keys, h->values) != 0;
}

static ckvc_status open_run(run *r, char **argv, ckvc_err *err) {
    token_spec *spec = NULL;
    model_spec *of_model = NULL;
    char message[512];
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_TRY(ckvc_pool_create(2, &r->pool, err));
    CKVC_TRY(backend_create("cpu", CKVC_COMPUTE_F32, r->pool, &r->be, err));
    CKVC_TRY(model_files_read(argv[1], &of_model, err));
    CKVC_TRY(model_open(of_model, r->be, &r->m, err));
    CKVC_TRY(tokenizer_files_read(argv[1], &spec, &path, err));
    CKVC_TRY(tokenizer_build(spec, path, &r->tok, err));
    CKVC_TRY(tokenizer_encode(r->tok, argv[4], strlen(argv[4]), true, &r->ids, &r->n_ids, err));
    CKVC_FAIL_IF(ckvc_table_read(argv[2], &r->table, message, sizeof message), err, CKVC_E_DATA,
                 "%s", message);
    return CKVC_OK;
}

/* Runs the prefill and asks the library for the sets. */
static ckvc_status prefill(run *r, double budget, int64_t room, ckvc_err *err) {
    const model_shape *shape = model_get_shape(r->m);
    const int64_t n = (int64_t)r->n_ids, window = r->table->window;
    const session_limits limits = {
        .max_prompt = n, .max_window = window < n ? window : n, .max_watched = 4096};
    prefill_stats stats;
    char message[256];
    CKVC_TRY(sessions_create(r->m, limits, 1, &r->s, err));
    r->attending = ckvc_calloc((size_t)shape->n_layers, sizeof *r->attending);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        const layer_rule rule = session_layer_rule(r->s, l);
        r->attending[l] =
            (ckvc_attending){.inv_freq = rule.inv_freq, .scale = rule.scale, .window = rule.window};
    }
    const ckvc_request request = {.table = r->table,
                                  .model = {.n_layers = (uint32_t)shape->n_layers,
                                            .n_query_heads = (uint32_t)shape->n_heads,
                                            .n_kv_heads = (uint32_t)shape->n_kv_heads,
                                            .head_dim = (uint32_t)shape->head_dim,
                                            .inv_freq = session_key_frequencies(r->s),
                                            .attending = r->attending},
                                  .n_tokens = (uint32_t)r->n_ids,
                                  .budget = budget};
    const size_t bytes = ckvc_prefill_bytes(&request);
    r->workspace = ckvc_alloc(bytes, 1);
    r->p = ckvc_prefill_begin(r->workspace, bytes, &request, message, sizeof message);
    CKVC_FAIL_IF(!r->p, err, CKVC_E_DATA, "the table: %s", message);
    const uint32_t rows = ckvc_prefill_rows(r->p);
    const prefill_watcher watcher = {
        .n_rows = rows ? rows : 1, .on_head = hand_over_head, .ctx = r};
    const prefill_input in = {.tokens = r->ids,
                              .n = (int64_t)r->n_ids,
                              .n_total = (int64_t)r->n_ids + room,
                              .window = r->table->window,
                              .watcher = &watcher};
    CKVC_FAIL_IF(rows > 4096, err, CKVC_E_DATA, "the table reads %u rows, at most 4096", rows);
    CKVC_TRY(sessions_prefill(&(prefill_job){r->s, in, &stats}, 1, err));
    CKVC_FAIL_IF(r->refused || ckvc_prefill_keep(r->p, stats.r_sem), err, CKVC_E_DATA, "%s",
                 ckvc_prefill_message(r->p));
    return CKVC_OK;
}

/* Turns the library's sets into those of lib/model: positions [L][G * T], offsets [L][G + 1]. */
static kept_set *gather_sets(const run *r, uint32_t *positions, uint32_t *offsets) {
    const model_shape *shape = model_get_shape(r->m);
    const uint32_t L = (uint32_t)shape->n_layers, G = (uint32_t)shape->n_kv_heads;
    kept_set *sets = ckvc_calloc(L, sizeof *sets);
    for (uint32_t l = 0; l < L; l++, positions += G * r->n_ids, offsets += G + 1) {
        for (uint32_t g = 0; g < G; g++) {
            uint32_t n;
            const uint32_t *set = ckvc_prefill_set(r->p, l, g, &n);
            memcpy(positions + offsets[g], set, n * sizeof *set);
            offsets[g + 1] = offsets[g] + n;
        }
        sets[l] = (kept_set){(int32_t)G, offsets, positions, false, {0}};
    }
    return sets;
}

/* Generates N tokens after the prompt, each the one with the largest logit, from what the sets
 * keep. */
static ckvc_status generate(run *r, const char *name, const kept_set *sets, int64_t n,
                            ckvc_err *err) {
    CKVC_AUTO(sequence_free_at) sequence *q = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    CKVC_AUTO_FREE int32_t *tokens = ckvc_calloc((size_t)n, sizeof *tokens);
    CKVC_AUTO_FREE char *text = NULL;
    size_t size;
    be_greedy next;
    CKVC_TRY(sessions_next(&r->s, 1, NULL, &next, err));
    CKVC_TRY(sequence_create(r->s, sets, n, &q, err));
    CKVC_TRY(decoder_create(r->m, 1, &d, err));
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = next.id;
        CKVC_TRY(decoder_step(d, &q, &tokens[i], 1, NULL, &next, err));
    }
    CKVC_TRY(tokenizer_decode(r->tok, tokens, (size_t)n, true, &text, &size, err));
    printf("%s: %lld entries kept, %zu bytes, %s\n", name, (long long)sequence_entries(q),
           sequence_bytes(q), text);
    return CKVC_OK;
}

static ckvc_status generate_both(run *r, char **argv, ckvc_err *err) {
    const int64_t n = strtoll(argv[5], NULL, 10);
    CKVC_FAIL_IF(n < 1 || n > 1 << 20, err, CKVC_E_USAGE, "N is %s: want 1 to 1048576", argv[5]);
    CKVC_TRY(open_run(r, argv, err));
    CKVC_TRY(prefill(r, strtod(argv[3], NULL), n, err));
    const model_shape *shape = model_get_shape(r->m);
    const size_t L = (size_t)shape->n_layers, G = (size_t)shape->n_kv_heads;
    CKVC_AUTO_FREE uint32_t *positions = ckvc_calloc(L * G * r->n_ids, sizeof *positions);
    CKVC_AUTO_FREE uint32_t *offsets = ckvc_calloc(L * (G + 1), sizeof *offsets);
    CKVC_AUTO_FREE kept_set *sets = gather_sets(r, positions, offsets);
    CKVC_TRY(generate(r, "full", NULL, n, err));
    return generate(r, "kept", sets, n, err);
}

int main(int argc, char **argv) {
    ckvc_err err = {0};
    run r = {0};
    if (argc != 6) {
        fprintf(stderr, "usage: kept_generate MODEL TABLE BUDGET TEXT N\n");
        return 2;
    }
    const ckvc_status st = generate_both(&r, argv, &err);
    if (st != CKVC_OK) { fprintf(stderr, "kept_generate: %s\n", err.text); }
    session_destroy(r.s);
    if (r.m) { model_close(r.m); }
    tokenizer_free(r.tok);
    if (r.be) { backend_destroy(r.be); }
    if (r.pool) { ckvc_pool_destroy(r.pool); }
    ckvc_table_free(r.table);
    CKVC_FREE(r.ids, r.workspace, r.attending);
    return st == CKVC_OK ? 0 : 1;
}
