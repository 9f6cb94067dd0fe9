/* Reads a table and prints what it keeps of a made-up prompt of 64 tokens: of a table with budgets
 * for heads head 0 of layer 0, of the paper's layer 0. Build and run:
 *
 *   cc keep_set.c $(pkg-config --cflags --libs ckvc_policy) -o keep_set && ./keep_set tables.ckvt
 */
#include <ckvc_policy.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 64 };

static void print_set(const uint32_t *kept, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) { printf(" %u", kept[i]); }
    printf("\n");
}

static void layer_set(const ckvc_table *t) {
    /* From your prefill: window attention mass (mean 1) and, per KV head, the value norms over
     * their mean. */
    float alpha[T], *rho = malloc((size_t)t->n_heads * T * sizeof *rho);
    double *weight = malloc(t->n_heads * sizeof *weight), u[T];
    for (uint32_t i = 0; i < T; i++) { alpha[i] = i % 4 == 0 ? 2.5f : 0.5f; }
    for (uint32_t i = 0; i < t->n_heads * T; i++) { rho[i] = i % 3 == 0 ? 1.5f : 0.75f; }

    /* The prompt's risk bins choose the threshold. */
    uint32_t e = ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1, 5.0);
    uint32_t p = ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, 12.0), kept[T], scratch[T],
             n_candidates;
    double tau = ckvc_table_tau(t, 0, e, p, 0);
    for (uint32_t g = 0; g < t->n_heads; g++) { weight[g] = ckvc_table_weight(t, 0, g, 0); }
    ckvc_utility(T, t->n_heads, alpha, rho, weight, u);
    uint32_t n = ckvc_retain(T, u, (ckvc_rule){tau, ckvc_budget_tokens(t->budgets[0], T), 0}, kept,
                             &n_candidates, scratch);
    printf("layer 0 keeps %u of %u candidates at tau %.2f:", n, n_candidates, tau);
    print_set(kept, n);
    free(rho);
    free(weight);
}

/* The learned score of a head, from what the prefill left behind: made up here, with one query head
 * a KV head and attention that is spread evenly. */
static void learned_score(const ckvc_table *t, uint32_t head, const double *norm, double *s) {
    const uint32_t version = t->score[0].features, D = t->n_features,
                   head_dim = D - ckvc_features_count(version, 0);
    static float attention[T][T];
    double alpha[T], of_layer[T] = {0}, scratch[2 * T];
    double *f = malloc((size_t)T * D * sizeof *f);
    float *cache = malloc((size_t)T * head_dim * sizeof *cache);
    for (uint32_t i = 0; i < T * head_dim; i++) { cache[i] = i % 5 ? 0.25f : -1.0f; }
    for (uint32_t row = 0; row < T; row++) {
        for (uint32_t i = 0; i <= row; i++) {
            attention[row][i] = 1.0f / (float)(row + 1);
            of_layer[i] += attention[row][i] / T;
        }
        alpha[row] = 1.0;
    }
    const ckvc_head_view v = {T, head_dim, 1, T, attention[0], cache, cache, NULL};
    ckvc_features(version, &v, f, scratch);
    if (ckvc_features_rows(version)) {
        ckvc_features_late(T, of_layer, alpha, D, f + CKVC_FEATURES_LATE);
    }
    ckvc_linear_form(T, D, f, t->theta + (size_t)head * D, s);
    ckvc_score_learned(T, t->mass[head], norm, s);
    free(f);
    free(cache);
}

static int head_set(const ckvc_table *t) {
    const ckvc_score score = ckvc_table_score(t, 0);
    const uint32_t budget = ckvc_budget_tokens(t->budgets[0], T);
    uint32_t *c = malloc((size_t)t->n_layers * t->n_heads * sizeof *c), least, kept[T], scratch[T];
    if (ckvc_table_capacities(t, 0, CKVC_MODE_HEADS, budget, T, c, &least)) {
        fprintf(stderr, "%u entries a head are too few: at least %u\n", budget, least);
        free(c);
        return 1;
    }
    double attention[T], norm[T], s[T];
    for (uint32_t i = 0; i < T; i++) {
        attention[i] = i % 4 == 0 ? 0.08 : 0.01;
        norm[i] = i % 3 == 0 ? 1.5 : 0.75;
    }
    if (score.kind == CKVC_SCORE_LEARNED) {
        learned_score(t, 0, norm, s);
    } else {
        ckvc_score_window(T, attention, score.pool, score.norm ? norm : NULL, s);
    }
    uint32_t n = ckvc_retain_head(T, s, (uint32_t)t->c_min[0].recent, c[0], kept, scratch);
    printf("head 0 of layer 0 keeps %u, by the score %s:", n,
           ckvc_score_name((ckvc_score_kind)score.kind));
    print_set(kept, n);
    free(c);
    return 0;
}

int main(int argc, char **argv) {
    ckvc_table *t;
    char message[256];
    if (argc != 2 || ckvc_table_read(argv[1], &t, message, sizeof message)) {
        fprintf(stderr, "%s\n", argc == 2 ? message : "usage: keep_set T.ckvt");
        return 1;
    }
    const ckvc_score score = ckvc_table_score(t, 0);
    int rc = 0;
    if (score.mode == CKVC_MODE_HEADS && score.kind != CKVC_SCORE_PAPER) {
        rc = head_set(t);
    } else if (!t->share && t->op == CKVC_OPERATOR_PAPER) {
        layer_set(t);
    } else {
        fprintf(stderr, "mode %s, score %s, operator %s: not in this example\n",
                ckvc_mode_name((ckvc_mode)score.mode), ckvc_score_name((ckvc_score_kind)score.kind),
                ckvc_operator_name(t->op));
        rc = 1;
    }
    ckvc_table_free(t);
    return rc;
}
