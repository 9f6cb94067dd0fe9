/* ckvc report: tables, runs and scores as one page. */
#include "cmd/score_and_report.h"

#include <ctype.h>
#include <stdio.h>

#include "cmd/common/json_text.h"
#include "cmd/common/table_uses.h"
#include "cmd/verbs.h"
#include "formats/table/table_layout.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/form.h"
#include "lib/base/memory.h"
#include "report/report.h"

/* ---- the card of a table ---- */

/* A table's object of report.json fills this form, and beside it what write_card adds. */
#define TOKENS_FORM "{budget<1?{budget:.4g} of the prompt}{budget<1!{budget:.0f} tokens}"
#define LOSS_FORM   "{mean?{mean:.3f}}{lo? ({lo:.3f} to {hi:.3f})}"
static const char card_form[] =
    "---\nlicense: {licence}\n{base_model?base_model: {base_model}\n}library_name: ckvc\n"
    "tags:\n- kv-cache\n- kv-cache-compression\n---\n\n# A KV-cache table for "
    "`{meta.model_name|unknown}`\n\n"
    "This table says which entries of a prompt's key-value cache a model keeps after the prefill. "
    "`table.ckvt` is the whole of it; nothing in it is run. It has {bytes} bytes and the content "
    "id `{content_id}`.\n\n"
    "It serves one model: `{meta.model_name|unknown}`, of the family `{meta.family|unknown}`, "
    "whose {shape.layers} layers of full "
    "attention have {shape.heads} {shape.head_axis}s each, with the fingerprint "
    "`{meta.fingerprint|unknown}`. "
    "{sketch?The same model in another file is known by the sketch of its weights: `{sketch}`.}"
    "{sketch!The table has no sketch of the model's weights, so that nothing but the shape tells "
    "whether another file is of this model.}\n\n"
    "## What it loses\n\nThe verdict of `ckvc report` {ckvc_version} is **{verdict.word}**."
    "{verdict.objection? {verdict.objection}}{verdict.leak_passed? {leak_check.says}}\n\n"
    "{verdict.budgets?Losses are in nats per token over the full cache, with their 95% interval "
    "over documents. Bytes are those of a prompt's cache, the mean over prompts.\n\n"
    "| budget | verdict | loss | KL | prompts | cache |\n| --- | --- | --- | --- | --- | --- |\n"
    "{verdict.budgets#| " TOKENS_FORM " | {word} | {loss&" LOSS_FORM "} | {kl&" LOSS_FORM
    "} | {prompts} | {cache.all_bytes?{cache.bytes/1000:.0f} of {cache.all_bytes/1000:.0f} kB} |\n}"
    "{verdict.budgets#\n- {says}}\n\n}"
    "## What it keeps\n\n| budget | what is kept | mode | ranking |\n| --- | --- | --- | --- |\n"
    "{recommends#| " TOKENS_FORM " | {uses.keeps.@} | {mode} | {score} |\n}\n"
    "## How it was made\n\n- ckvc {writer} wrote the table.\n- The corpus has the label "
    "`{meta.label|unknown}`.\n"
    "{meta.counts#{prompts?- `{@}` was fitted from {prompts} prompts.\n}}"
    "{lengths?- Prompts have {lengths.0} to {lengths.1} tokens.\n}"
    "{meta.continuation?- Continuations have {meta.continuation} tokens.\n}"
    "{meta.select?- Its settings were chosen on {meta.select.prompts} other prompts.\n}"
    "{runs#\nThe run had these settings:\n\n```text\n{plan#{@}: {.}\n}```\n}\n"
    "## How it is used\n\n```python\n{uses.python#{.}\n}```\n"
    "{uses.vllm?\n```sh\n{uses.vllm}\n```\n}{uses.llama?\n```python\nimport ckvc.llama\n\n"
    "{uses.llama}\n```\n}\nThe name of this repository may stand for the path `table.ckvt`: "
    "`org/name`, or `org/name@COMMIT` to stay with one commit.\n";

/* Whether a hub takes the text as a name, with so many slashes in it. */
static bool is_hub_name(const char *text, int n_slashes) {
    const char *c = text;
    for (; isalnum((unsigned char)*c) || (*c && strchr("._-/", *c)); c++) {
        n_slashes -= *c == '/';
    }
    return isalnum((unsigned char)*text) && isalnum((unsigned char)c[-1]) && *c == 0 &&
           n_slashes == 0;
}

/* Finds the one table that the card is of, and checks before any work that a card can be written.
 */
static ckvc_status check_card(const report_cli *c, const char *const *inputs, size_t n,
                              const char **table, ckvc_err *err) {
    size_t n_tables = 0;
    for (size_t i = 0; i < n; i++) {
        if (ckvc_is_dir(inputs[i])) { continue; }
        *table = inputs[i];
        n_tables++;
    }
    USAGE_IF(n_tables != 1, "--card is of one table, and %zu are given: name that one, and its run",
             n_tables);
    USAGE_IF(c->base_model && !is_hub_name(c->base_model, 1),
             "--base-model: got %s, wanted the model's name on a hub, ORG/NAME", c->base_model);
    USAGE_IF(!is_hub_name(c->licence, 0),
             "--licence: got %s, wanted a hub's name of a licence, such as mit", c->licence);
    return ckvc_publish_check(c->card, c->report.force, err);
}

/* Adds {least, most} tokens of the prompts that the runs took records from, if there are any. */
static void add_lengths(json_t *to, const json_t *runs) {
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *prompts = json_object_get(json_array_get(runs, i), "prompts");
        for (size_t k = 0; k < json_array_size(prompts); k++) {
            const json_t *p = json_array_get(prompts, k);
            if (json_is_true(json_object_get(p, "heldout"))) { continue; }
            least = fmin(least, json_number_value(json_object_get(p, "T")));
            most = fmax(most, json_number_value(json_object_get(p, "T")));
        }
    }
    if (most > 0) {
        json_object_set_new(to, "lengths",
                            json_pack("[I, I]", (json_int_t)least, (json_int_t)most));
    }
}

/* Writes the card of a table by the text of its report. A text that the table says of itself cannot
 * end the code in which the card has it: no value has a backtick. */
static ckvc_status write_card(const report_cli *c, const char *table, char *report, ckvc_err *err) {
    CKVC_AUTO(table_file_free_at) table_file *f = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    CKVC_AUTO(ckvc_map_close) ckvc_map bytes = {0};
    json_auto_t *all = NULL;
    for (char *at = report; (at = strchr(at, '`'));) { *at = '\''; }
    CKVC_TRY(ckvc_json_parse(report, strlen(report), "report.json", &all, err));
    CKVC_TRY(ckvc_map_open(table, &bytes, err));
    CKVC_TRY(table_file_read(table, &f, err));
    const char *sketch = table_file_sketch(f);
    const uint32_t version = ckvc_get_u32((const uint8_t *)bytes.data + CKVT_AT_WRITER);
    json_t *runs = json_object_get(all, "runs");
    json_auto_t *beside = json_pack(
        "{s:s, s:s*, s:o, s:O*, s:O*, s:I, s:o, s:o}", "licence", c->licence, "base_model",
        c->base_model, "uses", table_uses(f, "table.ckvt", c->base_model ? c->base_model : "MODEL"),
        "runs", runs, "ckvc_version", json_object_get(all, "ckvc_version"), "bytes",
        (json_int_t)bytes.size, "sketch", json_sprintf("%.*s", (int)strcspn(sketch, "`"), sketch),
        "writer", json_sprintf("%u.%u.%u", version >> 16, version >> 8 & 255, version & 255));
    add_lengths(beside, runs);
    ckvc_form_fill(&text, card_form, json_array_get(json_object_get(all, "tables"), 0), beside);
    return ckvc_publish_bytes(c->card, text.data, text.size, c->report.force, err);
}

/* ---- the report ---- */

ckvc_status report_run(const report_cli *c, const char *const *inputs, size_t n, ckvc_err *err) {
    report_options o = c->report;
    o.inputs = inputs;
    o.n_inputs = n;
    o.scores = c->scores.items;
    o.n_scores = c->scores.n;
    o.answers = c->answers.items;
    o.n_answers = c->answers.n;
    CKVC_AUTO_FREE char *summary = NULL, *numbers = NULL;
    o.require_deploy = c->require;
    const char *table = NULL;
    if (c->card) { CKVC_TRY(check_card(c, inputs, n, &table, err)); }
    const ckvc_status done = report_write(&o, &summary, &numbers, err);
    if (summary && !c->quiet) {
        if (c->json) { fputs(numbers, stdout); }
        if (!c->json) { tell("%s", summary); }
        say("ckvc report: %s/report.html\n", c->report.out);
    }
    if (!numbers || !table) { return done; }
    CKVC_TRY(write_card(c, table, numbers, err));
    if (!c->quiet) { say("ckvc report: %s\n", c->card); }
    return done;
}

static ckvc_status report(const verb_call *call, ckvc_err *err) {
    const report_cli *c = call->options;
    USAGE_IF(!c->report.out, "--out DIR is needed: the folder for the page");
    USAGE_IF(!c->card && (c->base_model || opts_said("licence")),
             "--base-model and --licence are for a card: give --card FILE, too");
    USAGE_IF(call->n == 0 && c->scores.n == 0 && c->answers.n == 0,
             "nothing to report on; give tables, runs, --scores or --answers");
    return report_run(c, call->items, call->n, err);
}

#define OPTIONS_OF report_cli
static const opt rows[] = {
    OPT_OUTPUT("out", report.out, "DIR",
               "Write report.html, and report.json that it draws, to this folder.", .letter = 'o'),
    OPT_INPUTS("scores", scores, "S.jsonl,...",
               "Show what the tables bring by these outputs of `ckvc score` on held-out prompts; "
               "without this option, by those of the runs of compile that made the tables."),
    OPT_INPUTS("answers", answers, "A.jsonl,...",
               "Show scores on tasks against what is kept, by these outputs of `ckvc eval`."),
    OPT_ENUM("require", require, "nothing|deploy",
             "With deploy, exit with 1 unless that is the verdict on every table given."),
    OPT_TITLE("rank agreement"),
    OPT_COUNT("layer-bins", report.layer_bins, "N", 1, 64,
              "Compute Spearman's correlation in N groups of consecutive layers.", .preset = "4"),
    OPT_COUNT("bootstrap", report.replicates, "R", 0, 10000,
              "Compute intervals from R refits on resampled prompts, which need the tables' runs, "
              "and from resampled answers; 0 means none.",
              .preset = "1000"),
    OPT_INT("seed", report.seed, "N", 0, 9e15, "Draw the resamples from this seed.", .preset = "1"),
    OPT_SIZE("memory", report.memory_max,
             "Use at most this much memory for the counts of the refits.", .preset = "1G"),
    OPT_TITLE("a card for a model hub"),
    OPT_OUTPUT("card", card, "FILE",
               "Also write the README.md of a repository on a model hub that holds the table, with "
               "the numbers of this report (docs/publishing.md)."),
    OPT_TEXT("base-model", base_model, "ORG/NAME",
             "Say on the card that this is the table's model, by its name on the hub."),
    OPT_TEXT("licence", licence, "NAME",
             "Say on the card that this is the table's licence, by the hub's name for it, such as "
             "mit.",
             .preset = "unknown"),
    OPT_TITLE("output"),
    OPT_FLAG("force", report.force, "Replace an earlier report in DIR, and an earlier card.",
             .letter = 'f'),
    OPT_FLAG("json", json, "Print report.json instead of the verdict."),
    OPT_FLAG("quiet", quiet, "Print nothing.", .letter = 'q'),
    {0}};

const verb verb_report = {
    .name = "report",
    .about = "show on a page how good and how stable tables are",
    .summary = "show how good and how stable tables are, on one page that loads nothing else",
    .usage =
        "ckvc report T.ckvt... RUN... [--scores S.jsonl,...] [--answers A.jsonl,...] --out DIR",
    .examples =
        "  ckvc report run/table.ckvt run --out run-report          (what compile made, by its "
        "own scores)\n"
        "  ckvc report run/table.ckvt run --out run-report --card hub/README.md --base-model "
        "ORG/NAME --licence mit\n"
        "  ckvc report technical.ckvt narrative.ckvt runs/technical "
        "runs/narrative --scores heldout.jsonl --out report\n"
        "  ckvc report t.ckvt --out report          (the table "
        "alone: maps, counts, what its choices rest on)\n\n"
        "The verdict on a table is to deploy it when, at every budget at which it was "
        "scored, it is "
        "better than identity and not\nworse than the best simple reference (one "
        "without a table and without a second pass). Both must hold at as many entries,\n"
        "by the whole 95% interval over 10 held-out documents or more, and the prompts "
        "must have passed the leak check. Of a table\nthat is ahead but undecided, the "
        "verdict says about how many more prompts it needs.\n",
    VERB_OPTIONS(rows),
    .reads_args = true,
    .work = report};
