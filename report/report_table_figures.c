/* Figures of one table: weights, thresholds, actions, records. Undecided entries are hatched, cells
 * without records blank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_pen.h"

/* Entry `state` of a side's statistics; NULL without records. */
static const json_t *entry_of(const report_pen *p, const report_table *t, bool head,
                              const char *key, size_t state) {
    const json_t *table =
        json_array_get(json_object_get(p->r->json, "tables"), (size_t)(t - p->r->tables));
    const json_t *side = json_object_get(json_object_get(table, "statistics"),
                                         ckvc_side_name(head ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE));
    return json_array_get(json_object_get(json_object_get(side, "entries"), key), state);
}

/* Two columns of the csv: what a threshold rests on, and whether the loss is the same under all of
 * them; empty without records. */
static void rests_csv(report_pen *p, const report_table *t, size_t state) {
    const json_t *table =
        json_array_get(json_object_get(p->r->json, "tables"), (size_t)(t - p->r->tables));
    const json_t *of =
        json_object_get(json_object_get(json_object_get(table, "evidence"), "gate"), "entries");
    const json_t *loss = json_array_get(json_object_get(of, "by_loss"), state);
    const json_t *flat = json_array_get(json_object_get(of, "loss_flat"), state);
    ckvc_buffer_printf(&p->csv, "%s,%s,",
                       !json_is_boolean(loss) ? ""
                       : json_is_true(loss)   ? "loss"
                                              : "penalty",
                       !json_is_boolean(flat) ? ""
                       : json_is_true(flat)   ? "1"
                                              : "0");
}

/* The entry's columns of the csv, and whether it is undecided. */
static bool entry_csv(report_pen *p, const report_table *t, bool head, size_t state) {
    static const char *const keys[] = {"agree", "advantage", "lower_bound"};
    const char *verdict = json_string_value(entry_of(p, t, head, "verdict", state));
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = entry_of(p, t, head, keys[i], state);
        pen_csv_number(p, json_is_number(v) ? json_number_value(v) : NAN, ',');
    }
    ckvc_buffer_printf(&p->csv, "%s\n", verdict ? verdict : "");
    return verdict && strcmp(verdict, "undecided") == 0;
}
#define ENTRY_COLUMNS "agreeing_refits,advantage_over_neutral,lower_bound,verdict\n"
#define UNDECIDED     "undecided: not better than the neutral choice beyond chance"

static void draw_weights(report_pen *p, const report_table *t, size_t b) {
    const ckvc_table *k = t->f->table;
    size_t n = (size_t)k->n_layers * k->n_heads;
    double *values = pen_room(p, n, sizeof *values);
    uint8_t *undecided = pen_room(p, n, 1);
    if (!values || !undecided) {
        free(values);
        free(undecided);
        return;
    }
    size_t hatched = 0;
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "layer,head,weight,records," ENTRY_COLUMNS);
    for (uint32_t l = 0; l < k->n_layers; l++) {
        for (uint32_t g = 0; g < k->n_heads; g++) {
            size_t i = ckvc_weight_index(k, l, g, (uint32_t)b);
            int a = ckvc_grid_index(k->head_grid, k->n_head_actions, k->weight[i]);
            double w = a >= 0 ? k->head_grid[a] : NAN, records = t->f->has_evidence ? 0 : NAN;
            for (uint32_t c = 0; t->f->has_evidence && c < k->n_head_actions; c++) {
                records += (double)t->f->evidence[CKVC_SIDE_HEAD].n[i * k->n_head_actions + c];
            }
            values[(size_t)l * k->n_heads + g] = w;
            pen_csv_number(p, l, ',');
            pen_csv_number(p, g, ',');
            pen_csv_number(p, w, ',');
            pen_csv_number(p, records, ',');
            hatched += undecided[(size_t)l * k->n_heads + g] = entry_csv(p, t, true, i);
        }
    }
    const double *panel = values;
    const uint8_t *marks = undecided;
    const char *title =
        pen_text(p, "%s: head weights, budget %s", t->title, report_budget(k->budgets[b]));
    double lo = k->head_grid[0], hi = k->head_grid[k->n_head_actions - 1];
    chart_heat(&p->s,
               &(chart_heat_spec){
                   .title = title,
                   .x_label = k->head_axis ? "query head" : "KV head",
                   .y_label = "layer",
                   .rows = k->n_layers,
                   .cols = k->n_heads,
                   .n_panels = 1,
                   .values = &panel,
                   .scale = {true, fmin(lo, 1), fmax(hi, 1), 1.0,
                             "weight: blue trusts the head less, white is 1.0, orange more", 3},
                   .hatched = hatched ? &marks : NULL,
                   .hatched_label = UNDECIDED});
    pen_finish(p, "heads", pen_text(p, "weights-%s-b%zu", t->tag, b + 1), title,
               "The weight multiplies the head's value-norm utility before the maximum over heads. "
               "Colours reach their ends at the "
               "ends of "
               "the action grid.");
    free(values);
    free(undecided);
}

static void draw_histogram(report_pen *p, const report_table *t, const json_t *of, size_t b) {
    const ckvc_table *k = t->f->table;
    size_t n = k->n_head_actions;
    double *values = pen_room(p, n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    if (values && names) {
        long mark = -1;
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "weight,heads\n");
        for (size_t a = 0; a < n; a++) {
            values[a] = json_number_value(json_array_get(json_object_get(of, "histogram"), a));
            names[a] = pen_text(p, "%g", k->head_grid[a]);
            mark = k->head_grid[a] == 1.0 ? (long)a : mark;
            pen_csv_number(p, k->head_grid[a], ',');
            pen_csv_number(p, values[a], '\n');
        }
        const double *series = values;
        const char *title = pen_text(p, "%s: how often each head weight is chosen, budget %s",
                                     t->title, report_budget(k->budgets[b]));
        chart_bars(&p->s, &(chart_bars_spec){title, "head weight", "number of heads", n, 1, names,
                                             NULL, &series, mark, "1.0 = identity"});
        pen_finish(p, "heads", pen_text(p, "weights-histogram-%s-b%zu", t->tag, b + 1), title,
                   "Every weight of the action grid. Heads without records stay at their start.");
    }
    free(values);
    free(names);
}

static void draw_tau(report_pen *p, const report_table *t, size_t b) {
    const ckvc_table *k = t->f->table;
    size_t L = k->n_layers, E = k->n_entropy_bins, P = k->n_ppl_bins;
    double *values = pen_room(p, P * E * L, sizeof *values);
    const double **panels = pen_room(p, P, sizeof *panels);
    const char **titles = pen_room(p, P, sizeof *titles);
    uint8_t *undecided = pen_room(p, P * E * L, 1);
    const uint8_t **marks = pen_room(p, P, sizeof *marks);
    if (values && panels && titles && undecided && marks) {
        size_t hatched = 0;
        pen_begin(p);
        ckvc_buffer_text(
            &p->csv,
            "perplexity_bin,entropy_bin,layer,tau,supported,rests_on,loss_is_flat," ENTRY_COLUMNS);
        for (uint32_t q = 0; q < P; q++) {
            panels[q] = values + q * E * L;
            marks[q] = undecided + q * E * L;
            if (P == 1) {
                titles[q] = "all perplexities";
            } else if (q == 0) {
                titles[q] = pen_text(p, "perplexity bin 0: below %.3g", k->edges_ppl[0]);
            } else if (q == P - 1) {
                titles[q] = pen_text(p, "perplexity bin %u: from %.3g", q, k->edges_ppl[q - 1]);
            } else {
                titles[q] = pen_text(p, "perplexity bin %u: %.3g to %.3g", q, k->edges_ppl[q - 1],
                                     k->edges_ppl[q]);
            }
            for (uint32_t e = 0; e < E; e++) {
                for (uint32_t l = 0; l < L; l++) {
                    int a = ckvc_grid_index(k->gate_grid, k->n_gate_actions,
                                            k->tau[ckvc_tau_index(k, l, e, q, (uint32_t)b)]);
                    bool supported = report_gate_supported(t, l, e, q, b);
                    values[(q * E + e) * L + l] = supported && a >= 0 ? k->gate_grid[a] : NAN;
                    pen_csv_number(p, q, ',');
                    pen_csv_number(p, e, ',');
                    pen_csv_number(p, l, ',');
                    pen_csv_number(p, a >= 0 ? k->gate_grid[a] : NAN, ',');
                    pen_csv_number(p, supported, ',');
                    rests_csv(p, t, ckvc_tau_index(k, l, e, q, (uint32_t)b));
                    hatched += undecided[(q * E + e) * L + l] =
                        entry_csv(p, t, false, ckvc_tau_index(k, l, e, q, (uint32_t)b));
                }
            }
        }
        const char *title = pen_text(p, "%s: gate thresholds by risk, budget %s", t->title,
                                     report_budget(k->budgets[b]));
        double lo = k->gate_grid[0], hi = k->gate_grid[k->n_gate_actions - 1];
        chart_heat(&p->s,
                   &(chart_heat_spec){
                       .title = title,
                       .x_label = "layer",
                       .y_label = "entropy bin",
                       .rows = E,
                       .cols = L,
                       .n_panels = P,
                       .values = panels,
                       .panel_titles = titles,
                       .y_up = true,
                       .scale = {false, lo, hi, 0,
                                 "threshold τ: dark keeps more tokens, bright keeps fewer", 2},
                       .missing = "no records: the fit chose nothing here",
                       .hatched = hatched ? marks : NULL,
                       .hatched_label = UNDECIDED});
        pen_finish(p, "gate", pen_text(p, "tau-%s-b%zu", t->tag, b + 1), title,
                   t->f->has_evidence ? "One panel per perplexity bin, entropy rising upwards. "
                                        "Blank cells have no records."
                                      : "One panel per perplexity bin, entropy rising upwards. "
                                        "This table carries no counts, so every cell is shown.");
    }
    free(values);
    free(panels);
    free(titles);
    free(undecided);
    free(marks);
}

/* Shares of records and of choices per action, both sides in one form. */
static void draw_actions(report_pen *p, const report_table *t, const json_t *side, bool head) {
    const json_t *action = json_object_get(side, "action"),
                 *logged = json_object_get(side, "logged"),
                 *chosen = json_object_get(side, "chosen");
    size_t n = json_array_size(action);
    double total = 0, choices = 0, *values = pen_room(p, 2 * n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, head ? "weight,records,chosen\n" : "tau,records,chosen\n");
        const struct side of = side_of_table(t->f->table, head ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE);
        const long mark = side_neutral(&of);
        for (size_t a = 0; a < n; a++) {
            double v = json_number_value(json_array_get(action, a));
            values[a] = json_number_value(json_array_get(logged, a));
            values[n + a] = json_number_value(json_array_get(chosen, a));
            total += values[a];
            choices += values[n + a];
            names[a] = pen_text(p, "%g", v);
            pen_csv_number(p, v, ',');
            pen_csv_number(p, values[a], ',');
            pen_csv_number(p, values[n + a], '\n');
        }
        for (size_t a = 0; a < n; a++) {
            values[a] = total > 0 ? 100 * values[a] / total : 0;
            values[n + a] = choices > 0 ? 100 * values[n + a] / choices : 0;
        }
        static const char *const series[] = {"share of records", "share of choices"};
        const double *both[] = {values, values + n};
        const char *title =
            pen_text(p, "%s: %s actions logged and chosen", t->title, head ? "head" : "gate");
        chart_bars(&p->s,
                   &(chart_bars_spec){title, head ? "head weight" : "threshold τ", "per cent", n, 2,
                                      names, series, both, mark,
                                      mark >= 0 ? pen_text(p, "%g = start", of.grid[mark]) : NULL});
        pen_finish(p, "evidence", pen_text(p, "actions-%s-%s", head ? "head" : "gate", t->tag),
                   title,
                   "Even blue bars mean balanced logging: then counts cannot decide the choice.");
    }
    free(values);
    free(names);
}

/* Records behind each state: head states layer x head, gate states entropy x layer per perplexity
 * bin. */
static void draw_records(report_pen *p, const report_table *t, size_t b, bool head) {
    const ckvc_table *k = t->f->table;
    size_t L = k->n_layers, E = k->n_entropy_bins, P = k->n_ppl_bins, G = k->n_heads;
    size_t n = head ? L * G : L * E * P, A = head ? k->n_head_actions : k->n_gate_actions;
    double *values = pen_room(p, n, sizeof *values), top = 0;
    const double **panels = pen_room(p, P, sizeof *panels);
    const char **titles = pen_room(p, P, sizeof *titles);
    if (values && panels && titles) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, head ? "layer,head,records\n"
                                       : "perplexity_bin,entropy_bin,layer,records\n");
        for (size_t i = 0; i < n; i++) {
            size_t q = i / (E * L), e = i / L % E, l = head ? i / G : i % L, g = i % G;
            size_t state =
                head ? ckvc_weight_index(k, (uint32_t)l, (uint32_t)g, (uint32_t)b)
                     : ckvc_tau_index(k, (uint32_t)l, (uint32_t)e, (uint32_t)q, (uint32_t)b);
            const uint64_t *counts =
                t->f->evidence[head ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE].n + state * A;
            double sum = 0;
            for (size_t a = 0; a < A; a++) {
                sum += (double)counts[a];
            }
            if (head) {
                pen_csv_number(p, (double)l, ',');
                pen_csv_number(p, (double)g, ',');
            } else {
                pen_csv_number(p, (double)q, ',');
                pen_csv_number(p, (double)e, ',');
                pen_csv_number(p, (double)l, ',');
            }
            pen_csv_number(p, sum, '\n');
            values[i] = sum > 0 ? sum : NAN;
            top = fmax(top, sum);
        }
        for (size_t q = 0; q < P; q++) {
            panels[q] = values + q * E * L;
            titles[q] = pen_text(p, "perplexity bin %zu", q);
        }
        const char *title = pen_text(p, "%s: records per %s state, budget %s", t->title,
                                     head ? "head" : "gate", report_budget(k->budgets[b]));
        chart_heat(&p->s, &(chart_heat_spec){
                              .title = title,
                              .x_label = head ? (k->head_axis ? "query head" : "KV head") : "layer",
                              .y_label = head ? "layer" : "entropy bin",
                              .rows = head ? L : E,
                              .cols = head ? G : L,
                              .n_panels = head ? 1 : P,
                              .values = panels,
                              .panel_titles = head ? NULL : titles,
                              .y_up = !head,
                              .scale = {false, 0, top, 0, "records (one per prompt and action)", 0},
                              .missing = "no records"});
        pen_finish(p, "evidence",
                   pen_text(p, "records-%s-%s-b%zu", head ? "head" : "gate", t->tag, b + 1), title,
                   head ? "Each record is one prompt tried with one weight for this head."
                        : "Each record is one prompt of this risk cell tried with one threshold in "
                          "this layer.");
    }
    free(values);
    free(panels);
    free(titles);
}

void report_draw_tables(report_pen *p) {
    for (size_t i = 0; i < p->r->n_tables; i++) {
        const report_table *t = &p->r->tables[i];
        const json_t *o = json_array_get(json_object_get(p->r->json, "tables"), i);
        const json_t *evidence = json_object_get(o, "evidence");
        for (size_t b = 0; b < t->f->table->n_budgets; b++) {
            draw_weights(p, t, b);
            draw_histogram(p, t, json_array_get(json_object_get(o, "head"), b), b);
            draw_tau(p, t, b);
        }
        for (int head = 1; head >= 0 && json_is_object(evidence); head--) {
            const json_t *side = json_object_get(evidence, head ? "head" : "gate");
            if (report_num(side, "records") > 0) {
                draw_actions(p, t, side, head);
                for (size_t b = 0; b < t->f->table->n_budgets; b++) {
                    draw_records(p, t, b, head);
                }
            }
        }
    }
}
