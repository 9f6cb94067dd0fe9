/* The budgets of each table: shares of heads. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "report/sections/sections.h"

typedef struct share_entry { /* a head's at one budget */
    double layer, head, share, lo, hi;
    bool undecided; /* the interval holds an equal share; false where there is none */
} share_entry;

TABLE(map_columns, share_entry, CSV(layer), CSV(head), CSV(share), CSV(lo), CSV(hi));
static share_entry *entries_of(const report_numbers *n, const table_numbers *t, size_t b) {
    const size_t G = t->shape->n_heads, N = t->shape->n_layers * G;
    share_entry *list = NEW(n, N, share_entry);
    for (size_t i = 0; i < N; i++) {
        const double *ends =
            t->f.share_interval ? t->f.share_interval + 2 * (i * t->n_budgets + b) : NULL;
        const size_t layer = i / G;
        list[i] = (share_entry){.layer = (double)layer,
                                .head = (double)(i % G),
                                .share = t->shape->share[i * t->n_budgets + b],
                                .lo = ends ? ends[0] : NAN,
                                .hi = ends ? ends[1] : NAN,
                                .undecided = ends && ends[0] <= 1 && ends[1] >= 1};
    }
    return list;
}

/* What the tenth of the heads with the most holds of all. */
static double held_by_tenth(const report_numbers *n, const share_entry *list, size_t N,
                            size_t tenth) {
    double *sorted = NEW(n, N, double), all = 0, top = 0;
    for (size_t i = 0; i < N; i++) { all += sorted[i] = list[i].share; }
    qsort(sorted, N, sizeof *sorted, ckvc_order_double);
    for (size_t i = N - tenth; i < N; i++) { top += sorted[i]; }
    return top / all;
}

/* A panel a budget. */
static void draw_heads(const report_numbers *n, view *v, const table_numbers *t) {
    const size_t L = t->shape->n_layers, G = t->shape->n_heads, tenth = (L * G + 9) / 10;
    const double **panels = NEW(n, t->n_budgets, const double *);
    const char **titles = NEW(n, t->n_budgets, const char *), *held = "";
    double lo = 0.5, hi = 2; /* the colours' ends at least */
    figure_begin(v, NULL);
    ckvc_buffer_text(&v->csv, "budget,");
    csv_names(&v->csv, map_columns);
    for (size_t b = 0; b < t->n_budgets; b++) {
        const share_entry *list = entries_of(n, t, b);
        const char *budget = say_budget(t->shape->budgets[b]);
        panels[b] = &list->share;
        titles[b] = room_text(&n->in->room, "budget %s", budget);
        held = say_more(held, ", ", "%s at %s", say_share(held_by_tenth(n, list, L * G, tenth)),
                        budget);
        EACH(share_entry, x, list, L * G) {
            lo = x->share > 0 ? fmin(lo, x->share) : lo;
            hi = fmax(hi, x->share);
            csv_number(&v->csv, t->shape->budgets[b]);
            csv_row(&v->csv, map_columns, x);
        }
    }
    figure_heat(v,
                .text = {say("%s: shares of heads", t->title),
                         t->shape->head_axis ? "query head" : "KV head", "layer"},
                .grid = {L, G, G * sizeof(share_entry), sizeof(share_entry), t->n_budgets},
                .values = panels, .panel_titles = titles,
                .scale = {"share of an equal budget, by powers of two: blue keeps less, white is "
                          "1, orange more",
                          2, lo, hi, 1.0, .diverging = true, .log = true},
                .marked = offsetof(share_entry, undecided) - offsetof(share_entry, share),
                .marked_label = "undecided: the interval over prompts holds an equal share");
    figure_end(v, say("shares-%s", t->tag),
               say("A head keeps about its share times the budget. The %zu of %zu heads with the "
                   "most hold of all shares %s; the floor of the others may leave them less.",
                   tenth, L * G, held));
}

bool shares_known(const report_numbers *n) {
    bool any = false;
    EACH(table_numbers, t, n->tables, n->n_tables) { any |= t->shape->share != NULL; }
    return any;
}

void shares_section(const report_numbers *n, view *v) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (t->shape->share) { draw_heads(n, v, t); }
    }
}
