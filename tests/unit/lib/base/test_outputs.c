/* Outputs that are in the way: what nothing may replace, and what is an input or inside one; and
 * JSON lines whose keys keep their order. */
#include <sys/stat.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "tests/unit/temp_folder.h"

TEST(only_regular_files_are_replaced) {
    OK(ckvc_publish_bytes(in_temp_folder("file"), "x", 1, false, &err));
    assert_int_equal(symlink("file", in_temp_folder("link")), 0);
    assert_int_equal(symlink("nowhere", in_temp_folder("dangling")), 0);
    assert_int_equal(mkfifo(in_temp_folder("pipe"), 0600), 0);
    static const struct {
        const char *name;
        bool force, ok;
    } cases[] = {{"new", false, true},  {"file", true, true},      {"file", false, false},
                 {"link", true, false}, {"dangling", true, false}, {"pipe", true, false},
                 {"", true, false},     {"none/new", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FAILS(ckvc_publish_check(in_temp_folder(cases[i].name), cases[i].force, &err),
              cases[i].ok ? CKVC_OK : CKVC_E_CREATE);
        assert_true(cases[i].ok == (err.text[0] == 0));
    }
    assert_int_equal(access(in_temp_folder("new"), F_OK), -1); /* a check leaves nothing */
}

/* A file that is gone on with is a regular one of that very name, and what it holds stays. */
TEST(kept_files_and_folders) {
    static const struct {
        const char *name;
        bool ok;
    } cases[] = {{"fresh", true},    {"held", true},  {"to-held", false},
                 {"to-none", false}, {"fifo", false}, {"folder", false}};
    OK(ckvc_publish_bytes(in_temp_folder("held"), "x", 1, false, &err));
    OK(ckvc_make_dirs(in_temp_folder("folder"), &err));
    assert_int_equal(symlink("held", in_temp_folder("to-held")), 0);
    assert_int_equal(symlink("not-there", in_temp_folder("to-none")), 0);
    assert_int_equal(symlink("folder", in_temp_folder("to-folder")), 0);
    assert_int_equal(mkfifo(in_temp_folder("fifo"), 0600), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(ckvc_close_at) int fd = -1;
        FAILS(ckvc_open_kept(in_temp_folder(cases[i].name), &fd, &err),
              cases[i].ok ? CKVC_OK : CKVC_E_CREATE);
        assert_true((fd >= 0) == cases[i].ok);
    }
    struct stat info;
    assert_true(stat(in_temp_folder("held"), &info) == 0 && info.st_size == 1);
    assert_int_equal(access(in_temp_folder("not-there"), F_OK), -1);
    OK(ckvc_make_dir_in(temp_folder, "folder/below", &err));
    FAILS(ckvc_make_dir_in(temp_folder, "to-folder", &err), CKVC_E_CREATE);
    FAILS(ckvc_make_dir_in(temp_folder, "to-none", &err), CKVC_E_CREATE);
}

TEST(within) {
    OK(ckvc_make_dirs(in_temp_folder("run/pass"), &err));
    OK(ckvc_make_dirs(in_temp_folder("runs"), &err));
    OK(ckvc_publish_bytes(in_temp_folder("run/run.json"), "x", 1, false, &err));
    assert_int_equal(symlink("run", in_temp_folder("way")), 0);
    const struct {
        const char *path, *other;
        bool within;
    } rows[] = {
        {"run", "run", true},
        {"run/run.json", "run", true},
        {"run/run.json", "run/run.json", true},
        {"run/pass/new", "run", true},
        {"run/none/new/er", "run", true},
        {"way/new", "run", true},
        {"runs/../run/new", "run", true},
        {"run/pass/new", "way", true},
        {"runs/new", "run", false},
        {"new", "run", false},
        {"run/../new", "run", false},
        {"run/new", "run/pass", false},
        {"run/new", "none", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            ckvc_path_within(in_temp_folder(rows[i].path), in_temp_folder(rows[i].other)),
            rows[i].within);
    }
    assert_true(ckvc_path_within("new", "."));
    assert_true(ckvc_path_within("/new", "/"));
}

TEST(keys_as_given) {
    json_auto_t *o =
        json_pack("{s:i, s:[f, f], s:{s:n, s:s}}", "b", 1, "c", 0.5, 3.0, "a", "z", "y", "q");
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    assert_string_equal((char *)line.data,
                        "{\"b\":1,\"c\":[0.5,3],\"a\":{\"z\":null,\"y\":\"q\"}}");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
