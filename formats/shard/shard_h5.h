/* Shards as HDF5 files (formats/shard/shard.md). */
#pragma once

#include "formats/shard/shard.h"

/* The file in memory: HDF5 never writes to a disk of ours, a full disk meets plain write() instead
 * of a library that cannot close its file. Same rows, same bytes. *out is the caller's to free. */
ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes it at `path` as it is: for measurements and tests, a run publishes the image. */
ckvc_status shard_h5_write(const shard *s, const char *path, ckvc_err *err) CKVC_MUST_CHECK;

/* A shard's file in memory. */
typedef struct shard_bytes {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t size;
    bool foreign; /* of another producer: columns that shard.md does not require may be missing */
} shard_bytes;

/* Reads a file's bytes as hostile, whoever wrote them: in a forked child that can reach nothing
 * else, within so many seconds of its CPU time and of the wall clock; every value is checked
 * against the header. A child that dies is CKVC_E_DATA. *out is the caller's to free. */
#define SHARD_CPU_S  60
#define SHARD_WALL_S 600
ckvc_status shard_h5_read_bytes(const shard_bytes *file, unsigned cpu_s, unsigned wall_s,
                                shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* The same of a file of at most 2 GiB. CKVC_E_NOINPUT, CKVC_E_IO. */
ckvc_status shard_h5_read(const char *path, bool foreign, shard **out,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* What the child does: HDF5 in this process. */
ckvc_status shard_h5_read_here(const shard_bytes *file, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
