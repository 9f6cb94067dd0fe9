/* The options of a fit, as fit and compile share them. */
#ifndef CKVC_FIT_OPTIONS_H
#define CKVC_FIT_OPTIONS_H

#include "cql/fit/fit_records.h"
#include "cmd/common/options.h"

typedef struct fit_choices {
    const char *label, *solver, *reward, *unsupported;
    double cql_alpha;
    int64_t bootstrap;
    bool shrink;
} fit_choices;

fit_choices fit_choice_defaults(void);
/* Everything that they decide; the rest as fit_defaults has it. label is borrowed. */
fit_options fit_options_of(const fit_choices *c);

/* These two are calibrate's, too: what --until-stable judges by. */
#define OPT_CQL_ALPHA(v)                                                                           \
    {                                                                                              \
        OPT_DOUBLE, "cql-alpha", 0, &(v), "X",                                                     \
            "weight of the conservative term; 0 is plain regression", 0, 1000                      \
    }
#define OPT_REWARD(v)                                                                              \
    {                                                                                              \
        OPT_CHOICE, "reward", 0, &(v), "advantage|raw",                                            \
            "over the baseline on unit scale, or as logged", 0, 0                                  \
    }

#define OPTS_FIT(c)                                                                                \
    {OPT_TITLE, "the fit", 0, NULL, NULL, NULL, 0, 0}, OPT_CQL_ALPHA((c).cql_alpha),               \
        {OPT_CHOICE,                                                                               \
         "solver",                                                                                 \
         0,                                                                                        \
         &(c).solver,                                                                              \
         "exact|adamw",                                                                            \
         "exact minimum, or the paper's optimiser",                                                \
         0,                                                                                        \
         0},                                                                                       \
        OPT_REWARD((c).reward),                                                                    \
        {OPT_CHOICE,                                                                               \
         "unsupported",                                                                            \
         0,                                                                                        \
         &(c).unsupported,                                                                         \
         "incoming|safest|neighbour",                                                              \
         "what cells without records get",                                                         \
         0,                                                                                        \
         0},                                                                                       \
        {OPT_INT, "bootstrap",                                                                     \
         0,       &(c).bootstrap,                                                                  \
         "R",     "refits over resampled prompts; stores each action's share",                     \
         0,       100000},                                                                         \
        {OPT_FLAG,                                                                                 \
         "shrink",                                                                                 \
         0,                                                                                        \
         &(c).shrink,                                                                              \
         NULL,                                                                                     \
         "keep weight 1.0 or the threshold nearest to 0.90 unless the bootstrap shows a better "   \
         "action",                                                                                 \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        OPT_TEXT, "label", 0, &(c).label, "TEXT",                                                  \
            "the table's name in reports (default: the model's)", 0, 0                             \
    }

#endif
