/* The names of policies, and what is known of each. See policy_kind.h. */
#include "formats/lines/policy_kind.h"

#include <string.h>

#define ROW(ID, id, name, ...) [POLICY_##ID] = {name, __VA_ARGS__},

/* Kinds with thresholds are not `exact`, because thresholds may keep fewer entries than the budget
 * allows. */
static const struct {
    const char *name;
    policy_properties is;
} kinds[POLICY_KIND_COUNT] = {
    [POLICY_TABLE] = {"table", {.query_aware = true}},
    [POLICY_IDENTITY] = {"identity", {.query_aware = true}},
    [POLICY_MATCHED] = {"matched", {.query_aware = true}},
    POLICY_RULES(ROW) POLICY_TABLE_RULES(ROW) /* the rules, one by one */
        [POLICY_NO_UTILITY] = {"no-utility", {.query_aware = true}},
    [POLICY_NO_THRESHOLD] = {"no-threshold", {.query_aware = true}},
    [POLICY_MEAN_GATE] = {"mean-gate", {.query_aware = true}},
    [POLICY_MEAN_POOL] = {"mean-pool", {.query_aware = true}},
    [POLICY_HEAD_ONLY] = {"head-only", {.query_aware = true}},
    [POLICY_GATE_ONLY] = {"gate-only", {.query_aware = true}},
};

const char *policy_kind_name(policy_kind kind) { return kinds[kind].name; }

const policy_properties *policy_properties_of(policy_kind kind) { return &kinds[kind].is; }

policy_kind policy_kind_named(const char *name) {
    int kind = 0;
    const size_t n = strlen(name), base = policy_is_fitted(name) ? n - strlen(POLICY_FIT) : n;
    while (kind < POLICY_KIND_COUNT &&
           (strncmp(name, kinds[kind].name, base) != 0 || strlen(kinds[kind].name) != base)) {
        kind++;
    }
    return kind == POLICY_KIND_COUNT && ((n > 5 && strcmp(name + n - 5, "Press") == 0) ||
                                         strcmp(name, "attention-matching") == 0)
               ? POLICY_PRESS
               : (policy_kind)kind;
}

bool policy_is_fitted(const char *name) {
    const size_t n = strlen(name), end = strlen(POLICY_FIT);
    return n > end && strcmp(name + n - end, POLICY_FIT) == 0;
}
