/* Fits the entries that sets keep of a prompt by the bank of a table (docs/method.md, section 9),
 * and hands them to the prompt's session. */
#pragma once

#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

/* Says which sets' entries are fitted, and by what. All pointers are borrowed. */
typedef struct fit_request {
    session *session; /* holds the prefilled prompt, and gets the fitted entries */
    uint32_t n_tokens;
    const ckvc_table *table; /* has a bank */
    uint32_t block;          /* the block of the table whose queries and ridges are used */
    const double *ridge;     /* of all layers, in place of the table's; NULL: the table's */
    kept_set *sets;          /* [L] in layers with a ridge above 0, `fitted` becomes true */
} fit_request;

typedef struct entry_fitter {
    const model_shape *shape;
    size_t bytes, scratch_bytes; /* of all that it holds; of one head's scratch memory */
    /* What the whole prompt answers to reference queries. Candidates that differ in what they keep,
     * or in the ridge, share these answers. */
    size_t n_whole;         /* the most numbers that a head has */
    double *whole;          /* [L][G][n_whole], as ckvc_fit has them */
    uint8_t *known;         /* [L][G] whether a head's answers are there */
    const ckvc_table *bank; /* the table whose bank they answer; NULL: none are there */
    ckvc_bank_use use;      /* the queries of this bank that they answer */
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

/* Opens a fitter for prompts of up to max_tokens and for tables whose banks have no more queries
 * than that of `most`. The caller closes it with entry_fitter_close. `shape` is borrowed. */
void entry_fitter_open(entry_fitter *f, const model_shape *shape, uint32_t max_tokens,
                       const ckvc_table *most);
void entry_fitter_close(entry_fitter *f);
/* Says that the next fit is of another prompt than the one before, so that what the whole prompt
 * answered is computed anew. */
void entry_fitter_forget(entry_fitter *f);

/* Fits the entries of all layers with a ridge above 0 and writes them to the session. It does not
 * allocate, and the result has the same bytes for any number of threads. The status is that of
 * reading the session's cache. */
ckvc_status entry_fitter_fit(entry_fitter *f, const fit_request *r, ckvc_err *err) CKVC_MUST_CHECK;
