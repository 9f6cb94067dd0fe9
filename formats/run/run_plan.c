/* The plan of a run: its hash, and where two plans differ. */

#include "formats/run/run_internal.h"
#include "lib/base/json.h"

/* Keys that do not change results (run.md, "Plan"): left out of the hash and of comparisons. */
static const char *const not_hashed[] = {"threads", "shard", "limit_time", "memory",
                                         "backend", "out",   "resume",     "force",
                                         "quiet",   "json",  NULL};

static bool is_hashed(const char *key) {
    for (const char *const *name = not_hashed; *name; name++) {
        if (strcmp(*name, key) == 0) { return false; }
    }
    return true;
}

void run_hash_plan(const json_t *plan, char out[CKVC_SHA256_HEX]) {
    json_auto_t *copy = json_copy(ckvc_unconst(plan));
    for (const char *const *name = not_hashed; *name; name++) { json_object_del(copy, *name); }
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(copy);
    ckvc_sha256_hex(text, strlen(text), out);
}

typedef struct plan_diff {
    ckvc_buffer text;
    unsigned n;
} plan_diff;

static void diff_value(plan_diff *d, const char *name, const json_t *was, const json_t *is) {
    CKVC_AUTO_FREE char *a = was ? ckvc_json_canonical(was) : ckvc_strdup("absent");
    CKVC_AUTO_FREE char *b = is ? ckvc_json_canonical(is) : ckvc_strdup("absent");
    if (strcmp(a, b) != 0 && ++d->n <= 6) {
        ckvc_buffer_printf(&d->text, "%s%s: %.60s there, %.60s now", d->n > 1 ? "; " : "", name, a,
                           b);
    }
}

/* Fields of two objects that differ, in order of their names; objects within are walked into,
 * "bins.entropy". */
static void diff_objects(plan_diff *d, const char *prefix, const json_t *was, const json_t *is) {
    json_auto_t *all = json_object();
    json_t *value;
    const char *key;
    json_object_update(all, ckvc_unconst(was));
    json_object_update(all, ckvc_unconst(is));
    json_object_foreach(all, key, value) {
        if (!*prefix && !is_hashed(key)) { continue; }
        const json_t *a = json_object_get(was, key), *b = json_object_get(is, key);
        CKVC_AUTO_FREE char *name = ckvc_format("%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(a) && json_is_object(b) && strlen(name) < 256) {
            diff_objects(d, name, a, b);
        } else {
            diff_value(d, name, a, b);
        }
    }
}

char *run_plan_difference(const run_dir *r, const json_t *plan) {
    char hash[CKVC_SHA256_HEX];
    run_hash_plan(plan, hash);
    if (strcmp(hash, r->plan_hash) == 0) { return NULL; }
    plan_diff d = {0};
    diff_objects(&d, "", r->plan, plan);
    if (d.n > 6) { ckvc_buffer_printf(&d.text, "; and %u more", d.n - 6); }
    char *text = ckvc_strdup(d.text.data ? (const char *)d.text.data : "(fields not listed)");
    ckvc_buffer_fini(&d.text);
    return text;
}
