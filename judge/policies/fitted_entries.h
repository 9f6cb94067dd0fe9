/* Fits the entries that sets keep of a prompt by the bank of a table (docs/method.md, section 9),
 * and hands them to the prompt's session. */
#pragma once

#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

/* The entries of which sets are fitted, and by what. */
typedef struct fit_request {
    session *session; /* it holds the prefilled prompt */
    uint32_t n_tokens;
    const ckvc_table *table; /* it has a bank */
    uint32_t block;
    const double *ridge; /* of all layers, in place of the table's; or NULL */
    kept_set *sets;      /* [L] those of fitted layers become `fitted` */
} fit_request;

typedef struct entry_fitter {
    const model_shape *shape;
    size_t bytes, scratch_bytes; /* of all it holds; of one head's scratch memory */
    /* What reference queries are answered with the whole prompt. Candidates that differ in what
     * they keep, or in the ridge, share it. */
    size_t n_whole;         /* numbers of a head, at most */
    double *whole;          /* [L][G][n_whole], as ckvc_fit has it */
    uint8_t *known;         /* [L][G] whether they are there, ... */
    const ckvc_table *bank; /* ... by the bank of this table; NULL: of no head */
    ckvc_bank_use use;      /* and by these queries of it */
    /* [G][max T][D] of the open layer. The fitted entries of a head come first, as many as it
     * keeps, and then go to their positions. */
    float *keys, *values, *fitted_keys, *fitted_values;
    char *scratch; /* [G][scratch_bytes] */
    /* The layer in hand: */
    const fit_request *of;
    double ridge;
    layer_rule rule;
    const float *key_means; /* [L][G][D] of the prompt, where its layers' formats take them out */
    uint32_t layer;
} entry_fitter;

/* Opens it for prompts of up to max_tokens and for tables whose banks have no more queries than
 * this one's. */
void entry_fitter_open(entry_fitter *f, const model_shape *shape, uint32_t max_tokens,
                       const ckvc_table *most);
void entry_fitter_close(entry_fitter *f);
/* Says that the next fit is of another prompt than the one before. */
void entry_fitter_forget(entry_fitter *f);

/* Fits all layers. It does not allocate, and the bytes are the same for any number of threads. */
ckvc_status entry_fitter_fit(entry_fitter *f, const fit_request *r, ckvc_err *err) CKVC_MUST_CHECK;
