/* Scores of prompts that go through the layers together, because memory does not hold all copies of
 * weights: the same lines as one by one, and each layer is taken once for all of them. */
#include "judge/score/score.h"
#include "tests/unit/golden_model.h"

enum { N = 6, T = 60, C = 12, W = 8, BUDGETS = 2 };

static double budgets[BUDGETS] = {16, 0.5};
static const asked_policy policies[] = {
    {.kind = POLICY_IDENTITY}, {.kind = POLICY_SNAPKV}, {.kind = POLICY_ADAKV}};
enum { POLICIES = sizeof policies / sizeof *policies };

typedef struct scored {
    ckvc_buffer lines;
    int64_t acquired, kept; /* kept: prompts whose lines have come */
} scored;

static void scored_fini(scored *s) { ckvc_buffer_fini(&s->lines); }

static ckvc_status keep(void *ctx, const void *lines, size_t size, ckvc_err *err) {
    (void)err;
    const char *text = lines;
    int n_lines = 0;
    for (size_t i = 0; i < size; i++) { n_lines += text[i] == '\n'; }
    assert_int_equal(n_lines, POLICIES * BUDGETS); /* one prompt's */
    ((scored *)ctx)->kept++;
    return CKVC_OK;
}

static void score(size_t memory, bool measures, scored *out) {
    static manifest_entry entries[N];
    static int32_t ids[N][T + C];
    static prompt items[N];
    static char names[N][4];
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    CKVC_AUTO(model_close_at) model *m = NULL;
    bench_count_acquired(&b);
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    const manifest made = {.entries = entries, .n_entries = N, .sha256 = "none"};
    prompt_list list = {.items = items};
    for (uint32_t i = 0; i < N; i++) {
        /* of different lengths; one with a single token behind it, one with none */
        snprintf(names[i], sizeof names[i], "p%u", i);
        entries[i] = (manifest_entry){.line = i + 1, .id = names[i]};
        for (uint32_t t = 0; t < T + C; t++) { ids[i][t] = (int32_t)(256 + (t * t + 7 * i) % 900); }
        items[i] = (prompt){.entry = &entries[i],
                            .tokens = ids[i],
                            .n_tokens = T - 3 * i,
                            .n_continuation = i == 2   ? 1
                                              : i == 4 ? 0
                                                       : C - i};
        list.n = i;
        prompts_add(&list);
    }
    list.n = N;
    score_options o = {.choice = {.list = policies,
                                  .n = POLICIES,
                                  .setting = setting_neutral(),
                                  .mode = CKVC_MODE_COUNT,
                                  .score = CKVC_SCORE_COUNT},
                       .attention_error = measures,
                       .utilities = measures,
                       .sets = true,
                       .memory = memory,
                       .keep = keep,
                       .keep_ctx = out};
    o.choice.setting.window = W;
    o.choice.setting.budgets = (setting_list){budgets, BUDGETS};
    const calibrate_inputs in = {m, b.be, &made, &list};
    score_summary summary[POLICIES * BUDGETS];
    acquired.n = 0;
    OK(score_prompts(&in, &o, &out->lines, summary, &err));
    out->acquired = acquired.n;
}

TEST(same_lines) {
    for (int measures = 0; measures < 2; measures++) {
        CKVC_AUTO(scored_fini) scored alone = {0}, together = {0};
        score((size_t)1 << 32, measures, &alone);
        score(14000000, measures, &together);
        assert_int_equal(together.kept, N);
        assert_int_equal(together.lines.size, alone.lines.size);
        assert_memory_equal(together.lines.data, alone.lines.data, alone.lines.size);
        /* all six in one passage of the layers: to open, for the prefill, the full cache, and each
         * policy under each budget. A passage takes the weights of 4 layers, norm and head. */
        assert_int_equal(together.acquired, (3 + POLICIES * BUDGETS) * (4 * 9 + 2));
        assert_true(alone.acquired > 3 * together.acquired);
    }
}

RUN_TESTS(NULL, NULL)
