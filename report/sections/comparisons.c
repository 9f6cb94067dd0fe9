/* Comparisons of policies: their columns, and what is compared with what. */

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
#define DIFFERENCE PAGE(d, "difference, nats/token (95% interval)", INTERVAL(4))
#define VERDICT    PAGE(d, "verdict", .say = verdict_of, .align = "nn")
#define KEPT       PAGE(kept, "kept/layer", FIXED(1)), PAGE(kept_base, "base keeps", FIXED(1))
#define LENGTHS(m) JSON_AS(m, #m, WHEN(has_lengths), .omit = true)

MAKE(equal_in_of, difference, json_pack("s?", difference_equal_in(o)))

TABLE(bootstrap_columns, bootstrap_ends, MEMBERS(lo, hi, replicates));
TABLE(difference_columns, difference,
      MEMBERS(source, undefined, standard_error, largest_share, kept_ratio, equal_tokens),
      JSON_AS(equal_tokens, "equal_in", .make = equal_in_of), JSON(kind, .omit = true),
      LENGTHS(T_lo), LENGTHS(T_hi), JSON_AS(d.mean, "difference"), JSON_AS(d.lo, "lo"),
      JSON_AS(d.hi, "hi"),
      JSON(bootstrap, OF(bootstrap_columns), WHEN(has_bootstrap), .omit = true),
      MEMBERS(n, n_documents, reward, reward_base, kept, kept_base, median));

/* Of a table of the page. */
TABLE(all_columns, difference, PAGE(n, "n"), PAGE(n_documents, "documents"), DIFFERENCE,
      PAGE(bootstrap, "bootstrap", .say = bootstrap_of), PAGE(median, "median prompt", SIGNED(4)),
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
    return !found ? "" : n > 1 ? "several" : SAY_INTERVAL(found->d, 4);
}

/* Every policy against identity and against the control that keeps as many tokens as a table. */
static void policies_table(const report_numbers *n, view *v) {
    const comparison_list *identity = &n->scores.lists[AGAINST_IDENTITY],
                          *matched = &n->scores.lists[AGAINST_MATCHED];
    if (identity->n + matched->n == 0) { return; }
    page_heads(v, "Every policy on the same prompts", "lrrrrrr", "policy", "budget", "n",
               "kept/layer", "reward", "against identity (95% interval)",
               "against matched (95% interval)");
    EACH(score_series, of, n->scores.series, n->scores.n_series) {
        const difference *any = NULL;
        const char *by_identity = only_text(identity, of, &any),
                   *by_matched = only_text(matched, of, &any);
        if (!any) { continue; /* alone in its setting */ }
        html_row(page(v), "lrrrrrr", of->title, say_budget(of->budget), say("%zu", any->n),
                 say_fixed(any->kept, 1), say_fixed(any->reward, 4), by_identity, by_matched);
    }
    page_table_end(v);
}

void comparisons_section(const report_numbers *n, view *v) {
    static const char *const captions[SCORE_LISTS] = {
        [AT_EQUAL_TOKENS] = "At equal tokens kept: a table against its matched control, and "
                            "references that keep as many",
        [AT_OTHER_TOKENS] = "Not at equal tokens: references that keep more or fewer (`score "
                            "--equal-tokens` gives them the table's)",
        [AGAINST_CONTROLS] = "What each part is worth: a table against itself without it",
        [BETWEEN_TABLES] = "Tables against each other",
        [BETWEEN_SCORES] = "Which score: what needs no table under one against another"};
    const score_files *f = &n->in->scores;
    page_note(
        v,
        "Rows used: %zu. Left out: %zu of other splits, %zu of prompts that a run took "
        "records from. Reward is minus the rise of the continuation's mean loss through "
        "compression, in nats per token; 0 would be no loss at all. Differences are paired "
        "by prompt; the interval is Student's t at 95%% over these prompts, beside that of a "
        "bootstrap over them; both hold the table fixed: what calibrating again would change "
        "is not in it. \u201ctokens differ\u201d: by more than 2%%. Every comparison by kind, "
        "source and length of the prompts is in report.json.",
        f->n_rows, f->dropped_split, f->dropped_seen);
    for (size_t k = 0; k < SCORE_LISTS; k++) {
        if (captions[k]) { overall_table(v, &n->scores.lists[k], captions[k]); }
    }
    policies_table(n, v);
}
