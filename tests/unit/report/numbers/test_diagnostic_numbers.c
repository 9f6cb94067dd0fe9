/* The diagnostics' numbers in report.json: 20 made-up prompts scored under identity and window,
 * with measured attention and utilities. Expected correlations, cells and shares from NumPy and
 * scipy.stats on the same 20 rows. Hostile score files end as one line. */
#include "tests/unit/report_fixture.h"

enum { N = 20 };

/* L = 2, G = 1, C = 5: bound = 4 epsilon. */
static void write_line(FILE *f, int i, const char *policy, double damage, bool measured) {
    const double epsilon = 0.1 + 0.01 * i;
    char more[640];
    const int n = snprintf(more, sizeof more, ",\"n_candidates\":[40,30],\"n_kept_window\":[8,7]");
    if (measured) {
        snprintf(more + n, sizeof more - (size_t)n,
                 ",\"attention_epsilon\":[%.17g,0.2],\"attention_bound\":[%.17g,0.8],"
                 "\"attention_error\":[%.17g,0.2],\"attention_drift\":[%.17g,%.17g],"
                 "\"alpha_quantiles\":[0,0.5,1,2,3,4,5],\"utility_quantiles\":"
                 "[[[0,0.5,1,2,%.17g,30,30]],[[0,0.5,1,2,%.17g,30,30]]]",
                 epsilon, 4 * epsilon, epsilon, epsilon, i < 15 ? 0.4 : 1.2, exp(1 + 0.01 * i),
                 exp(2 + 0.01 * (3 * i % 20)));
    }
    put_score(f, (scored_line){.id = i,
                               .policy = policy,
                               .reward = -damage,
                               .kept = 32,
                               .kept_more = -2,
                               .T = 100 + 3 * i % 20 * 5,
                               .C = 5,
                               .r_struct = 4 + 0.1 * i,
                               .r_sem = 10 + 7 * i % 20,
                               .more = more});
}

static const char *write_scores(bool with_top_k) {
    FILE *f = open_lines("s.jsonl");
    for (int i = 0; i < N; i++) {
        write_line(f, i, "identity", 0.05 * (13 * i % 20) + 0.01 * i - 0.1, true);
        if (with_top_k) { write_line(f, i, "window", 0.1, false); }
    }
    assert_int_equal(fclose(f), 0);
    return in_temp_folder("s.jsonl");
}

static json_t *make(const char *scores, uint32_t replicates) {
    report_options o = report_of(NULL, 0, &scores, 1);
    o.replicates = replicates;
    return report_made(&o);
}

TEST(numbers) {
    json_auto_t *j = make(write_scores(false), 0);
    holds(j, "attention.0",
          "{'n': 20, 'layers': {'0': {'bound': 0.78, 'error': 0.195, 'error_of_bound': 0.25,"
          "                           'drift_above_bound': 0}, '1.drift_above_bound': 0.25},"
          " 'bound_with_damage': {'spearman': -0.08270676691729321, 'lo': null}}");
    holds(j, "diagnostics.utilities.0",
          "{'between_heads': 0.9868745682423765, 'between_prompts': 0.008980558571005623,"
          " 'spread_by_head.1.0': 2.095}");
    holds(j, "diagnostics.damage.0",
          "{'policy': 'identity', 'damage': 0.47, 'edges_entropy.0': 4.475,"
          " 'edges_perplexity.2': 24.25,"
          " 'cells': {'0.1': {'n': 2, 'damage': 0.55}, '2.3.damage': 0.15, '0.3.damage': null},"
          " 'worst_tenth': {'n_worst': 2, 'share': 1, 'share_of_all_low_risk': 0.35}}");
    holds(j, "diagnostics.damage.0.correlations",
          "[{'risk': 'r_struct', 'given': 'nothing', 'of': 'ranks', 'r': -0.08270676691729321}, {},"
          " {'risk': 'r_struct', 'given': 'T', 'of': 'ranks', 'r': -0.1933398313652378},"
          " {'risk': 'r_struct', 'given': 'T', 'of': 'values', 'r': -0.0014331472560193488},"
          " {'risk': 'r_struct', 'given': 'T and the other risk', 'of': 'ranks',"
          "  'r': 0.14977354019052982}, {},"
          " {'risk': 'r_sem', 'given': 'nothing', 'of': 'ranks', 'r': -0.7142857142857143}, {},"
          " {'risk': 'r_sem', 'given': 'T', 'of': 'ranks', 'r': -0.7475003452810008},"
          " {'risk': 'r_sem', 'given': 'T', 'of': 'values', 'r': -0.6872110187223918},"
          " {'risk': 'r_sem', 'given': 'T and the other risk', 'of': 'ranks',"
          "  'r': -0.7429029935944221}, {}]");
}

/* Top-k of the window is preferred; nothing varies there; intervals hold their values. */
TEST(fixed_policy_and_intervals) {
    json_auto_t *j = make(write_scores(true), 200);
    holds(j, "diagnostics", "{'damage': [{'policy': 'window', 'correlations.0.r': null}]}");
    holds(j, "attention", "[{}]"); /* measured under identity alone */
    double rho = json_number_value(at(j, "attention.0.bound_with_damage.spearman"));
    assert_true(json_number_value(at(j, "attention.0.bound_with_damage.lo")) < rho &&
                rho < json_number_value(at(j, "attention.0.bound_with_damage.hi")));
}

/* Score files whose lines contradict each other: one line, CKVC_E_DATA. */
TEST(hostile_scores) {
    for (int kind = 0; kind < 2; kind++) {
        FILE *f = open_lines("h.jsonl");
        write_line(f, 0, "identity", 0.1, true);
        if (kind == 0) { /* the same model with other heads */
            fprintf(f, "{\"id\":\"x\",\"split\":\"heldout\",\"model\":\"m\",\"manifest\":\"f\","
                       "\"policy\":\"identity\",\"T\":100,\"C\":5,\"budget\":32,\"r_struct\":1,"
                       "\"r_sem\":1,\"n_kept\":[1],\"loss_full\":2,\"loss_comp\":2,\"reward\":0,"
                       "\"alpha_quantiles\":[0,0,0,0,0,0,0],\"utility_quantiles\":"
                       "[[[0,0,0,0,0,0,0],[0,0,0,0,0,0,0]]]}\n");
        } else { /* more policies than anyone compares */
            for (int i = 0; i < 1000; i++) {
                char policy[16];
                snprintf(policy, sizeof policy, "p%d", i);
                write_line(f, 0, policy, 0.1, false);
            }
        }
        assert_int_equal(fclose(f), 0);
        const char *scores = in_temp_folder("h.jsonl");
        report_options o = report_of(NULL, 0, &scores, 1);
        o.out = in_temp_folder("never");
        SAYS(write_report(&o), CKVC_E_DATA, kind ? "h.jsonl:1001" : "2 x 1 heads and 1 x 2");
        assert_false(ckvc_file_exists(in_temp_folder("never/report.html")));
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
