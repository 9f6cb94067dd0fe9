/* config.json: defaults, both spellings of the rotary part, and what is refused. */
#include <glob.h>
#include <jansson.h>
#include <sys/stat.h>

#include "formats/model/model_files.h"
#include "formats/model/model_readers.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/golden.h"
#include "tests/unit/temp_folder.h"

static const char base[] = "{'model_type':'llama','num_hidden_layers':2,"
                           "'num_attention_heads':4,'hidden_size':32,'intermediate_size':40,"
                           "'vocab_size':100}";

static ckvc_status read_text(const char *text, model_shape *s, ckvc_err *err) {
    put_text("config.json", json_of(text));
    return model_config_read(temp_folder, s, err);
}

/* The base config with the keys of `patch` replaced; a key set to "-" is taken out. */
static ckvc_status read_patched(const char *patch, model_shape *s, ckvc_err *err) {
    json_t *config = json_loads(json_of(base), 0, NULL),
           *change = json_loads(json_of(patch), 0, NULL), *v;
    const char *key;
    assert_non_null(change);
    json_object_foreach(change, key, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), "-") == 0) {
            json_object_del(config, key);
        } else {
            json_object_set(config, key, v);
        }
    }
    char *text = json_dumps(config, 0);
    const ckvc_status rc = read_text(text, s, err);
    free(text), json_decref(config), json_decref(change);
    return rc;
}

static model_shape good(const char *patch) {
    model_shape s;
    ckvc_err err = {0};
    if (read_patched(patch, &s, &err) != CKVC_OK) { fail_msg("%s: %s", patch, err.text); }
    return s;
}

TEST(defaults) {
    const model_shape s = good("{}");
    assert_true(s.n_layers == 2 && s.n_heads == 4 && s.n_kv_heads == 4 && s.head_dim == 8 &&
                s.width == 32 && s.vocab == 100);
    assert_true(s.max_positions == 2048 && s.rms_eps == 1e-6 && s.rope_theta == 10000.0 &&
                s.rope == ROPE_DEFAULT);
    assert_true(!s.tied && !s.qkv_bias && !s.output_bias && !s.mlp_bias && s.sliding_window == 0);
    assert_string_equal(s.family, "llama");
    assert_int_equal(model_shape_parameters(&s),
                     2 * (4 * 32 * 32 + 3 * 32 * 40 + 2 * 32) + 2 * 100 * 32 + 32);
}

TEST(fields) {
    model_shape s = good("{'num_key_value_heads':2,'head_dim':6,'tie_word_embeddings':true,"
                         "'attention_bias':true,'mlp_bias':true,'bos_token_id':1,"
                         "'eos_token_id':[2,3,99,100,-1],'rms_norm_eps':1e-3,'rope_theta':500000,"
                         "'hidden_act':'silu','rope_scaling':null,'quantization_config':null,"
                         "'auto_map':{'AutoConfig':'x'},'sliding_window':5,"
                         "'architectures':['LlamaForCausalLM'],'layer_types':['full_attention',"
                         "'full_attention']}");
    assert_true(s.n_kv_heads == 2 && s.head_dim == 6 && s.tied && s.qkv_bias && s.output_bias &&
                s.mlp_bias);
    assert_true(s.rms_eps == 1e-3 && s.rope_theta == 500000.0 && s.sliding_window == 0);
    assert_int_equal(model_shape_parameters(&s), 2 * (32 * (24 + 2 * 12) + 24 * 32 + 3 * 32 * 40 +
                                                      64 + (24 + 24) + 32 + (80 + 32)) +
                                                     100 * 32 + 32);
    CKVC_AUTO_FREE char *lines = model_shape_lines(&s, 17);
    assert_string_equal(
        lines, "family=llama\nlayers=2\nheads=4\nkv_heads=2\nhead_dim=6\nwidth=32\nintermediate="
               "40\nvocab=100\n"
               "rms_eps=0.001\nrope_theta=500000\ntied=1\nqkv_bias=1\noutput_bias=1\nmlp_bias=1\n");
}

static void lines_have(const model_shape *s, const char *part) {
    CKVC_AUTO_FREE char *lines = model_shape_lines(s, 17);
    assert_non_null(strstr(lines, part));
}

TEST(rope) {
#define LLAMA3                                                                                     \
    "'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings'" \
    ":32"
    static const char *const spellings[] = {
        "{'rope_theta':5e5,'rope_scaling':{'rope_type':'llama3'," LLAMA3 "}}",
        "{'rope_theta':5e5,'rope_scaling':{'type':'llama3'," LLAMA3 "}}",
        "{'rope_parameters':{'rope_theta':5e5,'rope_type':'llama3'," LLAMA3 "}}",
        "{'rope_theta':5e5,'rope_parameters':{'rope_theta':5e5,'rope_type':'llama3'," LLAMA3 "}}",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const model_shape s = good(spellings[i]);
        assert_true(s.rope == ROPE_LLAMA3 && s.rope_theta == 5e5 && s.rope_factor == 8 &&
                    s.rope_low_freq == 1 && s.rope_high_freq == 4 &&
                    s.rope_original_positions == 32);
        lines_have(&s, "rope_theta=500000\nrope=llama3\nrope_factor=8\nrope_low_"
                       "freq=1\nrope_high_freq=4\nrope_original_positions=32\n");
    }
    assert_true(
        good("{'rope_parameters':{'rope_theta':20000.0,'rope_type':'default'}}").rope_theta ==
        20000.0);
    assert_true(good("{'rope_parameters':{'rope_theta':20000.0}}").rope == ROPE_DEFAULT);
    assert_true(good("{'rope_scaling':{'rope_type':'default'}}").rope == ROPE_DEFAULT);

    static const struct {
        const char *type;
        rope_kind kind;
        const char *lines;
    } stretched[] = {{"linear", ROPE_LINEAR, "rope=linear\nrope_factor=4\n"},
                     {"dynamic", ROPE_DYNAMIC, "rope=dynamic\nrope_factor=4\nmax_positions=100\n"}};
    for (size_t i = 0; i < 2; i++) {
        static const char *const forms[] = {
            "{'max_position_embeddings':100,'rope_scaling':{'type':'%s','factor':4}}",
            "{'max_position_embeddings':100,'rope_parameters':{'rope_type':'%s','factor':4.0,"
            "'rope_theta':1e4}}"};
        for (size_t k = 0; k < 2; k++) {
            char patch[256];
            snprintf(patch, sizeof patch, forms[k], stretched[i].type);
            const model_shape s = good(patch);
            assert_true(s.rope == stretched[i].kind && s.rope_factor == 4 &&
                        model_shape_context(&s) == 400);
            lines_have(&s, stretched[i].lines);
        }
    }
}

/* What the families' config classes do where config.json says nothing, or in their own way. */
TEST(families) {
    model_shape s = good("{'model_type':'mistral','num_attention_heads':8}");
    assert_true(s.n_kv_heads == 8 && s.sliding_window == 4096 && s.max_positions == 131072 &&
                !s.qkv_bias);
    assert_true(model_shape_window(&s, 0) == 4096 && model_shape_window(&s, 1) == 4096);
    s = good("{'model_type':'mistral','num_key_value_heads':null,'sliding_window':null,"
             "'attention_bias':true}");
    assert_true(s.n_kv_heads == 4 && s.sliding_window == 0 && model_shape_window(&s, 1) == 0 &&
                !s.qkv_bias);

#define QWEN2                                                                                      \
    "'model_type':'qwen2','num_hidden_layers':4,'num_key_value_heads':2,'sliding_window':16"
    s = good("{" QWEN2 ",'use_sliding_window':false,'max_window_layers':0}");
    assert_true(s.sliding_window == 0 && s.qkv_bias && !s.output_bias && !s.mlp_bias &&
                s.max_positions == 32768);
    s = good("{" QWEN2 "}");
    assert_int_equal(s.sliding_window, 0);
    s = good("{" QWEN2 ",'use_sliding_window':true,'max_window_layers':1}");
    for (int32_t l = 0; l < 4; l++) {
        assert_int_equal(model_shape_window(&s, l), l >= 1 ? 16 : 0);
    }
    lines_have(&s, "qkv_bias=1\nsliding_window=16\nfull_layer=0\n");
    s = good("{" QWEN2 ",'use_sliding_window':true,'max_window_layers':1,"
             "'layer_types':['sliding_attention','full_attention','sliding_attention',"
             "'full_attention']}");
    for (int32_t l = 0; l < 4; l++) {
        assert_int_equal(model_shape_window(&s, l), l % 2 == 0 ? 16 : 0);
    }
    s = good("{" QWEN2 ",'use_sliding_window':true}"); /* max_window_layers is 28 then: no layer
                                                            has the window */
    assert_int_equal(s.sliding_window, 0);
    CKVC_AUTO_FREE char *lines = model_shape_lines(&s, 17);
    assert_null(strstr(lines, "layer="));

    s = good("{'model_type':'qwen3','num_key_value_heads':2}");
    assert_true(s.qk_norm && s.head_dim == 128 && !s.qkv_bias && !s.output_bias &&
                s.sliding_window == 0 && s.max_positions == 32768);
    lines_have(&s, "family=qwen3\n");
    lines_have(&s, "qk_norm=1\n");
    s = good("{'model_type':'qwen3','num_key_value_heads':2,'head_dim':16,'attention_bias':true,"
             "'use_sliding_window':true,'sliding_window':9,'max_window_layers':1}");
    assert_true(s.head_dim == 16 && s.qkv_bias && s.output_bias && model_shape_window(&s, 1) == 9 &&
                model_shape_window(&s, 0) == 0);

    s = good("{'model_type':'phi3','partial_rotary_factor':0.75}");
    assert_true(s.rope_dims == 6 && s.head_dim == 8 && s.n_kv_heads == 4 && s.rms_eps == 1e-5 &&
                s.max_positions == 4096 && s.sliding_window == 0 && !s.qk_norm && !s.qkv_bias);
    lines_have(&s, "rope_dims=6\n");
    double turned[4];
    rope_frequencies(&s, 0, turned);
    assert_true(turned[0] == 1.0 && turned[2] == pow(10000.0, -4.0 / 6) && turned[3] == 0.0);
    s = good("{'model_type':'phi3','partial_rotary_factor':0.5,'sliding_window':9,'rope_scaling':"
             "{'type':'default','partial_rotary_factor':1.0}}");
    assert_true(s.rope_dims == 0 && model_shape_window(&s, 1) == 9);

#define GEMMA3 "'model_type':'gemma3_text','num_key_value_heads':2,'num_hidden_layers':7"
    s = good("{" GEMMA3 "}");
    assert_true(s.qk_norm && s.post_norms && s.gelu && s.tied && s.head_dim == 256 &&
                s.embed_scale == sqrt(32.0) && s.query_scalar == 0 && s.rope_theta == 1e6 &&
                s.rope_local_theta == 1e4 && s.max_positions == 131072);
    for (int32_t l = 0; l < 7; l++) {
        assert_int_equal(model_shape_window(&s, l), l == 5 ? 0 : 4096);
    }
    s = good("{" GEMMA3 ",'head_dim':8,'query_pre_attn_scalar':20,'sliding_window':9,"
             "'sliding_window_pattern':3,'rope_theta':5e5,'rope_local_base_freq':100,"
             "'rope_scaling':{'rope_type':'linear','factor':8}}");
    double both[8];
    rope_frequencies(&s, 0, both);
    assert_true(both[0] == 0.125 && both[4] == 1.0 && both[6] == pow(100.0, -0.5));
    assert_true(model_shape_window(&s, 2) == 0 && model_shape_window(&s, 3) == 9);
    lines_have(&s, "qk_norm=1\npost_norms=1\ngelu=1\nembed_scale=5.6568542494923806\n"
                   "query_scalar=20\nrope_local_theta=100\n");
    ckvc_err refused = {0};
    assert_int_equal(model_shape_evicts(&s, "compile", &refused), CKVC_E_DATA);
    assert_non_null(strstr(refused.text, "compile: this is a gemma3_text model"));
    /* as transformers 5 writes it; without a layer that has the window there is one base */
    s = good("{" GEMMA3 ",'rope_parameters':{'full_attention':{'rope_type':'default','rope_theta':"
             "7e5},'sliding_attention':{'rope_type':'default','rope_theta':300}}}");
    assert_true(s.rope_theta == 7e5 && s.rope_local_theta == 300);
    s = good("{" GEMMA3 ",'sliding_window_pattern':1}");
    assert_true(s.sliding_window == 0 && s.rope_local_theta == 0);
    OK(model_shape_evicts(&s, "compile", &refused));

    s = good("{'model_type':'internlm2'}");
    assert_true(s.qkv_bias && s.output_bias && !s.mlp_bias && s.n_kv_heads == 4 &&
                s.max_positions == 2048);
    s = good("{'model_type':'internlm2','bias':false,'attention_bias':true,'mlp_bias':true,"
             "'head_dim':16}");
    assert_true(!s.qkv_bias && !s.output_bias && !s.mlp_bias && s.head_dim == 8);
}

/* The families' own config.json files, and the numbers of weights that their makers publish. */
TEST(published) {
    enum { PLAIN = ROPE_DEFAULT, LL3 = ROPE_LLAMA3, DYN = ROPE_DYNAMIC };
    static const struct published {
        const char *dir;
        int64_t layers, heads, kv_heads, head_dim, width, mlp, vocab;
        bool tied, qkv_bias;
        int rope;
        double theta, billions; /* as published, in 10^9 */
    } models[] = {
        {"llama-2-7b-chat", 32, 32, 32, 128, 4096, 11008, 32000, 0, 0, PLAIN, 1e4, 6.74},
        {"llama-3-8b-instruct", 32, 32, 8, 128, 4096, 14336, 128256, 0, 0, PLAIN, 5e5, 8.03},
        {"llama-3.1-8b-instruct", 32, 32, 8, 128, 4096, 14336, 128256, 0, 0, LL3, 5e5, 8.03},
        {"llama-3.2-3b-instruct", 28, 24, 8, 128, 3072, 8192, 128256, 1, 0, LL3, 5e5, 3.21},
        {"mistral-7b-instruct-v0.2", 32, 32, 8, 128, 4096, 14336, 32000, 0, 0, PLAIN, 1e6, 7.24},
        {"qwen2-0.5b-instruct", 24, 14, 2, 64, 896, 4864, 151936, 1, 1, PLAIN, 1e6, 0.494},
        {"qwen2-1.5b-instruct", 28, 12, 2, 128, 1536, 8960, 151936, 1, 1, PLAIN, 1e6, 1.54},
        {"qwen2-7b-instruct", 28, 28, 4, 128, 3584, 18944, 152064, 0, 1, PLAIN, 1e6, 7.62},
        {"qwen2.5-7b-instruct", 28, 28, 4, 128, 3584, 18944, 152064, 0, 1, PLAIN, 1e6, 7.62},
        {"internlm2-chat-7b", 32, 32, 8, 128, 4096, 14336, 92544, 0, 0, PLAIN, 1e6, 7.74},
        {"internlm2.5-7b-chat", 32, 32, 8, 128, 4096, 14336, 92544, 0, 0, DYN, 1e6, 7.74},
        {"smollm2-135m-instruct", 30, 9, 3, 64, 576, 1536, 49152, 1, 0, PLAIN, 1e5, 0.135},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct published *m = &models[i];
        model_shape s;
        OK(model_config_read(shared_data("configs", m->dir), &s, &err));
        assert_true(s.n_layers == m->layers && s.n_heads == m->heads &&
                    s.n_kv_heads == m->kv_heads);
        assert_true(s.head_dim == m->head_dim && s.width == m->width && s.intermediate == m->mlp);
        assert_true(s.vocab == m->vocab && s.tied == m->tied && s.qkv_bias == m->qkv_bias &&
                    !s.output_bias);
        assert_true((int)s.rope == m->rope && s.rope_theta == m->theta && s.sliding_window == 0);
        const int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
        int64_t count = m->vocab * m->width + m->width; /* embedding, final norm */
        count += m->tied ? 0 : m->vocab * m->width;
        for (int64_t l = 0; l < m->layers; l++) {
            count += q * m->width + 2 * kv * m->width + m->width * q; /* q, k and v, o */
            count += m->qkv_bias ? q + 2 * kv : 0;
            count += 3 * m->mlp * m->width + 2 * m->width; /* gate, up, down; two norms */
        }
        assert_int_equal(model_shape_parameters(&s), count);
        if (fabs((double)count * 1e-9 / m->billions - 1.0) > 5e-3) {
            fail_msg("%s: %lld weights, published are %g billion", m->dir, (long long)count,
                     m->billions);
        }
    }
}

TEST(refusals) {
    static const struct {
        const char *patch, *word, *more;
    } cases[] = {
        {"{'model_type':'-'}", "model_type", "missing"},
        {"{'model_type':'gpt_neox'}", "gpt_neox", "supported: \"llama\", \"mistral\""},
        {"{'architectures':['LlamaForSequenceClassification']}", "LlamaForSequenceClassification",
         "LlamaForCausalLM"},
        {"{'hidden_act':'gelu'}", "hidden_act \"gelu\"", "silu"},
        {"{'quantization_config':{'quant_method':'awq'}}", "quantization_config", "awq"},
        {"{'layer_types':['full_attention','sliding_attention']}", "layer_types[1]",
         "sliding_attention"},
        {"{'layer_types':['full_attention']}", "layer_types", "num_hidden_layers=2"},
        {"{'model_type':'mixtral'}", "mixtral", "\"phi3\", \"gemma3_text\", \"internlm2\""},
        {"{'model_type':'qwen2_moe'}", "qwen2_moe", "supported"},
        {"{'model_type':'qwen3_moe'}", "qwen3_moe", "supported"},
        /* Qwen3Config's default */
        {"{'model_type':'qwen3'}", "num_attention_heads=4", "num_key_value_heads=32"},
        {"{'model_type':'qwen3','num_key_value_heads':2,'head_dim':5}", "head_dim=5", "even"},
        {"{'model_type':'mistral','architectures':['LlamaForCausalLM']}", "LlamaForCausalLM",
         "MistralForCausalLM"},
        {"{'num_local_experts':8}", "num_local_experts (8)", "mixture of experts"},
        {"{'quantization_config':{'quant_method':'gptq'}}", "gptq", "unquantised"},
        {"{'rope_interleaved':true}", "rope_interleaved (true)", "another network"},
        /* what transformers 5 computes with, and configurations of all families may say */
        {"{'is_causal':false}", "is_causal (false)", "later tokens"},
        {"{'is_causal':null}", "is_causal (null)", "later tokens"},
        {"{'is_causal':0}", "is_causal (0)", "later tokens"},
        {"{'model_type':'gemma3_text','num_key_value_heads':2,'is_causal':false}", "is_causal", ""},
        {"{'model_type':'internlm2','is_causal':false}", "is_causal", ""},
        {"{'attention_chunk_size':5}", "attention_chunk_size (5)", "another network"},
        {"{'per_layer_config':{'0':{'rms_norm_eps':0.5}}}", "per_layer_config", "another network"},
        {"{'kv_sharing_modes':['reuse','store']}", "kv_sharing_modes", "another network"},
        {"{'transformers_weights':'other.safetensors'}", "transformers_weights", "another name"},
        {"{'quantization':{'group_size':64,'bits':4}}", "quantization", "unquantised"},
        {"{'logit_scale':0.5}", "logit_scale (0.5)", "another network"},
        {"{'rope_scaling':{'type':'default','mrope_section':[1,1,2]}}", "mrope_section", ""},
        {"{'rope_parameters':{'partial_rotary_factor':0.5}}", "partial_rotary_factor (0.5)", ""},
        {"{'sliding_window':5}", "sliding_window=5", "while it generates"},
        {"{'model_type':'internlm2','sliding_window':'5'}", "sliding_window=\"5\"", ""},
        {"{'partial_rotary_factor':0.5}", "partial_rotary_factor", ""},
        {"{'model_type':'mistral','num_key_value_heads':4,'layer_types':['full_attention',"
         "'sliding_attention']}",
         "layer_types[0]=\"full_attention\"", "sliding_window is set"},
        /* MistralConfig's default */
        {"{'model_type':'mistral'}", "num_attention_heads=4", "num_key_value_heads=8"},
        {"{'model_type':'mistral','num_key_value_heads':4,'sliding_window':0}", "sliding_window=0",
         ""},
        {"{'model_type':'qwen2','num_key_value_heads':4,'layer_types':['full_attention',"
         "'sliding_attention']}",
         "layer_types[1]", "no sliding window is on"},
        {"{'model_type':'qwen2','num_key_value_heads':4,'use_sliding_window':true,"
         "'layer_types':['chunked_attention','full_attention']}",
         "layer_types[0]=\"chunked_attention\"", ""},
        {"{'model_type':'internlm2','rope_scaling':{'type':'longrope','factor':2}}", "longrope",
         "not supported"},
        {"{'model_type':'internlm2','bias':1}", "bias=1", "true or false"},
        {"{'model_type':'phi3','rope_scaling':{'type':'longrope','short_factor':[1,1,1,1]}}",
         "rope_scaling.rope_type \"longrope\"", "not supported"},
        {"{'model_type':'phi3','rope_scaling':{'type':'linear','factor':2}}", "linear",
         "supported: \"default\""},
        {"{'model_type':'phi3','partial_rotary_factor':0.4}", "rotates 3 of head_dim=8", "even"},
        {"{'model_type':'phi3','partial_rotary_factor':0.1}", "rotates 0 of head_dim=8", "even"},
        {"{'model_type':'phi3','partial_rotary_factor':1e300}", "partial_rotary_factor=1.",
         "at most 1"},
        {"{'model_type':'phi3','rope_parameters':{'rope_type':'default','partial_rotary_factor':"
         "'x'}}",
         "partial_rotary_factor=\"x\"", "not a number"},
        {"{'model_type':'gemma3'}", "\"gemma3\"", "gemma3_text"},
        {"{'model_type':'gemma3_text','hidden_activation':'gelu'}", "hidden_activation \"gelu\"",
         "gelu_pytorch_tanh"},
        {"{'model_type':'gemma3_text','final_logit_softcapping':30}", "final_logit_softcapping",
         "another network"},
        {"{'model_type':'gemma3_text','use_bidirectional_attention':true}",
         "use_bidirectional_attention", "later tokens"},
        {"{'model_type':'gemma3_text','sliding_window_pattern':0}", "sliding_window_pattern=0", ""},
        {"{'model_type':'gemma3_text','sliding_window':-1}", "sliding_window=-1", ""},
        {"{'model_type':'gemma3_text','query_pre_attn_scalar':0}", "query_pre_attn_scalar=0", ""},
        {"{'model_type':'gemma3_text','query_pre_attn_scalar':1e9}", "query_pre_attn_scalar=1", ""},
        {"{'model_type':'gemma3_text','rope_local_base_freq':0.5}", "rope_local_base_freq=0.5", ""},
        {"{'model_type':'gemma3_text','rope_scaling':{'type':'dynamic','factor':2}}", "dynamic",
         "supported: \"default\", \"linear\""},
        {"{'model_type':'gemma3_text','rope_parameters':{'rope_theta':1e4}}", "rope_parameters",
         "full_attention"},
        {"{'model_type':'gemma3_text','rope_parameters':3}", "rope_parameters", "full_attention"},
        {"{'model_type':'gemma3_text','rope_parameters':{'full_attention':3}}", "rope_parameters",
         "not an object"},
        {"{'model_type':'gemma3_text','rope_parameters':{'full_attention':{},'sliding_attention':"
         "{'rope_type':'linear','factor':2}}}",
         "sliding_attention.rope_type \"linear\"", ""},
        {"{'model_type':'gemma3_text','layer_types':['full_attention','chunked_attention']}",
         "layer_types[1]=\"chunked_attention\"", "sliding_attention"},
        {"{'num_hidden_layers':'-'}", "num_hidden_layers", "missing"},
        {"{'num_hidden_layers':null}", "num_hidden_layers", "missing"},
        {"{'num_hidden_layers':0}", "num_hidden_layers=0", "1 ... 1024"},
        {"{'num_hidden_layers':-1}", "num_hidden_layers=-1", ""},
        {"{'num_hidden_layers':2.0}", "num_hidden_layers=2.0", "not an integer"},
        {"{'num_hidden_layers':2147483648}", "num_hidden_layers=2147483648", ""},
        {"{'num_hidden_layers':true}", "num_hidden_layers=true", ""},
        {"{'num_attention_heads':'4'}", "num_attention_heads=\"4\"", ""},
        {"{'num_attention_heads':32,'num_key_value_heads':5}", "num_attention_heads=32",
         "num_key_value_heads=5"},
        {"{'num_attention_heads':5}", "hidden_size=32", "head_dim"},
        {"{'hidden_size':36}", "head_dim=9", "even"},
        {"{'head_dim':7}", "head_dim=7", "even"},
        {"{'head_dim':2048}", "head_dim=2048", ""},
        {"{'hidden_size':1000000}", "hidden_size=1000000", ""},
        {"{'vocab_size':0}", "vocab_size=0", ""},
        {"{'max_position_embeddings':0}", "max_position_embeddings=0", ""},
        {"{'rms_norm_eps':0}", "rms_norm_eps=0", ""},
        {"{'rms_norm_eps':-1e-5}", "rms_norm_eps", ""},
        {"{'rope_theta':0}", "rope_theta=0", ""},
        {"{'rope_theta':'NaN'}", "rope_theta", ""},
        {"{'tie_word_embeddings':1}", "tie_word_embeddings=1", "true or false"},
        {"{'rope_scaling':{'rope_type':'yarn','factor':2}}", "yarn", "not supported"},
        {"{'rope_scaling':{'type':'linear'}}", "factor", "missing"},
        {"{'rope_scaling':{'type':'linear','factor':0.5}}", "factor=0.5", "at least 1"},
        {"{'rope_scaling':{'type':'dynamic','factor':'2'}}", "factor=\"2\"", ""},
        {"{'head_dim':2,'rope_scaling':{'type':'dynamic','factor':2}}", "head_dim=2", "dynamic"},
        {"{'rope_scaling':{'factor':2}}", "rope_scaling.rope_type", "not supported"},
        {"{'rope_scaling':[1]}", "rope_scaling", "not an object"},
        {"{'rope_parameters':{'rope_theta':1e4},'rope_theta':2e4}", "rope_theta is 20000",
         "rope_parameters"},
        {"{'rope_parameters':{'rope_type':'default'},'rope_scaling':{'type':'yarn'}}", "both given",
         ""},
        {"{'rope_scaling':{'rope_type':'llama3','factor':8}}", "low_freq_factor", "missing"},
        {"{'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':4,"
         "'high_freq_factor':4,'original_max_position_embeddings':32}}",
         "high_freq_factor=4", ""},
        {"{'rope_parameters':{'rope_type':'default','partial_rotary_factor':0.5}}",
         "partial_rotary_factor", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_shape s;
        ckvc_err err = {0};
        if (read_patched(cases[i].patch, &s, &err) != CKVC_E_DATA) {
            fail_msg("%s was not refused", cases[i].patch);
        }
        const char *const words[] = {"config.json", cases[i].word, cases[i].more};
        for (int k = 0; k < 3; k++) {
            if (!strstr(err.text, words[k])) {
                fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].patch, err.text, words[k]);
            }
        }
    }
    static const char *const texts[] = {"", "[]", "3", "{'model_type':'llama'", "{'a':1,'a':2}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        model_shape s;
        SAYS(read_text(texts[i], &s, &err), CKVC_E_DATA, "config.json");
    }
}

static char warned[2048];
static int n_warnings;
static void take_warning(const char *line) {
    n_warnings++;
    snprintf(warned, sizeof warned, "%s", line);
}

/* Values that leave the family's network as it is; and keys that no rule knows, in one line. */
TEST(keys) {
    ckvc_warn_set(take_warning);
    good("{'is_causal':true,'logit_scale':1.0,'residual_multiplier':null,'num_experts':0,"
         "'pruned_heads':{},'no_rope_layers':[],'use_mrope':false,'quantization_config':null,"
         "'partial_rotary_factor':1,'key_of_tomorrow':null,'sliding_window':2048,'temperature':2,"
         "'task_specific_params':{'no':{'key':1}}}");
    assert_int_equal(n_warnings, 0);
    good("{'use_rope':false,'rope_scaling':{'rope_type':'default','mscale':1},'a b':1,"
         "'top_k top_p':2,'rope_theta':1e5}");
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warned, "config.json: "));
    assert_non_null(strstr(warned, ": use_rope, mscale, a b, top_k top_p; "));
    assert_null(strstr(warned, "rope_theta"));
    char *many = ckvc_format("{");
    for (int i = 0; i < 3000; i++) {
        char *more = ckvc_format("%s%s'key%d':%d", many, i ? "," : "", i, i);
        free(many), many = more;
    }
    char *patch = ckvc_format("%s}", many);
    good(patch);
    free(many), free(patch);
    assert_true(n_warnings == 2 && strlen(warned) < 1000);
    ckvc_warn_set(NULL);
}

static size_t read_all_below(const char *folder) {
    size_t n_read = 0;
    glob_t found;
    char path[4200];
    snprintf(path, sizeof path, "%s/*/config.json", folder);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++, n_read++) {
        model_shape s;
        *strrchr(found.gl_pathv[i], '/') = '\0';
        OK(model_config_read(found.gl_pathv[i], &s, &err));
        if (n_warnings) { fail_msg("%s", warned); }
    }
    globfree(&found);
    return n_read;
}

/* Nothing is said of models that are known: golden ones, the embedded ones, published ones. */
TEST(known_models) {
    n_warnings = 0;
    ckvc_warn_set(take_warning);
    assert_true(read_all_below("tests/golden/models") + read_all_below("models") >= 14);
    assert_true(read_all_below(shared_data(".", "configs")) >= 12);
    read_all_below(shared_data(".", "models"));
    ckvc_warn_set(NULL);
}

/* generation_config.json's ids before config.json's; what is no id is left out. */
TEST(stop_ids) {
    static const char name[] = "generation_config.json";
    assert_int_equal(good("{}").n_stop_ids, 0);
    model_shape s = good("{'eos_token_id':7}");
    assert_true(s.n_stop_ids == 1 && model_shape_stops(&s, 7) && !model_shape_stops(&s, 0));
    s = good("{'eos_token_id':[2,3,99,100,-1,'x']}");
    assert_true(s.n_stop_ids == 3 && s.stop_ids[2] == 99);
    static const struct {
        const char *text;
        int32_t id;
    } files[] = {{"{'eos_token_id':[9]}", 9}, {"{'eos_token_id':null}", 7}, {"{}", 7}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put_text(name, json_of(files[i].text));
        s = good("{'eos_token_id':7}");
        assert_true(s.n_stop_ids == 1 && s.stop_ids[0] == files[i].id);
    }
    unlink(in_temp_folder(name));
}

/* A path where nothing is: what looks like a Hub id is told how to get it. */
TEST(hub_ids) {
    static const struct {
        const char *path;
        bool id;
    } cases[] = {{"meta-llama/Llama-3.2-1B", true},
                 {"gone_owner/model.v2", true},
                 {"models/not-there", false}, /* models is a folder here */
                 {"not-there", false},
                 {"/not/there", false},
                 {"./not/there", false},
                 {"gone_owner/a/b", false},
                 {"gone_owner/", false},
                 {"gone_owner/model.gguf", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_shape s;
        FAILS(model_files_shape(cases[i].path, &s, &err), CKVC_E_NOINPUT);
        const char *told = strstr(err.text, "hf download ");
        assert_true(cases[i].id == (told != NULL));
        if (told) { assert_non_null(strstr(told, cases[i].path)); }
    }
}

/* What lies in a model's place is named, and what to do. */
TEST(in_place_of_a_model) {
    static const struct {
        const char *file, *told;
    } cases[] = {{"adapter_config.json", "an adapter of another model: merge the two"},
                 {"pytorch_model-00001-of-00002.bin", "PyTorch's weights, which are not read"},
                 {"consolidated.00.pth", "PyTorch's weights, which are not read"},
                 {"model.onnx", "weights in ONNX, which are not read"},
                 {"model_index.json", "a model of images"},
                 {"snapshots", "the Hub's cache"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shell("mkdir -p %s/odd && rm -f %s/odd/*", temp_folder, temp_folder);
        for (int more = 0; more < 3; more++) { /* alone, beside a tokenizer, beside config.json */
            static const char *const beside[] = {NULL, "odd/tokenizer.json", "odd/config.json"};
            char name[64];
            snprintf(name, sizeof name, "odd/%s", cases[i].file);
            put_text(name, "x");
            if (beside[more]) { put_text(beside[more], json_of(base)); }
            model_spec *spec;
            ckvc_err err = {0};
            const ckvc_status st = model_files_read(in_temp_folder("odd"), &spec, &err);
            if (i == 0 && more == 2) { /* which would be added to weights that are there, too */
                assert_int_equal(st, CKVC_E_DATA);
                assert_non_null(strstr(err.text, "adapter_config.json: an adapter, which "));
                continue;
            }
            assert_int_equal(st, CKVC_E_NOINPUT);
            if (!strstr(err.text, cases[i].told)) { fail_msg("%s", err.text); }
        }
    }
    model_shape s;
    put_text("a-file", "x");
    SAYS(model_files_shape(in_temp_folder("a-file"), &s, &err), CKVC_E_NOINPUT,
         "a-file: neither a folder nor a GGUF file");
    for (int i = 0; i < 3; i++) {
        static const char *const texts[][2] = {
            {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"},
            {"<!DOCTYPE html><html>", "an HTML page"},
            {"", "an empty file"}};
        SAYS(read_text(texts[i][0], &s, &err), CKVC_E_DATA, texts[i][1]);
        put_text("x.gguf", texts[i][0]);
        SAYS(model_files_shape(in_temp_folder("x.gguf"), &s, &err), CKVC_E_DATA, texts[i][1]);
    }
}

/* A folder that a GGUF file was downloaded into: which file to name. */
TEST(gguf_folders) {
    static const char *const names[] = {"folder/b.gguf", "folder/a.gguf", "folder/LICENSE"};
    assert_int_equal(mkdir(in_temp_folder("folder"), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) { put_text(names[i], "{}"); }
    for (int with_config = 0; with_config < 2; with_config++) {
        model_shape s;
        ckvc_err err = {0};
        if (with_config) { put_text("folder/config.json", "{}"); }
        assert_true(model_files_shape(in_temp_folder("folder"), &s, &err) != CKVC_OK);
        assert_true(with_config == !strstr(err.text, "give the file itself as the model"));
        assert_true(with_config == !strstr(err.text, "/folder/a.gguf"));
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
