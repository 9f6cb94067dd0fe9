/* Before kernels are trusted: small products, a head's losses and attention, of shapes that are odd
 * everywhere, on one thread and on all of them, against plain loops in double. A compiler, a
 * library or a CPU that gets them wrong would else pass for a model that is bad at its text. Takes
 * some milliseconds. */
#pragma once

#include "lib/backend/backend.h"

/* Of a backend that is given up afterwards: it leaves its scratch behind. CKVC_E_DEVICE with what
 * is wrong: a result is off by more than float32's rounding, or changes with the threads. */
ckvc_status cpu_selfcheck(backend *be, ckvc_err *err) CKVC_MUST_CHECK;

/* For tests: may spoil n results of a kernel on so many threads before they are looked at. */
extern void (*cpu_selfcheck_spoil)(const char *kernel, int n_threads, float *y, size_t n);
