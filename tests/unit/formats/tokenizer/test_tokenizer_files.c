/* Tokenizer files other than tokenizer.json (SentencePiece, tiktoken, vocab.json with merges.txt),
 * the front door that picks one, and published vectors of text and ids. */
#include <limits.h>
#include <sys/stat.h>

#include <time.h>

#include "tests/unit/formats/refusal.h"
#include "tests/unit/golden.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/temp_folder.h"

/* Each test begins with an empty folder. */
static int clear_before(void **state) {
    return temp_folder_remove(state) || mkdir(temp_folder, 0700);
}

static void refuses(const char *said) {
    tokenizer *t;
    SAYS(load_tokenizer(temp_folder, &t, &err), CKVC_E_DATA, said);
    assert_null(t);
}

static void ids_are(const tokenizer *t, const char *text, size_t n_text, bool special, size_t n,
                    const int32_t *want) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n_ids;
    OK(tokenizer_encode(t, text, n_text, special, &ids, &n_ids, &err));
    for (size_t i = 0; i < n_ids || i < n; i++) {
        if (i >= n_ids || i >= n || ids[i] != want[i]) {
            fail_msg("\"%.*s\": id %zu is %d, want %d (%zu ids, want %zu)", (int)n_text, text, i,
                     i < n_ids ? ids[i] : -1, i < n ? want[i] : -1, n_ids, n);
        }
    }
}

static void encodes_to(const char *text, size_t n_text, bool special, size_t n,
                       const int32_t *want) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    OK(load_tokenizer(temp_folder, &t, &err));
    ids_are(t, text, n_text, special, n, want);
}
/* A literal's ids, without and with what begins and ends a text. */
#define ENCODES_AS(text, special, ...)                                                             \
    encodes_to(text, sizeof(text) - 1, special, sizeof((int32_t[]){__VA_ARGS__}) / 4,              \
               (int32_t[]){__VA_ARGS__})
#define ENCODES(text, ...)     ENCODES_AS(text, false, __VA_ARGS__)
#define ENCODES_ALL(text, ...) ENCODES_AS(text, true, __VA_ARGS__)

static void put_config(const char *text) { put_text("tokenizer_config.json", json_of(text)); }

static void refuses_config(const char *text, const char *said) {
    put_config(text);
    refuses(said);
}

static void put_buffer(ckvc_buffer b) {
    write_bytes(in_temp_folder("tokenizer.model"), b.data, b.size);
    ckvc_buffer_fini(&b);
}

static void decodes_to(int32_t id, const char *want) {
    tokenizer *t;
    char *text;
    size_t n;
    OK(load_tokenizer(temp_folder, &t, &err));
    OK(tokenizer_decode(t, &id, 1, false, &text, &n, &err));
    assert_string_equal(text, want);
    free(text), tokenizer_free(t);
}

/* ---- SentencePiece models of our own ---- */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static void put_varint(ckvc_buffer *b, uint64_t v) {
    for (; v >= 0x80; v >>= 7) { ckvc_buffer_u8(b, (uint8_t)(v | 0x80)); }
    ckvc_buffer_u8(b, (uint8_t)v);
}

static void put_field(ckvc_buffer *b, unsigned number, const void *bytes, size_t n) {
    put_varint(b, number << 3 | 2);
    put_varint(b, n);
    ckvc_buffer_append(b, bytes, n);
}

static void put_number(ckvc_buffer *b, unsigned number, uint64_t v) {
    put_varint(b, number << 3);
    put_varint(b, v);
}

static void piece(ckvc_buffer *model, const char *text, size_t n, float score, unsigned type) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    uint8_t bits[4];
    memcpy(bits, &score, sizeof score); /* little-endian, as every machine of ours */
    put_field(&b, 1, text, n);
    put_varint(&b, 2 << 3 | 5);
    ckvc_buffer_append(&b, bits, 4);
    if (type != NORMAL) { put_number(&b, 3, type); }
    put_field(model, 1, b.data, b.size);
}

typedef struct model_options {
    unsigned type; /* 2: BPE */
    bool bytes, suffix, prefix, squeeze, escape, charsmap;
} model_options;

#define MARK "\xE2\x96\x81"

/* 0 <unk>, 1 <s>, 2 </s>, 3 NUL, 4 U+2581, 5 a, 6 b, 7 ab, 8 U+2581 ab, 9 "aba" (user's), bytes. */
static ckvc_buffer small_model(model_options o) {
    ckvc_buffer b = {0}, trainer = {0}, normalizer = {0};
    piece(&b, "<unk>", 5, 0, UNKNOWN);
    piece(&b, "<s>", 3, 0, CONTROL);
    piece(&b, "</s>", 4, 0, CONTROL);
    piece(&b, "\0", 1, -9, NORMAL);
    piece(&b, MARK, 3, -9, NORMAL);
    piece(&b, "a", 1, -9, NORMAL);
    piece(&b, "b", 1, -9, NORMAL);
    piece(&b, "ab", 2, -1, NORMAL);
    piece(&b, MARK "ab", 5, -2, NORMAL);
    piece(&b, "aba", 3, 0, USER);
    for (unsigned i = 0; o.bytes && i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        piece(&b, name, 6, 0, BYTE);
    }
    put_number(&trainer, 3, o.type);
    put_number(&trainer, 24, o.suffix);
    put_number(&trainer, 35, o.bytes);
    put_field(&b, 2, trainer.data, trainer.size);
    put_field(&normalizer, 1, "identity", 8);
    if (o.charsmap) { put_field(&normalizer, 2, "map", 3); }
    put_number(&normalizer, 3, o.prefix);
    put_number(&normalizer, 4, o.squeeze);
    put_number(&normalizer, 5, o.escape);
    put_field(&b, 3, normalizer.data, normalizer.size);
    ckvc_buffer_fini(&trainer), ckvc_buffer_fini(&normalizer);
    return b;
}

static const model_options usual = {2, true, false, true, false, true, false};

static void put_model(model_options o) { put_buffer(small_model(o)); }

TEST(sentencepiece_rules) {
    put_model(usual);
    ENCODES_ALL("ab ab", 1, 8, 8); /* BOS without a config, as LlamaTokenizer */
    ENCODES("ab  ab", 8, 4, 8);
    encodes_to("", 0, false, 0, NULL);
    ENCODES("xaba\0", 4, 10 + 'x', 9, 3); /* bytes, a user-defined piece, a piece that is NUL */
    ENCODES("b</s>ab", 4, 6, 2, 8);       /* special tokens are found, each rest is prefixed */
    model_options o = usual;
    o.squeeze = true;
    put_model(o);
    ENCODES("  ab \xE2\x96\x81  ab " MARK " ", 8, 4, 4, 8);
    encodes_to(" " MARK " ", 5, false, 0, NULL);
    o = usual;
    o.prefix = false;
    put_model(o);
    ENCODES("ab ab", 7, 8);
    o = usual;
    o.bytes = false;
    put_model(o);
    ENCODES("xyab", 4, 0, 7); /* one unknown for a run */
    put_config("{'legacy':false}");
    put_model(usual);
    ENCODES("ab</s>ab", 8, 2, 7);
    ENCODES(" ab", 8);
}

/* Where a folder states its chat template: files before the key, of named ones `default`. */
TEST(chat_template_of_a_folder) {
    static const struct {
        const char *config, *jinja, *more, *want;
    } cases[] = {
        {"{}", NULL, NULL, NULL},
        {"{'chat_template':null}", NULL, NULL, NULL},
        {"{'chat_template':'key'}", NULL, NULL, "key"},
        {"{'chat_template':[{'name':'tool_use','template':'t'},{'name':'default','template':'d'}]}",
         NULL, NULL, "d"},
        {"{'chat_template':[{'name':'tool_use','template':'t'}]}", NULL, NULL, NULL},
        {"{'chat_template':'key'}", "file", NULL, "file"},
        {"{'chat_template':'key'}", "file", "more", "more"},
    };
    put_model(usual);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_config(cases[i].config);
        if (cases[i].jinja) { put_text("chat_template.jinja", cases[i].jinja); }
        if (cases[i].more) {
            assert_int_equal(mkdir(in_temp_folder("additional_chat_templates"), 0700), 0);
            put_text("additional_chat_templates/default.jinja", cases[i].more);
        }
        CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
        OK(load_tokenizer(temp_folder, &t, &err));
        const char *got = tokenizer_spec(t)->chat_template.bytes;
        assert_true(cases[i].want ? got && strcmp(got, cases[i].want) == 0 : !got);
    }
    put_config("{'bos_token':'<x>','eos_token':{'content':'<y>'},'add_bos_token':false}");
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    OK(load_tokenizer(temp_folder, &t, &err));
    assert_string_equal(tokenizer_spec(t)->bos.bytes, "<x>");
    assert_string_equal(tokenizer_spec(t)->eos.bytes, "<y>");
}

TEST(sentencepiece_config) {
    put_model(usual);
    put_config("{'tokenizer_class':'InternLM2Tokenizer','add_bos_token':false}");
    ENCODES_ALL("ab", 8);
    put_config("{'tokenizer_class':'LlamaTokenizer','add_bos_token':true,'bos_token':'</s>',"
               "'add_eos_token':true,'eos_token':{'content':'<s>'}}");
    ENCODES_ALL("ab", 2, 8); /* nothing behind: a prompt goes on */
    /* InternLM2 names tokens on ids that its model has other pieces for */
    put_config("{'added_tokens_decoder':{'9':{'content':'<|x|>','special':true,"
               "'normalized':false},'300':{'content':'<|y|>','special':true,"
               "'normalized':false}}}");
    ENCODES("<|x|>aba<|y|>", 9, 4, 9, 300);
    decodes_to(9, "<|x|>");
    refuses_config("{'tokenizer_class':'T5Tokenizer'}", "\"T5Tokenizer\"");
    refuses_config("{'add_bos_token':true,'bos_token':'<none>'}", "\"<none>\" is not a token");
    refuses_config("{'added_tokens_decoder':{'1x':{'content':'<|x|>'}}}", "the key is no id");
    refuses_config("{'added_tokens_decoder':{'7':{'content':'<s>'}}}", "\"<s>\" has id 1");
    refuses_config("{'added_tokens_decoder':[]}", "want an object");
    refuses_config("{'split_special_tokens':true}", "split_special_tokens");
    refuses_config("[]", "want an object");
    put_config("{}");
    put_text("added_tokens.json", json_of("{'<pad>':266}"));
    refuses("\"<pad>\" is not in added_tokens_decoder");
}

TEST(sentencepiece_refused) {
    const struct {
        model_options o;
        const char *said;
    } cases[] = {{{1, true, false, true, false, true, false}, "UNIGRAM"},
                 {{3, true, false, true, false, true, false}, "WORD"},
                 {{4, true, false, true, false, true, false}, "CHAR"},
                 {{77, true, false, true, false, true, false}, "unknown"},
                 {{2, true, true, true, false, true, false}, "treat_whitespace_as_suffix"},
                 {{2, true, false, true, false, true, true},
                  "normalizer \"identity\" with a character map"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_model(cases[i].o);
        refuses(cases[i].said);
    }
    const struct {
        const char *text;
        size_t n;
        unsigned type;
        const char *said;
    } pieces[] = {{"u", 1, UNUSED, "UNUSED"},
                  {"u", 1, 9, "type 9"},
                  {"u", 1, 0, "type 0"},
                  {"", 0, NORMAL, "is empty"},
                  {"\xC3", 1, NORMAL, "UTF-8"},
                  {"<u>", 3, UNKNOWN, "both of type UNKNOWN"},
                  {"ab", 2, NORMAL, "stands there twice"},
                  {"<0x4>", 5, BYTE, "257 pieces of type BYTE"}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        ckvc_buffer b = small_model(usual);
        piece(&b, pieces[i].text, pieces[i].n, 0, pieces[i].type);
        put_buffer(b);
        refuses(pieces[i].said);
    }
    const struct {
        const char *bytes;
        size_t n;
        const char *said;
    } broken[] = {{"\x0A", 1, "a size that does not end"},
                  {"\x0A\x7F", 2, "longer than what is left"},
                  {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, "longer than what is left"},
                  {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 11, "a size that does not end"},
                  {"\x09\x00", 2, "8 bytes are not there"},
                  {"\x0B", 1, "a group"},
                  {"\x02\x00", 2, "a field number"},
                  {"\x0A\x02\x08\x01", 4, "of another kind"},
                  {"\x08\x01", 2, "of another kind"},
                  {"\x0A\x02\x15\x00", 4, "4 bytes are not there"},
                  {"\x80", 1, "without its number"},
                  {"", 0, "UNIGRAM"}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_bytes(in_temp_folder("tokenizer.model"), broken[i].bytes, broken[i].n);
        refuses(broken[i].said);
    }
}

/* ---- tiktoken ---- */
#define SPECIAL(id, text) "'" id "':{'content':'<|" text "|>','special':true,'normalized':false}"
#define LLAMA3_CONFIG                                                                              \
    "{'bos_token':'<|begin_of_text|>','tokenizer_class':'PreTrainedTokenizerFast',"                \
    "'added_tokens_decoder':{" SPECIAL("300", "begin_of_text") "," SPECIAL(                        \
        "301", "end_of_text") "," SPECIAL("302", "start_header_id") "," SPECIAL("303",             \
                                                                                "eot_id") "}}"

static ckvc_buffer small_ranks(const char *more) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ckvc_buffer b = {0};
    for (unsigned i = 0; i < 256; i++) {
        ckvc_buffer_printf(&b, "%c%c== %u\n", digits[i >> 2], digits[(i & 3) << 4], i);
    }
    ckvc_buffer_text(&b, more);
    return b;
}

TEST(tiktoken_rules) {
    put_config(LLAMA3_CONFIG);
    put_buffer(small_ranks("YmM= 256\nYWI= 257\nYWJj 258\nIGE= 259\n")); /* bc, ab, abc, " a" */
    ENCODES_ALL("abc", 300, 258); /* a whole word that is a piece is not merged */
    ENCODES("abbc", 257, 256);
    ENCODES("abcd", 258, 'd'); /* a bc d, then abc d: the lowest rank goes first */
    ENCODES("\xFF a<|eot_id|>", 0xEF, 0xBF, 0xBD, 259, 303);
    decodes_to(259, " a");
}

TEST(tiktoken_refused) {
    put_buffer(small_ranks(""));
    refuses("names no special tokens");
    put_config("{'added_tokens_decoder':{}}");
    refuses("is read as Llama-3's alone");
    put_config(LLAMA3_CONFIG);
    static const char *const cases[][2] = {{"YWI=\n", ":257: want a piece in base64"},
                                           {"YWI 256\n", "base64"},
                                           {"YW=I 256\n", "base64"},
                                           {"YWJ= 256\n", "base64"},
                                           {"=== 256\n", "base64"},
                                           {"YWI= 256x\n", "base64"},
                                           {"YWI= -1\n", "base64"},
                                           {"YWI= 99999999\n", "base64"},
                                           {" 256\n", "base64"},
                                           {"YWI= 255\n", "id 255 stands for"},
                                           {"YQ== 256\n", "stands there twice"},
                                           {"YWI= 99999999999999999999999999\n", "base64"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_buffer(small_ranks(cases[i][0]));
        refuses(cases[i][1]);
    }
    char longest[4096] = "";
    memset(longest, 'A', 2000);
    strcpy(longest + 2000, " 256\n");
    put_buffer(small_ranks(longest));
    refuses("at most 1024");
    put_text("tokenizer.model", "YQ== 0\n");
    refuses("the byte 0x00 has no piece");
}

/* ---- vocab.json and merges.txt ---- */
#define QWEN2_CONFIG                                                                               \
    "{'tokenizer_class':'Qwen2Tokenizer','bos_token':null,'add_prefix_space':false,"               \
    "'added_tokens_decoder':{" SPECIAL("9", "im_start") "}}"

TEST(vocab_merges_rules) {
    put_config(QWEN2_CONFIG);
    put_text("vocab.json", json_of("{'a':0,'b':1,'ab':2,'\xC3\x83':3,'\xC2\xA9':4,'1':5,'11':6}"));
    put_text("merges.txt", "#version: 0.2\na b\r\n\n1 1");
    ENCODES_ALL("abe\xCC\x81"
                "<|im_start|>11",
                2, 3, 4, 9, 5, 5); /* NFC */
}

/* As many added tokens as are read, which the older file lists from the last to the first: each is
 * looked up, not sought for. */
TEST(many_added_tokens) {
    enum { N = 120000 };
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer config = {0}, older = {0};
    ckvc_buffer_text(&config, "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"added_tokens_decoder\":{");
    for (int i = 0; i < N; i++) {
        ckvc_buffer_printf(&config, "%s\"%d\":{\"content\":\"<|%06d|>\",\"normalized\":false}",
                           i ? "," : "", 3 + i, i);
        ckvc_buffer_printf(&older, "%s\"<|%06d|>\":%d", i ? "," : "{", N - 1 - i, 3 + N - 1 - i);
    }
    ckvc_buffer_text(&config, "}}");
    ckvc_buffer_text(&older, "}");
    put_text("tokenizer_config.json", (char *)config.data);
    put_text("added_tokens.json", (char *)older.data);
    put_text("vocab.json", json_of("{'a':0,'b':1,'ab':2}"));
    put_text("merges.txt", "a b");
    const clock_t start = clock();
    ENCODES_ALL("ab<|119999|>", 2, 3 + N - 1);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 12);
}

/* Marks of Unicode 1 and of Unicode 14: the reference's tables end at Unicode 9. */
TEST(nfc_as_the_reference_has_it) {
    put_config(QWEN2_CONFIG);
    put_text("vocab.json", json_of("{'a':0,'\xC3\x83':3,'\xC2\xA9':4}")); /* U+00E9's bytes */
    put_text("merges.txt", "");
    ENCODES_ALL("e\xCC\x96\xCC\x81", 3, 4); /* U+0316 below, then the acute: they change places */
    /* U+0899 below stays, so nothing composes */
    encodes_to("e\xE0\xA2\x99\xCC\x81", 6, true, 0, NULL);
    ENCODES_ALL("aae\xCC\x81"
                "ae\xCC\x81\xE0\xA2\x99"
                "ae\xCC\x81",
                0, 0, 3, 4, 0, 3, 4, 0, 3, 4);
}

TEST(vocab_merges_refused) {
    put_text("vocab.json", json_of("{'a':0,'b':1,'ab':2}"));
    tokenizer *none;
    FAILS(load_tokenizer(temp_folder, &none, &err), CKVC_E_NOINPUT); /* of merges.txt */
    const struct {
        const char *vocab, *merges, *config, *said;
    } cases[] = {
        {"{'a':0,'b':1,'ab':2}", "a b", NULL, "tokenizer_config.json is needed"},
        {"{'a':0,'b':1,'ab':2}", "a b", "{'tokenizer_class':'GPT2Tokenizer'}", "\"GPT2Tokenizer\""},
        {"{'a':0,'b':1,'ab':2}", "a b", "{}", "\"(none)\""},
        {"[]", "a b", QWEN2_CONFIG, "want an object"},
        {"{'a':0,'b':1,'ab':'2'}", "a b", QWEN2_CONFIG, "\"ab\" has no id"},
        {"{'a':0,'b':1,'ab':2}", "a b\na b", QWEN2_CONFIG, "stands there already"},
        {"{'a':0,'b':1,'ab':2}", "a  b", QWEN2_CONFIG, "merges.txt:1: want two parts"},
        {"{'a':0,'b':1,'ab':2}", "a b\nab", QWEN2_CONFIG, "merges.txt:2: want two parts"},
        {"{'a':0,'b':1,'ab':2}", " b", QWEN2_CONFIG, "want two parts"},
        {"{'a':0,'b':1,'ab':2}", "b a", QWEN2_CONFIG, "\"ba\" is not in the vocabulary"},
        {"{'a':0,'b':1,'ab':2}", "a \xFF", QWEN2_CONFIG, "not UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear_before(NULL);
        put_text("vocab.json", json_of(cases[i].vocab));
        put_text("merges.txt", cases[i].merges);
        if (cases[i].config) { put_config(cases[i].config); }
        refuses(cases[i].said);
    }
}

/* ---- the front door ---- */
TEST(picks_in_order) {
    tokenizer *t;
    FAILS(load_tokenizer(temp_folder, &t, &err), CKVC_E_NOINPUT);
    put_text("vocab.json", "not JSON");
    put_text("merges.txt", "");
    refuses("vocab.json");
    put_text("tokenizer.model", "\x0B");
    refuses("tokenizer.model");
    put_text("tokenizer.json", "not JSON");
    refuses("tokenizer.json");
}

/* ---- published vectors: texts and ids without BOS ---- */
static void check_vectors(const char *vectors, const char *name) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    static int32_t want[1 << 14];
    char path[640], *read[2], *end;
    size_t count = 0;
    tokenizer *t;
    OK(load_tokenizer(temp_folder, &t, &err));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.%s", vectors, name, i ? "out" : "inp");
        read[i] = file_bytes(path, NULL);
    }
    char *lists = read[1];
    for (char *at = read[0]; (end = strstr(at, separator)); at = end + sizeof separator - 1) {
        char *line = strsep(&lists, "\n"), *next;
        size_t n = 0;
        for (long id; id = strtol(line, &next, 10), next != line; line = next) {
            assert_true(n < sizeof want / sizeof *want);
            want[n++] = (int32_t)id;
        }
        assert_int_equal(line[strspn(line, " ")], 0);
        ids_are(t, at, (size_t)(end - at), false, n, want);
        count++;
    }
    assert_true(count >= 40);
    printf("vectors %s: %zu texts\n", name, count);
    free(read[0]), free(read[1]), tokenizer_free(t);
}

TEST(published_vectors) {
    static const struct {
        const char *name, *dir, *files[4]; /* pairs: name there, name in a model directory */
    } sets[] = {
        {"llama-bpe", "llama3", {"tokenizer.model", "tokenizer_config.json"}},
        {"llama-spm", "llama2", {"tokenizer.json", "tokenizer_config.json"}},
        {"llama-spm", "llama2", {"tokenizer.model", "tokenizer_config.json"}},
        {"qwen2", "qwen2", {"vocab.json", "merges.txt", "tokenizer_config.qwen2.json"}},
        {"qwen2", "qwen2", {"vocab.json", "merges.txt", "tokenizer_config.qwen2.5.json"}},
        {"deepseek-r1-qwen",
         "qwen2",
         {"vocab.json", "merges.txt", "tokenizer_config.qwen2.5.json"}},
    };
    CKVC_AUTO_FREE char *vectors = ckvc_strdup(shared_data("tokenizers", "vectors"));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        clear_before(NULL);
        for (size_t k = 0; k < 4 && sets[i].files[k]; k++) {
            const char *file = sets[i].files[k];
            const bool config = strncmp(file, "tokenizer_config", 16) == 0;
            char there[64], target[PATH_MAX];
            snprintf(there, sizeof there, "tokenizers/%s", sets[i].dir);
            /* CKVC_SHARED may be relative, the link lies elsewhere */
            assert_non_null(realpath(shared_data(there, file), target));
            assert_int_equal(
                symlink(target, in_temp_folder(config ? "tokenizer_config.json" : file)), 0);
        }
        check_vectors(vectors, sets[i].name);
    }
    printf("skipped: vectors gpt-2: GPT-2's tokenizer files are not there\n");
    printf("skipped: vectors phi-3: its tokenizer files are not there (its ids are those of "
           "llama-spm)\n");
}

int main(void) {
    before_each = clear_before;
    return unit_run(temp_folder_make, temp_folder_remove);
}
