/* What a transfer costs. */
#include "report/sections/sections.h"

TABLE(gain_columns, difference, JSON_AS(d.mean, "difference"), JSON_AS(d.lo, "lo"),
      JSON_AS(d.hi, "hi"), MEMBERS(n));
TABLE(row_columns, transfer_row, MEMBERS(source_model, target_model, heads, budget, C),
      SHOWN(transferred, "transferred"), SHOWN(compiled, "compiled there"),
      PAGE(against_compiled.n, "n"), SHOWN(kept_ratio, "kept \u00f7", FIXED(3)),
      SHOWN(against_compiled, "transferred \u2212 compiled (95% interval)", OF(gain_columns),
            INTERVAL(4)),
      SHOWN(transferred_against_identity, "transferred \u2212 identity", OF(gain_columns),
            INTERVAL(4)),
      SHOWN(compiled_against_identity, "compiled \u2212 identity", OF(gain_columns), INTERVAL(4)));
TABLE(matrix_columns, transfer_matrix,
      MEMBERS(budget, C, heads, mean_drop, least_drop, most_drop, pairs),
      JSON(sources, BY(n_sources)), JSON(targets, BY(n_targets)),
      JSON(drop, BY(n_sources, n_targets)));
SHARED_TABLE(transfer_columns, report_numbers,
             JSON_AS(transfers, "rows", OF(row_columns), BY(n_transfers)),
             OBJECTS(matrices, n_matrices, matrix_columns));

static void transfer_findings(const report_numbers *n, view *v) {
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        finding(v, difference_judged(&r->against_compiled),
                "transfer %s to %s, heads by %s, budget %s: %s %s nats per token against %s, %zu "
                "prompts.",
                r->source_model, r->target_model, r->heads, say_budget(r->budget), r->transferred,
                SAY_INTERVAL(r->against_compiled.d, 4), r->compiled, r->against_compiled.n);
    }
}

static void matrix_table(view *v, const transfer_matrix *m) {
    html_table_begin(page(v), say("Drop of reward, nats per token: heads by %.32s, budget %s",
                                  m->heads, say_budget(m->budget)));
    html_head(page(v), 'l', "from \\ to");
    for (size_t t = 0; t < m->n_targets; t++) { html_head(page(v), 'r', "%s", m->targets[t]); }
    html_table_body(page(v));
    for (size_t s = 0; s < m->n_sources; s++) {
        html_row_begin(page(v));
        html_cell(page(v), 'l', "%s", m->sources[s]);
        for (size_t t = 0; t < m->n_targets; t++) {
            const double drop = m->drop[s * m->n_targets + t];
            html_cell(page(v), 'r', "%s", drop == drop ? say_signed(drop, 4) : "");
        }
        html_row_end(page(v));
    }
    page_table_end(v);
    page_text(v, "Mean drop over %zu pair%s of models: %s nats per token.", m->pairs,
              m->pairs == 1 ? "" : "s", say_signed(m->mean_drop, 4));
}

void transfer_section(const report_numbers *n, view *v) {
    transfer_findings(n, v);
    page_note(v, "Reward on the same prompts, nats per token, paired by prompt. Drop is compiled "
                 "less transferred: above 0 the transfer loses. \u201ckept \u00f7\u201d is the "
                 "transferred table's tokens kept over the compiled one's; away from 1 the two are "
                 "not compared at equal memory.");
    EACH(transfer_matrix, m, n->matrices, n->n_matrices) { matrix_table(v, m); }
    page_table_begin(v, NULL, row_columns);
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        page_group(v, row_columns, "%s \u2192 %s, heads by %s, budget %s", r->source_model,
                   r->target_model, r->heads, say_budget(r->budget));
        page_row(v, row_columns, r);
    }
    page_table_end(v);
}
