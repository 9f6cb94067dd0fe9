/* Chat templates: from a list of messages to the text that a model was trained to see. A model's
 * own template is recognised by its text, or not at all.
 *
 * A rendered text equals that of transformers' `apply_chat_template(messages, tokenize=False,
 * add_generation_prompt=...)` with the model's own template. The generation prompt (the header of
 * the assistant's turn) is added exactly when the last message is not the assistant's. The text
 * contains BOS where the template writes it, so it must be tokenised *without* the tokenizer's
 * special tokens; BOS then stands once. As in transformers, markers inside of a message's content
 * become special tokens, too. */
#pragma once

#include "lib/token/tokenizer.h"

typedef struct chat_message {
    const char *role;    /* system, user or assistant */
    const char *content; /* UTF-8 */
    size_t content_size;
} chat_message;

typedef enum chat_style {
    CHAT_NONE,    /* there is no template: messages are refused */
    CHAT_LLAMA3,  /* Meta-Llama-3-Instruct */
    CHAT_LLAMA31, /* Llama-3.1 and 3.2-Instruct: a system turn with dates comes first */
    CHAT_MISTRAL, /* Mistral-7B-Instruct-v0.2: "[INST] ... [/INST]", no system message */
    /* Mistral v0.3: "[INST] ...[/INST]", where [INST] is a token; the system message joins the last
     * user turn. */
    CHAT_MISTRAL3,
    CHAT_CHATML, /* it adds no system message of its own */
    /* ChatML that adds the family's system message where there is none, as do the next two. */
    CHAT_QWEN2,
    CHAT_QWEN25,
    CHAT_SMOLLM2,
    CHAT_INTERNLM2, /* ChatML after a BOS */
    CHAT_UNKNOWN,   /* the model has a template whose text is not known: also refused */
} chat_style;

/* The names that --chat-template accepts. */
#define CHAT_STYLES                                                                                \
    "auto|llama3|llama3.1|mistral|mistral-v0.3|chatml|chatml/qwen2|chatml/qwen2.5|chatml/smollm2|" \
    "internlm2|none"

typedef struct chat_template {
    chat_style style;
    /* For CHAT_LLAMA31: "Today Date", the template's date_string; NULL: CHAT_DATE. Borrowed. */
    const char *date;
} chat_template;

/* The date that is written where the caller gives none. Llama 3.1's template has this one in that
 * case. Llama 3.2's template has it only where strftime_now is not defined; transformers defines it
 * (utils/chat_template_utils.py), so that there it is the day on which the program runs. Our runs
 * must be repeatable, so it is always this date, unless chat_template_date sets another. */
#define CHAT_DATE "26 Jul 2024"

/* Chooses the template of this name, one of CHAT_STYLES. auto is the model's own template: it is
 * known where the text of token_spec's chat_template, with its white space folded, is one of those
 * in our list, each of which has been compared with what the style writes. tok may be NULL; auto is
 * then none. With any other name the caller overrides the files; it warns where they are known to
 * say otherwise. A name whose markers the tokenizer does not have is CKVC_E_USAGE. */
ckvc_status chat_template_choose(const char *name, const tokenizer *tok, chat_template *out,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Sets the date, which is borrowed. CKVC_E_USAGE for a template that writes no date, and for
 * anything but 1 to 64 printable ASCII characters without '<' (which begins markers). */
ckvc_status chat_template_date(chat_template *t, const char *date, ckvc_err *err) CKVC_MUST_CHECK;
/* chat_style_name: one of CHAT_STYLES, or "unknown". chat_style_plan: the name in plans, which is
 * "chatml" for every ChatML and "none" for an unknown template. */
const char *chat_style_name(chat_style style);
const char *chat_style_plan(chat_style style);
/* Moves *text and *size so that they leave out the white space around an answer of the assistant,
 * where the template does so; otherwise it changes nothing. */
void chat_answer(const chat_template *t, const char **text, size_t *size);

/* Renders messages [n] under the template, to the text of transformers' apply_chat_template
 * (utils/chat_template_utils.py, render_jinja_template). The caller frees *text, which has a NUL
 * after *size bytes. CKVC_E_DATA for messages that the template refuses: roles out of turn
 * (Mistral), a system message where none may stand, any message at all under CHAT_NONE and
 * CHAT_UNKNOWN. */
ckvc_status chat_render(const chat_template *t, const chat_message *messages, size_t n, char **text,
                        size_t *size, ckvc_err *err) CKVC_MUST_CHECK;
