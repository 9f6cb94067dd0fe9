/* HDF5 as this program uses it: errors as one line of ours, ids that close themselves. */
#pragma once

#include <hdf5.h>
#include <stdbool.h>

#include "lib/base/memory.h"
#include "lib/base/status.h"

/* Once at each door to HDF5: nothing is printed by the library, no plugin is loaded from a folder
 * that an environment variable names, and our zstd filter is registered. */
ckvc_status h5_begin(ckvc_err *err) CKVC_MUST_CHECK;
/* The usual text, then ": " and what HDF5 says of its innermost failure. Clears the stack. */
ckvc_status h5_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) CKVC_PRINTF(3, 4);

/* Any id of ours; -1: none. h5_take hands it on; h5_close closes it, and says whether that went
 * well. */
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
