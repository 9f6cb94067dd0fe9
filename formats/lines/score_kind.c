/* Names of policies, and what to know of them: see score_kind.h. */
#include "formats/lines/score_kind.h"

#include <string.h>

/* Thresholds keep fewer than they may. */
static const struct {
    const char *name;
    policy_properties is;
} kinds[SCORE_KIND_COUNT] = {
    [SCORE_TABLE] = {"table", {.query_aware = true}},
    [SCORE_IDENTITY] = {"identity", {.query_aware = true}},
    [SCORE_FULL] = {.name = "full"},
    [SCORE_MATCHED] = {"matched", {.query_aware = true}},
    [SCORE_RECENT] = {"recent", {.exact = true}},
    [SCORE_SINK_RECENT] = {"sink-recent", {.exact = true}},
    [SCORE_RANDOM] = {"random", {.exact = true}},
    [SCORE_TOP_K] = {"top-k", {.query_aware = true, .exact = true}},
    [SCORE_WINDOW] = {"window", {.query_aware = true, .exact = true}},
    [SCORE_WINDOW_POOLED] = {"window-pooled", {.query_aware = true, .exact = true}},
    [SCORE_STREAMINGLLM] = {"streamingllm",
                            {"Xiao et al. 2024, arXiv:2309.17453; kvpress, streaming_llm_press.py",
                             .exact = true}},
    [SCORE_H2O] = {"h2o",
                   {"Zhang et al. 2023, arXiv:2306.14048; KVCache-Factory, pyramidkv_utils.py",
                    .cost = "attention of all rows", .exact = true}},
    [SCORE_SNAPKV] = {"snapkv",
                      {"Li et al. 2024, arXiv:2404.14469; snapkv_utils.py", .query_aware = true,
                       .exact = true}},
    [SCORE_PYRAMIDKV] = {"pyramidkv",
                         {"Cai et al. 2024, arXiv:2406.02069; KVCache-Factory, pyramidkv_utils.py",
                          .query_aware = true}},
    [SCORE_ADAKV] = {"adakv",
                     {"Feng et al. 2024, arXiv:2407.11550; kvpress, adakv_press.py",
                      .query_aware = true, .exact = true}},
    [SCORE_CAKE] = {"cake",
                    {"Qin et al. 2025, arXiv:2503.12491; cake/utils.py", .query_aware = true,
                     .exact = true}},
    [SCORE_EXPECTED_ATTENTION] =
        {"expected-attention",
         {"Devoto et al. 2025, arXiv:2510.00636; kvpress, expected_attention_press.py",
          .cost = "queries of all rows", .exact = true}},
    [SCORE_TOVA] = {"tova",
                    {"Oren et al. 2024, arXiv:2401.06104; kvpress, tova_press.py",
                     .query_aware = true, .exact = true}},
    [SCORE_KEYDIFF] = {"keydiff",
                       {"Park et al. 2025, arXiv:2504.15364; kvpress, keydiff_press.py",
                        .exact = true}},
    [SCORE_KVZIP] = {"kvzip",
                     {"Kim et al. 2025, arXiv:2505.23416; kvpress, kvzip_press.py",
                      .cost = "a second prefill", .exact = true}},
    [SCORE_DYNAMICKV] = {"dynamickv",
                         {"Zhou et al. 2024, arXiv:2412.14838; methods/dynamic_v11.py",
                          .query_aware = true}},
    [SCORE_CHUNKKV] = {"chunkkv",
                       {"Liu et al. 2025, arXiv:2502.00299; kvpress, chunkkv_press.py",
                        .query_aware = true}},
    [SCORE_FASTKV] = {"fastkv",
                      {"Jo et al. 2025, arXiv:2502.01068; baselines/fastkv/utils.py",
                       .cost = "a prefill of its own", .query_aware = true}},
    [SCORE_POOLED] = {"pooled", {.query_aware = true, .exact = true}},
    [SCORE_HEADKV] = {"headkv",
                      {"Fu et al. 2024, arXiv:2410.19258; headkv/snapkv_utils.py",
                       .query_aware = true}},
    [SCORE_DUOATTENTION] = {"duoattention",
                            {"Xiao et al. 2024, arXiv:2410.10819; duo_attn/utils.py",
                             .exact = true}},
    [SCORE_NO_UTILITY] = {"no-utility", {.query_aware = true}},
    [SCORE_NO_THRESHOLD] = {"no-threshold", {.query_aware = true}},
    [SCORE_MEAN_GATE] = {"mean-gate", {.query_aware = true}},
    [SCORE_MEAN_POOL] = {"mean-pool", {.query_aware = true}},
    [SCORE_HEAD_ONLY] = {"head-only", {.query_aware = true}},
    [SCORE_GATE_ONLY] = {"gate-only", {.query_aware = true}},
};

const char *score_kind_name(score_kind kind) { return kinds[kind].name; }

const policy_properties *score_policy_properties(score_kind kind) { return &kinds[kind].is; }

score_kind score_kind_named(const char *name) {
    int kind = 0;
    while (kind < SCORE_KIND_COUNT && strcmp(name, kinds[kind].name) != 0) { kind++; }
    return (score_kind)kind;
}
