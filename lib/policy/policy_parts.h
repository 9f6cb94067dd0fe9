/* The pieces that lib/policy is made of, for the rest of ckvc: calibration, fitting and evaluation
 * take tables apart, and try sets that no table recommends. An engine needs none of this; its
 * header is ckvc_policy.h. paper.md has the formulas, in sections 1, 2 and 8.
 *
 *   L layers · G heads of the table's head axis (KV heads) · T prompt tokens · E, P entropy and
 * perplexity bins · nB budgets */
#pragma once

#include "lib/policy/ckvc_policy.h"

/* ---- tables ---- */

/* Limits of the format: L, H, G, E, P, nB; actions of a grid; bytes of a file. */
#define CKVC_TABLE_MAX_EXTENT  65535u
#define CKVC_TABLE_MAX_ACTIONS 4096u
#define CKVC_TABLE_MAX_BYTES   ((uint64_t)1 << 31)
#define CKVC_TABLE_SHAPE       10 /* numbers of SHAPE; 8 where the last two are 0 */

const char *ckvc_operator_name(ckvc_operator op);  /* "paper", "no-utility", "no-threshold", ... */
const char *ckvc_mode_name(ckvc_mode mode);        /* "shared", "heads", "layers" */
const char *ckvc_score_name(ckvc_score_kind kind); /* "paper", "window", "learned" */

/* A kind's score unless a table says otherwise, mode `shared`: the window's has 32 rows, a maximum
 * over 7 positions and the value norm. features: version of the table's theta, or 0. */
ckvc_score ckvc_default_score(ckvc_score_kind kind, uint32_t features);

/* A table of the given shape with all arrays allocated: grids, weights and thresholds are the
 * caller's to fill, and so are window (0), head_axis (0), visible and keep_window (0),
 * n_query_heads (n_heads) and op (the paper's). NULL when memory is out or the shape is over the
 * format's limits. */
ckvc_table *ckvc_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                              uint32_t n_ppl_bins, uint32_t n_budgets, uint32_t n_head_actions,
                              uint32_t n_gate_actions);
/* Gives a table without shares the arrays for them, zeroed; layer_share only where asked. -1: out
 * of memory, the table is as it was. */
int ckvc_table_add_shares(ckvc_table *t, int with_layers);
/* Gives a table with shares the arrays for a learned score, zeroed, in place of those it had; its
 * version goes into `features` of every block. -1: out of memory, the table is as it was. */
int ckvc_table_add_learned(ckvc_table *t, uint32_t n_features);
/* Gives a table without shares all that `from`, of the same L, G and nB, has of them: floors and
 * scores, a learned one too. -1: out of memory; the table is as it was, or has zeroed shares. */
int ckvc_table_copy_shares(ckvc_table *t, const ckvc_table *from);
/* A table of the same contents. NULL when memory is out. */
ckvc_table *ckvc_table_clone(const ckvc_table *t);

/* What every table holds: grids ascend, edges do not descend, weights and thresholds are float32 of
 * a grid value, budgets make sense; shares are finite, not negative and not all 0 in a block,
 * floors fit their budgets, scores, modes and features are known, a learned score is finite.
 * Returns 0, or -1 with the first breach in message, which begins with the section's name. A table
 * that was read holds it. */
int ckvc_table_check(const ckvc_table *table, char *message, size_t message_size);

/* Flat index of [l][g][b] in weight, of [l][e][p][b] in tau. */
size_t ckvc_weight_index(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
size_t ckvc_tau_index(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);
/* An entry as the operator takes it: the double of its grid, not the float32 of the file. Of a
 * no-threshold table every threshold is -infinity. The table must hold ckvc_table_check's
 * invariants, as one that was read does. */
double ckvc_table_weight(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
double ckvc_table_tau(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);

/* The bin of a value: the number of inner edges <= value (paper.md section 8). A value outside
 * falls in the end bin. */
uint32_t ckvc_bin_index(const double *edges, uint32_t n_edges, double value);
/* B of a budget entry for a prompt of T tokens: the entry from 1 up, floor(share * T) below. */
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

/* What alpha a utility is computed from. Paper.md, section 1: alpha[t] = (T/W) * mass[t], where
 * mass[t] is the sum over window rows of the mean attention over all layers and heads. `visible`
 * (paper.md, section 12): alpha[t] divided by the share of window rows that can see t, then
 * normalised to mean 1. In place on n values. */
void ckvc_alpha_visible(double *alpha, uint32_t n_tokens, uint32_t window);

/* u[t] = max_g (alpha[t] * rho[g][t]) * weight[g], in double and in this order (paper, eq. utility
 * and max pooling). alpha [T], rho [G][T] float32; weight [G] the grid's doubles; u [T]: out. */
void ckvc_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho,
                  const double *weight, double *u);
/* The same under another operator (table->op), in double:
 *   no-utility   u[t] = max_g alpha[t] * weight[g]; rho is not read and may be NULL
 *   mean-pool    u[t] = (x_0 + x_1 + ... + x_(G-1)) / G, added in this order,
 *                with x_g = (alpha[t] * rho[g][t]) * weight[g]
 *
 * With no-threshold the utility is the paper's: only the threshold goes (ckvc_table_tau). */
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

/* ---- budgets for heads and layers ---- */

/* The least that a set holds, B = budget the mean: min(max(recent + 1, floor(f * B)), T). */
uint32_t ckvc_head_floor(double f, uint32_t recent, uint32_t budget, uint32_t n_tokens);
/* How many positions each of n units keeps (heads: n = L * G; layers: n = L), from share[i *
 * stride] (finite, >= 0; their scale does not matter). With N = n * budget, T = n_tokens, m = least
 * <= T: unit i gets floor(x_i), x_i = clamp(share_i * (budget * z), m, T), z the largest that 64
 * halvings find at which all together hold no more than N; what is left of N goes one each to units
 * below T with a positive share, by the largest fraction of x_i, then the lower i. All T where
 * budget >= T. The same numbers on every machine. Their sum is N wherever units with a positive
 * share can hold it (and shares are not so far apart, 10^15 and more, that 64 halvings do not tell
 * z). Returns 0; -1 where m > budget: c is not written. */
int ckvc_capacities(const double *share, uint32_t n, uint32_t stride, uint32_t budget,
                    uint32_t n_tokens, uint32_t least, uint32_t *c);
/* The same from block b of a table with shares, its floor included: c [L][G] in mode `heads`, [L]
 * in `layers` (which needs layer_share). *least receives the floor; after -1 that is the least
 * budget that fits. */
int ckvc_table_capacities(const ckvc_table *t, uint32_t b, ckvc_mode mode, uint32_t budget,
                          uint32_t n_tokens, uint32_t *c, uint32_t *least);

/* Scores of one head, log s[t] in double; 0 gives -infinity. In mode `layers` a layer's score is
 * the maximum over its heads'.
 *
 *   paper    s[t] = (alpha[t] * rho[t]) * weight
 *   window   s[t] = max over |j - t| <= pool/2, inside the prompt, of attention[j], times norm[t]
 *            if not NULL
 *
 * attention [T]: the mean over the last w rows and the head's query heads; norm: of the values;
 * pool is odd. */
void ckvc_score_paper(uint32_t n_tokens, const float *alpha, const float *rho, double weight,
                      double *s);
void ckvc_score_window(uint32_t n_tokens, const double *attention, uint32_t pool,
                       const double *norm, double *s);
/* The learned score of a head: s[t] = mass * softmax_t(theta . f[t]) * norm[t], norm the values'.
 * Its features are computed in two steps, as the second needs all layers of the prompt. */

/* What one KV head of a layer offers to it, of a prompt of T = n_tokens. */
typedef struct ckvc_head_view {
    uint32_t n_tokens, head_dim;
    uint32_t group, n_rows;     /* query heads; last rows: ckvc_features_rows, or all there are */
    const float *attention;     /* [group][n_rows][T], each row's softmax over what it sees */
    const float *keys, *values; /* [T][head_dim] as cached */
    const double *inv_freq;     /* [head_dim/2] that keys were rotated with; NULL: they were not */
} ckvc_head_view;
/* Version 1 has all features; version 2 those that read no attention: a version is the columns of
 * version 1 from ckvc_features_first on. */
#define CKVC_FEATURES_1      1u
#define CKVC_FEATURES_2      2u
#define CKVC_FEATURES_1_ROWS 64u /* last rows of the attention that version 1 reads */
/* Columns of version 1: the default window score, less its norm; the two of ckvc_features_late;
 * the first of the token's own, with which version 2 begins; the key's, and behind them the 1. */
#define CKVC_FEATURES_WINDOW 5u
#define CKVC_FEATURES_LATE   10u
#define CKVC_FEATURES_OWN    13u
#define CKVC_FEATURES_1_KEY  23u
/* Farther positions are all as far in two features (d/1024, log² d), whose weights come of prompts
 * of about this length: at ten times it they decided alone, and the sets were worse than SnapKV's.
 */
#define CKVC_FEATURES_MOST_LEFT 1280
/* D of a version; 0: it is not known. */
uint32_t ckvc_features_count(uint32_t version, uint32_t head_dim);
uint32_t ckvc_features_first(uint32_t version);
/* The last rows of the attention that it reads. 0: none, and no late columns. */
uint32_t ckvc_features_rows(uint32_t version);
/* A known version of every token, f [T][D], late columns 0. scratch [2][T]. Of version 2 attention
 * is not read and may be NULL, and so may scratch. */
void ckvc_features(uint32_t version, const ckvc_head_view *v, double *f, double *scratch);
/* The late columns of version 1, two values at f[t * stride]: of the layer's attention [T], the
 * mean over the same rows and all its query heads, and of alpha [T], mean 1. */
void ckvc_features_late(uint32_t n_tokens, const double *layer_attention, const double *alpha,
                        uint32_t stride, double *f);
/* s[t] = theta . f[t], added in the features' order. */
void ckvc_linear_form(uint32_t n_tokens, uint32_t n_features, const double *f, const float *theta,
                      double *s);
/* The linear form s [T] becomes the log score. norm [T]: of the values. */
void ckvc_score_learned(uint32_t n_tokens, double mass, const double *norm, double *s);

/* The set of one head or layer: the last `recent` positions and position 0 come first, whatever
 * their score, then the largest s [T] (a NaN ranks lowest), of equal ones the later. kept holds
 * min(capacity, T) entries and receives them ascending; scratch holds T. Returns min(capacity, T).
 * Where capacity is below recent + 1 the latest positions are kept. O(T) expected. */
uint32_t ckvc_retain_head(uint32_t n_tokens, const double *s, uint32_t recent, uint32_t capacity,
                          uint32_t *kept, uint32_t *scratch);

/* ---- a prefill ---- */

/* ckvc_prefill_keep for who knows the prompt's risk cell already. */
int ckvc_prefill_keep_in(ckvc_prefill *p, uint32_t entropy_bin, uint32_t ppl_bin);
