/* Memory of a report: given piece by piece, released at once when it is done, so that what is
 * computed needs no destructors. */
#ifndef CKVC_REPORT_ROOM_H
#define CKVC_REPORT_ROOM_H

#include <stddef.h>

#include "lib/base/status.h"

typedef struct room {
    void **pieces;
    size_t n, cap;
} room;

void *room_for(room *r, size_t n, size_t size); /* zeroed */
char *room_text(room *r, const char *fmt, ...) CKVC_PRINTF(2, 3);
void *room_keep(room *r, void *piece); /* malloc's; released with the rest */
void room_fini(room *r);

#endif
