/* From shards to tables, in a made-up world whose best actions are known.
 *
 * A prompt has a large effect of its own (0.5 nats) on every reward; an action's true effect is a
 * parabola around the state's best action; each record carries noise. The fit must find the best
 * actions from advantages, say what it did not see, and give the same table however the records are
 * cut into shards. */
#include "lib/stats/rank.h"
#include "formats/run/run_dir.h"
#include "lib/base/json.h"
#include "tests/unit/cql/cql_fixture.h"
#include "tests/unit/fit_fixture.h"
#include "tests/unit/shard_fixture.h"

enum { L = 3, G = 2, E = 2, P = 2, NB = 2, A_H = CKVC_HEAD_ACTIONS, A_G = CKVC_GATE_ACTIONS };

typedef struct world {
    double noise;     /* standard deviation of a record, nats */
    double effect;    /* nats lost one grid step away from the best action */
    double penalty;   /* nats per step below the gate's top threshold */
    uint32_t repeats; /* so many random actions per prompt and state instead of the whole grid */
    int skip_layer;   /* no records of this layer; -1: none */
    bool skip_cell;   /* no prompts in cell (1, 1): they are in (1, 0) */
    bool head, gate;  /* sides with records */
} world;

static const world plain = {
    .noise = 0.002, .effect = 0.001, .skip_layer = -1, .head = true, .gate = true};

static char last_warning[512];

static void keep_warning(const char *line) {
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static int make_folder(void **state) {
    ckvc_warn_set(keep_warning);
    return temp_folder_make(state);
}

/* ---- the truth ---- */

static int best_head(int l, int g, int b) { return (7 * l + 11 * g + 5 * b + 3) % A_H; }

static int best_gate(int l, int e, int p, int b) {
    return (5 * l + 9 * e + 3 * p + 13 * b + 2) % A_G;
}

static double value(const world *w, int a, int best) {
    return -w->effect * (a - best) * (a - best);
}

/* ---- shards of this world ---- */

static shard *new_shard(void) {
    shard *s = shard_create();
    shard_header *h = &s->h;
    fixture_header(h, "both");
    h->n_layers = L;
    h->n_budgets = NB;
    h->n_entropy_bins = E;
    h->budgets[0] = 64.0;
    h->budgets[1] = 0.25;
    h->edges_entropy[0] = 5.0;
    h->edges_ppl[0] = 9.0;
    h->setting.window = 16;
    h->setting.continuation = 32;
    h->setting.keep_window = 0;
    for (int i = 0; i < L * G * NB; ++i) { h->side[CKVC_SIDE_HEAD].start[i] = 1.0f; }
    for (int i = 0; i < L * E * P * NB; ++i) { h->side[CKVC_SIDE_GATE].start[i] = 0.9f; }
    return s;
}

typedef struct logger {
    const world *w;
    shard *s;
    uint32_t prompt;
    double loss_full, base_loss; /* the base loss carries the prompt's effect */
    ckvc_rng rng;
} logger;

static void log_record(logger *g, ckvc_side side, int l, int head, int b, int a, int best) {
    int stay = side == CKVC_SIDE_HEAD ? CKVC_HEAD_NEUTRAL : CKVC_GATE_START;
    /* What keeps the incoming action keeps the set: no change of loss and no noise. */
    double gain =
        a == stay ? 0.0
                  : value(g->w, a, best) - value(g->w, stay, best) + g->w->noise * gauss(&g->rng);
    const double price = side == CKVC_SIDE_GATE ? g->w->penalty : 0.0;
    struct shard_record r = {.prompt = g->prompt,
                             .side = (uint8_t)side,
                             .layer = (uint16_t)l,
                             .head = (uint16_t)head,
                             .budget = (uint16_t)b,
                             .action = (uint8_t)a,
                             .loss = g->base_loss - gain,
                             .baseline = -(g->base_loss - g->loss_full) - price * (A_G - 1 - stay)};
    r.reward = -(r.loss - g->loss_full) - price * (A_G - 1 - a);
    shard_add_record(g->s, &r);
}

static void log_state(logger *g, ckvc_side side, int l, int head, int b, int best) {
    int actions = side == CKVC_SIDE_HEAD ? A_H : A_G;
    if (l == g->w->skip_layer) { return; }
    for (int i = 0; i < (g->w->repeats ? (int)g->w->repeats : actions); ++i) {
        const int a = g->w->repeats ? (int)ckvc_rng_below(&g->rng, (uint64_t)actions) : i;
        log_record(g, side, l, head, b, a, best);
    }
}

/* Prompts first ... first+n-1 of the world, each the same in whatever shard it stands. Bins go
 * round. Every tenth is held out. */
static void add_prompts(shard *s, const world *w, int first, int n) {
    for (int i = first; i < first + n; ++i) {
        logger g = {.w = w, .s = s};
        struct shard_prompt p = {.line = (uint32_t)i + 1,
                                 .n_tokens = 256,
                                 .n_continuation = 32,
                                 .token_hash = 1000u + (uint64_t)i};
        snprintf(p.id, sizeof p.id, "prompt-%d", i);
        snprintf(p.split, sizeof p.split, "%s", i % 10 == 9 ? "heldout" : i % 2 ? "odd" : "even");
        p.bin_entropy = (uint16_t)(i / 2 % E);
        p.bin_ppl = w->skip_cell && p.bin_entropy == 1 ? 0 : (uint16_t)(i % P);
        ckvc_rng_init(&g.rng, 77, ckvc_rng_key(p.id), 0);
        p.loss_full = g.loss_full = 3.0 + 0.5 * gauss(&g.rng);
        g.prompt = (uint32_t)shard_add_prompt(s, &p);
        for (int b = 0; b < NB; ++b) {
            g.base_loss = g.loss_full + fabs(0.5 * gauss(&g.rng));
            struct shard_baseline base = {
                .prompt = g.prompt, .budget = (uint16_t)b, .loss = g.base_loss};
            shard_add_baseline(s, &base);
            for (int l = 0; l < L; ++l) {
                for (int h = 0; w->head && h < G; ++h) {
                    log_state(&g, CKVC_SIDE_HEAD, l, h, b, best_head(l, h, b));
                }
                if (w->gate) {
                    log_state(&g, CKVC_SIDE_GATE, l, CKVC_NO_HEAD, b,
                              best_gate(l, p.bin_entropy, p.bin_ppl, b));
                }
            }
        }
    }
}

static const char *world_shard(const world *w, const char *name, int first, int n) {
    shard *s = new_shard();
    add_prompts(s, w, first, n);
    return fit_shard(s, name);
}

static int head_action(const fit_result *r, int l, int g, int b) {
    const ckvc_table *t = r->table->table;
    return ckvc_grid_index(t->head_grid, A_H, t->weight[(l * G + g) * NB + b]);
}

static int gate_action(const fit_result *r, int l, int e, int p, int b) {
    const ckvc_table *t = r->table->table;
    return ckvc_grid_index(t->gate_grid, A_G, t->tau[((l * E + e) * P + p) * NB + b]);
}

/* ---- tests ---- */

/* 54 prompts (6 more held out), the whole grid each: an error of a mean is 0.0003 on the head side
 * against 0.001 a step, twice that on the gate side, whose cells share the prompts. */
TEST(best_actions_are_found) {
    CKVC_AUTO(fit_result_free_at)
    fit_result *r = fit_one(world_shard(&plain, "found.h5", 0, 60));
    int head_right = 0, gate_right = 0;
    for (int i = 0; i < L * G * NB; ++i) {
        const int b = i % NB, g = i / NB % G, l = i / NB / G,
                  off = abs(head_action(r, l, g, b) - best_head(l, g, b));
        assert_true(off <= 1);
        head_right += off == 0;
    }
    for (int i = 0; i < L * E * P * NB; ++i) {
        const int b = i % NB, p = i / NB % P, e = i / NB / P % E, l = i / NB / P / E,
                  off = abs(gate_action(r, l, e, p, b) - best_gate(l, e, p, b));
        assert_true(off <= 2);
        gate_right += off == 0;
    }
    assert_true(head_right >= 11 && gate_right >= 18); /* of 12, of 24 */
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        const fitted_side *s = &r->sides[side];
        assert_true(s->fitted && s->why.n_supported == s->n_states && s->n_prompts == 54);
        assert_true(s->certificate <= 1e-10);
        assert_int_equal(s->why.n_alpha, 0); /* equal counts: alpha decides nothing */
        assert_true(isnan(s->why.correlation));
        assert_true(side == CKVC_SIDE_GATE ||
                    s->why.records[0] == s->why.records[s->why.n_supported - 1]);
    }
    assert_int_equal(r->n_heldout, 6);
    assert_int_equal(r->sides[0].n_records, 54 * L * G * NB * A_H);
    assert_int_equal(r->table->evidence[CKVC_SIDE_HEAD].n[0], 54);
}

/* Rewards far below the noise of counts (paper.md section 5): uniform draws let them choose. */
TEST(uniform_counts_choose_balanced_ones_do_not) {
    world w = plain;
    w.gate = false;
    w.repeats = 5; /* about 17 draws per action in 100 prompts */
    CKVC_AUTO(fit_result_free_at)
    fit_result *r = fit_one(world_shard(&w, "uniform.h5", 0, 100));
    const fitted_side *head = &r->sides[CKVC_SIDE_HEAD];
    assert_true(head->why.correlation > -0.5);
    assert_true(head->scale > 0.0);
    o.cql.reward =
        FIT_RAW; /* the paper's reading: nats as they are, against a charge of 0.43/n nats */
    refit(&r, in_temp_folder("uniform.h5"));
    head = &r->sides[CKVC_SIDE_HEAD];
    assert_true((double)head->why.n_alpha >= 0.25 * (double)head->why.n_supported);
    assert_true(head->scale == 1.0);
    w.effect = 0.0; /* nothing to find: whatever is chosen is noise, and now noise of the counts */
    o.cql.reward = FIT_ADVANTAGE;
    refit(&r, world_shard(&w, "uniform0.h5", 0, 100));
    head = &r->sides[CKVC_SIDE_HEAD];
    assert_true((double)head->why.n_alpha >= 0.25 * (double)head->why.n_supported);
    w.repeats = 0;
    refit(&r, world_shard(&w, "balanced0.h5", 0, 100));
    assert_int_equal(r->sides[CKVC_SIDE_HEAD].why.n_alpha, 0);
}

static void write_and_compare(fit_result *r, const char *name, char id[CKVC_SHA256_HEX]) {
    CKVC_AUTO(table_file_free_at) table_file *back = NULL;
    const char *path = in_temp_folder(name);
    OK(table_file_write(r->table, path, true, &err));
    OK(table_file_read(path, &back, &err));
    assert_string_equal(back->content_id, r->table->content_id);
    CKVC_AUTO_FREE char *wrote = ckvc_json_canonical(r->table->meta),
                        *read = ckvc_json_canonical(back->meta);
    assert_string_equal(wrote, read);
    strcpy(id, r->table->content_id);
}

TEST(cuts_and_order_of_shards_never_show) {
    world w = plain;
    w.penalty = 0.0005;
    o.resampled.n_replicates = 30;
    char one[CKVC_SHA256_HEX], many[CKVC_SHA256_HEX];
    const char *parts[3] = {world_shard(&w, "z.h5", 0, 7), world_shard(&w, "b.h5", 7, 13),
                            world_shard(&w, "y.h5", 20, 20)};
    const char *swapped[3] = {parts[2], parts[0], parts[1]};
    for (int solver = 0; solver < 2; ++solver) {
        o.cql.solver = solver == 0 ? FIT_EXACT : FIT_ADAMW;
        CKVC_AUTO(fit_result_free_at)
        fit_result *r = fit_one(world_shard(&w, "whole.h5", 0, 40)), *r3 = fit_paths(swapped, 3);
        const table_evidence *e = r->table->evidence, *e3 = r3->table->evidence;
        write_and_compare(r, "one.ckvt", one);
        write_and_compare(r3, "many.ckvt", many);
        assert_string_equal(one, many);
        assert_memory_equal(e[CKVC_SIDE_HEAD].share, e3[CKVC_SIDE_HEAD].share,
                            L * G * NB * A_H * sizeof(float));
        assert_memory_equal(e[CKVC_SIDE_GATE].share, e3[CKVC_SIDE_GATE].share,
                            L * E * P * NB * A_G * sizeof(float));
        assert_memory_equal(r->sides[0].choices, r3->sides[0].choices,
                            30 * L * G * NB * sizeof(uint16_t));
        assert_true(solver ? r->sides[0].adamw_distance > 0.1 : isnan(r->sides[0].adamw_distance));
    }
}

TEST(unsupported_cells_get_what_was_asked_for) {
    world w = plain;
    w.skip_layer = 2;
    w.skip_cell = true;
    const char *path = world_shard(&w, "holes.h5", 0, 60);
    int first[L * E * P * NB];
    for (int kind = 0; kind < 3; ++kind) {
        o.cql.unsupported = (fit_unsupported)kind;
        fit_result *r = fit_one(path);
        assert_int_equal(r->sides[0].why.n_supported, (L - 1) * G * NB);
        assert_int_equal(r->sides[1].why.n_supported, (L - 1) * (E * P - 1) * NB);
        int want_head = CKVC_HEAD_NEUTRAL, want_gate = CKVC_GATE_START, want_cell = CKVC_GATE_START;
        if (kind == FIT_SAFEST) { want_gate = want_cell = 0; }
        if (kind == FIT_NEIGHBOUR) {
            want_head = head_action(r, 1, 1, 1);
            want_gate = gate_action(r, 1, 0, 1, 1);
            want_cell = gate_action(r, 1, 0, 1, 0); /* (1, 0) is as near, and comes second */
        }
        assert_int_equal(head_action(r, 2, 1, 1), want_head);
        assert_int_equal(gate_action(r, 2, 0, 1, 1), want_gate);
        assert_int_equal(gate_action(r, 1, 1, 1, 0), want_cell);
        for (int i = 0; i < (L - 1) * E * P * NB; ++i) { /* the others do not change */
            const int a = gate_action(r, i / 8, i / 4 % E, i / 2 % P, i % NB);
            assert_true(kind == 0 || i / 2 % 4 == 3 || a == first[i]);
            if (kind == 0) { first[i] = a; }
        }
        assert_true(isinf(r->table->evidence[CKVC_SIDE_HEAD].q[((2 * G + 1) * NB + 1) * A_H]));
        assert_int_equal(r->table->evidence[CKVC_SIDE_HEAD].n[((2 * G + 1) * NB + 1) * A_H], 0);
        json_t *u = json_object_get(r->table->meta, "unsupported");
        assert_int_equal(json_integer_value(json_object_get(u, "head")), G * NB);
        fit_result_free(r);
    }
}

TEST(a_side_without_records_is_the_incoming_table) {
    world w = plain;
    w.head = false;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(world_shard(&w, "gate.h5", 0, 20));
    assert_false(r->sides[CKVC_SIDE_HEAD].fitted);
    assert_string_equal(json_string_value(json_object_get(r->table->meta, "probe")), "gate-only");
    assert_int_equal(head_action(r, 1, 1, 0), CKVC_HEAD_NEUTRAL);
    /* Its weights moved: as --tables they must come through, and the gate's own cells must not. */
    for (int i = 0; i < L * G * NB; ++i) {
        r->table->table->weight[i] = (float)ckvc_head_action(i % A_H);
    }
    CKVC_AUTO(table_file_free_at) table_file *incoming = NULL;
    const char *path = in_temp_folder("incoming.ckvt");
    OK(table_file_write(r->table, path, true, &err));
    OK(table_file_read(path, &incoming, &err));
    o.incoming = incoming;
    const char *paths[1] = {in_temp_folder("gate.h5")};
    CKVC_AUTO(fit_result_free_at) fit_result *again = fit_one(paths[0]);
    assert_memory_equal(again->table->table->weight, incoming->table->weight,
                        L * G * NB * sizeof(float));
    assert_memory_equal(again->table->table->tau, r->table->table->tau,
                        L * E * P * NB * sizeof(float));
    json_object_set_new(incoming->meta, "keep_window", json_integer(8));
    fit_refused(paths, 1, CKVC_E_MISMATCH, "--keep-window 8");
    json_object_set_new(incoming->meta, "keep_window", json_integer(0));
    json_object_set_new(incoming->meta, "alpha_kind", json_string("visible"));
    fit_refused(paths, 1, CKVC_E_MISMATCH, "calibrate with --alpha visible");
    json_object_set_new(incoming->meta, "alpha_kind", json_string("paper"));
    incoming->table->budgets[1] = 96.0;
    fit_refused(paths, 1, CKVC_E_MISMATCH, "made with --budget 64,96, ");
}

TEST(splits_are_respected) {
    const char *path = world_shard(&plain, "splits.h5", 0, 40);
    o.splits = (const char *const[]){"odd"};
    o.n_splits = 1;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(path);
    assert_int_equal(r->sides[0].n_prompts, 16);
    assert_int_equal(r->n_heldout, 4);
    assert_int_equal(r->n_filtered, 20);
    o.splits = (const char *const[]){"heldout"};
    fit_refused(&path, 1, CKVC_E_USAGE, "held-out");
    o.splits = (const char *const[]){"neither"};
    fit_refused(&path, 1, CKVC_E_DATA, "no records to fit");
}

TEST(duplicates_count_once) {
    const char *paths[2] = {world_shard(&plain, "1.h5", 0, 12), world_shard(&plain, "2.h5", 8, 12)};
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_paths(paths, 2);
    assert_int_equal(r->sides[0].n_prompts, 18); /* 0 ... 19 without 9 and 19 */
    assert_int_equal(r->n_duplicates, 3);        /* 8, 10, 11 */
    assert_non_null(strstr(last_warning, "counted once"));
    char both[CKVC_SHA256_HEX], once[CKVC_SHA256_HEX];
    write_and_compare(r, "both.ckvt", both);
    refit(&r, world_shard(&plain, "d0.h5", 0, 20));
    write_and_compare(r, "once.ckvt", once);
    assert_string_equal(both, once);
    const char *twice[2] = {paths[0], paths[0]};
    fit_refused(twice, 2, CKVC_E_USAGE, "twice");
}

/* 64 tokens in the first layer, `step` more in each. */
static void give_layer_budgets(shard_header *h, double step) {
    double *v = ckvc_alloc(h->n_layers, sizeof *v);
    h->setting.layer_budgets = (setting_list){v, h->n_layers};
    for (uint32_t l = 0; l < h->n_layers; ++l) { v[l] = 64.0 + step * l; }
}

/* Each field that one fit must share, changed alone. */
TEST(pools_are_checked) {
    const char *fields[] = {"made with --continuation 48, ",
                            "made with --keep-window 4, ",
                            "made with --alpha visible, ",
                            "made with --beta-bud 0.5, ",
                            "made with --budget 65,",
                            "edges_entropy[0]",
                            "start_tau, entry 3, is",
                            "start_weight, entry 1, is",
                            "fingerprint is d",
                            "made with --operator mean-pool, ",
                            "made with --layer-budgets 64,64,64, ",
                            "made with --window 17, ",
                            "made with --compute bf16, ",
                            "made with --budget 64, "};
    world_shard(&plain, "pool-a.h5", 0, 4);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) {
        shard *s = new_shard();
        world w = plain;
        switch (i) {
        case 0: s->h.setting.continuation = 48; break;
        case 1: s->h.setting.keep_window = 4; break;
        case 2: s->h.setting.alpha = CKVC_ALPHA_VISIBLE; break;
        case 3: s->h.setting.beta_bud = 0.5; break;
        case 4: s->h.budgets[0] = 65.0; break;
        case 5: s->h.edges_entropy[0] = 5.5; break;
        case 6: s->h.side[CKVC_SIDE_GATE].start[3] = 0.91f; break;
        case 7: s->h.side[CKVC_SIDE_HEAD].start[1] = 1.025f; break;
        case 8: memset(s->h.fingerprint, 'd', 64); break;
        case 9: s->h.setting.op = CKVC_OPERATOR_MEAN_POOL; break;
        case 10: give_layer_budgets(&s->h, 0.0); break;
        case 11: s->h.setting.window = 17; break;
        case 12: s->h.setting.compute = CKVC_COMPUTE_BF16; break;
        default:
            s->h.n_budgets = 1;
            w.head = w.gate = false;
            break;
        }
        if (i < 13) { add_prompts(s, &w, 20, 4); }
        fit_refused((const char *const[]){in_temp_folder("pool-a.h5"), fit_shard(s, "pool-b.h5")},
                    2, CKVC_E_MISMATCH, fields[i]);
    }
}

/* The operator of the records is the table's, and META's probe, whichever sides there were. */
TEST(operators_are_carried) {
    for (int op = 0; op < CKVC_OPERATOR_COUNT; ++op) {
        shard *s = new_shard();
        s->h.setting.op = (ckvc_operator)op;
        if (op == 1) { give_layer_budgets(&s->h, 1.0); }
        add_prompts(s, &plain, 0, 6);
        CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(fit_shard(s, "operator.h5"));
        assert_int_equal(r->table->table->op, op);
        assert_string_equal(json_string_value(json_object_get(r->table->meta, "probe")),
                            op ? ckvc_operator_name((ckvc_operator)op) : "both-one-start");
        assert_int_equal(json_array_size(json_object_get(r->table->meta, "layer_budgets")),
                         op == 1 ? L : 0);
    }
}

TEST(broken_records_are_refused) {
    const char *words[] = {"no /baseline row", "nats per token", "is there a second time",
                           "/baseline row"};
    for (int i = 0; i < 4; ++i) {
        shard *s = new_shard();
        add_prompts(s, &plain, 0, 3);
        switch (i) {
        case 0: s->n_baselines = 2; break;
        case 1: s->records[5].reward = 1e9; break;
        case 2: add_prompts(s, &plain, 1, 1); break;
        default: s->baselines[1].budget = 0; break;
        }
        const char *path = fit_shard(s, "broken.h5");
        fit_refused(&path, 1, CKVC_E_DATA, words[i]);
    }
}

/* Rewards that no action changes: scale 1, a warning, and the tie rules choose. */
TEST(nothing_to_scale) {
    world w = plain;
    w.noise = w.effect = 0.0;
    last_warning[0] = '\0';
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(world_shard(&w, "flat.h5", 0, 10));
    assert_true(r->sides[0].scale == 1.0 && r->sides[1].scale == 1.0);
    assert_non_null(strstr(last_warning, "not scaled"));
    assert_int_equal(head_action(r, 0, 0, 0), CKVC_HEAD_NEUTRAL);
    assert_int_equal(gate_action(r, 0, 0, 0, 0), 0);
    assert_int_equal(decided_sum(&r->sides[1].why, NB).flat, r->sides[1].why.n_supported);
}

/* A penalty above any loss takes every gate to the top; the loss part is still told apart. */
TEST(penalty_and_loss_are_told_apart) {
    world w = plain;
    w.head = false;
    w.penalty = 1.0;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(world_shard(&w, "penalty.h5", 0, 60));
    const fitted_side *s = &r->sides[CKVC_SIDE_GATE];
    for (int l = 0; l < L; ++l) { assert_int_equal(gate_action(r, l, 1, 1, 1), A_G - 1); }
    assert_int_equal(decided_sum(&s->why, NB).supported, s->why.n_supported);
    assert_true(decided_sum(&s->why, NB).by_loss <= 2); /* whose best action is near the top */
    assert_true(s->scale < 0.5); /* from the loss part: not the penalty's size */
    const double *m = r->table->evidence[CKVC_SIDE_GATE].m,
                 *l = r->table->evidence[CKVC_SIDE_GATE].l;
    assert_true(fabs((m[1] - l[1]) - (m[0] - l[0]) - w.penalty / s->scale) < 1e-6);
}

TEST(shrinking_keeps_what_chance_explains) {
    const char *path = world_shard(&plain, "shrink.h5", 0, 60);
    o.cql.shrink = true;
    fit_refused(&path, 1, CKVC_E_USAGE, "--bootstrap");
    o.resampled.n_replicates = 100;
    fit_result *r = fit_one(path);
    for (int i = 0; i < L * G; ++i) {
        const int best = best_head(i / G, i % G, 0);
        assert_true(abs(best - CKVC_HEAD_NEUTRAL) <= 2 || head_action(r, i / G, i % G, 0) == best);
    }
    fit_result_free(r);
    world w = plain;
    w.effect = 0.0;
    r = fit_one(world_shard(&w, "shrink0.h5", 0, 60));
    assert_true(r->sides[0].n_shrunk >= 9); /* of 12 states, nothing is better: 5% may pass */
    assert_true(r->sides[0].n_changed <= 2);

    /* A later round: the incoming table has other weights, the neutral action is what stays. */
    CKVC_AUTO(table_file_free_at) table_file *incoming = r->table;
    r->table = NULL;
    fit_result_free(r);
    for (int i = 0; i < L * G * NB; ++i) {
        incoming->table->weight[i] = (float)ckvc_head_action(20);
    }
    o.incoming = incoming;
    r = fit_one(in_temp_folder("shrink0.h5"));
    int neutral = 0;
    for (int i = 0; i < L * G * NB; ++i) {
        neutral += head_action(r, i / NB / G, i / NB % G, i % NB) == CKVC_HEAD_NEUTRAL;
    }
    assert_true(neutral >= 10);                 /* of 12 */
    assert_true(r->sides[0].count_noise > 0.5); /* random counts would choose among these means */
    fit_result_free(r);
}

/* Refits of random halves of the prompts must agree where there is an effect, and must not where
 * there is none: the ceiling that reports put beside comparisons of corpora. */
TEST(halves_agree_where_there_is_something_to_agree_on) {
    enum { S = L * G * NB, R = 20 };
    world w = plain;
    o.resampled.n_replicates = R;
    o.resampled.kind = RESAMPLE_HALVES;
    for (int k = 0; k < 2; ++k) {
        w.effect = k == 0 ? plain.effect : 0.0;
        CKVC_AUTO(fit_result_free_at)
        fit_result *r = fit_one(world_shard(&w, k == 0 ? "half.h5" : "half0.h5", 0, 60));
        double sum = 0.0;
        assert_null(r->table->evidence[CKVC_SIDE_HEAD].share); /* shares are the bootstrap's */
        for (int pair = 0; pair < R / 2; ++pair) {
            double halves[2 * S];
            for (int s = 0; s < 2 * S; ++s) { halves[s] = r->sides[0].choices[2 * pair * S + s]; }
            sum += rank_spearman(halves, halves + S, S);
        }
        assert_true(k == 0 ? sum / (R / 2) > 0.95 : fabs(sum / (R / 2)) < 0.5);
    }
}

/* ---- run directories ---- */

static void log_pass(run_dir *run, const char *pass, const world *w, int n, float start_weight) {
    CKVC_AUTO(shard_free_at) shard *header = new_shard();
    bool done[64] = {false};
    snprintf(header->h.pass, sizeof header->h.pass, "%s", w->head ? "head" : "gate");
    for (int i = 0; i < L * G * NB; ++i) { header->h.side[CKVC_SIDE_HEAD].start[i] = start_weight; }
    OK(run_pass_begin(run, &(run_pass_start){pass, (uint32_t)n, 4, "cpu"}, &header->h, done, &err));
    for (int i = 0; i < n; ++i) {
        CKVC_AUTO(shard_free_at) shard *rows = new_shard();
        add_prompts(rows, w, i, 1);
        OK(run_log_prompt(run, (uint32_t)i, rows, &err));
    }
    run_pass_end(run);
}

TEST(runs_give_their_last_complete_passes) {
    run_dir *run = NULL;
    const char *path = in_temp_folder("run");
    world head = plain, gate = plain, poor = plain;
    head.gate = gate.head = poor.gate = false;
    poor.effect = 0.0;
    json_auto_t *plan = json_pack("{s:s, s:i}", "verb", "calibrate", "seed", 1);
    OK(run_create(path, plan, RUN_WHOLE, false, &run, &err));
    log_pass(run, "pass-01-head", &poor, 10, 1.0f);
    log_pass(run, "pass-02-gate", &gate, 20, 1.1f);
    log_pass(run, "pass-03-head", &head, 20, 1.1f);
    run_close(run);

    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(path);
    json_t *passes = json_object_get(r->table->meta, "passes");
    assert_int_equal(json_array_size(passes), 2);
    assert_string_equal(json_string_value(json_array_get(passes, 0)), "pass-02-gate");
    assert_string_equal(json_string_value(json_array_get(passes, 1)), "pass-03-head");
    assert_true(r->sides[0].n_prompts == 18 && r->sides[1].n_prompts == 18);
    assert_true(abs(head_action(r, 2, 0, 0) - best_head(2, 0, 0)) <= 1);

    o.pass = 1;
    refit(&r, path);
    assert_true(r->sides[0].fitted && !r->sides[1].fitted && r->sides[0].n_prompts == 9);
    o.pass = 2; /* heads come from the table that the gate was logged under */
    refit(&r, path);
    assert_true(!r->sides[0].fitted && r->sides[1].fitted);
    assert_true(r->table->table->weight[0] == 1.1f);
    o.pass = 4;
    fit_refused(&path, 1, CKVC_E_DATA, "no pass 4");
}

int main(void) {
    before_each = begin_with_defaults;
    return unit_run(make_folder, temp_folder_remove);
}
