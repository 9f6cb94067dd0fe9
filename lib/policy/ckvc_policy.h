/* ckvc_policy: what an inference engine embeds to use a compiled KV-cache eviction table.
 *
 * Reads the numeric sections of a .ckvt table (formats/table/table.md), finds the risk bin of a
 * prompt, computes the utility of every prompt token and chooses the tokens that one layer keeps
 * (method.md sections 1, 2 and 8). Depends on libc and libm alone. Functions are pure but for
 * reading the file; a ckvc_table may be used by any number of threads at once.
 *
 *   L layers · G heads of the table's head axis (KV heads) · T prompt tokens · E, P entropy and
 * perplexity bins
 */
#ifndef CKVC_POLICY_H
#define CKVC_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the format: L, H, G, E, P, nB; actions of a grid; bytes of a file. */
#define CKVC_TABLE_MAX_EXTENT  65535u
#define CKVC_TABLE_MAX_ACTIONS 4096u
#define CKVC_TABLE_MAX_BYTES   ((uint64_t)1 << 31)

/* Whose kept sets a table was fitted for: the paper's operator, or one of the probes that leave a
 * part of it out (method.md section 7). What a probe is worth is a question for `ckvc score`; a
 * table that is deployed has the paper's. */
typedef enum ckvc_operator {
    CKVC_OPERATOR_PAPER,
    CKVC_OPERATOR_NO_UTILITY, /* u[t] = alpha[t] * max_g weight[g]: the value norms are left out */
    CKVC_OPERATOR_NO_THRESHOLD, /* no candidates: the B largest by u, whatever the threshold */
    CKVC_OPERATOR_MEAN_POOL,    /* the mean over heads in place of the maximum */
    CKVC_OPERATOR_COUNT
} ckvc_operator;
const char *
ckvc_operator_name(ckvc_operator op); /* "paper", "no-utility", "no-threshold", "mean-pool" */

typedef struct ckvc_table {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_query_heads;              /* H, a multiple of G; with head_axis 1 equal to n_heads */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P */
    uint32_t n_budgets;                  /* nB */
    uint32_t window;    /* W, the observation window that alpha must be computed with */
    uint32_t head_axis; /* 0 KV heads, 1 query heads */
    uint32_t n_head_actions, n_gate_actions; /* sizes of the grids */
    ckvc_operator op;                        /* paper, unless the table is a probe's */
    double *budgets;                         /* [nB] >= 1 tokens, < 1 a share of T */
    double *head_grid, *gate_grid;           /* action values, ascending */
    double *edges_entropy, *edges_ppl;       /* [E-1], [P-1] inner edges, ascending */
    float *weight;                           /* [L][G][nB] W_head */
    float *tau;                              /* [L][E][P][nB] T_gate */
} ckvc_table;

/* Reads SHAPE, BUDGET, GRID*, WEIGHT, TAU and EDGE* of a .ckvt file. Checks the header's and
 * directory's CRC-32 and each of those sections' CRC-32 (the SHA-256 sums are `ckvc verify`'s
 * business). Returns 0 and a table to free with ckvc_table_free, or -1 with one line in message
 * (message_size bytes; may be NULL, 0). A table of another operator than the paper's is refused:
 * ckvc_utility and ckvc_retain would run it wrongly. */
int ckvc_table_read(const char *path, ckvc_table **out, char *message, size_t message_size);
/* The same from bytes in memory; `name` stands for the file in messages. */
int ckvc_table_parse(const char *name, const void *bytes, size_t size, ckvc_table **out,
                     char *message, size_t message_size);
/* ckvc_table_parse for callers that heed table->op: utilities from ckvc_operator_utility,
 * thresholds from ckvc_table_tau. */
int ckvc_table_parse_any(const char *name, const void *bytes, size_t size, ckvc_table **out,
                         char *message, size_t message_size);
/* A table of the given shape with all arrays allocated: grids, weights and thresholds are the
 * caller's to fill, and so are window (0), head_axis (0), n_query_heads (n_heads) and op (the
 * paper's). NULL when memory is out or the shape is over the format's limits. */
ckvc_table *ckvc_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                              uint32_t n_ppl_bins, uint32_t n_budgets, uint32_t n_head_actions,
                              uint32_t n_gate_actions);
/* A table of the same contents. NULL when memory is out. */
ckvc_table *ckvc_table_clone(const ckvc_table *t);
void ckvc_table_free(ckvc_table *table); /* NULL is fine */
/* What every table holds: grids ascend, edges do not descend, weights and thresholds are float32 of
 * a grid value, budgets make sense. Returns 0, or -1 with the first breach in message, which begins
 * with the section's name. A table that was read holds it. */
int ckvc_table_check(const ckvc_table *table, char *message, size_t message_size);

/* Flat index of [l][g][b] in weight, of [l][e][p][b] in tau. */
size_t ckvc_weight_index(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
size_t ckvc_tau_index(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);
/* An entry as the operator takes it: the double of its grid, not the float32 of the file. Of a
 * no-threshold table every threshold is -infinity. The table must hold ckvc_table_check's
 * invariants, as one that was read does. */
double ckvc_table_weight(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
double ckvc_table_tau(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);

/* The bin of a value: the number of inner edges <= value (method.md section 8). A value outside
 * falls in the end bin. */
uint32_t ckvc_bin_index(const double *edges, uint32_t n_edges, double value);
/* B of a budget entry for a prompt of T tokens: the entry itself from 1 up, floor(share * T) below.
 */
uint32_t ckvc_budget_tokens(double budget, uint32_t n_tokens);
/* Which of a table's budgets [n] (its blocks) serves `budget` (tokens from 1 up, a share of T
 * below) for a prompt of T = n_tokens tokens: that very budget when it is there; else the nearest
 * by ratio, the least |log(b / B)|, shares counted as share * T; of two equally near the lower. The
 * caller still clamps to the budget that was asked for: ckvc_budget_tokens(budget, T) in
 * ckvc_retain. */
uint32_t ckvc_nearest_budget(const double *budgets, uint32_t n, double budget, uint32_t n_tokens);
/* The index of the grid value that rounds to `value` as float32; -1 when there is none. The
 * operator takes grid[index], the double: that is how a table's float32 becomes the number that
 * every machine multiplies with. */
int ckvc_grid_index(const double *grid, uint32_t n, float value);

/* What alpha a utility is computed from. Method.md section 1: alpha[t] = (T/W) * mass[t], mass[t] =
 * sum over window rows of the mean attention over all layers and heads. `visible` (section 12):
 * alpha[t] divided by the share of window rows that can see t, then normalised to mean 1. In place
 * on n values. */
void ckvc_alpha_visible(double *alpha, uint32_t n_tokens, uint32_t window);

/* u[t] = max_g (alpha[t] * rho[g][t]) * weight[g], in double and in this order (paper, eq. utility
 * and max pooling). alpha [T], rho [G][T] float32; weight [G] the grid's doubles; u [T] is written.
 */
void ckvc_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho,
                  const double *weight, double *u);
/* The same under another operator (table->op), in double:
 *   no-utility   u[t] = max_g alpha[t] * weight[g]; rho is not read and may be NULL
 *   mean-pool    u[t] = (x_0 + x_1 + ... + x_(G-1)) / G with x_g = (alpha[t] * rho[g][t]) *
 * weight[g], added in this order With no-threshold the utility is the paper's: only the threshold
 * goes (ckvc_table_tau). */
void ckvc_operator_utility(ckvc_operator op, uint32_t n_tokens, uint32_t n_heads,
                           const float *alpha, const float *rho, const double *weight, double *u);

/* By what a layer's tokens are kept: those with u[t] >= tau are candidates, and so are the last
 * keep_window positions, which come first (0: the paper's operator); at most `budget` stay. */
typedef struct ckvc_rule {
    double tau;
    uint32_t budget, keep_window;
} ckvc_rule;
/* The retention operator on one layer: if the candidates are no more than the budget they are kept,
 * else the `budget` largest by u, of equal ones the later position. kept must hold min(budget, T)
 * entries and receives positions in ascending order. scratch holds T entries. Returns the number
 * kept; *n_candidates receives the count before the clamp. O(T) expected. */
uint32_t ckvc_retain(uint32_t n_tokens, const double *u, ckvc_rule rule, uint32_t *kept,
                     uint32_t *n_candidates, uint32_t *scratch);

#ifdef __cplusplus
}
#endif
#endif
