/* Shard rows and header as plain bytes: for the durable prompt log and for the pipe from the child
 * that reads foreign files.
 *
 * Rows (formats/run/run.md): u32 n_prompts, n_baselines, n_records, L, G, u8 scan; then the rows of
 * each kind, field after field in the order of the column tables, strings as u8 length and bytes;
 * behind each row its wide values (u32[L] or f64[L][G]).
 */
#include <string.h>

#include "formats/shard/shard_rows.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

static void put_text(ckvc_buffer *out, const char *text, size_t size) {
    size_t n = strnlen(text, size - 1);
    ckvc_buffer_u8(out, (uint8_t)n);
    ckvc_buffer_append(out, text, n);
}

static void put_field(ckvc_buffer *out, const shard_column *c, const char *row) {
    const void *p = row + c->offset;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    double f64;
    switch (c->type) {
    case SHARD_U8:
        ckvc_buffer_u8(out, *(const uint8_t *)p);
        break;
    case SHARD_U16:
        memcpy(&u16, p, sizeof u16);
        ckvc_buffer_u16(out, u16);
        break;
    case SHARD_U32:
        memcpy(&u32, p, sizeof u32);
        ckvc_buffer_u32(out, u32);
        break;
    case SHARD_U64:
        memcpy(&u64, p, sizeof u64);
        ckvc_buffer_u64(out, u64);
        break;
    case SHARD_F64:
        memcpy(&f64, p, sizeof f64);
        ckvc_buffer_f64(out, f64);
        break;
    case SHARD_TEXT:
        put_text(out, p, SHARD_STRING);
        break;
    case SHARD_F32:
        break;
    }
}

static size_t wide_values(const shard_header *h, const shard_wide *w) {
    return (size_t)h->n_layers * (w->rank == 3 ? h->n_kv_heads : 1);
}

void shard_encode(const shard *s, ckvc_buffer *out) {
    bool scan = shard_is_scan(&s->h);
    ckvc_buffer_u32(out, (uint32_t)s->n_prompts);
    ckvc_buffer_u32(out, (uint32_t)s->n_baselines);
    ckvc_buffer_u32(out, (uint32_t)s->n_records);
    ckvc_buffer_u32(out, s->h.n_layers);
    ckvc_buffer_u32(out, s->h.n_kv_heads);
    ckvc_buffer_u8(out, scan);
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        size_t rows = *(const size_t *)(const void *)((const char *)s + g->count_offset);
        const char *row = *(char *const *)(const void *)((const char *)s + g->rows_offset);
        for (size_t i = 0; i < rows; i++, row += g->row_size) {
            for (size_t c = 0; c < g->n_columns; c++) {
                put_field(out, &g->columns[c], row);
            }
            for (size_t j = 0; j < g->n_wide && (scan || !g->wide_scan_only); j++) {
                const shard_wide *w = &g->wide[j];
                size_t n = wide_values(&s->h, w);
                const char *values = *(char *const *)(const void *)((const char *)s + w->offset);
                for (size_t v = 0; v < n; v++) {
                    if (w->type == SHARD_U32) {
                        ckvc_buffer_u32(out, ((const uint32_t *)(const void *)values)[i * n + v]);
                    } else {
                        ckvc_buffer_f64(out, ((const double *)(const void *)values)[i * n + v]);
                    }
                }
            }
        }
    }
}

static void get_text(ckvc_cursor *c, char *text, size_t size) {
    size_t n = ckvc_cursor_u8(c);
    const uint8_t *p = ckvc_cursor_take(c, n);
    if (!p || n >= size || memchr(p, 0, n)) {
        c->failed = true;
        return;
    }
    memset(text, 0, size);
    memcpy(text, p, n);
}

static void get_field(ckvc_cursor *c, const shard_column *column, char *row) {
    void *p = row + column->offset;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    double f64;
    switch (column->type) {
    case SHARD_U8:
        *(uint8_t *)p = ckvc_cursor_u8(c);
        break;
    case SHARD_U16:
        u16 = ckvc_cursor_u16(c);
        memcpy(p, &u16, sizeof u16);
        break;
    case SHARD_U32:
        u32 = ckvc_cursor_u32(c);
        memcpy(p, &u32, sizeof u32);
        break;
    case SHARD_U64:
        u64 = ckvc_cursor_u64(c);
        memcpy(p, &u64, sizeof u64);
        break;
    case SHARD_F64:
        f64 = ckvc_cursor_f64(c);
        memcpy(p, &f64, sizeof f64);
        break;
    case SHARD_TEXT:
        get_text(c, p, SHARD_STRING);
        break;
    case SHARD_F32:
        break;
    }
}

/* The fewest bytes that a row of the group takes. */
static size_t row_bytes(const shard_group *g, const shard_header *h, bool scan) {
    size_t n = 0;
    for (size_t c = 0; c < g->n_columns; c++) {
        n += g->columns[c].type == SHARD_TEXT ? 1 : shard_type_size(g->columns[c].type);
    }
    for (size_t j = 0; j < g->n_wide && (scan || !g->wide_scan_only); j++) {
        n += wide_values(h, &g->wide[j]) * shard_type_size(g->wide[j].type);
    }
    return n;
}

ckvc_status shard_decode(shard *s, const uint8_t *bytes, size_t n, ckvc_err *err) {
    ckvc_cursor c = {bytes, n, 0, false};
    const size_t before[SHARD_GROUPS] = {s->n_prompts, s->n_baselines, s->n_records};
    uint32_t rows[SHARD_GROUPS];
    for (int k = 0; k < SHARD_GROUPS; k++) {
        rows[k] = ckvc_cursor_u32(&c);
    }
    uint32_t n_layers = ckvc_cursor_u32(&c), n_kv_heads = ckvc_cursor_u32(&c);
    uint8_t is_scan = ckvc_cursor_u8(&c);
    bool scan = shard_is_scan(&s->h);
    if (c.failed) {
        return ckvc_fail(err, CKVC_E_DATA, "shard rows: %zu bytes, the counts alone need 21", n);
    }
    if (n_layers != s->h.n_layers || n_kv_heads != s->h.n_kv_heads || is_scan != scan) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "shard rows: made for %u layers and %u KV heads%s, this pass has %u and %u%s", n_layers,
            n_kv_heads, is_scan ? " (scan)" : "", s->h.n_layers, s->h.n_kv_heads,
            scan ? " (scan)" : "");
    }
    for (int k = 0; k < SHARD_GROUPS; k++) {
        const shard_group *g = &shard_groups[k];
        size_t least = row_bytes(g, &s->h, scan);
        if (rows[k] > g->max_rows || rows[k] > (n - c.pos) / least) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "shard rows: %u rows of %s need at least %zu bytes each, %zu bytes are there",
                rows[k], g->name, least, n);
        }
        ckvc_status st = shard_reserve(s, k, before[k] + rows[k], err);
        if (st != CKVC_OK) { return st; }
    }
    for (int k = 0; k < SHARD_GROUPS && !c.failed; k++) {
        const shard_group *g = &shard_groups[k];
        char *row = *(char **)(void *)((char *)s + g->rows_offset) + before[k] * g->row_size;
        for (size_t i = 0; i < rows[k] && !c.failed; i++, row += g->row_size) {
            memset(row, 0, g->row_size);
            for (size_t j = 0; j < g->n_columns; j++) {
                get_field(&c, &g->columns[j], row);
            }
            for (size_t j = 0; j < g->n_wide && (scan || !g->wide_scan_only); j++) {
                const shard_wide *w = &g->wide[j];
                size_t values = wide_values(&s->h, w);
                char *to = *(char **)(void *)((char *)s + w->offset);
                for (size_t v = 0; v < values; v++) {
                    size_t at = (before[k] + i) * values + v;
                    if (w->type == SHARD_U32) {
                        ((uint32_t *)(void *)to)[at] = ckvc_cursor_u32(&c);
                    } else {
                        ((double *)(void *)to)[at] = ckvc_cursor_f64(&c);
                    }
                }
            }
            uint32_t *prompt = k == 1 ? &((struct shard_baseline *)(void *)row)->prompt
                                      : &((struct shard_record *)(void *)row)->prompt;
            if (k > 0 && !c.failed) { /* numbered within these bytes; shifted behind the rows that
                                         were here before */
                if (*prompt >= rows[0]) {
                    return ckvc_fail(err, CKVC_E_DATA,
                                     "shard rows: %s row %zu names prompt %u of %u", g->name, i,
                                     *prompt, rows[0]);
                }
                *prompt += (uint32_t)before[0];
            }
        }
    }
    if (c.failed || c.pos != n) {
        return ckvc_fail(err, CKVC_E_DATA, "shard rows: %s at byte %llu of %zu",
                         c.failed ? "cut short or damaged" : "bytes left over",
                         (unsigned long long)c.pos, n);
    }
    for (int k = 0; k < SHARD_GROUPS; k++) {
        *(size_t *)(void *)((char *)s + shard_groups[k].count_offset) = before[k] + rows[k];
    }
    return CKVC_OK;
}

/* Which parts of a header follow that not every header has. What is neutral leaves no bit and no
 * byte: a pass that was begun before such a part existed goes on with the same hash of its header
 * (run_pass.c). */
enum {
    HAS_WEIGHT = 1,
    HAS_TAU = 2,
    HAS_LAYER_BUDGETS = 4,
    HAS_TEXT = 8 /* and on: the optional texts in their order */,
    HAS_SUM = 128
};

static uint8_t parts_of(const shard_header *h) {
    unsigned parts = (h->side[CKVC_SIDE_HEAD].start ? HAS_WEIGHT : 0) |
                     (h->side[CKVC_SIDE_GATE].start ? HAS_TAU : 0) |
                     (h->n_layer_budgets ? HAS_LAYER_BUDGETS : 0) |
                     (h->reduction == CKVC_LOSS_SUM ? HAS_SUM : 0);
    unsigned bit = HAS_TEXT;
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        if (shard_text_attributes[i].optional) {
            parts |= *((const char *)h + shard_text_attributes[i].offset) ? bit : 0;
            bit <<= 1;
        }
    }
    return (uint8_t)parts;
}

void shard_header_encode(const shard_header *h, ckvc_buffer *out) {
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        if (!shard_text_attributes[i].optional) {
            put_text(out, (const char *)h + shard_text_attributes[i].offset,
                     shard_text_attributes[i].size);
        }
    }
    for (size_t i = 0; i < SHARD_U32_ATTRIBUTES; i++) {
        ckvc_buffer_u32(out, *(const uint32_t *)(const void *)((const char *)h +
                                                               shard_u32_attributes[i].offset));
    }
    ckvc_buffer_f64(out, h->beta_bud);
    ckvc_buffer_u64(out, h->seed);
    ckvc_buffer_u32(out, h->n_budgets);
    ckvc_buffer_u32(out, h->side[CKVC_SIDE_HEAD].n_actions);
    ckvc_buffer_u32(out, h->side[CKVC_SIDE_GATE].n_actions);
    ckvc_buffer_u32(out, h->n_entropy_bins);
    ckvc_buffer_u32(out, h->n_ppl_bins);
    const uint8_t parts = parts_of(h);
    ckvc_buffer_u8(out, parts);
    if (parts & HAS_LAYER_BUDGETS) { ckvc_buffer_u32(out, h->n_layer_budgets); }
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_text_attributes[i];
        if (a->optional && *((const char *)h + a->offset)) {
            put_text(out, (const char *)h + a->offset, a->size);
        }
    }
    for (size_t i = 0; i < SHARD_ARRAYS; i++) {
        const shard_array *a = &shard_arrays[i];
        const void *from = *(void *const *)(const void *)((const char *)h + a->offset);
        size_t dims[4], n = 1;
        int rank = shard_array_dims(h, a, dims);
        for (int d = 0; d < rank; d++) {
            n *= dims[d];
        }
        for (size_t v = 0; rank && v < n; v++) {
            if (a->type == SHARD_F64) {
                ckvc_buffer_f64(out, ((const double *)from)[v]);
            } else {
                uint8_t bits[4];
                ckvc_put_f32(bits, ((const float *)from)[v]);
                ckvc_buffer_append(out, bits, sizeof bits);
            }
        }
    }
}

ckvc_status shard_header_decode(shard_header *h, ckvc_cursor *c, ckvc_err *err) {
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        if (!shard_text_attributes[i].optional) {
            get_text(c, (char *)h + shard_text_attributes[i].offset, shard_text_attributes[i].size);
        }
    }
    for (size_t i = 0; i < SHARD_U32_ATTRIBUTES; i++) {
        *(uint32_t *)(void *)((char *)h + shard_u32_attributes[i].offset) = ckvc_cursor_u32(c);
    }
    h->beta_bud = ckvc_cursor_f64(c);
    h->seed = ckvc_cursor_u64(c);
    h->n_budgets = ckvc_cursor_u32(c);
    h->side[CKVC_SIDE_HEAD].n_actions = ckvc_cursor_u32(c);
    h->side[CKVC_SIDE_GATE].n_actions = ckvc_cursor_u32(c);
    h->n_entropy_bins = ckvc_cursor_u32(c);
    h->n_ppl_bins = ckvc_cursor_u32(c);
    uint8_t parts = ckvc_cursor_u8(c);
    h->reduction = parts & HAS_SUM ? CKVC_LOSS_SUM : CKVC_LOSS_MEAN;
    h->n_layer_budgets = parts & HAS_LAYER_BUDGETS ? ckvc_cursor_u32(c) : 0;
    unsigned bit = HAS_TEXT;
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        const shard_attribute *a = &shard_text_attributes[i];
        if (a->optional && parts & bit) { get_text(c, (char *)h + a->offset, a->size); }
        bit <<= a->optional;
    }
    for (size_t i = 0; i < SHARD_ARRAYS && !c->failed; i++) {
        const shard_array *a = &shard_arrays[i];
        void **to = (void **)(void *)((char *)h + a->offset);
        float present; /* dims of a table are given only where its pointer is set */
        if (a->table && !(parts & (a->offset == offsetof(shard_header, side[CKVC_SIDE_HEAD].start)
                                       ? HAS_WEIGHT
                                       : HAS_TAU))) {
            continue;
        }
        *to = a->table ? &present : NULL;
        size_t dims[4], n = shard_type_size(a->type);
        int rank = shard_array_dims(h, a, dims);
        *to = NULL;
        bool fits = true;
        for (int d = 0; d < rank; d++) {
            fits = fits && ckvc_mul_size(n, dims[d], &n);
        }
        if (rank == 0) { continue; }
        const uint8_t *p = fits ? ckvc_cursor_take(c, n) : NULL;
        if (!p) {
            c->failed = true;
            break;
        }
        *to = ckvc_alloc(n, 1);
        if (!*to) {
            shard_header_fini(h);
            return ckvc_fail_memory(err, a->name, n);
        }
        size_t size = shard_type_size(a->type);
        for (size_t v = 0; v < n / size; v++) {
            if (a->type == SHARD_F64) {
                ((double *)*to)[v] = ckvc_get_f64(p + v * size);
            } else {
                ((float *)*to)[v] = ckvc_get_f32(p + v * size);
            }
        }
    }
    if (c->failed) {
        shard_header_fini(h);
        return ckvc_fail(err, CKVC_E_DATA, "shard header: cut short at byte %llu of %llu",
                         (unsigned long long)c->pos, (unsigned long long)c->size);
    }
    return CKVC_OK;
}
