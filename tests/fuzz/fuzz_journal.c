/* journal.jsonl of a run whose shards are there, of 7 bytes: passes, shards, skipped, notes. */
#include <sys/stat.h>

#include "formats/run/run_dir.h"
#include "tests/fuzz/fuzz.h"

static void make_run(void) {
    static const char *const passes[] = {"scan", "pass-01-both", "pass-02-gate"};
    must(mkdir(fuzz_path("run"), 0700) == 0);
    fuzz_file("run/run.json", "{\"schema\":\"ckvc-plan-1\"}\n", 25);
    for (size_t i = 0; i < 3 * 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "run/%s", passes[i / 3]);
        must(i % 3 || mkdir(fuzz_path(name), 0700) == 0);
        snprintf(name, sizeof name, "run/%s/shard-%05zu.h5", passes[i / 3], i % 3);
        fuzz_file(name, "no HDF5", 7);
    }
    fuzz_file("run/file", "a file", 6);
}

FUZZ {
    if (!*fuzz_folder_name) { make_run(); }
    fuzz_file("run/journal.jsonl", data, size);
    CKVC_AUTO(run_close_at) run_dir *run = NULL;
    if (!fuzz_took(run_open(fuzz_path("run"), &run, err), err)) { return; }
    json_decref(run_describe(run));
    for (size_t i = 0; i < run_pass_count(run); i++) {
        const run_pass *p = run_pass_at(run, i);
        must(run_pass_named(run, p->name) == p);
        must(p->n_prompts_done <= p->n_prompts);
    }
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    if (run_has_file(run, "file")) { fuzz_took(run_read_file(run, "file", &text, &n, err), err); }
    if (!run_pass_count(run)) { fuzz_took(run_verify(fuzz_path("run"), err), err); }
}
