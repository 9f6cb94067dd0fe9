/* Reads GGUF: see gguf.h. The layout, all little-endian, is:
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys x { string key, u32 type, value }
 *       string: u64 length and bytes; array: u32 item type, u64 n and items
 *   tensors x { string name, u32 rank, u64 dims[rank], u32 type, u64 offset }
 *   zeros up to a multiple of general.alignment (32), from which the offsets count; then the
 *   tensors, one after the other, each padded in the same way */
#include "formats/model/gguf.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "formats/model/model_readers.h"
#include "lib/base/order.h"
#include "lib/base/sizes.h"

#define DEFAULT_ALIGNMENT 32u
#define ALIGNMENT_KEY     "general.alignment"
#define SUPPORTED_TYPES   "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K"

static const struct {
    const char *name;
    uint32_t bytes; /* of a type of fixed size; 0: string or array */
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

/* Names by ggml_type (ggml.h). A refusal gives the names of those that tensor_type_named does not
 * know. */
static const char *const tensor_types[] = {
    [0] = "F32", "F16",          "Q4_0",    "Q4_1",         [6] = "Q5_0", "Q5_1",  "Q8_0",
    "Q8_1",      "Q2_K",         "Q3_K",    "Q4_K",         "Q5_K",       "Q6_K",  "Q8_K",
    "IQ2_XXS",   "IQ2_XS",       "IQ3_XXS", "IQ1_S",        "IQ4_NL",     "IQ3_S", "IQ2_S",
    "IQ4_XS",    "I8",           "I16",     "I32",          "I64",        "F64",   "IQ1_M",
    "BF16",      [34] = "TQ1_0", "TQ2_0",   [39] = "MXFP4",
};
#define N_TENSOR_TYPES (sizeof tensor_types / sizeof *tensor_types)

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

static ckvc_status cut_off(reading *r, const char *what) {
    return refuse_at(r, r->c.pos, "the file ends inside %s (%zu bytes; is it cut off?)", what,
                     r->c.size);
}

/* Copies a key or a tensor's name. It must be printable ASCII, so that it can stand in a
 * message. */
static ckvc_status read_name(reading *r, const char *what, size_t index, char **out) {
    const size_t at = r->c.pos, n = ckvc_cursor_u64(&r->c);
    MUST_AT(r, at, r->c.failed || (n >= 1 && n <= GGUF_MAX_NAME),
            "%s %zu has a name of %zu bytes; 1 ... %u are read", what, index, n, GGUF_MAX_NAME);
    const uint8_t *p = ckvc_cursor_take(&r->c, n);
    if (!p) { return cut_off(r, what); }
    for (size_t i = 0; i < n; i++) {
        MUST_AT(r, at + 8 + i, p[i] >= 0x20 && p[i] <= 0x7E,
                "the name of %s %zu holds the byte 0x%02X; want printable ASCII", what, index,
                p[i]);
    }
    *out = ckvc_format("%.*s", (int)n, (const char *)p);
    return CKVC_OK;
}

/* Checks that the bytes of all items are there; for strings it walks over their lengths. */
static ckvc_status read_array(reading *r, gguf_value *v) {
    ckvc_cursor *c = &r->c;
    const size_t at = c->pos;
    const uint32_t item = ckvc_cursor_u32(c);
    v->n = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, v->key); }
    MUST_AT(r, at, item < N_VALUE_TYPES && item != GGUF_ARRAY,
            "key %s is an array of type %u (%s); want numbers, bools or strings", v->key, item,
            item < N_VALUE_TYPES ? "array" : "of an unknown type");
    v->item = (gguf_type)item;
    MUST_AT(r, at + 4, v->n <= GGUF_MAX_ITEMS,
            "key %s is an array of %zu items; at most %u are read", v->key, v->n, GGUF_MAX_ITEMS);
    v->at = c->pos;
    v->data = c->data + c->pos;
    const size_t size = value_types[item].bytes;
    MUST_AT(r, at + 4, !size || ckvc_cursor_take(c, v->n * size), /* at most 2^24 * 8 */
            "key %s claims %zu items of %s, %zu bytes remain", v->key, v->n, value_types[item].name,
            c->size - c->pos);
    for (size_t i = 0; !size && i < v->n; i++) {
        const size_t place = c->pos, n = ckvc_cursor_u64(c);
        MUST_AT(r, place, ckvc_cursor_take(c, n),
                "string %zu of %zu of key %s runs past the end of the file (%zu bytes)", i, v->n,
                v->key, c->size);
    }
    v->bytes = c->pos - v->at;
    return CKVC_OK;
}

static ckvc_status read_value(reading *r, gguf_value *v) {
    ckvc_cursor *c = &r->c;
    const size_t at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    if (c->failed) { return cut_off(r, v->key); }
    MUST_AT(r, at, type < N_VALUE_TYPES, "key %s has the unknown type %u", v->key, type);
    v->type = (gguf_type)type;
    if (v->type == GGUF_ARRAY) { return read_array(r, v); }
    const bool string = v->type == GGUF_STRING;
    const size_t length_at = c->pos;
    v->n = string ? ckvc_cursor_u64(c) : 1;
    v->bytes = string ? v->n : value_types[type].bytes;
    v->at = c->pos;
    v->data = ckvc_cursor_take(c, v->bytes);
    MUST_AT(r, length_at, v->data || !string || c->pos == length_at,
            "key %s is a string of %zu bytes, %zu remain", v->key, v->n, c->size - c->pos);
    if (!v->data) { return cut_off(r, v->key); }
    MUST_AT(r, v->at, v->type != GGUF_BOOL || *v->data <= 1,
            "key %s is a bool of value %u; want 0 or 1", v->key, *v->data);
    return CKVC_OK;
}

static ckvc_status read_values(reading *r, gguf *g, size_t n) {
    g->values = ckvc_calloc(n, sizeof *g->values);
    for (size_t i = 0; i < n; i++) {
        gguf_value *v = &g->values[i];
        CKVC_TRY(read_name(r, "key", i, &v->key));
        g->n_values++;
        CKVC_TRY(read_value(r, v));
    }
    qsort(g->values, n, sizeof *g->values, ckvc_order_text);
    for (size_t i = 1; i < n; i++) {
        const gguf_value *v = &g->values[i];
        MUST_AT(r, v->at, strcmp(v[-1].key, v->key) != 0,
                "key %s is there twice (also at byte %zu)", v->key, v[-1].at);
    }
    return CKVC_OK;
}

/* Computes the tensor's bytes from its dimensions in the file's order, where the first one is
 * contiguous. */
static ckvc_status tensor_size(reading *r, tensor_view *t) {
    char dims[TENSOR_DIMS_TEXT];
    size_t values = 1;
    bool fits = true;
    for (int32_t i = 0; i < t->rank; i++) {
        fits = fits && ckvc_mul_size(values, (size_t)t->dims[i], &values);
    }
    const tensor_block block = tensor_block_of(t->type);
    tensor_dims(t->dims, t->rank, dims);
    MUST(r, t->dims[0] % block.values == 0,
         "tensor \"%s\" is %s %s: rows of %lld values are no whole blocks of %u", t->name, t->dtype,
         dims, (long long)t->dims[0], block.values);
    MUST(r, fits && ckvc_mul_size(values / block.values, block.bytes, &t->bytes),
         "tensor \"%s\": %s %s overflows", t->name, t->dtype, dims);
    return CKVC_OK;
}

/* Reads one entry of the table. *offset receives the place in the data where the tensor begins. */
static ckvc_status read_tensor(reading *r, tensor_view *t, size_t *offset) {
    ckvc_cursor *c = &r->c;
    size_t at = c->pos;
    const uint32_t rank = ckvc_cursor_u32(c);
    MUST_AT(r, at, c->failed || (rank >= 1 && rank <= GGUF_MAX_RANK),
            "tensor \"%s\" has rank %u; 1 ... %u are read", t->name, rank, GGUF_MAX_RANK);
    t->rank = (int32_t)rank;
    for (uint32_t i = 0; i < rank && !c->failed; i++) {
        at = c->pos;
        const uint64_t dim = ckvc_cursor_u64(c);
        MUST_AT(r, at, c->failed || (dim >= 1 && dim <= GGUF_MAX_DIM),
                "tensor \"%s\": dimension %u is %zu; want 1 ... 2^48", t->name, i, dim);
        t->dims[i] = (int64_t)dim;
    }
    at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    *offset = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, "the table of tensors"); }
    MUST_AT(r, at, type < N_TENSOR_TYPES && tensor_types[type],
            "tensor \"%s\" has the unknown type %u (read are " SUPPORTED_TYPES ")", t->name, type);
    t->dtype = tensor_types[type];
    t->type = tensor_type_named(t->dtype);
    MUST_AT(r, at, t->type != TENSOR_OTHER,
            "tensor \"%s\" has type %s, which is not supported (read are " SUPPORTED_TYPES ")",
            t->name, t->dtype);
    return tensor_size(r, t);
}

/* Rounds n up to a multiple of a power of two; false when that overflows. */
static bool align_up(size_t n, size_t alignment, size_t *out) {
    const bool fits = ckvc_add_size(n, alignment - 1, out);
    *out &= ~(alignment - 1);
    return fits;
}

static ckvc_status read_alignment(reading *r, const gguf *g, size_t *out) {
    const gguf_value *v = gguf_find(g, ALIGNMENT_KEY);
    *out = DEFAULT_ALIGNMENT;
    if (!v) { return CKVC_OK; }
    MUST_AT(r, v->at, v->type == GGUF_U32, "key " ALIGNMENT_KEY " is %s; want u32",
            value_types[v->type].name);
    *out = ckvc_get_u32(v->data);
    MUST_AT(r, v->at, *out >= 8 && *out <= GGUF_MAX_ALIGNMENT && (*out & (*out - 1)) == 0,
            "key " ALIGNMENT_KEY " is %zu; want a power of two in 8 ... %u", *out,
            GGUF_MAX_ALIGNMENT);
    return CKVC_OK;
}

/* Checks that tensors lie one after the other in the order of the table, each at the next multiple
 * of the alignment, as every writer puts them and llama.cpp demands: then none overlap, and no
 * bytes belong to nothing. */
static ckvc_status place_tensors(reading *r, gguf *g, const size_t *offsets, size_t alignment) {
    const ckvc_cursor *c = &r->c;
    size_t data, next = 0;
    MUST_AT(r, c->pos, align_up(c->pos, alignment, &data), "the data's place overflows");
    if (g->n_tensors && data > c->size) { return cut_off(r, "the padding before the data"); }
    for (size_t i = 0; i < g->n_tensors; i++) {
        tensor_view *t = &g->tensors[i];
        MUST(r, offsets[i] == next, "tensor \"%s\" begins at %zu of the data, %s; want %zu",
             t->name, offsets[i],
             offsets[i] < next ? "inside the tensor before it" : "behind bytes of no tensor", next);
        MUST(r, ckvc_span_ok(offsets[i], t->bytes, c->size - data),
             "tensor \"%s\" is %zu bytes at %zu of the data, which has %zu (is the file cut off?)",
             t->name, t->bytes, offsets[i], c->size - data);
        t->data = c->data + data + offsets[i];
        MUST(r, align_up(offsets[i] + t->bytes, alignment, &next),
             "tensor \"%s\": its end overflows", t->name);
    }
    MUST_AT(r, data + next, c->size <= data + next,
            "%zu bytes behind the last tensor belong to none", c->size - data - next);
    return CKVC_OK;
}

static ckvc_status read_tensors(reading *r, gguf *g, size_t n) {
    size_t alignment;
    CKVC_AUTO_FREE size_t *offsets = ckvc_calloc(n, sizeof *offsets);
    g->tensors = ckvc_calloc(n, sizeof *g->tensors);
    CKVC_TRY(read_alignment(r, g, &alignment));
    for (size_t i = 0; i < n; i++) {
        char *name = NULL;
        CKVC_TRY(read_name(r, "tensor", i, &name));
        g->tensors[g->n_tensors++] = (tensor_view){.name = name, .stored = name, .file = g->path};
        CKVC_TRY(read_tensor(r, &g->tensors[i], &offsets[i]));
        MUST_AT(r, r->c.pos - 8, offsets[i] % alignment == 0,
                "tensor \"%s\" begins at %zu of the data, no multiple of " ALIGNMENT_KEY " %zu",
                name, offsets[i], alignment);
    }
    CKVC_TRY(place_tensors(r, g, offsets, alignment));
    qsort(g->tensors, n, sizeof *g->tensors, ckvc_order_text);
    for (size_t i = 0; i < n; i++) {
        tensor_view *t = &g->tensors[i];
        MUST(r, i == 0 || strcmp(t[-1].name, t->name) != 0, "tensor \"%s\" is there twice",
             t->name);
        /* turns them into row-major order */
        for (int32_t a = 0, b = t->rank - 1; a < b; a++, b--) {
            const int64_t dim = t->dims[a];
            t->dims[a] = t->dims[b];
            t->dims[b] = dim;
        }
    }
    return CKVC_OK;
}

static ckvc_status read_all(reading *r, gguf *g) {
    ckvc_cursor *c = &r->c;
    CKVC_TRY(ckvc_download_check(r->path, c->data, c->size, r->err));
    const uint8_t *magic = ckvc_cursor_take(c, 4);
    MUST_AT(r, 0, magic && memcmp(magic, "GGUF", 4) == 0, "does not begin with \"GGUF\"");
    const uint32_t version = ckvc_cursor_u32(c);
    const size_t n_tensors = ckvc_cursor_u64(c), n_keys = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, "the header"); }
    MUST_AT(r, 4, version == 2 || version == 3, "GGUF version %u%s; versions 2 and 3 are read",
            version, version != 0 && (version & 0xFFFF) == 0 ? " (a big-endian file?)" : "");
    /* The shortest possible entries, with which counts are compared before anything is
     * allocated. */
    const size_t rest = c->size - c->pos, tensor = 8 + 1 + 4 + 8 + 4 + 8, key = 8 + 1 + 4 + 1;
    MUST_AT(r, 8, n_tensors <= GGUF_MAX_TENSORS && n_tensors <= rest / tensor,
            "%zu tensors; the file's %zu bytes and our limit of %u allow fewer", n_tensors, c->size,
            GGUF_MAX_TENSORS);
    MUST_AT(r, 16, n_keys <= GGUF_MAX_KEYS && n_keys <= rest / key,
            "%zu keys; the file's %zu bytes and our limit of %u allow fewer", n_keys, c->size,
            GGUF_MAX_KEYS);
    CKVC_TRY(read_values(r, g, n_keys));
    return read_tensors(r, g, n_tensors);
}

ckvc_status gguf_open(const char *path, gguf **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(gguf_close_at) gguf *g = ckvc_calloc(1, sizeof *g);
    CKVC_TRY(ckvc_map_open(path, &g->map, err));
    g->path = ckvc_strdup(path);
    reading r = {.path = path, .err = err, .c = {.data = g->map.data, .size = g->map.size}};
    CKVC_TRY(read_all(&r, g));
    *out = ckvc_take(&g);
    return CKVC_OK;
}

void gguf_close(gguf *g) {
    if (!g) { return; }
    for (size_t i = 0; i < g->n_values; i++) { free(g->values[i].key); }
    for (size_t i = 0; i < g->n_tensors; i++) { CKVC_FREE(g->tensors[i].name); }
    CKVC_FREE(g->values, g->tensors, g->path);
    ckvc_map_close(&g->map);
    free(g);
}

/* ---- asking ---- */

const gguf_value *gguf_find(const gguf *g, const char *key) {
    return bsearch(&key, g->values, g->n_values, sizeof *g->values, ckvc_order_text);
}

const tensor_view *gguf_find_tensor(const gguf *g, const char *name) {
    return bsearch(&name, g->tensors, g->n_tensors, sizeof *g->tensors, ckvc_order_text);
}

/* Finds a value of one of the types (bits) or, if it is an array, with items of this type. *out is
 * NULL when the key is not there. */
static ckvc_status find_typed(const gguf *g, const char *key, unsigned types, gguf_type item,
                              const char *want, const gguf_value **out, ckvc_err *err) {
    const gguf_value *v = *out = gguf_find(g, key);
    const bool array = v && v->type == GGUF_ARRAY;
    if (!v || (types >> v->type & 1 && (!array || v->item == item))) { return CKVC_OK; }
    reading r = {.path = g->path, .err = err};
    return refuse_at(&r, v->at, "key %s is %s%s; want %s%s", key, array ? "an array of " : "",
                     value_types[array ? v->item : v->type].name, want,
                     types == 1u << GGUF_ARRAY ? value_types[item].name : "");
}

ckvc_status gguf_int(const gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                     ckvc_err *err) {
    enum {
        SIGNED = 1 << GGUF_I8 | 1 << GGUF_I16 | 1 << GGUF_I32 | 1 << GGUF_I64,
        UNSIGNED = 1 << GGUF_U8 | 1 << GGUF_U16 | 1 << GGUF_U32 | 1 << GGUF_U64
    };
    const gguf_value *v;
    CKVC_TRY(find_typed(g, key, SIGNED | UNSIGNED, 0, "an integer", &v, err));
    if (!v) { return CKVC_OK; }
    uint64_t bits = 0;
    for (size_t i = 0; i < v->bytes; i++) { bits |= (uint64_t)v->data[i] << 8 * i; }
    const size_t unused = (64 - 8 * v->bytes) & 63; /* an integer has at least one byte */
    const int64_t x = SIGNED >> v->type & 1 ? (int64_t)(bits << unused) >> unused
                      : bits > INT64_MAX    ? INT64_MAX
                                            : (int64_t)bits;
    reading r = {.path = g->path, .err = err};
    MUST_AT(&r, v->at, x >= min && x <= max, "key %s is %lld; want %lld ... %lld", key,
            (long long)x, (long long)min, (long long)max);
    *out = x;
    return CKVC_OK;
}

ckvc_status gguf_number(const gguf *g, const char *key, double *out, ckvc_err *err) {
    const gguf_value *v;
    CKVC_TRY(find_typed(g, key, 1 << GGUF_F32 | 1 << GGUF_F64, 0, "f32 or f64", &v, err));
    if (!v) { return CKVC_OK; }
    const double x = v->type == GGUF_F32 ? (double)ckvc_get_f32(v->data) : ckvc_get_f64(v->data);
    reading r = {.path = g->path, .err = err};
    MUST_AT(&r, v->at, isfinite(x), "key %s is %s", key, isnan(x) ? "NaN" : "infinite");
    *out = x;
    return CKVC_OK;
}

ckvc_status gguf_flag(const gguf *g, const char *key, bool *out, ckvc_err *err) {
    const gguf_value *v;
    CKVC_TRY(find_typed(g, key, 1 << GGUF_BOOL, 0, "bool", &v, err));
    if (v) { *out = *v->data != 0; }
    return CKVC_OK;
}

ckvc_status gguf_string(const gguf *g, const char *key, const gguf_value **out, ckvc_err *err) {
    return find_typed(g, key, 1 << GGUF_STRING, 0, "a string", out, err);
}

ckvc_status gguf_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out,
                       ckvc_err *err) {
    return find_typed(g, key, 1 << GGUF_ARRAY, item, "an array of ", out, err);
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
