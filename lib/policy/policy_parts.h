/* The pieces that lib/policy is made of, for the rest of ckvc: calibration, fitting and evaluation
 * take tables apart, and try sets that no table recommends. An engine needs none of this; its
 * header is ckvc_policy.h. paper.md has the formulas, in sections 1, 2 and 8.
 *
 *   L layers · G heads of the table's head axis (KV heads) · T prompt tokens
 *   E, P entropy and perplexity bins · nB budgets of the table, each with a block of values */
#pragma once

#include "lib/policy/ckvc_policy.h"

/* ---- tables ---- */

/* Limits of the format: the largest L, H, G, E, P or nB; the most actions of a grid; the most bytes
 * of a file. */
#define CKVC_TABLE_MAX_EXTENT  65535u
#define CKVC_TABLE_MAX_ACTIONS 4096u
#define CKVC_TABLE_MAX_BYTES   ((uint64_t)1 << 31)
#define CKVC_TABLE_SHAPE       10 /* numbers in SHAPE; 8 are written where the last two are 0 */
/* How many formats of keys, and how many of these of values, ckvc_held numbers. */
#define CKVC_TABLE_KEY_FORMATS   14
#define CKVC_TABLE_VALUE_FORMATS 12

const char *ckvc_operator_name(ckvc_operator op);  /* "paper", "no-utility", "no-threshold", ... */
const char *ckvc_mode_name(ckvc_mode mode);        /* "shared", "heads", "layers", "lengths" */
const char *ckvc_score_name(ckvc_score_kind kind); /* "paper", "window", "learned", "bank" */
/* Whether a kind of score is the learned ranking, with the bank's attention or without. */
int ckvc_score_learns(uint32_t kind);

/* Whether each KV head has a set of its own in this mode; where not, the heads of a layer have one
 * set. */
int ckvc_mode_by_head(ckvc_mode mode);
/* The shares by which a budget is divided in this mode: [L][G][nB] in mode `heads`, [L][nB] in the
 * modes `layers` and `lengths`. NULL where the table has none, and in mode `shared`, which needs
 * none. */
const double *ckvc_table_shares(const ckvc_table *t, ckvc_mode mode);

/* The score of a kind that is used where no table says otherwise, in mode `shared`. The window
 * score has 32 rows, a maximum over 7 positions and the value norm. features is the version of the
 * table's theta, or 0. */
ckvc_score ckvc_default_score(ckvc_score_kind kind, uint32_t features);

/* Allocates a table of the given shape with all its arrays. The caller fills grids, weights and
 * thresholds, and may change window (0), head_axis (0), visible and keep_window (0), n_query_heads
 * (n_heads) and op (the paper's), which begin as stated. The caller frees it with ckvc_table_free.
 * Returns NULL when memory is out or the shape is over the format's limits. */
ckvc_table *ckvc_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                              uint32_t n_ppl_bins, uint32_t n_budgets, uint32_t n_head_actions,
                              uint32_t n_gate_actions);
/* Gives a table without shares the arrays for them, zeroed; layer_share only with `with_layers`.
 * Returns 0, or -1 when memory is out: the table is then as it was. */
int ckvc_table_add_shares(ckvc_table *t, int with_layers);
/* Gives a table with shares the array length_share, zeroed. Returns 0, or -1 when memory is out:
 * the table is then as it was. */
int ckvc_table_add_lengths(ckvc_table *t);
/* Gives a table with shares the arrays for a learned ranking, zeroed, in place of those that it
 * had, and writes the features' version into `features` of every block. Returns 0, or -1 when
 * memory is out: the table is then as it was. */
int ckvc_table_add_learned(ckvc_table *t, uint32_t n_features);
/* Gives a table with shares the arrays for a bank of n_bank queries of each query head, each of
 * head_dim numbers, zeroed, in place of those that it had. n_query_heads must be set. Returns 0, or
 * -1 when memory is out: the table is then as it was. */
int ckvc_table_add_bank(ckvc_table *t, uint32_t n_bank, uint32_t head_dim);
/* Gives a table with shares the arrays byte_share and held, zeroed: no budget was chosen in bytes,
 * and all are held in float32. Returns 0, or -1 when memory is out: the table is then as it was. */
int ckvc_table_add_bytes(ckvc_table *t);
/* Returns where query i of query head h of layer l begins in `bank`. */
size_t ckvc_bank_index(const ckvc_table *t, uint32_t l, uint32_t h, uint32_t i);
/* Returns the largest ridge of a layer by which a table fits entries under block b; 0: it fits
 * none. */
double ckvc_table_ridge(const ckvc_table *t, uint32_t b);
/* Copies everything that belongs to shares from `from`, a table of the same L, G and nB, to a table
 * without shares: the shares, floors and scores, and the learned ranking, the bank and the formats
 * if there are any. Returns 0, or -1 when memory is out: the table is then as it was, or has shares
 * that are 0. */
int ckvc_table_copy_shares(ckvc_table *t, const ckvc_table *from);
/* Returns a copy of a table, which the caller frees, or NULL when memory is out. */
ckvc_table *ckvc_table_clone(const ckvc_table *t);

/* Checks what every table must hold. Grids ascend and edges do not descend. Weights and thresholds
 * are grid values rounded to float32. A budget is a whole number of tokens, or a share of T below
 * 1. Shares are finite, not negative, and not all 0 in a block; floors fit their budgets; scores,
 * modes and features are known; a learned ranking is finite; byte shares are below 1 and differ,
 * and formats are known. Returns 0, or -1 with the first breach in message, which begins with the
 * section's name. A table that was read has passed this check. */
int ckvc_table_check(const ckvc_table *table, char *message, size_t message_size);

/* The flat index of [l][g][b] in weight, and of [l][e][p][b] in tau. */
size_t ckvc_weight_index(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
size_t ckvc_tau_index(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);
/* An entry as the operator uses it: the double in its grid, not the float32 of the file. In a
 * no-threshold table every threshold is -infinity. The table must hold what ckvc_table_check
 * checks, as every table that was read does. */
double ckvc_table_weight(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
double ckvc_table_tau(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);

/* The bin of a value: the number of inner edges <= value (paper.md section 8). A value outside all
 * edges falls into the first or last bin. */
uint32_t ckvc_bin_index(const double *edges, uint32_t n_edges, double value);
/* B, the tokens of a budget entry for a prompt of T tokens: the entry itself from 1 up, floor(share
 * * T) below 1. */
uint32_t ckvc_budget_tokens(double budget, uint32_t n_tokens);
/* Returns the index of the budget, among a table's budgets [n], whose block serves `budget` (tokens
 * from 1 up, a share of T below 1) for a prompt of T = n_tokens tokens. That is the same budget
 * where the table has it, else the nearest by ratio: the one with the least |log(b / B)|, where a
 * share counts as share * T, and the lower of two that are equally near. The caller must still
 * clamp to the budget that was asked for, by giving ckvc_budget_tokens(budget, T) to
 * ckvc_retain. */
uint32_t ckvc_nearest_budget(const double *budgets, uint32_t n, double budget, uint32_t n_tokens);
/* Returns the index of the grid value that rounds to `value` as float32, or -1 when there is none.
 * The operator uses grid[index], the double: in this way a float32 of the file becomes the same
 * number on every machine. */
int ckvc_grid_index(const double *grid, uint32_t n, float value);

/* Turns the paper's alpha, in place, into the one that tables with `visible` use. The paper's
 * (paper.md section 1) is alpha[t] = (T/W) * mass[t], where mass[t] is the sum over window rows of
 * the mean attention over all layers and heads. `visible` (paper.md section 12) divides alpha[t] by
 * the share of window rows that can see t, and normalises to mean 1. alpha [T], T = n_tokens; W =
 * window. */
void ckvc_alpha_visible(double *alpha, uint32_t n_tokens, uint32_t window);

/* Computes the paper's utility u[t] = max_g (alpha[t] * rho[g][t]) * weight[g] (paper, eq. utility
 * and max pooling), in double and in this order. alpha [T] and rho [G][T] are float32, weight [G]
 * the grid's doubles; u [T] receives the result. */
void ckvc_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho,
                  const double *weight, double *u);
/* Computes the utility of another operator (table->op), in double:
 *   no-utility   u[t] = max_g alpha[t] * weight[g]; rho is not read and may be NULL
 *   mean-pool    u[t] = (x_0 + x_1 + ... + x_(G-1)) / G, added in this order,
 *                with x_g = (alpha[t] * rho[g][t]) * weight[g]
 *
 * The utility of no-threshold is the paper's: that operator only drops the threshold, which
 * ckvc_table_tau does. */
void ckvc_operator_utility(ckvc_operator op, uint32_t n_tokens, uint32_t n_heads,
                           const float *alpha, const float *rho, const double *weight, double *u);

/* What decides which tokens a layer keeps. Tokens with u[t] >= tau are candidates. The last
 * keep_window positions are candidates too and come first (the paper's operator has 0). At most
 * `budget` candidates stay. */
typedef struct ckvc_rule {
    double tau;
    uint32_t budget, keep_window;
} ckvc_rule;
/* The retention operator on one layer. When there are no more candidates than the budget, it keeps
 * them all; else it keeps the `budget` ones with the largest u, and of equal ones the later
 * position. kept must hold min(budget, T) entries and receives positions in ascending order;
 * scratch holds T entries. Returns the number kept; *n_candidates receives the number of
 * candidates. Expected time is O(T). */
uint32_t ckvc_retain(uint32_t n_tokens, const double *u, ckvc_rule rule, uint32_t *kept,
                     uint32_t *n_candidates, uint32_t *scratch);

/* ---- budgets for heads and layers ---- */

/* The least that a set holds: min(max(recent + 1, floor(f * B)), T), where B = budget is the mean
 * over all sets and T = n_tokens. */
uint32_t ckvc_head_floor(double f, uint32_t recent, uint32_t budget, uint32_t n_tokens);
/* Computes how many positions each of n units keeps. Units are heads (n = L * G) or layers (n = L);
 * unit i has share[i * stride], finite and >= 0. The scale of the shares does not matter. With N =
 * n * budget, T = n_tokens and m = least <= T:
 *
 *   - unit i gets floor(x_i), where x_i = clamp(share_i * (budget * z), m, T), and z is the largest
 *     value that 64 halvings find at which all units together hold no more than N;
 *   - what is left of N is given out one each, to units below T with a positive share: first to the
 *     largest fraction of x_i, of equal ones to the lower i;
 *   - where budget >= T, every unit gets T.
 *
 * The numbers are the same on every machine. Their sum is N wherever units with a positive share
 * can hold it, unless shares are so far apart (by 10^15 and more) that 64 halvings cannot find z.
 * Returns 0, or -1 where m > budget: c [n] is then not written. */
int ckvc_capacities(const double *share, uint32_t n, uint32_t stride, uint32_t budget,
                    uint32_t n_tokens, uint32_t least, uint32_t *c);
/* Lowers capacities c [n] where units have the same share (share[i * stride]), so that these have
 * the same capacity: the least among them. Of ckvc_capacities' result, only the units that had part
 * of their class's last entries lose them, one entry each. The mode `lengths` does this with its
 * layers: those that a fit put into one class (fit --classes) then have one length under every
 * budget. */
void ckvc_even_lengths(const double *share, uint32_t n, uint32_t stride, uint32_t *c);

/* Scores of one head. s [T] receives log s[t] in double, which is -infinity where s[t] is 0. In
 * mode `layers` a layer's score is the maximum over its heads' scores.
 *
 *   paper    s[t] = (alpha[t] * rho[t]) * weight
 *   window   s[t] = max over |j - t| <= pool/2, inside the prompt, of attention[j], times norm[t]
 *            unless norm is NULL
 *
 * attention [T] is the mean over the last w rows and the head's query heads; norm [T] has the norms
 * of the values; pool is odd. */
void ckvc_score_paper(uint32_t n_tokens, const float *alpha, const float *rho, double weight,
                      double *s);
void ckvc_score_window(uint32_t n_tokens, const double *attention, uint32_t pool,
                       const double *norm, double *s);
/* The learned ranking of a head is s[t] = mass * softmax_t(theta . f[t]) * norm[t], where norm[t]
 * is the norm of the value. Its features are computed in two steps, as the second needs all layers
 * of the prompt. */

/* What the features of one KV head are computed from, for a prompt of T = n_tokens tokens. */
typedef struct ckvc_head_view {
    uint32_t n_tokens, head_dim;
    /* Query heads of the group; last attention rows: ckvc_features_rows, or T where that is
     * fewer. */
    uint32_t group, n_rows;
    const float *attention;     /* [group][n_rows][T], each row after the softmax */
    const float *keys, *values; /* [T][head_dim] as they lie in the cache */
    const double *inv_freq;     /* [head_dim/2] the keys' rotation; NULL: not rotated */
} ckvc_head_view;
/* Version 1 has all features. Version 2 has those that read no attention: its columns are those of
 * version 1 from ckvc_features_first on. */
#define CKVC_FEATURES_1      1u
#define CKVC_FEATURES_2      2u
#define CKVC_FEATURES_1_ROWS 64u /* last attention rows that version 1 reads */
/* Columns of version 1: WINDOW is the default window score without its norm; LATE is the first of
 * the two that ckvc_features_late fills; OWN is the first that describes the token itself, with
 * which version 2 begins; KEY is the first of the key's values, and the constant 1 comes after
 * them. */
#define CKVC_FEATURES_WINDOW 5u
#define CKVC_FEATURES_LATE   10u
#define CKVC_FEATURES_OWN    13u
#define CKVC_FEATURES_1_KEY  23u
/* Positions at this distance from the end and beyond count as equally far in two features (d/1024
 * and log² d). Their weights were fitted on prompts of about this length. Without the limit these
 * two features alone decided at ten times that length, and the sets were worse than SnapKV's. */
#define CKVC_FEATURES_MOST_LEFT 1280
/* D, the number of features of a version; 0 where the version is not known. */
uint32_t ckvc_features_count(uint32_t version, uint32_t head_dim);
uint32_t ckvc_features_first(uint32_t version);
/* How many last attention rows a version reads. A version that reads 0 has no late columns. */
uint32_t ckvc_features_rows(uint32_t version);
/* Computes the features of every token, f [T][D], for a known version; the late columns become 0.
 * scratch is [2][T]. Version 2 reads neither attention nor scratch: both may be NULL. */
void ckvc_features(uint32_t version, const ckvc_head_view *v, double *f, double *scratch);
/* Computes the late columns of version 1, two values at f[t * stride]. layer_attention [T] is the
 * mean over the same rows and over all query heads of the layer; alpha [T] has mean 1. */
void ckvc_features_late(uint32_t n_tokens, const double *layer_attention, const double *alpha,
                        uint32_t stride, double *f);
/* s[t] = theta . f[t], added in the order of the features. s is [n_tokens], f
 * [n_tokens][n_features]. */
void ckvc_linear_form(uint32_t n_tokens, uint32_t n_features, const double *f, const float *theta,
                      double *s);
/* Turns the linear form s [T] into the log score, in place. norm [T] has the norms of the
 * values. */
void ckvc_score_learned(uint32_t n_tokens, double mass, const double *norm, double *s);

/* The part of the ranking `bank` that is the bank's attention (docs/method.md, section 2). */
#define CKVC_BANK_PART 0.25
/* The least that the bank's attention counts as, as a part of 1 / T, which is attention that is
 * spread evenly. The bank asks as typical prompts do; that it does not ask for a position says
 * little (docs/findings.md, "The bank in the ranking"). */
#define CKVC_BANK_LEAST 0.3
/* Mixes the bank's attention into the learned log score s [T], in place: (1 - p) * s[t] + p *
 * log(max(attention[t], a / T) * norm[t]), where p is CKVC_BANK_PART, a is CKVC_BANK_LEAST, and
 * attention [T] is the root of the mean square attention of the bank's queries. norm [T] has the
 * norms of the values. */
void ckvc_score_bank(uint32_t n_tokens, const double *attention, const double *norm, double *s);

/* Chooses the set of one head or layer. The last `recent` positions and position 0 come first,
 * whatever their score; then come the largest s [T], of equal ones the later (a NaN ranks lowest).
 * Where capacity is below recent + 1, the latest positions are kept. kept holds min(capacity, T)
 * entries and receives them in ascending order; scratch holds T. Returns min(capacity, T). Expected
 * time is O(T). */
uint32_t ckvc_retain_head(uint32_t n_tokens, const double *s, uint32_t recent, uint32_t capacity,
                          uint32_t *kept, uint32_t *scratch);

/* ---- fitted entries (docs/method.md, section 9) ---- */

/* Limits the logits [n] of n queries, which stand at `positions`, with one key as a layer does: by
 * its cap, and to -inf where its window does not reach from a query to the key's position. */
void ckvc_limit_logits(const ckvc_attending *a, const uint32_t *positions, size_t n, uint32_t key,
                       float *logits);
/* The ridge of the shift of keys, as a part of the mean of its system's diagonal. */
#define CKVC_FIT_KEY_RIDGE 0.01
/* How the keys that a head keeps will be held, with the pairs that they have. Values are then
 * fitted to the keys as they are held. */
typedef struct ckvc_hold {
    uint32_t format; /* ckvc_held_as, rotated or not; 0: float32, so that keys stay as they are */
    /* The head's mean key [D] before the rotation by position, where the format takes it out; else
     * NULL. */
    const float *mean;
} ckvc_hold;
/* What the entries of one KV head are fitted to. Everything is borrowed. */
typedef struct ckvc_fit {
    uint32_t n_tokens, head_dim; /* T, D */
    ckvc_rows keys, values;      /* T rows of the whole prompt, keys after the rotation */
    const uint32_t *kept;        /* [n_kept] ascending positions below T */
    uint32_t n_kept, n_queries;  /* S, n */
    const float *queries;        /* [n][D] reference queries, after their rotation */
    const uint32_t *positions;   /* [n] theirs, from T on */
    double ridge;                /* lambda; 0: entries stay as they are */
    /* [n][D] what the queries are answered with the whole prompt, then [n] the logs of their
     * masses; or NULL. They depend on the prompt and the queries alone. Where *known is 1, a fit
     * of the same prompt by the same queries wrote them; else this one does, and sets it. */
    double *whole;
    uint8_t *known;
    ckvc_attending attending;
    ckvc_hold hold;
    /* The largest magnitudes of fitted keys and of fitted values; 0: what `attending` says. */
    double most_key, most_value;
} ckvc_fit;
/* The bytes of scratch memory that ckvc_fit_entries needs, or SIZE_MAX where they are too many. */
size_t ckvc_fit_bytes(uint32_t n_queries, uint32_t head_dim);
/* Writes the fitted keys and values [n_kept][D]. Returns 1, or 0 where they are the entries as they
 * were: ridge 0, no query, nothing dropped or nothing kept, a singular system (which a ridge above
 * the rounding of doubles excludes), or numbers that are not finite. */
int ckvc_fit_entries(const ckvc_fit *f, void *scratch, float *keys, float *values);

/* How many reference queries a KV head has where each of its query heads gives n. */
size_t ckvc_bank_references(const ckvc_table *t, uint32_t n);
/* Writes the reference queries of a block of the table: the first bank_use[block].n_queries of
 * every query head of a KV head's group, for head number layer * G + KV head. Query i of a query
 * head is rotated to position n_tokens + floor(i * span / n_queries). queries [n][bank_dim] and
 * positions [n] receive them, n = ckvc_bank_references; inv_freq [bank_dim/2]. */
void ckvc_bank_queries(const ckvc_table *t, uint32_t block, size_t head, uint32_t n_tokens,
                       const double *inv_freq, float *queries, uint32_t *positions);

/* Fits entries as ckvc_fit_entries does, by the queries that ckvc_bank_queries writes. f comes
 * without queries. `scratch` needs ckvc_bank_fit_bytes of as many queries of each query head, which
 * is SIZE_MAX where they are too many. */
size_t ckvc_bank_fit_bytes(const ckvc_table *t, uint32_t n_queries);
int ckvc_bank_fit(const ckvc_table *t, uint32_t block, size_t head, ckvc_fit f, void *scratch,
                  float *keys, float *values);

/* ---- a prefill ---- */

/* ckvc_prefill_keep for a caller that knows the prompt's risk cell already. */
int ckvc_prefill_keep_in(ckvc_prefill *p, uint32_t entropy_bin, uint32_t ppl_bin);
