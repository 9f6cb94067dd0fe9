/* The run directory: create, resume, skip, read, and every torn or bent file that a resume may find
 * (failing system calls and kills: test_run_faults.c). */
#include <sys/stat.h>
#include <sys/wait.h>

#include "formats/run/durable.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/json_holds.h"
#include "tests/unit/run_fixture.h"

/* Resumes `run` and demands the bytes of the uninterrupted one, no log, no temporary file. */
static void finish_and_compare(const char *name, unsigned want_before) {
    const char *run = in_temp_folder(name);
    bool complete;
    unsigned before;
    OK(fixture_run(run, true, &before, &complete, &err));
    assert_true(complete);
    shell("for k in 0 1 2; do cmp %s/whole/" RUN_PASS "/shard-0000$k.h5 %s/" RUN_PASS
          "/shard-0000$k.h5 || exit 1; done",
          temp_folder, run);
    shell("test \"$(ls %s | tr '\\n' ' ')\" = 'journal.jsonl lock " RUN_PASS " run.json '", run);
    shell("test $(ls %s/" RUN_PASS " | wc -l) = 3", run);
    OK(run_verify(run, &err));
    assert_int_equal(before, want_before);
}

/* A run that stopped after the prompts 1, 0, 5 (nothing published): two logs. */
static void make_half(const char *name) {
    shell("rm -rf %s/%s", temp_folder, name);
    shard_header h;
    fixture_header(&h, "both");
    run_dir *r;
    bool done[RUN_PROMPTS];
    OK(fixture_create(name, false, &r, &err));
    OK(fixture_begin(r, &h, done, &err));
    static const uint32_t some[] = {1, 0, 5};
    for (size_t i = 0; i < 3; i++) { OK(fixture_log(r, &h, some[i], &err)); }
    run_close(r); /* without run_pass_end, as after Ctrl-C */
    shard_header_fini(&h);
}

TEST(create_and_read) {
    run_dir *r;
    OK(run_open(in_temp_folder("whole/"), &r, &err));
    assert_int_equal(run_pass_count(r), 1);
    const run_pass *p = run_pass_at(r, 0);
    assert_string_equal(p->name, RUN_PASS);
    assert_string_equal(p->kind, "both");
    assert_true(p->number == 1 && p->n_shards == 3 && p->complete);
    assert_int_equal(p->n_prompts_done, RUN_PROMPTS);
    const json_t *skipped = run_skipped(r), *id = json_object_get(json_array_get(skipped, 0), "id");
    assert_int_equal(json_array_size(skipped), 1);
    assert_string_equal(json_string_value(id), "prompt-4");
    /* Prompts in the plan's order, whatever was finished first; indices within the shard. */
    static const uint32_t want[3][3] = {{1, 2, 3}, {4, 6, 0}, {7, 8, 0}};
    static const size_t count[3] = {3, 2, 2};
    for (size_t k = 0; k < 3; k++) {
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        OK(run_read_shard(r, p, k, &s, &err));
        assert_true(s->n_prompts == count[k] && s->n_records == 5 * count[k]);
        for (size_t i = 0; i < count[k]; i++) {
            assert_true(s->prompts[i].line == want[k][i] && s->records[5 * i].prompt == i);
        }
        assert_string_equal(s->h.plan, run_plan_hash(r));
    }
    json_t *d = run_describe(r);
    holds(d, "passes.0", "{'records': 35, 'prompts_skipped': 1}");
    json_decref(d), run_close(r);
    OK(run_verify(in_temp_folder("whole"), &err));
    /* A second resume of a finished run has nothing to do and changes nothing. */
    copy_whole("again");
    shell("sha256sum %s/again/journal.jsonl > %s/sum", temp_folder, temp_folder);
    finish_and_compare("again", RUN_PROMPTS);
    shell("sha256sum -c --quiet %s/sum", temp_folder);
    /* A folder that is not there yet is created by --resume. */
    finish_and_compare("by-resume", 0);
}

TEST(create_refusals) {
    CKVC_AUTO(run_close_at) run_dir *r = NULL;
    SAYS(fixture_create("whole", false, &r, &err), CKVC_E_CREATE, "--resume");
    shell("cd %s && mkdir foreign && touch foreign/x file", temp_folder);
    SAYS(fixture_create("foreign", true, &r, &err), CKVC_E_CREATE, "run.json");
    FAILS(fixture_create("file", true, &r, &err), CKVC_E_CREATE);
    FAILS(run_open(in_temp_folder("nowhere"), &r, &err), CKVC_E_NOINPUT);
    assert_null(r);
    /* Left by a create that was killed before run.json: as good as empty. */
    shell("cd %s && mkdir begun && touch begun/lock begun/run.json.tmp.1.0", temp_folder);
    OK(fixture_create("begun", false, &r, &err));
}

TEST(plan_mismatch) {
    run_dir *r;
    json_auto_t *plan = fixture_plan();
    /* Keys that do not change results are no part of the plan's identity. */
    json_object_set_new(plan, "threads", json_integer(64));
    json_object_set_new(plan, "backend", json_string("cuda"));
    json_object_set_new(plan, "limit_time", json_integer(5));
    OK(run_create(in_temp_folder("whole"), plan, RUN_WHOLE, true, &r, &err));
    run_close(r);
    json_object_set_new(plan, "window", json_integer(16));
    json_object_set_new(json_object_get(plan, "bins"), "entropy", json_integer(20));
    json_object_set_new(plan, "seed", json_integer(3));
    json_object_set_new(plan, "holdout", json_real(nextafter(0.25, 1))); /* is said as 0.25, too */
    json_object_set_new(plan, "model_name", json_sprintf("%061d", 0));
    SAYS(run_create(in_temp_folder("whole"), plan, RUN_WHOLE, true, &r, &err), CKVC_E_MISMATCH,
         "window: 8 there, 16 now");
    assert_non_null(strstr(err.text, "bins.entropy: 3 there, 20 now"));
    assert_non_null(strstr(err.text, "seed: absent there, 3 now"));
    assert_non_null(strstr(err.text, "holdout differs; model_name differs; window: 8"));
    assert_null(strstr(err.text, "threads"));
}

TEST(pass_mismatch) {
    make_half("bent");
    shard_header h;
    fixture_header(&h, "both");
    run_dir *r;
    bool done[64];
    OK(fixture_create("bent", true, &r, &err));
    const run_pass_start device = {RUN_PASS, RUN_PROMPTS, RUN_SHARD, "cuda"},
                         more = {RUN_PASS, RUN_PROMPTS + 1, RUN_SHARD, "cpu/test"};
    SAYS(run_pass_begin(r, &device, &h, done, &err), CKVC_E_MISMATCH, "cpu/test");
    FAILS(run_pass_begin(r, &more, &h, done, &err), CKVC_E_MISMATCH);
    h.side[CKVC_SIDE_GATE].start[0] += 0.01f;
    SAYS(fixture_begin(r, &h, done, &err), CKVC_E_MISMATCH, "start tables");
    h.side[CKVC_SIDE_GATE].start[0] = (float)ckvc_gate_action(0);
    strcpy(h.ckvc_version, "9.9"); /* an upgrade is no other pass */
    OK(fixture_begin(r, &h, done, &err));
    assert_true(done[0] && done[1] && done[5] && !done[2]);
    run_close(r), shard_header_fini(&h);
}

TEST(lock) {
    run_dir *r, *second;
    OK(fixture_create("whole", true, &r, &err));
    pid_t pid = fork();
    if (pid == 0) {
        char want[64];
        snprintf(want, sizeof want, "process %ld is writing", (long)getppid());
        bool ok =
            fixture_create("whole", true, &second, &err) == CKVC_E_BUSY && strstr(err.text, want);
        /* readers need no lock */
        ok = ok && run_open(in_temp_folder("whole"), &second, NULL) == CKVC_OK;
        _exit(ok ? 0 : 1);
    }
    int how;
    waitpid(pid, &how, 0);
    assert_int_equal(how, 0);
    run_close(r);
    OK(fixture_create("whole", true, &r, &err));
    run_close(r);
}

/* The log cut at every byte, and with junk behind: what was whole counts. */
TEST(torn_log) {
    make_half("half");
    const char *log_path = in_temp_folder("half/" RUN_PASS "/shard-00000.log");
    size_t n;
    CKVC_AUTO_FREE char *bytes = file_bytes(log_path, &n);
    prompt_log log;
    OK(prompt_log_read(log_path, &log, NULL));
    assert_true(log.n_records == 2 && log.records[0].prompt == 1);
    uint64_t second = log.records[1].offset;
    prompt_log_free(&log);
    for (size_t cut = 0; cut <= n; cut++) {
        write_bytes(log_path, bytes, cut);
        OK(prompt_log_read(log_path, &log, NULL));
        assert_int_equal(log.n_records, cut < second ? 0 : cut < n ? 1 : 2);
        assert_int_equal(log.size + log.dropped, cut);
        prompt_log_free(&log);
    }
    for (size_t i = 0; i < n; i++) { /* a changed byte ends the log before its record */
        bytes[i] ^= 0x20;
        write_bytes(log_path, bytes, n);
        OK(prompt_log_read(log_path, &log, NULL));
        assert_int_equal(log.n_records, i < second ? 0 : 1);
        prompt_log_free(&log);
        bytes[i] ^= 0x20;
    }
    /* Whole runs at a choice of cuts, zeros behind some of them as a power cut leaves them. */
    const size_t at = (size_t)second,
                 cuts[] = {0, 1, 7, 8, 11, 12, 40, at - 1, at, at + 3, at + 9, n - 1, n};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        for (int zeros = 0; zeros < 2; zeros++) {
            make_half("half");
            write_bytes(log_path, bytes, cuts[i]);
            if (zeros) { assert_int_equal(truncate(log_path, (off_t)cuts[i] + 64), 0); }
            finish_and_compare("half", 1 + (cuts[i] >= second) + (cuts[i] == n));
        }
    }
}

/* The worked example of formats/run/run.md, byte for byte. */
TEST(documented_record) {
    shard *s = shard_create();
    s->h.n_layers = s->h.n_heads = s->h.n_kv_heads = 1;
    strcpy(s->h.pass, "gate");
    struct shard_prompt p = {.id = "p5",
                             .source = "demo",
                             .line = 6,
                             .n_tokens = 300,
                             .n_continuation = 64,
                             .token_hash = 0x0123456789abcdefu,
                             .r_struct = 2.5,
                             .r_sem = 12,
                             .loss_full = 1.75,
                             .bin_entropy = 3,
                             .bin_ppl = 1};
    struct shard_baseline b = {.loss = 2};
    struct shard_record r = {.side = 1,
                             .head = CKVC_NO_HEAD,
                             .action = 10,
                             .reward = -0.25,
                             .baseline = -0.25,
                             .loss = 2,
                             .n_candidates = 40,
                             .n_kept = 32,
                             .set_hash = 0xfeedface};
    shard_add_prompt(s, &p);
    shard_add_baseline(s, &b);
    shard_add_record(s, &r);
    s->n_candidates[0] = 40;
    s->n_kept[0] = 32;
    s->n_kept_window[0] = 8;
    s->n_candidates_lo[0] = 50;
    s->n_candidates_hi[0] = 20;
    ckvc_buffer rows = {0};
    uint64_t size = 0;
    size_t n, n_page;
    shard_encode(s, &rows);
    OK(prompt_log_append(in_temp_folder("example.log"), &size, 5, rows.data, rows.size, NULL));
    char *bytes = file_bytes(in_temp_folder("example.log"), &n),
         *page = file_bytes("formats/run/run.md", &n_page);
    size_t seen = 0;
    for (char *line = page; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        unsigned offset, value;
        int used;
        if (sscanf(line, "%8x  %n", &offset, &used) != 1 || used != 10) { continue; }
        for (const char *q = line + used;
             sscanf(q, " %2x%n", &value, &used) == 1 && seen < offset + 16 && seen < n; q += used) {
            assert_int_equal((uint8_t)bytes[seen++], value);
        }
    }
    assert_int_equal(seen, n);
    assert_int_equal(n, size);
    free(bytes), free(page), ckvc_buffer_fini(&rows), shard_free(s);
}

/* Whole records (right checksum) that do not belong there are an error, not a torn end. */
TEST(wrong_log) {
    static const char *const cases[][2] = {
        {"cp shard-00000.log shard-00002.log", "not of this shard"},
        {"cp shard-00000.log x && cat x >> shard-00000.log && rm x", "there twice"}};
    for (int i = 0; i < 2; i++) {
        bool complete;
        unsigned before;
        make_half("half");
        shell("cd %s && %s", in_temp_folder("half/" RUN_PASS), cases[i][0]);
        SAYS(fixture_run(in_temp_folder("half"), true, &before, &complete, &err), CKVC_E_DATA,
             cases[i][1]);
    }
}

TEST(torn_journal) {
    size_t n;
    CKVC_AUTO_FREE char *journal = file_bytes(in_temp_folder("whole/journal.jsonl"), &n);
    size_t last = n - 1;
    while (journal[last - 1] != '\n') { last--; }
    /* Cut within the last line, of shard 2: its file has no line and is made again. */
    for (size_t cut = last; cut < n; cut += 13) {
        copy_whole("torn");
        write_bytes(in_temp_folder("torn/journal.jsonl"), journal, cut);
        run_dir *r; /* a reader takes what is whole and leaves the file alone */
        OK(run_open(in_temp_folder("torn"), &r, NULL));
        assert_int_equal(run_pass_at(r, 0)->n_shards, 2);
        assert_false(run_pass_at(r, 0)->complete);
        run_close(r);
        finish_and_compare("torn", 6);
        shell("cd %s && cmp torn/journal.jsonl whole/journal.jsonl", temp_folder);
    }
    /* A last line of zeros with a newline, as a hole in a file system would have it. */
    copy_whole("torn");
    CKVC_AUTO_FREE char *holed = malloc(n);
    memcpy(holed, journal, n);
    memset(holed + last, 0, n - last - 1);
    write_bytes(in_temp_folder("torn/journal.jsonl"), holed, n);
    finish_and_compare("torn", 6);
    /* Anywhere else a bad line is an error that names it. */
    size_t second = strcspn(journal, "\n") + 1;
    static const char *const bad[][2] = {
        {"{'pass':", ":2: damaged"},
        {"[]", ":2: not a JSON object"},
        {"{}", ":2: a line without"},
        {"{'pass':'pass-01-both'}", ":2: neither"},
        {"{'pass':'pass-02-head','sha256':''}", ":2: pass pass-02-head has not been begun"},
        {"{'pass':'pass-01-both','n_prompts':3}", ":2: pass pass-01-both is begun a second"},
        {"{'pass':'../../x','n_prompts':3,'shard_prompts':1,'backend':'','header':''}",
         ":2: not a line that begins"},
        {"{'pass':'pass-01-both','sha256':'zz','shard':0,'prompts':1,'rows':1,'bytes':1}",
         ":2: not a line of a published"},
        {"{'pass':'pass-01-both','reason':'','id':'','prompt':8}", ":2: not a line of a skipped"},
        {"{'pass':'pass-01-both','reason':'','id':'','prompt':4}", "a second time"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckvc_buffer text = {0};
        ckvc_buffer_append(&text, journal, second);
        ckvc_buffer_printf(&text, "%s\n", json_of(bad[i][0]));
        ckvc_buffer_append(&text, journal + second, n - second);
        write_bytes(in_temp_folder("torn/journal.jsonl"), text.data, text.size);
        ckvc_buffer_fini(&text);
        run_dir *r;
        SAYS(run_open(in_temp_folder("torn"), &r, &err), CKVC_E_DATA, bad[i][1]);
    }
}

TEST(changed_shard) {
    run_dir *r;
    shard *s;
    copy_whole("bent");
    size_t n;
    const char *name = in_temp_folder("bent/" RUN_PASS "/shard-00001.h5");
    CKVC_AUTO_FREE char *bytes = file_bytes(name, &n);
    bytes[n / 2] ^= 1;
    write_bytes(name, bytes, n);
    OK(run_open(in_temp_folder("bent"), &r, NULL));
    SAYS(run_read_shard(r, run_pass_at(r, 0), 1, &s, &err), CKVC_E_DATA, "SHA-256");
    run_close(r);
    FAILS(run_verify(in_temp_folder("bent"), &err), CKVC_E_DATA);
    write_bytes(name, bytes, n - 1);
    FAILS(run_open(in_temp_folder("bent"), &r, &err), CKVC_E_DATA);
    assert_int_equal(unlink(name), 0);
    SAYS(run_open(in_temp_folder("bent"), &r, &err), CKVC_E_DATA, "not there");
}

/* A shard of skipped prompts is published empty; a pass without prompts is complete at once. */
TEST(empty_shards) {
    shard_header h;
    fixture_header(&h, "scan");
    run_dir *r;
    bool done[2];
    OK(fixture_create("empty", false, &r, &err));
    OK(run_pass_begin(r, &(run_pass_start){"scan", 2, 2, "cpu"}, &h, done, &err));
    OK(run_skip_prompt(r, 0, "a", "x", &err));
    OK(run_skip_prompt(r, 1, "b", "x", &err));
    assert_true(run_pass_end(r));
    shard_header_fini(&h);
    fixture_header(&h, "head");
    OK(run_pass_begin(r, &(run_pass_start){"pass-01-head", 0, 16, "cpu"}, &h, done, &err));
    assert_true(run_pass_end(r) && run_pass_count(r) == 2);
    assert_string_equal(run_pass_at(r, 0)->name, "scan");
    CKVC_AUTO(shard_free_at) shard *s = NULL;
    OK(run_read_shard(r, run_pass_at(r, 0), 0, &s, &err));
    assert_int_equal(s->n_prompts, 0);
    OK(run_publish_file(r, "scan/edges.json", "{}", 2, &err));
    OK(run_publish_file(r, "tables/pass-01.ckvt", "x", 1, &err));
    assert_int_equal(run_publish_file(r, "../x", "x", 1, NULL), CKVC_E_BUG);
    run_close(r);
    OK(run_verify(in_temp_folder("empty"), &err));
    shard_header_fini(&h);
}

TEST(misuse) {
    shard_header h;
    fixture_header(&h, "both");
    run_dir *r;
    bool done[RUN_PROMPTS];
    OK(fixture_create("misuse", false, &r, &err));
    static const char *const names[] = {"pass-1-both", "pass-01-head"};
    for (int i = 0; i < 2; i++) {
        const run_pass_start start = {names[i], 1, 1, "cpu"};
        FAILS(run_pass_begin(r, &start, &h, done, &err), CKVC_E_BUG);
    }
    OK(fixture_begin(r, &h, done, &err));
    shard *rows = shard_create();
    shard_header_copy(&rows->h, &h);
    fixture_prompt(rows, 0, 3);
    rows->records[1].loss = NAN; /* must not become durable: it could never be published */
    SAYS(run_log_prompt(r, 0, rows, &err), CKVC_E_BUG, "record/loss");
    rows->records[1].loss = 1;
    OK(run_log_prompt(r, 0, rows, NULL));
    assert_int_equal(run_log_prompt(r, 0, rows, NULL), CKVC_E_BUG);
    assert_int_equal(run_skip_prompt(r, 0, "x", "y", NULL), CKVC_E_BUG);
    shard_free(rows), run_close(r), shard_header_fini(&h);
}

RUN_TESTS(fixture_whole, temp_folder_remove)
