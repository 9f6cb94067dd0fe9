/* The list of rules: see rules.h. */
#include "calib/policies/rules/rules.h"

const policy_rule *policy_rule_of(score_kind kind) {
#define ADDRESS(name) &rule_##name,
    static const policy_rule *const all[] = {POLICY_RULES(ADDRESS)};
#undef ADDRESS
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->kind == kind) { return all[i]; }
    }
    return NULL;
}
