/* Where everything came from: files, models, plans, settings. */
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/sections/sections.h"

/* ---- columns ---- */

MAKE(head_axis_of, ckvc_table, json_string(o->head_axis ? "query head" : "KV head"))
MAKE(budgets_of, ckvc_table, ckvc_json_reals(o->budgets, o->n_budgets))
MAKE(entropy_of, ckvc_table, ckvc_json_reals(o->edges_entropy, o->n_entropy_bins - 1))
MAKE(perplexity_of, ckvc_table, ckvc_json_reals(o->edges_ppl, o->n_ppl_bins - 1))
TABLE(shape_columns, ckvc_table, COLUMN(ckvc_table, n_layers, .json = "layers"),
      COLUMN(ckvc_table, n_heads, .json = "heads"),
      LIST(ckvc_table, head_axis, .make = head_axis_of),
      COLUMN(ckvc_table, n_entropy_bins, .json = "entropy_bins"),
      COLUMN(ckvc_table, n_ppl_bins, .json = "perplexity_bins"), MEMBER(ckvc_table, window),
      LIST(ckvc_table, budgets, .make = budgets_of),
      LIST(ckvc_table, edges_entropy, .make = entropy_of),
      COLUMN(ckvc_table, edges_ppl, .json = "edges_perplexity", .make = perplexity_of));

static const char *text_in(const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}
SAY(content_of, table_numbers, say("%.12s…", o->f.content_id))
SAY(model_of, table_numbers, text_in(o->f.meta, "model_name"))
SAY(fingerprint_of, table_numbers, say("%.12s…", text_in(o->f.meta, "fingerprint")))
SAY(heads_of, table_numbers,
    say("%u × %u %ss", o->shape->n_layers, o->shape->n_heads,
        o->shape->head_axis ? "query head" : "KV head"))
SAY(bins_of, table_numbers,
    say("%u entropy × %u perplexity", o->shape->n_entropy_bins, o->shape->n_ppl_bins))
SAY(window_of, table_numbers, say("%u", o->shape->window))

SHARED_TABLE(table_columns, table_numbers, COLUMN(table_numbers, title, .page = "table"),
             MEMBERS(table_numbers, tag, name), NAMED(table_numbers, file, "file"),
             COLUMN(table_numbers, f.content_id, .json = "content_id", .page = "content id",
                    .say = content_of),
             COLUMN(table_numbers, f.meta, .page = "model", .say = model_of, .align = "ll"),
             COLUMN(table_numbers, f.meta, .page = "fingerprint", .say = fingerprint_of,
                    .align = "ll"),
             COLUMN(table_numbers, shape, .page = "layers × heads", .say = heads_of, .align = "ll"),
             COLUMN(table_numbers, shape, .page = "bins", .say = bins_of, .align = "ll"),
             COLUMN(table_numbers, shape, .page = "window", .say = window_of),
             SHOWN(table_numbers, run, "fitted from", ABSENT("not among the inputs")),
             COLUMN(table_numbers, f.meta, .json = "meta"),
             OBJECT(table_numbers, shape, shape_columns),
             OBJECTS(table_numbers, head, n_budgets, weight_columns),
             OBJECTS(table_numbers, gate, n_budgets, threshold_columns),
             LIST(table_numbers, evidence, OF(evidence_columns), BY(table_numbers, n_sides),
                  .as = AS_MEMBERS, WHEN(table_numbers, f.has_evidence)),
             COLUMN(table_numbers, trust, .json = "statistics", OF(trust_columns),
                    BY(table_numbers, n_sides), .as = AS_MEMBERS),
             COLUMN(table_numbers, leaks, .json = "leak_check", OF(leak_columns)),
             COLUMN(table_numbers, f.xfer, .json = "transfer", .omit = true));

TABLE(pass_columns, run_pass, MEMBERS(run_pass, name, complete),
      COLUMN(run_pass, n_prompts_done, .json = "prompts"));
TABLE(prompt_columns, input_prompt, MEMBERS(input_prompt, id, source, heldout, r_struct, r_sem),
      COLUMN(input_prompt, n_tokens, .json = "T"));

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

#define HEADER(m, head)       COLUMN(run_numbers, in.h.m, .json = #m, .page = head)
#define SETTING(m, head, ...) COLUMN(run_numbers, in.h.setting.m, .page = head, __VA_ARGS__)
/* The page has its page names down the side, a column for each run. */
SHARED_TABLE(run_columns, run_numbers,
             COLUMN(run_numbers, in.h.model_name, .json = "model", .page = "model"),
             HEADER(fingerprint, "fingerprint"), HEADER(manifest, "manifest"),
             NAMED(run_numbers, plan_hash, "plan"), HEADER(behaviour, "behaviour"),
             SETTING(seed, "seed", FIXED(0)),
             COLUMN(run_numbers, in.n_prompts, .json = "n_prompts", .page = "prompts"),
             NAMED(run_numbers, n_heldout, "of them held out"),
             NAMED(run_numbers, skipped, "skipped"), SETTING(window, "window W", FIXED(0)),
             SETTING(continuation, "continuation C", FIXED(0)),
             SETTING(keep_window, "keep-window", FIXED(0)),
             SETTING(alpha, "score α", .make = alpha_of),
             SETTING(beta_bud, "gate penalty β", FIXED(0)),
             NAMED(run_numbers, pass, "pass shown here"),
             COLUMN(run_numbers, in.n_records, .json = "records", .page = "records of it"),
             {.fill = fill_setting}, COLUMN(run_numbers, in.tag, .json = "tag"),
             COLUMN(run_numbers, in.name, .json = "name"), MEMBER(run_numbers, plan),
             OBJECTS(run_numbers, passes, n_passes, pass_columns),
             COLUMN(run_numbers, in.prompts, .json = "prompts", OF(prompt_columns),
                    BY(run_numbers, in.n_prompts)),
             COLUMN(run_numbers, in.sources, .json = "sources", .make = sources_of),
             COLUMN(run_numbers, savings, .json = "memo", OF(savings_columns),
                    BY(run_numbers, n_sides), .as = AS_MEMBERS),
             LIST(run_numbers, coverage, OF(coverage_columns), .omit = true),
             OBJECTS(run_numbers, budgets, n_budgets, budget_columns));

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
    for (size_t k = 0; k < run_columns.n; k++) {
        const column *c = &run_columns.list[k];
        if (!c->page) { continue; }
        html_row_begin(b);
        html_cell(b, 'n', "%s", c->page);
        EACH(run_numbers, run, n->runs, n->n_runs) {
            json_auto_t *v = column_json(c, run);
            value_cell(b, v);
        }
        html_row_end(b);
    }
    html_table_end(b);
}

void provenance_section(const report_numbers *n, view *v) {
    ckvc_buffer *b = &v->html;
    html_section_begin(b, "provenance", "Where this came from");
    html_details_begin(b, "Files, models, plans, settings");
    html_paragraph(
        b, "note",
        "Hashes are shortened here and whole in report.json. Equal content ids mean equal tables.");
    columns_table(b, "Tables", &table_columns, n->tables, n->n_tables);
    if (n->n_runs) { runs_table(n, b); }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        html_table_begin(b, say("How %.200s %.60s was made", t->tag, t->name));
        html_heads(b, "ll", "what", "value");
        flat_rows(b, "", t->f.meta, 0);
        if (t->f.xfer) { flat_rows(b, "transfer", t->f.xfer, 0); }
        html_table_end(b);
    }
    html_details_end(b);
    html_section_end(b);
}
