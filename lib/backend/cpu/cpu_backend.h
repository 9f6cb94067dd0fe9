/* The CPU backend's door for lib/backend/backend.c. */
#ifndef CKVC_CPU_BACKEND_H
#define CKVC_CPU_BACKEND_H

#include "lib/backend/backend.h"

/* openblas: products by OpenBLAS even where this CPU has kernels of ours. */
ckvc_status cpu_backend_create(bool openblas, ckvc_pool *pool, backend **out, ckvc_err *err) CKVC_MUST_CHECK;
const char *cpu_backend_kernel(const backend *be);
const char *cpu_backend_warning(const backend *be);
ckvc_pool *cpu_backend_pool(const backend *be);

#endif
