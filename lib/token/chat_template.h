/* Chat templates: a list of messages -> the text that a family's model was trained to see.
 *
 * A rendered text equals that of transformers' `apply_chat_template(messages, tokenize=False,
 * add_generation_prompt=...)` with the template of the family's own tokenizer_config.json; the
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
    CHAT_MISTRAL, /* Mistral-7B-Instruct-v0.1 and v0.2: "[INST] ... [/INST]", no system message */
    /* v0.3: "[INST] ...[/INST]", [INST] a token; the system message joins the last user turn */
    CHAT_MISTRAL3,
    CHAT_CHATML,    /* Qwen2, Qwen2.5, SmolLM2 */
    CHAT_INTERNLM2, /* ChatML behind a BOS */
} chat_style;

typedef struct chat_template {
    chat_style style;
    /* CHAT_CHATML: the family's system message where there is none; NULL: none. Static */
    const char *system;
    /* CHAT_LLAMA31: "Today Date", the template's date_string; NULL: CHAT_DATE. Borrowed */
    const char *date;
} chat_template;

/* Llama 3.1's template has this date where the caller gives none; Llama 3.2's has it where the
 * caller gives none and strftime_now is not defined; transformers defines it
 * (utils/chat_template_utils.py), so that there it is the day on which it runs. Our runs are to be
 * repeatable: it is this one until another is given (chat_template_date). */
#define CHAT_DATE "26 Jul 2024"

/* name: auto, llama3, mistral, chatml, internlm2, none. family: config.json's model_type. tok may
 * be NULL (then auto is none). auto goes by the tokenizer's tokens: <|start_header_id|> is llama3;
 * <|im_start|> is internlm2 in that family and chatml in any other; otherwise the family mistral is
 * mistral; else none. Within a name the tokens choose the version: <|eom_id|> is Llama 3.1 and
 * later, a token [INST] is Mistral v0.3; ChatML's system message is Qwen2.5's with <tool_call>,
 * else Qwen2's in the family qwen2, SmolLM2's with <repo_name> in the family llama. A name whose
 * markers the tokenizer does not have, or whose template is newer than those that we know, is
 * CKVC_E_USAGE; under auto it is none. */
ckvc_status chat_template_choose(const char *name, const char *family, const tokenizer *tok,
                                 chat_template *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Sets the date. CKVC_E_USAGE for a template that writes none, and for anything but 1 to 64
 * printable ASCII characters without '<' (which begins markers). */
ckvc_status chat_template_date(chat_template *t, const char *date, ckvc_err *err) CKVC_MUST_CHECK;
/* "llama3", "llama3.1", "mistral", "mistral-v0.3", "chatml", "internlm2", "none" */
const char *chat_style_name(chat_style style);

/* The text of transformers' apply_chat_template (utils/chat_template_utils.py,
 * render_jinja_template) under the family's "chat_template", the field of tokenizer_config.json.
 * *text is the caller's to free (NUL behind *size). CKVC_E_DATA for messages that the template
 * refuses: roles out of turn (Mistral), a system message where none may stand, any message at all
 * under CHAT_NONE. */
ckvc_status chat_render(const chat_template *t, const chat_message *messages, size_t n, char **text,
                        size_t *size, ckvc_err *err) CKVC_MUST_CHECK;
