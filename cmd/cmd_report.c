/* ckvc report: tables, runs and scores as one page. */
#include "cmd/score_and_report.h"

#include <stdio.h>

#include "cmd/verbs.h"
#include "lib/base/memory.h"
#include "report/report.h"

ckvc_status report_run(const report_cli *c, const char *const *inputs, size_t n, ckvc_err *err) {
    report_options o = c->report;
    o.inputs = inputs;
    o.n_inputs = n;
    o.scores = c->scores.items;
    o.n_scores = c->scores.n;
    o.answers = c->answers.items;
    o.n_answers = c->answers.n;
    CKVC_AUTO_FREE char *summary = NULL, *numbers = NULL;
    o.require_deploy = c->require;
    const ckvc_status done = report_write(&o, &summary, &numbers, err);
    if (summary && !c->quiet) {
        if (c->json) { fputs(numbers, stdout); }
        if (!c->json) { tell("%s", summary); }
        say("ckvc report: %s/report.html\n", c->report.out);
    }
    return done;
}

static ckvc_status report(const verb_call *call, ckvc_err *err) {
    const report_cli *c = call->options;
    USAGE_IF(!c->report.out, "no --out DIR: where should the page go?");
    USAGE_IF(call->n == 0 && c->scores.n == 0 && c->answers.n == 0,
             "nothing to report on; give tables, runs, --scores or --answers");
    return report_run(c, call->items, call->n, err);
}

#define OPTIONS_OF report_cli
static const opt rows[] = {
    OPT_OUTPUT("out", report.out, "DIR", "folder for report.html, and report.json that it draws",
               .letter = 'o'),
    OPT_INPUTS("scores", scores, "S.jsonl,...",
               "output of `ckvc score` on held-out prompts: what the tables bring; without: those "
               "of the runs of compile that gave out the tables"),
    OPT_INPUTS("answers", answers, "A.jsonl,...",
               "output of `ckvc eval`: scores on tasks, against what is kept"),
    OPT_ENUM("require", require, "nothing|deploy",
             "deploy: exit 1 unless that is the verdict on every table given"),
    OPT_TITLE("rank agreement"),
    OPT_COUNT("layer-bins", report.layer_bins, "N", 1, 64,
              "groups of consecutive layers for Spearman", .preset = "4"),
    OPT_COUNT("bootstrap", report.replicates, "R", 0, 10000,
              "refits from resampled prompts (needs the tables' runs) and resampled answers, for "
              "intervals; 0: none",
              .preset = "1000"),
    OPT_INT("seed", report.seed, "N", 0, 9e15, "of the resampling", .preset = "1"),
    OPT_SIZE("memory", report.memory_max, "for the refits' counts", .preset = "1G"),
    OPT_TITLE("output"),
    OPT_FLAG("force", report.force, "replace an earlier report in DIR", .letter = 'f'),
    OPT_FLAG("json", json, "print report.json instead of the verdict"),
    OPT_FLAG("quiet", quiet, "print nothing", .letter = 'q'),
    {0}};

const verb verb_report = {
    .name = "report",
    .about = "stability and truth of tables, as a page",
    .summary = "how good and how stable tables are, as one page without scripts",
    .usage =
        "ckvc report T.ckvt... RUN... [--scores S.jsonl,...] [--answers A.jsonl,...] --out DIR",
    .examples = "  ckvc report run/table.ckvt run --out report          (what compile made, by its "
                "own scores)\n"
                "  ckvc report technical.ckvt narrative.ckvt runs/technical "
                "runs/narrative --scores heldout.jsonl --out report\n"
                "  ckvc report t.ckvt --out report          (the table "
                "alone: maps, counts, what its choices rest on)\n\n"
                "Deploy is said of a table that at every budget at which it was scored is better "
                "than identity and not worse than the\nbest simple reference (no table, "
                "no second pass), both at as many entries and decided: the whole 95% interval "
                "over\n10 held-out prompts or more says so; and whose prompts passed the leak "
                "check. A table that is ahead, undecided, needs\nabout so many more prompts.\n",
    VERB_OPTIONS(rows),
    .reads_args = true,
    .work = report};
