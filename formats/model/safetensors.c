/* The safetensors reader. The format: u64 little-endian header length, a JSON header of that
 * length, then the data of all tensors. Rules after https://github.com/huggingface/safetensors
 * (README and src/tensor.rs); everything that the header claims is compared with the bytes that are
 * there before it is used, and nothing is allocated in proportion to a claim.
 */
#include "formats/model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/model/reading.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/sizes.h"

#define HEADER_MAX  100000000u         /* the format's own limit */
#define INDEX_MAX   (64u << 20)        /* bytes of model.safetensors.index.json */
#define INTEGER_MAX (INT64_C(1) << 48) /* the format's limit on dims and offsets */
#define SHARDS_MAX  4096

/* Every type name of the format, so that the spans of tensors that nobody asks for can be checked
 * too. */
static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {
    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"BOOL", 8},    {"U8", 8},
    {"I8", 8},          {"U16", 16},        {"I16", 16},    {"U32", 32},    {"I32", 32},
    {"U64", 64},        {"I64", 64},        {"F64", 64},    {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

/* What the views of a directory look into. */
typedef struct mapped_files {
    struct mapped_file {
        char *path;
        ckvc_map map;
    } * files;
    size_t n, cap;
} mapped_files;

static void close_source(void *source) {
    mapped_files *all = source;
    for (size_t i = 0; i < all->n; i++) {
        ckvc_map_close(&all->files[i].map);
        free(all->files[i].path);
    }
    free(all->files);
    free(all);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- one file ---- */

typedef struct reader {
    reading in;
    const uint8_t *data; /* behind the header */
    uint64_t bytes;
} reader;

static bool natural(const json_t *v, int64_t *out) {
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0 && *out <= INTEGER_MAX;
}

/* One header entry -> a view whose span lies inside the data and fits its type and shape. */
static ckvc_status read_entry(reader *r, json_t *entry, tensor_view *out) {
    const char *name = out->name, *key;
    json_t *value;
    if (!json_is_object(entry)) {
        return refuse(&r->in, "header: tensor \"%s\" is not an object", name);
    }
    json_object_foreach(entry, key, value) {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
            strcmp(key, "data_offsets") != 0) {
            return refuse(
                &r->in,
                "header: tensor \"%s\" has the unknown key \"%s\" (dtype, shape, data_offsets)",
                name, key);
        }
    }
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_array_size(offsets) != 2) {
        return refuse(&r->in,
                      "header: tensor \"%s\" needs dtype (text), shape (list) and data_offsets "
                      "(two integers)",
                      name);
    }
    size_t kind = 0;
    while (kind < N_DTYPES && strcmp(dtypes[kind].name, json_string_value(dtype)) != 0) {
        kind++;
    }
    if (kind == N_DTYPES) {
        return refuse(&r->in,
                      "tensor \"%s\" has the unknown dtype \"%s\" (the runtime computes with "
                      "F32, F16, BF16)",
                      name, json_string_value(dtype));
    }
    if (json_array_size(shape) > TENSOR_MAX_RANK) {
        return refuse(&r->in, "tensor \"%s\" has rank %zu, at most %d is read", name,
                      json_array_size(shape), TENSOR_MAX_RANK);
    }
    out->dtype = dtypes[kind].name;
    out->type = tensor_type_named(out->dtype);
    out->rank = (int32_t)json_array_size(shape);
    size_t bits = dtypes[kind].bits;
    bool fits = true;
    for (int32_t i = 0; i < out->rank; i++) {
        if (!natural(json_array_get(shape, (size_t)i), &out->dims[i])) {
            return refuse(&r->in, "tensor \"%s\": shape[%d] is not an integer in 0 ... 2^48", name,
                          i);
        }
        fits = fits && ckvc_mul_size(bits, (size_t)out->dims[i], &bits);
    }
    char dims[TENSOR_DIMS_TEXT];
    tensor_dims(out->dims, out->rank, dims);
    if (!fits) { return refuse(&r->in, "tensor \"%s\": %s %s overflows", name, out->dtype, dims); }
    if (bits % 8 != 0) {
        return refuse(&r->in, "tensor \"%s\": %s %s is not a whole number of bytes", name,
                      out->dtype, dims);
    }
    out->bytes = bits / 8;
    int64_t begin, end;
    if (!natural(json_array_get(offsets, 0), &begin) ||
        !natural(json_array_get(offsets, 1), &end)) {
        return refuse(&r->in, "tensor \"%s\": data_offsets are not integers in 0 ... 2^48", name);
    }
    if (begin > end || (uint64_t)end > r->bytes) {
        return refuse(
            &r->in,
            "tensor \"%s\": data_offsets [%lld,%lld) lie outside the file's %llu bytes of "
            "data (is it cut off?)",
            name, (long long)begin, (long long)end, (unsigned long long)r->bytes);
    }
    if ((uint64_t)(end - begin) != out->bytes) {
        return refuse(
            &r->in, "tensor \"%s\": data_offsets [%lld,%lld) hold %lld bytes but %s %s needs %llu",
            name, (long long)begin, (long long)end, (long long)(end - begin), out->dtype, dims,
            (unsigned long long)out->bytes);
    }
    out->data = r->data + begin;
    return CKVC_OK;
}

static int by_data(const void *a, const void *b) {
    const tensor_view *x = a, *y = b;
    if (x->data != y->data) { return x->data < y->data ? -1 : 1; }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorted by place, the tensors must cover the data without holes or overlaps: a file that means two
 * things is refused. */
static ckvc_status check_contiguous(reader *r, tensor_view *tensors, size_t n) {
    if (n > 1) { qsort(tensors, n, sizeof *tensors, by_data); }
    unsigned long long at = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned long long begin = (unsigned long long)(tensors[i].data - r->data);
        if (begin < at) {
            return refuse(&r->in,
                          "tensor \"%s\" begins at %llu and overlaps \"%s\", which ends at %llu",
                          tensors[i].name, begin, tensors[i - 1].name, at);
        }
        if (begin > at) {
            return refuse(
                &r->in,
                "bytes %llu ... %llu of the data, before tensor \"%s\", belong to no tensor", at,
                begin, tensors[i].name);
        }
        at = begin + tensors[i].bytes;
    }
    if (at != r->bytes) {
        return refuse(&r->in,
                      "the tensors end at byte %llu of the data, the file has %llu bytes of data",
                      at, (unsigned long long)r->bytes);
    }
    return CKVC_OK;
}

/* Finds the header's end, and so the data's beginning. */
static ckvc_status read_header(reader *r, const ckvc_map *map, json_t **header) {
    const unsigned long long size = map->size;
    if (size < 8) { return refuse(&r->in, "%llu bytes are too few for a safetensors file", size); }
    const unsigned long long n = ckvc_get_u64(map->data);
    if (n > HEADER_MAX) {
        return refuse_at(&r->in, 0, "header length %llu is over the format's limit of %u", n,
                         HEADER_MAX);
    }
    if (!ckvc_span_ok(8, n, size)) {
        return refuse_at(&r->in, 0, "header length %llu runs past the end of the file (%llu bytes)",
                         n, size);
    }
    if (n < 2 || map->data[8] != '{') {
        return refuse_at(&r->in, 8, "the header is not a JSON object (it must begin with '{')");
    }
    r->data = map->data + 8 + n;
    r->bytes = size - 8 - n;
    CKVC_AUTO_FREE char *where = ckvc_format("%s: header", r->in.path);
    return ckvc_json_parse((const char *)map->data + 8, (size_t)n, where, header, r->in.err);
}

static ckvc_status check_metadata(reader *r, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return refuse(&r->in, "header: __metadata__ is not an object");
    }
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) {
            return refuse(&r->in, "header: __metadata__[\"%s\"] is not text", key);
        }
    }
    return CKVC_OK;
}

/* Maps one file and adds its tensors. */
static ckvc_status add_file(model_spec *spec, const char *dir, const char *name, ckvc_err *err) {
    mapped_files *all = spec->source;
    CKVC_GROW(all->files, all->cap, all->n + 1);
    struct mapped_file *file = &all->files[all->n++];
    *file = (struct mapped_file){.path = ckvc_path_join(dir, name)};
    CKVC_TRY(ckvc_map_open(file->path, &file->map, err));

    reader r = {.in = {.path = file->path, .err = err}};
    json_auto_t *header = NULL;
    CKVC_TRY(read_header(&r, &file->map, &header));
    const size_t first = spec->n_tensors;
    const char *tensor;
    json_t *entry;
    json_object_foreach(header, tensor, entry) {
        if (strcmp(tensor, "__metadata__") == 0) {
            CKVC_TRY(check_metadata(&r, entry));
            continue;
        }
        tensor_view *view = model_spec_add(spec, tensor);
        view->stored = view->name;
        view->file = file->path;
        CKVC_TRY(read_entry(&r, entry, view));
    }
    return check_contiguous(&r, spec->tensors + first, spec->n_tensors - first);
}

/* ---- several files ---- */

static bool plain_name(const char *name) {
    return *name != '\0' && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static bool mapped(const mapped_files *all, const char *name) {
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(base_name(all->files[i].path), name) == 0) { return true; }
    }
    return false;
}

static ckvc_status add_indexed(model_spec *spec, const char *dir, const char *path, ckvc_err *err) {
    reading in = {.path = path, .err = err};
    json_auto_t *index = NULL;
    CKVC_TRY(ckvc_json_read(path, INDEX_MAX, &index, err));
    const char *tensor;
    json_t *file, *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return refuse(&in, "weight_map is missing, empty or not an object");
    }
    const mapped_files *all = spec->source;
    json_object_foreach(map, tensor, file) {
        const char *name = json_is_string(file) ? json_string_value(file) : NULL;
        if (!name || !plain_name(name)) {
            return refuse(&in,
                          "weight_map[\"%s\"] names \"%s\": only plain names of files in the "
                          "folder are allowed",
                          tensor, name ? name : "(not text)");
        }
        if (mapped(all, name)) { continue; }
        if (all->n == SHARDS_MAX) {
            return refuse(&in, "weight_map names more than %d files", SHARDS_MAX);
        }
        CKVC_TRY(add_file(spec, dir, name, err));
    }
    CKVC_TRY(model_spec_order(spec, err));
    json_object_foreach(map, tensor, file) {
        const tensor_view *view = model_spec_find(spec, tensor);
        if (!view || strcmp(base_name(view->file), json_string_value(file)) != 0) {
            return refuse(&in, "weight_map says that tensor \"%s\" is in %s, but it is %s", tensor,
                          json_string_value(file), view ? "in another file" : "not there");
        }
    }
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    uint64_t bytes = 0;
    for (size_t i = 0; i < spec->n_tensors; i++) {
        bytes += spec->tensors[i].bytes;
    }
    if (json_is_integer(total) && (uint64_t)json_integer_value(total) != bytes) {
        ckvc_warn("%s: metadata.total_size is %lld, the tensors hold %llu bytes", path,
                  (long long)json_integer_value(total), (unsigned long long)bytes);
    }
    return CKVC_OK;
}

ckvc_status safetensors_read(const char *dir, model_spec *spec, ckvc_err *err) {
    CKVC_AUTO_FREE char *one = ckvc_path_join(dir, "model.safetensors");
    CKVC_AUTO_FREE char *index = ckvc_path_join(dir, "model.safetensors.index.json");
    spec->source = ckvc_calloc(1, sizeof(mapped_files));
    spec->release = close_source;
    spec->fingerprint_kind = "ckvc-model-1\n";
    if (ckvc_file_exists(one)) { /* as transformers: the single file wins over an index */
        CKVC_TRY(add_file(spec, dir, "model.safetensors", err));
        return model_spec_order(spec, err);
    }
    if (ckvc_file_exists(index)) { return add_indexed(spec, dir, index, err); }
    return ckvc_fail(err, CKVC_E_NOINPUT,
                     "%s: no model.safetensors and no model.safetensors.index.json here (other "
                     "weight files are not read)",
                     dir);
}
