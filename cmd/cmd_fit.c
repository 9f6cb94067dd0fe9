/* ckvc fit: records -> table. */
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

/* Where a table came from, outside what is hashed (pROV). */
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

static void print_side(const fitted_side *s, ckvc_side side, const double *budgets,
                       const fit_cli *c) {
    const char *name = ckvc_side_name(side);
    const decided *d = &s->why;
    const size_t n = d->n_supported;
    if (!s->fitted) {
        say("%s: no records; copied from the incoming table%s\n", name,
            s->carried ? ", with its evidence" : "");
        return;
    }
    say("%s: %" PRIu64 " records of %" PRIu64
        " prompts; %zu of %zu states supported (records each: %" PRIu64 " / %.10g / %" PRIu64
        " least, median, most); %zu entries changed\n",
        name, s->n_records, s->n_prompts, n, s->n_states, n ? d->records[0] : 0, n ? d->median : 0,
        n ? d->records[n - 1] : 0, s->n_changed);
    say("  scale %.3g nats per token; choices that the plain mean reward would not make: %zu of "
        "%zu (%.1f%%)",
        s->scale, d->n_alpha, n, 100.0 * (double)d->n_alpha / (double)n);
    if (isnan(d->correlation)) {
        say("; action counts are equal\n");
    } else {
        say("; rank correlation of choice and count %+.3f\n", d->correlation);
    }
    say("  counts drawn uniformly, as many in all, would turn %.1f%% of the choices\n",
        100.0 * s->count_noise);
    if (d->split) {
        const decided_split all = decided_sum(d, d->nB);
        say("  chosen as the loss alone would: %zu, otherwise because of the penalty: %zu; states "
            "where no action changes the loss: %zu\n",
            all.by_loss, all.supported - all.by_loss, all.flat);
    }
    for (size_t b = 0; d->split && d->nB > 1 && b < d->nB; b++) {
        const decided_split of = decided_sum(d, b);
        say("    budget %g: %zu by the loss, %zu by the penalty, %zu flat\n", budgets[b],
            of.by_loss, of.supported - of.by_loss, of.flat);
    }
    if (!isnan(s->adamw_distance)) {
        say("  AdamW stopped %.3g from the exact solution (largest difference of Q, scaled "
            "rewards)\n",
            s->adamw_distance);
    }
    if (c->fit.cql.shrink) {
        say("  %zu choices taken back: not better than the neutral action beyond chance\n",
            s->n_shrunk);
    }
}

/* "12 of 90 undecided, halves of the prompts agree at 0.97 (0.95 to 0.98; by depth 0.96 0.98 0.97)"
 */
static void print_units(const demand_units *u) {
    const sample_spread *rho = &u->halves.overall;
    say("%zu of %zu undecided, halves of the prompts agree at ", u->undecided, u->n);
    if (isnan(rho->mean)) {
        say("an undefined rho");
        return;
    }
    say("rho %.3f (%.3f to %.3f; by depth", rho->mean, rho->lo, rho->hi);
    for (size_t g = 0; g < u->halves.n_groups; g++) {
        const double mean = u->halves.groups[g].mean;
        if (isnan(mean)) {
            say(" undefined");
        } else {
            say(" %.3f", mean);
        }
    }
    say(")");
}

/* "63 prompts", "63 prompts of 46 documents" */
static void print_prompts(uint64_t prompts, uint64_t documents) {
    say("%" PRIu64 " prompts", prompts);
    if (documents < prompts) { say(" of %" PRIu64 " documents", documents); }
}

static void print_demand(const fitted_demand *d, const double *budgets) {
    if (d->carried) { say("demand: no records; shares are the incoming table's\n"); }
    if (!d->fitted) { return; }
    say("demand: ");
    print_prompts(d->n_prompts, d->n_documents);
    say("; undecided: the 95%% interval of %u resamples holds an equal share\n", d->n_replicates);
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        say("  budget %g, %zu prompts: heads ", budgets[b], d->blocks[b].n_prompts);
        print_units(&d->blocks[b].heads);
        say("; layers ");
        print_units(&d->blocks[b].layers);
        say("\n");
    }
}

static void print_learned(const fitted_learned *l) {
    if (!l->fitted) { return; }
    say("learned ranking: %" PRIu64 " prompts, %u positions of each head; cross-entropy of the "
        "attention to come %.4f nats (gradient left %.1g)\n",
        l->n_prompts, l->positions, l->loss, l->gradient);
    if (l->n_heldout) {
        say("  on %" PRIu64 " held-out prompts %.4f, of the window score %.4f", l->n_heldout,
            l->heldout, l->heldout_window);
        if (!isnan(l->heldout_expected)) {
            say(", of Expected Attention %.4f", l->heldout_expected);
        }
        say("\n");
    }
}

static void print_result(const fit_result *r, const fit_cli *c) {
    if (!c->quiet) {
        bool sides = c->tables; /* those of demand alone are neutral */
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) { sides |= r->sides[side].fitted; }
        for (int side = 0; side < CKVC_SIDE_COUNT && sides; side++) {
            print_side(&r->sides[side], (ckvc_side)side, r->table->table->budgets, c);
        }
        print_demand(&r->demand, r->table->table->budgets);
        print_learned(&r->learned);
        if (r->n_heldout + r->n_filtered > 0) {
            say("left out: %" PRIu64 " held-out prompts, %" PRIu64 " of other splits\n",
                r->n_heldout, r->n_filtered);
        }
        say("wrote %s, content id %s\n", c->out, r->table->content_id);
    }
    if (c->json) {
        json_t *o = fit_describe(r);
        json_object_set_new(o, "out", json_string(c->out));
        json_object_set_new(o, "content_id", json_string(r->table->content_id));
        json_print(o);
    }
}

/* --choose: what each budget recommends, by scores of the table that was fitted here. */
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
    CKVC_TRY(ckvc_publish_check(c->out, c->force, err)); /* before the work, not after it */
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
              "then recommends the score, floor and mix that lose least."),
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
    OPT_INT("seed", fit.resampled.seed, "N", 0, 9007199254740992.0,
            "Draw the bootstrap and the order of adamw from this seed.", .preset = "1"),
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
