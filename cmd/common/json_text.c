/* JSON on standard output: see json_text.h. */
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

void form_print(FILE *to, const char *form, const json_t *o, json_t *beside) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_form_fill(&text, form, o, beside);
    if (text.size) { put_text(to, "%s", (char *)text.data); }
    json_decref(beside);
}

json_t *json_tamed(const json_t *v) {
    json_t *out = json_copy(ckvc_unconst(v));
    const char *key;
    json_t *value;
    if (json_is_string(v)) {
        CKVC_AUTO_FREE char *text = ckvc_strdup(json_string_value(v));
        ckvc_utf8_tame(text, "");
        json_string_set(out, text);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_array_set_new(out, i, json_tamed(json_array_get(v, i)));
    }
    json_object_clear(out);
    json_object_foreach(ckvc_unconst(v), key, value) {
        CKVC_AUTO_FREE char *name = ckvc_strdup(key);
        ckvc_utf8_tame(name, "");
        json_object_set_new(out, name, json_tamed(value));
    }
    return out;
}

enum { LIST_WHOLE = 8, LIST_HEAD = 3, ROWS_MAX = 24, CELL_MAX = 512 };

static bool is_scalar(const json_t *v) { return !json_is_object(v) && !json_is_array(v); }

/* One value as text, cut to CELL_MAX; valid until the next call. */
static const char *cell(const json_t *v) {
    static char text[CELL_MAX];
    if (!v || json_is_null(v)) { return "-"; }
    if (json_is_boolean(v)) { return json_is_true(v) ? "yes" : "no"; }
    CKVC_AUTO_FREE char *dump =
        json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(text, sizeof text, "%s", json_is_string(v) ? json_string_value(v) : dump);
    if (json_is_real(v)) { snprintf(text, sizeof text, "%.6g", json_real_value(v)); }
    return text;
}

/* A list of scalars on one line: all of a short one, beginning and end of a long one. */
static void print_list(const json_t *list) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        if (n > LIST_WHOLE && i >= LIST_HEAD && i + 1 < n) {
            if (i == LIST_HEAD) { tell(" ..."); }
            continue;
        }
        tell("%s%s", i ? " " : "", cell(json_array_get(list, i)));
    }
    if (n > LIST_WHOLE) { tell("  (%zu)", n); }
    tell(n ? "\n" : "none\n");
}

/* Objects of one kind as rows; all their keys are columns. */
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
                 row ? cell(json_object_get(object, columns[c])) : columns[c]);
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

/* Rows that hold objects of their own do not fit into columns. */
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

void json_text(json_t *object, int indent) {
    const char *key;
    json_t *value;
    int width = 0;
    json_object_foreach(object, key, value) {
        if (is_scalar(value) || json_is_array(value)) {
            width = (int)strlen(key) > width ? (int)strlen(key) : width;
        }
    }
    json_object_foreach(object, key, value) {
        if (json_is_object(value)) {
            tell("%*s%s:%s\n", indent, "", key, json_object_size(value) ? "" : " none");
            json_text(value, indent + 2);
        } else if (json_is_array(value) && json_array_size(value) && all_are(value, is_object)) {
            tell("%*s%s:\n", indent, "", key);
            if (are_rows(value)) {
                print_table(value, indent + 2);
                continue;
            }
            for (size_t i = 0; i < json_array_size(value); i++) {
                tell("%*s%zu:\n", indent + 2, "", i + 1);
                json_text(json_array_get(value, i), indent + 4);
            }
        } else {
            tell("%*s%s:%*s", indent, "", key, width - (int)strlen(key) + 1, "");
            if (json_is_array(value) && all_are(value, is_scalar)) {
                print_list(value);
            } else {
                tell("%s\n", cell(value));
            }
        }
    }
}

enum { NAMED = 60 }; /* thin cells in a message; the file names all */

/* Rows of one cell stand together: its end, and its sums. */
static size_t next_cell(const coverage *c, size_t i, uint64_t *prompts, uint64_t *drawn) {
    const coverage_row *first = &c->rows[i];
    *prompts = *drawn = 0;
    for (; i < c->n_rows && c->rows[i].entropy == first->entropy && c->rows[i].ppl == first->ppl;
         i++) {
        *prompts += c->rows[i].prompts;
        *drawn += c->rows[i].drawn;
    }
    return i;
}

void coverage_say(const coverage *c, bool thresholds) {
    uint64_t prompts, drawn, all = 0, all_drawn = 0, occupied = 0, thin = 0;
    const uint64_t cells = (uint64_t)c->n_entropy_bins * c->n_ppl_bins;
    for (size_t i = 0; i < c->n_rows; occupied++) {
        i = next_cell(c, i, &prompts, &drawn);
        all += prompts;
        all_drawn += drawn;
        thin += (c->logged ? drawn : prompts) < c->min_cell;
    }
    say("risk cells: %llu of %llu hold the %llu scanned prompts", (unsigned long long)occupied,
        (unsigned long long)cells, (unsigned long long)all);
    if (c->sample > 0) { say("; %llu of them drawn for logging", (unsigned long long)all_drawn); }
    if (c->n_unscanned) {
        say("; %u prompts are not in the scan%s", c->n_unscanned,
            c->sample > 0 ? " and cannot be drawn" : "");
    }
    say("\n");
    if (!thresholds || (thin == 0 && occupied == cells)) { return; }
    say("risk cells below --min-cell %u, whose thresholds rest on little: %llu", c->min_cell,
        (unsigned long long)thin);
    if (occupied < cells) { say(", and %llu empty ones", (unsigned long long)(cells - occupied)); }
    if (thin) {
        say("\n  entropy/perplexity bin: prompts%s:", c->sample > 0 ? " drawn of those there" : "");
    }
    uint64_t named = 0;
    for (size_t i = 0; i < c->n_rows && named <= NAMED;) {
        const coverage_row *at = &c->rows[i];
        i = next_cell(c, i, &prompts, &drawn);
        if ((c->logged ? drawn : prompts) >= c->min_cell) { continue; }
        if (named++ == NAMED) {
            say(" and %llu more in " COVERAGE_FILE, (unsigned long long)(thin - NAMED));
        } else if (c->sample > 0) {
            say(" %u/%u: %llu of %llu%s", at->entropy, at->ppl, (unsigned long long)drawn,
                (unsigned long long)prompts, named < thin ? "," : "");
        } else {
            say(" %u/%u: %llu%s", at->entropy, at->ppl, (unsigned long long)prompts,
                named < thin ? "," : "");
        }
    }
    say("\n");
}

void coverage_print(const coverage *c) {
    tell("entropy_bin\tperplexity_bin\tprompts");
    for (size_t s = 0; s < c->n_sources; s++) { tell("\t%s", c->sources[s]); }
    putchar('\n');
    for (size_t i = 0; i < c->n_rows;) {
        uint64_t prompts, drawn;
        const size_t end = next_cell(c, i, &prompts, &drawn);
        tell("%u\t%u\t%llu", c->rows[i].entropy, c->rows[i].ppl, (unsigned long long)prompts);
        for (size_t s = 0; s < c->n_sources; s++) { /* a cell's rows ascend by source */
            const bool here = i < end && c->rows[i].source == s;
            tell("\t%u", here ? c->rows[i].prompts : 0);
            i += here;
        }
        putchar('\n');
    }
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
    "split select (* the least: recommended)\nscore    floor  mix {budgets# {.:11g}}"
    "{candidates#\n{score:-8s} {floor:5g} {mix?{mix:4g}}{mix!   0} "
    "{losses.@#{loss? {loss:10.5f}{chosen?*}{chosen! }}{loss!    dropped }}}\n"
    "{undecided#note: at budget {budget:g} this is not decided: the next best loses " GAIN(
        "more") " more; more prompts of split select would decide\n}";

void choice_say(const select_losses *s, const double *budgets) {
    json_t *losses = json_array(), *undecided = json_array();
    for (size_t i = 0; i < s->n; i++) {
        json_t *row = json_array();
        for (uint32_t b = 0; b < s->n_budgets; b++) {
            const double loss = s->loss[i * s->n_budgets + b];
            json_array_append_new(row, json_pack("{s:o, s:b}", "loss", ckvc_json_real(loss),
                                                 "chosen", s->chosen[b] == i));
        }
        json_array_append_new(losses, row);
    }
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        if (s->more[b].n == 0 || s->more[b].lo > 0) { continue; }
        json_array_append_new(undecided, json_pack("{s:f, s:o}", "budget", budgets[b], "more",
                                                   gain_json(s->more[b])));
    }
    json_auto_t *o = select_json(s);
    form_print(stderr, choice_form, o,
               json_pack("{s:o, s:o, s:o}", "budgets", ckvc_json_reals(budgets, s->n_budgets),
                         "losses", losses, "undecided", undecided));
}
