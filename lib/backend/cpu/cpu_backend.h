/* The CPU backend's door for lib/backend/backend_create.c, and for tests of one way to multiply. */
#pragma once

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_bf16.h"

/* openblas: products by OpenBLAS even where this CPU has kernels of ours. Kernels of ours that fail
 * their self-check give way to the next, with a warning; OpenBLAS's and those of bf16, which are
 * asked for by name, are CKVC_E_DEVICE then. */
ckvc_status cpu_backend_create(bool openblas, cpu_products products, ckvc_pool *pool, backend **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
