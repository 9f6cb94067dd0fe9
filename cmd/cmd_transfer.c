/* ckvc transfer maps a table to another model's layers and heads (paper.md section 9), and reports
 * how it does there. */
#include "cql/transfer/transfer_table.h"
#include "cmd/score_and_report.h"
#include "cmd/common/json_text.h"
#include "cmd/verbs.h"
#include "formats/model/model_files.h"
#include "lib/base/files.h"

typedef struct transfer_cli {
    const char *to_model, *to_shape, *out, *scan;
    transfer_heads_kind heads;
    bool force, force_mapping, json;
    /* of the report: the new table is compared with one compiled for the target, and with identity
     */
    const char *report, *against, *manifest;
    opt_list scores, split;
} transfer_cli;

static ckvc_status parse_shape(const char *text, transfer_target *to, ckvc_err *err) {
    char *comma, *end;
    const unsigned long L = strtoul(text, &comma, 10),
                        G = *comma == ',' ? strtoul(comma + 1, &end, 10) : 0;
    USAGE_IF(L < 1 || G < 1 || *end || L > CKVC_TABLE_MAX_EXTENT || G > CKVC_TABLE_MAX_EXTENT,
             "--to-shape: got '%s', wanted LAYERS,HEADS, each 1 to %u", text,
             CKVC_TABLE_MAX_EXTENT);
    to->n_layers = (uint32_t)L;
    /* --to-shape does not say how many query heads share a KV head; no mapping depends on it */
    to->n_heads = to->n_query_heads = (uint32_t)G;
    return CKVC_OK;
}

/* Reads the target's shape and names. *to points into *name and family [16]; the caller frees
 * *name.
 */
static ckvc_status read_target(const transfer_cli *c, const ckvc_table *from, transfer_target *to,
                               char **name, char *family, ckvc_err *err) {
    if (c->to_shape) { return parse_shape(c->to_shape, to, err); }
    model_shape shape;
    CKVC_TRY(model_files_shape(c->to_model, &shape, err));
    to->n_layers = (uint32_t)shape.n_layers;
    to->n_query_heads = (uint32_t)shape.n_heads;
    to->n_heads = from->head_axis ? to->n_query_heads : (uint32_t)shape.n_kv_heads;
    memcpy(family, shape.family, sizeof shape.family);
    to->family = family;
    to->model_name = *name = ckvc_path_name(c->to_model);
    return CKVC_OK;
}

static void print_result(const transfer_cli *c, const table_file *out) {
    json_t *o = json_pack("{s:s, s:s, s:O}", "file", c->out, "content_id", out->content_id,
                          "transfer", out->xfer);
    result_print(c->json, stdout,
                 "{file}: {transfer.source_shape.0} layers x {transfer.source_shape.1} heads -> "
                 "{transfer.target_shape.0} x {transfer.target_shape.1}, heads by "
                 "{transfer.heads}, content id {content_id}\n",
                 o, NULL);
}

/* ---- what it brings there ---- */

/* Refuses options and tables that do not go together, before the work begins. */
static ckvc_status check_report(const transfer_cli *c, const table_file *from, ckvc_err *err) {
    USAGE_IF(c->manifest && !c->to_model,
             "--manifest needs --to-model DIR: prompts are scored with the target");
    if (!c->against) { return CKVC_OK; }
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(table_file_read(c->against, &t, err));
    FAIL_IF(t->table->head_axis != from->table->head_axis, CKVC_E_MISMATCH,
            "%s: its rows are %s heads, those of the transferred table are not", c->against,
            t->table->head_axis ? "query" : "KV");
    const setting made = setting_of_table(t->table, t->meta),
                  ours = setting_of_table(from->table, from->meta);
    return setting_match(&made, c->against, &ours, "the transferred table", SETTING_SCORE,
                         "transfer one that has --", err);
}

/* Scores both tables and identity under the transferred table's own settings, with the lines that
 * `ckvc score` would write. */
static ckvc_status write_scores(const transfer_cli *c, const table_file *table, const char *scores,
                                ckvc_err *err) {
    score_cli s;
    CKVC_TRY(verb_values(&verb_score, &s, err));
    s.inputs.model = c->to_model;
    s.inputs.manifest = c->manifest;
    if (c->split.n) { s.inputs.split = c->split; }
    s.inputs.setting = setting_of_table(table->table, table->meta);
    s.inputs.setting.compute = CKVC_COMPUTE_F32;
    s.c_min = -1;
    s.of.tables = (opt_list){{c->out, c->against}, c->against ? 2 : 1};
    s.of.names = (opt_list){{"identity", "matched"}, 2};
    s.out = scores;
    s.score.force = c->force;
    return score_run(&s, err);
}

static ckvc_status write_report(const transfer_cli *c, const table_file *table, ckvc_err *err) {
    CKVC_AUTO_FREE char *scores = ckvc_path_join(c->report, "scores.jsonl");
    report_cli r;
    CKVC_TRY(ckvc_make_dirs(c->report, err));
    if (c->manifest) { CKVC_TRY(write_scores(c, table, scores, err)); }
    CKVC_TRY(verb_values(&verb_report, &r, err));
    r.scores = c->scores;
    if (c->manifest && r.scores.n < sizeof r.scores.items / sizeof *r.scores.items) {
        r.scores.items[r.scores.n++] = scores;
    }
    r.report.out = c->report;
    r.report.force = c->force;
    return report_run(&r, (const char *const[]){c->out, c->against}, c->against ? 2 : 1, err);
}

/* ---- the verb ---- */

static ckvc_status check_options(const transfer_cli *c, const verb_call *call, ckvc_err *err) {
    USAGE_IF(call->n != 1,
             "got %zu tables, wanted one: ckvc transfer T.ckvt --to-model DIR --out T2.ckvt",
             call->n);
    USAGE_IF(c->to_model && c->to_shape, "wanted one of --to-model DIR and --to-shape L,G");
    USAGE_IF(!c->to_model && !c->to_shape && !c->scan,
             "wanted a target: --to-model DIR, --to-shape L,G or --scan RUN");
    return c->out ? CKVC_OK
                  : ckvc_fail(err, CKVC_E_USAGE, "--out FILE is needed: the table to write");
}

static ckvc_status transfer(const verb_call *call, ckvc_err *err) {
    const transfer_cli *c = call->options;
    CKVC_TRY(check_options(c, call, err));
    const char *path = call->items[0];
    CKVC_AUTO(table_file_free_at) table_file *from = NULL;
    CKVC_AUTO(table_file_free_at) table_file *out = NULL;
    CKVC_AUTO(run_close_at) run_dir *scan = NULL;
    CKVC_AUTO_FREE char *name = NULL;
    char family[sizeof((model_shape *)0)->family] = "";
    transfer_target to = {0};
    CKVC_TRY(table_file_read(path, &from, err));
    if (c->scan) { CKVC_TRY(run_open(c->scan, &scan, err)); }
    if (c->to_model || c->to_shape) {
        CKVC_TRY(read_target(c, from->table, &to, &name, family, err));
    }
    if (c->report) { CKVC_TRY(check_report(c, from, err)); }
    const transfer_options o = {.heads = c->heads, .scan = scan, .force = c->force_mapping};
    CKVC_TRY(transfer_table(from, path, to.n_layers ? &to : NULL, &o, &out, err));
    CKVC_TRY(table_file_write(out, c->out, c->force, err));
    print_result(c, out);
    return c->report ? write_report(c, out, err) : CKVC_OK;
}

#define OPTIONS_OF transfer_cli
static const opt rows[] = {
    OPT_INPUT(
        "to-model", to_model, "DIR",
        "Map to the shape of this model, a directory or a GGUF file; nothing else of it is read."),
    OPT_TEXT("to-shape", to_shape, "L,G", "Map to L layers of G KV heads, without a model."),
    OPT_OUTPUT("out", out, "FILE", "Write the table to this file.", .letter = 'o'),
    OPT_ENUM("heads", heads, "index|rank|signature",
             "Match heads by position (index), give the sorted weights to the heads in order of "
             "the spread of their value norms (rank), or match by three statistics of each head "
             "(signature)."),
    OPT_INPUT("scan", scan, "RUN",
              "Take the target's shape, bin edges and statistics of heads from this run's scan or "
              "demand pass."),
    OPT_FLAG("force-mapping", force_mapping,
             "Warn where a mapping makes no sense, instead of refusing it."),
    OPT_FLAG("force", force, "Overwrite the file of --out.", .letter = 'f'),
    OPT_FLAG("json", json, "Print the result as JSON."),
    OPT_TITLE("what it brings there"),
    OPT_OUTPUT("report", report, "DIR",
               "Write a report of the new table to this folder, as `ckvc report` does."),
    OPT_INPUT("against", against, "T3.ckvt",
              "Also compare in the report with this table, which was compiled for the target."),
    OPT_INPUT("manifest", manifest, "FILE",
              "Score both tables and identity on these prompts; this needs --to-model."),
    OPT_LIST("split", split, "NAME,...", "Take only the prompts of these splits."),
    OPT_INPUTS("scores", scores, "S.jsonl,...",
               "Use these lines of `ckvc score`, which were made before, in the report."),
    {0}};

const verb verb_transfer = {
    .name = "transfer",
    .about = "map a table to another model by relative depth",
    .usage = "ckvc transfer T.ckvt (--to-model DIR | --to-shape L,G | --scan RUN) --out T2.ckvt "
             "[options]",
    .examples =
        "  ckvc transfer tables.ckvt --to-model models/small --out small.ckvt\n"
        "  ckvc transfer tables.ckvt --to-shape 24,8 --out mapped.ckvt\n"
        "  ckvc transfer tables.ckvt --heads signature --scan small-scan --out small.ckvt\n"
        "  ckvc transfer tables.ckvt --to-model models/small --out small.ckvt --report report \\\n"
        "      --against compiled.ckvt --manifest heldout.jsonl\n",
    VERB_OPTIONS(rows),
    .reads_args = true,
    .work = transfer};
