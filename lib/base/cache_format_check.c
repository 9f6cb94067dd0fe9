/* Refuses formats of caches that heads do not fit: see cache_format.h. It is a file of its own, so
 * that the policy library can have cache_format.c without the texts of errors. */
#include "lib/base/cache_format.h"

static ckvc_status check(cache_format f, const char *option, int32_t head_dim, ckvc_err *err) {
    const int32_t multiple = cache_format_multiple(f);
    if (head_dim % multiple == 0) { return CKVC_OK; }
    if (multiple == 32) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--%s: heads of %d numbers do not go into whole blocks of %d, which q8_0 "
                         "and q4_0 have; use f16, bf16 or fp8",
                         option, head_dim, multiple);
    }
    return ckvc_fail(
        err, CKVC_E_USAGE,
        "--%s: heads of %d numbers cannot be rotated: as in llama.cpp, their size must "
        "be a multiple of %d; leave out +rot",
        option, head_dim, multiple);
}

ckvc_status cache_formats_check(cache_formats f, int32_t head_dim, ckvc_err *err) {
    CKVC_TRY(check(f.keys, "cache-keys", head_dim, err));
    CKVC_FAIL_IF(f.values >= CACHE_Q4_0_MEAN, err, CKVC_E_USAGE,
                 "--cache-values: %s is a format of keys, whose mean is taken out; leave out +mean",
                 cache_format_name(f.values));
    return check(f.values, "cache-values", head_dim, err);
}
