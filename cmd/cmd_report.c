/* ckvc report: tables, runs and scores as one page. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "report/report.h"

int cmd_report(int argc, char **argv) {
    static const verb_text text = {
        "report", "how good and how stable tables are, as one page without scripts",
        "ckvc report T.ckvt... RUN... [--scores S.jsonl,...] --out DIR",
        "  ckvc report technical.ckvt narrative.ckvt runs/technical runs/narrative --scores "
        "heldout.jsonl --out report\n"
        "  ckvc report t.ckvt --out report          (the table alone: maps, counts, what its "
        "choices rest on)\n"};
    const char *out = NULL;
    opt_list scores = {0};
    int64_t layer_bins = 4, bootstrap = 1000, seed = 1, memory = (int64_t)1 << 30;
    bool force = false, quiet = false, json = false;
    opt opts[] = {
        {OPT_TEXT, "out", 'o', &out, "DIR",
         "folder for report.html, report.json and a .svg and .csv per figure", 0, 0},
        {OPT_LIST, "scores", 0, &scores, "S.jsonl,...",
         "output of `ckvc score` on held-out prompts: what the tables bring", 0, 0},
        {OPT_TITLE, "rank agreement", 0, NULL, NULL, NULL, 0, 0},
        {OPT_INT, "layer-bins", 0, &layer_bins, "N", "groups of consecutive layers for Spearman", 1,
         64},
        {OPT_INT, "bootstrap", 0, &bootstrap, "R",
         "refits from resampled prompts, for intervals; needs the tables' runs; 0: none", 0, 10000},
        {OPT_INT, "seed", 0, &seed, "N", "of the resampling", 0, 9e15},
        {OPT_SIZE, "memory", 0, &memory, "SIZE", "for the refits' counts", 0, 0},
        {OPT_TITLE, "output", 0, NULL, NULL, NULL, 0, 0},
        {OPT_FLAG, "force", 0, &force, "", "replace an earlier report in DIR", 0, 0},
        {OPT_FLAG, "json", 0, &json, "", "print report.json instead of the verdict", 0, 0},
        {OPT_FLAG, "quiet", 'q', &quiet, "", "print nothing", 0, 0},
        {0}};
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) { return rc; }
    if (!out || (args.n == 0 && scores.n == 0)) {
        bool nothing = out != NULL;
        free(args.items);
        return cmd_usage(text.name, nothing ? "nothing to report on; give tables, runs or --scores"
                                            : "no --out DIR: where should the page go?");
    }
    const report_options o = {.inputs = args.items,
                              .n_inputs = (size_t)args.n,
                              .scores = scores.items,
                              .n_scores = scores.n,
                              .out = out,
                              .force = force,
                              .layer_bins = (uint32_t)layer_bins,
                              .replicates = (uint32_t)bootstrap,
                              .seed = (uint64_t)seed,
                              .memory_max = (size_t)memory};
    ckvc_err err = {0};
    char *summary = NULL, *numbers = NULL;
    ckvc_status st = report_write(&o, &summary, &numbers, &err);
    if (st == CKVC_OK && !quiet) {
        fputs(json ? numbers : summary, stdout);
        fprintf(stderr, "ckvc report: %s/report.html\n", out);
    }
    free(summary);
    free(numbers);
    free(args.items);
    return st == CKVC_OK ? 0 : cmd_fail(text.name, &err);
}
