/* The choice of ranking and floor by budget: the least mean loss, ties to the first, prompts whole
 * or not at all, and what the table says then. */
#include "budgets/select.h"
#include "tests/unit/temp_folder.h"

enum { nB = 2, nC = 3 };
static const double budgets[nB] = {8, 0.5};
static const select_candidate tried[nC] = {{CKVC_SCORE_WINDOW, 0.125, 0, 0},
                                           {CKVC_SCORE_LEARNED, 0.125, 0, 0},
                                           {CKVC_SCORE_PAPER, 0.25, 0.5, 0}};

static ckvc_table *table_of(double floor, bool learned) {
    ckvc_table *t = ckvc_table_create(1, 2, 1, 1, nB, 1, 1);
    t->window = 4;
    t->head_grid[0] = t->gate_grid[0] = t->weight[0] = 1;
    memcpy(t->budgets, budgets, sizeof budgets);
    assert_int_equal(ckvc_table_add_shares(t, 0), 0);
    for (int b = 0; b < nB; b++) {
        t->c_min[b] = (ckvc_c_min){floor, 2};
        t->score[b] = (ckvc_score){.kind = CKVC_SCORE_PAPER, .mode = CKVC_MODE_HEADS};
    }
    if (learned) {
        assert_int_equal(ckvc_table_add_learned(t, ckvc_features_count(CKVC_FEATURES_1, 2)), 0);
        for (int b = 0; b < nB; b++) { t->score[b].features = CKVC_FEATURES_1; }
    }
    return t;
}

static bool other_table; /* lines are of another */
static bool with_kl;     /* lines have one that falls where their losses rise */

/* A line of a table: one layer of two heads, 8 of 16 tokens each; a loss of NaN is null. */
static void line(FILE *f, const char *id, double budget, select_candidate c, double loss) {
    char comp[64] = "null", reward[64] = "null";
    if (isfinite(loss)) {
        snprintf(comp, sizeof comp, "%.17g", 2 + loss);
        snprintf(reward, sizeof reward, "%.17g", -(2 + loss - 2));
    }
    fprintf(
        f,
        "{\"id\":\"%s\",\"source\":null,\"split\":\"select\",\"model\":\"%064d\",\"manifest\":"
        "\"%064d\",\"token_hash\":\"0000000000000001\",\"policy\":\"table\",\"table\":\"%064d\","
        "\"tau\":null,\"T\":16,\"C\":4,\"budget\":%.17g,\"r_struct\":1,\"r_sem\":1,"
        "\"bin_entropy\":null,\"bin_perplexity\":null,\"n_candidates\":null,\"n_kept\":[[8,8]],"
        "\"n_kept_window\":[[4,4]],\"entries\":16,\"loss_full\":2,\"loss_comp\":%s,\"reward\":"
        "%s,\"alpha\":\"paper\",\"keep_window\":0,\"window\":4,\"mode\":\"heads\"",
        id, 1, 2, other_table ? 4 : 3, budget, comp, reward);
    if (c.score != CKVC_SCORE_PAPER) { fprintf(f, ",\"score\":\"%s\"", ckvc_score_name(c.score)); }
    if (c.mix > 0) { fprintf(f, ",\"mix\":%.17g", c.mix); }
    if (with_kl && isfinite(loss)) { fprintf(f, ",\"kl\":%.17g", 4 - loss); }
    fprintf(f, ",\"floor\":%.17g}\n", c.floor);
}

/* losses [n][nB][nC] of prompts; of candidate 1 at budget 0 those of prompts [from, until). */
static const char *some_lines(const double (*losses)[nB][nC], int n, int from, int until) {
    const char *path = in_temp_folder("some.jsonl");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int p = 0; p < n; p++) {
        for (int i = 0; i < nC * nB; i++) {
            CKVC_AUTO_FREE char *id = ckvc_format("p%d", p);
            if (i / nB == 1 && i % nB == 0 && (p < from || p >= until)) { continue; }
            line(f, id, budgets[i % nB], tried[i / nB], losses[p][i % nB][i / nB]);
        }
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

TEST(the_least_mean_of_each_budget) {
    static const double losses[3][nB][nC] = {
        {{0.5, 0.25, 0.75}, {0.5, 1.5, 0.5}},
        {{1.5, 0.25, 0.75}, {0.5, 0.5, 0.5}},
        {{0.0, 0.00, NAN}, {2.0, 2.0, 2.0}}, /* the first budget's is not whole */
    };
    CKVC_AUTO(table_file_free_at) table_file *t = table_file_around(table_of(0.125, true), false);
    CKVC_AUTO(select_free_at) select_losses *s = NULL;
    OK(select_read(some_lines(losses, 3, 0, 3), t->table, false, &s, &err));
    assert_int_equal(s->n, nC);
    assert_int_equal(s->n_prompts, 3);
    for (int i = 0; i < nC; i++) {
        assert_int_equal(s->candidates[i].score, tried[i].score);
        assert_true(s->candidates[i].floor == tried[i].floor &&
                    s->candidates[i].mix == tried[i].mix);
    }
    const double means[nC][nB] = {{1.0, 1.0}, {0.25, 4.0 / 3}, {0.75, 1.0}};
    for (int i = 0; i < nC * nB; i++) { assert_true(s->loss[i] == means[i / nB][i % nB]); }
    assert_int_equal(s->chosen[0], 1);
    assert_int_equal(s->chosen[1], 0); /* of equal ones the first */
    /* beside the best of the others: by two prompts of the first budget, three of the second */
    assert_true(s->more[0].n == 2 && s->more[0].mean == 0.5 && s->more[0].lo == 0.5);
    assert_int_equal(s->more[1].n, 3); /* one that loses as much is not the next best */
    assert_true(fabs(s->more[1].mean - 1.0 / 3) < 1e-12 && s->more[1].lo < 0);

    select_take(s, t);
    const ckvc_table *c = t->table;
    assert_int_equal(c->score[0].kind, CKVC_SCORE_LEARNED);
    assert_int_equal(c->score[0].window, CKVC_FEATURES_1_ROWS);
    assert_int_equal(c->score[1].kind, CKVC_SCORE_WINDOW);
    assert_int_equal(c->score[1].pool, 7);
    for (int b = 0; b < nB; b++) {
        assert_true(c->c_min[b].floor == 0.125 && c->c_min[b].recent == 2);
        assert_int_equal(c->score[b].mode, CKVC_MODE_HEADS);
        assert_int_equal(c->score[b].features, CKVC_FEATURES_1);
    }
    const json_t *said = json_object_get(t->meta, "select"),
                 *chosen = json_object_get(said, "chosen");
    assert_int_equal(json_integer_value(json_object_get(said, "prompts")), 3);
    assert_int_equal(json_array_size(json_object_get(said, "candidates")), nC);
    assert_int_equal(json_integer_value(json_array_get(chosen, 0)), 1);
    assert_int_equal(json_integer_value(json_array_get(chosen, 1)), 0);
}

/* Where every line has it; a file of before goes by losses. */
TEST(kl_chooses) {
    static const double losses[2][nB][nC] = {{{0.5, 0.25, 0.75}, {0.5, 1.5, 0.5}},
                                             {{1.5, 0.25, 0.75}, {0.5, 0.5, NAN}}};
    CKVC_AUTO(table_file_free_at) table_file *t = table_file_around(table_of(0.125, true), false);
    CKVC_AUTO(select_free_at) select_losses *s = NULL;
    with_kl = true;
    OK(select_read(some_lines(losses, 2, 0, 2), t->table, false, &s, &err));
    with_kl = false;
    assert_true(s->by_kl);
    assert_int_equal(s->chosen[0], 0); /* the largest loss */
    assert_int_equal(s->chosen[1], 1); /* of the one whole prompt */
    assert_true(s->loss[0] == 3 && s->loss[1 * nB] == 3.75 && s->loss[1 * nB + 1] == 2.5);
    select_take(s, t);
    const json_t *said = json_object_get(t->meta, "select");
    assert_string_equal(json_string_value(json_object_get(said, "by")), "kl");
    const json_t *first = json_array_get(json_object_get(said, "candidates"), 0);
    assert_int_equal(json_array_size(json_object_get(first, "kl")), nB);
    assert_null(json_object_get(first, "loss"));
}

TEST(a_budget_without_whole_prompts_stays) {
    static const double losses[1][nB][nC] = {{{NAN, 0.5, 0.5}, {0.5, 0.5, 0.25}}};
    CKVC_AUTO(table_file_free_at) table_file *t = table_file_around(table_of(0.125, true), false);
    CKVC_AUTO(select_free_at) select_losses *s = NULL;
    OK(select_read(some_lines(losses, 1, 0, 1), t->table, false, &s, &err));
    assert_int_equal(s->chosen[0], nC);
    assert_true(isnan(s->loss[0]));
    select_take(s, t);
    assert_int_equal(t->table->score[0].kind, CKVC_SCORE_PAPER);
    assert_true(t->table->c_min[0].floor == 0.125 && t->table->c_min[1].floor == 0.25);
    assert_true(json_is_null(
        json_array_get(json_object_get(json_object_get(t->meta, "select"), "chosen"), 0)));
}

static void refused(const char *path, const ckvc_table *t, ckvc_status status, const char *why) {
    select_losses *s = NULL;
    SAYS(select_read(path, t, false, &s, &err), status, why);
    assert_null(s);
}

TEST(lines_that_do_not_belong) {
    static const double losses[2][nB][nC] = {0};
    ckvc_table *t = table_of(0.125, false);
    refused(some_lines(losses, 2, 0, 2), t, CKVC_E_MISMATCH,
            "learned ranking, which the table does not have");
    ckvc_table_free(t);
    t = table_of(0.125, true);
    t->score[0].mode = t->score[1].mode = CKVC_MODE_LAYERS;
    refused(some_lines(losses, 2, 0, 2), t, CKVC_E_MISMATCH,
            "was scored in mode heads, but the table recommends layers");
    t->score[0].mode = t->score[1].mode = CKVC_MODE_HEADS;
    t->budgets[1] = 0.25;
    refused(some_lines(losses, 2, 0, 2), t, CKVC_E_MISMATCH, "budget 0.5 is none of the table's");
    t->budgets[1] = 0.5;
    const char *path = in_temp_folder("short.jsonl");
    FILE *f = fopen(path, "wb");
    line(f, "p0", 8, tried[0], 0.5);
    fclose(f);
    refused(path, t, CKVC_E_DATA, "prompt \"p0\" has no line of score window, floor 0.125, mix 0");
    f = fopen(path, "wb");
    for (int b = 0; b < nB; b++) { line(f, "p0", budgets[b], tried[0], 0.5); }
    for (int b = 0; b < nB; b++) { line(f, "p1", budgets[b], tried[1], 0.5); }
    fclose(f);
    refused(path, t, CKVC_E_DATA, "none that the first prompt has");
    ckvc_table_free(t);
}

/* Of those that are left the better half stays, but two; what was dropped is not chosen. */
TEST(dropped_on_the_way) {
    static const double losses[4][nB][nC] = {{{0.5, 0.1, 0.9}, {1, 1, 0.5}},
                                             {{0.6, 0.1, 1.0}, {1, 1, 0.5}},
                                             {{0.5, 0.0, 0.9}, {1, 1, 0.5}},
                                             {{0.6, 0.0, 1.0}, {1, 1, 0.5}}};
    ckvc_table *t = table_of(0.125, true);
    CKVC_AUTO(select_free_at) select_losses *half = NULL, *s = NULL;
    OK(select_read(some_lines(losses, 2, 0, 2), t, true, &half, &err));
    assert_int_equal(half->chosen[0], 1);
    OK(select_read(some_lines(losses, 4, 0, 2), t, true, &s, &err));
    assert_int_equal(s->n_prompts, 4);
    assert_true(s->chosen[0] == 0 && s->chosen[1] == 2);
    assert_true(isnan(s->loss[1 * nB]) && fabs(s->loss[0] - 0.55) < 1e-12);
    assert_true(s->lost[1 * nB] && !s->lost[2 * nB] && !s->lost[0]); /* two were left */
    /* the worse half of three, of which two are equal: the later one */
    assert_true(!s->lost[0 * nB + 1] && s->lost[1 * nB + 1] && !s->lost[2 * nB + 1]);
    double mix[nB];
    assert_true(select_mixes(s, mix) && mix[0] == 0 && mix[1] == 0.5);
    json_auto_t *said = select_json(s);
    const json_t *other = json_array_get(json_object_get(said, "candidates"), 1);
    assert_true(json_is_null(json_array_get(json_object_get(other, "loss"), 0)));
    assert_true(json_is_real(json_array_get(json_object_get(other, "loss"), 1)));
    /* it does not come back; and by hand nothing is dropped, or there twice */
    select_losses *none = NULL;
    SAYS(select_read(some_lines(losses, 4, 2, 4), t, true, &none, &err), CKVC_E_DATA,
         "has no line of score learned");
    refused(some_lines(losses, 4, 0, 2), t, CKVC_E_DATA,
            "prompt \"p2\" has no line of score learned");
    const char *path = some_lines(losses, 1, 0, 1);
    FILE *f = fopen(path, "ab");
    other_table = true;
    line(f, "p0", budgets[0], tried[0], 0.25);
    other_table = false;
    fclose(f);
    refused(path, t, CKVC_E_DATA, "is there twice");
    ckvc_table_free(t);
}

/* Budgets 0, 2 and 3 are three ways to spend the same bytes, and budget 1 is alone. Of the five
 * candidates that are left of the three, three stay; the best budget alone keeps its choice. */
TEST(ways_to_spend_the_same_bytes) {
    static const double share[4] = {0.1, 0.25, 0.1, 0.1};
    double loss[2][4] = {{0.5, 0.9, 0.3, NAN}, {0.2, 0.8, 0.2, 0.4}};
    bool lost[8] = {false};
    size_t chosen[4] = {1, 1, 1, 1};
    rank_interval more[4] = {{.n = 3}, {.n = 3}, {.n = 3}, {.n = 3}};
    select_losses s = {
        .n_budgets = 4, .n = 2, .loss = loss[0], .lost = lost, .chosen = chosen, .more = more};
    select_across(&s, share);
    static const bool want[8] = {true, false, false, true, false, false, false, true};
    assert_memory_equal(lost, want, sizeof want);
    assert_true(chosen[0] == 1 && chosen[1] == 1 && chosen[2] == 2 && chosen[3] == 2);
    assert_true(more[0].n == 3 && more[1].n == 3 && more[2].n == 0 && more[3].n == 0);
    loss[0][0] = loss[1][0] = NAN; /* all of a budget were dropped */
    select_across(&s, share);
    assert_true(chosen[0] == 2 && chosen[1] == 1 && chosen[2] == 1 && chosen[3] == 2);
}

/* Candidates differ in their floor; the better half of five are three, and of seven four. */
TEST(the_better_half_stays) {
    static const double losses[] = {0.5, 0.1, 0.7, 0.2, 0.2, 0.6, 0.05};
    static const bool of_five[] = {true, false, true, false, false},
                      of_seven[] = {true, false, true, false, false, true, false};
    ckvc_table *t = table_of(0.125, true);
    for (int n = 5; n <= 7; n += 2) {
        CKVC_AUTO(select_free_at) select_losses *s = NULL;
        const char *path = in_temp_folder("halves.jsonl");
        FILE *f = fopen(path, "wb");
        for (int i = 0; i < n * nB; i++) {
            const select_candidate c = {CKVC_SCORE_LEARNED, 0.125 * (i / nB), 0, 0};
            line(f, "p", budgets[i % nB], c, i % nB ? 1 - losses[i / nB] : losses[i / nB]);
        }
        assert_int_equal(fclose(f), 0);
        OK(select_read(path, t, true, &s, &err));
        for (int i = 0; i < n; i++) {
            assert_int_equal(s->lost[i * nB], (n == 5 ? of_five : of_seven)[i]);
        }
        assert_true(s->lost[1 * nB + 1] && !s->lost[2 * nB + 1]); /* each budget by itself */
    }
    ckvc_table_free(t);
}

TEST(candidates_begin_as_compiled) {
    select_candidate c[SELECT_MAX];
    assert_int_equal(select_candidates(1, false, false, CKVC_SCORE_LEARNED, 0.0625, 0.2, c), 6);
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_LEARNED, 0.5, 0.2, c), 4 + 4);
    assert_true(c[0].floor == 0.5 && c[1].floor == 1 && c[2].floor == 0.5 && c[7].mix == 1);
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_LEARNED, 0.0625, 0.2, c), 14);
    assert_true(c[6].score == CKVC_SCORE_LEARNED && c[6].floor == 0.0625 && c[6].mix == 0.25);
    assert_true(c[13].score == CKVC_SCORE_LEARNED && c[13].floor == 0.4 && c[13].mix == 1);
    assert_true(c[0].score == CKVC_SCORE_WINDOW && c[0].floor == 0.4);
    assert_true(c[1].score == CKVC_SCORE_WINDOW && c[1].floor == 1);
    assert_true(c[2].score == CKVC_SCORE_LEARNED && c[2].floor == 0.0625);
    assert_true(c[4].score == CKVC_SCORE_LEARNED && c[4].floor == 0.4);
    assert_true(c[5].score == CKVC_SCORE_PAPER && c[5].floor == 0.4);
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_WINDOW, 0.0625, 0.3, c), 12);
    assert_true(c[1].floor == 0.2 && c[2].floor == 0.3 && c[3].floor == 0.4);
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_WINDOW, 0.0625, 0.15, c), 12);
    assert_true(c[1].floor == 0.15 && c[2].floor == 0.2 && c[3].floor == 0.4);
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_WINDOW, 0.0625, 0.01, c), 11);
    /* no more to try, and no learned ranking */
    assert_int_equal(select_candidates(0, true, false, CKVC_SCORE_LEARNED, 0.4, 0.2, c), 3 + 4);
    assert_true(c[6].score == CKVC_SCORE_WINDOW && c[6].mix == 1);
    assert_int_equal(select_candidates(0, true, false, CKVC_SCORE_PAPER, 0.4, 0, c), 1 + 4);
    assert_true(c[0].score == CKVC_SCORE_PAPER && c[0].floor == 0.4);
    /* without attention rows; every head as many */
    assert_int_equal(select_candidates(2, true, false, CKVC_SCORE_LEARNED, 0.0625, 0.2, c), 3 + 8);
    for (int i = 0; i < 11; i++) { assert_int_equal(c[i].score, CKVC_SCORE_LEARNED); }
    assert_int_equal(select_candidates(1, true, false, CKVC_SCORE_LEARNED, 0.0625, 1.0, c), 3);
    for (int i = 0; i < 3; i++) { assert_true(c[i].floor == 1.0 && c[i].mix == 0); }
    assert_int_equal(select_candidates(2, true, false, CKVC_SCORE_LEARNED, 0.0625, 1.0, c), 1);
    assert_true(c[0].score == CKVC_SCORE_LEARNED && c[0].floor == 1.0);
    /* with a bank, each floor of the own ranking as it is and under each ridge, and shares of other
     * demand under the first floor with and without the bank's attention */
    assert_int_equal(select_candidates(1, true, true, CKVC_SCORE_LEARNED, 0.0625, 0.2, c), 19);
    assert_true(c[2].ridge == 0 && c[3].ridge == 0.5 && c[4].ridge == 0.1 && c[5].ridge == 0.5);
    assert_true(c[5].floor == 0.0625 && c[6].ridge == 0 && c[6].floor == 0.2 && c[13].floor == 0.4);
    assert_true(c[14].score == CKVC_SCORE_PAPER && c[0].ridge == 0 && c[14].ridge == 0);
    assert_true(c[15].mix == 0.25 && c[17].mix == 0.5 && c[18].floor == 0.0625);
    for (int i = 15; i < 19; i++) { assert_true(c[i].ridge == 0.1); }
    for (int i = 0; i < 19; i++) {
        const bool without = i == 3 || i == 7 || i == 11 || i == 16 || i == 18;
        assert_int_equal(c[i].score == CKVC_SCORE_BANK, c[i].ridge > 0 && !without);
    }
    assert_true(c[3].score == CKVC_SCORE_LEARNED && c[16].score == CKVC_SCORE_LEARNED);
    /* a ranking that was asked for has no bank in it */
    assert_int_equal(select_candidates(1, true, true, CKVC_SCORE_WINDOW, 0.0625, 0.2, c), 9 + 2);
    assert_true(c[10].score == CKVC_SCORE_WINDOW && c[10].mix == 0.5 && c[10].ridge == 0.1);
    assert_int_equal(select_candidates(1, true, true, CKVC_SCORE_LEARNED, 0.0625, 0.3, c), 23);
}

TEST(the_better_half_of_the_candidates_stays) {
    const size_t of[] = {0, 1, 2, 3, 4, 5, 19}, stay[] = {0, 1, 2, 2, 2, 3, 10};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(select_better_half(of[i]), stay[i]);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
