/* A table in words, as the README.md of a folder on a model hub. */

#include "formats/export/safetensors_folder.h"
#include "lib/base/json.h"

enum { REPORT_MAX = 256 << 20 };

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "unknown";
}

/* "0.125" as T/8 is said elsewhere: tokens from 1 up, a share below. */
static void append_budget(ckvc_buffer *b, double budget) {
    ckvc_buffer_printf(b, budget < 1.0 ? "%g of the prompt" : "%.0f tokens", budget);
}

/* A line of what the report found at one budget. */
static void append_verdict_row(ckvc_buffer *b, const json_t *at) {
    const json_t *loss = json_object_get(at, "loss"), *cache = json_object_get(at, "cache");
    ckvc_buffer_text(b, "| ");
    append_budget(b, json_number_value(json_object_get(at, "budget")));
    ckvc_buffer_printf(b, " | %s | ", text_of(at, "word"));
    if (json_is_number(json_object_get(loss, "mean"))) {
        ckvc_buffer_printf(b, "%.3f (%.3f to %.3f)",
                           json_number_value(json_object_get(loss, "mean")),
                           json_number_value(json_object_get(loss, "lo")),
                           json_number_value(json_object_get(loss, "hi")));
    }
    ckvc_buffer_printf(b, " | %.0f |", json_number_value(json_object_get(at, "prompts")));
    const double all = json_number_value(json_object_get(cache, "all_bytes")),
                 kept = json_number_value(json_object_get(cache, "bytes"));
    ckvc_buffer_printf(b, all > 0 ? " %.0f of %.0f |\n" : " |\n", kept, all);
}

static ckvc_status append_verdict(const table_file *t, const char *path, ckvc_buffer *b,
                                  ckvc_err *err) {
    json_auto_t *report = NULL;
    if (!path) {
        ckvc_buffer_text(
            b, "No report came with this table: whether it should be deployed is not known. Score "
               "it on prompts that chose nothing (`ckvc score`, `ckvc report`) first.\n\n");
        return CKVC_OK;
    }
    CKVC_TRY(ckvc_json_read(path, REPORT_MAX, &report, err));
    CKVC_REFUSE_IF(strcmp(text_of(report, "schema"), "ckvc-report-1") != 0, err, path,
                   "schema is %.40s, want ckvc-report-1 (a report.json of `ckvc report`)",
                   text_of(report, "schema"));
    const json_t *table, *found = NULL, *at;
    size_t i;
    json_array_foreach(json_object_get(report, "tables"), i, table) {
        if (!strcmp(text_of(table, "content_id"), t->content_id)) { found = table; }
    }
    CKVC_FAIL_IF(!found, err, CKVC_E_MISMATCH,
                 "%s: a report of other tables: none has the content id %s", path, t->content_id);
    const json_t *verdict = json_object_get(found, "verdict");
    ckvc_buffer_printf(
        b,
        "Its report's verdict: **%s**. %s. Loss is in nats per token over the full cache (95%% "
        "over documents).\n\n"
        "| budget | verdict | loss | prompts | cache, bytes a prompt (16-bit) |\n"
        "| --- | --- | --- | --- | --- |\n",
        text_of(verdict, "word"),
        json_is_true(json_object_get(verdict, "leak_passed"))
            ? "It was judged on prompts that share no text with those that it was made from"
            : "No check says that it was judged on prompts that share no text with those that it "
              "was made from");
    json_array_foreach(json_object_get(verdict, "budgets"), i, at) { append_verdict_row(b, at); }
    ckvc_buffer_text(b, "\n");
    return CKVC_OK;
}

static void append_prompts(ckvc_buffer *b, const json_t *meta) {
    const char *side;
    json_t *counts;
    ckvc_buffer_text(b, "## Where it comes from\n\n");
    json_object_foreach(json_object_get(meta, "counts"), side, counts) {
        const json_int_t n = json_integer_value(json_object_get(counts, "prompts"));
        if (n) { ckvc_buffer_printf(b, "- %s: fitted from %lld prompts\n", side, (long long)n); }
    }
    const json_t *leaks = json_object_get(meta, "leak_check");
    ckvc_buffer_printf(b, "- leak check of its prompts: %s\n- continuation: %lld tokens a prompt\n",
                       leaks ? "in META" : "none",
                       (long long)json_integer_value(json_object_get(meta, "continuation")));
    json_t *plans = json_object_get(meta, "plans");
    for (size_t i = 0; i < json_array_size(plans); i++) {
        const char *plan = json_string_value(json_array_get(plans, i));
        if (plan) { ckvc_buffer_printf(b, "- plan of a run: `%s`\n", plan); }
    }
}

ckvc_status model_card(const table_file *t, const char *report, ckvc_buffer *out, ckvc_err *err) {
    const ckvc_table *c = t->table;
    const json_t *meta = t->meta;
    ckvc_buffer_text(out, "---\nlibrary_name: ckvc\ntags:\n- kv-cache\n- kv-cache-compression\n"
                          "---\n\n");
    ckvc_buffer_printf(out, "# A KV-cache table for %s\n\n", text_of(meta, "model_name"));
    ckvc_buffer_printf(out,
                       "How much of its key-value cache each of the %u x %u %s heads of a %s model "
                       "needs after one prefill, and what is worth keeping there. Label: %s. Made "
                       "for the model with the fingerprint `%s`, and for no other.\n\n",
                       c->n_layers, c->n_heads, c->head_axis ? "query" : "KV",
                       text_of(meta, "family"), text_of(meta, "label"),
                       text_of(meta, "fingerprint"));
    CKVC_TRY(append_verdict(t, report, out, err));
    ckvc_buffer_text(out, "| budget | mode | score |\n| --- | --- | --- |\n");
    for (uint32_t b = 0; b < c->n_budgets; b++) {
        const ckvc_score s = ckvc_table_score(c, b);
        ckvc_buffer_text(out, "| ");
        append_budget(out, c->budgets[b]);
        ckvc_buffer_printf(out, " | %s | %s |\n", ckvc_mode_name((ckvc_mode)s.mode),
                           ckvc_score_name((ckvc_score_kind)s.kind));
    }
    ckvc_buffer_text(out, "\n");
    append_prompts(out, meta);
    ckvc_buffer_printf(
        out,
        "\n## Use\n\n`model.safetensors` holds the sections of a ckvc table, `META` its "
        "description as JSON text; `table.ckvt` is the same table, content id `%s`, as engines "
        "read it (in Python `ckvc.Table.read`, `CompilerKVPress.from_pretrained`).\n",
        t->content_id);
    return CKVC_OK;
}
