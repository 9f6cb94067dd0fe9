/* Maps of a table's entries: weights, thresholds, records. */
#include "report/sections/sections.h"

chart_heat_spec entry_map(const report_numbers *n, const side_evidence *e, const ckvc_table *k,
                          size_t b, size_t offset) {
    const struct side *s = &e->side;
    const bool heads = s->kind->axis == SIDE_OF_HEADS;
    const size_t step = s->nB * sizeof(entry), P = s->P, E = s->X / P;
    const double **panels = NEW(n, P, const double *);
    const char **titles = NEW(n, P, const char *);
    for (size_t p = 0; p < P; p++) {
        const char *first = (const char *)&e->entries[b] + p * step + offset;
        panels[p] = (const double *)(const void *)first;
        titles[p] = room_text(&n->in->room, "perplexity bin %zu", p);
    }
    const char *head = k->head_axis ? "query head" : "KV head";
    return (chart_heat_spec){
        .text = {.x = heads ? head : "layer", .y = heads ? "layer" : "entropy bin"},
        .grid = {heads ? s->L : E, heads ? s->X : s->L, step * (heads ? s->X : P),
                 step * (heads ? 1 : s->X), P},
        .values = panels,
        .panel_titles = heads ? NULL : titles,
        .y_up = !heads};
}

void entry_map_csv(ckvc_buffer *csv, const chart_heat_spec *map, size_t offset, columns_of *of) {
    const struct chart_grid *g = &map->grid;
    csv_names(csv, of);
    for (size_t i = 0; i < g->panels * g->rows * g->cols; i++) {
        const char *panel = (const char *)map->values[i / g->cols / g->rows] - offset;
        csv_row(csv, of,
                panel + i / g->cols % g->rows * g->row_stride + i % g->cols * g->col_stride);
    }
}

void entry_map_hatch(chart_heat_spec *map, size_t offset) {
    map->hatched = offsetof(entry, undecided) - offset;
    map->hatched_label = "undecided: not better than the neutral choice beyond chance";
}
