/* ckvc status says how far a run, a score or an eval is, and each of its parts. */
#include <time.h>

#include "cmd/common/json_text.h"
#include "cmd/verbs.h"
#include "formats/lines/rows.h"
#include "formats/run/durable_output.h"
#include "formats/run/run_dir.h"
#include "lib/base/files.h"

typedef struct status_cli {
    bool json;
    int64_t watch;
} status_cli;

static const char status_form[] =
    "{parts!{run}: {verb}, all there; ckvc inspect says what it holds\n}"
    "{parts?{run}:{plan_hash? {verb|run} of {model_name|a model}, plan {plan_hash:.12s}...}\n"
    "part       pass             prompts     done  skipped   per hour    ends in       last write\n"
    "{parts#{passes!{part:-10s} nothing yet\n}"
    "{passes#{part:-10s} {pass:-15s} {prompts:8d} {done:8d} {skipped:8d} "
    "{prompts_per_second*3600:10.1f} {seconds_left:10t} "
    "{seconds_since_write?{seconds_since_write:12t} ago\n}{seconds_since_write!{:16s}\n}}"
    "{skipped#  {pass}: prompt \"{id}\" leaves no records: {reason}\n}"
    "{checkpoints?{part:-10s} checkpoints:{checkpoints#{,,} {.}}\n}}"
    "{missing#{.:-10s} not here: --shard {.}\n}"
    "{complete!{merged?{verb=compile?no table.ckvt yet: behind its passes compile fits tables, "
    "chooses settings on the prompts of select/, and judges the table on those of heldout/\n}}}"
    "{complete?{merged!all parts are there; next: ckvc merge {run}\n}"
    "{verb=compile?the table is made; next: ckvc report {run}/table.ckvt {run} --out "
    "{run}-report\n}}}";

static ckvc_status status(const verb_call *call, ckvc_err *err) {
    const status_cli *c = call->options;
    USAGE_IF(call->n == 0, "no run, score or eval is named; want ckvc status RUN...");
    for (bool complete = false; !complete;) {
        complete = true;
        for (size_t i = 0; i < call->n; i++) {
            json_auto_t *o = NULL;
            const char *path = call->items[i];
            CKVC_TRY(ckvc_is_dir(path) ? run_status(path, &o, err)
                                       : durable_output_status(path, rows_verb(path), &o, err));
            complete = complete && json_is_true(json_object_get(o, "complete"));
            if (c->json) {
                json_print_as_given(o);
            } else {
                form_print(stdout, status_form, o, NULL);
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
