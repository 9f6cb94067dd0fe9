/* Chat templates against what jinja2 makes of the families' own templates
 * (tests/golden/chat/README.md), the choice of one by the tokens of a tokenizer, and BOS: once. */
#include "lib/token/chat_template.h"
#include "tests/unit/golden.h"
#include "tests/unit/load_tokenizer.h"

/* A tokenizer with a piece a letter and special tokens; BOS, the first of them, is put in front. */
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
    s->prefix_ids = ckvc_copy(&(int32_t){10}, 1, sizeof *s->prefix_ids);
    s->n_prefix = bos;
    OK(tokenizer_build(s, "a tokenizer of the test", &t, &err));
    return t;
}

#define LLAMA3 "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
#define QWEN2  "<|endoftext|>", "<|im_start|>", "<|im_end|>"

/* The families as a tokenizer and a model_type know them; style as the golden file spells it. */
static const struct {
    const char *style, *family, *name, *tokens[6];
    int n_bos; /* in a rendered prompt */
} families[] = {
    {"llama3", "llama", "llama3", {LLAMA3}, 1},
    {"llama3.1", "llama", "llama3", {LLAMA3, "<|eom_id|>"}, 1},
    {"mistral", "mistral", "mistral", {"<s>", "</s>"}, 1},
    {"mistral-v0.3", "mistral", "mistral", {"<s>", "</s>", "[INST]", "[/INST]"}, 1},
    {"chatml/qwen2", "qwen2", "chatml", {QWEN2}, 0},
    {"chatml/qwen2.5", "qwen2", "chatml", {QWEN2, "<tool_call>"}, 0},
    {"chatml/smollm2", "llama", "chatml", {QWEN2, "<repo_name>"}, 0},
    {"internlm2", "internlm2", "internlm2", {"<s>", "</s>", "<|im_end|>", "<|im_start|>"}, 1},
};
#define N_FAMILIES (sizeof families / sizeof *families)

TEST(rendered_as_by_jinja) {
    json_auto_t *root = golden_read("tests/golden/chat/expected.json");
    const json_t *c, *m;
    size_t n_seen[N_FAMILIES] = {0}, i, n;
    json_array_foreach(root, i, c) {
        const json_t *want = json_object_get(c, "text");
        const char *style = json_string_value(json_object_get(c, "style"));
        size_t f = 0;
        while (f < N_FAMILIES && strcmp(families[f].style, style) != 0) { f++; }
        assert_true(f < N_FAMILIES);
        n_seen[f]++;
        CKVC_AUTO(tokenizer_free_at) tokenizer *tok = make_tokenizer(families[f].tokens, true);
        chat_template t, named;
        OK(chat_template_choose("auto", families[f].family, tok, &t, &err));
        OK(chat_template_choose(families[f].name, families[f].family, tok, &named, &err));
        assert_true(named.style == t.style && named.system == t.system);
        assert_memory_equal(style, chat_style_name(t.style),
                            strcspn(style, "/") + (strchr(style, '/') == NULL));

        chat_message messages[32];
        json_array_foreach(json_object_get(c, "messages"), n, m) {
            const json_t *content = json_object_get(m, "content");
            assert_true(n < 32);
            messages[n] = (chat_message){json_string_value(json_object_get(m, "role")),
                                         json_string_value(content), json_string_length(content)};
        }
        CKVC_AUTO_FREE char *text = NULL;
        size_t size;
        FAILS(chat_render(&t, messages, n, &text, &size, &err), want ? CKVC_OK : CKVC_E_DATA);
        if (want == NULL) {
            assert_true(text == NULL && strstr(err.text, "message ") != NULL);
        } else {
            if (size != json_string_length(want) || memcmp(text, json_string_value(want), size)) {
                fail_msg("%s, case %zu: got\n%s\nwanted\n%s", style, i, text,
                         json_string_value(want));
            }
            CKVC_AUTO_FREE int32_t *ids = NULL;
            size_t n_ids;
            int n_bos = 0;
            OK(tokenizer_encode(tok, text, size, false, &ids, &n_ids, &err));
            for (size_t k = 0; k < n_ids; k++) { n_bos += ids[k] == 10; }
            assert_int_equal(n_bos, families[f].n_bos);
            assert_true(n_bos == 0 || ids[0] == 10);
        }
    }
    for (size_t f = 0; f < N_FAMILIES; f++) { assert_true(n_seen[f] >= 10); }
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
    SAYS(chat_render(&t, &m, 1, &text, &size, &err), CKVC_E_DATA, "--chat-template");

    enum { OTHER, QWEN, LLAMA };
    tokenizer *tok[] = {make_tokenizer((const char *[]){"<s>", NULL}, true),
                        make_tokenizer((const char *[]){QWEN2, NULL}, false),
                        make_tokenizer((const char *[]){LLAMA3, NULL}, true)};
    static const struct {
        const char *asked, *family;
        int tokenizer;
        const char *wrong; /* NULL: none is chosen */
    } cases[] = {
        {"auto", "llama", OTHER, NULL},
        /* a family's template that its tokenizer cannot spell is none until somebody names it */
        {"auto", "mistral", OTHER, NULL},
        {"auto", "internlm2", QWEN, NULL},
        {"none", "llama", LLAMA, NULL},
        {"mistral", "mistral", OTHER, "</s>"},
        {"llama3", "llama", QWEN, "<|start_header_id|>"},
        {"internlm2", "internlm2", QWEN, "<s>"},
        {"vicuna", "llama", LLAMA, "vicuna"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FAILS(chat_template_choose(cases[i].asked, cases[i].family, tok[cases[i].tokenizer], &t,
                                   &err),
              cases[i].wrong ? CKVC_E_USAGE : CKVC_OK);
        assert_true(cases[i].wrong ? !!strstr(err.text, cases[i].wrong) : t.style == CHAT_NONE);
    }
    /* ChatML of a family whose system message we do not know: none */
    OK(chat_template_choose("chatml", "mistral", tok[QWEN], &t, &err));
    assert_true(t.style == CHAT_CHATML && t.system == NULL);
    OK(chat_render(&t, &m, 1, &text, &size, &err));
    assert_string_equal(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    free(text);
    FAILS(chat_render(&t, &m, 0, &text, &size, &err), CKVC_E_DATA);
    assert_null(text);
    for (int i = 0; i < 3; i++) { tokenizer_free(tok[i]); }
}

/* A real tokenizer: BOS of a rendered prompt is the id of the tokenizer's own rule, once. */
TEST(one_bos) {
    const char *dir = shared_data("tokenizers", "mistral-7b-instruct-v0.2");
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    chat_template t;
    OK(load_tokenizer(dir, &tok, &err));
    OK(chat_template_choose("auto", "mistral", tok, &t, &err));
    assert_int_equal(t.style, CHAT_MISTRAL);
    const chat_message m[] = {
        {"user", "Hello there", 11}, {"assistant", "Hi", 2}, {"user", "Bye", 3}};
    CKVC_AUTO_FREE char *text = NULL;
    size_t size, n, n_plain, n_bos = 0, n_eos = 0;
    CKVC_AUTO_FREE int32_t *ids = NULL, *plain = NULL;
    OK(chat_render(&t, m, 3, &text, &size, &err));
    OK(tokenizer_encode(tok, text, size, false, &ids, &n, &err));
    OK(tokenizer_encode(tok, "x", 1, true, &plain, &n_plain, &err));
    for (size_t i = 0; i < n; i++) {
        n_bos += ids[i] == 1;
        n_eos += ids[i] == 2;
    }
    assert_true(n_bos == 1 && n_eos == 1 && ids[0] == plain[0]);
}

/* "Today Date" is the template's own until one is given, which a template without one refuses. */
TEST(dates) {
    const chat_message m = {"user", "a", 1};
    chat_template t;
    char *text;
    size_t size;
    CKVC_AUTO(tokenizer_free_at)
    tokenizer *tok = make_tokenizer((const char *[]){LLAMA3, "<|eom_id|>", NULL}, true),
              *other = make_tokenizer((const char *[]){LLAMA3, NULL}, true);
    OK(chat_template_choose("auto", "llama", tok, &t, &err));
    for (int given = 0; given < 2; given++) {
        if (given) { OK(chat_template_date(&t, "01 Jan 2025", &err)); }
        OK(chat_render(&t, &m, 1, &text, &size, &err));
        assert_non_null(strstr(text, given ? "\nToday Date: 01 Jan 2025\n\n<|eot_id|>"
                                           : "\nToday Date: 26 Jul 2024\n\n<|eot_id|>"));
        free(text);
    }
    const char *const bad[] = {"", "a\nb", "<|eot_id|>", "\xC3\xA9",
                               "12345678901234567890123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(chat_template_date(&t, bad[i], &err), CKVC_E_USAGE);
    }
    OK(chat_template_choose("auto", "llama", other, &t, &err));
    SAYS(chat_template_date(&t, "01 Jan 2025", &err), CKVC_E_USAGE, "llama3 writes no date");
}

RUN_TESTS(NULL, NULL)
