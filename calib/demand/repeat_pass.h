/* The repeat pass: a prompt once more behind an instruction, on the prompt's own full cache, and
 * what it attends to there.
 *
 * Where twice the prompt does not fit the context it is repeated in chunks of 2,048 tokens, each
 * behind the instruction. */
#pragma once

#include "calib/prompt/prompts.h"
#include "lib/model/model.h"

#define REPEAT_TEXT "Repeat the previous context exactly." /* behind a blank line */

typedef struct repeat_pass {
    const model_shape *shape;
    const int32_t *instruction; /* [n_instruction], borrowed */
    uint32_t n_instruction;
    int32_t *fed; /* instruction, chunk; sized for the longest prompt (repeat_fed) */
} repeat_pass;

/* The longest prompt that a model with this context can repeat behind n_instruction tokens; less
 * than 1 where it is none. */
int64_t repeat_longest(int64_t context, uint32_t n_instruction);
/* Tokens that are fed at a time behind a prompt of n_tokens, and at most of a list. */
uint32_t repeat_fed(const repeat_pass *r, uint32_t n_tokens);
uint32_t repeat_most_fed(const repeat_pass *r, const prompt_list *prompts);

typedef struct repeat_job {
    const repeat_pass *pass; /* its `fed` is this job's alone */
    session *session;
    const int32_t *tokens; /* [n_tokens], the prefilled prompt */
    uint32_t n_tokens;
    /* [L][G][T]: the largest attention that a position of the prompt gets from the rows behind the
     * instruction, over the group's query heads; more is scratch. */
    double *y, *more;
} repeat_job;
/* n prompts, through the layers together where they are more than one. */
ckvc_status repeat_targets(const repeat_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
