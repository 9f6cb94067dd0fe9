/* The writer of HDF5 shards (formats/shard/shard.md): same rows, same bytes. The reader is
 * shard_h5_read.c. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/shard/h5_error.h"
#include "formats/shard/h5_zstd.h"
#include "formats/shard/shard_rows.h"
#include "lib/base/memory.h"

/* Types in the file, little-endian whatever the machine. Text needs a size: see text_type. */
static hid_t file_type(shard_type type) {
    switch (type) {
    case SHARD_U8:
        return H5T_STD_U8LE;
    case SHARD_U16:
        return H5T_STD_U16LE;
    case SHARD_U32:
        return H5T_STD_U32LE;
    case SHARD_U64:
        return H5T_STD_U64LE;
    case SHARD_F32:
        return H5T_IEEE_F32LE;
    default:
        return H5T_IEEE_F64LE;
    }
}

static hid_t memory_type(shard_type type) {
    switch (type) {
    case SHARD_U8:
        return H5T_NATIVE_UINT8;
    case SHARD_U16:
        return H5T_NATIVE_UINT16;
    case SHARD_U32:
        return H5T_NATIVE_UINT32;
    case SHARD_U64:
        return H5T_NATIVE_UINT64;
    case SHARD_F32:
        return H5T_NATIVE_FLOAT;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

/* Fixed length, NUL-padded, UTF-8. The caller closes it. */
static hid_t text_type(size_t size) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, size) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        type = -1;
    }
    return type;
}

static ckvc_status write_attribute(hid_t file, const char *name, hid_t type, hid_t memory, int rank,
                                   const size_t *dims, const void *data, ckvc_err *err) {
    hsize_t extent[4] = {0};
    for (int i = 0; i < rank; i++) {
        extent[i] = dims[i];
    }
    hid_t space = rank ? H5Screate_simple(rank, extent, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute =
        space < 0 ? -1 : H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ckvc_status st = CKVC_OK;
    static const char nothing[8];
    bool empty = rank == 1 && dims[0] == 0;
    if (attribute < 0 || H5Awrite(attribute, memory, empty ? nothing : data) < 0) {
        st = h5_fail(err, CKVC_E_MEMORY, "shard attribute %s: cannot be written", name);
    }
    if (attribute >= 0) { H5Aclose(attribute); }
    if (space >= 0) { H5Sclose(space); }
    return st;
}

static ckvc_status write_text(hid_t file, const char *name, const char *text, ckvc_err *err) {
    size_t n = strlen(text);
    hid_t type = text_type(n ? n : 1); /* HDF5 has no text of length 0: one NUL */
    ckvc_status st = type < 0 ? h5_fail(err, CKVC_E_MEMORY, "shard attribute %s: no type", name)
                              : write_attribute(file, name, type, type, 0, NULL, text, err);
    if (type >= 0) { H5Tclose(type); }
    return st;
}

static ckvc_status write_header(hid_t file, const shard_header *h, ckvc_err *err) {
    uint32_t version = 1;
    ckvc_status st = write_text(file, "format", "ckvc-shard", err);
    st = st ? st
            : write_attribute(file, "version", H5T_STD_U32LE, H5T_NATIVE_UINT32, 0, NULL, &version,
                              err);
    for (size_t i = 0; st == CKVC_OK && i < SHARD_TEXT_ATTRIBUTES; i++) {
        const char *text = (const char *)h + shard_text_attributes[i].offset;
        st = shard_text_attributes[i].optional && !*text
                 ? CKVC_OK
                 : write_text(file, shard_text_attributes[i].name, text, err);
    }
    for (size_t i = 0; st == CKVC_OK && i < SHARD_U32_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_u32_attributes[i];
        st = write_attribute(file, a->name, H5T_STD_U32LE, H5T_NATIVE_UINT32, 0, NULL,
                             (const char *)h + a->offset, err);
    }
    st = st ? st
            : write_attribute(file, "lambda", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 0, NULL,
                              &h->beta_bud, err);
    st = st ? st
            : write_attribute(file, "seed", H5T_STD_U64LE, H5T_NATIVE_UINT64, 0, NULL, &h->seed,
                              err);
    if (st == CKVC_OK && h->reduction != CKVC_LOSS_MEAN) {
        st = write_text(file, "loss_reduction", ckvc_loss_reduction_name(h->reduction), err);
    }
    for (size_t i = 0; st == CKVC_OK && i < SHARD_ARRAYS; i++) {
        const shard_array *a = &shard_arrays[i];
        size_t dims[4];
        int rank = shard_array_dims(h, a, dims);
        if (rank) {
            st =
                write_attribute(file, a->name, file_type(a->type), memory_type(a->type), rank, dims,
                                *(void *const *)(const void *)((const char *)h + a->offset), err);
        }
    }
    return st;
}

/* One column: dims[0] rows, dims[1...] values of a row. The chunk rule of formats.md, which may
 * make a chunk longer than the column: the maximal extent is then the chunk's, since HDF5 refuses a
 * fixed extent below the chunk. */
static ckvc_status write_column(hid_t group, const char *name, hid_t type, hid_t memory, int rank,
                                const hsize_t *dims, const void *data, ckvc_err *err) {
    hsize_t chunk[3], most[3], row = 1;
    for (int i = 1; i < rank; i++) {
        row *= dims[i];
        chunk[i] = most[i] = dims[i];
    }
    if (rank == 1) {
        chunk[0] = dims[0] < SHARD_CHUNK ? dims[0] : SHARD_CHUNK;
    } else {
        chunk[0] = SHARD_CHUNK / row;
    }
    chunk[0] = chunk[0] ? chunk[0] : 1;
    most[0] = dims[0] > chunk[0] ? dims[0] : chunk[0];
    const unsigned level = H5_ZSTD_LEVEL;
    hid_t space = H5Screate_simple(rank, dims, most);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = -1;
    if (space >= 0 && create >= 0 && H5Pset_obj_track_times(create, 0) >= 0 &&
        H5Pset_chunk(create, rank, chunk) >= 0 && H5Pset_shuffle(create) >= 0 &&
        H5Pset_filter(create, H5_ZSTD_ID, H5Z_FLAG_MANDATORY, 1, &level) >= 0 &&
        H5Pset_fletcher32(create) >= 0) {
        dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    }
    ckvc_status st = CKVC_OK;
    if (dataset < 0 ||
        (dims[0] && H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)) {
        st = h5_fail(err, CKVC_E_MEMORY, "shard column %s: cannot be written", name);
    }
    if (dataset >= 0 && H5Dclose(dataset) < 0 && st == CKVC_OK) {
        st = h5_fail(err, CKVC_E_MEMORY, "shard column %s: cannot be closed", name);
    }
    if (create >= 0) { H5Pclose(create); }
    if (space >= 0) { H5Sclose(space); }
    return st;
}

static ckvc_status write_group(hid_t file, const shard *s, const shard_group *g, ckvc_err *err) {
    size_t rows = *(const size_t *)(const void *)((const char *)s + g->count_offset);
    const char *base = *(char *const *)(const void *)((const char *)s + g->rows_offset);
    char *column = ckvc_alloc(rows, SHARD_STRING);
    hid_t create = H5Pcreate(H5P_GROUP_CREATE);
    hid_t group = -1;
    if (create >= 0 && H5Pset_obj_track_times(create, 0) >= 0) {
        group = H5Gcreate2(file, g->name, H5P_DEFAULT, create, H5P_DEFAULT);
    }
    hid_t text = text_type(SHARD_STRING - 1);
    ckvc_status st = CKVC_OK;
    if (!column) {
        st = ckvc_fail_memory(err, g->name, rows * SHARD_STRING);
    } else if (group < 0 || text < 0) {
        st = h5_fail(err, CKVC_E_MEMORY, "shard group %s: cannot be made", g->name);
    }
    for (size_t i = 0; st == CKVC_OK && i < g->n_columns; i++) {
        const shard_column *c = &g->columns[i];
        bool is_text = c->type == SHARD_TEXT;
        size_t size = is_text ? SHARD_STRING - 1 : shard_type_size(c->type);
        for (size_t r = 0; r < rows; r++) {
            const char *field = base + r * g->row_size + c->offset;
            if (is_text) { /* what stands behind the text's end is not part of it */
                size_t n = strnlen(field, size);
                memcpy(column + r * size, field, n);
                memset(column + r * size + n, 0, size - n);
            } else {
                memcpy(column + r * size, field, size);
            }
        }
        const hsize_t dims[1] = {rows};
        st = write_column(group, c->name, is_text ? text : file_type(c->type),
                          is_text ? text : memory_type(c->type), 1, dims, column, err);
    }
    for (size_t i = 0;
         st == CKVC_OK && i < g->n_wide && (!g->wide_scan_only || shard_is_scan(&s->h)); i++) {
        const shard_wide *w = &g->wide[i];
        const hsize_t dims[3] = {rows, s->h.n_layers, s->h.n_kv_heads};
        st = write_column(group, w->name, file_type(w->type), memory_type(w->type), w->rank, dims,
                          *(void *const *)(const void *)((const char *)s + w->offset), err);
    }
    if (text >= 0) { H5Tclose(text); }
    if (group >= 0) { H5Gclose(group); }
    if (create >= 0) { H5Pclose(create); }
    free(column);
    return st;
}

static uint32_t rotate(uint32_t v, int by) {
    return v << by | v >> (32 - by);
}

/* HDF5's metadata checksum: hashlittle of Bob Jenkins's lookup3 (2006, public domain), start value
 * 0. n > 0. */
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

/* The bytes of an open in-memory file. H5Fget_file_image of HDF5 1.10 clears the superblock's flags
 * ("open for writing") and leaves the checksum as it was, so that nobody can open what it returns:
 * bytes 44-47 of superblock 3, over bytes 0-43, are made right. */
static ckvc_status take_image(hid_t file, uint8_t **out, size_t *n, ckvc_err *err) {
    ssize_t size = H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file, NULL, 0);
    if (size < 48) { return h5_fail(err, CKVC_E_BUG, "a shard: has no image in memory"); }
    uint8_t *image = ckvc_alloc((size_t)size, 1);
    if (H5Fget_file_image(file, image, (size_t)size) != size || image[8] != 3 || image[9] != 8) {
        free(image);
        return h5_fail(err, CKVC_E_BUG,
                       "a shard: its image in memory is not a superblock 3 with 8-byte addresses");
    }
    ckvc_put_u32(image + 44, lookup3(image, 44));
    *out = image;
    *n = (size_t)size;
    return CKVC_OK;
}

ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) {
    *out = NULL;
    *n = 0;
    ckvc_err why = {0}; /* what the readers would refuse is never written: a bug of the caller */
    if (shard_header_check(&s->h, "shard", &why) != CKVC_OK ||
        shard_rows_check(s, "shard", &why) != CKVC_OK) {
        return ckvc_fail(err, CKVC_E_BUG, "%s", why.text);
    }
    ckvc_status st = h5_begin(err);
    if (st != CKVC_OK) { return st; }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE), file = -1;
    if (access >= 0 && create >= 0 && H5Pset_fapl_core(access, (size_t)1 << 20, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
        H5Pset_obj_track_times(create, 0) >= 0) {
        file = H5Fcreate("shard", H5F_ACC_TRUNC, create, access);
    }
    if (file < 0) { st = h5_fail(err, CKVC_E_MEMORY, "a shard: cannot be made in memory"); }
    st = st ? st : write_header(file, &s->h, err);
    for (int k = 0; st == CKVC_OK && k < SHARD_GROUPS; k++) {
        st = write_group(file, s, &shard_groups[k], err);
    }
    st = st ? st : take_image(file, out, n, err);
    if (file >= 0 && H5Fclose(file) < 0 && st == CKVC_OK) {
        st = h5_fail(err, CKVC_E_MEMORY, "a shard: cannot be closed");
    }
    if (create >= 0) { H5Pclose(create); }
    if (access >= 0) { H5Pclose(access); }
    if (st != CKVC_OK) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    return st;
}

ckvc_status shard_h5_write(const shard *s, const char *path, ckvc_err *err) {
    uint8_t *image;
    size_t n, put = 0;
    ckvc_status st = shard_h5_image(s, &image, &n, err);
    if (st != CKVC_OK) { return st; }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) { st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot create", path); }
    while (st == CKVC_OK && put < n) {
        ssize_t got = write(fd, image + put, n - put);
        if (got > 0) {
            put += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            st = ckvc_fail_errno(err, CKVC_E_IO, "%s: writing failed at byte %zu of %zu", path, put,
                                 n);
        }
    }
    if (fd >= 0 && close(fd) != 0 && st == CKVC_OK) {
        st = ckvc_fail_errno(err, CKVC_E_IO, "%s: writing failed at the end", path);
    }
    free(image);
    return st;
}
