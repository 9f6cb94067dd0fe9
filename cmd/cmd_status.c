/* ckvc status: how far a run, score or eval and its parts are. */
#include <time.h>

#include "cmd/common/json_text.h"
#include "cmd/verbs.h"
#include "formats/lines/rows.h"
#include "formats/run/durable_output.h"
#include "formats/run/run_dir.h"
#include "lib/base/files.h"
#include "lib/base/progress.h"

typedef struct status_cli {
    bool json;
    int64_t watch;
} status_cli;

static void print_duration(const char *form, const json_t *seconds) {
    char text[CKVC_DURATION] = "-";
    if (json_is_number(seconds)) { ckvc_duration(json_number_value(seconds), text); }
    tell(form, text);
}

static void print_part(const json_t *part) {
    const char *name = json_string_value(json_object_get(part, "part"));
    const json_t *passes = json_object_get(part, "passes"),
                 *skipped = json_object_get(part, "skipped");
    if (json_array_size(passes) == 0) { tell("%-10s nothing yet\n", name ? name : "-"); }
    for (size_t i = 0; i < json_array_size(passes); i++) {
        const json_t *pass = json_array_get(passes, i),
                     *rate = json_object_get(pass, "prompts_per_second");
        tell("%-10s %-15s %8lld %8lld %8lld ", name ? name : "-",
             json_string_value(json_object_get(pass, "pass")),
             (long long)json_integer_value(json_object_get(pass, "prompts")),
             (long long)json_integer_value(json_object_get(pass, "done")),
             (long long)json_integer_value(json_object_get(pass, "skipped")));
        if (json_is_number(rate)) {
            tell("%10.1f ", 3600 * json_number_value(rate));
        } else {
            tell("%10s ", "-");
        }
        print_duration("%10s ", json_is_true(json_object_get(pass, "complete"))
                                    ? NULL
                                    : json_object_get(pass, "seconds_left"));
        const json_t *ago = json_object_get(pass, "seconds_since_write");
        print_duration(json_is_number(ago) ? "%12s ago\n" : "%16s\n", ago);
    }
    for (size_t i = 0; i < json_array_size(skipped); i++) {
        const json_t *s = json_array_get(skipped, i);
        tell("  %s: prompt \"%s\" leaves no records: %s\n",
             json_string_value(json_object_get(s, "pass")),
             json_string_value(json_object_get(s, "id")),
             json_string_value(json_object_get(s, "reason")));
    }
}

static void print_status(const json_t *status) {
    json_auto_t *o = json_tamed(status);
    const json_t *parts = json_object_get(o, "parts"), *missing = json_object_get(o, "missing");
    const char *run = json_string_value(json_object_get(o, "run"));
    const bool complete = json_is_true(json_object_get(o, "complete")),
               merged = json_is_true(json_object_get(o, "merged"));
    const char *made_by = json_string_value(json_object_get(o, "verb")),
               *model = json_string_value(json_object_get(o, "model_name")),
               *plan = json_string_value(json_object_get(o, "plan_hash"));
    if (json_array_size(parts) == 0) {
        tell("%s: %s, all there; ckvc inspect says what it holds\n", run, made_by);
        return;
    }
    if (plan) {
        tell("%s: %s of %s, plan %.12s...\n", run, made_by ? made_by : "run",
             model ? model : "a model", plan);
    } else {
        tell("%s:\n", run);
    }
    tell("%-10s %-15s %8s %8s %8s %10s %10s %16s\n", "part", "pass", "prompts", "done", "skipped",
         "per hour", "ends in", "last write");
    for (size_t i = 0; i < json_array_size(parts); i++) { print_part(json_array_get(parts, i)); }
    for (size_t i = 0; i < json_array_size(missing); i++) {
        const char *part = json_string_value(json_array_get(missing, i));
        tell("%-10s not here: --shard %s\n", part, part);
    }
    if (!complete && merged && made_by && strcmp(made_by, "compile") == 0) {
        tell("no table.ckvt yet: fits and scores follow each pass\n");
    }
    if (complete && !merged) { tell("all parts are there; next: ckvc merge %s\n", run); }
}

static ckvc_status status(const verb_call *call, ckvc_err *err) {
    const status_cli *c = call->options;
    USAGE_IF(call->n == 0, "no run, score or eval is named; want ckvc status RUN...");
    for (bool complete = false; !complete;) {
        complete = true;
        for (size_t i = 0; i < call->n; i++) {
            json_t *o;
            const char *path = call->items[i];
            CKVC_TRY(ckvc_is_dir(path) ? run_status(path, &o, err)
                                       : durable_output_status(path, rows_verb(path), &o, err));
            complete = complete && json_is_true(json_object_get(o, "complete"));
            if (c->json) {
                json_print_as_given(o);
            } else {
                print_status(o);
                json_decref(o);
            }
        }
        if (c->watch == 0) { break; }
        fflush(stdout);
        if (!complete) { nanosleep(&(struct timespec){.tv_sec = c->watch}, NULL); }
    }
    return CKVC_OK;
}

#define OPTIONS_OF status_cli
static const opt status_rows[] = {
    OPT_FLAG("json", json, "Print one JSON object on a line for each run."),
    OPT_INT("watch", watch, "S", 0, 86400,
            "Look again every S seconds until all is done; 0 looks once."),
    {0}};

const verb verb_status = {.name = "status",
                          .about = "say how far a run, score or eval and its parts have come",
                          .usage = "ckvc status RUN|S.jsonl|A.jsonl... [options]",
                          .examples = "  ckvc status run s.jsonl\n"
                                      "  ckvc status host-a/run host-b/run --watch 60\n"
                                      "  ckvc status run --json | jq .missing\n",
                          VERB_OPTIONS(status_rows),
                          .reads_args = true,
                          .work = status};
