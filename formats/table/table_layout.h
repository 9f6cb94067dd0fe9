/* The byte layout of a .ckvt file (formats/table/table.md), shared by its reader and its writer.
 * Other folders must not include it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "lib/base/hash.h"
#include "lib/policy/policy_parts.h"

struct table_file;

enum { CKVT_HEADER_BYTES = 128, CKVT_ENTRY_BYTES = 112, CKVT_ALIGNMENT = 64 };
enum {
    CKVT_MAJOR = 1,
    CKVT_MINOR = 0, /* the others are of tables with shares, with a bank, with formats */
    CKVT_MINOR_SHARES = 1,
    CKVT_MINOR_BANK = 2,
    CKVT_MINOR_BYTES = 3,
    /* bits of the incompatible flags; the lowest are the operator */
    CKVT_FLAG_SHARES = 4,
    CKVT_FLAG_BANK = 16,
    CKVT_FLAG_BYTES = 32,
    CKVT_BYTE_ORDER_MARK = 0x0102,
    CKVT_ZSTD_WINDOW_MAX = 8 << 20
};
/* Byte offsets in the header. */
enum {
    CKVT_AT_MAGIC = 0,
    CKVT_AT_HEADER_SIZE = 8,
    CKVT_AT_MAJOR = 10,
    CKVT_AT_MINOR = 12,
    CKVT_AT_BYTE_ORDER = 14,
    CKVT_AT_COMPATIBLE = 16,
    CKVT_AT_INCOMPATIBLE = 24,
    CKVT_AT_FILE_SIZE = 32,
    CKVT_AT_DIRECTORY = 40,
    CKVT_AT_N_SECTIONS = 48,
    CKVT_AT_ENTRY_SIZE = 52,
    CKVT_AT_CONTENT_ID = 56,
    CKVT_AT_WRITER = 88,
    CKVT_AT_DIRECTORY_CRC = 120,
    CKVT_AT_HEADER_CRC = 124
};
/* Byte offsets in a directory entry. */
enum {
    CKVT_ENTRY_NAME = 0,
    CKVT_ENTRY_CODEC = 8,
    CKVT_ENTRY_TYPE = 10,
    CKVT_ENTRY_RANK = 12,
    CKVT_ENTRY_DIMS = 16,
    CKVT_ENTRY_OFFSET = 56,
    CKVT_ENTRY_STORED = 64,
    CKVT_ENTRY_SHA256 = 72,
    CKVT_ENTRY_CRC = 104
};
_Static_assert(CKVT_AT_HEADER_CRC + 4 == CKVT_HEADER_BYTES, "header ends with its CRC");
_Static_assert(CKVT_ENTRY_CRC + 8 == CKVT_ENTRY_BYTES,
               "entry ends with its CRC and a reserved word");

enum { CKVT_RAW = 0, CKVT_ZSTD = 1 };
enum { CKVT_RANK_MAX = 5 };
/* The type of a section's numbers. CKVT_BYTES is a JSON text. */
typedef enum ckvt_type {
    CKVT_BYTES,
    CKVT_F32,
    CKVT_F64,
    CKVT_U32,
    CKVT_U64,
    CKVT_F16, /* float in memory, rounded to 16 bits in the file */
    CKVT_TYPE_COUNT
} ckvt_type;
size_t ckvt_type_bytes(ckvt_type type); /* the bytes of a number in the file */

/* The sections that this version knows, in the order in which they are written. */
typedef enum ckvt_section {
    CKVT_SHAPE,
    CKVT_BUDGET,
    CKVT_GRIDHEAD,
    CKVT_GRIDGATE,
    CKVT_WEIGHT,
    CKVT_TAU,
    CKVT_EDGEENT,
    CKVT_EDGEPPL,
    CKVT_META,
    CKVT_SHARE,
    CKVT_LAYER_SHARE,
    CKVT_LENGTH_SHARE,
    CKVT_C_MIN,
    CKVT_SCORE,
    CKVT_THETA,
    CKVT_MASS,
    CKVT_BANK,
    CKVT_RIDGE,
    CKVT_BANK_USE,
    CKVT_BYTE_SHARE,
    CKVT_HELD,
    CKVT_QHEAD,
    CKVT_QGATE,
    CKVT_NHEAD,
    CKVT_NGATE,
    CKVT_MHEAD,
    CKVT_MGATE,
    CKVT_LGATE,
    CKVT_SHARE_HEAD,
    CKVT_SHARE_GATE,
    CKVT_SHARE_INTERVAL,
    CKVT_SIGNATURE,
    CKVT_PROV,
    CKVT_XFER,
    CKVT_MODEL,
    CKVT_SECTION_COUNT
} ckvt_section;
enum {
    /* the sections before it are META and those that the policy library reads, all stored raw */
    CKVT_EVIDENCE_BEGIN = CKVT_QHEAD,
    CKVT_EVIDENCE_END = CKVT_LGATE + 1,
    /* the arrays from CKVT_EVIDENCE_BEGIN to here belong to the table_file, not to its
     * ckvc_table */
    CKVT_OWNED_END = CKVT_SIGNATURE + 1
};

/* What a section must look like in a file with this table's shape. */
typedef struct ckvt_spec {
    const char *name;
    ckvt_type type;
    uint16_t rank;
    uint64_t dims[CKVT_RANK_MAX]; /* 0 for a JSON section, which may have any length */
    size_t bytes;                 /* the type's size times the dimensions; 0 for JSON */
    bool raw_only;
} ckvt_spec;
/* Writes what each section must look like for the table `t`. Returns false when a product
 * overflows, as the evidence of a table at the format's limits can. */
bool ckvt_specs(const ckvc_table *t, ckvt_spec out[CKVT_SECTION_COUNT]);
const char *ckvt_name(ckvt_section s);
ckvt_section ckvt_named(const char *name); /* CKVT_SECTION_COUNT when the name is unknown */
/* ckvt_slot returns where the pointer to a section's numbers stands, ckvt_values the numbers
 * themselves, NULL when the section is absent. Both return NULL for SHAPE and JSON sections, which
 * have no such pointer. */
void **ckvt_slot(struct table_file *t, ckvt_section s);
void *ckvt_values(const struct table_file *t, ckvt_section s);
/* Returns where the pointer to a JSON section's value stands, or NULL for all other sections. */
json_t **ckvt_json(struct table_file *t, ckvt_section s);
void ckvt_shape(const ckvc_table *t, uint32_t out[CKVC_TABLE_SHAPE]); /* writes SHAPE's numbers */

/* Checks evidence, bootstrap shares and intervals, and the signature: nothing is NaN, Q is -inf
 * exactly where nothing was logged, shares of refits are in [0, 1], and intervals are ordered and
 * stand only beside shares. The message of a breach (CKVC_E_DATA) begins with the section's
 * name. */
ckvc_status ckvt_check_evidence(const struct table_file *t, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes META's "shape" from the table. Returns a new reference. */
json_t *ckvt_shape_json(const ckvc_table *t);
#define CKVT_SCHEMA "ckvc-table-1"
/* Tells whether META's alpha_kind and keep_window, where they are present, are those of SHAPE. */
bool ckvt_rule_agrees(const struct table_file *t);
/* Returns the operator that META's "probe" names. An operator that has such a name leaves out a
 * part of the paper's; any other name, and NULL, gives the paper's. */
ckvc_operator ckvt_probe_operator(const char *probe);

/* Computes the content id over a directory of n entries: over the critical ones, whose names begin
 * in upper case. */
void ckvt_content_id(const uint8_t *directory, size_t n, uint8_t digest[CKVC_SHA256_BYTES]);
