/* Reads safetensors. The format is a u64 little-endian header length, a JSON header of that length,
 * and the data of all tensors. The rules are those of https://github.com/huggingface/safetensors
 * (README and src/tensor.rs). Everything that the header claims is compared with the bytes that are
 * there before it is used, and nothing is allocated in proportion to a claim. */
#include "formats/model/model_readers.h"

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/sizes.h"

#define HEADER_MAX  100000000u         /* the format's own limit */
#define INDEX_MAX   (64u << 20)        /* bytes of model.safetensors.index.json */
#define INTEGER_MAX (INT64_C(1) << 48) /* the format's limit of dims and offsets */
#define SHARDS_MAX  4096

/* Every type name of the format, because the spans of tensors that are not used are checked,
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

/* What the views of a directory point into. */
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
    CKVC_FREE(all->files, all);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- one file ---- */

/* The value, or -1 when it is not an integer that the format allows. */
static long long whole_number(const json_t *v) {
    const long long n = json_integer_value(v);
    return json_is_integer(v) && n >= 0 && n <= INTEGER_MAX ? n : -1;
}

/* Turns one header entry into a view, whose span must lie inside the data (r->c) and fit its type
 * and shape. */
static ckvc_status read_entry(reading *r, const char *name, json_t *entry, tensor_view *out) {
    const char *key;
    json_t *value;
    MUST(r, json_is_object(entry), "header: tensor \"%s\" is not an object", name);
    json_object_foreach(entry, key, value) {
        MUST(r,
             strcmp(key, "dtype") == 0 || strcmp(key, "shape") == 0 ||
                 strcmp(key, "data_offsets") == 0,
             "header: tensor \"%s\" has the unknown key \"%s\" (dtype, shape, data_offsets)", name,
             key);
    }
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    const size_t rank = json_array_size(shape);
    MUST(r, dtype && json_is_array(shape) && json_array_size(offsets) == 2,
         "header: tensor \"%s\" needs dtype (text), shape (list) and data_offsets (two integers)",
         name);
    size_t kind = 0;
    while (kind < N_DTYPES && strcmp(dtypes[kind].name, dtype) != 0) { kind++; }
    MUST(r, kind < N_DTYPES,
         "tensor \"%s\" has the unknown dtype \"%s\" (the runtime computes with F32, F16, BF16)",
         name, dtype);
    MUST(r, rank <= TENSOR_MAX_RANK, "tensor \"%s\" has rank %zu, at most %d is read", name, rank,
         TENSOR_MAX_RANK);
    out->dtype = dtypes[kind].name;
    out->type = tensor_type_named(out->dtype);
    out->rank = (int32_t)rank;
    size_t bits = dtypes[kind].bits;
    bool fits = true;
    for (size_t i = 0; i < rank; i++) {
        out->dims[i] = whole_number(json_array_get(shape, i));
        MUST(r, out->dims[i] >= 0, "tensor \"%s\": shape[%zu] is not an integer in 0 ... 2^48",
             name, i);
        fits = fits && ckvc_mul_size(bits, (size_t)out->dims[i], &bits);
    }
    char dims[TENSOR_DIMS_TEXT];
    tensor_dims(out->dims, out->rank, dims);
    MUST(r, fits, "tensor \"%s\": %s %s overflows", name, dtype, dims);
    MUST(r, bits % 8 == 0, "tensor \"%s\": %s %s is not a whole number of bytes", name, dtype,
         dims);
    out->bytes = bits / 8;
    const long long begin = whole_number(json_array_get(offsets, 0)),
                    end = whole_number(json_array_get(offsets, 1));
    MUST(r, begin >= 0 && end >= 0, "tensor \"%s\": data_offsets are not integers in 0 ... 2^48",
         name);
    MUST(r, begin <= end && (size_t)end <= r->c.size,
         "tensor \"%s\": data_offsets [%lld,%lld) lie outside the file's %zu bytes of data (is it "
         "cut off?)",
         name, begin, end, r->c.size);
    MUST(r, (size_t)(end - begin) == out->bytes,
         "tensor \"%s\": data_offsets [%lld,%lld) hold %lld bytes but %s %s needs %zu", name, begin,
         end, end - begin, dtype, dims, out->bytes);
    out->data = r->c.data + begin;
    return CKVC_OK;
}

static int by_data(const void *a, const void *b) {
    const tensor_view *x = a, *y = b;
    if (x->data != y->data) { return x->data < y->data ? -1 : 1; }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Checks that tensors cover the data without holes or overlaps: a file that can be understood in
 * two ways is refused. */
static ckvc_status check_contiguous(reading *r, tensor_view *tensors, size_t n) {
    if (n > 1) { qsort(tensors, n, sizeof *tensors, by_data); }
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const tensor_view *t = &tensors[i];
        const size_t begin = (size_t)(t->data - r->c.data);
        MUST(r, begin >= at, "tensor \"%s\" begins at %zu and overlaps \"%s\", which ends at %zu",
             t->name, begin, t[-1].name, at);
        MUST(r, begin <= at,
             "bytes %zu ... %zu of the data, before tensor \"%s\", belong to no tensor", at, begin,
             t->name);
        at = begin + t->bytes;
    }
    MUST(r, at == r->c.size,
         "the tensors end at byte %zu of the data, the file has %zu bytes of data", at, r->c.size);
    return CKVC_OK;
}

/* Reads the header; r->c then has the data after it. */
static ckvc_status read_header(reading *r, json_t **header) {
    const uint8_t *bytes = r->c.data;
    const size_t size = r->c.size;
    CKVC_TRY(ckvc_download_check(r->path, bytes, size, r->err));
    MUST(r, size >= 8, "%zu bytes are too few for a safetensors file", size);
    const size_t n = ckvc_get_u64(bytes);
    MUST_AT(r, 0, n <= HEADER_MAX, "header length %zu is over the format's limit of %u", n,
            HEADER_MAX);
    MUST_AT(r, 0, ckvc_span_ok(8, n, size),
            "header length %zu runs past the end of the file (%zu bytes; is it cut off?)", n, size);
    MUST_AT(r, 8, n >= 2 && bytes[8] == '{',
            "the header is not a JSON object (it must begin with '{')");
    r->c = (ckvc_cursor){.data = bytes + 8 + n, .size = size - 8 - n};
    CKVC_AUTO_FREE char *where = ckvc_format("%s: header", r->path);
    return ckvc_json_parse((const char *)bytes + 8, n, where, header, r->err);
}

static ckvc_status check_metadata(reading *r, json_t *metadata) {
    const char *key;
    json_t *value;
    MUST(r, json_is_object(metadata), "header: __metadata__ is not an object");
    json_object_foreach(metadata, key, value) {
        MUST(r, json_is_string(value), "header: __metadata__[\"%s\"] is not text", key);
    }
    return CKVC_OK;
}

/* Maps one file and adds its tensors. */
static ckvc_status map_tensor_file(model_spec *spec, const char *dir, const char *name,
                                   ckvc_err *err) {
    mapped_files *all = spec->source;
    CKVC_GROW(all->files, all->cap, all->n + 1);
    struct mapped_file *file = &all->files[all->n++];
    *file = (struct mapped_file){.path = ckvc_path_join(dir, name)};
    CKVC_TRY(ckvc_map_open(file->path, &file->map, err));

    const ckvc_map *map = &file->map;
    reading r = {.path = file->path, .err = err, .c = {.data = map->data, .size = map->size}};
    json_auto_t *header = NULL;
    CKVC_TRY(read_header(&r, &header));
    const size_t first = spec->n_tensors;
    const char *tensor;
    json_t *entry;
    json_object_foreach(header, tensor, entry) {
        if (strcmp(tensor, "__metadata__") == 0) {
            CKVC_TRY(check_metadata(&r, entry));
            continue;
        }
        tensor_view view = {.file = file->path};
        CKVC_TRY(read_entry(&r, tensor, entry, &view));
        model_spec_add(spec, tensor, &view);
    }
    const size_t n = spec->n_tensors - first; /* 0: there may be no array yet */
    return check_contiguous(&r, n ? &spec->tensors[first] : NULL, n);
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
    MUST(&in, json_is_object(map) && json_object_size(map) > 0,
         "weight_map is missing, empty or not an object");
    const mapped_files *all = spec->source;
    json_object_foreach(map, tensor, file) {
        const char *name = json_is_string(file) ? json_string_value(file) : NULL;
        MUST(&in, name && plain_name(name),
             "weight_map[\"%s\"] names \"%s\": only plain names of files in the folder are allowed",
             tensor, name ? name : "(not text)");
        if (mapped(all, name)) { continue; }
        MUST(&in, all->n < SHARDS_MAX, "weight_map names more than %d files", SHARDS_MAX);
        CKVC_AUTO_FREE char *there = ckvc_path_join(dir, name);
        CKVC_FAIL_IF(!ckvc_file_exists(there), err, CKVC_E_NOINPUT,
                     "%s: names %s, which is not in the folder; is the download complete?", path,
                     name);
        CKVC_TRY(map_tensor_file(spec, dir, name, err));
    }
    CKVC_TRY(model_spec_order(spec, err));
    json_object_foreach(map, tensor, file) {
        const tensor_view *view = model_spec_find(spec, tensor);
        MUST(&in, view && strcmp(base_name(view->file), json_string_value(file)) == 0,
             "weight_map says that tensor \"%s\" is in %s, but it is %s", tensor,
             json_string_value(file), view ? "in another file" : "not there");
    }
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    uint64_t bytes = 0;
    for (size_t i = 0; i < spec->n_tensors; i++) { bytes += spec->tensors[i].bytes; }
    if (json_is_integer(total) && (uint64_t)json_integer_value(total) != bytes) {
        ckvc_warn("%s: metadata.total_size is %lld, the tensors hold %llu bytes", path,
                  (long long)json_integer_value(total), (unsigned long long)bytes);
    }
    return CKVC_OK;
}

ckvc_status safetensors_read(const char *dir, model_spec *spec, ckvc_err *err) {
    CKVC_AUTO_FREE char *one = ckvc_path_join(dir, "model.safetensors");
    CKVC_AUTO_FREE char *index = ckvc_path_join(dir, "model.safetensors.index.json");
    CKVC_AUTO_FREE char *adapter = ckvc_path_join(dir, "adapter_config.json");
    spec->source = ckvc_calloc(1, sizeof(mapped_files));
    spec->release = close_source;
    spec->fingerprint_kind = "ckvc-model-1\n";
    CKVC_FAIL_IF(ckvc_file_exists(adapter), err, CKVC_E_DATA,
                 "%s: an adapter, which transformers would add to the weights and ckvc does not: "
                 "merge the two (PEFT: merge_and_unload, save_pretrained), or remove it",
                 adapter);
    if (ckvc_file_exists(one)) { /* as in transformers, the single file is preferred to an index */
        CKVC_TRY(map_tensor_file(spec, dir, "model.safetensors", err));
        return model_spec_order(spec, err);
    }
    if (ckvc_file_exists(index)) { return add_indexed(spec, dir, index, err); }
    CKVC_AUTO_FREE char *held = model_folder_holds(dir);
    return ckvc_fail(err, CKVC_E_NOINPUT,
                     "%s: no model.safetensors and no model.safetensors.index.json here%s", dir,
                     *held ? held : "; is the download complete?");
}
