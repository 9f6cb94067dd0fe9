/* Makes a table's bank from logged query vectors (formats/shard/shard.md, /query): reference
 * queries of other prompts, by which kept entries are fitted (docs/method.md, sections 4 and 9).
 *
 * A query of the bank is a logged position, the same one for all layers and heads. Positions are
 * taken in rounds: first one of each prompt, then a second one of each, and so on. A prompt's place
 * in the rounds, and which of its positions comes first, are drawn by the seed and the hash of its
 * id and tokens alone, so that neither files nor their order matter. Where the bank is of prompts
 * and continuations, it takes one position of each in turn; when one has no more, the rest is of
 * the other. The first n queries of a bank are thus a bank of n queries. */
#pragma once

#include "budgets/budgets.h"
#include "formats/shard/shard.h"

/* A logged position that the bank would take if no more prompts came. */
typedef struct bank_row {
    uint64_t round, place, hash; /* its round; its prompt's place in the rounds, and its hash */
    uint16_t *vectors;           /* [L][H][D] float16, owned */
} bank_row;

typedef struct bank_records {
    bank_options o;                       /* set by the caller before the first prompt */
    size_t memory_max;                    /* likewise: the most bytes of rows */
    uint32_t n_layers, n_heads, head_dim; /* L, H, D; 0: no query was read yet */
    bank_row *rows[SHARD_PARTS]; /* [o.n + 1] in the order in which they are taken, or NULL */
    size_t n[SHARD_PARTS];
    size_t n_prompts, n_rows; /* how many prompts have queries in the bank's parts; their queries */
} bank_records;

/* Adds the queries of prompt p of a demand shard that, as fit_match found, belongs to those before.
 * `hash` is that of the prompt's id and tokens, and `where` names the shard in messages. The status
 * is CKVC_E_MEMORY where the bank's rows take more than r->memory_max bytes, and CKVC_E_MISMATCH
 * where heads have another length than before. */
ckvc_status bank_records_add(bank_records *r, const shard *s, size_t p, uint64_t hash,
                             const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives a table with shares the bank, of o.n queries or of as many as there are, with o.ridge in
 * all layers under all budgets. Does nothing where there are no queries. */
void bank_records_table(const bank_records *r, ckvc_table *t, fitted_bank *out);
/* Releases what the records own; it may be called of records that hold nothing. */
void bank_records_fini(bank_records *r);
