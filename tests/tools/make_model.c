/* Writes a Llama model directory of any shape with random bfloat16 weights: for tests of sizes, not
 * of language.
 *
 *   make_model OUT LAYERS HEADS KV_HEADS HEAD_DIM WIDTH MLP VOCAB [untied|sharp]
 *
 * The same arguments give the same bytes. Weights are uniform within +-0.035 (a standard deviation
 * of 0.02, as models are initialised), norms within 1 +- 0.035. sharp: all within eight times that,
 * so that a narrow model's attention and choices are far from even. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct tensor {
    char name[64];
    uint64_t rows, cols; /* cols 0: a vector, which is a norm */
} tensor;

static uint64_t scramble(uint64_t x) /* SplitMix64 (Steele, Lea, Flood 2014) */
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static float bound = 0.035f;

static uint16_t bf16(uint32_t bits, float centre) {
    union {
        float f;
        uint32_t u;
    } v = {.f = centre + ((float)(bits & 0xffff) - 32767.5f) * (bound / 32768.0f)};
    return (uint16_t)(v.u >> 16);
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_values(FILE *f, const tensor *t, uint64_t stream) {
    enum { BLOCK = 1 << 16 };
    static uint16_t block[BLOCK];
    const uint64_t n = t->rows * (t->cols ? t->cols : 1);
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint64_t m = n - at < BLOCK ? n - at : BLOCK;
        for (uint64_t i = 0; i < m; i++) {
            const uint64_t four = scramble(stream << 40 | (at + i) / 4);
            block[i] = bf16((uint32_t)(four >> 16 * ((at + i) % 4)), t->cols ? 0.0f : 1.0f);
        }
        if (fwrite(block, sizeof *block, m, f) != m) { die("write"); }
    }
}

int main(int argc, char **argv) {
    if (argc < 9) {
        fprintf(stderr, "usage: make_model OUT LAYERS HEADS KV_HEADS HEAD_DIM WIDTH MLP VOCAB "
                        "[untied|sharp]\n");
        return 64;
    }
    uint64_t v[7];
    for (int i = 0; i < 7; i++) { v[i] = strtoull(argv[i + 2], NULL, 10); }
    const uint64_t layers = v[0], q = v[1] * v[3], kv = v[2] * v[3], m = v[4], f = v[5],
                   vocab = v[6];
    const int untied = argc > 9 && strcmp(argv[9], "untied") == 0;
    if (argc > 9 && strcmp(argv[9], "sharp") == 0) { bound *= 8; }
    const struct {
        const char *name;
        uint64_t rows, cols;
    } of_layer[] = {
        {"input_layernorm", m, 0},          {"self_attn.q_proj", q, m}, {"self_attn.k_proj", kv, m},
        {"self_attn.v_proj", kv, m},        {"self_attn.o_proj", m, q}, {"mlp.gate_proj", f, m},
        {"post_attention_layernorm", m, 0}, {"mlp.up_proj", f, m},      {"mlp.down_proj", m, f},
    };
    enum { PER_LAYER = sizeof of_layer / sizeof *of_layer };
    const size_t n = (size_t)layers * PER_LAYER + 2 + (size_t)untied;
    tensor *t = calloc(n, sizeof *t);
    char *header = malloc(n * 192 + 16), path[4096];
    if (!t || !header) { die("memory"); }
    size_t k = 0;
    t[k++] = (tensor){"model.embed_tokens.weight", vocab, m};
    for (uint64_t l = 0; l < layers; l++) {
        for (size_t i = 0; i < PER_LAYER; i++, k++) {
            t[k] = (tensor){.rows = of_layer[i].rows, .cols = of_layer[i].cols};
            snprintf(t[k].name, sizeof t[k].name, "model.layers.%llu.%s.weight",
                     (unsigned long long)l, of_layer[i].name);
        }
    }
    t[k++] = (tensor){"model.norm.weight", m, 0};
    if (untied) { t[k++] = (tensor){"lm_head.weight", vocab, m}; }

    size_t at = 0;
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = 2 * t[i].rows * (t[i].cols ? t[i].cols : 1);
        at += (size_t)sprintf(header + at, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%llu",
                              i ? ',' : '{', t[i].name, (unsigned long long)t[i].rows);
        if (t[i].cols) {
            at += (size_t)sprintf(header + at, ",%llu", (unsigned long long)t[i].cols);
        }
        at += (size_t)sprintf(header + at, "],\"data_offsets\":[%llu,%llu]}",
                              (unsigned long long)offset, (unsigned long long)(offset + bytes));
        offset += bytes;
    }
    header[at++] = '}';
    while (at % 8) { header[at++] = ' '; }

    if (mkdir(argv[1], 0777) != 0) { die(argv[1]); }
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    FILE *out = fopen(path, "w");
    if (!out) { die(path); }
    fprintf(out,
            "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"num_hidden_"
            "layers\":%llu,\"num_attention_heads\":"
            "%llu,"
            "\"num_key_value_heads\":%llu,\"head_dim\":%llu,\"hidden_size\":%llu,\"intermediate_"
            "size\":%llu,\"vocab_size\":%llu,"
            "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,"
            "\"hidden_act\":\"silu\","
            "\"tie_word_embeddings\":%s,\"torch_dtype\":\"bfloat16\"}\n",
            (unsigned long long)v[0], (unsigned long long)v[1], (unsigned long long)v[2],
            (unsigned long long)v[3], (unsigned long long)m, (unsigned long long)f,
            (unsigned long long)vocab, untied ? "false" : "true");
    if (fclose(out) != 0) { die(path); }
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    out = fopen(path, "wb");
    if (!out) { die(path); }
    uint8_t length[8];
    for (int i = 0; i < 8; i++) { length[i] = (uint8_t)((uint64_t)at >> 8 * i); }
    if (fwrite(length, 1, 8, out) != 8 || fwrite(header, 1, at, out) != at) { die(path); }
    for (size_t i = 0; i < n; i++) { write_values(out, &t[i], i); }
    if (fclose(out) != 0) { die(path); }
    free(header);
    free(t);
    return 0;
}
