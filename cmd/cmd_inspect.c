/* ckvc inspect says what a table, shard, run, model, manifest, or a file of scores or answers is;
 * ckvc verify checks all of it. */
#include <fnmatch.h>
#include <sys/stat.h>

#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/common/table_uses.h"
#include "cmd/verbs.h"
#include "formats/lines/answers.h"
#include "formats/lines/rows.h"
#include "formats/lines/scores.h"
#include "formats/model/gguf.h"
#include "formats/model/model_files.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/files.h"
#include "lib/model/model_info.h"

typedef struct looking {
    bool json, cells, records;
    session_limits limits;
} looking;

/* ---- kinds: *out describes the file; if out is NULL, the file is only checked, but all of it ----
 */

static ckvc_status look_at_table(const looking *c, const char *path, json_t **out, ckvc_err *err) {
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(table_file_read(path, &t, err));
    if (!out) { return CKVC_OK; }
    *out = table_file_describe(t, c->cells);
    if (!c->cells) { json_object_set_new(*out, "uses", table_uses(t, path, "DIR")); }
    return CKVC_OK;
}

/* No checksum vouches for a shard outside its run, so it is read as a stranger's. */
static ckvc_status look_at_shard(const looking *c, const char *path, json_t **out, ckvc_err *err) {
    (void)c;
    shard *s = NULL;
    CKVC_TRY(shard_h5_read(path, true, &s, err));
    if (out) { *out = shard_describe(s); }
    shard_free(s);
    return CKVC_OK;
}

/* With --records prints the records, with one shard in memory at a time. */
static ckvc_status look_at_run(const looking *c, const char *path, json_t **out, ckvc_err *err) {
    if (!out) { return run_verify(path, err); }
    CKVC_AUTO(run_close_at) run_dir *r = NULL;
    CKVC_TRY(run_open(path, &r, err));
    *out = c->records ? NULL : run_describe(r);
    for (size_t i = 0; c->records && i < run_pass_count(r); i++) {
        const run_pass *p = run_pass_at(r, i);
        for (size_t k = 0; k < p->n_shards && !ferror(stdout); k++) {
            CKVC_AUTO(shard_free_at) shard *s = NULL;
            CKVC_TRY(run_read_shard(r, p, k, &s, err));
            shard_print_records(s, p->name, stdout);
        }
    }
    return CKVC_OK;
}

/* Also names the tokenizer, and the chat template that --chat-template auto would take. */
static ckvc_status look_at_model(const looking *c, const char *path, json_t **out, ckvc_err *err) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    char fingerprint[CKVC_SHA256_HEX];
    json_auto_t *o = NULL;
    chat_template chat;
    CKVC_TRY(model_files_read(path, &spec, err));
    CKVC_TRY(out ? model_info(spec, c->limits, &o, err) : model_verify(spec, fingerprint, err));
    CKVC_TRY(inputs_open_tokenizer(path, spec->shape.vocab, &tok, err));
    if (!out && tok && tokenizer_vocab_size(tok) > spec->shape.vocab) {
        ckvc_warn("%s: the tokenizer's added tokens go up to id %d, the model's embeddings up to "
                  "%d; a prompt that holds one above is refused",
                  path, tokenizer_vocab_size(tok) - 1, spec->shape.vocab - 1);
    }
    if (!out) { return CKVC_OK; }
    CKVC_TRY(chat_template_choose("auto", tok, &chat, err));
    json_object_set_new(
        o, "tokenizer",
        tok ? json_pack("{s:s, s:i, s:s}", "fingerprint", tokenizer_fingerprint(tok), "vocab",
                        tokenizer_vocab_size(tok), "chat_template", chat_style_name(chat.style))
            : json_null());
    *out = json_incref(o);
    return CKVC_OK;
}

static void count_one(json_t *counts, const char *key) {
    if (!key) { return; }
    json_int_t n = json_integer_value(json_object_get(counts, key));
    json_object_set_new(counts, key, json_integer(n + 1));
}

static ckvc_status look_at_manifest(const looking *c, const char *path, json_t **out,
                                    ckvc_err *err) {
    (void)c;
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    CKVC_TRY(manifest_read(path, &m, err));
    if (!out) { return CKVC_OK; }
    json_t *sources = json_object(), *splits = json_object();
    size_t with_tokens = 0, with_messages = 0, with_continuation = 0, text_bytes = 0, n_tokens = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        with_tokens += e->tokens != NULL;
        with_messages += e->n_messages > 0;
        with_continuation += e->continuation || e->continuation_tokens;
        text_bytes += e->text_size;
        n_tokens += e->n_tokens;
        count_one(sources, e->source);
        count_one(splits, e->split);
    }
    *out = json_pack("{s:s}", "sha256", m->sha256);
    JSON_NUMBERS(*out, {"prompts", m->n_entries},
                 {"as_text", m->n_entries - with_tokens - with_messages},
                 {"text_bytes", text_bytes}, {"as_tokens", with_tokens}, {"tokens", n_tokens},
                 {"as_messages", with_messages}, {"with_continuation", with_continuation});
    json_object_set_new(*out, "sources", sources);
    json_object_set_new(*out, "splits", splits);
    return CKVC_OK;
}

/* Counts a row of a file of results under its prompt or item, policy, table and budget. */
static void count_row(json_t *o, const char *id, const char *policy, const char *table,
                      double budget) {
    json_object_set_new(json_object_get(o, "ids"), id, json_true());
    count_one(json_object_get(o, "policies"), policy);
    count_one(json_object_get(o, "tables"), table && *table ? table : NULL);
    if (!isfinite(budget)) { return; } /* the full cache */
    CKVC_AUTO_FREE char *text = ckvc_format("%.10g", budget);
    count_one(json_object_get(o, "budgets"), text);
}

/* Replaces the set of ids by their number, a member named `of`, and adds the number of lines. */
static json_t *counted(json_t *o, size_t n_lines, const char *of) {
    json_object_set_new(o, of,
                        json_integer((json_int_t)json_object_size(json_object_get(o, "ids"))));
    json_object_del(o, "ids");
    json_object_set_new(o, "lines", json_integer((json_int_t)n_lines));
    return o;
}

static ckvc_status look_at_scores(const looking *c, const char *path, json_t **out, ckvc_err *err) {
    (void)c;
    CKVC_AUTO(scores_free_at) scores *s = NULL;
    CKVC_TRY(scores_read(path, &s, err));
    if (!out) { return CKVC_OK; }
    json_t *o = json_pack("{s:{}, s:{}, s:{}, s:{}, s:{}, s:{}, s:{}}", "ids", "models",
                          "manifests", "splits", "policies", "tables", "budgets");
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        count_row(o, r->id, r->policy, r->table, r->budget);
        count_one(json_object_get(o, "models"), r->model);
        count_one(json_object_get(o, "manifests"), r->manifest);
        count_one(json_object_get(o, "splits"), r->split);
    }
    *out = counted(o, s->n, "prompts");
    return CKVC_OK;
}

static ckvc_status look_at_answers(const looking *c, const char *path, json_t **out,
                                   ckvc_err *err) {
    (void)c;
    CKVC_AUTO(answers_free_at) answers *a = NULL;
    CKVC_TRY(answers_read(path, &a, err));
    if (!out) { return CKVC_OK; }
    json_t *o = json_pack("{s:{}, s:{}, s:{}, s:{}, s:{}, s:{}, s:{}}", "ids", "models", "tasks",
                          "queries", "policies", "tables", "budgets");
    for (size_t i = 0; i < a->n; i++) {
        const answer_row *r = &a->rows[i];
        count_row(o, r->id, r->policy, r->table, r->budget);
        count_one(json_object_get(o, "models"), r->model);
        count_one(json_object_get(o, "tasks"), r->task);
        count_one(json_object_get(o, "queries"), answer_queries[r->query]);
    }
    *out = counted(o, a->n, "items");
    return CKVC_OK;
}

/* ---- which kind ---- */

typedef struct artifact {
    const char *name;
    ckvc_status (*look_at)(const looking *c, const char *path, json_t **out, ckvc_err *err);
} artifact;

static const artifact table = {"table", look_at_table}, a_shard = {"shard", look_at_shard},
                      run = {"run", look_at_run}, model_dir = {"model", look_at_model},
                      a_manifest = {"manifest", look_at_manifest},
                      a_score = {"scores", look_at_scores}, an_eval = {"answers", look_at_answers};

static bool folder_has(const char *folder, const char *name) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(folder, name);
    return ckvc_file_exists(path);
}

/* Tells the kind of a file by its first bytes, then by its name, and that of a folder by the file
 * that every run or model has. A file that is damaged at its very beginning still is what its name
 * says, so that the message is about the damage. */
static ckvc_status artifact_of(const char *path, const artifact **out, ckvc_err *err) {
    struct stat s;
    CKVC_TRY(model_path_check(path, err));
    CKVC_FAIL_ERRNO_IF(stat(path, &s) != 0, err, CKVC_E_NOINPUT, "%s", path);
    if (S_ISDIR(s.st_mode)) {
        const bool is_run = folder_has(path, "run.json");
        FAIL_IF(!is_run && !folder_has(path, "config.json"), CKVC_E_DATA,
                "%s: is a folder with neither run.json, which a run has, nor config.json, which a "
                "model has; give one of these",
                path);
        *out = is_run ? &run : &model_dir;
        return CKVC_OK;
    }
    FAIL_IF(!S_ISREG(s.st_mode), CKVC_E_DATA, "%s: not a regular file or folder", path);
    FILE *f = fopen(path, "rb");
    CKVC_FAIL_ERRNO_IF(!f, err, CKVC_E_NOINPUT, "%s", path);
    char head[5] = "";
    const size_t n = fread(head, 1, 4, f);
    fclose(f);
    if ((n == 4 && strcmp(head, "\211CKV") == 0) || fnmatch("*.ckvt", path, 0) == 0) {
        *out = &table;
    } else if ((n == 4 && strcmp(head, "\211HDF") == 0) || fnmatch("*.h5", path, 0) == 0) {
        *out = &a_shard;
    } else if (gguf_is_file(path)) {
        *out = &model_dir;
    } else if (fnmatch("*.jsonl", path, 0) == 0) {
        const char *whose = rows_verb(path);
        *out = !whose ? &a_manifest : strcmp(whose, "score") == 0 ? &a_score : &an_eval;
    } else {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: is no table (.ckvt), shard (.h5), model (.gguf), and no manifest, scores or "
            "answers (.jsonl); of a run, or of a model in a folder, give the folder",
            path);
    }
    return CKVC_OK;
}

/* ---- the verbs ---- */

/* Finds the least and the largest number in nested lists. */
static void find_least_and_most(const json_t *v, double *least, double *most) {
    const double x = json_number_value(v);
    *least = json_is_number(v) ? fmin(*least, x) : *least;
    *most = json_is_number(v) ? fmax(*most, x) : *most;
    for (size_t i = 0; i < json_array_size(v); i++) {
        find_least_and_most(json_array_get(v, i), least, most);
    }
}

/* Shortens a learned ranking to one line of text. */
static void shorten_features(json_t *what) {
    const json_t *f = json_object_get(what, "features");
    double least = INFINITY, most = -INFINITY;
    if (!f) { return; }
    find_least_and_most(json_object_get(f, "mass"), &least, &most);
    json_object_set_new(what, "features",
                        json_sprintf("version %lld, %lld a head, mass %.3g ... %.3g",
                                     (long long)json_integer_value(json_object_get(f, "version")),
                                     (long long)json_integer_value(json_object_get(f, "n")), least,
                                     most));
}

/* Shortens the lists under `key` to their least and largest number. */
static void shorten(json_t *what, const char *key) {
    double least = INFINITY, most = -INFINITY;
    find_least_and_most(json_object_get(what, key), &least, &most);
    if (most >= least) {
        json_object_set_new(what, key, json_sprintf("%.3g ... %.3g", least, most));
    }
}

/* The name of what chose a table's settings, "kl" or "loss": each candidate has a member of it. */
static const char *chosen_by(const json_t *select) {
    const char *by = json_string_value(json_object_get(select, "by"));
    return by ? by : "kl";
}

/* Leaves out the candidates that no budget's last round had, and counts them. The numbers of those
 * that were chosen would then be wrong, and the rows of what is recommended say the same. */
static void shorten_candidates(json_t *select) {
    json_t *tried = json_object_get(select, "candidates");
    size_t n = json_array_size(tried);
    const size_t n_tried = n;
    while (n-- > 0) {
        double least = INFINITY, most = -INFINITY;
        find_least_and_most(json_object_get(json_array_get(tried, n), chosen_by(select)), &least,
                            &most);
        if (least > most) { json_array_remove(tried, n); }
    }
    json_object_del(select, "chosen");
    JSON_NUMBERS(select, {"dropped_earlier", (double)(n_tried - json_array_size(tried))});
}

/* Returns a row for each budget as a new reference: by which ranking, floor and λ entries are kept,
 * and the KL (or loss) of the prompts that chose this. `what` is a described table, not yet
 * shortened. */
static json_t *recommended(const json_t *what) {
    const json_t *select = json_object_get(json_object_get(what, "meta"), "select"),
                 *budgets = json_object_get(what, "budgets");
    json_t *rows = json_array();
    for (size_t b = 0; b < json_array_size(budgets); b++) {
        const json_t *score = json_array_get(json_object_get(what, "score"), b),
                     *chosen = json_array_get(json_object_get(select, "chosen"), b),
                     *tried = json_array_get(json_object_get(select, "candidates"),
                                             (size_t)json_integer_value(chosen)),
                     *ridge =
                         json_array_get(json_object_get(json_object_get(what, "bank"), "ridge"), 0);
        json_t *row = json_pack("{s:O}", "budget", json_array_get(budgets, b)),
               *x = json_is_integer(chosen)
                        ? json_array_get(json_object_get(tried, chosen_by(select)), b)
                        : NULL;
        if (score) { json_object_set(row, "ranking", json_object_get(score, "score")); }
        json_object_set(
            row, "floor",
            json_object_get(json_array_get(json_object_get(what, "c_min"), b), "floor"));
        if (ridge) { json_object_set(row, "fitted_with_lambda", json_array_get(ridge, b)); }
        if (json_is_number(x)) {
            const bool kl = strcmp(chosen_by(select), "kl") == 0;
            json_object_set_new(row, kl ? "KL_where_chosen" : "loss_where_chosen",
                                json_sprintf("%.4f", json_number_value(x)));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static ckvc_status inspect(const verb_call *call, ckvc_err *err) {
    looking *c = call->options;
    const char *path = call->items[0];
    const artifact *kind = NULL;
    json_auto_t *what = NULL;
    c->limits.max_window = 64;
    const ckvc_status st = artifact_of(path, &kind, err);
    if (!kind) { return st; }
    USAGE_IF(c->cells && kind != &table,
             "%s: --cells prints the sections of a table, and this is a %s", path, kind->name);
    USAGE_IF(c->records && kind != &run,
             "%s: --records prints the records of a run, and this is a %s", path, kind->name);
    CKVC_TRY(kind->look_at(c, path, &what, err));
    if (c->records) { return CKVC_OK; }
    if (c->json || c->cells) {
        json_object_set_new(what, "file", json_string(path));
        json_object_set_new(what, "kind", json_string(kind->name));
        json_print(what);
        return CKVC_OK;
    }
    tell("%s: %s\n", path, kind->name);
    json_object_del(json_object_get(what, "meta"), "shape"); /* the text of a table has it above */
    if (kind == &table) {
        json_t *meta = json_object_get(what, "meta"), *rows = recommended(what);
        if (json_object_get(meta, "diagnostics")) {
            json_object_set_new(meta, "diagnostics",
                                json_string("--json prints them, and ckvc report draws them"));
        }
        shorten_candidates(json_object_get(meta, "select"));
        json_object_set_new(what, "recommends", rows);
        json_object_set(what, "keeps", json_object_get(json_object_get(what, "uses"), "keeps"));
        shorten(what, "shares");
        shorten(what, "layer_shares");
        shorten(what, "length_shares");
        shorten_features(what);
        shorten(json_object_get(what, "bank"), "ridge");
    }
    /* lines that are copied stand as they are, at the end */
    json_auto_t *uses = json_incref(json_object_get(what, "uses"));
    json_object_del(what, "uses");
    json_text(what, 2);
    if (uses) { table_uses_print(stdout, uses); }
    return CKVC_OK;
}

static ckvc_status verify(const verb_call *call, ckvc_err *err) {
    const looking *c = call->options;
    const char *path = call->items[0];
    const artifact *kind = NULL;
    ckvc_status st = artifact_of(path, &kind, err);
    if (kind) { st = kind->look_at(c, path, NULL, err); }
    if (c->json) {
        json_auto_t *o = json_pack("{s:s, s:s?, s:b}", "file", path, "kind",
                                   kind ? kind->name : NULL, "ok", st == CKVC_OK);
        if (st != CKVC_OK) {
            json_object_set_new(o, "code", json_integer(ckvc_exit_code(st)));
            json_object_set_new(o, "error", json_string(err->text));
        }
        json_print(o);
    } else if (kind && st == CKVC_OK) {
        tell("%s: ok, %s\n", path, kind->name);
    }
    return st;
}

#define WANTED "a table, shard, run, model, manifest, scores or answers"

#define OPTIONS_OF looking
static const opt inspect_rows[] = {
    OPT_FLAG("json", json, "Print one JSON object on a line for each path."),
    OPT_FLAG("cells", cells, "Print every section of a table as nested JSON lists."),
    OPT_FLAG("records", records, "Print every record of a run, one JSON object a line."),
    OPT_INT("max-tokens", limits.max_prompt, "N", 0, 1e9,
            "State a model's memory for prompts of N tokens; 0 means 2,048."),
    OPT_INT("continuation", limits.max_continuation, "N", 0, 1e6,
            "State a model's memory for rollouts of N tokens.", .letter = 'C', .preset = "128"),
    {0}};

const verb verb_inspect = {.name = "inspect",
                           .about = "say what a file, model or run is",
                           .usage = "ckvc inspect PATH... [options]",
                           .examples = "  ckvc inspect tables.ckvt\n"
                                       "  ckvc inspect run/ models/small --json\n"
                                       "  ckvc inspect Meta-Llama-3-8B-Instruct --max-tokens 8000\n"
                                       "  ckvc inspect tables.ckvt --json --cells | jq .WEIGHT\n",
                           VERB_OPTIONS(inspect_rows),
                           .each = WANTED,
                           .work = inspect};

static const opt verify_rows[] = {
    OPT_FLAG("json", json, "Print one JSON object on a line for each path."), {0}};

const verb verb_verify = {.name = "verify",
                          .about = "check a whole file, model or run",
                          .usage = "ckvc verify PATH... [options]",
                          .examples = "  ckvc verify tables.ckvt run/\n"
                                      "  ckvc verify models/small && echo sound\n",
                          VERB_OPTIONS(verify_rows),
                          .each = WANTED,
                          .work = verify};
