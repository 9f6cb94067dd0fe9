/* The HDF5 filter zstd (registered id 32015), which HDF5 itself does not have.
 *
 * Each chunk is one zstd frame that stores its content size. cd_values[0], if present, is the
 * compression level. */
#pragma once

#include <hdf5.h>
#include <stddef.h>

#define H5_ZSTD_ID    32015
#define H5_ZSTD_LEVEL 3
/* No frame may decompress to more bytes than this; our own chunks have at most 65,536 values of 255
 * bytes. */
#define H5_ZSTD_MAX_BYTES ((size_t)256 << 20)

extern const H5Z_class2_t h5_zstd_class;

/* Sets the size in bytes of the chunk that this thread reads next; 0 stands for any size. HDF5 1.10
 * does not compare what a filter returns with the chunk's size, so that a shorter frame would make
 * it read past the buffer's end. With a size set, a frame must hold exactly that many bytes, or 4
 * more (a checksum inside the frame). */
void h5_zstd_expect(size_t chunk_bytes);
