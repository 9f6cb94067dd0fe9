/* --table, --policy, --budget: see chosen_policies.h. */
#include "cmd/common/chosen_policies.h"

#include <assert.h>

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
             "other reference with " POLICY_FIT "; full@q4_0 holds what full keeps in this format, "
             "and cake@q8_0/q4_0 keys and values in two"),
    OPT_FLAG("equal-tokens", equal_tokens,
             "Let references keep as many entries as each --table, in each prompt and layer."),
    OPT_BUDGETS(budget, "N,...",
                "Keep N entries per layer and KV head on average, or below 1 this share of the "
                "prompt; without this option the budgets are the first table's."),
    OPT_BYTES(bytes, "S,...",
              "Keep what fits into this share of the bytes that the whole cache takes in 16 bits: "
              "as many entries, in such formats, as each --table says of it, or without a table as "
              "many as fit in the formats of --cache-keys and --cache-values."),
    {0}};

ckvc_status policies_open_kvzip(const policies_options *o, const inputs_options *inputs,
                                opened_inputs *e, ckvc_err *err) {
    for (size_t i = 0; i < o->names.n; i++) {
        named_policy named;
        CKVC_TRY(policy_named(o->names.items[i], &named, err));
        if (named.kind == POLICY_KVZIP && !e->instruction) {
            CKVC_TRY(inputs_open_kvzip(inputs, e, err));
        }
    }
    return CKVC_OK;
}

ckvc_status policy_named(const char *text, named_policy *out, ckvc_err *err) {
    const char *at = strchr(text, '@'), *name = out->name;
    *out = (named_policy){.has_formats = at != NULL};
    snprintf(out->name, sizeof out->name, "%.*s", at ? (int)(at - text) : (int)strlen(text), text);
    USAGE_IF(at && !cache_formats_named(at + 1, &out->formats),
             "--policy: got '%s', wanted behind @ one of the formats " CACHE_FORMAT_NAMES
             ", or two of them with / between, of keys and values",
             text);
    nearest near = {.word = name};
    for (policy_kind k = POLICY_TABLE + 1; k < POLICY_KIND_COUNT; k++) {
        nearest_try(&near, policy_kind_name(k));
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean '", "'?");
    out->kind = policy_kind_named(name);
    out->fitted = policy_is_fitted(name);
    USAGE_IF(out->kind >= POLICY_KIND_COUNT || out->kind == POLICY_TABLE,
             "--policy: got '%s', wanted " POLICY_NAMES "%s", name, hint);
    USAGE_IF(out->fitted && !policy_is_reference(out->kind),
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
    out->named = ckvc_calloc(o->names.n, sizeof *out->named);
    for (size_t i = 0; i < o->names.n; i++) {
        const char *name = o->names.items[i];
        named_policy *named = &out->named[i];
        CKVC_TRY(policy_named(name, named, err));
        for (size_t k = 0; k < i; k++) {
            USAGE_IF(strcmp(o->names.items[k], name) == 0, "--policy: %s is given twice", name);
        }
        const policy_kind kind = named->kind;
        const bool fitted = named->fitted, given = beside_each_table(o, kind),
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
            out->list[out->n++] =
                (asked_policy){.kind = kind,
                               .table = given ? out->tables[t] : NULL,
                               .bank = fitted ? out->tables[t] : NULL,
                               .name = fitted ? named->name : NULL,
                               .formats = named->has_formats ? &named->formats : NULL};
        }
    }
    for (size_t t = 0; t < out->n_tables; t++) {
        out->list[out->n++] = (asked_policy){.kind = POLICY_TABLE, .table = out->tables[t]};
    }
    return CKVC_OK;
}

/* Were formats asked for by --cache-keys or --cache-values? */
static bool formats_given(void) { return opts_given("cache-keys") || opts_given("cache-values"); }

/* Finds the number of the budget that a table chose for this share of the bytes. */
static ckvc_status byte_budget(const table_file *f, const char *path, double share, uint32_t *out,
                               ckvc_err *err) {
    const ckvc_table *t = f->table;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer has = {0};
    for (uint32_t b = 0; t->byte_share && b < t->n_budgets; b++) {
        *out = b;
        if (t->byte_share[b] == share) { return CKVC_OK; }
        ckvc_buffer_printf(&has, "%s%.10g", has.size ? ", " : "", t->byte_share[b]);
    }
    USAGE_IF(
        !t->byte_share,
        "%s: no budget of it was chosen in bytes: compile it with --bytes, or count entries by "
        "--budget",
        path);
    return ckvc_fail(err, CKVC_E_USAGE, "--bytes %.10g: %s has budgets for these shares: %s", share,
                     path, (char *)has.data);
}

ckvc_status bytes_budgets(const budget_list *bytes, const inputs_options *inputs,
                          table_file *const *tables, const char *const *paths, size_t n,
                          held_budgets *out, ckvc_err *err) {
    char text[CACHE_FORMATS_TEXT];
    assert(out->head_dim > 0);
    USAGE_IF(opts_said("budget"), "--bytes counts bytes and --budget entries: give one of them");
    USAGE_IF(
        n && formats_given(),
        "--bytes takes the formats that %s says: leave out --cache-keys and --cache-values, or "
        "count entries by --budget",
        paths[0]);
    USAGE_IF(bytes->n > PROMPT_SETS_MAX_BUDGETS, "--bytes: got %u shares, wanted at most %d",
             bytes->n, PROMPT_SETS_MAX_BUDGETS);
    for (out->n = 0; out->n < bytes->n; out->n++) {
        const double share = bytes->items[out->n];
        double *budget = &out->budgets[out->n];
        cache_formats *held = &out->held[out->n];
        *held = setting_formats(&inputs->setting);
        *budget = cache_entries_share(share, *held, out->head_dim);
        for (size_t t = 0; t < n; t++) {
            uint32_t b = 0;
            CKVC_TRY(byte_budget(tables[t], paths[t], share, &b, err));
            const cache_formats its = table_file_held(tables[t], b);
            const double entries = tables[t]->table->budgets[b];
            USAGE_IF(t > 0 && (entries != *budget || its.keys != held->keys ||
                               its.values != held->values),
                     "--bytes %.10g: %s and %s say different entries or formats of it: score them "
                     "in runs of their own",
                     share, paths[0], paths[t]);
            *budget = entries;
            *held = its;
        }
        USAGE_IF(
            !n && *budget >= 1,
            "--bytes %.10g: the whole cache takes %.3g of the bytes in %s: give a smaller share",
            share, share / *budget, cache_formats_name(*held, text));
    }
    return CKVC_OK;
}

/* Refuses policies that keep the same and hold it alike, whose lines nobody could tell apart. */
static ckvc_status check_repeated(const inputs_options *inputs, const chosen_policies *p,
                                  ckvc_err *err) {
    const policy_choice choice = {
        .list = p->list, .n = p->n, .setting = inputs->setting, .held = p->held};
    for (size_t c = 0; c < p->n * p->n * p->budgets.n; c++) {
        const size_t i = c / p->budgets.n / p->n, k = c / p->budgets.n % p->n;
        const uint32_t b = (uint32_t)(c % p->budgets.n);
        const asked_policy *x = &p->list[i], *y = &p->list[k];
        const cache_formats f = policy_formats(&choice, i, b), g = policy_formats(&choice, k, b);
        USAGE_IF(i < k && x->kind == y->kind && x->kind != POLICY_TABLE && x->table == y->table &&
                     x->bank == y->bank && f.keys == g.keys && f.values == g.values,
                 "--policy: %s is given twice in the same formats", asked_policy_name(x));
    }
    return CKVC_OK;
}

ckvc_status policies_budgets(const policies_options *o, const inputs_options *inputs,
                             const opened_inputs *e, chosen_policies *out, ckvc_err *err) {
    held_budgets *by = &out->by_bytes;
    by->head_dim = model_get_shape(e->model)->head_dim;
    out->budgets = (setting_list){o->budget.items, o->budget.n};
    if (o->bytes.n) {
        CKVC_TRY(
            bytes_budgets(&o->bytes, inputs, out->tables, o->tables.items, out->n_tables, by, err));
        out->budgets = (setting_list){by->budgets, by->n};
        out->held = by->held;
    } else if (out->n_tables && !opts_given("budget")) {
        const table_file *f = out->tables[0];
        const ckvc_table *t = f->table;
        USAGE_IF(t->n_budgets > PROMPT_SETS_MAX_BUDGETS,
                 "%s: has %u budgets, and one run takes at most %d; name some with --budget",
                 o->tables.items[0], t->n_budgets, PROMPT_SETS_MAX_BUDGETS);
        out->budgets = (setting_list){t->budgets, t->n_budgets};
        for (uint32_t b = 0; b < t->n_budgets; b++) { by->held[b] = table_file_held(f, b); }
        out->held = t->held && !formats_given() ? by->held : NULL;
    }
    return check_repeated(inputs, out, err);
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
    CKVC_FREE(p->list, p->named);
}
