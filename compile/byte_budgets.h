/* Budgets in bytes (docs/method.md, section 11). A byte share is a share of what the whole cache
 * takes in 16 bits. It can be spent in several ways: many entries in few bits, or fewer entries in
 * more bits. Each way is a budget in entries, with its own demand and shares, whose entries are
 * held in a pair of formats. Those of one byte share compete on the select prompts. */
#pragma once

#include "budgets/select.h"
#include "formats/table/table_file.h"
#include "lib/base/cache_format.h"

enum {
    BYTE_WAYS = 5,         /* the most ways to spend a byte share */
    BYTE_BUDGETS_MAX = 64, /* the most budgets */
    WHOLE_CACHES = 6       /* the most formats in which the whole cache is scored beside a table */
};

typedef struct byte_budgets {
    /* [n] the ways to spend the byte shares. `share` is the byte share as it was asked for, which
     * stands once for each of its ways; `budget` is the way's budget in entries, and `held` the
     * formats in which these are held. */
    double share[BYTE_BUDGETS_MAX], budget[BYTE_BUDGETS_MAX];
    cache_formats held[BYTE_BUDGETS_MAX];
    uint32_t n;
    cache_formats whole[WHOLE_CACHES]; /* [n_whole] */
    uint32_t n_whole;
} byte_budgets;

typedef struct byte_ask {
    const double *shares; /* [n] */
    uint32_t n;
    const cache_formats *only; /* the one way that is tried; NULL: all */
    bool first;                /* whether to try the first way alone, since nothing can choose */
    bool biased;               /* the model's keys have a bias */
    int32_t head_dim;
    /* How many tokens the shortest prompt has, and how many of these a head keeps at least. */
    uint32_t shortest, least;
} byte_ask;
/* Lists the budgets of byte shares, those of a share in the order in which they are preferred. It
 * leaves out formats that heads of this size do not go into, budgets that hold the whole prompt,
 * and those that keep too few entries of the shortest prompt. The status is CKVC_E_USAGE where
 * nothing is left of a share, or two budgets of different shares are the same number of entries. */
ckvc_status byte_budgets_make(const byte_ask *ask, byte_budgets *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Takes from a table that was fitted with these budgets all but one for each byte share, and writes
 * to the table how that one was chosen and is held. It is the one to which select_across left a
 * candidate. Where none has one, or s is NULL, it is the preferred one. META then says under
 * "select" what each way lost. */
void byte_budgets_take(const byte_budgets *o, const select_losses *s, table_file *t);
/* Returns all budgets, a new reference: {bytes, budget, keys, values} and, with s, `kl` or `loss`,
 * the least mean among candidates, and whether it was `chosen`. */
json_t *byte_budgets_json(const byte_budgets *o, const select_losses *s);
