/* ckvc fit: records -> table. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cql/fit/fit_records.h"
#include "cmd/common/fit_options.h"
#include "cmd/verbs.h"
#include "formats/table/table_file.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/names.h"

static const verb_text text = {
    "fit",
    "records to tables: horizon-1 conservative Q-learning, one state at a time",
    "ckvc fit RUN... --out T.ckvt [options]\n       ckvc fit SHARD.h5... --out T.ckvt [options]",
    "  ckvc fit runs/books --out books.ckvt\n"
    "  ckvc fit runs/a runs/b --out both.ckvt --bootstrap 200 --label both\n"
    "  ckvc fit other-tool.h5 --out t.ckvt --unsupported safest --json\n",
};

typedef struct fit_cli {
    fit_choices choices;
    const char *out, *tables;
    opt_list split, leak_checks;
    int64_t pass, seed, memory;
    bool no_prov, force, json, quiet;
} fit_cli;

/* Where a table came from, outside what is hashed (pROV). */
static json_t *provenance(int argc, char **argv, const opt_args *args) {
    ckvc_buffer command = {0};
    ckvc_buffer_text(&command, "ckvc");
    for (int i = 0; i < argc; i++) {
        ckvc_buffer_text(&command, " ");
        ckvc_buffer_text(&command, argv[i]);
    }
    char created[32] = "", host[256] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) {
        strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    gethostname(host, sizeof host - 1);
    json_t *inputs = json_array();
    for (int i = 0; i < args->n; i++) {
        json_array_append_new(inputs, json_string(args->items[i]));
    }
    json_t *o = command.failed ? NULL
                               : json_pack("{s:s, s:s, s:s, s:s, s:o}", "command",
                                           (const char *)command.data, "created", created, "host",
                                           host, "ckvc_version", CKVC_VERSION, "inputs", inputs);
    ckvc_buffer_fini(&command);
    return o;
}

static void print_side(const fit_side *s, ckvc_side side, const double *budgets, const fit_cli *c) {
    const char *name = ckvc_side_name(side);
    if (!s->fitted) {
        fprintf(stderr, "%s: no records; copied from the incoming table%s\n", name,
                s->carried ? ", with its evidence" : "");
        return;
    }
    fprintf(stderr,
            "%s: %" PRIu64 " records of %" PRIu64
            " prompts; %zu of %zu states supported (records each: %" PRIu64 " / %" PRIu64
            " / %" PRIu64 " least, median, most); %zu entries changed\n",
            name, s->n_records, s->n_prompts, s->n_supported, s->n_states, s->count_min,
            s->count_median, s->count_max, s->n_changed);
    fprintf(stderr,
            "  scale %.3g nats per token; choices that the plain mean reward would not make: %zu "
            "of %zu (%.1f%%)",
            s->scale, s->n_alpha_decided, s->n_supported,
            100.0 * (double)s->n_alpha_decided / (double)s->n_supported);
    if (isnan(s->count_correlation)) {
        fprintf(stderr, "; action counts are equal\n");
    } else {
        fprintf(stderr, "; rank correlation of choice and count %+.3f\n", s->count_correlation);
    }
    fprintf(stderr, "  counts drawn uniformly, as many in all, would turn %.1f%% of the choices\n",
            100.0 * s->count_noise);
    if (side == CKVC_SIDE_GATE) {
        fprintf(stderr,
                "  chosen as the loss alone would: %zu, otherwise because of the penalty: %zu; "
                "states where no action changes the "
                "loss: %zu\n",
                s->n_by_loss, s->n_by_penalty, s->n_flat_loss);
    }
    for (size_t b = 0; side == CKVC_SIDE_GATE && s->n_budgets > 1 && b < s->n_budgets; b++) {
        fprintf(stderr, "    budget %g: %zu by the loss, %zu by the penalty, %zu flat\n",
                budgets[b], s->by_budget[b].n_by_loss,
                s->by_budget[b].n_supported - s->by_budget[b].n_by_loss,
                s->by_budget[b].n_flat_loss);
    }
    if (!isnan(s->adamw_distance)) {
        fprintf(stderr,
                "  AdamW stopped %.3g from the exact solution (largest difference of Q, scaled "
                "rewards)\n",
                s->adamw_distance);
    }
    if (c->choices.shrink) {
        fprintf(stderr,
                "  %zu choices taken back: not better than the neutral action beyond chance\n",
                s->n_shrunk);
    }
}

static int print_result(const fit_result *r, const fit_cli *c) {
    if (!c->quiet) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            print_side(&r->sides[side], (ckvc_side)side, r->table->table->budgets, c);
        }
        if (r->n_heldout + r->n_filtered > 0) {
            fprintf(stderr, "left out: %" PRIu64 " held-out prompts, %" PRIu64 " of other splits\n",
                    r->n_heldout, r->n_filtered);
        }
        fprintf(stderr, "wrote %s, content id %s\n", c->out, r->table->content_id);
    }
    if (!c->json) { return 0; }
    json_t *o = fit_describe(r);
    ckvc_buffer line = {0};
    if (o != NULL && json_object_set_new(o, "out", json_string(c->out)) == 0 &&
        json_object_set_new(o, "content_id", json_string(r->table->content_id)) == 0) {
        ckvc_json_append(&line, o);
    }
    json_decref(o);
    bool ok = line.size > 0 && !line.failed;
    if (ok) { puts((const char *)line.data); }
    ckvc_buffer_fini(&line);
    return ok ? 0 : 71;
}

static ckvc_status fit(const fit_cli *c, const opt_args *args, int argc, char **argv, int *rc,
                       ckvc_err *err) {
    /* Said before the work, not after it. */
    if (!c->force && ckvc_file_exists(c->out)) {
        return ckvc_fail(err, CKVC_E_CREATE,
                         "%s: exists; name another --out, or overwrite it with --force", c->out);
    }
    table_file *incoming = NULL;
    fit_result *result = NULL;
    leak_record checks[sizeof c->leak_checks.items / sizeof *c->leak_checks.items] = {0};
    ckvc_status st = c->tables != NULL ? table_file_read(c->tables, &incoming, err) : CKVC_OK;
    if (st != CKVC_OK) { return st; }
    fit_options o = fit_options_of(&c->choices);
    o.pass = (int)c->pass;
    o.splits = c->split.items;
    o.n_splits = c->split.n;
    o.seed = (uint64_t)c->seed;
    o.memory_max = (size_t)c->memory;
    o.incoming = incoming;
    o.leak_checks = checks;
    for (; o.n_leak_checks < c->leak_checks.n && st == CKVC_OK; o.n_leak_checks++) {
        st = leak_record_read(c->leak_checks.items[o.n_leak_checks], &checks[o.n_leak_checks], err);
    }
    if (st == CKVC_OK) { st = fit_records(args->items, (size_t)args->n, &o, &result, err); }
    if (st == CKVC_OK && !c->no_prov &&
        (result->table->prov = provenance(argc, argv, args)) == NULL) {
        st = ckvc_fail(err, CKVC_E_MEMORY, "out of memory: a table's provenance");
    }
    if (st == CKVC_OK) { st = table_file_write(result->table, c->out, c->force, err); }
    if (st == CKVC_OK) { *rc = print_result(result, c); }
    for (size_t i = 0; i < o.n_leak_checks; i++) {
        leak_record_fini(&checks[i]);
    }
    fit_result_free(result);
    table_file_free(incoming);
    return st;
}

int cmd_fit(int argc, char **argv) {
    fit_cli c = {.choices = fit_choice_defaults(), .seed = 1, .memory = (int64_t)4 << 30};
    opt opts[] = {
        {OPT_TITLE, "input and output", 0, NULL, NULL, NULL, 0, 0},
        {OPT_TEXT, "out", 0, &c.out, "T.ckvt", "the table to write", 0, 0},
        {OPT_TEXT, "tables", 0, &c.tables, "T.ckvt",
         "incoming table (default: the start table of the records)", 0, 0},
        {OPT_INT, "pass", 0, &c.pass, "N",
         "pass of every run (0: the last complete one of each side)", 0, 9999},
        {OPT_LIST, "split", 0, &c.split, "NAME[,...]",
         "only prompts of these splits; held-out prompts never enter", 0, 0},
        {OPT_LIST, "leak-check", 0, &c.leak_checks, "CHECK.json,...",
         "records of `manifest check`, where runs hold none", 0, 0},
        {OPT_FLAG, "no-prov", 0, &c.no_prov, NULL,
         "leave out command line, time and host: equal inputs, equal bytes", 0, 0},
        {OPT_FLAG, "force", 0, &c.force, NULL, "overwrite --out", 0, 0},
        OPTS_FIT(c.choices),
        {OPT_INT, "seed", 0, &c.seed, "N", "of the bootstrap and of adamw's order", 0,
         9007199254740992.0},
        {OPT_SIZE, "memory", 0, &c.memory, "SIZE", "limit for statistics and replicates", 0, 0},
        {OPT_TITLE, "talk", 0, NULL, NULL, NULL, 0, 0},
        {OPT_FLAG, "json", 0, &c.json, NULL, "diagnostics as one JSON object on stdout", 0, 0},
        {OPT_FLAG, "quiet", 'q', &c.quiet, NULL, "say nothing but warnings and errors", 0, 0},
        {0},
    };
    opt_args args = {0};
    int rc = 0;
    ckvc_err err = {0};
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) { return rc; }
    if (args.n == 0) {
        rc = cmd_usage("fit", "which records? name run directories or shard files");
    } else if (c.out == NULL) {
        rc = cmd_usage("fit", "--out T.ckvt is needed: the table to write");
    } else if (fit(&c, &args, argc, argv, &rc, &err) != CKVC_OK) {
        rc = cmd_fail("fit", &err);
    }
    free(args.items);
    return rc;
}
