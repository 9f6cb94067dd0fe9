/* ckvc_policy: what an inference engine embeds to use a compiled KV-cache eviction table.
 *
 * Reads the numeric sections of a .ckvt table (formats/table/table.md), finds the risk bin of a
 * prompt, computes the utility of every prompt token and chooses the tokens that one layer keeps
 * (method.md sections 1, 2 and 8). Depends on libc and libm alone. Functions are pure but for
 * reading the file; a ckvc_table may be used by any number of threads at once.
 *
 *   L layers · G heads of the table's head axis (KV heads) · T prompt tokens · E, P entropy and
 * perplexity bins · an entry is one (layer, KV head, position) whose key and value are kept
 */
#ifndef CKVC_POLICY_H
#define CKVC_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__ /* all of it is what the shared library exports, and nothing else */
#pragma GCC visibility push(default)
#endif

/* Limits of the format: L, H, G, E, P, nB; actions of a grid; bytes of a file. */
#define CKVC_TABLE_MAX_EXTENT  65535u
#define CKVC_TABLE_MAX_ACTIONS 4096u
#define CKVC_TABLE_MAX_BYTES   ((uint64_t)1 << 31)
#define CKVC_TABLE_SHAPE       10 /* numbers of SHAPE; 8 where the last two are 0 */

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
/* "paper", "no-utility", "no-threshold", "mean-pool" */
const char *ckvc_operator_name(ckvc_operator op);

/* What a prompt's kept sets are: `shared` one set for a layer's heads, every layer B positions (the
 * paper's); `heads` a set for each (layer, KV head), of a length of its own; `layers` one set for a
 * layer's heads, the layers of different length. */
typedef enum ckvc_mode {
    CKVC_MODE_SHARED,
    CKVC_MODE_HEADS,
    CKVC_MODE_LAYERS,
    CKVC_MODE_COUNT
} ckvc_mode;
const char *ckvc_mode_name(ckvc_mode mode); /* "shared", "heads", "layers" */

/* By what a head's positions are ranked. */
typedef enum ckvc_score_kind {
    CKVC_SCORE_PAPER,   /* (alpha * rho) * weight */
    CKVC_SCORE_WINDOW,  /* mean attention of the last rows, pooled, times the value norm if asked */
    CKVC_SCORE_LEARNED, /* softmax of a linear form of features, times the value norm */
    CKVC_SCORE_COUNT
} ckvc_score_kind;
const char *ckvc_score_name(ckvc_score_kind kind); /* "paper", "window", "learned" */

/* What a table recommends for one of its budgets. What a kind does not use is 0. */
typedef struct ckvc_score {
    uint32_t kind;     /* ckvc_score_kind */
    uint32_t window;   /* w: last rows that are read: of learned ckvc_features_rows */
    uint32_t pool;     /* k, odd: its maximum is over k positions; 1: none */
    uint32_t norm;     /* 1: times the value norm */
    uint32_t features; /* version of theta's features, the same in every block; 0: no theta */
    uint32_t mode;     /* ckvc_mode */
} ckvc_score;

/* A kind's score unless a table says otherwise, mode `shared`: the window's has 32 rows, a maximum
 * over 7 positions and the value norm. features: version of the table's theta, or 0. */
ckvc_score ckvc_default_score(ckvc_score_kind kind, uint32_t features);

/* The least that a head or layer keeps under one of a table's budgets: ckvc_head_floor. */
typedef struct ckvc_c_min {
    double floor;  /* f: share of B, 0 ... 1 */
    double recent; /* whole: the last positions that every set holds, beside position 0 */
} ckvc_c_min;

typedef struct ckvc_table {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_query_heads;              /* H, a multiple of G; with head_axis 1 equal to n_heads */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P */
    uint32_t n_budgets;                  /* nB */
    uint32_t window;    /* W, the observation window that alpha must be computed with */
    uint32_t head_axis; /* 0 KV heads, 1 query heads */
    uint32_t visible; /* alpha is 0 the paper's, 1 divided by the share of rows that see a token */
    uint32_t keep_window; /* the last positions that sets of the paper's operator begin with */
    uint32_t n_head_actions, n_gate_actions; /* sizes of the grids */
    ckvc_operator op;                        /* paper, unless the table is a probe's */
    double *budgets;                         /* [nB] >= 1 tokens, < 1 a share of T */
    double *head_grid, *gate_grid;           /* action values, ascending */
    double *edges_entropy, *edges_ppl;       /* [E-1], [P-1] inner edges, ascending */
    float *weight;                           /* [L][G][nB] W_head */
    float *tau;                              /* [L][E][P][nB] T_gate */
    /* Of a table with shares; all NULL in one that is the paper's alone (ckvc_table_add_shares). */
    double *share;       /* [L][G][nB] of each head, about mean 1 */
    double *layer_share; /* [L][nB], about mean 1; NULL: no mode `layers` */
    ckvc_c_min *c_min;   /* [nB] */
    ckvc_score *score;   /* [nB] */
    /* 1: tau holds thresholds on s over its mean, which modes `heads` and `layers` heed beside the
     * capacities (ckvc_count_above); op is no-threshold. Else 0. */
    uint32_t relative;
    /* The learned score of a table with shares, for all its blocks; NULL and 0 where there is none
     * (ckvc_table_add_learned). */
    uint32_t n_features; /* D */
    float *theta;        /* [L][G][D] */
    double *mass;        /* [L][G] */
} ckvc_table;

/* Reads the numeric sections of a .ckvt file. Checks the header's and directory's CRC-32 and each
 * of those sections' CRC-32 (the SHA-256 sums are `ckvc verify`'s business). Returns 0 and a table
 * to free with ckvc_table_free, or -1 with one line in message (message_size bytes; may be NULL,
 * 0). */
int ckvc_table_read(const char *path, ckvc_table **out, char *message, size_t message_size);
/* The same from bytes in memory; `name` stands for the file in messages. */
int ckvc_table_parse(const char *name, const void *bytes, size_t size, ckvc_table **out,
                     char *message, size_t message_size);
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
void ckvc_table_free(ckvc_table *table); /* NULL is fine */
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

/* The bin of a value: the number of inner edges <= value (method.md section 8). A value outside
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

/* What alpha a utility is computed from. Method.md section 1: alpha[t] = (T/W) * mass[t], mass[t] =
 * sum over window rows of the mean attention over all layers and heads. `visible` (section 12):
 * alpha[t] divided by the share of window rows that can see t, then normalised to mean 1. In place
 * on n values. */
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

/* What a table recommends for block b; of one without shares the paper's score in mode `shared`. */
ckvc_score ckvc_table_score(const ckvc_table *t, uint32_t b);
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

/* The threshold of block b on a head's or a layer's scores s over their mean, in a risk cell; 0 of
 * a table that has none of the kind (t->relative). */
double ckvc_table_relative(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);
/* How many positions such a threshold leaves, the most that the set keeps, whatever its capacity:
 * position 0, the last `recent`, and of the others those with s[t] >= tau * their mean. s [T]: log
 * scores as below; those of the first and last ones are not read. All T where tau is 0, and where
 * no score of the others is above 0. */
uint32_t ckvc_count_above(uint32_t n_tokens, const double *s, uint32_t recent, double tau);

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

/* ---- from a prefill to the kept sets ----
 *
 * All of the above in one place: an engine hands over what its prefill computes, layer by layer,
 * tile by tile, in float32, and asks for the sets. Nothing is allocated: everything lies in a
 * workspace of the caller's, which is linear in the number of tokens. A prefill belongs to one
 * thread at a time. Any table that fit or compile recommends will do, in each of its modes:
 *
 *   bytes -> begin -> for every layer: attention (or queries) and cache -> keep -> set
 */

/* The model, as far as sets depend on it. */
typedef struct ckvc_geometry {
    uint32_t n_layers, n_query_heads, n_kv_heads, head_dim;
    /* [head_dim/2] that the keys in the cache were rotated with (pairs i and i + head_dim/2), read
     * by ckvc_prefill_cache alone; NULL: keys are handed over before the rotation. */
    const double *inv_freq;
    /* 0: attention rows are handed over. Else queries are in their place, for engines that never
     * hold a row: a logit is query_scale * (q . k), and a row sees all positions up to its own
     * (no sliding window, no cap on logits). Needs keys after the rotation. */
    double query_scale;
} ckvc_geometry;

/* What is asked for. What it points to is borrowed until the last call. */
typedef struct ckvc_request {
    const ckvc_table *table;
    ckvc_geometry model;
    uint32_t n_tokens; /* T */
    double budget;     /* mean entries of a head: tokens from 1 up, whole; below a share of T */
    /* In place of what the table's blocks recommend; NULL: as they do. Of a table without shares
     * any score serves in mode `shared`. */
    const ckvc_score *score;
    const double *floor; /* f of ckvc_c_min, 0 ... 1 */
} ckvc_request;

typedef struct ckvc_prefill ckvc_prefill;

/* Bytes of a workspace for prompts of up to request->n_tokens, whatever the budget. SIZE_MAX: more
 * than can be asked for. */
size_t ckvc_prefill_bytes(const ckvc_request *request);
/* Begins a prompt in a workspace [bytes], aligned as malloc does. NULL: refused, with one line in
 * message (message_size bytes; may be NULL, 0): the model has another shape than the table, the
 * budget is below what every head must keep, the table is a probe's, the workspace is too small.
 * The block nearest to the budget is used (ckvc_nearest_budget), clamped to what was asked for. */
ckvc_prefill *ckvc_prefill_begin(void *workspace, size_t bytes, const ckvc_request *request,
                                 char *message, size_t message_size);
/* 1: the prompt is no longer than the table's window, and all of it is kept whatever the budget.
 * Rows and cache are not wanted then; tiles that come all the same are not looked at. */
int ckvc_prefill_keeps_all(const ckvc_prefill *p);
/* How many of the prompt's last attention rows are wanted, R: 0 ... T. 0: none, then neither
 * attention nor queries are handed over. Row i of them is the query at position T - R + i. */
uint32_t ckvc_prefill_rows(const ckvc_prefill *p);

/* What follows returns 0, or -1 where a tile is refused: p is as it was before, and
 * ckvc_prefill_message says why. Every layer wants its rows (query heads 0 ... H-1, rows ascending)
 * and its cache (KV heads 0 ... G-1, positions ascending), each once, cut into tiles as the caller
 * likes; rows and cache of a layer in any order, the next layer's after both. */

/* Attention of a query head: rows first_row ... first_row + n_rows - 1 of the R, each [T] after the
 * softmax, 0 where it does not see. rows [n_rows][T]. */
int ckvc_prefill_attention(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                           uint32_t n_rows, const float *rows);
/* The same for engines with fused attention (query_scale): queries after the rotation, [n_rows]
 * [head_dim]. A KV head's come before its cache. */
int ckvc_prefill_queries(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                         uint32_t n_rows, const float *queries);
/* Keys and values of a KV head at positions first ... first + n - 1, each [n][head_dim]. Where
 * keys are not read (ckvc_prefill_reads_keys) they may be NULL. */
int ckvc_prefill_cache(ckvc_prefill *p, uint32_t layer, uint32_t kv_head, uint32_t first,
                       uint32_t n, const float *keys, const float *values);
int ckvc_prefill_reads_keys(const ckvc_prefill *p);

/* After the last layer, once: risk bin, thresholds, capacities, sets. r_sem: the perplexity of the
 * prompt's last W tokens, exp of their mean loss in nats; read only where ckvc_prefill_reads_r_sem
 * says so, which depends on the table. */
int ckvc_prefill_keep(ckvc_prefill *p, double r_sem);
int ckvc_prefill_reads_r_sem(const ckvc_prefill *p);
/* The same for who knows the prompt's risk cell already. */
int ckvc_prefill_keep_in(ckvc_prefill *p, uint32_t entropy_bin, uint32_t ppl_bin);
/* The positions [*n] that a KV head keeps, ascending, in the workspace; in modes `shared` and
 * `layers` all heads of a layer have the same pointer. NULL, 0: not kept yet, or no such head. */
const uint32_t *ckvc_prefill_set(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                                 uint32_t *n);
/* The same prompt under another budget and floor (NULL: the block's), whose sets another
 * ckvc_prefill_keep chooses: nothing is handed over again. -1: refused, as ckvc_prefill_begin
 * refuses them, or because the budget's block ranks by another score than the one that the prompt
 * was begun for. */
int ckvc_prefill_again(ckvc_prefill *p, double budget, const double *floor);
/* After ckvc_prefill_keep, for who wants to know more than the sets. The log scores of a KV head,
 * [T], in the workspace until the next call (the paper's without the head's weight, which changes
 * nothing within it); and how many positions of a layer the paper's threshold left, before B of
 * them were kept. NULL, 0: not kept yet, no such head, or all is kept. */
const double *ckvc_prefill_scores(ckvc_prefill *p, uint32_t layer, uint32_t kv_head);
uint32_t ckvc_prefill_candidates(const ckvc_prefill *p, uint32_t layer);
/* Why the last refused call was refused; "" without one. */
const char *ckvc_prefill_message(const ckvc_prefill *p);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
