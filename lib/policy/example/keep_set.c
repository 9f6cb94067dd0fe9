/* Reads a table and prints what layer 0 keeps of a made-up prompt of 32 tokens. Build and run:
 *
 *   cc keep_set.c $(pkg-config --cflags --libs ckvc_policy) -o keep_set && ./keep_set tables.ckvt
 */
#include <ckvc_policy.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 32 };

int main(int argc, char **argv) {
    ckvc_table *t;
    char message[256];
    if (argc != 2 || ckvc_table_read(argv[1], &t, message, sizeof message)) {
        fprintf(stderr, "%s\n", argc == 2 ? message : "usage: keep_set T.ckvt");
        return 1;
    }
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
    for (uint32_t i = 0; i < n; i++) { printf(" %u", kept[i]); }
    printf("\n");
    free(rho);
    free(weight);
    ckvc_table_free(t);
    return 0;
}
