/* The rows of the score files that count, by series: one policy or table in one setting. */
#pragma once

#include <string.h>

#include "formats/lines/score_kind.h"
#include "formats/lines/scores.h"
#include "formats/setting/setting.h"

typedef struct score_series {
    const char *title, *model, *policy;
    const char *table; /* content id; "": none */
    score_kind kind;   /* of the policy; SCORE_KIND_COUNT: another program's */
    double budget;
    uint64_t layer_budgets; /* which budgets by layer; 0: none */
    uint32_t continuation;
    setting setting;
    double *taus; /* [n_taus] the thresholds of a matched control, ascending: one for each `score`
                     that found its own */
    size_t n_taus;
    const score_row **rows; /* [n] by prompt, each once */
    size_t n;
} score_series;

typedef struct score_files {
    scores **files;
    size_t n_files;
    score_series *series;
    size_t n_series, n_rows;
    size_t dropped_seen, dropped_split,
        dropped_twice; /* the last: that another file gave already */
    size_t used_seen;  /* rows in use although a run took records from their prompts: there was
                          nothing else */
    size_t n_marked;   /* rows in use that are marked as held out */
    const score_row **utilities; /* [n_utilities] rows with utilities, each model and prompt once,
                                    by model; of a model all have the same layers and heads */
    size_t n_utilities;
} score_files;

/* One model, budget, C. */
static inline bool score_same_budget(const score_series *a, const score_series *b) {
    return strcmp(a->model, b->model) == 0 && a->budget == b->budget &&
           a->layer_budgets == b->layer_budgets && a->continuation == b->continuation;
}

static inline bool score_same_setting(const score_series *a, const score_series *b) {
    return setting_compare(&a->setting, &b->setting, SETTING_SCORE) == 0;
}

/* By manifest, then id. */
static inline int score_compare_prompts(const score_row *a, const score_row *b) {
    int c = strcmp(a->manifest, b->manifest);
    return c ? c : strcmp(a->id, b->id);
}
