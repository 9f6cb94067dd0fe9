/* The diagnostics' numbers in report.json: 20 made-up prompts scored under identity and window,
 * with measured attention and utilities. Expected correlations, cells and shares from NumPy and
 * scipy.stats on the same 20 rows. Hostile score files end as one line. */
#include <jansson.h>
#include <unistd.h>

#include "formats/table/table_file.h"
#include "lib/base/files.h"
#include "lib/base/names.h"
#include "tests/unit/report_fixture.h"
#include "tests/unit/unit.h"

enum { N = 20 };

/* L = 2, G = 1, C = 5: bound = 4 epsilon. */
static void write_line(FILE *f, int i, const char *policy, double damage, bool measured) {
    double epsilon = 0.1 + 0.01 * i;
    fprintf(f,
            "{\"id\":\"p%02d\",\"source\":null,\"split\":\"heldout\",\"model\":\"m\",\"manifest\":"
            "\"f\",\"policy\":\"%s\",\"table\":"
            "null,"
            "\"T\":%d,\"C\":5,\"budget\":32,\"r_struct\":%.17g,\"r_sem\":%d,\"bin_entropy\":null,"
            "\"bin_perplexity\":null,"
            "\"n_candidates\":[40,30],\"n_kept\":[32,30],\"n_kept_window\":[8,7],\"loss_full\":2,"
            "\"loss_comp\":%.17g,\"reward\":%.17g",
            i, policy, 100 + 3 * i % 20 * 5, 4 + 0.1 * i, 10 + 7 * i % 20, 2 + damage, -damage);
    if (measured) {
        fprintf(f,
                ",\"attention_epsilon\":[%.17g,0.2],\"attention_bound\":[%.17g,0.8],\"attention_"
                "error\":[%.17g,0.2],"
                "\"attention_drift\":[%.17g,%.17g]",
                epsilon, 4 * epsilon, epsilon, epsilon, i < 15 ? 0.4 : 1.2);
        fprintf(f,
                ",\"alpha_quantiles\":[0,0.5,1,2,3,4,5],\"utility_quantiles\":[[[0,0.5,1,2,%.17g,"
                "30,30]],[[0,0.5,1,2,%.17g,30,30]]]",
                exp(1 + 0.01 * i), exp(2 + 0.01 * (3 * i % 20)));
    }
    fprintf(f, "}\n");
}

static const char *write_scores(bool with_top_k) {
    FILE *f = fopen(in_temp_folder("s.jsonl"), "wb");
    assert_non_null(f);
    for (int i = 0; i < N; i++) {
        write_line(f, i, "identity", 0.05 * (13 * i % 20) + 0.01 * i - 0.1, true);
        if (with_top_k) { write_line(f, i, "window", 0.1, false); }
    }
    assert_int_equal(fclose(f), 0);
    return in_temp_folder("s.jsonl");
}

static json_t *make(const char *const *inputs, size_t n, const char *scores, uint32_t replicates) {
    char *verdict = NULL;
    report_options o = {.inputs = inputs,
                        .n_inputs = n,
                        .scores = &scores,
                        .n_scores = scores ? 1 : 0,
                        .layer_bins = 2,
                        .replicates = replicates,
                        .seed = 1};
    json_t *json = report_made(&o, &verdict);
    free(verdict);
    return json;
}

TEST(numbers) {
    json_t *j = make(NULL, 0, write_scores(false), 0);
    is(j, "attention.0.n", N);
    is(j, "attention.0.layers.0.bound", 0.78);
    is(j, "attention.0.layers.0.error", 0.195);
    is(j, "attention.0.layers.0.error_of_bound", 0.25);
    is(j, "attention.0.layers.0.drift_above_bound", 0);
    is(j, "attention.0.layers.1.drift_above_bound", 0.25);
    is(j, "attention.0.bound_with_damage.spearman", -0.08270676691729321);
    assert_true(json_is_null(at(j, "attention.0.bound_with_damage.lo")));

    is(j, "diagnostics.utilities.0.between_heads", 0.9868745682423765);
    is(j, "diagnostics.utilities.0.between_prompts", 0.008980558571005623);
    is(j, "diagnostics.utilities.0.spread_by_head.1.0", 2.095);

    assert_string_equal(json_string_value(at(j, "diagnostics.damage.0.policy")), "identity");
    is(j, "diagnostics.damage.0.damage", 0.47);
    static const struct {
        const char *risk, *given, *of;
        double r;
    } want[12] = {
        {"r_struct", "nothing", "ranks", -0.08270676691729321},
        {0},
        {"r_struct", "T", "ranks", -0.1933398313652378},
        {"r_struct", "T", "values", -0.0014331472560193488},
        {"r_struct", "T and the other risk", "ranks", 0.14977354019052982},
        {0},
        {"r_sem", "nothing", "ranks", -0.7142857142857143},
        {0},
        {"r_sem", "T", "ranks", -0.7475003452810008},
        {"r_sem", "T", "values", -0.6872110187223918},
        {"r_sem", "T and the other risk", "ranks", -0.7429029935944221},
    };
    for (int i = 0; i < 12; i++) {
        char path[80];
        if (want[i].risk) {
            snprintf(path, sizeof path, "diagnostics.damage.0.correlations.%d", i);
            json_t *v = at(j, path);
            assert_string_equal(json_string_value(at(v, "risk")), want[i].risk);
            assert_string_equal(json_string_value(at(v, "given")), want[i].given);
            assert_string_equal(json_string_value(at(v, "of")), want[i].of);
            is(v, "r", want[i].r);
        }
    }
    is(j, "diagnostics.damage.0.edges_entropy.0", 4.475);
    is(j, "diagnostics.damage.0.edges_perplexity.2", 24.25);
    is(j, "diagnostics.damage.0.cells.0.1.n", 2);
    is(j, "diagnostics.damage.0.cells.0.1.damage", 0.55);
    is(j, "diagnostics.damage.0.cells.2.3.damage", 0.15);
    assert_true(json_is_null(at(j, "diagnostics.damage.0.cells.0.3.damage")));
    is(j, "diagnostics.damage.0.worst_tenth.n_worst", 2);
    is(j, "diagnostics.damage.0.worst_tenth.share", 1);
    is(j, "diagnostics.damage.0.worst_tenth.share_of_all_low_risk", 0.35);
    json_decref(j);
}

/* Top-k of the window is preferred; nothing varies there, so nothing is correlated; intervals hold
 * their values. */
TEST(fixed_policy_and_intervals) {
    json_t *j = make(NULL, 0, write_scores(true), 200);
    assert_string_equal(json_string_value(at(j, "diagnostics.damage.0.policy")), "window");
    assert_int_equal(json_array_size(at(j, "diagnostics.damage")), 1);
    assert_true(json_is_null(at(j, "diagnostics.damage.0.correlations.0.r")));
    assert_int_equal(json_array_size(at(j, "attention")), 1); /* measured under identity alone */
    double rho = json_number_value(at(j, "attention.0.bound_with_damage.spearman"));
    assert_true(json_number_value(at(j, "attention.0.bound_with_damage.lo")) < rho &&
                rho < json_number_value(at(j, "attention.0.bound_with_damage.hi")));
    json_decref(j);
}

/* Score files whose lines contradict each other: one line, CKVC_E_DATA. */
TEST(hostile_scores) {
    for (int kind = 0; kind < 2; kind++) {
        FILE *f = fopen(in_temp_folder("h.jsonl"), "wb");
        write_line(f, 0, "identity", 0.1, true);
        if (kind == 0) { /* the same model with other heads */
            fprintf(f, "{\"id\":\"x\",\"source\":null,\"split\":\"heldout\",\"model\":\"m\","
                       "\"manifest\":\"f\",\"policy\":\"identity\","
                       "\"table\":null,\"T\":100,\"C\":5,\"budget\":32,\"r_struct\":1,\"r_sem\":1,"
                       "\"bin_entropy\":null,"
                       "\"bin_perplexity\":null,\"n_candidates\":null,\"n_kept\":[1],\"n_kept_"
                       "window\":null,\"loss_full\":2,"
                       "\"loss_comp\":2,\"reward\":0,\"alpha_quantiles\":[0,0,0,0,0,0,0],\"utility_"
                       "quantiles\":[[[0,0,0,0,0,0,0],"
                       "[0,0,0,0,0,0,0]]]}\n");
        } else { /* more policies than anyone compares */
            for (int i = 0; i < 1000; i++) {
                char policy[16];
                snprintf(policy, sizeof policy, "p%d", i);
                write_line(f, 0, policy, 0.1, false);
            }
        }
        assert_int_equal(fclose(f), 0);
        const char *scores = in_temp_folder("h.jsonl");
        char *summary = NULL, *text = NULL;
        report_options o = {
            .scores = &scores, .n_scores = 1, .out = in_temp_folder("never"), .layer_bins = 2};
        FAILS(report_write(&o, &summary, &text, &err), CKVC_E_DATA);
        assert_non_null(strstr(err.text, kind == 0 ? "2 x 1 heads and 1 x 2" : "h.jsonl:1001"));
        assert_null(strchr(err.text, '\n'));
        assert_int_not_equal(access(in_temp_folder("never/report.html"), F_OK), 0);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
