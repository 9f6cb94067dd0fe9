/* What a task is to task_items.c: a name, and a function that writes its prompt with so many units
 * of filler. A unit is the task's own: a sentence, a pair, a line, a document. */
#pragma once

#include <math.h>

#include "lib/base/json.h"
#include "lib/base/hash.h"
#include "judge/tasks/lexicon.h"
#include "judge/tasks/task.h"

typedef struct task_draft { /* an item while it is written; what is drawn comes from rng alone */
    const struct task_kind *kind;
    ckvc_rng rng; /* of this item and attempt: the same at every number of units */
    double depth; /* asked for, or where the task leaves it to chance, set by write */
    uint32_t length;
    const haystack *hay;
    bool full; /* set by write: more units would add nothing */
    ckvc_buffer text;
    task_item *item; /* answers, question_at, reply_at are write's to set */
} task_draft;

typedef struct task_kind {
    const char *name, *group;
    /* Writes the prompt with `units` of filler: facts are drawn before filler, so that those of an
     * item are the same at every number of units. */
    void (*write)(task_draft *d, uint32_t units);
    int variant;                      /* the write function's own */
    uint32_t least_units, most_units; /* 0: without end */
    uint32_t max_new;
    task_metric metric;
    uint32_t times;  /* that an answer stands in the context; 0: the task holds this by itself */
    bool placed;     /* an item for each of the depths asked for */
    bool first_line; /* task_item's */
    bool plain;
} task_kind;

/* What every kind has; behind it its metric, and other members, by name. */
#define TASK(NAME, GROUP, WRITE, UNITS, TOKENS, ...)                                               \
    {                                                                                              \
        .name = (NAME), .group = (GROUP), .write = (WRITE), .least_units = (UNITS),                \
        .max_new = (TOKENS), __VA_ARGS__                                                           \
    }

/* Each ends with a kind without a name. */
extern const task_kind task_needles[], task_tracking[], task_word_lists[], task_records[];

static inline void task_answer(task_draft *d, const char *answer) {
    task_item *item = d->item;
    item->answers = ckvc_realloc_array(item->answers, item->n_answers + 1, sizeof *item->answers);
    item->answers[item->n_answers++] = ckvc_strdup(answer);
}

/* Units that stand before what lies at a depth. */
static inline uint32_t task_place(double depth, uint32_t units) {
    return (uint32_t)floor(depth * units + 0.5);
}
