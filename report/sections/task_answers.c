/* What policies answer on tasks: scores beside what is kept, differences to the table, tasks one by
 * one, lengths, needles. A part for each model, and for the question seen or not. */
#include <math.h>

#include "lib/base/order.h"
#include "report/sections/sections.h"

/* ---- columns ---- */

/* JSON and csv under one name. */
#define EVERY(m, name)                                                                             \
    { FIELD(m), .json = name, .csv = name }
#define ENDS(m, name) EVERY(m.mean, name), EVERY(m.lo, name "_lo"), EVERY(m.hi, name "_hi")

TABLE(cell_columns, answer_cell, EVERY(n, "items"), ENDS(score, "score"),
      ENDS(against, "against_table"), EVERY(better, "items_above_table"),
      EVERY(worse, "items_below_table"), EVERY(decided, "decided"));
TABLE(task_cell_columns, answer_cell, EVERY(task, "task"), INCLUDE(cell_columns),
      EVERY(p, "mcnemar_p"));
TABLE(length_columns, answer_cell, EVERY(length, "length"), INCLUDE(cell_columns));

SAY(counted_of, answer_task, o->counted ? "counts" : "left out")
TABLE(task_columns, answer_task, SHOWN(task, "task"), SHOWN(group, "of"), SHOWN(metric, "metric"),
      SHOWN(n, "items"), JSON_AS(full.mean, "full"), JSON_AS(full.lo, "full_lo"),
      JSON_AS(full.hi, "full_hi"), PAGE(full, "full cache", SPREAD(3)),
      SHOWN(control, "wrong answers", FIXED(3)),
      SHOWN(counted, "in averages", .say = counted_of, .align = "ll"), MEMBERS(binary));

SAY(budget_of, answer_line, o->full ? "" : say_budget(o->budget))
SAY(megabytes_of, answer_line, say_fixed(o->bytes / 1e6, 2))
SAY(share_of, answer_line,
    say("%s%s", say_share(o->share), fabs(o->entries_ratio - 1) > 0.02 ? "*" : ""))
SAY(aware_of, answer_line, o->full ? "" : o->aware ? "the last rows" : "other")
SAY(against_of, answer_line,
    o->base ? "(the table)"
    : !isfinite(o->against.mean)
        ? ""
        : say("%s%s", SAY_INTERVAL(o->against, 3), o->decided ? ", decided" : ""))
TABLE(line_columns, answer_line, EVERY(budget, "budget"), EVERY(title, "policy"), EVERY(n, "items"),
      EVERY(share, "share"), EVERY(bytes, "bytes"), EVERY(entries_ratio, "entries_over_table"),
      ENDS(macro, "score"), ENDS(tail, "task_p10"), ENDS(against, "against_table"),
      ENDS(tail_against, "task_p10_against_table"), EVERY(decided, "decided"),
      EVERY(frontier, "frontier"), EVERY(aware, "query_aware"), EVERY(besides, "costs_besides"),
      PAGE(budget, "budget", .say = budget_of, .align = "nn"), PAGE(title, "policy", .align = "nn"),
      PAGE(bytes, "MB", .say = megabytes_of, .align = "rr"), PAGE(macro, "score", SPREAD(3)),
      PAGE(against, "less the table", .say = against_of), PAGE(tail, "Task-P10", SPREAD(3)),
      PAGE(share, "kept", .say = share_of, .align = "rr"),
      PAGE(aware, "ranks by", .say = aware_of, .align = "nn"),
      PAGE(besides, "costs besides", .align = "nn"), OBJECTS(tasks, n_tasks, task_cell_columns),
      OBJECTS(lengths, n_lengths, length_columns), JSON(needle, BY(n_depths, n_aimed)));
SHARED_TABLE(answer_columns, answer_bench, MEMBERS(model, query, n_items, n_lacking, n_counted),
             OBJECTS(tasks, n_tasks, task_columns), OBJECTS(lines, n_lines, line_columns),
             JSON(depths, BY(n_depths)), JSON(aimed, BY(n_aimed)));

/* ---- figures ---- */

typedef struct place {
    const report_numbers *n;
    const answer_bench *o;
    size_t number; /* of the bench, from 1 */
} place;

static const char *name_of(const place *p, const char *what) {
    return say("answers-%zu-%s", p->number, what);
}

static int series_of(const answer_line *line) {
    return line->full ? VIEW_REFERENCE : view_series(line->colour);
}

/* The lines of a budget begin where it is another than that of the line before. */
static bool begins(const answer_bench *o, const answer_line *x) {
    return !x->full && (x == o->lines || x[-1].full || x[-1].budget != x->budget);
}

/* How many lines from x on are of its budget. */
static size_t lines_like(const answer_bench *o, const answer_line *x) {
    size_t n = 0;
    while (x + n < o->lines + o->n_lines && x[n].budget == x->budget) { n++; }
    return n;
}

static void draw_scores(const place *p, view *v) {
    const answer_bench *o = p->o;
    chart_interval_row *rows = NEW(p->n, o->n_lines, chart_interval_row);
    for (size_t i = 0; i < o->n_lines; i++) {
        const answer_line *x = &o->lines[i];
        rows[i] = (chart_interval_row){
            .heading =
                begins(o, x) ? room_text(&p->n->in->room, "%s", say_budget(x->budget)) : NULL,
            .label = x->title,
            .remark = room_text(&p->n->in->room, "%s \u00B7 %s", say_fixed(x->macro.mean, 3),
                                share_of(x)),
            .mean = x->macro.mean,
            .lo = x->macro.lo,
            .hi = x->macro.hi,
            .series = x->full || !x->table ? VIEW_REFERENCE : series_of(x),
            .limit = NAN};
    }
    figure_table(v, line_columns, o->lines, o->n_lines);
    figure_intervals(v, .title = "What tasks score, and what is kept",
                     .x_label = "score, mean over tasks", .reference_label = "nothing right",
                     .remark_label = "score \u00B7 kept", .n = o->n_lines, .rows = rows);
    figure_end_as(
        v, "wide", name_of(p, "scores"),
        "Right is better; at each budget tables first, then by score. Bars are 95% intervals of a "
        "bootstrap over tasks and, within them, prompts; differences to the table, paired by "
        "prompt, are decided more sharply than bars that overlap. Kept: share of the prompt's "
        "entries; * more than 2% off the table's. Colours are tables.");
}

/* The points of one policy, in order of bytes. */
typedef struct cost_point {
    double megabytes, score; /* ordered by the first */
} cost_point;

/* Points of the lines that have the title; NULL: of the frontier. */
static chart_curve curve_of(const place *p, const char *title, bool tail) {
    const answer_bench *o = p->o;
    cost_point *points = NEW(p->n, o->n_lines, cost_point);
    chart_curve c = {.name = title ? title : "most at its size",
                     .stride = sizeof *points,
                     .x = &points->megabytes,
                     .y = &points->score,
                     .flags = title ? CURVE_DOTS : CURVE_DASHED,
                     .series = VIEW_REFERENCE};
    EACH(answer_line, x, o->lines, o->n_lines) {
        if (title ? strcmp(x->title, title) != 0 : !x->frontier) { continue; }
        points[c.n++] = (cost_point){x->bytes / 1e6, tail ? x->tail.mean : x->macro.mean};
        c.series = title ? series_of(x) : c.series;
    }
    qsort(points, c.n, sizeof *points, ckvc_order_double);
    return c;
}

/* A curve a policy, each title once. */
static size_t curves_of(const place *p, bool tail, chart_curve *out) {
    const answer_bench *o = p->o;
    size_t n = 0;
    EACH(answer_line, x, o->lines, o->n_lines) {
        bool first = true;
        for (size_t i = 0; i < n; i++) { first &= strcmp(out[i].name, x->title) != 0; }
        if (first) { out[n++] = curve_of(p, x->title, tail); }
    }
    return n;
}

static void draw_costs(const place *p, view *v, bool tail) {
    chart_curve *curves = NEW(p->n, p->o->n_lines + 1, chart_curve);
    size_t n = curves_of(p, tail, curves);
    if (!tail) { curves[n++] = curve_of(p, NULL, tail); }
    figure_table(v, line_columns, p->o->lines, p->o->n_lines);
    figure_curves(v, curves, n, CHART_X_LOG | CHART_ZERO_LINE,
                  .title = tail ? "The worst tenth of tasks against the size of the cache"
                                : "Score against the size of the cache",
                  .x = "keys and values after the prompt, MB as 32-bit numbers",
                  .y = tail ? "Task-P10" : "score, mean over tasks");
    figure_end(v, name_of(p, tail ? "tail" : "bytes"),
               tail ? "Task-P10: the 10th percentile of tasks' scores."
                    : "A curve a policy over its budgets, mean of the prompts; dashed: no other "
                      "scores as much with as few bytes (the Pareto front). A policy's size is "
                      "what it really kept.");
}

/* Lines "budget,policy,..." of cells, under the names of their columns. */
static void cells_csv(view *v, const answer_bench *o, columns_of *of, bool lengths) {
    ckvc_buffer_text(&v->csv, "budget,policy,");
    csv_names(&v->csv, of);
    EACH(answer_line, x, o->lines, o->n_lines) {
        EACH(answer_cell, c, lengths ? x->lengths : x->tasks, lengths ? x->n_lengths : x->n_tasks) {
            csv_number(&v->csv, x->budget);
            csv_text(&v->csv, x->title);
            csv_row(&v->csv, of, c);
        }
    }
}

static void draw_tasks(const place *p, view *v) {
    const answer_bench *o = p->o;
    chart_interval_row *rows = NEW(p->n, o->n_tasks, chart_interval_row);
    for (size_t i = 0; i < o->n_tasks; i++) {
        const answer_task *t = &o->tasks[i];
        rows[i] = (chart_interval_row){.label = t->task,
                                       .remark = t->counted ? "" : "left out",
                                       .mean = t->full.mean,
                                       .lo = t->full.lo,
                                       .hi = t->full.hi,
                                       .limit = t->control,
                                       .series = VIEW_REFERENCE};
    }
    figure_begin(v, NULL);
    cells_csv(v, o, task_cell_columns, false);
    figure_intervals(v, .title = "What the full cache scores, task by task", .x_label = "score",
                     .reference_label = "nothing right", .remark_label = "in averages",
                     .n = o->n_tasks, .rows = rows, .limit_label = "what wrong answers score");
    figure_end(v, name_of(p, "tasks"),
               "Bars: 95% over prompts. A task whose score is not above that of wrong answers by a "
               "tenth of what is left above it says nothing of what was dropped: it is in no "
               "average. The csv has every policy's scores on every task.");
}

/* Lines of one budget, and of the full cache, over the lengths that items were made for. */
static void draw_lengths(const place *p, view *v, const answer_line *from, size_t number) {
    const answer_bench *o = p->o;
    const size_t n = lines_like(o, from);
    chart_curve *curves = NEW(p->n, n + 1, chart_curve);
    size_t k = 0;
    for (const answer_line *x = o->lines; x < from + n; x++) {
        const answer_cell *c = x->lengths;
        if (x < from && !x->full) { continue; }
        curves[k++] = (chart_curve){x->title,       x->n_lengths, sizeof *c,   &c->length,
                                    &c->score.mean, CURVE_DOTS,   series_of(x)};
    }
    figure_begin(v, NULL);
    cells_csv(v, o, length_columns, true);
    figure_curves(v, curves, k, CHART_X_LOG | CHART_ZERO_LINE,
                  .title = say("Score over length at %s", say_budget(from->budget)),
                  .x = "length aimed at, tokens", .y = "score, mean over tasks");
    figure_end(v, name_of(p, say("lengths-b%zu", number)),
               from->budget < 1 ? "The kept share is the same at every length. Intervals are in "
                                  "the csv, which has all budgets."
                                : "As many tokens at every length. Intervals are in the csv, which "
                                  "has all budgets.");
}

/* A map for the full cache and each line of a budget. */
static void draw_needles(const place *p, view *v, const answer_line *from, size_t number) {
    const answer_bench *o = p->o;
    const size_t n = lines_like(o, from), cols = o->n_aimed;
    const double **values = NEW(p->n, n + 1, const double *);
    const char **titles = NEW(p->n, n + 1, const char *),
               **depths = NEW(p->n, o->n_depths, const char *),
               **aimed = NEW(p->n, cols, const char *);
    size_t k = 0;
    for (size_t i = 0; i < o->n_depths; i++) {
        depths[i] = room_text(&p->n->in->room, "%s", say_share(o->depths[i]));
    }
    for (size_t i = 0; i < cols; i++) {
        aimed[i] = room_text(&p->n->in->room, "%.0f", o->aimed[i]);
    }
    figure_begin(v, "budget,policy,depth,length,score");
    for (const answer_line *x = o->lines; x < from + n; x++) {
        if (x < from && !x->full) { continue; }
        values[k] = x->needle;
        titles[k++] = x->title;
        for (size_t i = 0; i < o->n_depths * cols; i++) {
            csv_number(&v->csv, x->budget);
            csv_text(&v->csv, x->title);
            figure_line(v, o->depths[i / cols], o->aimed[i % cols], x->needle[i]);
        }
    }
    figure_heat(v,
                .text = {say("Needles at %s", say_budget(from->budget)), "length, tokens", "depth"},
                .grid = {o->n_depths, cols, cols * sizeof(double), sizeof(double), k},
                .values = values, .panel_titles = titles, .row_names = depths, .col_names = aimed,
                .scale = {"score", 2, 0, 1, 0, false, false}, .missing = "no item");
    figure_end(
        v, name_of(p, say("needles-b%zu", number)),
        "Mean score of the needle tasks' items at that depth (0% is the beginning), whether or "
        "not the task is in averages: hold each map against the full cache's.");
}

/* ---- page ---- */

/* A task's row: the full cache, then every line of a budget; bold where it differs from the table's
 * score, decided. */
static void task_row(ckvc_buffer *b, const answer_bench *o, const answer_line *from, size_t t) {
    const size_t n = lines_like(o, from);
    html_row_begin(b);
    html_cell(b, 'n', "%s%s", o->tasks[t].task, o->tasks[t].counted ? "" : " (left out)");
    html_cell(b, 'r', "%zu", o->tasks[t].n);
    if (o->lines->full) { html_cell(b, 'r', "%s", say_fixed(o->lines->tasks[t].score.mean, 2)); }
    for (const answer_line *x = from; x < from + n; x++) {
        const answer_cell *c = &x->tasks[t];
        html_cell(b,
                  !c->decided           ? 'r'
                  : c->against.mean > 0 ? 'g'
                                        : 'b',
                  "%s", say_fixed(c->score.mean, 2));
    }
    html_row_end(b);
}

static void task_table(view *v, const answer_bench *o, const answer_line *from) {
    ckvc_buffer *b = page(v);
    const size_t n = lines_like(o, from);
    html_table_begin(b, say("Scores at %s", say_budget(from->budget)));
    html_head(b, 0, "task");
    html_head(b, 'r', "items");
    if (o->lines->full) { html_head(b, 'r', "full cache"); }
    for (const answer_line *x = from; x < from + n; x++) { html_head(b, 'r', "%s", x->title); }
    html_table_body(b);
    for (size_t t = 0; t < o->n_tasks; t++) { task_row(b, o, from, t); }
    page_table_end(v);
}

/* "seen", in words. */
static const char *query_of(const answer_bench *o) {
    return strcmp(o->query, "seen") == 0 ? "question seen" : "question unseen";
}

static const char *bench_of(const answer_bench *o) {
    return say("%s, model %.12s: %zu of %zu tasks in averages, %zu items", query_of(o), o->model,
               o->n_counted, o->n_tasks, o->n_items);
}

/* At each budget the full cache, the table, and the best of the others. */
static void findings(const answer_bench *o, view *v) {
    EACH(answer_line, x, o->lines, o->n_lines) {
        if (!begins(o, x) || !isfinite(x->macro.mean)) { continue; }
        const answer_line *best = NULL;
        for (const answer_line *y = x; y < x + lines_like(o, x); y++) {
            if (!y->base && (!best || y->macro.mean > best->macro.mean)) { best = y; }
        }
        finding(v, NULL, "%s, %s: %s%s%s%s.", say_budget(x->budget), query_of(o),
                o->lines->full ? say("full cache %s", say_fixed(o->lines->macro.mean, 3)) : "",
                x->base ? say("; %s %s", x->title, say_fixed(x->macro.mean, 3)) : "",
                best ? say("; %s%s %s", x->base ? "best other " : "best ", best->title,
                           say_fixed(best->macro.mean, 3))
                     : "",
                best && x->base ? say(" (%s)", against_of(best)) : "");
    }
}

static void bench_part(const place *p, view *v) {
    const answer_bench *o = p->o;
    html_heading(page(v), 3, bench_of(o));
    findings(o, v);
    if (o->n_lacking) {
        page_warn(v,
                  "Items that some policy has not answered are in no number: up to %zu of a "
                  "policy's answers.",
                  o->n_lacking);
    }
    if (!o->lines->full) {
        page_warn(v, "Without the full cache's answers every task counts, done or not.");
    }
    if (o->n_counted == 0) {
        page_warn(v, "The full cache can do none of these tasks: no average is made.");
    }
    page_table(v, NULL, line_columns, o->lines, o->n_lines);
    draw_scores(p, v);
    draw_costs(p, v, false);
    draw_costs(p, v, true);
    draw_tasks(p, v);
    size_t number = 0;
    EACH(answer_line, x, o->lines, o->n_lines) {
        if (begins(o, x) && x->n_lengths) { draw_lengths(p, v, x, ++number); }
    }
    number = 0;
    EACH(answer_line, x, o->lines, o->n_lines) {
        if (begins(o, x) && o->n_depths) { draw_needles(p, v, x, ++number); }
    }
    page_fold(v, "Task by task");
    page_table(v, NULL, task_columns, o->tasks, o->n_tasks);
    EACH(answer_line, x, o->lines, o->n_lines) {
        if (begins(o, x)) { task_table(v, o, x); }
    }
    page_note(v,
              "Bold: another score than the table's, on %d items or more; by McNemar's exact "
              "test (p < 0.05) where every score is 0 or 1, else by the 95%% interval of the "
              "difference. Not corrected for the number of tasks and policies.",
              PART_MIN);
    page_fold_end(v);
}

void answers_section(const report_numbers *n, view *v) {
    page_text(v,
              "Scores are means over tasks of means over items, on items that every policy has "
              "answered. Intervals draw tasks, then items of them; \u201cdecided\u201d: the "
              "interval of the difference to the table at that budget leaves 0 out, on %d items "
              "or more. Seen: the question "
              "was prefilled with the rest before anything was dropped; unseen: it came when that "
              "was decided. The two are never in one column.",
              PART_MIN);
    for (size_t i = 0; i < n->n_benches; i++) { bench_part(&(place){n, &n->benches[i], i + 1}, v); }
}

void answers_text(const report_numbers *n, ckvc_buffer *text) {
    EACH(answer_bench, o, n->benches, n->n_benches) {
        ckvc_buffer_printf(text, "%s\n", bench_of(o));
        EACH(answer_task, t, o->tasks, o->n_tasks) {
            if (t->counted) { continue; }
            ckvc_buffer_text(text, "left out of averages: ");
            plain_text(text, t->task);
            ckvc_buffer_printf(text, ": the full cache has %s, wrong answers %s\n",
                               say_fixed(t->full.mean, 3), say_fixed(t->control, 3));
        }
        columns_text(text, line_columns, o->lines, o->n_lines);
    }
}
