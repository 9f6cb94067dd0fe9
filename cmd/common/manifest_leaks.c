/* ckvc manifest check --against: see manifest_leaks.h. */
#include "cmd/common/manifest_leaks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/prompt/prompts.h"
#include "corpus/leaks/leak_check.h"
#include "corpus/leaks/manifest_clean.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"

/* Text from outside as a JSON string: control characters do not reach the terminal. */
static void print_quoted(const char *text) {
    json_t *s = json_string(text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    fputs(quoted ? quoted : "\"?\"", stdout);
    free(quoted);
    json_decref(s);
}

static void print_finding(const leak_finding *f, const manifest *m, const char *const *paths) {
    printf("%s\t", leak_kind_name(f->kind));
    print_quoted(f->entry->id);
    printf(" line %u\t%s:%" PRIu64 " ", f->entry->line,
           f->kind == LEAK_WITHIN ? m->path : paths[f->against], f->line);
    print_quoted(f->id);
    if (f->field && *f->field) {
        printf(" in ");
        print_quoted(f->field);
    }
    if (f->kind == LEAK_NEAR || f->kind == LEAK_WITHIN) {
        printf("\tjaccard %.3f\t%s\n", f->jaccard, f->text);
    } else {
        printf("\t%zu words\t%s\n", f->n_words, f->text);
    }
}

static void print_counts(const leak_record *r, const char *const *paths) {
    for (size_t i = 0; i < r->n_against; i++) {
        const leak_against *a = &r->against[i];
        printf("%s\t%" PRIu64 " lines, %" PRIu64 " texts, %" PRIu64 " words: %" PRIu64
               " shared spans, %" PRIu64 " near-duplicates, %" PRIu64 " ids; %" PRIu64
               " lines and %" PRIu64 " prompts touched\n",
               paths[i], a->lines, a->texts, a->words, a->spans, a->near, a->ids, a->leaked_lines,
               a->leaked_prompts);
    }
    printf("compared\t%" PRIu64 " prompts (%" PRIu64 " held out): %" PRIu64
           " share something, %" PRIu64 " near to an earlier one\n",
           r->prompts, r->held_out, r->leaked_prompts, r->near_within);
}

static json_t *finding_json(const leak_finding *f, const char *const *paths) {
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:f, s:s}", "kind",
                          leak_kind_name(f->kind), "prompt", f->entry->id, "prompt_line",
                          (json_int_t)f->entry->line, "id", f->id, "line", (json_int_t)f->line,
                          "words", (json_int_t)f->n_words, "jaccard", f->jaccard, "text", f->text);
    if (o && f->kind != LEAK_WITHIN) {
        json_object_set_new(o, "file", json_string(paths[f->against]));
    }
    if (o && f->field) { json_object_set_new(o, "field", json_string(f->field)); }
    return o;
}

static ckvc_status write_record(const leaks_cli *c, const leak_record *r, ckvc_err *err) {
    ckvc_buffer bytes = {0};
    json_t *o = leak_record_json(r);
    ckvc_json_append(&bytes, o);
    ckvc_buffer_text(&bytes, "\n");
    json_decref(o);
    ckvc_status st = !o || bytes.failed
                         ? ckvc_fail_memory(err, "a leak check", bytes.size)
                         : ckvc_publish_bytes(c->out, bytes.data, bytes.size, c->force, err);
    ckvc_buffer_fini(&bytes);
    return st;
}

static ckvc_status refuse_repeats(const opt_list *list, ckvc_err *err) {
    for (size_t i = 0; i < list->n; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(list->items[i], list->items[k]) == 0) {
                return ckvc_fail(err, CKVC_E_USAGE, "--against: %s is named twice", list->items[i]);
            }
        }
    }
    return CKVC_OK;
}

/* Held-out prompts stay whatever they share: they are what the others are compared with. */
static ckvc_status write_clean(const leaks_cli *c, const manifest *m, const bool *held_out,
                               const bool *shares, const bool *repeats, json_t *found,
                               ckvc_err *err) {
    size_t n_left_out = 0;
    bool *left_out = ckvc_calloc(m->n_entries, sizeof *left_out);
    for (size_t i = 0; i < m->n_entries; i++) {
        left_out[i] = !held_out[i] && (shares[i] || repeats[i]);
        n_left_out += left_out[i];
    }
    ckvc_status st = manifest_clean_write(m, left_out, c->clean, c->force, err);
    free(left_out);
    if (st == CKVC_OK && found) {
        json_object_set_new(found, "clean",
                            json_pack("{s:I, s:I}", "prompts",
                                      (json_int_t)(m->n_entries - n_left_out), "left_out",
                                      (json_int_t)n_left_out));
    } else if (st == CKVC_OK) {
        fprintf(stderr, "%s: %zu of %zu lines, %zu left out\n", c->clean, m->n_entries - n_left_out,
                m->n_entries, n_left_out);
    }
    return st;
}

ckvc_status manifest_leaks(const leaks_cli *c, const manifest *m, const tokenizer *tok,
                           const bool *repeats, bool json, json_t **found, ckvc_err *err) {
    *found = NULL;
    leak_result result = {0};
    ckvc_publish publish = {0};
    bool *held_out = ckvc_calloc(m->n_entries, sizeof *held_out);
    ckvc_status st = held_out ? refuse_repeats(&c->against, err)
                              : ckvc_fail_memory(err, "prompts", m->n_entries);
    if (st == CKVC_OK &&
        c->out) { /* before the work: an output that is in the way is known at once */
        st = ckvc_publish_begin(&publish, c->out, c->force, err);
        ckvc_publish_abort(&publish);
    }
    if (st == CKVC_OK && c->clean) {
        st = c->out && strcmp(c->out, c->clean) == 0
                 ? ckvc_fail(err, CKVC_E_USAGE, "--out and --clean both name %s", c->out)
                 : manifest_clean_ready(m, c->against.items, c->against.n, c->clean, c->force, err);
    }
    for (size_t i = 0; i < m->n_entries && st == CKVC_OK; i++) {
        const manifest_entry *e = &m->entries[i];
        held_out[i] = prompt_is_heldout((uint64_t)c->seed, e->id, c->holdout) ||
                      (e->split && strcmp(e->split, "heldout") == 0);
    }
    const leak_options o = {
        .near = c->near, .tok = tok, .held_out = held_out, .max_findings = (size_t)c->max_findings};
    double start = ckvc_now_s();
    if (st == CKVC_OK) { st = leak_check(m, c->against.items, c->against.n, &o, &result, err); }
    leak_record *r = &result.record;
    if (st == CKVC_OK) {
        r->holdout = c->holdout;
        r->seed = (uint64_t)c->seed;
        uint64_t bytes = 0;
        for (size_t i = 0; i < r->n_against; i++) {
            bytes += r->against[i].bytes;
        }
        double seconds = ckvc_now_s() - start;
        fprintf(stderr, "leaks: %.1f MB in %.2f s (%.0f MB/s)\n", (double)bytes / 1e6, seconds,
                (double)bytes / 1e6 / seconds);
    }
    if (st == CKVC_OK && json) {
        json_t *list = json_array();
        for (size_t i = 0; i < result.n_findings; i++) {
            json_array_append_new(list, finding_json(&result.findings[i], c->against.items));
        }
        *found = json_pack("{s:o, s:o}", "findings", list, "record", leak_record_json(r));
    } else if (st == CKVC_OK) {
        for (size_t i = 0; i < result.n_findings; i++) {
            print_finding(&result.findings[i], m, c->against.items);
        }
        print_counts(r, c->against.items);
    }
    if (st == CKVC_OK && c->out) { st = write_record(c, r, err); }
    if (st == CKVC_OK && c->clean) {
        st = write_clean(c, m, held_out, result.shares, repeats, *found, err);
    }
    if (st == CKVC_OK && r->leaked_prompts) {
        st = ckvc_fail(err, CKVC_CHECK_FAILED,
                       "%s: %" PRIu64 " of %" PRIu64
                       " prompts share text or ids with the evaluation",
                       m->path, r->leaked_prompts, r->prompts);
    } else if (st == CKVC_OK && r->near_within) {
        st = ckvc_fail(err, CKVC_CHECK_FAILED,
                       "%s: %" PRIu64 " of %" PRIu64 " prompts are near-duplicates of earlier ones",
                       m->path, r->near_within, r->prompts);
    }
    free(held_out);
    leak_result_fini(&result);
    return st;
}
