/* See bank.h. */
#include "budgets/bank.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"

#define PLACE_STAGE 0x626b0000u /* stages of the random numbers; to the second a part is added */
#define ORDER_STAGE 0x626b0001u
#define SPAN        96u /* positions behind the prompt over which a budget's queries are spread */

static bool takes(const bank_records *r, uint32_t part) {
    return r->o.of == BANK_OF_BOTH || (uint32_t)r->o.of == part;
}

static size_t row_values(const bank_records *r) {
    return (size_t)r->n_layers * r->n_heads * r->head_dim;
}

/* Checks the shape of a shard's vectors against the shards before, and makes room for a bank of
 * them. */
static ckvc_status take_shape(bank_records *r, const shard_header *h, const char *where,
                              ckvc_err *err) {
    const uint32_t D = shard_head_dim(h);
    CKVC_FAIL_IF(r->head_dim && D != r->head_dim, err, CKVC_E_MISMATCH,
                 "%s: its query vectors have %u numbers, those before have %u; records of one fit "
                 "must share it: fit them apart",
                 where, D, r->head_dim);
    if (r->head_dim) { return CKVC_OK; }
    r->n_layers = h->n_layers;
    r->n_heads = h->n_heads;
    r->head_dim = D;
    const size_t bytes = row_values(r) * sizeof(uint16_t);
    CKVC_FAIL_IF(
        r->o.n > r->memory_max / SHARD_PARTS / bytes, err, CKVC_E_MEMORY,
        "%s: the bank needs %d times %u query vectors of %zu bytes, which --memory does not "
        "hold; give a smaller --bank",
        where, SHARD_PARTS, r->o.n, bytes);
    for (uint32_t part = 0; part < SHARD_PARTS; part++) {
        r->rows[part] = ckvc_calloc((size_t)r->o.n + 1, sizeof **r->rows);
    }
    return CKVC_OK;
}

static bool comes_before(const bank_row *a, const bank_row *b) {
    if (a->round != b->round) { return a->round < b->round; }
    return a->place != b->place ? a->place < b->place : a->hash < b->hash;
}

/* Puts a row into its place among those of its part, and drops the last one beyond o.n. The vectors
 * are copied where the row stays. */
static void put_row(bank_records *r, uint32_t part, bank_row row, const uint16_t *vectors) {
    bank_row *rows = r->rows[part];
    size_t i = r->n[part]++;
    for (; i > 0 && comes_before(&row, &rows[i - 1]); i--) { rows[i] = rows[i - 1]; }
    row.vectors = i < r->o.n ? ckvc_copy(vectors, row_values(r), sizeof *vectors) : NULL;
    rows[i] = row;
    if (r->n[part] > r->o.n) { free(rows[--r->n[part]].vectors); }
}

/* Adds a prompt's n rows of a part, whose vectors stand one behind the other. */
static void add_part(bank_records *r, uint32_t part, uint64_t hash, const uint16_t *vectors,
                     uint32_t n) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, r->o.seed, hash, PLACE_STAGE);
    const uint64_t place = ckvc_rng_u64(&rng);
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(n, sizeof *order);
    for (uint32_t i = 0; i < n; i++) { order[i] = i; }
    ckvc_rng_init(&rng, r->o.seed, hash, ORDER_STAGE + part);
    ckvc_rng_shuffle_u32(&rng, order, n);
    for (uint32_t i = 0; i < n; i++) {
        /* Continuations come in the reverse order of the prompts, so that few prompts give two of a
         * bank's queries while others give none. */
        const bank_row row = {i, part == SHARD_CONTINUATION ? ~place : place, hash, NULL};
        put_row(r, part, row, vectors + order[i] * row_values(r));
    }
}

/* Returns the index of the first query that is not of a prompt before p. Queries stand in the order
 * of their prompts. */
static size_t first_query(const shard *s, size_t p) {
    size_t lo = 0, hi = s->n_queries;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->queries[mid].prompt < p) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

ckvc_status bank_records_add(bank_records *r, const shard *s, size_t p, uint64_t hash,
                             const char *where, ckvc_err *err) {
    size_t i = first_query(s, p), n_rows = 0;
    if (r->o.n == 0 || i == s->n_queries || s->queries[i].prompt != p) { return CKVC_OK; }
    CKVC_TRY(take_shape(r, &s->h, where, err));
    for (uint32_t part = 0; part < SHARD_PARTS; part++) {
        const size_t first = i;
        while (i < s->n_queries && s->queries[i].prompt == p && s->queries[i].part == part) { i++; }
        if (!takes(r, part)) { continue; }
        add_part(r, part, hash, s->query_vectors + first * row_values(r), (uint32_t)(i - first));
        n_rows += i - first;
    }
    r->n_rows += n_rows;
    r->n_prompts += n_rows > 0;
    return CKVC_OK;
}

/* Returns the row that the bank takes as query i. */
static const bank_row *row_of(const bank_records *r, size_t i) {
    const size_t *n = r->n, least = n[0] < n[1] ? n[0] : n[1];
    if (i < 2 * least) { return &r->rows[i % 2][i / 2]; }
    return &r->rows[n[0] > n[1] ? SHARD_PROMPT : SHARD_CONTINUATION][i - least];
}

void bank_records_table(const bank_records *r, ckvc_table *t, fitted_bank *out) {
    const size_t all = r->n[SHARD_PROMPT] + r->n[SHARD_CONTINUATION], D = r->head_dim;
    const uint32_t n = all < r->o.n ? (uint32_t)all : r->o.n;
    if (n == 0) { return; }
    *out = (fitted_bank){n, r->o.of, r->n_prompts, r->n_rows};
    if (ckvc_table_add_bank(t, n, r->head_dim)) {
        ckvc_out_of_memory(n * row_values(r), sizeof(float));
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t *from = row_of(r, i)->vectors;
        for (uint32_t head = 0; head < r->n_layers * r->n_heads; head++, from += D) {
            float *to = t->bank + ckvc_bank_index(t, head / r->n_heads, head % r->n_heads, i);
            for (size_t k = 0; k < D; k++) { to[k] = ckvc_f32_of_f16(from[k]); }
        }
    }
    const double ridge = r->o.ridge > 0 ? r->o.ridge : 0;
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        t->bank_use[b] = (ckvc_bank_use){n, SPAN};
        for (uint32_t l = 0; l < t->n_layers; l++) { t->ridge[l * t->n_budgets + b] = ridge; }
    }
}

void bank_records_fini(bank_records *r) {
    for (uint32_t part = 0; part < SHARD_PARTS; part++) {
        for (size_t i = 0; i < r->n[part]; i++) { free(r->rows[part][i].vectors); }
        free(r->rows[part]);
    }
    *r = (bank_records){0};
}
