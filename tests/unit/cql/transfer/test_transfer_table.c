/* Shares in a table that is mapped to another shape: by depth and place, again of mean 1. */
#include "cql/transfer/transfer_table.h"
#include "tests/unit/unit.h"

enum { L = 3, G = 2, NB = 2 };

static table_file *source_table(bool with_layers) {
    ckvc_table *c = ckvc_table_create(L, G, 1, 1, NB, 1, 1);
    c->window = 16;
    c->op = CKVC_OPERATOR_NO_THRESHOLD;
    c->budgets[0] = 0.25;
    c->budgets[1] = 64;
    c->head_grid[0] = 1.0;
    c->gate_grid[0] = 0.9;
    for (size_t i = 0; i < L * G * NB; i++) { c->weight[i] = 1.0f; }
    for (size_t i = 0; i < L * NB; i++) { c->tau[i] = 0.9f; }
    assert_int_equal(ckvc_table_add_shares(c, with_layers), 0);
    for (size_t i = 0; i < L * G; i++) {
        c->share[i * NB] = (double)(i + 1) / 3.5;     /* 1 ... 6 over their mean */
        c->share[i * NB + 1] = (double)(6 - i) / 3.5; /* and down */
    }
    for (size_t l = 0; with_layers && l < L; l++) {
        c->layer_share[l * NB] = 0.5 * (double)(l + 1);
        c->layer_share[l * NB + 1] = 1.0;
    }
    for (uint32_t b = 0; b < NB; b++) {
        c->c_min[b] = (ckvc_c_min){0.1 * (b + 1), 4 + b};
        c->score[b] = (ckvc_score){
            .kind = CKVC_SCORE_WINDOW, .window = 32, .pool = 7, .norm = 1, .mode = CKVC_MODE_HEADS};
    }
    return table_file_around(c, false);
}

static table_file *mapped_to(const table_file *from, uint32_t layers, uint32_t heads) {
    table_file *to = NULL;
    const transfer_target target = {layers, heads, heads, NULL, NULL};
    const transfer_options o = {.heads = TRANSFER_INDEX};
    OK(transfer_table(from, "source.ckvt", &target, &o, &to, &err));
    return to;
}

static void near(double got, double want) { assert_float_equal(got, want, 1e-14); }

TEST(shares_by_depth_and_place) {
    CKVC_AUTO(table_file_free_at) table_file *from = source_table(true);
    CKVC_AUTO(table_file_free_at) table_file *to = mapped_to(from, 2, 3);
    const ckvc_table *t = to->table;
    /* layers 0 and 2; heads 0, the mean of both, 1: 1 1.5 2, 5 5.5 6, of mean 3.5 */
    const double want[6] = {1, 1.5, 2, 5, 5.5, 6};
    for (size_t i = 0; i < 6; i++) {
        near(t->share[i * NB], want[i] / 3.5);
        near(t->share[i * NB + 1], want[5 - i] / 3.5);
    }
    near(t->layer_share[0], 0.5); /* 0.5 and 1.5, of mean 1 */
    near(t->layer_share[NB], 1.5);
    assert_null(t->length_share);
    assert_int_equal(ckvc_table_add_lengths(from->table), 0);
    for (size_t l = 0; l < L * NB; l++) { from->table->length_share[l] = (double)(l / NB); }
    CKVC_AUTO(table_file_free_at) table_file *lengths = mapped_to(from, 2, 3);
    near(lengths->table->length_share[0], 0); /* 0 and 2, of mean 1 */
    near(lengths->table->length_share[NB], 2);
    assert_memory_equal(t->c_min, from->table->c_min, NB * sizeof *t->c_min);
    assert_memory_equal(t->score, from->table->score, NB * sizeof *t->score);
    assert_int_equal(t->op, CKVC_OPERATOR_NO_THRESHOLD);
    assert_null(to->share_interval);
}

/* Depth that leaves out a layer moves the mean: it is put right. */
TEST(means_are_one_again) {
    CKVC_AUTO(table_file_free_at) table_file *from = source_table(true);
    for (size_t l = 0; l < L; l++) {
        from->table->layer_share[l * NB] = l == 1 ? 2.0 : 0.5;
        from->table->layer_share[l * NB + 1] = l == 1 ? 3.0 : 0.0;
    }
    CKVC_AUTO(table_file_free_at) table_file *to = mapped_to(from, 2, G);
    CKVC_AUTO(table_file_free_at) table_file *deep = mapped_to(from, 5, G);
    const ckvc_table *t = to->table;
    near(t->layer_share[0], 1.0);
    near(t->layer_share[NB], 1.0);
    near(t->layer_share[1], 1.0); /* nothing is left but zeros: equal shares */
    near(t->layer_share[NB + 1], 1.0);
    const double want[5] = {0.5, 1.25, 2.0, 1.25, 0.5}; /* of mean 1.1 */
    for (size_t l = 0; l < 5; l++) { near(deep->table->layer_share[l * NB], want[l] / 1.1); }
}

TEST(layers_only_where_they_are) {
    CKVC_AUTO(table_file_free_at) table_file *from = source_table(false);
    CKVC_AUTO(table_file_free_at) table_file *to = mapped_to(from, L, G);
    assert_null(to->table->layer_share);
    for (size_t i = 0; i < L * G * NB; i++) { near(to->table->share[i], from->table->share[i]); }
}

/* Its features are coordinates of the other model's keys. */
TEST(a_learned_score_stays_behind) {
    CKVC_AUTO(table_file_free_at) table_file *from = source_table(false);
    ckvc_table *c = from->table;
    assert_int_equal(ckvc_table_add_learned(c, ckvc_features_count(CKVC_FEATURES_1, 2)), 0);
    const ckvc_score window = c->score[0];
    c->score[0] = (ckvc_score){CKVC_SCORE_LEARNED, CKVC_FEATURES_1_ROWS, 0, 0,
                               CKVC_FEATURES_1,    CKVC_MODE_HEADS};
    c->score[1].features = CKVC_FEATURES_1;
    c->score[1].pool = 5;
    CKVC_AUTO(table_file_free_at) table_file *to = mapped_to(from, L, G);
    assert_null(to->table->theta);
    assert_memory_equal(&to->table->score[0], &window, sizeof window);
    assert_int_equal(to->table->score[1].pool, 5);
    assert_int_equal(ckvc_table_check(to->table, NULL, 0), 0);
}

RUN_TESTS(NULL, NULL)
