/* Options of a fit: see fit_options.h. */
#include "cmd/common/fit_options.h"

#define OPTIONS_OF fit_options
const opt opts_fit[] = {
    OPT_TITLE("the fit"),
    OPT_CQL_ALPHA(cql_alpha),
    OPT_ENUM("solver", solver, "exact|adamw", "exact minimum, or the paper's optimiser"),
    OPT_REWARD(reward),
    OPT_ENUM("unsupported", unsupported, "incoming|safest|neighbour",
             "what cells without records get"),
    OPT_COUNT("bootstrap", replicates, "R", 0, 100000,
              "refits over resampled prompts; stores each action's share (0: none; of demand 400)"),
    OPT_ENUM("mode", mode, "shared|heads|layers",
             "of demand: budgets of KV heads or of layers; shared: the paper's, all alike",
             .preset = "heads"),
    OPT_ENUM(
        "score", score, "paper|window|learned",
        "of demand: by what sets are ranked; learned: where a score pass is there, else window",
        .preset = "learned"),
    OPT_COUNT("features", features, "1|2", 1, 2,
              "of a learned score; 2: without those of the attention's last rows", .preset = "1"),
    OPT_DOUBLE("c-min", c_min, "F", 0, 1,
               "of demand: share of the budget that every head keeps at least, where it was "
               "counted with less (--floor)",
               .preset = "0.2"),
    OPT_FLAG("shrink", shrink,
             "keep weight 1.0, the threshold nearest to 0.90 or a share unless the bootstrap shows "
             "a better action"),
    OPT_TEXT("label", label, "TEXT", "the table's name in reports (default: the model's)"),
    {0}};
