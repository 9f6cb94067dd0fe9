/* Documents to prompts: see manifest_build.h. Sources take turns, and within a source its documents
 * (shuffled) do, so that prompts come from as many documents as there are before any gives a second
 * one. */
#include "corpus/build/manifest_build.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corpus/build/retrieval.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"
#include "lib/base/utf8.h"

enum {
    BYTES_PER_TOKEN =
        12 /* of text looked at for each token wanted: several times what text needs */
};

/* What a random stream is for: names of ckvc_rng's third argument. */
enum { STAGE_DOCUMENTS = 101, STAGE_LENGTH = 102, STAGE_RETRIEVAL = 103, STAGE_ORDER = 104 };

typedef struct span {
    size_t start, cut,
        end; /* prompt [start, cut), continuation [cut, end) of the document's text */
    int64_t length;
} span;

typedef struct cursor { /* of one document */
    size_t at;
    uint32_t taken;
    bool exhausted;
} cursor;

typedef struct source_state {
    const char *name;
    uint32_t *order; /* document numbers, shuffled */
    size_t n, next;
} source_state;

typedef struct builder {
    const corpus *c;
    const build_options *o;
    built_manifest *out;
    cursor *cursors; /* [n_documents] */
    source_state *sources;
    size_t n_sources, turn;
    word_list words;
    ckvc_err *err;
} builder;

/* ---- lengths and cuts ---- */
static ckvc_status measure(const builder *b, const char *text, size_t n, bool special,
                           int64_t *length) {
    if (!b->o->tok) {
        *length = 0;
        for (size_t i = 0; i < n; i++) {
            *length += ((uint8_t)text[i] & 0xC0) != 0x80;
        }
        return CKVC_OK;
    }
    int32_t *ids;
    size_t n_ids;
    ckvc_status status = tokenizer_encode(b->o->tok, text, n, special, &ids, &n_ids, b->err);
    free(ids);
    *length = (int64_t)n_ids;
    return status;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t';
}

/* A cut stands before white space that follows a word, so that both sides are tokenised as the
 * whole would be. */
static bool is_cut(const char *text, size_t n, size_t at) {
    return at == n || (at > 0 && is_space(text[at]) && !is_space(text[at - 1]));
}

static size_t cut_before(const char *text, size_t n, size_t at) {
    while (at > 0 && !is_cut(text, n, at)) {
        at--;
    }
    return at;
}

static size_t cut_after(const char *text, size_t n, size_t at) {
    while (at < n && !is_cut(text, n, at)) {
        at++;
    }
    return at;
}

/* About where the first `length` tokens (characters) of the text end. */
static ckvc_status locate(const builder *b, const char *text, size_t n, bool special,
                          int64_t length, size_t *at) {
    *at = 0;
    if (!b->o->tok) {
        size_t i = 0;
        for (int64_t chars = 0; i < n && chars < length; chars++) {
            i += ckvc_utf8_step(text + i, n - i, NULL);
        }
        *at = i;
        return CKVC_OK;
    }
    int32_t *ids = NULL;
    size_t n_ids, bytes;
    char *head = NULL;
    ckvc_status status = tokenizer_encode(b->o->tok, text, n, special, &ids, &n_ids, b->err);
    if (status == CKVC_OK && (int64_t)n_ids <= length) {
        *at = n;
    } else if (status == CKVC_OK) {
        status = tokenizer_decode(b->o->tok, ids, (size_t)length, true, &head, &bytes, b->err);
        *at = status == CKVC_OK && bytes < n ? bytes : n;
    }
    free(ids);
    free(head);
    return status;
}

static size_t window(size_t n, int64_t length) {
    size_t wanted = (size_t)length * BYTES_PER_TOKEN + 64;
    return n < wanted ? n : wanted;
}

/* Longest beginning that ends at a cut and has at most `most` tokens; 0 when there is none. */
static ckvc_status longest(const builder *b, const char *text, size_t n, int64_t most, size_t *cut,
                           int64_t *length) {
    n = ckvc_utf8_floor(text, window(n, most));
    ckvc_status status = locate(b, text, n, true, most, cut);
    for (*cut = cut_before(text, n, *cut); status == CKVC_OK && *cut > 0;
         *cut = cut_before(text, n, *cut - 1)) {
        status = measure(b, text, *cut, true, length);
        if (status == CKVC_OK && *length <= most) { break; }
    }
    return status;
}

/* Shortest beginning that ends at a cut and has at least `least` tokens; 0 when the text is too
 * short. */
static ckvc_status shortest(const builder *b, const char *text, size_t n, int64_t least,
                            size_t *cut) {
    size_t seen = ckvc_utf8_floor(text, window(n, least));
    ckvc_status status = locate(b, text, seen, false, least, cut);
    for (size_t at = cut_after(text, n, *cut); status == CKVC_OK; at = cut_after(text, n, at + 1)) {
        int64_t length;
        status = measure(b, text, at, false, &length);
        *cut = status == CKVC_OK && length >= least ? at : 0;
        if (*cut || at >= n) { break; }
    }
    return status;
}

/* Prose is letters: tables, tables of contents, listings of numbers, addresses and rules are not.
 */
static bool is_prose(const char *text, size_t n) {
    size_t letters = 0, marks = 0, solid = 0, line = 0, lines = 0, numbered = 0;
    for (size_t i = 0; i < n; i++) {
        line = text[i] == '\n' ? 0 : line + 1;
        if (line == 1) {
            lines++;
            numbered += isdigit((unsigned char)text[i]) != 0;
        }
        if (line > 20000) { return false; }
        if (is_space(text[i])) { continue; }
        solid++;
        letters += isalpha((unsigned char)text[i]) != 0;
        marks += strchr("|_=#*+~<>{}\\", text[i]) != NULL;
    }
    return (double)letters >= 0.75 * (double)solid && (double)marks <= 0.06 * (double)solid &&
           4 * numbered <= lines;
}

/* ---- spans ---- */
static size_t next_paragraph(const char *text, size_t n, size_t at) {
    const char *stop = memmem(text + at, n - at, "\n\n", 2);
    if (!stop ||
        (size_t)(stop - (text + at)) > 2000) { /* one endless paragraph: go on at the next line */
        stop = memchr(text + at, '\n', n - at);
    }
    at = stop ? (size_t)(stop - text) : n;
    while (at < n && is_space(text[at])) {
        at++;
    }
    return at;
}

/* The document's next span of prose, drawn length and continuation; span.end 0 when nothing is
 * left. */
static ckvc_status next_span(builder *b, size_t document, span *s) {
    const corpus_document *d = &b->c->documents[document];
    const build_options *o = b->o;
    cursor *cur = &b->cursors[document];
    *s = (span){0};
    ckvc_rng rng;
    ckvc_rng_init(&rng, o->seed, ckvc_rng_key(d->name) ^ ckvc_rng_key(d->source),
                  STAGE_LENGTH + (cur->taken << 8));
    int64_t wanted = o->min_length +
                     (int64_t)ckvc_rng_below(&rng, (uint64_t)(o->max_length - o->min_length) + 1);
    while (cur->at < d->size) {
        const char *text = d->text + cur->at;
        size_t n = d->size - cur->at, cut = 0, tail = 0;
        int64_t length = 0;
        ckvc_status status = longest(b, text, n, wanted, &cut, &length);
        while (status == CKVC_OK && cut > 0 && length < o->min_length &&
               cut < n) { /* the cut lies a word or two below */
            cut = cut_after(text, n, cut + 1);
            status = measure(b, text, cut, true, &length);
        }
        if (status == CKVC_OK && (cut == 0 || length < o->min_length || length > o->max_length)) {
            break;
        }
        if (status == CKVC_OK) {
            status = shortest(b, text + cut, n - cut, o->continuation, &tail);
        }
        if (status != CKVC_OK) { return status; }
        if (o->continuation > 0 && tail == 0) { break; }
        if (is_prose(text, cut + tail)) {
            *s = (span){cur->at, cur->at + cut, cur->at + cut + tail, length};
            cur->at = next_paragraph(d->text, d->size, s->end);
            cur->taken++;
            return CKVC_OK;
        }
        b->out->n_junk++;
        cur->at = next_paragraph(d->text, d->size, cur->at);
    }
    cur->exhausted = true;
    return CKVC_OK;
}

/* The next span of the next source that has one. *document is SIZE_MAX when all are exhausted. */
static ckvc_status take_span(builder *b, size_t *document, span *s) {
    *document = SIZE_MAX;
    for (size_t tried = 0; tried < b->n_sources; tried++) {
        source_state *source = &b->sources[b->turn++ % b->n_sources];
        for (size_t k = 0; k < source->n; k++) {
            size_t d = source->order[source->next++ % source->n];
            if (b->cursors[d].exhausted) { continue; }
            ckvc_status status = next_span(b, d, s);
            if (status != CKVC_OK) { return status; }
            if (s->end) {
                *document = d;
                return CKVC_OK;
            }
        }
    }
    return CKVC_OK;
}

/* ---- entries ---- */
static const char *split_of(const build_options *o, const corpus_document *d) {
    ckvc_sha256 sha;
    uint8_t digest[CKVC_SHA256_BYTES];
    char seed[24];
    snprintf(seed, sizeof seed, "%llu\n", (unsigned long long)o->seed);
    ckvc_sha256_init(&sha);
    ckvc_sha256_update(&sha, seed, strlen(seed));
    ckvc_sha256_update(&sha, d->source, strlen(d->source));
    ckvc_sha256_update(&sha, "\n", 1);
    ckvc_sha256_update(&sha, d->name, strlen(d->name));
    ckvc_sha256_final(&sha, digest);
    double place = 0.0;
    for (int i = 7; i >= 0; i--) {
        place = (place + digest[i]) / 256.0;
    }
    double upto = 0.0;
    for (int i = 0; i < o->n_splits; i++) {
        upto += o->splits[i].share;
        if (place < upto) { return o->splits[i].name; }
    }
    return o->split_rest;
}

/* False in *added when the same prompt is there already. Takes over nothing. */
static ckvc_status add_entry(builder *b, const char *source, const char *split, const char *text,
                             size_t n, const char *tail, size_t n_tail, int64_t length,
                             bool *added) {
    built_manifest *m = b->out;
    char hex[CKVC_SHA256_HEX];
    ckvc_sha256_hex(text, n, hex);
    hex[12] = '\0';
    char *id = ckvc_format("%s-%s", source, hex);
    *added = false;
    for (size_t i = 0; i < m->n_entries; i++) {
        if (strcmp(strrchr(m->entries[i].id, '-'), strrchr(id, '-')) == 0) {
            free(id);
            return CKVC_OK;
        }
    }
    void *entries = m->entries;
    ckvc_status status =
        ckvc_grow(&entries, &m->capacity, m->n_entries + 1, sizeof *m->entries, b->err);
    m->entries = entries;
    if (status != CKVC_OK) {
        free(id);
        return status;
    }
    manifest_entry *e = &m->entries[m->n_entries++];
    *e = (manifest_entry){
        .id = id, .source = ckvc_strdup(source), .split = split ? ckvc_strdup(split) : NULL};
    e->text = ckvc_alloc(n + 1, 1);
    e->has_continuation = n_tail > 0;
    e->continuation = n_tail ? ckvc_alloc(n_tail + 1, 1) : NULL;
    if (!e->source || !e->text || (split && !e->split) || (n_tail && !e->continuation)) {
        return ckvc_fail_memory(b->err, "prompt", n + n_tail);
    }
    memcpy(e->text, text, n);
    e->text[n] = '\0';
    e->text_size = n;
    if (n_tail) {
        memcpy(e->continuation, tail, n_tail);
        e->continuation[n_tail] = '\0';
        e->continuation_size = n_tail;
    }
    m->shortest = m->n_entries == 1 || length < m->shortest ? length : m->shortest;
    m->longest = length > m->longest ? length : m->longest;
    *added = true;
    return CKVC_OK;
}

static ckvc_status too_little_text(builder *b) {
    return ckvc_fail(b->err, CKVC_E_DATA,
                     "text for only %zu of %lld prompts (%zu documents; %zu spans were no prose); "
                     "give more text, fewer --prompts or "
                     "shorter ones",
                     b->out->n_entries, (long long)b->o->prompts, b->c->n_documents,
                     b->out->n_junk);
}

static ckvc_status add_text_prompt(builder *b) {
    bool added = false;
    while (!added) {
        size_t document;
        span s;
        ckvc_status status = take_span(b, &document, &s);
        if (status != CKVC_OK) { return status; }
        if (document == SIZE_MAX) { return too_little_text(b); }
        const corpus_document *d = &b->c->documents[document];
        status = add_entry(b, d->source, split_of(b->o, d), d->text + s.start, s.cut - s.start,
                           d->text + s.cut, s.end - s.cut, s.length, &added);
        if (status != CKVC_OK) { return status; }
    }
    return CKVC_OK;
}

/* Questions until the continuation is long enough, or every fact has been asked for. */
static ckvc_status enough_answers(const builder *b, const retrieval_plan *plan, ckvc_buffer *out,
                                  int64_t *length) {
    for (int asked = 1; asked <= plan->n_facts; asked++) {
        out->size = 0;
        retrieval_answers(plan, asked, out);
        if (out->failed) { return ckvc_fail_memory(b->err, "retrieval prompt", out->size); }
        ckvc_status status = measure(b, (const char *)out->data, out->size, false, length);
        if (status != CKVC_OK || *length >= b->o->continuation) { return status; }
    }
    return CKVC_OK;
}

/* As much filler as brings the prompt to at most the wanted length; *length 0 when even none is too
 * long. */
static ckvc_status fit_filler(const builder *b, const retrieval_plan *plan, const char *filler,
                              size_t n, int64_t wanted, ckvc_buffer *out, int64_t *length) {
    size_t low = 0, high = n; /* bytes: low fits, above high does not */
    *length = 0;
    for (size_t at = 0; low <= high;) {
        int64_t measured;
        out->size = 0;
        retrieval_prompt(plan, filler, at, out);
        if (out->failed) { return ckvc_fail_memory(b->err, "retrieval prompt", out->size); }
        ckvc_status status = measure(b, (const char *)out->data, out->size, true, &measured);
        if (status != CKVC_OK) { return status; }
        if (measured <= wanted) {
            low = at;
            *length = measured;
        } else if (at == 0) {
            *length = 0;
            return CKVC_OK;
        } else {
            high = at - 1;
        }
        size_t middle = cut_before(filler, n, low + (high - low + 1) / 2);
        middle = middle > low ? middle : cut_after(filler, n, low + 1);
        if (low == high || middle > high || middle <= low) { break; }
        at = middle;
    }
    out->size = 0;
    retrieval_prompt(plan, filler, low, out);
    return out->failed ? ckvc_fail_memory(b->err, "retrieval prompt", out->size) : CKVC_OK;
}

static ckvc_status add_retrieval_prompt(builder *b, uint32_t number) {
    const build_options *o = b->o;
    ckvc_buffer prompt = {0}, answers = {0};
    bool added = false;
    ckvc_status status = CKVC_OK;
    while (!added && status == CKVC_OK) {
        size_t document;
        span s;
        status = take_span(b, &document, &s);
        if (status != CKVC_OK) { break; }
        if (document == SIZE_MAX) {
            status = too_little_text(b);
            break;
        }
        const corpus_document *d = &b->c->documents[document];
        ckvc_rng rng;
        ckvc_rng_init(&rng, o->seed, ckvc_rng_key(d->name) ^ number, STAGE_RETRIEVAL);
        retrieval_plan plan;
        int64_t tail = 0, length = 0;
        /* 4, 8 or 12 facts; more while the questions about them are too short for the continuation,
         * fewer while stating them takes over half of the prompt: the filler is what they have to
         * be found in. */
        int n_facts = 4 + 4 * (int)ckvc_rng_below(&rng, 3), most = RETRIEVAL_MAX_FACTS;
        for (const ckvc_rng plan_rng = rng; status == CKVC_OK;) {
            rng = plan_rng;
            retrieval_draw(&plan, &rng, &b->words, n_facts);
            status = enough_answers(b, &plan, &answers, &tail);
            if (status == CKVC_OK) {
                prompt.size = 0;
                retrieval_prompt(&plan, "", 0, &prompt);
                status = prompt.failed
                             ? ckvc_fail_memory(b->err, "retrieval prompt", 0)
                             : measure(b, (const char *)prompt.data, prompt.size, true, &length);
            }
            if (2 * length > s.length && n_facts > 1) {
                most = --n_facts;
            } else if (tail < o->continuation && n_facts < most) {
                n_facts++;
            } else {
                break;
            }
        }
        if (status == CKVC_OK) {
            status = fit_filler(b, &plan, d->text + s.start, s.end - s.start, s.length, &prompt,
                                &length);
        }
        if (status == CKVC_OK && length >= o->min_length) {
            status =
                add_entry(b, o->retrieval_source, split_of(o, d), (const char *)prompt.data,
                          prompt.size, (const char *)answers.data, answers.size, length, &added);
        }
    }
    b->out->n_retrieval += added;
    ckvc_buffer_fini(&prompt);
    ckvc_buffer_fini(&answers);
    return status;
}

/* ---- the whole ---- */
static ckvc_status order_documents(builder *b) {
    const corpus *c = b->c;
    b->cursors = ckvc_calloc(c->n_documents, sizeof *b->cursors);
    b->sources = ckvc_calloc(c->n_documents, sizeof *b->sources);
    for (size_t i = 0; i < c->n_documents; i++) {
        size_t k = 0;
        while (k < b->n_sources && strcmp(b->sources[k].name, c->documents[i].source) != 0) {
            k++;
        }
        source_state *source = &b->sources[k];
        if (k == b->n_sources) {
            b->n_sources++;
            source->name = c->documents[i].source;
            source->order = ckvc_alloc(c->n_documents, sizeof *source->order);
        }
        source->order[source->n++] = (uint32_t)i;
    }
    for (size_t k = 0; k < b->n_sources; k++) {
        ckvc_rng rng;
        ckvc_rng_init(&rng, b->o->seed, ckvc_rng_key(b->sources[k].name), STAGE_DOCUMENTS);
        ckvc_rng_shuffle_u32(&rng, b->sources[k].order, b->sources[k].n);
    }
    return CKVC_OK;
}

static ckvc_status collect_words(builder *b) {
    /* A bit of every document rather than the first ones whole. */
    enum { PART = 2000 };
    ckvc_status status = CKVC_OK;
    for (size_t k = 0; k < b->n_sources && status == CKVC_OK; k++) {
        for (size_t i = 0;
             i < b->sources[k].n && status == CKVC_OK && b->words.n < RETRIEVAL_MAX_WORDS; i++) {
            const corpus_document *d = &b->c->documents[b->sources[k].order[i]];
            status = word_list_add(&b->words, d->text, d->size < PART ? d->size : PART, b->err);
        }
    }
    if (status == CKVC_OK && b->words.n < RETRIEVAL_MIN_WORDS) {
        status = ckvc_fail(
            b->err, CKVC_E_DATA,
            "the text has only %zu different words of 4 to 9 letters; retrieval prompts need %d",
            b->words.n, RETRIEVAL_MIN_WORDS);
    }
    return status;
}

static ckvc_status shuffle_entries(builder *b) {
    size_t n = b->out->n_entries;
    manifest_entry *shuffled = ckvc_alloc(n, sizeof *shuffled);
    uint32_t *order = ckvc_alloc(n, sizeof *order);
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i;
    }
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 0, STAGE_ORDER);
    ckvc_rng_shuffle_u32(&rng, order, n);
    for (size_t i = 0; i < n; i++) {
        shuffled[i] = b->out->entries[order[i]];
    }
    memcpy(b->out->entries, shuffled, n * sizeof *shuffled);
    free(shuffled);
    free(order);
    return CKVC_OK;
}

ckvc_status manifest_build(const corpus *c, const build_options *o, built_manifest *out,
                           ckvc_err *err) {
    assert(o->prompts >= 1 && o->min_length >= 1 && o->max_length >= o->min_length &&
           o->continuation >= 0);
    *out = (built_manifest){0};
    builder b = {.c = c, .o = o, .out = out, .err = err};
    int64_t n_retrieval = (int64_t)(o->retrieval * (double)o->prompts + 0.5);
    ckvc_status status = c->n_documents == 0 ? too_little_text(&b) : order_documents(&b);
    if (status == CKVC_OK && n_retrieval > 0) { status = collect_words(&b); }
    for (int64_t i = 0; i < o->prompts - n_retrieval && status == CKVC_OK; i++) {
        status = add_text_prompt(&b);
    }
    for (int64_t i = 0; i < n_retrieval && status == CKVC_OK; i++) {
        status = add_retrieval_prompt(&b, (uint32_t)i);
    }
    if (status == CKVC_OK) { status = shuffle_entries(&b); }
    for (size_t k = 0; k < b.n_sources; k++) {
        free(b.sources[k].order);
    }
    free(b.sources);
    free(b.cursors);
    word_list_fini(&b.words);
    if (status != CKVC_OK) { built_manifest_fini(out); }
    return status;
}

ckvc_status built_manifest_write(const built_manifest *m, ckvc_buffer *out, ckvc_err *err) {
    for (size_t i = 0; i < m->n_entries; i++) {
        char *line = manifest_line(&m->entries[i]);
        if (!line) { return ckvc_fail_memory(err, "manifest line", m->entries[i].text_size); }
        ckvc_buffer_text(out, line);
        ckvc_buffer_text(out, "\n");
        free(line);
    }
    return out->failed ? ckvc_fail_memory(err, "manifest", out->size) : CKVC_OK;
}

void built_manifest_fini(built_manifest *m) {
    for (size_t i = 0; i < m->n_entries; i++) {
        free(m->entries[i].id);
        free(m->entries[i].source);
        free(m->entries[i].split);
        free(m->entries[i].text);
        free(m->entries[i].continuation);
    }
    free(m->entries);
    *m = (built_manifest){0};
}
