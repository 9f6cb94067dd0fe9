/* What a transfer brings: the verbs score and report, called as one would by hand. See
 * transfer_report.h. */
#include "cmd/common/transfer_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/verbs.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

/* Arguments of a verb. Texts that were made here are owned. */
typedef struct command {
    char *items[1024];
    int n;
    bool failed;
} command;

static void add(command *c, const char *text) {
    if (c->n == (int)(sizeof c->items / sizeof *c->items) - 1 || !text ||
        !(c->items[c->n] = ckvc_strdup(text))) {
        c->failed = true;
        return;
    }
    c->items[++c->n] = NULL;
}

static void add_list(command *c, const char *option, const opt_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        add(c, option);
        add(c, list->items[i]);
    }
}

static void add_number(command *c, const char *option, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add(c, option);
    add(c, text);
}

static int run(command *c, int (*verb)(int, char **)) {
    int rc = c->failed ? 71 : verb(c->n, c->items);
    if (c->failed) { fputs("ckvc transfer: out of memory: a report\n", stderr); }
    for (int i = 0; i < c->n; i++) {
        free(c->items[i]);
    }
    return rc;
}

ckvc_status transfer_report_check(const transfer_report_cli *c, const char *to_model,
                                  const table_file *from, ckvc_err *err) {
    if (c->manifest && !to_model) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--manifest needs --to-model DIR: prompts are scored with the target");
    }
    if (!c->against) { return CKVC_OK; }
    table_file *t;
    ckvc_status st = table_file_read(c->against, &t, err);
    if (st != CKVC_OK) { return st; }
    if (t->table->head_axis != from->table->head_axis) {
        st = ckvc_fail(err, CKVC_E_MISMATCH,
                       "%s: its rows are %s heads, those of the transferred table are not",
                       c->against, t->table->head_axis ? "query" : "KV");
    } else {
        const setting made = setting_of_table(t->table, t->meta),
                      ours = setting_of_table(from->table, from->meta);
        st = setting_match(&made, c->against, &ours, "the transferred table", SETTING_SCORE,
                           "transfer one that has --", err);
    }
    table_file_free(t);
    return st;
}

/* The scores that one would make by hand: both tables under the transferred table's own settings.
 */
static int score(const transfer_report_cli *c, const char *to_model, const char *table_path,
                 const table_file *table, const char *scores, bool force) {
    command s = {0};
    const char *alpha = json_string_value(json_object_get(table->meta, "alpha_kind"));
    const json_t *continuation = json_object_get(table->meta, "continuation"),
                 *keep = json_object_get(table->meta, "keep_window");
    add(&s, "score");
    add(&s, "--model");
    add(&s, to_model);
    add(&s, "--manifest");
    add(&s, c->manifest);
    add_list(&s, "--split", &c->split);
    add_number(&s, "--window", table->table->window);
    if (json_is_integer(continuation)) {
        add_number(&s, "--continuation", json_integer_value(continuation));
    }
    if (json_is_integer(keep)) { add_number(&s, "--keep-window", json_integer_value(keep)); }
    if (alpha) {
        add(&s, "--alpha");
        add(&s, alpha);
    }
    add(&s, "--table");
    add(&s, table_path);
    if (c->against) {
        add(&s, "--table");
        add(&s, c->against);
    }
    add(&s, "--policy");
    add(&s, "identity,matched");
    add(&s, "--out");
    add(&s, scores);
    if (force) { add(&s, "--force"); }
    return run(&s, cmd_score);
}

/* The report that one would ask for by hand. */
static int report(const transfer_report_cli *c, const char *table_path, const char *scores,
                  bool force) {
    command r = {0};
    add(&r, "report");
    add(&r, table_path);
    if (c->against) { add(&r, c->against); }
    add_list(&r, "--scores", &c->scores);
    if (c->manifest) {
        add(&r, "--scores");
        add(&r, scores);
    }
    add(&r, "--out");
    add(&r, c->out);
    if (force) { add(&r, "--force"); }
    return run(&r, cmd_report);
}

int transfer_report(const transfer_report_cli *c, const char *to_model, const char *table_path,
                    const table_file *table, bool force) {
    ckvc_err err = {0};
    char *scores = ckvc_path_join(c->out, "scores.jsonl");
    int rc = 0;
    if (!scores || ckvc_make_dirs(c->out, &err) != CKVC_OK) {
        (void)ckvc_fail_memory(&err, "a path", strlen(c->out));
        rc = cmd_fail("transfer", &err);
    }
    if (rc == 0 && c->manifest) { rc = score(c, to_model, table_path, table, scores, force); }
    rc = rc == 0 ? report(c, table_path, scores, force) : rc;
    free(scores);
    return rc;
}
