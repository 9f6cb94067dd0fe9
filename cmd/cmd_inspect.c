/* ckvc inspect: what a table, shard, run, model or manifest is. */
#include <stdio.h>

#include "cmd/common/artifact.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/common/json_text.h"
#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "formats/lines/manifest.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_h5.h"
#include "formats/table/table_file.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
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
    json_t *out = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "sha256",
                            m->sha256, "prompts", (json_int_t)m->n_entries, "as_text",
                            (json_int_t)(m->n_entries - with_tokens - with_messages), "text_bytes",
                            (json_int_t)text_bytes, "as_tokens", (json_int_t)with_tokens, "tokens",
                            (json_int_t)n_tokens, "as_messages", (json_int_t)with_messages,
                            "with_continuation", (json_int_t)with_continuation, "sources", sources,
                            "splits", splits);
    manifest_free(m);
    return out;
}

/* Besides what the files say: the tokenizer, and the chat template that --chat-template auto takes.
 */
static json_t *inspect_model(const char *path, session_limits limits, ckvc_err *err) {
    json_t *out = model_info(path, limits, err), *about = NULL;
    tokenizer *tok = NULL;
    chat_template chat;
    if (!out) { return NULL; }
    ckvc_status st = inputs_open_tokenizer(path, &tok, err);
    if (st == CKVC_OK) {
        st = chat_template_choose("auto", json_string_value(json_object_get(out, "family")), tok,
                                  &chat, err);
    }
    if (st == CKVC_OK && tok) {
        about = json_pack("{s:s, s:i, s:s}", "fingerprint", tokenizer_fingerprint(tok), "vocab",
                          tokenizer_vocab_size(tok), "chat_template", chat_style_name(chat.style));
    }
    tokenizer_free(tok);
    if (st != CKVC_OK || json_object_set_new(out, "tokenizer", about ? about : json_null()) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *inspect(const inspect_cli *c, const char *path, artifact kind, ckvc_err *err) {
    if (c->cells && kind != ARTIFACT_TABLE) {
        ckvc_fail(err, CKVC_E_USAGE, "%s: --cells prints the sections of a table, and this is a %s",
                  path, artifact_name(kind));
        return NULL;
    }
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

static ckvc_status print(const char *path, artifact kind, json_t *what, bool as_json,
                         ckvc_err *err) {
    if (!as_json) {
        printf("%s: %s\n", path, artifact_name(kind));
        json_object_del(json_object_get(what, "meta"), "shape"); /* a table says it above already */
        json_text(stdout, what, 2);
        return CKVC_OK;
    }
    ckvc_buffer line = {0};
    if (json_object_set_new(what, "file", json_string(path)) == 0 &&
        json_object_set_new(what, "kind", json_string(artifact_name(kind))) == 0) {
        ckvc_json_append(&line, what);
    }
    ckvc_status st =
        line.failed || !line.data ? ckvc_fail_memory(err, "the description", line.size) : CKVC_OK;
    if (st == CKVC_OK) { printf("%s\n", (const char *)line.data); }
    ckvc_buffer_fini(&line);
    return st;
}

static ckvc_status inspect_path(const void *cli, const char *path, ckvc_err *err) {
    const inspect_cli *c = cli;
    artifact kind;
    ckvc_status st = artifact_of(path, &kind, err);
    if (st != CKVC_OK) { return st; }
    json_t *what = inspect(c, path, kind, err);
    st = what ? print(path, kind, what, c->json || c->cells, err)
              : ckvc_fail(err, CKVC_E_MEMORY, "%s: out of memory", path);
    json_decref(what);
    return st;
}

int cmd_inspect(int argc, char **argv) {
    static const verb_text text = {"inspect", "say what a file, model or run is",
                                   "ckvc inspect PATH... [options]",
                                   "  ckvc inspect tables.ckvt\n"
                                   "  ckvc inspect run/ models/small --json\n"
                                   "  ckvc inspect Meta-Llama-3-8B-Instruct --max-tokens 8000\n"
                                   "  ckvc inspect tables.ckvt --json --cells | jq .WEIGHT\n"};
    inspect_cli c = {.limits = {.max_continuation = 128, .max_window = 64}};
    opt opts[] = {
        {OPT_FLAG, "json", 0, &c.json, "", "one JSON object a path and line", 0, 0},
        {OPT_FLAG, "cells", 0, &c.cells, "", "of a table: every section as nested lists (JSON)", 0,
         0},
        {OPT_INT, "max-tokens", 0, &c.limits.max_prompt, "N",
         "of a model: prompt length that memory is stated for; 0: 2,048", 0, 1e9},
        {OPT_INT, "continuation", 'C', &c.limits.max_continuation, "N",
         "of a model: tokens of a rollout", 0, 1e6},
        {0},
    };
    return artifact_run(&text, opts, argc, argv, inspect_path, &c);
}
