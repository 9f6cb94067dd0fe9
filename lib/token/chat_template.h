/* Chat templates: a list of messages -> the text that a model was trained to see. A model's own
 * template is known by its text, or not at all.
 *
 * A rendered text equals that of transformers' `apply_chat_template(messages, tokenize=False,
 * add_generation_prompt=...)` with the model's own template; the
 * generation prompt (the header of the assistant's turn) is added exactly when the last message is
 * not the assistant's. The text carries its own BOS where the template writes one, so it is
 * tokenised *without* the tokenizer's special tokens: BOS stands once. As there, markers inside of
 * a message's content become special tokens, too. */
#pragma once

#include "lib/token/tokenizer.h"

typedef struct chat_message {
    const char *role;    /* system, user, assistant */
    const char *content; /* UTF-8 */
    size_t content_size;
} chat_message;

typedef enum chat_style {
    CHAT_NONE,    /* no template: messages are refused */
    CHAT_LLAMA3,  /* Meta-Llama-3-Instruct */
    CHAT_LLAMA31, /* Llama-3.1 and 3.2-Instruct: a system turn with dates comes first */
    CHAT_MISTRAL, /* Mistral-7B-Instruct-v0.2: "[INST] ... [/INST]", no system message */
    /* v0.3: "[INST] ...[/INST]", [INST] a token; the system message joins the last user turn */
    CHAT_MISTRAL3,
    CHAT_CHATML, /* without a system message of its own */
    CHAT_QWEN2,  /* ChatML with the family's system message where there is none; so the next two */
    CHAT_QWEN25,
    CHAT_SMOLLM2,
    CHAT_INTERNLM2, /* ChatML behind a BOS */
    CHAT_UNKNOWN,   /* the model has a template, of a text that we do not know: likewise refused */
} chat_style;

/* The names, as --chat-template takes them. */
#define CHAT_STYLES                                                                                \
    "auto|llama3|llama3.1|mistral|mistral-v0.3|chatml|chatml/qwen2|chatml/qwen2.5|chatml/smollm2|" \
    "internlm2|none"

typedef struct chat_template {
    chat_style style;
    /* CHAT_LLAMA31: "Today Date", the template's date_string; NULL: CHAT_DATE. Borrowed */
    const char *date;
} chat_template;

/* Llama 3.1's template has this date where the caller gives none; Llama 3.2's has it where the
 * caller gives none and strftime_now is not defined; transformers defines it
 * (utils/chat_template_utils.py), so that there it is the day on which it runs. Our runs are to be
 * repeatable: it is this one until another is given (chat_template_date). */
#define CHAT_DATE "26 Jul 2024"

/* name: one of CHAT_STYLES. auto is the model's own template where the text of token_spec's
 * chat_template, its white space folded, is one of those that we know: each has been compared with
 * what the style writes. tok may be NULL (then auto is none). Any other name is for somebody who
 * knows better than the files; it warns where they are known to say otherwise. A name whose markers
 * the tokenizer does not have is CKVC_E_USAGE. */
ckvc_status chat_template_choose(const char *name, const tokenizer *tok, chat_template *out,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Sets the date. CKVC_E_USAGE for a template that writes none, and for anything but 1 to 64
 * printable ASCII characters without '<' (which begins markers). */
ckvc_status chat_template_date(chat_template *t, const char *date, ckvc_err *err) CKVC_MUST_CHECK;
/* One of CHAT_STYLES, or "unknown" / what plans have: of all ChatML "chatml", of unknown "none". */
const char *chat_style_name(chat_style style);
const char *chat_style_plan(chat_style style);
/* An answer of the assistant as the template writes it: trimmed, or left as it is. */
void chat_answer(const chat_template *t, const char **text, size_t *size);

/* The text of transformers' apply_chat_template (utils/chat_template_utils.py,
 * render_jinja_template) under the template.
 * *text is the caller's to free (NUL behind *size). CKVC_E_DATA for messages that the template
 * refuses: roles out of turn (Mistral), a system message where none may stand, any message at all
 * under CHAT_NONE and CHAT_UNKNOWN. */
ckvc_status chat_render(const chat_template *t, const chat_message *messages, size_t n, char **text,
                        size_t *size, ckvc_err *err) CKVC_MUST_CHECK;
