/* Which backend: the CPU is always built; another one that is asked for and absent is an error,
 * never a silent fallback. */
#include "lib/backend/backend.h"

#include <string.h>

#include "lib/backend/cpu/cpu_backend.h"

ckvc_status backend_create(const char *kind, ckvc_pool *pool, backend **out, ckvc_err *err) {
    *out = NULL;
    if (strcmp(kind, "auto") == 0 || strcmp(kind, "cpu") == 0) {
        return cpu_backend_create(false, pool, out, err);
    }
    if (strcmp(kind, "openblas") == 0) { return cpu_backend_create(true, pool, out, err); }
    if (strcmp(kind, "cuda") == 0) {
        return ckvc_fail(err, CKVC_E_DEVICE,
                         "backend cuda: this ckvc was built without it; use --backend cpu");
    }
    return ckvc_fail(err, CKVC_E_USAGE,
                     "backend \"%s\" is unknown; use auto, cpu, openblas or cuda", kind);
}

void backend_destroy(backend *be) {
    if (be) { be->ops->destroy(be); }
}

const char *backend_kernel(const backend *be) {
    return cpu_backend_kernel(be);
}

const char *backend_warning(const backend *be) {
    return cpu_backend_warning(be);
}

ckvc_pool *backend_pool(const backend *be) {
    return cpu_backend_pool(be);
}

ckvc_status backend_set_compute(backend *be, be_compute compute, ckvc_err *err) {
    return compute == BE_COMPUTE_BF16 ? cpu_backend_use_bf16(be, CPU_BF16_BEST, err) : CKVC_OK;
}

be_compute backend_get_compute(const backend *be) {
    return cpu_backend_bf16_value_bytes(be) ? BE_COMPUTE_BF16 : BE_COMPUTE_F32;
}

const char *be_compute_name(be_compute compute) {
    return compute == BE_COMPUTE_BF16 ? "bf16" : "f32";
}

const char *backend_compute_warning(const backend *be) {
    return cpu_backend_bf16_warning(be);
}

size_t backend_matrix_copy_bytes(const backend *be) {
    return cpu_backend_bf16_value_bytes(be);
}
