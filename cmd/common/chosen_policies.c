/* --table, --policy, --budget: see chosen_policies.h. */
#include "cmd/common/chosen_policies.h"

#include "lib/base/utf8.h"

/* The names that --policy takes, as help and messages list them. */
#define NAME(ID, id, name, ...) name ", "
#define POLICY_NAMES                                                                               \
    POLICY_RULES(NAME)                                                                             \
    "identity; of each table: " POLICY_TABLE_RULES(                                                \
        NAME) "matched, no-utility, no-threshold, mean-gate, mean-pool, head-only, gate-only"

void policies_explain(void) {
    tell("\nThese references can be named. A policy that has `seen` the question ranks by the "
         "attention of the prompt's last rows,\n"
         "and so serves the question that stands there. It keeps exactly as many entries as it is "
         "told, or about as many. Beside the\n"
         "prefill it costs what the fourth column names.\n");
    for (policy_kind kind = 0; kind < POLICY_KIND_COUNT; kind++) {
        const policy_properties *is = policy_properties_of(kind);
        if (!is->source) { continue; }
        tell("  %-20s %-7s %-8s %-22s %s\n", policy_kind_name(kind),
             is->query_aware ? "seen" : "unseen", is->exact ? "as many" : "about",
             is->cost ? is->cost : "nothing", is->source);
    }
}

#define OPTIONS_OF policies_options
const opt opts_policies[] = {
    OPT_TITLE("policies"),
    OPT_INPUTS("table", tables, "T.ckvt,...", "Run these tables."),
    OPT_LIST("policy", names, "NAME,...",
             "Also run these policies: " POLICY_NAMES "; cake" POLICY_FIT
             " is cake with entries that are fitted by the bank of each table, and so is every "
             "other reference with " POLICY_FIT),
    OPT_FLAG("equal-tokens", equal_tokens,
             "Let references keep as many entries as each --table, in each prompt and layer."),
    OPT_BUDGETS(budget, "N,...",
                "Keep N entries per layer and KV head on average, or below 1 this share of the "
                "prompt; without this option the budgets are the first table's."),
    {0}};

ckvc_status policies_open_kvzip(const policies_options *o, const inputs_options *inputs,
                                opened_inputs *e, ckvc_err *err) {
    for (size_t i = 0; i < o->names.n; i++) {
        if (policy_kind_named(o->names.items[i]) == POLICY_KVZIP && !e->instruction) {
            CKVC_TRY(inputs_open_kvzip(inputs, e, err));
        }
    }
    return CKVC_OK;
}

ckvc_status policy_named(const char *name, policy_kind *kind, ckvc_err *err) {
    nearest near = {.word = name};
    for (policy_kind k = POLICY_TABLE + 1; k < POLICY_KIND_COUNT; k++) {
        nearest_try(&near, policy_kind_name(k));
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean '", "'?");
    *kind = policy_kind_named(name);
    USAGE_IF(*kind >= POLICY_KIND_COUNT || *kind == POLICY_TABLE,
             "--policy: got '%s', wanted " POLICY_NAMES "%s", name, hint);
    USAGE_IF(policy_is_fitted(name) && !policy_is_reference(*kind),
             "--policy: got '%s', and only references can be fitted by a table's bank", name);
    return CKVC_OK;
}

/* Does this policy stand once beside each table, or once beside all of them? */
static bool beside_each_table(const policies_options *o, policy_kind kind) {
    return kind == POLICY_MATCHED || policy_is_control(kind) || policy_needs_table(kind) ||
           (o->equal_tokens && policy_is_reference(kind));
}

ckvc_status policies_open(const policies_options *o, const inputs_options *inputs,
                          const opened_inputs *e, chosen_policies *out, ckvc_err *err) {
    USAGE_IF(o->tables.n > MAX_TABLES, "--table: got %zu tables, wanted at most %d", o->tables.n,
             MAX_TABLES);
    for (; out->n_tables < o->tables.n; out->n_tables++) {
        CKVC_TRY(inputs_read_table(inputs, e, o->tables.items[out->n_tables],
                                   &out->tables[out->n_tables], err));
    }
    out->list = ckvc_calloc((out->n_tables + 1) * (o->names.n + 1), sizeof *out->list);
    for (size_t i = 0; i < o->names.n; i++) {
        const char *name = o->names.items[i];
        policy_kind kind;
        CKVC_TRY(policy_named(name, &kind, err));
        for (size_t k = 0; k < i; k++) {
            USAGE_IF(strcmp(o->names.items[k], name) == 0, "--policy: %s is given twice", name);
        }
        const bool fitted = policy_is_fitted(name), given = beside_each_table(o, kind),
                   each = given || fitted;
        USAGE_IF(fitted && o->equal_tokens,
                 "--policy %s: does not go with --equal-tokens; leave out one of the two", name);
        USAGE_IF(each && out->n_tables == 0, "--policy %s%s needs a --table", name,
                 policy_is_reference(kind) && !policy_needs_table(kind) && !fitted
                     ? " with --equal-tokens"
                     : "");
        for (size_t t = 0; t < (each ? out->n_tables : 1); t++) {
            USAGE_IF(fitted && !out->tables[t]->table->bank,
                     "--policy %s: %s has no bank; fit the table again from a demand pass that "
                     "logged queries",
                     name, o->tables.items[t]);
            out->list[out->n++] = (asked_policy){.kind = kind,
                                                 .table = given ? out->tables[t] : NULL,
                                                 .bank = fitted ? out->tables[t] : NULL,
                                                 .name = fitted ? name : NULL};
        }
    }
    for (size_t t = 0; t < out->n_tables; t++) {
        out->list[out->n++] = (asked_policy){.kind = POLICY_TABLE, .table = out->tables[t]};
    }
    return CKVC_OK;
}

ckvc_status policies_budgets(const policies_options *o, chosen_policies *out, ckvc_err *err) {
    out->budgets = (setting_list){o->budget.items, o->budget.n};
    if (out->n_tables && !opts_given("budget")) {
        const ckvc_table *t = out->tables[0]->table;
        USAGE_IF(t->n_budgets > PROMPT_SETS_MAX_BUDGETS,
                 "%s: has %u budgets, and one run takes at most %d; name some with --budget",
                 o->tables.items[0], t->n_budgets, PROMPT_SETS_MAX_BUDGETS);
        out->budgets = (setting_list){t->budgets, t->n_budgets};
    }
    return CKVC_OK;
}

json_t *policies_settings(const chosen_policies *of, const opened_inputs *e) {
    /* These options do not decide what the lines say. The last two are of `ckvc eval`: what they
     * decide is in the hash of its items. */
    static const char *const others[] = {"out",     "force",   "resume",  "quiet",   "json",
                                         "memory",  "threads", "backend", "batch",   "limit-time",
                                         "vectors", "cost",    "items",   "haystack"};
    json_t *o = opts_json();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) { json_object_del(o, others[i]); }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer tables = {0};
    for (size_t i = 0; i < of->n_tables; i++) {
        ckvc_buffer_printf(&tables, "%s%s", i ? "," : "", of->tables[i]->content_id);
    }
    if (tables.size) { json_object_set_new(o, "table", json_string((char *)tables.data)); }
    json_object_set_new(o, "model", json_string(model_fingerprint(e->model)));
    json_object_set_new(o, "kernel", json_string(e->be->kernel));
    json_object_set_new(o, "program", json_string(CKVC_VERSION));
    return o;
}

ckvc_status policies_end_lines(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed, bool quiet,
                               ckvc_err *err) {
    if (!o->out && (st == CKVC_OK || st == CKVC_E_STOPPED)) {
        fwrite(lines->data, 1, lines->size, stdout);
    }
    CKVC_TRY(durable_output_end(o, lines, st, why, printed, err));
    if (o->part.count && !quiet) {
        say("wrote %s; when all parts are there: ckvc merge %s\n", o->path, o->out);
    }
    return CKVC_OK;
}

void policies_close(chosen_policies *p) {
    for (size_t i = 0; i < p->n_tables; i++) { table_file_free(p->tables[i]); }
    free(p->list);
}
