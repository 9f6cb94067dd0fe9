/* HDF5's error stacks: see h5_error.h. */
#include "formats/shard/h5_error.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/shard/h5_zstd.h"

ckvc_status h5_begin(ckvc_err *err) {
    /* Where there is no memory for it 1.10 crashes as it starts, and in a file's H5AC_create; so
     * ask for what either takes first. */
    free(ckvc_alloc(8 << 20, 1));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    /* The defaults but for the second: a file's metadata cache, half a megabyte, stays for the next
     * file. */
    H5set_free_list_limits(1 << 20, 1 << 20, 4 << 20, 256 << 10, 16 << 20, 1 << 20);
    if (H5Zfilter_avail(H5_ZSTD_ID) <= 0 && H5Zregister(&h5_zstd_class) < 0) {
        return h5_fail(err, CKVC_E_BUG, "HDF5 cannot register the zstd filter");
    }
    return CKVC_OK;
}

static herr_t innermost(unsigned n, const H5E_error2_t *e, void *data) {
    if (n == 0 && e->desc) { snprintf(data, 400, "%s", e->desc); }
    return 0;
}

ckvc_status h5_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    char what[1024], why[400] = "no reason given";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    H5Eclear2(H5E_DEFAULT);
    return ckvc_fail(err, status, "%s: HDF5 says: %s", what, why);
}
