/* What the choices of each table rest on. */
#include <math.h>

#include "report/sections/sections.h"

TABLE(rests_columns, rests, MEMBERS(rests, supported, by_loss, by_penalty, loss_flat));
TABLE(budget_rests_columns, budget_rests, MERGE(budget_rests, all, rests_columns),
      COLUMN(budget_rests, cells, .json = "cells", OF(rests_columns),
             BY2(budget_rests, n_entropy, n_perplexity)));
TABLE(share_columns, side_evidence,
      COLUMN(side_evidence, all.by_loss, .json = "by_loss", .page = "by loss", SHARE, ELSE("")),
      COLUMN(side_evidence, all.by_penalty, .json = "by_penalty", .page = "by penalty", SHARE,
             ELSE("")),
      COLUMN(side_evidence, all.loss_flat, .json = "loss_flat", .page = "loss all equal", SHARE,
             ELSE("")));
TABLE(entry_columns, entry, MEMBERS(entry, by_loss, loss_flat));
TABLE(action_columns, action_count, COLUMN(action_count, action, .json = "action", .csv = "action"),
      COLUMN(action_count, logged, .json = "logged", .csv = "records"),
      COLUMN(action_count, chosen, .json = "chosen", .csv = "chosen"));
TABLE(record_columns, side_evidence, MEMBERS(side_evidence, min, median, mean, max));

SAY(states_of, side_evidence, say("%zu of %zu", o->supported, o->states))
SAY(correlation_of, side_evidence,
    !(o->records > 0)                ? ""
    : isfinite(o->count_correlation) ? say_fixed(o->count_correlation, 3)
                                     : "counts equal")
SAY(stability_of, side_evidence,
    !(o->records > 0)               ? ""
    : isfinite(o->choice_stability) ? say_share(o->choice_stability)
                                    : "not known")

SHARED_TABLE(
    evidence_columns, side_evidence, COLUMN(side_evidence, name, .json = NULL),
    COLUMN(side_evidence, title, .page = "table"), COLUMN(side_evidence, name, .page = "side"),
    SHOWN(side_evidence, states, "states with records", .say = states_of),
    NAMED(side_evidence, records, "records"),
    COLUMN(side_evidence, min, .page = "per state: fewest", ELSE("")),
    COLUMN(side_evidence, median, .page = "median", ELSE("")),
    COLUMN(side_evidence, max, .page = "most", ELSE("")),
    SHOWN(side_evidence, alpha_decided, "decided by α", SHARE, ELSE("")),
    SHOWN(side_evidence, count_correlation, "choice against counts, ρ", .say = correlation_of),
    SHOWN(side_evidence, choice_stability, "same choice in refits", .say = stability_of),
    {.size = sizeof(side_evidence), OF(share_columns), WHEN(side_evidence, penalty)},
    MEMBERS(side_evidence, supported, count_percentile),
    GROUP(side_evidence, "records_per_supported_state", record_columns),
    COLUMN(side_evidence, actions, OF(action_columns), BY(side_evidence, n_actions),
           .as = AS_ARRAYS),
    COLUMN(side_evidence, budgets, .json = "budgets", OF(budget_rests_columns),
           BY(side_evidence, n_budgets), WHEN(side_evidence, penalty), .omit = true),
    COLUMN(side_evidence, entries, .json = "entries", OF(entry_columns), BY(side_evidence, states),
           .as = AS_ARRAYS, WHEN(side_evidence, penalty), .omit = true));

TABLE(head_map, entry, CSV(entry, layer), CSV(entry, head), CSV(entry, records));
TABLE(gate_map, entry, COLUMN(entry, perplexity, .csv = "perplexity_bin"),
      COLUMN(entry, entropy, .csv = "entropy_bin"), CSV(entry, layer), CSV(entry, records));

/* Shares of records and of choices per action. */
static void draw_actions(view *v, const table_numbers *t, const side_evidence *e) {
    const bool weight = e->side.which == CKVC_SIDE_HEAD;
    const action_count *a = e->actions;
    const int neutral = side_neutral(&e->side);
    figure_begin(v, weight ? "weight,records,chosen" : "tau,records,chosen");
    EACH(action_count, row, a, e->n_actions) { csv_row(&v->csv, &action_columns, row); }
    chart_bars(&v->s, &(chart_bars_spec){
                          .text = {say("%s: %s actions logged and chosen", t->title, e->name),
                                   weight ? "head weight" : "threshold τ", "per cent"},
                          .rows = {e->n_actions, sizeof *a, &a->action},
                          .values = {&a->logged_share, &a->chosen_share},
                          .series = {"share of records", "share of choices"},
                          .mark = (size_t)(neutral + 1),
                          .mark_label = neutral < 0 ? NULL : say("%g = start", a[neutral].action)});
    figure_end(v, say("actions-%s-%s", e->name, t->tag),
               "Even blue bars mean balanced logging: then counts cannot decide the choice.");
}

static void draw_records(const report_numbers *n, view *v, const table_numbers *t,
                         const side_evidence *e, size_t b) {
    const bool head = e->side.which == CKVC_SIDE_HEAD;
    chart_heat_spec map = entry_map(n, e, t->shape, b, offsetof(entry, records));
    map.scale = (chart_scale){.label = "records (one per prompt and action)"};
    for (size_t i = b; i < e->states; i += t->n_budgets) {
        map.scale.hi = fmax(map.scale.hi, e->entries[i].records);
    }
    figure_begin(v, NULL);
    entry_map_csv(&v->csv, &map, offsetof(entry, records), head ? &head_map : &gate_map);
    map.text.title = say("%s: records per %s state, budget %s", t->title, e->name,
                         say_budget(t->shape->budgets[b]));
    map.zero_is_blank = true;
    map.missing = "no records";
    chart_heat(&v->s, &map);
    figure_end(v, say("records-%s-%s-b%zu", e->name, t->tag, b + 1),
               head
                   ? "Each record is one prompt tried with one weight for this head."
                   : "Each record is one prompt of this risk cell tried with one threshold in this "
                     "layer.");
}

static void table_part(const report_numbers *n, ckvc_buffer *b) {
    html_paragraph(
        b, NULL,
        "Decided by α: share of states whose choice differs from that of the plain mean "
        "reward, that is, where conservatism and not the reward chose. With equal counts "
        "it is 0 for every α. By penalty: gate choices that the loss alone would not have "
        "made.");
    columns_table_begin(b, NULL, &evidence_columns);
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (t->f.has_evidence) { columns_rows(b, &evidence_columns, t->evidence, t->n_sides); }
    }
    html_table_end(b);
}

void evidence_section(const report_numbers *n, view *v) {
    ckvc_buffer *b = &v->html;
    bool any = false;
    if (n->n_tables == 0) { return; }
    html_section_begin(b, "evidence", "What the choices rest on");
    EACH(table_numbers, t, n->tables, n->n_tables) { any |= t->f.has_evidence; }
    if (any) { table_part(n, b); }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (!t->f.has_evidence) {
            html_paragraph(b, "note",
                           "%s carries no counts: it was transferred or imported, not fitted here.",
                           t->title);
        }
    }
    html_details_begin(b, "Actions logged and chosen, records of every state");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        EACH(side_evidence, e, t->evidence, t->n_sides) {
            if (!(e->records > 0)) { continue; }
            draw_actions(v, t, e);
            for (size_t k = 0; k < t->n_budgets; k++) { draw_records(n, v, t, e, k); }
        }
    }
    figures_end(v);
    html_details_end(b);
    html_section_end(b);
}
