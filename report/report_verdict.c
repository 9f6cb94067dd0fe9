/* The verdict's lines on what tables bring, from the comparisons of report_scores.c: against identity, where, against references. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/report_compare.h"
#include "report/report_page.h"

/* "better", or "better, with 4.0% more tokens kept". */
static const char *verdict_of(const json_t *of, char *out, size_t size)
{
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    snprintf(out, size, "%s%s%s%s", report_judged(of), equal ? "" : ", with ",
             equal ? "" : report_more_tokens(report_num(of, "kept_ratio")), equal ? "" : " kept");
    return out;
}

static const char *interval_of(const json_t *of)
{
    return report_interval(report_num(of, "difference"), report_num(of, "lo"), report_num(of, "hi"), 4);
}

/* "identity at one threshold", "identity at the thresholds 0.875 and 0.895": each `score` finds its own. */
static void name_matched(const json_t *fair, ckvc_buffer *b)
{
    const json_t *taus = json_object_get(fair, "base_taus");
    const size_t n = json_array_size(taus);
    ckvc_buffer_text(b, n > 1 ? "identity at the thresholds " : "identity at one threshold");
    for (size_t i = 0; n > 1 && i < n; i++) {
        ckvc_buffer_printf(b, "%s%.4g", i == 0 ? "" : i + 1 == n ? " and " : ", ", json_number_value(json_array_get(taus, i)));
    }
}

static void gain_finding(const json_t *of_scores, const json_t *o, ckvc_buffer *html, ckvc_buffer *summary)
{
    const json_t *plain = json_object_get(o, "all"), *fair = report_fair_opponent(of_scores, o);
    const json_t *of = fair ? json_object_get(fair, "all") : plain;
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    const char *prompts = json_is_true(json_object_get(of_scores, "held_out_checked")) ? "held-out prompts" : "prompts";
    const char *budget = report_budget(report_num(o, "budget"));
    char verdict[160];
    if (fair) {
        ckvc_buffer base = {0};
        name_matched(fair, &base);
        report_finding(
            html, summary, verdict_of(of, verdict, sizeof verdict),
            "%s, budget %s%s: %s nats per token against %s (%s and %s tokens per layer), %.0f %s, 95%% interval. Against "
            "plain identity, which keeps %s: %s.",
            report_str(o, "title"), budget, equal ? ", at equal tokens kept" : "", interval_of(of),
            base.data ? (const char *)base.data : "", report_fixed(report_num(of, "kept"), 1),
            report_fixed(report_num(of, "kept_base"), 1), report_num(of, "n"), prompts,
            report_fixed(report_num(plain, "kept_base"), 1), interval_of(plain));
        html->failed = html->failed || base.failed;
        ckvc_buffer_fini(&base);
    } else {
        report_finding(html, summary, equal ? report_judged(of) : "not at equal tokens",
                       "%s, budget %s: %s nats per token against identity, keeping %s tokens per layer where identity keeps %s, "
                       "%.0f %s, 95%% interval.%s",
                       report_str(o, "title"), budget, interval_of(of), report_fixed(report_num(of, "kept"), 1),
                       report_fixed(report_num(of, "kept_base"), 1), report_num(of, "n"), prompts,
                       equal ? "" : " Score the policy 'matched' too for a fair comparison.");
    }
}

static bool same_table(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"title", "model", "budget", "C"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!json_equal(json_object_get(a, keys[k]), json_object_get(b, keys[k]))) {
            return false;
        }
    }
    return true;
}

/* What one list says of a table against references. */
typedef struct against {
    ckvc_buffer text;
    bool worse;
    double least, most; /* prompts */
} against;

static void gather_references(const json_t *list, const json_t *of_table, bool equal, against *x)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        const json_t *of = json_object_get(o, "all");
        if (!same_table(o, of_table) || strcmp(report_str(o, "base_policy"), "matched") == 0) {
            continue;
        }
        const char *judged = report_judged(of), *name = report_str(o, "base_policy");
        const bool decided = strcmp(judged, "better") == 0 || strcmp(judged, "worse") == 0;
        ckvc_buffer_text(&x->text, x->text.size ? "; " : "");
        if (equal && decided) {
            ckvc_buffer_printf(&x->text, "%s than %s, %s", judged, name, interval_of(of));
        } else if (equal) {
            ckvc_buffer_printf(&x->text, "%s from %s, %s", judged, name, interval_of(of));
        } else {
            ckvc_buffer_printf(&x->text, "%s %s with %s", name, interval_of(of), report_more_tokens(report_num(of, "kept_ratio")));
        }
        x->worse = x->worse || (equal && strcmp(judged, "worse") == 0);
        x->least = fmin(x->least, report_num(of, "n"));
        x->most = fmax(x->most, report_num(of, "n"));
    }
}

/* Policies without a table are part of the verdict: those that keep as many tokens, and, marked, those that do not. One line a table. */
static void reference_finding(const json_t *of_scores, const json_t *of_table, ckvc_buffer *html, ckvc_buffer *summary)
{
    against fair = {.least = INFINITY, .most = 0}, other = fair;
    gather_references(json_object_get(of_scores, "at_equal_tokens"), of_table, true, &fair);
    gather_references(json_object_get(of_scores, "at_other_tokens"), of_table, false, &other);
    const double least = fmin(fair.least, other.least), most = fmax(fair.most, other.most);
    if (fair.text.size || other.text.size) {
        char prompts[48];
        snprintf(prompts, sizeof prompts, least < most ? "%.0f to %.0f prompts" : "%.0f prompts", least, most);
        report_finding(html, summary,
                       fair.worse       ? "worse than a simple reference"
                       : fair.text.size ? NULL
                                        : "not at equal tokens",
                       "%s, budget %s, against simple references%s%s%s%s; %s.%s", report_str(of_table, "title"),
                       report_budget(report_num(of_table, "budget")), fair.text.size ? " at as many tokens: " : "",
                       fair.text.size ? (const char *)fair.text.data : "",
                       !other.text.size ? ""
                       : fair.text.size ? "; not at equal tokens: "
                                        : ": ",
                       other.text.size ? (const char *)other.text.data : "", prompts,
                       other.text.size ? " `ckvc score --equal-tokens` gives references the table's tokens." : "");
    }
    html->failed = html->failed || fair.text.failed || other.text.failed;
    ckvc_buffer_fini(&fair.text);
    ckvc_buffer_fini(&other.text);
}

/* Tables of the two lists, each once: the first comparison with it says so. */
static void reference_findings(const json_t *of_scores, ckvc_buffer *html, ckvc_buffer *summary)
{
    const json_t *lists[2] = {json_object_get(of_scores, "at_equal_tokens"), json_object_get(of_scores, "at_other_tokens")};
    for (size_t i = 0; i < json_array_size(lists[0]) + json_array_size(lists[1]); i++) {
        bool first = true;
        const size_t n = json_array_size(lists[0]);
        const json_t *o = i < n ? json_array_get(lists[0], i) : json_array_get(lists[1], i - n);
        for (size_t k = 0; k < i && first; k++) {
            first = !same_table(o, k < n ? json_array_get(lists[0], k) : json_array_get(lists[1], k - n));
        }
        if (first) {
            reference_finding(of_scores, o, html, summary);
        }
    }
}

void report_score_findings(const json_t *of_scores, ckvc_buffer *html, ckvc_buffer *summary)
{
    size_t i, tables = 0;
    json_t *o;
    json_array_foreach(json_object_get(of_scores, "against_identity"), i, o)
    {
        if (strcmp(report_str(o, "policy"), "table") == 0) {
            gain_finding(of_scores, o, html, summary);
            tables++;
        }
    }
    if (tables == 0) {
        bool scored = json_array_size(json_object_get(of_scores, "files")) > 0;
        report_finding(
            html, summary, "benefit not known",
            scored ? "The scores hold no table beside identity on the same prompts."
                   : "No scores were given; `ckvc score --table T.ckvt --policy identity,matched` on held-out prompts makes them.");
    }
    reference_findings(of_scores, html, summary);
}
