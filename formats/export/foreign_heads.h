/* What other programs' formats share: whose heads their rows are, and a table made of them. */
#pragma once

#include "formats/export/export.h"
#include "lib/model/model_spec.h"

/* --model: whose layers and heads rows are. */
typedef struct model_heads {
    uint32_t n_layers, n_query_heads, n_kv_heads;
    char family[sizeof((model_shape *)0)->family];
    const char *path; /* borrowed; NULL: not known */
} model_heads;

ckvc_status model_heads_read(const char *path, model_heads *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Rows of L layers and so many query heads (else KV heads) against the model, where it is known. */
ckvc_status model_heads_check(const model_heads *m, const char *path, uint64_t n_layers,
                              uint64_t n_heads, bool query, ckvc_err *err) CKVC_MUST_CHECK;
/* CKVC_E_DATA where a table's rows as query heads are more numbers than any model has: how many
 * query heads share a KV head is a file's word alone. */
ckvc_status expanded_check(const ckvc_table *t, const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* "3 KV heads as 9 query heads ..." where a table's rows are KV heads that several query heads
 * share. */
void note_expanded(ckvc_buffer *note, const ckvc_table *t);

/* The table's file; META says what it was made from. Takes the table; CKVC_E_DATA, naming `path`,
 * where it breaks a rule of ckvc_table_check. */
ckvc_status table_of_import(ckvc_table *table, const char *path, const char *format,
                            const model_heads *m, table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
