/* A manifest without some of its lines: byte for byte the others, and what is refused. */
#include <sys/stat.h>

#include "corpus/leaks/manifest_check.h"
#include "tests/unit/temp_folder.h"

static manifest *m; /* what is cleaned */

static void of_manifest(const char *text) {
    manifest_free(ckvc_take(&m));
    OK(manifest_read(put_text("m.jsonl", text), &m, &err));
}

static void holds(const char *name, const char *want) {
    size_t n;
    CKVC_AUTO_FREE char *text = file_bytes(in_temp_folder(name), &n);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
}

#define A "{\"id\":\"a\",\"text\":\"x\"}"
#define B " {\"text\" : \"\\u0078 y\",  \"id\":\"b\"} \r"
#define C "{\"id\":\"c\",\"text\":\"\xC3\xA4\"}"

TEST(lines_stay_as_they_are) {
    static const struct {
        const char *text;
        bool out[3];
        const char *want;
    } cases[] = {{A "\n" B "\n" C "\n", {false, false, false}, A "\n" B "\n" C "\n"},
                 {A "\n" B "\n" C "\n", {true, false, true}, B "\n"},
                 {A "\n" B "\n" C "\n", {false, true, false}, A "\n" C "\n"},
                 {A "\n" B "\n" C, {true, true, false}, C}, /* no LF at the end: none is added */
                 {A "\n" B "\n" C, {false, true, true}, A "\n"}}; /* nor is one taken away */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        of_manifest(cases[i].text);
        OK(manifest_clean_write(m, cases[i].out, in_temp_folder("c.jsonl"), true, &err));
        holds("c.jsonl", cases[i].want);
    }
    /* A line of more than one block of the reader. */
    enum { LONG = 700000 };
    CKVC_AUTO_FREE char *text = malloc(LONG + 64);
    strcpy(text, A "\n{\"id\":\"l\",\"text\":\"");
    size_t n = strlen(text);
    memset(text + n, 'z', LONG);
    strcpy(text + n + LONG, "\"}\n");
    of_manifest(text);
    OK(manifest_clean_write(m, (const bool[]){true, false}, in_temp_folder("c.jsonl"), true, &err));
    holds("c.jsonl", strchr(text, '\n') + 1);
}

TEST(refusals_leave_no_file) {
    const bool all[2] = {true, true}, none[2] = {false, false};
    of_manifest(A "\n" C "\n");
    unlink(in_temp_folder("c.jsonl"));
    SAYS(manifest_clean_write(m, all, in_temp_folder("c.jsonl"), true, &err), CKVC_E_DATA,
         "none of its 2 prompts is left");
    static const char *const later[] = {A "\n" C "\n" B "\n", A "\n",
                                        A "\n{\"id\":\"d\",\"text\":\"xx\"}\n", A "\n" C, ""};
    /* longer, shorter, of the same length, without its LF, empty */
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        put_text("m.jsonl", later[i]);
        SAYS(manifest_clean_write(m, none, in_temp_folder("c.jsonl"), true, &err), CKVC_E_DATA,
             "changed while it was checked");
    }
    unlink(in_temp_folder("m.jsonl"));
    FAILS(manifest_clean_write(m, none, in_temp_folder("c.jsonl"), true, &err), CKVC_E_NOINPUT);
    assert_false(ckvc_file_exists(in_temp_folder("c.jsonl")));
    of_manifest(A "\n" C "\n");
    put_text("c.jsonl", "mine");
    FAILS(manifest_clean_write(m, none, in_temp_folder("c.jsonl"), false, &err), CKVC_E_CREATE);
    holds("c.jsonl", "mine");
    shell("test -z \"$(find %s -name '*.tmp.*')\"", temp_folder); /* no temporary file is left */
}

TEST(ready_knows_what_is_in_the_way) {
    of_manifest(A "\n" C "\n");
    put_text("eval.jsonl", "{}\n");
    put_text("old.jsonl", "{}\n");
    const char *read[] = {in_temp_folder("eval.jsonl")};
    assert_int_equal(symlink("m.jsonl", in_temp_folder("link.jsonl")), 0);
    assert_int_equal(mkdir(in_temp_folder("sub"), 0777), 0);
    static const struct {
        const char *name;
        bool force;
        ckvc_status status;
    } cases[] = {{"new.jsonl", false, CKVC_OK},         {"old.jsonl", false, CKVC_E_CREATE},
                 {"old.jsonl", true, CKVC_OK},          {"", true, CKVC_E_CREATE},
                 {"none/c.jsonl", true, CKVC_E_CREATE}, {"m.jsonl", true, CKVC_E_USAGE},
                 {"link.jsonl", true, CKVC_E_USAGE},    {"eval.jsonl", true, CKVC_E_USAGE},
                 {"sub/c.jsonl", false, CKVC_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *to = *cases[i].name ? in_temp_folder(cases[i].name) : temp_folder;
        FAILS(manifest_clean_ready(m, read, 1, to, cases[i].force, &err), cases[i].status);
    }
    /* A "file" is found from its manifest's folder only. */
    put_text("t.txt", "some text");
    of_manifest(A "\n{\"id\":\"f\",\"file\":\"t.txt\"}\n");
    FAILS(manifest_clean_ready(m, read, 1, in_temp_folder("sub/c.jsonl"), false, &err),
          CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "m.jsonl:2 names a \"file\""));
    OK(manifest_clean_ready(m, read, 1, in_temp_folder("new.jsonl"), false, &err));
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
