/* What a table says about leaks: the checks of the manifests that it was fitted from (manifest.md,
 * "Leaks"). */
#pragma once

#include <jansson.h>

#include "formats/lines/leak_record.h"

typedef struct fit_leaks {
    json_t *checks, *unchecked; /* records; manifests' hashes without one */
} fit_leaks;

/* One source. plan: of a run, or NULL for a bare shard of `manifest`. records [n]: checks made
 * after the run (may hold others). */
ckvc_status fit_leaks_add(fit_leaks *l, const json_t *plan, const char *manifest,
                          const leak_record *records, size_t n, const char *where,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* META's "leak_check", a new reference; NULL when nothing was checked (then META says nothing). */
json_t *fit_leaks_meta(const fit_leaks *l);
void fit_leaks_fini(fit_leaks *l);
