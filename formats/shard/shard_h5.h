/* Shards as HDF5 files (formats/shard/shard.md). */
#pragma once

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/shard/shard.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "lib/base/files.h"

/* Makes the file in memory, so that HDF5 never writes to a disk of ours: a full disk then meets a
 * plain write() instead of a library that cannot close its file. The same rows give the same bytes.
 * *out is the caller's to free. */
ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) CKVC_MUST_CHECK;

/* The bytes of a shard's file. */
typedef struct shard_bytes {
    const char *path; /* the name that messages use */
    const uint8_t *data;
    size_t size;
    /* the file is of another producer: columns that shard.md does not require may be missing */
    bool foreign;
} shard_bytes;

/* Reads a file's bytes as hostile, whoever wrote them. A forked child that can reach nothing else
 * reads them within cpu_s seconds of its CPU time and wall_s seconds of the clock, and every value
 * is checked against the header. A child that dies is CKVC_E_DATA. *out is the caller's to free. */
#define SHARD_CPU_S  60
#define SHARD_WALL_S 600
ckvc_status shard_h5_read_bytes(const shard_bytes *file, unsigned cpu_s, unsigned wall_s,
                                shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Does the same for a file of at most 2 GiB. Errors besides: CKVC_E_NOINPUT, CKVC_E_IO. */
ckvc_status shard_h5_read(const char *path, bool foreign, shard **out,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Does what the child does, which is to call HDF5 in this process. */
ckvc_status shard_h5_read_here(const shard_bytes *file, shard **out, ckvc_err *err) CKVC_MUST_CHECK;

/* HDF5 as this program uses it: an error becomes one line of ours, and ids close themselves. */
/* Must be called first at each entrance to HDF5. It keeps the library from printing and from
 * loading plugins out of a folder that an environment variable names, and registers our zstd
 * filter. */
ckvc_status h5_begin(ckvc_err *err) CKVC_MUST_CHECK;
/* Fails with the given text, then ": " and what HDF5 says of its innermost failure. It clears
 * HDF5's error stack. */
ckvc_status h5_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) CKVC_PRINTF(3, 4);

/* An id of HDF5 that we own; -1 stands for none. h5_take hands it on. h5_close closes it, and
 * returns whether that succeeded. */
static inline hid_t h5_take(hid_t *id) {
    const hid_t taken = *id;
    *id = -1;
    return taken;
}
static inline bool h5_close(hid_t *id) {
    const hid_t was = h5_take(id);
    return was < 0 || H5Idec_ref(was) >= 0;
}
static inline void h5_close_at(hid_t *id) { h5_close(id); }
#define H5_AUTO CKVC_AUTO(h5_close_at)

/* Vectors of prompts, for inspection and for tests (`ckvc score --vectors`). The HDF5 file has one
 * group for each prompt, numbered in the manifest's order: /00000/alpha f32[T], /00000/rho
 * f32[L,G,T], attribute `id`. */
typedef struct vectors_file {
    int64_t file; /* a hid_t; -1 when there is none */
    ckvc_publish publish;
} vectors_file;

ckvc_status vectors_create(vectors_file *v, const char *path, bool force,
                           ckvc_err *err) CKVC_MUST_CHECK;
typedef struct prompt_vectors {
    uint32_t number; /* its place in the manifest's order */
    const char *id;
    uint32_t T, L, G;
    const float *alpha, *rho; /* [T], [L][G][T] */
} prompt_vectors;
ckvc_status vectors_add(vectors_file *v, const prompt_vectors *p, ckvc_err *err) CKVC_MUST_CHECK;
/* Closes the file and publishes it. */
ckvc_status vectors_commit(vectors_file *v, ckvc_err *err) CKVC_MUST_CHECK;
/* may follow a commit, and may be called on a zeroed struct whose file is -1 */
void vectors_abort(vectors_file *v);
