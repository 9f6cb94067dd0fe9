/* Reads the numeric sections of a .ckvt table (formats/table/table.md) with libc alone.
 *
 * Everything about the file's structure is checked here: header and directory with their CRC-32,
 * the places of the sections and the zeros between them, their dimensions against SHAPE, and the
 * values of the table. The SHA-256 sums, META and the evidence are left to
 * formats/table/table_read.c, which calls this first. Sizes are compared with the bytes that are
 * there before anything is allocated. */
#include "lib/policy/policy_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/sizes.h"

enum {
    HEADER_BYTES = 128,
    ENTRY_BYTES = 112,
    SECTIONS_MAX = 256,
    RANK_MAX = 5,
    ALIGNMENT = 64,
    FORMAT_MAJOR = 1,
    BYTE_ORDER_MARK = 0x0102
};
enum { TYPE_BYTES, TYPE_F32, TYPE_F64, TYPE_U32, TYPE_U64, TYPE_F16, TYPE_COUNT };
enum { CODEC_RAW, CODEC_ZSTD, CODEC_COUNT };
/* Bits of the header's incompatible flags. */
enum {
    FLAG_OPERATOR = 3,
    FLAG_SHARES = 4,
    FLAG_RELATIVE = 8,
    FLAG_BANK = 16,
    FLAG_BYTES = 32,
    FLAGS_KNOWN = 63 /* these bits are known; FLAG_RELATIVE is refused */
};

static const uint8_t magic[8] = {0x89, 'C', 'K', 'V', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t type_bytes[TYPE_COUNT] = {1, 4, 8, 4, 8, 2};
/* Critical sections that are not read here. Any other name in upper case comes from a format that
 * this reader does not know. */
static const char *const known_elsewhere[] = {"META",  "QHEAD", "QGATE", "NHEAD",
                                              "NGATE", "MHEAD", "MGATE", "LGATE"};

typedef struct section {
    char name[9];
    uint16_t codec, type, rank;
    uint64_t dims[RANK_MAX];
    uint64_t offset, stored, raw; /* in bytes */
    uint32_t crc;
    uint64_t entry; /* where its directory entry begins, for messages */
} section;

typedef struct reader {
    const char *name;
    const uint8_t *data;
    uint64_t size;
    uint32_t n_sections;
    ckvc_operator op; /* from the header's incompatible flags, as are the next three */
    bool shares, bank, bytes;
    char *message;
    size_t message_size;
} reader;

__attribute__((format(printf, 2, 3))) static int fail(const reader *r, const char *fmt, ...) {
    if (!r->message || !r->message_size) { return -1; }
    int n = snprintf(r->message, r->message_size, "%s: ", r->name);
    if (n >= 0 && (size_t)n < r->message_size) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(r->message + n, r->message_size - (size_t)n, fmt, args);
        va_end(args);
    }
    return -1;
}

#define FAIL_IF(r, condition, ...)                                                                 \
    do {                                                                                           \
        if (condition) {                                                                           \
            fail(r, __VA_ARGS__);                                                                  \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

/* CRC-32 as zlib computes it (polynomial 0xEDB88320, reflected), four bits at a time. */
static uint32_t crc32_of(const uint8_t *p, uint64_t n) {
    static const uint32_t nibble[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC,
                                        0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
                                        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                        0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint32_t crc = 0xFFFFFFFFu;
    for (uint64_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

static uint64_t aligned(uint64_t offset) {
    return (offset + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
}

/* ---- header ---- */

static int check_header(reader *r) {
    const uint8_t *h = r->data;
    if (r->size < 8 || memcmp(h, magic, 8) != 0) {
        FAIL_IF(r, r->size >= 4 && !memcmp(h, magic, 4),
                "bytes 4..7 are not 0D 0A 1A 0A: a ckvt table whose line ends were "
                "changed in transfer; copy it as binary");
        FAIL_IF(r, ckvc_is_lfs_pointer(h, r->size), "%s", CKVC_LFS_ADVICE);
        return fail(r, "byte 0: not a ckvt table (its first bytes are 89 43 4B 56 0D 0A 1A 0A)");
    }
    FAIL_IF(r, r->size < HEADER_BYTES,
            "%" PRIu64 " bytes, a table has at least %d: the file is cut off", r->size,
            HEADER_BYTES);
    uint16_t major = ckvc_get_u16(h + 10), minor = ckvc_get_u16(h + 12);
    uint32_t crc = crc32_of(h, 124);
    FAIL_IF(r, crc != ckvc_get_u32(h + 124),
            "byte 124: CRC-32 of the header is %08x, the header says %08x: the file is damaged",
            crc, ckvc_get_u32(h + 124));
    FAIL_IF(r, major != FORMAT_MAJOR, "byte 10: format %u.%u, this reader knows %d.x; upgrade ckvc",
            major, minor, FORMAT_MAJOR);
    FAIL_IF(r, ckvc_get_u16(h + 8) != HEADER_BYTES, "byte 8: header size %u, want %d",
            ckvc_get_u16(h + 8), HEADER_BYTES);
    FAIL_IF(r, ckvc_get_u16(h + 14) != BYTE_ORDER_MARK,
            "byte 14: byte order mark 0x%04x, want 0x%04x", ckvc_get_u16(h + 14), BYTE_ORDER_MARK);
    const uint64_t flags = ckvc_get_u64(h + 24);
    FAIL_IF(r, flags & ~(uint64_t)FLAGS_KNOWN,
            "byte 24: incompatible flags 0x%" PRIx64 " are from a later format; upgrade ckvc",
            flags);
    FAIL_IF(r, flags & FLAG_RELATIVE,
            "byte 24: flag 8: the table has thresholds below shares, which this version of ckvc no "
            "longer has; fit it anew from its demand");
    r->op = (ckvc_operator)(flags & FLAG_OPERATOR);
    r->shares = flags & FLAG_SHARES;
    r->bank = flags & FLAG_BANK;
    r->bytes = flags & FLAG_BYTES;
    FAIL_IF(r, r->bank && !r->shares, "byte 24: flag 16, a bank, without flag 4, shares");
    FAIL_IF(r, r->bytes && !r->shares, "byte 24: flag 32, formats, without flag 4, shares");
    FAIL_IF(r, ckvc_get_u64(h + 32) != r->size,
            "byte 32: file size %" PRIu64 ", but %" PRIu64 " bytes are there", ckvc_get_u64(h + 32),
            r->size);
    FAIL_IF(r, ckvc_get_u64(h + 40) != HEADER_BYTES,
            "byte 40: directory offset %" PRIu64 ", want %d", ckvc_get_u64(h + 40), HEADER_BYTES);
    FAIL_IF(r, ckvc_get_u32(h + 52) != ENTRY_BYTES,
            "byte 52: directory entries of %u bytes, want %d", ckvc_get_u32(h + 52), ENTRY_BYTES);
    for (int i = 92; i < 120; i++) {
        if (h[i]) { return fail(r, "byte %d: reserved byte is %u, want 0", i, h[i]); }
    }
    r->n_sections = ckvc_get_u32(h + 48);
    FAIL_IF(r, r->n_sections < 1 || r->n_sections > SECTIONS_MAX,
            "byte 48: %u sections, want 1..%d", r->n_sections, SECTIONS_MAX);
    uint64_t directory = (uint64_t)r->n_sections * ENTRY_BYTES;
    FAIL_IF(r, !ckvc_span_ok(HEADER_BYTES, directory, r->size),
            "byte 48: a directory of %u sections does not fit into %" PRIu64 " bytes",
            r->n_sections, r->size);
    crc = crc32_of(h + HEADER_BYTES, directory);
    FAIL_IF(r, crc != ckvc_get_u32(h + 120),
            "byte 120: CRC-32 of the directory is %08x, the header says %08x: the file is damaged",
            crc, ckvc_get_u32(h + 120));
    return 0;
}

/* ---- directory ---- */

static bool letter_or_digit(uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static int read_entry(const reader *r, uint32_t index, section *s) {
    uint64_t at = HEADER_BYTES + (uint64_t)index * ENTRY_BYTES;
    const uint8_t *e = r->data + at;
    int length = 0;
    while (length < 8 && letter_or_digit(e[length])) { length++; }
    for (int i = length; i < 8; i++) {
        FAIL_IF(r, e[i], "byte %" PRIu64 ": a section's name is letters and digits, then NUL",
                at + (uint64_t)i);
    }
    FAIL_IF(r, !length || (e[0] >= '0' && e[0] <= '9'),
            "byte %" PRIu64 ": a section's name begins with a letter", at);
    memcpy(s->name, e, 8);
    s->name[8] = 0;
    s->entry = at;
    s->codec = ckvc_get_u16(e + 8);
    s->type = ckvc_get_u16(e + 10);
    s->rank = ckvc_get_u16(e + 12);
    s->offset = ckvc_get_u64(e + 56);
    s->stored = ckvc_get_u64(e + 64);
    s->crc = ckvc_get_u32(e + 104);
    FAIL_IF(r, s->codec >= CODEC_COUNT,
            "byte %" PRIu64 ": section %s: codec %u, want 0 (raw) or 1 (zstd)", at + 8, s->name,
            s->codec);
    FAIL_IF(r, s->type >= TYPE_COUNT, "byte %" PRIu64 ": section %s: type %u, want 0..%d", at + 10,
            s->name, s->type, TYPE_COUNT - 1);
    FAIL_IF(r, s->rank > RANK_MAX || (s->type == TYPE_BYTES && s->rank != 1),
            "byte %" PRIu64 ": section %s: rank %u, want %s", at + 12, s->name, s->rank,
            s->type == TYPE_BYTES ? "1 for bytes" : "0..5");
    FAIL_IF(r, ckvc_get_u16(e + 14) || ckvc_get_u32(e + 108),
            "byte %" PRIu64 ": section %s: reserved field is not 0",
            at + (ckvc_get_u16(e + 14) ? 14 : 108), s->name);
    s->raw = type_bytes[s->type];
    for (int d = 0; d < RANK_MAX; d++) {
        s->dims[d] = ckvc_get_u64(e + 16 + 8 * d);
        FAIL_IF(r, d >= s->rank && s->dims[d],
                "byte %" PRIu64 ": section %s: unused dimension is %" PRIu64 ", want 0",
                at + 16 + 8 * (uint64_t)d, s->name, s->dims[d]);
        FAIL_IF(r, d < s->rank && __builtin_mul_overflow(s->raw, s->dims[d], &s->raw),
                "byte %" PRIu64 ": section %s: its dimensions overflow", at + 16, s->name);
    }
    FAIL_IF(r, s->codec == CODEC_RAW && s->raw != s->stored,
            "byte %" PRIu64 ": section %s: %" PRIu64 " bytes stored, its dimensions want %" PRIu64,
            at + 64, s->name, s->stored, s->raw);
    FAIL_IF(r, !ckvc_span_ok(s->offset, s->stored, r->size),
            "byte %" PRIu64 ": section %s: bytes %" PRIu64 " + %" PRIu64
            " lie outside the file's %" PRIu64,
            at + 56, s->name, s->offset, s->stored, r->size);
    return 0;
}

static bool find_section(const reader *r, const char *name, section *s) {
    *s = (section){0};
    for (uint32_t i = 0; i < r->n_sections; i++) {
        if (read_entry(r, i, s) == 0 && !strcmp(s->name, name)) { return true; }
    }
    return false;
}

/* A numeric section that the table needs: its name, and the type and dimensions that it must
 * have. */
typedef struct target {
    const char *name;
    uint16_t type, rank;
    uint64_t dims[4];
} target;
/* The first seven sections are in every table. Those from the 8th on belong to shares, of which two
 * may be missing, those from the 13th on to a learned ranking, those from the 15th on to a bank,
 * and those from the 18th on to formats. */
enum {
    TARGETS_PAPER = 7,
    TARGET_LAYER_SHARE = 8,
    TARGET_LENGTH_SHARE = 9,
    TARGET_THETA = 12,
    TARGET_BANK = 14,
    TARGET_BYTES = 17,
    TARGETS = 19
};
static const char *const target_names[TARGETS] = {
    "BUDGET", "GRIDHEAD", "GRIDGATE", "WEIGHT", "TAU",   "EDGEENT", "EDGEPPL",
    "SHARE",  "SHARELAY", "SHARELEN", "CMIN",   "SCORE", "THETA",   "MASS",
    "BANK",   "RIDGE",    "BANKUSE",  "BYTES",  "HELD"};

static bool known_critical(const char *name) {
    if (!strcmp(name, "SHAPE")) { return true; }
    for (size_t i = 0; i < TARGETS; i++) {
        if (!strcmp(name, target_names[i])) { return true; }
    }
    for (size_t i = 0; i < sizeof known_elsewhere / sizeof *known_elsewhere; i++) {
        if (!strcmp(name, known_elsewhere[i])) { return true; }
    }
    return false;
}

/* Checks that every entry is well formed, that names are unique, that each section begins at the
 * next multiple of 64 with zeros before it, and that nothing follows the last. */
static int check_directory(const reader *r) {
    uint64_t end = HEADER_BYTES + (uint64_t)r->n_sections * ENTRY_BYTES;
    for (uint32_t i = 0; i < r->n_sections; i++) {
        section s;
        if (read_entry(r, i, &s)) { return -1; }
        for (uint32_t j = 0; j < i; j++) {
            FAIL_IF(r, !memcmp(r->data + HEADER_BYTES + (uint64_t)j * ENTRY_BYTES, s.name, 8),
                    "byte %" PRIu64 ": section %s is there twice", s.entry, s.name);
        }
        FAIL_IF(r, s.name[0] >= 'A' && s.name[0] <= 'Z' && !known_critical(s.name),
                "byte %" PRIu64
                ": section %s is from a later format and may not be skipped; upgrade ckvc",
                s.entry, s.name);
        FAIL_IF(r, s.offset != aligned(end),
                "byte %" PRIu64 ": section %s begins at %" PRIu64 ", want %" PRIu64
                " (the next multiple of %d)",
                s.entry + 56, s.name, s.offset, aligned(end), ALIGNMENT);
        for (uint64_t p = end; p < s.offset; p++) {
            FAIL_IF(r, r->data[p], "byte %" PRIu64 ": padding before section %s is %u, want 0", p,
                    s.name, r->data[p]);
        }
        end = s.offset + s.stored;
    }
    FAIL_IF(r, end != r->size,
            "byte %" PRIu64 ": the last section ends here, %" PRIu64 " bytes follow", end,
            r->size - end);
    return 0;
}

/* ---- values ---- */

static int check_section(const reader *r, const target *want, section *s) {
    if (!find_section(r, want->name, s)) { return fail(r, "section %s is missing", want->name); }
    FAIL_IF(r, s->codec != CODEC_RAW || s->type != want->type || s->rank != want->rank,
            "byte %" PRIu64 ": section %s: codec %u, type %u, rank %u, want 0, %u, %u",
            s->entry + 8, s->name, s->codec, s->type, s->rank, want->type, want->rank);
    for (int d = 0; d < s->rank; d++) {
        FAIL_IF(r, s->dims[d] != want->dims[d],
                "byte %" PRIu64 ": section %s: dimension %d is %" PRIu64 ", SHAPE wants %" PRIu64,
                s->entry + 16 + 8 * (uint64_t)d, s->name, d, s->dims[d], want->dims[d]);
    }
    uint32_t crc = crc32_of(r->data + s->offset, s->stored);
    FAIL_IF(r, crc != s->crc,
            "byte %" PRIu64 ": section %s: CRC-32 of its bytes is %08x, the directory says "
            "%08x: the file is damaged",
            s->offset, s->name, crc, s->crc);
    return 0;
}

static void decode_section(const reader *r, const section *s, void *out) {
    const uint8_t *p = r->data + s->offset;
    if (s->type == TYPE_F64) {
        for (uint64_t i = 0; i < s->raw / 8; i++) { ((double *)out)[i] = ckvc_get_f64(p + 8 * i); }
    } else if (s->type == TYPE_U32) {
        for (uint64_t i = 0; i < s->raw / 4; i++) {
            ((uint32_t *)out)[i] = ckvc_get_u32(p + 4 * i);
        }
    } else if (s->type == TYPE_F16) {
        for (uint64_t i = 0; i < s->raw / 2; i++) {
            ((float *)out)[i] = ckvc_f32_of_f16(ckvc_get_u16(p + 2 * i));
        }
    } else {
        for (uint64_t i = 0; i < s->raw / 4; i++) { ((float *)out)[i] = ckvc_get_f32(p + 4 * i); }
    }
}

/* Reads SHAPE: L, H, G, E, P, nB, window and head axis, and, where one of them is not 0, the kind
 * of alpha and the kept window. Reads the lengths of the two grids as well. */
static int read_shape(const reader *r, uint32_t shape[CKVC_TABLE_SHAPE], uint32_t n_actions[2]) {
    section s;
    const bool longer = find_section(r, "SHAPE", &s) && s.dims[0] == CKVC_TABLE_SHAPE;
    const int n = longer ? CKVC_TABLE_SHAPE : 8;
    const target shape_section = {
        .name = "SHAPE", .type = TYPE_U32, .rank = 1, .dims = {(uint64_t)n}};
    if (check_section(r, &shape_section, &s)) { return -1; }
    memset(shape, 0, CKVC_TABLE_SHAPE * sizeof *shape);
    for (int i = 0; i < n; i++) { shape[i] = ckvc_get_u32(r->data + s.offset + 4 * i); }
    FAIL_IF(r, longer && !shape[8] && !shape[9],
            "byte %" PRIu64 ": SHAPE[8] and SHAPE[9] are 0: want a SHAPE of 8 numbers then",
            s.offset + 32);
    for (int i = 0; i < 6; i++) {
        FAIL_IF(r, shape[i] < 1 || shape[i] > CKVC_TABLE_MAX_EXTENT,
                "byte %" PRIu64 ": SHAPE[%d] is %u, want 1..%u", s.offset + 4 * (uint64_t)i, i,
                shape[i], CKVC_TABLE_MAX_EXTENT);
    }
    for (int i = 0; i < 2; i++) {
        section grid;
        const char *grid_name = i ? "GRIDGATE" : "GRIDHEAD";
        FAIL_IF(r, !find_section(r, grid_name, &grid), "section %s is missing", grid_name);
        FAIL_IF(r, grid.rank != 1 || grid.dims[0] < 1 || grid.dims[0] > CKVC_TABLE_MAX_ACTIONS,
                "byte %" PRIu64 ": section %s: want one dimension of 1..%u actions",
                grid.entry + 12, grid_name, CKVC_TABLE_MAX_ACTIONS);
        n_actions[i] = (uint32_t)grid.dims[0];
    }
    return 0;
}

/* Makes a table from sections that were checked, of which the wanted ones are decoded. Returns NULL
 * when memory is out. */
static ckvc_table *make_table(const reader *r, const uint32_t shape[CKVC_TABLE_SHAPE],
                              const uint32_t n_actions[2], const section sections[TARGETS],
                              const bool wanted[TARGETS]) {
    const uint64_t *bank = sections[TARGET_BANK].dims;
    ckvc_table *t = ckvc_table_create(shape[0], shape[2], shape[3], shape[4], shape[5],
                                      n_actions[0], n_actions[1]);
    if (t) { t->n_query_heads = shape[1]; }
    if (!t || (r->shares && ckvc_table_add_shares(t, wanted[TARGET_LAYER_SHARE])) ||
        (wanted[TARGET_LENGTH_SHARE] && ckvc_table_add_lengths(t)) ||
        (wanted[TARGET_THETA] &&
         ckvc_table_add_learned(t, (uint32_t)sections[TARGET_THETA].dims[2])) ||
        (r->bank && ckvc_table_add_bank(t, (uint32_t)bank[2], (uint32_t)bank[3])) ||
        (r->bytes && ckvc_table_add_bytes(t))) {
        ckvc_table_free(t);
        return NULL;
    }
    t->window = shape[6];
    t->head_axis = shape[7];
    t->visible = shape[8];
    t->keep_window = shape[9];
    t->op = r->op;
    void *const values[TARGETS] = {t->budgets,     t->head_grid,     t->gate_grid, t->weight,
                                   t->tau,         t->edges_entropy, t->edges_ppl, t->share,
                                   t->layer_share, t->length_share,  t->c_min,     t->score,
                                   t->theta,       t->mass,          t->bank,      t->ridge,
                                   t->bank_use,    t->byte_share,    t->held};
    for (int i = 0; i < TARGETS; i++) {
        if (wanted[i]) { decode_section(r, &sections[i], values[i]); }
    }
    return t;
}

int ckvc_table_parse(const char *name, const void *bytes, size_t size, ckvc_table **out,
                     char *message, /* NOLINT(readability-non-const-parameter): fail() writes */
                     size_t message_size) {
    reader reader_state = {.name = name,
                           .data = bytes,
                           .size = size,
                           .message = message,
                           .message_size = message_size};
    reader *r = &reader_state;
    *out = NULL;
    FAIL_IF(r, size > CKVC_TABLE_MAX_BYTES, "%zu bytes: a table has at most %" PRIu64, size,
            CKVC_TABLE_MAX_BYTES);

    uint32_t shape[CKVC_TABLE_SHAPE], n_actions[2];
    if (check_header(r) || check_directory(r) || read_shape(r, shape, n_actions)) { return -1; }

    /* The dimensions are checked first, so that what SHAPE claims is known to be in the file before
     * memory is taken for it. */
    const uint64_t L = shape[0], G = shape[2], E = shape[3], P = shape[4], nB = shape[5];
    section theta; /* THETA comes last: its dimensions are used below */
    bool learned = find_section(r, "MASS", &theta);
    learned |= find_section(r, "THETA", &theta);
    const uint64_t D = theta.dims[2]; /* bounded by the file's size, as its section was checked */
    section bank = {0};
    FAIL_IF(r, r->bank && !find_section(r, "BANK", &bank), "section BANK is missing");
    for (int i = 2; i < 4 && r->bank; i++) {
        FAIL_IF(r, bank.dims[i] < 1 || bank.dims[i] > CKVC_TABLE_MAX_EXTENT,
                "byte %" PRIu64 ": section BANK: dimension %d is %" PRIu64 ", want 1..%u",
                bank.entry + 16 + 8 * (uint64_t)i, i, bank.dims[i], CKVC_TABLE_MAX_EXTENT);
    }
    const target targets[TARGETS] = {
        {target_names[0], TYPE_F64, 1, {nB}},
        {target_names[1], TYPE_F64, 1, {n_actions[0]}},
        {target_names[2], TYPE_F64, 1, {n_actions[1]}},
        {target_names[3], TYPE_F32, 3, {L, G, nB}},
        {target_names[4], TYPE_F32, 4, {L, E, P, nB}},
        {target_names[5], TYPE_F64, 1, {E - 1}},
        {target_names[6], TYPE_F64, 1, {P - 1}},
        {target_names[7], TYPE_F64, 3, {L, G, nB}},
        {target_names[8], TYPE_F64, 2, {L, nB}},
        {target_names[9], TYPE_F64, 2, {L, nB}},
        {target_names[10], TYPE_F64, 2, {nB, sizeof(ckvc_c_min) / sizeof(double)}},
        {target_names[11], TYPE_U32, 2, {nB, sizeof(ckvc_score) / sizeof(uint32_t)}},
        {target_names[12], TYPE_F32, 3, {L, G, D}},
        {target_names[13], TYPE_F64, 2, {L, G}},
        {target_names[14], TYPE_F16, 4, {L, shape[1], bank.dims[2], bank.dims[3]}},
        {target_names[15], TYPE_F64, 2, {L, nB}},
        {target_names[16], TYPE_U32, 2, {nB, sizeof(ckvc_bank_use) / sizeof(uint32_t)}},
        {target_names[17], TYPE_F64, 1, {nB}},
        {target_names[18], TYPE_U32, 2, {nB, sizeof(ckvc_held) / sizeof(uint32_t)}},
    };
    section sections[TARGETS];
    bool wanted[TARGETS];
    for (int i = 0; i < TARGETS; i++) {
        const bool there = find_section(r, target_names[i], &sections[i]);
        const bool may_miss = i == TARGET_LAYER_SHARE || i == TARGET_LENGTH_SHARE,
                   flagged = i >= TARGET_BYTES  ? r->bytes
                             : i >= TARGET_BANK ? r->bank
                                                : r->shares || i < TARGETS_PAPER;
        FAIL_IF(r, there && !flagged, "byte 24: section %s is there, but flag 0x%x is not set",
                target_names[i],
                !r->shares          ? FLAG_SHARES
                : i >= TARGET_BYTES ? FLAG_BYTES
                                    : FLAG_BANK);
        wanted[i] =
            i >= TARGET_THETA && i < TARGET_BANK ? learned : flagged && (there || !may_miss);
        if (wanted[i] && check_section(r, &targets[i], &sections[i])) { return -1; }
    }

    ckvc_table *t = make_table(r, shape, n_actions, sections, wanted);
    if (!t) { return fail(r, "out of memory"); }
    char breach[256];
    if (ckvc_table_check(t, breach, sizeof breach)) {
        ckvc_table_free(t);
        return fail(r, "section %s", breach);
    }
    *out = t;
    return 0;
}

/* Reads a whole file; the caller frees the bytes. Returns NULL, with the message written, when it
 * cannot. */
static uint8_t *read_whole(const reader *r, int fd, size_t *size) {
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        fail(r, "not a regular file");
        return NULL;
    }
    if ((uint64_t)st.st_size > CKVC_TABLE_MAX_BYTES) {
        fail(r, "%lld bytes: a table has at most %" PRIu64, (long long)st.st_size,
             CKVC_TABLE_MAX_BYTES);
        return NULL;
    }
    const size_t wanted = (size_t)st.st_size;
    uint8_t *bytes = malloc(wanted ? wanted : 1);
    if (!bytes) { fail(r, "out of memory: %zu bytes", wanted); }
    for (*size = 0; bytes && *size < wanted;) {
        const ssize_t n = read(fd, bytes + *size, wanted - *size);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) {
            fail(r, "%s", strerror(errno));
            free(bytes);
            return NULL;
        }
        if (n == 0) { break; }
        *size += (size_t)n;
    }
    return bytes;
}

int ckvc_table_read(const char *path, ckvc_table **out, char *message, size_t message_size) {
    const reader r = {.name = path, .message = message, .message_size = message_size};
    size_t size = 0;
    *out = NULL;
    /* O_NONBLOCK, because opening a named pipe must not wait for a writer. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FAIL_IF(&r, fd < 0, "%s", strerror(errno));
    uint8_t *bytes = read_whole(&r, fd, &size);
    close(fd);
    const int rc = bytes ? ckvc_table_parse(path, bytes, size, out, message, message_size) : -1;
    free(bytes);
    return rc;
}
