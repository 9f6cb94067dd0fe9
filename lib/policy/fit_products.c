/* See fit_products.h. */
#include "lib/policy/fit_products.h"

#include <stdint.h>
#include <string.h>

#define NUMBER  double
#define OUT     double
#define FACTOR  fit_factor
#define LANES   2
#define NAME(x) x##_2
#define TARGET
#include "lib/policy/fit_lanes.h"

#define EXPONENTIALS
#define NUMBER  float
#define OUT     double
#define FACTOR  fit_floats
#define LANES   4
#define NAME(x) x##_4_floats
#define TARGET
#include "lib/policy/fit_lanes.h"

#define NUMBER  float
#define OUT     float
#define FACTOR  fit_floats
#define LANES   4
#define NAME(x) x##_4_to_floats
#define TARGET
#include "lib/policy/fit_lanes.h"

static fit_loops plain_loops(void) {
    return (fit_loops){product_2,      product_4_floats, product_4_to_floats, exponentials_4_floats,
                       raise_4_floats, attend_4_floats};
}

#if defined(__x86_64__) && defined(__GNUC__)
#define AVX2 __attribute__((target("avx2")))

#define NUMBER  double
#define OUT     double
#define FACTOR  fit_factor
#define LANES   4
#define NAME(x) x##_4
#define TARGET  AVX2
#include "lib/policy/fit_lanes.h"

#define EXPONENTIALS
#define NUMBER  float
#define OUT     double
#define FACTOR  fit_floats
#define LANES   8
#define NAME(x) x##_8_floats
#define TARGET  AVX2
#include "lib/policy/fit_lanes.h"

#define NUMBER  float
#define OUT     float
#define FACTOR  fit_floats
#define LANES   8
#define NAME(x) x##_8_to_floats
#define TARGET  AVX2
#include "lib/policy/fit_lanes.h"

fit_loops ckvc_fit_loops(int plain) {
    if (plain || !__builtin_cpu_supports("avx2")) { return plain_loops(); }
    return (fit_loops){product_4,      product_8_floats, product_8_to_floats, exponentials_8_floats,
                       raise_8_floats, attend_8_floats};
}
#else
fit_loops ckvc_fit_loops(int plain) {
    (void)plain;
    return plain_loops();
}
#endif
