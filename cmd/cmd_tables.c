/* ckvc tables lists the tables that come with the program, says more of one, or writes it. */
#include "cmd/common/json_text.h"
#include "cmd/common/shipped_tables.h"
#include "cmd/common/table_uses.h"
#include "cmd/verbs.h"
#include "formats/table/table_file.h"
#include "lib/base/files.h"

enum { SHIPPED_MAX_BYTES = 64 << 20 };

typedef struct tables_cli {
    const char *out;
    bool force, json;
} tables_cli;

static const char list_form[] =
    "{.#{name}: for {model} ({model_licence}), made from {made_from}\n"
    "{serves?  served by {serves}\n}"
    "  {bytes} bytes, licence {licence}, content id {content_id:.12s}...\n"
    "  from prompts of {lengths.0} to {lengths.1} tokens{one?, by scripts/tables.sh:\n    "
    "{made}}\n"
    "{losses#  budget {budget:-7.3g} KL {kl:.3f} on {prompts} prompts"
    "{kl_one_length?, with one length for all {kl_one_length:.3f}}"
    "{byte_share?, at {byte_share:g} of the bytes}"
    "{right?, {right:.3f} of RULER's questions right}\n}"
    "{right_whole?  with the whole cache {right_whole:.3f} of RULER's questions are right\n}}"
    "KL says how far the next token's distribution is from that with the whole cache, in nats per "
    "token. The prompts are others than those from which tables were made.\n"
    "{one!In transformers ckvc.hf.compress(model, budget=0.25) takes the table of its model by "
    "itself, and so does vLLM. ckvc tables NAME says more of one, and which lines serve it in each "
    "engine; with --out T.ckvt it writes the table.\n}";

/* Prints which lines serve an entry's table, which they call `path`. */
static ckvc_status print_uses(const json_t *entry, const char *path, ckvc_err *err) {
    const char *file = json_string_value(json_object_get(entry, "file"));
    CKVC_AUTO(table_file_free_at) table_file *table = NULL;
    CKVC_TRY(table_file_read(file, &table, err));
    json_auto_t *uses = table_uses(table, path, "DIR");
    table_uses_print(stdout, uses);
    return CKVC_OK;
}

/* Returns the entry of that name, which `all` owns, or NULL. `names` receives all names. */
static json_t *find_entry(const json_t *all, const char *name, ckvc_buffer *names) {
    json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *entry = json_array_get(all, i);
        const char *known = json_string_value(json_object_get(entry, "name"));
        ckvc_buffer_printf(names, "%s%s", i ? ", " : "", known);
        found = strcmp(known, name) == 0 ? entry : found;
    }
    return found;
}

/* Writes the bytes of an entry's table to --out, once they are found to be the table that
 * tables.json describes. */
static ckvc_status write_table(const tables_cli *c, json_t *entry, ckvc_err *err) {
    const char *file = json_string_value(json_object_get(entry, "file"));
    const char *id = json_string_value(json_object_get(entry, "content_id"));
    CKVC_AUTO(table_file_free_at) table_file *table = NULL;
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    CKVC_TRY(table_file_read(file, &table, err));
    FAIL_IF(strcmp(table->content_id, id) != 0, CKVC_E_DATA,
            "%s: content id %.12s..., but tables.json says %.12s...: install the program again",
            file, table->content_id, id);
    CKVC_TRY(ckvc_file_read(file, SHIPPED_MAX_BYTES, &bytes, &n, err));
    CKVC_TRY(ckvc_publish_bytes(c->out, bytes, n, c->force, err));
    json_t *written = json_copy(entry);
    json_object_set_new(written, "file", json_string(c->out));
    result_print(c->json, stdout,
                 "{file}: {name}, for {model}, {bytes} bytes, content id {content_id}\n", written,
                 NULL);
    return c->json ? CKVC_OK : print_uses(entry, c->out, err);
}

static ckvc_status tables(const verb_call *call, ckvc_err *err) {
    const tables_cli *c = call->options;
    USAGE_IF(call->n > 1, "got %zu names, wanted one: ckvc tables NAME --out T.ckvt", call->n);
    USAGE_IF(call->n == 0 && c->out, "which table? ckvc tables lists them");
    json_auto_t *all = NULL;
    CKVC_TRY(shipped_tables_read(&all, err));
    if (call->n == 0) {
        result_print(c->json, stdout, list_form, json_incref(all), NULL);
        return CKVC_OK;
    }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer names = {0};
    json_t *entry = find_entry(all, call->items[0], &names);
    FAIL_IF(!entry, CKVC_E_USAGE, "%s: no table of that name comes with the program; there are %s",
            call->items[0], names.size ? (const char *)names.data : "none");
    if (c->out) { return write_table(c, entry, err); }
    result_print(c->json, stdout, list_form, json_pack("[O]", entry),
                 json_pack("{s:b}", "one", true));
    return c->json ? CKVC_OK : print_uses(entry, call->items[0], err);
}

#define OPTIONS_OF tables_cli
static const opt rows[] = {
    OPT_OUTPUT("out", out, "FILE", "Write the table to this file.", .letter = 'o'),
    OPT_FLAG("force", force, "Overwrite the file of --out.", .letter = 'f'),
    OPT_FLAG("json", json, "Print the result as JSON."),
    {0}};

const verb verb_tables = {.name = "tables",
                          .about = "list the tables that come with the program, or write one",
                          .usage = "ckvc tables [NAME [--out T.ckvt]]",
                          .examples = "  ckvc tables\n"
                                      "  ckvc tables smollm2-135m\n"
                                      "  ckvc tables smollm2-135m --out smollm2.ckvt\n",
                          VERB_OPTIONS(rows),
                          .work = tables};
