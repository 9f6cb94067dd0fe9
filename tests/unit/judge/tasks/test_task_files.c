/* Tasks from files of others: SQuAD's and HotpotQA's JSON, LongBench's folder. */
#include <sys/stat.h>

#include "tests/unit/golden.h"
#include "tests/unit/judge/tasks/task_fixture.h"
#include "tests/unit/temp_folder.h"

static const char squad[] =
    "{\"data\":[{\"paragraphs\":["
    "{\"context\":\"Rome lies on the Tiber.\",\"qas\":["
    "{\"question\":\"Where is Rome?\",\"is_impossible\":false,"
    "\"answers\":[{\"text\":\"on the Tiber\"},{\"text\":\"on the Tiber\"},{\"text\":\"Tiber\"}]},"
    "{\"question\":\"Where is Oslo?\",\"is_impossible\":true,\"answers\":[{\"text\":\"Rome\"}]},"
    "{\"question\":\"Not in it?\",\"answers\":[{\"text\":\"absent\"}]}]},"
    "{\"context\":\"The Tiber is a river.\",\"qas\":[]},"
    "{\"context\":\"Rome has seven hills.\",\"qas\":[]}]},"
    "{\"paragraphs\":[{\"context\":\"A cat sleeps.\",\"qas\":["
    "{\"question\":\"What sleeps?\",\"answers\":[{\"text\":\"cat\"}]}]},"
    "{\"context\":\"A dog barks.\",\"qas\":[]},{\"context\":\"A dog barks.\",\"qas\":[]}]}]}";

TEST(squad_has_the_question_s_paragraph) {
    const char *path = put_text("squad.json", squad);
    const uint32_t lengths[] = {45, 62, 400};
    task_options options = options_of(lengths, 3, 9);
    options.qa = &path;
    options.n_qa = 1;
    CKVC_AUTO(task_items_fini) task_items list = make_with("qa-1", &options);
    assert_int_equal(list.n, 6); /* two questions that can be answered, three lengths */
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        const bool rome = strstr(item->prompt + item->question_at, "Where is Rome?");
        const char *gold = rome ? "Rome lies on the Tiber." : "A cat sleeps.";
        assert_int_equal(item->n_answers, rome ? 2 : 1);
        assert_int_equal(times_found(item->prompt, item->question_at, gold), 1);
        const size_t docs = times_found(item->prompt, item->question_at, "Document ");
        if (item->length == 400) {
            assert_int_equal(docs, 5);   /* each once */
        } else if (item->length == 62) { /* one's own article comes first */
            assert_true(docs == 2 || docs == 3);
            assert_true(times_found(item->prompt, item->question_at, rome ? "dog" : "Tiber") == 0);
        }
        assert_true(item->depth >= 0 && item->depth <= 1);
        const double before = (double)(strstr(item->prompt, gold) - item->prompt);
        assert_true(docs == 1 || fabs(before / (double)item->question_at - item->depth) < 0.5);
    }
}

static const char hotpot[] =
    "[{\"question\":\"Who?\",\"answer\":\"Ann\",\"context\":[[\"One\",[\"Ann sings.\",\" "
    "Well.\"]],[\"Two\",[\"Bob hums.\"]]]},"
    "{\"question\":\"When?\",\"answer\":\"noon\",\"context\":[[\"Two\",[\"Bob "
    "hums.\"]],[\"Three\",[\"At noon.\"]]]}]";

TEST(hotpot_has_all_of_its_documents) {
    const char *paths[] = {put_text("squad.json", squad), put_text("hotpot.json", hotpot)};
    const uint32_t length = 300;
    task_options options = options_of(&length, 1, 2);
    options.qa = paths;
    options.n_qa = 2;
    CKVC_AUTO(task_items_fini) task_items list = make_with("qa-2,qa-1", &options);
    assert_int_equal(list.n, 4);
    assert_string_equal(list.items[0].task, "qa-1");
    for (size_t i = 2; i < 4; i++) {
        const task_item *item = &list.items[i];
        const bool who = strstr(item->prompt + item->question_at, "Who?");
        assert_string_equal(item->task, "qa-2");
        assert_string_equal(item->answers[0], who ? "Ann" : "noon");
        assert_int_equal(times_found(item->prompt, item->question_at, "One\nAnn sings. Well."), 1);
        assert_int_equal(times_found(item->prompt, item->question_at, "Two\nBob hums."), 1);
        assert_int_equal(times_found(item->prompt, item->question_at, "Document "), 3);
    }
}

static const char prompts[] =
    "{\"trec\":\"Kinds. {context}\\n{input}\",\"multi_news\":\"Sum up.\\n{context}\\nNow.\","
    "\"samsum\":\"no context\",\"qasper\":\"{context} {x}\",\"lcc\":\"{context}\"}";

TEST(longbench_fills_its_prompt) {
    put_text("dataset2prompt.json", prompts);
    put_text(
        "trec.jsonl",
        "{\"input\":\"Q: who\",\"context\":\"a b\",\"answers\":[\"Person\"],\"all_classes\":"
        "[\"Person\",\"City\"],\"length\":3,\"_id\":\"x\"}\n"
        "{\"input\":\"Q: where\",\"context\":\"1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 "
        "9 "
        "1 2 3 4 5 6 7 8 9\",\"answers\":[\"City\"],\"all_classes\":[\"City\"]}\n");
    const uint32_t length = 38;
    task_options options = options_of(&length, 1, 5);
    options.longbench = temp_folder;
    CKVC_AUTO(task_items_fini) task_items list = make_with("longbench", &options);
    assert_int_equal(list.n, 2); /* of the one file that is there */
    const task_item *item = &list.items[0], *cut = &list.items[1];
    assert_string_equal(item->prompt, "Kinds. a b\nQ: who");
    assert_string_equal(item->prompt + item->question_at, "\nQ: who");
    assert_int_equal(item->reply_at, item->prompt_size);
    assert_true(item->first_line && item->plain && item->max_new == 64);
    assert_true(task_score(item, "Person, City") == 0.5);
    assert_true(task_score(item, "\nPerson\nCity") == 1);
    const size_t tokens = item_tokens(cut);
    assert_true(tokens <= length && tokens > 18);
    assert_memory_equal(cut->prompt, "Kinds. 1 2 3 ", 13);
    assert_string_equal(cut->prompt + cut->question_at, "\nQ: where");
    assert_string_equal(cut->prompt + cut->question_at - 4, " 8 9\nQ: where");
}

TEST(longbench_as_published) {
    const char *there = shared_data("text/longbench", "multi_news.jsonl");
    CKVC_AUTO_FREE char *from = realpath(there, NULL); /* a link's target is relative to the link */
    put_text("dataset2prompt.json", prompts);
    assert_int_equal(symlink(from, in_temp_folder("multi_news.jsonl")), 0);
    const uint32_t lengths[] = {500, 20000};
    task_options options = options_of(lengths, 2, 3);
    options.longbench = temp_folder;
    CKVC_AUTO(task_items_fini) task_items list = make_with("multi_news", &options);
    assert_int_equal(list.n, 6);
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        const size_t tokens = item_tokens(item);
        assert_true(tokens <= item->length && (item->length > 500 || tokens > 480));
        assert_string_equal(item->prompt + item->question_at, "\nNow.");
        assert_true(task_score(item, item->answers[0]) > 0.99);
        assert_true(task_score(item, "said") < 0.1);
    }
    assert_int_equal(remove(in_temp_folder("multi_news.jsonl")), 0);
}

/* What a score would take minutes over is refused with its line; what it would not is taken. */
TEST(long_answers) {
    static const struct {
        const char *task;
        int bytes;
        bool taken;
    } cases[] = {{"lcc", 2048, true},        {"lcc", 2049, false},
                 {"multi_news", 8192, true}, {"multi_news", 8193, false},
                 {"triviaqa", 65536, true},  {"triviaqa", 65537, false}};
    const uint32_t length = 100;
    task_options options = options_of(&length, 1, 1);
    options.longbench = temp_folder;
    put_text("dataset2prompt.json",
             "{\"lcc\":\"{context}\",\"multi_news\":\"{context}\",\"triviaqa\":\"{context}\"}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *line =
                 ckvc_format("{\"input\":\"\",\"context\":\"x\",\"answers\":[\"%0*d\",\"%0*d\"]}\n",
                             cases[i].bytes, 0, cases[i].bytes, 0),
             name[32], path[16];
        snprintf(name, sizeof name, "%s.jsonl", cases[i].task);
        snprintf(path, sizeof path, "%s.jsonl:1", cases[i].task);
        put_text(name, line);
        free(line);
        refused(cases[i].task, &options, cases[i].taken ? CKVC_OK : CKVC_E_DATA,
                cases[i].taken ? "" : path);
        assert_int_equal(remove(in_temp_folder(name)), 0);
    }
}

/* What is wrong is said with file, line, what was there and what is wanted. */
TEST(refusals) {
    static const struct {
        const char *task, *file, *text, *says;
        ckvc_status status;
    } cases[] = {
        {"qa-1", NULL, NULL, "task qa-1 needs --qa FILE in SQuAD's JSON", CKVC_E_USAGE},
        {"qa-2", "a.json", "{\"data\":[]}", "task qa-2 needs --qa FILE in HotpotQA's JSON",
         CKVC_E_USAGE},
        {"qa-1", "a.json", "{\"data\":[]}", "no question that has an answer", CKVC_E_DATA},
        {"qa-1", "a.json", "{}", "neither SQuAD's", CKVC_E_DATA},
        {"qa-1", "a.json", "{\"data\":[{\"paragraphs\":[{}]}]}", "has no \"context\"", CKVC_E_DATA},
        {"qa-1", "a.json",
         "{\"data\":[{\"paragraphs\":[{\"context\":\"x\",\"qas\":[{\"question\":\"q\",\"answers\":"
         "[7]}]}]}]}",
         "has no \"text\"", CKVC_E_DATA},
        {"qa-2", "a.json", "[{\"question\":\"q\",\"answer\":\"a\"}]", "item 0 lacks", CKVC_E_DATA},
        {"qa-2", "a.json", "[{\"question\":\"q\",\"answer\":\"a\",\"context\":[[\"t\"]]}]",
         "is not a title and an array", CKVC_E_DATA},
        {"lcc", NULL, NULL, "task lcc needs --longbench DIR with lcc.jsonl", CKVC_E_USAGE},
        {"lcc", "lcc.jsonl", "", "no line", CKVC_E_DATA},
        {"lcc", "lcc.jsonl", "{\"input\":\"\",\"context\":\"\",\"answers\":[]}",
         "lcc.jsonl:1: \"answers\" must be", CKVC_E_DATA},
        {"lcc", "lcc.jsonl", "{\"input\":\"\",\"context\":7,\"answers\":[\"x\"]}",
         "\"context\" and \"input\" must be texts", CKVC_E_DATA},
        {"lcc", "lcc.jsonl", "{\"input\":", "lcc.jsonl:1: not a JSON object: ", CKVC_E_DATA},
        {"lcc", "lcc.jsonl", "[]", "lcc.jsonl:1: not a JSON object", CKVC_E_DATA},
        {"samsum", "samsum.jsonl", "{}", "\"samsum\" must be a text with {context}", CKVC_E_DATA},
        {"qasper", "qasper.jsonl", "{}", "\"qasper\" must be a text with {context}", CKVC_E_DATA},
        {"musique", "musique.jsonl", "{}", "\"musique\" must be", CKVC_E_DATA},
        {"trec", "trec.jsonl", "{\"input\":\"\",\"context\":\"\",\"answers\":[\"x\"]}",
         "\"all_classes\" must be", CKVC_E_DATA},
    };
    put_text("dataset2prompt.json", prompts);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t length = 100;
        const char *path = cases[i].file ? put_text(cases[i].file, cases[i].text) : NULL;
        const bool qa = strncmp(cases[i].task, "qa-", 3) == 0;
        task_options options = options_of(&length, 1, 1);
        options.qa = &path;
        options.n_qa = qa && path;
        options.longbench = qa ? NULL : temp_folder;
        refused(cases[i].task, &options, cases[i].status, cases[i].says);
    }
}

/* Where nothing is left to ask there is no list without items; what the options name is there. */
TEST(nothing_left) {
    const char *squad_path = put_text("squad.json", squad), *absent = in_temp_folder("absent");
    const char *empty = in_temp_folder("empty"),
               *twice[] = {squad_path, put_text("again.json", squad)};
    assert_int_equal(mkdir(empty, 0777), 0);
    remove(in_temp_folder("dataset2prompt.json"));
    put_text("lcc.jsonl", "{}");
    const struct {
        const char *tasks, *longbench, *qa, *says;
        uint32_t length;
        ckvc_status status;
    } cases[] = {
        {"longbench", NULL, NULL, "the first needs --longbench DIR with narrativeqa.jsonl", 100,
         CKVC_E_USAGE},
        {"needle", NULL, NULL, "ask for longer prompts", 5, CKVC_E_DATA},
        {"longbench,needle", NULL, NULL, "ask for longer prompts", 5, CKVC_E_DATA},
        {"longbench", absent, NULL, "no such folder", 100, CKVC_E_NOINPUT},
        {"lcc,niah", squad_path, NULL, "no such folder", 100, CKVC_E_NOINPUT},
        {"qa-1", NULL, absent, "absent: not there", 100, CKVC_E_NOINPUT},
        {"niah,qa-2", absent, NULL, "--longbench: no task asked for reads it", 100, CKVC_E_USAGE},
        {"niah,lcc", NULL, squad_path, "--qa: no task asked for reads it", 100, CKVC_E_USAGE},
        {"all", empty, NULL, "empty: holds none of the .jsonl files", 3000, CKVC_E_NOINPUT},
        {"qa-1", NULL, "both", "again.json only one can be read", 100, CKVC_E_USAGE},
        {"lcc", temp_folder, NULL, "LongBench/config/dataset2prompt.json", 100, CKVC_E_NOINPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool both = cases[i].qa && strcmp(cases[i].qa, "both") == 0;
        task_options options = options_of(&cases[i].length, 1, 1);
        options.longbench = cases[i].longbench;
        options.qa = both ? twice : &cases[i].qa;
        options.n_qa = both ? 2 : cases[i].qa != NULL;
        refused(cases[i].tasks, &options, cases[i].status, cases[i].says);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
