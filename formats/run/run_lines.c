/* Turns the lines of a run's journal (run.md, "journal.jsonl") into the struct and back. */
#include <stdio.h>

#include "formats/run/run_internal.h"
#include "formats/run/durable.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

#define MAX_PROMPTS ((uint32_t)1 << 28)

bool run_pass_name(const char *name, int *number, const char **kind) {
    *number = 0;
    *kind = name;
    if (strcmp(name, "scan") == 0) { return true; }
    if (strncmp(name, "pass-", 5) != 0 || strspn(name + 5, "0123456789") != 2 || name[7] != '-') {
        return false;
    }
    *number = (name[5] - '0') * 10 + name[6] - '0';
    *kind = name + 8;
    const shard_pass *pass = shard_pass_named(*kind);
    return *number > 0 && pass && pass->kind != SHARD_SCAN;
}

static bool get_text(const json_t *line, const char *key, size_t size, char *out) {
    const char *text = json_string_value(json_object_get(line, key));
    if (!text || strlen(text) >= size) { return false; }
    snprintf(out, size, "%s", text);
    return true;
}

static bool get_sha256(const json_t *line, const char *key, char *out) {
    return ckvc_json_is_hex(json_object_get(line, key), CKVC_SHA256_HEX - 1) &&
           get_text(line, key, CKVC_SHA256_HEX, out);
}

static int by_pass(const void *a, const void *b) {
    const run_pass *x = &(*(run_pass_state *const *)a)->pub,
                   *y = &(*(run_pass_state *const *)b)->pub;
    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : strcmp(x->name, y->name);
}

static ckvc_status take_begin(run_dir *r, const json_t *line, const char *name, const char *where,
                              ckvc_err *err) {
    uint64_t n_prompts, shard_prompts;
    run_pass_state p = {0};
    const char *kind;
    const bool known = run_pass_name(name, &p.pub.number, &kind);
    CKVC_FAIL_IF(run_find_pass(r, name), err, CKVC_E_DATA, "%s: pass %s is begun a second time",
                 where, name);
    CKVC_FAIL_IF(shard_pass_gone(kind), err, CKVC_E_DATA, "%s: pass %s has " SHARD_GONE, where,
                 name);
    CKVC_FAIL_IF(
        !known || !ckvc_json_get_count(line, "n_prompts", MAX_PROMPTS, &n_prompts) ||
            !ckvc_json_get_count(line, "shard_prompts", MAX_PROMPTS, &shard_prompts) ||
            shard_prompts == 0 || n_prompts / shard_prompts > RUN_MAX_SHARDS ||
            !get_text(line, "backend", sizeof p.backend, p.backend) ||
            !get_sha256(line, "header", p.header),
        err, CKVC_E_DATA,
        "%s: not a line that begins a pass (pass, n_prompts, shard_prompts, backend, header)",
        where);
    memcpy(p.pub.plan, r->plan_hash, sizeof p.pub.plan);
    CKVC_FAIL_IF(json_object_get(line, "plan") && !get_sha256(line, "plan", p.pub.plan), err,
                 CKVC_E_DATA, "%s: \"plan\" is no SHA-256", where);
    snprintf(p.pub.name, sizeof p.pub.name, "%s", name);
    snprintf(p.pub.kind, sizeof p.pub.kind, "%s", kind);
    p.plan_prompts = p.pub.n_prompts = (uint32_t)n_prompts;
    p.shard_prompts = (uint32_t)shard_prompts;
    p.pub.complete = p.pub.n_shards == run_shard_count(&p);
    CKVC_GROW(r->passes, r->cap_passes, r->n_passes + 1);
    r->passes[r->n_passes++] = ckvc_copy(&p, 1, sizeof p);
    qsort(r->passes, r->n_passes, sizeof(run_pass_state *), by_pass);
    return CKVC_OK;
}

static ckvc_status take_shard(const run_dir *r, run_pass_state *p, const json_t *line,
                              const char *where, ckvc_err *err) {
    uint64_t number, prompts;
    run_shard s = {0};
    CKVC_FAIL_IF(
        !ckvc_json_get_count(line, "shard", UINT32_MAX, &number) || number >= run_shard_count(p) ||
            !ckvc_json_get_count(line, "prompts", p->shard_prompts, &prompts) ||
            !ckvc_json_get_count(line, "rows", SHARD_MAX_RECORDS, &s.rows) ||
            !ckvc_json_get_count(line, "bytes", RUN_MAX_FILE_BYTES, &s.bytes) ||
            !get_sha256(line, "sha256", s.sha256),
        err, CKVC_E_DATA,
        "%s: not a line of a published shard of %s (shard < %u, prompts, rows, bytes, sha256)",
        where, p->pub.name, run_shard_count(p));
    s.shard = (uint32_t)number;
    s.prompts = (uint32_t)prompts;
    CKVC_FAIL_IF(!run_part_has(r->part, s.shard), err, CKVC_E_DATA,
                 "%s: shard %u of %s is not of part %u/%u", where, s.shard, p->pub.name,
                 r->part.index, r->part.count);
    CKVC_GROW(p->shards, p->capacity, p->pub.n_shards + 1);
    p->shards[p->pub.n_shards++] = s; /* run_sort_shards puts them in order */
    p->last_shard = s.shard > p->last_shard ? s.shard : p->last_shard;
    uint32_t first, end;
    run_shard_range(p, s.shard, &first, &end);
    p->pub.n_prompts_done += end - first;
    p->pub.complete = p->pub.n_shards == run_shard_count(p);
    return CKVC_OK;
}

static ckvc_status take_skip(run_dir *r, run_pass_state *p, const json_t *line, const char *where,
                             ckvc_err *err) {
    uint64_t prompt;
    const char *id = json_string_value(json_object_get(line, "id")),
               *reason = json_string_value(json_object_get(line, "reason"));
    CKVC_FAIL_IF(!ckvc_json_get_count(line, "prompt", UINT32_MAX, &prompt) ||
                     prompt >= p->plan_prompts || !id || !reason,
                 err, CKVC_E_DATA,
                 "%s: not a line of a skipped prompt of %s (prompt < %u, id, reason)", where,
                 p->pub.name, p->plan_prompts);
    if (!p->is_skipped) { p->is_skipped = ckvc_calloc(p->plan_prompts, 1); }
    CKVC_FAIL_IF(p->is_skipped[prompt], err, CKVC_E_DATA,
                 "%s: prompt %llu of %s is skipped a second time", where,
                 (unsigned long long)prompt, p->pub.name);
    p->is_skipped[prompt] = true;
    CKVC_GROW(p->skipped, p->cap_skipped, p->n_skipped + 1);
    p->skipped[p->n_skipped++] = (uint32_t)prompt;
    json_array_append_new(
        r->skipped, json_pack("{s:s, s:s, s:s}", "pass", p->pub.name, "id", id, "reason", reason));
    return CKVC_OK;
}

/* Takes the line that tells how --until-stable ended the pass, with the shards that are published,
 * from shard 0 on. */
static ckvc_status take_stable(run_pass_state *p, const json_t *line, const char *where,
                               ckvc_err *err) {
    const json_t *target = json_object_get(line, "until_stable"),
                 *reliability = json_object_get(line, "reliability"),
                 *reached = json_object_get(line, "reached");
    uint64_t shards;
    CKVC_FAIL_IF(!json_is_number(target) ||
                     !(json_is_number(reliability) || json_is_null(reliability)) ||
                     !json_is_boolean(reached) ||
                     !ckvc_json_get_count(line, "shards", UINT32_MAX, &shards) ||
                     shards != p->pub.n_shards || shards == 0 || p->last_shard != shards - 1 ||
                     p->pub.stable.known || (json_is_false(reached) && !p->pub.complete),
                 err, CKVC_E_DATA,
                 "%s: not a line that ends %s (until_stable, reliability, reached; shards: "
                 "the %zu that are published)",
                 where, p->pub.name, p->pub.n_shards);
    p->pub.stable.known = true;
    p->pub.stable.reached = json_is_true(reached);
    p->pub.stable.target = json_number_value(target);
    p->pub.stable.reliability = json_is_null(reliability) ? NAN : json_number_value(reliability);
    const uint64_t most = shards * p->shard_prompts;
    p->pub.n_prompts = most < p->plan_prompts ? (uint32_t)most : p->plan_prompts;
    p->pub.complete = p->pub.n_shards == run_shard_count(p);
    return CKVC_OK;
}

json_t *run_begin_line(const run_dir *r, const run_pass_state *p) {
    json_t *line = json_pack(
        "{s:s, s:I, s:I, s:s, s:s}", "pass", p->pub.name, "n_prompts", (json_int_t)p->plan_prompts,
        "shard_prompts", (json_int_t)p->shard_prompts, "backend", p->backend, "header", p->header);
    if (strcmp(p->pub.plan, r->plan_hash) != 0) {
        json_object_set_new(line, "plan", json_string(p->pub.plan));
    }
    return line;
}

json_t *run_shard_line(const run_pass_state *p, const run_shard *s) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "pass", p->pub.name, "shard",
                     (json_int_t)s->shard, "prompts", (json_int_t)s->prompts, "rows",
                     (json_int_t)s->rows, "bytes", (json_int_t)s->bytes, "sha256", s->sha256,
                     "backend", p->backend);
}

json_t *run_skip_line(const char *pass, uint32_t prompt, const char *id, const char *reason) {
    return json_pack("{s:s, s:I, s:s, s:s}", "pass", pass, "prompt", (json_int_t)prompt, "id", id,
                     "reason", reason);
}

static ckvc_status take_note(run_dir *r, const json_t *line, const char *where, ckvc_err *err) {
    uint64_t bytes;
    CKVC_FAIL_IF(!run_note_text(line, "note") ||
                     (run_note_is_of_file(line) &&
                      (!run_name_is_inside(run_note_text(line, "name")) ||
                       !ckvc_json_is_hex(json_object_get(line, "sha256"), CKVC_SHA256_HEX - 1) ||
                       !ckvc_json_get_count(line, "bytes", RUN_MAX_FILE_BYTES, &bytes))),
                 err, CKVC_E_DATA, "%s: not a note (note: a name; of a file: name, bytes, sha256)",
                 where);
    json_array_append_new(r->notes, json_deep_copy(line));
    return CKVC_OK;
}

ckvc_status run_take_line(void *ctx, const json_t *line, uint32_t number, ckvc_err *err) {
    run_dir *r = ctx;
    CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", r->journal_path, number);
    CKVC_FAIL_IF(r->part.count &&
                     (json_object_get(line, "note") || json_object_get(line, "until_stable")),
                 err, CKVC_E_DATA, "%s: a line that no part of a run has", where);
    if (json_object_get(line, "note")) { return take_note(r, line, where, err); }
    const char *name = json_string_value(json_object_get(line, "pass"));
    CKVC_FAIL_IF(!name, err, CKVC_E_DATA, "%s: a line without \"pass\"", where);
    if (json_object_get(line, "n_prompts")) { return take_begin(r, line, name, where, err); }
    run_pass_state *p = run_find_pass(r, name);
    CKVC_FAIL_IF(!p, err, CKVC_E_DATA, "%s: pass %.40s has not been begun", where, name);
    if (json_object_get(line, "sha256")) { return take_shard(r, p, line, where, err); }
    if (json_object_get(line, "reason")) { return take_skip(r, p, line, where, err); }
    if (json_object_get(line, "until_stable")) { return take_stable(p, line, where, err); }
    return ckvc_fail(err, CKVC_E_DATA,
                     "%s: neither begins or ends a pass, nor publishes a shard, nor skips a prompt",
                     where);
}

ckvc_status run_sort_shards(run_dir *r, ckvc_err *err) {
    for (size_t i = 0; i < r->n_passes; i++) {
        const run_pass_state *p = r->passes[i];
        const size_t n = p->pub.n_shards;
        if (n) { qsort(p->shards, n, sizeof *p->shards, ckvc_order_u32); }
        for (size_t k = 1; k < n; k++) {
            CKVC_FAIL_IF(p->shards[k - 1].shard == p->shards[k].shard, err, CKVC_E_DATA,
                         "%s: shard %u of %s is published a second time", r->journal_path,
                         p->shards[k].shard, p->pub.name);
        }
    }
    return CKVC_OK;
}

ckvc_status run_journal(run_dir *r, json_t *line, ckvc_err *err) {
    json_auto_t *taken = line;
    CKVC_TRY(durable_append_json(r->journal_path, &r->journal_size, taken, err));
    CKVC_TRY(run_take_line(r, taken, 0, err));
    return run_sort_shards(r, err);
}
