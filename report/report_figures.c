/* The figures: each is drawn once, kept inline for the page and as a file, with its numbers as csv. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "report/report_pen.h"

/* ---- scores ---- */

/* Comparisons of one list with the same model, budget and C as `like`. */
static bool same_setting(const json_t *a, const json_t *b)
{
    return strcmp(report_str(a, "model"), report_str(b, "model")) == 0 && report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C");
}

static void interval_row(report_pen *p, chart_interval_row *row, const json_t *of, const char *heading, const char *label,
                         int series)
{
    double kept = report_num(of, "kept"), base = report_num(of, "kept_base");
    *row = (chart_interval_row){heading,
                                label,
                                pen_text(p, "%s · kept %s, identity %s · n %.0f", report_signed(report_num(of, "difference"), 4),
                                         report_fixed(kept, 1), report_fixed(base, 1), report_num(of, "n")),
                                report_num(of, "difference"),
                                report_num(of, "lo"),
                                report_num(of, "hi"),
                                series,
                                NAN,
                                false};
}

static void draw_reward(report_pen *p, const json_t *list, const json_t *like, size_t number)
{
    size_t n = 0, most = 0, index;
    json_t *o, *one;
    json_array_foreach(list, index, o)
    {
        most += 1 + json_array_size(json_object_get(o, "sources"));
    }
    chart_interval_row *rows = pen_room(p, most, sizeof *rows);
    if (!rows) {
        return;
    }
    pen_begin(p);
    ckvc_buffer_text(
        &p->csv,
        "policy,base,source,prompts,difference_nats_per_token,lo,hi,reward,reward_base,kept_per_layer,kept_per_layer_base\n");
    int series = 0;
    json_array_foreach(list, index, o)
    {
        if (!same_setting(o, like)) {
            continue;
        }
        size_t k;
        const json_t *sources = json_object_get(o, "sources"), *all = json_object_get(o, "all");
        interval_row(p, &rows[n++], all, report_str(o, "title"), json_array_size(sources) ? "all sources" : "all prompts", series);
        for (size_t i = 0; i <= json_array_size(sources); i++) {
            const json_t *of = i == 0 ? all : json_array_get(sources, i - 1);
            static const char *const keys[] = {"n", "difference", "lo", "hi", "reward", "reward_base", "kept", "kept_base"};
            pen_csv_text(p, report_str(o, "title"), ',');
            pen_csv_text(p, report_str(o, "base"), ',');
            pen_csv_text(p, i == 0 ? "all" : report_str(of, "source"), ',');
            for (size_t c = 0; c < 8; c++) {
                pen_csv_number(p, report_num(of, keys[c]), c == 7 ? '\n' : ',');
            }
        }
        json_array_foreach(strcmp(report_str(o, "policy"), "table") == 0 ? sources : NULL, k,
                           one) /* references: in the table below */
        {
            const char *source = report_str(one, "source");
            interval_row(p, &rows[n++], one, NULL, *source ? source : "(no source)", series);
        }
        series++;
    }
    const char *title =
        pen_text(p, "Reward on held-out prompts against identity, budget %s", report_budget(report_num(like, "budget")));
    chart_intervals(&p->s,
                    &(chart_interval_spec){title, "difference of mean reward, nats per token (right is better)", REPORT_UNDEFINED,
                                           "worse than identity", "better than identity", 0.0, n, rows, NULL});
    pen_finish(
        p, "verdict", pen_text(p, "reward-%zu", number), title,
        "Paired by prompt; bars are 95% t intervals of the mean difference. Each row also says how many tokens per layer were "
        "kept, "
        "beside identity (base): a gain counts only where these are equal.");
    free(rows);
}

static void draw_reward_kept(report_pen *p, const json_t *list, const json_t *like, size_t number)
{
    size_t n = 0, index;
    json_t *o;
    chart_point *points = pen_room(p, json_array_size(list) + 1, sizeof *points);
    const char **names = pen_room(p, json_array_size(list) + 1, sizeof *names);
    if (!points || !names) {
        free(points);
        free(names);
        return;
    }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "policy,kept_per_layer,difference_nats_per_token,lo,hi\n");
    json_array_foreach(list, index, o)
    {
        if (!same_setting(o, like)) {
            continue;
        }
        const json_t *all = json_object_get(o, "all");
        if (n == 0) {
            names[0] = "identity";
            points[n++] = (chart_point){report_num(all, "kept_base"), 0, NAN, NAN, 0, 0, "identity"};
        }
        names[n] = report_str(o, "title");
        points[n] = (chart_point){report_num(all, "kept"),
                                  report_num(all, "difference"),
                                  report_num(all, "lo"),
                                  report_num(all, "hi"),
                                  0,
                                  (int)n,
                                  names[n]};
        pen_csv_text(p, names[n], ',');
        pen_csv_number(p, points[n].x, ',');
        pen_csv_number(p, points[n].y, ',');
        pen_csv_number(p, points[n].lo, ',');
        pen_csv_number(p, points[n].hi, '\n');
        n++;
    }
    static const double zero[1] = {0.0};
    const char *title = pen_text(p, "What is gained and what it costs, budget %s", report_budget(report_num(like, "budget")));
    chart_scatter(&p->s, &(chart_scatter_spec){.title = title,
                                               .x_label = "tokens kept per layer, mean over prompts",
                                               .y_label = "reward against identity, nats/token",
                                               .n = n,
                                               .n_series = n,
                                               .points = points,
                                               .series = names,
                                               .y_lines = zero,
                                               .n_y_lines = 1});
    pen_finish(p, "verdict", pen_text(p, "reward-kept-%zu", number), title,
               "Up is better, left is cheaper. A policy to the upper right of identity may have bought its reward with tokens.");
    free(points);
    free(names);
}

static void draw_scores(report_pen *p)
{
    const json_t *list = json_object_get(json_object_get(p->r->json, "scores"), "against_identity");
    size_t number = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *like = json_array_get(list, i);
        bool seen = false;
        for (size_t k = 0; k < i; k++) {
            seen = seen || same_setting(json_array_get(list, k), like);
        }
        if (!seen) {
            draw_reward(p, list, like, ++number);
            draw_reward_kept(p, list, like, number);
        }
    }
}

/* ---- pairs ---- */

/* All pairs and budgets with the same groups of layers as `like`: rows; overall and groups: columns. */
static void draw_spearman(report_pen *p)
{
    const json_t *pairs = json_object_get(p->r->json, "pairs");
    size_t n = 0, bins = 0, index, k;
    json_t *pair, *head;
    json_array_foreach(pairs, index, pair)
    {
        json_array_foreach(json_object_get(pair, "head"), k, head)
        {
            size_t b = json_array_size(json_object_get(head, "bins"));
            bins = b > bins ? b : bins;
            n++;
        }
    }
    if (n == 0) {
        return;
    }
    double *values = pen_room(p, n * (bins + 1), sizeof *values);
    const char **rows = pen_room(p, n, sizeof *rows), **columns = pen_room(p, bins + 1, sizeof *columns);
    if (values && rows && columns) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "a,b,budget,layers,spearman\n");
        columns[0] = "all";
        for (size_t i = 0; i < bins; i++) {
            columns[i + 1] = pen_text(p, "group %zu", i + 1);
        }
        size_t row = 0;
        json_array_foreach(pairs, index, pair)
        {
            json_array_foreach(json_object_get(pair, "head"), k, head)
            {
                double budget = report_num(head, "budget");
                rows[row] = pen_text(p, "%s/%s B %g", report_str(pair, "a"), report_str(pair, "b"), budget);
                const json_t *each = json_object_get(head, "bins");
                for (size_t i = 0; i <= bins; i++) {
                    const json_t *v = i == 0 ? json_object_get(head, "overall") : json_array_get(each, i - 1);
                    values[row * (bins + 1) + i] = json_is_number(v) ? json_number_value(v) : NAN;
                    if (i > 0 && i > json_array_size(each)) {
                        continue;
                    }
                    const json_t *ends = json_array_get(json_object_get(head, "bin_layers"), i ? i - 1 : 0);
                    pen_csv_text(p, report_str(pair, "a"), ',');
                    pen_csv_text(p, report_str(pair, "b"), ',');
                    pen_csv_number(p, budget, ',');
                    pen_csv_text(p,
                                 i == 0 ? "all"
                                        : pen_text(p, "%d to %d", (int)json_integer_value(json_array_get(ends, 0)),
                                                   (int)json_integer_value(json_array_get(ends, 1))),
                                 ',');
                    pen_csv_number(p, values[row * (bins + 1) + i], '\n');
                }
                row++;
            }
        }
        const double *panel = values;
        const char *title = "Rank agreement of head weights between tables";
        chart_heat(&p->s,
                   &(chart_heat_spec){.title = title,
                                      .x_label = "groups of consecutive layers, first to last",
                                      .y_label = "pair of tables",
                                      .rows = n,
                                      .cols = bins + 1,
                                      .n_panels = 1,
                                      .values = &panel,
                                      .row_names = rows,
                                      .col_names = columns,
                                      .scale = {true, -1, 1, 0, "Spearman's ρ (1 same order, 0 no relation, −1 opposite)", 2},
                                      .missing = "undefined: one side is constant there"});
        pen_finish(
            p, "agreement", "spearman", title,
            "Spearman's ρ with average ranks for ties, over all heads and within each group of layers. Undefined is neither 0 "
            "nor 1.");
    }
    free(values);
    free(rows);
    free(columns);
}

static size_t budget_at(const ckvc_table *k, double budget)
{
    size_t b = 0;
    while (b + 1 < k->n_budgets && k->budgets[b] != budget) {
        b++;
    }
    return b;
}

/* Heads of two tables against each other; equal pairs of weights share a point whose area grows with their number. */
static void draw_weight_scatter(report_pen *p, const json_t *pair, const json_t *head, size_t number)
{
    const report_table *t[2] = {NULL, NULL};
    for (size_t i = 0; i < p->r->n_tables; i++) {
        t[0] = strcmp(p->r->tables[i].tag, report_str(pair, "a")) == 0 ? &p->r->tables[i] : t[0];
        t[1] = strcmp(p->r->tables[i].tag, report_str(pair, "b")) == 0 ? &p->r->tables[i] : t[1];
    }
    const ckvc_table *x = t[0]->f->table, *y = t[1]->f->table;
    size_t A = x->n_head_actions, heads = (size_t)x->n_layers * x->n_heads, n = 0;
    size_t bx = budget_at(x, report_num(head, "budget")), by = budget_at(y, report_num(head, "budget"));
    size_t *counts = pen_room(p, A * A, sizeof *counts);
    chart_point *points = pen_room(p, heads, sizeof *points);
    if (counts && points) {
        size_t most = 1;
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "weight_a,weight_b,heads\n");
        for (size_t i = 0; i < heads; i++) {
            int a = ckvc_grid_index(x->head_grid, x->n_head_actions, x->weight[i * x->n_budgets + bx]);
            int b = ckvc_grid_index(y->head_grid, y->n_head_actions, y->weight[i * y->n_budgets + by]);
            if (a >= 0 && b >= 0) {
                size_t c = ++counts[(size_t)a * A + (size_t)b];
                most = c > most ? c : most;
            }
        }
        for (size_t i = 0; i < A * A; i++) {
            if (counts[i]) {
                double wx = x->head_grid[i / A], wy = y->head_grid[i % A];
                points[n++] = (chart_point){wx,
                                            wy,
                                            NAN,
                                            NAN,
                                            fmax(2.5, 11 * sqrt((double)counts[i] / (double)(most > 8 ? most : 8))),
                                            0,
                                            pen_text(p, "%zu heads: %.3f, %.3f", counts[i], wx, wy)};
                pen_csv_number(p, wx, ',');
                pen_csv_number(p, wy, ',');
                pen_csv_number(p, (double)counts[i], '\n');
            }
        }
        const char *title = pen_text(p, "Head weights of %s against %s, budget %s", t[1]->title, t[0]->title,
                                     report_budget(report_num(head, "budget")));
        chart_scatter(&p->s, &(chart_scatter_spec){.title = title,
                                                   .x_label = pen_text(p, "weight in %s", t[0]->tag),
                                                   .y_label = pen_text(p, "weight in %s", t[1]->tag),
                                                   .n = n,
                                                   .n_series = 0,
                                                   .points = points,
                                                   .diagonal = true,
                                                   .square = true,
                                                   .height = 300});
        pen_finish(p, "agreement", pen_text(p, "weights-pair-%zu", number), title,
                   "One point per pair of weights; its area is the number of heads. On the dashed line both tables agree.");
    }
    free(counts);
    free(points);
}

static void draw_pairs(report_pen *p)
{
    draw_spearman(p);
    size_t index, k, number = 0;
    json_t *pair, *head;
    json_array_foreach(json_object_get(p->r->json, "pairs"), index, pair)
    {
        json_array_foreach(json_object_get(pair, "head"), k, head)
        {
            draw_weight_scatter(p, pair, head, ++number);
        }
    }
}

/* ---- tables ---- */

static void draw_weights(report_pen *p, const report_table *t, size_t b)
{
    const ckvc_table *k = t->f->table;
    size_t n = (size_t)k->n_layers * k->n_heads;
    double *values = pen_room(p, n, sizeof *values);
    if (!values) {
        return;
    }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "layer,head,weight,records\n");
    for (uint32_t l = 0; l < k->n_layers; l++) {
        for (uint32_t g = 0; g < k->n_heads; g++) {
            size_t i = ckvc_weight_index(k, l, g, (uint32_t)b);
            int a = ckvc_grid_index(k->head_grid, k->n_head_actions, k->weight[i]);
            double w = a >= 0 ? k->head_grid[a] : NAN, records = t->f->has_evidence ? 0 : NAN;
            for (uint32_t c = 0; t->f->has_evidence && c < k->n_head_actions; c++) {
                records += (double)t->f->evidence.n_head[i * k->n_head_actions + c];
            }
            values[(size_t)l * k->n_heads + g] = w;
            pen_csv_number(p, l, ',');
            pen_csv_number(p, g, ',');
            pen_csv_number(p, w, ',');
            pen_csv_number(p, records, '\n');
        }
    }
    const double *panel = values;
    const char *title = pen_text(p, "%s: head weights, budget %s", t->title, report_budget(k->budgets[b]));
    double lo = k->head_grid[0], hi = k->head_grid[k->n_head_actions - 1];
    chart_heat(&p->s, &(chart_heat_spec){.title = title,
                                         .x_label = k->head_axis ? "query head" : "KV head",
                                         .y_label = "layer",
                                         .rows = k->n_layers,
                                         .cols = k->n_heads,
                                         .n_panels = 1,
                                         .values = &panel,
                                         .scale = {true, fmin(lo, 1), fmax(hi, 1), 1.0,
                                                   "weight: blue trusts the head less, white is 1.0, orange more", 3}});
    pen_finish(p, "heads", pen_text(p, "weights-%s-b%zu", t->tag, b + 1), title,
               "The weight multiplies the head's value-norm utility before the maximum over heads. Colours reach their ends at the "
               "ends of "
               "the action grid.");
    free(values);
}

static void draw_histogram(report_pen *p, const report_table *t, const json_t *of, size_t b)
{
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
        const char *title =
            pen_text(p, "%s: how often each head weight is chosen, budget %s", t->title, report_budget(k->budgets[b]));
        chart_bars(&p->s,
                   &(chart_bars_spec){title, "head weight", "number of heads", n, 1, names, NULL, &series, mark, "1.0 = identity"});
        pen_finish(p, "heads", pen_text(p, "weights-histogram-%s-b%zu", t->tag, b + 1), title,
                   "Every weight of the action grid. Heads without records stay at their start.");
    }
    free(values);
    free(names);
}

static void draw_tau(report_pen *p, const report_table *t, size_t b)
{
    const ckvc_table *k = t->f->table;
    size_t L = k->n_layers, E = k->n_entropy_bins, P = k->n_ppl_bins;
    double *values = pen_room(p, P * E * L, sizeof *values);
    const double **panels = pen_room(p, P, sizeof *panels);
    const char **titles = pen_room(p, P, sizeof *titles);
    if (values && panels && titles) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "perplexity_bin,entropy_bin,layer,tau,supported\n");
        for (uint32_t q = 0; q < P; q++) {
            panels[q] = values + q * E * L;
            if (P == 1) {
                titles[q] = "all perplexities";
            } else if (q == 0) {
                titles[q] = pen_text(p, "perplexity bin 0: below %.3g", k->edges_ppl[0]);
            } else if (q == P - 1) {
                titles[q] = pen_text(p, "perplexity bin %u: from %.3g", q, k->edges_ppl[q - 1]);
            } else {
                titles[q] = pen_text(p, "perplexity bin %u: %.3g to %.3g", q, k->edges_ppl[q - 1], k->edges_ppl[q]);
            }
            for (uint32_t e = 0; e < E; e++) {
                for (uint32_t l = 0; l < L; l++) {
                    int a = ckvc_grid_index(k->gate_grid, k->n_gate_actions, k->tau[ckvc_tau_index(k, l, e, q, (uint32_t)b)]);
                    bool supported = report_gate_supported(t, l, e, q, b);
                    values[(q * E + e) * L + l] = supported && a >= 0 ? k->gate_grid[a] : NAN;
                    pen_csv_number(p, q, ',');
                    pen_csv_number(p, e, ',');
                    pen_csv_number(p, l, ',');
                    pen_csv_number(p, a >= 0 ? k->gate_grid[a] : NAN, ',');
                    pen_csv_number(p, supported, '\n');
                }
            }
        }
        const char *title = pen_text(p, "%s: gate thresholds by risk, budget %s", t->title, report_budget(k->budgets[b]));
        double lo = k->gate_grid[0], hi = k->gate_grid[k->n_gate_actions - 1];
        chart_heat(&p->s,
                   &(chart_heat_spec){.title = title,
                                      .x_label = "layer",
                                      .y_label = "entropy bin",
                                      .rows = E,
                                      .cols = L,
                                      .n_panels = P,
                                      .values = panels,
                                      .panel_titles = titles,
                                      .y_up = true,
                                      .scale = {false, lo, hi, 0, "threshold τ: dark keeps more tokens, bright keeps fewer", 2},
                                      .missing = "no records: the fit chose nothing here"});
        pen_finish(
            p, "gate", pen_text(p, "tau-%s-b%zu", t->tag, b + 1), title,
            t->f->has_evidence
                ? "One panel per perplexity bin, entropy rising upwards. Hatched cells have no records."
                : "One panel per perplexity bin, entropy rising upwards. This table carries no counts, so every cell is shown.");
    }
    free(values);
    free(panels);
    free(titles);
}

/* Shares of records and of choices per action, both sides in one form. */
static void draw_actions(report_pen *p, const report_table *t, const json_t *side, bool head)
{
    const json_t *action = json_object_get(side, "action"), *logged = json_object_get(side, "logged"),
                 *chosen = json_object_get(side, "chosen");
    size_t n = json_array_size(action);
    double total = 0, choices = 0, *values = pen_room(p, 2 * n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, head ? "weight,records,chosen\n" : "tau,records,chosen\n");
        long mark = -1;
        for (size_t a = 0; a < n; a++) {
            double v = json_number_value(json_array_get(action, a));
            values[a] = json_number_value(json_array_get(logged, a));
            values[n + a] = json_number_value(json_array_get(chosen, a));
            total += values[a];
            choices += values[n + a];
            names[a] = pen_text(p, "%g", v);
            mark = v == (head ? 1.0 : 0.9) ? (long)a : mark;
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
        const char *title = pen_text(p, "%s: %s actions logged and chosen", t->title, head ? "head" : "gate");
        chart_bars(&p->s, &(chart_bars_spec){title, head ? "head weight" : "threshold τ", "per cent", n, 2, names, series, both,
                                             mark, head ? "1.0 = start" : "0.90 = start"});
        pen_finish(p, "evidence", pen_text(p, "actions-%s-%s", head ? "head" : "gate", t->tag), title,
                   "Even blue bars mean balanced logging: then counts cannot decide the choice.");
    }
    free(values);
    free(names);
}

/* Records behind each state: head states layer x head, gate states entropy x layer per perplexity bin. */
static void draw_records(report_pen *p, const report_table *t, size_t b, bool head)
{
    const ckvc_table *k = t->f->table;
    size_t L = k->n_layers, E = k->n_entropy_bins, P = k->n_ppl_bins, G = k->n_heads;
    size_t n = head ? L * G : L * E * P, A = head ? k->n_head_actions : k->n_gate_actions;
    double *values = pen_room(p, n, sizeof *values), top = 0;
    const double **panels = pen_room(p, P, sizeof *panels);
    const char **titles = pen_room(p, P, sizeof *titles);
    if (values && panels && titles) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, head ? "layer,head,records\n" : "perplexity_bin,entropy_bin,layer,records\n");
        for (size_t i = 0; i < n; i++) {
            size_t q = i / (E * L), e = i / L % E, l = head ? i / G : i % L, g = i % G;
            size_t state = head ? ckvc_weight_index(k, (uint32_t)l, (uint32_t)g, (uint32_t)b)
                                : ckvc_tau_index(k, (uint32_t)l, (uint32_t)e, (uint32_t)q, (uint32_t)b);
            const uint64_t *counts = (head ? t->f->evidence.n_head : t->f->evidence.n_gate) + state * A;
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
        const char *title =
            pen_text(p, "%s: records per %s state, budget %s", t->title, head ? "head" : "gate", report_budget(k->budgets[b]));
        chart_heat(&p->s, &(chart_heat_spec){.title = title,
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
        pen_finish(p, "evidence", pen_text(p, "records-%s-%s-b%zu", head ? "head" : "gate", t->tag, b + 1), title,
                   head ? "Each record is one prompt tried with one weight for this head."
                        : "Each record is one prompt of this risk cell tried with one threshold in this layer.");
    }
    free(values);
    free(panels);
    free(titles);
}

static void draw_tables(report_pen *p)
{
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

/* ---- runs ---- */

static void draw_risk_plane(report_pen *p, const report_run *run)
{
    chart_point *points = pen_room(p, run->n_prompts, sizeof *points);
    if (!points) {
        return;
    }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "id,source,heldout,r_struct_nats,r_sem_perplexity\n");
    for (size_t i = 0; i < run->n_prompts; i++) {
        const report_prompt *q = &run->prompts[i];
        points[i] = (chart_point){q->r_struct, q->r_sem, NAN, NAN, 3, (int)q->source, run->n_prompts <= 2000 ? q->id : NULL};
        pen_csv_text(p, q->id, ',');
        pen_csv_text(p, run->sources[q->source], ',');
        pen_csv_number(p, q->heldout, ',');
        pen_csv_number(p, q->r_struct, ',');
        pen_csv_number(p, q->r_sem, '\n');
    }
    const char **names = pen_room(p, run->n_sources, sizeof *names);
    if (names) {
        for (size_t i = 0; i < run->n_sources; i++) {
            names[i] = *run->sources[i] ? run->sources[i] : "(no source)";
        }
        const char *title = pen_text(p, "%s: prompts on the plane of risk", run->title);
        chart_scatter(&p->s, &(chart_scatter_spec){.title = title,
                                                   .x_label = "attention entropy R_struct, nats",
                                                   .y_label = "window perplexity R_sem",
                                                   .n = run->n_prompts,
                                                   .n_series = run->n_sources,
                                                   .points = points,
                                                   .series = names,
                                                   .x_lines = run->binned ? run->h.edges_entropy : NULL,
                                                   .y_lines = run->binned ? run->h.edges_ppl : NULL,
                                                   .n_x_lines = run->binned ? run->h.n_entropy_bins - 1 : 0,
                                                   .n_y_lines = run->binned ? run->h.n_ppl_bins - 1 : 0});
        pen_finish(p, "prompts", pen_text(p, "risk-%s", run->tag), title,
                   "One point per prompt; dashed lines are the edges of the risk bins.");
    }
    free(names);
    free(points);
}

/* Cells of the risk plane, one panel, from nested lists: occupancy or a share. */
static void draw_cells(report_pen *p, const report_run *run, const json_t *cells, const char *key, const char *section,
                       const char *name, const char *title, const char *caption, chart_scale scale, const char *csv_name,
                       const char *missing)
{
    size_t E = run->h.n_entropy_bins, P = run->h.n_ppl_bins;
    double *values = pen_room(p, E * P, sizeof *values);
    if (!values) {
        return;
    }
    pen_begin(p);
    ckvc_buffer_printf(&p->csv, "perplexity_bin,entropy_bin,%s\n", csv_name);
    for (size_t q = 0; q < P; q++) {
        for (size_t e = 0; e < E; e++) {
            const json_t *cell = json_array_get(json_array_get(cells, e), q);
            double v = key ? report_num(cell, key) : json_number_value(cell);
            pen_csv_number(p, (double)q, ',');
            pen_csv_number(p, (double)e, ',');
            pen_csv_number(p, v, '\n');
            values[q * E + e] = !key && v == 0 ? NAN : v;
            if (!key) {
                scale.hi = fmax(scale.hi, v);
            }
        }
    }
    const double *panel = values;
    chart_heat(&p->s, &(chart_heat_spec){.title = title,
                                         .x_label = "entropy bin",
                                         .y_label = "perplexity bin",
                                         .rows = P,
                                         .cols = E,
                                         .n_panels = 1,
                                         .values = &panel,
                                         .y_up = true,
                                         .scale = scale,
                                         .missing = missing});
    pen_finish(p, section, name, title, caption);
    free(values);
}

static void draw_binding_layers(report_pen *p, const report_run *run, const json_t *budget, size_t b)
{
    const json_t *layers = json_object_get(budget, "layers");
    size_t n = json_array_size(layers);
    double *values = pen_room(p, 2 * n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "layer,binding_share,sets_differ_share,kept_mean,share_of_kept_in_window\n");
        for (size_t l = 0; l < n; l++) {
            const json_t *of = json_array_get(layers, l);
            values[l] = 100 * report_num(of, "binding");
            values[n + l] = 100 * report_num(of, "sets_differ");
            names[l] = pen_text(p, "%zu", l);
            pen_csv_number(p, (double)l, ',');
            pen_csv_number(p, report_num(of, "binding"), ',');
            pen_csv_number(p, report_num(of, "sets_differ"), ',');
            pen_csv_number(p, report_num(of, "kept_mean"), ',');
            pen_csv_number(p, report_num(of, "share_of_kept_in_window"), '\n');
        }
        static const char *const series[] = {"fewer candidates than the budget at τ = 1.00",
                                             "τ = 0.80 and τ = 1.00 keep different sets"};
        const double *both[] = {values, values + n};
        const char *title =
            pen_text(p, "%s: where the gate can act, by layer, budget %s", run->title, report_budget(run->h.budgets[b]));
        chart_bars(&p->s, &(chart_bars_spec){title, "layer", "per cent of prompts", n, 2, names, series, both, -1, NULL});
        pen_finish(p, "binding", pen_text(p, "binding-layers-%s-b%zu", run->tag, b + 1), title,
                   "Where both bars are low the gate's choice changes only its own penalty, not what is kept.");
    }
    free(values);
    free(names);
}

static void draw_runs(report_pen *p)
{
    for (size_t i = 0; i < p->r->n_runs; i++) {
        const report_run *run = &p->r->runs[i];
        const json_t *o = json_array_get(json_object_get(p->r->json, "runs"), i), *budgets = json_object_get(o, "budgets");
        if (run->n_prompts > 0) {
            draw_risk_plane(p, run);
        }
        if (!run->binned) {
            continue;
        }
        draw_cells(p, run, json_object_get(o, "occupancy"), NULL, "prompts", pen_text(p, "occupancy-%s", run->tag),
                   pen_text(p, "%s: prompts per risk cell", run->title), "Prompts that records come from; hold-out left out.",
                   (chart_scale){false, 0, 0, 0, "prompts", 0}, "prompts", "no prompts");
        for (size_t b = 0; b < json_array_size(budgets); b++) {
            const json_t *budget = json_array_get(budgets, b);
            draw_binding_layers(p, run, budget, b);
            draw_cells(
                p, run, json_object_get(budget, "cells"), "sets_differ", "binding", pen_text(p, "binding-%s-b%zu", run->tag, b + 1),
                pen_text(p, "%s: where the gate can act, by risk cell, budget %s", run->title, report_budget(run->h.budgets[b])),
                "Share of (prompt, layer) where some two thresholds of the grid keep different sets.",
                (chart_scale){false, 0, 1, 0, "share of (prompt, layer) with different sets", 2}, "sets_differ_share",
                "no prompts");
        }
    }
}

ckvc_status report_draw(report *r, ckvc_err *err)
{
    report_pen p = {.r = r, .err = err};
    draw_scores(&p);
    draw_pairs(&p);
    draw_tables(&p);
    draw_runs(&p);
    return pen_fini(&p);
}
