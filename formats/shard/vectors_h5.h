/* Vectors of prompts for looking at and for tests (`ckvc score --vectors`): HDF5, one group a
 * prompt, numbered in the manifest's order: /00000/alpha f32[T], /00000/rho f32[L,G,T], attribute
 * `id`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/files.h"
#include "lib/base/status.h"

typedef struct vectors_file {
    int64_t file; /* hid_t, -1: none */
    ckvc_publish publish;
} vectors_file;

ckvc_status vectors_create(vectors_file *v, const char *path, bool force,
                           ckvc_err *err) CKVC_MUST_CHECK;
typedef struct prompt_vectors {
    uint32_t number; /* in the manifest's order */
    const char *id;
    uint32_t T, L, G;
    const float *alpha, *rho; /* [T], [L][G][T] */
} prompt_vectors;
ckvc_status vectors_add(vectors_file *v, const prompt_vectors *p, ckvc_err *err) CKVC_MUST_CHECK;
/* Closes and publishes. */
ckvc_status vectors_commit(vectors_file *v, ckvc_err *err) CKVC_MUST_CHECK;
void vectors_abort(vectors_file *v); /* fine after commit or on a zeroed struct with file = -1 */
