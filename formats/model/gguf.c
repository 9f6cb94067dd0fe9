/* Reading GGUF: see gguf.h. Layout, all little-endian:
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys x { string key, u32 type, value }           string: u64 length and bytes; array: u32 item
 * type, u64 n and items tensors x { string name, u32 rank, u64 dims[rank], u32 type, u64 offset }
 *   zeros up to a multiple of general.alignment (32), from which the offsets count; tensor after
 * tensor, each so padded
 */
#include "formats/model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

#define DEFAULT_ALIGNMENT 32u
#define ALIGNMENT_KEY     "general.alignment"

static const struct {
    const char *name;
    uint32_t bytes; /* of a fixed-size type; 0: string, array */
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

/* ggml_type (ggml.h). Those with TENSOR_OTHER are known by name alone, for the refusal. */
static const struct {
    uint32_t id;
    const char *name;
    tensor_type type;
} tensor_types[] = {
    {0, "F32", TENSOR_F32},       {1, "F16", TENSOR_F16},        {2, "Q4_0", TENSOR_Q4_0},
    {3, "Q4_1", TENSOR_Q4_1},     {6, "Q5_0", TENSOR_Q5_0},      {7, "Q5_1", TENSOR_Q5_1},
    {8, "Q8_0", TENSOR_Q8_0},     {9, "Q8_1", TENSOR_OTHER},     {10, "Q2_K", TENSOR_OTHER},
    {11, "Q3_K", TENSOR_OTHER},   {12, "Q4_K", TENSOR_Q4_K},     {13, "Q5_K", TENSOR_OTHER},
    {14, "Q6_K", TENSOR_Q6_K},    {15, "Q8_K", TENSOR_OTHER},    {16, "IQ2_XXS", TENSOR_OTHER},
    {17, "IQ2_XS", TENSOR_OTHER}, {18, "IQ3_XXS", TENSOR_OTHER}, {19, "IQ1_S", TENSOR_OTHER},
    {20, "IQ4_NL", TENSOR_OTHER}, {21, "IQ3_S", TENSOR_OTHER},   {22, "IQ2_S", TENSOR_OTHER},
    {23, "IQ4_XS", TENSOR_OTHER}, {24, "I8", TENSOR_OTHER},      {25, "I16", TENSOR_OTHER},
    {26, "I32", TENSOR_OTHER},    {27, "I64", TENSOR_OTHER},     {28, "F64", TENSOR_OTHER},
    {29, "IQ1_M", TENSOR_OTHER},  {30, "BF16", TENSOR_BF16},     {34, "TQ1_0", TENSOR_OTHER},
    {35, "TQ2_0", TENSOR_OTHER},  {39, "MXFP4", TENSOR_OTHER},
};
#define SUPPORTED_TYPES "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K"

/* "u32", "string" ... */
static const char *type_name(gguf_type type) {
    return (size_t)type < N_VALUE_TYPES ? value_types[type].name : "of an unknown type";
}

bool gguf_is_file(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode)) { return false; }
    const size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) { return true; }
    char magic[4] = {0};
    FILE *f = fopen(path, "rb");
    const bool is = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (f) { fclose(f); }
    return is;
}

/* ---- reading ---- */

static ckvc_status cut_off(const gguf *g, const ckvc_cursor *c, const char *what, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_DATA,
                     "%s: byte %" PRIu64 ": the file ends inside %s (%" PRIu64
                     " bytes; is it cut off?)",
                     g->path, c->pos, what, c->size);
}

/* A key or a tensor's name, copied: printable ASCII, so that it can stand in a message and has no
 * NUL inside. */
static ckvc_status read_name(const gguf *g, ckvc_cursor *c, const char *what, size_t index,
                             char **out, ckvc_err *err) {
    const uint64_t at = c->pos, n = ckvc_cursor_u64(c);
    if (!c->failed && (n == 0 || n > GGUF_MAX_NAME)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": %s %zu has a name of %" PRIu64
                         " bytes; 1 ... %u are read",
                         g->path, at, what, index, n, GGUF_MAX_NAME);
    }
    const uint8_t *p = ckvc_cursor_take(c, n);
    if (p == NULL) { return cut_off(g, c, what, err); }
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] < 0x20 || p[i] > 0x7E) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: byte %" PRIu64
                             ": the name of %s %zu holds the byte 0x%02X; want printable ASCII",
                             g->path, at + 8 + i, what, index, p[i]);
        }
    }
    *out = ckvc_alloc(n + 1, 1);
    if (*out == NULL) { return ckvc_fail_memory(err, "a name", n + 1); }
    memcpy(*out, p, n);
    (*out)[n] = '\0';
    return CKVC_OK;
}

/* The items' bytes, all checked to be there: fixed sizes by one multiplication, strings by a walk
 * over their lengths. */
static ckvc_status read_array(const gguf *g, ckvc_cursor *c, gguf_value *v, ckvc_err *err) {
    const uint64_t at = c->pos;
    const uint32_t item = ckvc_cursor_u32(c);
    v->n = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(g, c, v->key, err); }
    if (item >= N_VALUE_TYPES || item == GGUF_ARRAY) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64
                         ": key %s is an array of type %u (%s); want numbers, bools or strings",
                         g->path, at, v->key, item, type_name((gguf_type)item));
    }
    v->item = (gguf_type)item;
    if (v->n > GGUF_MAX_ITEMS) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key %s is an array of %" PRIu64
                         " items; at most %u are read",
                         g->path, at + 4, v->key, v->n, GGUF_MAX_ITEMS);
    }
    v->at = c->pos;
    v->data = c->data + c->pos;
    const uint64_t size = value_types[item].bytes;
    if (size) {
        if (ckvc_cursor_take(c, v->n * size) == NULL) { /* at most 2^24 * 8 */
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": key %s claims %" PRIu64 " items of %s, %" PRIu64
                             " bytes remain",
                             g->path, at + 4, v->key, v->n, value_types[item].name,
                             c->size - c->pos);
        }
    } else {
        for (uint64_t i = 0; i < v->n; i++) {
            const uint64_t place = c->pos, n = ckvc_cursor_u64(c);
            if (ckvc_cursor_take(c, n) == NULL) {
                return ckvc_fail(err, CKVC_E_DATA,
                                 "%s: byte %" PRIu64 ": string %" PRIu64 " of %" PRIu64
                                 " of key %s runs past the end of the file (%" PRIu64 " bytes)",
                                 g->path, place, i, v->n, v->key, c->size);
            }
        }
    }
    v->bytes = c->pos - v->at;
    return CKVC_OK;
}

static ckvc_status read_value(const gguf *g, ckvc_cursor *c, gguf_value *v, ckvc_err *err) {
    const uint64_t at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    if (c->failed) { return cut_off(g, c, v->key, err); }
    if (type >= N_VALUE_TYPES) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": key %s has the unknown type %u",
                         g->path, at, v->key, type);
    }
    v->type = (gguf_type)type;
    if (v->type == GGUF_ARRAY) { return read_array(g, c, v, err); }
    const uint64_t length_at = c->pos;
    v->n = v->type == GGUF_STRING ? ckvc_cursor_u64(c) : 1;
    v->bytes = v->type == GGUF_STRING ? v->n : value_types[type].bytes;
    v->at = c->pos;
    v->data = ckvc_cursor_take(c, v->bytes);
    if (v->data == NULL && v->type == GGUF_STRING && c->pos > length_at) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key %s is a string of %" PRIu64 " bytes, %" PRIu64
                         " remain",
                         g->path, length_at, v->key, v->n, c->size - c->pos);
    }
    if (v->data == NULL) { return cut_off(g, c, v->key, err); }
    if (v->type == GGUF_BOOL && *v->data > 1) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key %s is a bool of value %u; want 0 or 1", g->path,
                         v->at, v->key, *v->data);
    }
    return CKVC_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const gguf_value *)a)->key, ((const gguf_value *)b)->key);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const gguf_tensor *)a)->name, ((const gguf_tensor *)b)->name);
}

static ckvc_status read_values(gguf *g, ckvc_cursor *c, uint64_t n, ckvc_err *err) {
    g->values = ckvc_calloc((size_t)n, sizeof *g->values);
    for (uint64_t i = 0; i < n; i++) {
        gguf_value *v = &g->values[g->n_values];
        ckvc_status st = read_name(g, c, "key", (size_t)i, &v->key, err);
        if (st != CKVC_OK) { return st; }
        g->n_values++;
        st = read_value(g, c, v, err);
        if (st != CKVC_OK) { return st; }
    }
    if (n > 1) { qsort(g->values, g->n_values, sizeof *g->values, by_key); }
    for (size_t i = 1; i < g->n_values; i++) {
        if (strcmp(g->values[i - 1].key, g->values[i].key) == 0) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": key %s is there twice (also at byte %" PRIu64
                             ")",
                             g->path, g->values[i].at, g->values[i].key, g->values[i - 1].at);
        }
    }
    return CKVC_OK;
}

/* "[64,65]", in the file's order. */
static void dims_text(const gguf_tensor *t, char *out, size_t size) {
    size_t n = (size_t)snprintf(out, size, "[");
    for (int32_t i = 0; i < t->rank; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i ? "," : "", t->dims[i]);
    }
    snprintf(out + n, size - n, "]");
}

/* One entry of the table. *next is where this tensor must begin, in the data, and becomes where it
 * ends. */
static ckvc_status read_tensor(const gguf *g, ckvc_cursor *c, size_t index, uint64_t alignment,
                               gguf_tensor *t, uint64_t *offset, ckvc_err *err) {
    ckvc_status st = read_name(g, c, "tensor", index, &t->name, err);
    if (st != CKVC_OK) { return st; }
    uint64_t at = c->pos;
    const uint32_t rank = ckvc_cursor_u32(c);
    if (!c->failed && (rank < 1 || rank > TENSOR_MAX_RANK)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": tensor \"%s\" has rank %u; 1 ... %d are read",
                         g->path, at, t->name, rank, TENSOR_MAX_RANK);
    }
    t->rank = (int32_t)rank;
    uint64_t values = 1;
    bool fits = true;
    for (uint32_t i = 0; i < rank && !c->failed; i++) {
        at = c->pos;
        const uint64_t dim = ckvc_cursor_u64(c);
        if (!c->failed && (dim < 1 || dim > (uint64_t)GGUF_MAX_DIM)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": tensor \"%s\": dimension %u is %" PRIu64
                             "; want 1 ... 2^48",
                             g->path, at, t->name, i, dim);
        }
        t->dims[i] = (int64_t)dim;
        fits = fits && !__builtin_mul_overflow(values, dim, &values);
    }
    const uint64_t type_at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    const uint64_t offset_at = c->pos;
    *offset = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(g, c, "the table of tensors", err); }

    size_t kind = 0;
    while (kind < sizeof tensor_types / sizeof *tensor_types && tensor_types[kind].id != type) {
        kind++;
    }
    if (kind == sizeof tensor_types / sizeof *tensor_types) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64
                         ": tensor \"%s\" has the unknown type %u (read are " SUPPORTED_TYPES ")",
                         g->path, type_at, t->name, type);
    }
    t->type = tensor_types[kind].type;
    t->dtype = tensor_types[kind].name;
    if (t->type == TENSOR_OTHER) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: byte %" PRIu64
            ": tensor \"%s\" has type %s, which is not supported (read are " SUPPORTED_TYPES ")",
            g->path, type_at, t->name, t->dtype);
    }
    char dims[128];
    dims_text(t, dims, sizeof dims);
    const tensor_block block = tensor_block_of(t->type);
    if (t->dims[0] % block.values != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: tensor \"%s\" is %s %s: rows of %" PRId64
                         " values are no whole blocks of %u",
                         g->path, t->name, t->dtype, dims, t->dims[0], block.values);
    }
    if (!fits || __builtin_mul_overflow(values / block.values, (uint64_t)block.bytes, &t->bytes)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\": %s %s overflows", g->path, t->name,
                         t->dtype, dims);
    }
    if (*offset % alignment != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": tensor \"%s\" begins at %" PRIu64
                         " of the data, no multiple of " ALIGNMENT_KEY " %" PRIu64,
                         g->path, offset_at, t->name, *offset, alignment);
    }
    return CKVC_OK;
}

/* n rounded up to a multiple of a power of two; false when that overflows. */
static bool align_up(uint64_t n, uint64_t alignment, uint64_t *out) {
    if (__builtin_add_overflow(n, alignment - 1, out)) { return false; }
    *out &= ~(alignment - 1);
    return true;
}

static ckvc_status read_alignment(const gguf *g, uint64_t *out, ckvc_err *err) {
    const gguf_value *v = gguf_find(g, ALIGNMENT_KEY);
    *out = DEFAULT_ALIGNMENT;
    if (v == NULL) { return CKVC_OK; }
    if (v->type != GGUF_U32) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key " ALIGNMENT_KEY " is %s; want u32", g->path,
                         v->at, type_name(v->type));
    }
    *out = ckvc_get_u32(v->data);
    if (*out < 8 || *out > GGUF_MAX_ALIGNMENT || (*out & (*out - 1)) != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key " ALIGNMENT_KEY " is %" PRIu64
                         "; want a power of two in 8 ... %u",
                         g->path, v->at, *out, GGUF_MAX_ALIGNMENT);
    }
    return CKVC_OK;
}

/* Tensors lie one after the other in the order of the table, each begun at the next multiple of the
 * alignment, as every writer has them and llama.cpp demands: no overlap, and no bytes that belong
 * to nothing. */
static ckvc_status place_tensors(gguf *g, const ckvc_cursor *c, const uint64_t *offsets,
                                 uint64_t alignment, ckvc_err *err) {
    uint64_t data, next = 0, end = 0;
    if (!align_up(c->pos, alignment, &data)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": the data's place overflows",
                         g->path, c->pos);
    }
    if (g->n_tensors && data > c->size) {
        return cut_off(g, c, "the padding before the data", err);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        if (offsets[i] != next) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s: tensor \"%s\" begins at %" PRIu64 " of the data, %s; want %" PRIu64, g->path,
                t->name, offsets[i],
                offsets[i] < next ? "inside the tensor before it" : "behind bytes of no tensor",
                next);
        }
        if (!ckvc_span_ok(offsets[i], t->bytes, c->size - data)) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: tensor \"%s\" is %" PRIu64 " bytes at %" PRIu64
                             " of the data, which has %" PRIu64 " (is the file cut off?)",
                             g->path, t->name, t->bytes, offsets[i], c->size - data);
        }
        t->data = c->data + data + offsets[i];
        end = offsets[i] + t->bytes;
        if (!align_up(end, alignment, &next)) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\": its end overflows", g->path,
                             t->name);
        }
    }
    const uint64_t last = g->n_tensors ? data + next : data;
    if (c->size > last) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": %" PRIu64
                         " bytes behind the last tensor belong to none",
                         g->path, last, c->size - last);
    }
    return CKVC_OK;
}

static ckvc_status read_tensors(gguf *g, ckvc_cursor *c, uint64_t n, ckvc_err *err) {
    uint64_t alignment;
    uint64_t *offsets = ckvc_calloc((size_t)n, sizeof *offsets);
    g->tensors = ckvc_calloc((size_t)n, sizeof *g->tensors);
    ckvc_status st = offsets && g->tensors ? CKVC_OK
                                           : ckvc_fail_memory(err, "the table of tensors",
                                                              (size_t)n * sizeof *g->tensors);
    if (st == CKVC_OK) { st = read_alignment(g, &alignment, err); }
    for (uint64_t i = 0; st == CKVC_OK && i < n; i++) {
        g->n_tensors++; /* a name that was read before the failure is freed with the rest */
        st = read_tensor(g, c, (size_t)i, alignment, &g->tensors[i], &offsets[i], err);
    }
    if (st == CKVC_OK) { st = place_tensors(g, c, offsets, alignment, err); }
    free(offsets);
    if (st != CKVC_OK) { return st; }
    if (n > 1) { qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_tensor_name); }
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i - 1].name, g->tensors[i].name) == 0) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" is there twice", g->path,
                             g->tensors[i].name);
        }
    }
    return CKVC_OK;
}

static ckvc_status read_all(gguf *g, ckvc_err *err) {
    /* The shortest key and the shortest tensor entry: what a count is held against before anything
     * is allocated for it. */
    enum { MIN_KEY = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };
    ckvc_cursor c = {.data = g->map.data, .size = g->map.size};
    const uint8_t *magic = ckvc_cursor_take(&c, 4);
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte 0: does not begin with \"GGUF\"", g->path);
    }
    const uint32_t version = ckvc_cursor_u32(&c);
    const uint64_t n_tensors = ckvc_cursor_u64(&c), n_keys = ckvc_cursor_u64(&c);
    if (c.failed) { return cut_off(g, &c, "the header", err); }
    if (version != 2 && version != 3) {
        return ckvc_fail(
            err, CKVC_E_DATA, "%s: byte 4: GGUF version %u%s; versions 2 and 3 are read", g->path,
            version, version != 0 && (version & 0xFFFF) == 0 ? " (a big-endian file?)" : "");
    }
    if (n_tensors > GGUF_MAX_TENSORS || n_tensors > (c.size - c.pos) / MIN_TENSOR) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte 8: %" PRIu64 " tensors; the file's %" PRIu64
                         " bytes and our limit of %u allow fewer",
                         g->path, n_tensors, c.size, GGUF_MAX_TENSORS);
    }
    if (n_keys > GGUF_MAX_KEYS || n_keys > (c.size - c.pos) / MIN_KEY) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte 16: %" PRIu64 " keys; the file's %" PRIu64
                         " bytes and our limit of %u allow fewer",
                         g->path, n_keys, c.size, GGUF_MAX_KEYS);
    }
    ckvc_status st = read_values(g, &c, n_keys, err);
    return st == CKVC_OK ? read_tensors(g, &c, n_tensors, err) : st;
}

ckvc_status gguf_open(const char *path, gguf **out, ckvc_err *err) {
    *out = NULL;
    gguf *g = ckvc_calloc(1, sizeof *g);
    ckvc_status st =
        g ? ckvc_map_open(path, &g->map, err) : ckvc_fail_memory(err, "a GGUF file", sizeof *g);
    if (st == CKVC_OK) {
        g->path = ckvc_strdup(path);
        st = g->path ? read_all(g, err) : ckvc_fail_memory(err, "a file name", strlen(path));
    }
    if (st != CKVC_OK) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return CKVC_OK;
}

void gguf_close(gguf *g) {
    if (g == NULL) { return; }
    for (size_t i = 0; i < g->n_values; i++) {
        free(g->values[i].key);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        free(g->tensors[i].name);
    }
    free(g->values);
    free(g->tensors);
    free(g->path);
    ckvc_map_close(&g->map);
    free(g);
}

/* ---- asking ---- */

const gguf_value *gguf_find(const gguf *g, const char *key) {
    const gguf_value wanted = {.key = (char *)(uintptr_t)key};
    return g->n_values ? bsearch(&wanted, g->values, g->n_values, sizeof wanted, by_key) : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name) {
    const gguf_tensor wanted = {.name = (char *)(uintptr_t)name};
    return g->n_tensors ? bsearch(&wanted, g->tensors, g->n_tensors, sizeof wanted, by_tensor_name)
                        : NULL;
}

static ckvc_status wrong_type(const gguf *g, const gguf_value *v, const char *want, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": key %s is %s%s; want %s", g->path,
                     v->at, v->key, v->type == GGUF_ARRAY ? "an array of " : "",
                     type_name(v->type == GGUF_ARRAY ? v->item : v->type), want);
}

ckvc_status gguf_int(const gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                     ckvc_err *err) {
    const gguf_value *v = gguf_find(g, key);
    if (v == NULL) { return CKVC_OK; }
    int64_t x;
    switch (v->type) {
    case GGUF_U8:
        x = *v->data;
        break;
    case GGUF_I8:
        x = (int8_t)*v->data;
        break;
    case GGUF_U16:
        x = ckvc_get_u16(v->data);
        break;
    case GGUF_I16:
        x = (int16_t)ckvc_get_u16(v->data);
        break;
    case GGUF_U32:
        x = ckvc_get_u32(v->data);
        break;
    case GGUF_I32:
        x = (int32_t)ckvc_get_u32(v->data);
        break;
    case GGUF_I64:
        x = (int64_t)ckvc_get_u64(v->data);
        break;
    case GGUF_U64:
        x = ckvc_get_u64(v->data) > INT64_MAX ? INT64_MAX : (int64_t)ckvc_get_u64(v->data);
        break;
    default:
        return wrong_type(g, v, "an integer", err);
    }
    if (x < min || x > max) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": key %s is %" PRId64 "; want %" PRId64
                         " ... %" PRId64,
                         g->path, v->at, key, x, min, max);
    }
    *out = x;
    return CKVC_OK;
}

ckvc_status gguf_number(const gguf *g, const char *key, double *out, ckvc_err *err) {
    const gguf_value *v = gguf_find(g, key);
    if (v == NULL) { return CKVC_OK; }
    if (v->type != GGUF_F32 && v->type != GGUF_F64) { return wrong_type(g, v, "f32 or f64", err); }
    const double x = v->type == GGUF_F32 ? (double)ckvc_get_f32(v->data) : ckvc_get_f64(v->data);
    if (!isfinite(x)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": key %s is %s", g->path, v->at,
                         key, isnan(x) ? "NaN" : "infinite");
    }
    *out = x;
    return CKVC_OK;
}

ckvc_status gguf_flag(const gguf *g, const char *key, bool *out, ckvc_err *err) {
    const gguf_value *v = gguf_find(g, key);
    if (v == NULL) { return CKVC_OK; }
    if (v->type != GGUF_BOOL) { return wrong_type(g, v, "bool", err); }
    *out = *v->data != 0;
    return CKVC_OK;
}

ckvc_status gguf_string(const gguf *g, const char *key, const gguf_value **out, ckvc_err *err) {
    *out = gguf_find(g, key);
    if (*out == NULL || (*out)->type == GGUF_STRING) { return CKVC_OK; }
    return wrong_type(g, *out, "a string", err);
}

ckvc_status gguf_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out,
                       ckvc_err *err) {
    *out = gguf_find(g, key);
    if (*out == NULL || ((*out)->type == GGUF_ARRAY && (*out)->item == item)) { return CKVC_OK; }
    char want[32];
    snprintf(want, sizeof want, "an array of %s", type_name(item));
    return wrong_type(g, *out, want, err);
}

bool gguf_string_is(const gguf_value *v, const char *text) {
    return v && v->type == GGUF_STRING && v->n == strlen(text) && memcmp(v->data, text, v->n) == 0;
}

const char *gguf_next_string(const gguf_value *array, uint64_t *at, size_t *size) {
    assert(array->type == GGUF_ARRAY && array->item == GGUF_STRING && *at + 8 <= array->bytes);
    *size = (size_t)ckvc_get_u64(array->data + *at);
    const char *text = (const char *)array->data + *at + 8;
    *at += 8 + *size;
    return text;
}
