/* From losses under other shares to shares: choices and price by hand, resampling, refusals. */
#include "cql/fit/fit_rewards.h"
#include "tests/unit/unit.h"

/* 2 x 2 heads, B = 20 of T = 100, factors 1/2, 1, 2: 10, 20, 40 entries, costs -1/8, 0, 1/4. */
enum { L = 2, G = 2, UNITS = 4, A = 3, B = 20, T = 100, PROMPTS = 12 };

/* What each head's factors gain, nats per token. */
static const double gains[UNITS][A] = {{-0.3, 0, 0.4}, {-0.05, 0, 0.1}, {-0.01, 0, 0.02}, {0}};

static table_file *new_table(void) {
    table_file *t = table_file_around(ckvc_table_create(L, G, 1, 1, 1, A, 1), false);
    assert_int_equal(ckvc_table_add_shares(t->table, 1), 0);
    t->table->budgets[0] = B;
    t->table->score[0] = (ckvc_score){.kind = CKVC_SCORE_WINDOW, .mode = CKVC_MODE_HEADS};
    for (int u = 0; u < UNITS; u++) { t->table->share[u] = 1; }
    for (int l = 0; l < L; l++) { t->table->layer_share[l] = 1; }
    return t;
}

/* An empty shard of a pass; actions [A]. */
static shard *shard_of(const char *pass, ckvc_side side, double *actions) {
    static double budgets[] = {B};
    shard *s = shard_create();
    shard_header h = {.n_layers = L,
                      .n_heads = G,
                      .n_kv_heads = G,
                      .n_entropy_bins = 1,
                      .n_ppl_bins = 1,
                      .n_budgets = 1,
                      .budgets = budgets,
                      .setting = {.mode = CKVC_MODE_HEADS}};
    snprintf(h.pass, sizeof h.pass, "%s", pass);
    h.side[side] = (struct shard_side){A, actions, NULL};
    shard_header_copy(&s->h, &h);
    return s;
}

/* A shard of share rewards; noise [UNITS]: what a head's gains vary by, up and down in turns. */
static shard *new_shard(uint32_t n, const double *noise) {
    static double factors[] = {0.5, 1, 2};
    shard *s = shard_of("shares", CKVC_SIDE_HEAD, factors);
    for (uint32_t p = 0; p < n; p++) {
        struct shard_prompt row = {.n_tokens = T, .n_continuation = 4};
        snprintf(row.id, sizeof row.id, "p%u", p);
        const size_t at = shard_add_prompt(s, &row);
        for (int i = 0; i < UNITS * A; i++) {
            const double vary = noise && i % A != 1 ? noise[i / A] : 0;
            s->action_entries[at * UNITS * A + (size_t)i] = (uint32_t)(B * factors[i % A]);
            s->action_loss[at * UNITS * A + (size_t)i] =
                2 - gains[i / A][i % A] - (p % 2 ? vary : -vary);
        }
    }
    return s;
}

/* One fit, without conservatism where a test does not say otherwise. */
typedef struct rig {
    fit_options o;
    table_file *t;
    shard *s;
    fit_rewards w;
    fitted_rewards out;
} rig;

static rig rig_of(shard *s, uint32_t replicates) {
    rig r = {.o = fit_defaults(), .t = new_table(), .s = s};
    r.o.cql_alpha = 0;
    r.o.replicates = replicates;
    return r;
}

static void add_all(rig *r) {
    shard_header_copy(&r->w.first, &r->s->h);
    r->w.where = strdup("records");
    for (size_t p = 0; p < r->s->n_prompts; p++) {
        OK(fit_rewards_add(&r->w, r->s, p, p, 1u << 20, "records", &err));
    }
}

static ckvc_status fit(rig *r, ckvc_err *err) {
    return fit_rewards_table(&r->w, &r->o, r->t, &r->out, err);
}

static void finish(rig *r) {
    free(r->out.blocks);
    fit_rewards_fini(&r->w);
    shard_free(r->s);
    table_file_free(r->t);
}

/* Without conservatism Q is the gain. At a price of 0.4 the second head is indifferent between its
 * actions (0.1 - 0.4/4 = 0 = -0.05 + 0.4/8), and stays; the first doubles, the others halve: what
 * one takes two give. At any lower price the second doubles too, and there is not enough. */
TEST(choices_under_one_price) {
    CKVC_AUTO(finish) rig r = rig_of(new_shard(PROMPTS + 1, NULL), 40);
    r.s->prompts[PROMPTS].n_tokens = B; /* the budget keeps all of it, whatever is done */
    for (int i = 0; i < UNITS * A; i++) { r.s->action_entries[PROMPTS * UNITS * A + i] = B; }
    add_all(&r);
    OK(fit(&r, &err));
    static const double want[UNITS] = {2, 1, 0.5, 0.5};
    for (int u = 0; u < UNITS; u++) {
        assert_float_equal(r.t->table->share[u], want[u], 1e-15);
        assert_float_equal(r.t->share_interval[2 * u], want[u], 1e-15); /* all prompts are alike */
        assert_float_equal(r.t->share_interval[2 * u + 1], want[u], 1e-15);
    }
    assert_true(r.t->table->layer_share[0] == 1);
    const rewards_block *b = &r.out.blocks[0];
    assert_float_equal(b->price, 0.4, 1e-7); /* ties end 1e-9 of a deviation before it */
    assert_int_equal(b->supported, UNITS);
    assert_int_equal(b->changed, 3);
    assert_int_equal(b->undecided, 1);
    assert_int_equal(b->n_prompts, PROMPTS);
    assert_int_equal(r.out.n_records, PROMPTS * UNITS * A);
}

/* Under --shrink the first head's gain stays, which is alike in all prompts. The second's varies,
 * and with it the price, from which alone the third would gain by halving: both go back. The last,
 * which no prompt tried, keeps its share. */
TEST(shrunk_and_untried) {
    static const double noise[UNITS] = {0.01, 0.1, 0, 0};
    CKVC_AUTO(finish) rig r = rig_of(new_shard(PROMPTS, noise), 200);
    r.o.shrink = true;
    for (size_t p = 0; p < PROMPTS; p++) { /* the last head */
        uint32_t *entries = r.s->action_entries + (p * UNITS + UNITS - 1) * A;
        entries[0] = entries[2] = 0;
    }
    add_all(&r);
    OK(fit(&r, &err));
    for (int u = 0; u < UNITS; u++) {
        assert_float_equal(r.t->table->share[u], u ? 0.8 : 1.6, 1e-15); /* 2, 1, 1, 1 */
    }
    assert_int_equal(r.out.blocks[0].shrunk, 2);
    assert_int_equal(r.out.blocks[0].supported, UNITS - 1);
}

/* No replicates, no intervals; and a loss beyond any is refused. */
TEST(without_replicates) {
    CKVC_AUTO(finish) rig r = rig_of(new_shard(PROMPTS, NULL), fit_defaults().replicates);
    r.t->share_interval = calloc(2 * UNITS, sizeof(double)); /* of the shares before */
    add_all(&r);
    OK(fit(&r, &err));
    assert_null(r.t->share_interval);
    r.s->action_loss[0] = 1e300;
    FAILS(fit_rewards_add(&r.w, r.s, 0, 0, 1u << 20, "records", &err), CKVC_E_DATA);
}

/* Thresholds 0, 1, 2 of a layer leave 40, 30, 20 of its 40 entries: costs 0, -1/8, -1/4 of 80. The
 * first layer loses 0.02 and 0.2 in the cell of low risk, in that of high risk nothing; the second
 * more than an entry is worth, 0.4 for all 80, under any threshold. */
static shard *new_cuts(void) {
    static double thresholds[] = {0, 1, 2};
    static const double lost[2][L][A] = {{{0, 0.02, 0.2}, {0, 0.06, 0.3}}, {{0}, {0, 0.06, 0.3}}};
    shard *s = shard_of("cuts", CKVC_SIDE_GATE, thresholds);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        struct shard_prompt row = {
            .n_tokens = T, .n_continuation = 4, .r_struct = p % 2, .r_sem = 1};
        snprintf(row.id, sizeof row.id, "p%u", p);
        const size_t at = shard_add_prompt(s, &row) * L * A;
        for (size_t i = 0; i < L * A; i++) {
            s->action_entries[at + i] = (uint32_t)(G * B - 10 * (i % A));
            s->action_loss[at + i] = 1 + lost[p % 2][i / A][i % A];
        }
    }
    return s;
}

TEST(thresholds_at_the_shares_price) {
    CKVC_AUTO(finish) rig r = rig_of(new_cuts(), 40);
    r.o.n_entropy_bins = 2;
    r.t->table->op = CKVC_OPERATOR_NO_THRESHOLD;
    table_file in = {.meta = json_object()};
    r.o.incoming = &in;
    add_all(&r);
    SAYS(fit(&r, &err), CKVC_E_DATA, "not from rewards");
    json_decref(in.meta);
    free(r.out.blocks);
    in.meta = json_pack("{s:{s:{s:[{s:f}]}}}", "diagnostics", "rewards", "by_budget", "price", 0.4);
    OK(fit(&r, &err));
    const ckvc_table *c = r.t->table;
    assert_true(c->relative && c->n_entropy_bins == 2 && c->n_ppl_bins == 1);
    assert_true(c->edges_entropy[0] == 0.5 && c->share[0] == 1 && c->share[3] == 1);
    /* low risk: 0.05 is worth more than 0.02; high: 0.1 costs nothing; 0.06 and 0.3 too much */
    static const double want[L][2] = {{1, 2}, {0, 0}};
    for (uint32_t l = 0; l < L; l++) {
        for (uint32_t e = 0; e < 2; e++) {
            assert_true(ckvc_table_relative(c, l, e, 0, 0) == want[l][e]);
        }
    }
    assert_true(r.out.side == CKVC_SIDE_GATE && r.out.n_units == 4);
    const rewards_block *b = &r.out.blocks[0];
    assert_float_equal(b->price, 0.4, 1e-15);
    assert_true(b->changed == 2 && b->supported == 4 && b->undecided == 2);
    json_decref(in.meta);
}

static void refused(double share, ckvc_mode mode, double factor, ckvc_status status,
                    const char *words) {
    CKVC_AUTO(finish) rig r = rig_of(new_shard(2, NULL), 0);
    r.s->h.side[CKVC_SIDE_HEAD].actions[1] = factor;
    r.t->table->share[0] = share;
    r.t->table->score[0].mode = mode;
    add_all(&r);
    SAYS(fit(&r, &err), status, words);
}

TEST(of_other_shares) {
    refused(1.5, CKVC_MODE_HEADS, 1, CKVC_E_MISMATCH, "other shares");
    refused(1, CKVC_MODE_LAYERS, 1, CKVC_E_MISMATCH, "mode heads");
    refused(1, CKVC_MODE_HEADS, 1.1, CKVC_E_DATA, "must hold 1");
}

RUN_TESTS(NULL, NULL)
