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

static bool put_counts(json_t *o, const void *from, const count_key *keys, size_t n) {
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t v;
        memcpy(&v, (const char *)from + keys[i].offset, sizeof v);
        ok = json_object_set_new(o, keys[i].key, json_integer((json_int_t)v)) == 0;
    }
    return ok;
}

json_t *leak_record_json(const leak_record *r) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < r->n_against; i++) {
        json_t *o = json_pack("{s:s}", "sha256", r->against[i].sha256);
        ok = put_counts(o, &r->against[i], against_keys, N_AGAINST_KEYS);
        ok = json_array_append_new(list, o) == 0 && ok;
    }
    json_t *out = json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "schema", SCHEMA, "manifest",
                            r->manifest, "ngram", (int)r->ngram, "shingle", (int)r->shingle, "near",
                            r->near, "holdout", r->holdout);
    ok = ok && put_counts(out, r, record_keys, N_RECORD_KEYS) &&
         json_object_set(out, "against", list) == 0;
    json_decref(list);
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static ckvc_status bad(const char *where, const char *key, const char *wanted, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_DATA,
                     "%s: leak check: \"%s\": wanted %s; `ckvc manifest check --against --out` "
                     "makes such a record",
                     where, key, wanted);
}

static ckvc_status get_counts(const json_t *o, void *to, const count_key *keys, size_t n,
                              const char *where, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(o, keys[i].key);
        if (!json_is_integer(v) || json_integer_value(v) < 0) {
            return bad(where, keys[i].key, "a whole number from 0", err);
        }
        uint64_t value = (uint64_t)json_integer_value(v);
        memcpy((char *)to + keys[i].offset, &value, sizeof value);
    }
    return CKVC_OK;
}

static ckvc_status get_hash(const json_t *o, const char *key, char out[CKVC_SHA256_HEX],
                            const char *where, ckvc_err *err) {
    const char *text = json_string_value(json_object_get(o, key));
    if (!text || strlen(text) != CKVC_SHA256_HEX - 1 ||
        strspn(text, "0123456789abcdef") != CKVC_SHA256_HEX - 1) {
        return bad(where, key, "64 hexadecimal digits", err);
    }
    memcpy(out, text, CKVC_SHA256_HEX);
    return CKVC_OK;
}

static ckvc_status get_share(const json_t *o, const char *key, double *out, const char *where,
                             ckvc_err *err) {
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v) && *out >= 0 && *out <= 1
               ? CKVC_OK
               : bad(where, key, "a number from 0 to 1", err);
}

static ckvc_status get_words(const json_t *o, const char *key, unsigned *out, const char *where,
                             ckvc_err *err) {
    json_int_t v = json_integer_value(json_object_get(o, key));
    *out = (unsigned)v;
    return v >= 1 && v <= 1000 ? CKVC_OK : bad(where, key, "a number of words from 1 to 1000", err);
}

ckvc_status leak_record_parse(const json_t *o, const char *where, leak_record *out, ckvc_err *err) {
    *out = (leak_record){0};
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (!schema || strcmp(schema, SCHEMA) != 0) { return bad(where, "schema", SCHEMA, err); }
    const json_t *list = json_object_get(o, "against");
    size_t n = json_array_size(list);
    if (n < 1 || n > LEAK_RECORD_MAX_AGAINST) {
        return bad(where, "against", "1 to 256 evaluation files", err);
    }
    ckvc_status st = get_hash(o, "manifest", out->manifest, where, err);
    st = st ? st : get_counts(o, out, record_keys, N_RECORD_KEYS, where, err);
    st = st ? st : get_share(o, "near", &out->near, where, err);
    st = st ? st : get_share(o, "holdout", &out->holdout, where, err);
    st = st ? st : get_words(o, "ngram", &out->ngram, where, err);
    st = st ? st : get_words(o, "shingle", &out->shingle, where, err);
    if (st == CKVC_OK && !(out->against = ckvc_calloc(n, sizeof *out->against))) {
        st = ckvc_fail_memory(err, "a leak check", n * sizeof *out->against);
    }
    for (; st == CKVC_OK && out->n_against < n; out->n_against++) {
        const json_t *a = json_array_get(list, out->n_against);
        st = get_hash(a, "sha256", out->against[out->n_against].sha256, where, err);
        st = st ? st
                : get_counts(a, &out->against[out->n_against], against_keys, N_AGAINST_KEYS, where,
                             err);
    }
    if (st != CKVC_OK) { leak_record_fini(out); }
    return st;
}

ckvc_status leak_record_read(const char *path, leak_record *out, ckvc_err *err) {
    *out = (leak_record){0};
    json_t *o;
    ckvc_status st = ckvc_json_read(path, MAX_RECORD_BYTES, &o, err);
    if (st != CKVC_OK) { return st; }
    st = leak_record_parse(o, path, out, err);
    json_decref(o);
    return st;
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
