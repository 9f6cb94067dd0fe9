/* Options of a fit: see fit_options.h. */
#include "cmd/common/fit_options.h"

#include <string.h>

fit_choices fit_choice_defaults(void) {
    return (fit_choices){.solver = "exact",
                         .reward = "advantage",
                         .unsupported = "incoming",
                         .cql_alpha = fit_defaults().cql_alpha};
}

fit_options fit_options_of(const fit_choices *c) {
    fit_options o = fit_defaults();
    o.cql_alpha = c->cql_alpha;
    o.solver = strcmp(c->solver, "adamw") == 0 ? FIT_ADAMW : FIT_EXACT;
    o.reward = strcmp(c->reward, "raw") == 0 ? FIT_RAW : FIT_ADVANTAGE;
    o.unsupported = strcmp(c->unsupported, "safest") == 0      ? FIT_SAFEST
                    : strcmp(c->unsupported, "neighbour") == 0 ? FIT_NEIGHBOUR
                                                               : FIT_INCOMING;
    o.label = c->label;
    o.replicates = (uint32_t)c->bootstrap;
    o.shrink = c->shrink;
    return o;
}
