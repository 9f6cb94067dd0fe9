/* journal.jsonl of a run directory whose shards are there, of 7 bytes each: passes, shards, skipped
 * prompts, notes. */
#include <sys/stat.h>

#include "formats/run/run_dir.h"
#include "tests/fuzz/fuzz.h"

static void make_run(void) {
    static const char *const passes[] = {"scan", "pass-01-both", "pass-02-gate"};
    must(mkdir(fuzz_path("run"), 0700) == 0);
    fuzz_file("run/run.json", "{\"schema\":\"ckvc-plan-1\"}\n", 25);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        char name[64];
        snprintf(name, sizeof name, "run/%s", passes[i]);
        must(mkdir(fuzz_path(name), 0700) == 0);
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "run/%s/shard-%05d.h5", passes[i], k);
            fuzz_file(name, "no HDF5", 7);
        }
    }
    fuzz_file("run/file", "a file", 6);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckvc_err err = {0};
    if (!*fuzz_folder_name) { make_run(); }
    fuzz_file("run/journal.jsonl", data, size);
    CKVC_AUTO(run_close_at) run_dir *run = NULL;
    ckvc_status st = run_open(fuzz_path("run"), &run, &err);
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return 0;
    }
    json_decref(run_describe(run));
    for (size_t i = 0; i < run_pass_count(run); i++) {
        const run_pass *p = run_pass_at(run, i);
        must(run_pass_named(run, p->name) == p);
        must(p->n_prompts_done <= p->n_prompts);
    }
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    st = run_has_file(run, "file") ? run_read_file(run, "file", &text, &n, &err) : CKVC_OK;
    if (st != CKVC_OK) { must_refuse_well(st, &err); }
    err = (ckvc_err){0};
    st = run_pass_count(run) ? CKVC_OK : run_verify(fuzz_path("run"), &err);
    if (st != CKVC_OK) { must_refuse_well(st, &err); }
    return 0;
}
