/* Turns shard rows and header into plain bytes and back. One walk over the fields serves both
 * directions. See shard_codec.h. */
#include "formats/shard/shard_codec.h"

#include <assert.h>

#include "formats/shard/shard_schema.h"
#include "lib/base/sizes.h"

/* Writes what the fields hold when `out` is set, else reads it from `in`. */
typedef struct codec {
    ckvc_buffer *out;
    ckvc_cursor *in;
} codec;

static void move_text(codec *c, char *text, size_t size) {
    if (c->out) {
        const size_t n = strnlen(text, size - 1);
        ckvc_buffer_u8(c->out, (uint8_t)n);
        ckvc_buffer_append(c->out, text, n);
        return;
    }
    const size_t n = ckvc_cursor_u8(c->in);
    const uint8_t *p = ckvc_cursor_take(c->in, n);
    if (!p || n >= size || memchr(p, 0, n)) {
        c->in->failed = true;
        return;
    }
    memset(text, 0, size);
    memcpy(text, p, n);
}

/* Moves numbers of n bytes in all. Files have them in the byte order of this machine. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are moved as they lie in memory");
static void move_numbers(codec *c, void *p, size_t n) {
    const uint8_t *from = c->out ? NULL : ckvc_cursor_take(c->in, n);
    if (c->out) {
        ckvc_buffer_append(c->out, p, n);
    } else if (from) {
        memcpy(p, from, n);
    } else {
        memset(p, 0, n);
    }
}

/* Moves a member of a row or of the header. */
static void move_member(codec *c, const record_member *m, void *record) {
    char *at = (char *)record + m->at, buffer[64] = "";
    if (m->type == RECORD_TEXT) {
        move_text(c, at, m->size);
    } else if (m->type == RECORD_NAME) {
        size_t n;
        const char *name = record_name_at(m->names, (uint32_t)record_number(m, record), &n);
        if (c->out) { snprintf(buffer, sizeof buffer, "%.*s", (int)n, name); }
        move_text(c, buffer, sizeof buffer);
        if (!c->out && !record_set_text(m, record, buffer)) { c->in->failed = true; }
    } else {
        move_numbers(c, at, m->size);
    }
}

/* ---- rows ---- */

/* Tells whether the column is one of texts that was added later; such columns stand behind all rows
 * (move_documents). */
static bool is_document(const shard_column *c) { return !c->axes && c->need == SHARD_OF_NEW; }

/* Moves row i of a group. */
static void move_row(codec *c, shard *s, const shard_group *g, size_t i) {
    char *row = shard_array(s, g->rows_offset) + i * g->row_size;
    if (!c->out) { memset(row, 0, g->row_size); }
    for (size_t k = 0; k < g->n_columns; k++) {
        const shard_column *column = &g->columns[k];
        if (!shard_has_column(column, &s->h) || is_document(column)) { continue; }
        if (column->axes) {
            const size_t n = shard_row_values(column, &s->h) * column->m.size;
            move_numbers(c, shard_array(s, column->m.at) + i * n, n);
        } else {
            move_member(c, &column->m, row);
        }
    }
}

/* Moves the documents of n prompts, which stand behind everything else. Where no prompt has one,
 * nothing is written. */
static void move_documents(codec *c, struct shard_prompt *prompts, size_t n) {
    for (size_t i = 0; i < n; i++) { move_text(c, prompts[i].document, SHARD_STRING); }
}

void shard_encode(const shard *s, ckvc_buffer *out) {
    codec c = {.out = out};
    assert(out); /* without `out` it would read */
    for (int k = 0; k < shard_n_groups(&s->h); k++) {
        ckvc_buffer_u32(out, (uint32_t)shard_rows(s, &shard_groups[k]));
    }
    ckvc_buffer_u32(out, s->h.n_layers);
    ckvc_buffer_u32(out, s->h.n_kv_heads);
    ckvc_buffer_u8(out, (uint8_t)shard_kind_of(&s->h));
    for (int k = 0; k < shard_n_groups(&s->h); k++) {
        for (size_t i = 0; i < shard_rows(s, &shard_groups[k]); i++) {
            move_row(&c, ckvc_unconst(s), &shard_groups[k], i);
        }
    }
    bool any = false;
    for (size_t i = 0; i < s->n_prompts; i++) { any |= *s->prompts[i].document != 0; }
    move_documents(&c, s->prompts, any ? s->n_prompts : 0);
}

/* Returns the fewest bytes that a row of the group takes. */
static size_t row_bytes(const shard_group *g, const shard_header *h) {
    size_t n = 0;
    for (size_t k = 0; k < g->n_columns; k++) {
        const shard_column *c = &g->columns[k];
        if (!shard_has_column(c, h) || is_document(c)) { continue; }
        n += c->m.type == RECORD_TEXT ? 1 : shard_row_values(c, h) * c->m.size;
    }
    return n;
}

/* Reads the counts of rows, and makes room for them. */
static ckvc_status decode_counts(shard *s, ckvc_cursor *c, uint32_t rows[SHARD_GROUPS],
                                 ckvc_err *err) {
    memset(rows, 0, SHARD_GROUPS * sizeof *rows); /* a shard may have fewer groups */
    for (int k = 0; k < shard_n_groups(&s->h); k++) { rows[k] = ckvc_cursor_u32(c); }
    const uint32_t n_layers = ckvc_cursor_u32(c), n_kv_heads = ckvc_cursor_u32(c);
    const uint8_t kind = ckvc_cursor_u8(c), wanted = (uint8_t)shard_kind_of(&s->h);
    static const char *const kinds[] = {"", " (scan)", " (demand)", " (score)"};
    CKVC_FAIL_IF(c->failed, err, CKVC_E_DATA, "shard rows: %zu bytes, the counts alone need %d",
                 (size_t)c->size, 4 * shard_n_groups(&s->h) + 9);
    CKVC_FAIL_IF(
        n_layers != s->h.n_layers || n_kv_heads != s->h.n_kv_heads || kind != wanted, err,
        CKVC_E_DATA, "shard rows: made for %u layers and %u KV heads%s, this pass has %u and %u%s",
        n_layers, n_kv_heads, kind < sizeof kinds / sizeof *kinds ? kinds[kind] : " (unknown)",
        s->h.n_layers, s->h.n_kv_heads, kinds[wanted]);
    for (int k = 0; k < shard_n_groups(&s->h); k++) {
        const shard_group *g = &shard_groups[k];
        const size_t least = row_bytes(g, &s->h);
        assert(least > 0);
        CKVC_FAIL_IF(rows[k] > g->max_rows || rows[k] > (c->size - c->pos) / least, err,
                     CKVC_E_DATA,
                     "shard rows: %u rows of %s need at least %zu bytes each, %zu bytes are there",
                     rows[k], g->name, least, (size_t)c->size);
        shard_reserve(s, k, shard_rows(s, g) + rows[k]);
    }
    return CKVC_OK;
}

ckvc_status shard_decode(shard *s, const uint8_t *bytes, size_t n, ckvc_err *err) {
    ckvc_cursor in = {bytes, n, 0, false};
    codec c = {.in = &in};
    uint32_t rows[SHARD_GROUPS];
    CKVC_TRY(decode_counts(s, &in, rows, err));
    for (int k = 0; k < shard_n_groups(&s->h) && !in.failed; k++) {
        const shard_group *g = &shard_groups[k];
        const size_t before = shard_rows(s, g);
        for (size_t i = 0; i < rows[k] && !in.failed; i++) {
            move_row(&c, s, g, before + i);
            if (k == SHARD_GROUP_PROMPT || in.failed) { continue; }
            uint32_t *prompt = shard_prompt_of(s, k, before + i);
            if (*prompt >= rows[SHARD_GROUP_PROMPT]) { /* prompts are numbered within these bytes */
                return ckvc_fail(err, CKVC_E_DATA, "shard rows: %s row %zu names prompt %u of %u",
                                 g->name, i, *prompt, rows[SHARD_GROUP_PROMPT]);
            }
            *prompt += (uint32_t)s->n_prompts;
        }
    }
    if (in.pos < n && !in.failed && rows[SHARD_GROUP_PROMPT] > 0) {
        move_documents(&c, s->prompts + s->n_prompts, rows[SHARD_GROUP_PROMPT]);
    }
    CKVC_FAIL_IF(in.failed || in.pos != n, err, CKVC_E_DATA, "shard rows: %s at byte %llu of %zu",
                 in.failed ? "cut short or damaged" : "bytes left over", (unsigned long long)in.pos,
                 n);
    for (int k = 0; k < shard_n_groups(&s->h); k++) {
        *shard_count(s, &shard_groups[k]) += rows[k];
    }
    return CKVC_OK;
}

/* ---- the header ---- */

/* A byte of bits says which of the parts follow that not every header has. A neutral part leaves no
 * bit and no byte, so that a pass that was begun before such a part existed goes on with the same
 * hash of its header. */
static const uint8_t has_start[] = {1, 2, 64}; /* the bit of each side */
_Static_assert(CKVC_SIDE_COUNT <= 3, "a fourth side's start table needs a second byte of parts");
typedef struct part {
    const char *key;
    uint8_t bit;
    bool bare; /* the bit is all there is: no bytes follow */
} part;

/* Returns the part of a sparse attribute. */
static const part *part_of(const shard_attribute *a) {
    static const part parts[] = {{"layer_budgets", 4, false},
                                 {"operator", 8, false},
                                 {"compute", 16, false},
                                 {"loss_reduction", 128, true},
                                 /* not part of the header's hash; a run's plan has the second */
                                 {"sketch", 0, false},
                                 {"queries", 0, false},
                                 {NULL, 32, false}}; /* all attributes that were added later */
    const part *p = parts;
    while (p->key && strcmp(a->m.name, p->key) != 0) { p++; }
    return p;
}

typedef struct header_codec {
    codec c;
    shard_header *h;
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    size_t n;
    uint8_t parts;
} header_codec;

static uint8_t parts_of(const header_codec *k) {
    uint8_t parts = 0;
    size_t dims[4];
    for (size_t i = 0; i < k->n; i++) {
        const shard_attribute *a = &k->list[i];
        if (shard_attribute_dims(k->h, a, false, dims) < 0) { continue; }
        if (a->start != SHARD_SIDE_NONE) { parts |= has_start[a->start]; }
        if (a->sparse) { parts |= part_of(a)->bit; }
    }
    return parts;
}

/* Moves all single values that every header has and that have this type and this many bytes; a size
 * of 0 stands for any. */
static void move_singles(header_codec *k, record_type type, size_t size) {
    for (size_t i = 0; i < k->n; i++) {
        const shard_attribute *a = &k->list[i];
        if (a->m.type == (int)type && (!size || a->m.size == size) && !a->list && !a->sparse &&
            a->start == SHARD_SIDE_NONE) {
            move_member(&k->c, &a->m, k->h);
        }
    }
}

/* Moves the sparse attributes that are present. */
static void move_sparse(header_codec *k) {
    for (size_t i = 0; i < k->n; i++) {
        const shard_attribute *a = &k->list[i];
        if (!a->sparse || a->list || !(k->parts & part_of(a)->bit)) { continue; }
        if (part_of(a)->bare) {
            record_set_number(&a->m, k->h, a->m.most);
        } else {
            move_member(&k->c, &a->m, k->h);
        }
    }
}

static void move_counts(header_codec *k, bool sparse) {
    for (size_t i = 0; i < k->n; i++) {
        const shard_attribute *a = &k->list[i];
        if (a->list && a->sparse == sparse && (!sparse || k->parts & part_of(a)->bit)) {
            move_numbers(&k->c, (char *)k->h + a->count_offset, 4);
        }
    }
}

static void move_array(header_codec *k, const shard_attribute *a) {
    size_t dims[4], bytes = a->m.size;
    const bool given = a->start != SHARD_SIDE_NONE && k->parts & has_start[a->start];
    const int rank = shard_attribute_dims(k->h, a, given, dims);
    bool fits = true;
    for (int d = 0; d < rank; d++) { fits = fits && ckvc_mul_size(bytes, dims[d], &bytes); }
    if (rank <= 0 || (a->start != SHARD_SIDE_NONE && !given)) { return; }
    void **p = shard_pointer(k->h, a->m.at);
    if (!k->c.out) {
        if (!fits || bytes > k->c.in->size - k->c.in->pos) {
            k->c.in->failed = true;
            return;
        }
        *p = ckvc_alloc(bytes, 1);
    }
    move_numbers(&k->c, *p, bytes);
}

static void move_header(header_codec *k) {
    k->n = shard_attributes(k->list);
    move_singles(k, RECORD_TEXT, 0);
    move_singles(k, RECORD_NAME, 0);
    move_singles(k, RECORD_COUNT, 4);
    move_singles(k, RECORD_REAL, 8);
    move_singles(k, RECORD_COUNT, 8);
    move_counts(k, false);
    if (k->c.out) { k->parts = parts_of(k); }
    move_numbers(&k->c, &k->parts, 1);
    move_counts(k, true);
    move_sparse(k);
    for (size_t i = 0; i < k->n; i++) {
        const shard_attribute *a = &k->list[i];
        if ((k->c.out || !k->c.in->failed) && (a->list || a->start != SHARD_SIDE_NONE)) {
            move_array(k, a);
        }
    }
}

void shard_header_encode(const shard_header *h, ckvc_buffer *out) {
    header_codec k = {.c = {.out = out}, .h = ckvc_unconst(h)};
    move_header(&k);
}

ckvc_status shard_header_decode(shard_header *h, ckvc_cursor *c, ckvc_err *err) {
    header_codec k = {.c = {.in = c}, .h = h};
    h->setting = setting_neutral();
    move_header(&k);
    if (!c->failed) { return CKVC_OK; }
    shard_header_fini(h);
    return ckvc_fail(err, CKVC_E_DATA, "shard header: cut short at byte %llu of %llu",
                     (unsigned long long)c->pos, (unsigned long long)c->size);
}
