/* ckvc eval: answers to tasks from the full cache, and from what tables and policies keep. */
#include "judge/eval/eval.h"
#include "calib/rollout/memory_plan.h"
#include "cmd/common/chosen_policies.h"
#include "cmd/common/run_setup.h"
#include "cmd/common/fit_options.h"
#include "cmd/verbs.h"
#include "formats/lines/answers.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"
#include "report/report.h"

typedef struct eval_cli {
    inputs_options inputs;
    policies_options of;
    opt_list tasks, lengths, depths;
    const char *haystack, *items, *out, *cost, *shard;
    unsigned count, batch;
    answer_query query;
    int64_t limit_time;
    bool chat, resume, force, dry_run;
} eval_cli;

typedef struct eval_job {
    opened_inputs e;
    chosen_policies of;
    task_items tasks;
    eval_items *items;
    durable_output checkpoint;
    run_part part;
} eval_job;

static void job_fini(eval_job *j) {
    policies_close(&j->of);
    eval_items_free(j->items);
    task_items_fini(&j->tasks);
    durable_output_fini(&j->checkpoint);
    inputs_close(&j->e);
}

/* ---- items ---- */

static ckvc_status count_tokens(void *of, const char *text, size_t n, size_t *tokens,
                                ckvc_err *err) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    return tokenizer_encode(of, text, n, true, &ids, tokens, err);
}

/* Reads the numbers of --lengths or --depths, which are from lo to hi, each once. */
static ckvc_status numbers_of(const char *option, const opt_list *list, double lo, double hi,
                              double *out, ckvc_err *err) {
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        out[i] = strtod(list->items[i], &end);
        USAGE_IF(*end || end == list->items[i] || !(out[i] >= lo && out[i] <= hi) ||
                     (lo >= 1 && out[i] != floor(out[i])),
                 "--%s: got '%s', wanted %s%g to %.10g", option, list->items[i],
                 lo >= 1 ? "whole numbers from " : "", lo, hi);
        for (size_t k = 0; k < i; k++) {
            USAGE_IF(out[k] == out[i], "--%s: %s is given twice", option, list->items[i]);
        }
    }
    return CKVC_OK;
}

static ckvc_status make_tasks(const eval_cli *c, eval_job *j, ckvc_err *err) {
    double lengths[256], depths[256];
    uint32_t whole[256];
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer names = {0};
    USAGE_IF(c->tasks.n == 0,
             "--tasks is needed: name tasks or groups of them, as in --tasks niah, or all");
    CKVC_TRY(numbers_of("lengths", &c->lengths, 1, 1e7, lengths, err));
    CKVC_TRY(numbers_of("depths", &c->depths, 0, 1, depths, err));
    for (size_t i = 0; i < c->lengths.n; i++) { whole[i] = (uint32_t)lengths[i]; }
    for (size_t i = 0; i < c->tasks.n; i++) {
        ckvc_buffer_printf(&names, "%s%s", i ? "," : "", c->tasks.items[i]);
    }
    const task_options o = {.seed = c->inputs.setting.seed,
                            .lengths = whole,
                            .n_lengths = c->lengths.n,
                            .depths = depths,
                            .n_depths = c->depths.n,
                            .count = c->count,
                            .haystack = c->haystack,
                            .count_tokens = count_tokens,
                            .counter = j->e.tok};
    return task_items_make((char *)names.data, &o, &j->tasks, err);
}

static ckvc_status make_items(const eval_cli *c, eval_job *j, ckvc_err *err) {
    const eval_text how = {.tok = j->e.tok,
                           .shape = model_get_shape(j->e.model),
                           .chat = c->chat ? &j->e.chat : NULL,
                           .query = c->query,
                           .longest = j->e.longest};
    USAGE_IF(!j->e.tok, "%s: has no tokenizer for the tasks' text; add its tokenizer.json",
             c->inputs.model);
    USAGE_IF(c->chat && (j->e.chat.style == CHAT_NONE || j->e.chat.style == CHAT_UNKNOWN),
             "--chat: the model states %s; name one with --chat-template",
             j->e.chat.style == CHAT_NONE ? "no chat template"
                                          : "a chat template whose text ckvc does not know");
    CKVC_TRY(make_tasks(c, j, err));
    CKVC_TRY(eval_items_make(&how, &j->tasks, &j->items, err));
    if (j->items->prompts.n_cut) {
        ckvc_warn("%zu of %zu items are longer than the model's context: the middle of their "
                  "context is left out",
                  j->items->prompts.n_cut, j->items->prompts.n);
    }
    return CKVC_OK;
}

/* Writes the file of items. Parts of a run, and a run that goes on, have the same items; a file
 * that holds them already stays. */
static ckvc_status publish_items(const eval_cli *c, const eval_job *j, const ckvc_buffer *lines,
                                 ckvc_err *err) {
    const bool same = (c->resume || j->part.count) && lines->size &&
                      ckvc_file_holds(c->items, lines->data, lines->size);
    return same ? CKVC_OK : ckvc_publish_bytes(c->items, lines->data, lines->size, c->force, err);
}

static ckvc_status write_items(const eval_cli *c, const eval_job *j, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    for (size_t i = 0; i < j->tasks.n; i++) {
        json_auto_t *o = task_item_json(&j->tasks.items[i]);
        ckvc_json_append(&lines, o);
        ckvc_buffer_u8(&lines, '\n');
    }
    return publish_items(c, j, &lines, err);
}

/* ---- what came of it ---- */

/* Prints a summary of all lines, with those of earlier starts of this run among them. */
static ckvc_status print_summary(const durable_output *of, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    if (of->n_lines == 0) { return CKVC_OK; /* of a part without items */ }
    CKVC_TRY(report_answers((const uint8_t *)of->lines, of->n_lines, &text, err));
    say("%s", text);
    return CKVC_OK;
}

static ckvc_status print_forecast(const eval_cli *c, const eval_options *o, ckvc_err *err) {
    eval_forecast f;
    CKVC_TRY(eval_forecast_make(o, &f, err));
    json_t *numbers =
        JSON_NUMBERS(json_object(), {"items", f.n_items}, {"lines", f.n_ways}, {"T", f.n_tokens},
                     {"prefill_s", f.prefill_s}, {"decide_s", f.decide_s}, {"step_s", f.step_s},
                     {"bytes", (double)f.memory.total}, {"prompts_together", f.memory.prompts},
                     {"copied_bytes", f.memory.copied}, {"copy_s", f.copy_s},
                     {"compute_s", f.compute_s}, {"hours", f.hours}, {"disk_bytes", f.disk_bytes});
    forecast_print(numbers, c->inputs.json, &f.memory, f.copy_s, f.compute_s);
    return CKVC_OK;
}

/* ---- the run ---- */

/* Refuses files that would overwrite each other, or what is there. */
static ckvc_status check_outputs(const eval_cli *c, const eval_job *j, ckvc_err *err) {
    const struct {
        const char *option, *path;
        bool check;
    } files[] = {{"out", c->out, !c->dry_run},
                 {"items", c->items, !c->resume && !j->part.count},
                 {"cost", c->cost, !c->dry_run}};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < i && files[i].path; k++) {
            USAGE_IF(files[k].path && strcmp(files[i].path, files[k].path) == 0,
                     "--%s and --%s are both %s; give each a file of its own", files[k].option,
                     files[i].option, files[i].path);
        }
        if (files[i].path && files[i].check) {
            CKVC_TRY(i == 0 ? durable_output_check(c->out, c->resume, c->force, err)
                            : ckvc_publish_check(files[i].path, c->force, err));
        }
    }
    return CKVC_OK;
}

static ckvc_status open_job(const eval_cli *c, eval_job *j, ckvc_err *err) {
    USAGE_IF(c->resume && !c->out, "--resume goes on with an --out FILE; name it");
    CKVC_TRY(shard_option(c->shard, &j->part, err));
    USAGE_IF(j->part.count && !c->out, "--shard makes a part of an --out FILE; name it");
    CKVC_TRY(check_outputs(c, j, err));
    CKVC_TRY(inputs_open_model(&c->inputs, &j->e, err));
    CKVC_TRY(policies_open_kvzip(&c->of, &c->inputs, &j->e, err));
    CKVC_TRY(policies_open(&c->of, &c->inputs, &j->e, &j->of, err));
    for (size_t i = 0; i < j->of.n_tables; i++) { /* answers are told apart by their tables' ids */
        for (size_t k = 0; k < i; k++) {
            USAGE_IF(strcmp(j->of.tables[i]->content_id, j->of.tables[k]->content_id) == 0,
                     "--table: %s and %s hold the same table; leave one out", c->of.tables.items[k],
                     c->of.tables.items[i]);
        }
    }
    CKVC_TRY(policies_budgets(&c->of, &c->inputs, &j->e, &j->of, err));
    const policy_choice choice = {
        .list = j->of.list, .n = j->of.n, .setting = c->inputs.setting, .held = j->of.held};
    for (size_t i = 0; i < j->of.n; i++) {
        bool plain = false; /* under some budget */
        for (uint32_t b = 0; b < j->of.budgets.n; b++) {
            plain |= cache_is_plain(policy_formats(&choice, i, b));
        }
        USAGE_IF(j->of.list[i].kind == POLICY_MATCHED,
                 "--policy matched needs a threshold that is found on held-out prompts, which "
                 "`ckvc score` alone does; leave it out here");
        USAGE_IF(j->of.list[i].kind == POLICY_FULL && plain,
                 "--policy full: the full cache is always there; leave full out, or hold it in "
                 "another format, as in full@q8_0 or with --cache-keys and --cache-values");
    }
    return make_items(c, j, err);
}

/* Makes the answers, in one go, or those that a checkpoint leaves to do. */
static ckvc_status run_job(const eval_cli *c, eval_job *j, eval_options *o, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    j->checkpoint = (durable_output){.out = c->out,
                                     .part = j->part,
                                     .n_prompts = j->items->prompts.n,
                                     .per_prompt = eval_ways(&o->choice),
                                     .resume = c->resume,
                                     .force = c->force};
    if (c->out) {
        json_auto_t *settings = policies_settings(&j->of, &j->e);
        json_object_set_new(settings, "items", json_string(j->items->sha256));
        CKVC_TRY(durable_output_open(&j->checkpoint, settings, err));
        o->n_done = j->checkpoint.n_done;
        o->keep = durable_output_keep;
        o->keep_ctx = &j->checkpoint;
    }
    ckvc_stop_install((double)c->limit_time);
    ckvc_err why = {0};
    const ckvc_status st = eval_answers(o, &lines, &why);
    CKVC_TRY(policies_end_lines(&j->checkpoint, &lines, st, &why, "what is printed is complete",
                                c->inputs.quiet, err));
    return c->inputs.quiet ? CKVC_OK : print_summary(&j->checkpoint, err);
}

static ckvc_status write_cost(const eval_cli *c, const eval_options *o, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer csv = {0};
    CKVC_TRY(eval_cost(o, &csv, err));
    return ckvc_publish_bytes(c->cost, csv.data, csv.size, c->force, err);
}

static ckvc_status eval(const verb_call *call, ckvc_err *err) {
    eval_cli *c = call->options;
    CKVC_AUTO(job_fini) eval_job j = {0};
    if (c->of.tables.n) { CKVC_TRY(inputs_take_setting(&c->inputs, c->of.tables.items[0], err)); }
    CKVC_TRY(open_job(c, &j, err));
    opened_inputs of_items = j.e;
    of_items.prompts = &j.items->prompts;
    if (j.of.n) { CKVC_TRY(inputs_judge_budgets(&c->inputs, &of_items, j.of.budgets, err)); }
    eval_options o = {.model = j.e.model,
                      .be = j.e.be,
                      .tok = j.e.tok,
                      .items = j.items,
                      .choice = {.list = j.of.list,
                                 .n = j.of.n,
                                 .setting = c->inputs.setting,
                                 .nearest_budget = true,
                                 .mode = CKVC_MODE_COUNT,
                                 .score = CKVC_SCORE_COUNT,
                                 .texts = j.e.kvzip},
                      .batch = c->batch,
                      .memory = memory_plan_limit(j.e.be, c->inputs.memory),
                      .part = j.part};
    o.choice.setting.budgets = j.of.budgets;
    o.choice.held = j.of.held;
    if (c->items) { CKVC_TRY(write_items(c, &j, err)); }
    if (c->dry_run) { return print_forecast(c, &o, err); }
    CKVC_TRY(run_job(c, &j, &o, err));
    return c->cost ? write_cost(c, &o, err) : CKVC_OK;
}

#define OPTIONS_OF eval_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_TITLE("tasks"),
    OPT_LIST("tasks", tasks, "NAME,...",
             "Ask the items of these tasks or groups of tasks, which judge/tasks/README.md lists, "
             "or of all tasks."),
    OPT_LIST("lengths", lengths, "N,...", "Make prompts of this many tokens.", .preset = "1024"),
    OPT_LIST("depths", depths, "F,...",
             "Hide needles at these depths of a prompt, where 0 is its beginning; without this "
             "option at 0 to 1 by quarters."),
    OPT_COUNT("count", count, "N", 1, 1e6, "Make N items of each task, length and depth.",
              .preset = "5"),
    OPT_INPUT("haystack", haystack, "FILE",
              "Hide needles between the sentences of this text; without this option the text is "
              "made up."),
    OPT_ENUM(
        "query", query, "seen|unseen|all-seen",
        "Let a policy decide on the prompt with its question, of several turns with the first one "
        "(seen), on what stands before the question (unseen), or on all turns (all-seen)."),
    OPT_FLAG("chat", chat, "Put each item as a user's message, by the model's chat template."),
    OPT_GROUP(opts_chat, inputs),
    OPT_SETTING("seed", inputs.setting, "N", 0, 9e15, "Draw every random number from this seed."),
    OPT_GROUP(opts_policies, of),
    OPT_SETTING("window", inputs.setting, "N", 1, 1e6,
                "Observe attention in a window of the prompt's last N tokens; with --table it is "
                "that of the first table.",
                .letter = 'W'),
    OPT_SETTING_NAME("alpha", inputs.setting,
                     "Measure a position's attention mass as the paper does, or per row that can "
                     "see the position."),
    OPT_SETTING("keep-window", inputs.setting, "N", 0, 1e6,
                "Always keep the last N tokens, within the budget."),
    OPT_GROUP(opts_formats, inputs),
    OPT_TITLE("output"),
    OPT_OUTPUT("out", out, "A.jsonl", "Write to this file instead of standard output.",
               .letter = 'o'),
    OPT_OUTPUT("items", items, "I.jsonl",
               "Also write the items to this file: prompts, answers and metrics."),
    OPT_OUTPUT("cost", cost, "FILE.csv",
               "Measure afterwards what each cache costs, and write it to this file: bytes, "
               "memory, times at batch 1 to 16, and ratios."),
    OPT_COUNT("batch", batch, "N", 1, 1024,
              "Run N items side by side; answers do not depend on it.", .preset = "4"),
    OPT_FLAG("force", force, "Replace output that exists.", .letter = 'f'),
    OPT_FLAG("resume", resume, "Go on with an --out that was stopped."),
    OPT_LIMIT_TIME(limit_time),
    OPT_SHARD(shard),
    OPT_FLAG("dry-run", dry_run, "Run one prefill, print what the whole will take, and stop."),
    {0}};

const verb verb_eval = {
    .name = "eval",
    .about = "answer tasks from full and compressed caches",
    .summary = "answer tasks from the full cache and from what tables and policies keep, and write "
               "the answers as JSON lines",
    .usage = "ckvc eval --model DIR --tasks NAME,... [--table T.ckvt,...] [--policy NAME,...] "
             "[--budget N,...] [--out A.jsonl]",
    .examples = "  ckvc eval --model DIR --tasks all --table t.ckvt --policy snapkv,adakv --budget "
                "0.25,0.125 --out a.jsonl\n"
                "  ckvc eval --model DIR --tasks niah --lengths 1024,2048 --query unseen --policy "
                "expected-attention --out u.jsonl\n",
    .more = policies_explain,
    .common = " model tasks lengths count table policy budget threads out resume shard "
              "dry-run ",
    VERB_OPTIONS(rows),
    .instead = "tables go with --table",
    .work = eval};
