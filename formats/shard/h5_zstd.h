/* The HDF5 filter zstd (registered id 32015), which HDF5 itself does not have.
 *
 * One zstd frame a chunk, content size stored. cd_values[0], if present, is the compression level.
 */
#pragma once

#include <hdf5.h>
#include <stddef.h>

#define H5_ZSTD_ID    32015
#define H5_ZSTD_LEVEL 3
/* No frame may unfold to more: chunks of ours have at most 65,536 values of 255 bytes. */
#define H5_ZSTD_MAX_BYTES ((size_t)256 << 20)

extern const H5Z_class2_t h5_zstd_class;

/* The bytes of a chunk that this thread reads next, 0 for "any". HDF5 1.10 does not compare what a
 * filter returns with the chunk's size: a shorter frame would make it read past the buffer's end.
 * With a size set, a frame must hold exactly that many bytes, or 4 more (a checksum inside the
 * frame). */
void h5_zstd_expect(size_t chunk_bytes);
