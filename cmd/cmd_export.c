/* ckvc export and ckvc import: tables and records in other programs' formats, and back
 * (formats/export). */
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "formats/export/export.h"

static ckvc_status format_named(const char *name, const char *names, const exchange_format **out,
                                ckvc_err *err) {
    *out = NULL;
    for (size_t i = 0; name && i < exchange_n_formats; i++) {
        if (!strcmp(name, exchange_formats[i].name)) { *out = &exchange_formats[i]; }
    }
    USAGE_IF(!*out, "--format: got %s, wanted one of %s", name ? name : "nothing", names);
    return CKVC_OK;
}

/* An option that is not this format's. */
static ckvc_status check_option(const char *option, const char *formats, const exchange_format *f,
                                ckvc_err *err) {
    USAGE_IF(opts_said(option) && !strstr(formats, f->name), "--%s is of --format %s, not of %s",
             option, formats, f->name);
    return CKVC_OK;
}
#define HEAD_NUMBERS "duo-attention, headkv, kvzip"

/* ---- export ---- */

typedef struct export_cli {
    const char *format, *out;
    opt_list budget;
    export_options export;
} export_cli;

static ckvc_status export_one(const export_cli *c, const exchange_format *f, const char *path,
                              ckvc_buffer *note, ckvc_err *err) {
    if (f->write_run) {
        CKVC_AUTO(run_close_at) run_dir *run = NULL;
        CKVC_TRY(run_open(path, &run, err));
        return f->write_run(run, &c->export, c->out, note, err);
    }
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(table_file_read(path, &t, err));
    return f->write_table(t, &c->export, c->out, note, err);
}

static ckvc_status export_table(const verb_call *call, ckvc_err *err) {
    export_cli *c = call->options;
    const exchange_format *f = NULL;
    double budgets[256];
    uint32_t n_budgets;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer note = {0};
    USAGE_IF(call->n != 1, "got %zu inputs, wanted one: ckvc export T.ckvt --format F --out PATH",
             call->n);
    CKVC_TRY(format_named(c->format, EXPORT_NAMES, &f, err));
    USAGE_IF(!c->out, "--out PATH is needed: the file or folder to write");
    CKVC_TRY(check_option("report", "safetensors", f, err));
    CKVC_TRY(check_option("length", "compilerkv", f, err));
    CKVC_TRY(check_option("budget", HEAD_NUMBERS, f, err));
    CKVC_TRY(check_option("full-share", "duo-attention", f, err));
    CKVC_TRY(inputs_budgets(&c->budget, budgets, &n_budgets, err));
    USAGE_IF(n_budgets > 1, "--budget: got %u budgets, wanted one", n_budgets);
    c->export.budget = n_budgets ? *budgets : 0.0;
    CKVC_TRY(export_one(c, f, call->items[0], &note, err));
    printf("%s: %s%s%s\n", c->out, f->name, note.size ? "; " : "",
           note.size ? (const char *)note.data : "");
    return CKVC_OK;
}

#define OPTIONS_OF export_cli
static const opt export_rows[] = {
    OPT_TEXT("format", format, EXPORT_NAMES, "what is written"),
    OPT_OUTPUT("out", out, "PATH", "the file or folder to write", .letter = 'o'),
    OPT_INPUT("report", export.report, "FILE",
              "safetensors: a report.json whose verdict the model card states"),
    OPT_INT("length", export.length, "T", 0, UINT32_MAX,
            "compilerkv: tokens of a prompt that budgets are shares of, where they are shares"),
    OPT_LIST("budget", budget, "B",
             HEAD_NUMBERS ": which of the table's budgets, where it has several"),
    OPT_DOUBLE("full-share", export.full_share, "S", 0, 1,
               "duo-attention: this share of heads is full (1), all others stream (0); 0: graded, "
               "for its --sparsity"),
    OPT_FLAG("force", export.force, "overwrite", .letter = 'f'),
    {0}};

const verb verb_export = {
    .name = "export",
    .about = "write a table, or a run's records, in another program's format",
    .usage = "ckvc export T.ckvt|RUN --format F --out PATH [options]",
    .examples =
        "  ckvc export t.ckvt --format safetensors --report report/report.json --out folder\n"
        "  ckvc export t.ckvt --format npz --out t.npz\n",
    VERB_OPTIONS(export_rows),
    .reads_args = true,
    .work = export_table};
#undef OPTIONS_OF

/* ---- import ---- */

typedef struct import_cli {
    const char *format, *out;
    import_options import;
    opt_list budget;
    bool force;
} import_cli;

static ckvc_status import_table(const verb_call *call, ckvc_err *err) {
    import_cli *c = call->options;
    const exchange_format *f = NULL;
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    double budgets[256];
    USAGE_IF(call->n != 1, "got %zu inputs, wanted one: ckvc import PATH --format F --out T.ckvt",
             call->n);
    CKVC_TRY(format_named(c->format, IMPORT_NAMES, &f, err));
    USAGE_IF(!f->read, "--format %s is written, never read: %s", f->name, f->why_not);
    USAGE_IF(!c->out, "--out FILE is needed: the table to write");
    CKVC_TRY(check_option("model", "compilerkv, " HEAD_NUMBERS, f, err));
    CKVC_TRY(check_option("budget", "compilerkv, " HEAD_NUMBERS, f, err));
    CKVC_TRY(check_option("c-min", HEAD_NUMBERS, f, err));
    c->import.budgets = budgets;
    CKVC_TRY(inputs_budgets(&c->budget, budgets, &c->import.n_budgets, err));
    CKVC_TRY(f->read(call->items[0], &c->import, &t, err));
    CKVC_TRY(table_file_write(t, c->out, c->force, err));
    printf("%s: %u layers x %u %s heads, content id %s\n", c->out, t->table->n_layers,
           t->table->n_heads, t->table->head_axis ? "query" : "KV", t->content_id);
    return CKVC_OK;
}

#define OPTIONS_OF import_cli
static const opt import_rows[] = {
    OPT_TEXT("format", format, IMPORT_NAMES, "what is read; gguf and records are written only"),
    OPT_OUTPUT("out", out, "FILE", "the table to write", .letter = 'o'),
    OPT_INPUT("model", import.model, "DIR",
              "whose heads the rows are, folder or GGUF file; only its shape is read"),
    OPT_LIST("budget", budget, "B,...", "the table's budgets, where the format has none"),
    OPT_DOUBLE("c-min", import.c_min, "F", 0, 1,
               HEAD_NUMBERS ": share of the budget that every head keeps", .preset = "0.2"),
    OPT_FLAG("force", force, "overwrite FILE", .letter = 'f'),
    {0}};

const verb verb_import = {
    .name = "import",
    .about = "make a table from another program's format",
    .usage = "ckvc import PATH --format F --out T.ckvt [options]",
    .examples = "  ckvc import folder --format safetensors --out t.ckvt\n"
                "  ckvc import compiled --format compilerkv --model DIR --out t.ckvt\n",
    VERB_OPTIONS(import_rows),
    .reads_args = true,
    .work = import_table};
