/* The JSON lines of `ckvc eval` (answers.md): one row an item x policy x budget, the full cache
 * first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/json.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* The name of the full cache among policies; the others go by policy_kind.h. */
#define ANSWERS_FULL "full"

/* What a policy decided on: the prompt with its question, of several turns the first one's; what
 * stands before it; or all turns. */
typedef enum answer_query {
    ANSWER_SEEN,
    ANSWER_UNSEEN,
    ANSWER_ALL_SEEN,
    ANSWER_QUERIES
} answer_query;
extern const char *const answer_queries[ANSWER_QUERIES]; /* their names */

typedef struct answer_row {
    uint32_t line;                                           /* 1-based */
    char *id, *task, *group, *model, *policy, *metric, *end; /* model: its fingerprint */
    char *table;  /* content id of the table or of the one that a control is of; NULL: none */
    char *answer; /* the text */
    bool whole;   /* a policy's of a prompt no longer than the window: all of it is kept */
    answer_query query;
    uint32_t n_tokens;    /* T of what was prefilled and compressed */
    uint32_t n_question;  /* tokens fed over the compressed cache after it */
    uint32_t aimed;       /* length that the item was made for, tokens; 0: none */
    double depth;         /* of the needle, 0 to 1; NaN: none */
    double budget;        /* as asked, >= 1 tokens, < 1 a share of T; NaN: the full cache */
    double entries;       /* kept (layer, KV head, position) of the prompt */
    double share;         /* of all of them, L * G * T */
    double bytes;         /* of their keys and values, in float32 */
    double score;         /* metric of the answer, 0 to 1 */
    double control;       /* the metric of a wrong answer in its place; NaN: none */
    double nll;           /* mean of the answer's own tokens, nats; NaN: there is none */
    double reference_nll; /* of the right answer's, teacher-forced; NaN: not measured */
    double repeat_tokens; /* fed by a policy's second pass over the prompt; NaN: it has none */
    uint32_t n_answer;    /* tokens of the answer */
    setting setting;      /* under which sets were kept (SETTING_SCORE) */
} answer_row;

typedef struct answers {
    answer_row *rows;
    size_t n, capacity;
} answers;

bool answer_is_full(const answer_row *row);
/* Appends the row's line, without its newline, in canonical form. */
void answers_append(ckvc_buffer *b, const answer_row *row);
/* Reads and checks every line: unknown, missing or repeated keys, wrong types, numbers that
 * contradict each other, or the same item x policy x budget twice are CKVC_E_DATA with
 * "FILE:LINE: ...". */
ckvc_status answers_read(const char *path, answers **out, ckvc_err *err) CKVC_MUST_CHECK;
/* The same of lines in memory, whose name is `path`. */
ckvc_status answers_read_lines(const char *path, const uint8_t *data, size_t n, answers **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
void answers_free(answers *a);
CKVC_AUTO_OF(answers, answers_free)
