/* The zstd filter for HDF5. See h5_zstd.h. */
#include "formats/shard/h5_zstd.h"

#include <stdlib.h>
#include <zstd.h>

static _Thread_local size_t expected;

void h5_zstd_expect(size_t chunk_bytes) { expected = chunk_bytes; }

/* Returns how many bytes *buf has after the filter, or 0 for failure, which is HDF5's convention.
 * *buf is replaced by a malloc'ed block. */
static size_t filter(unsigned flags, size_t cd_nelmts, const unsigned cd_values[], size_t nbytes,
                     size_t *buf_size, void **buf) {
    void *out = NULL;
    size_t n;
    if (flags & H5Z_FLAG_REVERSE) {
        unsigned long long content = ZSTD_getFrameContentSize(*buf, nbytes);
        if (content == ZSTD_CONTENTSIZE_ERROR || content == ZSTD_CONTENTSIZE_UNKNOWN ||
            content == 0 || content > H5_ZSTD_MAX_BYTES ||
            (expected && content != expected && content != expected + 4)) {
            return 0;
        }
        out = malloc((size_t)content);
        n = out ? ZSTD_decompress(out, (size_t)content, *buf, nbytes) : 0;
        if (!out || ZSTD_isError(n) || n != content) {
            free(out);
            return 0;
        }
        *buf_size = (size_t)content;
    } else {
        size_t bound = ZSTD_compressBound(nbytes);
        int level = cd_nelmts > 0 && cd_values[0] >= 1 && cd_values[0] <= 22 ? (int)cd_values[0]
                                                                             : H5_ZSTD_LEVEL;
        out = malloc(bound);
        n = out ? ZSTD_compress(out, bound, *buf, nbytes, level) : 0;
        if (!out || ZSTD_isError(n)) {
            free(out);
            return 0;
        }
        *buf_size = bound;
    }
    free(*buf);
    *buf = out;
    return n;
}

const H5Z_class2_t h5_zstd_class = {.version = H5Z_CLASS_T_VERS,
                                    .id = H5_ZSTD_ID,
                                    .encoder_present = 1,
                                    .decoder_present = 1,
                                    .name = "zstd",
                                    .filter = filter};
