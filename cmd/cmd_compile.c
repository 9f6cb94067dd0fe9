/* ckvc compile makes a table by demand, or by the paper's alternating loop of head and gate passes.
 */
#include "compile/compile.h"
#include "cmd/common/fit_options.h"
#include "cmd/common/json_text.h"
#include "cmd/common/manifest_leaks.h"
#include "cmd/common/run_setup.h"
#include "cmd/common/shipped_tables.h"
#include "cmd/common/table_uses.h"
#include "cmd/verbs.h"
#include "lib/base/files.h"

typedef struct compile_cli {
    run_setup_options setup;
    texts_options texts;
    fit_options fit;
    const compile_way *way; /* by --mode and --ranking */
    budget_list shares;     /* --bytes */
    byte_budgets bytes;     /* what they are in entries */
    probe_kind probe;
    int64_t rounds;
    double select;
} compile_cli;

/* ---- the result: one object, printed as JSON and as text ---- */

/* What a pass's table is worth on the held-out prompts; NULL: it was not measured. New reference.
 */
static json_t *heldout_json(const compile_pass *p) {
    if (!p->n_heldout) { return NULL; }
    json_t *h = JSON_NUMBERS(json_object(), {"prompts", p->n_heldout}, {"reward", p->reward.mean},
                             {"kept", p->kept[POLICY_TABLE]});
    for (int k = 0; k < POLICY_KIND_COUNT; k++) {
        if (!p->over[k].n) { continue; }
        const char *name = policy_kind_name((policy_kind)k);
        CKVC_AUTO_FREE char *over = ckvc_format("over_%s", name),
                            *kept = ckvc_format("%s_kept", name);
        json_object_set_new(h, over, gain_json(p->over[k]));
        JSON_NUMBERS(h, {kept, p->kept[k]});
    }
    return h;
}

static json_t *pass_json(const compile_pass *p) {
    json_t *o = json_pack("{s:s, s:s, s:o*}", "pass", p->name, "content_id", p->content_id,
                          "heldout", heldout_json(p));
    return JSON_NUMBERS(o, {"changed", p->changed}, {"supported", p->supported},
                        {"states", p->states});
}

static json_t *round_json(const alternation_round *r) {
    json_t *gain = r->gain.n ? gain_json(r->gain) : json_null();
    return JSON_NUMBERS(json_pack("{s:o}", "gain", gain), {"changed", r->changed},
                        {"supported", r->supported}, {"reward", r->reward});
}

/* The table at each budget, beside the rule whose KL comes nearest to its own; `percent` says how
 * much larger the perplexity is than with the whole cache. New reference. */
static json_t *verdicts_json(const compile_result *r) {
    json_t *list = json_array();
    for (uint32_t b = 0; b < r->n_verdicts; b++) {
        const budget_verdict *v = &r->verdicts[b];
        json_t *rule = v->more.n ? gain_json(v->more) : json_null();
        if (v->more.n) {
            json_object_set_new(rule, "name", json_string(policy_kind_name(v->rule)));
        }
        json_t *bytes = v->bytes > 0 ? json_real(v->bytes) : NULL;
        json_array_append_new(
            list,
            JSON_NUMBERS(json_pack("{s:o*, s:o, s:o, s:o}", "bytes", bytes, "kl", gain_json(v->kl),
                                   "loss", gain_json(v->loss), "rule", rule),
                         {"budget", v->budget}, {"percent", 100 * expm1(v->loss.mean)}));
    }
    return list;
}

static json_t *result_json(const compile_cli *c, const run_setup *j, const compile_result *r) {
    json_t *rounds = json_array(), *passes = json_array();
    for (size_t i = 0; i < r->n_passes; i++) {
        json_array_append_new(passes, pass_json(&r->passes[i]));
    }
    for (size_t i = 0; i < r->n_rounds; i++) {
        json_array_append_new(rounds, round_json(&r->rounds[i]));
    }
    json_t *select = r->select ? select_json(r->select) : NULL,
           *bytes = c->bytes.n ? byte_budgets_json(&c->bytes, r->select) : NULL;
    return json_pack("{s:o*, s:s, s:s, s:s, s:I, s:s, s:o*, s:o, s:o, s:o, s:n}", "bytes", bytes,
                     "run", run_plan_hash(j->run), "probe",
                     c->way->name ? c->way->name : probe_name(c->probe), "stop", stop_name(r->stop),
                     "best_round", (json_int_t)r->best + 1, "content_id",
                     r->passes[r->last_pass[r->best]].content_id, "select", select, "rounds",
                     rounds, "passes", passes, "verdicts", verdicts_json(r), "gate");
}

static const char pass_form[] =
    "{pass}: {logged?{now} prompts now, {before} before{rollouts?, {rollouts} rollouts}; }"
    "{kind=demand?shares and ranking fitted\n}{kind=select?ranking, floor and mix chosen\n}"
    "{of_side?{reliability?split-half reliability {reliability:.3f}{stable? ended it here}; }"
    "{changed} of {supported} supported entries changed ({states} in all)\n"
    "{heldout&  held-out reward {reward:.5f}; {over_identity&" GAIN_FORM "} over identity, "
    "{over_matched&" GAIN_FORM "} at equal tokens kept; {prompts} prompts of {documents} "
    "documents\n}}";

static void on_pass(void *ctx, const compile_pass *p, const pass_counts *n) {
    const compile_cli *c = ctx;
    if (c->setup.inputs.quiet) { return; }
    json_t *beside = json_pack("{s:s, s:b, s:o, s:b}", "kind", pass_kind_name(p->kind), "of_side",
                               p->kind <= PASS_GATE, "reliability",
                               p->kind == PASS_HEAD ? ckvc_json_real(n->reliability) : json_null(),
                               "stable", n->stable);
    JSON_NUMBERS(beside, {"logged", n->prompts + n->resumed}, {"now", n->prompts},
                 {"before", n->resumed}, {"rollouts", n->rollouts},
                 {"documents", p->reward.n_clusters});
    json_auto_t *o = pass_json(p);
    form_print(stderr, pass_form, o, beside);
}

static const char round_form[] =
    "round {round}: {changed} of {supported} supported entries changed{gain?; held-out "
    "{gain.mean:+.5f} (standard error {gain.se:.5f}, {gain.prompts} prompts of {gain.documents} "
    "documents) over {round=1?the start}{round=1!the round before}}{last!; another round}\n";

static void on_round(void *ctx, const compile_result *r, stop_rule stop) {
    const compile_cli *c = ctx;
    if (c->setup.inputs.quiet || c->way == &compile_by_budgets) { return; }
    json_auto_t *o = round_json(&r->rounds[r->n_rounds - 1]);
    form_print(stderr, round_form, o,
               JSON_NUMBERS(json_object(), {"round", r->n_rounds}, {"last", stop != STOP_NOT}));
}

/* The rounds of the paper's loop, each with the scores of its last table. */
#define ROUNDS_FORM                                                                                \
    "\nstopped after round {round}: "                                                              \
    "{stop=converged?converged: fewer than 1% of the supported entries changed (or none)}"         \
    "{stop=held-out?the held-out reward did not rise by more than one paired standard error}"      \
    "{stop=rounds?the rounds that were asked for (--rounds)}"                                      \
    "{stop=one round?this probe has one round}\n"                                                  \
    "round   {~-22 entries changed} {~12 held-out}  {~-32 over identity [95%]} "                   \
    "{~-32 at equal tokens kept [95%]} tokens kept\n"                                              \
    "{rounds#{@}{~-6 {tables.@.best? *}} "                                                         \
    "{~-22 {changed} of {supported} ({changed*100/supported:.1f}%)} "                              \
    "{tables.@.heldout!not measured\n}"                                                            \
    "{tables.@.heldout&{reward:12.5f}  {~-32 {over_identity&" GAIN_FORM "}} "                      \
    "{~-32 {over_matched&" GAIN_FORM "}} {kept:.1f} (identity {identity_kept:.1f})\n}}"            \
    "{best&at equal tokens kept the table is {over_matched.lo>0?better than identity}"             \
    "{over_matched.lo>0!{over_matched.hi<0?worse than identity}"                                   \
    "{over_matched.hi<0!not shown to differ from identity}} on {prompts} held-out prompts of "     \
    "{documents} documents\n}"

/* A table by demand beside the policies that it is compared with, over its budgets. */
#define REFERENCES_FORM                                                                            \
    "{best&\non {prompts} held-out prompts of {documents} documents, in the mean over budgets:\n"  \
    "rule         entries a head  nats per token that it loses more than the table [95%]\n"        \
    "{references#{name:-12s} {kept:14.1f}  {over&" GAIN_FORM "}\n}"                                \
    "table        {kept:14.1f}\n}"

/* In which ways the bytes of each budget can be spent. */
#define BYTES_FORM                                                                                 \
    "{bytes?\nbytes     entries keys      values    {select?what is lost on the prompts that "     \
    "choose (* chosen)}\n}{bytes#{~-9 {bytes:g}} {budget:7.4f} {keys:-9s} {values:-9s} "           \
    "{kl?{kl:.5f}}{loss?{loss:.5f}}{chosen? *}\n}"

static const char summary_form[] =
    "{demand!" ROUNDS_FORM "}" BYTES_FORM "{demand?" REFERENCES_FORM "}"
    "{best!{select?every held-out prompt is in the split select}"
    "{select!no prompt is held out (--holdout 0.2)}"
    ", so nothing says whether the table is better than none\n}"
    "{best?{demand?{select!no held-out prompt is in the split select, so the table recommends "
    "what was fitted last\n}}}"
    "{demand?{select!its ranking was not chosen, and what it keeps is not fitted. Both are chosen "
    "on held-out prompts, with which a table of SmolLM2 lost less than half as much\n}}"
    "wrote {out}/table.ckvt{demand!, that of round {best_round}}, content id {content_id}\n"
    "tables of every pass: {out}/tables; held-out scores: {out}/heldout; records: {out}/"
    "{probe=grid-search?grid}{probe=grid-search!pass-*}\n"
    "{verdicts#verdict: at budget {budget:.4g}{bytes>0? ({bytes:.10g} of the bytes)} the table's "
    "KL from the whole cache is {kl.mean:.4f} nats per token on {loss.prompts} held-out "
    "prompt{loss.prompts>1?s}{rule&; that of {name}, the best of the rules above, differs "
    "by " GAIN_FORM
    ": the table is {lo>0?better}{lo>0!{hi<0?worse}{hi<0!not shown to differ}}}; the "
    "text that follows a prompt costs {loss&" GAIN_FORM "} nats per token more ({percent:+.1f}% "
    "perplexity)"
    "{loss.prompts<10?; a report says deploy only where 10 prompts or more judge, so compile with "
    "more --prompts}\n}";

static void print_summary(const compile_cli *c, const run_setup *j, const compile_result *r,
                          const json_t *o) {
    const compile_pass *best = &r->passes[r->last_pass[r->best]];
    json_t *tables = json_array(), *references = json_array();
    if (r->select) { choice_say(r->select, j->options.setting.budgets.v); }
    for (size_t i = 0; i < r->n_rounds; i++) {
        json_t *table = pass_json(&r->passes[r->last_pass[i]]);
        json_object_set_new(table, "best", json_boolean(i == r->best));
        json_array_append_new(tables, table);
    }
    for (int k = 0; k < POLICY_KIND_COUNT; k++) {
        if (!best->over[k].n) { continue; }
        json_array_append_new(references,
                              json_pack("{s:s, s:f, s:o}", "name", policy_kind_name((policy_kind)k),
                                        "kept", best->kept[k], "over", gain_json(best->over[k])));
    }
    json_t *beside = json_pack("{s:s, s:b, s:o, s:o, s:o*}", "out", c->setup.out, "demand",
                               c->way == &compile_by_budgets, "tables", tables, "references",
                               references, "best", heldout_json(best));
    form_print(
        stderr, summary_form, o,
        JSON_NUMBERS(beside, {"round", r->n_rounds}, {"documents", best->reward.n_clusters}));
}

/* ---- options ---- */

/* Refuses options that this compile would not look at, if a flag or a variable gives them. A config
 * file may hold them, since it may be meant for another mode. Options that are not listed serve
 * every mode. */
static ckvc_status check_options(const compile_cli *c, ckvc_err *err) {
    const bool loop = c->way == &compile_by_rounds,
               shared = c->fit.budgets.mode == CKVC_MODE_SHARED;
    const struct {
        bool used;
        const char *of, *names[20];
    } rules[] = {
        {loop,
         "--mode uniform --ranking paper",
         {"head-grid", "beta-bud", "loss-reduction", "behaviour", "until-stable", "solver",
          "reward", "unsupported", "gate-grid", "bins", "bin-edges", "min-cell", "rounds",
          "variants", "rollouts", "check-rollouts", "cql-alpha", "shrink", "loss"}},
        {!loop,
         "tables by demand (not --mode uniform --ranking paper)",
         {"select", "recent", "repeat", "no-repeat", "positions", "queries", "bank", "bank-of",
          "bytes"}},
        {!shared, "--mode heads, layers or lengths", {"kept-floor", "demand-floor"}},
        {c->fit.budgets.mode == CKVC_MODE_LENGTHS, "--mode lengths", {"classes"}},
        {!loop && c->fit.budgets.score == CKVC_SCORE_LEARNED,
         "tables by demand with --ranking learned",
         {"features"}},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (size_t k = 0; !rules[i].used && rules[i].names[k]; k++) {
            USAGE_IF(opts_said(rules[i].names[k]),
                     "--%s belongs to %s: leave it out, or give that, too", rules[i].names[k],
                     rules[i].of);
        }
    }
    USAGE_IF(c->shares.n && opts_said("budget"),
             "--bytes counts bytes and --budget entries: give one of them");
    return CKVC_OK;
}

/* Refuses options of prompts that are made of texts beside a manifest of prompts, and the other way
 * round. */
static ckvc_status check_prompts(const compile_cli *c, ckvc_err *err) {
    for (const opt *o = opts_texts; c->setup.inputs.manifest && o->name; o++) {
        USAGE_IF(o->type != OPT_IS_TITLE && opts_said(o->name),
                 "--%s says how prompts are made of texts, but those of --manifest are made: leave "
                 "out one of the two",
                 o->name);
    }
    USAGE_IF(c->setup.leak_check && !c->setup.inputs.manifest,
             "--leak-check is the record of a --manifest: give that, too, or leave it out, since "
             "prompts that are made of texts are checked as they are made");
    return CKVC_OK;
}

/* Chooses the way to a table by --mode and --ranking, sets the options that a way or a probe
 * decides itself, and refuses other values of them. */
static ckvc_status choose_way(compile_cli *c, ckvc_err *err) {
    const probe_kind probe = c->probe;
    const bool shared = c->fit.budgets.mode == CKVC_MODE_SHARED;
    if (!shared || c->fit.budgets.score != CKVC_SCORE_PAPER) {
        USAGE_IF(
            probe != PROBE_JOINT,
            "--probe %s is a part of the loop over heads and gate: say --mode uniform --ranking "
            "paper with it",
            probe_name(probe));
        c->way = &compile_by_budgets;
        if (shared) { c->fit.budgets.c_min = 1; /* every layer keeps B */ }
        c->setup.side = "demand";
        return CKVC_OK;
    }
    c->way = &compile_by_rounds;
    const char *name = probe_name(probe);
    if (probe == PROBE_ALPHA_0 || probe == PROBE_EPSILON_GREEDY) {
        USAGE_IF(opts_said("cql-alpha") && c->fit.cql.cql_alpha != 0,
                 "--probe %s has --cql-alpha 0 itself: leave --cql-alpha out", name);
        c->fit.cql.cql_alpha = 0;
    }
    if (probe == PROBE_EPSILON_GREEDY) {
        USAGE_IF(opts_said("behaviour") && c->setup.log.behaviour != BEHAVIOUR_EPSILON_GREEDY,
                 "--probe epsilon-greedy chooses its actions itself: leave --behaviour out");
        c->setup.log.behaviour = BEHAVIOUR_EPSILON_GREEDY;
    }
    if (probe == PROBE_NO_UTILITY || probe == PROBE_NO_THRESHOLD || probe == PROBE_MEAN_POOL) {
        setting_set_name(setting_of_option("operator"), ' ', &c->setup.inputs.setting, name);
    }
    if (probe == PROBE_GRID_SEARCH) {
        USAGE_IF(c->setup.layer_budgets,
                 "--probe grid-search has one weight for all layers: leave --layer-budgets out");
        USAGE_IF(c->setup.tables || (opts_said("bin-edges") && c->setup.bin_edges != EDGES_UNIFORM),
                 "--probe grid-search has uniform bin edges of its own: leave --tables and "
                 "--bin-edges out");
        c->setup.bin_edges = EDGES_UNIFORM;
    }
    USAGE_IF((probe == PROBE_GATE_ONLY || probe == PROBE_GRID_SEARCH) &&
                 c->setup.log.until_stable > 0,
             "--until-stable looks at a head table as it is logged; --probe %s logs none", name);
    return CKVC_OK;
}

static void log_sides(run_setup *j, const ckvc_side *sides, int n) {
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        j->options.sides[side] = sides[0] == (ckvc_side)side || sides[n - 1] == (ckvc_side)side;
    }
}

static compile_load load_of(const compile_cli *c, const run_setup *j, double prefill_s,
                            double single_s) {
    compile_load l = {.prefill_s = prefill_s,
                      .single_s = single_s,
                      .n_heldout = j->e.prompts->n_heldout,
                      .n_budgets = j->options.setting.budgets.n};
    for (size_t i = 0; i < j->e.prompts->n; i++) { l.n_select += j->e.prompts->items[i].select; }
    l.n_whole = c->bytes.n_whole;
    return l;
}

static ckvc_status print_dry_run(const compile_cli *c, run_setup *j, ckvc_err *err) {
    ckvc_side sides[CKVC_SIDE_COUNT];
    const int n_sides = probe_sides(c->probe, sides);
    const uint32_t rounds = probe_rounds(c->probe, (uint32_t)c->rounds);
    dry_run of = {0};
    json_t *passes = json_array();
    double hours = 0, records = 0, disk = 0;
    for (int i = 0; i < n_sides; i++) {
        log_sides(j, &sides[i], 1);
        CKVC_TRY(run_setup_dry_run(&c->setup, j, &of, err));
        const compile_load l = load_of(c, j, of.prefill_s, of.single_s);
        hours += of.pass_hours + compile_round_hours(&l);
        records += of.records;
        disk += of.disk_bytes;
        json_array_append_new(passes, run_setup_cost_json(j, &of));
    }
    forecast_print(JSON_NUMBERS(json_pack("{s:o}", "passes", passes), {"prompts", j->e.prompts->n},
                                {"rounds", rounds}, {"hours_per_round", hours},
                                {"hours", of.scan_hours + rounds * hours},
                                {"records_per_round", round(records)},
                                {"disk_bytes", round(rounds * disk)}),
                   c->setup.inputs.json, NULL, 0, 0);
    return CKVC_OK;
}

static ckvc_status print_demand_dry_run(const compile_cli *c, run_setup *j, ckvc_err *err) {
    repeat_dry_run of;
    CKVC_TRY(calibrate_repeat_dry_run(&j->inputs, &j->options, &of, err));
    const compile_load l = load_of(c, j, of.prefill_s, of.single_s);
    const budgets_hours d = compile_budgets_hours(&c->fit.budgets, &j->options, &l);
    forecast_print(JSON_NUMBERS(json_pack("{s:[o]}", "passes", run_setup_repeat_json(j, &of)),
                                {"prompts", j->e.prompts->n}, {"select_prompts", l.n_select},
                                {"judge_prompts", l.n_heldout - l.n_select},
                                {"select_hours", d.select}, {"heldout_hours", d.heldout},
                                {"hours", of.hours + d.select + d.heldout},
                                {"disk_bytes", round(of.disk_bytes)}),
                   c->setup.inputs.json, NULL, 0, 0);
    return CKVC_OK;
}

/* Says what to do with the table, unless quiet, and warns if nothing shows that the held-out
 * prompts share no text with those of the table. */
static ckvc_status end_with_table(const compile_cli *c, const run_setup *j, ckvc_err *err) {
    const model_shape *s = model_get_shape(j->e.model);
    CKVC_AUTO_FREE char *path = ckvc_path_join(c->setup.out, "table.ckvt");
    CKVC_AUTO(table_file_free_at) table_file *table = NULL;
    CKVC_TRY(table_file_read(path, &table, err));
    if (!c->setup.inputs.quiet) {
        table_uses_say(table, path, c->setup.inputs.model,
                       2.0 * 2 * s->n_layers * s->n_kv_heads * s->head_dim);
        CKVC_AUTO_FREE char *run = ckvc_path_dir(path);
        say("next: ckvc report %s %s --out %s-report\n", path, run, run);
    }
    if (j->e.prompts->n_heldout) { leak_guard_warn(table, path, j->e.manifest->sha256); }
    return CKVC_OK;
}

/* Makes budgets in entries of --bytes. */
static ckvc_status open_bytes(compile_cli *c, const run_setup *j, ckvc_err *err) {
    if (!c->shares.n) { return CKVC_OK; }
    const cache_formats given = setting_formats(&c->setup.inputs.setting);
    const bool only = opts_given("cache-keys") || opts_given("cache-values");
    byte_ask ask = {.shares = c->shares.items,
                    .n = c->shares.n,
                    .only = only ? &given : NULL,
                    .first = true,
                    .biased = model_get_shape(j->e.model)->qkv_bias,
                    .head_dim = model_get_shape(j->e.model)->head_dim,
                    .shortest = UINT32_MAX,
                    .least = j->options.setting.recent + 1};
    for (size_t i = 0; i < j->e.prompts->n; i++) {
        const prompt *p = &j->e.prompts->items[i];
        ask.first &= !p->select; /* somebody chooses */
        ask.shortest = p->n_tokens < ask.shortest ? p->n_tokens : ask.shortest;
    }
    CKVC_TRY(byte_budgets_make(&ask, &c->bytes, err));
    c->setup.budget.n = c->bytes.n;
    memcpy(c->setup.budget.items, c->bytes.budget, c->bytes.n * sizeof *c->bytes.budget);
    return CKVC_OK;
}

/* Opens what the run reads: model, prompts, budgets and, for the loop, the table that it starts
 * from.
 */
static ckvc_status open_run(compile_cli *c, run_setup *j, ckvc_err *err) {
    CKVC_TRY(choose_way(c, err));
    CKVC_TRY(check_options(c, err));
    CKVC_TRY(check_prompts(c, err));
    c->setup.texts = &c->texts;
    c->setup.log.until_cql_alpha = c->fit.cql.cql_alpha;
    c->setup.log.until_reward = c->fit.cql.reward;
    CKVC_TRY(run_setup_open(&c->setup, j, err));
    if (c->way == &compile_by_budgets) {
        j->e.prompt_options.select = c->select;
        prompts_divide(j->e.prompts, j->e.manifest, &j->e.prompt_options);
        j->options.judges = 0; /* held-out prompts are scored */
        CKVC_TRY(open_bytes(c, j, err));
        USAGE_IF(c->setup.budget.n > PROMPT_SETS_MAX_BUDGETS,
                 "--budget: got %u budgets, wanted at most %d", c->setup.budget.n,
                 PROMPT_SETS_MAX_BUDGETS);
        return run_setup_open_repeat(&c->setup, j, err);
    }
    CKVC_TRY(run_setup_open_start(&c->setup, j, err));
    const ckvc_operator op = run_setup_table(j)->op, wanted = c->setup.inputs.setting.op;
    FAIL_IF(op != wanted, CKVC_E_MISMATCH, "%s: was made with the operator %s; --probe %s has %s",
            c->setup.tables, ckvc_operator_name(op), probe_name(c->probe),
            ckvc_operator_name(wanted));
    ckvc_side sides[CKVC_SIDE_COUNT];
    log_sides(j, sides, probe_sides(c->probe, sides));
    return CKVC_OK;
}

/* Notes that prompts which judge differ in how many tokens are behind them. A report compares
 * policies on prompts of one C, so that each C would judge alone. */
static void note_lengths(const prompt_list *p) {
    uint32_t least = UINT32_MAX, most = 0;
    size_t judges = 0, with_most = 0;
    for (size_t i = 0; i < p->n; i++) {
        const uint32_t C = p->items[i].n_continuation - p->items[i].n_later;
        if (!p->items[i].heldout || p->items[i].select) { continue; }
        judges++;
        with_most = C > most ? 1 : with_most + (C == most);
        least = C < least ? C : least;
        most = C > most ? C : most;
    }
    if (with_most < judges) {
        say("note: %zu of the prompts that judge are followed by fewer than %u tokens, down to %u; "
            "a report judges each number apart: give --continuation %u, or longer prompts\n",
            judges - with_most, most, least, least);
    }
}

static ckvc_status compile(const verb_call *call, ckvc_err *err) {
    compile_cli *c = call->options;
    CKVC_AUTO(run_setup_close) run_setup j = {0};
    CKVC_TRY(open_run(c, &j, err));
    if (!c->setup.inputs.quiet) {
        note_lengths(j.e.prompts);
        shipped_tables_say(c->setup.inputs.model);
    }
    const bool demand = c->way == &compile_by_budgets;
    if (c->setup.dry_run) {
        return demand ? print_demand_dry_run(c, &j, err) : print_dry_run(c, &j, err);
    }
    const size_t memory = c->setup.inputs.memory;
    c->fit.resampled.seed = c->setup.inputs.setting.seed;
    c->fit.memory_max = memory > 0 ? memory : fit_defaults().memory_max;
    const compile_options o = {.probe = c->probe,
                               .rounds = (uint32_t)c->rounds,
                               .plan = &j.plan,
                               .start = run_setup_table(&j),
                               .tables = j.tables,
                               .fit = &c->fit,
                               .bytes = c->bytes.n ? &c->bytes : NULL,
                               .on_pass = on_pass,
                               .on_round = on_round,
                               .ctx = c};
    CKVC_AUTO(compile_result_free_at) compile_result *r = ckvc_calloc(1, sizeof *r);
    json_auto_t *whole = c->way->plan_json(&o);
    CKVC_TRY(run_setup_begin_run(&c->setup, &j, whole, err));
    c->way->begin(j.run, &o);
    if (!demand) { CKVC_TRY(run_setup_set_edges(&c->setup, &j, err)); }
    CKVC_TRY(c->way->run(j.run, &o, r, err));
    json_auto_t *result = result_json(c, &j, r), *gate = json_object();
    if (!demand) {
        const char *pass = r->passes[r->last_pass[r->best]].name;
        CKVC_TRY(gate_add(j.run, pass, result, gate, err));
    }
    if (!c->setup.inputs.quiet) {
        form_print(stderr, GATE_FORM, result, json_incref(gate));
        print_summary(c, &j, r, result);
    }
    if (c->setup.inputs.json) { json_print(result); }
    return end_with_table(c, &j, err);
}

#define OPTIONS_OF compile_cli
static const opt rows[] = {
    OPT_GROUP(opts_inputs, setup),
    OPT_GROUP(opts_texts, texts),
    OPT_PRESETS(opts_log, setup),
    OPT_TITLE("demand (not with --mode uniform --ranking paper)"),
    OPT_GROUP(opts_repeat, setup),
    OPT_DOUBLE(
        "select", select, "F", 0, 1,
        "Choose the ranking and floor by this share of the held-out prompts; the others judge "
        "the table.",
        .preset = "0.5"),
    OPT_BYTES(
        shares, "S,...",
        "Make budgets of these shares of the bytes that the whole cache takes in 16 bits, in "
        "place of --budget; how many entries each keeps, and in which formats, is chosen on "
        "the prompts that choose the ranking (or is what --cache-keys and --cache-values say)."),
    OPT_TITLE("the loop (of --mode uniform --ranking paper)"),
    OPT_INT("rounds", rounds, "N", 1, ALTERNATION_MAX_ROUNDS - 1,
            "Run at most N rounds, each of a head pass and a gate pass.", .preset = "3"),
    OPT_ENUM("probe", probe, PROBE_NAMES,
             "Run the whole loop (joint), or a part or variant of it to compare with."),
    OPT_TITLE("actions"),
    OPT_GROUP(opts_actions, setup),
    OPT_LAYER_BUDGETS(setup.layer_budgets),
    OPT_GROUP(opts_fit, fit),
    OPT_GROUP(opts_formats, setup.inputs),
    OPT_GROUP(opts_run, setup),
    OPT_GROUP(opts_dry_run, setup),
    {0}};

const verb verb_compile = {
    .name = "compile",
    .about =
        "make a table from prompts by what heads ask for, and score it; or run the paper's loop",
    .summary =
        "make a table of a budget per head and a learned ranking from prompts. One pass "
        "counts what\nheads ask for, a fit makes the table, held-out prompts choose its "
        "ranking and floor, and other held-out prompts judge it.\nWith --mode uniform --ranking "
        "paper the table is made the paper's way: head pass, fit, gate pass, fit, until "
        "nothing changes or\nnothing is gained",
    .usage = "ckvc compile --model DIR [--manifest FILE | --texts DIR] --out RUN [options]",
    .examples =
        "  ckvc compile --model DIR --out run                  # from the texts that come along\n"
        "  ckvc compile --model models/ckvc-tiny-8l --manifest prompts.jsonl --budget 0.25 "
        "--holdout 0.2 --out runs/a\n"
        "  ckvc compile ... --out runs/a --resume              # after Ctrl-C, a crash, a full "
        "disk: the same bytes\n"
        "  ckvc compile ... --bytes 0.05,0.1,0.25 --out runs/bytes   # entries and formats of each "
        "share of the bytes\n"
        "  ckvc compile ... --mode lengths --classes 4 --out runs/paged   # for paged caches whose "
        "layers are in four groups\n"
        "  ckvc compile ... --mode uniform --ranking paper --out runs/loop     # the paper's way, "
        "as "
        "in configs/paper.conf\n"
        "  ckvc compile ... --mode uniform --ranking paper --probe head-only --out runs/heads # "
        "what "
        "the gate is worth\n"
        "  ckvc compile ... --dry-run                          # how long, how much memory\n\n"
        "The table is RUN/table.ckvt. What each of its budgets recommends is chosen on the prompts "
        "of the split select, which are\n"
        "those that the manifest names so, or half of the held-out ones, and is judged on the "
        "other held-out prompts. Of the paper's\n"
        "loop the table is that of the round with the best held-out reward, or of the last round "
        "when nothing is held out.\n\n"
        "--holdout draws prompts, not documents, so that two prompts of one document may stand on "
        "both sides. Whether they share\n"
        "text is found by\n"
        "  ckvc manifest check M --against M --holdout F --seed N --out check.json     # then "
        "compile ... --leak-check check.json\n",
    .common = " model manifest texts default-texts lengths prompts budget window continuation "
              "holdout mode ranking select "
              "threads seed out resume dry-run ",
    VERB_OPTIONS(rows),
    .instead = "--model names the model, and --texts or --manifest the prompts",
    .work = compile};
