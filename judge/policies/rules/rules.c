/* The rules by their kind. */
#include "judge/policies/rules/rule.h"

#define DECLARE(ID, id, ...) extern const policy_rule rule_##id;
#define ADDRESS(ID, id, ...) [POLICY_##ID] = &rule_##id,

POLICY_RULES(DECLARE)
POLICY_TABLE_RULES(DECLARE)

const policy_rule *policy_rule_of(policy_kind kind) {
    static const policy_rule *const all[POLICY_KIND_COUNT] = {POLICY_RULES(ADDRESS)
                                                                  POLICY_TABLE_RULES(ADDRESS)};
    return all[kind];
}
