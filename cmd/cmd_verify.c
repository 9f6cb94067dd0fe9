/* ckvc verify: checks tables, shards, runs, models and manifests whole, computing nothing. */
#include "cmd/common/artifact.h"
#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "formats/shard/shard_h5.h"
#include "formats/lines/manifest.h"
#include "formats/model/model_files.h"
#include "formats/run/run_dir.h"
#include "formats/table/table_file.h"
#include "lib/model/model_info.h"

typedef struct verify_cli {
    bool json;
} verify_cli;

/* Shape, weights, and the tokenizer where there is one. */
static ckvc_status check_model(const char *path, ckvc_err *err) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    char fingerprint[CKVC_SHA256_HEX];
    CKVC_TRY(model_files_read(path, &spec, err));
    CKVC_TRY(model_verify(spec, fingerprint, err));
    return inputs_open_tokenizer(path, &tok, err);
}

static ckvc_status check(const char *path, artifact kind, ckvc_err *err) {
    ckvc_status st = CKVC_E_BUG;
    table_file *t = NULL;
    shard *s = NULL;
    manifest *m = NULL;
    switch (kind) {
    case ARTIFACT_TABLE:
        st = table_file_read(path, &t, err);
        table_file_free(t);
        break;
    case ARTIFACT_SHARD: /* outside its run nobody's checksum is behind it: read as a stranger's */
        st = shard_h5_read_hostile(path, &s, err);
        shard_free(s);
        break;
    case ARTIFACT_RUN:
        st = run_verify(path, err);
        break;
    case ARTIFACT_MODEL:
        st = check_model(path, err);
        break;
    case ARTIFACT_MANIFEST:
        st = manifest_read(path, &m, err);
        manifest_free(m);
        break;
    }
    return st;
}

static ckvc_status verify(const verb_call *call, ckvc_err *err) {
    const verify_cli *c = call->options;
    const char *path = call->items[0], *name = NULL;
    artifact kind;
    ckvc_status st = artifact_of(path, &kind, err);
    if (st == CKVC_OK) {
        name = artifact_name(kind);
        st = check(path, kind, err);
    }
    if (c->json) {
        json_t *o = json_pack("{s:s, s:s?, s:b}", "file", path, "kind", name, "ok", st == CKVC_OK);
        if (st != CKVC_OK) {
            json_object_set_new(o, "code", json_integer(ckvc_exit_code(st)));
            json_object_set_new(o, "error", json_string(err->text));
        }
        json_print(o);
    } else if (st == CKVC_OK) {
        printf("%s: ok, %s\n", path, name);
    }
    return st;
}

#define OPTIONS_OF verify_cli
static const opt rows[] = {OPT_FLAG("json", json, "one JSON object a path and line"), {0}};

const verb verb_verify = {.name = "verify",
                          .about = "check a file, model or run whole",
                          .usage = "ckvc verify PATH... [options]",
                          .examples = "  ckvc verify tables.ckvt run/\n"
                                      "  ckvc verify models/small && echo sound\n",
                          VERB_OPTIONS(rows),
                          .each = ARTIFACTS_WANTED,
                          .work = verify};
