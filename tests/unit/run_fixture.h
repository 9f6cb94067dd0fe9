/* A run of one head pass with a fixed plan, for the tests of the run directory. */
#pragma once

#include "formats/run/run_dir.h"
#include "tests/unit/shard_fixture.h"
#include "tests/unit/temp_folder.h"

#define RUN_PROMPTS 8u /* shards of 3, 3 and 2 prompts */
#define RUN_SHARD   3u
#define RUN_SKIPPED 4u /* leaves no records */
#define RUN_PASS    "pass-01-both"

static inline json_t *fixture_plan(void) {
    return json_pack("{s:i, s:s, s:i, s:{s:i, s:i}, s:f}", "window", 8, "model_name", "fixture",
                     "threads", 2, "bins", "entropy", 3, "perplexity", 2, "holdout", 0.25);
}

/* Creates a run of the fixed plan below the folder. */
static inline ckvc_status fixture_create(const char *name, bool resume, run_dir **r,
                                         ckvc_err *err) {
    json_t *plan = fixture_plan();
    const ckvc_status st = run_create(in_temp_folder(name), plan, RUN_WHOLE, resume, r, err);
    json_decref(plan);
    return st;
}

static inline ckvc_status fixture_begin(run_dir *r, const shard_header *h, bool *done,
                                        ckvc_err *err) {
    const run_pass_start start = {RUN_PASS, RUN_PROMPTS, RUN_SHARD, "cpu/test"};
    return run_pass_begin(r, &start, h, done, err);
}

/* Logs the rows of a prompt, or skips it if it is RUN_SKIPPED. */
static inline ckvc_status fixture_log(run_dir *r, const shard_header *h, uint32_t prompt,
                                      ckvc_err *err) {
    if (prompt == RUN_SKIPPED) {
        return run_skip_prompt(r, prompt, "prompt-4", "loss is not finite", err);
    }
    shard *rows = shard_create();
    shard_header_copy(&rows->h, h);
    fixture_prompt(rows, prompt, 5);
    const ckvc_status st = run_log_prompt(r, prompt, rows, err);
    shard_free(rows);
    return st;
}

/* Does what is left of the pass, in an order that is not the plan's. *done_before counts what
 * was done at the start. The header has the plan's fingerprint and the like. Returns at the
 * first error. */
static inline ckvc_status fixture_run(const char *path, bool resume, unsigned *done_before,
                                      bool *complete, ckvc_err *err) {
    static const uint32_t order[RUN_PROMPTS] = {1, 0, 5, 2, 4, 3, 7, 6};
    bool done[RUN_PROMPTS];
    run_dir *r = NULL;
    shard_header h;
    fixture_header(&h, "both");
    json_t *plan = fixture_plan();
    ckvc_status st = run_create(path, plan, RUN_WHOLE, resume, &r, err);
    st = st ? st : fixture_begin(r, &h, done, err);
    *done_before = 0;
    for (uint32_t i = 0; st == CKVC_OK && i < RUN_PROMPTS; i++) { *done_before += done[i]; }
    for (uint32_t i = 0; st == CKVC_OK && i < RUN_PROMPTS; i++) {
        if (!done[order[i]]) { st = fixture_log(r, &h, order[i], err); }
    }
    *complete = st == CKVC_OK && run_pass_end(r);
    run_close(r), json_decref(plan), shard_header_fini(&h);
    return st;
}

/* A setup: makes the folder with a run "whole" in it to which nothing has happened. */
static inline int fixture_whole(void **state) {
    unsigned before;
    bool complete;
    return temp_folder_make(state) ||
           fixture_run(in_temp_folder("whole"), false, &before, &complete, NULL) || !complete ||
           before;
}

static inline void copy_whole(const char *to) {
    shell("rm -rf %s/%s && cp -r %s/whole %s/%s", temp_folder, to, temp_folder, temp_folder, to);
}
