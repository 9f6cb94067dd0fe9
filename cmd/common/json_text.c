/* See json_text.h. */
#include "cmd/common/json_text.h"

#include <string.h>

#include "lib/base/memory.h"
#include "calib/log/calibrate.h"
#include "cmd/common/options.h"
#include "lib/base/form.h"
#include "lib/base/json.h"
#include "lib/base/utf8.h"

static void print_line(ckvc_buffer *line) {
    ckvc_buffer_u8(line, '\n');
    fwrite(line->data, 1, line->size, stdout);
    ckvc_buffer_fini(line);
}

void json_print(const json_t *o) {
    ckvc_buffer line = {0};
    ckvc_json_append(&line, o);
    print_line(&line);
}

void json_print_as_given(const json_t *o) {
    ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    print_line(&line);
}

void result_print(bool json, FILE *to, const char *form, json_t *o, json_t *beside) {
    if (json) {
        json_print(o);
        json_decref(beside);
    } else {
        form_print(to, form, o, beside);
    }
    json_decref(o);
}

void form_print(FILE *to, const char *form, const json_t *o, json_t *beside) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_form_fill(&text, form, o, beside);
    if (text.size) { put_text(to, "%s", (char *)text.data); }
    json_decref(beside);
}

enum { LIST_WHOLE = 8, LIST_HEAD = 3, ROWS_MAX = 24, CELL_MAX = 512 };

static bool is_scalar(const json_t *v) { return !json_is_object(v) && !json_is_array(v); }

/* A value as text of less than CELL_MAX bytes, valid until the next call. */
static const char *cell(const json_t *v) {
    static char cut[CELL_MAX];
    CKVC_AUTO_FREE char *text = ckvc_form_text(v);
    snprintf(cut, sizeof cut, "%s", text);
    return cut;
}

/* The same of a key, which may come from a hostile file. */
static const char *key_text(const char *key) {
    static char text[CELL_MAX];
    snprintf(text, sizeof text, "%s", key);
    ckvc_utf8_tame(text, "");
    return text;
}

/* Prints a list of scalars on one line: a short one whole, of a long one its beginning and end. */
static void print_list(const json_t *list) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        if (n > LIST_WHOLE && i >= LIST_HEAD && i + 1 < n) {
            if (i == LIST_HEAD) { tell(" ..."); }
            continue;
        }
        const json_t *one = json_array_get(list, i);
        tell("%s%s", i == 0 ? "" : json_is_string(one) ? ", " : " ", cell(one));
    }
    if (n > LIST_WHOLE) { tell("  (%zu)", n); }
    tell(n ? "\n" : "none\n");
}

/* Prints objects of one kind as rows, whose columns are all their keys. */
static void print_table(const json_t *list, int indent) {
    size_t n = json_array_size(list), n_columns = 0;
    json_t *keys = json_object();
    const char *columns[32];
    int widths[32];
    const char *key;
    json_t *value;
    for (size_t i = 0; i < n; i++) { json_object_update_missing(keys, json_array_get(list, i)); }
    json_object_foreach(keys, key, value) {
        if (n_columns == sizeof columns / sizeof *columns) { break; }
        int width = (int)strlen(key);
        for (size_t i = 0; i < n && i < ROWS_MAX; i++) {
            const int n_text = (int)strlen(cell(json_object_get(json_array_get(list, i), key)));
            width = n_text > width ? n_text : width;
        }
        columns[n_columns] = key;
        widths[n_columns++] = json_is_number(value) ? width : -width;
    }
    for (size_t row = 0; row <= n && row <= ROWS_MAX; row++) {
        tell("%*s", indent, "");
        for (size_t c = 0; c < n_columns; c++) {
            const json_t *object = row ? json_array_get(list, row - 1) : NULL;
            /* the last column is not padded, so that lines have no trailing blanks */
            int width = c + 1 == n_columns && widths[c] < 0 ? 0 : widths[c];
            tell("%s%*s", c ? "  " : "", width,
                 row ? cell(json_object_get(object, columns[c])) : key_text(columns[c]));
        }
        putchar('\n');
    }
    if (n > ROWS_MAX) { tell("%*s... %zu more\n", indent, "", n - ROWS_MAX); }
    json_decref(keys);
}

static bool is_object(const json_t *v) { return json_is_object(v); }

static bool all_are(const json_t *list, bool (*is)(const json_t *v)) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!is(json_array_get(list, i))) { return false; }
    }
    return true;
}

/* Whether objects fit into columns, that is, hold no objects of their own. */
static bool are_rows(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_array_get(list, i), key, value) {
            if (json_is_object(value) || (json_array_size(value) && all_are(value, is_object))) {
                return false;
            }
        }
    }
    return true;
}

void json_text(const json_t *object, int indent) {
    const char *key;
    json_t *value;
    int width = 0;
    json_object_foreach(ckvc_unconst(object), key, value) {
        if (is_scalar(value) || json_is_array(value)) {
            width = (int)strlen(key) > width ? (int)strlen(key) : width;
        }
    }
    json_object_foreach(ckvc_unconst(object), key, value) {
        if (json_is_object(value)) {
            tell("%*s%s:%s\n", indent, "", key_text(key), json_object_size(value) ? "" : " none");
            json_text(value, indent + 2);
        } else if (json_is_array(value) && json_array_size(value) && all_are(value, is_object)) {
            tell("%*s%s:\n", indent, "", key_text(key));
            if (are_rows(value)) {
                print_table(value, indent + 2);
                continue;
            }
            for (size_t i = 0; i < json_array_size(value); i++) {
                tell("%*s%zu:\n", indent + 2, "", i + 1);
                json_text(json_array_get(value, i), indent + 4);
            }
        } else {
            tell("%*s%s:%*s", indent, "", key_text(key), width - (int)strlen(key) + 1, "");
            if (json_is_array(value) && all_are(value, is_scalar)) {
                print_list(value);
            } else {
                tell("%s\n", cell(value));
            }
        }
    }
}

enum { NAMED = 60 }; /* thin cells that a message names; the file names all */

/* Joins the rows of each cell, which stand together: [{entropy, ppl, prompts, drawn, by_source}], a
 * new reference. */
static json_t *cells_json(const coverage *c) {
    json_t *cells = json_array();
    for (size_t i = 0; i < c->n_rows;) {
        const coverage_row *first = &c->rows[i];
        CKVC_AUTO_FREE uint32_t *by_source = ckvc_calloc(c->n_sources, sizeof *by_source);
        uint64_t prompts = 0, drawn = 0;
        for (;
             i < c->n_rows && c->rows[i].entropy == first->entropy && c->rows[i].ppl == first->ppl;
             i++) {
            prompts += c->rows[i].prompts;
            drawn += c->rows[i].drawn;
            by_source[c->rows[i].source] += c->rows[i].prompts;
        }
        json_t *cell = json_pack("{s:o}", "by_source", ckvc_json_u32s(by_source, c->n_sources));
        json_array_append_new(cells,
                              JSON_NUMBERS(cell, {"entropy", first->entropy}, {"ppl", first->ppl},
                                           {"prompts", prompts}, {"drawn", drawn}));
    }
    return cells;
}

static const char coverage_form[] =
    "risk cells: {occupied} of {n_cells} hold the {prompts} scanned prompts"
    "{sample?; {drawn} of them drawn for logging}"
    "{unscanned?; {unscanned} prompts are not in the scan{sample? and cannot be drawn}}\n"
    "{warn?risk cells below --min-cell {min_cell}, whose thresholds rest on little: {n_thin}"
    "{empty?, and {empty} empty ones}"
    "{n_thin?\n  entropy/perplexity bin: prompts{sample? drawn of those there}:"
    "{thin#{,,} {entropy}/{ppl}: {sample?{drawn} of }{prompts}}"
    "{more?, and {more} more in " COVERAGE_FILE "}}\n}",
                  cells_form[] = "entropy_bin\tperplexity_bin\tprompts{sources#\t{.}}\n"
                                 "{all#{entropy}\t{ppl}\t{prompts}{by_source#\t{.}}\n}";

void coverage_say(const coverage *c, bool thresholds, bool cells) {
    json_t *all = cells_json(c), *thin = json_array(), *cell;
    size_t i, n_thin = 0;
    const size_t n_cells = (size_t)c->n_entropy_bins * c->n_ppl_bins,
                 occupied = json_array_size(all);
    json_array_foreach(all, i, cell) {
        const char *of = c->logged ? "drawn" : "prompts";
        if (json_integer_value(json_object_get(cell, of)) >= c->min_cell) { continue; }
        if (n_thin++ < NAMED) { json_array_append(thin, cell); }
    }
    json_auto_t *o = coverage_json(c), *beside = json_pack("{s:o, s:o}", "all", all, "thin", thin);
    JSON_NUMBERS(beside, {"occupied", occupied}, {"n_cells", n_cells},
                 {"empty", n_cells - occupied}, {"n_thin", n_thin},
                 {"more", n_thin > NAMED ? n_thin - NAMED : 0},
                 {"warn", thresholds && (n_thin || occupied < n_cells)});
    form_print(stderr, coverage_form, o, json_incref(beside));
    if (cells) { form_print(stdout, cells_form, o, json_incref(beside)); }
}

ckvc_status gate_add(const run_dir *run, const char *pass, json_t *o, json_t *beside,
                     ckvc_err *err) {
    pass_binding binding;
    CKVC_TRY(calibrate_binding(run, pass, &binding, err));
    json_t *gate = json_array(), *advice = json_array();
    for (uint32_t b = 0; b < binding.n_budgets; b++) {
        const gate_binding *of = &binding.by_budget[b];
        char text[256];
        json_array_append_new(gate, json_pack("{s:b, s:o, s:f, s:o}", "alive", gate_is_alive(of),
                                              "binding", ckvc_json_real(gate_binding_share(of)),
                                              "budget", binding.budgets[b], "sets_differ",
                                              ckvc_json_real(gate_binding_differ_share(of))));
        if (gate_is_alive(of)) { continue; }
        gate_advice(of, binding.top, text, sizeof text);
        json_array_append_new(advice,
                              json_pack("{s:f, s:s}", "budget", binding.budgets[b], "text", text));
    }
    json_object_set_new(o, "gate", gate);
    json_object_set_new(beside, "advice", advice);
    json_object_set_new(beside, "no_thresholds",
                        json_boolean(binding.n_budgets == 0 && run_pass_named(run, pass)));
    return CKVC_OK;
}

json_t *gain_json(rank_interval g) {
    return JSON_NUMBERS(json_object(), {"mean", g.mean}, {"lo", g.lo}, {"hi", g.hi}, {"se", g.se},
                        {"prompts", g.n}, {"documents", g.n_clusters});
}

static const char choice_form[] =
    "\n{by=kl?KL from the full cache}{by=loss?loss over the full cache} on {prompts} prompts of "
    "split select (* the least: recommended)\nranking  floor  mix ridge {budgets# {.:11g}}"
    "{candidates#{left.@?\n{score:-8s} {floor:5g} {mix?{mix:4g}}{mix!   0} "
    "{ridge?{ridge:5g}}{ridge!    0} "
    "{losses.@#{loss? {loss:10.5f}{chosen?*}{chosen! }}{loss!    dropped }}}}\n"
    "{n_dropped?{n_dropped} other{n_dropped>1?s} lost more on the first of these prompts and "
    "{n_dropped>1?were}{n_dropped<2?was} dropped\n}"
    "{undecided#note: at budget {budget:g} the next best may be as good: it loses {more&" GAIN_FORM
    "} more; more prompts of split select would tell\n}";

void choice_say(const select_losses *s, const double *budgets) {
    json_t *losses = json_array(), *left = json_array(), *undecided = json_array();
    size_t n_dropped = 0; /* at every budget */
    for (size_t i = 0; i < s->n; i++) {
        json_t *row = json_array();
        bool any = false;
        for (uint32_t b = 0; b < s->n_budgets; b++) {
            const double loss = s->loss[i * s->n_budgets + b];
            any |= !isnan(loss);
            json_array_append_new(row, json_pack("{s:o, s:b}", "loss", ckvc_json_real(loss),
                                                 "chosen", s->chosen[b] == i));
        }
        n_dropped += !any;
        json_array_append_new(left, json_boolean(any));
        json_array_append_new(losses, row);
    }
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        if (s->more[b].n == 0 || s->more[b].lo > 0) { continue; }
        json_array_append_new(undecided, json_pack("{s:f, s:o}", "budget", budgets[b], "more",
                                                   gain_json(s->more[b])));
    }
    json_auto_t *o = select_json(s);
    form_print(stderr, choice_form, o,
               json_pack("{s:o, s:o, s:o, s:o, s:I}", "budgets",
                         ckvc_json_reals(budgets, s->n_budgets), "losses", losses, "left", left,
                         "undecided", undecided, "n_dropped", (json_int_t)n_dropped));
}
