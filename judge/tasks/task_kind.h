/* What task_items.c knows of a task: its name, and a function that writes its prompt with so many
 * units of filler. Each task has its own unit: a sentence, a pair, a line, a document. */
#pragma once

#include <math.h>

#include "lib/base/json.h"
#include "lib/base/hash.h"
#include "judge/tasks/lexicon.h"
#include "judge/tasks/task.h"

typedef struct task_draft { /* an item while it is written; everything random comes from rng */
    const struct task_kind *kind;
    ckvc_rng rng; /* of this item and attempt: the same for every number of units */
    /* Where the needle is asked for: 0 is the context's beginning, 1 its end. A task that is not
     * `placed` leaves it unused. */
    double depth;
    uint32_t length; /* tokens that the prompt aims at */
    const haystack *hay;
    ckvc_buffer text;
    task_item *item; /* write sets its answers, question_at and reply_at */
} task_draft;

typedef struct task_kind {
    const char *name, *group;
    /* Writes the prompt with `units` of filler. It draws facts before filler, so that the facts of
     * an item are the same for every number of units. */
    void (*write)(task_draft *d, uint32_t units);
    int variant;                      /* a number for the write function */
    uint32_t least_units, most_units; /* 0: there is no limit */
    uint32_t max_new;
    task_metric metric;
    /* How often an answer must occur in the context; 0: the task ensures this by itself. */
    uint32_t times;
    bool placed;     /* makes an item for each of the depths asked for */
    bool first_line; /* as in task_item, like `plain` */
    bool plain;
} task_kind;

/* The members that every kind has; its metric and other members follow, by name. */
#define TASK(NAME, GROUP, WRITE, UNITS, TOKENS, ...)                                               \
    {                                                                                              \
        .name = (NAME), .group = (GROUP), .write = (WRITE), .least_units = (UNITS),                \
        .max_new = (TOKENS), __VA_ARGS__                                                           \
    }

/* Each list ends with a kind that has no name. */
extern const task_kind task_needles[], task_tracking[], task_word_lists[], task_records[];

/* Adds a copy of an answer to those of the draft's item. */
static inline void task_answer(task_draft *d, const char *answer) {
    task_item *item = d->item;
    item->answers = ckvc_realloc_array(item->answers, item->n_answers + 1, sizeof *item->answers);
    item->answers[item->n_answers++] = ckvc_strdup(answer);
}

/* Returns how many of the units stand before something that lies at a depth of 0 to 1. */
static inline uint32_t task_place(double depth, uint32_t units) {
    return (uint32_t)floor(depth * units + 0.5);
}
