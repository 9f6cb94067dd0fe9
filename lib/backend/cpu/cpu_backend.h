/* How lib/backend/backend_create.c, and tests of one kind of product, create the CPU backend. */
#pragma once

#include "lib/backend/backend.h"

/* openblas: use OpenBLAS's products even where this CPU can run our own kernels. One of our own
 * kernels that fails its self-check is replaced by the next, with a warning; where OpenBLAS's fail
 * the error is CKVC_E_DEVICE. In bf16 both operands of a product with weights are rounded to
 * nearest even. They are multiplied in pairs where the CPU can do so (cpu_fma.h). Else bf16 is
 * emulated in float32, which holds the product of two rounded numbers exactly. */
ckvc_status cpu_backend_create(bool openblas, ckvc_compute compute, ckvc_pool *pool, backend **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* Checks kernels before they are used: small products, the losses of a head and attention, of
 * shapes that are no multiples of anything, on one thread and on all of them, against plain loops
 * in double. Without this, a compiler, a library or a CPU that gets them wrong would look like a
 * model that is bad at its text. It takes some milliseconds.
 *
 * The backend must not be used afterwards, as its scratch is left over. CKVC_E_DEVICE says what is
 * wrong: a result is off by more than the rounding of float32, or it changes with the number of
 * threads. */
ckvc_status cpu_selfcheck(backend *be, ckvc_err *err) CKVC_MUST_CHECK;

/* For tests: may change the n results of a kernel on so many threads before they are compared. */
extern void (*cpu_selfcheck_spoil)(const char *kernel, int n_threads, float *y, size_t n);
