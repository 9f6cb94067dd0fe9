/* Leak checks on their way from runs to a table: see fit_leaks.h. */
#include "cql/fit/fit_leaks.h"

#include <string.h>

#include "lib/base/memory.h"

/* Appends value (taken over) unless the list has an equal one. */
static void add_once(json_t **list, json_t *value) {
    size_t i;
    json_t *item;
    if (!*list) { *list = json_array(); }
    json_array_foreach(*list, i, item) {
        if (json_equal(item, value)) {
            json_decref(value);
            return;
        }
    }
    json_array_append_new(*list, value);
}

ckvc_status fit_leaks_add(fit_leaks *l, const json_t *plan, const char *manifest,
                          const leak_record *records, size_t n, const char *where, ckvc_err *err) {
    const json_t *own = json_object_get(plan, "leak_check");
    const char *planned = json_string_value(json_object_get(plan, "manifest"));
    manifest = planned ? planned : manifest;
    for (size_t i = 0; i < n; ++i) {
        if (strcmp(records[i].manifest, manifest) == 0) {
            add_once(&l->checks, leak_record_json(&records[i]));
            return CKVC_OK;
        }
    }
    if (!own) {
        add_once(&l->unchecked, json_string(manifest));
        return CKVC_OK;
    }
    CKVC_AUTO(leak_record_fini) leak_record r = {0};
    CKVC_TRY(leak_record_parse(own, where, &r, err));
    CKVC_FAIL_IF(strcmp(r.manifest, manifest) != 0, err, CKVC_E_DATA,
                 "%s: run.json: its leak check is of manifest %.12s..., the run's is %.12s...",
                 where, r.manifest, manifest);
    add_once(&l->checks, leak_record_json(&r));
    return CKVC_OK;
}

json_t *fit_leaks_meta(const fit_leaks *l) {
    if (!l->checks) { return NULL; }
    return json_pack("{s:O, s:o}", "checks", l->checks, "unchecked",
                     l->unchecked ? json_incref(l->unchecked) : json_array());
}

void fit_leaks_fini(fit_leaks *l) {
    json_decref(l->checks);
    json_decref(l->unchecked);
    *l = (fit_leaks){0};
}
