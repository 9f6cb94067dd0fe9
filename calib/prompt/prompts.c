/* Prompts from manifest lines: see prompts.h. */
#include "calib/prompt/prompts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buffer.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"

bool prompt_is_heldout(uint64_t seed, const char *id, double share) {
    if (share <= 0) { return false; }
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64 "\n", seed);
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, number, strlen(number));
    ckvc_sha256_update(&s, id, strlen(id));
    ckvc_sha256_final(&s, digest);
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) {
        first = first << 8 | digest[i];
    }
    return (double)first * 0x1p-64 < share;
}

/* A manifest may hold prompts out by itself; they are treated like those that --holdout draws. */
static bool held_out(const manifest_entry *e, const prompt_options *o) {
    return prompt_is_heldout(o->seed, e->id, o->holdout) ||
           (e->split && strcmp(e->split, "heldout") == 0);
}

/* By the manifest's split, or as "heldout" however it came to be held out. */
static bool wanted_split(const manifest_entry *e, const prompt_options *o) {
    for (size_t i = 0; i < o->n_splits; i++) {
        if ((e->split && strcmp(e->split, o->splits[i]) == 0) ||
            (strcmp(o->splits[i], "heldout") == 0 && held_out(e, o))) {
            return true;
        }
    }
    return o->n_splits == 0;
}

static ckvc_status copy_ids(const int32_t *given, size_t n_given, int32_t **ids, size_t *n,
                            ckvc_err *err) {
    *ids = ckvc_alloc(n_given, sizeof **ids);
    if (!*ids) { return ckvc_fail_memory(err, "a prompt's ids", n_given * sizeof **ids); }
    memcpy(*ids, given, n_given * sizeof **ids);
    *n = n_given;
    return CKVC_OK;
}

static ckvc_status encode(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                          const char *text, size_t size, bool bos, int32_t **ids, size_t *n,
                          ckvc_err *err) {
    if (!tok) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s:%u: prompt \"%s\" is text, but the model has no tokenizer; add its "
                         "tokenizer.json or give \"tokens\"",
                         m->path, e->line, e->id);
    }
    ckvc_err inner = {0};
    ckvc_status st = tokenizer_encode(tok, text, size, bos, ids, n, &inner);
    if (st != CKVC_OK) {
        return ckvc_fail(err, st, "%s:%u: prompt \"%s\": %s", m->path, e->line, e->id, inner.text);
    }
    return CKVC_OK;
}

/* A rendered conversation has its BOS in the text: the tokenizer adds none. */
static ckvc_status encode_messages(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                                   const chat_template *chat, int32_t **ids, size_t *n,
                                   ckvc_err *err) {
    chat_message *messages = ckvc_calloc(e->n_messages, sizeof *messages);
    for (size_t i = 0; i < e->n_messages; i++) {
        messages[i] = (chat_message){e->messages[i].role, e->messages[i].content,
                                     e->messages[i].content_size};
    }
    char *text;
    size_t size;
    ckvc_err inner = {0};
    ckvc_status st = chat_render(chat, messages, e->n_messages, &text, &size, &inner);
    free(messages);
    if (st != CKVC_OK) {
        return ckvc_fail(err, st, "%s:%u: prompt \"%s\": %s", m->path, e->line, e->id, inner.text);
    }
    st = encode(m, e, tok, text, size, false, ids, n, err);
    free(text);
    return st;
}

ckvc_status prompt_ids(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                       const chat_template *chat, int32_t **ids, size_t *n, ckvc_err *err) {
    if (e->has_tokens) { return copy_ids(e->tokens, e->n_tokens, ids, n, err); }
    if (e->n_messages) { return encode_messages(m, e, tok, chat, ids, n, err); }
    return encode(m, e, tok, e->text, e->text_size, true, ids, n, err);
}

/* Fills p from one line. *is_short is set, with p untouched, when T < W + 1. */
static ckvc_status build_one(const manifest *m, const manifest_entry *e, const tokenizer *tok,
                             const model_shape *shape, const prompt_options *o, prompt *p,
                             bool *is_short, ckvc_err *err) {
    int32_t *ids = NULL, *next = NULL;
    size_t n = 0, n_next = 0;
    ckvc_status st = prompt_ids(m, e, tok, &o->chat, &ids, &n, err);
    if (st == CKVC_OK && e->has_continuation_tokens) {
        st = copy_ids(e->continuation_tokens, e->n_continuation_tokens, &next, &n_next, err);
    } else if (st == CKVC_OK && e->has_continuation) {
        st = encode(m, e, tok, e->continuation, e->continuation_size, false, &next, &n_next, err);
    }
    if (st != CKVC_OK) { goto done; }
    size_t T = n, C = (size_t)o->continuation;
    const int32_t *continuation = next;
    if (e->has_continuation || e->has_continuation_tokens) {
        C = n_next < C ? n_next : C;
        if (C == 0 && o->continuation > 0) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s:%u: prompt \"%s\": the continuation is empty; leave it out or give "
                           "at least one token",
                           m->path, e->line, e->id);
            goto done;
        }
    } else {
        T = n > C ? n - C : 0;
        continuation = ids + T;
    }
    if (T < (size_t)o->window + 1) {
        *is_short = true;
        if (!o->skip_short) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s:%u: prompt \"%s\" has %zu tokens%s, need at least %" PRId64
                           " (window %" PRId64 " + 1%s); use --skip-short to drop such prompts",
                           m->path, e->line, e->id, n, next ? " before its continuation" : "",
                           o->window + 1 + (next ? 0 : o->continuation), o->window,
                           next ? "" : " + continuation");
        }
        goto done;
    }
    const int64_t context = model_shape_context(shape);
    size_t most = o->max_tokens > 0 ? (size_t)o->max_tokens : (size_t)(context - o->continuation);
    size_t kept = T < most ? T : most;
    if (kept + C > (size_t)context) {
        st = ckvc_fail(err, CKVC_E_DATA,
                       "%s:%u: prompt \"%s\" has %zu + %zu tokens (prompt + continuation), the "
                       "model's context is %" PRId64 "; use --max-tokens %" PRId64,
                       m->path, e->line, e->id, kept, C, context, context - (int64_t)C);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= shape->vocab) {
            st = ckvc_fail(
                err, CKVC_E_DATA,
                "%s:%u: prompt \"%s\": token %zu is %d, the model's vocabulary has ids 0 to %d",
                m->path, e->line, e->id, i, ids[i], shape->vocab - 1);
            goto done;
        }
    }
    for (size_t i = 0; i < C; i++) {
        if (continuation[i] < 0 || continuation[i] >= shape->vocab) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s:%u: prompt \"%s\": continuation token %zu is %d, the model's "
                           "vocabulary has ids 0 to %d",
                           m->path, e->line, e->id, i, continuation[i], shape->vocab - 1);
            goto done;
        }
    }
    p->tokens = ckvc_alloc(kept + C, sizeof *p->tokens);
    /* The LongBench convention: the first and the last half stay, the middle goes. */
    size_t head = (kept + 1) / 2, tail = kept - head;
    memcpy(p->tokens, ids, head * sizeof *ids);
    memcpy(p->tokens + head, ids + T - tail, tail * sizeof *ids);
    memcpy(p->tokens + kept, continuation, C * sizeof *ids);
    p->entry = e;
    p->n_tokens = (uint32_t)kept;
    p->n_continuation = (uint32_t)C;
    p->cut = kept < T;
    p->heldout = held_out(e, o);
    ckvc_buffer b = {0};
    ckvc_buffer_u32(&b, p->n_tokens);
    ckvc_buffer_u32(&b, p->n_continuation);
    for (size_t i = 0; i < kept + C; i++) {
        ckvc_buffer_u32(&b, (uint32_t)p->tokens[i]);
    }
    if (b.failed) {
        st = ckvc_fail_memory(err, "a prompt's ids", (kept + C) * 4);
    } else {
        p->token_hash = ckvc_xxh64(b.data, b.size);
    }
    ckvc_buffer_fini(&b);
done:
    free(ids);
    free(next);
    return st;
}

ckvc_status prompts_build(const manifest *m, const tokenizer *tok, const model_shape *shape,
                          const prompt_options *o, prompt_list **out, ckvc_err *err) {
    *out = NULL;
    prompt_list *list = ckvc_calloc(1, sizeof *list);
    if (list) { list->items = ckvc_calloc(m->n_entries, sizeof *list->items); }
    if (o->max_tokens > 0 && o->max_tokens < o->window + 1) {
        prompts_free(list);
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--max-tokens %" PRId64 " is less than the window %" PRId64 " + 1",
                         o->max_tokens, o->window);
    }
    if (o->window + 1 + o->continuation > model_shape_context(shape)) {
        prompts_free(list);
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--window %" PRId64 " and --continuation %" PRId64
                         " do not fit the model's context of %" PRId64,
                         o->window, o->continuation, model_shape_context(shape));
    }
    for (size_t i = 0; i < m->n_entries && (o->limit == 0 || list->n < (size_t)o->limit); i++) {
        const manifest_entry *e = &m->entries[i];
        if (!wanted_split(e, o)) { continue; }
        prompt *p = &list->items[list->n];
        bool is_short = false;
        ckvc_status st = build_one(m, e, tok, shape, o, p, &is_short, err);
        if (st != CKVC_OK) {
            free(p->tokens);
            p->tokens = NULL;
            prompts_free(list);
            return st;
        }
        if (is_short) {
            list->n_short++;
            continue;
        }
        list->n++;
        list->n_cut += p->cut;
        list->n_heldout += p->heldout;
        list->max_tokens = p->n_tokens > list->max_tokens ? p->n_tokens : list->max_tokens;
        list->max_continuation =
            p->n_continuation > list->max_continuation ? p->n_continuation : list->max_continuation;
    }
    if (list->n == 0) {
        ckvc_status st =
            ckvc_fail(err, CKVC_E_DATA, "%s: no prompt is left of %zu (%zu too short%s)", m->path,
                      m->n_entries, list->n_short,
                      o->n_splits ? ", the rest in other splits; look at --split" : "");
        prompts_free(list);
        return st;
    }
    *out = list;
    return CKVC_OK;
}

void prompts_free(prompt_list *list) {
    if (!list) { return; }
    for (size_t i = 0; list->items && i < list->n; i++) {
        free(list->items[i].tokens);
    }
    free(list->items);
    free(list);
}
