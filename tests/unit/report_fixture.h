/* Reports into folders of their own, score lines for them, and looking into the JSON of one, for
 * the tests of reports. */
#pragma once

#include <jansson.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "report/report.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

#define MANIFEST "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* A leak check of META: of a manifest of 7 prompts against MANIFEST. */
#define FITTED "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define CHECK(leaked)                                                                              \
    "{\"schema\":\"ckvc-leak-check-1\",\"manifest\":\"" FITTED                                     \
    "\",\"ngram\":13,\"shingle\":5,\"near\":0.5,\"holdout\":0,\"seed\":1,\"prompts\":7,"           \
    "\"held_out\":2,\"near_duplicates_within\":0,\"leaked_prompts\":" leaked                       \
    ",\"against\":[{\"sha256\":\"" MANIFEST "\",\"bytes\":1,\"lines\":1,\"texts\":1,\"words\":1,"  \
    "\"shared_spans\":0,\"near_duplicates\":0,\"duplicate_ids\":0,\"leaked_lines\":0,"             \
    "\"leaked_prompts\":" leaked "}]}"

/* A line of `ckvc score`: two layers that keep `kept`, and in the last `kept_more` beside. */
typedef struct scored_line {
    int id;
    const char *source; /* NULL: none */
    bool seen;          /* not held out */
    const char *policy, *table;
    double reward;
    int kept, kept_more, T, C; /* T, C: 0: 100, 8 */
    double r_struct, r_sem;    /* 0: 4.5, 12.25 */
    const char *more;          /* members; NULL: none */
} scored_line;

static inline void put_score(FILE *f, scored_line x) {
    fprintf(f,
            "{\"id\":\"p%02d\",\"split\":\"%s\",\"model\":\"m\",\"manifest\":\"" MANIFEST
            "\",\"policy\":\"%s\",\"T\":%d,\"C\":%d,\"budget\":32,\"r_struct\":%.17g,"
            "\"r_sem\":%.17g,\"n_kept\":[%d,%d],\"loss_full\":2,\"loss_comp\":%.17g,"
            "\"reward\":%.17g",
            x.id, x.seen ? "" : "heldout", x.policy, x.T ? x.T : 100, x.C ? x.C : 8,
            x.r_struct ? x.r_struct : 4.5, x.r_sem ? x.r_sem : 12.25, x.kept, x.kept + x.kept_more,
            2 - x.reward, x.reward);
    if (x.source) { fprintf(f, ",\"source\":\"%s\"", x.source); }
    if (x.table) { fprintf(f, ",\"table\":\"%s\"", x.table); }
    fprintf(f, "%s}\n", x.more ? x.more : "");
}

static inline FILE *open_lines(const char *name) {
    FILE *f = fopen(in_temp_folder(name), "wb");
    assert_non_null(f);
    return f;
}

/* Writes a report into a subfolder of its own, which it names in o->out. Its JSON is the caller's
 * to free, and the summary where there is a place for it. */
static inline json_t *report_made(report_options *o, char **summary) {
    static int number;
    static char out[512];
    char name[32], *text = NULL, *said = NULL;
    snprintf(name, sizeof name, "out-%d", number++);
    snprintf(out, sizeof out, "%s", in_temp_folder(name));
    o->out = out;
    OK(report_write(o, &said, &text, &err));
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    summary ? (void)(*summary = said) : free(said);
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

static inline const char *text_at(json_t *o, const char *path) {
    return json_string_value(at(o, path));
}

/* All of `want`: of an object its members, whose keys are paths, of an array each. */
static inline void is_json(json_t *o, const char *path, json_t *want) {
    json_t *got = at(o, path), *v;
    const char *key;
    size_t i;
    if (json_is_object(want)) {
        json_object_foreach(want, key, v) { is_json(got, key, v); }
    } else if (json_is_array(want)) {
        if (json_array_size(got) != json_array_size(want)) { fail_msg("%s has others", path); }
        json_array_foreach(want, i, v) { is_json(json_array_get(got, i), "", v); }
    } else if (json_is_number(want)) {
        is(o, path, json_number_value(want));
    } else if (!json_equal(got, want)) {
        fail_msg("%s: %s", path, json_dumps(got, JSON_ENCODE_ANY));
    }
}

/* The same of JSON text, with ' for ". */
static inline void holds(json_t *o, const char *path, const char *want) {
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", want);
    for (char *c = copy; *c; c++) { *c = *c == '\'' ? '"' : *c; }
    json_error_t wrong;
    json_auto_t *v = json_loads(copy, JSON_DECODE_ANY, &wrong);
    if (!v) { fail_msg("%s: %s", path, wrong.text); }
    is_json(o, path, v);
}

static inline void has(const char *text, const char *part) {
    if (!strstr(text, part)) { fail_msg("\"%s\" is not in:\n%s", part, text); }
}
