/* ckvc_policy: what an inference engine embeds to serve a compiled KV-cache eviction table.
 *
 * A table (a .ckvt file, formats/table/table.md) says how much of a prompt's key-value cache each
 * head of a model needs, and how to rank the entries of a head. The engine hands over what its
 * prefill computes anyway, layer by layer, and gets back the positions that each head keeps:
 *
 *     ckvc_table *table;
 *     char why[256];
 *     if (ckvc_table_read("t.ckvt", &table, why, sizeof why)) { puts(why); exit(1); }
 *
 *     ckvc_request request = {.table = table, .n_tokens = T, .budget = 0.25,
 *                             .model = {n_layers, n_query_heads, n_kv_heads, head_dim, inv_freq}};
 *     size_t bytes = ckvc_prefill_bytes(&request);
 *     void *workspace = malloc(bytes);
 *     ckvc_prefill *p = ckvc_prefill_begin(workspace, bytes, &request, why, sizeof why);
 *
 *     for each layer l, as it is prefilled:
 *         for each query head h, if ckvc_prefill_rows(p) > 0:
 *             ckvc_prefill_attention(p, l, h, 0, ckvc_prefill_rows(p), its last rows);
 *         for each KV head g:
 *             ckvc_prefill_cache(p, l, g, 0, T, its keys, its values);
 *
 *     ckvc_prefill_keep(p, 0);
 *     for each layer l and KV head g:
 *         const uint32_t *positions = ckvc_prefill_set(p, l, g, &n); // keep these n entries
 *
 * lib/policy/example/keep_set.c is this as a program that runs. The library depends on libc and
 * libm alone. Its functions keep no state, so any number of threads may use one table; a prefill
 * belongs to one thread at a time.
 *
 *   L layers · H query heads · G KV heads · T tokens of the prompt · nB budgets of the table
 *   An entry is one (layer, KV head, position) whose key and value are kept.
 */
#ifndef CKVC_POLICY_H
#define CKVC_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__ /* The shared library exports the functions of this header, and nothing else. */
#pragma GCC visibility push(default)
#endif

/* ---- 1. a table ---- */

/* Which operator the paper's part of a table was fitted for: the paper's own, or one of the probes
 * that leave a part of it out (paper.md section 7). A prefill serves tables of the paper's
 * operator, and tables with shares whose paper's part has no threshold. It refuses the tables of
 * other probes. */
typedef enum ckvc_operator {
    CKVC_OPERATOR_PAPER,
    CKVC_OPERATOR_NO_UTILITY, /* u[t] = alpha[t] * max_g weight[g]: the value norms are left out */
    CKVC_OPERATOR_NO_THRESHOLD, /* no threshold: the B positions with the largest u are kept */
    CKVC_OPERATOR_MEAN_POOL,    /* the mean over heads takes the place of the maximum */
    CKVC_OPERATOR_COUNT
} ckvc_operator;

/* The form of what is kept of a prompt. */
typedef enum ckvc_mode {
    CKVC_MODE_SHARED, /* one set for all heads of a layer, B positions in every layer (the paper) */
    CKVC_MODE_HEADS,  /* each (layer, KV head) has a set of its own, each of its own length */
    CKVC_MODE_LAYERS, /* one set for all heads of a layer; layers differ in length */
    /* each (layer, KV head) has a set of its own; those of one layer have one length, and layers
     * differ in length */
    CKVC_MODE_LENGTHS,
    CKVC_MODE_COUNT
} ckvc_mode;

/* What the positions of a head are ranked by. */
typedef enum ckvc_score_kind {
    CKVC_SCORE_PAPER,   /* (alpha * rho) * weight */
    CKVC_SCORE_WINDOW,  /* mean attention of the last rows, pooled, times the value norm if asked */
    CKVC_SCORE_LEARNED, /* softmax of a linear form of the features, times the value norm */
    CKVC_SCORE_BANK,    /* the learned score and the attention of the bank's queries */
    CKVC_SCORE_COUNT
} ckvc_score_kind;

/* What a table recommends for one of its budgets. A member that the kind does not use is 0. */
typedef struct ckvc_score {
    uint32_t kind; /* ckvc_score_kind */
    /* w, the number of last attention rows that are read. The learned ranking, with the bank's
     * attention or without, reads as many as its `features` say. */
    uint32_t window;
    uint32_t pool;     /* k, odd: each position takes the maximum over k positions; 1 takes none */
    uint32_t norm;     /* 1: the score is multiplied by the value norm */
    uint32_t features; /* version of theta's features, the same in every block; 0: no theta */
    uint32_t mode;     /* ckvc_mode */
} ckvc_score;

/* The least that a head or layer keeps under one of a table's budgets:
 * min(max(recent + 1, floor(f * B)), T) positions. */
typedef struct ckvc_c_min {
    double floor;  /* f: share of B, 0 ... 1 */
    double recent; /* a whole number: every set holds so many last positions, and position 0 */
} ckvc_c_min;

/* Which reference queries of the bank serve a budget. */
typedef struct ckvc_bank_use {
    uint32_t n_queries; /* of each query head: the first so many, 1 ... n_bank */
    /* C: they are rotated to positions spread evenly over the C positions behind the prompt */
    uint32_t span;
} ckvc_bank_use;

/* How numbers of a cache are held (docs/method.md, section 11). CKVC_HELD_ROTATED is added where
 * each head is multiplied by an orthonormal Hadamard matrix before it is rounded, as llama.cpp
 * does. */
typedef enum ckvc_held_as {
    CKVC_HELD_F32 = 0,
    CKVC_HELD_ROTATED = 1,
    CKVC_HELD_F16 = 2,
    CKVC_HELD_BF16 = 4,
    CKVC_HELD_FP8 = 6,       /* e4m3fn, one byte a number and no scale */
    CKVC_HELD_Q8_0 = 8,      /* ggml's blocks of 32 numbers and a scale, in 34 bytes */
    CKVC_HELD_Q4_0 = 10,     /* the same in 18 bytes */
    CKVC_HELD_Q4_0_MEAN = 12 /* q4_0 of keys less their head's mean key: keys alone have it */
} ckvc_held_as;

/* The formats in which the keys and the values of what is kept under a budget are held, each a
 * ckvc_held_as. */
typedef struct ckvc_held {
    uint32_t keys, values;
} ckvc_held;

/* A table as it was read. Engines read its members; the library alone makes and changes one. */
typedef struct ckvc_table {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_query_heads;              /* H, a multiple of G; with head_axis 1 equal to n_heads */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P */
    uint32_t n_budgets;                  /* nB */
    uint32_t window;    /* W, the observation window that alpha must be computed with */
    uint32_t head_axis; /* 0: heads are KV heads; 1: they are query heads */
    /* 0: alpha is the paper's; 1: it is divided by the share of window rows that can see a
     * token. */
    uint32_t visible;
    uint32_t keep_window; /* sets of the paper's operator begin with this many last positions */
    uint32_t n_head_actions, n_gate_actions; /* numbers of actions in the two grids */
    ckvc_operator op;                        /* the paper's, unless the table is a probe's */
    double *budgets;                         /* [nB] from 1 up tokens, below 1 a share of T */
    double *head_grid, *gate_grid;           /* action values, ascending */
    double *edges_entropy, *edges_ppl;       /* [E-1], [P-1] inner edges, ascending */
    float *weight;                           /* [L][G][nB] W_head */
    float *tau;                              /* [L][E][P][nB] T_gate */
    /* These belong to a table with shares; all are NULL in a table that is the paper's alone. */
    double *share;        /* [L][G][nB] each head's share, about mean 1 */
    double *layer_share;  /* [L][nB] about mean 1; NULL: the table has no mode `layers` */
    double *length_share; /* [L][nB] about mean 1; NULL: the table has no mode `lengths` */
    ckvc_c_min *c_min;    /* [nB] */
    ckvc_score *score;    /* [nB] */
    /* The learned ranking of a table with shares, the same for all its budgets; NULL and 0 in a
     * table that has none. */
    uint32_t n_features; /* D */
    float *theta;        /* [L][G][D] weights of the features */
    double *mass;        /* [L][G] the factor of each head's softmax */
    /* The bank of a table with shares: reference queries, which come from other prompts and by
     * which kept entries are fitted (section 6). In a table that has no bank, these members are
     * NULL and 0. The queries are taken after the norm and bias that a model's queries may have,
     * and before the rotation by position. */
    uint32_t n_bank, bank_dim; /* queries of each query head; numbers of a query (head_dim) */
    float *bank;               /* [L][H][n_bank][bank_dim], rounded to 16 bits in the file */
    /* [L][nB] lambda; 0: the entries of the layer stay as they are under this budget */
    double *ridge;
    ckvc_bank_use *bank_use; /* [nB] */
    /* These belong to a table with shares whose budgets were chosen in bytes; NULL in others. */
    double *byte_share; /* [nB] the share of the whole cache in 16 bits; 0: not chosen in bytes */
    ckvc_held *held;    /* [nB] */
} ckvc_table;

/* Reads the numeric sections of a .ckvt file. It checks the CRC-32 of the header, of the directory
 * and of each of those sections (the SHA-256 sums are checked by `ckvc verify`), and that the
 * values are what a table may hold. Returns 0 and a table to free with ckvc_table_free, or -1 with
 * one line in message (message_size bytes; may be NULL, 0). */
int ckvc_table_read(const char *path, ckvc_table **out, char *message, size_t message_size);
/* Does the same with bytes in memory; messages name the file `name`. */
int ckvc_table_parse(const char *name, const void *bytes, size_t size, ckvc_table **out,
                     char *message, size_t message_size);
/* What the table recommends for block b, 0 ... nB-1: its mode says what form the sets will have.
 * A table without shares recommends the paper's score in mode `shared`. */
ckvc_score ckvc_table_score(const ckvc_table *t, uint32_t b);
/* Whether one of the table's budgets ranks by the attention of its bank's queries. */
int ckvc_table_ranks_by_bank(const ckvc_table *t);
void ckvc_table_free(ckvc_table *table); /* does nothing with NULL */

/* ---- 2. a prompt begins ----
 *
 * Nothing is allocated: a prefill lies in a workspace that the caller gives, whose size is linear
 * in the number of tokens. Every table that `ckvc fit` or `ckvc compile` recommends is served, in
 * each of its modes. */

/* How a layer of the model attends to its cache. */
typedef struct ckvc_attending {
    const double *inv_freq; /* [head_dim/2] as in ckvc_geometry; it must not be NULL */
    double scale;           /* a logit is scale * (q . k) */
    double cap;             /* above 0: logits are cap * tanh(logit / cap) */
    uint32_t window;        /* a query sees so many last positions, its own included; 0: all */
    /* The largest magnitude that the cache's type holds, such as 65504 for float16, within which
     * fitted entries stay; 0: that of float32. */
    double most;
} ckvc_attending;

/* What the sets depend on in the model. */
typedef struct ckvc_geometry {
    uint32_t n_layers, n_query_heads, n_kv_heads, head_dim;
    /* The frequencies [head_dim/2] that the keys in the cache were rotated with, in pairs i and i +
     * head_dim/2. Only ckvc_prefill_cache reads them. NULL means that keys are handed over before
     * the rotation. */
    const double *inv_freq;
    /* 0 means that attention rows are handed over. Any other value means that queries are handed
     * over in their place, by an engine that never holds a row: a logit is query_scale * (q . k),
     * and a row sees all positions up to its own (no sliding window, no cap on logits). This needs
     * keys after the rotation. */
    double query_scale;
    /* [n_layers] how each layer attends. A table that ranks by its bank's attention needs it
     * (ckvc_table_ranks_by_bank), and inv_freq; else it may be NULL. With a query_scale above 0,
     * NULL says that layers attend as is said there. */
    const ckvc_attending *attending;
} ckvc_geometry;

/* What is asked for. Everything that it points to must stay valid until the last call of the
 * prefill. */
typedef struct ckvc_request {
    const ckvc_table *table;
    ckvc_geometry model;
    uint32_t n_tokens; /* T */
    /* The mean number of entries of a head: whole tokens from 1 up, a share of T below 1. */
    double budget;
    /* A score to use in place of what the table's blocks recommend; NULL uses theirs. A table
     * without shares serves the paper's score and window scores, in mode `shared`. */
    const ckvc_score *score;
    const double *floor; /* f, 0 ... 1, in place of the block's; NULL: the block's */
} ckvc_request;

typedef struct ckvc_prefill ckvc_prefill;

/* Returns the bytes of a workspace that serves prompts of up to request->n_tokens under every
 * budget, or SIZE_MAX where that is more than can be asked for. */
size_t ckvc_prefill_bytes(const ckvc_request *request);
/* Begins a prompt in a workspace of `bytes` bytes, aligned as malloc aligns. Returns NULL when it
 * refuses, with one line in message (message_size bytes; may be NULL, 0): the model has another
 * shape than the table, the budget is below what every head must keep, the table is a probe's, or
 * the workspace is too small. The block of the table whose budget is nearest by ratio is used, and
 * its sets are clamped to the budget that was asked for. */
ckvc_prefill *ckvc_prefill_begin(void *workspace, size_t bytes, const ckvc_request *request,
                                 char *message, size_t message_size);
/* Returns 1 where the prompt is no longer than the table's window: all of it is then kept, whatever
 * the budget. Rows and cache need not be handed over; tiles that come all the same are not read. */
int ckvc_prefill_keeps_all(const ckvc_prefill *p);
/* Returns R, how many of the prompt's last attention rows are to be handed over, 0 ... T. Row i of
 * them belongs to the query at position T - R + i. With 0, neither attention nor queries are handed
 * over. */
uint32_t ckvc_prefill_rows(const ckvc_prefill *p);
/* Whether ckvc_prefill_cache reads the keys. Where it does not, they may be NULL. */
int ckvc_prefill_reads_keys(const ckvc_prefill *p);
/* Whether ckvc_prefill_keep reads r_sem. That depends on the table. */
int ckvc_prefill_reads_r_sem(const ckvc_prefill *p);

/* ---- 3. its layers ----
 *
 * Each of these calls returns 0, or -1 where it refuses a tile. After a refusal p is as it was
 * before the call, and ckvc_prefill_message says why. Every layer needs its rows (query heads 0 ...
 * H-1, rows ascending) and its cache (KV heads 0 ... G-1, positions ascending), each once, cut into
 * tiles as the caller likes. Rows and cache of one layer may come in any order; the next layer
 * begins when both are complete. */

/* Takes attention of a query head: rows first_row ... first_row + n_rows - 1 of the R. rows
 * [n_rows][T] holds them after the softmax, with 0 where a row does not see a position. */
int ckvc_prefill_attention(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                           uint32_t n_rows, const float *rows);
/* Takes queries in place of attention, from an engine with fused attention (query_scale): queries
 * [n_rows][head_dim], after the rotation. The queries of a KV head's group come before its
 * cache. */
int ckvc_prefill_queries(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                         uint32_t n_rows, const float *queries);
/* Takes keys and values of a KV head at positions first ... first + n - 1, each [n][head_dim]. */
int ckvc_prefill_cache(ckvc_prefill *p, uint32_t layer, uint32_t kv_head, uint32_t first,
                       uint32_t n, const float *keys, const float *values);

/* Keys or values of one KV head as an engine's cache has them: a row of head_dim numbers at each
 * position. Rows of other heads may lie in between. Heads of more than 1024 numbers can be in
 * CKVC_HELD_F32 alone, those of q8_0 and q4_0 have a multiple of 32 numbers, and rotated ones a
 * multiple of 64. */
typedef struct ckvc_rows {
    /* The row of the first position that a call names: of the tile in ckvc_prefill_cache_rows, and
     * position 0 in ckvc_prefill_fit_rows. */
    const void *first;
    size_t stride;   /* bytes from a row to the next one */
    uint32_t format; /* a ckvc_held_as, but not CKVC_HELD_Q4_0_MEAN */
    /* 1: RoPE turns numbers 2i and 2i + 1 of a key together, as in llama.cpp's Llama models;
     * 0: numbers i and i + head_dim/2. Values have 0. CKVC_HELD_ROTATED is of the numbers in the
     * order in which they are held. */
    uint32_t pairwise;
} ckvc_rows;
/* Does what ckvc_prefill_cache does with n rows of any format. It also refuses rows that are none
 * of the above, or whose stride is below the bytes of a row. Where the keys are not read
 * (ckvc_prefill_reads_keys), nothing of them is looked at. */
int ckvc_prefill_cache_rows(ckvc_prefill *p, uint32_t layer, uint32_t kv_head, uint32_t first,
                            uint32_t n, ckvc_rows keys, ckvc_rows values);

/* ---- 4. its sets ---- */

/* Chooses the sets, once, after the last layer. r_sem is the perplexity of the prompt's last W
 * tokens, exp of their mean loss in nats; it is read only where ckvc_prefill_reads_r_sem says so.
 * Returns 0, or -1 when it refuses: ckvc_prefill_message says why. */
int ckvc_prefill_keep(ckvc_prefill *p, double r_sem);
/* Returns the positions [*n] that a KV head keeps, ascending. They lie in the workspace; in modes
 * `shared` and `layers` all heads of a layer get the same pointer. Returns NULL and sets *n to 0
 * where nothing is chosen yet, or where there is no such head. */
const uint32_t *ckvc_prefill_set(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                                 uint32_t *n);
/* Says why the last refused call was refused; "" when none was. */
const char *ckvc_prefill_message(const ckvc_prefill *p);

/* ---- 5. more of the same prompt ---- */

/* Takes another budget and floor (NULL: the block's); a second ckvc_prefill_keep then chooses the
 * sets for them, and nothing is handed over again. Returns -1 when it refuses: for the reasons for
 * which ckvc_prefill_begin refuses a budget, or because the budget's block ranks by another score
 * than the one that the prompt was begun for. */
int ckvc_prefill_again(ckvc_prefill *p, double budget, const double *floor);
/* After ckvc_prefill_keep: returns the log scores of a KV head, [T], which lie in the workspace
 * until the next call. The paper's score comes without the head's weight, which does not change the
 * order within a head. Returns NULL where nothing is chosen yet, where there is no such head, or
 * where all of the prompt is kept. */
const double *ckvc_prefill_scores(ckvc_prefill *p, uint32_t layer, uint32_t kv_head);
/* After ckvc_prefill_keep: returns how many positions of a layer passed the paper's threshold,
 * before the budget B cut them; T where sets are chosen without a threshold. Returns 0 where
 * nothing is chosen yet, where there is no such layer, or where all of the prompt is kept. */
uint32_t ckvc_prefill_candidates(const ckvc_prefill *p, uint32_t layer);

/* ---- 6. entries that are fitted ----
 *
 * A table may have a bank of reference queries. With them the entries that a head keeps are changed
 * a little, so that the head answers typical queries as it does with the whole cache
 * (docs/method.md, section 9): one vector is added to all kept keys, and each kept value is
 * changed. The sets stay as they are. After ckvc_prefill_keep:
 *
 *     void *scratch = malloc(ckvc_prefill_fit_bytes(p));
 *     for each layer l with ckvc_prefill_fits(p, l), and each KV head g:
 *         ckvc_fitting f = {attending, its keys, its values, scratch, k, v};
 *         ckvc_prefill_fit(p, l, g, &f);
 *         // store k[i] and v[i] in place of the key and the value of kept position i
 */

/* The entries of one KV head that are to be fitted. */
typedef struct ckvc_fitting {
    ckvc_attending attending;
    const float *keys, *values; /* [T][head_dim] of the whole prompt, keys after the rotation */
    void *scratch;              /* ckvc_prefill_fit_bytes */
    /* [n][head_dim] receive the new keys and values of the kept positions, in the set's order */
    float *fitted_keys, *fitted_values;
} ckvc_fitting;

/* Whether the sets are chosen, and the table fits entries of this layer under their budget. */
int ckvc_prefill_fits(const ckvc_prefill *p, uint32_t layer);
/* The bytes of scratch memory that ckvc_prefill_fit needs for any head, aligned as malloc aligns.
 * They depend on the bank and on head_dim, neither on the prompt nor on its sets. */
size_t ckvc_prefill_fit_bytes(const ckvc_prefill *p);
/* Writes the new keys and values of what a KV head keeps. The call changes nothing in p: threads
 * may fit heads of one prefill side by side, each with a scratch memory of its own. Returns 1, or 0
 * where the entries stay as they are, which the arrays then hold: ckvc_prefill_fits says no, the
 * head keeps everything, or its numbers are not finite. */
int ckvc_prefill_fit(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                     const ckvc_fitting *fitting);

/* The same for an engine whose cache has other types than float32, or that keeps what is kept in
 * another type than the prompt's: rows in, rows out. Values are fitted to the keys as they are held
 * in the end. Keys in CKVC_HELD_Q4_0 are rounded so that their products with the bank's queries
 * change little (docs/method.md, section 11), where a KV head has 2 * head_dim reference queries or
 * more: those of its query heads together. */
typedef struct ckvc_fitting_rows {
    ckvc_attending attending; /* its `most` is not read: formats have their own */
    ckvc_rows keys, values;   /* T rows of the whole prompt, keys after the rotation */
    void *scratch;            /* ckvc_prefill_fit_rows_bytes */
    /* They receive the rows of the kept positions, in the set's order: in these formats
     * (ckvc_held_as), pairs as in `keys`, so many bytes from a row to the next one. */
    void *kept_keys, *kept_values;
    uint32_t key_format, value_format;
    size_t key_stride, value_stride;
} ckvc_fitting_rows;
/* The bytes of scratch memory that ckvc_prefill_fit_rows needs for any head, aligned as malloc
 * aligns: ckvc_prefill_fit_bytes, and room for the keys and values of the largest set in float32.
 * Ask again after each ckvc_prefill_keep. */
size_t ckvc_prefill_fit_rows_bytes(const ckvc_prefill *p);
/* Writes what a KV head keeps, fitted where the table fits it. Other rows are copied as they lie,
 * or rounded to the new format. Returns 1 where the entries were fitted, 0 where they were not, and
 * -1, with nothing written, where nothing is chosen yet, there is no such head, or the rows, or
 * those that are to be written, are none that ckvc_prefill_cache_rows takes. */
int ckvc_prefill_fit_rows(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                          const ckvc_fitting_rows *fitting);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
