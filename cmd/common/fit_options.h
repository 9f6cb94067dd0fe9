/* The options of a fit, as fit and compile share them. */
#pragma once

#include "cql/fit/fit_result.h"
#include "cmd/common/options.h"

#define OPT_CELLS(member)                                                                          \
    OPT_LIST("cells", member, "E,P", "entropy and perplexity bins of thresholds below shares",     \
             .preset = "1,1")
extern const opt opts_fit[]; /* rows of fit_options: the fit */
/* These two are calibrate's, too: what --until-stable judges by. */
#define OPT_CQL_ALPHA(member)                                                                      \
    OPT_DOUBLE("cql-alpha", member, "X", 0, 1000,                                                  \
               "weight of the conservative term; 0 is plain regression", .preset = "0.75")
#define OPT_REWARD(member)                                                                         \
    OPT_ENUM("reward", member, "advantage|raw", "over the baseline on unit scale, or as logged")
