/* What every program of tests/unit begins with: cmocka, what cmocka wants before it, and libc. A
 * test that has no use for its state does not mention it. */
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow" /* by a helper's own `err` */

/* What the last step said: OK(step), or FAILS(step, CKVC_E_DATA). */
static ckvc_err err __attribute__((unused));

static inline void unit_step(ckvc_status got, ckvc_status want, const ckvc_err *said,
                             const char *step, const char *file, int line) {
    if (got == want) { return; }
    print_error("%s: status %d, wanted %d: %s\n", step, got, want, said->text);
    _fail(file, line);
}
#define FAILS(step, want)                                                                          \
    do {                                                                                           \
        err.status = CKVC_OK;                                                                      \
        err.text[0] = 0;                                                                           \
        unit_step(step, want, &err, #step, __FILE__, __LINE__);                                    \
    } while (0)
#define OK(step) FAILS(step, CKVC_OK)
/* Returns a stream of random numbers (hash.h). */
static inline ckvc_rng rng_of(uint64_t seed, uint64_t key, uint32_t stage) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, key, stage);
    return rng;
}

static inline void check_said(const char *said, const char *word, const char *file, int line) {
    if (!strstr(said, word) || strchr(said, '\n')) {
        print_error("want one line with \"%s\", got \"%s\"\n", word, said);
        _fail(file, line);
    }
}
/* Like FAILS(step, want), and the one line of the message must contain `word`. */
#define SAYS(step, want, word)                                                                     \
    do {                                                                                           \
        FAILS(step, want);                                                                         \
        check_said(err.text, word, __FILE__, __LINE__);                                            \
    } while (0)

static inline void close_to(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1.0, fabs(want)))) {
        fail_msg("got %.17g, want %.17g", got, want);
    }
}

/* Stands before a plain loop that computes what is wanted: sanitisers slow it down ten times,
 * and have nothing to find in it. */
#define PLAIN_LOOP __attribute__((no_sanitize("address", "thread", "undefined")))

/* TEST(name) { ... } is a test of this program. RUN_TESTS(setup, teardown) is its main, with
 * what comes before the first test and after the last one. Tests run in the order of their
 * lines. */
enum { UNIT_TESTS_MAX = 64 };
static struct CMUnitTest unit_tests[UNIT_TESTS_MAX];
static int unit_lines[UNIT_TESTS_MAX];
static size_t n_unit_tests;
/* These run around each single test, where a main sets them. */
static CMFixtureFunction before_each, after_each;

/* Adds a test at the place of its line, because the compiler chooses in which order a program's
 * constructors run. */
static inline void unit_add(const char *name, CMUnitTestFunction test, int line) {
    size_t at = n_unit_tests++;
    if (at == UNIT_TESTS_MAX) { abort(); }
    for (; at > 0 && unit_lines[at - 1] > line; at--) {
        unit_tests[at] = unit_tests[at - 1];
        unit_lines[at] = unit_lines[at - 1];
    }
    unit_tests[at] = (struct CMUnitTest){name, test, NULL, NULL, NULL};
    unit_lines[at] = line;
}

static inline int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown) {
    for (size_t i = 0; i < n_unit_tests; i++) {
        unit_tests[i].setup_func = before_each;
        unit_tests[i].teardown_func = after_each;
    }
    return _cmocka_run_group_tests("tests", unit_tests, n_unit_tests, setup, teardown);
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state);                                                         \
    __attribute__((constructor)) static void add_test_##name(void) {                               \
        unit_add(#name, test_##name, __LINE__);                                                    \
    }                                                                                              \
    static void test_##name(void **state)
#define RUN_TESTS(setup, teardown)                                                                 \
    int main(void) { return unit_run(setup, teardown); }
