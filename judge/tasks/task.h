/* Tasks: prompts with a question whose answer is known, made from a seed, and the score of an
 * answer's text. Runs no model and knows no tokenizer: a callback
 * counts tokens. judge/tasks/README.md lists every task with its source. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "judge/tasks/metrics.h"

enum { TASK_EARLIER = 2 }; /* turns before an item's own, at most */

typedef struct task_item {
    char *id;           /* "niah/1024/0.25/3": task, tokens aimed at, depth, number */
    const char *task;   /* "niah"; static */
    const char *group;  /* "needle"; static */
    char *prompt;       /* what is prefilled, question and the answer's first words included */
    size_t prompt_size; /* bytes; a NUL behind */
    size_t question_at; /* the byte where the question begins: what lies before is the context */
    size_t reply_at;    /* where the answer's given first words begin, which belong into the
                           assistant's turn; prompt_size: there are none */
    /* Questions before its own, the first at question_at, and their right answers: the cache is
     * compressed behind the first question, at its reply_at. */
    struct {
        size_t reply_at, end; /* of the reply, whose end is where the next question begins */
    } earlier[TASK_EARLIER];
    uint32_t n_earlier;
    char **answers;   /* each NUL-terminated */
    size_t n_answers; /* >= 1 */
    char **classes;   /* of classification: every label that may be said */
    size_t n_classes;
    task_metric metric;
    uint32_t max_new; /* tokens that an answer may have */
    uint32_t length;  /* tokens aimed at: the prompt has no more, and few less */
    double depth;     /* of the needle, 0 the beginning of the context, 1 its end; NaN: none */
    bool first_line;  /* only the first line counts, behind any line feeds: decoding may stop at its
                         end */
    bool plain;       /* goes on where it stops: no chat template around it */
} task_item;

typedef struct task_items {
    task_item *items;
    size_t n;
} task_items;
void task_items_fini(task_items *list);

/* Tokens of a text as the caller's model sees it. */
typedef ckvc_status (*task_count_fn)(void *of, const char *text, size_t n, size_t *tokens,
                                     ckvc_err *err);

typedef struct task_options {
    uint64_t seed;
    const uint32_t *lengths; /* tokens of a prompt, each once */
    size_t n_lengths;
    const double *depths; /* [0, 1], for tasks that place one needle; none: 0, 0.25, 0.5, 0.75, 1 */
    size_t n_depths;
    uint32_t count;       /* items of each task, length and depth */
    const char *haystack; /* a UTF-8 text file in whose sentences needles lie; NULL: sentences are
                             made up */
    task_count_fn count_tokens;
    void *counter; /* its `of` */
} task_options;

/* Items of tasks by their names or the names of groups, separated by commas; "all" is every task.
 * Of groups and of "all", tasks that a length is too short for are left out of it with a warning.
 * In the order of the list of tasks, then of
 * lengths, depths and numbers. An item depends on the seed and its id alone (and on the haystack
 * and the tokenizer), never on what else is asked for. Every answer stands in the context exactly
 * as often as its task says. CKVC_E_USAGE: no such task; CKVC_E_NOINPUT: the
 * haystack is not there; CKVC_E_DATA: a length too short for a task, a haystack without sentences.
 * Of OK there is one item
 * at least. *out is to be released with task_items_fini in every case. */
ckvc_status task_items_make(const char *names, const task_options *options, task_items *out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* The score of an answer's text under the item's metric, 0 to 1. NUL-terminated UTF-8. */
double task_score(const task_item *item, const char *answer);

/* Everything of an item, for people to look at. New reference. */
json_t *task_item_json(const task_item *item);
