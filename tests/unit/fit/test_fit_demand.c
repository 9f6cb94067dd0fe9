/* From demand shards to shares: by hand, and beside records of sides (capacities of golden shares:
 * test_policy_sets). */
#include "formats/run/run_dir.h"
#include "tests/unit/fit_fixture.h"
#include "tests/unit/shard_fixture.h"

enum { L = 2, G = 2, NB = 3 }; /* of the fixture */

/* Prompts first ... first+n-1 of the fixture; every fifth is held out. */
static shard *fixture_of(const char *pass, uint32_t first, uint32_t n) {
    shard *s = shard_create();
    fixture_header(&s->h, pass);
    if (s->h.budgets) { s->h.budgets[1] = 32; }
    for (uint32_t i = first; i < first + n; i++) { fixture_prompt(s, i, 40); }
    return s;
}

static void refused(const char *a, const char *b, ckvc_status status, const char *words) {
    fit_refused((const char *const[]){a, b}, b ? 2 : 1, status, words);
}

/* Writes and reads back. */
static table_file *written(fit_result *r, const char *name) {
    const char *path = in_temp_folder(name);
    table_file *t = NULL;
    OK(table_file_write(r->table, path, true, &err) != CKVC_OK || table_file_read(path, &t, &err));
    return t;
}

/* ---- by hand ---- */

TEST(means_leave_out_the_held_out_and_the_short) {
    shard *s = fixture_of("demand", 0, 12); /* held out: 4, 9 */
    s->prompts[3].n_tokens = 64;            /* no longer than the third budget */
    for (size_t i = 0; i < NB * L * G; i++) { s->demand[3 * NB * L * G + i] %= 65; }
    for (size_t i = 0; i < NB * L; i++) { s->layer_demand[3 * NB * L + i] %= 65; }
    double want[NB][L * G] = {{0}}, layers[NB][L] = {{0}};
    size_t n[NB] = {0};
    for (size_t p = 0; p < 12; p++) {
        for (uint32_t b = 0; b < NB && p % 5 != 4; b++) {
            const uint32_t B = ckvc_budget_tokens(s->h.budgets[b], s->prompts[p].n_tokens);
            if (B >= s->prompts[p].n_tokens) { continue; }
            n[b]++;
            for (size_t k = 0; k < L * G; k++) {
                want[b][k] += (double)s->demand[(p * NB + b) * L * G + k] / B;
            }
            for (size_t l = 0; l < L; l++) {
                layers[b][l] += (double)s->layer_demand[(p * NB + b) * L + l] / B;
            }
        }
    }
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(fit_shard(s, "hand.h5"));
    const ckvc_table *t = r->table->table;
    assert_int_equal(r->n_heldout, 2);
    assert_int_equal(r->demand.n_prompts, 10);
    assert_int_equal(n[2], 9);
    for (uint32_t b = 0; b < NB; b++) {
        size_t undecided = 0;
        assert_int_equal(r->demand.blocks[b].n_prompts, n[b]);
        for (size_t k = 0; k < L * G; k++) {
            const double *ends = r->table->share_interval + 2 * (k * NB + b),
                         share = t->share[k * NB + b];
            assert_float_equal(share, want[b][k] / (double)n[b], 1e-14);
            assert_true(ends[0] < share && share < ends[1]);
            undecided += ends[0] <= 1 && 1 <= ends[1];
        }
        for (size_t l = 0; l < L; l++) {
            assert_float_equal(t->layer_share[l * NB + b], layers[b][l] / (double)n[b], 1e-14);
        }
        assert_true(t->c_min[b].floor == 0.2 && t->c_min[b].recent == 8);
        assert_true(t->score[b].kind == CKVC_SCORE_WINDOW && t->score[b].mode == CKVC_MODE_HEADS);
        assert_int_equal(r->demand.blocks[b].heads.undecided, undecided);
        assert_int_equal(r->demand.blocks[b].heads.halves.n_groups, 2);
    }
    const json_t *said = json_object_get(json_object_get(r->table->meta, "diagnostics"), "demand");
    assert_int_equal(json_array_size(json_object_get(said, "by_budget")), NB);
}

/* Counts of slots make shares in mode `lengths` alone, and need runs that have them. */
TEST(lengths) {
    shard *s = fixture_of("demand", 0, 4);
    double want[NB][L] = {{0}};
    for (size_t i = 0; i < 4 * NB * L; i++) { s->length_demand[i] = 1 + (uint32_t)(i * 7 % 60); }
    for (size_t p = 0; p < 4; p++) {
        for (uint32_t b = 0; b < NB; b++) {
            const uint32_t B = ckvc_budget_tokens(s->h.budgets[b], s->prompts[p].n_tokens);
            for (size_t l = 0; l < L; l++) {
                want[b][l] += s->length_demand[(p * NB + b) * L + l] / (4.0 * B);
            }
        }
    }
    const char *path = fit_shard(s, "slots.h5");
    CKVC_AUTO(fit_result_free_at) fit_result *heads = fit_one(path);
    assert_null(heads->table->table->length_share);
    o.budgets.mode = CKVC_MODE_LENGTHS;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(path);
    o.budgets.classes = 1;
    CKVC_AUTO(fit_result_free_at) fit_result *one = fit_one(path);
    o.budgets.classes = 0;
    for (uint32_t b = 0; b < NB; b++) {
        const double *share = r->table->table->length_share + b,
                     *alike = one->table->table->length_share + b;
        assert_float_equal(share[0], want[b][0], 1e-14);
        assert_float_equal(share[NB], want[b][1], 1e-14);
        assert_true(alike[0] == alike[NB] && alike[0] == (share[0] + share[NB]) / 2);
        assert_int_equal(r->table->table->score[b].mode, CKVC_MODE_LENGTHS);
    }
    assert_memory_equal(r->table->table->share, heads->table->table->share,
                        L * G * NB * sizeof(double));
    const json_t *said = json_object_get(json_object_get(r->table->meta, "diagnostics"), "demand"),
                 *of = json_array_get(json_object_get(said, "by_budget"), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(of, "lengths"), "entries")),
                     L);
    table_file_free(written(r, "slots.ckvt"));
    refused(fit_shard(fixture_of("demand", 0, 4), "no-slots.h5"), NULL, CKVC_E_DATA,
            "did not count what --mode lengths divides; calibrate again");
    o.budgets.mode = CKVC_MODE_HEADS;
}

/* No budget leaves a choice: equal shares, nothing decided. */
TEST(budgets_without_a_choice) {
    shard *s = fixture_of("demand", 0, 4);
    s->h.budgets[1] = 9; /* all of it goes into floors */
    s->h.budgets[2] = 4096;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(fit_shard(s, "short.h5"));
    for (size_t k = 0; k < L * G; k++) {
        assert_true(r->table->table->share[k * NB + 1] == 1.0);
        assert_true(r->table->table->share[k * NB + 2] == 1.0);
    }
    assert_int_equal(r->demand.blocks[1].n_prompts, 0);
    assert_int_equal(r->demand.blocks[2].n_prompts, 0);
    assert_int_equal(r->demand.blocks[2].heads.undecided, L * G);
    assert_int_equal(r->demand.blocks[0].heads.undecided, L * G); /* four prompts are too few */
    assert_true(isnan(r->demand.blocks[2].heads.halves.overall.mean));
    table_file_free(written(r, "short.ckvt"));
}

TEST(cuts_order_and_duplicates_never_show) {
    const char *whole = fit_shard(fixture_of("demand", 0, 15), "whole.h5"),
               *parts[3] = {fit_shard(fixture_of("demand", 7, 8), "b.h5"),
                            fit_shard(fixture_of("demand", 0, 7), "a.h5"), whole};
    fit_result *r[4] = {fit_one(whole), fit_paths(parts, 2), fit_paths(parts, 3)};
    o.resampled.seed = 2;
    r[3] = fit_one(whole);
    const size_t values = (size_t)L * G * NB * sizeof(double);
    char id[2][CKVC_SHA256_HEX];
    for (int i = 0; i < 2; i++) {
        CKVC_AUTO(table_file_free_at) table_file *t = written(r[i], "cut.ckvt");
        strcpy(id[i], t->content_id);
        assert_memory_equal(t->share_interval, r[0]->table->share_interval, 2 * values);
    }
    assert_string_equal(id[0], id[1]);
    assert_int_equal(r[2]->n_duplicates, 12);
    assert_memory_equal(r[2]->table->table->share, r[0]->table->table->share, values);
    assert_memory_equal(r[3]->table->table->share, r[0]->table->table->share, values);
    assert_memory_not_equal(r[3]->table->share_interval, r[0]->table->share_interval, 2 * values);
    for (int i = 0; i < 4; i++) { fit_result_free(r[i]); }
}

/* ---- the learned ranking ---- */

static fitted_learned learned_of(const char *const *paths, size_t n) {
    o.budgets.score = CKVC_SCORE_LEARNED;
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_paths(paths, n);
    const fitted_learned l = r->learned;
    return l;
}

/* What two runs share judges once, and not at all where one of them fits it. */
TEST(held_out_prompts_judge_once) {
    const char *demand = fit_shard(fixture_of("demand", 0, 10), "of-demand.h5"),
               *few = fit_shard(fixture_of("score", 0, 10), "few.h5"),       /* held out: 4, 9 */
                   *more = fit_shard(fixture_of("score", 3, 12), "more.h5"); /* 4, 9, 14 */
    shard *s = fixture_of("score", 4, 1);
    s->prompts[0].split[0] = '\0';
    const char *four = fit_shard(s, "four.h5"),
               *whole = fit_shard(fixture_of("score", 0, 15), "all.h5");
    const fitted_learned one = learned_of((const char *const[]){demand, whole}, 2),
                         two = learned_of((const char *const[]){demand, few, more}, 3),
                         turned = learned_of((const char *const[]){more, few, demand}, 3),
                         fitted = learned_of((const char *const[]){demand, whole, four}, 3);
    assert_int_equal(one.n_heldout, 3);
    assert_int_equal(two.n_heldout, 3);
    assert_true(two.loss == one.loss && two.heldout == one.heldout);
    assert_true(turned.n_heldout == 3 && turned.heldout == one.heldout);
    assert_int_equal(fitted.n_prompts, one.n_prompts + 1);
    assert_int_equal(fitted.n_heldout, 2);
    assert_true(isfinite(fitted.heldout) && fitted.heldout != one.heldout);
}

/* A shard of the one pass gives both: shares of the asked-for weight, and a learned ranking. */
TEST(one_pass_has_both) {
    shard *s = fixture_one_pass(4);
    s->h.budgets[1] = 32;
    double want = 0;
    for (uint32_t p = 0; p < 4; p++) { /* mix 0.5, budget 0, layer 1, head 0 */
        const uint32_t B = ckvc_budget_tokens(s->h.budgets[0], s->prompts[p].n_tokens);
        want += s->mixed_demand[((p * SHARD_N_MIXES + 1) * NB + 0) * L * G + 2] / (4.0 * B);
    }
    const char *path = fit_shard(s, "one.h5");
    CKVC_AUTO(fit_result_free_at) fit_result *plain = fit_one(path);
    o.budgets.mix = 0.5;
    CKVC_AUTO(fit_result_free_at) fit_result *mixed = fit_one(path);
    assert_true(fabs(mixed->table->table->share[2 * NB] - want) <= 1e-12);
    assert_true(fabs(plain->table->table->share[2 * NB] - want) > 1e-3);
    assert_true(plain->learned.fitted && plain->learned.n_prompts == 4);
    assert_memory_equal(plain->table->table->theta, mixed->table->table->theta,
                        L * G * FIXTURE_FEATURES * sizeof(float));
    assert_int_equal(plain->demand.n_prompts, 4);
    o.budgets.mix = 0.3;
    refused(path, NULL, CKVC_E_DATA, "--mix 0.3 was not logged");
    o.budgets.mix = 0.5;
    refused(fit_shard(fixture_of("demand", 0, 4), "old.h5"), NULL, CKVC_E_DATA,
            "--mix 0.5 was not logged. This run has 0 alone");
}

/* ---- beside sides ---- */

static void same_entries(const table_file *a, const table_file *b) {
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side x = side_of_table(a->table, (ckvc_side)i),
                          y = side_of_table(b->table, (ckvc_side)i);
        assert_int_equal(x.n_states, y.n_states);
        assert_memory_equal(x.entries, y.entries, x.n_states * sizeof *x.entries);
        assert_memory_equal(a->evidence[i].n, b->evidence[i].n,
                            x.n_states * x.actions.n * sizeof(uint64_t));
    }
}

static void same_shares(const table_file *a, const table_file *b) {
    const ckvc_table *x = a->table, *y = b->table;
    assert_memory_equal(x->share, y->share, (size_t)L * G * NB * sizeof(double));
    assert_memory_equal(x->layer_share, y->layer_share, (size_t)L * NB * sizeof(double));
    assert_memory_equal(x->c_min, y->c_min, NB * sizeof *x->c_min);
    assert_memory_equal(x->score, y->score, NB * sizeof *x->score);
    assert_memory_equal(a->share_interval, b->share_interval,
                        2 * (size_t)L * G * NB * sizeof(double));
}

static json_t *diagnostics(const table_file *t) {
    return json_object_get(json_object_get(t->meta, "diagnostics"), "demand");
}

/* One table from both at once, from records after demand, and from demand after records. */
TEST(records_and_demand_make_one_table) {
    const char *paths[2] = {fit_shard(fixture_of("demand", 0, 15), "demand.h5"),
                            fit_shard(fixture_of("both", 0, 15), "records.h5")};
    fit_result *demand = fit_one(paths[0]), *records = fit_one(paths[1]),
               *both = fit_paths(paths, 2);
    table_file *d = written(demand, "d.ckvt"), *s = written(records, "s.ckvt"),
               *t = written(both, "t.ckvt");
    assert_true(!d->has_evidence && t->has_evidence && !s->table->share);
    assert_int_equal(both->n_duplicates, 0);
    assert_int_equal(both->n_heldout, 3);
    same_entries(t, s);
    same_shares(t, d);
    assert_int_equal(t->table->op, CKVC_OPERATOR_PAPER);
    o.incoming = s;
    fit_result *after = fit_one(paths[0]);
    table_file *u = written(after, "u.ckvt");
    assert_true(after->sides[0].carried && after->sides[1].carried && after->demand.fitted);
    same_entries(u, t);
    same_shares(u, t);
    assert_true(json_equal(u->meta, t->meta));
    assert_string_equal(u->content_id, t->content_id);
    o.incoming = t;
    fit_result *before = fit_one(paths[1]);
    table_file *v = written(before, "v.ckvt");
    assert_true(before->demand.carried && !before->demand.fitted);
    same_entries(v, t);
    same_shares(v, t);
    assert_true(json_equal(diagnostics(v), diagnostics(t)));
    static const char *const carried[] = {"counts", "plans", "passes", "repeat"};
    for (int i = 0; i < 4; i++) { /* (the diagnostics of sides say how many entries changed) */
        const json_t *of = json_object_get(t->meta, carried[i]);
        assert_true(json_equal(json_object_get(v->meta, carried[i]), of));
    }
    assert_non_null(json_object_get(t->meta, "repeat"));
    fit_result *results[] = {demand, records, both, after, before};
    table_file *tables[] = {d, s, t, u, v};
    for (int i = 0; i < 5; i++) {
        fit_result_free(results[i]);
        table_file_free(tables[i]);
    }
}

/* ---- runs ---- */

/* Does prompts 0 ... n-1 of a demand pass of six, in shards of two. */
static void log_pass(run_dir *run, const char *pass, uint32_t n) {
    CKVC_AUTO(shard_free_at) shard *whole = fixture_of("demand", 0, 0);
    bool done[6];
    OK(run_pass_begin(run, &(run_pass_start){pass, 6, 2, "cpu/test"}, &whole->h, done, &err));
    for (uint32_t i = 0; i < n; i++) {
        CKVC_AUTO(shard_free_at) shard *one = fixture_of("demand", i, 1);
        if (!done[i]) { OK(run_log_prompt(run, i, one, &err)); }
    }
    assert_int_equal(run_pass_end(run), n == 6);
}

/* The last complete demand pass of a run; one that is not is fitted where it is asked for. */
TEST(runs_give_their_demand) {
    const char *path = in_temp_folder("run");
    run_dir *run = NULL;
    json_auto_t *plan = json_pack("{s:s}", "model_name", "fixture");
    OK(run_create(path, plan, RUN_WHOLE, false, &run, NULL));
    log_pass(run, "pass-01-demand", 4);
    run_close(run);
    refused(path, NULL, CKVC_E_DATA, "finish it with calibrate --resume");
    o.pass = 1;
    CKVC_AUTO(fit_result_free_at) fit_result *part = fit_one(path);
    assert_int_equal(part->demand.n_prompts, 4);
    o.pass = 0;
    OK(run_create(path, plan, RUN_WHOLE, true, &run, NULL));
    log_pass(run, "pass-01-demand", 6);
    run_close(run);
    CKVC_AUTO(fit_result_free_at)
    fit_result *r = fit_one(path), *bare = fit_one(fit_shard(fixture_of("demand", 0, 6), "six.h5"));
    assert_int_equal(r->demand.n_prompts, 5); /* one is held out */
    assert_memory_equal(r->table->table->share, bare->table->table->share,
                        (size_t)L * G * NB * sizeof(double));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(r->table->meta, "passes"), 0)),
        "pass-01-demand");
}

TEST(pools_are_checked) {
    const char *plain = fit_shard(fixture_of("demand", 0, 6), "plain.h5"),
               *records = fit_shard(fixture_of("both", 0, 6), "sides.h5"), *budget = NULL;
    const char *const words[] = {"--demand-floor 0.3", "--recent 4", "--repeat", "fingerprint",
                                 "33"};
    for (int i = 0; i < 5; i++) {
        shard *s = fixture_of("demand", 10, 6);
        switch (i) {
        case 0: s->h.setting.floor = 0.3; break;
        case 1: s->h.setting.recent = 4; break;
        case 2: s->h.setting.repeat[0] = 'M'; break;
        case 3: memset(s->h.fingerprint, 'd', 64); break;
        default: s->h.budgets[1] = 33; break;
        }
        budget = fit_shard(s, "z.h5");
        if (i != 3) { refused(plain, budget, CKVC_E_MISMATCH, words[i]); }
        if (i >= 3) { refused(records, budget, CKVC_E_MISMATCH, words[i]); }
    }
    shard *old = fixture_of("score", 0, 6); /* position 0 of a prompt of 1,536 tokens */
    old->features[CKVC_FEATURES_OWN + 8] = 1.5f;
    refused(plain, fit_shard(old, "old.h5"), CKVC_E_DATA, "that an older ckvc logged");
    o.memory_max = 400; /* three prompts */
    refused(plain, NULL, CKVC_E_MEMORY, "--memory");
    o = fit_defaults();
    o.splits = (const char *const[]){"other"};
    o.n_splits = 1;
    refused(plain, NULL, CKVC_E_DATA, "no records to fit");
    /* an incoming table of other budgets */
    o = fit_defaults();
    CKVC_AUTO(fit_result_free_at) fit_result *r = fit_one(budget);
    CKVC_AUTO(table_file_free_at) table_file *t = written(r, "other.ckvt");
    o.incoming = t;
    refused(plain, NULL, CKVC_E_MISMATCH, "33");
}

int main(void) {
    before_each = begin_with_defaults;
    return unit_run(temp_folder_make, temp_folder_remove);
}
