/* Compares a manifest with evaluation files line by line: see leak_check.h. */
#include "corpus/leaks/leak_check.h"

#include <stdio.h>
#include <sys/stat.h>

#include "corpus/leaks/line_stream.h"
#include "corpus/leaks/shared_spans.h"
#include "corpus/leaks/word_list.h"
#include "lib/base/utf8.h"

enum { MAX_NAME_BYTES = 64, MAX_SPAN_WORDS = 60, MAX_PROMPT_WORDS = 12 };

typedef struct prompt { /* of the manifest, not held out */
    uint32_t entry;     /* number in the manifest */
    leak_text text;     /* its own words */
    bool touched;       /* by the file in hand */
    bool touched_by_any;
} prompt;

typedef struct guard {
    const manifest *m;
    const leak_options *o;
    leak_result *out;
    word_list words;  /* of all prompts and continuations */
    leak_text *texts; /* of them, in that order */
    size_t n_texts;
    prompt *prompts;
    size_t n_prompts;
    uint32_t *prompt_of; /* [n_entries] number among the prompts; UINT32_MAX where held out */
    json_t *ids;         /* {id: number in the manifest} */
    leak_index *spans;
    near_index *near;
    /* the evaluation file in hand */
    const char *path;
    leak_against *a;
    size_t number;
    bool self; /* the file is the manifest itself, of which only held-out lines count */
    uint64_t line;
    /* the line in hand */
    json_scratch scratch;
    word_list text;
    uint64_t *grams;
    size_t cap_grams;
    unsigned keys; /* bit k: the line has the member k of a manifest's lines */
    /* It also has members that no manifest's line has, so that its "file" and "tokens" need not
     * mean what they mean there. */
    bool foreign;
    bool looking, leaked;
    char *id;
    bool id_is_string;
} guard;

const char *leak_kind_name(leak_kind kind) {
    static const char *const names[LEAK_KIND_COUNT] = {"span", "near-duplicate", "id",
                                                       "near-duplicate-within"};
    return names[kind];
}

static void guard_fini(guard *g) {
    words_fini(&g->words);
    words_fini(&g->text);
    leak_index_free(g->spans);
    near_index_free(g->near);
    json_scratch_fini(&g->scratch);
    CKVC_FREE(g->texts, g->prompts, g->prompt_of);
    json_decref(g->ids);
    CKVC_FREE(g->grams, g->id);
}

/* ---- the manifest's side ---- */

/* Copies the text of an entry's prompt or continuation, which is decoded where the entry has
 * tokens. The caller frees *text. CKVC_E_USAGE for tokens without a tokenizer. `path` is the
 * manifest's. */
static ckvc_status copy_entry_text(const char *path, const manifest_entry *e, bool continuation,
                                   const tokenizer *tok, char **text, size_t *n, ckvc_err *err) {
    const entry_part part = entry_part_of(e, continuation);
    if (!part.is_ids) {
        *text = ckvc_copy(part.text, part.size, 1);
        *n = part.size;
        return CKVC_OK;
    }
    CKVC_FAIL_IF(!tok, err, CKVC_E_USAGE,
                 "%s:%u: is given as tokens; --model DIR is needed to read its words", path,
                 e->line);
    ckvc_err why = {0};
    const ckvc_status st = tokenizer_decode(tok, part.ids, part.n_ids, true, text, n, &why);
    return st == CKVC_OK ? st : ckvc_fail(err, st, "%s:%u: %s", path, e->line, why.text);
}

/* Adds the words of an entry's prompt or continuation as one text of prompt number `owner`. */
static ckvc_status add_text(guard *g, const manifest_entry *e, bool continuation, uint32_t owner,
                            ckvc_err *err) {
    const size_t first = g->words.n;
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    CKVC_TRY(copy_entry_text(g->m->path, e, continuation, g->o->tok, &text, &n, err));
    CKVC_TRY(words_append(&g->words, text, n, err));
    g->texts[g->n_texts++] = (leak_text){(uint32_t)first, (uint32_t)(g->words.n - first), owner};
    return CKVC_OK;
}

static ckvc_status add_prompt(guard *g, size_t i, ckvc_err *err) {
    const manifest_entry *e = &g->m->entries[i];
    const uint32_t number = g->prompt_of[i] = (uint32_t)g->n_prompts++;
    prompt *p = &g->prompts[number];
    CKVC_TRY(add_text(g, e, false, number, err));
    *p = (prompt){.entry = (uint32_t)i, .text = g->texts[g->n_texts - 1]};
    CKVC_TRY(near_index_add(g->near, &g->words, p->text.first, p->text.count, err));
    return e->continuation || e->continuation_tokens ? add_text(g, e, true, number, err) : CKVC_OK;
}

static ckvc_status add_prompts(guard *g, ckvc_err *err) {
    const manifest *m = g->m;
    const size_t n = m->n_entries;
    g->texts = ckvc_alloc(2 * n, sizeof *g->texts);
    g->prompts = ckvc_calloc(n, sizeof *g->prompts);
    g->prompt_of = ckvc_alloc(n, sizeof *g->prompt_of);
    g->ids = json_object();
    g->near = near_index_create(g->o->near);
    for (size_t i = 0; i < n; i++) {
        json_object_set_new(g->ids, m->entries[i].id, json_integer((json_int_t)i));
        g->prompt_of[i] = UINT32_MAX;
        if (!g->o->held_out[i]) { CKVC_TRY(add_prompt(g, i, err)); }
    }
    CKVC_FAIL_IF(g->n_prompts == 0, err, CKVC_E_USAGE,
                 "%s: every prompt is held out; there is nothing to compare", m->path);
    g->spans = leak_index_create(&g->words, g->texts, g->n_texts);
    near_index_build(g->near);
    return CKVC_OK;
}

/* Whether the line's id is a string that an entry of the manifest has. *number receives the entry's
 * number among the prompts, or UINT32_MAX where there is none because the entry is held out. */
static bool has_id(const guard *g, uint32_t *number) {
    const json_t *entry = g->id && g->id_is_string ? json_object_get(g->ids, g->id) : NULL;
    *number = entry ? g->prompt_of[json_integer_value(entry)] : UINT32_MAX;
    return entry;
}

/* ---- findings ---- */

static char *words_text(const word_list *w, size_t first, size_t n, size_t most) {
    size_t shown = n < most ? n : most,
           size = shown ? w->begin[first + shown] - w->begin[first] - 1 : 0;
    return ckvc_format("%.*s%s", (int)size, w->bytes + (shown ? w->begin[first] : 0),
                       shown < n ? " ..." : "");
}

static char *cut_name(const char *text) {
    const size_t n = strlen(text);
    return ckvc_format("%.*s",
                       (int)(n > MAX_NAME_BYTES ? ckvc_utf8_floor(text, MAX_NAME_BYTES) : n), text);
}

/* Adds a finding in the line in hand: prompt number p, and the words of the manifest that were
 * found. Findings beyond o->max_findings are dropped. */
static void add_finding(guard *g, leak_kind kind, size_t p, const char *field, leak_text words,
                        double jaccard) {
    leak_result *r = g->out;
    if (r->n_findings >= g->o->max_findings) { return; }
    CKVC_GROW(r->findings, r->cap_findings, r->n_findings + 1);
    r->findings[r->n_findings++] =
        (leak_finding){.kind = kind,
                       .entry = &g->m->entries[g->prompts[p].entry],
                       .against = g->number,
                       .line = g->line,
                       .field = field ? cut_name(field) : NULL,
                       .n_words = words.count,
                       .jaccard = jaccard,
                       .text = words_text(&g->words, words.first, words.count,
                                          kind == LEAK_SPAN ? MAX_SPAN_WORDS : MAX_PROMPT_WORDS)};
}

static void find_within(guard *g) {
    for (size_t i = 0; i < g->n_prompts; i++) {
        near_match match;
        if (!near_find_earlier(g->near, i, &match)) { continue; }
        const manifest_entry *earlier = &g->m->entries[g->prompts[match.text].entry];
        const size_t before = g->out->n_findings;
        g->line = earlier->line;
        g->out->record.near_within++;
        g->out->shares[g->prompts[i].entry] = true;
        add_finding(g, LEAK_WITHIN, i, NULL, g->prompts[i].text, match.jaccard);
        if (g->out->n_findings > before) { g->out->findings[before].id = cut_name(earlier->id); }
    }
}

/* ---- the evaluation's side ---- */

static ckvc_status look_at_text(guard *g, const char *field, const char *text, size_t n,
                                ckvc_err *err) {
    words_clear(&g->text);
    CKVC_TRY(words_append(&g->text, text, n, err));
    g->a->texts++;
    g->a->words += g->text.n;
    if (g->text.n >= LEAK_GRAM) {
        CKVC_GROW(g->grams, g->cap_grams, g->text.n);
        words_gram_hashes(&g->text, 0, g->text.n, LEAK_GRAM, g->grams);
        leak_span s;
        for (size_t from = 0; leak_next(g->spans, &g->text, g->grams, &from, &s);) {
            g->a->spans++;
            g->leaked = true;
            add_finding(g, LEAK_SPAN, s.owner, field, (leak_text){s.place, (uint32_t)s.n, s.owner},
                        1);
        }
    }
    near_match match;
    if (near_find(g->near, &g->text, &match)) {
        prompt *p = &g->prompts[match.text];
        g->a->near++;
        g->leaked = p->touched = true;
        add_finding(g, LEAK_NEAR, match.text, field, p->text, match.jaccard);
    }
    return CKVC_OK;
}

/* Called for every leaf of a line. It notes the line's id and which members of a manifest's line
 * there are, and compares the texts where g->looking is set. */
static ckvc_status take_leaf(void *ctx, const json_leaf *leaf, ckvc_err *err) {
    guard *g = ctx;
    const manifest_key k = manifest_key_of(leaf->field);
    g->foreign |= k == MANIFEST_KEY_COUNT;
    g->keys |= k < MANIFEST_KEY_COUNT ? 1u << k : 0;
    if (leaf->depth == 1 && (k == MANIFEST_KEY_id || strcmp(leaf->field, "_id") == 0)) {
        free(g->id);
        g->id = ckvc_format("%.*s", (int)strnlen(leaf->text, leaf->n < 4096 ? leaf->n : 4096),
                            leaf->text);
        g->id_is_string = leaf->is_string;
        return CKVC_OK;
    }
    return leaf->is_string && g->looking ? look_at_text(g, leaf->field, leaf->text, leaf->n, err)
                                         : CKVC_OK;
}

/* Compares the texts that a line of a manifest does not hold itself: that of the file that it
 * names, and those that its tokens stand for. */
static ckvc_status look_at_references(guard *g, const char *text, size_t n, ckvc_err *err) {
    const bool file = g->keys & 1u << MANIFEST_KEY_file;
    if (g->foreign || !(g->keys & 1u << MANIFEST_KEY_id) ||
        !(file || g->keys & (1u << MANIFEST_KEY_tokens | 1u << MANIFEST_KEY_continuation_tokens))) {
        return CKVC_OK;
    }
    CKVC_FAIL_IF(g->line >= UINT32_MAX, err, CKVC_E_DATA, "%s: more than %u lines of a manifest",
                 g->path, UINT32_MAX - 1);
    CKVC_AUTO(manifest_entry_fini) manifest_entry e = {0};
    CKVC_TRY(manifest_read_line(g->path, (uint32_t)g->line, text, n, &e, err));
    const char *const fields[] = {e.tokens ? "tokens"
                                  : file   ? "file"
                                           : NULL,
                                  e.continuation_tokens ? "continuation_tokens" : NULL};
    for (int k = 0; k < 2; k++) {
        CKVC_AUTO_FREE char *found = NULL;
        size_t size;
        if (!fields[k]) { continue; }
        CKVC_TRY(copy_entry_text(g->path, &e, k == 1, g->o->tok, &found, &size, err));
        CKVC_TRY(look_at_text(g, fields[k], found, size, err));
    }
    return CKVC_OK;
}

static ckvc_status look_at_line(guard *g, const char *text, size_t n, const char *where,
                                ckvc_err *err) {
    const size_t first_finding = g->out->n_findings;
    g->keys = 0;
    g->foreign = g->leaked = g->id_is_string = false;
    free(g->id);
    g->id = NULL;
    g->looking = !g->self;
    CKVC_TRY(json_strings_scan(text, n, where, &g->scratch, take_leaf, g, err));
    uint32_t number;
    const bool same = has_id(g, &number);
    if (g->self) {
        if (!same || number != UINT32_MAX) {
            return CKVC_OK; /* what is fitted is not held against itself */
        }
        g->looking = true;
        CKVC_TRY(json_strings_scan(text, n, where, &g->scratch, take_leaf, g, err));
    }
    if (number != UINT32_MAX) {
        prompt *p = &g->prompts[number];
        g->a->ids++;
        g->leaked = p->touched = true;
        add_finding(g, LEAK_ID, number, NULL, p->text, 1);
    }
    CKVC_TRY(look_at_references(g, text, n, err));
    for (size_t i = first_finding; i < g->out->n_findings; i++) {
        g->out->findings[i].id = cut_name(g->id ? g->id : "");
    }
    g->a->lines++;
    g->a->leaked_lines += g->leaked;
    return CKVC_OK;
}

static ckvc_status look_at_lines(guard *g, line_stream *s, ckvc_err *err) {
    char where[1024], *text;
    size_t n;
    for (;;) {
        CKVC_TRY(line_stream_next(s, &text, &n, &g->line, err));
        if (!text) { break; }
        if (g->line == 1 && n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
            text += 3;
            n -= 3;
        }
        if (strspn(text, " \t\r") >= n) { continue; }
        snprintf(where, sizeof where, "%s:%llu", g->path, (unsigned long long)g->line);
        CKVC_TRY(look_at_line(g, text, n, where, err));
    }
    CKVC_FAIL_IF(g->a->lines == 0, err, CKVC_E_DATA, "%s: no lines to compare with", g->path);
    return CKVC_OK;
}

/* Whether the evaluation file is the manifest itself, under whatever name. */
static ckvc_status is_self(const guard *g, bool *self, ckvc_err *err) {
    struct stat mine, theirs;
    char hash[CKVC_SHA256_HEX];
    *self = false;
    if (stat(g->m->path, &mine) != 0 || stat(g->path, &theirs) != 0 ||
        mine.st_size != theirs.st_size) {
        return CKVC_OK;
    }
    CKVC_TRY(ckvc_sha256_file(g->path, hash, err));
    *self = strcmp(hash, g->m->sha256) == 0;
    return CKVC_OK;
}

static ckvc_status look_at_file(guard *g, const char *path, size_t number, ckvc_err *err) {
    leak_against *a = g->a = &g->out->record.against[number];
    CKVC_AUTO(line_stream_close_at) line_stream *s = NULL;
    g->path = path;
    g->number = number;
    CKVC_TRY(line_stream_open(path, &s, err));
    CKVC_TRY(is_self(g, &g->self, err));
    CKVC_FAIL_IF(g->self && g->out->record.held_out == 0, err, CKVC_E_USAGE,
                 "%s: is the manifest itself, and no prompt of it is held out", path);
    leak_forget(g->spans);
    CKVC_TRY(look_at_lines(g, s, err));
    line_stream_digest(s, a->sha256, &a->bytes);
    CKVC_AUTO_FREE bool *touched = ckvc_calloc(g->n_prompts, sizeof *touched);
    leak_touched(g->spans, touched);
    for (size_t i = 0; i < g->n_prompts; i++) {
        prompt *p = &g->prompts[i];
        p->touched |= touched[i];
        p->touched_by_any |= p->touched;
        a->leaked_prompts += p->touched;
        p->touched = false;
    }
    return CKVC_OK;
}

static ckvc_status check_against_files(guard *g, const char *const *paths, size_t n_paths,
                                       ckvc_err *err) {
    leak_record *r = &g->out->record;
    CKVC_FAIL_IF(n_paths == 0 || n_paths > LEAK_RECORD_MAX_AGAINST, err, CKVC_E_USAGE,
                 "%zu files to compare with; want 1 to %d", n_paths, LEAK_RECORD_MAX_AGAINST);
    r->against = ckvc_calloc(n_paths, sizeof *r->against);
    r->n_against = n_paths;
    g->out->shares = ckvc_calloc(g->m->n_entries, sizeof *g->out->shares);
    CKVC_TRY(add_prompts(g, err));
    r->prompts = g->n_prompts;
    r->held_out = g->m->n_entries - g->n_prompts;
    find_within(g);
    for (size_t i = 0; i < n_paths; i++) { CKVC_TRY(look_at_file(g, paths[i], i, err)); }
    for (size_t i = 0; i < g->n_prompts; i++) {
        r->leaked_prompts += g->prompts[i].touched_by_any;
        g->out->shares[g->prompts[i].entry] |= g->prompts[i].touched_by_any;
    }
    return CKVC_OK;
}

ckvc_status leak_check(const manifest *m, const char *const *paths, size_t n_paths,
                       const leak_options *o, leak_result *out, ckvc_err *err) {
    CKVC_AUTO(guard_fini) guard g = {.m = m, .o = o, .out = out};
    *out = (leak_result){.record = {.ngram = LEAK_GRAM, .shingle = NEAR_SHINGLE, .near = o->near}};
    memcpy(out->record.manifest, m->sha256, sizeof out->record.manifest);
    const ckvc_status st = check_against_files(&g, paths, n_paths, err);
    if (st != CKVC_OK) { leak_result_fini(out); }
    return st;
}

void leak_result_fini(leak_result *r) {
    for (size_t i = 0; i < r->n_findings; i++) {
        CKVC_FREE(r->findings[i].id, r->findings[i].field, r->findings[i].text);
    }
    CKVC_FREE(r->findings, r->shares);
    leak_record_fini(&r->record);
    *r = (leak_result){0};
}
