/* Figures of a table's entries: weights, thresholds. */
#include "report/sections/sections.h"

static void map_csv(ckvc_buffer *csv, const chart_heat_spec *map, const entry_map *m) {
    const struct chart_grid *g = &map->grid;
    csv_names(csv, m->csv);
    for (size_t i = 0; i < g->panels * g->rows * g->cols; i++) {
        const char *panel = (const char *)map->values[i / g->cols / g->rows] - m->member;
        csv_row(csv, m->csv,
                panel + i / g->cols % g->rows * g->row_stride + i % g->cols * g->col_stride);
    }
}

chart_heat_spec entry_map_begin(const report_numbers *n, view *v, const entry_map *m) {
    const side_evidence *e = &m->t->evidence[m->side];
    const struct side *s = &e->side;
    const bool heads = s->kind->axis == SIDE_OF_HEADS;
    const size_t step = s->nB * sizeof(entry), P = s->P, E = s->X / P;
    const double **panels = NEW(n, P, const double *);
    const char **titles = NEW(n, P, const char *);
    for (size_t p = 0; p < P; p++) {
        const char *first = (const char *)&e->entries[m->b] + p * step + m->member;
        panels[p] = (const double *)(const void *)first;
        titles[p] = room_text(&n->in->room, "perplexity bin %zu", p);
    }
    const char *head = m->t->shape->head_axis ? "query head" : "KV head";
    chart_heat_spec map = {
        .text = {.x = heads ? head : "layer", .y = heads ? "layer" : "entropy bin"},
        .grid = {heads ? s->L : E, heads ? s->X : s->L, step * (heads ? s->X : P),
                 step * (heads ? 1 : s->X), P},
        .values = panels,
        .panel_titles = heads ? NULL : titles,
        .y_up = !heads,
        .marked = m->marked ? offsetof(entry, undecided) - m->member : 0,
        .marked_label = "undecided: not better than the neutral choice beyond chance"};
    figure_begin(v, NULL);
    map_csv(&v->csv, &map, m);
    return map;
}
