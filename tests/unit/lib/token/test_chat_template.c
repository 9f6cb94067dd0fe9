/* Chat templates against what jinja2 makes of the families' own templates
 * (tests/golden/chat/README.md), the choice of one by the text that a model states, and BOS: once.
 */
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

/* The families by the names of their templates, which the golden file has, too. */
static const struct {
    const char *style, *tokens[6];
    int n_bos; /* in a rendered prompt */
} families[] = {
    {"llama3", {LLAMA3}, 1},
    {"llama3.1", {LLAMA3}, 1},
    {"mistral", {"<s>", "</s>"}, 1},
    {"mistral-v0.3", {"<s>", "</s>", "[INST]", "[/INST]"}, 1},
    {"chatml/qwen2", {QWEN2}, 0},
    {"chatml/qwen2.5", {QWEN2}, 0},
    {"chatml/smollm2", {QWEN2}, 0},
    {"internlm2", {"<s>", "</s>", "<|im_end|>", "<|im_start|>"}, 1},
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
        chat_template t;
        OK(chat_template_choose(style, tok, &t, &err));
        assert_string_equal(style, chat_style_name(t.style));
        assert_memory_equal(style, chat_style_plan(t.style), strcspn(style, "/"));

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
    chat_template t = {.style = CHAT_LLAMA3};
    chat_message m = {"user", "hello", 5};
    char *text;
    size_t size;
    OK(chat_template_choose("auto", NULL, &t, &err));
    assert_int_equal(t.style, CHAT_NONE);
    SAYS(chat_render(&t, &m, 1, &text, &size, &err), CKVC_E_DATA, "states none");

    enum { OTHER, QWEN, LLAMA };
    tokenizer *tok[] = {make_tokenizer((const char *[]){"<s>", NULL}, true),
                        make_tokenizer((const char *[]){QWEN2, NULL}, false),
                        make_tokenizer((const char *[]){LLAMA3, NULL}, true)};
    static const struct {
        const char *asked;
        int tokenizer;
        const char *wrong; /* NULL: none is chosen */
    } cases[] = {
        /* what tokens there are says nothing of the template */
        {"auto", OTHER, NULL},
        {"auto", QWEN, NULL},
        {"auto", LLAMA, NULL},
        {"none", LLAMA, NULL},
        {"mistral", OTHER, "</s>"},
        {"mistral-v0.3", OTHER, "[INST]"},
        {"llama3", QWEN, "<|start_header_id|>"},
        {"llama3.1", QWEN, "<|start_header_id|>"},
        {"chatml/qwen2", LLAMA, "<|im_start|>"},
        {"internlm2", QWEN, "<s>"},
        {"vicuna", LLAMA, "vicuna"},
        {"unknown", LLAMA, "chatml/qwen2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FAILS(chat_template_choose(cases[i].asked, tok[cases[i].tokenizer], &t, &err),
              cases[i].wrong ? CKVC_E_USAGE : CKVC_OK);
        assert_true(cases[i].wrong ? !!strstr(err.text, cases[i].wrong) : t.style == CHAT_NONE);
    }
    OK(chat_template_choose("chatml", tok[QWEN], &t, &err));
    OK(chat_render(&t, &m, 1, &text, &size, &err));
    assert_string_equal(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    free(text);
    FAILS(chat_render(&t, &m, 0, &text, &size, &err), CKVC_E_DATA);
    assert_null(text);
    for (int i = 0; i < 3; i++) { tokenizer_free(tok[i]); }
}

static char *warned;
static void keep_warning(const char *line) {
    free(warned);
    warned = ckvc_strdup(line);
}

/* What auto takes where a model states `text`, with old replaced by new. */
static chat_style own(const char *text, const char *old, const char *new, const char *bos,
                      const char *eos) {
    const char *at = strstr(text, old);
    assert_non_null(at);
    token_spec *s = ckvc_calloc(1, sizeof *s);
    tokenizer *built;
    chat_template t;
    s->pieces = ckvc_calloc(s->n_pieces = 1, sizeof *s->pieces);
    s->pieces->text = (token_text){ckvc_strdup("a"), 1};
    s->chat_template.bytes = ckvc_format("%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    s->chat_template.size = strlen(s->chat_template.bytes);
    if (bos) { s->bos = (token_text){ckvc_strdup(bos), strlen(bos)}; }
    if (eos) { s->eos = (token_text){ckvc_strdup(eos), strlen(eos)}; }
    OK(tokenizer_build(s, "a tokenizer of the test", &built, &err));
    OK(chat_template_choose("auto", built, &t, &err));
    tokenizer_free(built);
    return t.style;
}

/* The families' own texts: a template is known by all of it, but for white space that writes
 * nothing. */
TEST(known_by_their_text) {
    static const struct {
        const char *file, *bos, *eos;
        chat_style style;
    } texts[] = {
        {"llama3/tokenizer_config.json", "<|begin_of_text|>", "<|eot_id|>", CHAT_LLAMA3},
        {"mistral-7b-instruct-v0.2/tokenizer_config.json", "<s>", "</s>", CHAT_MISTRAL},
        {"internlm2/tokenizer_config.json", "<s>", "</s>", CHAT_INTERNLM2},
        {"qwen2/tokenizer_config.qwen2.json", NULL, "<|im_end|>", CHAT_QWEN2},
        {"qwen2/tokenizer_config.qwen2.5.json", NULL, "<|im_end|>", CHAT_QWEN25},
    };
    enum { MISTRAL = 1, INTERNLM2, QWEN2_OWN, QWEN25, N_TEXTS };
    const char *text[N_TEXTS];
    json_t *config[N_TEXTS];
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *bos = texts[i].bos, *eos = texts[i].eos;
        config[i] = json_load_file(shared_data("tokenizers", texts[i].file),
                                   JSON_DECODE_INT_AS_REAL, NULL); /* 10^30 is among its numbers */
        text[i] = json_string_value(json_object_get(config[i], "chat_template"));
        assert_int_equal(own(text[i], "", "", bos, eos), texts[i].style);
        /* one line end behind all is as none; in front it is written, but before a minus */
        CKVC_AUTO_FREE char *line = ckvc_format(i == QWEN25 ? "%.*s" : "%.*s\n",
                                                (int)strlen(text[i]) - (i == QWEN25), text[i]);
        assert_int_equal(own(line, "", "", bos, eos), texts[i].style);
        assert_int_equal(own(line, "", "\n", bos, eos), i == QWEN25 ? CHAT_QWEN25 : CHAT_UNKNOWN);
        assert_int_equal(own(text[i], "assistant", "Assistant", bos, eos), CHAT_UNKNOWN);
        /* a template that writes bos_token or eos_token writes what the model calls so */
        assert_int_equal(own(text[i], "", "", NULL, eos), bos ? CHAT_UNKNOWN : texts[i].style);
        assert_int_equal(own(text[i], "", "", "<|bos|>", eos), bos ? CHAT_UNKNOWN : texts[i].style);
        assert_int_equal(own(text[i], "", "", bos, "<|end|>"),
                         i == MISTRAL ? CHAT_UNKNOWN : texts[i].style);
    }
    /* white space beside a minus writes nothing; inside of a string, or without a minus, it does */
    assert_int_equal(own(text[QWEN25], "\n    {{-", "\r\n\t{{-", NULL, NULL), CHAT_QWEN25);
    assert_int_equal(own(text[QWEN25], "\n    {{-", "{{-", NULL, NULL), CHAT_QWEN25);
    assert_int_equal(own(text[QWEN25], "You are Qwen, ", "You are Qwen,  ", NULL, NULL),
                     CHAT_UNKNOWN);
    assert_int_equal(own(text[QWEN2_OWN], "{% endif %}", "{% endif %} ", NULL, NULL), CHAT_UNKNOWN);
    assert_int_equal(own(text[QWEN2_OWN], "system\n", "system\n\n", NULL, NULL), CHAT_UNKNOWN);
    /* two that are these with other words */
    assert_int_equal(own(text[QWEN2_OWN], "You are a helpful assistant.",
                         "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
                         NULL, NULL),
                     CHAT_SMOLLM2);
    assert_int_equal(own(text[INTERNLM2], "{{ bos_token }}", "", NULL, NULL), CHAT_CHATML);
    for (size_t i = 0; i < N_TEXTS; i++) { json_decref(config[i]); }
}

/* A folder's and a name that says otherwise: the name is taken, with a warning. */
TEST(a_name_beside_the_known_text) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    chat_template t;
    OK(load_tokenizer(shared_data("tokenizers", "internlm2"), &tok, &err));
    OK(chat_template_choose("auto", tok, &t, &err));
    assert_int_equal(t.style, CHAT_INTERNLM2);
    ckvc_warn_set(keep_warning);
    OK(chat_template_choose("internlm2", tok, &t, &err));
    assert_true(t.style == CHAT_INTERNLM2 && !warned);
    OK(chat_template_choose("mistral", tok, &t, &err));
    assert_true(t.style == CHAT_MISTRAL && strstr(warned, "own template is internlm2"));
    ckvc_warn_set(NULL);
    free(warned);
}

TEST(answers_are_trimmed_as_the_template_trims_them) {
    static const struct {
        chat_style style;
        const char *want;
    } cases[] = {{CHAT_LLAMA3, "a b"}, {CHAT_LLAMA31, "a b"},  {CHAT_MISTRAL3, "a b"},
                 {CHAT_CHATML, NULL},  {CHAT_INTERNLM2, NULL}, {CHAT_MISTRAL, NULL},
                 {CHAT_QWEN25, NULL},  {CHAT_NONE, NULL},      {CHAT_UNKNOWN, NULL}};
    static const char given[] = " \n\xE3\x80\x80"
                                "a b\xC2\xA0\n";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = given, *want = cases[i].want ? cases[i].want : given;
        size_t size = sizeof given - 1;
        chat_answer(&(chat_template){.style = cases[i].style}, &text, &size);
        assert_int_equal(size, strlen(want));
        assert_memory_equal(text, want, size);
    }
}

/* A real tokenizer: BOS of a rendered prompt is the id of the tokenizer's own rule, once. */
TEST(one_bos) {
    const char *dir = shared_data("tokenizers", "mistral-7b-instruct-v0.2");
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    chat_template t;
    OK(load_tokenizer(dir, &tok, &err));
    OK(chat_template_choose("auto", tok, &t, &err));
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
    tokenizer *tok = make_tokenizer((const char *[]){LLAMA3, NULL}, true);
    OK(chat_template_choose("llama3.1", tok, &t, &err));
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
    OK(chat_template_choose("llama3", tok, &t, &err));
    SAYS(chat_template_date(&t, "01 Jan 2025", &err), CKVC_E_USAGE, "llama3 writes no date");
}

RUN_TESTS(NULL, NULL)
