/* Where everything came from: files, models, plans, settings. */
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/sections/sections.h"

/* ---- columns ---- */

MAKE(head_axis_of, ckvc_table, json_string(o->head_axis ? "query head" : "KV head"))
MAKE(budgets_of, ckvc_table, ckvc_json_reals(o->budgets, o->n_budgets))
MAKE(entropy_of, ckvc_table, ckvc_json_reals(o->edges_entropy, o->n_entropy_bins - 1))
MAKE(perplexity_of, ckvc_table, ckvc_json_reals(o->edges_ppl, o->n_ppl_bins - 1))
SAY(heads_of, ckvc_table,
    say("%u × %u %ss", o->n_layers, o->n_heads, o->head_axis ? "query head" : "KV head"))
SAY(bins_of, ckvc_table, say("%u entropy × %u perplexity", o->n_entropy_bins, o->n_ppl_bins))
TABLE(shape_columns, ckvc_table,
      SHOWN_AS(n_layers, "layers", "layers × heads", .say = heads_of, .align = "ll"),
      JSON_AS(n_heads, "heads"), JSON(head_axis, .make = head_axis_of),
      SHOWN_AS(n_entropy_bins, "entropy_bins", "bins", .say = bins_of, .align = "ll"),
      JSON_AS(n_ppl_bins, "perplexity_bins"), SHOWN(window, "window"),
      JSON(budgets, .make = budgets_of), JSON(edges_entropy, .make = entropy_of),
      JSON_AS(edges_ppl, "edges_perplexity", .make = perplexity_of));

SAY(content_of, table_numbers, say("%.12s…", o->f.content_id))
SAY(model_of, table_numbers, text_in(o->f.meta, "model_name"))
SAY(fingerprint_of, table_numbers, say("%.12s…", text_in(o->f.meta, "fingerprint")))

/* What a table recommends for each of its budgets: how sets are made, and of B what each has at
 * least. */
static const char *recommended_of(const void *row) {
    const ckvc_table *t = ((const table_numbers *)row)->shape;
    const char *text = "";
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        const ckvc_score s = ckvc_table_score(t, b);
        text = say_more(text, "; ", "%s: %s score, mode %s%s", say_budget(t->budgets[b]),
                        ckvc_score_name((ckvc_score_kind)s.kind), ckvc_mode_name((ckvc_mode)s.mode),
                        t->c_min ? say(", at least %s of it", say_share(t->c_min[b].floor)) : "");
    }
    return text;
}
static json_t *recommended_json(const void *row) {
    const ckvc_table *t = ((const table_numbers *)row)->shape;
    json_t *list = json_array();
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        const ckvc_score s = ckvc_table_score(t, b);
        json_t *o = json_pack("{s:f, s:s, s:s}", "budget", t->budgets[b], "score",
                              ckvc_score_name((ckvc_score_kind)s.kind), "mode",
                              ckvc_mode_name((ckvc_mode)s.mode));
        if (t->c_min) { json_object_set_new(o, "floor", json_real(t->c_min[b].floor)); }
        json_array_append_new(list, o);
    }
    return list;
}
SHARED_TABLE(
    table_columns, table_numbers, PAGE(title, "table"), MEMBERS(tag, name), SHOWN(file, "file"),
    SHOWN_AS(f.content_id, "content_id", "content id", .say = content_of),
    PAGE(f.meta, "model", .say = model_of, .align = "ll"),
    PAGE(f.meta, "fingerprint", .say = fingerprint_of, .align = "ll"), OBJECT(shape, shape_columns),
    SHOWN_AS(shape, "recommends", "recommends", .say = recommended_of, .make = recommended_json,
             .align = "ll"),
    SHOWN(run, "fitted from", ABSENT("not among the inputs")), JSON_AS(f.meta, "meta"),
    OBJECTS(head, n_budgets, weight_columns), OBJECTS(gate, n_budgets, threshold_columns),
    JSON(evidence, OF(evidence_columns), BY(n_sides), .as = AS_MEMBERS, WHEN(f.has_evidence)),
    JSON_AS(trust, "statistics", OF(trust_columns), BY(n_sides), .as = AS_MEMBERS),
    JSON_AS(leaks, "leak_check", OF(leak_columns)), OBJECT(verdict, verdict_columns),
    JSON_AS(f.xfer, "transfer", .omit = true));

TABLE(pass_columns, run_pass, MEMBERS(name, complete), JSON_AS(n_prompts_done, "prompts"));
TABLE(prompt_columns, input_prompt, MEMBERS(id, source, heldout, r_struct, r_sem),
      JSON_AS(n_tokens, "T"));

static json_t *sources_of(const void *row) {
    const input_run *in = &((const run_numbers *)row)->in;
    json_t *list = json_array();
    for (size_t i = 0; i < in->n_sources; i++) {
        json_array_append_new(list, json_string(in->sources[i].name));
    }
    return list;
}
static void fill_setting(json_t *o, const void *row) {
    setting_write(o, SETTING_REPORT, &((const run_numbers *)row)->in.h.setting, 0);
}
MAKE(alpha_of, run_numbers, setting_json(setting_of_option("alpha"), &o->in.h.setting))

#define HEADER(m, head)       SHOWN_AS(in.h.m, #m, head)
#define SETTING(m, head, ...) PAGE(in.h.setting.m, head, __VA_ARGS__)
/* The page has its page names down the side, a column for each run. */
SHARED_TABLE(run_columns, run_numbers, SHOWN_AS(in.h.model_name, "model", "model"),
             HEADER(fingerprint, "fingerprint"), HEADER(manifest, "manifest"),
             SHOWN(plan_hash, "plan"), HEADER(behaviour, "behaviour"),
             SETTING(seed, "seed", FIXED(0)), SHOWN_AS(in.n_prompts, "n_prompts", "prompts"),
             SHOWN(n_heldout, "of them held out"), SHOWN(skipped, "skipped"),
             SETTING(window, "window W", FIXED(0)),
             SETTING(continuation, "continuation C", FIXED(0)),
             SETTING(keep_window, "keep-window", FIXED(0)),
             SETTING(alpha, "score α", .make = alpha_of),
             SETTING(beta_bud, "gate penalty β", FIXED(0)), SHOWN(pass, "pass shown here"),
             SHOWN_AS(in.n_records, "records", "records of it"), {.fill = fill_setting},
             JSON_AS(in.tag, "tag"), JSON_AS(in.name, "name"), MEMBERS(plan),
             OBJECTS(passes, n_passes, pass_columns),
             JSON_AS(in.prompts, "prompts", OF(prompt_columns), BY(in.n_prompts)),
             JSON_AS(in.sources, "sources", .make = sources_of),
             JSON_AS(savings, "memo", OF(savings_columns), BY(n_sides), .as = AS_MEMBERS),
             JSON(coverage, OF(coverage_columns), .omit = true),
             OBJECTS(budgets, n_budgets, budget_columns));

/* ---- page ---- */

static void value_text(ckvc_buffer *b, const json_t *v) {
    const char *text = json_string_value(v);
    if (text) {
        bool is_hash = strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
        html_textf(b, is_hash ? "%.12s\u2026" : "%.400s", text);
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v) && i < 32; i++) {
            ckvc_buffer_text(b, i ? ", " : "");
            value_text(b, json_array_get(v, i));
        }
    } else if (json_is_number(v)) {
        html_textf(b, "%.10g", json_number_value(v));
    } else {
        html_text(b, json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "none");
    }
}

static void value_cell(ckvc_buffer *b, const json_t *v) {
    ckvc_buffer_text(b, "<td class=\"l\">");
    value_text(b, v);
    ckvc_buffer_text(b, "</td>");
}

/* Nested objects flattened as a.b; what the page shows elsewhere is left out. */
static void flat_rows(ckvc_buffer *b, const char *prefix, json_t *object, int depth) {
    const char *key;
    json_t *v;
    json_object_foreach(object, key, v) {
        if (depth == 0 && (strcmp(key, "diagnostics") == 0 || strcmp(key, "shape") == 0 ||
                           strcmp(key, "leak_check") == 0)) {
            continue;
        }
        CKVC_AUTO_FREE char *name = ckvc_format("%.120s%s%.120s", prefix, *prefix ? "." : "", key);
        if (json_is_object(v) && depth < 4) {
            flat_rows(b, name, v, depth + 1);
            continue;
        }
        html_row_begin(b);
        html_cell(b, 'n', "%s", name);
        value_cell(b, v);
        html_row_end(b);
    }
}

static void runs_table(const report_numbers *n, ckvc_buffer *b) {
    html_table_begin(b, "Runs");
    html_head(b, 0, "what");
    EACH(run_numbers, run, n->runs, n->n_runs) { html_head(b, 'l', "%s", run->in.title); }
    html_table_body(b);
    EACH(column, c, run_columns()->list, run_columns()->n) {
        if (!c->page) { continue; }
        html_row_begin(b);
        html_cell(b, 'n', "%s", c->page);
        EACH(run_numbers, run, n->runs, n->n_runs) {
            json_auto_t *value = column_json(c, run);
            value_cell(b, value);
        }
        html_row_end(b);
    }
    html_table_end(b);
}

void provenance_section(const report_numbers *n, view *v) {
    ckvc_buffer *b = page(v);
    page_note(
        v,
        "Hashes are shortened here and whole in report.json. Equal content ids mean equal tables.");
    page_table(v, "Tables", table_columns, n->tables, n->n_tables);
    if (n->n_runs) { runs_table(n, b); }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        page_heads(v, say("How %.200s %.60s was made", t->tag, t->name), "ll", "what", "value");
        flat_rows(b, "", t->f.meta, 0);
        if (t->f.xfer) { flat_rows(b, "transfer", t->f.xfer, 0); }
        html_table_end(b);
    }
}
