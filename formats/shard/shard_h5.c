/* The writer of HDF5 shards (formats/shard/shard.md): the same rows give the same bytes. The reader
 * is shard_h5_read.c. */
#include "formats/shard/shard_h5.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <hdf5.h>
#include <string.h>

#include "formats/shard/h5_zstd.h"
#include "formats/shard/shard_rows.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/bytes.h"

#define CHUNK_VALUES 65536u

#define H5_FAIL_IF(err, condition, ...)                                                            \
    do {                                                                                           \
        if (condition) { return h5_fail(err, __VA_ARGS__); }                                       \
    } while (0)

/* Returns the type of a number in memory, or in the file, where it is little-endian whatever the
 * machine. */
static hid_t number_type(record_type type, size_t size, bool in_file) {
    enum { REALS = 8 }; /* the types of reals stand behind those of counts */
    const hid_t types[][2] = {[1] = {H5T_NATIVE_UINT8, H5T_STD_U8LE},
                              [2] = {H5T_NATIVE_UINT16, H5T_STD_U16LE},
                              [4] = {H5T_NATIVE_UINT32, H5T_STD_U32LE},
                              [8] = {H5T_NATIVE_UINT64, H5T_STD_U64LE},
                              [REALS + 4] = {H5T_NATIVE_FLOAT, H5T_IEEE_F32LE},
                              [REALS + 8] = {H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE}};
    return types[size + (type == RECORD_REAL ? REALS : 0)][in_file];
}

/* Makes the type of a text of fixed length, NUL-padded, in UTF-8. The caller closes it. */
static hid_t text_type(size_t size) {
    H5_AUTO hid_t type = H5Tcopy(H5T_C_S1);
    const bool made = type >= 0 && H5Tset_size(type, size) >= 0 &&
                      H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
                      H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    return made ? h5_take(&type) : -1;
}

/* What is written: a single value (rank 0) or an array. */
typedef struct values {
    hid_t type, memory; /* the type in the file, and the type in memory */
    int rank;
    hsize_t dims[SHARD_MAX_RANK];
    const void *data;
} values;

static values numbers(record_type type, size_t size, int rank, const void *data) {
    return (values){number_type(type, size, true), number_type(type, size, false), rank, {0}, data};
}

static ckvc_status write_value(hid_t file, const char *name, const values *v, ckvc_err *err) {
    static const char nothing[8];
    H5_AUTO hid_t space =
        v->rank ? H5Screate_simple(v->rank, v->dims, NULL) : H5Screate(H5S_SCALAR);
    H5_AUTO hid_t attribute =
        space < 0 ? -1 : H5Acreate2(file, name, v->type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool empty = v->rank == 1 && v->dims[0] == 0;
    H5_FAIL_IF(err, attribute < 0 || H5Awrite(attribute, v->memory, empty ? nothing : v->data) < 0,
               CKVC_E_SYSTEM, "shard attribute %s: cannot be written", name);
    return CKVC_OK;
}

static ckvc_status write_text(hid_t file, const char *name, const char *text, ckvc_err *err) {
    const size_t n = strlen(text);
    /* HDF5 has no text of length 0; such a text is written as one NUL */
    H5_AUTO hid_t type = text_type(n ? n : 1);
    H5_FAIL_IF(err, type < 0, CKVC_E_SYSTEM, "shard attribute %s: no type", name);
    return write_value(file, name, &(values){.type = type, .memory = type, .data = text}, err);
}

static ckvc_status write_header(hid_t file, const shard_header *h, ckvc_err *err) {
    const uint32_t version = 1;
    const values of_version = numbers(RECORD_COUNT, sizeof version, 0, &version);
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    CKVC_TRY(write_text(file, "format", "ckvc-shard", err));
    CKVC_TRY(write_value(file, "version", &of_version, err));
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        const char *at = (const char *)h + a->m.at;
        size_t dims[4];
        char buffer[64];
        const int rank = shard_attribute_dims(h, a, false, dims);
        if (rank < 0) { continue; }
        if (a->m.type == RECORD_TEXT) {
            CKVC_TRY(write_text(file, a->m.name, at, err));
        } else if (a->m.type == RECORD_NAME) {
            CKVC_TRY(write_text(file, a->m.name,
                                setting_name(a->setting, &h->setting, buffer, sizeof buffer), err));
        } else {
            values v = numbers(a->m.type, a->m.size, rank, rank ? shard_array(h, a->m.at) : at);
            for (int d = 0; d < rank; d++) { v.dims[d] = dims[d]; }
            CKVC_TRY(write_value(file, a->m.name, &v, err));
        }
    }
    return CKVC_OK;
}

/* Writes one column: dims[0] rows with dims[1...] values each. By the chunk rule of shard.md a
 * chunk may be longer than the column. The maximal extent is then that of the chunk, because HDF5
 * refuses a fixed extent below the chunk. */
static ckvc_status write_column(hid_t group, const char *name, const values *v, ckvc_err *err) {
    hsize_t chunk[SHARD_MAX_RANK], most[SHARD_MAX_RANK], row = 1;
    const hsize_t rows = v->dims[0];
    for (int i = 1; i < v->rank; i++) {
        row *= v->dims[i];
        chunk[i] = most[i] = v->dims[i];
    }
    assert(row > 0); /* the rows of every column hold something */
    chunk[0] = CHUNK_VALUES / row;
    if (v->rank == 1 && rows < chunk[0]) { chunk[0] = rows; }
    chunk[0] = chunk[0] ? chunk[0] : 1;
    most[0] = rows > chunk[0] ? rows : chunk[0];
    const unsigned level = H5_ZSTD_LEVEL;
    H5_AUTO hid_t space = H5Screate_simple(v->rank, v->dims, most);
    H5_AUTO hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5_AUTO hid_t dataset = -1;
    if (space >= 0 && create >= 0 && H5Pset_obj_track_times(create, 0) >= 0 &&
        H5Pset_chunk(create, v->rank, chunk) >= 0 && H5Pset_shuffle(create) >= 0 &&
        H5Pset_filter(create, H5_ZSTD_ID, H5Z_FLAG_MANDATORY, 1, &level) >= 0 &&
        H5Pset_fletcher32(create) >= 0) {
        dataset = H5Dcreate2(group, name, v->type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    }
    H5_FAIL_IF(
        err,
        dataset < 0 ||
            (rows && H5Dwrite(dataset, v->memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, v->data) < 0) ||
            !h5_close(&dataset),
        CKVC_E_SYSTEM, "shard column %s: cannot be written", name);
    return CKVC_OK;
}

/* Gathers a field of every row into a dense array. */
static void gather_column(char *to, const char *rows, size_t row_size, const shard_column *c,
                          size_t n) {
    const bool text = c->m.type == RECORD_TEXT;
    const size_t size = text ? SHARD_STRING - 1 : c->m.size;
    for (size_t i = 0; i < n; i++, to += size) {
        const char *field = rows + i * row_size + c->m.at;
        /* bytes behind the end of a text are not part of it */
        const size_t used = text ? strnlen(field, size) : size;
        memcpy(to, field, used);
        memset(to + used, 0, size - used);
    }
}

/* Tells whether all texts of a column are empty, or all of its counts 0. */
static bool is_empty(const char *bytes, size_t n) {
    size_t i = 0;
    while (i < n && !bytes[i]) { i++; }
    return i == n;
}

static ckvc_status write_group(hid_t file, const shard *s, const shard_group *g, ckvc_err *err) {
    const size_t rows = shard_rows(s, g);
    CKVC_AUTO_FREE char *column = ckvc_alloc(rows, SHARD_STRING);
    H5_AUTO hid_t create = H5Pcreate(H5P_GROUP_CREATE);
    H5_AUTO hid_t group = -1;
    H5_AUTO hid_t text = text_type(SHARD_STRING - 1);
    if (create >= 0 && H5Pset_obj_track_times(create, 0) >= 0) {
        group = H5Gcreate2(file, g->name, H5P_DEFAULT, create, H5P_DEFAULT);
    }
    H5_FAIL_IF(err, group < 0 || text < 0, CKVC_E_SYSTEM, "shard group %s: cannot be made",
               g->name);
    for (size_t i = 0; i < g->n_columns; i++) {
        const shard_column *c = &g->columns[i];
        size_t dims[SHARD_MAX_RANK] = {rows};
        if (!shard_has_column(c, &s->h)) { continue; }
        if (!c->axes) {
            gather_column(column, shard_array(s, g->rows_offset), g->row_size, c, rows);
        }
        const char *bytes = c->axes ? shard_array(s, c->m.at) : column;
        const size_t of_row = c->axes ? shard_row_values(c, &s->h) * c->m.size : SHARD_STRING - 1;
        if (c->need == SHARD_OF_NEW && c->m.type != RECORD_REAL && is_empty(bytes, rows * of_row)) {
            continue;
        }
        values v = c->m.type == RECORD_TEXT
                       ? (values){text, text, 1, {0}, column}
                       : numbers(c->m.type, c->m.size, shard_column_dims(c, &s->h, dims),
                                 c->axes ? shard_array(s, c->m.at) : column);
        for (int d = 0; d < v.rank; d++) { v.dims[d] = dims[d]; }
        CKVC_TRY(write_column(group, c->m.name, &v, err));
    }
    return CKVC_OK;
}

static uint32_t rotate(uint32_t v, int by) { return v << by | v >> (32 - by); }

/* Computes HDF5's metadata checksum: hashlittle of Bob Jenkins's lookup3 (2006, public domain) with
 * the start value 0. n must be above 0. */
static uint32_t lookup3(const uint8_t *p, size_t n) {
    uint32_t a = 0xdeadbeefu + (uint32_t)n, b = a, c = a;
    for (; n > 12; n -= 12, p += 12) {
        a += ckvc_get_u32(p), b += ckvc_get_u32(p + 4), c += ckvc_get_u32(p + 8);
        a = (a - c) ^ rotate(c, 4), c += b;
        b = (b - a) ^ rotate(a, 6), a += c;
        c = (c - b) ^ rotate(b, 8), b += a;
        a = (a - c) ^ rotate(c, 16), c += b;
        b = (b - a) ^ rotate(a, 19), a += c;
        c = (c - b) ^ rotate(b, 4), b += a;
    }
    uint8_t tail[12] = {0};
    memcpy(tail, p, n);
    a += ckvc_get_u32(tail), b += ckvc_get_u32(tail + 4), c += ckvc_get_u32(tail + 8);
    c = (c ^ b) - rotate(b, 14);
    a = (a ^ c) - rotate(c, 11);
    b = (b ^ a) - rotate(a, 25);
    c = (c ^ b) - rotate(b, 16);
    a = (a ^ c) - rotate(c, 4);
    b = (b ^ a) - rotate(a, 14);
    return (c ^ b) - rotate(b, 24);
}

/* Copies the bytes of an open in-memory file. H5Fget_file_image of HDF5 1.10 clears the
 * superblock's flags ("open for writing") but leaves the checksum as it was, so that nobody can
 * open what it returns. The checksum over bytes 0-43 of superblock 3, which stands in bytes 44-47,
 * is therefore computed again. */
static ckvc_status take_image(hid_t file, uint8_t **out, size_t *n, ckvc_err *err) {
    const ssize_t size =
        H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file, NULL, 0);
    if (size < 48) { return h5_fail(err, CKVC_E_BUG, "a shard: has no image in memory"); }
    CKVC_AUTO_FREE uint8_t *image = ckvc_alloc((size_t)size, 1);
    H5_FAIL_IF(
        err, H5Fget_file_image(file, image, (size_t)size) != size || image[8] != 3 || image[9] != 8,
        CKVC_E_BUG, "a shard: its image in memory is not a superblock 3 with 8-byte addresses");
    ckvc_put_u32(image + 44, lookup3(image, 44));
    *out = ckvc_take(&image);
    *n = (size_t)size;
    return CKVC_OK;
}

ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) {
    *out = NULL;
    *n = 0;
    /* what the readers would refuse is never written, because it is a bug of the caller */
    ckvc_err why = {0};
    CKVC_FAIL_IF(shard_header_check(&s->h, "shard", &why) || shard_rows_check(s, "shard", &why),
                 err, CKVC_E_BUG, "%s", why.text);
    CKVC_TRY(h5_begin(err));
    H5_AUTO hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5_AUTO hid_t create = H5Pcreate(H5P_FILE_CREATE);
    H5_AUTO hid_t file = -1;
    if (access >= 0 && create >= 0 && H5Pset_fapl_core(access, (size_t)1 << 20, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
        H5Pset_obj_track_times(create, 0) >= 0) {
        file = H5Fcreate("shard", H5F_ACC_TRUNC, create, access);
    }
    if (file < 0) { return h5_fail(err, CKVC_E_SYSTEM, "a shard: cannot be made in memory"); }
    CKVC_TRY(write_header(file, &s->h, err));
    for (int k = 0; k < shard_n_groups(&s->h); k++) {
        CKVC_TRY(write_group(file, s, &shard_groups[k], err));
    }
    return take_image(file, out, n, err);
}

ckvc_status h5_begin(ckvc_err *err) {
    /* HDF5 1.10 crashes when it has no memory as it starts, or in a file's H5AC_create. So this
     * asks first for as much as either of them takes: where there is none, ckvc_alloc ends the
     * process with its message. */
    free(ckvc_alloc(8 << 20, 1));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    /* These are the defaults except the second: it lets a file's metadata cache, half a megabyte,
     * stay for the next file. */
    H5set_free_list_limits(1 << 20, 1 << 20, 4 << 20, 256 << 10, 16 << 20, 1 << 20);
    if (H5Zfilter_avail(H5_ZSTD_ID) <= 0 && H5Zregister(&h5_zstd_class) < 0) {
        return h5_fail(err, CKVC_E_BUG, "HDF5 cannot register the zstd filter");
    }
    return CKVC_OK;
}

static herr_t innermost(unsigned n, const H5E_error2_t *e, void *data) {
    if (n == 0 && e->desc) { snprintf(data, 400, "%s", e->desc); }
    return 0;
}

ckvc_status h5_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) {
    char what[1024], why[400] = "no reason given";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    H5Eclear2(H5E_DEFAULT);
    return ckvc_fail(err, status, "%s: HDF5 says: %s", what, why);
}

ckvc_status vectors_create(vectors_file *v, const char *path, bool force, ckvc_err *err) {
    v->file = -1;
    CKVC_TRY(h5_begin(err));
    CKVC_TRY(ckvc_publish_begin(&v->publish, path, force, err));
    H5_AUTO hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    /* so that H5Dwrite writes and fails, and not a later close whose result nobody looks at */
    H5Pset_sieve_buf_size(access, 0);
    H5_AUTO hid_t create = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(create, false);
    H5Pset_file_locking(access, false, true); /* ckvc_publish holds a lock on it already */
    v->file = H5Fcreate(v->publish.tmp_path, H5F_ACC_TRUNC, create, access);
    if (v->file >= 0) { return CKVC_OK; }
    vectors_abort(v);
    return ckvc_fail(err, CKVC_E_CREATE, "%s: cannot create the HDF5 file", path);
}

static bool write_floats(hid_t group, const char *name, int rank, const hsize_t *dims,
                         const float *floats) {
    H5_AUTO hid_t space = H5Screate_simple(rank, dims, NULL);
    H5_AUTO hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(create, false);
    H5_AUTO hid_t set =
        H5Dcreate2(group, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    return set >= 0 && H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, floats) >= 0;
}

ckvc_status vectors_add(vectors_file *v, const prompt_vectors *p, ckvc_err *err) {
    char name[16];
    snprintf(name, sizeof name, "%05u", p->number);
    const hsize_t dims[3] = {p->L, p->G, p->T};
    H5_AUTO hid_t create = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(create, false);
    H5_AUTO hid_t group = H5Gcreate2(v->file, name, H5P_DEFAULT, create, H5P_DEFAULT);
    H5_AUTO hid_t text = H5Tcopy(H5T_C_S1);
    H5_AUTO hid_t scalar = H5Screate(H5S_SCALAR);
    H5Tset_size(text, strlen(p->id) + 1);
    H5Tset_cset(text, H5T_CSET_UTF8);
    H5_AUTO hid_t attribute =
        group < 0 ? -1 : H5Acreate2(group, "id", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    const bool written = attribute >= 0 && H5Awrite(attribute, text, p->id) >= 0 &&
                         write_floats(group, "alpha", 1, &dims[2], p->alpha) &&
                         write_floats(group, "rho", 3, dims, p->rho);
    CKVC_FAIL_IF(!written, err, CKVC_E_IO, "%s: writing the vectors of prompt %u failed",
                 v->publish.path, p->number);
    return CKVC_OK;
}

ckvc_status vectors_commit(vectors_file *v, ckvc_err *err) {
    const herr_t closed = H5Fclose(v->file);
    v->file = -1;
    if (closed >= 0) { return ckvc_publish_commit(&v->publish, err); }
    const ckvc_status st =
        ckvc_fail(err, CKVC_E_IO, "%s: closing the HDF5 file failed", v->publish.path);
    vectors_abort(v);
    return st;
}

void vectors_abort(vectors_file *v) {
    if (v->file >= 0) { H5Fclose(v->file); }
    v->file = -1;
    if (v->publish.path) { ckvc_publish_abort(&v->publish); }
}
