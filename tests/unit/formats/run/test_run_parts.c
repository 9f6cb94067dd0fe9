/* Runs in parts: the same bytes whatever their number and order, resumed or not; what is missing,
 * foreign or made otherwise; a merge that was killed. */
#include "tests/unit/formats/refusal.h"
#include "tests/unit/json_holds.h"
#include "tests/unit/run_fixture.h"

/* Does at most `most` prompts of a part, one of them skipped. */
static ckvc_status make(const char *name, run_part part, unsigned most, int seed, int max_failures,
                        ckvc_err *err) {
    run_dir *r = NULL;
    bool done[RUN_PROMPTS];
    shard_header h;
    fixture_header(&h, "both");
    json_t *plan = json_pack("{s:i, s:i, s:s, s:s}", "seed", seed, "max_failures", max_failures,
                             "verb", "calibrate", "model_name", "fixture");
    ckvc_status st = run_create(in_temp_folder(name), plan, part, true, &r, err);
    if (st == CKVC_OK) { st = fixture_begin(r, &h, done, err); }
    for (uint32_t i = 0; st == CKVC_OK && i < RUN_PROMPTS && most > 0; i++) {
        assert_true(done[i] || run_is_ours(r, i));
        if (done[i]) { continue; }
        most--;
        st = fixture_log(r, &h, i, err);
    }
    if (st == CKVC_OK) { assert_int_equal(run_pass_end(r), most > 0); }
    run_close(r), json_decref(plan), shard_header_fini(&h);
    return st;
}

static void must_make(const char *name, run_part part, unsigned most) {
    OK(make(name, part, most, 1, 1, &err));
}

static ckvc_status merge(const char *name, ckvc_err *err) {
    run_merged merged;
    return run_merge(in_temp_folder(name), NULL, 0, &merged, err);
}

static int setup(void **state) {
    return temp_folder_make(state) || make("whole", RUN_WHOLE, 99, 1, 1, NULL);
}

TEST(shares_are_every_nth) {
    for (uint32_t count = 1; count < 9; count++) {
        size_t sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            const size_t n = run_part_size((run_part){i, count}, 5);
            assert_int_equal(n, (5 + count - 1 - i) / count);
            sum += n;
        }
        assert_int_equal(sum, 5);
    }
    assert_int_equal(run_part_size(RUN_WHOLE, 5), 5);
}

TEST(parts_make_the_bytes_of_a_whole_run) {
    static const uint32_t counts[] = {1, 2, 3, 7}; /* of three shards */
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        char name[16];
        snprintf(name, sizeof name, "of-%u", counts[c]);
        for (uint32_t i = counts[c]; i-- > 0;) { /* each in two goes */
            must_make(name, (run_part){i, counts[c]}, 1);
            must_make(name, (run_part){i, counts[c]}, 99);
        }
        OK(merge(name, &err));
        shell("diff -r %s %s", in_temp_folder("whole"), in_temp_folder(name));
        OK(run_verify(in_temp_folder(name), &err));
        must_make(name, RUN_WHOLE, 99); /* as a whole run it goes on: with nothing to do */
    }
}

TEST(a_merge_that_was_killed_is_finished) {
    must_make("cut", (run_part){0, 2}, 99);
    must_make("cut", (run_part){1, 2}, 99);
    shell("cp %s/journal.jsonl %s/", in_temp_folder("whole"), in_temp_folder("cut"));
    shell("rm %s/journal-0-of-2.jsonl", in_temp_folder("cut"));
    OK(merge("cut", &err));
    shell("diff -r %s %s", in_temp_folder("whole"), in_temp_folder("cut"));
}

/* Nothing that is logged goes before the journal of all has it. */
TEST(what_a_journal_lacks_is_not_removed) {
    char cut[32];
    must_make("lacks", (run_part){0, 2}, 99);
    must_make("lacks", (run_part){1, 2}, 99);
    shell("cd %s && wc -l < journal.jsonl > ../lines", in_temp_folder("whole"));
    shell("cd %s && cp -r lacks lacks.parts", temp_folder);
    shell("cd %s && n=$(cat lines); while [ $((n -= 1)) -gt 0 ]; do "
          "head -$n whole/journal.jsonl > cut-$n.jsonl; done",
          temp_folder);
    for (int n = 1;
         snprintf(cut, sizeof cut, "cut-%d.jsonl", n), !access(in_temp_folder(cut), F_OK); n++) {
        shell("cd %s && cp cut-%d.jsonl lacks/journal.jsonl", temp_folder, n);
        SAYS(merge("lacks", &err), CKVC_E_MISMATCH, "journal-");
        shell("cd %s && rm lacks/journal.jsonl && diff -r lacks lacks.parts", temp_folder);
    }
    OK(merge("lacks", &err));
    shell("diff -r %s %s", in_temp_folder("whole"), in_temp_folder("lacks"));
}

TEST(failures_count_together) {
    OK(make("failed", (run_part){0, 2}, 99, 1, 0, &err));
    OK(make("failed", (run_part){1, 2}, 99, 1, 0, &err));
    SAYS(merge("failed", &err), CKVC_E_DATA, "--max-failures");
}

TEST(what_is_unfinished_or_foreign_is_named) {
    must_make("unfinished", (run_part){0, 2}, 99);
    must_make("unfinished", (run_part){1, 2}, 2);
    SAYS(merge("unfinished", &err), CKVC_E_DATA,
         "shard 1 is missing (0 of this part's 1 are published)");
    run_dir *r;
    FAILS(run_open(in_temp_folder("unfinished"), &r, &err), CKVC_E_DATA);
    FAILS(make("unfinished", (run_part){1, 2}, 99, 2, 1, &err), CKVC_E_MISMATCH);
    FAILS(make("unfinished", (run_part){1, 3}, 99, 1, 1, &err), CKVC_E_MISMATCH);
    FAILS(make("unfinished", RUN_WHOLE, 99, 1, 1, &err), CKVC_E_CREATE);
    FAILS(make("whole", (run_part){0, 1}, 99, 1, 1, &err), CKVC_E_CREATE);

    json_auto_t *status = NULL;
    OK(run_status(in_temp_folder("unfinished"), &status, &err));
    holds(status, "", /* one that is done is skipped */
          "{'parts.1.passes.0': {'prompts': 3, 'done': 2, 'skipped': 1}, 'complete': false}");

    shell("sed -i 's/\"header\":\"./\"header\":\"f/' %s/journal-1-of-2.jsonl",
          in_temp_folder("unfinished"));
    SAYS(merge("unfinished", &err), CKVC_E_MISMATCH, "bin edges");
    /* a line of another part's shard, and one that parts do not have */
    shell("tail -1 %s/journal-0-of-2.jsonl >> %s/journal-1-of-2.jsonl",
          in_temp_folder("unfinished"), in_temp_folder("unfinished"));
    SAYS(merge("unfinished", &err), CKVC_E_DATA, "is not of part 1/2");
    shell("echo '{\"note\":\"round\",\"round\":1}' >> %s/journal-0-of-2.jsonl",
          in_temp_folder("unfinished"));
    SAYS(merge("unfinished", &err), CKVC_E_DATA, "no part of a run has");
}

TEST(only_a_folder_for_them_takes_parts) {
    run_merged merged;
    must_make("a", (run_part){0, 1}, 99);
    const char *from[] = {in_temp_folder("a")};
    OK(make("other", RUN_WHOLE, 99, 2, 1, &err));
    FAILS(run_merge(in_temp_folder("other"), from, 1, &merged, &err), CKVC_E_MISMATCH);
    shell("mkdir %s && touch %s/letters", in_temp_folder("mine"), in_temp_folder("mine"));
    FAILS(run_merge(in_temp_folder("mine"), from, 1, &merged, &err), CKVC_E_CREATE);
    must_make("begun", RUN_WHOLE, 4); /* the same plan, and a journal that is not the parts' */
    FAILS(run_merge(in_temp_folder("begun"), from, 1, &merged, &err), CKVC_E_CREATE);
    OK(run_merge(in_temp_folder("joined"), from, 1, &merged, &err));
    assert_true(merged.n_parts == 1 && merged.n_passes == 1 && merged.n_shards == 3);
    shell("diff -r %s %s", in_temp_folder("whole"), in_temp_folder("joined"));
}

RUN_TESTS(setup, temp_folder_remove)
