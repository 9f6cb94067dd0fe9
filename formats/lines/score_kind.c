/* Names of policies, and what to know of them: see score_kind.h. */
#include "formats/lines/score_kind.h"

#include <string.h>

#define ROW(ID, id, name, ...) [SCORE_##ID] = {name, __VA_ARGS__},

/* Thresholds keep fewer than they may. */
static const struct {
    const char *name;
    policy_properties is;
} kinds[SCORE_KIND_COUNT] = {
    [SCORE_TABLE] = {"table", {.query_aware = true}},
    [SCORE_IDENTITY] = {"identity", {.query_aware = true}},
    [SCORE_MATCHED] = {"matched", {.query_aware = true}},
    SCORE_RULES(ROW) SCORE_TABLE_RULES(ROW) /* one by one */
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
    const size_t n = strlen(name);
    while (kind < SCORE_KIND_COUNT && strcmp(name, kinds[kind].name) != 0) { kind++; }
    return kind == SCORE_KIND_COUNT && n > 5 && strcmp(name + n - 5, "Press") == 0
               ? SCORE_PRESS
               : (score_kind)kind;
}
