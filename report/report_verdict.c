/* The verdict's lines on what tables bring, from the comparisons of report_scores.c: against
 * identity, where, against references. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/report_compare.h"
#include "report/report_page.h"

/* A single prompt is named when a decided mean owes it more than this of the sum, of so many
 * prompts at least. */
#define LARGE_SHARE 0.2
#define LARGE_OF    10

/* "better", or "better, with 4.0% more tokens kept". */
static const char *verdict_of(const json_t *of, char *out, size_t size) {
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    snprintf(out, size, "%s%s%s%s", report_judged(of), equal ? "" : ", with ",
             equal ? "" : report_more_tokens(report_num(of, "kept_ratio")), equal ? "" : " kept");
    return out;
}

static const char *interval_of(const json_t *of) {
    return report_interval(report_num(of, "difference"), report_num(of, "lo"), report_num(of, "hi"),
                           4);
}

/* "identity at one threshold", "identity at the thresholds 0.875 and 0.895": each `score` finds its
 * own. */
static void name_matched(const json_t *fair, ckvc_buffer *b) {
    const json_t *taus = json_object_get(fair, "base_taus");
    const size_t n = json_array_size(taus);
    ckvc_buffer_text(b, n > 1 ? "identity at the thresholds " : "identity at one threshold");
    for (size_t i = 0; n > 1 && i < n; i++) {
        ckvc_buffer_printf(b, "%s%.4g",
                           i == 0       ? ""
                           : i + 1 == n ? " and "
                                        : ", ",
                           json_number_value(json_array_get(taus, i)));
    }
}

/* "; median prompt +0.0039, one prompt is 31% of the sum": a mean that few prompts make. */
static void name_spread(const json_t *of, ckvc_buffer *b) {
    const double share = report_num(of, "largest_share"), n = report_num(of, "n");
    if (isfinite(report_num(of, "median"))) {
        ckvc_buffer_printf(b, "; median prompt %s", report_signed(report_num(of, "median"), 4));
    }
    if (report_decided(of) && n >= LARGE_OF && share > LARGE_SHARE) {
        ckvc_buffer_printf(b, ", one prompt is %s of the sum", report_share(share));
    }
}

static void gain_finding(const json_t *of_scores, const json_t *o, ckvc_buffer *html,
                         ckvc_buffer *summary) {
    const json_t *plain = json_object_get(o, "all"), *fair = report_fair_opponent(of_scores, o);
    const json_t *of = fair ? json_object_get(fair, "all") : plain;
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    const char *prompts = json_is_true(json_object_get(of_scores, "held_out_checked"))
                              ? "held-out prompts"
                              : "prompts";
    const char *budget = report_budget(report_num(o, "budget"));
    char verdict[160];
    ckvc_buffer base = {0}, spread = {0};
    name_spread(of, &spread);
    const char *median = spread.data ? (const char *)spread.data : "";
    if (fair) {
        name_matched(fair, &base);
        report_finding(html, summary, verdict_of(of, verdict, sizeof verdict),
                       "%s, budget %s%s: %s nats per token against %s (%s and %s tokens per "
                       "layer), %.0f %s, 95%% interval%s. Against "
                       "plain identity, which keeps %s: %s.",
                       report_str(o, "title"), budget, equal ? ", at equal tokens kept" : "",
                       interval_of(of), base.data ? (const char *)base.data : "",
                       report_fixed(report_num(of, "kept"), 1),
                       report_fixed(report_num(of, "kept_base"), 1), report_num(of, "n"), prompts,
                       median, report_fixed(report_num(plain, "kept_base"), 1), interval_of(plain));
    } else {
        report_finding(html, summary, equal ? report_judged(of) : "not at equal tokens",
                       "%s, budget %s: %s nats per token against identity, keeping %s tokens per "
                       "layer where identity keeps %s, "
                       "%.0f %s, 95%% interval%s.%s",
                       report_str(o, "title"), budget, interval_of(of),
                       report_fixed(report_num(of, "kept"), 1),
                       report_fixed(report_num(of, "kept_base"), 1), report_num(of, "n"), prompts,
                       median,
                       equal ? "" : " Score the policy 'matched' too for a fair comparison.");
    }
    html->failed = html->failed || base.failed || spread.failed;
    ckvc_buffer_fini(&base);
    ckvc_buffer_fini(&spread);
}

/* ---- where ---- */

/* "bible-kjv, tcl (2.9% more tokens)": the sources of one judgement, with their numbers where
 * nothing else has them. Returns how many. */
static size_t name_sources(const json_t *sources, const char *judgement, bool numbers,
                           ckvc_buffer *b) {
    size_t i, n = 0;
    json_t *of;
    json_array_foreach(sources, i, of) {
        if (!report_part_decided(of) || strcmp(report_judged(of), judgement) != 0) { continue; }
        const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
        ckvc_buffer_printf(b, "%s%s", n++ ? ", " : "", report_part_name(of));
        if (numbers) {
            ckvc_buffer_printf(b, " %s of %.0f prompts", interval_of(of), report_num(of, "n"));
        }
        if (!equal) {
            ckvc_buffer_printf(b, " with %s", report_more_tokens(report_num(of, "kept_ratio")));
        }
    }
    return n;
}

/* "better on tcl; the other 7 sources are undecided". */
static void describe_sources(const json_t *sources, bool numbers, ckvc_buffer *b) {
    const size_t total = json_array_size(sources);
    ckvc_buffer better = {0}, worse = {0};
    const size_t n = name_sources(sources, "better", numbers, &better),
                 m = name_sources(sources, "worse", numbers, &worse);
    if (n + m == 0) {
        ckvc_buffer_printf(b, "none of %zu sources is decided alone", total);
    } else {
        ckvc_buffer_printf(b, "of single sources %s%s%s%s%s", n ? "better on " : "",
                           n ? (const char *)better.data : "", n && m ? "; " : "",
                           m ? "worse on " : "", m ? (const char *)worse.data : "");
        if (n + m < total) { ckvc_buffer_printf(b, "; undecided on %zu", total - n - m); }
    }
    b->failed = b->failed || better.failed || worse.failed;
    ckvc_buffer_fini(&better);
    ckvc_buffer_fini(&worse);
}

/* Where a table's gain is decided and where not: text against retrieval prompts, else by source.
 * For the summary alone: on the page the table right below the verdict says it (report_where). */
static void where_finding(const json_t *of_scores, const json_t *o, ckvc_buffer *summary) {
    const json_t *gain = report_gain_of(of_scores, o), *kinds = json_object_get(gain, "kinds"),
                 *sources = json_object_get(gain, "sources");
    const bool by_kind = json_array_size(kinds) > 0;
    size_t i;
    json_t *of;
    ckvc_buffer text = {0};
    json_array_foreach(kinds, i, of) {
        const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
        ckvc_buffer_printf(&text, "%s%s on %s, %s, %s and %s tokens%s%s%s, n %.0f", i ? "; " : "",
                           report_part_decided(of) ? report_judged(of) : "undecided",
                           report_part_name(of), interval_of(of),
                           report_fixed(report_num(of, "kept"), 1),
                           report_fixed(report_num(of, "kept_base"), 1), equal ? "" : " (",
                           equal ? "" : report_more_tokens(report_num(of, "kept_ratio")),
                           equal ? "" : ")", report_num(of, "n"));
    }
    if (json_array_size(sources)) {
        ckvc_buffer_text(&text, by_kind ? "; " : "");
        describe_sources(sources, !by_kind, &text);
    }
    if (text.size) {
        report_finding(NULL, summary, "where", "%s, budget %s%s: %s.", report_str(o, "title"),
                       report_budget(report_num(o, "budget")),
                       gain == o ? ", against plain identity" : "", (const char *)text.data);
    }
    summary->failed = summary->failed || text.failed;
    ckvc_buffer_fini(&text);
}

/* ---- against references ---- */

/* What one list says of a table against references. */
typedef struct against {
    ckvc_buffer text;
    bool worse;
    double least, most; /* prompts */
} against;

static void gather_references(const json_t *list, const json_t *of_table, bool equal, against *x) {
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        const json_t *of = json_object_get(o, "all");
        if (!report_same_series(o, of_table) ||
            strcmp(report_str(o, "base_policy"), "matched") == 0) {
            continue;
        }
        const char *judged = report_judged(of), *name = report_str(o, "base_policy");
        const bool decided = report_decided(of);
        ckvc_buffer_text(&x->text, x->text.size ? "; " : "");
        if (equal && decided) {
            ckvc_buffer_printf(&x->text, "%s than %s, %s", judged, name, interval_of(of));
        } else if (equal) {
            ckvc_buffer_printf(&x->text, "%s from %s, %s", judged, name, interval_of(of));
        } else {
            ckvc_buffer_printf(&x->text, "%s %s with %s", name, interval_of(of),
                               report_more_tokens(report_num(of, "kept_ratio")));
        }
        x->worse = x->worse || (equal && strcmp(judged, "worse") == 0);
        x->least = fmin(x->least, report_num(of, "n"));
        x->most = fmax(x->most, report_num(of, "n"));
    }
}

/* Policies without a table are part of the verdict: those that keep as many tokens, and, marked,
 * those that do not. One line a table. */
static void reference_finding(const json_t *of_scores, const json_t *of_table, ckvc_buffer *html,
                              ckvc_buffer *summary) {
    against fair = {.least = INFINITY, .most = 0}, other = fair;
    gather_references(json_object_get(of_scores, "at_equal_tokens"), of_table, true, &fair);
    gather_references(json_object_get(of_scores, "at_other_tokens"), of_table, false, &other);
    const double least = fmin(fair.least, other.least), most = fmax(fair.most, other.most);
    if (fair.text.size || other.text.size) {
        char prompts[48];
        snprintf(prompts, sizeof prompts, least < most ? "%.0f to %.0f prompts" : "%.0f prompts",
                 least, most);
        report_finding(html, summary,
                       fair.worse       ? "worse than a simple reference"
                       : fair.text.size ? NULL
                                        : "not at equal tokens",
                       "%s, budget %s, against simple references%s%s%s%s; %s.%s",
                       report_str(of_table, "title"), report_budget(report_num(of_table, "budget")),
                       fair.text.size ? " at as many tokens: " : "",
                       fair.text.size ? (const char *)fair.text.data : "",
                       !other.text.size ? ""
                       : fair.text.size ? "; not at equal tokens: "
                                        : ": ",
                       other.text.size ? (const char *)other.text.data : "", prompts,
                       other.text.size
                           ? " `ckvc score --equal-tokens` gives references the table's tokens."
                           : "");
    }
    html->failed = html->failed || fair.text.failed || other.text.failed;
    ckvc_buffer_fini(&fair.text);
    ckvc_buffer_fini(&other.text);
}

/* Tables of the two lists, each once: the first comparison with it says so. */
static void reference_findings(const json_t *of_scores, ckvc_buffer *html, ckvc_buffer *summary) {
    const json_t *lists[2] = {json_object_get(of_scores, "at_equal_tokens"),
                              json_object_get(of_scores, "at_other_tokens")};
    for (size_t i = 0; i < json_array_size(lists[0]) + json_array_size(lists[1]); i++) {
        bool first = true;
        const size_t n = json_array_size(lists[0]);
        const json_t *o = i < n ? json_array_get(lists[0], i) : json_array_get(lists[1], i - n);
        for (size_t k = 0; k < i && first; k++) {
            first = !report_same_series(o, k < n ? json_array_get(lists[0], k)
                                                 : json_array_get(lists[1], k - n));
        }
        if (first) { reference_finding(of_scores, o, html, summary); }
    }
}

void report_score_findings(const json_t *of_scores, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i, tables = 0;
    json_t *o;
    json_array_foreach(json_object_get(of_scores, "against_identity"), i, o) {
        if (strcmp(report_str(o, "policy"), "table") == 0) {
            gain_finding(of_scores, o, html, summary);
            where_finding(of_scores, o, summary);
            tables++;
        }
    }
    if (tables == 0) {
        bool scored = json_array_size(json_object_get(of_scores, "files")) > 0;
        report_finding(html, summary, "benefit not known",
                       scored ? "The scores hold no table beside identity on the same prompts."
                              : "No scores were given; `ckvc score --table T.ckvt --policy "
                                "identity,matched` on held-out prompts makes them.");
    }
    reference_findings(of_scores, html, summary);
}
