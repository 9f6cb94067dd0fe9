/* What the choices of each table rest on. */
#include <math.h>

#include "report/sections/sections.h"

SHARED_TABLE(rests_columns, rests, MEMBERS(supported, by_loss, by_penalty, loss_flat));
TABLE(budget_rests_columns, budget_rests, MERGE(all, rests_columns),
      JSON_AS(cells, "cells", OF(rests_columns), BY(n_entropy, n_perplexity)));
TABLE(share_columns, side_evidence, SHOWN_AS(all.by_loss, "by_loss", "by loss", SHARE, ELSE("")),
      SHOWN_AS(all.by_penalty, "by_penalty", "by penalty", SHARE, ELSE("")),
      SHOWN_AS(all.loss_flat, "loss_flat", "loss all equal", SHARE, ELSE("")));
TABLE(entry_columns, entry, MEMBERS(by_loss, loss_flat));
TABLE(action_columns, action_count, MEMBERS(action, logged, chosen));
TABLE(record_columns, side_evidence, SHOWN(min, "per state: fewest", ELSE("")),
      SHOWN(median, "median", ELSE("")), SHOWN(max, "most", ELSE("")), MEMBERS(mean));

SAY(states_of, side_evidence, say("%zu of %zu", o->supported, o->states))
SAY(correlation_of, side_evidence,
    !(o->records > 0)                ? ""
    : isfinite(o->count_correlation) ? say_fixed(o->count_correlation, 3)
                                     : "counts equal")
SAY(stability_of, side_evidence,
    !(o->records > 0)               ? ""
    : isfinite(o->choice_stability) ? say_share(o->choice_stability)
                                    : "not known")

SHARED_TABLE(evidence_columns, side_evidence, KEY(name), PAGE(title, "table"), PAGE(name, "side"),
             SHOWN(states, "states with records", .say = states_of), SHOWN(records, "records"),
             GROUP("records_per_supported_state", record_columns),
             SHOWN(alpha_decided, "decided by α", SHARE, ELSE("")),
             SHOWN(count_correlation, "choice against counts, ρ", .say = correlation_of),
             SHOWN(choice_stability, "same choice in refits", .say = stability_of),
             INCLUDE(share_columns, WHEN(penalty)), MEMBERS(supported, count_percentile),
             ARRAYS(actions, n_actions, action_columns),
             JSON(budgets, OF(budget_rests_columns), BY(n_budgets), WHEN(penalty), .omit = true),
             JSON(entries, OF(entry_columns), BY(states), .as = AS_ARRAYS, WHEN(penalty),
                  .omit = true));

void evidence_section(const report_numbers *n, view *v) {
    bool any = false;
    EACH(table_numbers, t, n->tables, n->n_tables) { any |= t->f.has_evidence; }
    if (any) {
        page_text(
            v,
            "Decided by α: share of states whose choice differs from that of the plain mean "
            "reward, that is, where conservatism and not the reward chose. With equal counts it is "
            "0 for every α. By penalty: gate choices that the loss alone would not have made.");
        page_table_begin(v, NULL, evidence_columns);
        EACH(table_numbers, t, n->tables, n->n_tables) {
            if (t->f.has_evidence) { page_rows(v, evidence_columns, t->evidence, t->n_sides); }
        }
        page_table_end(v);
    }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (!t->f.has_evidence) {
            page_note(v, "%s carries no counts: it %s.", t->title,
                      t->shares_alone ? "holds budgets, neither weights nor thresholds"
                                      : "was transferred or imported, not fitted here");
        }
    }
}
