/* ckvc inspect: what a table, shard, run, model or manifest is. */
#include "cmd/common/artifact.h"
#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "formats/shard/shard_h5.h"
#include "formats/model/model_files.h"
#include "formats/run/run_dir.h"
#include "lib/model/model_info.h"

typedef struct inspect_cli {
    bool json, cells;
    session_limits limits;
} inspect_cli;

static json_t *inspect_table(const char *path, bool cells, ckvc_err *err) {
    table_file *t = NULL;
    if (table_file_read(path, &t, err) != CKVC_OK) { return NULL; }
    json_t *out = table_file_describe(t, cells);
    table_file_free(t);
    return out;
}

/* A shard outside its run has nobody's checksum behind it: read as a stranger's. */
static json_t *inspect_shard(const char *path, ckvc_err *err) {
    shard *s = NULL;
    if (shard_h5_read_hostile(path, &s, err) != CKVC_OK) { return NULL; }
    json_t *out = shard_describe(s);
    shard_free(s);
    return out;
}

static json_t *inspect_run(const char *path, ckvc_err *err) {
    run_dir *r = NULL;
    if (run_open(path, &r, err) != CKVC_OK) { return NULL; }
    json_t *out = run_describe(r);
    run_close(r);
    return out;
}

static void count_one(json_t *counts, const char *key) {
    json_int_t n = json_integer_value(json_object_get(counts, key));
    json_object_set_new(counts, key, json_integer(n + 1));
}

static json_t *inspect_manifest(const char *path, ckvc_err *err) {
    manifest *m = NULL;
    if (manifest_read(path, &m, err) != CKVC_OK) { return NULL; }
    json_t *sources = json_object(), *splits = json_object();
    size_t with_tokens = 0, with_messages = 0, with_continuation = 0, text_bytes = 0, n_tokens = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        with_tokens += e->has_tokens;
        with_messages += e->n_messages > 0;
        with_continuation += e->has_continuation || e->has_continuation_tokens;
        text_bytes += e->text_size;
        n_tokens += e->n_tokens;
        if (e->source) { count_one(sources, e->source); }
        if (e->split) { count_one(splits, e->split); }
    }
    json_t *out = json_pack("{s:s}", "sha256", m->sha256);
    JSON_NUMBERS(out, {"prompts", m->n_entries},
                 {"as_text", m->n_entries - with_tokens - with_messages},
                 {"text_bytes", text_bytes}, {"as_tokens", with_tokens}, {"tokens", n_tokens},
                 {"as_messages", with_messages}, {"with_continuation", with_continuation});
    json_object_set_new(out, "sources", sources);
    json_object_set_new(out, "splits", splits);
    manifest_free(m);
    return out;
}

/* Besides what the files say: the tokenizer, and the chat template that --chat-template auto takes.
 */
static json_t *inspect_model(const char *path, session_limits limits, ckvc_err *err) {
    limits.max_window = 64;
    json_auto_t *out = NULL;
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    chat_template chat;
    if (model_files_read(path, &spec, err) != CKVC_OK ||
        model_info(spec, limits, &out, err) != CKVC_OK ||
        inputs_open_tokenizer(path, &tok, err) != CKVC_OK) {
        return NULL;
    }
    const char *family = json_string_value(json_object_get(out, "family"));
    if (chat_template_choose("auto", family, tok, &chat, err) != CKVC_OK) { return NULL; }
    json_object_set_new(
        out, "tokenizer",
        tok ? json_pack("{s:s, s:i, s:s}", "fingerprint", tokenizer_fingerprint(tok), "vocab",
                        tokenizer_vocab_size(tok), "chat_template", chat_style_name(chat.style))
            : json_null());
    return json_incref(out);
}

static json_t *describe(const inspect_cli *c, const char *path, artifact kind, ckvc_err *err) {
    switch (kind) {
    case ARTIFACT_TABLE:
        return inspect_table(path, c->cells, err);
    case ARTIFACT_SHARD:
        return inspect_shard(path, err);
    case ARTIFACT_RUN:
        return inspect_run(path, err);
    case ARTIFACT_MODEL:
        return inspect_model(path, c->limits, err);
    case ARTIFACT_MANIFEST:
        return inspect_manifest(path, err);
    }
    return NULL;
}

static ckvc_status inspect(const verb_call *call, ckvc_err *err) {
    const inspect_cli *c = call->options;
    const char *path = call->items[0];
    artifact kind;
    CKVC_TRY(artifact_of(path, &kind, err));
    USAGE_IF(c->cells && kind != ARTIFACT_TABLE,
             "%s: --cells prints the sections of a table, and this is a %s", path,
             artifact_name(kind));
    json_t *what = describe(c, path, kind, err);
    if (!what) { return err->status; }
    if (c->json || c->cells) {
        json_object_set_new(what, "file", json_string(path));
        json_object_set_new(what, "kind", json_string(artifact_name(kind)));
        json_print(what);
        return CKVC_OK;
    }
    printf("%s: %s\n", path, artifact_name(kind));
    json_object_del(json_object_get(what, "meta"), "shape"); /* a table says it above already */
    json_text(stdout, what, 2);
    json_decref(what);
    return CKVC_OK;
}

#define OPTIONS_OF inspect_cli
static const opt rows[] = {
    OPT_FLAG("json", json, "one JSON object a path and line"),
    OPT_FLAG("cells", cells, "of a table: every section as nested lists (JSON)"),
    OPT_INT("max-tokens", limits.max_prompt, "N", 0, 1e9,
            "of a model: prompt length that memory is stated for; 0: 2,048"),
    OPT_INT("continuation", limits.max_continuation, "N", 0, 1e6, "of a model: tokens of a rollout",
            .letter = 'C', .preset = "128"),
    {0}};

const verb verb_inspect = {.name = "inspect",
                           .about = "say what a file, model or run is",
                           .usage = "ckvc inspect PATH... [options]",
                           .examples = "  ckvc inspect tables.ckvt\n"
                                       "  ckvc inspect run/ models/small --json\n"
                                       "  ckvc inspect Meta-Llama-3-8B-Instruct --max-tokens 8000\n"
                                       "  ckvc inspect tables.ckvt --json --cells | jq .WEIGHT\n",
                           VERB_OPTIONS(rows),
                           .each = ARTIFACTS_WANTED,
                           .work = inspect};
