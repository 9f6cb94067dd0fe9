/* A run looked at whole, for `ckvc verify` and `ckvc inspect`: see run_dir.h. */
#include "formats/run/run_internal.h"
#include "lib/base/json.h"

/* Every prompt of a shard's range has rows, or was skipped. */
static ckvc_status check_range(const run_dir *r, const run_pass_state *p, const run_shard *entry,
                               ckvc_err *err) {
    uint32_t first, end, skipped = 0;
    run_shard_range(p, entry->shard, &first, &end);
    for (size_t i = 0; i < p->n_skipped; i++) {
        skipped += p->skipped[i] >= first && p->skipped[i] < end;
    }
    CKVC_FAIL_IF(entry->prompts + skipped != end - first, err, CKVC_E_DATA,
                 "%s: shard %u of %s has %u prompts and %u are skipped, its range has %u",
                 r->journal_path, entry->shard, p->pub.name, entry->prompts, skipped, end - first);
    return CKVC_OK;
}

ckvc_status run_verify(const char *path, ckvc_err *err) {
    CKVC_AUTO(run_close_at) run_dir *r = NULL;
    CKVC_TRY(run_open(path, &r, err));
    for (size_t i = 0; i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        for (size_t k = 0; k < p->pub.n_shards; k++) {
            CKVC_AUTO(shard_free_at) shard *s = NULL;
            CKVC_TRY(run_read_shard(r, &p->pub, k, &s, err));
            CKVC_TRY(check_range(r, p, &p->shards[k], err));
        }
    }
    return run_verify_files(r, err);
}

static json_t *describe_pass(const run_pass_state *p) {
    uint64_t rows = 0, bytes = 0;
    for (size_t k = 0; k < p->pub.n_shards; k++) {
        rows += p->shards[k].rows;
        bytes += p->shards[k].bytes;
    }
    json_t *pass = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name", p->pub.name, "kind",
        p->pub.kind, "backend", p->backend, "prompts", (json_int_t)p->pub.n_prompts,
        "prompts_published", (json_int_t)p->pub.n_prompts_done, "prompts_skipped",
        (json_int_t)p->n_skipped, "shards", (json_int_t)run_shard_count(p), "shards_published",
        (json_int_t)p->pub.n_shards, "records", (json_int_t)rows, "bytes", (json_int_t)bytes,
        "complete", p->pub.complete);
    if (p->pub.stable.known) {
        json_object_set_new(pass, "until_stable", json_real(p->pub.stable.target));
        json_object_set_new(pass, "reliability", ckvc_json_real(p->pub.stable.reliability));
    }
    return pass;
}

json_t *run_describe(const run_dir *r) {
    json_t *passes = json_array();
    for (size_t i = 0; i < r->n_passes; i++) {
        json_array_append_new(passes, describe_pass(r->passes[i]));
    }
    json_t *out = json_pack("{s:s, s:s, s:O, s:o, s:O}", "format", "ckvc-run", "plan_hash",
                            r->plan_hash, "plan", r->plan, "passes", passes, "skipped", r->skipped);
    if (json_array_size(r->notes)) { json_object_set(out, "notes", r->notes); }
    return out;
}
