/* The reader of HDF5 shards. It trusts nothing in the file: links, layouts, filters, ranks, lengths
 * and types are looked at before any value is read, and every value is checked before the shard is
 * handed out. It reads files in a child (shard_hostile.c). */

#include "formats/shard/shard_h5.h"
#include "formats/shard/h5_zstd.h"
#include "formats/shard/shard_rows.h"
#include "formats/shard/shard_schema.h"

#define MAX_CHUNK_BYTES ((hsize_t)64 << 20)
#define MAX_LINKS       1024

typedef struct reader {
    const char *path;
    hid_t file;
    bool foreign;
    shard *s;
    ckvc_err *err;
} reader;

/* REFUSE_IF states a rule of the format; BROKEN reports what HDF5 itself could not do. */
#define REFUSE_IF(r, condition, ...) CKVC_REFUSE_IF(condition, (r)->err, (r)->path, __VA_ARGS__)
#define BROKEN(r, ...)               h5_fail((r)->err, CKVC_E_DATA, __VA_ARGS__)
#define BROKEN_IF(r, condition, ...)                                                               \
    do {                                                                                           \
        if (condition) { return BROKEN(r, __VA_ARGS__); }                                          \
    } while (0)

/* ---- values of a dataset or an attribute ---- */
typedef struct source {
    hid_t id, space, type; /* -1 when not there */
    bool attribute;
    char name[64]; /* "attribute seed", "record/reward" */
    int rank;
    hsize_t dims[SHARD_MAX_RANK];
} source;
#define NO_SOURCE                                                                                  \
    { .id = -1, .space = -1, .type = -1 }

static void source_close(source *from) {
    h5_zstd_expect(0);
    h5_close(&from->type);
    h5_close(&from->space);
    h5_close(&from->id);
}

static herr_t read_raw(const source *from, hid_t memory, void *out) {
    return from->attribute ? H5Aread(from->id, memory, out)
                           : H5Dread(from->id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

/* Reads n counts or reals of `size` bytes, dense, into `out`. Any integer type that HDF5 knows is
 * accepted as long as each value fits. */
static ckvc_status read_numbers(reader *r, const source *from, size_t n, record_type type,
                                size_t size, void *out) {
    const uint64_t most = UINT64_MAX >> (64 - 8 * size);
    const H5T_class_t class = H5Tget_class(from->type);
    const bool real = type == RECORD_REAL;
    REFUSE_IF(
        r, !(class == H5T_INTEGER || (real && class == H5T_FLOAT)) || H5Tget_size(from->type) > 8,
        "%s holds no %s of at most 8 bytes", from->name, real ? "numbers" : "integers");
    const bool is_signed = class == H5T_INTEGER && H5Tget_sign(from->type) == H5T_SGN_2;
    const hid_t memory = real        ? H5T_NATIVE_DOUBLE
                         : is_signed ? H5T_NATIVE_INT64
                                     : H5T_NATIVE_UINT64;
    CKVC_AUTO_FREE uint64_t *wide = ckvc_alloc(n, 8);
    BROKEN_IF(r, n && read_raw(from, memory, wide) < 0, "%s: %s cannot be read", r->path,
              from->name);
    if (real && size == 8 && n) {
        memcpy(out, wide, n * 8);
        return CKVC_OK;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t v = wide[i];
        if (real) {
            double x;
            memcpy(&x, &v, 8);
            ((float *)out)[i] = (float)x;
            continue;
        }
        REFUSE_IF(r, is_signed && (v > INT64_MAX || v > most),
                  "%s, value %zu, is %lld, must be 0 to %llu", from->name, i, (long long)v,
                  (unsigned long long)most);
        REFUSE_IF(r, v > most, "%s, value %zu, is %llu, must be at most %llu", from->name, i,
                  (unsigned long long)v, (unsigned long long)most);
        switch (size) {
        case 1: ((uint8_t *)out)[i] = (uint8_t)v; break;
        case 2: ((uint16_t *)out)[i] = (uint16_t)v; break;
        case 4: ((uint32_t *)out)[i] = (uint32_t)v; break;
        default: ((uint64_t *)out)[i] = v;
        }
    }
    return CKVC_OK;
}

/* Reads one text of `stored` bytes (0: of variable length), and pads it with NUL to `size` bytes in
 * `out`. */
static ckvc_status read_padded_text(reader *r, const source *from, size_t i, const char *text,
                                    size_t stored, size_t size, char *out) {
    const H5T_str_t pad = H5Tget_strpad(from->type);
    size_t length = strnlen(text, stored ? stored : size);
    /* a byte stands behind the first NUL, so that two readers would see two texts */
    bool tail = false;
    for (size_t j = length; pad == H5T_STR_NULLPAD && j < stored; j++) { tail = tail || text[j]; }
    while (stored && pad == H5T_STR_SPACEPAD && length && text[length - 1] == ' ') { length--; }
    REFUSE_IF(r, length >= size || tail, "%s, text %zu, %s", from->name, i,
              tail ? "goes on behind a NUL" : "is longer than its field");
    memset(out, 0, size);
    memcpy(out, text, length);
    return CKVC_OK;
}

/* Reads n texts, each at most size - 1 bytes long, and pads each with NUL to `size` bytes in `out`.
 * Texts of fixed and of variable length are both read. */
static ckvc_status read_texts(reader *r, const source *from, size_t n, size_t size, char *out) {
    REFUSE_IF(r, H5Tget_class(from->type) != H5T_STRING, "%s holds no text", from->name);
    const bool variable = H5Tis_variable_str(from->type) > 0;
    const size_t stored = variable ? 0 : H5Tget_size(from->type);
    REFUSE_IF(r, stored > SHARD_STRING, "%s holds texts of %zu bytes, at most %d are read",
              from->name, stored, SHARD_STRING - 1);
    CKVC_AUTO_FREE char *fixed = ckvc_alloc(n, stored);
    CKVC_AUTO_FREE char **loose = ckvc_calloc(n, sizeof *loose);
    /* the bytes are read as they are, because a conversion would hide what stands behind a NUL */
    H5_AUTO hid_t memory = H5Tcopy(from->type);
    ckvc_status st = CKVC_OK;
    if (memory < 0 || (n && read_raw(from, memory, variable ? (void *)loose : (void *)fixed) < 0)) {
        st = BROKEN(r, "%s: %s cannot be read", r->path, from->name);
    }
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        const char *text = !variable ? fixed + i * stored : loose[i] ? loose[i] : "";
        st = read_padded_text(r, from, i, text, stored, size, out + i * size);
    }
    if (variable) { H5Dvlen_reclaim(memory, from->space, H5P_DEFAULT, loose); }
    return st;
}

/* ---- attributes ---- */
/* Opens a root attribute with up to 4 dimensions. An id of -1 says that it is missing and may
 * be. */
static ckvc_status open_attribute(reader *r, const char *name, bool optional, source *from) {
    from->attribute = true;
    snprintf(from->name, sizeof from->name, "attribute %s", name);
    const htri_t there = H5Aexists(r->file, name);
    if (there == 0) {
        REFUSE_IF(r, !optional, "attribute %s is missing", name);
        return CKVC_OK;
    }
    from->id = there < 0 ? -1 : H5Aopen(r->file, name, H5P_DEFAULT);
    from->space = from->id < 0 ? -1 : H5Aget_space(from->id);
    from->type = from->id < 0 ? -1 : H5Aget_type(from->id);
    BROKEN_IF(r, from->space < 0 || from->type < 0, "%s: attribute %s cannot be opened", r->path,
              name);
    const H5S_class_t class = H5Sget_simple_extent_type(from->space);
    from->rank = H5Sget_simple_extent_ndims(from->space);
    REFUSE_IF(r,
              (class != H5S_SCALAR && class != H5S_SIMPLE) || from->rank < 0 || from->rank > 4 ||
                  H5Sget_simple_extent_dims(from->space, from->dims, NULL) < 0,
              "attribute %s is no scalar and no array of at most 4 dimensions", name);
    return CKVC_OK;
}

/* Reads a single value, which may also be an array of one: a text into out[size], or a number. */
static ckvc_status read_single(reader *r, const char *name, bool optional, record_type type,
                               size_t size, void *out) {
    CKVC_AUTO(source_close) source from = NO_SOURCE;
    CKVC_TRY(open_attribute(r, name, optional, &from));
    if (from.id < 0) { return CKVC_OK; }
    REFUSE_IF(r, from.rank > 1 || (from.rank == 1 && from.dims[0] != 1),
              "attribute %s must be a single value", name);
    return type == RECORD_TEXT ? read_texts(r, &from, 1, size, out)
                               : read_numbers(r, &from, 1, type, size, out);
}

static bool may_miss(const shard_attribute *a) { return a->mark && a->mark != ' '; }

/* Reads a setting that files have by name. */
static ckvc_status read_name(reader *r, const shard_attribute *a) {
    char text[SHARD_STRING] = "", wanted[128];
    setting *s = &r->s->h.setting;
    CKVC_TRY(read_single(r, a->m.name, may_miss(a), RECORD_TEXT, sizeof text, text));
    if ((!*text && may_miss(a)) || setting_set_name(a->setting, a->mark, s, text)) {
        return CKVC_OK;
    }
    setting_wanted(a->setting, a->mark, wanted, sizeof wanted);
    return ckvc_refuse(r->err, r->path, "attribute %s is \"%s\", must be %s", a->m.name, text,
                       wanted);
}

static ckvc_status read_array(reader *r, const shard_attribute *a) {
    shard_header *h = &r->s->h;
    CKVC_AUTO(source_close) source from = NO_SOURCE;
    size_t want[4] = {0}, n = 1;
    CKVC_TRY(open_attribute(r, a->m.name, may_miss(a) || shard_kind_of(h) != SHARD_LOGGED, &from));
    if (from.id < 0) { return CKVC_OK; }
    if (a->list) {
        REFUSE_IF(r, from.rank != 1 || from.dims[0] + a->extra > SHARD_MAX_BINS,
                  "attribute %s must be a list of at most %u numbers", a->m.name, SHARD_MAX_BINS);
        n = (size_t)from.dims[0];
        *(uint32_t *)(void *)((char *)h + a->count_offset) = (uint32_t)n + a->extra;
    } else {
        const int rank = shard_attribute_dims(h, a, true, want);
        bool same = from.rank == rank;
        for (int i = 0; i < rank; i++) {
            same = same && from.dims[i] == want[i];
            n = want[i] && n > SHARD_MAX_TABLE / want[i] ? SHARD_MAX_TABLE + 1 : n * want[i];
        }
        REFUSE_IF(r, !same || n > SHARD_MAX_TABLE,
                  "attribute %s has other dimensions than the other attributes ask for (%s), or "
                  "over %zu entries",
                  a->m.name,
                  rank == 3 ? "[n_layers, n_kv_heads, budgets]" : "[n_layers, E, P, budgets]",
                  SHARD_MAX_TABLE);
    }
    void **to = shard_pointer(h, a->m.at);
    *to = ckvc_alloc(n, a->m.size);
    return read_numbers(r, &from, n, a->m.type, a->m.size, *to);
}

static ckvc_status read_header(reader *r) {
    shard_header *h = &r->s->h;
    char format[32];
    uint32_t version = 0;
    CKVC_TRY(read_single(r, "format", false, RECORD_TEXT, sizeof format, format));
    REFUSE_IF(r, strcmp(format, "ckvc-shard") != 0,
              "attribute format is \"%s\", not \"ckvc-shard\"", format);
    CKVC_TRY(read_single(r, "version", false, RECORD_COUNT, sizeof version, &version));
    REFUSE_IF(r, version != 1, "shard version %u, this program reads version 1", version);
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    h->setting = setting_neutral();
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        CKVC_TRY(a->list || a->start != SHARD_SIDE_NONE ? read_array(r, a)
                 : a->m.type == RECORD_NAME             ? read_name(r, a)
                                            : read_single(r, a->m.name, may_miss(a), a->m.type,
                                                          a->m.size, (char *)h + a->m.at));
    }
    return shard_header_check(h, r->path, r->err);
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
        c->st = ckvc_refuse(c->r->err, c->r->path,
                            "%s/%.60s is %s link; only plain members are read", c->group, name,
                            info->type == H5L_TYPE_SOFT       ? "a soft"
                            : info->type == H5L_TYPE_EXTERNAL ? "an external"
                                                              : "a user-defined");
    } else if (++c->n > MAX_LINKS) {
        c->st =
            ckvc_refuse(c->r->err, c->r->path, "%s has more than %d members", c->group, MAX_LINKS);
    }
    return c->st != CKVC_OK;
}

static ckvc_status check_links(reader *r, hid_t group, const char *name) {
    link_check c = {r, name, 0, CKVC_OK};
    return H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, look_at_link, &c) < 0
               ? BROKEN(r, "%s: the members of /%s cannot be listed", r->path, name)
               : c.st;
}

/* Tells whether there is a member of that name and of the right kind. Damage is an error, because
 * it must not be taken for an optional column that was left out. */
static ckvc_status find_member(reader *r, hid_t group, const char *name, const char *shown,
                               H5O_type_t type, bool *found) {
    H5O_info_t info;
    const htri_t there = H5Lexists(group, name, H5P_DEFAULT);
    *found = there > 0;
    if (there == 0) { return CKVC_OK; }
    BROKEN_IF(r, there < 0 || H5Oget_info_by_name(group, name, &info, H5P_DEFAULT) < 0,
              "%s: %s cannot be looked up", r->path, shown);
    REFUSE_IF(r, info.type != type, "%s is not a %s", shown,
              type == H5O_TYPE_GROUP ? "group" : "dataset");
    return CKVC_OK;
}

static ckvc_status check_filters(reader *r, const source *from, hid_t create) {
    static const H5Z_filter_t known[] = {H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32,
                                         H5Z_FILTER_DEFLATE, H5_ZSTD_ID};
    unsigned seen[4] = {0};
    const int n = H5Pget_nfilters(create);
    for (int i = 0; i < n; i++) {
        unsigned flags, config;
        size_t n_values = 0, kind = 0;
        char name[64] = "";
        const H5Z_filter_t id = H5Pget_filter2(create, (unsigned)i, &flags, &n_values, NULL,
                                               sizeof name, name, &config);
        while (kind < 4 && known[kind] != id) { kind++; }
        REFUSE_IF(r, kind == 4,
                  "%s uses filter %d (%.40s); shuffle, deflate, fletcher32 and zstd (%d) are read",
                  from->name, (int)id, name[0] ? name : "unknown", H5_ZSTD_ID);
        REFUSE_IF(r, seen[kind]++ || seen[2] + seen[3] > 1, "%s is compressed more than once",
                  from->name);
    }
    return CKVC_OK;
}

/* Checks layout and filters, and refuses whatever leads outside the file. A virtual dataset must be
 * refused here, because to ask for its extent would open other files. */
static ckvc_status check_storage(reader *r, const source *from, hid_t create) {
    const H5D_layout_t layout = create < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(create);
    REFUSE_IF(r, layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS,
              "%s has %s layout; contiguous and chunked are read", from->name,
              layout == H5D_VIRTUAL   ? "a virtual"
              : layout == H5D_COMPACT ? "a compact"
                                      : "an unknown");
    REFUSE_IF(r, H5Pget_external_count(create) != 0,
              "%s keeps its values in another file (external storage); refused", from->name);
    return check_filters(r, from, create);
}

/* Refuses chunks that ask for more memory than a column needs. *bytes is 0 when the dataset is not
 * chunked. */
static ckvc_status check_chunks(reader *r, const source *from, hid_t create, size_t *bytes) {
    hsize_t chunk[SHARD_MAX_RANK] = {0}, n = H5Tget_size(from->type);
    *bytes = 0;
    if (H5Pget_layout(create) != H5D_CHUNKED) { return CKVC_OK; }
    bool fits = H5Pget_chunk(create, SHARD_MAX_RANK, chunk) == from->rank;
    for (int i = 0; fits && i < from->rank; i++) {
        fits = chunk[i] > 0 && chunk[i] <= MAX_CHUNK_BYTES / n;
        n *= fits ? chunk[i] : 1;
    }
    *bytes = (size_t)n;
    REFUSE_IF(r, !fits, "%s has chunks over %llu MiB; write smaller ones", from->name,
              (unsigned long long)(MAX_CHUNK_BYTES >> 20));
    return CKVC_OK;
}

/* Opens a column and checks rank and dimensions. dims[0] is taken from the first column that is
 * opened (*rows == SIZE_MAX), and must be the same in all others. An id of -1 says that the column
 * is missing and may be. */
static ckvc_status open_column(reader *r, hid_t group, const shard_group *g, const shard_column *c,
                               size_t *rows, source *from) {
    size_t row[SHARD_MAX_RANK] = {0}, values = 1; /* the values of a row */
    const int rank = shard_column_dims(c, &r->s->h, row);
    bool found;
    snprintf(from->name, sizeof from->name, "%s/%s", g->name, c->m.name);
    CKVC_TRY(find_member(r, group, c->m.name, from->name, H5O_TYPE_DATASET, &found));
    if (!found) {
        REFUSE_IF(r, c->need == SHARD_OF_ALL || (c->need == SHARD_OF_OURS && !r->foreign),
                  "dataset %s is missing", from->name);
        return CKVC_OK;
    }
    from->id = H5Dopen2(group, c->m.name, H5P_DEFAULT);
    from->type = from->id < 0 ? -1 : H5Dget_type(from->id);
    BROKEN_IF(r, from->type < 0, "%s: dataset %s cannot be opened", r->path, from->name);
    H5_AUTO hid_t create = H5Dget_create_plist(from->id);
    CKVC_TRY(check_storage(r, from, create));
    from->space = H5Dget_space(from->id);
    from->rank = from->space < 0 ? -1 : H5Sget_simple_extent_ndims(from->space);
    REFUSE_IF(r,
              from->rank != rank || H5Sget_simple_extent_type(from->space) != H5S_SIMPLE ||
                  H5Sget_simple_extent_dims(from->space, from->dims, NULL) != rank,
              "%s has %d dimensions, must have %d", from->name, from->rank, rank);
    for (int i = 1; c->axes && i < rank; i++) {
        size_t extent;
        const char *axis = shard_axis(c->axes[i - 1], &r->s->h, &extent);
        values *= row[i];
        REFUSE_IF(r, from->dims[i] != row[i], "%s has rows of %llu, must be %zu (%s)", from->name,
                  (unsigned long long)from->dims[i], row[i], axis);
    }
    const size_t most = rank == 1 ? g->max_rows : SHARD_MAX_LAYER_VALUES / values;
    REFUSE_IF(r, from->dims[0] > most, "%s has %llu rows, at most %zu are read", from->name,
              (unsigned long long)from->dims[0], most);
    REFUSE_IF(r, *rows != SIZE_MAX && from->dims[0] != *rows,
              "%s has %llu rows, the other columns of %s have %zu", from->name,
              (unsigned long long)from->dims[0], g->name, *rows);
    *rows = (size_t)from->dims[0];
    size_t chunk_bytes;
    CKVC_TRY(check_chunks(r, from, create, &chunk_bytes));
    h5_zstd_expect(chunk_bytes);
    return CKVC_OK;
}

/* Copies a column into its field of every row. The sizes of numbers are spelt out, because one call
 * of memcpy for each value takes half of a reader's time. */
static void scatter(char *to, size_t row_size, const char *values, size_t size, size_t n) {
#define SCATTER(bytes)                                                                             \
    for (size_t i = 0; i < n; i++) { memcpy(to + i * row_size, values + i * (bytes), bytes); }
    switch (size) {
    case 1: SCATTER(1) break;
    case 2: SCATTER(2) break;
    case 4: SCATTER(4) break;
    case 8: SCATTER(8) break;
    default: SCATTER(size)
    }
#undef SCATTER
}

/* Reads several values for each of the rows, whose number the first column has told. Missing values
 * are 0. */
static ckvc_status read_wide(reader *r, hid_t group, const shard_group *g, const shard_column *c,
                             size_t *rows) {
    CKVC_AUTO(source_close) source from = NO_SOURCE;
    const size_t row = shard_row_values(c, &r->s->h);
    char *to = shard_array(r->s, c->m.at);
    REFUSE_IF(r, *rows > SHARD_MAX_LAYER_VALUES / row, "%zu rows of %s, at most %zu are read",
              *rows, g->name, SHARD_MAX_LAYER_VALUES / row);
    CKVC_TRY(open_column(r, group, g, c, rows, &from));
    if (from.id >= 0) { return read_numbers(r, &from, *rows * row, c->m.type, c->m.size, to); }
    if (*rows) { memset(to, 0, *rows * row * c->m.size); }
    return CKVC_OK;
}

/* Reads one column into the rows, and reserves the rows once their number is known. */
static ckvc_status read_column(reader *r, hid_t group, int k, const shard_column *c, size_t *rows) {
    const shard_group *g = &shard_groups[k];
    if (!shard_has_column(c, &r->s->h)) { return CKVC_OK; }
    if (c->axes) { return read_wide(r, group, g, c, rows); }
    CKVC_AUTO(source_close) source from = NO_SOURCE;
    const bool first = *rows == SIZE_MAX;
    CKVC_TRY(open_column(r, group, g, c, rows, &from));
    if (from.id < 0) { return CKVC_OK; }
    if (first) {
        shard_reserve(r->s, k, *rows);
        char *base = shard_array(r->s, g->rows_offset);
        if (base) { memset(base, 0, *rows * g->row_size); }
    }
    const size_t size = c->m.size;
    CKVC_AUTO_FREE char *values = ckvc_alloc(*rows, size);
    CKVC_TRY(c->m.type == RECORD_TEXT ? read_texts(r, &from, *rows, size, values)
                                      : read_numbers(r, &from, *rows, c->m.type, size, values));
    scatter(shard_array(r->s, g->rows_offset) + c->m.at, g->row_size, values, size, *rows);
    return CKVC_OK;
}

static ckvc_status read_group(reader *r, int k) {
    const shard_group *g = &shard_groups[k];
    size_t rows = SIZE_MAX;
    bool found;
    CKVC_TRY(find_member(r, r->file, g->name, g->name, H5O_TYPE_GROUP, &found));
    REFUSE_IF(r, !found, "group /%s is missing", g->name);
    H5_AUTO hid_t group = H5Gopen2(r->file, g->name, H5P_DEFAULT);
    BROKEN_IF(r, group < 0, "%s: group /%s cannot be opened", r->path, g->name);
    CKVC_TRY(check_links(r, group, g->name));
    for (size_t i = 0; i < g->n_columns; i++) {
        CKVC_TRY(read_column(r, group, k, &g->columns[i], &rows));
    }
    *shard_count(r->s, g) = rows;
    return CKVC_OK;
}

/* Refuses old superblocks, which keep metadata without checksums, so that an edit there would be
 * read as if it were meant. */
static ckvc_status check_superblock(const uint8_t *bytes, size_t n, const char *path,
                                    ckvc_err *err) {
    static const uint8_t magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    CKVC_FAIL_IF(n < 48 || memcmp(bytes, magic, sizeof magic) != 0, err, CKVC_E_DATA,
                 "%s: not an HDF5 file (%zu bytes, no HDF5 signature at byte 0)", path, n);
    CKVC_FAIL_IF(
        bytes[8] != 2 && bytes[8] != 3, err, CKVC_E_DATA,
        "%s: byte 8: superblock version %u, 2 and 3 are read; write it with libver=\"v110\"", path,
        bytes[8]);
    return CKVC_OK;
}

ckvc_status shard_h5_read_here(const shard_bytes *from, shard **out, ckvc_err *err) {
    const char *path = from->path;
    *out = NULL;
    CKVC_TRY(check_superblock(from->data, from->size, path, err));
    CKVC_TRY(h5_begin(err));
    H5_AUTO hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* HDF5 copies the image at once, so that the pointer without const does no harm. */
    if (access < 0 || H5Pset_fapl_core(access, (size_t)1 << 20, 0) < 0 ||
        H5Pset_file_image(access, ckvc_unconst(from->data), from->size) < 0) {
        return h5_fail(err, CKVC_E_SYSTEM, "%s: %zu bytes cannot be given to HDF5", path,
                       from->size);
    }
    H5_AUTO hid_t file = H5Fopen("shard", H5F_ACC_RDONLY, access);
    CKVC_AUTO(shard_free_at) shard *s = shard_create();
    reader r = {path, file, from->foreign, s, err};
    BROKEN_IF(&r, file < 0, "%s: not a readable HDF5 file", path);
    CKVC_TRY(check_links(&r, file, ""));
    CKVC_TRY(read_header(&r));
    const int n = shard_n_groups(&s->h);
    for (int k = 0; k < n; k++) { CKVC_TRY(read_group(&r, k)); }
    CKVC_TRY(shard_rows_check(s, path, err));
    *out = ckvc_take(&s);
    return CKVC_OK;
}
