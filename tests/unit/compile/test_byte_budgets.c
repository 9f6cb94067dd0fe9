/* Ways to spend a share of the bytes: which are tried of which heads, and what a table says then.
 */
#include "compile/byte_budgets.h"
#include "lib/base/json.h"
#include "lib/policy/policy_parts.h"
#include "tests/unit/unit.h"

static const double some[] = {0.05, 0.3};

static byte_ask ask_of(int32_t head_dim) {
    return (byte_ask){.shares = some, .n = 2, .head_dim = head_dim, .shortest = 1000, .least = 9};
}

/* Writes "SHARE:FORMATS " of each budget, and checks that its entries take as many bytes, counted
 * from the bytes of one entry. */
static void list(const byte_ask *ask, char *out) {
    byte_budgets o;
    char name[CACHE_FORMATS_TEXT];
    OK(byte_budgets_make(ask, &o, &err));
    *out = 0;
    for (uint32_t b = 0; b < o.n; b++) {
        sprintf(out + strlen(out), "%g:%s ", o.share[b], cache_formats_name(o.held[b], name));
        const double entry = (double)cache_entry_bytes(o.held[b], ask->head_dim),
                     in_16_bits = 2 * 2.0 * ask->head_dim;
        assert_true(fabs(o.budget[b] * entry / in_16_bits - o.share[b]) < 1e-12);
        assert_true(o.budget[b] < 1);
    }
}

TEST(what_is_tried) {
    char text[512];
    byte_ask ask = ask_of(128);
    list(&ask, text); /* 0.3 holds the whole cache in 4 bits */
    assert_string_equal(text, "0.05:q8_0/q4_0+rot 0.05:q8_0 0.05:q4_0+mean+rot/q4_0+rot "
                              "0.05:q4_0+rot 0.05:f16 0.3:q8_0/q4_0+rot 0.3:q8_0 0.3:f16 ");
    ask = ask_of(96); /* blocks, but no rotation */
    list(&ask, text);
    assert_string_equal(text, "0.05:q8_0/q4_0 0.05:q8_0 0.05:q4_0+mean/q4_0 0.05:q4_0 0.05:f16 "
                              "0.3:q8_0/q4_0 0.3:q8_0 0.3:f16 ");
    ask = ask_of(80); /* no blocks */
    list(&ask, text);
    assert_string_equal(text, "0.05:fp8 0.05:f16 0.3:fp8 0.3:f16 ");
    ask = ask_of(64);
    ask.first = true;
    list(&ask, text);
    assert_string_equal(text, "0.05:q8_0/q4_0+rot 0.3:q8_0/q4_0+rot ");
    ask.biased = true;
    list(&ask, text);
    assert_string_equal(text, "0.05:q4_0+mean+rot/q4_0+rot 0.3:q8_0/q4_0+rot ");
    ask.first = false;
    list(&ask, text);
    assert_string_equal(text, "0.05:q4_0+mean+rot/q4_0+rot 0.05:q8_0/q4_0+rot 0.05:q8_0 "
                              "0.05:q4_0+rot 0.05:f16 0.3:q8_0/q4_0+rot 0.3:q8_0 0.3:f16 ");
    ask.biased = false;
    const cache_formats only = {CACHE_FP8, CACHE_Q4_0};
    ask.only = &only;
    list(&ask, text);
    assert_string_equal(text, "0.05:fp8/q4_0 0.3:fp8/q4_0 ");
    ask.only = NULL;
    ask.shortest = 160; /* an eighth of it or less is too few in 16 bits: 8 of 160 */
    list(&ask, text);
    assert_string_equal(text, "0.05:q8_0/q4_0+rot 0.05:q8_0 0.05:q4_0+mean+rot/q4_0+rot "
                              "0.05:q4_0+rot 0.3:q8_0/q4_0+rot 0.3:q8_0 0.3:f16 ");
}

TEST(what_is_refused) {
    byte_budgets o;
    byte_ask ask = ask_of(64);
    static const double whole[] = {1}, both[] = {0.17, 0.32}, nearly[] = {0.99};
    ask.shortest = 40;
    SAYS(byte_budgets_make(&ask, &o, &err), CKVC_E_USAGE,
         "--bytes 0.05: keeps fewer than 9 of the 40");
    ask = ask_of(64);
    ask.shares = whole;
    ask.n = 1;
    SAYS(byte_budgets_make(&ask, &o, &err), CKVC_E_USAGE, "--bytes 1: holds the whole cache");
    ask.shares = nearly;
    OK(byte_budgets_make(&ask, &o, &err));
    assert_true(o.n == 1 && o.held->keys == CACHE_F16);
    ask.shares = both;
    ask.n = 2;
    SAYS(byte_budgets_make(&ask, &o, &err), CKVC_E_USAGE,
         "0.17 and 0.32 are both 0.32 of the entries");
    const cache_formats only = {CACHE_Q8_0, CACHE_Q8_0};
    ask = ask_of(48);
    ask.only = &only;
    SAYS(byte_budgets_make(&ask, &o, &err), CKVC_E_USAGE, "heads of 48 numbers");
}

/* A table of one layer and head with the eight budgets of 0.05 and 0.3, whose numbers its shares
 * say. */
static table_file *table_of(const byte_budgets *o) {
    ckvc_table *t = ckvc_table_create(1, 1, 1, 1, o->n, 1, 1);
    assert_int_equal(ckvc_table_add_shares(t, 0), 0);
    for (uint32_t b = 0; b < o->n; b++) {
        t->budgets[b] = o->budget[b];
        t->share[b] = b;
    }
    return table_file_around(t, false);
}

TEST(the_table_says_what_was_chosen) {
    byte_budgets o;
    const byte_ask ask = ask_of(64);
    OK(byte_budgets_make(&ask, &o, &err));
    assert_int_equal(o.n_whole, 6);
    double loss[8] = {0.5, 0.75, 0.25, 1, 1, NAN, NAN, NAN};
    size_t chosen[8] = {1, 1, 0, 1, 1, 1, 1, 1}; /* nothing finite at 0.3: the first way */
    const select_losses s = {.n_budgets = 8, .n = 1, .by_kl = true, .loss = loss, .chosen = chosen};
    CKVC_AUTO(table_file_free_at) table_file *t = table_of(&o);
    json_object_set_new(t->meta, "select", json_object());
    byte_budgets_take(&o, &s, t);
    const ckvc_table *c = t->table;
    assert_int_equal(c->n_budgets, 2);
    assert_true(c->share[0] == 2 && c->share[1] == 5);
    assert_true(c->byte_share[0] == 0.05 && c->byte_share[1] == 0.3);
    assert_true(c->held[0].keys == CACHE_Q4_0_MEAN_ROT && c->held[0].values == CACHE_Q4_0_ROT);
    assert_true(c->held[1].keys == CACHE_Q8_0 && c->held[1].values == CACHE_Q4_0_ROT);
    const json_t *said = json_object_get(json_object_get(t->meta, "select"), "bytes"),
                 *way = json_array_get(said, 2);
    assert_int_equal(json_array_size(said), 8);
    assert_true(json_is_true(json_object_get(way, "chosen")));
    assert_true(json_number_value(json_object_get(way, "kl")) == 0.25);
    assert_true(json_is_null(json_object_get(json_array_get(said, 6), "kl")));
}

RUN_TESTS(NULL, NULL)
