/* ckvc fit makes a table from the records of runs. */
#include <time.h>
#include <unistd.h>

#include "cmd/common/fit_options.h"
#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "fit/fit_records.h"
#include "budgets/select.h"
#include "lib/base/json.h"
#include "lib/base/files.h"

typedef struct fit_cli {
    fit_options fit;
    const char *out, *tables, *choose;
    opt_list split, leak_checks;
    int64_t pass;
    bool no_prov, force, json, quiet;
} fit_cli;

/* Says where a table came from. This is the section pROV, which the content id does not cover. */
static json_t *provenance(const verb_call *call) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer command = {0};
    ckvc_buffer_text(&command, "ckvc");
    for (int i = 0; i < call->argc; i++) { ckvc_buffer_printf(&command, " %s", call->argv[i]); }
    char created[32] = "", host[256] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) { strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc); }
    gethostname(host, sizeof host - 1);
    json_t *inputs = ckvc_json_texts(call->items, call->n);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "command", (const char *)command.data, "created",
                     created, "host", host, "ckvc_version", CKVC_VERSION, "inputs", inputs);
}

static const char side_form[] =
    "{side}: {fitted!no records; copied from the incoming table{carried?, with its evidence}\n}"
    "{fitted?{records} records of {prompts} prompts; {supported} of {states} states supported "
    "(records each: {records_per_state_min} / {records_per_state_median:.10g} / "
    "{records_per_state_max} least, median, most); {changed} entries changed\n"
    "  scale {scale:.3g} nats per token; choices that the plain mean reward would not make: "
    "{alpha_decided} of {supported} ({alpha_decided*100/supported:.1f}%)"
    "{count_correlation?; rank correlation of choice and count {count_correlation:+.3f}}"
    "{count_correlation!; action counts are equal}\n"
    "  counts drawn uniformly, as many in all, would turn {count_noise_share*100:.1f}% of the "
    "choices\n"
    "{by_budget?  chosen as the loss alone would: {by_loss}, otherwise because of the penalty: "
    "{by_penalty}; states where no action changes the loss: {flat_loss}\n"
    "{by_budget.1?{by_budget#    budget {budget:g}: {by_loss} by the loss, {by_penalty} by the "
    "penalty, {flat_loss} flat\n}}}"
    "{adamw_distance?  AdamW stopped {adamw_distance:.3g} from the exact solution (largest "
    "difference of Q, scaled rewards)\n}"
    "{shrink?  {shrunk} choices taken back: not better than the neutral action beyond chance\n}}";

/* How decided the shares of heads or layers are: "12 of 90 undecided, halves of the prompts agree
 * at rho 0.970 (0.950 to 0.980; by depth 0.961 0.983 0.970)". */
#define UNITS                                                                                      \
    "{undecided} of {entries} undecided, halves of the prompts agree at {split_halves&"            \
    "{overall!an undefined rho}{overall?rho {overall:.3f} ({lo:.3f} to {hi:.3f}; by depth"         \
    "{layer_groups#{.? {.:.3f}}{.! undefined}})}}"

static const char fit_form[] =
    "{carried?demand: no records; shares are the incoming table's\n}"
    "{demand&demand: {prompts} prompts{documents? of {documents} documents}; undecided: the 95% "
    "interval of {replicates} resamples holds an equal share\n"
    "{by_budget#  budget {budget:g}, {prompts} prompts: heads {heads&" UNITS
    "}; layers {layers&" UNITS "}{lengths&; lengths " UNITS "}\n}}"
    "{learned&learned ranking: {prompts} prompts, {positions} positions of each head; "
    "cross-entropy "
    "of the attention to come {cross_entropy:.4f} nats (gradient left {gradient:.1g})\n"
    "{heldout_prompts?  on {heldout_prompts} held-out prompts {heldout_cross_entropy:.4f}, of the "
    "window score {heldout_cross_entropy_window:.4f}{heldout_cross_entropy_expected?, of Expected "
    "Attention {heldout_cross_entropy_expected:.4f}}\n}}"
    "{bank&bank: {queries} query vectors of each query head, drawn from {rows} that {prompts} "
    "{of=both?prompts and their continuations}{of=prompt?prompts}{of=continuation?prompts\'"
    " continuations} logged\n}"
    "{left_out?left out: {heldout_prompts} held-out prompts, "
    "{filtered_prompts} of other splits\n}"
    "wrote {out}, content id {content_id}\n";

static void print_result(const fit_result *r, const fit_cli *c) {
    json_auto_t *o = fit_describe(r);
    bool sides = c->tables; /* a fit of demand alone leaves them neutral */
    json_object_set_new(o, "out", json_string(c->out));
    json_object_set_new(o, "content_id", json_string(r->table->content_id));
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) { sides |= r->sides[side].fitted; }
    for (int side = 0; side < CKVC_SIDE_COUNT && sides && !c->quiet; side++) {
        const char *name = ckvc_side_name((ckvc_side)side);
        const fitted_side *s = &r->sides[side];
        form_print(stderr, side_form, json_object_get(o, name),
                   json_pack("{s:s, s:b, s:f, s:b}", "side", name, "carried", s->carried, "scale",
                             s->scale, "shrink", c->fit.cql.shrink));
    }
    if (!c->quiet) {
        form_print(stderr, fit_form, o,
                   json_pack("{s:b, s:b}", "carried", r->demand.carried, "left_out",
                             r->n_heldout + r->n_filtered > 0));
    }
    if (c->json) { json_print(o); }
}

/* Takes what each budget recommends from --choose, which has score lines of the table fitted here.
 */
static ckvc_status choose_recommended(const fit_cli *c, const verb_call *call, const fit_options *o,
                                      fit_result *r, ckvc_err *err) {
    table_file *t = r->table;
    CKVC_AUTO(select_free_at) select_losses *s = NULL;
    CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = NULL;
    CKVC_AUTO_FREE double *mix = ckvc_alloc(t->table->n_budgets, sizeof *mix);
    if (!c->choose) { return CKVC_OK; }
    USAGE_IF(!t->table->share, "--choose chooses for tables with shares, and these records make "
                               "none; fit a run of --side demand");
    CKVC_TRY(select_read(c->choose, t->table, false, &s, err));
    if (select_mixes(s, mix) || o->budgets.mix > 0) {
        CKVC_TRY(fit_mixes_read(call->items, call->n, o, &m, err));
        CKVC_TRY(fit_mixes_take(m, mix, t, &r->demand, err));
    }
    select_take(s, t);
    if (!c->quiet) { choice_say(s, t->table->budgets); }
    return CKVC_OK;
}

typedef struct leak_checks {
    leak_record *items;
    size_t n;
} leak_checks;

static void leak_checks_fini(leak_checks *l) {
    for (size_t i = 0; i < l->n; i++) { leak_record_fini(&l->items[i]); }
    free(l->items);
}

static ckvc_status fit(const verb_call *call, ckvc_err *err) {
    const fit_cli *c = call->options;
    USAGE_IF(call->n == 0, "no records are named; give run directories or shard files");
    USAGE_IF(!c->out, "--out T.ckvt is needed: the table to write");
    USAGE_IF(opts_said("classes") && c->fit.budgets.mode != CKVC_MODE_LENGTHS,
             "--classes belongs to --mode lengths: leave it out, or give that, too");
    CKVC_TRY(ckvc_publish_check(c->out, c->force,
                                err)); /* so that a file in the way is known before the work */
    CKVC_AUTO(table_file_free_at) table_file *incoming = NULL;
    CKVC_AUTO(fit_result_free_at) fit_result *result = NULL;
    CKVC_AUTO(leak_checks_fini)
    leak_checks checks = {ckvc_calloc(c->leak_checks.n, sizeof *checks.items), 0};
    if (c->tables) { CKVC_TRY(table_file_read(c->tables, &incoming, err)); }
    for (; checks.n < c->leak_checks.n; checks.n++) {
        CKVC_TRY(leak_record_read(c->leak_checks.items[checks.n], &checks.items[checks.n], err));
    }
    fit_options o = c->fit;
    o.pass = (int)c->pass;
    o.splits = c->split.items;
    o.n_splits = c->split.n;
    o.incoming = incoming;
    o.leak_checks = checks.items;
    o.n_leak_checks = checks.n;
    CKVC_TRY(fit_records(call->items, call->n, &o, &result, err));
    CKVC_TRY(choose_recommended(c, call, &o, result, err));
    if (!c->no_prov) { result->table->prov = provenance(call); }
    CKVC_TRY(table_file_write(result->table, c->out, c->force, err));
    print_result(result, c);
    return CKVC_OK;
}

#define OPTIONS_OF fit_cli
static const opt rows[] = {
    OPT_TITLE("input and output"),
    OPT_OUTPUT("out", out, "T.ckvt", "Write the table to this file.", .letter = 'o'),
    OPT_INPUT("tables", tables, "T.ckvt",
              "Start from this table; without this option, from the start table of the records."),
    OPT_INPUT("choose", choose, "S.jsonl",
              "Read these lines of `ckvc score`, made with tables of the same records: each budget "
              "then recommends the ranking, floor and mix that lose least."),
    OPT_INT("pass", pass, "N", 0, 9999,
            "Read pass N of every run; 0 means the last complete pass of each side."),
    OPT_LIST("split", split, "NAME[,...]",
             "Take only the prompts of these splits; held-out prompts never enter."),
    OPT_INPUTS("leak-check", leak_checks, "CHECK.json,...",
               "Take these records of `manifest check` for runs that hold none."),
    OPT_FLAG("no-prov", no_prov,
             "Leave out command line, time and host, so that equal inputs give equal bytes."),
    OPT_FLAG("force", force, "Overwrite the file of --out.", .letter = 'f'),
    OPT_GROUP(opts_fit, fit),
    OPT_DOUBLE("mix", fit.budgets.mix, "W", 0, 1,
               "Count demand with weight W on what the continuation looks at and 1 - W on what the "
               "repetition does; 0, 0.25, 0.5, 0.75 and 1 are logged."),
    OPT_DOUBLE("ridge", fit.budgets.bank.ridge, "R", -1, 1e6,
               "Let the table fit kept entries by its bank with this ridge in all layers; 0 or "
               "less leaves entries as they are.",
               .preset = "-1"),
    OPT_INT("seed", fit.resampled.seed, "N", 0, 9007199254740992.0,
            "Draw the bootstrap, the bank and the order of adamw from this seed.", .preset = "1"),
    OPT_SIZE("memory", fit.memory_max, "Use at most this much memory for statistics and resamples.",
             .preset = "4G"),
    OPT_TITLE("messages"),
    OPT_FLAG("json", json, "Print diagnostics as one JSON object."),
    OPT_FLAG("quiet", quiet, "Print nothing but warnings and errors.", .letter = 'q'),
    {0}};

const verb verb_fit = {
    .name = "fit",
    .about = "make a table from records: shares from demand, the rest by conservative Q-learning",
    .summary = "make a table from records: shares of a budget from demand, weights and thresholds "
               "by\nhorizon-1 conservative Q-learning, one state at a time",
    .usage = "ckvc fit RUN... --out T.ckvt [options]\n"
             "       ckvc fit SHARD.h5... --out T.ckvt [options]",
    .examples = "  ckvc fit runs/books --out books.ckvt\n"
                "  ckvc fit runs/demand runs/books --out both.ckvt   # shares beside weights\n"
                "  ckvc fit runs/a runs/b --out both.ckvt --bootstrap 200 --label both\n"
                "  ckvc fit other-tool.h5 --out t.ckvt --unsupported safest --json\n",
    .common = " out tables bootstrap mode ranking kept-floor label split json force ",
    VERB_OPTIONS(rows),
    .reads_args = true,
    .work = fit};
