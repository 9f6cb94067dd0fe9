/* Reports into folders of their own, and looking into the JSON of one, for the tests of reports. */
#pragma once

#include <jansson.h>

#include "lib/base/files.h"
#include "report/report.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

/* Writes a report into a subfolder of its own, which it names in o->out. Its JSON and summary are
 * the caller's to free. */
static inline json_t *report_made(report_options *o, char **summary) {
    static int number;
    static char out[512];
    char name[32], *text = NULL;
    snprintf(name, sizeof name, "out-%d", number++);
    snprintf(out, sizeof out, "%s", in_temp_folder(name));
    o->out = out;
    ckvc_err err = {0};
    ckvc_status rc = report_write(o, summary, &text, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, CKVC_OK);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

/* What stands at "key.0.key": numbers are places in arrays. */
static inline json_t *at(json_t *o, const char *path) {
    char copy[160];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *p = strtok(copy, "."); p && o; p = strtok(NULL, ".")) {
        o = *p >= '0' && *p <= '9' ? json_array_get(o, (size_t)atoi(p)) : json_object_get(o, p);
    }
    if (!o) { fail_msg("report.json has no %s", path); }
    return o;
}

static inline void is(json_t *o, const char *path, double want) {
    json_t *v = at(o, path);
    if (!json_is_number(v) || fabs(json_number_value(v) - want) > 1e-12) {
        fail_msg("%s is %.17g, wanted %.17g", path, json_is_number(v) ? json_number_value(v) : NAN,
                 want);
    }
}
