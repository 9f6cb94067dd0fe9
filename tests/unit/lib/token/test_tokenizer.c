/* Tokenizers against ids that Hugging Face tokenizers gave (tests/golden/tokenizer), hostile
 * tokenizer.json files, and the limits that keep bad patterns and long words from hanging. */
#include "lib/base/progress.h"
#include "lib/base/utf8.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/golden.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/temp_folder.h"

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
    CKVC_AUTO_FREE char *path = ckvc_format("tests/golden/tokenizer/%s.json", name);
    json_auto_t *golden = golden_read(path);
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    OK(load_tokenizer(dir, &t, &err));
    const json_t *entry;
    size_t i, n_want;
    json_array_foreach(golden, i, entry) {
        CKVC_AUTO_FREE char *text = NULL;
        CKVC_AUTO_FREE int32_t *ids = NULL;
        int64_t n_golden;
        size_t n = from_hex(json_object_get(entry, "hex"), &text), n_ids, size;
        CKVC_AUTO_FREE int32_t *want = golden_ids(json_object_get(entry, "ids"), &n_golden);
        OK(tokenizer_encode(t, text, n, true, &ids, &n_ids, &err));
        if (n_ids != (size_t)n_golden) {
            fail_msg("%s: text %zu: %zu ids, want %zu", name, i, n_ids, (size_t)n_golden);
        }
        for (size_t k = 0; k < n_ids; k++) {
            if (ids[k] != want[k]) {
                fail_msg("%s: text %zu: id %zu is %d, want %d", name, i, k, ids[k], want[k]);
            }
        }
        for (int skip = 0; skip < 2; skip++) {
            CKVC_AUTO_FREE char *want_text = NULL, *got_text = NULL;
            n_want = from_hex(json_object_get(entry, skip ? "plain" : "text"), &want_text);
            OK(tokenizer_decode(t, ids, n_ids, skip, &got_text, &size, &err));
            if (size != n_want || memcmp(got_text, want_text, size) != 0) {
                fail_msg("%s: text %zu is \"%s\", want \"%s\"", name, i, got_text, want_text);
            }
        }
    }
}

TEST(embedded_model) { check_golden("models/ckvc-tiny-8l", "ckvc-tiny-8l"); }

static void shared_tokenizer(const char *below, const char *name) {
    check_golden(shared_data(below, name), name);
}

TEST(metaspace_tinystories) { shared_tokenizer("models", "tinystories-656k"); }
TEST(metaspace_llama2) { shared_tokenizer("tokenizers", "llama2"); }
TEST(metaspace_mistral) { shared_tokenizer("tokenizers", "mistral-7b-instruct-v0.2"); }

/* ---- small tokenizers of our own ---- */

static void put_json(const char *name, const char *text) { put_text(name, json_of(text)); }

static tokenizer *made(const char *file) {
    tokenizer *t;
    put_json("tokenizer.json", file);
    OK(load_tokenizer(temp_folder, &t, &err));
    return t;
}

#define BYTE_LEVEL                                                                                 \
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false},"             \
    "'decoder':{'type':'ByteLevel'},"
#define SPELLED           "'decoder':{'type':'Sequence','decoders':[{'type':'Fuse'}]},"
#define BPE(fields)       "'model':{'type':'BPE'," fields "}}"
#define MODEL             BPE("'vocab':{'a':0,'b':1,'ab':2,'aab':3},'merges':['a b',['a','ab']]")
#define PLAIN             "{'version':'1.0','added_tokens':[]," BYTE_LEVEL
#define WITH_ADDED(token) "{'added_tokens':[{" token ",'normalized':false}],"
#define TEMPLATE(single, rest)                                                                     \
    "'post_processor':{'type':'TemplateProcessing','single':[" single "]," rest "}"
#define FALLBACK(vocab)                                                                            \
    "'decoder':{'type':'Sequence','decoders':[{'type':'ByteFallback'},{'type':'Fuse'}]}," BPE(     \
        "'byte_fallback':true,'vocab':{" vocab "},'merges':[]")

static void encodes_to(const char *json, const char *text, bool special, size_t n,
                       const int32_t *want) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = made(json);
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n_ids;
    OK(tokenizer_encode(t, text, strlen(text), special, &ids, &n_ids, &err));
    assert_int_equal(n_ids, n);
    assert_memory_equal(ids, want, n * sizeof *ids);
}
#define ENCODES(json, text, special, ...)                                                          \
    encodes_to(json, text, special, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t),      \
               (const int32_t[]){__VA_ARGS__})

TEST(both_merge_spellings) {
    ENCODES(PLAIN MODEL, "aababb", true, 3, 2, 1);
    /* a piece that is no byte's spelling stands for none */
    ENCODES(PLAIN BPE("'vocab':{'\u4E2D':0,'a':1},'merges':[]"), "a", true, 1);
}

TEST(added_tokens_and_flags) {
    const char *json =
        "{'added_tokens':[{'id':9,'content':'<x>','lstrip':true,'rstrip':true,'normalized':false,"
        "'special':true},{'id':10,'content':'<xy>','normalized':false},"
        "{'id':11,'content':'bb','single_word':true,'normalized':false}]," TEMPLATE(
            "{'SpecialToken':{'id':'<x>','type_id':0}},{'Sequence':{'id':'A','type_id':0}}",
            "'special_tokens':{'<x>':{'id':'<x>','ids':[9],'tokens':['<x>']}}") "," BYTE_LEVEL
            MODEL;
    ENCODES(json, "a  <x> \nb<xy>bb abb", true, 9, 0, 9, 1, 10, 11, 2, 1); /* ' ' is dropped */
    encodes_to(json, "<xy", false, 0, NULL);
    /* a circled letter and U+1F189 are letters to \w, a circled digit is none */
    ENCODES(json, "\u24B6bb \U0001F189bb \u2460bb", false, 1, 1, 1, 1, 11);
}

TEST(config_decides_for_llama_classes) {
    const char *json = WITH_ADDED("'id':9,'content':'<s>','special':true") SPELLED MODEL;
    put_json("tokenizer_config.json",
             "{'tokenizer_class':'LlamaTokenizer','add_bos_token':true,"
             "'bos_token':{'content':'<s>'},'model_max_length':1000000000000000019884624838656}");
    ENCODES(json, "ab", true, 9, 2);
    put_json("tokenizer_config.json", "{'tokenizer_class':'PreTrainedTokenizerFast',"
                                      "'add_bos_token':true,'bos_token':'<s>'}");
    ENCODES(json, "ab", true, 2);
    put_text("tokenizer_config.json", "{}");
}

TEST(normalizers) {
    ENCODES(
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Replace',"
        "'pattern':{'String':'\xC3\xA9'},'content':'b'},{'type':'Prepend','prepend':'a'}]}," SPELLED
            MODEL,
        "ae\xCC\x81", true, 3); /* a e U+0301 -> a é -> a b -> aab */
}

#define METASPACE(rest)                                                                            \
    WITH_ADDED("'id':9,'content':'<x>'")                                                           \
    "'pre_tokenizer':{'type':'Metaspace','replacement':'\xE2\x96\x81'" rest                        \
    "}," SPELLED BPE("'vocab':{'a':0,'\xE2\x96\x81':1,'\xE2\x96\x81"                               \
                     "a':2,'a\xE2\x96\x81':3},'merges':['a \xE2\x96\x81','\xE2\x96\x81 a']")

/* Mistral v0.3 has it; the merge a+U+2581 shows whether words end before U+2581. */
TEST(metaspace_schemes) {
    ENCODES(METASPACE(",'prepend_scheme':'first','split':false"), "a a<x>a", true, 1, 3, 0, 9, 0);
    ENCODES(METASPACE(",'prepend_scheme':'first','split':true"), "a a<x>a", true, 2, 2, 9, 0);
    ENCODES(METASPACE(",'prepend_scheme':'always','split':true"), "a  a<x>a", true, 2, 1, 2, 9, 2);
    ENCODES(METASPACE(",'prepend_scheme':'never','split':true"), "a a<x>a", true, 0, 2, 9, 0);
    ENCODES(METASPACE(",'prepend_scheme':'first'"), " a", true, 2); /* the prefix is there */
    ENCODES(METASPACE(",'add_prefix_space':true"), "a<x>a", true, 2, 9, 2);
    ENCODES(METASPACE(",'add_prefix_space':false"), "a", true, 0);
    encodes_to(METASPACE(""), "", true, 0, NULL);
}

/* ---- hostile files ---- */
static void refuses(const char *json, const char *said) {
    tokenizer *t;
    put_json("tokenizer.json", json);
    SAYS(load_tokenizer(temp_folder, &t, &err), CKVC_E_DATA, json_of(said));
    assert_null(t);
}

#define WITH_MODEL(fields) PLAIN BPE(fields)
#define WITH(part)         "{" part "," BYTE_LEVEL MODEL
#define ADDED(tokens)      WITH("'added_tokens':[{" tokens "}]")
#define REPLACE(pattern)                                                                           \
    WITH("'normalizer':{'type':'Replace','pattern':{" pattern "},'content':''}")
#define SPECIAL_X             "{'SpecialToken':{'id':'x'}}"
#define PRE_TOKENIZER(fields) "{'pre_tokenizer':{" fields "}," SPELLED MODEL

TEST(hostile_files) {
    refuses("", "an empty file");
    refuses("[]", "want an object");
    refuses("{'model':", "not valid JSON");
    refuses("{'surprise':1," BYTE_LEVEL MODEL, "'surprise' is not supported");
    refuses("{'model':{'type':'Unigram','vocab':[]}}", "Unigram");
    refuses("{'model':{'type':'WordPiece'}}", "WordPiece");
    refuses(WITH_MODEL("'vocab':{},'merges':[]"), "model.vocab is empty");
    refuses(WITH_MODEL("'vocab':[],'merges':[]"), "model.vocab is an array");
    refuses(WITH_MODEL("'vocab':{'a':0,'a':1},'merges':[]"), "duplicate");
    refuses(WITH_MODEL("'vocab':{'a':0,'b':0},'merges':[]"), "id 0 stands for");
    refuses(WITH_MODEL("'vocab':{'a':-1},'merges':[]"), "whole number");
    refuses(WITH_MODEL("'vocab':{'a':2000000000},'merges':[]"), "want 0 ...");
    refuses(WITH_MODEL("'vocab':{'a':99999999999999999999},'merges':[]"), "not valid JSON");
    refuses(WITH_MODEL("'vocab':{'a\\u0000':0},'merges':[]"), "not valid JSON");
    refuses(WITH_MODEL("'vocab':{'a':0,'b':1},'merges':['a b']"),
            "the joined piece 'ab' is not in the vocabulary");
    refuses(WITH_MODEL("'vocab':{'a':0,'ab':1},'merges':['a b']"),
            "model.merges[0]: 'a b': right part 'b'");
    refuses(WITH_MODEL("'vocab':{'b':0,'ab':1},'merges':['a b']"), "left part 'a'");
    refuses(WITH_MODEL("'vocab':{'a':0,'b':1,'ab':2},'merges':['a b',['a','b']]"),
            "stands there already");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':['ab']"), "want two parts");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':['a b c']"), "want two parts");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[' a']"), "left part is empty");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[['a']]"), "model.merges[0] is an array");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[7]"), "model.merges[0] is a whole number");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[],'unk_token':'?'"), "unk_token '?'");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[],'dropout':0.1"), "dropout");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[],'end_of_word_suffix':'</w>'"),
            "end_of_word_suffix");
    refuses(WITH_MODEL("'vocab':{'a':0},'merges':[],'fuse_unk':1"), "want true or false");
    refuses("{" SPELLED BPE("'byte_fallback':true,'vocab':{'a':0},'merges':[]"), "ByteFallback");
    refuses("{" FALLBACK("'<0xZZ>':0"), "'<0xZZ>' is not a byte");
    refuses("{" FALLBACK("'<0x-1>':0"), "'<0x-1>' is not a byte");
    refuses(ADDED("'id':1,'content':'a'"), "model.vocab gives it 0");
    refuses(ADDED("'id':1,'content':'<s>'"), "stands for another token");
    refuses(ADDED("'id':8,'content':'<s>'},{'id':9,'content':'<s>'"), "over again");
    refuses(ADDED("'id':8,'content':'<s>'},{'id':8,'content':'<t>'"), "stands for another token");
    refuses(ADDED("'id':8,'content':''"), "content is empty");
    refuses(ADDED("'content':'x'"), "added_tokens[0].id is nothing");
    refuses(WITH("'added_tokens':7"), "want an array");
    refuses(WITH("'normalizer':{'type':'Lowercase'}"), "normalizer: type 'Lowercase'");
    refuses(WITH("'normalizer':{'type':'Sequence','normalizers':[{'type':'NFKC'}]}"),
            "normalizer[0]: type 'NFKC'");
    refuses(REPLACE("'Regex':'x'"), "Replace of a Regex");
    refuses(REPLACE("'String':''"), "empty text");
    refuses(WITH("'post_processor':{'type':'BertProcessing'}"), "BertProcessing");
    refuses(WITH("'post_processor':{'type':'TemplateProcessing','single':[]}"), "no Sequence A");
    refuses(WITH("'post_processor':{'type':'TemplateProcessing','single':[" SPECIAL_X "]}"),
            "no ids for 'x'");
    refuses(
        WITH(TEMPLATE(SPECIAL_X ",{'Sequence':{'id':'A'}}", "'special_tokens':{'x':{'ids':[77]}}")),
        "id 77 is not in the vocabulary");
    refuses(PRE_TOKENIZER("'type':'Metaspace'"), "pre_tokenizer is nothing; want a string");
    refuses(PRE_TOKENIZER("'type':'Metaspace','replacement':'_'"), "want U+2581");
    refuses("{'pre_tokenizer':{'type':'Metaspace','replacement':'\xE2\x96\x81','prepend_scheme':'"
            "last'}," SPELLED MODEL,
            "never, first and always");
    refuses(PRE_TOKENIZER("'type':'Whitespace'"), "Whitespace");
    refuses("{" SPELLED "'pre_tokenizer':{'type':'ByteLevel'}," MODEL, "does not belong");
    refuses("{'decoder':{'type':'WordPiece'}," MODEL, "WordPiece");
}

#define SPLIT(pattern, behavior) "'type':'Split','pattern':{" pattern "},'behavior':'" behavior "'"
#define WITH_REGEX(regex)        PRE_TOKENIZER(SPLIT("'Regex':'" regex "'", "Isolated") ",'invert':false")

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
    refuses(PRE_TOKENIZER(SPLIT("'Regex':'a'", "Removed")), "'Removed'");
    refuses(PRE_TOKENIZER(SPLIT("'String':'a'", "Isolated")), "no Replace before it takes out");
    refuses("{'normalizer':{'type':'Replace','pattern':{'String':'a'},'content':'ba'},"
            "'pre_tokenizer':{" SPLIT("'String':'a'", "MergedWithPrevious") "}," SPELLED MODEL,
            "no Replace before it takes out");
}

/* Gemma 3's: after the Replace there is no space to split by. */
TEST(split_by_what_was_replaced) {
    ENCODES(
        "{'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'\xE2\x96\x81'},"
        "'pre_tokenizer':{" SPLIT("'String':' '", "MergedWithPrevious") ",'invert':false}," SPELLED
            BPE("'vocab':{'a':0,'\xE2\x96\x81':1,'a\xE2\x96\x81':2,'a\xE2\x96\x81"
                "a':3},'merges':[['a','\xE2\x96\x81'],['a\xE2\x96\x81','a']]"),
        "aa a", false, 0, 3);
}

/* Special tokens stand in front alone: what a template puts behind ends a text, and a prompt goes
 * on. The rest is as without it, the fingerprint too. */
TEST(nothing_behind_a_text) {
#define X_AND_Y "'special_tokens':{'x':{'id':'x','ids':[7]},'y':{'id':'y','ids':[8,8]}}"
    static const char *const single[] = {SPECIAL_X
                                         ",{'Sequence':{'id':'A'}},{'SpecialToken':{'id':'y'}}",
                                         SPECIAL_X ",{'Sequence':{'id':'A'}}"};
    char fingerprint[2][CKVC_SHA256_HEX];
    for (int i = 0; i < 2; i++) {
        CKVC_AUTO_FREE char *json = ckvc_format(
            "{'added_tokens':[{'id':7,'content':'x','normalized':false},"
            "{'id':8,'content':'y','normalized':false}]," BYTE_LEVEL
            "'post_processor':{'type':'TemplateProcessing','single':[%s]," X_AND_Y "}," MODEL,
            single[i]);
        ENCODES(json, "ab", true, 7, 2);
        CKVC_AUTO(tokenizer_free_at) tokenizer *t = made(json);
        memcpy(fingerprint[i], tokenizer_fingerprint(t), CKVC_SHA256_HEX);
    }
    assert_string_equal(fingerprint[0], fingerprint[1]);
}

/* U+180E is no white space to Oniguruma, inside of sets and out; tokenizers 0.23.3. */
TEST(white_space_of_patterns) {
    const char *const spaces[] = {"\\\\s", "[\\\\s]", "[^\\\\S]"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        CKVC_AUTO_FREE char *json =
            ckvc_format("{'pre_tokenizer':{" SPLIT("'Regex':'%s'", "Isolated") "}," SPELLED BPE(
                            "'vocab':{'a':0,' ':1,'\xE1\xA0\x8E':2,'a ':3,'a\xE1\xA0\x8E':4},"
                            "'merges':[['a',' '],['a','\xE1\xA0\x8E']]"),
                        spaces[i]);
        ENCODES(json, "a a\xE1\xA0\x8E", false, 0, 1, 4);
    }
}

/* Encodes n bytes, in less than `seconds`, to ids that the caller frees. */
static ckvc_status encode_within(double seconds, const char *file, const char *text, size_t n,
                                 int32_t **ids, size_t *n_ids) {
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = made(file);
    const double start = ckvc_now_s();
    const ckvc_status status = tokenizer_encode(t, text, n, false, ids, n_ids, &err);
    assert_true(ckvc_now_s() - start < seconds);
    return status;
}

/* Exponential patterns end in an error, and soon. */
TEST(catastrophic_patterns) {
    const char *const patterns[] = {WITH_REGEX("(a+)+$b"), WITH_REGEX("(a|aa)+c"),
                                    WITH_REGEX("(a*)*d"), WITH_REGEX("((a?){30}){30}e")};
    char text[4001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n;
        if (encode_within(30, patterns[i], text, sizeof text - 1, &ids, &n) != CKVC_OK) {
            assert_int_equal(err.status, CKVC_E_DATA);
            assert_non_null(strstr(err.text, "takes too long"));
        }
    }
}

/* What PCRE2 counts as one step may look through the whole text: a search from each place on, or a
 * repetition within one match. These take minutes where nobody looks at the clock. */
TEST(patterns_that_look_through_the_text) {
    enum { N = 600000 };
    const char *const patterns[] = {WITH_REGEX("(?=[^\\\\x{1}]*+[\\\\x{1}\\\\x{2}])a"),
                                    WITH_REGEX("(?:[^\\\\x{1}]*+[\\\\x{1}\\\\x{2}]|.)+")};
    CKVC_AUTO_FREE char *text = malloc(N);
    memset(text, 'a', N);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n;
        FAILS(encode_within(60, patterns[i], text, N, &ids, &n), CKVC_E_DATA);
        assert_non_null(strstr(err.text, "takes too long"));
    }
}

/* A word of a million symbols that all merge: quadratic work would take hours. */
TEST(long_words) {
    enum { N = 1000000 };
    CKVC_AUTO_FREE char *text = malloc(N);
    for (size_t i = 0; i < N; i++) { text[i] = "aab"[i % 3]; }
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n;
    OK(encode_within(20, PLAIN MODEL, text, N, &ids, &n));
    assert_int_equal(n, N / 3 + 1);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[n - 1], 0);
}

/* Files whose cost per byte of text would be what they say: an added token that nearly fits at
 * every place, rules that each double the text, a long prefix. Each ends soon, in an error. */
TEST(greedy_files) {
    enum { N = 200000, LONG = 20000 };
#define RULE "{'type':'Replace','pattern':{'String':'a'},'content':'aa'}"
#define TEN_RULES                                                                                  \
    RULE "," RULE "," RULE "," RULE "," RULE "," RULE "," RULE "," RULE "," RULE "," RULE
    static char text[N], many[LONG + 1];
    memset(text, 'a', N), memset(many, 'a', LONG);
    CKVC_AUTO_FREE char *token = ckvc_format(
        "{'added_tokens':[{'id':9,'content':'%s!','normalized':false}]," BYTE_LEVEL MODEL, many);
    memset(many, 'b', LONG);
    CKVC_AUTO_FREE char *prefix =
        ckvc_format(WITH_ADDED("'id':9,'content':'!'") "'normalizer':{'type':'Prepend','prepend':"
                                                       "'%s'}," BYTE_LEVEL MODEL,
                    many);
    const struct {
        const char *file;
        size_t n;
        double seconds;
        const char *says;
    } cases[] = {
        {token, N, 30, "added_tokens"}, /* to the end it would be 4e9 steps */
        {"{'normalizer':{'type':'Sequence','normalizers':[" TEN_RULES "," TEN_RULES "," TEN_RULES
         "," TEN_RULES "]}," BYTE_LEVEL MODEL,
         100, 10, "grows too much"},       /* 10^14 bytes */
        {prefix, N, 10, "grows too much"}, /* 20,000 bytes at 100,000 places */
    };
    for (size_t i = 0; i < 3; i++) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n;
        for (int k = 1; i == 2 && k < N; k += 2) { text[k] = '!'; }
        SAYS(encode_within(cases[i].seconds, cases[i].file, text, cases[i].n, &ids, &n),
             CKVC_E_DATA, cases[i].says);
    }
}

/* Marks in the wrong order: sorting them by exchanging neighbours would take 10^10 steps. */
TEST(marks_out_of_order) {
    enum { N = 100000 };
    CKVC_AUTO_FREE char *text = malloc(1 + 4 * N);
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n;
    text[0] = 'a';
    for (size_t i = 0; i < N; i++) { /* U+0315, class 232, and U+0327, class 202 */
        memcpy(text + 1 + 4 * i, "\xCC\x95\xCC\xA7", 4);
    }
    OK(encode_within(10,
                     "{'normalizer':{'type':'NFC'}," BYTE_LEVEL BPE(
                         "'vocab':{'a':0,'\u00CC':1,'\u0137':2,'\u00A7':3},'merges':[]"),
                     text, 1 + 4 * N, &ids, &n));
    assert_int_equal(n, 1 + 4 * N);
    for (size_t i = 0; i < 2 * N; i++) { /* all of the lower class first */
        assert_int_equal(ids[1 + 2 * i], 1);
        assert_int_equal(ids[2 + 2 * i], i < N ? 3 : 2);
    }
}

/* As tokenizers 0.23.3 decodes them: hexadecimal digits, or a plus and one. */
TEST(byte_pieces_and_what_looks_like_them) {
    CKVC_AUTO(tokenizer_free_at)
    tokenizer *t = made(
        "{'added_tokens':[{'id':1,'content':'<0x+5>'},{'id':2,'content':"
        "'<0x\\t5>'},{'id':3,'content':'<0x-5>'},{'id':4,'content':'<0x4a>'}]," FALLBACK("'a':0"));
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    OK(tokenizer_decode(t, (const int32_t[]){1, 2, 3, 4, 0}, 5, false, &text, &n, &err));
    assert_string_equal(text, "\x05<0x\t5><0x-5>Ja");
}

TEST(decode_refuses_unknown_ids) {
    CKVC_AUTO(tokenizer_free_at)
    tokenizer *t = made(WITH_MODEL("'vocab':{'a':0,'b':5},'merges':[]")); /* a gap */
    assert_int_equal(tokenizer_vocab_size(t), 6);
    const int32_t bad[] = {-1, 3, 6, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        char *text;
        size_t n;
        FAILS(tokenizer_decode(t, &bad[i], 1, false, &text, &n, &err), CKVC_E_DATA);
    }
}

/* Pieces and what is put in front of a text need a row each; an added token needs one when it is
 * met. */
TEST(fits_a_vocabulary) {
    static const char added[] = ADDED("'id':7,'content':'<x>'");
    static const char front[] = WITH("'added_tokens':[{'id':7,'content':'<x>'}]," TEMPLATE(
        "{'SpecialToken':{'id':'<x>'}},{'Sequence':{'id':'A'}}",
        "'special_tokens':{'<x>':{'ids':[7]}}"));
    static const struct {
        const char *file;
        int32_t vocab;
        const char *wrong; /* NULL: it fits */
    } cases[] = {{PLAIN MODEL, 4, NULL},
                 {PLAIN MODEL, 5, NULL},
                 {PLAIN MODEL, 3, "model.vocab: id 3, but"},
                 {added, 4, NULL},
                 {added, 3, "embeddings for ids 0 to 2;"},
                 {front, 8, NULL},
                 {front, 7, "post_processor: id 7, but"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(tokenizer_free_at) tokenizer *t = made(cases[i].file);
        FAILS(tokenizer_fits(t, cases[i].vocab, &err), cases[i].wrong ? CKVC_E_DATA : CKVC_OK);
        if (cases[i].wrong) { assert_non_null(strstr(err.text, cases[i].wrong)); }
    }
}

TEST(fingerprint_follows_what_decides_ids) {
    CKVC_AUTO(tokenizer_free_at)
    tokenizer *a = made(PLAIN MODEL),
              *same = made("{" BYTE_LEVEL "'model':{'merges':[['a','b'],'a ab'],"
                           "'vocab':{'aab':3,'ab':2,'b':1,'a':0},'type':'BPE'}}"),
              *other = made(WITH_MODEL("'ignore_merges':true,'vocab':{'a':0,'b':1,'ab':2,'aab':3},"
                                       "'merges':['a b',['a','ab']]"));
    assert_string_equal(tokenizer_fingerprint(a), tokenizer_fingerprint(same));
    assert_string_not_equal(tokenizer_fingerprint(a), tokenizer_fingerprint(other));
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
