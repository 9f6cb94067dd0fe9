/* What tests of fits draw at random, and how they name it. */
#pragma once

#include "cql/solve/counts.h"
#include "tests/unit/unit.h"

CKVC_AUTO_OF(cql_counts, cql_counts_free)

static inline double gauss(ckvc_rng *rng) {
    double u = 1.0 - ckvc_rng_double(rng), v = ckvc_rng_double(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Returns a name with a number, which is valid until the next call. */
static inline const char *numbered(const char *name, int i) {
    static char text[32];
    snprintf(text, sizeof text, "%s%d", name, i);
    return text;
}
