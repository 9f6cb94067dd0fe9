/* What references keep against the kept sets of kvpress, and of rules that it lacks written out in
 * Python (tests/golden/policies): every position,. No score that decides is
 * nearer to the next than 1.7e-5 of itself, which float32 tells apart. */
#include "judge/policies/policy_sets.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/sets_fixture.h"
#include "tests/unit/unit.h"

enum { WINDOW = 16, CONTINUED = 12, MOST_BUDGETS = 2, MOST_PROMPTS = 2, N_POLICIES = 15 };

typedef struct rig {
    bench b;
    model *m;
    uint32_t L, G;
    json_t *root;
    double budgets[MOST_BUDGETS];
    setting_list list; /* of them */
    table_file *table;
    manifest_entry entry;
    prompt items[MOST_PROMPTS];
    prompt_list prompts;
    score_policy policies[N_POLICIES];
    int32_t *instruction, *later;
    policy_choice choice;
} rig;

static table_file *table_of(const json_t *root, const model_shape *shape, const setting_list *of) {
    const uint32_t L = (uint32_t)shape->n_layers, G = (uint32_t)shape->n_kv_heads;
    ckvc_table *t = new_start_table(L, G, 1, 1, of->v, of->n, 1, NULL);
    t->n_query_heads = (uint32_t)shape->n_heads;
    assert_int_equal(ckvc_table_add_shares(t, 1), 0);
    for (uint32_t i = 0; i < L * G * of->n; i++) {
        const uint32_t u = i / of->n;
        const json_t *layer = json_array_get(json_object_get(root, "shares"), u / G);
        t->share[i] = json_number_value(json_array_get(layer, u % G));
        t->layer_share[u / G * of->n + i % of->n] = 1;
        t->c_min[i % of->n] = (ckvc_c_min){0.2, 8};
        t->score[i % of->n] = (ckvc_score){.mode = CKVC_MODE_HEADS};
    }
    return table_file_around(t, false);
}

/* Positions of `want` that a set does not have. */
static uint32_t lacking(const kept_set *of, uint32_t g, const json_t *want) {
    const uint32_t end = of->offsets[g + 1];
    uint32_t lacks = 0, k = of->offsets[g];
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_int_t t = json_integer_value(json_array_get(want, i));
        while (k < end && of->positions[k] < t) { k++; }
        lacks += k == end || of->positions[k] != t;
    }
    return lacks;
}

static uint32_t compare_sets(const policy_kept *kept, const rig *r, const char *name,
                             const json_t *want) {
    uint32_t lacks = 0;
    uint64_t entries = 0;
    assert_int_equal(json_array_size(want), r->L);
    for (uint32_t l = 0; l < r->L; l++) {
        const json_t *layer = json_array_get(want, l);
        const bool by_head = json_is_array(json_array_get(layer, 0));
        assert_int_equal(kept->n_sets, by_head ? r->G : 1);
        for (uint32_t g = 0; g < kept->n_sets; g++) {
            const json_t *set = by_head ? json_array_get(layer, g) : layer;
            const uint32_t n = lacking(&kept->sets[l], g, set);
            if (n) { print_error("%s, layer %u, head %u: %u other positions\n", name, l, g, n); }
            lacks += n;
            entries += json_array_size(set) * (by_head ? 1 : r->G);
        }
    }
    assert_int_equal(kept->entries, entries);
    return lacks;
}

static void open_model(rig *r, const char *golden) {
    r->b = bench_open(2);
    r->root = golden_read(golden);
    OK(model_open_path(json_string_value(json_object_get(r->root, "model")), r->b.be, &r->m, &err));
    r->L = (uint32_t)model_get_shape(r->m)->n_layers;
    r->G = (uint32_t)model_get_shape(r->m)->n_kv_heads;
}

static void read_prompts(rig *r) {
    static char id[] = "p";
    const json_t *prompts = json_object_get(r->root, "prompts");
    r->entry.id = id;
    r->prompts = (prompt_list){.items = r->items, .n = json_array_size(prompts)};
    assert_in_range(r->prompts.n, 1, MOST_PROMPTS);
    for (size_t i = 0; i < r->prompts.n; i++) {
        int64_t n;
        int32_t *tokens = golden_ids(json_object_get(json_array_get(prompts, i), "tokens"), &n);
        r->items[i] = (prompt){.entry = &r->entry, .tokens = tokens, .n_tokens = (uint32_t)n};
        if (n > r->prompts.max_tokens) { r->prompts.max_tokens = (uint32_t)n; }
    }
}

static json_t *sets_of(const rig *r, size_t p) {
    return json_object_get(json_array_get(json_object_get(r->root, "prompts"), p), "kept");
}

/* Every policy that the golden file has, under every budget. */
static void choose(rig *r) {
    const json_t *budgets = json_object_get(r->root, "budgets");
    const char *name;
    json_t *sets;
    size_t n = 0;
    int64_t n_instruction, n_later;
    r->list = (setting_list){r->budgets, (uint32_t)json_array_size(budgets)};
    assert_in_range(r->list.n, 1, MOST_BUDGETS);
    for (size_t i = 0; i < r->list.n; i++) {
        r->budgets[i] = json_number_value(json_array_get(budgets, i));
    }
    r->table = table_of(r->root, model_get_shape(r->m), &r->list);
    assert_int_equal(json_object_size(sets_of(r, 0)), N_POLICIES);
    json_object_foreach(sets_of(r, 0), name, sets) {
        const score_kind kind = score_kind_named(name);
        assert_int_not_equal(kind, SCORE_KIND_COUNT);
        r->policies[n++] =
            (score_policy){.kind = kind, .table = score_needs_table(kind) ? r->table : NULL};
    }
    r->instruction = golden_ids(json_object_get(r->root, "instruction"), &n_instruction);
    r->later = golden_ids(json_object_get(r->root, "later"), &n_later);
    r->choice = (policy_choice){.list = r->policies,
                                .n = N_POLICIES,
                                .texts = {.first = r->instruction,
                                          .later = r->later,
                                          .n_first = (uint32_t)n_instruction,
                                          .n_later = (uint32_t)n_later},
                                .setting = {.window = WINDOW, .budgets = r->list},
                                .mode = CKVC_MODE_COUNT,
                                .score = CKVC_SCORE_COUNT};
}

static void close_rig(rig *r) {
    for (size_t i = 0; i < r->prompts.n; i++) { free(r->items[i].tokens); }
    CKVC_FREE(r->instruction, r->later);
    table_file_free(r->table);
    json_decref(r->root);
    model_close(r->m);
    bench_close(&r->b);
}

/* Policy i under every budget; `fed`: what kvzip's second pass takes. */
static uint32_t compare_policy(const rig *r, policy_sets *k, size_t i, uint32_t fed,
                               const json_t *want) {
    const score_kind kind = r->choice.list[i].kind;
    uint32_t others = 0;
    for (uint32_t b = 0; b < r->list.n; b++) {
        char budget[16];
        const policy_kept *kept;
        snprintf(budget, sizeof budget, "%.0f", r->budgets[b]);
        OK(policy_sets_decide(k, i, b, &kept, &err));
        assert_int_equal(kept->repeat_tokens, kind == SCORE_KVZIP ? fed : 0);
        others += compare_sets(kept, r, score_kind_name(kind), json_object_get(want, budget));
    }
    return others;
}

/* Every policy, kvzip in one piece; or kvzip in chunks alone. Positions that differ. */
static uint32_t compare_sets_of(rig *r, bool in_chunks) {
    static const score_policy kvzip = {.kind = SCORE_KVZIP};
    policy_sets *k;
    session *s;
    uint32_t others = 0;
    const uint32_t first = r->choice.texts.n_first, later = r->choice.texts.n_later + 8;
    if (in_chunks) {
        r->choice.list = &kvzip;
        r->choice.n = 1;
        r->choice.texts.chunk = (uint32_t)json_number_value(json_object_get(r->root, "chunk"));
    }
    OK(policy_sets_create(&r->choice, model_get_shape(r->m), &r->prompts, &k, &err));
    session_limits limits = {
        .max_prompt = r->prompts.max_tokens, .max_continuation = CONTINUED, .max_window = WINDOW};
    policy_sets_need(k, &limits);
    assert_int_equal(limits.max_targets, in_chunks ? later + 48 : first + r->prompts.max_tokens);
    assert_int_equal(limits.max_counted, in_chunks ? 4 + 48 : 0);
    OK(sessions_create(r->m, limits, 1, &s, &err));
    for (size_t p = 0; p < r->prompts.n; p++) {
        prefill_stats stats;
        const uint32_t T = r->items[p].n_tokens;
        OK(policy_sets_prefill(k, s, &r->items[p], &stats, &err));
        for (size_t i = 0; i < r->choice.n; i++) {
            const json_t *of = json_array_get(json_object_get(r->root, "prompts"), p);
            others += compare_policy(
                r, k, i, T + first + (in_chunks ? (T - 1) / 48 * later : 0),
                in_chunks ? json_object_get(of, "in_chunks")
                          : json_object_get(sets_of(r, p), score_kind_name(r->policies[i].kind)));
        }
    }
    policy_sets_free(k);
    session_destroy(s);
    return others;
}

static void compare_model(const char *golden) {
    rig r = {0};
    open_model(&r, golden);
    read_prompts(&r);
    choose(&r);
    assert_int_equal(compare_sets_of(&r, false), 0);
    assert_int_equal(compare_sets_of(&r, true), 0);
    close_rig(&r);
}

TEST(4_layers) { compare_model("tests/golden/policies/ckvc-tiny-4l.json"); }

TEST(8_layers) { compare_model("tests/golden/policies/ckvc-tiny-8l.json"); }

/* Random weights, biases on queries, keys and values. */
TEST(qwen2) { compare_model("tests/golden/policies/qwen2.json"); }

RUN_TESTS(NULL, NULL)
