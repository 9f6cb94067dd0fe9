/* What the choices of each table rest on. */
#include <math.h>

#include "report/sections/sections.h"

TABLE(rests_columns, rests, MEMBERS(supported, by_loss, by_penalty, loss_flat));
TABLE(budget_rests_columns, budget_rests, MERGE(all, rests_columns),
      JSON_AS(cells, "cells", OF(rests_columns), BY(n_entropy, n_perplexity)));
TABLE(share_columns, side_evidence, SHOWN_AS(all.by_loss, "by_loss", "by loss", SHARE, ELSE("")),
      SHOWN_AS(all.by_penalty, "by_penalty", "by penalty", SHARE, ELSE("")),
      SHOWN_AS(all.loss_flat, "loss_flat", "loss all equal", SHARE, ELSE("")));
TABLE(entry_columns, entry, MEMBERS(by_loss, loss_flat));
TABLE(action_columns, action_count, BOTH(action, "action"), BOTH(logged, "records"),
      BOTH(chosen, "chosen"));
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

TABLE(head_map, entry, CSV(layer), CSV(head), CSV(records));
TABLE(gate_map, entry, CSV_AS(perplexity, "perplexity_bin"), CSV_AS(entropy, "entropy_bin"),
      CSV(layer), CSV(records));

/* Shares of records and of choices per action. */
static void draw_actions(view *v, const table_numbers *t, const side_evidence *e) {
    const bool weight = e->side.which == CKVC_SIDE_HEAD;
    const action_count *a = e->actions;
    const int neutral = side_neutral(&e->side);
    figure_begin(v, weight ? "weight,records,chosen" : "tau,records,chosen");
    EACH(action_count, row, a, e->n_actions) { csv_row(&v->csv, action_columns, row); }
    figure_bars(v,
                .text = {say("%s: %s actions logged and chosen", t->title, e->name),
                         weight ? "head weight" : "threshold τ", "per cent"},
                .rows = {e->n_actions, sizeof *a, &a->action},
                .values = {&a->logged_share, &a->chosen_share},
                .series = {"share of records", "share of choices"}, .mark = (size_t)(neutral + 1),
                .mark_label = neutral < 0 ? NULL : say("%g = start", a[neutral].action));
    figure_end(v, say("actions-%s-%s", e->name, t->tag),
               "Even blue bars mean balanced logging: then counts cannot decide the choice.");
}

static void draw_records(const report_numbers *n, view *v, const table_numbers *t,
                         const side_evidence *e, size_t b) {
    const bool head = e->side.which == CKVC_SIDE_HEAD;
    const entry_map m = {
        t, e->side.which, b, offsetof(entry, records), head ? head_map : gate_map, false};
    chart_heat_spec map = entry_map_begin(n, v, &m);
    map.scale = (chart_scale){.label = "records (one per prompt and action)"};
    for (size_t i = b; i < e->states; i += t->n_budgets) {
        map.scale.hi = fmax(map.scale.hi, e->entries[i].records);
    }
    map.text.title = say("%s: records per %s state, budget %s", t->title, e->name,
                         say_budget(t->shape->budgets[b]));
    map.zero_is_blank = true;
    map.missing = "no records";
    chart_heat(&v->s, &map);
    figure_end(v, say("records-%s-%s-b%zu", e->name, t->tag, b + 1),
               head ? "Each record is one prompt tried with one weight for this head."
                    : "Each record is one prompt of this risk cell tried with one threshold in "
                      "this layer.");
}

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
            page_note(v, "%s carries no counts: it was transferred or imported, not fitted here.",
                      t->title);
        }
    }
    page_fold(v, "Actions logged and chosen, records of every state");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        EACH(side_evidence, e, t->evidence, t->n_sides) {
            if (!(e->records > 0)) { continue; }
            draw_actions(v, t, e);
            for (size_t k = 0; k < t->n_budgets; k++) { draw_records(n, v, t, e, k); }
        }
    }
    page_fold_end(v);
}
