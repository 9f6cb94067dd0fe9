/* Inside of formats/model: a file that is being read, and how it is refused. */
#ifndef CKVC_READING_H
#define CKVC_READING_H

#include <stdint.h>

#include "lib/base/status.h"

typedef struct reading {
    const char *path; /* borrowed */
    ckvc_err *err;
    ckvc_status status; /* of the first failure: readers of single values give 0 after it, so that
                           it is tested once for many */
} reading;

/* CKVC_E_DATA with the line "PATH: ..." or "PATH: byte AT: ...". */
ckvc_status refuse(reading *r, const char *fmt, ...) CKVC_PRINTF(2, 3);
ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) CKVC_PRINTF(3, 4);

#endif
