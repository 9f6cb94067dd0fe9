/* What stands first: what tables bring on prompts that they were not fitted on, against identity,
 * where, against references. */
#include <math.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/sections/sections.h"

/* A single prompt is named when a decided mean owes it more than this of the sum, of so many
 * prompts at least. */
#define LARGE_SHARE 0.2
#define LARGE_OF    10

/* ---- columns ---- */

/* What a condition was judged by; null: nothing there is. */
static json_t *need_json(const verdict_need *need) {
    const comparison *by = need->by;
    if (!by) { return json_null(); }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:s?, s:o}", "against", by->base.title,
                     "policy", by->base.policy, "difference", ckvc_json_real(by->all.d.mean), "lo",
                     ckvc_json_real(by->all.d.lo), "hi", ckvc_json_real(by->all.d.hi), "prompts",
                     (json_int_t)by->all.n, "equal_in", difference_equal_in(&by->all), "needed",
                     ckvc_json_real(need->prompts));
}
MAKE(gain_json, verdict_at, need_json(&o->gain))
MAKE(reference_json, verdict_at, need_json(&o->reference))
TABLE(loss_columns, interval, MEMBERS(mean, lo, hi));
TABLE(cache_columns, cache_numbers,
      MEMBERS(tokens, entries, all_entries, bytes, all_bytes, saved_bytes));
MAKE(title_of, verdict_at, json_string(o->of->title))
TABLE(at_columns, verdict_at, JSON_AS(of, "title", .make = title_of),
      MEMBERS(budget, word, prompts, needed), JSON_AS(gain, "gain", .make = gain_json),
      JSON_AS(reference, "reference", .make = reference_json), OBJECT(loss, loss_columns),
      OBJECT(cache, cache_columns));
SHARED_TABLE(verdict_columns, verdict_numbers, MEMBERS(word, needed, leak_passed, held_out),
             OBJECTS(budgets, n_budgets, at_columns));

static const char *interval_of(const difference *of) { return SAY_INTERVAL(of->d, 4); }

/* "2.9% more tokens", between two texts; nothing where they are equal. */
static const char *tokens_of(const difference *of, const char *before, const char *after) {
    return of->equal_tokens ? "" : say("%s%s%s", before, say_more_tokens(of->kept_ratio), after);
}

/* ---- against identity ---- */

/* "identity at one threshold", "identity at the thresholds 0.875 and 0.895": each `score` finds its
 * own. */
static const char *name_matched(const score_series *s) {
    const char *text = s->n_taus > 1 ? "identity at the thresholds " : "identity at one threshold";
    for (size_t i = 0; s->n_taus > 1 && i < s->n_taus; i++) {
        const char *joint = i == 0 ? "" : i + 1 == s->n_taus ? " and " : ", ";
        text = say("%s%s%.4g", text, joint, s->taus[i]);
    }
    return text;
}

/* "; median prompt +0.0039, one prompt is 31% of the sum": a mean that few prompts make. */
static const char *name_spread(const difference *of) {
    const bool large =
        difference_decided(of) && of->n >= LARGE_OF && of->largest_share > LARGE_SHARE;
    return say("%s%s",
               isfinite(of->median) ? say("; median prompt %s", say_signed(of->median, 4)) : "",
               large ? say(", one prompt is %s of the sum", say_share(of->largest_share)) : "");
}

static void gain_finding(const report_numbers *n, const comparison *c, view *v) {
    const comparison *gain = comparison_gain(&n->scores, c);
    const difference *plain = &c->all, *of = &gain->all;
    const char *prompts = n->scores.held_out_checked ? "held-out prompts" : "prompts",
               *title = c->of.title, *budget = say_budget(c->of.budget),
               *kept = say_fixed(of->kept, 1), *kept_base = say_fixed(of->kept_base, 1);
    if (gain != c) {
        finding(v, say("%s%s", difference_judged(of), tokens_of(of, ", with ", " kept")),
                "%s, budget %s%s: %s nats per token against %s (%s and %s tokens per layer), %zu "
                "%s, 95%% interval%s. Against plain identity, which keeps %s: %s.",
                title, budget, of->equal_tokens ? ", at equal tokens kept" : "", interval_of(of),
                name_matched(&gain->base), kept, kept_base, of->n, prompts, name_spread(of),
                say_fixed(plain->kept_base, 1), interval_of(plain));
        return;
    }
    finding(v, of->equal_tokens ? difference_judged(of) : "not at equal tokens",
            "%s, budget %s: %s nats per token against identity, keeping %s tokens per layer where "
            "identity keeps %s, %zu %s, 95%% interval%s.%s",
            title, budget, interval_of(of), kept, kept_base, of->n, prompts, name_spread(of),
            of->equal_tokens ? "" : " Score the policy 'matched' too for a fair comparison.");
}

/* ---- where ---- */

/* "bible-kjv, tcl with 2.9% more tokens": the sources of one judgement, with their numbers where
 * nothing else has them; *n how many. */
static const char *name_sources(const comparison *c, const char *judgement, bool numbers,
                                size_t *n) {
    const char *text = "";
    *n = 0;
    EACH(difference, of, c->sources, c->n_sources) {
        if (!difference_part_decided(of) || strcmp(difference_judged(of), judgement) != 0) {
            continue;
        }
        text = say_more(text, ", ", "%s%s%s", difference_part(of),
                        numbers ? say(" %s of %zu prompts", interval_of(of), of->n) : "",
                        tokens_of(of, " with ", ""));
        ++*n;
    }
    return text;
}

/* "of single sources better on tcl; undecided on 7". */
static const char *describe_sources(const comparison *c, bool numbers) {
    size_t n, m;
    const char *better = name_sources(c, "better", numbers, &n),
               *worse = name_sources(c, "worse", numbers, &m);
    const size_t rest = c->n_sources - n - m;
    if (n + m == 0) { return say("none of %zu sources is decided alone", c->n_sources); }
    const char *text = n ? say("better on %s", better) : "";
    if (m) { text = say_more(text, "; ", "worse on %s", worse); }
    return say("of single sources %s%s", text, rest ? say("; undecided on %zu", rest) : "");
}

/* Where a table's gain is decided and where not: text against retrieval prompts, else by source.
 * For the summary alone: on the page the table right below the verdict says it. */
static void where_finding(const report_numbers *n, const comparison *c, view *v) {
    const comparison *gain = comparison_gain(&n->scores, c);
    const char *text = "";
    EACH(difference, of, gain->kinds, gain->n_kinds) {
        text = say_more(text, "; ", "%s on %s, %s, %s and %s tokens%s, n %zu",
                        difference_part_decided(of) ? difference_judged(of) : "undecided",
                        difference_part(of), interval_of(of), say_fixed(of->kept, 1),
                        say_fixed(of->kept_base, 1), tokens_of(of, " (", ")"), of->n);
    }
    if (gain->n_sources) {
        text = say_more(text, "; ", "%s", describe_sources(gain, gain->n_kinds == 0));
    }
    if (*text) {
        finding_aside(v, "where",
                      say("%s, budget %s%s: %s.", c->of.title, say_budget(c->of.budget),
                          gain == c ? ", against plain identity" : "", text));
    }
}

/* ---- against references ---- */

/* What one list says of a table against references. */
typedef struct against {
    const char *text;
    bool worse;
    size_t least, most; /* prompts */
} against;

static void gather_references(const comparison_list *list, const score_series *of_table, bool equal,
                              against *x) {
    EACH(comparison, c, list->of, list->n) {
        const difference *of = &c->all;
        if (!series_alike(&c->of, of_table) || c->base.kind == SCORE_MATCHED) { continue; }
        const char *judged = difference_judged(of), *name = c->base.policy;
        x->text = equal ? say_more(x->text, "; ", "%s %s %s, %s", judged,
                                   difference_decided(of) ? "than" : "from", name, interval_of(of))
                        : say_more(x->text, "; ", "%s %s with %s", name, interval_of(of),
                                   say_more_tokens(of->kept_ratio));
        x->worse |= equal && strcmp(judged, "worse") == 0;
        x->least = of->n < x->least ? of->n : x->least;
        x->most = of->n > x->most ? of->n : x->most;
    }
}

/* Policies without a table are part of the verdict: those that keep as many tokens, and, marked,
 * those that do not. One line a table. */
static void reference_finding(const report_numbers *n, const score_series *table, view *v) {
    against fair = {.text = "", .least = SIZE_MAX}, other = {.text = ""};
    gather_references(&n->scores.lists[AT_EQUAL_TOKENS], table, true, &fair);
    other.least = fair.least;
    other.most = fair.most;
    gather_references(&n->scores.lists[AT_OTHER_TOKENS], table, false, &other);
    if (!*fair.text && !*other.text) { return; }
    finding(v,
            fair.worse   ? "worse than a simple reference"
            : *fair.text ? NULL
                         : "not at equal tokens",
            "%s, budget %s, against simple references%s%s%s%s; %s prompts.%s", table->title,
            say_budget(table->budget), *fair.text ? " at as many tokens: " : "", fair.text,
            !*other.text ? ""
            : *fair.text ? "; not at equal tokens: "
                         : ": ",
            other.text,
            other.least < other.most ? say("%zu to %zu", other.least, other.most)
                                     : say("%zu", other.least),
            *other.text ? " `ckvc score --equal-tokens` gives references the table's tokens." : "");
}

/* Tables of the two lists, each once: the first comparison with it says so. */
static void reference_findings(const report_numbers *n, view *v) {
    const comparison_list *lists[2] = {&n->scores.lists[AT_EQUAL_TOKENS],
                                       &n->scores.lists[AT_OTHER_TOKENS]};
    for (int l = 0; l < 2; l++) {
        EACH(comparison, c, lists[l]->of, lists[l]->n) {
            const bool said =
                (l && comparison_among(lists[0], lists[0]->n, &c->of, series_alike)) ||
                comparison_among(lists[l], (size_t)(c - lists[l]->of), &c->of, series_alike);
            if (!said) { reference_finding(n, &c->of, v); }
        }
    }
}

void score_findings(const report_numbers *n, view *v) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    size_t tables = 0;
    EACH(comparison, c, list->of, list->n) {
        if (c->of.kind != SCORE_TABLE) { continue; }
        gain_finding(n, c, v);
        where_finding(n, c, v);
        tables++;
    }
    if (tables == 0) {
        finding(v, "benefit not known",
                n->in->scores.n_files
                    ? "The scores hold no table beside identity on the same prompts."
                    : "No scores were given; `ckvc score --table T.ckvt --policy identity,matched` "
                      "on held-out prompts makes them.");
    }
    reference_findings(n, v);
}

/* ---- page ---- */

void verdict_section(const report_numbers *n, view *v) {
    const score_files *f = &n->in->scores;
    ckvc_buffer_text(&v->html, "<div class=\"verdict\">\n");
    leak_findings(n, v);
    score_findings(n, v);
    transfer_findings(n, v);
    pair_findings(n, v);
    entry_findings(n, v);
    run_findings(n, v);
    leak_notes(n, v);
    ckvc_buffer_text(&v->html, "</div>\n");
    if (f->n_files == 0) { return; }
    if (f->used_seen) {
        page_warn(v,
                  "%zu of these rows are prompts that the tables were fitted from: the differences "
                  "are too favourable.",
                  f->used_seen);
    } else if (!n->scores.held_out_checked) {
        page_warn(
            v, "The rows are not marked as held out and no run was given to check them against: if "
               "these prompts were used for fitting, the differences below are too favourable.");
    }
    page_note(v,
              "Rows used: %zu. Left out: %zu of other splits, %zu of prompts that a run took "
              "records from. Reward is minus the rise of the continuation's mean loss through "
              "compression, in nats per token; 0 would be no loss at all. Differences are paired "
              "by prompt; the interval is Student's t at 95%% over these prompts, beside that of a "
              "bootstrap over them; both hold the table fixed: what calibrating again would change "
              "is not in it. \u201ctokens differ\u201d: by more than 2%%.",
              f->n_rows, f->dropped_split, f->dropped_seen);
    comparison_tables(n, v);
}
