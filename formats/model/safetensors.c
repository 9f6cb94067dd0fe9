/* The safetensors reader. The format: u64 little-endian header length, a JSON header of that
 * length, then the data of all tensors. Rules after https://github.com/huggingface/safetensors
 * (README and src/tensor.rs); everything that the header claims is compared with the bytes that are
 * there before it is used, and nothing is allocated in proportion to a claim.
 */
#include "formats/model/weights_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"
#include "lib/base/status.h"

#define HEADER_MAX  100000000u         /* the format's own limit */
#define INDEX_MAX   (64u << 20)        /* bytes of model.safetensors.index.json */
#define INTEGER_MAX (INT64_C(1) << 48) /* the format's limit on dims and offsets */
#define SHARDS_MAX  4096

/* Every type name of the format, so that the spans of tensors that nobody asks for can be checked
 * too. */
static const struct {
    const char *name;
    uint32_t bits;
    tensor_type type;
} dtypes[] = {
    {"F32", 32, TENSOR_F32},          {"F16", 16, TENSOR_F16},
    {"BF16", 16, TENSOR_BF16},        {"BOOL", 8, TENSOR_OTHER},
    {"U8", 8, TENSOR_OTHER},          {"I8", 8, TENSOR_OTHER},
    {"U16", 16, TENSOR_OTHER},        {"I16", 16, TENSOR_OTHER},
    {"U32", 32, TENSOR_OTHER},        {"I32", 32, TENSOR_OTHER},
    {"U64", 64, TENSOR_OTHER},        {"I64", 64, TENSOR_OTHER},
    {"F64", 64, TENSOR_OTHER},        {"C64", 64, TENSOR_OTHER},
    {"F8_E4M3", 8, TENSOR_OTHER},     {"F8_E5M2", 8, TENSOR_OTHER},
    {"F8_E8M0", 8, TENSOR_OTHER},     {"F8_E4M3FNUZ", 8, TENSOR_OTHER},
    {"F8_E5M2FNUZ", 8, TENSOR_OTHER}, {"F6_E2M3", 6, TENSOR_OTHER},
    {"F6_E3M2", 6, TENSOR_OTHER},     {"F4", 4, TENSOR_OTHER},
};

/* ---- one file ---- */

/* "[64,65]" for messages; a rank beyond the buffer is cut with "...". */
static void shape_text(const int64_t *dims, int32_t rank, char *out, size_t size) {
    size_t n = 0;
    out[n++] = '[';
    for (int32_t i = 0; i < rank && n + 24 < size; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "," : "", (long long)dims[i]);
    }
    snprintf(out + n, size - n, "]");
}

static bool natural(const json_t *v, int64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INTEGER_MAX) {
        return false;
    }
    *out = json_integer_value(v);
    return true;
}

/* One header entry -> a view whose span lies inside the data and fits its type and shape. */
static ckvc_status read_entry(const char *path, const char *name, const json_t *entry,
                              const uint8_t *data, uint64_t data_bytes, tensor_view *out,
                              ckvc_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(entry)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: header: tensor \"%s\" is not an object", path,
                         name);
    }
    json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
            strcmp(key, "data_offsets") != 0) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s: header: tensor \"%s\" has the unknown key \"%s\" (dtype, shape, data_offsets)",
                path, name, key);
        }
    }
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_array_size(offsets) != 2) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: header: tensor \"%s\" needs dtype (text), shape (list) and "
                         "data_offsets (two integers)",
                         path, name);
    }

    size_t kind = 0;
    while (kind < sizeof dtypes / sizeof *dtypes &&
           strcmp(dtypes[kind].name, json_string_value(dtype)) != 0) {
        kind++;
    }
    if (kind == sizeof dtypes / sizeof *dtypes) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: tensor \"%s\" has the unknown dtype \"%s\" (the runtime computes "
                         "with F32, F16, BF16)",
                         path, name, json_string_value(dtype));
    }
    if (json_array_size(shape) > TENSOR_MAX_RANK) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" has rank %zu, at most %d is read",
                         path, name, json_array_size(shape), TENSOR_MAX_RANK);
    }

    *out = (tensor_view){.type = dtypes[kind].type,
                         .dtype = dtypes[kind].name,
                         .file = path,
                         .rank = (int32_t)json_array_size(shape)};
    size_t bits = dtypes[kind].bits;
    bool fits = true;
    for (int32_t i = 0; i < out->rank; i++) {
        if (!natural(json_array_get(shape, (size_t)i), &out->dims[i])) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: tensor \"%s\": shape[%d] is not an integer in 0 ... 2^48", path,
                             name, i);
        }
        fits = fits && ckvc_mul_size(bits, (size_t)out->dims[i], &bits);
    }
    char shape_buf[128];
    shape_text(out->dims, out->rank, shape_buf, sizeof shape_buf);
    if (!fits) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\": %s %s overflows", path, name,
                         out->dtype, shape_buf);
    }
    if (bits % 8 != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: tensor \"%s\": %s %s is not a whole number of bytes", path, name,
                         out->dtype, shape_buf);
    }
    out->bytes = bits / 8;

    int64_t begin, end;
    if (!natural(json_array_get(offsets, 0), &begin) ||
        !natural(json_array_get(offsets, 1), &end)) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: tensor \"%s\": data_offsets are not integers in 0 ... 2^48", path,
                         name);
    }
    if (begin > end || (uint64_t)end > data_bytes) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: tensor \"%s\": data_offsets [%lld,%lld) lie outside the file's %llu "
                         "bytes of data (is it cut off?)",
                         path, name, (long long)begin, (long long)end,
                         (unsigned long long)data_bytes);
    }
    if ((uint64_t)(end - begin) != out->bytes) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: tensor \"%s\": data_offsets [%lld,%lld) hold %lld bytes but %s %s needs %llu",
            path, name, (long long)begin, (long long)end, (long long)(end - begin), out->dtype,
            shape_buf, (unsigned long long)out->bytes);
    }
    out->data = data + begin;
    return CKVC_OK;
}

static int by_data(const void *a, const void *b) {
    const tensor_view *x = a, *y = b;
    if (x->data != y->data) { return x->data < y->data ? -1 : 1; }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorted by place, the tensors must cover the data without holes or overlaps: a file that means two
 * things is refused. */
static ckvc_status check_contiguous(const char *path, tensor_view *tensors, size_t n,
                                    const uint8_t *data, uint64_t data_bytes, ckvc_err *err) {
    if (n > 1) { qsort(tensors, n, sizeof *tensors, by_data); }
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = (uint64_t)(tensors[i].data - data);
        if (begin < at) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s: tensor \"%s\" begins at %llu and overlaps \"%s\", which ends at %llu", path,
                tensors[i].name, (unsigned long long)begin, tensors[i - 1].name,
                (unsigned long long)at);
        }
        if (begin > at) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s: bytes %llu ... %llu of the data, before tensor \"%s\", belong to no tensor",
                path, (unsigned long long)at, (unsigned long long)begin, tensors[i].name);
        }
        at = begin + tensors[i].bytes;
    }
    if (at != data_bytes) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: the tensors end at byte %llu of the data, the file has %llu bytes of data", path,
            (unsigned long long)at, (unsigned long long)data_bytes);
    }
    return CKVC_OK;
}

/* Maps one file and appends its tensors. */
static ckvc_status add_file(weights *w, const char *dir, const char *name, ckvc_err *err) {
    json_t *header = NULL;
    ckvc_status rc =
        ckvc_grow((void **)&w->files, &w->cap_files, w->n_files + 1, sizeof *w->files, err);
    if (rc != CKVC_OK) { return rc; }
    weights_file *s = &w->files[w->n_files];
    *s = (weights_file){.path = ckvc_path_join(dir, name)};
    if (s->path == NULL) {
        return ckvc_fail_memory(err, "a file name", strlen(dir) + strlen(name) + 2);
    }
    rc = ckvc_map_open(s->path, &s->map, err);
    if (rc != CKVC_OK) {
        free(s->path);
        return rc;
    }
    w->n_files++;

    const char *path = s->path;
    const uint64_t size = s->map.size;
    if (size < 8) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: %llu bytes are too few for a safetensors file",
                         path, (unsigned long long)size);
    }
    const uint64_t header_bytes = ckvc_get_u64(s->map.data);
    if (header_bytes > HEADER_MAX) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte 0: header length %llu is over the format's limit of %u", path,
                         (unsigned long long)header_bytes, HEADER_MAX);
    }
    if (!ckvc_span_ok(8, header_bytes, size)) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: byte 0: header length %llu runs past the end of the file (%llu bytes)", path,
            (unsigned long long)header_bytes, (unsigned long long)size);
    }
    if (header_bytes < 2 || s->map.data[8] != '{') {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte 8: the header is not a JSON object (it must begin with '{')",
                         path);
    }

    char *where = ckvc_format("%s: header", path);
    rc = ckvc_json_parse((const char *)s->map.data + 8, (size_t)header_bytes, where, &header, err);
    free(where);
    if (rc != CKVC_OK) { return rc; }

    const uint8_t *data = s->map.data + 8 + header_bytes;
    const uint64_t data_bytes = size - 8 - header_bytes;
    const size_t first = w->n_tensors;
    const char *tensor, *key;
    json_t *entry, *value;
    rc = ckvc_grow((void **)&w->tensors, &w->cap_tensors, first + json_object_size(header) + 1,
                   sizeof *w->tensors, err);
    if (rc != CKVC_OK) { goto done; }
    json_object_foreach(header, tensor, entry) {
        if (strcmp(tensor, "__metadata__") == 0) {
            if (!json_is_object(entry)) {
                rc = ckvc_fail(err, CKVC_E_DATA, "%s: header: __metadata__ is not an object", path);
                goto done;
            }
            json_object_foreach(entry, key, value) {
                if (!json_is_string(value)) {
                    rc = ckvc_fail(err, CKVC_E_DATA, "%s: header: __metadata__[\"%s\"] is not text",
                                   path, key);
                    goto done;
                }
            }
            continue;
        }
        tensor_view *view = &w->tensors[w->n_tensors];
        rc = read_entry(path, tensor, entry, data, data_bytes, view, err);
        if (rc != CKVC_OK) { goto done; }
        view->name = ckvc_strdup(tensor);
        view->stored = view->name;
        w->n_tensors++;
    }
    rc = check_contiguous(path, w->tensors + first, w->n_tensors - first, data, data_bytes, err);
done:
    json_decref(header);
    return rc;
}

/* ---- several files ---- */

static bool plain_name(const char *name) {
    return *name != '\0' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static ckvc_status add_indexed(weights *w, const char *dir, const char *index_path, ckvc_err *err) {
    json_t *index = NULL;
    ckvc_status rc = ckvc_json_read(index_path, INDEX_MAX, &index, err);
    if (rc != CKVC_OK) { return rc; }
    const char *tensor;
    json_t *file;
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        rc = ckvc_fail(err, CKVC_E_DATA, "%s: weight_map is missing, empty or not an object",
                       index_path);
        goto done;
    }
    json_object_foreach(map, tensor, file) {
        if (!json_is_string(file) || !plain_name(json_string_value(file))) {
            rc = ckvc_fail(err, CKVC_E_DATA,
                           "%s: weight_map[\"%s\"] names \"%s\": only plain names of files in the "
                           "folder are allowed",
                           index_path, tensor,
                           json_is_string(file) ? json_string_value(file) : "(not text)");
            goto done;
        }
        bool known = false;
        for (size_t i = 0; i < w->n_files && !known; i++) {
            const char *base = strrchr(w->files[i].path, '/');
            known = strcmp(base ? base + 1 : w->files[i].path, json_string_value(file)) == 0;
        }
        if (known) { continue; }
        if (w->n_files == SHARDS_MAX) {
            rc = ckvc_fail(err, CKVC_E_DATA, "%s: weight_map names more than %d files", index_path,
                           SHARDS_MAX);
            goto done;
        }
        rc = add_file(w, dir, json_string_value(file), err);
        if (rc != CKVC_OK) { goto done; }
    }
    rc = weights_sort(w, err);
    if (rc != CKVC_OK) { goto done; }
    json_object_foreach(map, tensor, file) {
        const tensor_view *view = weights_find(w, tensor);
        const char *base = view ? strrchr(view->file, '/') : NULL;
        if (view == NULL || strcmp(base ? base + 1 : view->file, json_string_value(file)) != 0) {
            rc = ckvc_fail(err, CKVC_E_DATA,
                           "%s: weight_map says that tensor \"%s\" is in %s, but it is %s",
                           index_path, tensor, json_string_value(file),
                           view ? "in another file" : "not there");
            goto done;
        }
    }
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        bytes += w->tensors[i].bytes;
    }
    if (json_is_integer(total) && (uint64_t)json_integer_value(total) != bytes) {
        ckvc_warn("%s: metadata.total_size is %lld, the tensors hold %llu bytes", index_path,
                  (long long)json_integer_value(total), (unsigned long long)bytes);
    }
done:
    json_decref(index);
    return rc;
}

ckvc_status safetensors_load(const char *dir, weights *w, ckvc_err *err) {
    char *one = ckvc_path_join(dir, "model.safetensors");
    char *index = ckvc_path_join(dir, "model.safetensors.index.json");
    ckvc_status rc;
    if (one == NULL || index == NULL) {
        rc = ckvc_fail_memory(err, "a file name", strlen(dir) + 32);
    } else if (ckvc_file_exists(one)) { /* as transformers: the single file wins over an index */
        rc = add_file(w, dir, "model.safetensors", err);
        if (rc == CKVC_OK) { rc = weights_sort(w, err); }
    } else if (ckvc_file_exists(index)) {
        rc = add_indexed(w, dir, index, err);
    } else {
        rc = ckvc_fail(err, CKVC_E_NOINPUT,
                       "%s: no model.safetensors and no model.safetensors.index.json here (other "
                       "weight files are not read)",
                       dir);
    }
    free(one);
    free(index);
    return rc;
}
