/* Reading GGUF: see gguf.h. Layout, all little-endian:
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys x { string key, u32 type, value }
 *       string: u64 length and bytes; array: u32 item type, u64 n and items
 *   tensors x { string name, u32 rank, u64 dims[rank], u32 type, u64 offset }
 *   zeros up to a multiple of general.alignment (32), from which the offsets count; tensor after
 *   tensor, each so padded
 */
#include "formats/model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/model/reading.h"
#include "lib/base/bytes.h"
#include "lib/base/sizes.h"

#define DEFAULT_ALIGNMENT 32u
#define ALIGNMENT_KEY     "general.alignment"
#define SUPPORTED_TYPES   "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K"

static const struct {
    const char *name;
    uint32_t bytes; /* of a fixed-size type; 0: string, array */
    enum { NO_INTEGER, UNSIGNED, SIGNED } integer;
} value_types[] = {
    [GGUF_U8] = {"u8", 1, UNSIGNED},   [GGUF_I8] = {"i8", 1, SIGNED},
    [GGUF_U16] = {"u16", 2, UNSIGNED}, [GGUF_I16] = {"i16", 2, SIGNED},
    [GGUF_U32] = {"u32", 4, UNSIGNED}, [GGUF_I32] = {"i32", 4, SIGNED},
    [GGUF_U64] = {"u64", 8, UNSIGNED}, [GGUF_I64] = {"i64", 8, SIGNED},
    [GGUF_F32] = {"f32", 4, 0},        [GGUF_F64] = {"f64", 8, 0},
    [GGUF_BOOL] = {"bool", 1, 0},      [GGUF_STRING] = {"string", 0, 0},
    [GGUF_ARRAY] = {"array", 0, 0},
};
#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

/* By ggml_type (ggml.h). Those that tensor_type_named does not know are named in the refusal. */
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

typedef struct reader {
    reading in;
    gguf *g;
    ckvc_cursor c;
} reader;

static ckvc_status cut_off(reader *r, const char *what) {
    return refuse_at(&r->in, r->c.pos,
                     "the file ends inside %s (%" PRIu64 " bytes; is it cut off?)", what,
                     r->c.size);
}

/* A key or a tensor's name, copied: printable ASCII, so that it can stand in a message and has no
 * NUL inside. */
static ckvc_status read_name(reader *r, const char *what, size_t index, char **out) {
    const uint64_t at = r->c.pos, n = ckvc_cursor_u64(&r->c);
    if (!r->c.failed && (n == 0 || n > GGUF_MAX_NAME)) {
        return refuse_at(&r->in, at, "%s %zu has a name of %" PRIu64 " bytes; 1 ... %u are read",
                         what, index, n, GGUF_MAX_NAME);
    }
    const uint8_t *p = ckvc_cursor_take(&r->c, n);
    if (!p) { return cut_off(r, what); }
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] < 0x20 || p[i] > 0x7E) {
            return refuse_at(&r->in, at + 8 + i,
                             "the name of %s %zu holds the byte 0x%02X; want printable ASCII", what,
                             index, p[i]);
        }
    }
    *out = ckvc_format("%.*s", (int)n, (const char *)p);
    return CKVC_OK;
}

/* The items' bytes, all checked to be there: fixed sizes by one multiplication, strings by a walk
 * over their lengths. */
static ckvc_status read_array(reader *r, gguf_value *v) {
    ckvc_cursor *c = &r->c;
    const uint64_t at = c->pos;
    const uint32_t item = ckvc_cursor_u32(c);
    v->n = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, v->key); }
    if (item >= N_VALUE_TYPES || item == GGUF_ARRAY) {
        return refuse_at(&r->in, at,
                         "key %s is an array of type %u (%s); want numbers, bools or strings",
                         v->key, item, item < N_VALUE_TYPES ? "array" : "of an unknown type");
    }
    v->item = (gguf_type)item;
    if (v->n > GGUF_MAX_ITEMS) {
        return refuse_at(&r->in, at + 4,
                         "key %s is an array of %" PRIu64 " items; at most %u are read", v->key,
                         v->n, GGUF_MAX_ITEMS);
    }
    v->at = c->pos;
    v->data = c->data + c->pos;
    const uint64_t size = value_types[item].bytes;
    if (size && !ckvc_cursor_take(c, v->n * size)) { /* at most 2^24 * 8 */
        return refuse_at(&r->in, at + 4,
                         "key %s claims %" PRIu64 " items of %s, %" PRIu64 " bytes remain", v->key,
                         v->n, value_types[item].name, c->size - c->pos);
    }
    for (uint64_t i = 0; !size && i < v->n; i++) {
        const uint64_t place = c->pos, n = ckvc_cursor_u64(c);
        if (!ckvc_cursor_take(c, n)) {
            return refuse_at(&r->in, place,
                             "string %" PRIu64 " of %" PRIu64
                             " of key %s runs past the end of the file (%" PRIu64 " bytes)",
                             i, v->n, v->key, c->size);
        }
    }
    v->bytes = c->pos - v->at;
    return CKVC_OK;
}

static ckvc_status read_value(reader *r, gguf_value *v) {
    ckvc_cursor *c = &r->c;
    const uint64_t at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    if (c->failed) { return cut_off(r, v->key); }
    if (type >= N_VALUE_TYPES) {
        return refuse_at(&r->in, at, "key %s has the unknown type %u", v->key, type);
    }
    v->type = (gguf_type)type;
    if (v->type == GGUF_ARRAY) { return read_array(r, v); }
    const bool string = v->type == GGUF_STRING;
    const uint64_t length_at = c->pos;
    v->n = string ? ckvc_cursor_u64(c) : 1;
    v->bytes = string ? v->n : value_types[type].bytes;
    v->at = c->pos;
    v->data = ckvc_cursor_take(c, v->bytes);
    if (!v->data && string && c->pos > length_at) {
        return refuse_at(&r->in, length_at,
                         "key %s is a string of %" PRIu64 " bytes, %" PRIu64 " remain", v->key,
                         v->n, c->size - c->pos);
    }
    if (!v->data) { return cut_off(r, v->key); }
    if (v->type == GGUF_BOOL && *v->data > 1) {
        return refuse_at(&r->in, v->at, "key %s is a bool of value %u; want 0 or 1", v->key,
                         *v->data);
    }
    return CKVC_OK;
}

/* Of values by key and of tensors by name, which come first in both. */
static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ckvc_status read_values(reader *r, uint64_t n) {
    gguf *g = r->g;
    g->values = ckvc_calloc((size_t)n, sizeof *g->values);
    for (uint64_t i = 0; i < n; i++) {
        gguf_value *v = &g->values[g->n_values];
        CKVC_TRY(read_name(r, "key", (size_t)i, &v->key));
        g->n_values++;
        CKVC_TRY(read_value(r, v));
    }
    qsort(g->values, g->n_values, sizeof *g->values, by_name);
    for (size_t i = 1; i < g->n_values; i++) {
        const gguf_value *v = &g->values[i];
        if (strcmp(v[-1].key, v->key) == 0) {
            return refuse_at(&r->in, v->at, "key %s is there twice (also at byte %" PRIu64 ")",
                             v->key, v[-1].at);
        }
    }
    return CKVC_OK;
}

static ckvc_status tensor_size(reader *r, gguf_tensor *t) {
    uint64_t values = 1;
    bool fits = true;
    for (int32_t i = 0; i < t->rank; i++) {
        fits = fits && !__builtin_mul_overflow(values, (uint64_t)t->dims[i], &values);
    }
    char dims[TENSOR_DIMS_TEXT];
    const tensor_block block = tensor_block_of(t->type);
    tensor_dims(t->dims, t->rank, dims);
    if (t->dims[0] % block.values != 0) {
        return refuse(&r->in,
                      "tensor \"%s\" is %s %s: rows of %" PRId64 " values are no whole blocks of "
                      "%u",
                      t->name, t->dtype, dims, t->dims[0], block.values);
    }
    if (!fits || __builtin_mul_overflow(values / block.values, (uint64_t)block.bytes, &t->bytes)) {
        return refuse(&r->in, "tensor \"%s\": %s %s overflows", t->name, t->dtype, dims);
    }
    return CKVC_OK;
}

/* One entry of the table. *offset is where this tensor begins, in the data. */
static ckvc_status read_tensor(reader *r, size_t index, uint64_t alignment, gguf_tensor *t,
                               uint64_t *offset) {
    ckvc_cursor *c = &r->c;
    CKVC_TRY(read_name(r, "tensor", index, &t->name));
    uint64_t at = c->pos;
    const uint32_t rank = ckvc_cursor_u32(c);
    if (!c->failed && (rank < 1 || rank > TENSOR_MAX_RANK)) {
        return refuse_at(&r->in, at, "tensor \"%s\" has rank %u; 1 ... %d are read", t->name, rank,
                         TENSOR_MAX_RANK);
    }
    t->rank = (int32_t)rank;
    for (uint32_t i = 0; i < rank && !c->failed; i++) {
        at = c->pos;
        const uint64_t dim = ckvc_cursor_u64(c);
        if (!c->failed && (dim < 1 || dim > (uint64_t)GGUF_MAX_DIM)) {
            return refuse_at(&r->in, at,
                             "tensor \"%s\": dimension %u is %" PRIu64 "; want 1 ... 2^48", t->name,
                             i, dim);
        }
        t->dims[i] = (int64_t)dim;
    }
    const uint64_t type_at = c->pos;
    const uint32_t type = ckvc_cursor_u32(c);
    const uint64_t offset_at = c->pos;
    *offset = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, "the table of tensors"); }
    if (type >= N_TENSOR_TYPES || !tensor_types[type]) {
        return refuse_at(&r->in, type_at,
                         "tensor \"%s\" has the unknown type %u (read are " SUPPORTED_TYPES ")",
                         t->name, type);
    }
    t->dtype = tensor_types[type];
    t->type = tensor_type_named(t->dtype);
    if (t->type == TENSOR_OTHER) {
        return refuse_at(
            &r->in, type_at,
            "tensor \"%s\" has type %s, which is not supported (read are " SUPPORTED_TYPES ")",
            t->name, t->dtype);
    }
    CKVC_TRY(tensor_size(r, t));
    if (*offset % alignment != 0) {
        return refuse_at(&r->in, offset_at,
                         "tensor \"%s\" begins at %" PRIu64
                         " of the data, no multiple of " ALIGNMENT_KEY " %" PRIu64,
                         t->name, *offset, alignment);
    }
    return CKVC_OK;
}

/* n rounded up to a multiple of a power of two; false when that overflows. */
static bool align_up(uint64_t n, uint64_t alignment, uint64_t *out) {
    if (__builtin_add_overflow(n, alignment - 1, out)) { return false; }
    *out &= ~(alignment - 1);
    return true;
}

static ckvc_status read_alignment(reader *r, uint64_t *out) {
    const gguf_value *v = gguf_find(r->g, ALIGNMENT_KEY);
    *out = DEFAULT_ALIGNMENT;
    if (!v) { return CKVC_OK; }
    if (v->type != GGUF_U32) {
        return refuse_at(&r->in, v->at, "key " ALIGNMENT_KEY " is %s; want u32",
                         value_types[v->type].name);
    }
    *out = ckvc_get_u32(v->data);
    if (*out < 8 || *out > GGUF_MAX_ALIGNMENT || (*out & (*out - 1)) != 0) {
        return refuse_at(&r->in, v->at,
                         "key " ALIGNMENT_KEY " is %" PRIu64 "; want a power of two in 8 ... %u",
                         *out, GGUF_MAX_ALIGNMENT);
    }
    return CKVC_OK;
}

/* Tensors lie one after the other in the order of the table, each begun at the next multiple of the
 * alignment, as every writer has them and llama.cpp demands: no overlap, and no bytes that belong
 * to nothing. */
static ckvc_status place_tensors(reader *r, const uint64_t *offsets, uint64_t alignment) {
    const ckvc_cursor *c = &r->c;
    gguf *g = r->g;
    uint64_t data, next = 0;
    if (!align_up(c->pos, alignment, &data)) {
        return refuse_at(&r->in, c->pos, "the data's place overflows");
    }
    if (g->n_tensors && data > c->size) { return cut_off(r, "the padding before the data"); }
    for (size_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        if (offsets[i] != next) {
            return refuse(
                &r->in, "tensor \"%s\" begins at %" PRIu64 " of the data, %s; want %" PRIu64,
                t->name, offsets[i],
                offsets[i] < next ? "inside the tensor before it" : "behind bytes of no tensor",
                next);
        }
        if (!ckvc_span_ok(offsets[i], t->bytes, c->size - data)) {
            return refuse(&r->in,
                          "tensor \"%s\" is %" PRIu64 " bytes at %" PRIu64
                          " of the data, which has %" PRIu64 " (is the file cut off?)",
                          t->name, t->bytes, offsets[i], c->size - data);
        }
        t->data = c->data + data + offsets[i];
        if (!align_up(offsets[i] + t->bytes, alignment, &next)) {
            return refuse(&r->in, "tensor \"%s\": its end overflows", t->name);
        }
    }
    const uint64_t last = data + next;
    if (c->size > last) {
        return refuse_at(&r->in, last, "%" PRIu64 " bytes behind the last tensor belong to none",
                         c->size - last);
    }
    return CKVC_OK;
}

static ckvc_status read_tensors(reader *r, uint64_t n) {
    gguf *g = r->g;
    uint64_t alignment;
    CKVC_AUTO_FREE uint64_t *offsets = ckvc_calloc((size_t)n, sizeof *offsets);
    g->tensors = ckvc_calloc((size_t)n, sizeof *g->tensors);
    CKVC_TRY(read_alignment(r, &alignment));
    for (uint64_t i = 0; i < n; i++) {
        g->n_tensors++; /* a name that was read before the failure is freed with the rest */
        CKVC_TRY(read_tensor(r, (size_t)i, alignment, &g->tensors[i], &offsets[i]));
    }
    CKVC_TRY(place_tensors(r, offsets, alignment));
    qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_name);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i - 1].name, g->tensors[i].name) == 0) {
            return refuse(&r->in, "tensor \"%s\" is there twice", g->tensors[i].name);
        }
    }
    return CKVC_OK;
}

static ckvc_status read_all(reader *r) {
    /* The shortest key and the shortest tensor entry: what a count is held against before anything
     * is allocated for it. */
    enum { MIN_KEY = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };
    ckvc_cursor *c = &r->c;
    const uint8_t *magic = ckvc_cursor_take(c, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        return refuse_at(&r->in, 0, "does not begin with \"GGUF\"");
    }
    const uint32_t version = ckvc_cursor_u32(c);
    const uint64_t n_tensors = ckvc_cursor_u64(c), n_keys = ckvc_cursor_u64(c);
    if (c->failed) { return cut_off(r, "the header"); }
    if (version != 2 && version != 3) {
        return refuse_at(&r->in, 4, "GGUF version %u%s; versions 2 and 3 are read", version,
                         version != 0 && (version & 0xFFFF) == 0 ? " (a big-endian file?)" : "");
    }
    const struct {
        const char *what;
        uint64_t n, most, bytes;
    } counts[] = {{"tensors", n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR},
                  {"keys", n_keys, GGUF_MAX_KEYS, MIN_KEY}};
    for (size_t i = 0; i < 2; i++) {
        if (counts[i].n > counts[i].most || counts[i].n > (c->size - c->pos) / counts[i].bytes) {
            return refuse_at(&r->in, 8 + 8 * i,
                             "%" PRIu64 " %s; the file's %" PRIu64
                             " bytes and our limit of %" PRIu64 " allow fewer",
                             counts[i].n, counts[i].what, c->size, counts[i].most);
        }
    }
    CKVC_TRY(read_values(r, n_keys));
    return read_tensors(r, n_tensors);
}

ckvc_status gguf_open(const char *path, gguf **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(gguf_close_at) gguf *g = ckvc_calloc(1, sizeof *g);
    CKVC_TRY(ckvc_map_open(path, &g->map, err));
    g->path = ckvc_strdup(path);
    reader r = {
        .in = {.path = path, .err = err}, .g = g, .c = {.data = g->map.data, .size = g->map.size}};
    CKVC_TRY(read_all(&r));
    *out = ckvc_take(&g);
    return CKVC_OK;
}

void gguf_close(gguf *g) {
    if (!g) { return; }
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
    return bsearch(&key, g->values, g->n_values, sizeof *g->values, by_name);
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name) {
    return bsearch(&name, g->tensors, g->n_tensors, sizeof *g->tensors, by_name);
}

static ckvc_status wrong_type(const gguf *g, const gguf_value *v, const char *want, ckvc_err *err) {
    const bool array = v->type == GGUF_ARRAY;
    return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": key %s is %s%s; want %s", g->path,
                     v->at, v->key, array ? "an array of " : "",
                     value_types[array ? v->item : v->type].name, want);
}

ckvc_status gguf_int(const gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                     ckvc_err *err) {
    const gguf_value *v = gguf_find(g, key);
    if (!v) { return CKVC_OK; }
    if (!value_types[v->type].integer) { return wrong_type(g, v, "an integer", err); }
    uint64_t bits = 0;
    for (uint32_t i = 0; i < v->bytes; i++) {
        bits |= (uint64_t)v->data[i] << 8 * i;
    }
    const unsigned unused = 64 - 8 * (unsigned)v->bytes;
    const int64_t x = value_types[v->type].integer == SIGNED ? (int64_t)(bits << unused) >> unused
                      : bits > INT64_MAX                     ? INT64_MAX
                                                             : (int64_t)bits;
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
    if (!v) { return CKVC_OK; }
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
    if (!v) { return CKVC_OK; }
    if (v->type != GGUF_BOOL) { return wrong_type(g, v, "bool", err); }
    *out = *v->data != 0;
    return CKVC_OK;
}

ckvc_status gguf_string(const gguf *g, const char *key, const gguf_value **out, ckvc_err *err) {
    *out = gguf_find(g, key);
    return !*out || (*out)->type == GGUF_STRING ? CKVC_OK : wrong_type(g, *out, "a string", err);
}

ckvc_status gguf_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out,
                       ckvc_err *err) {
    *out = gguf_find(g, key);
    if (!*out || ((*out)->type == GGUF_ARRAY && (*out)->item == item)) { return CKVC_OK; }
    char want[32];
    snprintf(want, sizeof want, "an array of %s", value_types[item].name);
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
