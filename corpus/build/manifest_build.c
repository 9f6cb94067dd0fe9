/* Makes prompts of documents: see manifest_build.h. The sources take turns, and so do the shuffled
 * documents of a source. So no document gives a second prompt before all have given a first one. */
#include "corpus/build/manifest_build.h"

#include <assert.h>
#include <math.h>

#include "corpus/build/documents.h"
#include "corpus/build/retrieval.h"
#include "corpus/texts.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"
#include "lib/base/utf8.h"

enum {
    /* So many bytes of text are looked at for each token that is wanted, which is several times
     * what text needs. */
    BYTES_PER_TOKEN = 12,
    /* A paragraph of more bytes is not always passed whole: the next prompt may begin in it. */
    LONG_PARAGRAPH = 2000
};

/* What a random stream is for: names of ckvc_rng's third argument. */
enum { STAGE_DOCUMENTS = 101, STAGE_LENGTH = 102, STAGE_RETRIEVAL = 103, STAGE_ORDER = 104 };

typedef struct span {
    const corpus_document *document; /* NULL: none is left */
    /* prompt [start, cut), continuation [cut, end) of the document's text */
    size_t start, cut, end;
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
    build_options *o; /* a copy, in which the lengths change in turn */
    built_manifest *out;
    cursor *cursors; /* [n_documents] */
    double *places;  /* [n_documents] from 0 to 1, by which splits are given */
    source_state *sources;
    size_t n_sources, turn;
    vocabulary words;
    hash_set prompts;                         /* that are there */
    int64_t n_prompts;                        /* how many are wanted */
    int64_t n_in_split[BUILD_MAX_SPLITS + 1]; /* the rest last */
    bool ran_out;                             /* of text */
    ckvc_err *err;
} builder;

static void builder_fini(builder *b) {
    for (size_t k = 0; k < b->n_sources; k++) { free(b->sources[k].order); }
    CKVC_FREE(b->sources, b->cursors, b->places);
    vocabulary_fini(&b->words);
    free(b->prompts.slots);
}

/* ---- lengths ---- */

static ckvc_status measure_length(const builder *b, const char *text, size_t n, bool special,
                                  int64_t *length) {
    return text_length(b->o->tok, text, n, special, length, b->err);
}

/* Finds about where the first `length` tokens of the text end, or characters where there is no
 * tokenizer. */
static ckvc_status locate(const builder *b, const char *text, size_t n, bool special,
                          int64_t length, size_t *at) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    CKVC_AUTO_FREE char *head = NULL;
    size_t n_ids;
    *at = 0;
    if (!b->o->tok) {
        for (int64_t chars = 0; *at < n && chars < length; chars++) {
            *at += ckvc_utf8_step(text + *at, n - *at, NULL);
        }
        return CKVC_OK;
    }
    CKVC_TRY(tokenizer_encode(b->o->tok, text, n, special, &ids, &n_ids, b->err));
    *at = n;
    if ((int64_t)n_ids <= length) { return CKVC_OK; }
    CKVC_TRY(tokenizer_decode(b->o->tok, ids, (size_t)length, true, &head, at, b->err));
    *at = *at < n ? *at : n;
    return CKVC_OK;
}

static size_t search_window(size_t n, int64_t length) {
    size_t wanted = (size_t)length * BYTES_PER_TOKEN + 64;
    return n < wanted ? n : wanted;
}

/* Finds the longest beginning of the text that ends at a cut and has at most `most` tokens. *cut is
 * its size, 0 when there is none, and *length its tokens. */
static ckvc_status longest_beginning(const builder *b, const char *text, size_t n, int64_t most,
                                     size_t *cut, int64_t *length) {
    n = ckvc_utf8_floor(text, search_window(n, most));
    CKVC_TRY(locate(b, text, n, true, most, cut));
    for (*cut = cut_before(text, n, *cut); *cut > 0; *cut = cut_before(text, n, *cut - 1)) {
        CKVC_TRY(measure_length(b, text, *cut, true, length));
        if (*length <= most) { break; }
    }
    return CKVC_OK;
}

/* Finds the shortest beginning of the text that ends at a cut and has at least `least` tokens. *cut
 * is its size, 0 when the text is too short. */
static ckvc_status shortest(const builder *b, const char *text, size_t n, int64_t least,
                            size_t *cut) {
    size_t at;
    *cut = 0;
    CKVC_TRY(locate(b, text, ckvc_utf8_floor(text, search_window(n, least)), false, least, &at));
    for (at = cut_after(text, n, at);; at = cut_after(text, n, at + 1)) {
        int64_t length;
        CKVC_TRY(measure_length(b, text, at, false, &length));
        *cut = length >= least ? at : 0;
        if (*cut || at >= n) { return CKVC_OK; }
    }
}

/* ---- spans ---- */

static size_t next_paragraph(const char *text, size_t n, size_t at) {
    at += cut_paragraph(text + at, n - at, LONG_PARAGRAPH);
    while (at < n && cut_is_space(text[at])) { at++; }
    return at;
}

/* Cuts a prompt of about `wanted` tokens and its continuation, from s->start on. s->end stays 0
 * where the text does not give them. */
static ckvc_status cut_span(const builder *b, int64_t wanted, span *s) {
    const build_options *o = b->o;
    const char *text = s->document->text + s->start;
    const size_t n = s->document->size - s->start;
    size_t cut = 0, tail = 0;
    CKVC_TRY(longest_beginning(b, text, n, wanted, &cut, &s->length));
    while (cut > 0 && s->length < o->min_length && cut < n) { /* a word or two below */
        cut = cut_after_fine(text, n, cut + 1);
        CKVC_TRY(measure_length(b, text, cut, true, &s->length));
    }
    if (cut == 0 || s->length < o->min_length || s->length > o->max_length) { return CKVC_OK; }
    CKVC_TRY(shortest(b, text + cut, n - cut, o->continuation, &tail));
    if (o->continuation > 0 && tail == 0) { return CKVC_OK; }
    s->cut = s->start + cut;
    s->end = s->cut + tail;
    return CKVC_OK;
}

typedef struct piece {
    const char *text;
    size_t n;
} piece;

/* Returns what follows a prompt as the chat template writes it. */
static piece answer_of(const build_options *o, piece tail) {
    chat_answer(&o->chat, &tail.text, &tail.n);
    return tail;
}

/* Takes all of a conversation. *s is zeroed where it is not of a length that is wanted. */
static ckvc_status whole_conversation(builder *b, const corpus_document *d, span *s) {
    const build_options *o = b->o;
    const manifest_entry *e = &d->conversation;
    int64_t length, tail;
    ckvc_err why = {0};
    const ckvc_status st =
        o->tok ? messages_length(o->tok, &o->chat, e->messages, e->n_messages, &length, &why)
               : measure_length(b, d->text, e->text_size, false, &length);
    CKVC_FAIL_IF(st != CKVC_OK, b->err, st, "%s: %s", e->id, why.text);
    const piece answer = answer_of(o, (piece){e->continuation, e->continuation_size});
    CKVC_TRY(measure_length(b, answer.text, answer.n, false, &tail));
    const bool fits = length >= o->min_length && length <= o->max_length && tail >= o->continuation;
    b->out->n_other_lengths += !fits;
    *s = fits ? (span){d, 0, e->text_size, d->size, length} : (span){0};
    return CKVC_OK;
}

/* Takes the document's next span of prose, a prompt of a length that is drawn and its continuation.
 * *s is zeroed when the document has none left. */
static ckvc_status next_span(builder *b, size_t document, span *s) {
    const corpus_document *d = &b->c->documents[document];
    const build_options *o = b->o;
    cursor *cur = &b->cursors[document];
    if (d->conversation.id) {
        cur->exhausted = true;
        return whole_conversation(b, d, s);
    }
    ckvc_rng rng;
    ckvc_rng_init(&rng, o->seed, ckvc_rng_key(d->name) ^ ckvc_rng_key(d->source),
                  STAGE_LENGTH + (cur->taken << 8));
    const int64_t wanted = o->min_length + (int64_t)ckvc_rng_below(
                                               &rng, (uint64_t)(o->max_length - o->min_length) + 1);
    while (cur->at < d->size) {
        *s = (span){.document = d, .start = cur->at};
        CKVC_TRY(cut_span(b, wanted, s));
        if (s->end == 0) { break; }
        if (d->as_is || is_prose(d->text + s->start, s->end - s->start, d->ascii)) {
            cur->at = next_paragraph(d->text, d->size, s->end);
            cur->taken++;
            return CKVC_OK;
        }
        b->out->n_junk++;
        cur->at = next_paragraph(d->text, d->size, cur->at);
    }
    *s = (span){0};
    cur->exhausted = true;
    return CKVC_OK;
}

/* Takes the next span of the next source that has one. CKVC_E_DATA when no source has. */
static ckvc_status take_span(builder *b, span *s) {
    for (size_t tried = 0; tried < b->n_sources; tried++) {
        source_state *source = &b->sources[b->turn++ % b->n_sources];
        for (size_t k = 0; k < source->n; k++) {
            size_t d = source->order[source->next++ % source->n];
            if (b->cursors[d].exhausted) { continue; }
            CKVC_TRY(next_span(b, d, s));
            if (s->document) { return CKVC_OK; }
        }
    }
    b->ran_out = true;
    return ckvc_fail(b->err, CKVC_E_DATA,
                     "text for only %zu of %lld prompts (%zu documents; %zu spans were no prose, "
                     "which --keep all keeps, %zu conversations of other lengths, %zu repeated); "
                     "give more text, fewer --prompts or shorter ones",
                     b->out->n_entries, (long long)b->n_prompts, b->c->n_documents, b->out->n_junk,
                     b->out->n_other_lengths, b->out->n_repeated);
}

/* ---- entries ---- */

/* Returns the place of a document or prompt in the draw of splits, at least 0 and below 1. It
 * depends on the seed and the name alone, so that more text changes no document's split. */
static double draw_fraction(const build_options *o, const char *source, const char *name) {
    CKVC_AUTO_FREE char *named =
        ckvc_format("%llu\n%s\n%s", (unsigned long long)o->seed, source, name);
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_bytes(named, strlen(named), digest);
    double place = 0.0;
    for (int i = 7; i >= 0; i--) { place = (place + digest[i]) / 256.0; }
    return place;
}

/* Returns the number of a document's split; n_splits stands for the rest (--split-rest). */
static int split_of(const builder *b, const corpus_document *d) {
    const double place = b->places[d - b->c->documents];
    double upto = 0.0;
    for (int i = 0; i < b->o->n_splits; i++) {
        upto += b->o->splits[i].share;
        if (place < upto) { return i; }
    }
    return b->o->n_splits;
}

static void put_in_split(const build_options *o, manifest_entry *e, int split) {
    const char *name = split < o->n_splits ? o->splits[split].name : o->split_rest;
    free(e->split);
    e->split = name ? ckvc_strdup(name) : NULL;
}

static void copy_messages(const manifest_entry *from, manifest_entry *to) {
    to->n_messages = from->n_messages;
    to->messages = ckvc_copy(from->messages, from->n_messages, sizeof *to->messages);
    for (size_t i = 0; i < to->n_messages; i++) {
        chat_message *m = &to->messages[i];
        m->role = ckvc_strdup(m->role);
        m->content = ckvc_text_copy(m->content, m->content_size);
    }
}

/* Adds a prompt to the manifest. Returns false, and counts it, when the same prompt is there
 * already. */
static bool add_entry(builder *b, const char *source, const span *s, piece text, piece tail,
                      int64_t length) {
    built_manifest *m = b->out;
    const int split = split_of(b, s->document);
    CKVC_AUTO_FREE char *whole = ckvc_format("%s\n%s", s->document->source, s->document->full_name);
    char hex[CKVC_SHA256_HEX], document[CKVC_SHA256_HEX];
    ckvc_sha256_hex(text.text, text.n, hex);
    ckvc_sha256_hex(whole, strlen(whole), document);
    hex[12] = document[12] = '\0';
    if (!hash_set_add(&b->prompts, strtoull(hex, NULL, 16))) {
        m->n_repeated++;
        return false;
    }
    CKVC_GROW(m->entries, m->capacity, m->n_entries + 1);
    m->entries[m->n_entries++] =
        (manifest_entry){.id = ckvc_format("%s-%s", source, hex),
                         .source = ckvc_strdup(source),
                         .document = ckvc_format("%s-%s", s->document->source, document),
                         .text = ckvc_text_copy(text.text, text.n),
                         .text_size = text.n,
                         .continuation = tail.n ? ckvc_text_copy(tail.text, tail.n) : NULL,
                         .continuation_size = tail.n};
    copy_messages(&s->document->conversation, &m->entries[m->n_entries - 1]);
    put_in_split(b->o, &m->entries[m->n_entries - 1], split);
    b->n_in_split[split]++;
    m->shortest = m->n_entries == 1 || length < m->shortest ? length : m->shortest;
    m->longest = length > m->longest ? length : m->longest;
    return true;
}

/* Sets the lengths of the next prompt. */
static void take_length(builder *b) {
    build_options *o = b->o;
    if (o->n_lengths == 0) { return; }
    o->max_length = o->lengths[b->out->n_entries % o->n_lengths];
    o->min_length = (4 * o->max_length + 4) / 5;
}

static ckvc_status add_text_prompt(builder *b) {
    take_length(b);
    for (bool added = false; !added;) {
        span s;
        CKVC_TRY(take_span(b, &s));
        const char *text = s.document->text;
        added = add_entry(b, s.document->source, &s, (piece){text + s.start, s.cut - s.start},
                          answer_of(b->o, (piece){text + s.cut, s.end - s.cut}), s.length);
    }
    return CKVC_OK;
}

/* ---- retrieval prompts ---- */

/* Asks for one fact after the other until the answers are as long as a continuation must be, or
 * every fact has been asked for. */
static ckvc_status enough_answers(const builder *b, const retrieval_plan *plan, ckvc_buffer *out,
                                  int64_t *length) {
    for (int asked = 1; asked <= plan->n_facts; asked++) {
        retrieval_answers(plan, asked, out);
        CKVC_TRY(measure_length(b, (const char *)out->data, out->size, false, length));
        if (*length >= b->o->continuation) { break; }
    }
    return CKVC_OK;
}

/* Draws 4, 8 or 12 facts. It takes more of them while the answers are too short for a continuation.
 * It takes fewer while the facts fill over half of the prompt, because the filler is what they have
 * to be found in. */
static ckvc_status draw_facts(const builder *b, ckvc_rng rng, int64_t wanted, retrieval_plan *plan,
                              ckvc_buffer *answers) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer bare = {0};
    int n_facts = 4 + 4 * (int)ckvc_rng_below(&rng, 3), most = RETRIEVAL_MAX_FACTS;
    for (;;) {
        ckvc_rng again = rng;
        int64_t tail = 0, length;
        retrieval_draw(plan, &again, &b->words, n_facts);
        plan->unseen = b->o->unseen;
        CKVC_TRY(enough_answers(b, plan, answers, &tail));
        retrieval_prompt(plan, "", 0, &bare);
        CKVC_TRY(measure_length(b, (const char *)bare.data, bare.size, true, &length));
        if (2 * length > wanted && n_facts > 1) {
            most = --n_facts;
        } else if (tail < b->o->continuation && n_facts < most) {
            n_facts++;
        } else {
            return CKVC_OK;
        }
    }
}

/* Writes the prompt with as much filler as the wanted length leaves room for. *length is 0 when the
 * prompt is too long even without any. */
static ckvc_status fit_filler(const builder *b, const retrieval_plan *plan, piece filler,
                              int64_t wanted, ckvc_buffer *out, int64_t *length) {
    size_t low = 0, high = filler.n; /* bytes: low fits, above high does not */
    *length = 0;
    for (size_t at = 0; low <= high;) {
        int64_t measured;
        retrieval_prompt(plan, filler.text, at, out);
        CKVC_TRY(measure_length(b, (const char *)out->data, out->size, true, &measured));
        if (measured <= wanted) {
            low = at;
            *length = measured;
        } else if (at == 0) {
            return CKVC_OK;
        } else {
            high = at - 1;
        }
        size_t middle = cut_before(filler.text, filler.n, low + (high - low + 1) / 2);
        middle = middle > low ? middle : cut_after(filler.text, filler.n, low + 1);
        if (low == high || middle > high || middle <= low) { break; }
        at = middle;
    }
    retrieval_prompt(plan, filler.text, low, out);
    return CKVC_OK;
}

static ckvc_status add_retrieval_prompt(builder *b, uint32_t number) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer prompt = {0}, answers = {0};
    take_length(b);
    for (bool added = false; !added;) {
        span s;
        CKVC_TRY(take_span(b, &s));
        ckvc_rng rng;
        ckvc_rng_init(&rng, b->o->seed, ckvc_rng_key(s.document->name) ^ number, STAGE_RETRIEVAL);
        retrieval_plan plan;
        int64_t length;
        CKVC_TRY(draw_facts(b, rng, s.length, &plan, &answers));
        CKVC_TRY(fit_filler(b, &plan, (piece){s.document->text + s.start, s.end - s.start},
                            s.length, &prompt, &length));
        if (length < b->o->min_length) { continue; }
        added = add_entry(b, b->o->retrieval_source, &s,
                          (piece){(const char *)prompt.data, prompt.size},
                          (piece){(const char *)answers.data, answers.size}, length);
    }
    b->out->n_retrieval++;
    return CKVC_OK;
}

/* ---- the whole ---- */

static void place_documents(builder *b) {
    b->places = ckvc_alloc(b->c->n_documents, sizeof *b->places);
    for (size_t k = 0; k < b->n_sources; k++) {
        for (size_t i = 0; i < b->sources[k].n; i++) {
            const corpus_document *d = &b->c->documents[b->sources[k].order[i]];
            const double at = 0.5 + 0.6180339887498949 * (double)i + 0.4 * (double)k;
            b->places[d - b->c->documents] =
                b->o->even_splits ? at - floor(at) : draw_fraction(b->o, d->source, d->name);
        }
    }
}

static void order_documents(builder *b) {
    const corpus *c = b->c;
    b->cursors = ckvc_calloc(c->n_documents, sizeof *b->cursors);
    b->sources = ckvc_calloc(c->n_documents, sizeof *b->sources);
    for (size_t i = 0; i < c->n_documents; i++) {
        size_t k = 0;
        while (k < b->n_sources && strcmp(b->sources[k].name, c->documents[i].source) != 0) { k++; }
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
    place_documents(b);
}

/* Collects the words of which facts are made. It takes them from the beginnings of many documents,
 * not from the whole of a few. Words of any script are taken only where those in ASCII are too
 * few. */
static ckvc_status collect_words(builder *b) {
    enum { PART = 2000 };
    for (int any_script = 0; any_script < 2 && b->words.n < RETRIEVAL_MIN_WORDS; any_script++) {
        for (size_t k = 0; k < b->n_sources; k++) {
            for (size_t i = 0; i < b->sources[k].n && b->words.n < RETRIEVAL_MAX_WORDS; i++) {
                const corpus_document *d = &b->c->documents[b->sources[k].order[i]];
                vocabulary_add(&b->words, d->text, d->size < PART ? d->size : PART, any_script);
            }
        }
    }
    CKVC_FAIL_IF(b->words.n < RETRIEVAL_MIN_WORDS, b->err, CKVC_E_DATA,
                 "the text has only %zu different words for keys and values (of 4 to 9 lower-case "
                 "letters; of scripts without spaces the first two or four of a clause); retrieval "
                 "prompts need %d: give more text, or no --retrieval",
                 b->words.n, RETRIEVAL_MIN_WORDS);
    return CKVC_OK;
}

typedef struct placed {
    double place; /* first: they are ordered by it */
    manifest_entry *entry;
} placed;

/* Decides how many prompts each split gets where there are too few documents for a draw. A split
 * gets its share, rounded so that the sums of the first splits are right, too, and at least one
 * prompt. So does the rest, where it has a share. */
static ckvc_status few_counts(const builder *b, bool has_rest, int64_t *counts) {
    const build_options *o = b->o;
    int64_t left = b->n_prompts, waiting = has_rest; /* for their one */
    double upto = 0.0;
    for (int i = 0; i < o->n_splits; i++) { waiting += o->splits[i].share > 0.0; }
    CKVC_FAIL_IF(left < waiting, b->err, CKVC_E_DATA,
                 "%lld prompts are too few for %lld splits; give more text, shorter prompts or "
                 "fewer --split-share",
                 (long long)left, (long long)waiting);
    for (int i = 0; i < o->n_splits; i++) {
        const bool any = o->splits[i].share > 0.0;
        upto += o->splits[i].share;
        waiting -= any;
        const int64_t share = (int64_t)(upto * (double)b->n_prompts + 0.5) - b->n_prompts + left,
                      least = share > any ? share : any;
        counts[i] = !any ? 0 : least < left - waiting ? least : left - waiting;
        left -= counts[i];
    }
    counts[o->n_splits] = left;
    return CKVC_OK;
}

/* Deals out the prompts one by one where the draw of documents has left a split without any, as
 * happens with few documents. The prompts of one document may then stand in several splits. */
static ckvc_status deal_few(builder *b) {
    const build_options *o = b->o;
    int64_t counts[BUILD_MAX_SPLITS + 1];
    double share = 1.0;
    bool empty = false;
    for (int i = 0; i < o->n_splits; i++) {
        share -= o->splits[i].share;
        empty = empty || (o->splits[i].share > 0.0 && b->n_in_split[i] == 0);
    }
    const bool has_rest = share > 1e-9;
    if (!empty && (!has_rest || b->n_in_split[o->n_splits] > 0)) { return CKVC_OK; }
    CKVC_TRY(few_counts(b, has_rest, counts));
    built_manifest *m = b->out;
    CKVC_AUTO_FREE placed *order = ckvc_alloc(m->n_entries, sizeof *order);
    for (size_t i = 0; i < m->n_entries; i++) {
        manifest_entry *e = &m->entries[i];
        order[i] = (placed){draw_fraction(o, e->source, e->id), e};
    }
    qsort(order, m->n_entries, sizeof *order, ckvc_order_double);
    int split = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        while (counts[split] == 0) { split++; }
        counts[split]--;
        put_in_split(o, order[i].entry, split);
    }
    m->dealt = true;
    return CKVC_OK;
}

static void shuffle_entries(builder *b) {
    const size_t n = b->out->n_entries;
    CKVC_AUTO_FREE manifest_entry *before = ckvc_copy(b->out->entries, n, sizeof *before);
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(n, sizeof *order);
    for (size_t i = 0; i < n; i++) { order[i] = (uint32_t)i; }
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 0, STAGE_ORDER);
    ckvc_rng_shuffle_u32(&rng, order, n);
    for (size_t i = 0; i < n; i++) { b->out->entries[i] = before[order[i]]; }
}

static ckvc_status build(builder *b) {
    const int64_t n_retrieval = (int64_t)(b->o->retrieval * (double)b->n_prompts + 0.5);
    order_documents(b);
    if (n_retrieval > 0 && b->c->n_documents > 0) { CKVC_TRY(collect_words(b)); }
    for (int64_t i = 0; i < b->n_prompts - n_retrieval; i++) { CKVC_TRY(add_text_prompt(b)); }
    for (int64_t i = 0; i < n_retrieval; i++) { CKVC_TRY(add_retrieval_prompt(b, (uint32_t)i)); }
    CKVC_TRY(deal_few(b));
    shuffle_entries(b);
    return CKVC_OK;
}

ckvc_status manifest_build(const corpus *c, const build_options *o, built_manifest *out,
                           ckvc_err *err) {
    assert(o->prompts >= 0 && o->continuation >= 0 && o->n_lengths <= BUILD_MAX_LENGTHS &&
           (o->n_lengths || (o->min_length >= 1 && o->max_length >= o->min_length)));
    const int64_t most = o->most ? o->most : c->chat ? (int64_t)c->n_documents : BUILD_PROMPTS;
    for (int64_t n = o->prompts ? o->prompts : most;;) {
        ckvc_err failure = {0};
        build_options own = *o;
        CKVC_AUTO(builder_fini)
        builder b = {.c = c, .o = &own, .n_prompts = n, .out = out, .err = &failure};
        *out = (built_manifest){0};
        const ckvc_status status = build(&b);
        if (status == CKVC_OK) { return CKVC_OK; }
        n = (int64_t)out->n_entries;
        built_manifest_fini(out);
        if (o->prompts || !b.ran_out || n == 0) {
            return ckvc_fail(err, status, "%s", failure.text);
        }
    }
}

void built_manifest_write(const built_manifest *m, ckvc_buffer *out) {
    for (size_t i = 0; i < m->n_entries; i++) {
        CKVC_AUTO_FREE char *line = manifest_line(&m->entries[i]);
        ckvc_buffer_text(out, line);
        ckvc_buffer_text(out, "\n");
    }
}

void built_manifest_fini(built_manifest *m) {
    for (size_t i = 0; i < m->n_entries; i++) { manifest_entry_fini(&m->entries[i]); }
    free(m->entries);
    *m = (built_manifest){0};
}
