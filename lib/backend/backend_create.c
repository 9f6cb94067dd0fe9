/* Which backend: the CPU is always built; another one that is asked for and absent is an error,
 * never a silent fallback. */
#include <string.h>

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_backend.h"

ckvc_status backend_create(const char *kind, ckvc_compute compute, ckvc_pool *pool, backend **out,
                           ckvc_err *err) {
    const bool openblas = strcmp(kind, "openblas") == 0;
    if (openblas || strcmp(kind, "auto") == 0 || strcmp(kind, "cpu") == 0) {
        const cpu_products products = compute == CKVC_COMPUTE_BF16 ? CPU_BF16 : CPU_F32;
        return cpu_backend_create(openblas, products, pool, out, err);
    }
    *out = NULL;
    CKVC_FAIL_IF(strcmp(kind, "cuda") == 0, err, CKVC_E_DEVICE,
                 "backend cuda: this ckvc was built without it; use --backend cpu");
    return ckvc_fail(err, CKVC_E_USAGE,
                     "backend \"%s\" is unknown; use auto, cpu, openblas or cuda", kind);
}
