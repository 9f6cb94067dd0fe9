/* How much merging equal kept sets saved. */
#include "report/sections/sections.h"

SAY(range_of, savings_numbers,
    say("%s (layer %zu) to %s (layer %zu)", say_share(o->lowest_rate), o->lowest,
        say_share(o->highest_rate), o->highest))

TABLE(layer_columns, rollout_counts, MEMBERS(actions, at_baseline, distinct));
SHARED_TABLE(savings_columns, savings_numbers, KEY(side), PAGE(run, "run"), PAGE(side, "side"),
             PAGE(actions, "actions a prompt"), PAGE(rollouts, "rollouts a prompt"),
             PAGE(at_baseline, "at baseline", SHARE), PAGE(rate, "memo rate", SHARE),
             PAGE(lowest, "lowest and highest layer", .say = range_of, .align = "ll"),
             ARRAYS(layers, n_layers, layer_columns));

bool savings_known(const report_numbers *n) {
    EACH(run_numbers, run, n->runs, n->n_runs) {
        EACH(savings_numbers, s, run->savings, CKVC_SIDE_COUNT) {
            if (s->logged) { return true; }
        }
    }
    return false;
}

void savings_section(const report_numbers *n, view *v) {
    page_text(v, "Actions that keep the same tokens share a rollout, and those that keep the "
                 "baseline's cost none: the memo rate is the share of the logged actions that cost "
                 "nothing. Every layer's counts are in report.json.");
    page_table_begin(v, NULL, savings_columns);
    EACH(run_numbers, run, n->runs, n->n_runs) {
        EACH(savings_numbers, s, run->savings, CKVC_SIDE_COUNT) {
            if (s->logged) { page_row(v, savings_columns, s); }
        }
    }
    page_table_end(v);
}
