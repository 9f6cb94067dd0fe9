/* A run looked at whole, for `ckvc verify` and `ckvc inspect`: see run_dir.h. */

#include "formats/run/run_internal.h"
#include "lib/base/json.h"

/* Prompts [first, end) of a shard that the journal says were skipped. */
static uint32_t skipped_in(const run_pass_state *p, uint32_t k) {
    uint64_t first = (uint64_t)k * p->shard_prompts;
    uint32_t n = 0;
    for (size_t i = 0; i < p->n_skipped; i++) {
        n += p->skipped[i] >= first && p->skipped[i] < first + p->shard_prompts;
    }
    return n;
}

ckvc_status run_verify(const char *path, ckvc_err *err) {
    run_dir *r;
    ckvc_status st = run_open(path, &r, err);
    for (size_t i = 0; st == CKVC_OK && i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        for (size_t k = 0; st == CKVC_OK && k < p->pub.n_shards; k++) {
            const run_shard *entry = &p->shards[k];
            uint64_t first = (uint64_t)entry->shard * p->shard_prompts,
                     end = first + p->shard_prompts;
            uint64_t range = (end < p->plan_prompts ? end : p->plan_prompts) - first;
            uint32_t skipped = skipped_in(p, entry->shard);
            shard *s;
            st = run_read_shard(r, &p->pub, k, &s, err);
            if (st == CKVC_OK) { shard_free(s); }
            if (st == CKVC_OK && entry->prompts + skipped != range) {
                st = ckvc_fail(
                    err, CKVC_E_DATA,
                    "%s: shard %u of %s has %u prompts and %u are skipped, its range has %llu",
                    r->journal_path, entry->shard, p->pub.name, entry->prompts, skipped,
                    (unsigned long long)range);
            }
        }
    }
    if (st == CKVC_OK) { st = run_verify_files(r, err); }
    run_close(r);
    return st;
}

json_t *run_describe(const run_dir *r) {
    json_t *out = json_object(), *passes = json_array();
    json_object_set_new(out, "format", json_string("ckvc-run"));
    json_object_set_new(out, "plan_hash", json_string(r->plan_hash));
    json_object_set_new(out, "plan", json_deep_copy(r->plan));
    for (size_t i = 0; i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        uint64_t rows = 0, bytes = 0;
        for (size_t k = 0; k < p->pub.n_shards; k++) {
            rows += p->shards[k].rows;
            bytes += p->shards[k].bytes;
        }
        json_t *pass = json_object();
        json_object_set_new(pass, "name", json_string(p->pub.name));
        json_object_set_new(pass, "kind", json_string(p->pub.kind));
        json_object_set_new(pass, "backend", json_string(p->backend));
        json_object_set_new(pass, "prompts", json_integer(p->pub.n_prompts));
        json_object_set_new(pass, "prompts_published", json_integer(p->pub.n_prompts_done));
        json_object_set_new(pass, "prompts_skipped", json_integer((json_int_t)p->n_skipped));
        json_object_set_new(pass, "shards", json_integer(run_shard_count(p)));
        json_object_set_new(pass, "shards_published", json_integer((json_int_t)p->pub.n_shards));
        json_object_set_new(pass, "records", json_integer((json_int_t)rows));
        json_object_set_new(pass, "bytes", json_integer((json_int_t)bytes));
        json_object_set_new(pass, "complete", json_boolean(p->pub.complete));
        if (p->pub.stable.known) {
            json_object_set_new(pass, "until_stable", json_real(p->pub.stable.target));
            json_object_set_new(pass, "reliability", ckvc_json_real(p->pub.stable.reliability));
        }
        json_array_append_new(passes, pass);
    }
    json_object_set_new(out, "passes", passes);
    json_object_set_new(out, "skipped", json_deep_copy(r->skipped));
    if (json_array_size(r->notes)) { json_object_set_new(out, "notes", json_deep_copy(r->notes)); }
    return out;
}
