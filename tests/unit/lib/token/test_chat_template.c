/* Chat templates against what jinja2 makes of the families' own templates
 * (tests/golden/chat/README.md), the choice of one by the tokens of a tokenizer, and BOS: once. */
#include <unistd.h>

#include "lib/token/chat_template.h"
#include "tests/unit/golden.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/unit.h"

/* A tokenizer with a piece a letter and the given special tokens; BOS is the first of them, put in
 * front when asked for. */
static tokenizer *make_tokenizer(const char *const *special, bool bos) {
    token_spec *s = ckvc_calloc(1, sizeof *s);
    tokenizer *t;
    const char *const letters[] = {"<unk>", "a", "b", "c", "\xE2\x96\x81"};
    s->n_pieces = sizeof letters / sizeof *letters;
    s->pieces = ckvc_calloc(s->n_pieces, sizeof *s->pieces);
    s->fuse_unk = true;
    for (size_t i = 0; i < s->n_pieces; i++) {
        s->pieces[i] =
            (token_piece){.text = {ckvc_strdup(letters[i]), strlen(letters[i])}, .id = (int32_t)i};
    }
    while (special[s->n_added]) { s->n_added++; }
    s->added = ckvc_calloc(s->n_added, sizeof *s->added);
    for (size_t i = 0; i < s->n_added; i++) {
        s->added[i] = (token_added){.text = {ckvc_strdup(special[i]), strlen(special[i])},
                                    .id = 10 + (int32_t)i,
                                    .special = true};
    }
    if (bos) {
        s->prefix_ids = ckvc_calloc(1, sizeof *s->prefix_ids);
        s->prefix_ids[0] = 10;
        s->n_prefix = 1;
    }
    OK(tokenizer_build(s, "a tokenizer of the test", &t, &err));
    return t;
}

static const char *const llama3_tokens[] = {"<|begin_of_text|>", "<|start_header_id|>",
                                            "<|end_header_id|>", "<|eot_id|>", NULL};
static const char *const llama31_tokens[] = {"<|begin_of_text|>", "<|start_header_id|>",
                                             "<|end_header_id|>", "<|eot_id|>",
                                             "<|eom_id|>",        NULL};
static const char *const mistral_tokens[] = {"<s>", "</s>", NULL};
static const char *const mistral3_tokens[] = {"<s>", "</s>", "[INST]", "[/INST]", NULL};
static const char *const qwen2_tokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};
static const char *const qwen25_tokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>",
                                            "<tool_call>", NULL};
static const char *const smollm2_tokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>",
                                             "<repo_name>", NULL};
static const char *const internlm2_tokens[] = {"<s>", "</s>", "<|im_end|>", "<|im_start|>", NULL};
static const char *const other_tokens[] = {"<s>", NULL};

/* The families as a tokenizer and a model_type know them; style as the golden file spells it. */
static const struct {
    const char *style, *family, *name;
    const char *const *tokens;
    int n_bos; /* in a rendered prompt */
} families[] = {
    {"llama3", "llama", "llama3", llama3_tokens, 1},
    {"llama3.1", "llama", "llama3", llama31_tokens, 1},
    {"mistral", "mistral", "mistral", mistral_tokens, 1},
    {"mistral-v0.3", "mistral", "mistral", mistral3_tokens, 1},
    {"chatml/qwen2", "qwen2", "chatml", qwen2_tokens, 0},
    {"chatml/qwen2.5", "qwen2", "chatml", qwen25_tokens, 0},
    {"chatml/smollm2", "llama", "chatml", smollm2_tokens, 0},
    {"internlm2", "internlm2", "internlm2", internlm2_tokens, 1},
};
#define N_FAMILIES (sizeof families / sizeof *families)

TEST(rendered_as_by_jinja) {
    ckvc_err err = {0};
    json_t *root = golden_read("tests/golden/chat/expected.json");
    size_t n_seen[N_FAMILIES] = {0};
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *c = json_array_get(root, i), *list = json_object_get(c, "messages"),
                     *want = json_object_get(c, "text");
        const char *style = json_string_value(json_object_get(c, "style"));
        size_t f = 0;
        while (f < N_FAMILIES && strcmp(families[f].style, style) != 0) { f++; }
        assert_true(f < N_FAMILIES);
        n_seen[f]++;
        tokenizer *tok = make_tokenizer(families[f].tokens, true);
        chat_template t, named;
        OK(chat_template_choose("auto", families[f].family, tok, &t, &err));
        OK(chat_template_choose(families[f].name, families[f].family, tok, &named, &err));
        assert_true(named.style == t.style && named.system == t.system);
        assert_memory_equal(style, chat_style_name(t.style),
                            strcspn(style, "/") + (strchr(style, '/') == NULL));

        chat_message messages[32];
        const size_t n = json_array_size(list);
        assert_true(n <= 32);
        for (size_t k = 0; k < n; k++) {
            const json_t *m = json_array_get(list, k), *content = json_object_get(m, "content");
            messages[k] = (chat_message){json_string_value(json_object_get(m, "role")),
                                         json_string_value(content), json_string_length(content)};
        }
        char *text;
        size_t size;
        const ckvc_status rc = chat_render(&t, messages, n, &text, &size, &err);
        if (want == NULL) {
            assert_int_equal(rc, CKVC_E_DATA);
            assert_true(text == NULL && strstr(err.text, "message ") != NULL);
        } else {
            OK(rc);
            if (size != json_string_length(want) ||
                memcmp(text, json_string_value(want), size) != 0) {
                fail_msg("%s, case %zu: got\n%s\nwanted\n%s", style, i, text,
                         json_string_value(want));
            }
            int32_t *ids;
            size_t n_ids;
            int n_bos = 0;
            OK(tokenizer_encode(tok, text, size, false, &ids, &n_ids, &err));
            for (size_t k = 0; k < n_ids; k++) { n_bos += ids[k] == 10; }
            assert_int_equal(n_bos, families[f].n_bos);
            assert_true(n_bos == 0 || ids[0] == 10);
            free(ids);
        }
        free(text);
        tokenizer_free(tok);
    }
    for (size_t f = 0; f < N_FAMILIES; f++) { assert_true(n_seen[f] >= 10); }
    json_decref(root);
}

TEST(choices) {
    chat_template t = {.style = CHAT_LLAMA3, .system = "x"};
    chat_message m = {"user", "hello", 5};
    char *text;
    size_t size;
    OK(chat_template_choose("auto", "llama", NULL, &t, &err));
    assert_true(t.style == CHAT_NONE && t.system == NULL);
    OK(chat_template_choose("auto", "mistral", NULL, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    FAILS(chat_render(&t, &m, 1, &text, &size, &err), CKVC_E_DATA);
    assert_non_null(strstr(err.text, "--chat-template"));

    tokenizer *other = make_tokenizer(other_tokens, true),
              *qwen = make_tokenizer(qwen2_tokens, false),
              *llama = make_tokenizer(llama3_tokens, true);
    OK(chat_template_choose("auto", "llama", other, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    /* a family's template that its tokenizer cannot spell is none until somebody names it */
    OK(chat_template_choose("auto", "mistral", other, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    OK(chat_template_choose("auto", "internlm2", qwen, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    FAILS(chat_template_choose("mistral", "mistral", other, &t, &err), CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "</s>"));
    OK(chat_template_choose("none", "llama", llama, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    FAILS(chat_template_choose("llama3", "llama", qwen, &t, &err), CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "<|start_header_id|>"));
    FAILS(chat_template_choose("internlm2", "internlm2", qwen, &t, &err), CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "<s>"));
    FAILS(chat_template_choose("vicuna", "llama", llama, &t, &err), CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "vicuna"));
    /* ChatML of a family whose system message we do not know: none */
    OK(chat_template_choose("chatml", "mistral", qwen, &t, &err));
    assert_true(t.style == CHAT_CHATML && t.system == NULL);
    OK(chat_render(&t, &m, 1, &text, &size, &err));
    assert_string_equal(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    free(text);
    FAILS(chat_render(&t, &m, 0, &text, &size, &err), CKVC_E_DATA);
    assert_null(text);
    tokenizer_free(other);
    tokenizer_free(qwen);
    tokenizer_free(llama);
}

/* A real tokenizer: BOS of a rendered prompt is the id that the tokenizer's own rule would have put
 * there, once. */
TEST(one_bos) {
    char dir[512];
    const char *shared = getenv("CKVC_SHARED");
    snprintf(dir, sizeof dir, "%s/data/tokenizers/mistral-7b-instruct-v0.2",
             shared ? shared : "../shared");
    if (access(dir, R_OK) != 0) {
        printf("skipped: no %s\n", dir);
        skip();
    }
    tokenizer *tok;
    chat_template t;
    OK(load_tokenizer(dir, &tok, &err) != CKVC_OK ||
       chat_template_choose("auto", "mistral", tok, &t, &err));
    assert_int_equal(t.style, CHAT_MISTRAL);
    const chat_message m[] = {
        {"user", "Hello there", 11}, {"assistant", "Hi", 2}, {"user", "Bye", 3}};
    char *text;
    size_t size, n, n_plain, n_bos = 0, n_eos = 0;
    int32_t *ids, *plain;
    OK(chat_render(&t, m, 3, &text, &size, &err));
    OK(tokenizer_encode(tok, text, size, false, &ids, &n, &err));
    OK(tokenizer_encode(tok, "x", 1, true, &plain, &n_plain, &err));
    for (size_t i = 0; i < n; i++) {
        n_bos += ids[i] == 1;
        n_eos += ids[i] == 2;
    }
    assert_true(n_bos == 1 && n_eos == 1 && ids[0] == plain[0]);
    free(ids);
    free(plain);
    free(text);
    tokenizer_free(tok);
}

/* "Today Date" is the template's own until another is given; a template without one refuses it, and
 * so is what could be a marker. */
TEST(dates) {
    const chat_message m = {"user", "a", 1};
    chat_template t;
    char *text;
    size_t size;
    tokenizer *tok = make_tokenizer(llama31_tokens, true),
              *other = make_tokenizer(llama3_tokens, true);
    OK(chat_template_choose("auto", "llama", tok, &t, &err));
    OK(chat_render(&t, &m, 1, &text, &size, &err));
    assert_non_null(strstr(text, "\nToday Date: 26 Jul 2024\n\n<|eot_id|>"));
    free(text);
    OK(chat_template_date(&t, "01 Jan 2025", &err));
    OK(chat_render(&t, &m, 1, &text, &size, &err));
    assert_non_null(strstr(text, "\nToday Date: 01 Jan 2025\n\n<|eot_id|>"));
    free(text);
    const char *const bad[] = {"", "a\nb", "<|eot_id|>", "\xC3\xA9",
                               "12345678901234567890123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(chat_template_date(&t, bad[i], &err), CKVC_E_USAGE);
    }
    OK(chat_template_choose("auto", "llama", other, &t, &err));
    FAILS(chat_template_date(&t, "01 Jan 2025", &err), CKVC_E_USAGE);
    assert_non_null(strstr(err.text, "llama3 writes no date"));
    tokenizer_free(tok);
    tokenizer_free(other);
}

RUN_TESTS(NULL, NULL)
