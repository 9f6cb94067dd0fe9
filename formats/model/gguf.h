/* A GGUF file, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): typed
 * metadata and a table of tensors, memory-mapped. The file is assumed to be hostile: every count,
 * length and offset is compared with the bytes that remain before anything is allocated or
 * followed. What a key means is known to gguf_model.c and tokenizer_gguf.c. */
#pragma once

#include "lib/base/files.h"
#include "lib/model/model_spec.h"

/* Limits, an order of magnitude above all existing files; a file beyond them is refused. */
#define GGUF_MAX_KEYS      (1u << 16)
#define GGUF_MAX_TENSORS   (1u << 16)
#define GGUF_MAX_NAME      255u       /* bytes of a key or of a tensor's name */
#define GGUF_MAX_ITEMS     (1u << 24) /* of one array */
#define GGUF_MAX_ALIGNMENT (1u << 16)
#define GGUF_MAX_RANK      4u
#define GGUF_MAX_DIM       (UINT64_C(1) << 48)

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
} gguf_type;

typedef struct gguf_value {
    /* Printable ASCII. It stands first, as a tensor's name does: both are found by it. */
    char *key;
    gguf_type type;
    gguf_type item; /* of an array; never GGUF_ARRAY */
    /* the number, the first byte of the string, or the first item of the array */
    const uint8_t *data;
    size_t n;         /* items of an array; bytes of a string; else 1 */
    size_t at, bytes; /* the place of data in the file, and its length */
} gguf_value;
_Static_assert(sizeof(size_t) == 8, "a model's file may be larger than 4 GiB");

typedef struct gguf {
    char *path;
    ckvc_map map;
    gguf_value *values; /* sorted by key */
    size_t n_values;
    /* Sorted by name, which is the stored name (printable ASCII, owned). The type is never
     * TENSOR_OTHER, and the rank is 1 or more. */
    tensor_view *tensors;
    size_t n_tensors;
} gguf;

/* Whether the path is a regular file that is a GGUF file by its first bytes or by its name. */
bool gguf_is_file(const char *path);
ckvc_status gguf_open(const char *path, gguf **out, ckvc_err *err) CKVC_MUST_CHECK;
void gguf_close(gguf *g);
CKVC_AUTO_OF(gguf, gguf_close)

const gguf_value *gguf_find(const gguf *g, const char *key);
const tensor_view *gguf_find_tensor(const gguf *g, const char *name);

/* Read scalars by their key. Where the key is not there they return CKVC_OK and do not change *out.
 * Every integer type serves as an integer, f32 and f64 as a number. A value of another type, or
 * outside min ... max, is CKVC_E_DATA, and the message names the key. */
ckvc_status gguf_int(const gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                     ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status gguf_number(const gguf *g, const char *key, double *out,
                        ckvc_err *err) CKVC_MUST_CHECK; /* the number must be finite */
ckvc_status gguf_flag(const gguf *g, const char *key, bool *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Finds a string; *out is NULL, with CKVC_OK, when the key is not there. */
ckvc_status gguf_string(const gguf *g, const char *key, const gguf_value **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
/* Does the same for an array of items of one type. */
ckvc_status gguf_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out,
                       ckvc_err *err) CKVC_MUST_CHECK;
bool gguf_string_is(const gguf_value *v, const char *text);

/* Walks over an array of strings. *at begins at 0; the function returns the next string, borrowed,
 * and its size. gguf_open has checked the array's lengths. */
const char *gguf_next_string(const gguf_value *array, uint64_t *at, size_t *size);
