/* Tasks: prompts with a question whose answer is known, made from a seed, and the score of an
 * answer's text. Nothing here runs a model or knows a tokenizer: a callback counts tokens.
 * judge/tasks/README.md lists every task with its source. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "judge/tasks/metrics.h"

enum { TASK_EARLIER = 2 }; /* the most turns before an item's own */

typedef struct task_item {
    char *id;          /* "niah/1024/0.25/3": task, tokens aimed at, depth, number */
    const char *task;  /* "niah"; static */
    const char *group; /* "needle"; static */
    /* what is prefilled, with the question and the answer's given first words */
    char *prompt;
    size_t prompt_size; /* bytes; a NUL follows */
    size_t question_at; /* the byte where the question begins; what lies before it is the context */
    /* Where the given first words of the answer begin, which belong to the assistant's turn;
     * prompt_size: there are none. */
    size_t reply_at;
    /* The questions before its own, the first of which is at question_at, and their right answers.
     * The cache is compressed after the first question, at its reply_at. */
    struct {
        size_t reply_at, end; /* its reply, which ends where the next question begins */
    } earlier[TASK_EARLIER];
    uint32_t n_earlier;
    char **answers;   /* each NUL-terminated */
    size_t n_answers; /* >= 1 */
    char **classes;   /* for classification: every label that may be said */
    size_t n_classes;
    task_metric metric;
    uint32_t max_new; /* the most tokens that an answer may have */
    uint32_t length;  /* tokens aimed at: the prompt has no more, and only a few less */
    double depth;     /* of the needle: 0 the context's beginning, 1 its end; NaN: no needle */
    /* Only the first line counts, after any line feeds, so decoding may stop at its end. */
    bool first_line;
    bool plain; /* the text continues where it stops, so it gets no chat template */
} task_item;

typedef struct task_items {
    task_item *items;
    size_t n;
} task_items;
void task_items_fini(task_items *list);

/* Writes to *tokens how many tokens text [n bytes] has for the caller's model. */
typedef ckvc_status (*task_count_fn)(void *of, const char *text, size_t n, size_t *tokens,
                                     ckvc_err *err);

typedef struct task_options {
    uint64_t seed;
    const uint32_t *lengths; /* tokens of a prompt; each length once */
    size_t n_lengths;
    /* [0, 1], for tasks that place one needle; without any: 0, 0.25, 0.5, 0.75 and 1. */
    const double *depths;
    size_t n_depths;
    uint32_t count; /* items for each task, length and depth */
    /* A UTF-8 text file in whose sentences needles lie; NULL: the sentences are made up. */
    const char *haystack;
    task_count_fn count_tokens;
    void *counter; /* its argument `of` */
} task_options;

/* Makes the items of tasks. `names` has tasks' or groups' names, separated by commas; "all" is
 * every task. Where a length is too short for a task, a group and "all" leave the task out of that
 * length with a warning. Items come in the order of the list of tasks, then of lengths, depths and
 * numbers. An item depends on the seed and its id (and on the haystack and the tokenizer), never on
 * what else is asked for. Every answer occurs in the context exactly as often as its task says.
 * There is at least one item.
 *
 * The status is CKVC_E_USAGE where there is no such task, CKVC_E_NOINPUT where the haystack is not
 * there, and CKVC_E_DATA where a length is too short for a task or a haystack has no sentences. The
 * caller releases *out with task_items_fini in every case. */
ckvc_status task_items_make(const char *names, const task_options *options, task_items *out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the score of an answer's text under the item's metric, from 0 to 1. The answer is
 * NUL-terminated UTF-8. */
double task_score(const task_item *item, const char *answer);

/* Returns everything about an item, for people to read, as a new reference. */
json_t *task_item_json(const task_item *item);
