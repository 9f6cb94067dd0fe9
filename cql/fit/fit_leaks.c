/* Leak checks on their way from runs to a table: see fit_leaks.h. */
#include "cql/fit/fit_leaks.h"

#include <string.h>

#include "lib/base/memory.h"

/* Appends value (taken over) unless the list has an equal one. */
static ckvc_status add_once(json_t **list, json_t *value, ckvc_err *err) {
    size_t i;
    json_t *item;
    if (*list == NULL) { *list = json_array(); }
    json_array_foreach(*list, i, item) {
        if (json_equal(item, value)) {
            json_decref(value);
            return CKVC_OK;
        }
    }
    return json_array_append_new(*list, value) == 0 ? CKVC_OK
                                                    : ckvc_fail_memory(err, "a leak check", 0);
}

ckvc_status fit_leaks_add(fit_leaks *l, const json_t *plan, const char *manifest,
                          const leak_record *records, size_t n, const char *where, ckvc_err *err) {
    const json_t *own = json_object_get(plan, "leak_check");
    const char *planned = json_string_value(json_object_get(plan, "manifest"));
    manifest = planned != NULL ? planned : manifest;
    for (size_t i = 0; i < n; ++i) {
        if (strcmp(records[i].manifest, manifest) == 0) {
            return add_once(&l->checks, leak_record_json(&records[i]), err);
        }
    }
    if (own == NULL) { return add_once(&l->unchecked, json_string(manifest), err); }
    leak_record r;
    ckvc_status st = leak_record_parse(own, where, &r, err);
    if (st == CKVC_OK && strcmp(r.manifest, manifest) != 0) {
        st =
            ckvc_fail(err, CKVC_E_DATA,
                      "%s: run.json: its leak check is of manifest %.12s..., the run's is %.12s...",
                      where, r.manifest, manifest);
    }
    if (st == CKVC_OK) { st = add_once(&l->checks, leak_record_json(&r), err); }
    leak_record_fini(&r);
    return st;
}

json_t *fit_leaks_meta(const fit_leaks *l) {
    if (l->checks == NULL) { return NULL; }
    return l->unchecked != NULL
               ? json_pack("{s:O, s:O}", "checks", l->checks, "unchecked", l->unchecked)
               : json_pack("{s:O, s:[]}", "checks", l->checks, "unchecked");
}

void fit_leaks_fini(fit_leaks *l) {
    json_decref(l->checks);
    json_decref(l->unchecked);
    *l = (fit_leaks){0};
}
