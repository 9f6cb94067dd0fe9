/* ckvc score: losses of prompts under tables and reference policies, as JSON lines. */
#include "cmd/score_and_report.h"

#include "cmd/common/manifest_leaks.h"
#include "cmd/common/run_setup.h"
#include "cmd/common/fit_options.h"
#include "cmd/verbs.h"
#include "formats/lines/layer_budgets.h"
#include "lib/base/files.h"
#include "lib/base/progress.h"

typedef struct score_job {
    opened_inputs e;
    chosen_policies of;
    score_summary *summary;
    double *layer_budgets; /* [L] or NULL */
    double mean_budget;    /* of --layer-budgets */
    durable_output checkpoint;
    run_part part; /* --shard */
} score_job;

static void job_fini(score_job *j) {
    policies_close(&j->of);
    CKVC_FREE(j->summary, j->layer_budgets);
    durable_output_fini(&j->checkpoint);
    inputs_close(&j->e);
}

/* Checks --kept-floor and --ridge, which stand in place of what each table says. */
static ckvc_status check_in_place(const score_cli *c, const score_job *j, ckvc_err *err) {
    for (size_t i = 0; c->c_min >= 0 && i < j->of.n_tables; i++) {
        USAGE_IF(!j->of.tables[i]->table->c_min,
                 "%s: has no shares, so that --kept-floor has nothing to say; leave it out",
                 c->of.tables.items[i]);
    }
    for (size_t i = 0; c->ridge > 0 && i < j->of.n_tables; i++) {
        USAGE_IF(!j->of.tables[i]->table->bank,
                 "%s: has no bank, so that --ridge has nothing to fit by; leave it out, or fit the "
                 "table again from a demand pass that logged queries",
                 c->of.tables.items[i]);
    }
    return CKVC_OK;
}

/* Chooses the budgets: --budget's, or the first table's. --layer-budgets goes before both, and
 * then there is one budget that stands for all layers: their mean. */
static ckvc_status choose_budgets(const score_cli *c, score_job *j, ckvc_err *err) {
    const uint32_t L = (uint32_t)model_get_shape(j->e.model)->n_layers;
    if (!c->layer_budgets) { return policies_budgets(&c->of, &c->inputs, &j->e, &j->of, err); }
    USAGE_IF(c->of.bytes.n, "--bytes is of the whole cache: leave out --layer-budgets");
    CKVC_TRY(layer_budgets_read(c->layer_budgets, L, &j->layer_budgets, err));
    for (uint32_t l = 0; l < L; l++) { j->mean_budget += j->layer_budgets[l]; }
    j->mean_budget /= L;
    j->of.budgets = (setting_list){&j->mean_budget, 1};
    return CKVC_OK;
}

static void print_summary(const score_cli *c, const score_job *j) {
    say("%-18s %-14s %10s %8s %12s %14s %10s\n", "policy", "table", "budget", "prompts",
        "tokens kept", "mean reward", "mean KL");
    for (size_t i = 0; i < j->of.n * j->of.budgets.n; i++) {
        const score_summary *s = &j->summary[i];
        const cache_formats *own = s->policy.formats;
        char formats[CACHE_FORMATS_TEXT];
        CKVC_AUTO_FREE char *name =
            ckvc_format("%s%s%s", asked_policy_name(&s->policy), own ? "@" : "",
                        own ? cache_formats_name(*own, formats) : "");
        say("%-18s %-14.12s %10.10g %8zu %12.1f ", name,
            asked_policy_table(&s->policy) ? asked_policy_table(&s->policy) : "-", s->budget, s->n,
            s->kept_mean);
        if (c->inputs.setting.continuation > 0) {
            say("%14.5f", s->reward_mean);
            /* lines of older releases have none */
            if (!isnan(s->kl_mean)) { say(" %10.5f", s->kl_mean); }
        }
        if (s->policy.kind == POLICY_MATCHED) {
            const size_t n = j->e.prompts->n_heldout;
            say("  (threshold %.3f, by %zu %sprompts)", s->tau, n ? n : j->e.prompts->n,
                n ? "held-out " : "");
        }
        fputc('\n', stderr);
    }
}

static json_t *settings_of(const score_cli *c, const score_job *j) {
    json_t *o = policies_settings(&j->of, &j->e);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer budgets = {0};
    for (int l = 0; c->layer_budgets && l < model_get_shape(j->e.model)->n_layers; l++) {
        ckvc_buffer_printf(&budgets, "%s%.17g", l ? "," : "", j->layer_budgets[l]);
    }
    json_object_set_new(o, "manifest", json_string(j->e.manifest->sha256));
    if (budgets.size) {
        json_object_set_new(o, "layer-budgets", json_string((char *)budgets.data));
    }
    return o;
}

static ckvc_status print_forecast(const score_job *j, const calibrate_inputs *in,
                                  const score_options *o, bool json, ckvc_err *err) {
    score_forecast f;
    CKVC_TRY(score_forecast_make(in, o, &f, err));
    const memory_plan *m = &f.memory;
    json_t *numbers = JSON_NUMBERS(
        json_object(), {"prompts", j->e.prompts->n}, {"lines", j->of.n * j->of.budgets.n},
        {"longest", f.n_tokens}, {"prefill_s", f.prefill_s}, {"prompt_s", f.prompt_s},
        {"hours", f.hours}, {"memory_bytes", m->total}, {"prompts_together", m->prompts},
        {"copied_bytes", m->copied}, {"copy_s", f.copy_s}, {"compute_s", f.compute_s},
        {"disk_bytes", f.disk_bytes});
    forecast_print(numbers, json, m, f.copy_s, f.compute_s);
    return CKVC_OK;
}

/* --attention-error reads the whole cache's keys and values beside those that are kept, in f32. */
static ckvc_status check_measured(const policy_choice *choice, ckvc_err *err) {
    for (size_t i = 0; i < choice->n; i++) {
        for (uint32_t b = 0; b < choice->setting.budgets.n; b++) {
            const cache_formats held = policy_formats(choice, i, b);
            char formats[CACHE_FORMATS_TEXT];
            USAGE_IF(!cache_is_plain(held),
                     "--attention-error measures what is left out of a cache in f32, and %s is "
                     "held in %s: leave out --bytes, --cache-keys, --cache-values and formats "
                     "behind @. If the formats are the table's, give --cache-keys f32 "
                     "--cache-values f32",
                     asked_policy_name(&choice->list[i]), cache_formats_name(held, formats));
        }
    }
    return CKVC_OK;
}

ckvc_status score_run(const score_cli *c, ckvc_err *err) {
    CKVC_AUTO(job_fini) score_job j = {0};
    USAGE_IF(c->resume && !c->out, "--resume goes on with an --out FILE; name it");
    CKVC_TRY(shard_option(c->shard, &j.part, err));
    USAGE_IF(j.part.count && (!c->out || c->score.vectors),
             "--shard makes a part of an --out FILE: name it, and leave out --vectors");
    USAGE_IF(j.part.count && c->dry_run, "--dry-run measures all prompts: leave out --shard");
    if (c->out && !c->dry_run) {
        CKVC_TRY(durable_output_check(c->out, c->resume, c->score.force, err));
    }
    if (c->score.vectors) { CKVC_TRY(ckvc_publish_check(c->score.vectors, c->score.force, err)); }
    USAGE_IF(c->score.attention_error && c->inputs.setting.compress_after == SETTING_TURN_FIRST,
             "--attention-error measures a continuation alone: leave out --compress-after first");
    CKVC_TRY(inputs_open_model(&c->inputs, &j.e, err));
    CKVC_TRY(policies_open_kvzip(&c->of, &c->inputs, &j.e, err));
    j.e.short_too = true;
    CKVC_TRY(inputs_open_prompts(&c->inputs, &j.e, err));
    CKVC_TRY(policies_open(&c->of, &c->inputs, &j.e, &j.of, err));
    USAGE_IF(j.of.n == 0, "nothing to score: give --table T.ckvt, --policy NAME, or both");
    CKVC_TRY(check_in_place(c, &j, err));
    CKVC_TRY(choose_budgets(c, &j, err));
    const uint32_t L = (uint32_t)model_get_shape(j.e.model)->n_layers;
    const setting_list by_layer = {j.layer_budgets, j.layer_budgets ? L : 0};
    CKVC_TRY(
        inputs_judge_budgets(&c->inputs, &j.e, j.layer_budgets ? by_layer : j.of.budgets, err));
    const size_t per_prompt = j.of.n * j.of.budgets.n;
    j.summary = ckvc_calloc(per_prompt, sizeof *j.summary);
    const calibrate_inputs inputs = {j.e.model, j.e.be, j.e.manifest, j.e.prompts};
    score_options o = c->score;
    o.choice.list = j.of.list;
    o.choice.n = j.of.n;
    o.choice.texts = j.e.kvzip;
    o.choice.held = j.of.held;
    o.choice.floor = c->c_min >= 0 ? &c->c_min : NULL;
    o.choice.ridge = c->ridge >= 0 ? &c->ridge : NULL;
    o.choice.setting = c->inputs.setting;
    o.finite = true;
    o.memory = c->inputs.memory;
    o.choice.setting.budgets = j.of.budgets;
    o.choice.setting.layer_budgets = by_layer;
    if (o.attention_error) { CKVC_TRY(check_measured(&o.choice, err)); }
    if (c->dry_run) { return print_forecast(&j, &inputs, &o, c->inputs.json, err); }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    j.checkpoint = (durable_output){.out = c->out,
                                    .part = j.part,
                                    .n_prompts = j.e.prompts->n,
                                    .per_prompt = per_prompt,
                                    .resume = c->resume,
                                    .force = c->score.force};
    if (c->own_command && c->out) {
        json_auto_t *settings = settings_of(c, &j);
        CKVC_TRY(durable_output_open(&j.checkpoint, settings, err));
        CKVC_TRY(score_count_done(&inputs, &o, j.checkpoint.lines, j.checkpoint.n_lines, j.summary,
                                  err));
        o.part = j.part;
        o.n_done = j.checkpoint.n_done;
        o.keep = durable_output_keep;
        o.keep_ctx = &j.checkpoint;
    }
    ckvc_stop_install((double)c->limit_time);
    ckvc_err why = {0};
    const ckvc_status st = score_prompts(&inputs, &o, &lines, j.summary, &why);
    CKVC_TRY(
        policies_end_lines(&j.checkpoint, &lines, st, &why,
                           "their lines are complete, and with --out one could go on from here",
                           c->inputs.quiet, err));
    if (!c->inputs.quiet) { print_summary(c, &j); }
    for (size_t i = 0; i < j.of.n_tables; i++) {
        leak_guard_warn(j.of.tables[i], c->of.tables.items[i], j.e.manifest->sha256);
    }
    return CKVC_OK;
}

static ckvc_status score(const verb_call *call, ckvc_err *err) {
    score_cli *c = call->options;
    c->own_command = true;
    return score_run(c, err);
}

#define OPTIONS_OF score_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_GROUP(opts_prompts, inputs),
    OPT_GROUP(opts_statistics, inputs),
    OPT_DOUBLE("select", inputs.select, "F", 0, 1,
               "Let `--split select` mean this share of the held-out prompts and `heldout` the "
               "others, as in compile."),
    OPT_GROUP(opts_policies, of),
    OPT_LAYER_BUDGETS(layer_budgets),
    OPT_ENUM("mode", score.choice.mode, "uniform|heads|layers|lengths|table",
             "Let tables keep one set per layer (uniform), or a set per KV head or per layer by "
             "their shares, or sets per KV head that have one length in each layer (lengths); with "
             "layers, rules by head rank by the sum over a layer's heads. With table, each table "
             "keeps what it recommends; with table, heads and lengths, rules go by head.",
             .preset = "table", .word_was = {"shared", "uniform"}),
    OPT_ENUM(
        "ranking", score.choice.score, "paper|window|learned|bank|table",
        "Rank a table's entries by this ranking, or by the one that it recommends (table); bank "
        "is the learned ranking, mixed with what the table's bank attends to.",
        .preset = "table", .was = "score"),
    OPT_DOUBLE("kept-floor", c_min, "F", -1, 1,
               "Keep at least this share of the budget in every head of a table with shares; below "
               "0 means what the table recommends.",
               .preset = "-1", .was = "c-min"),
    OPT_DOUBLE("ridge", ridge, "R", -1, 1e6,
               "Fit the entries that a table with a bank keeps with this ridge in all layers; 0 "
               "leaves them as they are, below 0 means what the table recommends.",
               .preset = "-1"),
    OPT_SETTING_NAME("compress-after", inputs.setting,
                     "Compress a conversation behind the user's last turn, that is all of it, or "
                     "behind the first; the later turns are then fed to what is kept."),
    OPT_GROUP(opts_formats, inputs),
    OPT_FLAG(
        "nearest-budget", score.choice.nearest_budget,
        "Read a table at its nearest budget where it does not have the one that is asked for."),
    OPT_TITLE("output"),
    OPT_OUTPUT("out", out, "S.jsonl", "Write to this file instead of standard output.",
               .letter = 'o'),
    OPT_FLAG("sets", score.sets, "Print the kept positions of every layer or KV head."),
    OPT_FLAG("attention-error", score.attention_error,
             "Measure how much attention is left out in each layer, and its bound."),
    OPT_FLAG("utilities", score.utilities,
             "Print quantiles of the utilities by head on each prompt's first line."),
    OPT_OUTPUT("vectors", score.vectors, "FILE.h5",
               "Write alpha and rho of every prompt to this file."),
    OPT_FLAG("force", score.force, "Replace output that exists.", .letter = 'f'),
    OPT_FLAG("resume", resume, "Go on with an --out that was stopped."),
    OPT_LIMIT_TIME(limit_time),
    OPT_SHARD(shard),
    OPT_FLAG("dry-run", dry_run,
             "Check everything and time the longest prompt, but write nothing."),
    {0}};

const verb verb_score = {
    .name = "score",
    .about = "measure the losses of prompts under tables and reference policies",
    .summary = "measure the losses of prompts under tables and reference policies, and write them "
               "as JSON lines",
    .usage = "ckvc score --model DIR --manifest FILE [--table T.ckvt,...] [--policy NAME,...] "
             "[--out S.jsonl]",
    .examples =
        "  ckvc score --model models/ckvc-tiny-8l --manifest heldout.jsonl --table t.ckvt "
        "--policy identity,matched --out s.jsonl\n"
        "  ckvc score ... --policy identity --sets --vectors v.h5 --continuation 0   # "
        "what would be kept\n"
        "  ckvc score ... --table t.ckvt --policy snapkv,adakv,pooled,matched   # at as many "
        "kept entries\n\n"
        "The policy matched is identity at the one threshold that keeps as many tokens as its "
        "table does, on average over the held-out\n"
        "prompts (of the split heldout, or drawn by --holdout), or over all prompts when none is "
        "held out.\n",
    .more = policies_explain,
    .common = " model manifest table policy budget equal-tokens window continuation split limit "
              "threads out resume shard dry-run ",
    VERB_OPTIONS(rows),
    .instead = "tables go with --table",
    .work = score};
