/* The manifest reader: every kind of line that is right, and of one that is wrong. */
#include "formats/lines/manifest.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/temp_folder.h"

static int make_folder(void **state) {
    if (temp_folder_make(state) != 0) { return -1; }
    put_text("text.txt", "0123456789 \xE2\x82\xAC");
    put_text("broken.txt", "ok \xFF");
    return symlink("/etc/hostname", in_temp_folder("outside"));
}

static manifest *m; /* what was read last, or NULL */

static ckvc_status read_bytes(const char *bytes, size_t n) {
    const char *path = in_temp_folder("m.jsonl");
    manifest_free(ckvc_take(&m));
    write_bytes(path, bytes, n);
    return manifest_read(path, &m, &err);
}

static void refuses_bytes(const char *bytes, size_t n, const char *said) {
    err = (ckvc_err){0};
    const ckvc_status status = read_bytes(bytes, n);
    if (status == CKVC_OK || !strstr(err.text, said)) {
        fail_msg("want \"%s\", got status %d: %s", said, status, err.text);
    }
    assert_null(m);
}

static void refuses(const char *text, const char *said) {
    refuses_bytes(json_of(text), strlen(text), said);
}

TEST(good_lines) {
    const char *text =
        json_of("{'id':'a','text':'one\\u0000two','source':'s','split':'fit',"
                "'document':'d'}\r\n"
                "{'tokens':[1,2,2147483647],'id':'b','continuation_tokens':[4]}\n"
                "{'id':'c','file':'text.txt','offset':2,'bytes':3,'continuation':' x'}\n"
                "{'id':'d','file':'./text.txt'}\n"
                "{'id':'e','messages':[{'role':'system','content':''},{'content':'a\\u0000b',"
                "'role':'user'}]}");
    char sha[CKVC_SHA256_HEX];
    OK(read_bytes(text, strlen(text)));
    ckvc_sha256_hex(text, strlen(text), sha);
    assert_string_equal(m->sha256, sha);
    assert_int_equal(m->n_entries, 5);
    const manifest_entry *a = &m->entries[0], *b = &m->entries[1], *c = &m->entries[2];
    assert_int_equal(a->text_size, 7);
    assert_memory_equal(a->text, "one\0two", 7);
    assert_string_equal(a->source, "s");
    assert_string_equal(a->split, "fit");
    assert_string_equal(a->document, "d");
    assert_false(a->continuation || a->tokens);
    assert_true(b->tokens && b->continuation_tokens && b->tokens[2] == INT32_MAX);
    assert_true(!b->document && !b->source);
    assert_string_equal(c->text, "234");
    assert_string_equal(c->continuation, " x");
    assert_true(c->line == 3 && m->entries[3].text_size == 14);
    const manifest_entry *e = &m->entries[4];
    assert_int_equal(e->n_messages, 2);
    assert_true(strcmp(e->messages[1].role, "user") == 0 && e->messages[0].content_size == 0);
    assert_int_equal(e->messages[1].content_size, 3);
    assert_memory_equal(e->messages[1].content, "a\0b", 4);
    assert_int_equal(e->text_size, 17);
    assert_memory_equal(e->text, "system\n\nuser\na\0b\n", 17);
    CKVC_AUTO_FREE char *line = manifest_line(e);
    assert_string_equal(line, json_of("{'id':'e','messages':[{'content':'','role':'system'},"
                                      "{'content':'a\\u0000b','role':'user'}]}"));
}

TEST(bad_lines) {
    refuses("", "empty");
    refuses("{'id':'a','text':'x'}\n\n", ":2: blank line");
    refuses("  \t\n", ":1: blank line");
    refuses("\xEF\xBB\xBF{'id':'a','text':'x'}", "byte order mark");
    refuses("{'id':'a','text':'\xC3('}", ":1: byte 18 of the line is not UTF-8");
    refuses("{'id':'a','text':'x'", "not valid JSON");
    refuses("{'id':'a','text':'x'} {}", "not valid JSON");
    refuses("{'id':'a','text':'\\ud800'}", "not valid JSON");
    refuses("{'id':'a','text':NaN}", "not valid JSON");
    refuses("[1]", "not a JSON object");
    refuses("7", "not a JSON object");
    refuses("{'text':'x'}", "\"id\" is missing");
    refuses("{'id':7,'text':'x'}", "\"id\" must be a string");
    refuses("{'id':null,'text':'x'}", "\"id\" must be a string");
    refuses("{'id':'','text':'x'}", "want 1 to 255");
    refuses("{'id':'a\\u0001','text':'x'}", "control character");
    refuses("{'id':'a\\u0000b','text':'x'}", "control character");
    refuses("{'id':'a','id':'b','text':'x'}", "duplicate");
    refuses("{'id':'a','text':'x'}\n{'id':'b','text':'y'}\n{'id':'a','text':'z'}",
            ":3: \"id\" \"a\" stands in line 1");
    refuses(
        "{'id':'a','text':'x','Text':'y'}",
        "unknown key \"Text\"; there are id source document split text tokens file offset bytes "
        "messages continuation continuation_tokens");
    refuses("{'id':'a'}", "none of \"text\"");
    refuses("{'id':'a','text':'x','tokens':[1]}", "more than one of");
    refuses("{'id':'a','text':'x','file':'text.txt'}", "more than one of");
    refuses("{'id':'a','text':[1]}", "\"text\" must be a string");
    refuses("{'id':'a','tokens':[]}", "not empty");
    refuses("{'id':'a','tokens':'1 2'}", "must be an array");
    refuses("{'id':'a','tokens':[1,-1]}", "\"tokens\"[1] is not a token id");
    refuses("{'id':'a','tokens':[1.5]}", "\"tokens\"[0] is not a token id");
    refuses("{'id':'a','tokens':[2147483648]}", "\"tokens\"[0] is not a token id");
    refuses("{'id':'a','tokens':[99999999999999999999]}", "not valid JSON");
    refuses("{'id':'a','text':'x','continuation':'y','continuation_tokens':[1]}", "at most one");
    refuses("{'id':'a','text':'x','continuation':''}", "\"continuation\" is empty");
    refuses("{'id':'a','text':'x','continuation_tokens':[]}", "not empty");
    refuses("{'id':'a','text':'x','source':5}", "\"source\" must be a string");
    refuses("{'id':'a','text':'x','document':[]}", "\"document\" must be a string");
    refuses("{'id':'a','text':'x','split':''}", "\"split\" has 0 bytes");
    refuses("{'id':'a','messages':[]}", "not empty");
    refuses("{'id':'a','messages':{}}", "must be an array");
    refuses("{'id':'a','text':'x','messages':[{'role':'user','content':'x'}]}", "exactly one");
    refuses("{'id':'a','messages':['x']}", "\"messages\"[0]: want an object of two strings");
    refuses("{'id':'a','messages':[{'role':'user'}]}", "\"content\" of \"messages\"[0]");
    refuses("{'id':'a','messages':[{'role':'user','content':[{'type':'text'}]}]}", "no string");
    refuses("{'id':'a','messages':[{'role':'user','content':'x','name':'y'}]}", "has \"name\"");
    refuses("{'id':'a','messages':[{'role':'user','content':'x'},{'role':'tool','content':'y'}]}",
            "\"messages\"[1] has the role \"tool\"");
    refuses("{'id':'a','messages':[{'role':'user\\u0000','content':'x'}]}", "has the role");
    refuses("{'id':'a','text':'x','offset':1}", "belong to \"file\"");
    refuses("{'id':'a','file':'/etc/hostname'}", "relative");
    refuses("{'id':'a','file':'../x'}", "no \"..\"");
    refuses("{'id':'a','file':'sub/../../x'}", "no \"..\"");
    refuses("{'id':'a','file':'outside'}", "outside the manifest's folder");
    refuses("{'id':'a','file':'absent.txt'}", "absent.txt");
    refuses("{'id':'a','file':'.'}", ":");
    refuses("{'id':'a','file':''}", "relative");
    refuses("{'id':'a','file':'text.txt','offset':15}", "which has 14");
    refuses("{'id':'a','file':'text.txt','offset':2,'bytes':13}", "which has 14");
    refuses("{'id':'a','file':'text.txt','bytes':9223372036854775807}", "which has 14");
    refuses("{'id':'a','file':'text.txt','bytes':-1}", "\"bytes\" must be a whole number");
    refuses("{'id':'a','file':'text.txt','offset':1.5}", "\"offset\" must be a whole number");
    refuses("{'id':'a','file':'text.txt','bytes':12}", "byte 11 of");
    refuses("{'id':'a','file':'broken.txt'}", "byte 3 of");
    refuses_bytes("{\"id\":\"a\",\"text\":\"x\0y\"}", 22, "not valid JSON");
    char id[300];
    memset(id, 'i', sizeof id);
    char line[400];
    snprintf(line, sizeof line, "{'id':'%.256s','text':'x'}", id);
    refuses(line, "256 bytes; want 1 to 255");
    char nested[5000];
    memset(nested, '[', sizeof nested - 1);
    nested[sizeof nested - 1] = '\0';
    refuses(nested, "not valid JSON");
}

TEST(missing_manifest) {
    manifest *none;
    FAILS(manifest_read("/nonexistent/m.jsonl", &none, &err), CKVC_E_NOINPUT);
    assert_null(none);
    assert_int_not_equal(manifest_read(temp_folder, &none, &err), CKVC_OK); /* a folder */
}

TEST(long_line) {
    size_t n = ((size_t)64 << 20) + 1;
    CKVC_AUTO_FREE char *line = malloc(n);
    memset(line, ' ', n);
    refuses_bytes(line, n, "at most 67108864");
}

TEST(written_lines_read_back) {
    char text[] = "quote \" slash \\ tab \t line\n \xE2\x82\xAC end", tail[] = " more";
    char id[] = "x-1", source[] = "s", document[] = "d", split[] = "heldout";
    int32_t ids[] = {5, 6};
    manifest_entry e = {.id = id,
                        .source = source,
                        .document = document,
                        .split = split,
                        .text = text,
                        .text_size = sizeof text - 1,
                        .continuation = tail,
                        .continuation_size = 5};
    char *line = manifest_line(&e);
    assert_string_equal(
        line,
        "{\"continuation\":\" "
        "more\",\"document\":\"d\",\"id\":\"x-1\",\"source\":\"s\",\"split\":\"heldout\",\"text\":"
        "\"quote \\\" slash \\\\ tab \\u0009 line\\u000a \xE2\x82\xAC end\"}");
    OK(read_bytes(line, strlen(line)));
    assert_int_equal(m->entries[0].text_size, sizeof text - 1);
    assert_string_equal(m->entries[0].text, text);
    char *again = manifest_line(&m->entries[0]);
    assert_string_equal(line, again);
    free(line), free(again);
    manifest_entry t = {.id = id, .tokens = ids, .n_tokens = 2};
    line = manifest_line(&t);
    assert_string_equal(line, json_of("{'id':'x-1','tokens':[5,6]}"));
    free(line);
}

RUN_TESTS(make_folder, temp_folder_remove)
