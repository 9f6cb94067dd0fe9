/* The head weights of each table. */
#include <math.h>

#include "report/sections/sections.h"

SHARED_TABLE(weight_columns, weight_numbers, PAGE(title, "table"), SHOWN(budget, "budget", BUDGET),
             SHOWN(n, "heads"), PAGE(known, "with records", ELSE("not known")),
             SHOWN(mean, "mean", FIXED(3)), SHOWN(min, "lowest", FIXED(3)),
             SHOWN(max, "highest", FIXED(3)), SHOWN(share_at_1, "at exactly 1.0", SHARE),
             MEMBERS(supported), JSON(histogram, BY(n_actions)),
             JSON(weight, BY(n_layers, n_heads)));

TABLE(map_columns, entry, CSV(layer), CSV(head), CSV_AS(value, "weight"), CSV(records),
      INCLUDE(refit_entry_columns));

static void draw_weights(const report_numbers *n, view *v, const table_numbers *t, size_t b) {
    const ckvc_actions *a = &t->evidence[CKVC_SIDE_HEAD].side.actions;
    const entry_map m = {t, CKVC_SIDE_HEAD, b, offsetof(entry, value), map_columns, true};
    chart_heat_spec map = entry_map_begin(n, v, &m);
    map.text.title = say("%s: head weights, budget %s", t->title, say_budget(t->head[b].budget));
    map.scale = (chart_scale){"weight: blue trusts the head less, white is 1.0, orange more",
                              3,
                              fmin(a->grid[0], 1),
                              fmax(a->grid[a->n - 1], 1),
                              1.0,
                              true,
                              false};
    chart_heat(&v->s, &map);
    figure_end(v, say("weights-%s-b%zu", t->tag, b + 1),
               "The weight multiplies the head's value-norm utility before the maximum over heads. "
               "Colours reach their ends at the ends of the action grid.");
}

bool weights_known(const report_numbers *n) {
    bool any = false;
    EACH(table_numbers, t, n->tables, n->n_tables) { any |= !t->shares_alone; }
    return any;
}

void weights_section(const report_numbers *n, view *v) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        for (size_t k = 0; k < t->n_budgets; k++) {
            if (t->head[k].min < t->head[k].max) { draw_weights(n, v, t, k); }
        }
    }
    page_table_begin(v, "Weights that are all the same have no map", weight_columns);
    EACH(table_numbers, t, n->tables, n->n_tables) {
        page_rows(v, weight_columns, t->head, t->shares_alone ? 0 : t->n_budgets);
    }
    page_table_end(v);
}
