/* Shards: rows in memory, the plain encoding, the HDF5 file, and all that is refused. */
#include <hdf5.h>
#include <zstd.h>

#include "formats/shard/h5_zstd.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/json_holds.h"
#include "tests/unit/shard_fixture.h"

/* What a file of `s` is read as: the same. */
static shard *through_file(const shard *s, bool foreign) {
    shard *t = NULL;
    write_shard(s, in_temp_folder("a.h5"));
    OK(shard_h5_read(in_temp_folder("a.h5"), foreign, &t, &err));
    assert_string_equal(err.text, "");
    assert_true(fixture_same(s, t));
    return t;
}

TEST(round_trip) {
    static const char *const passes[] = {"scan", "demand", "score", "head", "gate", "both"};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        for (uint32_t n = 0; n <= 5; n += 5) {
            CKVC_AUTO(shard_free_at) shard *s = fixture_shard(passes[i], n, 40);
            shard_free(through_file(s, false));
            shard_free(through_file(s, true));
        }
    }
    CKVC_AUTO(shard_free_at) shard *s = fixture_one_pass(5), *t = through_file(s, false);
    assert_memory_equal(s->mixed_demand, t->mixed_demand,
                        5 * SHARD_N_MIXES * 12 * sizeof(uint32_t));
    assert_true(t->features && t->target && !t->expected_loss);
}

/* What a careless path would bend: -0, extreme doubles, 255-byte texts, hashes over 2^63. */
TEST(extreme_values) {
    CKVC_AUTO(shard_free_at) shard *s = fixture_shard("both", 2, 4);
    s->records[0].reward = -0.0;
    s->records[1].reward = 5e-324;
    s->records[2].reward = -1.7976931348623157e308;
    s->records[3].set_hash = UINT64_MAX;
    s->prompts[1].line = UINT32_MAX;
    memset(s->prompts[1].id, 'x', SHARD_STRING - 1);
    CKVC_AUTO(shard_free_at) shard *t = through_file(s, false);
    assert_true(signbit(t->records[0].reward));
}

/* Start tables beyond 64 KiB leave the object header for HDF5's dense attribute storage. */
TEST(large_attributes) {
    CKVC_AUTO(shard_free_at) shard *s = shard_create();
    fixture_header(&s->h, "gate");
    s->h.n_layers = 80;
    s->h.n_entropy_bins = 64;
    s->h.n_ppl_bins = 16;
    free(s->h.edges_entropy), free(s->h.edges_ppl), free(s->h.side[CKVC_SIDE_HEAD].start);
    free(s->h.side[CKVC_SIDE_GATE].start);
    s->h.edges_entropy = fixture_reals(63, 0, 0.1);
    s->h.edges_ppl = fixture_reals(15, 0, 1);
    s->h.side[CKVC_SIDE_HEAD].start = ckvc_alloc(80 * 2 * 3, sizeof(float));
    for (int i = 0; i < 80 * 2 * 3; i++) { s->h.side[CKVC_SIDE_HEAD].start[i] = 1.0f; }
    size_t n = 80 * 64 * 16 * 3;
    s->h.side[CKVC_SIDE_GATE].start = ckvc_alloc(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        s->h.side[CKVC_SIDE_GATE].start[i] =
            (float)ckvc_gate_action((int)(i * 7 % CKVC_GATE_ACTIONS));
    }
    shard_free(through_file(s, false));
}

/* A scan that names one bin of each kind: edges of length 0. */
TEST(no_edges) {
    CKVC_AUTO(shard_free_at) shard *s = fixture_shard("scan", 1, 0);
    s->h.n_entropy_bins = s->h.n_ppl_bins = 1;
    CKVC_AUTO(shard_free_at) shard *t = through_file(s, false);
    assert_int_equal(t->h.n_ppl_bins, 1);
    shard_free(through_file(s, true));
}

TEST(same_bytes) {
    shard *s = fixture_shard("both", 4, 50), *t = fixture_shard("both", 4, 50);
    uint8_t *a, *b;
    size_t n, m;
    OK(shard_h5_image(s, &a, &n, &err));
    sleep(1); /* object times would show */
    /* bytes behind a text's end are not part of it */
    memset(t->prompts[2].id + strlen(t->prompts[2].id) + 1, 'z', 5);
    OK(shard_h5_image(t, &b, &m, &err));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a), free(b), shard_free(s), shard_free(t);
}

/* Files of earlier versions are read for ever; the same libraries write the same bytes. */
TEST(golden) {
    static const struct {
        const char *path, *pass;
        uint32_t prompts;
        bool bare;  /* written before demand had the statistics of heads: they read as zeros */
        bool today; /* as it is logged now, with features and counts of slots */
    } files[] = {{"tests/golden/shard/both.h5", "both", 3, false, false},
                 {"tests/golden/shard/scan.h5", "scan", 2, false, false},
                 {"tests/golden/shard/demand.h5", "demand", 2, true, false},
                 {"tests/golden/shard/demand2.h5", "demand", 2, false, false},
                 {"tests/golden/shard/demand3.h5", "demand", 2, false, true}};
    unsigned major, minor, release;
    H5get_libversion(&major, &minor, &release);
    bool same_libraries =
        major == 1 && minor == 10 && release == 8 && ZSTD_versionNumber() == 10504;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        shard *s = files[i].today ? fixture_one_pass(files[i].prompts)
                                  : fixture_shard(files[i].pass, files[i].prompts, 6),
              *t;
        OK(shard_h5_read(files[i].path, false, &t, &err));
        snprintf(s->h.ckvc_version, sizeof s->h.ckvc_version, "0.1.0");
        for (size_t k = 0; files[i].bare && k < 2 * 4; k++) {
            s->rho_sd[k] = s->own_recent[k] = s->own_entropy[k] = 0;
        }
        assert_true(fixture_same(s, t));
        size_t n, m;
        uint8_t *image, *bytes = file_bytes(files[i].path, &m);
        OK(shard_h5_image(s, &image, &n, &err));
        assert_true(!same_libraries || files[i].bare || (n == m && memcmp(image, bytes, n) == 0));
        free(image), free(bytes), shard_free(s), shard_free(t);
    }
}

static void check_column(hid_t file, const char *name, hid_t want_type, hsize_t want_chunk) {
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), type = H5Dget_type(d),
          create = H5Dget_create_plist(d);
    hsize_t chunk[3];
    assert_true(H5Tequal(type, want_type) > 0);
    assert_true(H5Pget_chunk(create, 3, chunk) >= 1);
    assert_int_equal(chunk[0], want_chunk);
    assert_int_equal(H5Pget_nfilters(create), 3);
    for (unsigned i = 0; i < 3; i++) {
        static const H5Z_filter_t want[] = {H5Z_FILTER_SHUFFLE, H5_ZSTD_ID, H5Z_FILTER_FLETCHER32};
        unsigned flags, level[4], config;
        size_t n = 4;
        assert_int_equal(H5Pget_filter2(create, i, &flags, &n, level, 0, NULL, &config), want[i]);
        assert_true(i != 1 || !(flags & H5Z_FLAG_OPTIONAL));
    }
    H5Pclose(create), H5Tclose(type), H5Dclose(d);
}

/* The file as formats/shard/shard.md has it, looked at with HDF5 itself. */
TEST(layout) {
    shard *s = fixture_shard("both", 3, 10);
    write_shard(s, in_temp_folder("a.h5"));
    CKVC_AUTO_FREE char *bytes = file_bytes(in_temp_folder("a.h5"), NULL);
    assert_int_equal(bytes[8], 3); /* superblock */
    hid_t file = H5Fopen(in_temp_folder("a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    check_column(file, "record/reward", H5T_IEEE_F64LE, 30);
    check_column(file, "record/side", H5T_STD_U8LE, 30);
    check_column(file, "record/set_hash", H5T_STD_U64LE, 30);
    check_column(file, "baseline/n_kept", H5T_STD_U32LE, 65536 / 2);
    hid_t id = H5Dopen2(file, "prompt/id", H5P_DEFAULT), type = H5Dget_type(id);
    assert_true(H5Tget_size(type) == 255 && H5Tget_strpad(type) == H5T_STR_NULLPAD);
    assert_int_equal(H5Tget_cset(type), H5T_CSET_UTF8);
    H5Tclose(type), H5Dclose(id);
    H5O_info_t info;
    assert_true(H5Oget_info_by_name(file, "record/reward", &info, H5P_DEFAULT) >= 0);
    assert_int_equal(info.mtime, 0);
    static const char *const names[] = {
        "format",        "version",         "ckvc_version", "plan",
        "fingerprint",   "model_name",      "family",       "n_layers",
        "n_heads",       "n_kv_heads",      "pass",         "window",
        "behaviour",     "continuation",    "alpha_kind",   "lambda",
        "seed",          "manifest",        "budgets",      "start_tau",
        "head_actions",  "gate_actions",    "start_weight", "keep_window",
        "edges_entropy", "edges_perplexity"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(H5Aexists(file, names[i]) > 0);
    }
    H5Fclose(file), shard_free(s);
}

TEST(encode_decode) {
    static const char *const passes[] = {"scan", "demand", "score", "both"};
    for (size_t k = 0; k < sizeof passes / sizeof *passes; k++) {
        shard *s = fixture_shard(passes[k], 2, 3), *t = fixture_shard(passes[k], 1, 3);
        ckvc_buffer bytes = {0};
        shard_encode(s, &bytes);
        OK(shard_decode(t, bytes.data, bytes.size, &err));
        assert_int_equal(t->n_prompts, 3);
        assert_memory_equal(&t->prompts[1], s->prompts, 2 * sizeof *s->prompts);
        if (s->n_records) {
            assert_int_equal(t->records[t->n_records - 1].prompt,
                             s->records[s->n_records - 1].prompt + 1);
        }
        shard *joined = fixture_shard(passes[k], 1, 3);
        shard_append(joined, s);
        assert_true(fixture_same(joined, t));
        /* Every shorter text is refused and leaves the shard as it was. */
        for (size_t n = 0; n < bytes.size; n++) {
            ckvc_err why = {0};
            assert_int_equal(shard_decode(t, bytes.data, n, &why), CKVC_E_DATA);
            assert_true(strlen(why.text) > 10);
        }
        assert_true(fixture_same(joined, t));
        ckvc_buffer_u8(&bytes, 0);
        assert_int_equal(shard_decode(t, bytes.data, bytes.size, NULL), CKVC_E_DATA);
        /* Any byte changed: refused or taken, never a crash; the sanitizers watch. */
        ckvc_rng rng = rng_of(1, 2, 3);
        for (int i = 0; i < 20000; i++) {
            size_t at = i < 1000 ? (size_t)i % 21 : ckvc_rng_below(&rng, bytes.size);
            uint8_t was = bytes.data[at];
            bytes.data[at] = (uint8_t)ckvc_rng_u32(&rng);
            shard_clear(t);
            ckvc_status st = shard_decode(t, bytes.data, bytes.size - 1, NULL);
            assert_true(st == CKVC_OK || st == CKVC_E_DATA);
            bytes.data[at] = was;
        }
        ckvc_buffer_fini(&bytes), shard_free(s), shard_free(t), shard_free(joined);
    }
}

TEST(header_copy) {
    shard *s = fixture_shard("gate", 0, 0), *t = fixture_shard("head", 0, 0);
    shard_header_copy(&t->h, &s->h);
    assert_true(fixture_same(s, t));
    assert_ptr_not_equal(s->h.side[CKVC_SIDE_GATE].start, t->h.side[CKVC_SIDE_GATE].start);
    ckvc_buffer b = {0};
    shard_header_encode(&s->h, &b);
    for (size_t n = 0; n < b.size; n++) {
        shard_header h = {0};
        ckvc_cursor c = {b.data, n, 0, false};
        assert_int_equal(shard_header_decode(&h, &c, NULL), CKVC_E_DATA);
    }
    ckvc_buffer_fini(&b), shard_free(s), shard_free(t);
}

/* What a header may have besides: through HDF5, plain bytes, and without a trace where absent. */
TEST(optional_header) {
    shard *s = fixture_shard("head", 2, 3);
    ckvc_buffer plain = {0}, full = {0};
    shard_header_encode(&s->h, &plain);
    write_shard(s, in_temp_folder("a.h5"));
    hid_t file = H5Fopen(in_temp_folder("a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_int_equal(H5Aexists(file, "operator"), 0);
    assert_int_equal(H5Aexists(file, "layer_budgets"), 0);
    H5Fclose(file);
    s->h.setting.op = CKVC_OPERATOR_MEAN_POOL;
    s->h.setting.layer_budgets = (setting_list){fixture_reals(2, 40, 24), 2};
    shard_header_encode(&s->h, &full);
    assert_int_equal(full.size, plain.size + 4 + 1 + strlen("mean-pool") + 2 * sizeof(double));
    for (size_t n = 0; n <= full.size; n++) {
        shard_header h = {0};
        ckvc_cursor c = {full.data, n, 0, false};
        assert_int_equal(shard_header_decode(&h, &c, NULL), n == full.size ? CKVC_OK : CKVC_E_DATA);
        const setting_list *by_layer = &h.setting.layer_budgets;
        assert_true(n < full.size || (by_layer->n == 2 && by_layer->v[1] == 64 &&
                                      h.setting.op == CKVC_OPERATOR_MEAN_POOL));
        shard_header_fini(&h);
    }
    shard *t = through_file(s, false);
    assert_int_equal(t->h.setting.op, CKVC_OPERATOR_MEAN_POOL);
    json_auto_t *about = shard_describe(t);
    holds(about, "", "{'operator': 'mean-pool', 'layer_budgets': [40, 64]}");
    shard_free(through_file(s, true));
    ckvc_buffer_fini(&plain), ckvc_buffer_fini(&full), shard_free(s), shard_free(t);
}

/* A demand shard of 3 prompts, two of which have 2 queries of the prompt and one of the
 * continuation. */
static shard *with_queries(void) {
    shard *s = fixture_one_pass(3);
    s->h.setting.queries = 2;
    for (uint32_t p = 0; p < 3; p += 2) {
        const uint32_t T = s->prompts[p].n_tokens, positions[] = {p, T - 1, T + 3};
        for (uint32_t k = 0; k < 3; k++) {
            const size_t row = shard_add_query(s, &(struct shard_query){p, k == 2, positions[k]});
            for (uint16_t i = 0; i < 2 * 4 * 2; i++) { /* L H D */
                s->query_vectors[row * 16 + i] = (uint16_t)((i + k) << 8 | p | (i % 2) << 15);
            }
        }
    }
    return s;
}

/* Queries go through the file, the plain bytes and a join; a shard that logs none has no byte of
 * them. */
TEST(queries) {
    CKVC_AUTO(shard_free_at) shard *s = with_queries(), *t = through_file(s, true);
    CKVC_AUTO(shard_free_at) shard *joined = with_queries(), *u = with_queries();
    assert_int_equal(t->h.setting.queries, 2);
    assert_int_equal(t->n_queries, 6);
    assert_memory_equal(t->query_vectors, s->query_vectors, 6 * 16 * sizeof(uint16_t));
    shard_append(joined, s);
    assert_int_equal(joined->queries[6].prompt, 3);
    OK(shard_rows_check(joined, "here", &err));
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer bytes = {0};
    shard_encode(s, &bytes);
    OK(shard_decode(u, bytes.data, bytes.size, &err));
    assert_true(fixture_same(joined, u));
    json_auto_t *about = shard_describe(t);
    holds(about, "", "{'queries': 2, 'query_rows': 6}");
    hid_t file = H5Fopen(in_temp_folder("a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    check_column(file, "query/vectors", H5T_STD_U16LE, 65536 / 16);
    H5Fclose(file);
    CKVC_AUTO(shard_free_at) shard *plain = fixture_one_pass(3);
    write_shard(plain, in_temp_folder("a.h5"));
    file = H5Fopen(in_temp_folder("a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(H5Lexists(file, "query", H5P_DEFAULT) == 0 && H5Aexists(file, "queries") == 0);
    H5Fclose(file);
}

/* ---- refusals: one change to a good shard, and a word of the message that must name it ---- */
#define BENT(pass, n_records, step, want, word, ...)                                               \
    do {                                                                                           \
        shard *s = fixture_shard(pass, 3, n_records);                                              \
        shard_header *h = &s->h;                                                                   \
        struct shard_prompt *p = s->prompts;                                                       \
        struct shard_record *r = s->records;                                                       \
        (void)h, (void)p, (void)r;                                                                 \
        __VA_ARGS__;                                                                               \
        SAYS(step, want, word);                                                                    \
        shard_free(s);                                                                             \
    } while (0)

static ckvc_status image_of(const shard *s) {
    uint8_t *image;
    size_t n;
    const ckvc_status st = shard_h5_image(s, &image, &n, &err);
    assert_null(image);
    return st;
}
#define REFUSED(word, ...)          BENT("both", 4, image_of(s), CKVC_E_BUG, word, __VA_ARGS__)
#define REFUSED_OF(pass, word, ...) BENT(pass, 0, image_of(s), CKVC_E_BUG, word, __VA_ARGS__)
#define RANGE(pass, word, ...)                                                                     \
    BENT(pass, 4, shard_rows_check(s, "here", &err), CKVC_E_DATA, word, __VA_ARGS__)
#define TAKEN(pass, ...) BENT(pass, 4, shard_rows_check(s, "here", &err), CKVC_OK, "", __VA_ARGS__)

TEST(refusals) {
    REFUSED("pass", strcpy(h->pass, "tail"));
    REFUSED("pass is \"shares\": losses under other shares, or under thresholds below them, which "
            "this version of ckvc no longer has",
            strcpy(h->pass, "shares"));
    REFUSED("which this version of ckvc no longer has", strcpy(h->pass, "cuts"));
    REFUSED("alpha_kind", h->setting.alpha = (ckvc_alpha_kind)2);
    REFUSED("model_name", strcpy(h->model_name, "a\xff"));
    REFUSED("n_layers", h->n_layers = 0);
    REFUSED("n_heads", h->n_heads = 3);
    REFUSED("window", h->setting.window = 0);
    REFUSED("lambda", h->setting.beta_bud = NAN);
    REFUSED("budgets[1]", h->budgets[1] = 0);
    REFUSED("budgets[1]", h->budgets[1] = NAN);
    REFUSED("head_actions",
            h->side[CKVC_SIDE_HEAD].actions[3] = h->side[CKVC_SIDE_HEAD].actions[2]);
    REFUSED("edges_entropy", h->edges_entropy[1] = h->edges_entropy[0] - 1);
    REFUSED("edges_perplexity", h->edges_ppl[0] = INFINITY);
    REFUSED("start_weight", h->side[CKVC_SIDE_HEAD].start[5] = 1.6f);
    REFUSED("start_tau", h->side[CKVC_SIDE_GATE].start[5] = NAN);
    REFUSED("start_tau", free(h->side[CKVC_SIDE_GATE].start); h->side[CKVC_SIDE_GATE].start = NULL);
    REFUSED("operator", h->setting.op = CKVC_OPERATOR_COUNT);
    REFUSED("compute", h->setting.compute = (ckvc_compute)2);
    REFUSED("layer_budgets",
            h->setting.layer_budgets = ((setting_list){fixture_reals(1, 8, 8), 1}));
    REFUSED("layer_budgets[0]",
            h->setting.layer_budgets = ((setting_list){fixture_reals(2, 0, 8), 2}));
    REFUSED("prompt/id", p[1].id[0] = 0);
    REFUSED("prompt/id", p[1].id[0] = '\n');
    REFUSED("loss_full", p[1].loss_full = NAN);
    REFUSED("r_sem", p[0].r_sem = INFINITY);
    REFUSED("prompt/cut", p[0].cut = 2);
    REFUSED("bin_entropy", p[0].bin_entropy = 3);
    REFUSED("bin_perpl", p[0].bin_ppl = 2);
    REFUSED("baseline/p", s->baselines[2].prompt = 3);
    REFUSED("baseline/budget", s->baselines[2].budget = 3);
    REFUSED("baseline/loss", s->baselines[2].loss = -INFINITY);
    REFUSED("record/pr", r[1].prompt = 3);
    REFUSED("record/side", r[1].side = 2);
    REFUSED("record/layer", r[1].layer = 2);
    REFUSED("record/head", r[0].head = 2);
    REFUSED("record/h", r[1].head = 0);
    REFUSED("record/bud", r[1].budget = 3);
    REFUSED("record/action", r[1].action = CKVC_GATE_ACTIONS);
    REFUSED("action", r[0].action = CKVC_HEAD_ACTIONS);
    REFUSED("n_continuation", h->setting.reduction = CKVC_LOSS_SUM;
            p[r[0].prompt].n_continuation = 0);
    REFUSED("record/rew", r[1].reward = NAN);
    REFUSED("record/ba", r[1].baseline = NAN);
    REFUSED("record/loss", r[1].loss = INFINITY);
    REFUSED("repeat", memset(h->setting.repeat, 'x', SETTING_TEXT_SIZE));
    REFUSED("repeat", strcpy(h->setting.repeat, "a\nb"));
    REFUSED("floor", h->setting.floor = 1.5);
    REFUSED("record/side", strcpy(h->pass, "head"));
}

/* Of a demand shard: no more entries than tokens, a budget that they are of, no records. Of a score
 * shard: features of a version that is known, and as many as it has. */
TEST(refusals_without_rollouts) {
    REFUSED_OF("demand", "prompt/demand, row 2, is 103, must be 0 to 102, its n_tokens",
               s->demand[2 * 12 + 5] = 103);
    REFUSED_OF("demand", "prompt/layer_demand, row 0", s->layer_demand[0] = 101);
    REFUSED_OF("demand", "prompt/length_demand, row 0", s->length_demand[0] = 101);
    REFUSED_OF("demand", "budgets", h->n_budgets = 0);
    REFUSED_OF("demand", "1 records in a demand shard",
               shard_add_record(s, &(struct shard_record){0}));
    REFUSED_OF("score", "positions is 0", h->setting.positions = 0);
    REFUSED_OF("score", "features is 99, a version", h->setting.features = 99);
    REFUSED_OF("score", "n_features is 5, must be 24 and", h->setting.n_features = 5);
    REFUSED_OF("score", "n_features is 25", h->setting.n_features--);
    REFUSED_OF("score", "1 records in a score shard",
               shard_add_record(s, &(struct shard_record){0}));
}

#define BAD_QUERY(word, ...)                                                                       \
    do {                                                                                           \
        CKVC_AUTO(shard_free_at) shard *s = with_queries();                                        \
        struct shard_query *q = s->queries;                                                        \
        (void)q;                                                                                   \
        __VA_ARGS__;                                                                               \
        SAYS(image_of(s), CKVC_E_BUG, word);                                                       \
    } while (0)

TEST(refused_queries) {
    BAD_QUERY("attribute queries is 1025, must be", s->h.setting.queries = 1025);
    BAD_QUERY("attribute queries is 2, must be 0 where there is no demand with features",
              s->h.setting.positions = 0);
    BAD_QUERY("query/prompt, row 5, is 3, must be below 3", q[5].prompt = 3);
    BAD_QUERY("query/part, row 5, is 2, must be below 2", q[5].part = 2);
    BAD_QUERY("query/position, row 1, is 100, must be from 0 and below 100", q[1].position = 100);
    BAD_QUERY("query/position, row 2, is 99, must be from 100 and below 116", q[2].position = 99);
    BAD_QUERY("query/position, row 2, is 116, must be from 100", q[2].position = 116);
    BAD_QUERY("query, row 1, does not ascend", q[1].position = q[0].position);
    BAD_QUERY("query, row 3, does not ascend", q[2].prompt = 2; q[2].position += 10;
              q[3].prompt = 0);
    BAD_QUERY("query, row 1, is one more than the 1 (queries)", s->h.setting.queries = 1);
    BAD_QUERY("query/vectors, row 4, number 15 is not finite",
              s->query_vectors[4 * 16 + 15] = 0xfc00);
    BAD_QUERY("query/vectors, row 0, number 0 is not finite", s->query_vectors[0] = 0x7e00);
}

/* Every column of numbers at what it cannot hold. */
TEST(ranges) {
    RANGE("scan", "prompt/r_struct, row 1, is -1, must be -0.001 to 1e+39", p[1].r_struct = -1);
    RANGE("both", "prompt/r_sem, row 1, is -1, must be 0 to 1.79769e+308", p[1].r_sem = -1);
    RANGE("score", "prompt/loss_full, row 1, is 1e+308, must be -0.001 to 1e+39",
          p[1].loss_full = 1e308);
    RANGE("scan", "prompt/rho_sd, row 1, is -1, must be 0 to 65536", s->rho_sd[4] = -1);
    RANGE("demand", "prompt/own_recent, row 1, is 1.5, must be 0 to 1.001", s->own_recent[4] = 1.5);
    RANGE("demand", "prompt/own_entropy, row 1, is 1e+308, must be -0.001 to 23",
          s->own_entropy[4] = 1e308);
    RANGE("score", "prompt/mass, row 1, is -1, must be 0 to 101, its n_tokens", s->mass[4] = -1);
    RANGE("score", "prompt/mass, row 1, is 1e+308, must be 0 to 101", s->mass[4] = 1e308);
    RANGE("score", "prompt/mass, row 1, is nan, must be 0 to 101", s->mass[4] = NAN);
    RANGE("score", "prompt/target, row 1, is 3, must be 0 to 2.001", s->target[4] = 3);
    RANGE("score", "prompt/target_features, row 1, is 1e+308, must be -1e+39 to",
          s->target_features[4 * FIXTURE_FEATURES] = 1e308);
    RANGE("score", "prompt/features, row 1, is -inf, must be -3.40282e+38 to",
          s->features[4 * FIXTURE_FEATURES * FIXTURE_POSITIONS] = -INFINITY);
    RANGE("score", "prompt/expected_loss, row 1, is -1, must be -0.001 to 33",
          s->expected_loss[4] = -1);
    RANGE("both", "baseline/loss, row 3, is -1, must be -0.001 to 1e+39",
          s->baselines[3].loss = -1);
    RANGE("both", "baseline/n_kept, row 3, is 102, must be 0 to 101, its n_tokens",
          s->n_kept[3 * 2] = 102);
    RANGE("both", "baseline/n_candidates_lo, row 3, is 4.29497e+09, must be 0 to 101",
          s->n_candidates_lo[3 * 2 + 1] = UINT32_MAX);
    RANGE("both", "record/reward, row 1, is inf, must be ", r[1].reward = INFINITY);
    RANGE("both", "record/loss, row 1, is 1e+308, must be -0.001 to 1e+39", r[1].loss = 1e308);
    RANGE("both", "record/n_kept, row 1, is 101, must be below 101", r[1].n_kept = 101);
    /* what is not known bounds nothing */
    TAKEN("both", p[0].n_tokens = 0; r[0].n_kept = 1000; s->n_kept[0] = 1000);
    TAKEN("score", p[1].n_tokens = 0; s->mass[4] = 1000);
    TAKEN("score", p[0].loss_full = -1e-7; p[0].r_sem = 0);
}

/* Documents stand in the file and in the log where some prompt has one; where none has, no byte of
 * either is other than before there were any. */
TEST(documents) {
    shard *s = fixture_shard("demand", 3, 0), *u = fixture_shard("demand", 0, 0);
    ckvc_buffer none = {0}, bytes = {0};
    uint8_t *image;
    size_t n;
    shard_encode(s, &none);
    snprintf(s->prompts[1].document, SHARD_STRING, "a document");
    snprintf(s->prompts[2].document, SHARD_STRING, "a document");
    shard_encode(s, &bytes);
    assert_true(bytes.size == none.size + 3 + 2 * strlen("a document"));
    assert_memory_equal(bytes.data, none.data, none.size);
    OK(shard_decode(u, bytes.data, bytes.size, &err));
    assert_true(fixture_same(s, u));
    shard *t = through_file(s, true);
    assert_string_equal(shard_prompt_cluster(&t->prompts[2]), "a document");
    assert_string_equal(shard_prompt_cluster(&t->prompts[0]), t->prompts[0].id);
    s->prompts[1].document[0] = '\n';
    SAYS(shard_h5_image(s, &image, &n, &err), CKVC_E_BUG, "prompt/document, row 1");
    ckvc_buffer_fini(&none), ckvc_buffer_fini(&bytes), shard_free(s), shard_free(t), shard_free(u);
}

/* A demand or score shard needs its columns: zeros would be shares. What was added later may be
 * missing, and is zeros then. Of this program's own shards as of a stranger's. */
TEST(missing_columns) {
    static const char *const cases[][2] = {
        {"demand", "prompt/demand"},         {"demand", "prompt/layer_demand"},
        {"score", "prompt/target_features"}, {"score", "prompt/expected_loss"},
        {"demand", "prompt/length_demand"},  {"demand", "prompt/mixed_length_demand"}};
    for (size_t i = 0; i < 12; i++) {
        const char *name = cases[i / 2][1];
        CKVC_AUTO(shard_free_at)
        shard *t = NULL,
              *s = i / 2 < 4 ? fixture_shard(cases[i / 2][0], 2, 0) : fixture_one_pass(2);
        write_shard(s, in_temp_folder("a.h5"));
        hid_t file = H5Fopen(in_temp_folder("a.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
        assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
        H5Fclose(file);
        if (i / 2 < 3) {
            SAYS(shard_h5_read(in_temp_folder("a.h5"), i % 2, &t, &err), CKVC_E_DATA, name);
        } else {
            OK(shard_h5_read(in_temp_folder("a.h5"), i % 2, &t, &err));
            assert_true(t->n_prompts == 2 && t->target[7] > 0);
            assert_true(i / 2 != 3 || t->expected_loss[7] == 0);
            assert_true(i / 2 != 4 || (t->length_demand[11] == 0 && s->length_demand[11] > 0));
            assert_true(i / 2 != 5 ||
                        (t->mixed_length_demand[47] == 0 && t->length_demand[11] > 0));
        }
    }
}

TEST(unreadable_places) {
    shard *t;
    FAILS(shard_h5_read("/nowhere/a.h5", false, &t, &err), CKVC_E_NOINPUT);
    FAILS(shard_h5_read(temp_folder, false, &t, &err), CKVC_E_NOINPUT);
    assert_null(t);
}

TEST(describe) {
    shard *s = fixture_shard("both", 2, 4);
    json_t *d = shard_describe(s);
    holds(d, "", "{'records': 8, 'gate_records': 4, 'pass': 'both'}");
    json_decref(d), shard_free(s);
    s = fixture_shard("demand", 2, 0);
    d = shard_describe(s);
    holds(d, "shares", "[{}, {}]"); /* [L][G][nB] */
    is(d, "shares.1.0.2", (s->demand[10] / 64.0 + s->demand[22] / 64.0) / 2);
    assert_string_equal(text_at(d, "repeat"), s->h.setting.repeat);
    json_decref(d), shard_free(s);
}

/* Lines as Python reads them are in tests/python/test_export.py. */
TEST(lines_name_heads) {
    CKVC_AUTO(shard_free_at) shard *s = fixture_shard("both", 1, 2);
    static const char *const names[] = {"kv_head", "head"};
    for (int own = 0; own < 2; own++) {
        CKVC_AUTO_FREE char *text = NULL;
        size_t n;
        json_t *line;
        s->h.n_heads = own ? s->h.n_kv_heads : 2 * s->h.n_kv_heads;
        FILE *f = open_memstream(&text, &n);
        shard_print_records(s, "pass-01-both", f);
        fclose(f);
        char *gate = strchr(text, '\n') + 1;
        OK(ckvc_json_parse(text, (size_t)(gate - text), "line", &line, &err));
        is(line, names[own], s->records[0].head);
        assert_null(json_object_get(line, names[!own]));
        json_decref(line);
        OK(ckvc_json_parse(gate, strlen(gate), "line", &line, &err));
        assert_string_equal(text_at(line, "kind"), "gate");
        is(line, "layer", s->records[1].layer);
        assert_null(json_object_get(line, "head"));
        assert_null(json_object_get(line, "kv_head"));
        json_decref(line);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
