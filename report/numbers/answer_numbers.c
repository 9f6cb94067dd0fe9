/* Computes what policies score on tasks: averages over those that the full cache can do,
 * differences to the table at the same budget, tasks one by one, lengths, and needles.
 *
 * An item counts where every policy of its bench has answered it. Then all averages are over the
 * same items, and differences are paired. */
#include <math.h>
#include <stdlib.h>

#include "lib/stats/task_scores.h"
#include "lib/base/order.h"
#include "report/numbers/numbers.h"

#define DECIDED_P    0.05
#define NEEDLE_CELLS 4096 /* a map of more depths and lengths is none */

/* A task under the full cache. If the full cache does no better on it than wrong answers do, the
 * task says nothing of what was dropped: it is marked, and enters no average. */
typedef struct answer_task {
    const char *task, *group, *metric;
    size_t n;
    interval full;
    double control;       /* mean score of wrong answers there; 0 where none was taken */
    bool counted, binary; /* does it enter averages? is every score 0 or 1? */
} answer_task;

/* One policy or table at one budget. Means are over the items of tasks that count. */
typedef struct answer_line {
    const char *title;
    bool aware;                  /* ranks by the prompt's last rows (policy_properties) */
    const char *besides;         /* what it costs beside a prefill; "": nothing */
    bool full, table, base;      /* the full cache; a table; the one that others are held against */
    double budget, share, bytes; /* budget NaN: the full cache */
    double entries_ratio;        /* to the table's at the same budget; NaN: there is none */
    size_t n;
    interval macro, tail, against, tail_against;
    bool decided;            /* against leaves 0 out, on PART_MIN items or more */
    bool frontier;           /* no other scores as much with as few bytes */
    json_t *tasks, *lengths; /* its scores in one task, or on items of one length */
    json_t *needle;          /* [depths][lengths]; null: no item */
} answer_line;

/* What may stand in one column: rows of one model, in which the question was seen, or was not,
 * when sets were decided. */
typedef struct answer_bench {
    /* items that all have answered, and items left out because some policy has no answer */
    size_t n_items, n_lacking;
    answer_task *tasks;
    answer_line *lines; /* the full cache, then by budget: tables, then by falling score */
    size_t n_tasks, n_counted, n_lines;
} answer_bench;

typedef struct worker {
    report_numbers *n;
    answer_bench *o;
    const answer_row **rows; /* [n_lines][n_items] */
    bool *keep;              /* [n_items] scratch: which are looked at */
    size_t *task;            /* [n_items] of each item */
} worker;

static const answer_row *row_at(const worker *w, size_t line, size_t item) {
    return w->rows[line * w->o->n_items + item];
}

static interval of_draws(task_interval x) { return (interval){x.mean, x.lo, x.hi}; }

/* ---- items and tasks ---- */

static int by_item(const void *pa, const void *pb) {
    return answer_compare_items(*(const answer_row *const *)pa, *(const answer_row *const *)pb);
}

/* Takes the items that every series of the bench has. first [n_lines + 1] says where each series
 * begins in rows. */
static void take_items(worker *w, const answer_row *const *rows, const size_t *first) {
    answer_bench *o = w->o;
    const answer_row **found = NEW(w->n, o->n_lines, const answer_row *);
    size_t most = first[1] - first[0], n = 0;
    const answer_row **all = NEW(w->n, o->n_lines * most, const answer_row *);
    for (size_t i = first[0]; i < first[1]; i++) {
        bool everywhere = true;
        for (size_t k = 0; k < o->n_lines && everywhere; k++) {
            const answer_row *const *at =
                bsearch(&rows[i], rows + first[k], first[k + 1] - first[k], sizeof *rows, by_item);
            everywhere = at != NULL;
            found[k] = at ? *at : NULL;
        }
        for (size_t k = 0; k < o->n_lines && everywhere; k++) { all[k * most + n] = found[k]; }
        n += everywhere;
    }
    for (size_t k = 0; k < o->n_lines; k++) {
        o->n_lacking =
            first[k + 1] - first[k] - n > o->n_lacking ? first[k + 1] - first[k] - n : o->n_lacking;
        memmove(all + k * n, all + k * most, n * sizeof *all);
    }
    w->rows = all;
    o->n_items = n;
}

/* Items are in the order of their tasks. */
static void group_by_task(worker *w) {
    answer_bench *o = w->o;
    o->tasks = NEW(w->n, o->n_items, answer_task);
    for (size_t i = 0; i < o->n_items; i++) {
        const answer_row *x = row_at(w, 0, i);
        answer_task *t = o->n_tasks ? &o->tasks[o->n_tasks - 1] : NULL;
        if (!t || strcmp(t->task, x->task) != 0) {
            t = &o->tasks[o->n_tasks++];
            *t = (answer_task){
                .task = x->task, .group = x->group, .metric = x->metric, .binary = true};
        }
        w->task[i] = o->n_tasks - 1;
        t->n++;
        t->control += isnan(x->control) ? 0 : x->control;
        for (size_t k = 0; k < o->n_lines; k++) {
            const double score = row_at(w, k, i)->score;
            t->binary &= score == 0 || score == 1;
        }
    }
    for (size_t t = 0; t < o->n_tasks; t++) { o->tasks[t].control /= (double)o->tasks[t].n; }
}

/* ---- scores of kept items ---- */

static task_draws draws_of(const worker *w) {
    const answer_bench *o = w->o;
    CKVC_AUTO_FREE size_t *first = ckvc_alloc(o->n_tasks + 1, sizeof *first);
    CKVC_AUTO_FREE double *score = ckvc_alloc(o->n_lines * o->n_items, sizeof *score);
    size_t n = 0, tasks = 0, last = SIZE_MAX, at = 0;
    first[0] = 0;
    for (size_t i = 0; i < o->n_items; i++) {
        if (!w->keep[i]) { continue; }
        tasks += w->task[i] != last;
        first[tasks] = ++n;
        last = w->task[i];
    }
    for (size_t k = 0; k < o->n_lines; k++) {
        for (size_t i = 0; i < o->n_items; i++) {
            if (w->keep[i]) { score[at++] = row_at(w, k, i)->score; }
        }
    }
    const report_options *options = w->n->in->o;
    return task_draws_of(&(task_scores){tasks, o->n_lines, first, score}, options->replicates,
                         options->seed);
}

/* Returns the table that a line is held against, which is the first at its budget. */
static size_t base_of(const answer_bench *o, size_t line) {
    for (size_t k = 0; k < o->n_lines; k++) {
        if (o->lines[k].base && o->lines[k].budget == o->lines[line].budget) { return k; }
    }
    return TASK_ALONE;
}

static bool leaves_0_out(interval x, size_t n) { return n >= PART_MIN && (x.lo > 0 || x.hi < 0); }

/* A mean and its interval, as members. */
#define ENDS(x, name)                                                                              \
    {name, J((x).mean)}, {name "_lo", J((x).lo)}, { name "_hi", J((x).hi) }

/* Adds a line's scores of the kept items. `task` is the one that the items are of; NULL: they
 * are of several. Returns the score. */
static interval set_scores(json_t *cell, const worker *w, const task_draws *d, size_t line,
                           const answer_task *task) {
    const size_t base = base_of(w->o, line);
    const interval score = of_draws(task_macro(d, line, TASK_ALONE));
    interval against = {NAN, NAN, NAN};
    size_t n = 0, better = 0, worse = 0;
    double p = NAN; /* McNemar's; NaN: scores are not 0 and 1, or there is no table */
    bool is_decided = false;
    for (size_t i = 0; i < w->o->n_items; i++) {
        if (!w->keep[i]) { continue; }
        n++;
        if (base == TASK_ALONE) { continue; }
        const double mine = row_at(w, line, i)->score, other = row_at(w, base, i)->score;
        better += mine > other;
        worse += mine < other;
    }
    if (base != TASK_ALONE && base != line) {
        against = of_draws(task_macro(d, line, base));
        is_decided = leaves_0_out(against, n);
        if (task && task->binary) {
            p = mcnemar_exact(better, worse);
            is_decided = n >= PART_MIN && p < DECIDED_P;
        }
    }
    ADD_MEMBERS(cell, {"items", J(n)}, ENDS(score, "score"), ENDS(against, "against_table"),
                {"items_above_table", J(better)}, {"items_below_table", J(worse)},
                {"decided", J(is_decided)});
    if (task) { ADD_MEMBERS(cell, {"mcnemar_p", J(p)}); }
    return score;
}

static void each_task(worker *w) {
    answer_bench *o = w->o;
    for (size_t t = 0; t < o->n_tasks; t++) {
        answer_task *task = &o->tasks[t];
        task->full = (interval){NAN, NAN, NAN};
        for (size_t i = 0; i < o->n_items; i++) { w->keep[i] = w->task[i] == t; }
        CKVC_AUTO(task_draws_fini) task_draws d = draws_of(w);
        for (size_t k = 0; k < o->n_lines; k++) {
            json_t *cell = OBJECT(OF(task, task));
            const interval score = set_scores(cell, w, &d, k, task);
            json_array_append_new(o->lines[k].tasks, cell);
            if (k == 0 && o->lines[k].full) { task->full = score; }
        }
        task->counted = !(task->full.mean <= task_bar(task->control)); /* not known: it counts */
        o->n_counted += task->counted;
    }
}

static bool counts(const worker *w, size_t item) { return w->o->tasks[w->task[item]].counted; }

static void all_tasks(worker *w) {
    answer_bench *o = w->o;
    size_t n = 0;
    for (size_t i = 0; i < o->n_items; i++) { n += w->keep[i] = counts(w, i); }
    CKVC_AUTO(task_draws_fini) task_draws d = draws_of(w);
    for (size_t k = 0; k < o->n_lines; k++) {
        answer_line *line = &o->lines[k];
        const size_t base = base_of(o, k);
        double entries = 0, base_entries = 0;
        for (size_t i = 0; i < o->n_items; i++) {
            if (n > 0 && !w->keep[i]) { continue; } /* where nothing counts: of all items */
            const answer_row *x = row_at(w, k, i);
            line->share += x->share;
            line->bytes += x->bytes;
            entries += x->entries;
            base_entries += base == TASK_ALONE ? NAN : row_at(w, base, i)->entries;
        }
        line->n = n;
        line->share /= (double)(n ? n : o->n_items); /* 0/0: NaN */
        line->bytes /= (double)(n ? n : o->n_items);
        line->entries_ratio = entries / base_entries;
        line->macro = of_draws(task_macro(&d, k, TASK_ALONE));
        line->tail = of_draws(task_tail(&d, k, TASK_ALONE));
        line->against = line->tail_against = (interval){NAN, NAN, NAN};
        if (base == TASK_ALONE || base == k) { continue; }
        line->against = of_draws(task_macro(&d, k, base));
        line->tail_against = of_draws(task_tail(&d, k, base));
        line->decided = leaves_0_out(line->against, n);
    }
    for (size_t k = 0; k < o->n_lines; k++) {
        answer_line *x = &o->lines[k];
        x->frontier = isfinite(x->macro.mean);
        EACH(answer_line, y, o->lines, o->n_lines) {
            const bool less = y->bytes<x->bytes, more = y->macro.mean> x->macro.mean;
            x->frontier &=
                !((less && y->macro.mean >= x->macro.mean) || (more && y->bytes <= x->bytes));
        }
    }
}

/* ---- lengths and needles ---- */

static void add_number(double *sorted, size_t *n, double x) {
    size_t i = 0;
    while (i < *n && sorted[i] < x) { i++; }
    if (i < *n && sorted[i] == x) { return; }
    memmove(sorted + i + 1, sorted + i, (*n - i) * sizeof *sorted);
    sorted[i] = x;
    ++*n;
}

static void each_length(worker *w) {
    answer_bench *o = w->o;
    double *lengths = NEW(w->n, o->n_items + 1, double);
    size_t n = 0;
    for (size_t i = 0; i < o->n_items; i++) {
        const uint32_t aimed = row_at(w, 0, i)->aimed;
        if (aimed && counts(w, i)) { add_number(lengths, &n, aimed); }
    }
    for (size_t l = 0; n > 1 && l < n; l++) {
        for (size_t i = 0; i < o->n_items; i++) {
            w->keep[i] = counts(w, i) && row_at(w, 0, i)->aimed == lengths[l];
        }
        CKVC_AUTO(task_draws_fini) task_draws d = draws_of(w);
        for (size_t k = 0; k < o->n_lines; k++) {
            json_t *cell = OBJECT({"length", J(lengths[l])});
            set_scores(cell, w, &d, k, NULL);
            json_array_append_new(o->lines[k].lengths, cell);
        }
    }
}

/* Is this a needle at a depth that was asked for? Other tasks draw their depths, and would be
 * rows of one item. */
static bool has_needle(const answer_row *x) {
    return x->aimed && !isnan(x->depth) && strcmp(x->group, "needle") == 0;
}

static size_t index_in_sorted(const double *sorted, size_t n, double x) {
    const double *at = bsearch(&x, sorted, n, sizeof *sorted, ckvc_order_double);
    return (size_t)(at - sorted);
}

/* Adds scores over depths and lengths to the bench. */
static void needles(worker *w, json_t *bench) {
    answer_bench *o = w->o;
    double *depths = NEW(w->n, o->n_items + 1, double), *aimed = NEW(w->n, o->n_items + 1, double);
    size_t n_depths = 0, n_aimed = 0;
    for (size_t i = 0; i < o->n_items; i++) {
        const answer_row *x = row_at(w, 0, i);
        if (!has_needle(x)) { continue; }
        add_number(depths, &n_depths, x->depth);
        add_number(aimed, &n_aimed, x->aimed);
    }
    const size_t cells = n_depths * n_aimed;
    if (cells > NEEDLE_CELLS) { n_depths = n_aimed = 0; }
    for (size_t k = 0; k < o->n_lines; k++) {
        double *sum = NEW(w->n, cells, double), *n = NEW(w->n, cells, double);
        for (size_t i = 0; n_depths && i < o->n_items; i++) {
            const answer_row *x = row_at(w, k, i);
            if (!has_needle(x)) { continue; }
            const size_t at = index_in_sorted(depths, n_depths, x->depth) * n_aimed +
                              index_in_sorted(aimed, n_aimed, x->aimed);
            sum[at] += x->score;
            n[at]++;
        }
        for (size_t i = 0; i < cells; i++) { sum[i] /= n[i]; /* 0/0: NaN */ }
        o->lines[k].needle = json_grid(sum, n_depths, n_aimed);
    }
    ADD_MEMBERS(bench, {"depths", ckvc_json_reals(depths, n_depths)},
                {"aimed", ckvc_json_reals(aimed, n_aimed)});
}

/* ---- lines ---- */

/* Returns a title such as "T1 technical", "table 1a2b3c4d5e6f" or "table"; of what is made with
 * a table "no-threshold of T1 technical", say; of another policy "snapkv". If there is no other
 * table from which this one has to be told, what is made with it does not name it. */
static const char *title_of(report_numbers *n, const answer_row *x, bool one_table) {
    const bool itself = strcmp(x->policy, policy_kind_name(POLICY_TABLE)) == 0;
    const input_table *t = x->table ? input_table_of(n->in, x->table) : NULL;
    if (!x->table || (one_table && !(itself && t))) { return x->policy; }
    const char *table = t ? t->title : arena_text(&n->in->arena, "table %.12s", x->table);
    return itself ? table : arena_text(&n->in->arena, "%s of %s", x->policy, table);
}

/* Returns the parts of the setting in which the series differ. */
static const char *setting_words(report_numbers *n, const answer_row *x, const answer_row *like) {
    const char *words = "";
    for (size_t i = 0; i < setting_n_fields; i++) {
        const setting_field *field = &setting_fields[i];
        char part[96];
        if (field->title &&
            record_number(&field->m, &x->setting) != record_number(&field->m, &like->setting) &&
            setting_title(field, &x->setting, part, sizeof part)) {
            words = arena_text(&n->in->arena, "%s, %s", words, part);
        }
    }
    return words;
}

static void make_answer_lines(report_numbers *n, answer_bench *o, const answer_row *const *rows,
                              const size_t *first) {
    const answer_row *like = rows[first[o->n_lines > 1 ? 1 : 0]];
    const char *table = NULL;
    bool one_table = true;
    for (size_t k = 0; k < o->n_lines; k++) {
        const char *of = rows[first[k]]->table;
        one_table &= !of || !table || strcmp(of, table) == 0;
        table = of ? of : table;
    }
    for (size_t k = 0; k < o->n_lines; k++) {
        const answer_row *x = rows[first[k]];
        const policy_kind kind = policy_kind_named(x->policy);
        const policy_properties is =
            kind < POLICY_KIND_COUNT ? *policy_properties_of(kind) : (policy_properties){0};
        o->lines[k] = (answer_line){
            .title = arena_text(&n->in->arena, "%s%s",
                                answer_is_full(x) ? "full cache" : title_of(n, x, one_table),
                                answer_is_full(x) ? "" : setting_words(n, x, like)),
            .aware = is.query_aware,
            .besides = is.cost ? is.cost : "",
            .full = answer_is_full(x),
            .table = strcmp(x->policy, policy_kind_name(POLICY_TABLE)) == 0,
            .budget = x->budget,
            .tasks = json_array(),
            .lengths = json_array()};
    }
    for (size_t k = 0; k < o->n_lines; k++) { /* the first table at each budget */
        size_t best = SIZE_MAX, least = SIZE_MAX;
        for (size_t i = 0; i < o->n_lines; i++) {
            const answer_line *line = &o->lines[i];
            size_t place = 0;
            while (place < n->in->n_tables &&
                   strcmp(line->title, n->in->tables[place].title) != 0) {
                place++;
            }
            if (place == n->in->n_tables) { place += rows[first[i]]->line; }
            if (line->table && line->budget == o->lines[k].budget && place < least) {
                best = i;
                least = place;
            }
        }
        o->lines[k].base = best == k;
    }
}

/* Orders lines: the full cache first; then, budget by budget, tables, with the one first that
 * others are held against; then what scores most. */
static int by_rank(const void *pa, const void *pb) {
    const answer_line *a = pa, *b = pb;
    int c = b->full - a->full;
    c = c ? c : (a->budget >= 1) - (b->budget >= 1);
    c = c ? c : (a->budget < b->budget) - (a->budget > b->budget);
    c = c ? c : b->base - a->base;
    c = c ? c : b->table - a->table;
    c = c ? c : (a->macro.mean < b->macro.mean) - (a->macro.mean > b->macro.mean);
    return c ? c : strcmp(a->title, b->title);
}

static json_t *task_json(const answer_task *t) {
    return OBJECT(OF(t, task), OF(t, group), OF(t, metric), OF(t, n), ENDS(t->full, "full"),
                  OF(t, control), OF(t, counted), OF(t, binary));
}

static json_t *line_json(const answer_line *o) {
    return OBJECT(
        OF(o, budget), {"policy", J(o->title)}, {"items", J(o->n)}, OF(o, share), OF(o, bytes),
        {"entries_over_table", J(o->entries_ratio)}, ENDS(o->macro, "score"),
        ENDS(o->tail, "task_p10"), ENDS(o->against, "against_table"),
        ENDS(o->tail_against, "task_p10_against_table"), OF(o, decided), OF(o, frontier),
        {"query_aware", J(o->aware)}, {"costs_besides", J(o->besides)}, OF(o, full), OF(o, table),
        OF(o, base), {"tasks", o->tasks}, {"lengths", o->lengths}, {"needle", o->needle});
}

static json_t *bench_of(report_numbers *n, const answer_row *const *rows, size_t n_rows) {
    size_t *first = NEW(n, n_rows + 1, size_t);
    answer_bench o = {0};
    for (size_t i = 0; i < n_rows; i++) {
        if (i == 0 || answer_compare_series(rows[i - 1], rows[i]) != 0) { first[o.n_lines++] = i; }
    }
    first[o.n_lines] = n_rows;
    o.lines = NEW(n, o.n_lines, answer_line);
    make_answer_lines(n, &o, rows, first);
    worker w = {n, &o, NULL, NULL, NULL};
    take_items(&w, rows, first);
    w.keep = NEW(n, o.n_items + 1, bool);
    w.task = NEW(n, o.n_items + 1, size_t);
    group_by_task(&w);
    each_task(&w);
    all_tasks(&w);
    each_length(&w);
    json_t *tasks = json_array(), *lines = json_array(),
           *bench =
               OBJECT({"model", J(rows[0]->model)}, {"query", J(answer_queries[rows[0]->query])},
                      {"n_items", J(o.n_items)}, {"n_lacking", J(o.n_lacking)},
                      {"n_counted", J(o.n_counted)}, {"tasks", tasks}, {"lines", lines});
    needles(&w, bench);
    qsort(o.lines, o.n_lines, sizeof *o.lines, by_rank);
    for (size_t t = 0; t < o.n_tasks; t++) { json_array_append_new(tasks, task_json(&o.tasks[t])); }
    for (size_t k = 0; k < o.n_lines; k++) { json_array_append_new(lines, line_json(&o.lines[k])); }
    return bench;
}

void answer_numbers_make(report_numbers *n) {
    const answer_files *f = &n->in->answers;
    json_t *list = json_array();
    for (size_t i = 0, from = 0; i < f->n_rows; i++) {
        const bool last = i + 1 == f->n_rows;
        if (!last && answer_compare_benches(f->rows[i], f->rows[i + 1]) == 0) { continue; }
        json_array_append_new(list, bench_of(n, f->rows + from, i + 1 - from));
        from = i + 1;
    }
    json_object_set_new(n->json, "answers", list);
}
