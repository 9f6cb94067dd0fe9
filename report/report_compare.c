/* See report_compare.h. */
#include "report/report_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/draw/html.h"
#include "report/report_internal.h"

const char *report_judged(const json_t *of) {
    double lo = report_num(of, "lo"), hi = report_num(of, "hi");
    if (!isfinite(lo) || !isfinite(hi)) { return "too few prompts to tell"; }
    return lo > 0 ? "better" : hi < 0 ? "worse" : "no difference shown";
}

bool report_decided(const json_t *of) {
    return report_num(of, "lo") > 0 || report_num(of, "hi") < 0;
}

bool report_part_decided(const json_t *of) {
    return report_decided(of) && report_num(of, "n") >= REPORT_PART_MIN;
}

static const char *difference(const json_t *of) {
    return report_interval(report_num(of, "difference"), report_num(of, "lo"), report_num(of, "hi"),
                           4);
}

bool report_same_series(const json_t *a, const json_t *b) {
    return strcmp(report_str(a, "title"), report_str(b, "title")) == 0 &&
           strcmp(report_str(a, "model"), report_str(b, "model")) == 0 &&
           report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C");
}

const json_t *report_fair_opponent(const json_t *of_scores, const json_t *series) {
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(of_scores, "at_equal_tokens"), i, o) {
        if (report_same_series(o, series) && strcmp(report_str(o, "base_policy"), "matched") == 0) {
            return o;
        }
    }
    return NULL;
}

const char *report_part_name(const json_t *part) {
    if (json_is_string(json_object_get(part, "kind"))) {
        return strcmp(report_str(part, "kind"), "text") == 0 ? "text prompts" : "retrieval prompts";
    }
    return *report_str(part, "source") ? report_str(part, "source") : "(no source)";
}

/* ---- what stands first: all prompts together ---- */

static void verdict_cell(ckvc_buffer *b, const json_t *of) {
    html_cell(b, 'n', "%s%s", report_judged(of),
              json_is_true(json_object_get(of, "equal_tokens")) ? "" : "; tokens differ");
}

/* "−0.0010 to +0.0104"; nothing without replicates. */
static void resampled_cell(ckvc_buffer *b, const json_t *of) {
    if (!of) {
        html_cell(b, 'r', "%s", "");
        return;
    }
    char lo[32];
    snprintf(lo, sizeof lo, "%s", report_signed(report_num(of, "lo"), 4));
    html_cell(b, 'r', "%s to %s", lo, report_signed(report_num(of, "hi"), 4));
}

/* What a row stands against, in a group that names the table. */
static const char *short_base(const json_t *o, char *out, size_t size) {
    const char *policy = report_str(o, "base_policy");
    const json_t *taus = json_object_get(o, "base_taus");
    if (strcmp(policy, "table") == 0 ||
        strcmp(policy, report_str(o, "policy")) == 0) { /* the latter: under another score */
        return report_str(o, "base");
    }
    size_t n = (size_t)snprintf(out, size, "%s", policy);
    for (size_t i = 0; i < json_array_size(taus) && n < size; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%.4g", i ? ", " : " (τ ",
                              json_number_value(json_array_get(taus, i)));
    }
    if (json_array_size(taus) && n < size) { snprintf(out + n, size - n, ")"); }
    return out;
}

static void overall_table(ckvc_buffer *b, const json_t *list, const char *caption) {
    static const char *const columns[] = {"against",
                                          "n",
                                          "difference, nats/token (95% interval)",
                                          "bootstrap",
                                          "median prompt",
                                          "verdict",
                                          "kept/layer",
                                          "base keeps"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    size_t i;
    json_t *o;
    if (json_array_size(list) == 0) { return; }
    html_table_old(b, caption, "lrrrrnrr", columns, COLUMNS);
    json_array_foreach(list, i, o) {
        const json_t *all = json_object_get(o, "all");
        char base[160];
        if (i == 0 || !report_same_series(o, json_array_get(list, i - 1))) {
            html_group(b, COLUMNS, "%s, budget %s", report_str(o, "title"),
                       report_budget(report_num(o, "budget")));
        }
        html_row_begin(b);
        html_cell(b, 'l', "%s", short_base(o, base, sizeof base));
        html_cell(b, 'r', "%.0f", report_num(all, "n"));
        html_cell(b, 'r', "%s", difference(all));
        resampled_cell(b, json_object_get(all, "bootstrap"));
        html_cell(b, 'r', "%s", report_signed(report_num(all, "median"), 4));
        verdict_cell(b, all);
        html_cell(b, 'r', "%s", report_fixed(report_num(all, "kept"), 1));
        html_cell(b, 'r', "%s", report_fixed(report_num(all, "kept_base"), 1));
        html_row_end(b);
    }
    html_table_end(b);
}

/* The one comparison of a series in a list; *n how many there are. */
static const json_t *only_of(const json_t *list, const json_t *series, size_t *n) {
    const json_t *found = NULL;
    size_t i;
    json_t *o;
    *n = 0;
    json_array_foreach(list, i, o) {
        if (report_same_series(o, series)) {
            found = json_object_get(o, "all");
            ++*n;
        }
    }
    return found;
}

static void difference_cell(ckvc_buffer *b, const json_t *of, size_t n) {
    html_cell(b, 'r', "%s", n == 1 ? difference(of) : n ? "several, below" : "");
}

/* Every policy against identity and against the control that keeps as many tokens as a table. */
static void policies_table(ckvc_buffer *b, const json_t *of_scores) {
    static const char *const columns[] = {"policy",
                                          "budget",
                                          "n",
                                          "kept/layer",
                                          "reward",
                                          "against identity (95% interval)",
                                          "against matched (95% interval)"};
    const json_t *identity = json_object_get(of_scores, "against_identity"),
                 *matched = json_object_get(of_scores, "against_matched");
    size_t i, n_identity, n_matched;
    json_t *series;
    if (json_array_size(identity) + json_array_size(matched) == 0) { return; }
    html_details_begin(b, "Every policy on the same prompts");
    html_table_old(b, NULL, "lrrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(of_scores, "series"), i, series) {
        const json_t *a = only_of(identity, series, &n_identity),
                     *m = only_of(matched, series, &n_matched), *any = a ? a : m;
        if (!any) { continue; /* alone in its setting */ }
        html_row_begin(b);
        html_cell(b, 'l', "%s", report_str(series, "title"));
        html_cell(b, 'r', "%s", report_budget(report_num(series, "budget")));
        html_cell(b, 'r', "%.0f", report_num(any, "n"));
        html_cell(b, 'r', "%s", report_fixed(report_num(any, "kept"), 1));
        html_cell(b, 'r', "%s", report_fixed(report_num(any, "reward"), 4));
        difference_cell(b, a, n_identity);
        difference_cell(b, m, n_matched);
        html_row_end(b);
    }
    html_table_end(b);
    html_details_end(b);
}

/* ---- where the gain is: a column a table, a row a part of the prompts ---- */

/* Names of the rows, in the order of the first table that has them: kinds, then sources. New
 * reference. */
static json_t *part_names(const json_t *columns, const char *parts) {
    json_t *names = json_object(), *o, *part; /* an object keeps the order that its keys came in */
    size_t i, k;
    json_array_foreach(columns, i, o) {
        json_array_foreach(json_object_get(o, parts), k, part) {
            json_object_set_new(names, report_part_name(part), json_null());
        }
    }
    return names;
}

/* "better +0.0868 (+0.0258 to +0.1994), n 10, 2.1% more tokens"; no word where nothing is decided.
 */
static void where_cell(ckvc_buffer *b, const json_t *of, bool decided) {
    const char *judged = report_judged(of);
    const bool equal = json_is_true(json_object_get(of, "equal_tokens"));
    html_cell(b, 'r', "%s%s%s, n %.0f%s%s", decided ? judged : "", decided ? " " : "",
              difference(of), report_num(of, "n"), equal ? "" : ", ",
              equal ? "" : report_more_tokens(report_num(of, "kept_ratio")));
}

static void where_rows(ckvc_buffer *b, const json_t *columns, const char *parts) {
    json_t *names = part_names(columns, parts), *unused, *o, *part;
    const char *name;
    size_t i, k;
    json_object_foreach(names, name, unused) {
        html_row_begin(b);
        html_cell(b, 'n', "%s", name);
        json_array_foreach(columns, i, o) {
            const json_t *found = NULL;
            json_array_foreach(json_object_get(o, parts), k, part) {
                found = strcmp(report_part_name(part), name) == 0 ? part : found;
            }
            if (found) {
                where_cell(b, found, report_part_decided(found));
            } else {
                html_cell(b, 'r', "%s", "");
            }
        }
        html_row_end(b);
    }
    json_decref(names);
}

const json_t *report_gain_of(const json_t *of_scores, const json_t *series) {
    const json_t *fair = report_fair_opponent(of_scores, series);
    return fair ? fair : series;
}

void report_where(const json_t *of_scores, ckvc_buffer *b) {
    json_t *columns = json_array(), *o;
    size_t i, parts = 0;
    json_array_foreach(json_object_get(of_scores, "against_identity"), i, o) {
        if (strcmp(report_str(o, "policy"), "table") == 0) {
            json_t *gain = (json_t *)(uintptr_t)report_gain_of(of_scores, o);
            json_array_append(columns, gain);
            parts += json_array_size(json_object_get(gain, "sources")) +
                     json_array_size(json_object_get(gain, "kinds"));
        }
    }
    if (parts) {
        ckvc_buffer_text(b, "<div class=\"scroll\" tabindex=\"0\"><table><caption>Where the gain "
                            "is, at equal tokens kept where "
                            "there is a matched control: nats/token (95% "
                            "interval)</caption><thead><tr><th scope=\"col\">prompts</th>");
        json_array_foreach(columns, i, o) {
            ckvc_buffer_text(b, "<th scope=\"col\" class=\"r\">");
            html_textf(
                b, "%s, %s%s", report_str(o, "title"), report_budget(report_num(o, "budget")),
                strcmp(report_str(o, "base_policy"), "matched") ? ", against plain identity" : "");
            ckvc_buffer_text(b, "</th>");
        }
        ckvc_buffer_text(b, "</tr></thead>\n<tbody>\n");
        html_row_begin(b);
        html_cell(b, 'n', "all");
        json_array_foreach(columns, i, o) {
            where_cell(b, json_object_get(o, "all"), report_decided(json_object_get(o, "all")));
        }
        html_row_end(b);
        html_row_begin(b);
        html_cell(b, 'n', "median prompt");
        json_array_foreach(columns, i, o) {
            html_cell(b, 'r', "%s",
                      report_signed(report_num(json_object_get(o, "all"), "median"), 4));
        }
        html_row_end(b);
        where_rows(b, columns, "kinds");
        where_rows(b, columns, "sources");
        html_table_end(b);
        html_paragraph(b, "note",
                       "A part is called better or worse from %d prompts on. Intervals of parts "
                       "are not corrected for the number of "
                       "parts: of twenty without a difference, one is expected to look decided.",
                       REPORT_PART_MIN);
    }
    json_decref(columns);
}

/* ---- behind the fold: parts ---- */

static void part_row(ckvc_buffer *b, const json_t *of) {
    html_row_begin(b);
    if (json_object_get(of, "T_lo")) {
        html_cell(b, 'l', "T from %.0f to %.0f", report_num(of, "T_lo"), report_num(of, "T_hi"));
    } else {
        html_cell(b, 'l', "%s", report_part_name(of));
    }
    html_cell(b, 'r', "%.0f", report_num(of, "n"));
    html_cell(b, 'r', "%s", difference(of));
    verdict_cell(b, of);
    html_cell(b, 'r', "%s", report_fixed(report_num(of, "kept"), 1));
    html_cell(b, 'r', "%s", report_fixed(report_num(of, "kept_base"), 1));
    html_row_end(b);
}

static size_t count_parts(const json_t *o) {
    return json_array_size(json_object_get(o, "kinds")) +
           json_array_size(json_object_get(o, "sources")) +
           json_array_size(json_object_get(o, "lengths"));
}

static void parts_table(ckvc_buffer *b, const json_t *list, const char *caption) {
    static const char *const columns[] = {
        "prompts", "n",          "difference, nats/token (95% interval)",
        "verdict", "kept/layer", "base keeps"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    size_t i, k, parts = 0;
    json_t *o, *of;
    json_array_foreach(list, i, o) {
        parts += count_parts(o);
    }
    if (parts == 0) { return; }
    html_table_old(b, caption, "lrrnrr", columns, COLUMNS);
    json_array_foreach(list, i, o) {
        if (count_parts(o) == 0) { continue; }
        html_group(b, COLUMNS, "%s against %s, budget %s", report_str(o, "title"),
                   report_str(o, "base"), report_budget(report_num(o, "budget")));
        json_array_foreach(json_object_get(o, "kinds"), k, of) {
            part_row(b, of);
        }
        json_array_foreach(json_object_get(o, "sources"), k, of) {
            part_row(b, of);
        }
        json_array_foreach(json_object_get(o, "lengths"), k, of) {
            part_row(b, of);
        }
    }
    html_table_end(b);
}

void report_comparisons(const json_t *of_scores, ckvc_buffer *b) {
    static const struct {
        const char *list, *caption, *parts;
    } tables[] = {
        {"at_equal_tokens",
         "At equal tokens kept: a table against its matched control, and references that keep as "
         "many",
         "At equal tokens kept"},
        {"at_other_tokens",
         "Not at equal tokens: references that keep more or fewer (`score --equal-tokens` gives "
         "them the table's)",
         "Not at equal tokens"},
        {"against_controls", "What each part is worth: a table against itself without it",
         "Tables against their controls"},
        {"between_tables", "Tables against each other", "Tables against each other"},
        {"between_scores", "Which score: what needs no table under one against another",
         "Which score"},
        {"against_matched", NULL, "Against matched controls"},
        {"against_identity", NULL, "Against identity (every weight 1.0, every threshold 0.90)"},
    };
    enum { TABLES = sizeof tables / sizeof *tables };
    size_t i, k, parts = 0;
    json_t *o;
    for (k = 0; k < TABLES; k++) {
        const json_t *list = json_object_get(of_scores, tables[k].list);
        if (tables[k].caption) { overall_table(b, list, tables[k].caption); }
        json_array_foreach(list, i, o) {
            parts += count_parts(o);
        }
    }
    policies_table(b, of_scores);
    if (parts == 0) { return; }
    html_details_begin(b, "By source and by length of the prompt (thirds)");
    for (k = 0; k < TABLES; k++) {
        parts_table(b, json_object_get(of_scores, tables[k].list), tables[k].parts);
    }
    html_details_end(b);
}
