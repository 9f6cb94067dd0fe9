/* The reader of `ckvc score` lines: takes what is written, refuses each deviation by its line. */
#include "formats/lines/scores.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/temp_folder.h"

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char good[] =
    "{'id':'p1','source':null,'split':'heldout','model':'m','manifest':'f','policy':'table',"
    "'table':'" ID64 "','T':100,'C':8,'budget':32,'r_struct':4.5,'r_sem':12.25,'bin_entropy':1,"
    "'bin_perplexity':0,'n_candidates':[40,30],'n_kept':[32,30],'n_kept_window':[8,7],"
    "'loss_full':2.5,'loss_comp':2.75,'reward':-0.25}";

static scores *s; /* what was read last, or NULL */

/* Of text with ' for ". */
static ckvc_status read_text(const char *text) {
    scores_free(ckvc_take(&s));
    return scores_read(put_text("s.jsonl", json_of(text)), &s, &err);
}

TEST(takes_rows) {
    char text[4096];
    snprintf(text, sizeof text,
             "%s\n"
             "{'id':'p1','source':'s','document':'d','split':null,'model':'m','manifest':'f',"
             "'policy':'matched','table':'%s','tau':0.87,'T':100,'C':0,'budget':0.25,"
             "'r_struct':4.5,'r_sem':null,'bin_entropy':null,'bin_perplexity':null,"
             "'n_candidates':null,'n_kept':[25],'n_kept_window':null,'loss_full':null,"
             "'loss_comp':null,'reward':null,'sets':[[1,2]]}\n",
             good, ID64);
    OK(read_text(text));
    assert_int_equal(s->n, 2);
    const score_row *a = &s->rows[0], *b = &s->rows[1];
    assert_string_equal(a->id, "p1");
    assert_string_equal(a->split, "heldout");
    assert_string_equal(a->table, ID64);
    assert_string_equal(b->document, "d");
    assert_true(!a->source && !a->document && a->n_layers == 2 && a->n_candidates[0] == 40);
    assert_true(a->n_kept[1] == 30 && a->n_kept_window[1] == 7);
    assert_true(a->reward == -0.25 && isnan(a->tau));
    assert_true(b->line == 2 && b->bin_entropy == -1 && !b->n_candidates && !b->n_kept_window);
    assert_true(b->tau == 0.87 && b->budget == 0.25 && isnan(b->reward) && isnan(b->r_sem));
}

/* Sets of heads: [L][G]. Of two modes, or scores, of a table there are two rows. */
TEST(takes_sets_of_heads) {
    static const char line[] =
        "{'id':'p1','model':'m','manifest':'f','policy':'table','table':'" ID64
        "','T':100,'C':0,'budget':32,'r_struct':4.5,'r_sem':12.25,%s'loss_full':null,"
        "'loss_comp':null,'reward':null}\n";
    static const char *const more[] = {
        "'n_candidates':null,'n_kept':[[32,30,1],[9,10,20]],'n_kept_window':[[8,7,1],"
        "[9,10,0]],'entries':102,'mode':'heads',",
        "'n_candidates':[100,100],'n_kept':[32,30],'entries':186,'mode':'layers',",
        "'n_kept':[32,30],'entries':186,'mode':'layers','score':'window',",
        "'n_kept':[0,0],'entries':0,",
        /* 11 / 3 / 3 * 3 * 3 is not 11 */
        "'n_kept':[[3,1,1],[1,1,1],[1,1,1]],'entries':11,'mode':'heads','score':'window',"};
    char text[4096] = "";
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), line, more[i]);
    }
    OK(read_text(text));
    const score_row *r = s->rows;
    assert_true(s->n == 5 && r->n_sets == 3 && r->n_layers == 2);
    assert_true(r->n_kept[5] == 20 && r->n_kept_window[4] == 10);
    assert_true(r->entries == 102 && score_row_kept(r) == 17 && r->setting.mode == CKVC_MODE_HEADS);
    assert_true(r[1].n_sets == 1 && score_row_kept(&r[1]) == 31);
    assert_int_equal(r[2].setting.score, CKVC_SCORE_WINDOW);
}

/* The good line once more, with more keys. */
static void append_with(char text[4096], const char *more) {
    char keys[256];
    const size_t n = strlen(text);
    snprintf(keys, sizeof keys, "%s'T'", more);
    snprintf(text + n, 4096 - n, "%s\n", bent(good, "'T'", keys));
}

/* Rows are of one setting when all the budgets by layer are the same, whatever their mean. */
TEST(tells_budgets_by_layer_apart) {
    static const char *const layers[] = {"", "'layer_budgets':[24,40],",
                                         "'layer_budgets':[40,24],'operator':'mean-pool',"};
    char text[4096] = "";
    for (size_t i = 0; i < 3; i++) { append_with(text, layers[i]); }
    OK(read_text(text));
    assert_int_equal(s->rows[0].layer_budgets, 0);
    assert_true(s->rows[1].layer_budgets && s->rows[2].layer_budgets &&
                s->rows[1].layer_budgets != s->rows[2].layer_budgets);
    assert_int_equal(s->rows[1].setting.op, CKVC_OPERATOR_PAPER);
    assert_int_equal(s->rows[2].setting.op, CKVC_OPERATOR_MEAN_POOL);
    append_with(text, layers[1]);
    SAYS(read_text(text), CKVC_E_DATA, "is on line 2 already");
}

/* Which score: paper, 0 and 64 unless the row says otherwise; rows of two scores are two rows. */
TEST(tells_scores_apart) {
    static const char *const more[] = {"'token_hash':'fedcba9876543210',", "'alpha':'visible',",
                                       "'keep_window':8,", "'window':16,"};
    char text[4096] = "";
    for (size_t i = 0; i < 4; i++) { append_with(text, more[i]); }
    OK(read_text(text));
    assert_true(s->rows[0].setting.alpha == CKVC_ALPHA_PAPER &&
                s->rows[0].setting.keep_window == 0 && s->rows[0].setting.window == 64);
    assert_true(s->rows[0].token_hash == 0xfedcba9876543210u && s->rows[1].token_hash == 0);
    assert_int_equal(s->rows[1].setting.alpha, CKVC_ALPHA_VISIBLE);
    assert_true(s->rows[2].setting.keep_window == 8 && s->rows[3].setting.window == 16);
    for (size_t i = 1; i < 4; i++) {
        const setting *first = &s->rows[0].setting, *other = &s->rows[i].setting;
        assert_true((setting_compare(first, other, SETTING_SCORE) < 0) == (i < 3));
        assert_true(setting_compare(other, other, SETTING_SCORE) == 0);
    }
    /* the default, said: the row is the first one again */
    append_with(text, "'alpha':'paper','window':64,");
    SAYS(read_text(text), CKVC_E_DATA, "is on line 1 already");
}

/* A good row with one piece replaced, on line 2 behind another good one. */
static void refused_row(const char *row, const char *from, const char *to, const char *says) {
    char text[8192], place[64];
    const int n = snprintf(text, sizeof text, "%s\n", bent(row, "p1", "p0"));
    snprintf(text + n, sizeof text - (size_t)n, "%s\n", bent(row, from, to));
    snprintf(place, sizeof place, "%s:2", in_temp_folder("s.jsonl"));
    SAYS(read_text(text), CKVC_E_DATA, place);
    assert_non_null(strstr(err.text, says));
}
static void refused(const char *from, const char *to, const char *says) {
    refused_row(good, from, to, says);
}

TEST(refuses_deviations) {
    refused("'T':100", "'T':100,'x':1", "unknown key \"x\"");
    refused("'T':100,", "", "\"T\" is missing");
    refused("'T':100", "'T':100,'T':100", "");
    refused("'T':100", "'T':-1", "\"T\"");
    refused("'T':100", "'T':99999999999", "\"T\"");
    refused("'T':100", "'T':31", "n_kept");
    refused("'id':'p1'", "'id':7", "\"id\" is whole number");
    refused("'id':'p1'", "'id':'p0'", "is on line 1 already");
    refused("'budget':32", "'budget':0", "budget 0");
    refused("'budget':32", "'budget':null", "budget");
    refused("'table':'" ID64 "'", "'table':null", "content id");
    refused("'table':'" ID64 "'", "'table':'../x'", "content id");
    refused("'n_candidates':[40,30]", "'n_candidates':[40]", "has 1 layers");
    refused("'n_kept':[32,30]", "'n_kept':[]", "one count per layer");
    refused("'n_kept':[32,30]", "'n_kept':[32,'30']", "\"n_kept\"[1]");
    refused("'n_kept_window':[8,7]", "'n_kept_window':[33,7]",
            "layer 0 keeps 33 tokens of the window but 32");
    refused("'n_kept':[32,30]", "'n_kept':[[32,30],[30]]", "\"n_kept\"[1] has 1 counts");
    refused("'n_kept':[32,30]", "'n_kept':[[32,30],30]", "\"n_kept\"[1] is no list of 2");
    refused("'n_kept':[32,30]", "'n_kept':[[32,30],[30,101]]", "not a count of tokens");
    refused("'n_kept':[32,30]", "'n_kept':[[32,30],[30,3]]",
            "\"n_kept_window\" has 1 counts a layer, wanted 2");
    refused("'n_candidates':[40,30]", "'n_candidates':[[40,1],[30,1]]", "n_candidates");
    refused("'T':100", "'T':100,'entries':63", "\"entries\" is 63, but 62 are kept");
    refused("'T':100", "'T':100,'mode':'head'", "wanted shared, heads, layers or lengths");
    refused("'bin_entropy':1", "'bin_entropy':-1", "bin");
    refused("'reward':-0.25", "'reward':0.25", "\"reward\" is 0.25");
    refused("'reward':-0.25", "'reward':null", "\"reward\" is null although");
    refused("'loss_comp':2.75", "'loss_comp':null", "\"reward\" is a number although");
    refused("'loss_full':2.5", "'loss_full':'2.5'", "\"loss_full\" is string");
    refused("'T':100", "'T':100,'alpha':'seen'", "\"alpha\" is string, wanted paper or visible");
    refused("'T':100", "'T':100,'keep_window':-1", "\"keep_window\" is whole number");
    refused("'T':100", "'T':100,'window':0", "\"window\" is whole number");
    refused("'T':100", "'T':100,'token_hash':17", "\"token_hash\" is whole number");
    refused("'T':100", "'T':100,'token_hash':'0123456789ABCDEF'", "\"token_hash\" is string");
    refused("'T':100", "'T':100,'operator':'paper'", "\"operator\" is string");
    refused("'T':100", "'T':100,'layer_budgets':[8]", "\"layer_budgets\" is array");
    refused("'T':100", "'T':100,'layer_budgets':[8,'8']", "\"layer_budgets\"[1]");
    refused("'T':100", "'T':100,'layer_budgets':[0,8]", "\"layer_budgets\"[0]");
    refused("{'id'", "[{'id'", "");
    refused("-0.25}", "-0.25} x", "");
    refused("-0.25}", "-0.25", "");
}

TEST(refuses_files) {
    FAILS(read_text(""), CKVC_E_DATA);
    FAILS(read_text("\n"), CKVC_E_DATA);
    FAILS(read_text("[]\n"), CKVC_E_DATA);
    FAILS(scores_read("/nonexistent/s.jsonl", &s, &err), CKVC_E_NOINPUT);
    /* Cut anywhere: never a crash, and never a row that was not written. */
    char text[1024];
    for (size_t n = 1; n < strlen(good); n++) {
        snprintf(text, sizeof text, "%.*s", (int)n, good);
        FAILS(read_text(text), CKVC_E_DATA);
    }
}

/* ---- what --attention-error and --utilities add ---- */
/* L = 2, G = 1, C = 5: the bound is 4 epsilon, the drift at most sqrt(8). */
#define BASE                                                                                       \
    "{'id':'p1','source':null,'split':null,'model':'m','manifest':'f','policy':'identity','table'" \
    ":null,'T':100,'C':5,'budget':32,'r_struct':4.5,'r_sem':12.25,'bin_entropy':null,'bin_"        \
    "perplexity':null,'n_candidates':[40,30],'n_kept':[32,30],'n_kept_window':[8,7],'loss_full':"  \
    "2.5,'loss_comp':2.75,'reward':-0.25"
static const char measured[] =
    BASE ",'attention_epsilon':[0.25,0.5],'attention_bound':[1.0,2.0],"
         "'attention_error':[0.5,1.5],'attention_drift':[0.5,2.25],"
         "'alpha_quantiles':[0,0.1,0.5,1,4,8,12],'utility_quantiles':[[[0,1,2,3,4,5,6]],"
         "[[0,0,0,3,4,5,7]]]}";

TEST(takes_measures) {
    OK(read_text(measured));
    const score_row *r = &s->rows[0];
    assert_true(r->attention[SCORE_EPSILON * 2 + 1] == 0.5 && r->attention[SCORE_BOUND * 2] == 1 &&
                r->attention[SCORE_ERROR * 2 + 1] == 1.5 &&
                r->attention[SCORE_DRIFT * 2 + 1] == 2.25);
    assert_int_equal(r->n_heads, 1);
    assert_true(r->utility[SCORE_QUANTILE_COUNT + 6] == 7 &&
                r->utility[2 * SCORE_QUANTILE_COUNT + 1] == 0.1);
    OK(read_text(BASE ",'attention_epsilon':null,'attention_bound':null,'attention_error':null,"
                      "'attention_drift':null}"));
    assert_true(!s->rows[0].attention && !s->rows[0].utility);
}

static void measures_refused(const char *from, const char *to, const char *says) {
    refused_row(measured, from, to, says);
}

TEST(refuses_measures) {
    measures_refused("'attention_drift':[0.5,2.25],", "", "attention_drift");
    measures_refused("'attention_drift':[0.5,2.25],", "'attention_drift':null,", "attention_drift");
    measures_refused("[0.25,0.5]", "[0.25]", "attention_epsilon");
    measures_refused("[0.25,0.5]", "[0.25,0.5,0.5]", "attention_epsilon");
    measures_refused("[0.25,0.5]", "{'0':1}", "attention_epsilon");
    measures_refused("[0.25,0.5]", "7", "attention_epsilon");
    measures_refused("[0.25,0.5]", "[0.25,'0.5']", "\"attention_epsilon\"[1]");
    measures_refused("[0.25,0.5]", "[0.25,[[0.5]]]", "\"attention_epsilon\"[1]");
    measures_refused("[0.25,0.5]", "[-0.25,0.5]", "\"attention_epsilon\"[0]");
    measures_refused("[0.25,0.5]", "[0.3,0.5]", "layer 0: attention_epsilon");
    measures_refused("[0.25,0.5],'attention_bound':[1.0,2.0]",
                     "[0.25,2],'attention_bound':[1.0,8.0]", "layer 1: attention_epsilon");
    measures_refused("[0.5,1.5]", "[0.5,2.1]", "layer 1: attention_error");
    measures_refused("[0.5,2.25]", "[0.5,2.9]", "attention_drift");
    measures_refused("[0.5,2.25]", "[0.5,1e999]", "");
    measures_refused("'C':5", "'C':1", "C of at least 2");
    measures_refused("'alpha_quantiles':[0,0.1,0.5,1,4,8,12],", "", "alpha_quantiles");
    measures_refused("[0,0.1,0.5,1,4,8,12]", "[0,0.1,0.5,1,4,8]", "alpha_quantiles");
    measures_refused("[0,0.1,0.5,1,4,8,12]", "[0,0.1,0.5,1,4,8,7]", "alpha_quantiles");
    measures_refused("[0,0.1,0.5,1,4,8,12]", "[-1,0.1,0.5,1,4,8,12]", "alpha_quantiles");
    measures_refused("[[0,0,0,3,4,5,7]]", "[]", "layer 1 has 0 heads, layer 0 has 1");
    measures_refused("[[0,0,0,3,4,5,7]]", "[[0,0,0,3,4,5,7],[0,0,0,3,4,5,7]]",
                     "layer 1 has 2 heads");
    measures_refused("[[0,0,0,3,4,5,7]]", "7", "layer 1 has 0 heads");
    measures_refused("[[0,0,0,3,4,5,7]]", "[[0,0,0,3,4,5,null]]", "utility_quantiles");
    measures_refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "[[[0,1,2,3,4,5,6]]]",
                     "list of 2 layers");
    measures_refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "[[],[]]", "list of 2 layers");
    measures_refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "null", "utility_quantiles");
    measures_refused(",'utility_quantiles':[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "",
                     "utility_quantiles");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
