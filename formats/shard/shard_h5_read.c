/* The reader of HDF5 shards. Nothing is taken at its word: links, layouts, filters, ranks, lengths
 * and types are looked at before any value is read, and every value is checked before the shard is
 * handed out. Foreign files come here in a child (shard_hostile.c). */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/h5_error.h"
#include "formats/shard/h5_zstd.h"
#include "formats/shard/shard_rows.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

#define MAX_FILE_BYTES  ((size_t)2 << 30)
#define MAX_CHUNK_BYTES ((hsize_t)64 << 20)
#define MAX_LINKS       1024

typedef struct reader {
    const char *path;
    hid_t file;
    bool foreign;
    shard *s;
    ckvc_err *err;
} reader;

/* ---- values of a dataset or an attribute ---- */
typedef struct source {
    hid_t id;
    bool attribute;
    char name[64]; /* "attribute seed", "record/reward" */
} source;

static herr_t read_raw(const source *from, hid_t memory, void *out) {
    return from->attribute ? H5Aread(from->id, memory, out)
                           : H5Dread(from->id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

/* n numbers as `want`, dense, into out. Any integer type that HDF5 knows is fine as long as each
 * value fits. */
static ckvc_status read_numbers(reader *r, const source *from, hid_t type, size_t n,
                                shard_type want, void *out) {
    static const uint64_t most[] = {UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX};
    H5T_class_t class = H5Tget_class(type);
    bool real = want == SHARD_F32 || want == SHARD_F64;
    if (!(class == H5T_INTEGER || (real && class == H5T_FLOAT)) || H5Tget_size(type) > 8) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s holds no %s of at most 8 bytes", r->path,
                         from->name, real ? "numbers" : "integers");
    }
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    hid_t memory = real ? H5T_NATIVE_DOUBLE : is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    uint64_t *wide = ckvc_alloc(n, 8);
    ckvc_status st = CKVC_OK;
    if (n && read_raw(from, memory, wide) < 0) {
        st = h5_fail(r->err, CKVC_E_DATA, "%s: %s cannot be read", r->path, from->name);
    }
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        if (real) {
            double v;
            memcpy(&v, &wide[i], 8);
            if (want == SHARD_F64) {
                ((double *)out)[i] = v;
            } else {
                ((float *)out)[i] = (float)v;
            }
            continue;
        }
        uint64_t v = wide[i];
        if ((is_signed && v > INT64_MAX) || v > most[want]) {
            st = is_signed ? ckvc_fail(r->err, CKVC_E_DATA,
                                       "%s: %s, value %zu, is %lld, must be 0 to %llu", r->path,
                                       from->name, i, (long long)v, (unsigned long long)most[want])
                           : ckvc_fail(r->err, CKVC_E_DATA,
                                       "%s: %s, value %zu, is %llu, must be at most %llu", r->path,
                                       from->name, i, (unsigned long long)v,
                                       (unsigned long long)most[want]);
        } else if (want == SHARD_U8) {
            ((uint8_t *)out)[i] = (uint8_t)v;
        } else if (want == SHARD_U16) {
            ((uint16_t *)out)[i] = (uint16_t)v;
        } else if (want == SHARD_U32) {
            ((uint32_t *)out)[i] = (uint32_t)v;
        } else {
            ((uint64_t *)out)[i] = v;
        }
    }
    free(wide);
    return st;
}

/* n texts, each NUL-padded to `size` bytes in out, at most size-1 long. Fixed and variable length
 * are both read. */
static ckvc_status read_texts(reader *r, const source *from, hid_t type, hid_t space, size_t n,
                              size_t size, char *out) {
    if (H5Tget_class(type) != H5T_STRING) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s holds no text", r->path, from->name);
    }
    bool variable = H5Tis_variable_str(type) > 0;
    size_t stored = variable ? 0 : H5Tget_size(type);
    if (stored > SHARD_STRING) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: %s holds texts of %zu bytes, at most %d are read", r->path,
                         from->name, stored, SHARD_STRING - 1);
    }
    ckvc_status st = CKVC_OK;
    char *fixed = variable ? NULL : ckvc_alloc(n, stored);
    char **loose = variable ? ckvc_calloc(n, sizeof *loose) : NULL;
    hid_t memory =
        H5Tcopy(type); /* the bytes as they are: a conversion would hide what stands behind a NUL */
    if (!fixed && !loose) {
        st = ckvc_fail_memory(r->err, from->name, n * stored);
    } else if (memory < 0 ||
               (n && read_raw(from, memory, variable ? (void *)loose : (void *)fixed) < 0)) {
        st = h5_fail(r->err, CKVC_E_DATA, "%s: %s cannot be read", r->path, from->name);
    }
    bool padded = H5Tget_strpad(type) == H5T_STR_NULLPAD,
         spaces = H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        const char *text = variable ? (loose[i] ? loose[i] : "") : fixed + i * stored;
        size_t length = strnlen(text, variable ? size : stored);
        bool tail = false; /* a byte behind the first NUL: two readers would see two texts */
        for (size_t j = length; !variable && padded && j < stored; j++) {
            tail = tail || text[j];
        }
        while (!variable && spaces && length && text[length - 1] == ' ') {
            length--;
        }
        if (length >= size || tail) {
            st = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s, text %zu, %s", r->path, from->name, i,
                           tail ? "goes on behind a NUL" : "is longer than its field");
        } else {
            memset(out + i * size, 0, size);
            memcpy(out + i * size, text, length);
        }
    }
    if (loose) { H5Dvlen_reclaim(memory, space, H5P_DEFAULT, loose); }
    if (memory >= 0) { H5Tclose(memory); }
    free(fixed);
    free(loose);
    return st;
}

/* ---- attributes ---- */
/* Opens a root attribute; *found says whether it is there. dims: up to 4; rank 0 is a scalar. */
static ckvc_status open_attribute(reader *r, const char *name, bool optional, source *from,
                                  hid_t *space, hid_t *type, int *rank, hsize_t dims[4],
                                  bool *found) {
    *space = *type = -1;
    *from = (source){.id = -1, .attribute = true};
    snprintf(from->name, sizeof from->name, "attribute %s", name);
    htri_t there = H5Aexists(r->file, name);
    *found = there > 0;
    if (there == 0 && optional) { return CKVC_OK; }
    if (there == 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: attribute %s is missing", r->path, name);
    }
    from->id = there < 0 ? -1 : H5Aopen(r->file, name, H5P_DEFAULT);
    *space = from->id < 0 ? -1 : H5Aget_space(from->id);
    *type = from->id < 0 ? -1 : H5Aget_type(from->id);
    if (*space < 0 || *type < 0) {
        return h5_fail(r->err, CKVC_E_DATA, "%s: attribute %s cannot be opened", r->path, name);
    }
    H5S_class_t class = H5Sget_simple_extent_type(*space);
    *rank = H5Sget_simple_extent_ndims(*space);
    if ((class != H5S_SCALAR && class != H5S_SIMPLE) || *rank < 0 || *rank > 4 ||
        H5Sget_simple_extent_dims(*space, dims, NULL) < 0) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: attribute %s is no scalar and no array of at most 4 dimensions",
                         r->path, name);
    }
    return CKVC_OK;
}

static void close_attribute(source *from, hid_t space, hid_t type) {
    if (type >= 0) { H5Tclose(type); }
    if (space >= 0) { H5Sclose(space); }
    if (from->id >= 0) { H5Aclose(from->id); }
}

/* A single value: text into out[size], or a number when text is false. An array of one value passes
 * for it. */
static ckvc_status read_single(reader *r, const char *name, bool optional, bool text,
                               shard_type want, size_t size, void *out) {
    source from;
    hid_t space, type;
    int rank = 0;
    hsize_t dims[4];
    bool found;
    ckvc_status st = open_attribute(r, name, optional, &from, &space, &type, &rank, dims, &found);
    if (st == CKVC_OK && found) {
        if (rank > 1 || (rank == 1 && dims[0] != 1)) {
            st = ckvc_fail(r->err, CKVC_E_DATA, "%s: attribute %s must be a single value", r->path,
                           name);
        } else {
            st = text ? read_texts(r, &from, type, space, 1, size, out)
                      : read_numbers(r, &from, type, 1, want, out);
        }
    }
    close_attribute(&from, space, type);
    return st;
}

static ckvc_status read_array(reader *r, const shard_array *a) {
    shard_header *h = &r->s->h;
    source from;
    hid_t space, type;
    int rank = 0;
    hsize_t got[4];
    size_t want[4] = {0}, n = 1;
    bool found;
    ckvc_status st = open_attribute(r, a->name, a->optional || shard_is_scan(h), &from, &space,
                                    &type, &rank, got, &found);
    if (st != CKVC_OK || !found) {
        close_attribute(&from, space, type);
        return st;
    }
    void **to = (void **)(void *)((char *)h + a->offset);
    if (!a->table) {
        if (rank != 1 || got[0] + a->extra > SHARD_MAX_BINS) {
            st = ckvc_fail(r->err, CKVC_E_DATA,
                           "%s: attribute %s must be a list of at most %u numbers", r->path,
                           a->name, SHARD_MAX_BINS);
        } else {
            *(uint32_t *)(void *)((char *)h + a->count_offset) = (uint32_t)got[0] + a->extra;
            n = (size_t)got[0];
        }
    } else {
        *to = &n; /* any pointer: the dims of a table are asked for as if it were there */
        int want_rank = shard_array_dims(h, a, want);
        *to = NULL;
        bool same = rank == want_rank;
        for (int i = 0; i < want_rank; i++) {
            same = same && got[i] == want[i];
            if (want[i] && n > SHARD_MAX_TABLE / want[i]) {
                n = SHARD_MAX_TABLE + 1;
            } else {
                n *= want[i];
            }
        }
        if (!same || n > SHARD_MAX_TABLE) {
            st = ckvc_fail(r->err, CKVC_E_DATA,
                           "%s: attribute %s has other dimensions than the other attributes ask "
                           "for (%s), or over %zu entries",
                           r->path, a->name,
                           want_rank == 3 ? "[n_layers, n_kv_heads, budgets]"
                                          : "[n_layers, E, P, budgets]",
                           SHARD_MAX_TABLE);
        }
    }
    if (st == CKVC_OK) {
        *to = ckvc_alloc(n, shard_type_size(a->type));
        st = *to ? read_numbers(r, &from, type, n, a->type, *to)
                 : ckvc_fail_memory(r->err, a->name, n * 8);
    }
    close_attribute(&from, space, type);
    return st;
}

static ckvc_status read_header(reader *r) {
    shard_header *h = &r->s->h;
    char format[32];
    uint32_t version = 0;
    ckvc_status st = read_single(r, "format", false, true, SHARD_TEXT, sizeof format, format);
    if (st == CKVC_OK && strcmp(format, "ckvc-shard") != 0) {
        st = ckvc_fail(r->err, CKVC_E_DATA, "%s: attribute format is \"%s\", not \"ckvc-shard\"",
                       r->path, format);
    }
    st = st ? st : read_single(r, "version", false, false, SHARD_U32, 0, &version);
    if (st == CKVC_OK && version != 1) {
        st = ckvc_fail(r->err, CKVC_E_DATA, "%s: shard version %u, this program reads version 1",
                       r->path, version);
    }
    for (size_t i = 0; st == CKVC_OK && i < SHARD_TEXT_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_text_attributes[i];
        st = read_single(r, a->name, a->optional, true, SHARD_TEXT, a->size, (char *)h + a->offset);
    }
    for (size_t i = 0; st == CKVC_OK && i < SHARD_U32_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_u32_attributes[i];
        st = read_single(r, a->name, a->optional, false, SHARD_U32, 0, (char *)h + a->offset);
    }
    st = st ? st : read_single(r, "lambda", false, false, SHARD_F64, 0, &h->beta_bud);
    st = st ? st : read_single(r, "seed", false, false, SHARD_U64, 0, &h->seed);
    char reduction[16] = "mean";
    st = st ? st
            : read_single(r, "loss_reduction", true, true, SHARD_TEXT, sizeof reduction, reduction);
    h->reduction = strcmp(reduction, "sum") == 0 ? CKVC_LOSS_SUM : CKVC_LOSS_MEAN;
    if (st == CKVC_OK && strcmp(reduction, ckvc_loss_reduction_name(h->reduction)) != 0) {
        st = ckvc_fail(r->err, CKVC_E_DATA,
                       "%s: attribute loss_reduction is \"%s\", must be mean or sum", r->path,
                       reduction);
    }
    for (size_t i = 0; st == CKVC_OK && i < SHARD_ARRAYS; i++) {
        st = read_array(r, &shard_arrays[i]);
    }
    return st ? st : shard_header_check(h, r->path, r->err);
}

/* ---- groups and columns ---- */
typedef struct link_check {
    reader *r;
    const char *group;
    unsigned n;
    ckvc_status st;
} link_check;

static herr_t look_at_link(hid_t group, const char *name, const H5L_info_t *info, void *data) {
    (void)group;
    link_check *c = data;
    if (info->type != H5L_TYPE_HARD) {
        c->st = ckvc_fail(c->r->err, CKVC_E_DATA,
                          "%s: %s/%.60s is %s link; only plain members are read", c->r->path,
                          c->group, name,
                          info->type == H5L_TYPE_SOFT       ? "a soft"
                          : info->type == H5L_TYPE_EXTERNAL ? "an external"
                                                            : "a user-defined");
    } else if (++c->n > MAX_LINKS) {
        c->st = ckvc_fail(c->r->err, CKVC_E_DATA, "%s: %s has more than %d members", c->r->path,
                          c->group, MAX_LINKS);
    }
    return c->st != CKVC_OK;
}

static ckvc_status check_links(reader *r, hid_t group, const char *name) {
    link_check c = {r, name, 0, CKVC_OK};
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, look_at_link, &c) < 0) {
        return h5_fail(r->err, CKVC_E_DATA, "%s: the members of /%s cannot be listed", r->path,
                       name);
    }
    return c.st;
}

/* Is there such a member of the right kind? Damage is an error: it must not pass for an optional
 * column that was left out. */
static ckvc_status find_member(reader *r, hid_t group, const char *name, const char *shown,
                               H5O_type_t type, bool *found) {
    H5O_info_t info;
    htri_t there = H5Lexists(group, name, H5P_DEFAULT);
    *found = there > 0;
    if (there == 0) { return CKVC_OK; }
    if (there < 0 || H5Oget_info_by_name(group, name, &info, H5P_DEFAULT) < 0) {
        return h5_fail(r->err, CKVC_E_DATA, "%s: %s cannot be looked up", r->path, shown);
    }
    return info.type == type ? CKVC_OK
                             : ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is not a %s", r->path, shown,
                                         type == H5O_TYPE_GROUP ? "group" : "dataset");
}

/* Layout, filters, chunk: refuses whatever leads outside the file or asks for more memory than a
 * column needs. */
static ckvc_status check_storage(reader *r, const source *from, hid_t type, int rank,
                                 size_t *chunk_bytes) {
    ckvc_status st = CKVC_OK;
    hid_t create = H5Dget_create_plist(from->id);
    H5D_layout_t layout = create < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(create);
    *chunk_bytes = 0;
    if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS) {
        st = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s has %s layout; contiguous and chunked are read",
                       r->path, from->name,
                       layout == H5D_VIRTUAL   ? "a virtual"
                       : layout == H5D_COMPACT ? "a compact"
                                               : "an unknown");
    } else if (H5Pget_external_count(create) != 0) {
        st = ckvc_fail(r->err, CKVC_E_DATA,
                       "%s: %s keeps its values in another file (external storage); refused",
                       r->path, from->name);
    }
    if (st == CKVC_OK && layout == H5D_CHUNKED) {
        hsize_t chunk[4] = {0}, bytes = H5Tget_size(type);
        int chunk_rank = H5Pget_chunk(create, 4, chunk);
        bool fits = chunk_rank == rank;
        for (int i = 0; fits && i < rank; i++) {
            fits = chunk[i] > 0 && chunk[i] <= MAX_CHUNK_BYTES / bytes;
            bytes *= fits ? chunk[i] : 1;
        }
        if (!fits) {
            st = ckvc_fail(r->err, CKVC_E_DATA,
                           "%s: %s has chunks over %llu MiB; write smaller ones", r->path,
                           from->name, (unsigned long long)(MAX_CHUNK_BYTES >> 20));
        }
        *chunk_bytes = (size_t)bytes;
    }
    int n_filters = st == CKVC_OK ? H5Pget_nfilters(create) : 0;
    bool seen[4] = {false};
    for (int i = 0; st == CKVC_OK && i < n_filters; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        char name[64] = "";
        H5Z_filter_t id = H5Pget_filter2(create, (unsigned)i, &flags, &n_values, NULL, sizeof name,
                                         name, &config);
        int kind = id == H5Z_FILTER_SHUFFLE      ? 0
                   : id == H5Z_FILTER_DEFLATE    ? 1
                   : id == H5Z_FILTER_FLETCHER32 ? 2
                   : id == H5_ZSTD_ID            ? 3
                                                 : -1;
        if (kind < 0) {
            st = ckvc_fail(r->err, CKVC_E_DATA,
                           "%s: %s uses filter %d (%.40s); shuffle, deflate, fletcher32 and zstd "
                           "(%d) are read",
                           r->path, from->name, (int)id, name[0] ? name : "unknown", H5_ZSTD_ID);
        } else if (seen[kind] || (seen[1] && kind == 3) || (seen[3] && kind == 1)) {
            st = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is compressed more than once", r->path,
                           from->name);
        } else {
            seen[kind] = true;
        }
    }
    if (create >= 0) { H5Pclose(create); }
    return st;
}

/* Opens group/name and checks rank and dimensions: dims[0] is taken from the first column that is
 * opened (*rows == SIZE_MAX) and must be the same in all others. *found false: it is missing and
 * may be. */
static ckvc_status open_column(reader *r, hid_t group, const shard_group *g, const char *name,
                               bool optional, int rank, size_t *rows, source *from, hid_t *space,
                               hid_t *type, bool *found) {
    *from = (source){.id = -1};
    *space = *type = -1;
    snprintf(from->name, sizeof from->name, "%s/%s", g->name, name);
    ckvc_status st = find_member(r, group, name, from->name, H5O_TYPE_DATASET, found);
    if (st != CKVC_OK) { return st; }
    if (!*found) {
        return optional ? CKVC_OK
                        : ckvc_fail(r->err, CKVC_E_DATA, "%s: dataset %s is missing", r->path,
                                    from->name);
    }
    from->id = H5Dopen2(group, name, H5P_DEFAULT);
    *type = from->id < 0 ? -1 : H5Dget_type(from->id);
    if (*type < 0) {
        return h5_fail(r->err, CKVC_E_DATA, "%s: dataset %s cannot be opened", r->path, from->name);
    }
    size_t chunk_bytes = 0;
    hsize_t dims[4] = {0};
    /* Storage first: asking a virtual dataset for its extent would open other files. */
    hid_t create = H5Dget_create_plist(from->id);
    H5D_layout_t layout = create < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(create);
    if (create >= 0) { H5Pclose(create); }
    if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS) {
        return check_storage(r, from, *type, rank, &chunk_bytes);
    }
    *space = H5Dget_space(from->id);
    int got = *space < 0 ? -1 : H5Sget_simple_extent_ndims(*space);
    if (got != rank || H5Sget_simple_extent_type(*space) != H5S_SIMPLE ||
        H5Sget_simple_extent_dims(*space, dims, NULL) != rank) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s has %d dimensions, must have %d", r->path,
                         from->name, got, rank);
    }
    const hsize_t row[3] = {0, r->s->h.n_layers, r->s->h.n_kv_heads};
    for (int i = 1; i < rank; i++) {
        if (dims[i] != row[i]) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s has rows of %llu, must be %llu (%s)",
                             r->path, from->name, (unsigned long long)dims[i],
                             (unsigned long long)row[i], i == 1 ? "n_layers" : "n_kv_heads");
        }
    }
    size_t most = rank == 1 ? g->max_rows
                            : SHARD_MAX_LAYER_VALUES / (size_t)(row[1] * (rank == 3 ? row[2] : 1));
    if (dims[0] > most) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s has %llu rows, at most %zu are read", r->path,
                         from->name, (unsigned long long)dims[0], most);
    }
    if (*rows != SIZE_MAX && dims[0] != *rows) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: %s has %llu rows, the other columns of %s have %zu", r->path,
                         from->name, (unsigned long long)dims[0], g->name, *rows);
    }
    *rows = (size_t)dims[0];
    st = check_storage(r, from, *type, rank, &chunk_bytes);
    h5_zstd_expect(chunk_bytes);
    return st;
}

static void close_column(source *from, hid_t space, hid_t type) {
    h5_zstd_expect(0);
    if (space >= 0) { H5Sclose(space); }
    if (type >= 0) { H5Tclose(type); }
    if (from->id >= 0) { H5Dclose(from->id); }
}

/* A column into its field of every row. The sizes of numbers are spelt out: a call of memcpy a
 * value is half of a reader's time. */
static void scatter(char *to, size_t row_size, const char *values, size_t size, size_t n) {
    switch (size) {
    case 1:
        for (size_t i = 0; i < n; i++) {
            to[i * row_size] = values[i];
        }
        break;
    case 2:
        for (size_t i = 0; i < n; i++) {
            memcpy(to + i * row_size, values + i * 2, 2);
        }
        break;
    case 4:
        for (size_t i = 0; i < n; i++) {
            memcpy(to + i * row_size, values + i * 4, 4);
        }
        break;
    case 8:
        for (size_t i = 0; i < n; i++) {
            memcpy(to + i * row_size, values + i * 8, 8);
        }
        break;
    default:
        for (size_t i = 0; i < n; i++) {
            memcpy(to + i * row_size, values + i * size, size);
        }
    }
}

/* Reads one column into the rows; reserves them once their number is known. */
static ckvc_status read_column(reader *r, hid_t group, int k, const shard_column *c, size_t *rows) {
    const shard_group *g = &shard_groups[k];
    source from;
    hid_t space, type;
    bool found;
    bool first = *rows == SIZE_MAX;
    ckvc_status st = open_column(r, group, g, c->name, r->foreign && !c->required, 1, rows, &from,
                                 &space, &type, &found);
    if (st != CKVC_OK || !found) {
        close_column(&from, space, type);
        return st;
    }
    if (first) {
        st = shard_reserve(r->s, k, *rows, r->err);
        char *base = *(char **)(void *)((char *)r->s + g->rows_offset);
        if (st == CKVC_OK && base) { memset(base, 0, *rows * g->row_size); }
    }
    size_t size = shard_type_size(c->type);
    char *values = st == CKVC_OK ? ckvc_alloc(*rows, size) : NULL;
    if (st == CKVC_OK && !values) { st = ckvc_fail_memory(r->err, from.name, *rows * size); }
    if (st == CKVC_OK) {
        st = c->type == SHARD_TEXT ? read_texts(r, &from, type, space, *rows, size, values)
                                   : read_numbers(r, &from, type, *rows, c->type, values);
    }
    if (st == CKVC_OK) {
        scatter(*(char **)(void *)((char *)r->s + g->rows_offset) + c->offset, g->row_size, values,
                size, *rows);
    }
    free(values);
    close_column(&from, space, type);
    return st;
}

static ckvc_status read_wide(reader *r, hid_t group, const shard_group *g, const shard_wide *w,
                             size_t *rows) {
    source from;
    hid_t space, type;
    bool found;
    size_t row = (size_t)r->s->h.n_layers * (w->rank == 3 ? r->s->h.n_kv_heads : 1);
    char *to = *(char **)(void *)((char *)r->s + w->offset);
    if (*rows > SHARD_MAX_LAYER_VALUES / row) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %zu rows of %s, at most %zu are read", r->path,
                         *rows, g->name, SHARD_MAX_LAYER_VALUES / row);
    }
    ckvc_status st =
        open_column(r, group, g, w->name, r->foreign, w->rank, rows, &from, &space, &type, &found);
    if (st == CKVC_OK && found) {
        st = read_numbers(r, &from, type, *rows * row, w->type, to);
    } else if (st == CKVC_OK && *rows) {
        memset(to, 0, *rows * row * shard_type_size(w->type));
    }
    close_column(&from, space, type);
    return st;
}

static ckvc_status read_group(reader *r, int k) {
    const shard_group *g = &shard_groups[k];
    size_t rows = SIZE_MAX;
    bool found;
    ckvc_status st = find_member(r, r->file, g->name, g->name, H5O_TYPE_GROUP, &found);
    if (st != CKVC_OK) { return st; }
    if (!found) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: group /%s is missing", r->path, g->name);
    }
    hid_t group = H5Gopen2(r->file, g->name, H5P_DEFAULT);
    if (group < 0) {
        return h5_fail(r->err, CKVC_E_DATA, "%s: group /%s cannot be opened", r->path, g->name);
    }
    st = check_links(r, group, g->name);
    for (size_t i = 0; st == CKVC_OK && i < g->n_columns; i++) {
        st = read_column(r, group, k, &g->columns[i], &rows);
    }
    for (size_t i = 0;
         st == CKVC_OK && i < g->n_wide && (!g->wide_scan_only || shard_is_scan(&r->s->h)); i++) {
        st = read_wide(r, group, g, &g->wide[i], &rows);
    }
    if (st == CKVC_OK) { *(size_t *)(void *)((char *)r->s + g->count_offset) = rows; }
    H5Gclose(group);
    return st;
}

/* From an open access list to a checked shard. */
static ckvc_status read_file(const char *name, hid_t access, const char *path, bool foreign,
                             shard **out, ckvc_err *err) {
    *out = NULL;
    reader r = {path, -1, foreign, shard_create(), err};
    if (!r.s) { return ckvc_fail_memory(err, "a shard", sizeof(shard)); }
    ckvc_status st = CKVC_OK;
    r.file = H5Fopen(name, H5F_ACC_RDONLY, access);
    if (r.file < 0) { st = h5_fail(err, CKVC_E_DATA, "%s: not a readable HDF5 file", path); }
    st = st ? st : check_links(&r, r.file, "");
    st = st ? st : read_header(&r);
    for (int k = 0; st == CKVC_OK && k < SHARD_GROUPS; k++) {
        st = read_group(&r, k);
    }
    st = st ? st : shard_rows_check(r.s, path, err);
    if (r.file >= 0 && H5Fclose(r.file) < 0 && st == CKVC_OK) {
        st = h5_fail(err, CKVC_E_DATA, "%s: cannot be closed", path);
    }
    if (st == CKVC_OK) {
        *out = r.s;
    } else {
        shard_free(r.s);
    }
    return st;
}

/* Old superblocks keep metadata without checksums: edits there are read as if they were meant. */
static ckvc_status check_superblock(const uint8_t *bytes, size_t n, const char *path,
                                    ckvc_err *err) {
    static const uint8_t magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    if (n < 48 || memcmp(bytes, magic, sizeof magic) != 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: not an HDF5 file (%zu bytes, no HDF5 signature at byte 0)", path, n);
    }
    if (bytes[8] != 2 && bytes[8] != 3) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: byte 8: superblock version %u, 2 and 3 are read; write it with libver=\"v110\"",
            path, bytes[8]);
    }
    return CKVC_OK;
}

ckvc_status shard_h5_read_image(const uint8_t *bytes, size_t n, const char *path, shard **out,
                                ckvc_err *err) {
    *out = NULL;
    ckvc_status st = check_superblock(bytes, n, path, err);
    st = st ? st : h5_begin(err);
    if (st != CKVC_OK) { return st; }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* HDF5 copies the image at once; it takes a plain pointer for lack of const. */
    if (access < 0 || H5Pset_fapl_core(access, (size_t)1 << 20, 0) < 0 ||
        H5Pset_file_image(access, (void *)(uintptr_t)bytes, n) < 0) {
        st = h5_fail(err, CKVC_E_MEMORY, "%s: %zu bytes cannot be given to HDF5", path, n);
    }
    st = st ? st : read_file("shard", access, path, false, out, err);
    if (access >= 0) { H5Pclose(access); }
    return st;
}

ckvc_status shard_h5_read(const char *path, shard **out, ckvc_err *err) {
    char *bytes;
    size_t n;
    *out = NULL;
    ckvc_status st = ckvc_file_read(path, MAX_FILE_BYTES, &bytes, &n, err);
    if (st == CKVC_OK) {
        st = shard_h5_read_image((const uint8_t *)bytes, n, path, out, err);
        free(bytes);
    }
    return st;
}

ckvc_status shard_h5_read_foreign(const char *path, shard **out, ckvc_err *err) {
    ckvc_map map;
    *out = NULL;
    ckvc_status st = ckvc_map_open(path, &map, err);
    if (st != CKVC_OK) { return st; }
    st = check_superblock(map.data, (size_t)map.size, path, err);
    ckvc_map_close(&map);
    st = st ? st : h5_begin(err);
    return st ? st : read_file(path, H5P_DEFAULT, path, true, out, err);
}
