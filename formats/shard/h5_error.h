/* HDF5's error stacks as one line of ours. */
#ifndef CKVC_H5_ERROR_H
#define CKVC_H5_ERROR_H

#include <hdf5.h>

#include "lib/base/status.h"

/* Once at each door to HDF5: nothing is printed by the library, no plugin is loaded from a folder
 * that an environment variable names, and our zstd filter is registered. */
ckvc_status h5_begin(ckvc_err *err) CKVC_MUST_CHECK;
/* The usual text, then ": " and what HDF5 itself says of its innermost failure. Clears the stack.
 */
ckvc_status h5_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) CKVC_PRINTF(3, 4);

#endif
