/* What a run of compile keeps besides its shards: checkpointed files, passes with plans of their
 * own, passes that end early; and journal lines about them that make no sense. */
#include "tests/unit/formats/refusal.h"
#include "tests/unit/run_fixture.h"

TEST(a_checkpoint_is_what_the_journal_says) {
    copy_whole("files");
    run_dir *r;
    OK(fixture_create("files", true, &r, &err));
    assert_false(run_has_file(r, "tables/a"));
    OK(run_checkpoint_file(r, "tables/a", "one", 3, &err));
    OK(run_checkpoint_file(r, "tables/a", "three", 5, &err)); /* made again: the last line counts */
    OK(run_note(r, "round", json_pack("{s:i}", "round", 1), &err));
    run_close(r);
    char *data;
    size_t n;
    OK(fixture_create("files", true, &r, &err));
    assert_true(run_has_file(r, "tables/a"));
    OK(run_read_file(r, "tables/a", &data, &n, &err));
    assert_true(n == 5 && strcmp(data, "three") == 0);
    free(data);
    assert_int_equal(json_array_size(run_notes(r)), 3);
    run_close(r);
    OK(run_verify(in_temp_folder("files"), &err));
    OK(ckvc_publish_bytes(in_temp_folder("files/tables/a"), "threE", 5, true, &err));
    SAYS(run_verify(in_temp_folder("files"), &err), CKVC_E_DATA, "tables/a");
}

TEST(a_pass_ends_early_and_stays_so) {
    bool done[RUN_PROMPTS];
    char hash[CKVC_SHA256_HEX];
    shard_header h;
    run_dir *r;
    json_t *other = json_pack("{s:s}", "verb", "calibrate");
    fixture_header(&h, "both");
    run_hash_plan(other, hash);
    OK(fixture_create("early", false, &r, &err));
    run_set_pass_plan(r, hash);
    OK(fixture_begin(r, &h, done, &err));
    for (uint32_t i = 0; i < RUN_SHARD; i++) { OK(fixture_log(r, &h, i, &err)); }
    const run_pass *p = run_pass_named(r, RUN_PASS);
    assert_false(p->complete);
    OK(run_pass_stable(r, 0.9, 0.93, true, &err));
    assert_true(p->complete && p->n_prompts == RUN_SHARD && p->stable.reached);
    assert_true(run_pass_end(r));
    run_close(r);
    OK(run_verify(in_temp_folder("early"), &err));

    OK(fixture_create("early", true, &r, &err));
    p = run_pass_named(r, RUN_PASS);
    assert_true(p->complete && p->stable.known && p->stable.target == 0.9 &&
                p->stable.reliability == 0.93);
    assert_string_equal(p->plan, hash); /* not the run's */
    CKVC_AUTO(shard_free_at) shard *rows = NULL;
    OK(run_read_shard(r, p, 0, &rows, &err));
    assert_string_equal(rows->h.plan, hash);
    run_set_pass_plan(r, hash);
    OK(fixture_begin(r, &h, done, &err));
    for (uint32_t i = 0; i < RUN_PROMPTS; i++) { assert_true(done[i]); }
    assert_true(run_pass_end(r));
    run_close(r), json_decref(other), shard_header_fini(&h);
}

TEST(lines_that_make_no_sense_are_refused) {
#define HASH  "'0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'"
#define FILE_ "{'note':'file','name':"
#define STABLE(pass, target, reliability)                                                          \
    "{'pass':" pass ",'until_stable':" target ",'reliability':" reliability
    static const char *const lines[] = {
        "{'note':7}",
        FILE_ "'../secret','bytes':1,'sha256':" HASH "}",
        FILE_ "'/etc/passwd','bytes':1,'sha256':" HASH "}",
        FILE_ "'','bytes':1,'sha256':" HASH "}",
        FILE_ "'tables/a','bytes':-1,'sha256':" HASH "}",
        FILE_ "'tables/a','bytes':1,'sha256':'abc'}",
        STABLE("'pass-01-both'", "0.9", "0.95") ",'reached':true,'shards':2}",
        STABLE("'pass-01-both'", "'x'", "0.95") ",'reached':true,'shards':3}",
        STABLE("'pass-01-both'", "0.9", "'x'") ",'reached':true,'shards':3}",
        STABLE("'pass-01-both'", "0.9", "null") ",'shards':3}",
        STABLE("'pass-01-gate'", "0.9", "0.95") ",'reached':true,'shards':3}",
        "{'pass':'pass-02-gate','n_prompts':8,'shard_prompts':3,'backend':'x','header':" HASH
        ",'plan':'abc'}",
    };
    CKVC_AUTO_FREE char *journal = file_bytes(in_temp_folder("whole/journal.jsonl"), NULL);
    copy_whole("lines");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        run_dir *r;
        ckvc_buffer all = {0};
        ckvc_buffer_printf(&all, "%s%s\n", journal, json_of(lines[i]));
        write_bytes(in_temp_folder("lines/journal.jsonl"), all.data, all.size);
        ckvc_buffer_fini(&all);
        SAYS(run_open(in_temp_folder("lines"), &r, &err), CKVC_E_DATA, "journal.jsonl:");
    }
}

RUN_TESTS(fixture_whole, temp_folder_remove)
