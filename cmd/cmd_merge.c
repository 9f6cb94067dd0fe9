/* ckvc merge joins the parts of a run, a score or an eval. */
#include "cmd/common/json_text.h"
#include "cmd/verbs.h"
#include "formats/run/durable_output.h"
#include "formats/run/run_dir.h"

typedef struct merge_cli {
    bool json, quiet;
} merge_cli;

static const char merge_form[] = "{scores?joined {parts} parts into {scores}\n}"
                                 "{run?{parts?joined {parts} parts, {shards} shards, into {run}\n}"
                                 "{parts!{run} is one run already\n}}";

static ckvc_status merge(const verb_call *call, ckvc_err *err) {
    const merge_cli *c = call->options;
    USAGE_IF(
        call->n == 0,
        "no run is named; want ckvc merge RUN [PART...], or ckvc merge S.jsonl [PART.jsonl...]");
    const char *out = call->items[0];
    size_t n_scores;
    run_merged run;
    CKVC_TRY(durable_output_merge(out, call->items + 1, call->n - 1, &n_scores, err));
    if (!n_scores) { CKVC_TRY(run_merge(out, call->items + 1, call->n - 1, &run, err)); }
    json_t *o = json_pack("{s:s}", n_scores ? "scores" : "run", out);
    if (n_scores) {
        JSON_NUMBERS(o, {"parts", n_scores});
    } else {
        JSON_NUMBERS(o, {"parts", run.n_parts}, {"passes", run.n_passes}, {"shards", run.n_shards});
    }
    result_print(c->json, stderr, c->quiet ? "" : merge_form, o, NULL);
    return CKVC_OK;
}

#define OPTIONS_OF merge_cli
static const opt merge_rows[] = {OPT_FLAG("json", json, "Print one JSON object."),
                                 OPT_FLAG("quiet", quiet, "Print nothing.", .letter = 'q'),
                                 {0}};

const verb verb_merge = {
    .name = "merge",
    .about = "join the parts that --shard made",
    .summary =
        "join the parts that --shard made into one run, or into one file of scores or answers",
    .usage = "ckvc merge RUN [PART...]",
    .examples =
        "  ckvc calibrate ... --scan scan-run --out run --shard 0/2 &\n"
        "  ckvc calibrate ... --scan scan-run --out run --shard 1/2 & wait\n"
        "  ckvc merge run                        # parts in one folder\n"
        "  ckvc merge run host-a/run host-b/run  # parts in folders of their own\n"
        "  ckvc merge s.jsonl                    # parts of `ckvc score` or `eval --out s.jsonl`\n",
    VERB_OPTIONS(merge_rows),
    .reads_args = true,
    .work = merge};
