/* The figures: each is drawn once, kept inline for the page and as a file, with its numbers as csv.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lines/score_kind.h"
#include "report/report_compare.h"
#include "report/report_diagnostics.h"
#include "report/report_pen.h"

/* ---- scores ---- */

/* Comparisons of one list with the same model, budget and C as `like`. */
static bool same_setting(const json_t *a, const json_t *b) {
    return strcmp(report_str(a, "model"), report_str(b, "model")) == 0 &&
           report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C");
}

static void interval_row(report_pen *p, chart_interval_row *row, const json_t *of,
                         const char *heading, const char *label, int series) {
    double kept = report_num(of, "kept"), base = report_num(of, "kept_base");
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    *row = (chart_interval_row){
        heading,
        label,
        pen_text(p, equal ? "%s · kept %s, base %s · n %.0f" : "%s · kept %s ≠ base %s · n %.0f",
                 report_signed(report_num(of, "difference"), 4), report_fixed(kept, 1),
                 report_fixed(base, 1), report_num(of, "n")),
        report_num(of, "difference"),
        report_num(of, "lo"),
        report_num(of, "hi"),
        series,
        NAN,
        false};
}

/* Controls answer what a part of a table is worth: in tables and numbers, not in the pictures of
 * who does best. */
static bool is_control(const json_t *o) {
    return score_is_control(score_kind_named(report_str(o, "policy")));
}

/* "policy,base,source,prompts,difference,..." of one comparison: all, then its parts. */
static void reward_csv(report_pen *p, const json_t *o) {
    static const char *const keys[] = {"n",           "difference", "lo",        "hi",    "reward",
                                       "reward_base", "kept",       "kept_base", "median"};
    enum { KEYS = sizeof keys / sizeof *keys };
    const json_t *parts[2] = {json_object_get(o, "kinds"), json_object_get(o, "sources")};
    const size_t n_kinds = json_array_size(parts[0]);
    for (size_t i = 0; i <= n_kinds + json_array_size(parts[1]); i++) {
        const json_t *of = i == 0         ? json_object_get(o, "all")
                           : i <= n_kinds ? json_array_get(parts[0], i - 1)
                                          : json_array_get(parts[1], i - 1 - n_kinds);
        pen_csv_text(p, report_str(o, "title"), ',');
        pen_csv_text(p, report_str(o, "base"), ',');
        pen_csv_text(p,
                     i == 0         ? "all"
                     : i <= n_kinds ? report_part_name(of)
                                    : report_str(of, "source"),
                     ',');
        for (size_t c = 0; c < KEYS; c++) {
            pen_csv_number(p, report_num(of, keys[c]), c + 1 == KEYS ? '\n' : ',');
        }
    }
}

static size_t part_count(const json_t *o) {
    return json_array_size(json_object_get(o, "kinds")) +
           json_array_size(json_object_get(o, "sources"));
}

/* A table's rows: against plain identity, and, where it has a matched control, at equal tokens; its
 * parts by the latter then. */
static size_t table_rows(report_pen *p, chart_interval_row *rows, const json_t *o,
                         const json_t *gain, int series) {
    static const char *const parts[2] = {"kinds", "sources"};
    size_t n = 0, k;
    json_t *one;
    interval_row(p, &rows[n++], json_object_get(o, "all"), report_str(o, "title"),
                 gain != o ? "all, against plain identity" : "all prompts", series);
    if (gain != o) {
        const bool equal =
            json_is_true(json_object_get(json_object_get(gain, "all"), "equal_tokens"));
        interval_row(p, &rows[n++], json_object_get(gain, "all"), NULL,
                     equal ? "all, at equal tokens" : "all, against matched", series);
    }
    for (size_t i = 0; i < 2; i++) {
        json_array_foreach(json_object_get(gain, parts[i]), k, one) {
            interval_row(p, &rows[n++], one, NULL, report_part_name(one), series);
        }
    }
    return n;
}

static void draw_reward(report_pen *p, const json_t *list, const json_t *like, size_t number) {
    const json_t *of_scores = json_object_get(p->r->json, "scores");
    size_t n = 0, most = 0, index;
    json_t *o;
    json_array_foreach(list, index, o) {
        most += 2 + part_count(report_gain_of(of_scores, o));
    }
    chart_interval_row *rows = pen_room(p, most, sizeof *rows);
    if (!rows) { return; }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "policy,base,source,prompts,difference_nats_per_token,lo,hi,reward,"
                              "reward_base,kept_per_layer,"
                              "kept_per_layer_base,median_difference\n");
    int series = 0;
    json_array_foreach(list, index, o) {
        if (!same_setting(o, like)) { continue; }
        const json_t *gain = report_gain_of(of_scores, o);
        const bool control = is_control(o);
        reward_csv(p, o);
        if (strcmp(report_str(o, "policy"), "table") == 0) {
            n += table_rows(p, &rows[n], o, gain, series);
            if (gain != o) { reward_csv(p, gain); }
        } else if (!control) { /* their parts: in the tables below */
            interval_row(p, &rows[n++], json_object_get(o, "all"), report_str(o, "title"),
                         "all prompts", series);
        }
        series += !control;
    }
    const char *title = pen_text(p, "Reward on held-out prompts against identity, budget %s",
                                 report_budget(report_num(like, "budget")));
    chart_intervals(&p->s, &(chart_interval_spec){
                               title, "difference of mean reward, nats per token (right is better)",
                               REPORT_UNDEFINED, "worse than identity", "better than identity", 0.0,
                               n, rows, NULL});
    pen_finish(p, "verdict", pen_text(p, "reward-%zu", number), title,
               "Paired by prompt; bars are 95% t intervals of the mean difference, the table held "
               "fixed. Each row says how many "
               "tokens per "
               "layer were kept, and by its base: a gain counts only where these are equal (≠: not "
               "within 2%). Parts of a table's "
               "prompts are against "
               "identity at the threshold that keeps as many (matched) where that was scored, else "
               "against plain identity.");
    free(rows);
}

static void draw_reward_kept(report_pen *p, const json_t *list, const json_t *like, size_t number) {
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
    json_array_foreach(list, index, o) {
        if (!same_setting(o, like)) { continue; }
        const json_t *all = json_object_get(o, "all");
        if (n == 0) {
            names[0] = "identity";
            points[n++] =
                (chart_point){report_num(all, "kept_base"), 0, NAN, NAN, 0, 0, "identity"};
        }
        if (is_control(o)) { continue; }
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
    const char *title = pen_text(p, "What is gained and what it costs, budget %s",
                                 report_budget(report_num(like, "budget")));
    chart_scatter(&p->s,
                  &(chart_scatter_spec){.title = title,
                                        .x_label = "tokens kept per layer, mean over prompts",
                                        .y_label = "reward against identity, nats/token",
                                        .n = n,
                                        .n_series = n,
                                        .points = points,
                                        .series = names,
                                        .y_lines = zero,
                                        .n_y_lines = 1});
    pen_finish(p, "verdict", pen_text(p, "reward-kept-%zu", number), title,
               "Up is better, left is cheaper. A policy to the upper right of identity may have "
               "bought its reward with tokens.");
    free(points);
    free(names);
}

static void draw_scores(report_pen *p) {
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

static size_t budget_at(const ckvc_table *k, double budget) {
    size_t b = 0;
    while (b + 1 < k->n_budgets && k->budgets[b] != budget) {
        b++;
    }
    return b;
}

/* Heads of two tables against each other; equal pairs of weights share a point whose area grows
 * with their number. */
static void draw_weight_scatter(report_pen *p, const json_t *pair, const json_t *head,
                                size_t number) {
    const report_table *t[2] = {NULL, NULL};
    for (size_t i = 0; i < p->r->n_tables; i++) {
        t[0] = strcmp(p->r->tables[i].tag, report_str(pair, "a")) == 0 ? &p->r->tables[i] : t[0];
        t[1] = strcmp(p->r->tables[i].tag, report_str(pair, "b")) == 0 ? &p->r->tables[i] : t[1];
    }
    const ckvc_table *x = t[0]->f->table, *y = t[1]->f->table;
    size_t A = x->n_head_actions, heads = (size_t)x->n_layers * x->n_heads, n = 0;
    size_t bx = budget_at(x, report_num(head, "budget")),
           by = budget_at(y, report_num(head, "budget"));
    size_t *counts = pen_room(p, A * A, sizeof *counts);
    chart_point *points = pen_room(p, heads, sizeof *points);
    if (counts && points) {
        size_t most = 1;
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "weight_a,weight_b,heads\n");
        for (size_t i = 0; i < heads; i++) {
            int a =
                ckvc_grid_index(x->head_grid, x->n_head_actions, x->weight[i * x->n_budgets + bx]);
            int b =
                ckvc_grid_index(y->head_grid, y->n_head_actions, y->weight[i * y->n_budgets + by]);
            if (a >= 0 && b >= 0) {
                size_t c = ++counts[(size_t)a * A + (size_t)b];
                most = c > most ? c : most;
            }
        }
        for (size_t i = 0; i < A * A; i++) {
            if (counts[i]) {
                double wx = x->head_grid[i / A], wy = y->head_grid[i % A];
                points[n++] = (chart_point){
                    wx,
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
        const char *title = pen_text(p, "Head weights of %s against %s, budget %s", t[1]->title,
                                     t[0]->title, report_budget(report_num(head, "budget")));
        chart_scatter(&p->s,
                      &(chart_scatter_spec){.title = title,
                                            .x_label = pen_text(p, "weight in %s", t[0]->tag),
                                            .y_label = pen_text(p, "weight in %s", t[1]->tag),
                                            .n = n,
                                            .n_series = 0,
                                            .points = points,
                                            .diagonal = true,
                                            .square = true,
                                            .height = 300});
        pen_finish(p, "agreement", pen_text(p, "weights-pair-%zu", number), title,
                   "One point per pair of weights; its area is the number of heads. On the dashed "
                   "line both tables agree.");
    }
    free(counts);
    free(points);
}

static void draw_pairs(report_pen *p) {
    report_draw_spearman(p);
    size_t index, k, number = 0;
    json_t *pair, *head;
    json_array_foreach(json_object_get(p->r->json, "pairs"), index, pair) {
        json_array_foreach(json_object_get(pair, "head"), k, head) {
            draw_weight_scatter(p, pair, head, ++number);
        }
    }
}

/* ---- runs ---- */

static void draw_risk_plane(report_pen *p, const report_run *run) {
    chart_point *points = pen_room(p, run->n_prompts, sizeof *points);
    if (!points) { return; }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "id,source,heldout,r_struct_nats,r_sem_perplexity\n");
    for (size_t i = 0; i < run->n_prompts; i++) {
        const report_prompt *q = &run->prompts[i];
        points[i] = (chart_point){q->r_struct,
                                  q->r_sem,
                                  NAN,
                                  NAN,
                                  3,
                                  (int)q->source,
                                  run->n_prompts <= 2000 ? q->id : NULL};
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
        chart_scatter(
            &p->s, &(chart_scatter_spec){.title = title,
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

static void draw_runs(report_pen *p) {
    for (size_t i = 0; i < p->r->n_runs; i++) {
        if (p->r->runs[i].n_prompts > 0) { draw_risk_plane(p, &p->r->runs[i]); }
    }
}

ckvc_status report_draw(report *r, ckvc_err *err) {
    report_pen p = {.r = r, .err = err};
    draw_scores(&p);
    draw_pairs(&p);
    report_draw_tables(&p);
    draw_runs(&p);
    report_draw_coverage(&p);
    report_draw_binding(&p);
    report_draw_stats(&p);
    report_attention_draw(&p);
    report_diagnostics_draw(&p);
    return pen_fini(&p);
}
