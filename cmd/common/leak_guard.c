/* Leak checks in runs and tables: see leak_guard.h. */
#include "cmd/common/leak_guard.h"

#include "formats/lines/leak_record.h"

ckvc_status leak_guard_plan(const char *path, const opened_inputs *e, json_t **out, ckvc_err *err) {
    *out = NULL;
    if (!path) { return CKVC_OK; }
    CKVC_AUTO(leak_record_fini) leak_record r = {0};
    CKVC_TRY(leak_record_read(path, &r, err));
    const prompt_options *o = &e->prompt_options;
    FAIL_IF(strcmp(r.manifest, e->manifest->sha256) != 0, CKVC_E_MISMATCH,
            "%s: is of manifest %.12s..., %s is %.12s...; check that one", path, r.manifest,
            e->manifest->path, e->manifest->sha256);
    FAIL_IF(r.holdout > 0 && (r.holdout != o->holdout || r.seed != o->seed), CKVC_E_MISMATCH,
            "%s: left out the prompts of --holdout %g --seed %" PRIu64
            ", this run has %g and %" PRIu64,
            path, r.holdout, r.seed, o->holdout, o->seed);
    if (r.leaked_prompts) {
        ckvc_warn("%s: %" PRIu64 " of %" PRIu64 " prompts share text with an evaluation: not clean",
                  path, r.leaked_prompts, r.prompts);
    }
    *out = leak_record_json(&r);
    return CKVC_OK;
}

void leak_guard_warn(const table_file *t, const char *path, const char *scored_manifest) {
    const json_t *guard = json_object_get(t->meta, "leak_check"),
                 *checks = json_object_get(guard, "checks");
    if (!json_array_size(checks) || json_array_size(json_object_get(guard, "unchecked"))) {
        ckvc_warn("%s: %s its prompts was not checked for leaks; `ckvc manifest check --against` "
                  "the scored prompts, then calibrate, compile or fit with --leak-check",
                  path, json_array_size(checks) ? "a part of" : "the manifest of");
        return;
    }
    size_t i;
    json_t *check;
    bool compared = true;
    uint64_t leaked = 0, leaked_elsewhere = 0, prompts = 0;
    json_array_foreach(checks, i, check) {
        leak_record r;
        ckvc_err why = {0};
        if (leak_record_parse(check, path, &r, &why) != CKVC_OK) {
            ckvc_warn("%s", why.text);
            return;
        }
        const leak_against *a = leak_record_find(&r, scored_manifest);
        compared = compared && a;
        leaked += a ? a->leaked_prompts : 0;
        leaked_elsewhere += r.leaked_prompts;
        prompts += r.prompts;
        leak_record_fini(&r);
    }
    if (leaked) {
        fflush(stdout);
        say("error: %s: LEAK: %" PRIu64 " of its %" PRIu64
            " prompts share text or ids with the prompts scored here; this is no held-out result\n",
            path, leaked, prompts);
    } else if (!compared) {
        ckvc_warn(
            "%s: was checked for leaks, but not against the manifest scored here (%.12s...)%s",
            path, scored_manifest, leaked_elsewhere ? "; it shares text with others" : "");
    } else if (leaked_elsewhere) {
        ckvc_warn("%s: shares nothing with the prompts scored here, but %" PRIu64 " of its %" PRIu64
                  " prompts share text with other evaluation files",
                  path, leaked_elsewhere, prompts);
    }
}
