/* What stands first: deploy each table or not, why, what it saves, and one picture of what every
 * policy loses. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/json.h"
#include "report/sections/sections.h"

/* ---- columns ---- */

/* What a condition was judged by; null: nothing there is. */
static json_t *need_json(const verdict_need *need) {
    const comparison *by = need->by;
    if (!by) { return json_null(); }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:s?, s:o}", "against", by->base.title,
                     "policy", by->base.policy, "difference", ckvc_json_real(by->all.d.mean), "lo",
                     ckvc_json_real(by->all.d.lo), "hi", ckvc_json_real(by->all.d.hi), "prompts",
                     (json_int_t)by->all.n, "documents", (json_int_t)by->all.n_documents,
                     "equal_in", difference_equal_in(&by->all), "needed",
                     ckvc_json_real(need->prompts));
}
MAKE(gain_json, verdict_at, need_json(&o->gain))
MAKE(reference_json, verdict_at, need_json(&o->reference))
TABLE(loss_columns, interval, MEMBERS(mean, lo, hi));
TABLE(cache_columns, cache_numbers,
      MEMBERS(tokens, layers, kv_heads, head_dim, entries, all_entries, bytes, all_bytes,
              saved_bytes));
MAKE(title_of, verdict_at, json_string(o->of->title))
TABLE(at_columns, verdict_at, JSON_AS(of, "title", .make = title_of),
      MEMBERS(budget, word, prompts, needed), JSON_AS(gain, "gain", .make = gain_json),
      JSON_AS(reference, "reference", .make = reference_json), OBJECT(loss, loss_columns),
      OBJECT(cache, cache_columns));
SHARED_TABLE(verdict_columns, verdict_numbers, MEMBERS(word, needed, leak_passed, held_out),
             OBJECTS(budgets, n_budgets, at_columns));

/* ---- banners ---- */

static const char *word_of(const char *word, double needed) {
    return needed > 0 ? say("needs about %.0f more prompts", needed) : word;
}

/* "0.484 better (0.353 to 0.615)" */
static const char *judged(const difference *of) {
    const interval *d = &of->d;
    if (d->lo > 0) {
        return say("%s better (%s to %s)", say_fixed(d->mean, 3), say_fixed(d->lo, 3),
                   say_fixed(d->hi, 3));
    }
    if (d->hi < 0) {
        return say("%s worse (%s to %s)", say_fixed(-d->mean, 3), say_fixed(-d->hi, 3),
                   say_fixed(-d->lo, 3));
    }
    return say("%s%s", SAY_INTERVAL(*d, 3), d->lo < d->hi ? ", which decides nothing" : "");
}

static const char *against_identity(const verdict_need *need) {
    return !need->by ? "It was not scored beside identity (no table)."
           : !need->by->all.equal_tokens
               ? "It was not scored beside identity at as many entries: add matched to --policy."
               : say("Against %s (no table) %s.", need->by->base.policy, judged(&need->by->all));
}

static const char *against_reference(const verdict_need *need) {
    if (!need->by) {
        return ". No simple reference was scored at as many entries: `ckvc score --policy "
               "snapkv,adakv`, with --equal-tokens where the table keeps fewer than it may.";
    }
    const difference *of = &need->by->all;
    return say(" where %s, the best simple reference at as many entries %s, loses %s: %s.",
               need->by->base.policy, difference_equal_in(of), say_fixed(-of->reward_base, 3),
               judged(of));
}

/* Whether a budget is one to deploy at, and why. */
static const char *reason_of(const verdict_at *x) {
    const double b = x->budget;
    const comparison *by = x->reference.by ? x->reference.by : x->gain.by;
    const size_t documents = by ? by->all.n_documents : 0;
    return say("at %s it loses %s nats per token over the full cache%s %s %.0f prompts%s.",
               b < 1 ? say("%.4g%% of the cache", 100 * b) : say("%g entries a head", b),
               say_fixed(x->loss.mean, 3), against_reference(&x->reference),
               against_identity(&x->gain), x->prompts,
               documents && documents < by->all.n
                   ? say(" of %zu document%s", documents, documents > 1 ? "s" : "")
                   : "");
}

static const char *say_bytes(double bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    int unit = 0;
    for (; unit < 3 && bytes >= 1000; unit++) { bytes /= 1024; }
    return say("%.*f %s", unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2, bytes, units[unit]);
}

static const char *saved_by(const cache_numbers *c) {
    return !isfinite(c->saved_bytes)
               ? "How many bytes that saves is not known: these score lines do not say head_dim."
               : say("A request of %.0f tokens keeps %s of %s of cache: %s saved.", c->tokens,
                     say_bytes(c->bytes), say_bytes(c->all_bytes), say_bytes(c->saved_bytes));
}

/* What no score can outweigh; "": nothing. */
static const char *objection_to(const report_numbers *n, const table_numbers *t) {
    const verdict_numbers *o = &t->verdict;
    const score_files *f = &n->in->scores;
    const char *text = "";
    if (o->n_budgets == 0) {
        text = f->n_files ? "The scores hold no line of it."
                          : "No scores were given: name the run of compile that made it, or "
                            "make them by `ckvc score --table T.ckvt --policy "
                            "identity,matched,snapkv,adakv` on held-out prompts.";
    } else if (!o->held_out) {
        text = f->used_seen ? "It was scored on prompts that tables were fitted from: the "
                              "differences are too favourable."
                            : "Whether it was scored on prompts that it was fitted from is not "
                              "known: they are not marked as held out, and no run was given.";
    }
    return o->leak_passed ? text : say_more(text, " ", "%s", leak_sentence(&t->leaks));
}

static void banner(const report_numbers *n, view *v, const table_numbers *t) {
    const verdict_numbers *o = &t->verdict;
    ckvc_buffer *b = page(v);
    const char *objection = objection_to(n, t), *word = word_of(o->word, o->needed);
    ckvc_buffer_printf(b, "<article class=\"banner %s\">\n",
                       o->needed == 0  ? "yes"
                       : o->needed > 0 ? "more"
                       : o->n_budgets  ? "no"
                                       : "");
    html_element(b, "p", "word", "%s", word);
    html_heading(b, 3, t->title);
    if (*objection) {
        page_text(v, "%s", objection);
        finding_aside(v, word, say("%s: %s", t->title, objection));
    }
    EACH(verdict_at, x, o->budgets, o->n_budgets) {
        const char *reason = reason_of(x);
        finding_aside(v, word_of(x->word, x->needed), say("%s: %s", t->title, reason));
        page_text(v, "A%s", reason + 1);
        page_note(v, "%s", saved_by(&x->cache));
    }
    if (o->leak_passed) { page_note(v, "%s", leak_sentence(&t->leaks)); }
    ckvc_buffer_text(b, "</article>\n");
}

/* ---- the picture ---- */

typedef struct loss_row {
    const char *label, *budget;
    interval loss;
    double kept;
    size_t n;
    int series;
} loss_row;
TABLE(loss_row_columns, loss_row, CSV_AS(budget, "budget"), CSV_AS(label, "policy"),
      CSV_AS(n, "prompts"), CSV_AS(kept, "entries_per_head"),
      CSV_AS(loss.mean, "loss_over_full_cache_nats_per_token"), CSV_AS(loss.lo, "lo"),
      CSV_AS(loss.hi, "hi"));

static int by_loss(const void *pa, const void *pb) {
    const loss_row *a = pa, *b = pb;
    return (a->loss.mean > b->loss.mean) - (a->loss.mean < b->loss.mean);
}

static const table_numbers *table_of(const report_numbers *n, const score_series *s) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (strcmp(t->f.content_id, s->table) == 0) { return t; }
    }
    return NULL;
}

int series_of_table(const report_numbers *n, const score_series *s) {
    const table_numbers *t = s->kind == SCORE_TABLE ? table_of(n, s) : NULL;
    return t ? view_series((size_t)(t - n->tables)) : VIEW_REFERENCE;
}

static bool is_shown(const score_series *s) {
    return s->kind == SCORE_TABLE || s->kind == SCORE_IDENTITY || score_is_reference(s->kind);
}

/* A reference goes by its policy alone, unless it takes more than a prefill to have it. */
static const char *label_of(const report_numbers *n, const score_series *s) {
    const table_numbers *t = table_of(n, s);
    if (s->kind == SCORE_TABLE) { return t ? t->title : s->title; }
    return score_needs_table(s->kind) && t ? room_text(&n->in->room, "%s, by %s", s->policy, t->tag)
           : s->kind == SCORE_KVZIP        ? "kvzip, reads twice"
                                           : s->policy;
}

static loss_row row_of(const report_numbers *n, const score_series *s) {
    loss_row o = {.label = label_of(n, s),
                  .loss = series_loss(s),
                  .n = s->n,
                  .series = series_of_table(n, s)};
    for (size_t i = 0; i < s->n; i++) { o.kept += score_row_kept(s->rows[i]) / (double)s->n; }
    return o;
}

/* One row for each table and reference, the one that loses least, by loss. */
static size_t rows_like(const report_numbers *n, const score_series *like, loss_row *rows) {
    const table_numbers *table = NULL;
    size_t k = 0, heads = 0;
    EACH(score_series, s, n->scores.series, n->scores.n_series) {
        if (!is_shown(s) || !series_of_one_setting(s, like)) { continue; }
        const loss_row row = row_of(n, s);
        size_t at = k;
        for (size_t i = 0; i < k; i++) { at = strcmp(rows[i].label, row.label) == 0 ? i : at; }
        if (!isfinite(row.loss.mean) || (at < k && rows[at].loss.mean <= row.loss.mean)) {
            continue;
        }
        rows[at] = row;
        k += at == k;
        table = table ? table : table_of(n, s);
    }
    const char *model =
        json_string_value(table ? json_object_get(table->f.meta, "model_name") : NULL);
    const char *budget = room_text(&n->in->room, "%s%s%s", say_budget(like->budget),
                                   model ? ", " : "", model ? model : "");
    for (; heads < k; heads++) { rows[heads].budget = budget; }
    qsort(rows, k, sizeof *rows, by_loss);
    return k;
}

/* What every policy loses against what it keeps, budget by budget. */
static void draw_losses(const report_numbers *n, view *v) {
    const score_numbers *s = &n->scores;
    loss_row *rows = NEW(n, s->n_series + 1, loss_row);
    size_t k = 0;
    EACH(score_series, x, s->series, s->n_series) {
        bool first = is_shown(x);
        for (const score_series *y = s->series; y < x; y++) {
            first &= !(is_shown(y) && series_of_one_setting(x, y));
        }
        if (first) { k += rows_like(n, x, rows + k); }
    }
    if (k == 0) { return; }
    chart_interval_row *list = NEW(n, k, chart_interval_row);
    for (size_t i = 0; i < k; i++) {
        const loss_row *x = &rows[i];
        list[i] = (chart_interval_row){
            .heading = i == 0 || x->budget != x[-1].budget ? x->budget : NULL,
            .label = x->label,
            .remark = room_text(&n->in->room, "%s · %s", say_fixed(x->loss.mean, 3),
                                say_fixed(x->kept, 1)),
            .mean = x->loss.mean,
            .lo = x->loss.lo,
            .hi = x->loss.hi,
            .limit = NAN,
            .series = x->series};
    }
    figure_table(v, loss_row_columns, rows, k);
    figure_intervals(v, .title = "What is lost over the full cache, and what is kept",
                     .x_label = "loss over the full cache, nats per token",
                     .reference_label = "full cache", .remark_label = "loss · entries", .n = k,
                     .rows = list);
    figure_end_as(
        v, "wide", "verdict",
        "Left is better; sorted by loss. Bars are 95% t intervals of the mean over the "
        "prompts; differences, paired by prompt, are decided more sharply than bars that "
        "overlap. Entries: kept by a KV head, mean. Colours are tables, grey is what "
        "they are held against; what was scored under several settings is shown under its best.");
}

void verdict_section(const report_numbers *n, view *v) {
    ckvc_buffer_text(&v->html, "<div class=\"banners\">\n");
    EACH(table_numbers, t, n->tables, n->n_tables) { banner(n, v, t); }
    ckvc_buffer_text(&v->html, "</div>\n");
    if (n->n_tables) {
        page_note(v,
                  "Bytes: keys and values as %d-bit numbers, all layers and KV heads. What a "
                  "verdict asks for: better than identity (matched, where that was scored) and not "
                  "worse than the best simple reference at as many entries, both decided, and a "
                  "leak check passed.",
                  8 * CACHE_BYTES);
    }
    if (n->n_tables == 0) {
        finding(v, "no verdict", "No table was given: name the .ckvt files that are to be judged.");
    }
    draw_losses(n, v);
}
