/* Items of tasks as a model gets them: the token ids of what is prefilled, of the question after it
 * and of the right answer. */
#pragma once

#include "calib/prompt/prompts.h"
#include "formats/lines/answers.h"
#include "judge/tasks/task.h"

typedef struct eval_item {
    const task_item *task;
    /* The right answer of another item of the task: of the next one whose answer differs. NULL:
     * there is none. */
    const char *control;
    /* How many tokens are fed after the kept prompt: a question that was not in it, and later
     * turns. */
    uint32_t n_question;
    uint32_t n_reference; /* how many tokens the first right answer has, which come after them */
} eval_item;

typedef struct eval_items {
    eval_item *items;        /* [prompts.n] */
    manifest_entry *entries; /* the entries of the prompts, with ids alone */
    /* Prompt i has T tokens, and n_question and n_reference tokens as its continuation;
     * max_continuation is the longest of these. */
    prompt_list prompts;
    answer_query query;           /* how they were made */
    uint32_t max_behind;          /* the most tokens for which a cache has room after a prompt */
    char sha256[CKVC_SHA256_HEX]; /* of ids, tokens and lengths */
} eval_items;

/* How items become tokens. All pointers are borrowed. */
typedef struct eval_text {
    const tokenizer *tok;
    const model_shape *shape;
    /* Items are messages of a user, except those that continue a text; NULL: all are plain text. */
    const chat_template *chat;
    answer_query query; /* how much of an item is in the prompt */
    int64_t longest;    /* the most tokens of a prompt; 0: as many as the context allows */
} eval_text;

/* Makes items from task items, which are borrowed. Context and question are encoded apart, so that
 * they are the same tokens whether the question is in the prompt or not. A prompt that is too long
 * for the context (or longer than `longest`) loses the middle of its context (as LongBench's
 * pred.py cuts). Where an item was made for a length, or where nothing would be left to prefill, a
 * prompt that is too long is CKVC_E_DATA. The caller frees *out with eval_items_free. */
ckvc_status eval_items_make(const eval_text *how, const task_items *from, eval_items **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void eval_items_free(eval_items *e);
CKVC_AUTO_OF(eval_items, eval_items_free)
/* Returns for how many tokens sequences of an item need room after the kept prompt: its question,
 * and its answer or the right one, whichever is longer. */
uint32_t eval_item_behind(const eval_item *e);
