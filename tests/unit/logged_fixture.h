/* Makes logged rewards for tests. Where the library fails, cmocka does. */
#pragma once

#include "cql/solve/logged.h"
#include "tests/unit/unit.h"

CKVC_AUTO_OF(cql_logged, cql_logged_free)

static inline cql_logged *new_logged(size_t states, size_t actions, bool part) {
    cql_logged *l = NULL;
    OK(cql_logged_create(states, actions, part, (size_t)1 << 26, &l, &err));
    return l;
}

static inline void add(cql_logged *l, size_t s, size_t a, double advantage, double baseline) {
    OK(cql_logged_add(l, s, a, advantage, 0.5 * advantage, baseline, &err));
}
