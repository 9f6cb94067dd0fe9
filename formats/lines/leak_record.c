/* JSON of a leak check's record: see leak_record.h. */
#include "formats/lines/leak_record.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"

#define SCHEMA "ckvc-leak-check-1"

enum { MAX_RECORD_BYTES = 1 << 20 };

/* Counts of an evaluation file, in the order of the record's text. */
typedef struct count_key {
    const char *key;
    size_t offset;
} count_key;
static const count_key against_keys[] = {
    {"bytes", offsetof(leak_against, bytes)},
    {"lines", offsetof(leak_against, lines)},
    {"texts", offsetof(leak_against, texts)},
    {"words", offsetof(leak_against, words)},
    {"shared_spans", offsetof(leak_against, spans)},
    {"near_duplicates", offsetof(leak_against, near)},
    {"duplicate_ids", offsetof(leak_against, ids)},
    {"leaked_lines", offsetof(leak_against, leaked_lines)},
    {"leaked_prompts", offsetof(leak_against, leaked_prompts)},
};
static const count_key record_keys[] = {
    {"prompts", offsetof(leak_record, prompts)},
    {"held_out", offsetof(leak_record, held_out)},
    {"seed", offsetof(leak_record, seed)},
    {"near_duplicates_within", offsetof(leak_record, near_within)},
    {"leaked_prompts", offsetof(leak_record, leaked_prompts)},
};
enum {
    N_AGAINST_KEYS = sizeof against_keys / sizeof *against_keys,
    N_RECORD_KEYS = sizeof record_keys / sizeof *record_keys
};

static void put_counts(json_t *o, const void *from, const count_key *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        memcpy(&v, (const char *)from + keys[i].offset, sizeof v);
        json_object_set_new(o, keys[i].key, json_integer((json_int_t)v));
    }
}

json_t *leak_record_json(const leak_record *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_against; i++) {
        json_t *o = json_pack("{s:s}", "sha256", r->against[i].sha256);
        put_counts(o, &r->against[i], against_keys, N_AGAINST_KEYS);
        json_array_append_new(list, o);
    }
    json_t *out = json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "schema", SCHEMA, "manifest",
                            r->manifest, "ngram", (int)r->ngram, "shingle", (int)r->shingle, "near",
                            r->near, "holdout", r->holdout, "against", list);
    put_counts(out, r, record_keys, N_RECORD_KEYS);
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

static ckvc_status get_counts(const reader *r, void *to, const count_key *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t value;
        MUST(r, ckvc_json_get_count(r->o, keys[i].key, INT64_MAX, &value), keys[i].key,
             "a whole number from 0");
        memcpy((char *)to + keys[i].offset, &value, sizeof value);
    }
    return CKVC_OK;
}

static ckvc_status get_hash(const reader *r, const char *key, char out[CKVC_SHA256_HEX]) {
    const json_t *v = json_object_get(r->o, key);
    MUST(r, ckvc_json_is_hex(v, CKVC_SHA256_HEX - 1), key, "64 hexadecimal digits");
    memcpy(out, json_string_value(v), CKVC_SHA256_HEX);
    return CKVC_OK;
}

static ckvc_status get_share(const reader *r, const char *key, double *out) {
    const json_t *v = json_object_get(r->o, key);
    *out = json_number_value(v);
    MUST(r, json_is_number(v) && *out >= 0 && *out <= 1, key, "a number from 0 to 1");
    return CKVC_OK;
}

static ckvc_status get_words(const reader *r, const char *key, unsigned *out) {
    uint64_t v = 0;
    MUST(r, ckvc_json_get_count(r->o, key, 1000, &v) && v >= 1, key,
         "a number of words from 1 to 1000");
    *out = (unsigned)v;
    return CKVC_OK;
}

static ckvc_status parse(const reader *r, leak_record *out) {
    const char *schema = json_string_value(json_object_get(r->o, "schema"));
    MUST(r, schema && strcmp(schema, SCHEMA) == 0, "schema", SCHEMA);
    const json_t *list = json_object_get(r->o, "against");
    const size_t n = json_array_size(list);
    MUST(r, n >= 1 && n <= LEAK_RECORD_MAX_AGAINST, "against", "1 to 256 evaluation files");
    CKVC_TRY(get_hash(r, "manifest", out->manifest));
    CKVC_TRY(get_counts(r, out, record_keys, N_RECORD_KEYS));
    CKVC_TRY(get_share(r, "near", &out->near));
    CKVC_TRY(get_share(r, "holdout", &out->holdout));
    CKVC_TRY(get_words(r, "ngram", &out->ngram));
    CKVC_TRY(get_words(r, "shingle", &out->shingle));
    out->against = ckvc_calloc(n, sizeof *out->against);
    for (; out->n_against < n; out->n_against++) {
        const reader of_one = {json_array_get(list, out->n_against), r->where, r->err};
        leak_against *a = &out->against[out->n_against];
        CKVC_TRY(get_hash(&of_one, "sha256", a->sha256));
        CKVC_TRY(get_counts(&of_one, a, against_keys, N_AGAINST_KEYS));
    }
    return CKVC_OK;
}

ckvc_status leak_record_parse(const json_t *o, const char *where, leak_record *out, ckvc_err *err) {
    *out = (leak_record){0};
    const ckvc_status st = parse(&(reader){o, where, err}, out);
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

/* ---- of a table ---- */

/* Appends value (taken over) unless the list has an equal one. */
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
