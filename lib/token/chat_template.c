/* Chat templates by family: see chat_template.h. */
#include "lib/token/chat_template.h"

#include "lib/base/json.h"
#include "lib/token/chars.h"

/* What stands around a turn and its role. Mistral's turns are not alike: mistral() writes them. */
static const struct style {
    const char *name, *bos, *begin, *middle, *end;
    bool trim;
} styles[] = {[CHAT_NONE] = {.name = "none"},
              [CHAT_LLAMA3] = {"llama3", "<|begin_of_text|>", "<|start_header_id|>",
                               "<|end_header_id|>\n\n", "<|eot_id|>", true},
              [CHAT_LLAMA31] = {"llama3.1", "<|begin_of_text|>", "<|start_header_id|>",
                                "<|end_header_id|>\n\n", "<|eot_id|>", true},
              [CHAT_MISTRAL] = {.name = "mistral", .bos = "<s>"},
              [CHAT_MISTRAL3] = {.name = "mistral-v0.3", .bos = "<s>"},
              [CHAT_CHATML] = {"chatml", "", "<|im_start|>", "\n", "<|im_end|>\n", false},
              [CHAT_INTERNLM2] = {"internlm2", "<s>", "<|im_start|>", "\n", "<|im_end|>\n", false}};

const char *chat_style_name(chat_style style) { return styles[style].name; }

/* ---- which template ---- */

/* Whether text is one token of its own: one id that stands for exactly this text. */
static bool has_token(const tokenizer *tok, const char *text) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    CKVC_AUTO_FREE char *back = NULL;
    size_t n = 0, size = 0;
    return tok && tokenizer_encode(tok, text, strlen(text), false, &ids, &n, NULL) == CKVC_OK &&
           n == 1 && tokenizer_decode(tok, ids, n, false, &back, &size, NULL) == CKVC_OK &&
           size == strlen(text) && memcmp(back, text, size) == 0;
}

static const char *chatml_system(const char *family, const tokenizer *tok) {
    const bool qwen2 = strcmp(family, "qwen2") == 0;
    if (qwen2 && has_token(tok, "<tool_call>")) {
        return "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
    }
    if (qwen2) { return "You are a helpful assistant."; }
    if (strcmp(family, "llama") == 0 && has_token(tok, "<repo_name>")) {
        return "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    }
    return NULL;
}

static const struct {
    const char *name;
    chat_style style;           /* its oldest version */
    const char *marker, *other; /* tokens that the template writes */
} named[] = {
    {"llama3", CHAT_LLAMA3, "<|start_header_id|>", "<|begin_of_text|>"},
    {"mistral", CHAT_MISTRAL, "<s>", "</s>"},
    {"chatml", CHAT_CHATML, "<|im_start|>", "<|im_end|>"},
    {"internlm2", CHAT_INTERNLM2, "<|im_start|>", "<s>"},
};

static const char *name_of_family(const char *family, const tokenizer *tok) {
    return has_token(tok, "<|start_header_id|>") ? "llama3"
           : has_token(tok, "<|im_start|>")
               ? (strcmp(family, "internlm2") == 0 ? "internlm2" : "chatml")
           : tok && strcmp(family, "mistral") == 0 ? "mistral"
                                                   : "none";
}

ckvc_status chat_template_choose(const char *name, const char *family, const tokenizer *tok,
                                 chat_template *out, ckvc_err *err) {
    *out = (chat_template){.style = CHAT_NONE};
    if (strcmp(name, "auto") == 0) { /* ids need none: who has messages is told */
        const ckvc_status st =
            chat_template_choose(name_of_family(family, tok), family, tok, out, &(ckvc_err){0});
        if (st != CKVC_OK) { out->style = CHAT_NONE; }
        return CKVC_OK;
    }
    if (strcmp(name, "none") == 0) { return CKVC_OK; }
    size_t i = 0;
    while (i < sizeof named / sizeof *named && strcmp(name, named[i].name) != 0) { i++; }
    CKVC_FAIL_IF(
        i == sizeof named / sizeof *named, err, CKVC_E_USAGE,
        "--chat-template %s is unknown; use auto, llama3, mistral, chatml, internlm2 or none",
        name);
    const bool marked = has_token(tok, named[i].marker);
    CKVC_FAIL_IF(!marked || !has_token(tok, named[i].other), err, CKVC_E_USAGE,
                 "--chat-template %s writes %s, which is not a token of this model's tokenizer",
                 name, marked ? named[i].other : named[i].marker);
    out->style = named[i].style;
    if (out->style == CHAT_LLAMA3 && has_token(tok, "<|eom_id|>")) { out->style = CHAT_LLAMA31; }
    if (out->style == CHAT_CHATML) { out->system = chatml_system(family, tok); }
    if (out->style == CHAT_MISTRAL && has_token(tok, "[INST]")) {
        /* v0.3 has 32,768 ids; larger vocabularies belong to templates of other spacing */
        CKVC_FAIL_IF(tokenizer_vocab_size(tok) > 32768, err, CKVC_E_USAGE,
                     "--chat-template mistral: this tokenizer is newer than Mistral v0.3, whose "
                     "templates are the last we know; render the messages to \"text\"");
        out->style = CHAT_MISTRAL3;
    }
    return CKVC_OK;
}

ckvc_status chat_template_date(chat_template *t, const char *date, ckvc_err *err) {
    const size_t n = strlen(date);
    bool plain = n >= 1 && n <= 64;
    for (size_t i = 0; plain && i < n; i++) {
        plain = date[i] >= ' ' && date[i] <= '~' && date[i] != '<';
    }
    CKVC_FAIL_IF(
        !plain, err, CKVC_E_USAGE,
        "--chat-date: wanted 1 to 64 printable ASCII characters without '<', as in \"" CHAT_DATE
        "\"");
    CKVC_FAIL_IF(t->style != CHAT_LLAMA31, err, CKVC_E_USAGE,
                 "--chat-date: the chat template %s writes no date; only Llama 3.1's and 3.2's do",
                 chat_style_name(t->style));
    t->date = date;
    return CKVC_OK;
}

/* ---- rendering ---- */

static bool is_role(const chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

/* Jinja's `trim` is Python's str.strip(). */
static void append_trimmed(ckvc_buffer *b, const chat_message *m) {
    size_t begin = m->content_size, end = 0;
    int32_t c;
    for (size_t i = 0, n; i < m->content_size; i += n) {
        n = char_next(m->content + i, m->content_size - i, &c);
        if (!is_python_space(c)) {
            begin = i < begin ? i : begin;
            end = i + n;
        }
    }
    if (end > begin) { ckvc_buffer_append(b, m->content + begin, end - begin); }
}

static void append_whole(ckvc_buffer *b, const chat_message *m) {
    ckvc_buffer_append(b, m->content, m->content_size);
}

static void alike_turns(ckvc_buffer *b, const chat_template *t, const chat_message *m, size_t n) {
    const struct style *s = &styles[t->style];
    const bool open = !is_role(&m[n - 1], "assistant"); /* the assistant's turn is next */
    if (t->style == CHAT_LLAMA31) {
        ckvc_buffer_printf(b, "%ssystem%sCutting Knowledge Date: December 2023\nToday Date: %s\n\n",
                           s->begin, s->middle, t->date ? t->date : CHAT_DATE);
        if (is_role(m, "system")) {
            append_trimmed(b, m++);
            n--;
        }
        ckvc_buffer_text(b, s->end);
    } else if (t->system && !is_role(m, "system")) {
        ckvc_buffer_printf(b, "%ssystem%s%s%s", s->begin, s->middle, t->system, s->end);
    }
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_printf(b, "%s%s%s", s->begin, m[i].role, s->middle);
        (s->trim ? append_trimmed : append_whole)(b, &m[i]);
        ckvc_buffer_text(b, s->end);
    }
    if (open) { ckvc_buffer_printf(b, "%sassistant%s", s->begin, s->middle); }
}

/* v3: [INST] and [/INST] are tokens: the one space beside them is that of the next word. */
static ckvc_status mistral(ckvc_buffer *b, bool v3, const chat_message *m, size_t n,
                           ckvc_err *err) {
    const chat_message *system = v3 && is_role(m, "system") ? m : NULL;
    const size_t first = system != NULL;
    for (size_t i = first; i < n; i++) {
        const bool user = is_role(&m[i], "user");
        CKVC_FAIL_IF(is_role(&m[i], "system"), err, CKVC_E_DATA,
                     "message %zu is a system message, which Mistral's template does not have%s", i,
                     v3 ? " but in front" : "");
        CKVC_FAIL_IF(user != ((i - first) % 2 == 0), err, CKVC_E_DATA,
                     "message %zu is the %s's out of turn: Mistral's template wants user, "
                     "assistant, user, ...",
                     i, m[i].role);
        ckvc_buffer_text(b, user ? "[INST] " : v3 ? " " : "");
        if (user && system && i + 1 == n) {
            append_whole(b, system);
            ckvc_buffer_text(b, "\n\n");
        }
        (v3 && !user ? append_trimmed : append_whole)(b, &m[i]);
        ckvc_buffer_text(b, !user ? "</s>" : v3 ? "[/INST]" : " [/INST]");
    }
    return CKVC_OK;
}

ckvc_status chat_render(const chat_template *t, const chat_message *messages, size_t n, char **text,
                        size_t *size, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    *text = NULL;
    *size = 0;
    CKVC_FAIL_IF(n == 0, err, CKVC_E_DATA, "no messages");
    CKVC_FAIL_IF(t->style == CHAT_NONE, err, CKVC_E_DATA,
                 "messages need a chat template, and this model has none that we know: render them "
                 "to \"text\", or, where the model runs, name one with --chat-template");
    ckvc_buffer_text(&b, styles[t->style].bos);
    if (styles[t->style].begin) {
        alike_turns(&b, t, messages, n);
    } else {
        CKVC_TRY(mistral(&b, t->style == CHAT_MISTRAL3, messages, n, err));
    }
    *size = b.size;
    *text = ckvc_take(&b.data);
    return CKVC_OK;
}
