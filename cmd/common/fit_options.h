/* The options of a fit, as fit and compile share them. */
#ifndef CKVC_FIT_OPTIONS_H
#define CKVC_FIT_OPTIONS_H

#include "cql/fit/fit_records.h"
#include "cmd/common/options.h"

typedef struct fit_choices {
    const char *label;
    fit_solver solver;
    fit_reward reward;
    fit_unsupported unsupported;
    double cql_alpha;
    int64_t bootstrap;
    bool shrink;
} fit_choices;

/* Everything that they decide; the rest as fit_defaults has it. label is borrowed. */
fit_options fit_options_of(const fit_choices *c);

extern const opt opts_fit[]; /* rows of fit_choices: the fit */
/* These two are calibrate's, too: what --until-stable judges by. */
#define OPT_CQL_ALPHA(member)                                                                      \
    OPT_DOUBLE("cql-alpha", member, "X", 0, 1000,                                                  \
               "weight of the conservative term; 0 is plain regression", .preset = "0.75")
#define OPT_REWARD(member)                                                                         \
    OPT_ENUM("reward", member, "advantage|raw", "over the baseline on unit scale, or as logged")

#endif
