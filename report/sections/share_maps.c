/* The budgets of each table: shares of heads and of layers. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "report/sections/sections.h"

typedef struct share_entry { /* a head's at one budget */
    double layer, head, share, lo, hi;
    bool undecided; /* the interval holds an equal share; false where there is none */
} share_entry;

typedef struct layer_entry {
    double layer, share, of_heads; /* NaN: the table has none of layers; mean over its heads */
} layer_entry;

TABLE(map_columns, share_entry, CSV(layer), CSV(head), CSV(share), CSV(lo), CSV(hi));
TABLE(layer_columns, layer_entry, CSV(layer), CSV(share), CSV_AS(of_heads, "mean_of_heads"));

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

static void draw_heads(const report_numbers *n, view *v, const table_numbers *t, size_t b) {
    const size_t L = t->shape->n_layers, G = t->shape->n_heads, tenth = (L * G + 9) / 10;
    const share_entry *list = entries_of(n, t, b);
    const double *panel = &list->share;
    double lo = 0.5, hi = 2; /* the colours' ends at least */
    for (size_t i = 0; i < L * G; i++) {
        lo = list[i].share > 0 ? fmin(lo, list[i].share) : lo;
        hi = fmax(hi, list[i].share);
    }
    figure_table(v, map_columns, list, L * G);
    figure_heat(
        v,
        .text = {say("%s: shares of heads, budget %s", t->title, say_budget(t->shape->budgets[b])),
                 t->shape->head_axis ? "query head" : "KV head", "layer"},
        .grid = {L, G, G * sizeof *list, sizeof *list, 1}, .values = &panel,
        .scale = {"share of an equal budget, by powers of two: blue keeps less, white is "
                  "1, orange more",
                  2, lo, hi, 1.0, .diverging = true, .log = true},
        .hatched = offsetof(share_entry, undecided) - offsetof(share_entry, share),
        .hatched_label = "undecided: the interval over prompts holds an equal share");
    figure_end(v, say("shares-%s-b%zu", t->tag, b + 1),
               say("A head keeps about its share times the budget. The %zu of %zu heads with the "
                   "most hold %s of all shares; the floor of the others may leave them less.",
                   tenth, L * G, say_share(held_by_tenth(n, list, L * G, tenth))));
}

static void draw_layers(const report_numbers *n, view *v, const table_numbers *t, size_t b) {
    const ckvc_table *k = t->shape;
    const size_t L = k->n_layers, G = k->n_heads;
    layer_entry *list = NEW(n, L, layer_entry);
    for (size_t l = 0; l < L; l++) {
        list[l] =
            (layer_entry){.layer = (double)l,
                          .share = k->layer_share ? k->layer_share[l * t->n_budgets + b] : NAN};
        for (size_t g = 0; g < G; g++) {
            list[l].of_heads += k->share[(l * G + g) * t->n_budgets + b] / (double)G;
        }
    }
    figure_table(v, layer_columns, list, L);
    figure_bars(
        v,
        .text = {say("%s: shares of layers, budget %s", t->title, say_budget(k->budgets[b])),
                 "layer", "share"},
        .rows = {L, sizeof *list, &list->layer},
        .values = {&list->of_heads, k->layer_share ? &list->share : NULL},
        .series = {"mean of its heads", k->layer_share ? "of the layer as one set" : NULL});
    figure_end(
        v, say("layer-shares-%s-b%zu", t->tag, b + 1),
        "1 is an equal share. As one set: in mode layers, all heads of a layer keep the same "
        "positions.");
}

bool shares_known(const report_numbers *n) {
    bool any = false;
    EACH(table_numbers, t, n->tables, n->n_tables) { any |= t->shape->share != NULL; }
    return any;
}

void shares_section(const report_numbers *n, view *v) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        for (size_t b = 0; t->shape->share && b < t->n_budgets; b++) {
            draw_heads(n, v, t, b);
            draw_layers(n, v, t, b);
        }
    }
}
