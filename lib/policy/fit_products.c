/* See fit_products.h. */
#include "lib/policy/fit_products.h"

#include <stdint.h>
#include <string.h>

#define LANES   2
#define NAME(x) x##_2
#define TARGET
#include "lib/policy/fit_lanes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define LANES   4
#define NAME(x) x##_4
#define TARGET  __attribute__((target("avx2")))
#include "lib/policy/fit_lanes.h"

fit_loops ckvc_fit_loops(int plain) {
    if (!plain && __builtin_cpu_supports("avx2")) { return (fit_loops){product_4, exponentials_4}; }
    return (fit_loops){product_2, exponentials_2};
}
#else
fit_loops ckvc_fit_loops(int plain) {
    (void)plain;
    return (fit_loops){product_2, exponentials_2};
}
#endif
