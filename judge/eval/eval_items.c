/* Items as token ids: see eval_items.h. */
#include "judge/eval/eval_items.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"

uint32_t eval_item_behind(const eval_item *e) {
    const uint32_t most = e->task->max_new > e->n_reference ? e->task->max_new : e->n_reference;
    return e->n_question + most;
}

/* ---- text ---- */

/* What the model reads, where the question begins in it, and how much of it may be compressed. */
typedef struct item_text {
    char *text;
    size_t size, question_at, compress_at;
    bool special; /* encode it with the tokenizer's own special tokens */
} item_text;

static void text_fini(item_text *t) { free(t->text); }

/* Writes the turns of user and assistant, the item's own last. Spaces between turns belong to the
 * template. */
static size_t turns_of(const task_item *t, chat_message out[2 * TASK_EARLIER + 1]) {
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < t->n_earlier; i++) {
        const size_t reply_at = t->earlier[i].reply_at, end = t->earlier[i].end;
        out[n++] = (chat_message){"user", t->prompt + at, reply_at - at};
        out[n++] = (chat_message){"assistant", t->prompt + reply_at + 1, end - reply_at - 1};
        at = end + strspn(t->prompt + end, "\n");
    }
    out[n++] = (chat_message){"user", t->prompt + at, t->reply_at - at};
    return n;
}

static ckvc_status write_text(const eval_text *how, const task_item *t, item_text *out,
                              ckvc_err *err) {
    const bool later = t->n_earlier && how->query != ANSWER_ALL_SEEN;
    if (!how->chat || t->plain) {
        *out = (item_text){ckvc_text_copy(t->prompt, t->prompt_size), t->prompt_size,
                           t->question_at, later ? t->earlier->reply_at : t->prompt_size, true};
        return CKVC_OK;
    }
    CKVC_AUTO_FREE char *turns = NULL;
    CKVC_AUTO_FREE char *first = NULL;
    size_t n, compress_at;
    chat_message message[2 * TASK_EARLIER + 1];
    CKVC_TRY(chat_render(how->chat, message, turns_of(t, message), &turns, &n, err));
    CKVC_TRY(chat_render(how->chat, message, 1, &first, &compress_at, err));
    const char *at = memmem(turns, n, message->content, message->content_size);
    CKVC_FAIL_IF(!at || n < compress_at || memcmp(first, turns, compress_at) != 0, err, CKVC_E_DATA,
                 "item \"%s\": the chat template changes the message; leave out --chat", t->id);
    const char *reply = t->prompt + t->reply_at;
    reply += *reply == ' '; /* leaves out the space that separates it from the question */
    out->question_at = (size_t)(at - turns) + t->question_at;
    out->text = ckvc_format("%s%s", turns, reply);
    out->size = strlen(out->text);
    out->compress_at = later ? compress_at : out->size;
    return CKVC_OK;
}

/* ---- ids ---- */

typedef struct ids {
    int32_t *items;
    size_t n;
} ids;

typedef struct item_ids { /* in the order in which a model reads them */
    ids context, question, later, answer;
} item_ids;

static void ids_fini(item_ids *x) {
    CKVC_FREE(x->context.items, x->question.items, x->later.items, x->answer.items);
}

/* Encodes the right answer, which stands after the text as a word of its own. */
static ckvc_status encode_answer(const eval_text *how, const item_text *t, const char *answer,
                                 ids *out, ckvc_err *err) {
    const bool apart = t->size && !isspace((unsigned char)t->text[t->size - 1]);
    CKVC_AUTO_FREE char *word = ckvc_format("%s%s", apart ? " " : "", answer);
    return tokenizer_encode(how->tok, word, strlen(word), false, &out->items, &out->n, err);
}

/* Keeps the first and the last half of `most` ids. */
static void cut_middle(ids *list, size_t most) {
    const size_t head = most / 2, tail = most - head;
    memmove(list->items + head, list->items + list->n - tail, tail * sizeof *list->items);
    list->n = most;
}

/* Writes the ids of item i to the item and its prompt. */
static ckvc_status take_item(const eval_text *how, eval_items *e, size_t i, item_ids *of,
                             ckvc_err *err) {
    ids *context = &of->context;
    const ids *question = &of->question, *later = &of->later, *answer = &of->answer;
    const size_t n_seen = how->query == ANSWER_UNSEEN ? 0 : question->n,
                 n_asked = question->n + later->n;
    const int64_t context_size = model_shape_context(how->shape);
    eval_item *x = &e->items[i];
    prompt *p = &e->prompts.items[i];
    const int64_t seen = (int64_t)n_seen, behind = (int64_t)n_asked + x->task->max_new;
    int64_t most = context_size - behind; /* tokens that the context of the item may have */
    if (how->longest && how->longest - seen < most) { most = how->longest - seen; }
    const bool too_long = (int64_t)context->n > most;
    CKVC_FAIL_IF(too_long && (x->task->length > 0 || most < 1), err, CKVC_E_DATA,
                 "item \"%s\": %zu tokens, a question of %zu and an answer of %u are more than the "
                 "model's context of %lld%s; ask for shorter ones",
                 x->task->id, context->n, n_asked, x->task->max_new, (long long)context_size,
                 how->longest ? " holds beside a repetition" : "");
    if (too_long) {
        cut_middle(context, (size_t)most);
        p->cut = true;
    }
    const size_t n_prompt = context->n + n_seen;
    CKVC_FAIL_IF(!n_prompt, err, CKVC_E_DATA,
                 "item \"%s\": no token stands before the question; leave out --query unseen",
                 x->task->id);
    const size_t room = (size_t)context_size - context->n - n_asked;
    x->n_question = (uint32_t)(n_asked - n_seen);
    x->n_reference = (uint32_t)(answer->n < room ? answer->n : room);
    p->n_tokens = (uint32_t)n_prompt;
    p->n_continuation = x->n_question + x->n_reference;
    p->tokens = ckvc_alloc(context->n + n_asked + x->n_reference, sizeof *p->tokens);
    memcpy(p->tokens, context->items, context->n * sizeof *p->tokens);
    memcpy(p->tokens + context->n, question->items, question->n * sizeof *p->tokens);
    memcpy(p->tokens + context->n + question->n, later->items, later->n * sizeof *p->tokens);
    memcpy(p->tokens + context->n + n_asked, answer->items, x->n_reference * sizeof *p->tokens);
    prompts_add(&e->prompts);
    const uint32_t needed = eval_item_behind(x);
    if (needed > e->max_behind) { e->max_behind = needed; }
    return CKVC_OK;
}

static ckvc_status make_item(const eval_text *how, eval_items *e, size_t i, ckvc_err *err) {
    CKVC_AUTO(text_fini) item_text t = {0};
    CKVC_AUTO(ids_fini) item_ids x = {0};
    const task_item *of = e->items[i].task;
    CKVC_TRY(write_text(how, of, &t, err));
    CKVC_TRY(tokenizer_encode(how->tok, t.text, t.question_at, t.special, &x.context.items,
                              &x.context.n, err));
    CKVC_TRY(tokenizer_encode(how->tok, t.text + t.question_at, t.compress_at - t.question_at,
                              false, &x.question.items, &x.question.n, err));
    CKVC_TRY(tokenizer_encode(how->tok, t.text + t.compress_at, t.size - t.compress_at, false,
                              &x.later.items, &x.later.n, err));
    CKVC_TRY(encode_answer(how, &t, of->answers[0], &x.answer, err));
    return take_item(how, e, i, &x, err);
}

/* The right answer of the next item of the task, going around the end of the list, whose answer
 * differs. */
static const char *control_of(const task_items *from, size_t i) {
    const task_item *of = &from->items[i];
    for (size_t k = 1; k < from->n; k++) {
        const task_item *other = &from->items[(i + k) % from->n];
        if (strcmp(other->task, of->task) == 0 && strcmp(other->answers[0], of->answers[0]) != 0) {
            return other->answers[0];
        }
    }
    return NULL;
}

/* Hashes everything that decides an item's lines, except its text, as its tokens are hashed. */
static void hash_item(ckvc_sha256 *s, const eval_item *x, const prompt *p) {
    uint8_t lengths[16];
    ckvc_put_u32(lengths, p->n_tokens);
    ckvc_put_u32(lengths + 4, x->n_question);
    ckvc_put_u32(lengths + 8, x->n_reference);
    ckvc_put_u32(lengths + 12, x->task->max_new);
    ckvc_sha256_update(s, x->task->id, strlen(x->task->id) + 1);
    ckvc_sha256_update(s, lengths, sizeof lengths);
    for (size_t i = 0; i < x->task->n_answers; i++) {
        ckvc_sha256_update(s, x->task->answers[i], strlen(x->task->answers[i]) + 1);
    }
    for (uint32_t t = 0; t < p->n_tokens + p->n_continuation; t++) {
        uint8_t id[4];
        ckvc_put_u32(id, (uint32_t)p->tokens[t]);
        ckvc_sha256_update(s, id, sizeof id);
    }
}

ckvc_status eval_items_make(const eval_text *how, const task_items *from, eval_items **out,
                            ckvc_err *err) {
    CKVC_AUTO(eval_items_free_at) eval_items *e = ckvc_calloc(1, sizeof *e);
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES];
    *out = NULL;
    e->query = how->query;
    ckvc_sha256_init(&s);
    e->items = ckvc_calloc(from->n, sizeof *e->items);
    e->entries = ckvc_calloc(from->n, sizeof *e->entries);
    e->prompts.items = ckvc_calloc(from->n, sizeof *e->prompts.items);
    for (size_t i = 0; i < from->n; i++) {
        e->items[i] = (eval_item){.task = &from->items[i], .control = control_of(from, i)};
        e->entries[i].id = from->items[i].id;
        e->prompts.items[i].entry = &e->entries[i];
        CKVC_TRY(make_item(how, e, i, err));
        hash_item(&s, &e->items[i], &e->prompts.items[i]);
    }
    ckvc_sha256_final(&s, digest);
    ckvc_hex(digest, sizeof digest, e->sha256);
    *out = ckvc_take(&e);
    return CKVC_OK;
}

void eval_items_free(eval_items *e) {
    if (!e) { return; }
    for (size_t i = 0; i < e->prompts.n; i++) { free(e->prompts.items[i].tokens); }
    CKVC_FREE(e->items, e->entries, e->prompts.items, e);
}
