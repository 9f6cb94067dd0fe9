/* A manifest against evaluation files, line by line: see leak_check.h. */
#include "corpus/leaks/leak_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "corpus/leaks/json_strings.h"
#include "corpus/leaks/leaks.h"
#include "corpus/leaks/line_stream.h"
#include "corpus/leaks/near_duplicates.h"
#include "corpus/leaks/words.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

enum { MAX_NAME_BYTES = 64, MAX_SPAN_WORDS = 60, MAX_PROMPT_WORDS = 12 };

/* Keys of a manifest's line: with these alone, "file" and "tokens" mean what they mean there. */
static const char *const manifest_keys[] = {
    "id",     "source", "text",     "tokens",       "file",
    "offset", "bytes",  "messages", "continuation", "continuation_tokens",
    "split"};
enum { KEY_ID = 0, KEY_TOKENS = 3, KEY_FILE = 4, KEY_CONTINUATION_TOKENS = 9, KEY_COUNT = 11 };

typedef struct guard {
    const manifest *m;
    const leak_options *o;
    leak_result *out;
    word_list words;  /* of all prompts and continuations */
    leak_text *texts; /* of them, in that order */
    size_t n_texts;
    uint32_t *entry_of;     /* [prompts] number in the manifest */
    uint32_t *prompt_of;    /* [n_entries] number among the prompts; UINT32_MAX where held out */
    leak_text *prompt_text; /* [prompts] the prompt's own words */
    const manifest_entry **by_id;
    size_t n_prompts;
    leak_index *spans;
    near_index *near;
    /* the evaluation file in hand */
    const char *path;
    leak_against *a;
    size_t number;
    bool self; /* it is the manifest: only its held-out lines count */
    uint64_t line;
    bool *touched, *touched_any; /* [prompts] */
    /* the line in hand */
    word_list text;
    uint64_t *grams;
    size_t cap_grams;
    unsigned keys; /* of a manifest that it has, as bits */
    bool foreign;  /* it has others */
    bool looking, leaked;
    char *id;
    bool id_is_string;
    size_t first_finding; /* of this line */
} guard;

const char *leak_kind_name(leak_kind kind) {
    static const char *const names[LEAK_KIND_COUNT] = {"span", "near-duplicate", "id",
                                                       "near-duplicate-within"};
    return names[kind];
}

/* ---- the manifest's side ---- */

static ckvc_status text_of(const manifest *m, const manifest_entry *e, bool continuation,
                           const tokenizer *tok, const char **text, size_t *n, char **owned,
                           ckvc_err *err) {
    bool ids = continuation ? e->has_continuation_tokens : e->has_tokens;
    *text = continuation ? e->continuation : e->text;
    *n = continuation ? e->continuation_size : e->text_size;
    *owned = NULL;
    if (!ids) { return CKVC_OK; }
    if (!tok) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "%s:%u: is given as tokens; --model DIR is needed to read its words",
                         m->path, e->line);
    }
    ckvc_err why = {0};
    ckvc_status st = tokenizer_decode(tok, continuation ? e->continuation_tokens : e->tokens,
                                      continuation ? e->n_continuation_tokens : e->n_tokens, true,
                                      owned, n, &why);
    *text = *owned;
    return st == CKVC_OK ? st : ckvc_fail(err, st, "%s:%u: %s", m->path, e->line, why.text);
}

static ckvc_status add_text(guard *g, const manifest_entry *e, bool continuation, uint32_t prompt,
                            ckvc_err *err) {
    const char *text;
    char *owned;
    size_t n, first = g->words.n;
    ckvc_status st = text_of(g->m, e, continuation, g->o->tok, &text, &n, &owned, err);
    if (st == CKVC_OK) { st = words_append(&g->words, text ? text : "", n, err); }
    free(owned);
    if (st == CKVC_OK) {
        g->texts[g->n_texts++] =
            (leak_text){(uint32_t)first, (uint32_t)(g->words.n - first), prompt};
        if (!continuation) {
            g->prompt_text[prompt] = g->texts[g->n_texts - 1];
            st = near_index_add(g->near, &g->words, first, g->words.n - first, err);
        }
    }
    return st;
}

static int by_id(const void *a, const void *b) {
    return strcmp((*(const manifest_entry *const *)a)->id, (*(const manifest_entry *const *)b)->id);
}

static ckvc_status add_prompts(guard *g, ckvc_err *err) {
    const manifest *m = g->m;
    size_t n = m->n_entries;
    g->texts = ckvc_alloc(2 * n, sizeof *g->texts);
    g->entry_of = ckvc_alloc(n, sizeof *g->entry_of);
    g->prompt_of = ckvc_alloc(n, sizeof *g->prompt_of);
    g->prompt_text = ckvc_alloc(n, sizeof *g->prompt_text);
    g->by_id = ckvc_alloc(n, sizeof *g->by_id);
    g->touched = ckvc_calloc(n, sizeof *g->touched);
    g->touched_any = ckvc_calloc(n, sizeof *g->touched_any);
    ckvc_status st = near_index_create(g->o->near, &g->near, err);
    for (size_t i = 0; i < n && st == CKVC_OK; i++) {
        const manifest_entry *e = &m->entries[i];
        g->prompt_of[i] = UINT32_MAX;
        if (g->o->held_out[i]) { continue; }
        uint32_t prompt = (uint32_t)g->n_prompts++;
        g->entry_of[prompt] = (uint32_t)i;
        g->prompt_of[i] = prompt;
        st = add_text(g, e, false, prompt, err);
        if (st == CKVC_OK && (e->has_continuation || e->has_continuation_tokens)) {
            st = add_text(g, e, true, prompt, err);
        }
    }
    for (size_t i = 0; i < n; i++) {
        g->by_id[i] = &m->entries[i];
    }
    qsort(g->by_id, n, sizeof *g->by_id, by_id);
    if (st == CKVC_OK && g->n_prompts == 0) {
        st = ckvc_fail(err, CKVC_E_USAGE,
                       "%s: every prompt is held out; there is nothing to compare", m->path);
    }
    if (st == CKVC_OK) { st = leak_index_create(&g->words, g->texts, g->n_texts, &g->spans, err); }
    if (st == CKVC_OK) { st = near_index_build(g->near, err); }
    return st;
}

static const manifest_entry *entry_with_id(const guard *g, const char *id) {
    const manifest_entry key = {.id = (char *)(uintptr_t)id}, *pointer = &key;
    const manifest_entry **found =
        bsearch(&pointer, g->by_id, g->m->n_entries, sizeof *g->by_id, by_id);
    return found ? *found : NULL;
}

/* ---- findings ---- */

static char *words_text(const word_list *w, size_t first, size_t n, size_t most) {
    size_t shown = n < most ? n : most,
           size = shown ? w->begin[first + shown] - w->begin[first] - 1 : 0;
    return ckvc_format("%.*s%s", (int)size, w->bytes + (shown ? w->begin[first] : 0),
                       shown < n ? " ..." : "");
}

static char *cut_name(const char *text, size_t n) {
    n = strnlen(text, n);
    return ckvc_format("%.*s",
                       (int)(n > MAX_NAME_BYTES ? ckvc_utf8_floor(text, MAX_NAME_BYTES) : n), text);
}

static ckvc_status report_finding(guard *g, leak_kind kind, uint32_t prompt, const char *field,
                                  size_t place, size_t n_words, double jaccard, ckvc_err *err) {
    leak_result *r = g->out;
    if (r->n_findings >= g->o->max_findings) { return CKVC_OK; }
    void *findings = r->findings;
    ckvc_status st =
        ckvc_grow(&findings, &r->cap_findings, r->n_findings + 1, sizeof *r->findings, err);
    r->findings = findings;
    if (st != CKVC_OK) { return st; }
    leak_finding *f = &r->findings[r->n_findings++];
    *f = (leak_finding){.kind = kind,
                        .entry = &g->m->entries[g->entry_of[prompt]],
                        .against = g->number,
                        .line = g->line,
                        .field = field ? cut_name(field, strlen(field)) : NULL,
                        .n_words = n_words,
                        .jaccard = jaccard,
                        .text = words_text(&g->words, place, n_words,
                                           kind == LEAK_SPAN ? MAX_SPAN_WORDS : MAX_PROMPT_WORDS)};
    return f->text && (f->field || !field) ? CKVC_OK : ckvc_fail_memory(err, "a finding", n_words);
}

static ckvc_status find_within(guard *g, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    for (uint32_t i = 0; i < g->n_prompts && st == CKVC_OK; i++) {
        int64_t match;
        double jaccard;
        st = near_find_earlier(g->near, i, &match, &jaccard, err);
        if (st != CKVC_OK || match < 0) { continue; }
        const manifest_entry *earlier = &g->m->entries[g->entry_of[match]];
        size_t before = g->out->n_findings;
        g->line = earlier->line;
        g->out->record.near_within++;
        g->out->shares[g->entry_of[i]] = true;
        st = report_finding(g, LEAK_WITHIN, i, NULL, g->prompt_text[i].first,
                            g->prompt_text[i].count, jaccard, err);
        if (st == CKVC_OK && g->out->n_findings > before &&
            !(g->out->findings[before].id = cut_name(earlier->id, 255))) {
            st = ckvc_fail_memory(err, "a finding", 1);
        }
    }
    return st;
}

/* ---- the evaluation's side ---- */

static ckvc_status look_at_text(guard *g, const char *field, const char *text, size_t n,
                                ckvc_err *err) {
    words_clear(&g->text);
    ckvc_status st = words_append(&g->text, text, n, err);
    if (st != CKVC_OK) { return st; }
    g->a->texts++;
    g->a->words += g->text.n;
    if (g->text.n >= LEAK_GRAM) {
        void *grams = g->grams;
        st = ckvc_grow(&grams, &g->cap_grams, g->text.n, sizeof *g->grams, err);
        g->grams = grams;
        if (st != CKVC_OK) { return st; }
        words_gram_hashes(&g->text, 0, g->text.n, LEAK_GRAM, g->grams);
        leak_span span;
        for (size_t from = 0;
             st == CKVC_OK && leak_next(g->spans, &g->text, g->grams, &from, &span);) {
            g->a->spans++;
            g->leaked = true;
            st = report_finding(g, LEAK_SPAN, span.owner, field, span.place, span.n, 1, err);
        }
    }
    int64_t match = -1;
    double jaccard = 0;
    if (st == CKVC_OK) { st = near_find(g->near, &g->text, &match, &jaccard, err); }
    if (st == CKVC_OK && match >= 0) {
        g->a->near++;
        g->leaked = g->touched[match] = true;
        st = report_finding(g, LEAK_NEAR, (uint32_t)match, field, g->prompt_text[match].first,
                            g->prompt_text[match].count, jaccard, err);
    }
    return st;
}

/* Every leaf: the line's id, whether the line is a manifest's, and (g->looking) its texts. */
static ckvc_status take_leaf(void *ctx, const json_leaf *leaf, ckvc_err *err) {
    guard *g = ctx;
    unsigned k = 0;
    while (k < KEY_COUNT && strcmp(leaf->field, manifest_keys[k]) != 0) {
        k++;
    }
    g->foreign |= k == KEY_COUNT;
    g->keys |= k < KEY_COUNT ? 1u << k : 0;
    if (leaf->depth == 1 && (k == KEY_ID || strcmp(leaf->field, "_id") == 0)) {
        free(g->id);
        g->id = ckvc_format("%.*s", (int)strnlen(leaf->text, leaf->n < 4096 ? leaf->n : 4096),
                            leaf->text);
        g->id_is_string = leaf->is_string;
        return g->id ? CKVC_OK : ckvc_fail_memory(err, "an id", leaf->n);
    }
    return leaf->is_string && g->looking ? look_at_text(g, leaf->field, leaf->text, leaf->n, err)
                                         : CKVC_OK;
}

/* What a manifest's line names but does not hold: a file's text, tokens. */
static ckvc_status look_at_references(guard *g, const char *text, size_t n, ckvc_err *err) {
    if (g->foreign || !(g->keys & 1u << KEY_ID) ||
        !(g->keys & (1u << KEY_TOKENS | 1u << KEY_FILE | 1u << KEY_CONTINUATION_TOKENS))) {
        return CKVC_OK;
    }
    if (g->line >= UINT32_MAX) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: more than %u lines of a manifest", g->path,
                         UINT32_MAX - 1);
    }
    const manifest file = {.path = (char *)(uintptr_t)g->path};
    manifest_entry e;
    ckvc_status st = manifest_read_line(g->path, (uint32_t)g->line, text, n, &e, err);
    for (int continuation = 0; continuation < 2 && st == CKVC_OK; continuation++) {
        const char *found;
        char *owned = NULL;
        size_t size;
        bool named =
            continuation ? e.has_continuation_tokens : e.has_tokens || (g->keys & 1u << KEY_FILE);
        if (!named) { continue; }
        st = text_of(&file, &e, continuation, g->o->tok, &found, &size, &owned, err);
        if (st == CKVC_OK) {
            st = look_at_text(g,
                              continuation   ? "continuation_tokens"
                              : e.has_tokens ? "tokens"
                                             : "file",
                              found, size, err);
        }
        free(owned);
    }
    manifest_entry_fini(&e);
    return st;
}

static ckvc_status look_at_line(guard *g, const char *text, size_t n, ckvc_buffer *scratch,
                                ckvc_buffer *field, const char *where, ckvc_err *err) {
    g->keys = 0;
    g->foreign = g->leaked = g->id_is_string = false;
    g->first_finding = g->out->n_findings;
    free(g->id);
    g->id = NULL;
    g->looking = !g->self;
    ckvc_status st = json_strings_scan(text, n, where, scratch, field, take_leaf, g, err);
    const manifest_entry *same =
        st == CKVC_OK && g->id && g->id_is_string ? entry_with_id(g, g->id) : NULL;
    if (st == CKVC_OK && g->self) {
        if (!same || g->prompt_of[same - g->m->entries] != UINT32_MAX) {
            return CKVC_OK; /* what is fitted is not held against itself */
        }
        g->looking = true;
        st = json_strings_scan(text, n, where, scratch, field, take_leaf, g, err);
    }
    if (st == CKVC_OK && same && g->prompt_of[same - g->m->entries] != UINT32_MAX) {
        uint32_t prompt = g->prompt_of[same - g->m->entries];
        g->a->ids++;
        g->leaked = g->touched[prompt] = true;
        st = report_finding(g, LEAK_ID, prompt, NULL, g->prompt_text[prompt].first,
                            g->prompt_text[prompt].count, 1, err);
    }
    if (st == CKVC_OK) { st = look_at_references(g, text, n, err); }
    for (size_t i = g->first_finding; i < g->out->n_findings; i++) {
        g->out->findings[i].id = cut_name(g->id ? g->id : "", 4096);
        st = st == CKVC_OK && !g->out->findings[i].id ? ckvc_fail_memory(err, "a finding", 1) : st;
    }
    g->a->lines++;
    g->a->leaked_lines += g->leaked;
    return st;
}

static bool blank(const char *text, size_t n) {
    return strspn(text, " \t\r") >= n;
}

static ckvc_status look_at_file(guard *g, const char *path, size_t number, ckvc_err *err) {
    leak_against *a = g->a = &g->out->record.against[number];
    struct stat mine, theirs;
    char *text, where[1024], hash[CKVC_SHA256_HEX];
    size_t n;
    ckvc_buffer scratch = {0}, field = {0};
    line_stream *s = NULL;
    g->path = path;
    g->number = number;
    g->self = false;
    ckvc_status st = line_stream_open(path, &s, err);
    if (st == CKVC_OK && stat(g->m->path, &mine) == 0 && stat(path, &theirs) == 0 &&
        mine.st_size == theirs.st_size) {
        st = ckvc_sha256_file(path, hash, err);
        g->self = st == CKVC_OK && strcmp(hash, g->m->sha256) == 0;
    }
    if (st == CKVC_OK && g->self && g->out->record.held_out == 0) {
        st = ckvc_fail(err, CKVC_E_USAGE,
                       "%s: is the manifest itself, and no prompt of it is held out", path);
    }
    memset(g->touched, 0, g->n_prompts * sizeof *g->touched);
    leak_forget(g->spans);
    while (st == CKVC_OK && (st = line_stream_next(s, &text, &n, &g->line, err)) == CKVC_OK &&
           text) {
        if (g->line == 1 && n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
            text += 3;
            n -= 3;
        }
        if (!blank(text, n)) {
            snprintf(where, sizeof where, "%s:%llu", path, (unsigned long long)g->line);
            st = look_at_line(g, text, n, &scratch, &field, where, err);
        }
    }
    if (st == CKVC_OK && a->lines == 0) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: no lines to compare with", path);
    }
    if (st == CKVC_OK) {
        line_stream_digest(s, a->sha256, &a->bytes);
        leak_touched(g->spans, g->touched);
        for (size_t i = 0; i < g->n_prompts; i++) {
            a->leaked_prompts += g->touched[i];
            g->touched_any[i] |= g->touched[i];
        }
    }
    line_stream_close(s);
    ckvc_buffer_fini(&scratch);
    ckvc_buffer_fini(&field);
    return st;
}

ckvc_status leak_check(const manifest *m, const char *const *paths, size_t n_paths,
                       const leak_options *o, leak_result *out, ckvc_err *err) {
    guard g = {.m = m, .o = o, .out = out};
    *out = (leak_result){0};
    leak_record *r = &out->record;
    memcpy(r->manifest, m->sha256, sizeof r->manifest);
    r->ngram = LEAK_GRAM;
    r->shingle = NEAR_SHINGLE;
    r->near = o->near;
    ckvc_status st = CKVC_OK;
    if (n_paths == 0 || n_paths > LEAK_RECORD_MAX_AGAINST) {
        st = ckvc_fail(err, CKVC_E_USAGE, "%zu files to compare with; want 1 to %d", n_paths,
                       LEAK_RECORD_MAX_AGAINST);
    } else if (!(r->against = ckvc_calloc(n_paths, sizeof *r->against)) ||
               !(out->shares = ckvc_calloc(m->n_entries, sizeof *out->shares))) {
        st = ckvc_fail_memory(err, "a leak check", n_paths * sizeof *r->against);
    }
    r->n_against = st == CKVC_OK ? n_paths : 0;
    if (st == CKVC_OK) { st = add_prompts(&g, err); }
    r->prompts = g.n_prompts;
    r->held_out = m->n_entries - g.n_prompts;
    if (st == CKVC_OK) { st = find_within(&g, err); }
    for (size_t i = 0; i < n_paths && st == CKVC_OK; i++) {
        st = look_at_file(&g, paths[i], i, err);
    }
    for (size_t i = 0; i < g.n_prompts && st == CKVC_OK; i++) {
        r->leaked_prompts += g.touched_any[i];
        out->shares[g.entry_of[i]] |= g.touched_any[i];
    }
    words_fini(&g.words);
    words_fini(&g.text);
    leak_index_free(g.spans);
    near_index_free(g.near);
    free(g.texts);
    free(g.entry_of);
    free(g.prompt_of);
    free(g.prompt_text);
    free(g.by_id);
    free(g.touched);
    free(g.touched_any);
    free(g.grams);
    free(g.id);
    if (st != CKVC_OK) { leak_result_fini(out); }
    return st;
}

void leak_result_fini(leak_result *r) {
    for (size_t i = 0; i < r->n_findings; i++) {
        free(r->findings[i].id);
        free(r->findings[i].field);
        free(r->findings[i].text);
    }
    free(r->findings);
    free(r->shares);
    leak_record_fini(&r->record);
    *r = (leak_result){0};
}
