/* Prompts from manifest lines: see prompts.h. */
#include "calib/prompt/prompts.h"

#include "lib/stats/rank.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/base/hash.h"

uint64_t prompt_hash(const char *what, uint64_t seed, const char *id) {
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64 "\n", seed);
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, what, strlen(what));
    ckvc_sha256_update(&s, number, strlen(number));
    ckvc_sha256_update(&s, id, strlen(id));
    ckvc_sha256_final(&s, digest);
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) { first = first << 8 | digest[i]; }
    return first;
}

static bool of_split(const manifest_entry *e, const char *split) {
    return e->split && strcmp(e->split, split) == 0;
}

/* A manifest may hold prompts out by itself. These are treated like those that --holdout draws. */
bool prompt_held_out(const manifest_entry *e, uint64_t seed, double holdout) {
    return (holdout > 0 && (double)prompt_hash("", seed, e->id) * 0x1p-64 < holdout) ||
           of_split(e, "heldout") || of_split(e, "select");
}

static bool held_out(const manifest_entry *e, const prompt_options *o) {
    return prompt_held_out(e, o->seed, o->holdout);
}

static bool chooses(const manifest_entry *e, const prompt_options *o) {
    return of_split(e, "select") ||
           (held_out(e, o) &&
            (double)prompt_hash("select\n", o->seed, e->id) * 0x1p-64 < o->select);
}

/* Returns the options, without a share to draw where the manifest itself names the prompts that
 * choose. */
static prompt_options divided_by(const manifest *m, const prompt_options *o) {
    prompt_options out = *o;
    for (size_t i = 0; i < m->n_entries; i++) {
        if (of_split(&m->entries[i], "select")) { out.select = 0; }
    }
    return out;
}

void prompts_divide(prompt_list *list, const manifest *m, const prompt_options *o) {
    const prompt_options own = divided_by(m, o);
    for (size_t i = 0; i < list->n; i++) {
        list->items[i].select = chooses(list->items[i].entry, &own);
    }
}

/* Returns whether the entry is of a split that is wanted. A prompt that is held out counts as
 * "heldout" or "select", however it came to be held out. */
static bool wanted_split(const manifest_entry *e, const prompt_options *o) {
    for (size_t i = 0; i < o->n_splits; i++) {
        const char *split = o->splits[i];
        if (strcmp(split, "heldout") == 0  ? held_out(e, o) && !chooses(e, o)
            : strcmp(split, "select") == 0 ? chooses(e, o)
                                           : of_split(e, split)) {
            return true;
        }
    }
    return o->n_splits == 0;
}

/* ---- ids ---- */

/* A line of a manifest, and what turns it into ids. */
typedef struct source {
    const manifest *m;
    const manifest_entry *e;
    const tokenizer *tok; /* or NULL */
} source;

typedef struct ids {
    int32_t *items;
    size_t n;
} ids;

static void ids_fini(ids *list) { free(list->items); }

/* Fails with "FILE:LINE: prompt "ID"" and the text behind it. */
static ckvc_status CKVC_PRINTF(4, 5)
    refuse(const source *s, ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    char text[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ckvc_fail(err, status, "%s:%u: prompt \"%s\"%s", s->m->path, s->e->line, s->e->id, text);
}

static ckvc_status encode_text(const source *s, const char *text, size_t size, bool bos, ids *out,
                               ckvc_err *err) {
    if (!s->tok) {
        return refuse(s, err, CKVC_E_DATA,
                      " is text, but the model has no tokenizer; add its tokenizer.json or give "
                      "\"tokens\"");
    }
    ckvc_err inner = {0};
    const ckvc_status st = tokenizer_encode(s->tok, text, size, bos, &out->items, &out->n, &inner);
    return st == CKVC_OK ? st : refuse(s, err, st, ": %s", inner.text);
}

/* Tokenises the messages of a line: the prompt and, with after_first, what stands behind its first
 * user turn. The text of a rendered conversation contains its BOS, so the tokenizer adds none. */
static ckvc_status encode_messages(const source *s, const prompt_options *o, ids *out, ids *later,
                                   ckvc_err *err) {
    const manifest_entry *e = s->e;
    const size_t n = o->after_first ? manifest_first_turn(e) : e->n_messages;
    CKVC_AUTO_FREE char *text = NULL;
    CKVC_AUTO_FREE char *whole = NULL;
    size_t size, all;
    ckvc_err inner = {0};
    const ckvc_status st = chat_render(&o->chat, e->messages, n, &text, &size, &inner);
    if (st != CKVC_OK) { return refuse(s, err, st, ": %s", inner.text); }
    CKVC_TRY(encode_text(s, text, size, false, out, err));
    if (n == e->n_messages) { return CKVC_OK; }
    if (chat_render(&o->chat, e->messages, e->n_messages, &whole, &all, &inner) != CKVC_OK ||
        all < size || memcmp(text, whole, size) != 0) {
        return refuse(s, err, CKVC_E_DATA,
                      ": the chat template writes the first turn differently when more turns "
                      "follow, so --compress-after first cannot cut behind it%s%s",
                      *inner.text ? ": " : "", inner.text);
    }
    return encode_text(s, whole + size, all - size, false, later, err);
}

static ckvc_status ids_of(const source *s, const prompt_options *o, ids *out, ids *later,
                          ckvc_err *err) {
    const manifest_entry *e = s->e;
    if (e->tokens) {
        *out = (ids){ckvc_copy(e->tokens, e->n_tokens, sizeof *e->tokens), e->n_tokens};
        return CKVC_OK;
    }
    return e->n_messages ? encode_messages(s, o, out, later, err)
                         : encode_text(s, e->text, e->text_size, true, out, err);
}

/* Tokenises the line's own continuation; out->n is 0 where it has none. */
static ckvc_status continuation_of(const source *s, ids *out, ckvc_err *err) {
    const manifest_entry *e = s->e;
    if (!e->continuation_tokens) {
        return e->continuation
                   ? encode_text(s, e->continuation, e->continuation_size, false, out, err)
                   : CKVC_OK;
    }
    *out = (ids){ckvc_copy(e->continuation_tokens, e->n_continuation_tokens, sizeof *out->items),
                 e->n_continuation_tokens};
    return CKVC_OK;
}

/* ---- prompts ---- */

static ckvc_status check_vocabulary(const source *s, const char *what, const int32_t *items,
                                    size_t n, int32_t vocab, ckvc_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (items[i] < 0 || items[i] >= vocab) {
            return refuse(s, err, CKVC_E_DATA,
                          ": %s %zu is %d, the model's vocabulary has ids 0 to %d", what, i,
                          items[i], vocab - 1);
        }
    }
    return CKVC_OK;
}

/* Writes the ids of a prompt: `kept` of its T tokens by the LongBench convention (the first and the
 * last half stay, and the middle goes), then later turns, and then the continuation. */
static void fill_prompt(prompt *p, const ids *all, size_t T, size_t kept, const ids *later,
                        const int32_t *continuation, size_t C) {
    const size_t head = (kept + 1) / 2, tail = kept - head, n = kept + later->n;
    p->tokens = ckvc_alloc(n + C, sizeof *p->tokens);
    memcpy(p->tokens, all->items, head * sizeof *p->tokens);
    memcpy(p->tokens + head, all->items + T - tail, tail * sizeof *p->tokens);
    if (later->n) { memcpy(p->tokens + kept, later->items, later->n * sizeof *p->tokens); }
    if (C) { memcpy(p->tokens + n, continuation, C * sizeof *p->tokens); }
    p->n_tokens = (uint32_t)kept;
    p->n_later = (uint32_t)later->n;
    p->n_continuation = (uint32_t)(later->n + C);
    p->cut = kept < T;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    ckvc_buffer_u32(&b, p->n_tokens);
    ckvc_buffer_u32(&b, p->n_continuation);
    if (p->n_later) { ckvc_buffer_u32(&b, p->n_later); }
    for (size_t i = 0; i < n + C; i++) { ckvc_buffer_u32(&b, (uint32_t)p->tokens[i]); }
    p->token_hash = ckvc_xxh64(b.data, b.size);
}

/* Fills p from one line. p->tokens stays NULL when T < W + 1 and such prompts are to be dropped. */
static ckvc_status build_one(const source *s, const model_shape *shape, const prompt_options *o,
                             prompt *p, ckvc_err *err) {
    CKVC_AUTO(ids_fini) ids all = {0};
    CKVC_AUTO(ids_fini) ids later = {0};
    CKVC_AUTO(ids_fini) ids next = {0};
    CKVC_TRY(ids_of(s, o, &all, &later, err));
    CKVC_TRY(continuation_of(s, &next, err));
    const bool own = later.n || s->e->continuation || s->e->continuation_tokens;
    const size_t wanted = (size_t)o->continuation, context = (size_t)model_shape_context(shape);
    const size_t C = own && next.n < wanted ? next.n : wanted;
    const size_t T = own ? all.n : all.n > C ? all.n - C : 0;
    const int32_t *continuation = own ? next.items : all.items + T;
    if (C == 0 && wanted > 0) {
        return refuse(s, err, CKVC_E_DATA,
                      later.n ? " has a later turn and no continuation to be scored; give it one"
                              : ": the continuation is empty; leave it out or give at least one "
                                "token");
    }
    if (T < (size_t)o->window + 1) {
        return o->skip_short
                   ? CKVC_OK
                   : refuse(s, err, CKVC_E_DATA,
                            " has %zu tokens%s, need at least %" PRId64 " (window %" PRId64
                            " + 1%s); use --skip-short to drop such prompts",
                            all.n, own ? " before its continuation" : "",
                            o->window + 1 + (own ? 0 : o->continuation), o->window,
                            own || wanted == 0 ? "" : " + continuation");
    }
    const size_t limit = o->max_tokens > 0 ? (size_t)o->max_tokens : context - wanted;
    if (later.n + (size_t)o->window >= limit) {
        return refuse(s, err, CKVC_E_DATA,
                      " has %zu tokens behind its first turn: %zu that it may have in all leave no "
                      "room for that turn and its window",
                      later.n, limit);
    }
    const size_t most = limit - later.n, kept = T < most ? T : most;
    if (kept + later.n + C > context) {
        return refuse(s, err, CKVC_E_DATA,
                      " has %zu + %zu tokens (prompt + continuation), the model's context is %zu; "
                      "use --max-tokens %zu",
                      kept + later.n, C, context, context - C);
    }
    CKVC_TRY(check_vocabulary(s, "token", all.items, all.n, shape->vocab, err));
    CKVC_TRY(check_vocabulary(s, "later token", later.items, later.n, shape->vocab, err));
    CKVC_TRY(check_vocabulary(s, "continuation token", continuation, C, shape->vocab, err));
    fill_prompt(p, &all, T, kept, &later, continuation, C);
    p->entry = s->e;
    p->heldout = held_out(s->e, o);
    p->select = chooses(s->e, o);
    return CKVC_OK;
}

void prompts_add(prompt_list *list) {
    const prompt *p = &list->items[list->n++];
    list->n_cut += p->cut;
    list->n_heldout += p->heldout;
    list->max_tokens = p->n_tokens > list->max_tokens ? p->n_tokens : list->max_tokens;
    list->max_continuation =
        p->n_continuation > list->max_continuation ? p->n_continuation : list->max_continuation;
}

/* Leaves a document's name with the prompts that share it. A document with a single prompt is not
 * named, because that prompt stands for itself. */
static void share_documents(prompt_list *list) {
    CKVC_AUTO_FREE const char **names = ckvc_alloc(list->n, sizeof *names);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(list->n, sizeof *cluster);
    for (size_t i = 0; i < list->n; i++) { names[i] = list->items[i].entry->document; }
    rank_clusters(names, list->n, cluster);
    for (size_t i = 0; i < list->n; i++) {
        if (cluster[i] == i) { continue; }
        list->items[i].document = list->items[cluster[i]].document = names[i];
    }
}

ckvc_status prompts_build(const manifest *m, const tokenizer *tok, const model_shape *shape,
                          const prompt_options *options, prompt_list **out, ckvc_err *err) {
    const prompt_options own = divided_by(m, options), *o = &own;
    *out = NULL;
    CKVC_FAIL_IF(o->max_tokens > 0 && o->max_tokens < o->window + 1, err, CKVC_E_USAGE,
                 "--max-tokens %" PRId64 " is less than the window %" PRId64 " + 1", o->max_tokens,
                 o->window);
    CKVC_FAIL_IF(o->window + 1 + o->continuation > model_shape_context(shape), err, CKVC_E_USAGE,
                 "--window %" PRId64 " and --continuation %" PRId64
                 " do not fit the model's context of %" PRId64,
                 o->window, o->continuation, model_shape_context(shape));
    CKVC_AUTO(prompts_free_at) prompt_list *list = ckvc_calloc(1, sizeof *list);
    list->items = ckvc_calloc(m->n_entries, sizeof *list->items);
    for (size_t i = 0; i < m->n_entries && (o->limit == 0 || list->n < (size_t)o->limit); i++) {
        const source s = {m, &m->entries[i], tok};
        prompt *p = &list->items[list->n];
        if (!wanted_split(s.e, o)) { continue; }
        CKVC_TRY(build_one(&s, shape, o, p, err));
        if (p->tokens) {
            prompts_add(list);
        } else {
            list->n_short++;
        }
    }
    CKVC_FAIL_IF(list->n == 0, err, CKVC_E_DATA, "%s: no prompt is left of %zu (%zu too short%s)",
                 m->path, m->n_entries, list->n_short,
                 o->n_splits ? ", the rest in other splits; look at --split" : "");
    share_documents(list);
    *out = ckvc_take(&list);
    return CKVC_OK;
}

void prompts_free(prompt_list *list) {
    for (size_t i = 0; list && i < list->n; i++) { free(list->items[i].tokens); }
    if (list) { free(list->items); }
    free(list);
}
