/* The JSON lines of `ckvc eval` (answers.md): one row for each item x policy x budget, the full
 * cache first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/json.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* The name of the full cache among policies. The names of the others are in policy_kind.h. */
#define ANSWERS_FULL "full"

/* What a policy saw when it decided what to keep. ANSWER_SEEN: the prompt with its question, which
 * of several turns is the first one's. ANSWER_UNSEEN: what stands before the question.
 * ANSWER_ALL_SEEN: all turns. */
typedef enum answer_query {
    ANSWER_SEEN,
    ANSWER_UNSEEN,
    ANSWER_ALL_SEEN,
    ANSWER_QUERIES
} answer_query;
extern const char *const answer_queries[ANSWER_QUERIES]; /* the names of the values */

typedef struct answer_row {
    uint32_t line;                                           /* 1-based */
    char *id, *task, *group, *model, *policy, *metric, *end; /* model is its fingerprint */
    /* content id of the table, or of the table that a control was made from; NULL when there is
     * none */
    char *table;
    char *answer; /* the text of the answer */
    /* true for a policy whose prompt is no longer than the window, so that all of it is kept */
    bool whole;
    answer_query query;
    uint32_t n_tokens;   /* T, the tokens that were prefilled and compressed */
    uint32_t n_question; /* tokens that were then fed over the compressed cache */
    /* the length in tokens that the item was made for; 0 when there is none */
    uint32_t aimed;
    double depth; /* of the needle, 0 to 1; NaN when there is none */
    /* as asked: tokens from 1 up, below 1 a share of T; NaN for the full cache */
    double budget;
    double entries; /* how many (layer, KV head, position) of the prompt are kept */
    double share;   /* their share of all L * G * T */
    double bytes;   /* bytes of their keys and values in their formats */
    double score;   /* the metric of the answer, 0 to 1 */
    /* the metric that a wrong answer in its place has; NaN when there is none */
    double control;
    double nll; /* mean over the answer's own tokens, in nats; NaN when it has none */
    /* mean over the right answer's tokens, teacher-forced, in nats; NaN when not measured */
    double reference_nll;
    /* tokens fed by a policy's second pass over the prompt; NaN when it has no such pass */
    double repeat_tokens;
    uint32_t n_answer; /* how many tokens the answer has */
    setting setting;   /* the setting under which sets were kept (SETTING_SCORE) */
} answer_row;

typedef struct answers {
    answer_row *rows;
    size_t n, capacity;
} answers;

/* Whether it is the full cache in float32; the policy `full` may hold it in other formats. */
bool answer_is_full(const answer_row *row);
/* Appends the row's line in canonical form, without its newline. */
void answers_append(ckvc_buffer *b, const answer_row *row);
/* Reads and checks every line. Unknown, missing or repeated keys, wrong types, numbers that
 * contradict each other, and the same item x policy x budget twice are CKVC_E_DATA "FILE:LINE:
 * ...". */
ckvc_status answers_read(const char *path, answers **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Does the same for lines in memory, whose name in messages is `path`. */
ckvc_status answers_read_lines(const char *path, const uint8_t *data, size_t n, answers **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
void answers_free(answers *a);
CKVC_AUTO_OF(answers, answers_free)
