/* .npy: see npy.h. "\x93NUMPY", version, length of a header, and the header: a Python literal
 * {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded to 64 bytes with its newline.
 */
#include "formats/export/npy.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

#define MAGIC     "\x93NUMPY"
#define BYTES_MAX CKVC_TABLE_MAX_BYTES

static const char *const descr[CKVT_TYPE_COUNT] = {"|u1", "<f4", "<f8", "<u4", "<u8"};

void npy_append(ckvc_buffer *b, const table_array *a) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer head = {0};
    ckvc_buffer_printf(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr[a->type]);
    for (unsigned d = 0; d < a->rank; d++) {
        ckvc_buffer_printf(&head, d ? " %llu%s" : "%llu%s", (unsigned long long)a->dims[d],
                           d + 1 < a->rank || a->rank == 1 ? "," : "");
    }
    ckvc_buffer_text(&head, "), }");
    while ((head.size + 11) % 64) { ckvc_buffer_u8(&head, ' '); }
    ckvc_buffer_u8(&head, '\n');
    ckvc_buffer_append(b, MAGIC "\1\0", 8);
    ckvc_buffer_u16(b, (uint16_t)head.size);
    ckvc_buffer_append(b, head.data, head.size);
    if (a->bytes) { ckvc_buffer_append(b, a->data, a->bytes); }
}

void npy_append_f32(ckvc_buffer *b, const double *values, const uint64_t *dims, unsigned rank) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer data = {0};
    table_array a = {.type = CKVT_F32, .rank = (uint16_t)rank};
    size_t n = 1;
    for (unsigned d = 0; d < rank; d++) { n *= a.dims[d] = dims[d]; }
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        ckvc_put_f32(bytes, (float)values[i]);
        ckvc_buffer_append(&data, bytes, sizeof bytes);
    }
    a.data = data.data;
    a.bytes = data.size;
    npy_append(b, &a);
}

/* ---- reading ---- */

/* The text at *at begins with `word`, blanks before it left out: then *at moves behind it. */
static bool skip(const char **at, const char *word) {
    while (**at == ' ') { (*at)++; }
    const size_t n = strlen(word);
    const bool is = strncmp(*at, word, n) == 0;
    *at += is ? n : 0;
    return is;
}

/* (2, 3), (2,) or (): false where it is none of them, or has more than five numbers. */
static bool read_shape(const char **at, table_array *out) {
    if (!skip(at, "(")) { return false; }
    for (out->rank = 0; !skip(at, ")"); out->rank++) {
        char *end;
        if (out->rank && !skip(at, ",")) { return false; }
        if (skip(at, ")")) { return true; }
        if (out->rank == CKVT_RANK_MAX || !isdigit((unsigned char)**at)) { return false; }
        out->dims[out->rank] = strtoull(*at, &end, 10);
        *at = end;
    }
    return true;
}

static bool read_type(const char **at, table_array *out) {
    int t = 0;
    if (!skip(at, "'")) { return false; }
    while (t < CKVT_TYPE_COUNT && strncmp(*at, descr[t], 3) != 0) { t++; }
    *at += t < CKVT_TYPE_COUNT ? 3 : 0;
    out->type = (ckvt_type)t;
    return t < CKVT_TYPE_COUNT && skip(at, "'");
}

/* The header, NUL-terminated: three keys in any order. */
static ckvc_status read_header(const char *where, const char *at, table_array *out, ckvc_err *err) {
    bool type = false, order = false, shape = false;
    bool good = skip(&at, "{");
    while (good && !skip(&at, "}")) {
        if (skip(&at, "'descr':")) {
            type = read_type(&at, out);
            CKVC_REFUSE_IF(!type, err, where,
                           "numbers of the type %.12s: |u1, <f4, <f8, <u4 and <u8 are read", at);
        } else if (skip(&at, "'fortran_order':")) {
            order = skip(&at, "False");
            CKVC_REFUSE_IF(!order, err, where,
                           "the array is not row-major (write numpy.ascontiguousarray of it)");
        } else if (skip(&at, "'shape':")) {
            shape = good = read_shape(&at, out);
        } else {
            good = false;
        }
        (void)skip(&at, ",");
    }
    CKVC_REFUSE_IF(!good || !type || !order || !shape, err, where,
                   "the header is not that of an array of numbers of at most %d dimensions",
                   CKVT_RANK_MAX);
    return CKVC_OK;
}

ckvc_status npy_parse(const char *where, const uint8_t *bytes, size_t size, table_array *out,
                      ckvc_err *err) {
    CKVC_REFUSE_IF(size < 12 || memcmp(bytes, MAGIC, 6) != 0 || bytes[6] < 1 || bytes[6] > 3, err,
                   where, "not a .npy file (numpy.save)");
    const size_t begin = bytes[6] == 1 ? 10 : 12;
    const size_t n = bytes[6] == 1 ? ckvc_get_u16(bytes + 8) : ckvc_get_u32(bytes + 8);
    CKVC_REFUSE_IF(!ckvc_span_ok(begin, n, size), err, where,
                   "its header of %zu bytes runs past the end (%zu bytes; is it cut off?)", n,
                   size);
    CKVC_AUTO_FREE char *header = ckvc_text_copy((const char *)bytes + begin, n);
    CKVC_TRY(read_header(where, header, out, err));
    out->bytes = ckvt_type_bytes(out->type);
    bool fits = true;
    for (unsigned d = 0; d < out->rank; d++) {
        fits = fits && ckvc_mul_size(out->bytes, out->dims[d], &out->bytes);
    }
    for (unsigned d = out->rank; d < CKVT_RANK_MAX; d++) { out->dims[d] = 0; }
    CKVC_REFUSE_IF(!fits || out->bytes != size - begin - n, err, where,
                   "%zu bytes of numbers, and its shape is not that of as many", size - begin - n);
    out->data = bytes + begin + n;
    return CKVC_OK;
}

double npy_real(const table_array *a, size_t i) {
    return a->type == CKVT_F32 ? (double)ckvc_get_f32(a->data + 4 * i)
                               : ckvc_get_f64(a->data + 8 * i);
}

ckvc_status npy_read_reals(const char *path, unsigned rank, unsigned or_rank, char **memory,
                           table_array *out, ckvc_err *err) {
    size_t size;
    *memory = NULL;
    CKVC_TRY(ckvc_file_read(path, BYTES_MAX, memory, &size, err));
    CKVC_TRY(npy_parse(path, (const uint8_t *)*memory, size, out, err));
    CKVC_REFUSE_IF(out->type != CKVT_F32 && out->type != CKVT_F64, err, path,
                   "whole numbers (%s), want float32 or float64", descr[out->type]);
    CKVC_REFUSE_IF(out->rank != rank && out->rank != or_rank, err, path, "%u dimensions, want %u%s",
                   out->rank, rank, rank == or_rank ? "" : ", or one fewer");
    for (size_t i = 0; i < out->bytes / ckvt_type_bytes(out->type); i++) {
        CKVC_REFUSE_IF(!isfinite(npy_real(out, i)), err, path, "value %zu is %g", i,
                       npy_real(out, i));
    }
    return CKVC_OK;
}
