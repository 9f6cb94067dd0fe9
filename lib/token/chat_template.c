/* Chat templates, which are recognised by their text: see chat_template.h. */
#include "lib/token/chat_template.h"

#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/token/chars.h"

/* The texts around a turn and its role. Mistral's turns differ from each other; mistral() writes
 * them. `plan` is the name in plans, which had it before system messages had names. */
static const struct style {
    const char *name, *plan, *bos, *begin, *middle, *eos, *behind, *system;
    bool trim;
} styles[] = {
#define STYLE(NAME, PLAN, ...)                                                                     \
    { .name = NAME, .plan = PLAN, __VA_ARGS__ }
#define LLAMA3_TURNS                                                                               \
    .bos = "<|begin_of_text|>", .begin = "<|start_header_id|>", .middle = "<|end_header_id|>\n\n", \
    .eos = "<|eot_id|>", .behind = "", .trim = true
#define CHATML_TURNS .begin = "<|im_start|>", .middle = "\n", .eos = "<|im_end|>", .behind = "\n"
    [CHAT_NONE] = STYLE("none", "none", .trim = false),
    [CHAT_LLAMA3] = STYLE("llama3", "llama3", LLAMA3_TURNS),
    [CHAT_LLAMA31] = STYLE("llama3.1", "llama3.1", LLAMA3_TURNS),
    [CHAT_MISTRAL] = STYLE("mistral", "mistral", .bos = "<s>", .begin = "", .eos = "</s>"),
    [CHAT_MISTRAL3] = STYLE("mistral-v0.3", "mistral-v0.3", .bos = "<s>", .begin = "[INST]",
                            .eos = "</s>", .trim = true),
    [CHAT_CHATML] = STYLE("chatml", "chatml", .bos = "", CHATML_TURNS),
    [CHAT_QWEN2] = STYLE("chatml/qwen2", "chatml", .bos = "", CHATML_TURNS,
                         .system = "You are a helpful assistant."),
    [CHAT_QWEN25] =
        STYLE("chatml/qwen2.5", "chatml", .bos = "", CHATML_TURNS,
              .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    [CHAT_SMOLLM2] =
        STYLE("chatml/smollm2", "chatml", .bos = "", CHATML_TURNS,
              .system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    [CHAT_INTERNLM2] = STYLE("internlm2", "internlm2", .bos = "<s>", CHATML_TURNS),
    [CHAT_UNKNOWN] = STYLE("unknown", "none", .trim = false),
};

const char *chat_style_name(chat_style style) { return styles[style].name; }
const char *chat_style_plan(chat_style style) { return styles[style].plan; }

/* ---- which template ---- */

/* The first half of the SHA-256 of each folded text, and a model that has this text
 * (tests/golden/chat/README.md). */
static const struct {
    chat_style style;
    const char *digest;
} known[] = {
    {CHAT_LLAMA3, "ba03a121d097859c7b5b9cd03af99aaf"},    /* Llama 3 */
    {CHAT_LLAMA31, "438899ef3f928a5c57141868a82d1d90"},   /* Llama 3.1 */
    {CHAT_LLAMA31, "4ef3754475af40fe03737516d9bc6df3"},   /* Llama 3.2 */
    {CHAT_MISTRAL, "26a59556925c987317ce5291811ba3b7"},   /* Mistral-7B v0.2, Mixtral-8x7B */
    {CHAT_MISTRAL3, "ef81414769b665dc754ee971173c3c09"},  /* Mistral-7B v0.3 */
    {CHAT_CHATML, "153280e3ff55d19da1398bdb3914ee2a"},    /* the plain text */
    {CHAT_CHATML, "fcf7a096fe99a48fd9ad2b250bf9237e"},    /* OpenHermes 2.5 */
    {CHAT_CHATML, "58c1a1f04baa7adaeaba1f90267c3d57"},    /* Yi, Dolphin 2.5 */
    {CHAT_QWEN2, "793202280c0910ab26bc6eb57c8212c2"},     /* Qwen2 */
    {CHAT_QWEN25, "9dbb99446bcc262214e972e26a227eab"},    /* Qwen2.5, Qwen2.5-Coder */
    {CHAT_QWEN25, "2dd6bc0f6ed8698526f4275e07476a85"},    /* Qwen2.5-0.5B as first published */
    {CHAT_SMOLLM2, "872be49dbb638044ad01b60388f48d46"},   /* SmolLM2 */
    {CHAT_INTERNLM2, "49aa7cb516942cc5a17d45ed2939828e"}, /* InternLM2 */
};

/* Writes the template without the white space that Jinja strips beside the minus of a tag, and
 * without a line end after all of it: what the template writes does not depend on them. */
static void strip_template(const token_text *t, ckvc_buffer *out) {
    const char *s = t->bytes;
    const size_t n = t->size - (t->size && s[t->size - 1] == '\n');
    for (size_t i = 0, end; i < n; i = end) {
        end = i + strspn(s + i, " \t\r\n");
        end = end < n ? end : n;
        const bool stripped =
            end > i &&
            ((s[end] == '{' && s[end + 1] && strchr("{%#", s[end + 1]) && s[end + 2] == '-') ||
             (i > 2 && s[i - 3] == '-' && strchr("}%#", s[i - 2]) && s[i - 1] == '}'));
        end += end == i;
        if (!stripped) { ckvc_buffer_append(out, s + i, end - i); }
    }
}

static bool is_text(const token_text *t, const char *text) {
    return t->bytes && strcmp(t->bytes, text) == 0;
}

/* The style of the spec's own template. A text that writes bos_token or eos_token is known only
 * where these are the tokens that the style has. */
static chat_style own_style(const token_spec *spec) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer folded = {0};
    char digest[CKVC_SHA256_HEX];
    if (!spec->chat_template.bytes) { return CHAT_NONE; }
    strip_template(&spec->chat_template, &folded);
    ckvc_sha256_hex(folded.data, folded.size, digest);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct style *s = &styles[known[i].style];
        if (strncmp(digest, known[i].digest, 32) == 0 &&
            (!*s->bos || is_text(&spec->bos, s->bos)) &&
            (s->middle || is_text(&spec->eos, s->eos))) {
            return known[i].style;
        }
    }
    return CHAT_UNKNOWN;
}

static bool has_token(const tokenizer *tok, const char *text) {
    const token_spec *spec = tok ? tokenizer_spec(tok) : &(token_spec){0};
    size_t i = 0;
    while (i < spec->n_added && !is_text(&spec->added[i].text, text)) { i++; }
    return i < spec->n_added;
}

ckvc_status chat_template_choose(const char *name, const tokenizer *tok, chat_template *out,
                                 ckvc_err *err) {
    *out = (chat_template){.style = tok ? own_style(tokenizer_spec(tok)) : CHAT_NONE};
    if (strcmp(name, "auto") == 0) { return CKVC_OK; }
    const chat_style own = out->style;
    chat_style style = CHAT_NONE;
    while (style < CHAT_UNKNOWN && strcmp(name, styles[style].name) != 0) { style++; }
    CKVC_FAIL_IF(style == CHAT_UNKNOWN, err, CKVC_E_USAGE,
                 "--chat-template %s is unknown; want one of " CHAT_STYLES, name);
    const struct style *s = &styles[style];
    const char *const marks[] = {s->begin, s->bos, s->eos};
    for (size_t i = 0; style != CHAT_NONE && i < sizeof marks / sizeof *marks; i++) {
        CKVC_FAIL_IF(*marks[i] && !has_token(tok, marks[i]), err, CKVC_E_USAGE,
                     "--chat-template %s writes %s, which is not a token of this model's tokenizer",
                     name, marks[i]);
    }
    if (style != CHAT_NONE && style != own && own != CHAT_NONE && own != CHAT_UNKNOWN) {
        ckvc_warn("--chat-template %s: the model's own template is %s, which auto takes", name,
                  styles[own].name);
    }
    out->style = style;
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

/* Jinja's `trim`, which is Python's str.strip(). */
static void trim(const char **text, size_t *size) {
    size_t begin = *size, end = *size;
    int32_t c;
    for (size_t i = 0, n; i < *size; i += n) {
        n = char_next(*text + i, *size - i, &c);
        if (!is_python_space(c)) {
            begin = i < begin ? i : begin;
            end = i + n;
        }
    }
    *text += begin;
    *size = end - begin;
}

void chat_answer(const chat_template *t, const char **text, size_t *size) {
    if (styles[t->style].trim) { trim(text, size); }
}

static void append(ckvc_buffer *b, const chat_message *m, bool trimmed) {
    const char *text = m->content;
    size_t size = m->content_size;
    if (trimmed) { trim(&text, &size); }
    ckvc_buffer_append(b, text, size);
}

static void alike_turns(ckvc_buffer *b, const chat_template *t, const chat_message *m, size_t n) {
    const struct style *s = &styles[t->style];
    const bool open = !is_role(&m[n - 1], "assistant"); /* the assistant's turn comes next */
    if (t->style == CHAT_LLAMA31) {
        ckvc_buffer_printf(b, "%ssystem%sCutting Knowledge Date: December 2023\nToday Date: %s\n\n",
                           s->begin, s->middle, t->date ? t->date : CHAT_DATE);
        if (is_role(m, "system")) {
            append(b, m++, true);
            n--;
        }
        ckvc_buffer_text(b, s->eos);
    } else if (s->system && !is_role(m, "system")) {
        ckvc_buffer_printf(b, "%ssystem%s%s%s%s", s->begin, s->middle, s->system, s->eos,
                           s->behind);
    }
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_printf(b, "%s%s%s", s->begin, m[i].role, s->middle);
        append(b, &m[i], s->trim);
        ckvc_buffer_printf(b, "%s%s", s->eos, s->behind);
    }
    if (open) { ckvc_buffer_printf(b, "%sassistant%s", s->begin, s->middle); }
}

/* v3: [INST] and [/INST] are tokens, and the one space beside them belongs to the next word. */
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
            append(b, system, false);
            ckvc_buffer_text(b, "\n\n");
        }
        append(b, &m[i], v3 && !user);
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
                 "\"messages\" need a chat template, and this model states none: name one with "
                 "--chat-template NAME, or render them to \"text\"");
    CKVC_FAIL_IF(t->style == CHAT_UNKNOWN, err, CKVC_E_DATA,
                 "\"messages\" need this model's own chat template, whose text is none that ckvc "
                 "knows: `python3 -m ckvc render MODEL --manifest chat.jsonl --out tokens.jsonl` "
                 "renders them by it; or name one with --chat-template NAME");
    ckvc_buffer_text(&b, styles[t->style].bos);
    if (styles[t->style].middle) {
        alike_turns(&b, t, messages, n);
    } else {
        CKVC_TRY(mistral(&b, t->style == CHAT_MISTRAL3, messages, n, err));
    }
    *size = b.size;
    *text = ckvc_take(&b.data);
    return CKVC_OK;
}
