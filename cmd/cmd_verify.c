/* ckvc verify: checks tables, shards, runs, models and manifests whole, computing nothing. */
#include <stdio.h>

#include "cmd/common/artifact.h"
#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "formats/lines/manifest.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_h5.h"
#include "formats/table/table_file.h"
#include "lib/base/json.h"
#include "lib/model/model_info.h"

static ckvc_status verify(const char *path, artifact kind, ckvc_err *err) {
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
        st = model_verify(path, err);
        break;
    case ARTIFACT_MANIFEST:
        st = manifest_read(path, &m, err);
        manifest_free(m);
        break;
    }
    return st;
}

static void print_json(const char *path, const char *kind, const ckvc_err *err) {
    json_t *o =
        json_pack("{s:s, s:s?, s:b}", "file", path, "kind", kind, "ok", err->status == CKVC_OK);
    if (o && err->status != CKVC_OK) {
        json_object_set_new(o, "code", json_integer(ckvc_exit_code(err->status)));
        json_object_set_new(o, "error", json_string(err->text));
    }
    ckvc_buffer line = {0};
    if (o) {
        ckvc_json_append(&line, o);
        printf("%s\n", line.data ? (const char *)line.data : "");
    }
    ckvc_buffer_fini(&line);
    json_decref(o);
}

static ckvc_status verify_path(const void *cli, const char *path, ckvc_err *err) {
    const bool *json = cli;
    artifact kind;
    const char *name = NULL;
    ckvc_status st = artifact_of(path, &kind, err);
    if (st == CKVC_OK) {
        name = artifact_name(kind);
        st = verify(path, kind, err);
    }
    if (*json) {
        print_json(path, name, err);
    } else if (st == CKVC_OK) {
        printf("%s: ok, %s\n", path, name);
    }
    return st;
}

int cmd_verify(int argc, char **argv) {
    static const verb_text text = {"verify", "check a file, model or run whole",
                                   "ckvc verify PATH... [options]",
                                   "  ckvc verify tables.ckvt run/\n"
                                   "  ckvc verify models/small && echo sound\n"};
    bool json = false;
    opt opts[] = {
        {OPT_FLAG, "json", 0, &json, "", "one JSON object a path and line", 0, 0},
        {0},
    };
    return artifact_run(&text, opts, argc, argv, verify_path, &json);
}
