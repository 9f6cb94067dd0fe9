/* ckvc verify: checks tables, shards, runs, models and manifests whole, computing nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/artifact.h"
#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/manifest.h"
#include "formats/run_dir.h"
#include "formats/shard_h5.h"
#include "formats/table_file.h"
#include "lib/base/json.h"
#include "lib/model/model_info.h"

static ckvc_status verify(const char *path, artifact kind, ckvc_err *err)
{
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

static void print_json(const char *path, const char *kind, const ckvc_err *err)
{
    json_t *o = json_pack("{s:s, s:s?, s:b}", "file", path, "kind", kind, "ok", err->status == CKVC_OK);
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

int cmd_verify(int argc, char **argv)
{
    static const verb_text text = {"verify", "check a file, model or run whole", "ckvc verify PATH... [options]",
                                   "  ckvc verify tables.ckvt run/\n"
                                   "  ckvc verify models/small && echo sound\n"};
    bool json = false;
    opt opts[] = {
        {OPT_FLAG, "json", 0, &json, "", "one JSON object a path and line", 0, 0},
        {0},
    };
    opt_args args;
    int rc = 0;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) {
        return rc;
    }
    if (args.n < 1) {
        rc = cmd_usage("verify", "wanted a table, shard, run, model or manifest: ckvc verify PATH...");
    }
    for (int i = 0; i < args.n; i++) {
        ckvc_err err = {0};
        artifact kind;
        const char *name = NULL;
        ckvc_status st = artifact_of(args.items[i], &kind, &err);
        if (st == CKVC_OK) {
            name = artifact_name(kind);
            st = verify(args.items[i], kind, &err);
        }
        if (json) {
            print_json(args.items[i], name, &err);
        } else if (st == CKVC_OK) {
            printf("%s: ok, %s\n", args.items[i], name);
        }
        if (st != CKVC_OK) {
            int code = cmd_fail("verify", &err);
            rc = rc ? rc : code; /* the first failure's code */
        }
    }
    free(args.items);
    return rc;
}
