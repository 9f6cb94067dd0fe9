/* Which logged positions become a bank: against a plain sort, whatever the shards; its prefixes;
 * and what is refused. */
#include "budgets/bank.h"

#include "lib/base/bytes.h"
#include "tests/unit/shard_fixture.h"

enum { L = 2, H = 4, D = 2, WIDTH = L * H * D, PROMPTS = 7, MOST = PROMPTS * 2 * 3 };

/* A shard of prompts first ... first + n - 1, in this order or in the other. Prompt i has i % 3 + 1
 * queries of the prompt and, unless it is the fourth, as many of its continuation. The first number
 * of a vector says which prompt, part and query it is of. */
static shard *logged(uint32_t first, uint32_t n, bool turned) {
    shard *s = fixture_shard("demand", 0, 0);
    fixture_features(&s->h);
    s->h.setting.queries = 3;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = first + (turned ? n - 1 - i : i), each = number % 3 + 1;
        fixture_prompt(s, number, 0);
        for (uint32_t k = 0; k < 2 * each; k++) {
            const uint32_t part = k / each, of = k % each, T = s->prompts[i].n_tokens;
            if (number == 3 && part) { continue; }
            const struct shard_query q = {i, (uint8_t)part, part ? T + of : of};
            const size_t row = shard_add_query(s, &q);
            for (uint32_t v = 0; v < WIDTH; v++) {
                s->query_vectors[row * WIDTH + v] =
                    ckvc_f16_of_f32((float)(number * 100 + part * 10 + of) + (float)v / 64);
            }
        }
    }
    OK(shard_rows_check(s, "here", &err));
    return s;
}

static uint64_t hash_of(const struct shard_prompt *p) { return p->token_hash; }

static void add(bank_records *r, shard *s) {
    for (size_t p = 0; p < s->n_prompts; p++) {
        OK(bank_records_add(r, s, p, hash_of(&s->prompts[p]), "here", &err));
    }
    shard_free(s);
}

/* Makes a bank of all prompts; returns the table, of 3 budgets. */
static ckvc_table *bank_of_all(bank_options o, bool turned, fitted_bank *out) {
    bank_records r = {.o = o, .memory_max = 1 << 20};
    add(&r, turned ? logged(3, PROMPTS - 3, true) : logged(0, PROMPTS, false));
    if (turned) { add(&r, logged(0, 3, false)); }
    ckvc_table *t = ckvc_table_create(L, 2, 1, 1, 3, 3, 3);
    t->n_query_heads = H;
    assert_int_equal(ckvc_table_add_shares(t, 1), 0);
    *out = (fitted_bank){0};
    bank_records_table(&r, t, out);
    bank_records_fini(&r);
    return t;
}

/* Which prompt, part and query the bank's query i is of; and that it is so in every layer and head.
 */
static uint32_t name_of(const ckvc_table *t, uint32_t i) {
    const float name = t->bank[ckvc_bank_index(t, 0, 0, i)];
    for (uint32_t k = 0; k < L * H; k++) {
        const float *q = t->bank + ckvc_bank_index(t, k / H, k % H, i);
        for (uint32_t d = 0; d < D; d++) { /* numbers up to 612 keep steps of 1/2 */
            assert_true(fabsf(q[d] - name - (float)(k * D + d) / 64) <= 0.5f);
        }
    }
    return (uint32_t)name;
}

/* What a bank's order follows from, once more: everything of a part in one list, then sorted. */
typedef struct naive {
    uint64_t round, place;
    uint32_t name;
} naive;

static int by_round(const void *a, const void *b) {
    const naive *x = a, *y = b;
    if (x->round != y->round) { return x->round < y->round ? -1 : 1; }
    return (x->place > y->place) - (x->place < y->place);
}

static uint32_t naive_part(uint32_t part, uint64_t seed, naive *out) {
    CKVC_AUTO(shard_free_at) shard *s = logged(0, PROMPTS, false);
    uint32_t n = 0;
    for (uint32_t p = 0; p < PROMPTS; p++) {
        const uint64_t hash = hash_of(&s->prompts[p]);
        const uint32_t each = p == 3 && part ? 0 : p % 3 + 1;
        uint32_t order[3] = {0, 1, 2};
        ckvc_rng rng;
        ckvc_rng_init(&rng, seed, hash, 0x626b0000u);
        const uint64_t place = ckvc_rng_u64(&rng);
        ckvc_rng_init(&rng, seed, hash, 0x626b0001u + part);
        ckvc_rng_shuffle_u32(&rng, order, each);
        for (uint32_t i = 0; i < each; i++) {
            out[n++] =
                (naive){i, part ? UINT64_MAX - place : place, p * 100 + part * 10 + order[i]};
        }
    }
    qsort(out, n, sizeof *out, by_round);
    return n;
}

TEST(order) {
    naive want[2][MOST];
    const uint32_t n[2] = {naive_part(0, 5, want[0]), naive_part(1, 5, want[1])};
    assert_true(n[0] == 1 + 2 + 3 + 1 + 2 + 3 + 1 && n[1] == n[0] - 1);
    for (int of = BANK_OF_PROMPT; of <= BANK_OF_BOTH; of++) {
        for (uint32_t b = 1; b <= MOST; b++) {
            fitted_bank found, again;
            const bank_options o = {.n = b, .of = (bank_of)of, .ridge = 0.5, .seed = 5};
            ckvc_table *t = bank_of_all(o, false, &found), *u = bank_of_all(o, true, &again);
            const uint32_t all = of == BANK_OF_BOTH ? n[0] + n[1] : n[of];
            assert_int_equal(found.n, b < all ? b : all);
            assert_true(found.n == t->n_bank && t->bank_dim == D && found.n_rows == all);
            assert_int_equal(found.n_prompts, of == BANK_OF_CONTINUATION ? PROMPTS - 1 : PROMPTS);
            for (uint32_t i = 0; i < found.n; i++) {
                const uint32_t part = of == BANK_OF_BOTH ? i < 2 * n[1] ? i % 2 : 0 : (uint32_t)of;
                const uint32_t at = of != BANK_OF_BOTH ? i : i < 2 * n[1] ? i / 2 : i - n[1];
                assert_int_equal(name_of(t, i), want[part][at].name);
            }
            assert_memory_equal(t->bank, u->bank, sizeof(float) * found.n * WIDTH);
            for (uint32_t k = 0; k < 3; k++) {
                assert_true(t->bank_use[k].n_queries == found.n && t->bank_use[k].span == 96);
                assert_true(t->ridge[k] == 0.5 && t->ridge[3 + k] == 0.5);
            }
            ckvc_table_free(t), ckvc_table_free(u);
        }
    }
}

/* No prompt gives a second query before all have given one, of prompts as of both; another seed
 * draws others. */
TEST(spread) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t n_from[PROMPTS] = {0};
        fitted_bank found;
        ckvc_table *t = bank_of_all((bank_options){6, BANK_OF_BOTH, 0, seed}, false, &found);
        for (uint32_t i = 0; i < 6; i++) { n_from[name_of(t, i) / 100]++; }
        for (uint32_t p = 0; p < PROMPTS; p++) { assert_true(n_from[p] <= 1); }
        ckvc_table_free(t);
    }
    fitted_bank found;
    ckvc_table *t = bank_of_all((bank_options){7, BANK_OF_PROMPT, 0, 1}, false, &found),
               *u = bank_of_all((bank_options){7, BANK_OF_PROMPT, 0, 2}, false, &found);
    uint32_t n_from[PROMPTS] = {0};
    for (uint32_t i = 0; i < 7; i++) { n_from[name_of(t, i) / 100]++; }
    for (uint32_t p = 0; p < PROMPTS; p++) { assert_int_equal(n_from[p], 1); }
    assert_memory_not_equal(t->bank, u->bank, sizeof(float) * 7 * WIDTH);
    ckvc_table_free(t), ckvc_table_free(u);
}

TEST(nothing) {
    fitted_bank found;
    ckvc_table *t = bank_of_all((bank_options){.n = 0}, false, &found);
    assert_true(found.n == 0 && !t->bank);
    ckvc_table_free(t);
    /* shards that log none */
    bank_records r = {.o = {.n = 8, .of = BANK_OF_BOTH}, .memory_max = 1 << 20};
    add(&r, fixture_one_pass(3));
    assert_int_equal(r.head_dim, 0);
    bank_records_fini(&r);
}

TEST(refusals) {
    CKVC_AUTO(shard_free_at) shard *s = logged(0, 2, false);
    bank_records r = {.o = {.n = 8, .of = BANK_OF_BOTH}, .memory_max = 2 * 8 * WIDTH * 2};
    OK(bank_records_add(&r, s, 0, 1, "here", &err));
    s->h.setting.n_features += 2;
    SAYS(bank_records_add(&r, s, 1, 2, "there", &err), CKVC_E_MISMATCH,
         "there: its query vectors have 4 numbers, those before have 2");
    bank_records_fini(&r);
    s->h.setting.n_features -= 2;
    r = (bank_records){.o = {.n = 8, .of = BANK_OF_BOTH}, .memory_max = 2 * 8 * WIDTH * 2 - 1};
    SAYS(bank_records_add(&r, s, 0, 1, "here", &err), CKVC_E_MEMORY,
         "here: the bank needs 2 times 8 query vectors of 32 bytes, which --memory does not hold; "
         "give a smaller --bank");
    bank_records_fini(&r);
}

RUN_TESTS(NULL, NULL)
