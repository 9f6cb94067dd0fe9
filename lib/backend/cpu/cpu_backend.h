/* The CPU backend's door for lib/backend/backend_create.c, and for tests of one way to multiply. */
#pragma once

#include "lib/backend/backend.h"

/* openblas: products by OpenBLAS even where this CPU has kernels of ours. Kernels of ours that fail
 * their self-check give way to the next, with a warning; OpenBLAS's are CKVC_E_DEVICE then. In
 * bf16 both operands of a product with weights are rounded to nearest even, and multiplied in pairs
 * where the CPU can (cpu_fma.h); else it is emulated: as float32, of which a product of two rounded
 * numbers is exact. */
ckvc_status cpu_backend_create(bool openblas, ckvc_compute compute, ckvc_pool *pool, backend **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* Before kernels are trusted: small products, a head's losses and attention, of shapes that are odd
 * everywhere, on one thread and on all of them, against plain loops in double. A compiler, a
 * library or a CPU that gets them wrong would else pass for a model that is bad at its text. Takes
 * some milliseconds.
 *
 * Of a backend that is given up afterwards: it leaves its scratch behind. CKVC_E_DEVICE with what
 * is wrong: a result is off by more than float32's rounding, or changes with the threads. */
ckvc_status cpu_selfcheck(backend *be, ckvc_err *err) CKVC_MUST_CHECK;

/* For tests: may spoil n results of a kernel on so many threads before they are looked at. */
extern void (*cpu_selfcheck_spoil)(const char *kernel, int n_threads, float *y, size_t n);
