/* What the sources of a run directory share: the names of files, the ranges of shards, the
 * comparison of plans, and parts. This file calls none of those sources. */
#include "formats/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

char *run_shard_path(const run_dir *r, const char *pass, uint32_t k, const char *end) {
    return ckvc_format("%s/%s/shard-%05u%s", r->path, pass, k, end);
}

uint32_t run_shard_count(const run_pass_state *p) {
    return p->pub.n_prompts / p->shard_prompts + (p->pub.n_prompts % p->shard_prompts != 0);
}

void run_shard_range(const run_pass_state *p, uint32_t k, uint32_t *first, uint32_t *end) {
    *first = k * p->shard_prompts;
    *end =
        p->plan_prompts - *first < p->shard_prompts ? p->plan_prompts : *first + p->shard_prompts;
}

run_pass_state *run_find_pass(const run_dir *r, const char *name) {
    for (size_t i = 0; i < r->n_passes; i++) {
        if (strcmp(r->passes[i]->pub.name, name) == 0) { return r->passes[i]; }
    }
    return NULL;
}

ckvc_status run_read_journaled(const char *path, uint64_t bytes, const char *sha256, char **data,
                               size_t *n, ckvc_err *err) {
    CKVC_AUTO_FREE char *read = NULL;
    char hash[CKVC_SHA256_HEX];
    *data = NULL;
    CKVC_TRY(ckvc_file_read(path, (size_t)RUN_MAX_FILE_BYTES, &read, n, err));
    ckvc_sha256_hex(read, *n, hash);
    CKVC_FAIL_IF(*n != bytes || strcmp(hash, sha256) != 0, err, CKVC_E_DATA,
                 "%s: SHA-256 %.16s... of %zu bytes, the journal says %.16s... of %llu; the file "
                 "was changed",
                 path, hash, *n, sha256, (unsigned long long)bytes);
    *data = ckvc_take(&read);
    return CKVC_OK;
}

char *run_part_path(const char *path, const char *stem, run_part part, const char *end) {
    return part.count ? ckvc_format("%s/%s-%u-of-%u%s", path, stem, part.index, part.count, end)
                      : ckvc_format("%s/%s%s", path, stem, end);
}

int run_by_part(const void *a, const void *b) {
    const run_part *x = a, *y = b;
    return x->count != y->count ? (x->count > y->count) - (x->count < y->count)
                                : (x->index > y->index) - (x->index < y->index);
}

/* Parses a name such as "journal-0-of-3.jsonl". Returns whether it is one that run_part_path
 * writes. */
static bool part_of_name(const char *name, const char *stem, const char *end, run_part *out) {
    const size_t n = strlen(stem);
    if (strncmp(name, stem, n) != 0 || name[n] != '-') { return false; }
    char *at;
    const unsigned long index = strtoul(name + n + 1, &at, 10);
    const unsigned long count = strncmp(at, "-of-", 4) == 0 ? strtoul(at + 4, NULL, 10) : 0;
    if (count > RUN_MAX_PARTS || index >= count) { return false; }
    *out = (run_part){(uint32_t)index, (uint32_t)count};
    CKVC_AUTO_FREE char *exact = ckvc_format("%s-%u-of-%u%s", stem, out->index, out->count, end);
    return strcmp(exact, name) == 0;
}

ckvc_status run_list_parts(const char *path, const char *stem, const char *end, run_part **out,
                           size_t *n, ckvc_err *err) {
    run_part *list = NULL;
    size_t capacity = 0;
    *out = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    CKVC_FAIL_ERRNO_IF(!dir, err, CKVC_E_NOINPUT, "%s: cannot look into the folder", path);
    for (struct dirent *e; (e = readdir(dir));) {
        run_part p;
        if (!part_of_name(e->d_name, stem, end, &p)) { continue; }
        CKVC_GROW(list, capacity, *n + 1);
        list[(*n)++] = p;
    }
    closedir(dir);
    if (list) { qsort(list, *n, sizeof *list, run_by_part); }
    *out = list;
    return CKVC_OK;
}

size_t run_part_size(run_part part, size_t n) {
    return part.count == 0 ? n : part.index < n ? (n - part.index - 1) / part.count + 1 : 0;
}

uint32_t run_own_shards(const run_dir *r, const run_pass_state *p) {
    return (uint32_t)run_part_size(r->part, run_shard_count(p));
}

ckvc_status run_publish_once(const char *path, const void *data, size_t size, ckvc_err *err) {
    if (!ckvc_file_exists(path)) { return ckvc_publish_bytes(path, data, size, false, err); }
    CKVC_FAIL_IF(!ckvc_file_holds(path, data, size), err, CKVC_E_CREATE,
                 "%s: is there already, and not what these parts make; choose another name", path);
    return CKVC_OK;
}

ckvc_status run_remove_file(const char *path, ckvc_err *err) {
    CKVC_FAIL_ERRNO_IF(unlink(path) != 0 && errno != ENOENT, err, CKVC_E_IO, "%s: cannot remove",
                       path);
    return CKVC_OK;
}

/* Keys of the plan that do not change results (run.md, "Plan"). They are left out of the hash and
 * of comparisons. */
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

/* Returns a value as a message says it; the caller frees it. */
static char *said_value(const json_t *v) {
    return v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10))
             : ckvc_strdup("absent");
}

static void diff_value(plan_diff *d, const char *name, const json_t *was, const json_t *is) {
    CKVC_AUTO_FREE char *before = was ? ckvc_json_canonical(was) : NULL,
                        *now = is ? ckvc_json_canonical(is) : NULL;
    if ((before && now && strcmp(before, now) == 0) || ++d->n > 6) { return; }
    CKVC_AUTO_FREE char *a = said_value(was), *b = said_value(is);
    const bool brief = a && b && strlen(a) <= 60 && strlen(b) <= 60 && strcmp(a, b) != 0;
    ckvc_buffer_printf(&d->text, "%s%s", d->n > 1 ? "; " : "", name);
    if (brief) {
        ckvc_buffer_printf(&d->text, ": %s there, %s now", a, b);
    } else {
        ckvc_buffer_printf(&d->text, " differs");
    }
}

/* Collects the fields in which two objects differ, in the order of their names, and then those of
 * objects within them: "bins.entropy". */
static void diff_objects(plan_diff *d, const char *prefix, const json_t *was, const json_t *is) {
    json_auto_t *all = json_object();
    json_t *value;
    const char *key;
    json_object_update(all, ckvc_unconst(was));
    json_object_update(all, ckvc_unconst(is));
    for (int inner = 0; inner < 2; inner++) {
        json_object_foreach(all, key, value) {
            if (!*prefix && !is_hashed(key)) { continue; }
            const json_t *a = json_object_get(was, key), *b = json_object_get(is, key);
            CKVC_AUTO_FREE char *name = ckvc_format("%s%s%s", prefix, *prefix ? "." : "", key);
            const bool objects = json_is_object(a) && json_is_object(b) && strlen(name) < 256;
            if (objects && inner) {
                diff_objects(d, name, a, b);
            } else if (!objects && !inner) {
                diff_value(d, name, a, b);
            }
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

void run_writer_free(run_writer *w) {
    if (!w) { return; }
    shard_free(w->rows);
    CKVC_FREE(w->state, w->left, w->log_size, w);
}

const char *run_note_text(const json_t *line, const char *key) {
    return json_string_value(json_object_get(line, key));
}

bool run_note_is_of_file(const json_t *line) {
    return strcmp(run_note_text(line, "note"), "file") == 0;
}

/* Returns whether the name stays below the run's folder, whatever the journal says. */
bool run_name_is_inside(const char *name) {
    return name && *name && *name != '/' && !strstr(name, "..");
}
