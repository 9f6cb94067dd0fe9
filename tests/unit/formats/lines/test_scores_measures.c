/* The keys of --attention-error and --utilities in score lines: taken when they hold together,
 * refused with the line's number in every single deviation. */
#include "tests/unit/formats/refusal.h"
#include "tests/unit/scores_fixture.h"

/* L = 2, G = 1, C = 5: the bound is 4 epsilon, the drift at most sqrt(8). */
#define BASE                                                                                       \
    "{'id':'p1','source':null,'split':null,'model':'m','manifest':'f','policy':'identity','table'" \
    ":null,'T':100,'C':5,'budget':32,'r_struct':4.5,'r_sem':12.25,'bin_entropy':null,'bin_"        \
    "perplexity':null,'n_candidates':[40,30],'n_kept':[32,30],'n_kept_window':[8,7],'loss_full':"  \
    "2.5,'loss_comp':2.75,'reward':-0.25"
static const char good[] =
    BASE ",'attention_epsilon':[0.25,0.5],'attention_bound':[1.0,2.0],"
         "'attention_error':[0.5,1.5],'attention_drift':[0.5,2.25],"
         "'alpha_quantiles':[0,0.1,0.5,1,4,8,12],'utility_quantiles':[[[0,1,2,3,4,5,6]],"
         "[[0,0,0,3,4,5,7]]]}";

TEST(takes) {
    scores *s = NULL;
    OK(read_text(json_of(good), &s, &err));
    const score_row *r = &s->rows[0];
    assert_true(r->attention[SCORE_EPSILON * 2 + 1] == 0.5 && r->attention[SCORE_BOUND * 2] == 1 &&
                r->attention[SCORE_ERROR * 2 + 1] == 1.5 &&
                r->attention[SCORE_DRIFT * 2 + 1] == 2.25);
    assert_int_equal(r->n_heads, 1);
    assert_true(r->utility[SCORE_QUANTILE_COUNT + 6] == 7 &&
                r->utility[2 * SCORE_QUANTILE_COUNT + 1] == 0.1);
    scores_free(s);
    s = NULL;
    OK(read_text(json_of(BASE ",'attention_epsilon':null,'attention_bound':null,"
                              "'attention_error':null,'attention_drift':null}"),
                 &s, &err));
    assert_true(!s->rows[0].attention && !s->rows[0].utility);
    scores_free(s);
}

static void refused(const char *from, const char *to, const char *says) {
    scores *s = NULL;
    char place[64];
    snprintf(place, sizeof place, "%s:1", in_temp_folder("s.jsonl"));
    SAYS(read_text(json_of(bent(good, from, to)), &s, &err), CKVC_E_DATA, place);
    assert_non_null(strstr(err.text, says));
}

TEST(refuses) {
    refused("'attention_drift':[0.5,2.25],", "", "attention_drift");
    refused("'attention_drift':[0.5,2.25],", "'attention_drift':null,", "attention_drift");
    refused("[0.25,0.5]", "[0.25]", "attention_epsilon");
    refused("[0.25,0.5]", "[0.25,0.5,0.5]", "attention_epsilon");
    refused("[0.25,0.5]", "{'0':1}", "attention_epsilon");
    refused("[0.25,0.5]", "7", "attention_epsilon");
    refused("[0.25,0.5]", "[0.25,'0.5']", "\"attention_epsilon\"[1]");
    refused("[0.25,0.5]", "[0.25,[[0.5]]]", "\"attention_epsilon\"[1]");
    refused("[0.25,0.5]", "[-0.25,0.5]", "\"attention_epsilon\"[0]");
    refused("[0.25,0.5]", "[0.3,0.5]", "layer 0: attention_epsilon");
    refused("[0.25,0.5],'attention_bound':[1.0,2.0]", "[0.25,2],'attention_bound':[1.0,8.0]",
            "layer 1: attention_epsilon");
    refused("[0.5,1.5]", "[0.5,2.1]", "layer 1: attention_error");
    refused("[0.5,2.25]", "[0.5,2.9]", "attention_drift");
    refused("[0.5,2.25]", "[0.5,1e999]", "");
    refused("'C':5", "'C':1", "C of at least 2");
    refused("'alpha_quantiles':[0,0.1,0.5,1,4,8,12],", "", "alpha_quantiles");
    refused("[0,0.1,0.5,1,4,8,12]", "[0,0.1,0.5,1,4,8]", "alpha_quantiles");
    refused("[0,0.1,0.5,1,4,8,12]", "[0,0.1,0.5,1,4,8,7]", "alpha_quantiles");
    refused("[0,0.1,0.5,1,4,8,12]", "[-1,0.1,0.5,1,4,8,12]", "alpha_quantiles");
    refused("[[0,0,0,3,4,5,7]]", "[]", "layer 1 has 0 heads, layer 0 has 1");
    refused("[[0,0,0,3,4,5,7]]", "[[0,0,0,3,4,5,7],[0,0,0,3,4,5,7]]", "layer 1 has 2 heads");
    refused("[[0,0,0,3,4,5,7]]", "7", "layer 1 has 0 heads");
    refused("[[0,0,0,3,4,5,7]]", "[[0,0,0,3,4,5,null]]", "utility_quantiles");
    refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "[[[0,1,2,3,4,5,6]]]", "list of 2 layers");
    refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "[[],[]]", "list of 2 layers");
    refused("[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "null", "utility_quantiles");
    refused(",'utility_quantiles':[[[0,1,2,3,4,5,6]],[[0,0,0,3,4,5,7]]]", "", "utility_quantiles");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
