/* A run in the making: see run_setup.h. */
#include "cql/rounds/stable.h"
#include "cmd/common/run_setup.h"

#include "calib/demand/demand_meter.h"
#include "calib/prompt/sample.h"
#include "calib/actions/prompt_sets.h"
#include "cmd/common/manifest_leaks.h"
#include "cmd/common/json_text.h"
#include "formats/lines/layer_budgets.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

#define OPTIONS_OF run_setup_options
const opt opts_inputs[] = {OPT_GROUP(opts_model, inputs),
                           OPT_GROUP(opts_prompts, inputs),
                           OPT_GROUP(opts_statistics, inputs),
                           {0}};

const opt opts_log[] = {
    OPT_CHOICE(
        "side", side, "head|gate|both|demand|score",
        "Try head weights, gate thresholds or both. demand tries nothing, but logs how many "
        "entries each head asks for, and what a learned ranking is fitted to; score logs only "
        "the latter.",
        .preset = "both"),
    OPT_LAYER_BUDGETS(layer_budgets),
    OPT_SETTING_NAME("operator", inputs.setting,
                     "Choose the kept positions as the paper does, without value norms, without "
                     "thresholds, or by the mean over heads."),
    {0}};

const opt opts_repeat[] = {
    OPT_SETTING("demand-floor", inputs.setting, "F", 0, 1,
                "Give every head at least this share of the budget when demand is counted; a table "
                "may give more (--kept-floor).",
                .preset = "0.05", .was = "floor"),
    OPT_SETTING("recent", inputs.setting, "N", 0, 1e6,
                "Keep the last N tokens in every head, beside the first one.", .preset = "8"),
    OPT_SETTING("repeat", inputs.setting, "TEXT", 0, 0,
                "Ask the model to repeat the prompt with this text, behind a blank line.",
                .preset = REPEAT_TEXT),
    OPT_FLAG("no-repeat", no_repeat,
             "Do not repeat the prompt: demand is then what the continuation looks at, which costs "
             "one prefill less."),
    /* Half of them are the ends of a prompt, 12, and where the attention went: fewer than 32 hold
     * next to nothing of that. */
    OPT_SETTING("positions", inputs.setting, "N", 32, 65536,
                "Log the features of N positions of each head, for a learned ranking.",
                .preset = "128"),
    OPT_SETTING("queries", inputs.setting, "N", 0, 1024,
                "With --side demand, log the query vectors of N positions of each prompt, and of N "
                "of its continuation.",
                .preset = "8"),
    {0}};

const opt opts_bins[] = {
    OPT_TITLE("risk bins"),
    OPT_LIST("bins", bins, "E,P", "Sort prompts into E bins by entropy and P bins by perplexity.",
             .preset = "20,4"),
    OPT_ENUM("bin-edges", bin_edges, "quantile|uniform",
             "Give the bins equal mass (quantile) or equal steps (uniform)."),
    OPT_COUNT("min-cell", min_cell, "N", 0, 1e9,
              "List the risk cells that have fewer than N prompts.", .preset = "8"),
    {0}};

const opt opts_actions[] = {
    OPT_BUDGETS(budget, "N,...",
                "Keep N entries per layer and KV head on average; a number below 1 is a share of "
                "the prompt."),
    OPT_LIST("head-grid", head_grid, "LO:HI:STEP",
             "Try these head weights, a range or a list, with 1 among them.",
             .preset_at = &side_head.grid_text),
    OPT_LIST("gate-grid", gate_grid, "LO:HI:STEP",
             "Try these thresholds, a range or a list; the start is the one nearest to 0.9.",
             .preset_at = &side_gate.grid_text),
    OPT_SETTING("beta-bud", inputs.setting, "X", 0, 1e6,
                "Subtract X/T from the gate's reward for each candidate over the budget, T being "
                "the prompt's tokens."),
    OPT_SETTING_NAME("loss", inputs.setting,
                     "Make rewards from the continuation's loss (nll), or from how far the next "
                     "token's distribution diverges from the full cache's (kl)."),
    OPT_SETTING_NAME(
        "loss-reduction", inputs.setting,
        "Reduce the losses of the continuation to their mean or their sum, for a reward."),
    OPT_ENUM("behaviour", log.behaviour, "balanced|uniform|epsilon-greedy",
             "Log whole grids of actions per state (balanced), actions drawn evenly (uniform), or "
             "mostly the best so far (epsilon-greedy)."),
    OPT_TEXT("variants", variants, "N|all",
             "Run at most N distinct rollouts per prompt and side; all runs the full grid.",
             .preset = "256"),
    OPT_ENUM("rollouts", log.rollouts, "sweep|plain",
             "Run many rollouts at once (sweep) or one by one (plain); the losses are the same."),
    OPT_DOUBLE("check-rollouts", log.check_rollouts, "SHARE", 0, 1,
               "Repeat this share of the rollouts one by one, and exit with 1 if a loss differs."),
    OPT_INPUT("tables", tables, "T.ckvt", "Start from this table instead of the identity table."),
    OPT_INPUT("leak-check", leak_check, "CHECK.json",
              "Keep this record of `manifest check --against --out` in the run and its table."),
    OPT_DOUBLE("until-stable", log.until_stable, "RHO", 0, 1,
               "End a pass of heads when the split-half reliability of its table reaches RHO; 0 "
               "means never."),
    OPT_ROWS(opts_bins),
    OPT_INPUT("scan", scan, "RUN", "Take the edges of the risk bins from the scan of another run."),
    OPT_INT("sample-prompts", sample, "N", 0, 1e9,
            "Log only N prompts, drawn evenly over the risk cells; 0 means all."),
    {0}};

const opt opts_run[] = {
    OPT_TITLE("run"),
    OPT_OUTPUT("out", out, "RUN", "Make this run directory.", .letter = 'o'),
    OPT_FLAG("resume", resume, "Go on with a run that was stopped, by the same plan."),
    OPT_COUNT("shard-prompts", log.shard_prompts, "N", 1, 1e6,
              "Write N prompts into each shard file.", .preset = "16"),
    OPT_INT("max-failures", log.max_failures, "N", 0, 1e9,
            "Stop the run when more than N prompts have failed, because their loss is not finite."),
    OPT_LIMIT_TIME(limit_time),
    {0}};

const opt opts_shard[] = {OPT_SHARD(shard), {0}};

const opt opts_dry_run[] = {
    OPT_FLAG("dry-run", dry_run,
             "Check everything and time the longest prompt, but write nothing."),
    {0}};

ckvc_table *run_setup_table(const run_setup *j) { return j->tables ? j->tables->table : j->start; }

void run_setup_close(run_setup *j) {
    json_decref(j->plan.leak_check);
    savings_free(j->options.savings);
    run_close(j->run);
    run_close(j->scan_run);
    ckvc_table_free(j->start);
    table_file_free(j->tables);
    free(j->layer_budgets);
    made_prompts_fini(&j->made);
    inputs_close(&j->e);
}

ckvc_status run_setup_open(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    USAGE_IF(c->inputs.setting.continuation < 1, "--continuation: got 0, wanted 1 to 1000000");
    CKVC_TRY(shard_option(c->shard, &j->part, err));
    USAGE_IF(j->part.count && c->dry_run, "--dry-run measures all prompts: leave out --shard");
    USAGE_IF(j->part.count &&
                 (c->log.until_stable > 0 || c->log.behaviour == BEHAVIOUR_EPSILON_GREEDY),
             "--until-stable and --behaviour epsilon-greedy look at all prompts before the one in "
             "hand, and a part has only its own: leave out --shard, or these options");
    USAGE_IF(!c->out && !c->dry_run, "--out RUN is needed: the run directory to make");
    if (!c->dry_run) { CKVC_TRY(run_check_out(c->out, j->part, c->resume, err)); }
    CKVC_TRY(inputs_open_model(&c->inputs, &j->e, err));
    CKVC_TRY(model_shape_evicts(model_get_shape(j->e.model), c->inputs.model, err));
    j->options = c->log;
    j->options.watch = &stable_watch;
    j->options.setting = c->inputs.setting;
    j->options.kind = shard_pass_named(c->side)->kind;
    if (j->options.kind != SHARD_LOGGED && !c->no_repeat && *c->inputs.setting.repeat) {
        CKVC_TRY(inputs_open_instruction(&c->inputs, &j->e, err));
    }
    j->options.instruction = j->e.instruction;
    j->options.n_instruction = j->e.n_instruction;
    if (c->texts && !c->inputs.manifest) {
        CKVC_TRY(prompts_make(c->texts, &c->inputs, c->out, &j->e, &j->made, err));
    }
    CKVC_TRY(inputs_open_prompts(&c->inputs, &j->e, err));
    j->inputs = (calibrate_inputs){j->e.model, j->e.be, j->e.manifest, j->e.prompts};
    j->options.memory = c->inputs.memory;
    j->plan = (plan){.inputs = &j->inputs,
                     .options = &j->options,
                     .prompt_options = &j->e.prompt_options,
                     .tokenizer = j->e.tok ? tokenizer_fingerprint(j->e.tok) : NULL};
    CKVC_TRY(leak_guard_plan(c->leak_check, &j->e, &j->plan.leak_check, err));
    if (j->made.record) { j->plan.leak_check = json_incref(j->made.record); }
    if (!c->inputs.quiet) {
        const prompt_list *p = j->e.prompts;
        say("prompts: %zu (%zu held out, %zu cut, %zu too short), longest %u + %u tokens\n", p->n,
            p->n_heldout, p->n_cut, p->n_short, p->max_tokens, p->max_continuation);
    }
    return CKVC_OK;
}

ckvc_status run_setup_open_bins(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    CKVC_TRY(inputs_bins(&c->bins, &j->plan.n_entropy_bins, &j->plan.n_ppl_bins, err));
    j->plan.min_cell = c->min_cell;
    j->plan.edges = c->bin_edges;
    return CKVC_OK;
}

static ckvc_status open_tables(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    USAGE_IF(opts_given("bins") || opts_given("bin-edges") || (c->scan && c->sample == 0),
             "--tables brings its own risk bins: leave out --bins, --bin-edges and --scan (which "
             "--sample-prompts can use)");
    USAGE_IF(opts_given("head-grid") || opts_given("gate-grid"),
             "--tables brings its own actions: leave out --head-grid and --gate-grid");
    CKVC_TRY(inputs_read_table(&c->inputs, &j->e, c->tables, &j->tables, err));
    const ckvc_table *t = j->tables->table;
    const setting made = setting_of_table(t, j->tables->meta);
    setting ours = j->options.setting;
    for (size_t i = 0; i < setting_n_fields; i++) {
        /* An option that was not given has the table's value. */
        const setting_field *f = &setting_fields[i];
        if (!opts_given(f->m.name)) { setting_forget(f, &ours); }
    }
    CKVC_TRY(setting_match(&made, c->tables, &ours, "this run", SETTING_TABLE, "give --", err));
    j->options.setting.budgets = (setting_list){t->budgets, t->n_budgets};
    j->plan.n_entropy_bins = t->n_entropy_bins;
    j->plan.n_ppl_bins = t->n_ppl_bins;
    j->plan.edges_from = "start table";
    j->plan.start_table = j->tables->content_id;
    return CKVC_OK;
}

/* Opens the run of --scan. A scan serves another run only when it measured the same thing. *hash
 * receives the hash of its plan. */
static ckvc_status open_scan(const run_setup_options *c, run_setup *j, const char **hash,
                             ckvc_err *err) {
    CKVC_TRY(run_open(c->scan, &j->scan_run, err));
    const json_t *theirs = run_plan(j->scan_run);
    const char *of = json_string_value(json_object_get(theirs, "model"));
    CKVC_AUTO(shard_free_at) shard *first = NULL;
    FAIL_IF(!of, CKVC_E_DATA, "%s: run.json does not name its model", c->scan);
    if (strcmp(of, model_fingerprint(j->e.model)) != 0 && run_pass_count(j->scan_run) > 0 &&
        run_pass_at(j->scan_run, 0)->n_shards > 0) {
        CKVC_TRY(run_read_shard(j->scan_run, run_pass_at(j->scan_run, 0), 0, &first, err));
    }
    CKVC_TRY(inputs_same_model(&j->e, c->scan,
                               json_string_value(json_object_get(theirs, "model_name")), of,
                               first ? first->h.sketch : "", err));
    setting made = setting_neutral();
    setting_read(theirs, SETTING_PLAN, &made);
    CKVC_TRY(
        setting_match(&made, c->scan, &c->inputs.setting, "this run", SETTING_SCAN, NULL, err));
    *hash = run_plan_hash(j->scan_run);
    return CKVC_OK;
}

/* Takes the budgets of --budget or, without it, one block for each of --layer-budgets' values. */
static ckvc_status open_budgets(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    const uint32_t L = (uint32_t)model_get_shape(j->e.model)->n_layers;
    j->options.setting.budgets = (setting_list){c->budget.items, c->budget.n};
    if (!c->layer_budgets) { return CKVC_OK; }
    CKVC_TRY(layer_budgets_read(c->layer_budgets, L, &j->layer_budgets, err));
    j->options.setting.layer_budgets = (setting_list){j->layer_budgets, L};
    if (!opts_given("budget") && !c->tables) {
        budget_list *of = &j->of_layers;
        of->n = layer_budgets_distinct(j->layer_budgets, L, of->items, PROMPT_SETS_MAX_BUDGETS);
        j->options.setting.budgets = (setting_list){of->items, of->n};
        USAGE_IF(of->n > PROMPT_SETS_MAX_BUDGETS,
                 "%s: %u different budgets, a table has at most %d blocks; name fewer with "
                 "--budget, and each layer is calibrated under the nearest",
                 c->layer_budgets, of->n, PROMPT_SETS_MAX_BUDGETS);
    }
    return CKVC_OK;
}

static ckvc_status open_start_table(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    const model_shape *s = model_get_shape(j->e.model);
    j->plan.start_table = "identity";
    j->plan.edges_from = "this run's scan";
    if (c->tables) {
        CKVC_TRY(open_tables(c, j, err));
        return c->scan ? open_scan(c, j, &j->plan.sample_from, err) : CKVC_OK;
    }
    if (c->scan) { CKVC_TRY(open_scan(c, j, &j->plan.edges_from, err)); }
    const start_table_spec spec = {.n_layers = (uint32_t)s->n_layers,
                                   .n_heads = (uint32_t)s->n_kv_heads,
                                   .n_entropy_bins = j->plan.n_entropy_bins,
                                   .n_ppl_bins = j->plan.n_ppl_bins,
                                   .n_budgets = j->options.setting.budgets.n,
                                   .window = c->inputs.setting.window,
                                   .budgets = j->options.setting.budgets.v,
                                   .grids = j->grids};
    CKVC_TRY(start_table_create(&spec, &j->start, err));
    j->start->op = c->inputs.setting.op;
    return CKVC_OK;
}

ckvc_status run_setup_open_start(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    CKVC_TRY(open_budgets(c, j, err));
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        j->options.sides[i] = shard_pass_named(c->side)->sides >> i & 1;
    }
    CKVC_TRY(inputs_variants(c->variants, &j->options.variants, err));
    CKVC_TRY(action_grid_parse(CKVC_SIDE_HEAD, c->head_grid.items, c->head_grid.n,
                               &j->grids[CKVC_SIDE_HEAD], err));
    CKVC_TRY(action_grid_parse(CKVC_SIDE_GATE, c->gate_grid.items, c->gate_grid.n,
                               &j->grids[CKVC_SIDE_GATE], err));
    CKVC_TRY(run_setup_open_bins(c, j, err));
    CKVC_TRY(open_start_table(c, j, err));
    USAGE_IF(j->part.count && (j->start || c->sample > 0) && !j->scan_run,
             "--shard: bin edges and --sample-prompts come from a scan of all prompts, and a part "
             "has only its own: make a scan first (`ckvc scan --shard`, then `ckvc merge`, or "
             "`ckvc scan` in one piece) and name it with --scan RUN");
    j->plan.sample = c->sample;
    setting *s = &j->options.setting;
    s->op = run_setup_table(j)->op;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        s->grid[i] = (setting_list){j->grids[i].values, j->grids[i].n};
    }
    USAGE_IF(j->options.setting.budgets.n > PROMPT_SETS_MAX_BUDGETS,
             "%u budgets: at most %d are logged at once", j->options.setting.budgets.n,
             PROMPT_SETS_MAX_BUDGETS);
    return inputs_judge_budgets(&c->inputs, &j->e, j->options.setting.budgets, err);
}

/* Checks that B of every prompt leaves room beside what all heads keep. */
static ckvc_status check_demand_budgets(const run_setup *j, ckvc_err *err) {
    const setting_list budgets = j->options.setting.budgets;
    const uint32_t recent = j->options.setting.recent, longest = j->e.prompts->max_tokens;
    for (uint32_t b = 0; b < budgets.n; b++) {
        USAGE_IF(budgets.v[b] >= longest,
                 "--budget %.10g keeps all of every prompt, since the longest has %u tokens, so "
                 "that there is nothing to measure: give fewer tokens, or a share such as 0.25",
                 budgets.v[b], longest);
    }
    for (size_t i = 0; i < j->e.prompts->n; i++) {
        const prompt *p = &j->e.prompts->items[i];
        for (uint32_t b = 0; b < budgets.n; b++) {
            const uint32_t B = ckvc_budget_tokens(budgets.v[b], p->n_tokens);
            USAGE_IF(B <= recent && B < p->n_tokens,
                     "--budget %.10g is %u of the %u tokens of prompt \"%s\", and every head keeps "
                     "%u (--recent, and the first): give %u or more",
                     budgets.v[b], B, p->n_tokens, p->entry->id, recent + 1, recent + 1);
        }
    }
    return CKVC_OK;
}

ckvc_status run_setup_open_repeat(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    setting *s = &j->options.setting;
    USAGE_IF(
        c->tables || c->scan || c->layer_budgets || c->sample > 0,
        "--side %s looks at every prompt and starts from no table: leave out --tables, --scan, "
        "--layer-budgets and --sample-prompts",
        c->side);
    FAIL_IF(j->e.prompts->n == j->e.prompts->n_heldout, CKVC_E_DATA,
            "%s: all %zu prompts are held out: nothing is there to fit", j->e.manifest->path,
            j->e.prompts->n);
    if (!j->e.instruction) { *s->repeat = 0; }
    USAGE_IF(!j->e.instruction && s->continuation < 2,
             "--no-repeat looks at what the continuation's tokens attend to: give --continuation 2 "
             "or more");
    if (j->options.kind == SHARD_SCORE) { return CKVC_OK; /* of no budget */ }
    s->budgets = (setting_list){c->budget.items, c->budget.n};
    CKVC_TRY(check_demand_budgets(j, err));
    return inputs_judge_budgets(&c->inputs, &j->e, j->options.setting.budgets, err);
}

static void print_copies(const memory_plan *m, double copy_s, double compute_s) {
    if (m->joined > 0) {
        tell("rows of %lld prompts go through a layer's products as one\n", (long long)m->joined);
    }
    if (m->copied == 0) { return; }
    const double mb = (double)m->copied / 1e6, each = mb / (double)m->prompts;
    tell("%.1f MB do not stay: %.3f s a pass through the layers (%.1f GB/s), for %lld prompts "
         "together\n%.1f MB a prompt and pass; a prefill computes %.3f s: %.0f together make it "
         "compute-bound\n",
         mb, copy_s, mb / 1e3 / copy_s, (long long)m->prompts, each, compute_s,
         fmax(ceil(copy_s / compute_s), 1));
}

/* Returns the most bytes of memory that the work of a forecast takes, or a pass of it. */
static double most_memory(const json_t *o) {
    double most = fmax(json_number_value(json_object_get(o, "memory_bytes")),
                       json_number_value(json_object_get(o, "bytes")));
    const json_t *passes = json_object_get(o, "passes");
    for (size_t i = 0; i < json_array_size(passes); i++) {
        most = fmax(most, most_memory(json_array_get(passes, i)));
    }
    return most;
}

void forecast_print(json_t *o, bool json, const memory_plan *m, double copy_s, double compute_s) {
    char duration[CKVC_DURATION];
    if (json) {
        json_print_as_given(o);
        json_decref(o);
        return;
    }
    ckvc_duration(3600 * json_number_value(json_object_get(o, "hours")), duration);
    tell("at most %s", duration);
    const double memory = most_memory(o);
    if (memory > 0) { tell(", %.1f MB of memory", memory / 1e6); }
    tell(" and %.1f MB of disk. In hours, seconds (_s) and bytes:\n",
         json_number_value(json_object_get(o, "disk_bytes")) / 1e6);
    json_text(o, 0);
    json_decref(o);
    if (m) { print_copies(m, copy_s, compute_s); }
}

json_t *run_setup_repeat_json(const run_setup *j, const repeat_dry_run *d) {
    json_t *o = JSON_NUMBERS(json_pack("{s:s}", "pass", calibrate_sides(&j->options)),
                             {"prompts", j->e.prompts->n}, {"held_out", j->e.prompts->n_heldout},
                             {"longest", d->n_tokens}, {"prefill_s", d->prefill_s},
                             {"prompt_s", d->prompt_s}, {"hours", d->hours},
                             {"memory_bytes", (double)d->memory.total + d->shard_bytes},
                             {"disk_bytes", round(d->disk_bytes)});
    return d->query_bytes > 0 ? JSON_NUMBERS(o, {"query_bytes", d->query_bytes}) : o;
}

/* Puts the prompts that were made, and the record of their check, into the run, once. */
static ckvc_status keep_prompts(run_setup *j, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer record = {0};
    ckvc_json_append(&record, j->made.record);
    ckvc_buffer_text(&record, "\n");
    const struct {
        const char *name;
        const ckvc_buffer *bytes;
    } files[] = {{MADE_PROMPTS_FILE, &j->made.bytes}, {MADE_CHECK_FILE, &record}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (run_has_file(j->run, files[i].name)) { continue; }
        CKVC_TRY(run_checkpoint_file(j->run, files[i].name, files[i].bytes->data,
                                     files[i].bytes->size, err));
    }
    return CKVC_OK;
}

ckvc_status run_setup_begin_run(const run_setup_options *c, run_setup *j, const json_t *whole,
                                ckvc_err *err) {
    json_auto_t *own = whole ? NULL : plan_json(&j->plan);
    const ckvc_status st =
        run_create(c->out, whole ? whole : own, j->part, c->resume, &j->run, err);
    ckvc_stop_install((double)c->limit_time);
    return st == CKVC_OK && j->made.record ? keep_prompts(j, err) : st;
}

/* Publishes `o`, which it takes, as a file of the run. All parts of a run would write the same,
 * so only the first one does. */
static ckvc_status publish_json(const run_setup *j, const char *name, json_t *o, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(o);
    json_decref(o);
    return j->part.index == 0 ? run_publish_file(j->run, name, text, strlen(text), err) : CKVC_OK;
}

/* Finds the start table's edges, and publishes them with the number of the scan's prompts that
 * fall between them. */
static ckvc_status edges_from_scan(run_setup *j, const scanned *s, const run_dir *from,
                                   ckvc_err *err) {
    ckvc_table *t = j->start;
    const uint32_t E = t->n_entropy_bins, P = t->n_ppl_bins;
    const risk_edges edges = {E, P, t->edges_entropy, t->edges_ppl};
    CKVC_TRY(scanned_edges(s, from, j->plan.edges, &edges, err));
    CKVC_AUTO_FREE uint32_t *cells = ckvc_calloc((size_t)E * P, sizeof *cells);
    for (size_t i = 0; i < s->n; i++) {
        cells[ckvc_bin_index(t->edges_entropy, E - 1, s->items[i].r_struct) * P +
              ckvc_bin_index(t->edges_ppl, P - 1, s->items[i].r_sem)]++;
    }
    return publish_json(j, "scan/edges.json",
                        json_pack("{s:o,s:o,s:o,s:s}", "edges_entropy",
                                  ckvc_json_reals(t->edges_entropy, E - 1), "edges_perplexity",
                                  ckvc_json_reals(t->edges_ppl, P - 1), "occupancy",
                                  ckvc_json_u32s(cells, (size_t)E * P), "from", j->plan.edges_from),
                        err);
}

ckvc_status run_setup_set_edges(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    if (!j->start && c->sample == 0) { return CKVC_OK; /* --tables has them */ }
    if (!j->scan_run) {
        pass_counts counts;
        CKVC_TRY(calibrate_scan(j->run, &j->inputs, &j->options, &counts, err));
    }
    const run_dir *from = j->scan_run ? j->scan_run : j->run;
    CKVC_AUTO(scanned_fini) scanned s = {0};
    CKVC_AUTO(coverage_fini) coverage cover = {0};
    CKVC_TRY(scanned_read(from, &s, err));
    if (j->start) { CKVC_TRY(edges_from_scan(j, &s, from, err)); }
    const ckvc_table *t = run_setup_table(j);
    const sample_options o = {
        .edges = {t->n_entropy_bins, t->n_ppl_bins, t->edges_entropy, t->edges_ppl},
        .min_cell = j->plan.min_cell,
        .from = j->plan.edges_from,
        .logged = true,
        .sample = c->sample,
        .seed = j->options.setting.seed};
    CKVC_TRY(sample_prompts(&s, &o, j->e.prompts, &cover, err));
    CKVC_TRY(publish_json(j, COVERAGE_FILE, coverage_json(&cover), err));
    const bool thresholds = j->options.sides[CKVC_SIDE_GATE] && t->op != CKVC_OPERATOR_NO_THRESHOLD;
    if (!c->inputs.quiet) { coverage_say(&cover, thresholds, false); }
    return CKVC_OK;
}

ckvc_status run_setup_scan_coverage(run_setup *j, coverage *out, ckvc_err *err) {
    const uint32_t E = j->plan.n_entropy_bins, P = j->plan.n_ppl_bins;
    CKVC_AUTO(scanned_fini) scanned s = {0};
    *out = (coverage){0};
    CKVC_TRY(scanned_read(j->run, &s, err));
    if (s.n == 0) { return CKVC_OK; }
    CKVC_AUTO_FREE double *edges = ckvc_calloc((size_t)E + P, sizeof *edges);
    const sample_options o = {
        .edges = {E, P, edges, edges + E}, .min_cell = j->plan.min_cell, .from = "this run's scan"};
    CKVC_TRY(scanned_edges(&s, j->run, j->plan.edges, &o.edges, err));
    CKVC_TRY(sample_prompts(&s, &o, j->e.prompts, out, err));
    return publish_json(j, COVERAGE_FILE, coverage_json(out), err);
}

ckvc_status run_setup_dry_run(const run_setup_options *c, run_setup *j, dry_run *out,
                              ckvc_err *err) {
    const bool scans = (j->start || c->sample > 0) && !j->scan_run;
    return calibrate_dry_run(&j->inputs, &j->options, run_setup_table(j), (size_t)c->sample, scans,
                             out, err);
}

json_t *run_setup_cost_json(const run_setup *j, const dry_run *d) {
    return JSON_NUMBERS(json_object(), {"prompts", j->e.prompts->n}, {"logged", d->logged},
                        {"longest", d->n_tokens}, {"actions_per_prompt", d->actions},
                        {"distinct_per_prompt", d->distinct}, {"prefill_s", d->prefill_s},
                        {"rollout_s", d->rollout_s}, {"hours", d->scan_hours + d->pass_hours},
                        {"records", round(d->records)}, {"memory_bytes", d->memory.total},
                        {"batch", d->memory.lanes}, {"prompts_together", d->memory.prompts},
                        {"copied_bytes", d->memory.copied}, {"copy_s", d->copy_s},
                        {"disk_bytes", round(d->disk_bytes)});
}
