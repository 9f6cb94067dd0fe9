/* Comparisons of policies: their columns, where a table's gain is, what is compared with what, the
 * pictures of who does best. */
#include <math.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "report/sections/sections.h"

/* ---- columns ---- */

SAY(verdict_of, difference,
    say("%s%s", difference_judged(o), o->equal_tokens ? "" : "; tokens differ"))
/* "−0.0010 to +0.0104"; nothing without replicates. */
SAY(bootstrap_of, difference,
    o->has_bootstrap
        ? say("%s to %s", say_signed(o->bootstrap.lo, 4), say_signed(o->bootstrap.hi, 4))
        : "")
SAY(part_of, difference,
    o->has_lengths ? say("T from %u to %u", o->T_lo, o->T_hi) : difference_part(o))

#define DIFFERENCE PAGE(d, "difference, nats/token (95% interval)", INTERVAL(4))
#define VERDICT    PAGE(d, "verdict", .say = verdict_of, .align = "nn")
#define KEPT       PAGE(kept, "kept/layer", FIXED(1)), PAGE(kept_base, "base keeps", FIXED(1))
#define LENGTHS(m) JSON_AS(m, #m, WHEN(has_lengths), .omit = true)

MAKE(equal_in_of, difference, json_pack("s?", difference_equal_in(o)))

TABLE(bootstrap_columns, bootstrap_ends, MEMBERS(lo, hi, replicates));
TABLE(difference_columns, difference,
      MEMBERS(source, undefined, standard_error, largest_share, kept_ratio, equal_tokens),
      JSON_AS(equal_tokens, "equal_in", .make = equal_in_of), JSON(kind, .omit = true),
      LENGTHS(T_lo), LENGTHS(T_hi), BOTH(n, "prompts"),
      JSON_AS(d.mean, "difference", .csv = "difference_nats_per_token"),
      JSON_AS(d.lo, "lo", .csv = "lo"), JSON_AS(d.hi, "hi", .csv = "hi"),
      JSON(bootstrap, OF(bootstrap_columns), WHEN(has_bootstrap), .omit = true),
      BOTH(reward, "reward"), BOTH(reward_base, "reward_base"), BOTH(kept, "kept_per_layer"),
      BOTH(kept_base, "kept_per_layer_base"), BOTH(median, "median_difference"));

/* Of a table of the page: all prompts, and parts of them. */
TABLE(all_columns, difference, PAGE(n, "n"), DIFFERENCE,
      PAGE(bootstrap, "bootstrap", .say = bootstrap_of), PAGE(median, "median prompt", SIGNED(4)),
      VERDICT, KEPT);
TABLE(part_columns, difference, PAGE(source, "prompts", .say = part_of), PAGE(n, "n"), DIFFERENCE,
      VERDICT, KEPT);

/* What a row stands against, in a group that names the table. */
static const char *base_of(const void *row) {
    const comparison *c = row;
    const score_series *b = &c->base;
    if (b->kind == SCORE_TABLE || strcmp(b->policy, c->of.policy) == 0) {
        return b->title; /* the latter: under another score */
    }
    const char *taus = "";
    for (size_t i = 0; i < b->n_taus; i++) { taus = say_more(taus, ", ", "%.4g", b->taus[i]); }
    return *taus ? say("%s (τ %s)", b->policy, taus) : b->policy;
}

TABLE(overall_columns, comparison, PAGE(base, "against", .say = base_of, .align = "ll"),
      MERGE(all, all_columns));

MAKE(table_of, score_series, *o->table ? json_string(o->table) : json_null())
MAKE(by_layer_of, score_series, json_boolean(o->layer_budgets != 0))
static void fill_setting(json_t *o, const void *row) {
    setting_write_all(o, SETTING_LINE, &((const score_series *)row)->setting, SETTING_SCORE);
}

TABLE(series_columns, score_series, MEMBERS(title, model, policy, budget),
      JSON(table, .make = table_of), JSON_AS(continuation, "C"), JSON(taus, BY(n_taus)),
      JSON_AS(layer_budgets, "by_layer", .make = by_layer_of), {.fill = fill_setting});
TABLE(base_columns, score_series, JSON_AS(title, "base"), JSON_AS(policy, "base_policy"),
      JSON_AS(table, "base_table", .make = table_of), JSON_AS(taus, "base_taus", BY(n_taus)));
TABLE(comparison_columns, comparison, MERGE(of, series_columns), MERGE(base, base_columns),
      MEMBERS(one_score), OBJECT(all, difference_columns),
      OBJECTS(kinds, n_kinds, difference_columns), OBJECTS(sources, n_sources, difference_columns),
      OBJECTS(lengths, n_lengths, difference_columns));

static json_t *files_of(const void *row) {
    const score_files *f = ((const score_numbers *)row)->files;
    json_t *list = json_array();
    for (size_t i = 0; i < f->n_files; i++) {
        CKVC_AUTO_FREE char *name = ckvc_path_name(f->files[i]->path);
        const json_int_t rows = (json_int_t)f->files[i]->n;
        json_array_append_new(list, json_pack("{s:s, s:I}", "file", name, "rows", rows));
    }
    return list;
}
TABLE(file_columns, score_files, JSON_AS(dropped_seen, "prompts_used_in_calibration_left_out"),
      JSON_AS(dropped_split, "rows_of_other_splits_left_out"),
      JSON_AS(dropped_twice, "rows_in_several_files"), JSON_AS(n_rows, "rows"),
      JSON_AS(used_seen, "rows_used_in_calibration"));
#define LIST_OF(name, i) JSON_AS(lists[i].of, name, OF(comparison_columns), BY(lists[i].n))
SHARED_TABLE(score_columns, score_numbers, MERGE(files, file_columns), MEMBERS(held_out_checked),
             JSON(files, .make = files_of), OBJECTS(series, n_series, series_columns),
             LIST_OF("against_identity", AGAINST_IDENTITY),
             LIST_OF("against_matched", AGAINST_MATCHED), LIST_OF("between_tables", BETWEEN_TABLES),
             LIST_OF("at_equal_tokens", AT_EQUAL_TOKENS),
             LIST_OF("at_other_tokens", AT_OTHER_TOKENS),
             LIST_OF("against_controls", AGAINST_CONTROLS),
             LIST_OF("between_scores", BETWEEN_SCORES));

bool comparison_among(const comparison_list *list, size_t n, const score_series *s,
                      bool (*alike)(const score_series *a, const score_series *b)) {
    EACH(comparison, c, list->of, n) {
        if (alike(&c->of, s)) { return true; }
    }
    return false;
}

/* ---- where the gain is: a column a table, a row a part of the prompts ---- */

/* "better +0.0868 (+0.0258 to +0.1994), n 10, 2.1% more tokens"; no word where nothing is decided.
 */
static const char *where_of(const difference *of, bool decided) {
    return say("%s%s%s, n %zu%s%s", decided ? difference_judged(of) : "", decided ? " " : "",
               SAY_INTERVAL(of->d, 4), of->n, of->equal_tokens ? "" : ", ",
               of->equal_tokens ? "" : say_more_tokens(of->kept_ratio));
}

/* The comparisons that say what each table brings, at equal tokens where they can. */
typedef struct gains {
    const comparison **of;
    size_t n, parts;
} gains;

static gains gains_of(const report_numbers *n) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    gains g = {.of = NEW(n, list->n, const comparison *)};
    EACH(comparison, c, list->of, list->n) {
        if (c->of.kind != SCORE_TABLE) { continue; }
        g.of[g.n] = comparison_gain(&n->scores, c);
        g.parts += g.of[g.n]->n_sources + g.of[g.n]->n_kinds;
        g.n++;
    }
    return g;
}

/* The part of a comparison that is of the same kind or source; NULL: there is none. */
static const difference *part_like(const comparison *c, const difference *like) {
    EACH(difference, d, c->kinds, c->n_kinds + c->n_sources) {
        if (!d->kind == !like->kind && strcmp(difference_part(d), difference_part(like)) == 0) {
            return d;
        }
    }
    return NULL;
}

/* What each table gains on all prompts, or on such a part of them. */
static void where_row(ckvc_buffer *b, const gains *g, const difference *part) {
    html_row_begin(b);
    html_cell(b, 'n', "%s", part ? difference_part(part) : "all");
    for (size_t i = 0; i < g->n; i++) {
        const difference *of = part ? part_like(g->of[i], part) : &g->of[i]->all;
        const bool decided = of && (part ? difference_part_decided(of) : difference_decided(of));
        html_cell(b, 'r', "%s", of ? where_of(of, decided) : "");
    }
    html_row_end(b);
}

/* A row for each kind, or each source, in the order of the first table that has it. */
static void where_rows(ckvc_buffer *b, const gains *g, bool kinds) {
    for (size_t i = 0; i < g->n; i++) {
        EACH(difference, part, g->of[i]->kinds, g->of[i]->n_kinds + g->of[i]->n_sources) {
            bool said = kinds != (part->kind != NULL);
            for (size_t e = 0; e < i; e++) { said |= part_like(g->of[e], part) != NULL; }
            if (!said) { where_row(b, g, part); }
        }
    }
}

static void where_table(const report_numbers *n, view *v) {
    const gains g = gains_of(n);
    ckvc_buffer *b = page(v);
    if (g.parts == 0) { return; }
    html_table_begin(b, "Where the gain is, at equal tokens kept where there is a matched control: "
                        "nats/token (95% interval)");
    html_head(b, 0, "prompts");
    for (size_t i = 0; i < g.n; i++) {
        html_head(b, 'r', "%s, %s%s", g.of[i]->of.title, say_budget(g.of[i]->of.budget),
                  g.of[i]->base.kind == SCORE_MATCHED ? "" : ", against plain identity");
    }
    html_table_body(b);
    where_row(b, &g, NULL);
    html_row_begin(b);
    html_cell(b, 'n', "median prompt");
    for (size_t i = 0; i < g.n; i++) {
        html_cell(b, 'r', "%s", say_signed(g.of[i]->all.median, 4));
    }
    html_row_end(b);
    where_rows(b, &g, true);
    where_rows(b, &g, false);
    page_table_end(v);
    page_note(
        v,
        "A part is called better or worse from %d prompts on. Intervals of parts are not corrected "
        "for the number of parts: of twenty without a difference, one is expected to look decided.",
        PART_MIN);
}

/* ---- figures ---- */

static chart_interval_row interval_row(const report_numbers *n, const difference *of,
                                       const char *heading, const char *label, int series) {
    return (chart_interval_row){
        .heading = heading,
        .label = label,
        .remark = room_text(&n->in->room, "%s · kept %s%s base %s · n %zu",
                            say_signed(of->d.mean, 4), say_fixed(of->kept, 1),
                            of->equal_tokens ? "," : " ≠", say_fixed(of->kept_base, 1), of->n),
        .mean = of->d.mean,
        .lo = of->d.lo,
        .hi = of->d.hi,
        .series = series,
        .limit = NAN};
}

/* "policy,base,source,prompts,difference,..." of one comparison: all, then its parts. */
static void reward_csv(ckvc_buffer *csv, const comparison *c) {
    for (size_t i = 0; i < 1 + c->n_kinds + c->n_sources; i++) {
        const difference *of = i == 0 ? &c->all : &c->kinds[i - 1];
        csv_text(csv, c->of.title);
        csv_text(csv, c->base.title);
        csv_text(csv, i == 0 ? "all" : of->kind ? difference_part(of) : of->source);
        csv_row(csv, difference_columns, of);
    }
}

/* A table's rows: against plain identity, and, where it has a matched control, at equal tokens; its
 * parts by the latter then. Returns how many. */
static size_t table_rows(const report_numbers *n, chart_interval_row *rows, const comparison *c,
                         const comparison *gain, int series) {
    size_t k = 0;
    rows[k++] = interval_row(n, &c->all, c->of.title,
                             gain != c ? "all, against plain identity" : "all prompts", series);
    if (gain != c) {
        rows[k++] = interval_row(
            n, &gain->all, NULL,
            gain->all.equal_tokens ? "all, at equal tokens" : "all, against matched", series);
    }
    EACH(difference, of, gain->kinds, gain->n_kinds + gain->n_sources) {
        rows[k++] = interval_row(n, of, NULL, difference_part(of), series);
    }
    return k;
}

static void draw_reward(const report_numbers *n, view *v, const score_series *like, size_t number) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    size_t k = 0, most = 0;
    int series = 0;
    EACH(comparison, c, list->of, list->n) {
        const comparison *gain = comparison_gain(&n->scores, c);
        most += 2 + gain->n_kinds + gain->n_sources;
    }
    chart_interval_row *rows = NEW(n, most, chart_interval_row);
    figure_begin(v, NULL);
    ckvc_buffer_text(&v->csv, "policy,base,source,");
    csv_names(&v->csv, difference_columns);
    EACH(comparison, c, list->of, list->n) {
        const comparison *gain = comparison_gain(&n->scores, c);
        if (!series_of_one_setting(&c->of, like)) { continue; }
        reward_csv(&v->csv, c);
        if (c->of.kind == SCORE_TABLE) {
            k += table_rows(n, &rows[k], c, gain, series);
            if (gain != c) { reward_csv(&v->csv, gain); }
        } else if (!score_is_control(c->of.kind)) { /* their parts: in the tables below */
            rows[k++] = interval_row(n, &c->all, c->of.title, "all prompts", series);
        }
        /* Controls answer what a part of a table is worth: in tables and numbers, not in the
         * pictures of who does best. */
        series += !score_is_control(c->of.kind);
    }
    figure_intervals(v,
                     .title = say("Reward on held-out prompts against identity, budget %s",
                                  say_budget(like->budget)),
                     .x_label = "difference of mean reward, nats per token (right is better)",
                     .undefined = SAY_UNDEFINED, .below = "worse than identity",
                     .above = "better than identity", .n = k, .rows = rows);
    figure_end(v, say("reward-%zu", number),
               "Paired by prompt; bars are 95% t intervals of the mean difference, the table held "
               "fixed. Each row says how many tokens per layer were kept, and by its base: a gain "
               "counts only where these are equal (≠: not within 2%). Parts of a table's prompts "
               "are against identity at the threshold that keeps as many (matched) where that was "
               "scored, else against plain identity.");
}

static void draw_reward_kept(const report_numbers *n, view *v, const score_series *like,
                             size_t number) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    chart_point *points = NEW(n, list->n + 1, chart_point);
    const char **names = NEW(n, list->n + 1, const char *);
    size_t k = 0;
    figure_begin(v, "policy,kept_per_layer,difference_nats_per_token,lo,hi");
    EACH(comparison, c, list->of, list->n) {
        const difference *of = &c->all;
        if (!series_of_one_setting(&c->of, like)) { continue; }
        if (k == 0) {
            names[k] = "identity";
            points[k++] = (chart_point){of->kept_base, 0, NAN, NAN, .tip = "identity"};
        }
        if (score_is_control(c->of.kind)) { continue; }
        names[k] = c->of.title;
        points[k] = (chart_point){of->kept, of->d.mean, of->d.lo, of->d.hi, 0, (int)k, names[k]};
        k++;
        csv_text(&v->csv, c->of.title);
        figure_line(v, of->kept, of->d.mean, of->d.lo, of->d.hi);
    }
    figure_scatter(
        v,
        .text = {say("What is gained and what it costs, budget %s", say_budget(like->budget)),
                 "tokens kept per layer, mean over prompts", "reward against identity, nats/token"},
        .n = k, .n_series = k, .points = points, .series = names, .zero_line = true);
    figure_end(v, say("reward-kept-%zu", number),
               "Up is better, left is cheaper. A policy to the upper right of identity may have "
               "bought its reward with tokens.");
}

static void draw_scores(const report_numbers *n, view *v) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    size_t number = 0;
    EACH(comparison, c, list->of, list->n) {
        if (comparison_among(list, (size_t)(c - list->of), &c->of, series_of_one_setting)) {
            continue;
        }
        draw_reward(n, v, &c->of, ++number);
        draw_reward_kept(n, v, &c->of, number);
    }
}

/* ---- tables ---- */

static void overall_table(view *v, const comparison_list *list, const char *caption) {
    if (list->n == 0) { return; }
    page_table_begin(v, caption, overall_columns);
    EACH(comparison, c, list->of, list->n) {
        if (c == list->of || !series_alike(&c->of, &c[-1].of)) {
            page_group(v, overall_columns, "%s, budget %s", c->of.title, say_budget(c->of.budget));
        }
        page_row(v, overall_columns, c);
    }
    page_table_end(v);
}

static size_t parts_of(const comparison *c) { return c->n_kinds + c->n_sources + c->n_lengths; }

static size_t parts_in(const comparison_list *list) {
    size_t parts = 0;
    EACH(comparison, c, list->of, list->n) { parts += parts_of(c); }
    return parts;
}

static void parts_table(view *v, const comparison_list *list, const char *caption) {
    if (parts_in(list) == 0) { return; }
    page_table_begin(v, caption, part_columns);
    EACH(comparison, c, list->of, list->n) {
        if (parts_of(c) == 0) { continue; }
        page_group(v, part_columns, "%s against %s, budget %s", c->of.title, c->base.title,
                   say_budget(c->of.budget));
        page_rows(v, part_columns, c->kinds, parts_of(c));
    }
    page_table_end(v);
}

/* The one comparison of a series in a list; *any: the last of them, unless it is another's. */
static const char *only_text(const comparison_list *list, const score_series *s,
                             const difference **any) {
    const difference *found = NULL;
    size_t n = 0;
    EACH(comparison, c, list->of, list->n) {
        if (!series_alike(&c->of, s)) { continue; }
        found = &c->all;
        n++;
    }
    *any = *any ? *any : found;
    return !found ? "" : n > 1 ? "several, below" : SAY_INTERVAL(found->d, 4);
}

/* Every policy against identity and against the control that keeps as many tokens as a table. */
static void policies_table(const report_numbers *n, view *v) {
    const comparison_list *identity = &n->scores.lists[AGAINST_IDENTITY],
                          *matched = &n->scores.lists[AGAINST_MATCHED];
    if (identity->n + matched->n == 0) { return; }
    page_fold(v, "Every policy on the same prompts");
    page_heads(v, NULL, "lrrrrrr", "policy", "budget", "n", "kept/layer", "reward",
               "against identity (95% interval)", "against matched (95% interval)");
    EACH(score_series, of, n->scores.series, n->scores.n_series) {
        const difference *any = NULL;
        const char *by_identity = only_text(identity, of, &any),
                   *by_matched = only_text(matched, of, &any);
        if (!any) { continue; /* alone in its setting */ }
        html_row(page(v), "lrrrrrr", of->title, say_budget(of->budget), say("%zu", any->n),
                 say_fixed(any->kept, 1), say_fixed(any->reward, 4), by_identity, by_matched);
    }
    page_table_end(v);
    page_fold_end(v);
}

void comparison_tables(const report_numbers *n, view *v) {
    static const struct {
        const char *caption, *parts; /* of all prompts (NULL: not shown), and by parts */
    } tables[SCORE_LISTS] = {
        [AT_EQUAL_TOKENS] = {"At equal tokens kept: a table against its matched control, and "
                             "references that keep as many",
                             "At equal tokens kept"},
        [AT_OTHER_TOKENS] = {"Not at equal tokens: references that keep more or fewer (`score "
                             "--equal-tokens` gives them the table's)",
                             "Not at equal tokens"},
        [AGAINST_CONTROLS] = {"What each part is worth: a table against itself without it",
                              "Tables against their controls"},
        [BETWEEN_TABLES] = {"Tables against each other", "Tables against each other"},
        [BETWEEN_SCORES] = {"Which score: what needs no table under one against another",
                            "Which score"},
        [AGAINST_MATCHED] = {NULL, "Against matched controls"},
        [AGAINST_IDENTITY] = {NULL, "Against identity (every weight 1.0, every threshold 0.90)"},
    };
    size_t parts = 0;
    where_table(n, v);
    draw_scores(n, v);
    for (size_t k = 0; k < SCORE_LISTS; k++) {
        if (tables[k].caption) { overall_table(v, &n->scores.lists[k], tables[k].caption); }
        parts += parts_in(&n->scores.lists[k]);
    }
    policies_table(n, v);
    if (parts == 0) { return; }
    page_fold(v, "By source and by length of the prompt (thirds)");
    for (size_t k = 0; k < SCORE_LISTS; k++) {
        parts_table(v, &n->scores.lists[k], tables[k].parts);
    }
    page_fold_end(v);
}
