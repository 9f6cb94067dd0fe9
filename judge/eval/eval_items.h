/* Items of tasks as a model takes them: token ids of what is prefilled, of the question behind it
 * and of the right answer. */
#pragma once

#include "calib/prompt/prompts.h"
#include "formats/lines/answers.h"
#include "judge/tasks/task.h"

typedef struct eval_item {
    const task_item *task;
    /* The right answer of another item of the task, the next one that has another; NULL: none has.
     */
    const char *control;
    uint32_t n_question;  /* tokens fed over what is kept: an unseen question, later turns */
    uint32_t n_reference; /* tokens of the first right answer, behind them */
} eval_item;

typedef struct eval_items {
    eval_item *items;        /* [prompts.n] */
    manifest_entry *entries; /* theirs, with ids alone */
    /* Of item i T tokens and as its continuation n_question and n_reference; max_continuation is
     * the longest of these. */
    prompt_list prompts;
    answer_query query;           /* as they were made */
    uint32_t max_behind;          /* tokens that a cache has room for behind a prompt, at most */
    char sha256[CKVC_SHA256_HEX]; /* of ids, tokens and lengths */
} eval_items;

typedef struct eval_text {
    const tokenizer *tok;
    const model_shape *shape;
    const chat_template *chat; /* items are a user's message, but those that go on; NULL: text */
    answer_query query;        /* what is in the prompt */
    int64_t longest;           /* a prompt has at most so many tokens; 0: as the context allows */
} eval_text;

/* Context and question are encoded apart, so that they are the same tokens whether the question is
 * seen or not. A prompt that is too long for the context (or than longest) loses the middle of its
 * context (as LongBench's pred.py cuts), unless it was made for a length: then, and where nothing
 * is left to prefill, it is CKVC_E_DATA. Borrows the items. */
ckvc_status eval_items_make(const eval_text *how, const task_items *from, eval_items **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void eval_items_free(eval_items *e);
CKVC_AUTO_OF(eval_items, eval_items_free)
/* Tokens that sequences of an item need room for: its question, and its answer or the right one. */
uint32_t eval_item_behind(const eval_item *e);
