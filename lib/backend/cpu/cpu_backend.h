/* The CPU backend's door for lib/backend/backend.c. */
#ifndef CKVC_CPU_BACKEND_H
#define CKVC_CPU_BACKEND_H

#include "lib/backend/backend.h"

/* openblas: products by OpenBLAS even where this CPU has kernels of ours. */
ckvc_status cpu_backend_create(bool openblas, ckvc_pool *pool, backend **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
const char *cpu_backend_kernel(const backend *be);
const char *cpu_backend_warning(const backend *be);
ckvc_pool *cpu_backend_pool(const backend *be);

/* How products in bf16 are done: through oneDNN where the CPU has bf16, else emulated; emulated in
 * any case; or through oneDNN with float32 elements that hold rounded numbers, which takes the
 * library's road on any CPU (CKVC_E_DEVICE without the library): for tests. */
typedef enum cpu_bf16_way { CPU_BF16_BEST, CPU_BF16_EMULATED, CPU_BF16_WIDE } cpu_bf16_way;
/* Before the first weight. */
ckvc_status cpu_backend_use_bf16(backend *be, cpu_bf16_way way, ckvc_err *err) CKVC_MUST_CHECK;
const char *cpu_backend_bf16_warning(const backend *be); /* NULL: none */
size_t cpu_backend_bf16_value_bytes(const backend *be);  /* of a weight's copy; 0: not in bf16 */

#endif
