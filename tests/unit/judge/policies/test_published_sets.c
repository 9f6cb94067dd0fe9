/* What references keep against the kept sets of kvpress, and of rules that it lacks written out in
 * Python (tests/golden/policies): every position. No score that decides is nearer to the next than
 * 1.7e-5 of itself, which float32 tells apart. */
#include "judge/policies/policy_sets.h"
#include "tests/unit/golden_rig.h"
#include "tests/unit/sets_fixture.h"

enum { WINDOW = 16, CONTINUED = 12, MOST_BUDGETS = 2, N_POLICIES = 19 };

static table_file *table_of(const setting_list *of) {
    const uint32_t L = (uint32_t)rig.shape->n_layers, G = (uint32_t)rig.shape->n_kv_heads;
    ckvc_table *t = new_start_table(L, G, 1, 1, of->v, of->n, 1, NULL);
    t->n_query_heads = (uint32_t)rig.shape->n_heads;
    assert_int_equal(ckvc_table_add_shares(t, 1), 0);
    for (uint32_t i = 0; i < L * G * of->n; i++) {
        const uint32_t u = i / of->n;
        t->share[i] = json_number_value(cell_of(json_object_get(rig.root, "shares"), u / G, u % G));
        t->layer_share[u / G * of->n + i % of->n] = 1;
        t->c_min[i % of->n] = (ckvc_c_min){0.2, 8};
        t->score[i % of->n] = (ckvc_score){.mode = CKVC_MODE_HEADS};
    }
    return table_file_around(t, false);
}

static uint32_t compare_sets(const policy_kept *kept, const char *name, const json_t *want) {
    const uint32_t G = (uint32_t)rig.shape->n_kv_heads;
    uint32_t lacks = 0;
    uint64_t entries = 0;
    assert_int_equal(json_array_size(want), rig.shape->n_layers);
    for (uint32_t l = 0; l < json_array_size(want); l++) {
        const json_t *layer = json_array_get(want, l);
        const bool by_head = json_is_array(json_array_get(layer, 0));
        assert_int_equal(kept->n_sets, by_head ? G : 1);
        for (uint32_t g = 0; g < kept->n_sets; g++) {
            const json_t *set = by_head ? json_array_get(layer, g) : layer;
            const uint32_t n = lacking(&kept->sets[l], g, set);
            if (n) { print_error("%s, layer %u, head %u: %u other positions\n", name, l, g, n); }
            lacks += n;
            entries += json_array_size(set) * (by_head ? 1 : G);
        }
    }
    assert_int_equal(kept->entries, entries);
    return lacks;
}

/* Every policy, kvzip in one piece; or kvzip in chunks alone. Positions that differ. */
static uint32_t compare_sets_of(const policy_choice *choice, bool in_chunks) {
    CKVC_AUTO(policy_sets_free_at) policy_sets *k = NULL;
    CKVC_AUTO(session_destroy_at) session *s = NULL;
    uint32_t others = 0;
    const uint32_t first = choice->texts.n_first, later = choice->texts.n_later + 8;
    OK(policy_sets_create(choice, rig.shape, rig.prompts, &k, &err));
    session_limits limits = {
        .max_prompt = rig.prompts->max_tokens, .max_continuation = CONTINUED, .max_window = WINDOW};
    policy_sets_need(k, &limits);
    assert_int_equal(limits.max_targets, in_chunks ? later + 48 : first + rig.prompts->max_tokens);
    assert_int_equal(limits.max_counted, in_chunks ? 4 + 48 : 0);
    OK(sessions_create(rig.m, limits, 1, &s, &err));
    for (size_t p = 0; p < rig.prompts->n; p++) {
        prefill_stats stats;
        const uint32_t T = rig.items[p].n_tokens,
                       fed = T + first + (in_chunks ? (T - 1) / 48 * later : 0);
        OK(policy_sets_prefill(k, s, &rig.items[p], &stats, &err));
        for (size_t i = 0; i < choice->n; i++) {
            const policy_kind kind = choice->list[i].kind;
            const char *name = policy_kind_name(kind);
            const json_t *want =
                in_chunks ? of_prompt(p, "in_chunks") : json_object_get(of_prompt(p, "kept"), name);
            for (uint32_t b = 0; b < choice->setting.budgets.n; b++) {
                const policy_kept *kept;
                OK(policy_sets_decide(k, i, b, &kept, &err));
                assert_int_equal(kept->repeat_tokens, kind == POLICY_KVZIP ? fed : 0);
                others += compare_sets(kept, name, of_budget(want, choice->setting.budgets.v[b]));
            }
        }
    }
    return others;
}

/* Every policy that the golden file has, under every budget. */
static void compare_model(const char *golden) {
    rig_open(bench_open(2), NULL, golden);
    const json_t *list = json_object_get(rig.root, "budgets");
    double budgets[MOST_BUDGETS];
    setting_list of = {budgets, (uint32_t)json_array_size(list)};
    assert_in_range(of.n, 1, MOST_BUDGETS);
    for (size_t i = 0; i < of.n; i++) { budgets[i] = json_number_value(json_array_get(list, i)); }
    CKVC_AUTO(table_file_free_at) table_file *table = table_of(&of);
    asked_policy policies[N_POLICIES];
    const char *name;
    json_t *sets, *kept = of_prompt(0, "kept");
    size_t n = 0;
    int64_t n_later;
    assert_int_equal(json_object_size(kept), N_POLICIES);
    json_object_foreach(kept, name, sets) {
        const policy_kind kind = policy_kind_named(name);
        assert_int_not_equal(kind, POLICY_KIND_COUNT);
        policies[n++] =
            (asked_policy){.kind = kind, .table = policy_needs_table(kind) ? table : NULL};
    }
    CKVC_AUTO_FREE int32_t *later = golden_ids(json_object_get(rig.root, "later"), &n_later);
    policy_choice choice = {.list = policies,
                            .n = N_POLICIES,
                            .texts = {.first = rig.instruction,
                                      .later = later,
                                      .n_first = (uint32_t)rig.n_instruction,
                                      .n_later = (uint32_t)n_later},
                            .setting = {.window = WINDOW, .budgets = of},
                            .mode = CKVC_MODE_COUNT,
                            .score = CKVC_SCORE_COUNT};
    assert_int_equal(compare_sets_of(&choice, false), 0);
    choice.list = &(asked_policy){.kind = POLICY_KVZIP};
    choice.n = 1;
    choice.texts.chunk = (uint32_t)golden_number(rig.root, "chunk");
    assert_int_equal(compare_sets_of(&choice, true), 0);
    rig_close();
}

TEST(4_layers) { compare_model("tests/golden/policies/ckvc-tiny-4l.json"); }

TEST(8_layers) { compare_model("tests/golden/policies/ckvc-tiny-8l.json"); }

/* Random weights, biases on queries, keys and values. */
TEST(qwen2) { compare_model("tests/golden/policies/qwen2.json"); }

RUN_TESTS(NULL, NULL)
