/* The CUDA backend: one device (the first that CUDA shows), one stream. */
#pragma once

#include "lib/backend/backend.h"

/* CKVC_E_DEVICE says what is missing: a driver, a device, or compute capability 8.0. */
ckvc_status cuda_backend_create(ckvc_compute compute, ckvc_pool *pool, backend **out,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the device for people to read, "NVIDIA H200, sm_90, 141 GB", or what is missing. */
void cuda_device_text(char *text, size_t n);
