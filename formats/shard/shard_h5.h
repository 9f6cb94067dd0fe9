/* Shards as HDF5 files (formats/shard/shard.md). */
#pragma once

#include "formats/shard/shard.h"

/* The file in memory: HDF5 never writes to a disk of ours, a full disk meets plain write() instead
 * of a library that cannot close its file. Same rows, same bytes. *out is the caller's to free. */
ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes it at `path` as it is: for measurements and tests, a run publishes the image. */
ckvc_status shard_h5_write(const shard *s, const char *path, ckvc_err *err) CKVC_MUST_CHECK;

/* Reads a shard of our own, already checked against its SHA-256; every value is still checked
 * against the header. `path` of an image is for messages. */
ckvc_status shard_h5_read(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_h5_read_image(const uint8_t *bytes, size_t n, const char *path, shard **out,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Reads a bare shard of another producer as hostile: in a forked child with limits on CPU and
 * memory; a signal there is CKVC_E_DATA. Columns that shard.md does not require of them may be
 * missing and read as zeros. */
ckvc_status shard_h5_read_hostile(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* The same with its limits named: CPU seconds and wall-clock seconds of the child. */
ckvc_status shard_h5_read_limited(const char *path, unsigned cpu_s, unsigned wall_s, shard **out,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* What the child does: HDF5 in this process, as of a foreign file. */
ckvc_status shard_h5_read_foreign(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
