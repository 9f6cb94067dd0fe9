/* Tokenizers against ids that Hugging Face tokenizers gave (tests/golden/tokenizer), hostile
 * tokenizer.json files, and the limits that keep bad patterns and long words from hanging. */
#include <unistd.h>

#include "lib/base/json.h"
#include "lib/base/files.h"
#include "lib/base/progress.h"
#include "lib/base/utf8.h"
#include "lib/token/tokenizer.h"
#include "tests/unit/golden.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

/* ---- golden ---- */
static size_t from_hex(const json_t *v, char **out) {
    const char *hex = json_string_value(v);
    size_t n = strlen(hex) / 2;
    *out = malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        (*out)[i] = (char)byte;
    }
    (*out)[n] = '\0';
    return n;
}

static void check_golden(const char *dir, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/tokenizer/%s.json", name);
    json_t *golden = golden_read(path);
    tokenizer *t;
    OK(load_tokenizer(dir, &t, &err));
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const json_t *entry = json_array_get(golden, i), *want = json_object_get(entry, "ids");
        char *text, *want_text, *got_text;
        int32_t *ids;
        size_t n = from_hex(json_object_get(entry, "hex"), &text), n_ids, size;
        OK(tokenizer_encode(t, text, n, true, &ids, &n_ids, &err));
        if (n_ids != json_array_size(want)) {
            fail_msg("%s: text %zu: %zu ids, want %zu", name, i, n_ids, json_array_size(want));
        }
        for (size_t k = 0; k < n_ids; k++) {
            if (ids[k] != json_integer_value(json_array_get(want, k))) {
                fail_msg("%s: text %zu: id %zu is %d, want %lld", name, i, k, ids[k],
                         json_integer_value(json_array_get(want, k)));
            }
        }
        for (int skip = 0; skip < 2; skip++) {
            size_t want_size =
                from_hex(json_object_get(entry, skip ? "plain" : "text"), &want_text);
            OK(tokenizer_decode(t, ids, n_ids, skip, &got_text, &size, &err));
            if (size != want_size || memcmp(got_text, want_text, size) != 0) {
                fail_msg("%s: text %zu decodes to \"%s\", want \"%s\"", name, i, got_text,
                         want_text);
            }
            free(want_text);
            free(got_text);
        }
        free(ids);
        free(text);
    }
    tokenizer_free(t);
    json_decref(golden);
}

TEST(embedded_model) { check_golden("models/ckvc-tiny-8l", "ckvc-tiny-8l"); }

static void shared_tokenizer(const char *below, const char *name) {
    const char *shared = getenv("CKVC_SHARED");
    char dir[512];
    snprintf(dir, sizeof dir, "%s/data/%s/%s", shared ? shared : "../shared", below, name);
    if (!ckvc_is_dir(dir)) {
        printf("skipped: %s is not there (CKVC_SHARED)\n", dir);
        skip();
    }
    check_golden(dir, name);
}

TEST(metaspace_tinystories) { shared_tokenizer("models", "tinystories-656k"); }
TEST(metaspace_llama2) { shared_tokenizer("tokenizers", "llama2"); }
TEST(metaspace_mistral) { shared_tokenizer("tokenizers", "mistral-7b-instruct-v0.2"); }

/* ---- small tokenizers of our own ---- */
#define HEAD "{\"version\":\"1.0\",\"added_tokens\":[],"
#define BYTE_LEVEL                                                                                 \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"   \
    "\"decoder\":{\"type\":"                                                                       \
    "\"ByteLevel\"},"
#define SPELLED "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}]},"
#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aab\":3},\"merges\":[\"a "  \
    "b\",[\"a\",\"ab\"]]}}"

static void encodes_to(const char *json, const char *text, bool special, size_t n,
                       const int32_t *want) {
    tokenizer *t;
    put_text("tokenizer.json", json);
    OK(load_tokenizer(temp_folder, &t, &err));
    int32_t *ids;
    size_t n_ids;
    OK(tokenizer_encode(t, text, strlen(text), special, &ids, &n_ids, &err));
    assert_int_equal(n_ids, n);
    for (size_t i = 0; i < n; i++) { assert_int_equal(ids[i], want[i]); }
    free(ids);
    tokenizer_free(t);
}

TEST(both_merge_spellings) {
    encodes_to(HEAD BYTE_LEVEL MODEL, "aababb", true, 3, (const int32_t[]){3, 2, 1});
}

TEST(added_tokens_and_flags) {
    const char *json = "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"lstrip\":true,"
                       "\"rstrip\":true,\"normalized\":false,\"special\":true},"
                       "{\"id\":10,\"content\":\"<xy>\",\"normalized\":false},{\"id\":11,"
                       "\"content\":\"bb\",\"single_word\":true,\"normalized\":"
                       "false}],"
                       "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                       "\"SpecialToken\":{\"id\":\"<x>\",\"type_id\":0}},"
                       "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<x>\":{"
                       "\"id\":\"<x>\",\"ids\":[9],\"tokens\":[\"<x>\"]}"
                       "}}," BYTE_LEVEL MODEL;
    encodes_to(json, "a  <x> \nb<xy>bb abb", true, 8,
               (const int32_t[]){9, 0, 9, 1, 10, 11, 2, 1}); /* ' ' has no piece: dropped */
    encodes_to(json, "<xy", false, 0, NULL);
    /* a circled letter and U+1F189 are letters to \w, a circled digit is none */
    encodes_to(json, "\u24B6bb \U0001F189bb \u2460bb", false, 5, (const int32_t[]){1, 1, 1, 1, 11});
}

TEST(config_decides_for_llama_classes) {
    const char *json = "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"normalized\":false,"
                       "\"special\":true}]," SPELLED MODEL;
    put_text("tokenizer_config.json",
             "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,"
             "\"bos_token\":{\"content\":\"<s>\"},"
             "\"model_max_length\":1000000000000000019884624838656}");
    encodes_to(json, "ab", true, 2, (const int32_t[]){9, 2});
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_"
                                      "token\":true,\"bos_token\":\"<s>\"}");
    encodes_to(json, "ab", true, 1, (const int32_t[]){2});
    put_text("tokenizer_config.json", "{}");
}

TEST(normalizers) {
    encodes_to("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{"
               "\"type\":\"Replace\",\"pattern\":{"
               "\"String\":\"\xC3\xA9\"},"
               "\"content\":\"b\"},{\"type\":\"Prepend\",\"prepend\":\"a\"}]}," SPELLED MODEL,
               "ae\xCC\x81", true, 1, (const int32_t[]){3}); /* a e U+0301 -> a é -> a b -> aab */
}

#define METASPACE(rest)                                                                            \
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"normalized\":false}],\"pre_tokenizer\":{"  \
    "\"type\":\"Metaspace\","                                                                      \
    "\"replacement\":\"\xE2\x96\x81\"" rest "}," SPELLED                                           \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xE2\x96\x81\":1,\"\xE2\x96\x81"             \
    "a\":2,\"a\xE2\x96\x81\":3},\"merges\":[\"a \xE2\x96\x81\",\"\xE2\x96\x81 a\"]}}"

/* Mistral v0.3 has it; the merge a+U+2581 shows whether words end before U+2581. */
TEST(metaspace_schemes) {
    encodes_to(METASPACE(",\"prepend_scheme\":\"first\",\"split\":false"), "a a<x>a", true, 5,
               (const int32_t[]){1, 3, 0, 9, 0});
    encodes_to(METASPACE(",\"prepend_scheme\":\"first\",\"split\":true"), "a a<x>a", true, 4,
               (const int32_t[]){2, 2, 9, 0});
    encodes_to(METASPACE(",\"prepend_scheme\":\"always\",\"split\":true"), "a  a<x>a", true, 5,
               (const int32_t[]){2, 1, 2, 9, 2});
    encodes_to(METASPACE(",\"prepend_scheme\":\"never\",\"split\":true"), "a a<x>a", true, 4,
               (const int32_t[]){0, 2, 9, 0});
    encodes_to(METASPACE(",\"prepend_scheme\":\"first\""), " a", true, 1,
               (const int32_t[]){2}); /* the prefix is there already */
    encodes_to(METASPACE(",\"add_prefix_space\":true"), "a<x>a", true, 3,
               (const int32_t[]){2, 9, 2});
    encodes_to(METASPACE(",\"add_prefix_space\":false"), "a", true, 1, (const int32_t[]){0});
    encodes_to(METASPACE(""), "", true, 0, NULL);
}

/* ---- hostile files ---- */
static void refuses(const char *json, const char *said) {
    tokenizer *t;
    ckvc_err err;
    put_text("tokenizer.json", json);
    ckvc_status status = load_tokenizer(temp_folder, &t, &err);
    if (status != CKVC_E_DATA || !strstr(err.text, said) || strchr(err.text, '\n')) {
        fail_msg("want \"%s\", got status %d: %s", said, status, err.text);
    }
    assert_null(t);
}

#define WITH_MODEL(fields) HEAD BYTE_LEVEL "\"model\":{\"type\":\"BPE\"," fields "}}"
#define WITH(part)         "{" part "," BYTE_LEVEL MODEL

TEST(hostile_files) {
    refuses("", "not valid JSON");
    refuses("[]", "want an object");
    refuses("{\"model\":", "not valid JSON");
    refuses("{\"surprise\":1," BYTE_LEVEL MODEL, "\"surprise\" is not supported");
    refuses(HEAD "\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram");
    refuses(HEAD "\"model\":{\"type\":\"WordPiece\"}}", "WordPiece");
    refuses(WITH_MODEL("\"vocab\":{},\"merges\":[]"), "model.vocab is empty");
    refuses(WITH_MODEL("\"vocab\":[],\"merges\":[]"), "model.vocab is an array");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), "duplicate");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "id 0 stands for");
    refuses(WITH_MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), "whole number");
    refuses(WITH_MODEL("\"vocab\":{\"a\":2000000000},\"merges\":[]"), "want 0 ...");
    refuses(WITH_MODEL("\"vocab\":{\"a\":99999999999999999999},\"merges\":[]"), "not valid JSON");
    refuses(WITH_MODEL("\"vocab\":{\"a\\u0000\":0},\"merges\":[]"), "not valid JSON");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]"),
            "the joined piece \"ab\" is not in the vocabulary");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0,\"ab\":1},\"merges\":[\"a b\"]"),
            "model.merges[0]: \"a b\": right part \"b\"");
    refuses(WITH_MODEL("\"vocab\":{\"b\":0,\"ab\":1},\"merges\":[\"a b\"]"), "left part \"a\"");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\",[\"a\",\"b\"]]"),
            "stands there already");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[\"ab\"]"), "want two parts");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]"), "want two parts");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[\" a\"]"), "left part is empty");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), "model.merges[0] is an array");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[7]"), "model.merges[0] is a whole number");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"?\""), "unk_token \"?\"");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1"), "dropout");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\""),
            "end_of_word_suffix");
    refuses(WITH_MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":1"), "want true or false");
    refuses(
        HEAD SPELLED
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}}",
        "ByteFallback");
    refuses(HEAD "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{"
                 "\"type\":\"Fuse\"}]},"
                 "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0xZZ>\":0},"
                 "\"merges\":[]}}",
            "\"<0xZZ>\" is not a byte");
    refuses(HEAD "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{"
                 "\"type\":\"Fuse\"}]},"
                 "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0x-1>\":0},"
                 "\"merges\":[]}}",
            "\"<0x-1>\" is not a byte");
    refuses(WITH("\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]"), "model.vocab gives it 0");
    refuses(WITH("\"added_tokens\":[{\"id\":1,\"content\":\"<s>\"}]"), "stands for another token");
    refuses(
        WITH("\"added_tokens\":[{\"id\":8,\"content\":\"<s>\"},{\"id\":9,\"content\":\"<s>\"}]"),
        "over again");
    refuses(
        WITH("\"added_tokens\":[{\"id\":8,\"content\":\"<s>\"},{\"id\":8,\"content\":\"<t>\"}]"),
        "stands for another token");
    refuses(WITH("\"added_tokens\":[{\"id\":8,\"content\":\"\"}]"), "content is empty");
    refuses(WITH("\"added_tokens\":[{\"content\":\"x\"}]"), "added_tokens[0].id is nothing");
    refuses(WITH("\"added_tokens\":7"), "want an array");
    refuses(WITH("\"normalizer\":{\"type\":\"Lowercase\"}"), "normalizer: type \"Lowercase\"");
    refuses(WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"}]}"),
            "normalizer[0]: type \"NFKC\"");
    refuses(
        WITH(
            "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"\"}"),
        "Replace of a Regex");
    refuses(
        WITH(
            "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
        "empty text");
    refuses(WITH("\"post_processor\":{\"type\":\"BertProcessing\"}"), "BertProcessing");
    refuses(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"),
            "no Sequence A");
    refuses(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                 "\"SpecialToken\":{\"id\":\"x\"}}]}"),
            "no ids for \"x\"");
    refuses(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                 "\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{"
                 "\"id\":\"A\"}}],"
                 "\"special_tokens\":{\"x\":{\"ids\":[77]}}}"),
            "id 77 is not in the vocabulary");
    refuses("{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," SPELLED MODEL,
            "pre_tokenizer is nothing; want a string");
    refuses("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," SPELLED MODEL,
            "want U+2581");
    refuses("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_"
            "scheme\":\"last\"}," SPELLED MODEL,
            "never, first and always");
    refuses("{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," SPELLED MODEL, "Whitespace");
    refuses("{" SPELLED "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," MODEL, "does not belong");
    refuses("{\"decoder\":{\"type\":\"WordPiece\"}," MODEL, "WordPiece");
}

#define WITH_REGEX(regex)                                                                          \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex                       \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}," SPELLED MODEL

TEST(hostile_patterns) {
    refuses(WITH_REGEX("(a"), "pattern 0: character 2");
    refuses(WITH_REGEX("[a"), "pattern 0");
    refuses(WITH_REGEX("a{9999999}"), "pattern 0");
    refuses(WITH_REGEX("((((a{1,99}){1,99}){1,99}){1,99}){1,99}"), "pattern 0");
    refuses(WITH_REGEX("\\\\h+"), "not supported");
    refuses(WITH_REGEX("[\\\\w]+"), "\\w, \\W and \\X are not supported");
    refuses(WITH_REGEX("[[:alpha:]]+"), "[:name:]");
    refuses(WITH_REGEX("\\\\x{61}+a{1,2}+b"), "character 12: {n,m}+");
    refuses(WITH_REGEX("a{,2}"), "character 1: {,n}");
    refuses(WITH_REGEX("(?im:a.b)"), "character 0: the option m");
    refuses(WITH_REGEX("\\\\p{Han}"), "general categories");
    refuses(WITH_REGEX("[a[b]]"), "set inside a set");
    refuses(WITH_REGEX("(*LIMIT_MATCH=9)a"), "(*VERB)");
    refuses("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
            "\"Removed\"}," SPELLED MODEL,
            "\"Removed\"");
    refuses("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
            "\"Isolated\"}," SPELLED MODEL,
            "not a Regex");
}

/* U+180E is no white space to Oniguruma, inside of sets and out; tokenizers 0.23.3. */
TEST(white_space_of_patterns) {
    const char *const spaces[] = {"\\\\s", "[\\\\s]", "[^\\\\S]"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        char json[600];
        snprintf(
            json, sizeof json,
            "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
            "\"behavior\":\"Isolated\"}," SPELLED
            "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\" \":1,\"\xE1\xA0\x8E\":2,"
            "\"a \":3,\"a\xE1\xA0\x8E\":4},\"merges\":[[\"a\",\" \"],[\"a\",\"\xE1\xA0\x8E\"]]}}",
            spaces[i]);
        encodes_to(json, "a a\xE1\xA0\x8E", false, 3, (const int32_t[]){0, 1, 4});
    }
}

/* Exponential patterns end in an error, and soon. */
TEST(catastrophic_patterns) {
    const char *const patterns[] = {WITH_REGEX("(a+)+$b"), WITH_REGEX("(a|aa)+c"),
                                    WITH_REGEX("(a*)*d"), WITH_REGEX("((a?){30}){30}e")};
    char text[4001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        put_text("tokenizer.json", patterns[i]);
        tokenizer *t;
        ckvc_err err;
        OK(load_tokenizer(temp_folder, &t, &err));
        int32_t *ids;
        size_t n;
        double start = ckvc_now_s();
        ckvc_status status = tokenizer_encode(t, text, sizeof text - 1, true, &ids, &n, &err);
        assert_true(ckvc_now_s() - start < 30.0);
        if (status != CKVC_OK) {
            assert_int_equal(status, CKVC_E_DATA);
            assert_non_null(strstr(err.text, "takes too long"));
        }
        free(ids);
        tokenizer_free(t);
    }
}

/* A word of a million symbols that all merge: quadratic work would take hours. */
TEST(long_words) {
    enum { N = 1000000 };
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) { text[i] = "aab"[i % 3]; }
    put_text("tokenizer.json", HEAD BYTE_LEVEL MODEL);
    tokenizer *t;
    int32_t *ids;
    size_t n;
    OK(load_tokenizer(temp_folder, &t, &err));
    double start = ckvc_now_s();
    OK(tokenizer_encode(t, text, N, true, &ids, &n, &err));
    assert_true(ckvc_now_s() - start < 20.0);
    assert_int_equal(n, N / 3 + 1);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[n - 1], 0);
    free(ids);
    free(text);
    tokenizer_free(t);
}

/* Encodes n bytes with the tokenizer.json given; the seconds that it took. *status and err say how
 * it went. */
static double encode_timed(const char *file, const char *text, size_t n, ckvc_status *status,
                           ckvc_err *err) {
    tokenizer *t;
    int32_t *ids;
    size_t n_ids;
    put_text("tokenizer.json", file);
    *err = (ckvc_err){0};
    if (load_tokenizer(temp_folder, &t, err) != CKVC_OK) { fail_msg("%s", err->text); }
    const double start = ckvc_now_s();
    *status = tokenizer_encode(t, text, n, false, &ids, &n_ids, err);
    const double seconds = ckvc_now_s() - start;
    free(ids);
    tokenizer_free(t);
    return seconds;
}

/* Files whose cost per byte of text would be what they say: an added token that nearly fits at
 * every place, rules that each double the text, a prefix longer than the text. Each ends soon, with
 * an error that names the part. */
TEST(greedy_files) {
    enum { N = 200000, LONG = 20000 };
    static char text[N];
    ckvc_err err;
    ckvc_status status;
    ckvc_buffer file = {0};
    memset(text, 'a', N);
    ckvc_buffer_text(&file, "{\"added_tokens\":[{\"id\":9,\"content\":\"");
    for (int i = 0; i < LONG; i++) { ckvc_buffer_text(&file, "a"); }
    ckvc_buffer_text(&file, "!\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                            "\"normalized\":false,\"special\":true}]," BYTE_LEVEL MODEL);
    assert_true(encode_timed((char *)file.data, text, N, &status, &err) <
                30.0); /* to the end it would be 4e9 steps */
    assert_int_equal(status, CKVC_E_DATA);
    assert_non_null(strstr(err.text, "added_tokens"));
    ckvc_buffer_fini(&file);

    file = (ckvc_buffer){0};
    ckvc_buffer_text(&file, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 40; i++) {
        ckvc_buffer_printf(
            &file, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}",
            i ? "," : "");
    }
    ckvc_buffer_text(&file, "]}," BYTE_LEVEL MODEL);
    assert_true(encode_timed((char *)file.data, text, 100, &status, &err) < 10.0); /* 10^14 bytes */
    assert_int_equal(status, CKVC_E_DATA);
    assert_non_null(strstr(err.text, "grows too much"));
    ckvc_buffer_fini(&file);

    file = (ckvc_buffer){0};
    ckvc_buffer_text(&file, "{\"added_tokens\":[{\"id\":9,\"content\":\"!\",\"single_word\":false,"
                            "\"lstrip\":false,\"rstrip\":false,"
                            "\"normalized\":false,\"special\":true}],\"normalizer\":{\"type\":"
                            "\"Prepend\",\"prepend\":\"");
    for (int i = 0; i < LONG; i++) { ckvc_buffer_text(&file, "b"); }
    ckvc_buffer_text(&file, "\"}," BYTE_LEVEL MODEL);
    for (int i = 1; i < N; i += 2) { text[i] = '!'; }
    assert_true(encode_timed((char *)file.data, text, N, &status, &err) <
                10.0); /* a prefix of 20,000 bytes at 100,000 places */
    assert_int_equal(status, CKVC_E_DATA);
    assert_non_null(strstr(err.text, "grows too much"));
    ckvc_buffer_fini(&file);
}

/* A text of marks in the wrong order: sorting them by exchanging neighbours would take 10^10 steps.
 */
TEST(marks_out_of_order) {
    enum { N = 100000 };
    char *text = malloc(1 + 4 * N);
    tokenizer *t;
    int32_t *ids;
    size_t n;
    text[0] = 'a';
    for (size_t i = 0; i < N; i++) { /* U+0315, class 232, and U+0327, class 202 */
        memcpy(text + 1 + 4 * i, "\xCC\x95\xCC\xA7", 4);
    }
    put_text("tokenizer.json",
             "{\"normalizer\":{\"type\":\"NFC\"}," BYTE_LEVEL
             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\u00CC\":1,\"\u0137\":"
             "2,\"\u00A7\":3},\"merges\":[]}}");
    OK(load_tokenizer(temp_folder, &t, &err));
    const double start = ckvc_now_s();
    OK(tokenizer_encode(t, text, 1 + 4 * N, false, &ids, &n, &err));
    assert_true(ckvc_now_s() - start < 10.0);
    assert_int_equal(n, 1 + 4 * N);
    for (size_t i = 0; i < 2 * N; i++) { /* all of the lower class first */
        assert_int_equal(ids[1 + 2 * i], 1);
        assert_int_equal(ids[2 + 2 * i], i < N ? 3 : 2);
    }
    free(ids);
    free(text);
    tokenizer_free(t);
}

/* As tokenizers 0.23.3 decodes them: hexadecimal digits, or a plus and one. */
TEST(byte_pieces_and_what_looks_like_them) {
    tokenizer *t;
    char *text;
    size_t n;
    put_text("tokenizer.json",
             "{\"added_tokens\":[{\"id\":1,\"content\":\"<0x+5>\"},{\"id\":2,\"content\":"
             "\"<0x\\t5>\"},{\"id\":3,\"content\":\"<0x-5>\"},{\"id\":4,\"content\":\"<0x4a>\"}],"
             "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
             "{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
             "\"vocab\":{\"a\":0},\"merges\":[]}}");
    OK(load_tokenizer(temp_folder, &t, &err));
    OK(tokenizer_decode(t, (const int32_t[]){1, 2, 3, 4, 0}, 5, false, &text, &n, &err));
    assert_string_equal(text, "\x05<0x\t5><0x-5>Ja");
    free(text);
    tokenizer_free(t);
}

TEST(decode_refuses_unknown_ids) {
    tokenizer *t;
    put_text("tokenizer.json", HEAD BYTE_LEVEL
             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":5},\"merges\":[]}}"); /* a gap */
    OK(load_tokenizer(temp_folder, &t, &err));
    assert_int_equal(tokenizer_vocab_size(t), 6);
    const int32_t bad[] = {-1, 3, 6, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        char *text;
        size_t n;
        FAILS(tokenizer_decode(t, &bad[i], 1, false, &text, &n, &err), CKVC_E_DATA);
    }
    tokenizer_free(t);
}

/* Pieces and what is put around a text need a row each; an added token needs one when it is met. */
TEST(fits_a_vocabulary) {
    static const char added[] =
        "{\"added_tokens\":[{\"id\":7,\"content\":\"<x>\"}]," BYTE_LEVEL MODEL;
    static const char around[] =
        "{\"added_tokens\":[{\"id\":7,\"content\":\"<x>\"}],\"post_processor\":{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{"
        "\"id\":\"<x>\"}}],\"special_tokens\":{\"<x>\":{\"ids\":[7]}}}," BYTE_LEVEL MODEL;
    static const struct {
        const char *file;
        int32_t vocab;
        const char *wrong; /* NULL: it fits */
    } cases[] = {{HEAD BYTE_LEVEL MODEL, 4, NULL},
                 {HEAD BYTE_LEVEL MODEL, 5, NULL},
                 {HEAD BYTE_LEVEL MODEL, 3, "model.vocab: id 3, but"},
                 {added, 4, NULL},
                 {added, 3, "embeddings for ids 0 to 2;"},
                 {around, 8, NULL},
                 {around, 7, "post_processor: id 7, but"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
        ckvc_err err = {0};
        put_text("tokenizer.json", cases[i].file);
        OK(load_tokenizer(temp_folder, &t, &err));
        assert_int_equal(tokenizer_fits(t, cases[i].vocab, &err),
                         cases[i].wrong ? CKVC_E_DATA : CKVC_OK);
        if (cases[i].wrong) { assert_non_null(strstr(err.text, cases[i].wrong)); }
    }
}

TEST(missing_file) {
    tokenizer *t;
    FAILS(load_tokenizer("/nonexistent-folder", &t, &err), CKVC_E_NOINPUT);
}

TEST(fingerprint_follows_what_decides_ids) {
    tokenizer *a, *b;
    put_text("tokenizer.json", HEAD BYTE_LEVEL MODEL);
    OK(load_tokenizer(temp_folder, &a, &err));
    put_text("tokenizer.json",
             "{" BYTE_LEVEL "\"model\":{\"merges\":[[\"a\",\"b\"],\"a "
             "ab\"],\"vocab\":{\"aab\":3,\"ab\":2,\"b\":1,\"a\":0},\"type\":\"BPE\"}}");
    OK(load_tokenizer(temp_folder, &b, &err));
    assert_string_equal(tokenizer_fingerprint(a), tokenizer_fingerprint(b));
    tokenizer_free(b);
    put_text("tokenizer.json", HEAD BYTE_LEVEL "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,"
                                               "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aab\":3},"
                                               "\"merges\":[\"a b\",[\"a\",\"ab\"]]}}");
    OK(load_tokenizer(temp_folder, &b, &err));
    assert_string_not_equal(tokenizer_fingerprint(a), tokenizer_fingerprint(b));
    tokenizer_free(a);
    tokenizer_free(b);
}

TEST(utf8_steps) {
    assert_int_equal(ckvc_utf8_check("abc\xE2\x82\xAC", 6), 6);
    assert_int_equal(ckvc_utf8_check("abcdefgh\xC0\x80", 10), 8);
    assert_int_equal(ckvc_utf8_check("\xED\xA0\x80", 3), 0);
    assert_true(ckvc_utf8_is_line("caf\xC3\xA9", 5) && ckvc_utf8_is_line("", 0));
    assert_false(ckvc_utf8_is_line("a\tb", 3) || ckvc_utf8_is_line("a\0b", 3) ||
                 ckvc_utf8_is_line("a\x7F", 2) || ckvc_utf8_is_line("\xC0\x80", 2));
    assert_int_equal(ckvc_utf8_floor("a\xE2\x82\xAC", 3), 1);
    assert_int_equal(ckvc_utf8_floor("a\xE2\x82\xAC", 4), 4);
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
