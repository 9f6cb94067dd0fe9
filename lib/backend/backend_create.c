/* Creates the backend that is asked for. The CPU is always built. Another one that is asked for and
 * missing is an error, and never replaced without a word. */
#include <stdio.h>
#include <string.h>

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_backend.h"
#include "lib/backend/cuda/cuda_backend.h"

#ifdef CKVC_CUDA
const char *backend_kinds(void) { return "cpu, openblas, cuda"; }
void backend_cuda_text(char *text, size_t n) { cuda_device_text(text, n); }
#else
static const char not_built[] = "this ckvc was built without it (make CUDA=1)";

const char *backend_kinds(void) { return "cpu, openblas"; }
void backend_cuda_text(char *text, size_t n) { snprintf(text, n, "%s", not_built); }
#endif

/* Creates the CUDA backend where there is a device; else CKVC_E_DEVICE says what is missing. */
static ckvc_status cuda(ckvc_compute compute, ckvc_pool *pool, backend **out, ckvc_err *err) {
    *out = NULL;
#ifdef CKVC_CUDA
    return cuda_backend_create(compute, pool, out, err);
#else
    (void)compute, (void)pool;
    return ckvc_fail(err, CKVC_E_DEVICE, "backend cuda: %s; use --backend cpu", not_built);
#endif
}

ckvc_status backend_create(const char *kind, ckvc_compute compute, ckvc_pool *pool, backend **out,
                           ckvc_err *err) {
    const bool any = strcmp(kind, "auto") == 0, openblas = strcmp(kind, "openblas") == 0;
    if (strcmp(kind, "cuda") == 0) { return cuda(compute, pool, out, err); }
    if (any && cuda(compute, pool, out, NULL) == CKVC_OK) { return CKVC_OK; }
    if (any || openblas || strcmp(kind, "cpu") == 0) {
        return cpu_backend_create(openblas, compute, pool, out, err);
    }
    *out = NULL;
    return ckvc_fail(err, CKVC_E_USAGE,
                     "backend \"%s\" is unknown; use auto, cpu, openblas or cuda", kind);
}
