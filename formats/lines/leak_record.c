/* Turns a leak check's record into JSON and back. See leak_record.h. */
#include "formats/lines/leak_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/record.h"

#define SCHEMA "ckvc-leak-check-1"

enum { MAX_RECORD_BYTES = 1 << 20 };

#define HASH  .type = RECORD_HEX, .wanted = "64 hexadecimal digits"
#define COUNT .type = RECORD_COUNT, .most = HUGE_VAL, .wanted = "a whole number from 0"
#define SHARE .type = RECORD_REAL, .most = 1, .wanted = "a number from 0 to 1"
#define WORDS                                                                                      \
    .type = RECORD_COUNT, .least = 1, .most = 1000, .wanted = "a number of words from 1 to 1000"
#define A(key, member, rule) RECORD(leak_against, key, member, rule)
static const record_member against_members[] = {
    /* members of an evaluation file */
    A("sha256", sha256, HASH),
    A("bytes", bytes, COUNT),
    A("lines", lines, COUNT),
    A("texts", texts, COUNT),
    A("words", words, COUNT),
    A("shared_spans", spans, COUNT),
    A("near_duplicates", near, COUNT),
    A("duplicate_ids", ids, COUNT),
    A("leaked_lines", leaked_lines, COUNT),
    A("leaked_prompts", leaked_prompts, COUNT),
};
#undef A
#define R(key, member, rule) RECORD(leak_record, key, member, rule)
static const record_member record_members[] = {
    R("manifest", manifest, HASH),
    R("prompts", prompts, COUNT),
    R("held_out", held_out, COUNT),
    R("seed", seed, COUNT),
    R("near_duplicates_within", near_within, COUNT),
    R("leaked_prompts", leaked_prompts, COUNT),
    R("near", near, SHARE),
    R("holdout", holdout, SHARE),
    R("ngram", ngram, WORDS),
    R("shingle", shingle, WORDS),
};
#undef R
enum {
    N_AGAINST = sizeof against_members / sizeof *against_members,
    N_RECORD = sizeof record_members / sizeof *record_members
};

json_t *leak_record_json(const leak_record *r) {
    json_t *list = json_array(), *out = json_pack("{s:s, s:o}", "schema", SCHEMA, "against", list);
    for (size_t i = 0; i < r->n_against; i++) {
        json_t *o = json_object();
        record_write(against_members, N_AGAINST, &r->against[i], o);
        json_array_append_new(list, o);
    }
    record_write(record_members, N_RECORD, r, out);
    return out;
}

typedef struct reader {
    const json_t *o;
    const char *where;
    ckvc_err *err;
} reader;

#define MUST(r, holds, key, wanted)                                                                \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA,                                                  \
                 "%s: leak check: \"%s\": wanted %s; `ckvc manifest check --against --out` makes " \
                 "such a record",                                                                  \
                 (r)->where, key, wanted)

static ckvc_status get_members(const reader *r, const record_member *members, size_t n, void *to) {
    for (size_t i = 0; i < n; i++) {
        MUST(r, record_read(&members[i], json_object_get(r->o, members[i].name), to),
             members[i].name, members[i].wanted);
    }
    return CKVC_OK;
}

static ckvc_status parse_record(const reader *r, leak_record *out) {
    const char *schema = json_string_value(json_object_get(r->o, "schema"));
    MUST(r, schema && strcmp(schema, SCHEMA) == 0, "schema", SCHEMA);
    const json_t *list = json_object_get(r->o, "against");
    const size_t n = json_array_size(list);
    MUST(r, n >= 1 && n <= LEAK_RECORD_MAX_AGAINST, "against", "1 to 256 evaluation files");
    CKVC_TRY(get_members(r, record_members, N_RECORD, out));
    out->against = ckvc_calloc(n, sizeof *out->against);
    for (; out->n_against < n; out->n_against++) {
        const reader of_one = {json_array_get(list, out->n_against), r->where, r->err};
        CKVC_TRY(get_members(&of_one, against_members, N_AGAINST, &out->against[out->n_against]));
    }
    return CKVC_OK;
}

ckvc_status leak_record_parse(const json_t *o, const char *where, leak_record *out, ckvc_err *err) {
    *out = (leak_record){0};
    const ckvc_status st = parse_record(&(reader){o, where, err}, out);
    if (st != CKVC_OK) { leak_record_fini(out); }
    return st;
}

ckvc_status leak_record_read(const char *path, leak_record *out, ckvc_err *err) {
    *out = (leak_record){0};
    json_auto_t *o = NULL;
    CKVC_TRY(ckvc_json_read(path, MAX_RECORD_BYTES, &o, err));
    return leak_record_parse(o, path, out, err);
}

void leak_record_fini(leak_record *r) {
    free(r->against);
    *r = (leak_record){0};
}

const leak_against *leak_record_find(const leak_record *r, const char *sha256) {
    for (size_t i = 0; i < r->n_against; i++) {
        if (strcmp(r->against[i].sha256, sha256) == 0) { return &r->against[i]; }
    }
    return NULL;
}

/* ---- what a table says of its manifests ---- */

/* Appends value, which is taken, unless the list has an equal one. */
static void add_once(json_t **list, json_t *value) {
    size_t i;
    json_t *item;
    if (!*list) { *list = json_array(); }
    json_array_foreach(*list, i, item) {
        if (json_equal(item, value)) {
            json_decref(value);
            return;
        }
    }
    json_array_append_new(*list, value);
}

ckvc_status table_leaks_add(table_leaks *l, const json_t *plan, const char *manifest,
                            const leak_record *records, size_t n, const char *where,
                            ckvc_err *err) {
    const json_t *own = json_object_get(plan, "leak_check");
    const char *planned = json_string_value(json_object_get(plan, "manifest"));
    manifest = planned ? planned : manifest;
    for (size_t i = 0; i < n; ++i) {
        if (strcmp(records[i].manifest, manifest) == 0) {
            add_once(&l->checks, leak_record_json(&records[i]));
            return CKVC_OK;
        }
    }
    if (!own) {
        add_once(&l->unchecked, json_string(manifest));
        return CKVC_OK;
    }
    CKVC_AUTO(leak_record_fini) leak_record r = {0};
    CKVC_TRY(leak_record_parse(own, where, &r, err));
    CKVC_FAIL_IF(strcmp(r.manifest, manifest) != 0, err, CKVC_E_DATA,
                 "%s: run.json: its leak check is of manifest %.12s..., the run's is %.12s...",
                 where, r.manifest, manifest);
    add_once(&l->checks, leak_record_json(&r));
    return CKVC_OK;
}

json_t *table_leaks_meta(const table_leaks *l) {
    if (!l->checks) { return NULL; }
    return json_pack("{s:O, s:o}", "checks", l->checks, "unchecked",
                     l->unchecked ? json_incref(l->unchecked) : json_array());
}

void table_leaks_fini(table_leaks *l) {
    json_decref(l->checks);
    json_decref(l->unchecked);
    *l = (table_leaks){0};
}
