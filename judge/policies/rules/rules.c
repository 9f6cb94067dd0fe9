/* The rules by their kind. */
#include "judge/policies/rules/rule.h"

#define DECLARE(ID, id, ...) extern const policy_rule rule_##id;
#define ADDRESS(ID, id, ...) [SCORE_##ID] = &rule_##id,

SCORE_RULES(DECLARE)
SCORE_TABLE_RULES(DECLARE)

const policy_rule *policy_rule_of(score_kind kind) {
    static const policy_rule *const all[SCORE_KIND_COUNT] = {SCORE_RULES(ADDRESS)
                                                                 SCORE_TABLE_RULES(ADDRESS)};
    return all[kind];
}
