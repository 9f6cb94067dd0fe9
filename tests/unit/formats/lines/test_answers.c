/* The lines of `ckvc eval`: written, read back to the bit, each deviation refused by its line. */
#include "formats/lines/answers.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/temp_folder.h"

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char full[] =
    "{'aimed':1024,'answer':'4711\\n','bytes':1048576,'budget':null,'control':0,'depth':0.25,"
    "'end':'stop','entries':8192,'group':'needle','id':'n/1','length':1024,'metric':'match',"
    "'model':'m','nll':0.5,'policy':'full','query':'unseen','question':9,"
    "'reference_nll':0.125,'score':1,'share':1,'table':null,'task':'niah','tokens':3}";
static const char kept[] =
    "{'answer':'','bytes':262144,'budget':0.25,'depth':null,'end':'length','entries':2048,"
    "'group':'needle','id':'n/1','length':1024,'metric':'match','model':'m','nll':null,"
    "'policy':'table','query':'seen','repeat_tokens':7,'score':0.3,'share':0.25,'table':'" ID64
    "','task':'niah','tokens':0,'window':32}";

static ckvc_status read_line(const char *line, answers **out, ckvc_err *err) {
    return answers_read_lines("a.jsonl", (const uint8_t *)json_of(line), strlen(line), out, err);
}

TEST(takes_rows) {
    CKVC_AUTO(answers_free_at) answers *first = NULL;
    CKVC_AUTO(answers_free_at) answers *second = NULL;
    OK(read_line(full, &first, &err));
    const answer_row *r = first->rows;
    assert_string_equal(r->id, "n/1");
    assert_string_equal(r->answer, "4711\n");
    assert_true(answer_is_full(r) && r->query == ANSWER_UNSEEN && !r->table && isnan(r->budget));
    assert_true(r->n_tokens == 1024 && r->n_question == 9 && r->aimed == 1024 && r->n_answer == 3);
    assert_true(r->depth == 0.25 && r->entries == 8192 && r->share == 1 && r->bytes == 1048576);
    assert_true(r->score == 1 && r->control == 0 && r->nll == 0.5 && r->reference_nll == 0.125);
    assert_true(isnan(r->repeat_tokens) && r->setting.window == 64);
    OK(read_line(kept, &second, &err));
    r = second->rows;
    assert_true(!answer_is_full(r) && r->query == ANSWER_SEEN && r->budget == 0.25 &&
                r->setting.window == 32);
    assert_string_equal(r->table, ID64);
    assert_true(isnan(r->depth) && isnan(r->nll) && isnan(r->control) && isnan(r->reference_nll));
    assert_true(r->aimed == 0 && r->repeat_tokens == 7 && r->score == 0.3);
}

/* What is written is canonical and reads back to the same. */
TEST(writes_what_it_reads) {
    const char *lines[] = {full, kept};
    for (int i = 0; i < 2; i++) {
        CKVC_AUTO(answers_free_at) answers *r = NULL;
        CKVC_AUTO(answers_free_at) answers *back = NULL;
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer once = {0};
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer again = {0};
        OK(read_line(lines[i], &r, &err));
        r->rows->score = 1.0 / 3;
        answers_append(&once, r->rows);
        assert_non_null(strstr((char *)once.data, "\"score\":0.33333333333333331"));
        assert_null(strchr((char *)once.data, '\n'));
        OK(read_line((char *)once.data, &back, &err));
        assert_true(back->rows->score == 1.0 / 3);
        answers_append(&again, back->rows);
        assert_string_equal((char *)once.data, (char *)again.data);
    }
}

static const struct {
    const char *from, *to, *says;
} bends[] = {
    {"'score':0.3", "'score':1.5", "a.jsonl:1: score 1.5 and control"},
    {"'score':0.3", "'score':null", "\"score\" is null, wanted a number"},
    {"'score':0.3,", "", "\"score\" is missing, wanted a number"},
    {"'score':0.3", "'score':0.3,'score':0.3", "a.jsonl:1:"},
    {"'score':0.3", "'score':0.3,'control':-1", "control -1"},
    {"'budget':0.25", "'budget':null", "policy \"table\" under budget"},
    {"'budget':0.25", "'budget':0", "under budget 0"},
    {"'policy':'table'", "'policy':'full'", "policy \"full\" under budget 0.25"},
    {"'share':0.25", "'share':1.25", "share 1.25 of entries 2048"},
    {"'share':0.25", "'share':0", "share 0 of entries 2048"},
    {"'entries':2048", "'entries':2048.5", "entries 2048.5"},
    {"'length':1024", "'length':0", "length 0"},
    {"'length':1024", "'length':-1", "\"length\" is whole number, wanted a whole number"},
    {"'depth':null", "'depth':2", "depth 2, wanted 0 to 1"},
    {"'query':'seen'", "'query':'both'", "wanted \"seen\", \"unseen\" or \"all-seen\""},
    {"'query':'seen'", "'query':'seen','question':4", "4 tokens of a question"},
    {"'needle','id':'n/1','length':1024,'metric':'match','model':'m','nll':null,'policy':'table',"
     "'query':'seen'",
     "'turns','id':'n/1','length':1024,'metric':'match','model':'m','nll':null,'policy':'table',"
     "'query':'all-seen','question':4",
     "4 tokens of a question"},
    {"'answer':''", "'answer':null", "\"answer\" is null, wanted a string"},
    {"'table':'0", "'table':'X", "wanted a table's content id"},
    {"'table':'0", "'mode':'heads','table':'0", "unknown key \"mode\""},
    {"'tokens':0", "'tokens':0,'speed':1", "unknown key \"speed\""},
    {"'window':32", "'window':0", "\"window\" is whole number, wanted"},
};

TEST(refuses_each_deviation) {
    for (size_t i = 0; i < sizeof bends / sizeof *bends; i++) {
        answers *r = NULL;
        SAYS(read_line(bent(kept, bends[i].from, bends[i].to), &r, &err), CKVC_E_DATA,
             bends[i].says);
        assert_null(r);
    }
}

static ckvc_status read_lines(const char *text, answers **out) {
    return answers_read(put_text("a.jsonl", json_of(text)), out, &err);
}

/* Of one item, policy and budget there is one line; under another budget there may be another. */
TEST(refuses_the_same_twice) {
    answers *a = NULL;
    char text[4096];
    const size_t twice = (size_t)snprintf(text, sizeof text, "%s\n%s\n", full, kept);
    snprintf(text + twice, sizeof text - twice, "%s\n", kept);
    SAYS(read_lines(text, &a), CKVC_E_DATA, "a.jsonl:3: item \"n/1\"");
    assert_non_null(strstr(err.text, "budget 0.25 is on line 2 already"));
    memcpy(strstr(text + twice, "0.25"), "0.50", 4);
    OK(read_lines(text, &a));
    assert_true(a->n == 3 && a->rows[2].line == 3 && a->rows[2].budget == 0.5);
    answers_free(a);
    SAYS(read_lines("", &a), CKVC_E_DATA, "no rows");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
