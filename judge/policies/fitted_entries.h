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
    /* [G][max T][D] of the open layer. The fitted entries of a head come first, as many as it
     * keeps, and then go to their positions. */
    float *keys, *values, *fitted_keys, *fitted_values;
    char *scratch; /* [G][scratch_bytes] */
    /* The layer in hand: */
    const fit_request *of;
    double ridge;
    layer_rule rule;
    uint32_t layer;
} entry_fitter;

/* Opens it for prompts of up to max_tokens and banks that need up to scratch_bytes
 * (ckvc_bank_fit_bytes). */
void entry_fitter_open(entry_fitter *f, const model_shape *shape, uint32_t max_tokens,
                       size_t scratch_bytes);
void entry_fitter_close(entry_fitter *f);

/* Fits all layers. It does not allocate, and the bytes are the same for any number of threads. */
ckvc_status entry_fitter_fit(entry_fitter *f, const fit_request *r, ckvc_err *err) CKVC_MUST_CHECK;
