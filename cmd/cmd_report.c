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
    USAGE_IF(!c->report.out, "--out DIR is needed: the folder for the page");
    USAGE_IF(call->n == 0 && c->scores.n == 0 && c->answers.n == 0,
             "nothing to report on; give tables, runs, --scores or --answers");
    return report_run(c, call->items, call->n, err);
}

#define OPTIONS_OF report_cli
static const opt rows[] = {
    OPT_OUTPUT("out", report.out, "DIR",
               "Write report.html, and report.json that it draws, to this folder.", .letter = 'o'),
    OPT_INPUTS("scores", scores, "S.jsonl,...",
               "Show what the tables bring by these outputs of `ckvc score` on held-out prompts; "
               "without this option, by those of the runs of compile that made the tables."),
    OPT_INPUTS("answers", answers, "A.jsonl,...",
               "Show scores on tasks against what is kept, by these outputs of `ckvc eval`."),
    OPT_ENUM("require", require, "nothing|deploy",
             "With deploy, exit with 1 unless that is the verdict on every table given."),
    OPT_TITLE("rank agreement"),
    OPT_COUNT("layer-bins", report.layer_bins, "N", 1, 64,
              "Compute Spearman's correlation in N groups of consecutive layers.", .preset = "4"),
    OPT_COUNT("bootstrap", report.replicates, "R", 0, 10000,
              "Compute intervals from R refits on resampled prompts, which need the tables' runs, "
              "and from resampled answers; 0 means none.",
              .preset = "1000"),
    OPT_INT("seed", report.seed, "N", 0, 9e15, "Draw the resamples from this seed.", .preset = "1"),
    OPT_SIZE("memory", report.memory_max,
             "Use at most this much memory for the counts of the refits.", .preset = "1G"),
    OPT_TITLE("output"),
    OPT_FLAG("force", report.force, "Replace an earlier report in DIR.", .letter = 'f'),
    OPT_FLAG("json", json, "Print report.json instead of the verdict."),
    OPT_FLAG("quiet", quiet, "Print nothing.", .letter = 'q'),
    {0}};

const verb verb_report = {
    .name = "report",
    .about = "show on a page how good and how stable tables are",
    .summary = "show how good and how stable tables are, on one page that loads nothing else",
    .usage =
        "ckvc report T.ckvt... RUN... [--scores S.jsonl,...] [--answers A.jsonl,...] --out DIR",
    .examples = "  ckvc report run/table.ckvt run --out report          (what compile made, by its "
                "own scores)\n"
                "  ckvc report technical.ckvt narrative.ckvt runs/technical "
                "runs/narrative --scores heldout.jsonl --out report\n"
                "  ckvc report t.ckvt --out report          (the table "
                "alone: maps, counts, what its choices rest on)\n\n"
                "The verdict on a table is to deploy it when, at every budget at which it was "
                "scored, it is "
                "better than identity and not\nworse than the best simple reference (one "
                "without a table and without a second pass). Both must hold at as many entries,\n"
                "by the whole 95% interval over 10 held-out documents or more, and the prompts "
                "must have passed the leak check. Of a table\nthat is ahead but undecided, the "
                "verdict says about how many more prompts it needs.\n",
    VERB_OPTIONS(rows),
    .reads_args = true,
    .work = report};
