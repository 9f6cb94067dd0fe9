/* The .ckvt reader and writer: round trip, same bytes twice, content id, and every refusal that
 * formats/table/table.md lists. Files are damaged blindly (each byte, each length) and knowingly:
 * taken apart into sections, changed, put together again with sums that fit. */
#include <sys/stat.h>
#include <zstd.h>

#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/bytes.h"
#include "lib/base/cache_format.h"
#include "lib/base/json.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/json_holds.h"
#include "tests/unit/temp_folder.h"

static const char *path, *path2;

static int setup(void **state) {
    if (temp_folder_make(state) != 0) { return -1; }
    path = in_temp_folder("t.ckvt");
    path2 = in_temp_folder("u.ckvt");
    return 0;
}

typedef table_file *(*maker)(void);
/* One layer, 4 query heads on 2 KV heads, 2 x 2 bins, 2 budgets, 3 actions; every section. */
static table_file *sample(void) {
    table_file *t = table_file_around(ckvc_table_create(1, 2, 2, 2, 2, 3, 3), true);
    assert_non_null(t);
    ckvc_table *c = t->table;
    c->n_query_heads = 4;
    c->window = 16;
    c->budgets[0] = 0.25;
    c->budgets[1] = 64;
    for (int a = 0; a < 3; a++) {
        c->head_grid[a] = (39 + a) / 40.0;
        c->gate_grid[a] = (89 + a) / 100.0;
    }
    c->edges_entropy[0] = 4.75;
    c->edges_ppl[0] = 12.5;
    for (int i = 0; i < 4; i++) { c->weight[i] = (float)c->head_grid[i % 3]; }
    for (int i = 0; i < 8; i++) { c->tau[i] = (float)c->gate_grid[i % 3]; }
    table_evidence *e = t->evidence;
    for (int i = 0; i < 12; i += 2) { /* every other action was logged */
        e[CKVC_SIDE_HEAD].q[i] = -0.125 * i;
        e[CKVC_SIDE_HEAD].n[i] = (uint64_t)i + 1;
        e[CKVC_SIDE_HEAD].m[i] = 0.5 * i;
    }
    for (int i = 0; i < 24; i += 3) {
        e[CKVC_SIDE_GATE].q[i] = 0.25 * i;
        e[CKVC_SIDE_GATE].n[i] = 2;
        e[CKVC_SIDE_GATE].m[i] = -1.0;
        e[CKVC_SIDE_GATE].l[i] = -0.75;
    }
    t->evidence[CKVC_SIDE_HEAD].share = calloc(12, sizeof(float));
    t->evidence[CKVC_SIDE_GATE].share = calloc(24, sizeof(float));
    t->signature = calloc(6, sizeof(double));
    t->evidence[CKVC_SIDE_HEAD].share[3] = 1.0f;
    t->signature[5] = 0.5;
    json_object_set_new(t->meta, "label", json_string("sample"));
    json_object_set_new(t->meta, "cql_alpha", json_real(0.75));
    t->prov = json_pack("{s:s}", "host", "somewhere");
    t->xfer = json_pack("{s:s}", "heads", "index");
    return t;
}

/* The same with shares for heads and layers, and intervals; of a demand fit, without thresholds. */
static table_file *sample_with_shares(void) {
    table_file *t = sample();
    ckvc_table *c = t->table;
    assert_int_equal(ckvc_table_add_shares(c, 1), 0);
    c->op = CKVC_OPERATOR_NO_THRESHOLD;
    t->share_interval = calloc(8, sizeof(double));
    for (int i = 0; i < 4; i++) { /* [1][2][2] */
        c->share[i] = i < 2 ? 1.75 - 0.25 * i : 0.25 + 0.25 * (i - 2);
        t->share_interval[2 * i] = c->share[i] - 0.125;
        t->share_interval[2 * i + 1] = c->share[i] + 0.25;
    }
    for (int b = 0; b < 2; b++) {
        c->layer_share[b] = 1.0;
        c->c_min[b] = (ckvc_c_min){b ? 0.5 : 0.25, 8};
    }
    c->score[0] = (ckvc_score){CKVC_SCORE_WINDOW, 32, 7, 1, 0, CKVC_MODE_HEADS};
    c->score[1] = (ckvc_score){.kind = CKVC_SCORE_PAPER, .mode = CKVC_MODE_LAYERS};
    return t;
}

/* The same with shares of lengths, by which the first budget is divided. */
static table_file *sample_with_lengths(void) {
    table_file *t = sample_with_shares();
    assert_int_equal(ckvc_table_add_lengths(t->table), 0);
    t->table->length_share[0] = 1.0;
    t->table->length_share[1] = 0.75;
    t->table->score[0].mode = CKVC_MODE_LENGTHS;
    return t;
}

/* The same with a learned ranking of keys of two numbers, which the first budget recommends. */
static table_file *sample_with_features(uint32_t version) {
    table_file *t = sample_with_shares();
    ckvc_table *c = t->table;
    assert_int_equal(ckvc_table_add_learned(c, ckvc_features_count(version, 2)), 0);
    for (uint32_t i = 0; i < 2 * c->n_features; i++) { /* [1][2][26], of version 2 [1][2][13] */
        c->theta[i] = (float)((int)(i * 7 % 11) - 5) / 16;
    }
    c->mass[0] = 0.75;
    c->mass[1] = 0.25;
    c->score[0] = (ckvc_score){CKVC_SCORE_LEARNED, ckvc_features_rows(version), 0, 0, version,
                               CKVC_MODE_HEADS};
    c->score[1].features = version;
    return t;
}
static table_file *sample_with_theta(void) { return sample_with_features(CKVC_FEATURES_1); }
static table_file *sample_without_rows(void) { return sample_with_features(CKVC_FEATURES_2); }

/* The same with a bank of two queries of two numbers for each of four query heads. */
static table_file *sample_with_bank(void) {
    table_file *t = sample_without_rows();
    ckvc_table *c = t->table;
    c->n_query_heads = 4;
    assert_int_equal(ckvc_table_add_bank(c, 2, 2), 0);
    for (int i = 0; i < 16; i++) { c->bank[i] = (float)(i * 5 % 17 - 8) / 4; }
    c->ridge[0] = 0.5; /* [1][2]; the second budget's values stay as they are */
    c->bank_use[0] = (ckvc_bank_use){2, 96};
    c->bank_use[1] = (ckvc_bank_use){1, 96};
    return t;
}

/* The same, whose first budget was chosen in bytes. */
static table_file *sample_with_bytes(void) {
    table_file *t = sample_with_bank();
    assert_int_equal(ckvc_table_add_bytes(t->table), 0);
    t->table->byte_share[0] = 0.125;
    t->table->held[0] = (ckvc_held){CACHE_Q8_0, CACHE_Q4_0_ROT};
    t->table->held[1] = (ckvc_held){CACHE_F16, CACHE_BF16};
    return t;
}

static void write_table(table_file *t, const char *to) {
    OK(table_file_write(t, to, true, &err));
    assert_string_equal(err.text, "");
}

static table_file *read_table(const char *from) {
    table_file *t = NULL;
    OK(table_file_read(from, &t, &err));
    assert_string_equal(err.text, "");
    return t;
}

/* ---- good files ---- */
static void round_trip(table_file *t) {
    write_table(t, path);
    table_file *r = read_table(path);
    const ckvc_table *a = t->table, *b = r->table;
    assert_true(b->n_layers == 1 && b->n_heads == 2 && b->n_query_heads == 4 && b->window == 16);
    assert_true(b->n_entropy_bins == 2 && b->n_ppl_bins == 2 && b->n_budgets == 2);
    assert_int_equal(b->head_axis, 0);
    ckvt_spec specs[CKVT_SECTION_COUNT];
    assert_true(ckvt_specs(a, specs));
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        if (ckvt_values(t, (ckvt_section)i)) {
            assert_non_null(ckvt_values(r, (ckvt_section)i));
            assert_memory_equal(ckvt_values(t, (ckvt_section)i), ckvt_values(r, (ckvt_section)i),
                                specs[i].bytes);
        }
    }
    assert_true(r->has_evidence);
    assert_true(json_equal(t->meta, r->meta) && json_equal(t->prov, r->prov));
    assert_true(json_equal(t->xfer, r->xfer));
    assert_string_equal(t->content_id, r->content_id);

    /* The policy library sees the same numbers. */
    ckvc_table *p = NULL;
    char message[256];
    assert_int_equal(ckvc_table_read(path, &p, message, sizeof message), 0);
    assert_memory_equal(p->weight, a->weight, 16);
    assert_memory_equal(p->tau, a->tau, 32);
    assert_true(!p->share == !a->share && p->n_features == a->n_features);
    if (a->theta) { assert_memory_equal(p->theta, a->theta, 2 * sizeof(float) * a->n_features); }
    ckvc_table_free(p);

    /* What was read is written to the same bytes. */
    write_table(r, path2);
    shell("cmp %s %s", path, path2);
    table_file_free(t), table_file_free(r);
}

TEST(round_trip) {
    round_trip(sample());
    round_trip(sample_with_shares());
    round_trip(sample_with_lengths());
    round_trip(sample_with_theta());
    table_file *t = sample_with_shares(); /* without layer shares, without intervals */
    free(t->table->layer_share), free(t->share_interval);
    t->table->layer_share = t->share_interval = NULL;
    t->table->score[1].mode = CKVC_MODE_HEADS;
    round_trip(t);
    t = sample(); /* SHAPE of ten numbers */
    t->table->visible = 1;
    t->table->keep_window = 5;
    json_object_set_new(t->meta, "alpha_kind", json_string("visible"));
    json_object_set_new(t->meta, "keep_window", json_integer(5));
    round_trip(t);
}

/* What META says of alpha and the kept window is what SHAPE says, or it is refused. */
TEST(rule) {
    table_file *t = sample();
    for (int i = 0; i < 2; i++) {
        json_object_clear(t->meta);
        json_object_set_new(t->meta, i ? "keep_window" : "alpha_kind",
                            i ? json_integer(5) : json_string("visible"));
        SAYS(table_file_write(t, path, true, &err), CKVC_E_BUG,
             "another alpha_kind or keep_window");
    }
    t->table->keep_window = 5;
    write_table(t, path);
    ckvc_table *p = NULL;
    assert_int_equal(ckvc_table_read(path, &p, NULL, 0), 0);
    assert_true(p->keep_window == 5 && p->visible == 0);
    p->visible = 2;
    char message[256];
    assert_int_equal(ckvc_table_check(p, message, sizeof message), -1);
    assert_string_equal(message, "SHAPE[8] is 2: alpha is 0 (the paper's) or 1 (visible)");
    ckvc_table_free(p), table_file_free(t);
}

/* A probe's table says so twice, in the header and in META, and is read whole. */
TEST(operators) {
    char first_id[CKVC_SHA256_HEX] = "";
    for (int op = 0; op < CKVC_OPERATOR_COUNT; op++) {
        table_file *t = sample();
        const char *name = ckvc_operator_name((ckvc_operator)op);
        char message[256] = "";
        ckvc_table *p = NULL;
        size_t n;
        t->table->op = (ckvc_operator)op;
        write_table(t, path);
        uint8_t *bytes = file_bytes(path, &n);
        assert_int_equal(bytes[24], op);
        assert_string_not_equal(t->content_id, first_id);
        memcpy(first_id, t->content_id, sizeof first_id);
        table_file *r = read_table(path);
        assert_int_equal(r->table->op, op);
        const char *probe = json_string_value(json_object_get(r->meta, "probe"));
        assert_true(op ? probe && !strcmp(probe, name) : !probe);
        assert_int_equal(ckvc_table_parse("t", bytes, n, &p, message, sizeof message), 0);
        assert_int_equal(p->op, op);
        assert_true(op == CKVC_OPERATOR_NO_THRESHOLD
                        ? isinf(ckvc_table_tau(p, 0, 0, 0, 0)) && ckvc_table_tau(p, 0, 0, 0, 0) < 0
                        : ckvc_table_tau(p, 0, 0, 0, 0) == 0.89);
        assert_true(ckvc_table_weight(p, 0, 0, 1) == 1.0);
        if (op) {
            t->table->op = CKVC_OPERATOR_PAPER; /* META still names the probe */
            FAILS(table_file_write(t, path, true, &err), CKVC_E_BUG);
        }
        free(bytes), ckvc_table_free(p), table_file_free(t), table_file_free(r);
    }
    table_file *t = sample();
    t->table->op = CKVC_OPERATOR_COUNT;
    assert_int_equal(ckvc_table_check(t->table, NULL, 0), -1);
    json_object_set_new(t->meta, "probe", json_string("joint"));
    t->table->op = CKVC_OPERATOR_PAPER; /* which a joint probe has */
    OK(table_file_write(t, path, true, &err));
    table_file_free(t);
}

/* The worked example of formats/table/table.md. */
static table_file *one_layer(void) {
    table_file *t = table_file_around(ckvc_table_create(1, 1, 2, 1, 1, 3, 2), false);
    assert_non_null(t);
    ckvc_table *c = t->table;
    c->n_query_heads = 2;
    c->window = 16;
    c->budgets[0] = 0.25;
    for (int a = 0; a < 3; a++) { c->head_grid[a] = (39 + a) / 40.0; }
    c->gate_grid[0] = 0.9;
    c->gate_grid[1] = 0.95;
    c->edges_entropy[0] = 4.75;
    c->weight[0] = (float)c->head_grid[2];
    c->tau[0] = (float)c->gate_grid[0];
    c->tau[1] = (float)c->gate_grid[1];
    json_object_set_new(t->meta, "label", json_string("example"));
    return t;
}

/* Every version reads these files and writes the same sections. What is packed depends on zstd's
 * version: the content id is compared. CKVC_UPDATE_GOLDEN=1 makes new ones, with a new format. */
TEST(golden_files) {
    static const struct {
        const char *path;
        maker make;
    } files[] = {{"tests/golden/table/one-layer.ckvt", one_layer},
                 {"tests/golden/table/evidence.ckvt", sample},
                 {"tests/golden/table/shares.ckvt", sample_with_shares},
                 {"tests/golden/table/lengths.ckvt", sample_with_lengths},
                 {"tests/golden/table/learned.ckvt", sample_with_theta},
                 {"tests/golden/table/learned2.ckvt", sample_without_rows},
                 {"tests/golden/table/bank.ckvt", sample_with_bank},
                 {"tests/golden/table/bytes.ckvt", sample_with_bytes}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        table_file *t = files[i].make();
        if (getenv("CKVC_UPDATE_GOLDEN")) { write_table(t, files[i].path); }
        table_file *golden = read_table(files[i].path);
        write_table(t, i ? path2 : path);
        assert_string_equal(t->content_id, golden->content_id);
        table_file_free(t), table_file_free(golden);
    }
    size_t n, n_golden;
    CKVC_AUTO_FREE uint8_t *bytes = file_bytes(path, &n),
                           *golden = file_bytes("tests/golden/table/one-layer.ckvt", &n_golden);
    assert_int_equal(n, n_golden);
    /* behind these bytes: the version that wrote, and a CRC over it */
    assert_memory_equal(bytes, golden, CKVT_AT_WRITER);
    assert_memory_equal(bytes + CKVT_HEADER_BYTES, golden + CKVT_HEADER_BYTES,
                        n - CKVT_HEADER_BYTES);
}

TEST(content_id) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample();
    write_table(t, path);
    char id[CKVC_SHA256_HEX];
    memcpy(id, t->content_id, sizeof id);
    json_object_set_new(t->prov, "host", json_string("elsewhere"));
    json_decref(t->xfer);
    t->xfer = NULL;
    free(t->signature);
    t->signature = NULL;
    write_table(t, path2);
    assert_string_equal(t->content_id, id);
    json_object_set_new(t->meta, "label", json_string("another"));
    write_table(t, path2);
    assert_string_not_equal(t->content_id, id);
}

TEST(without_evidence) {
    CKVC_AUTO(table_file_free_at)
    table_file *t = table_file_around(ckvc_table_create(2, 1, 1, 1, 1, 1, 1), false);
    t->table->window = 1;
    t->table->budgets[0] = 8;
    t->table->head_grid[0] = t->table->weight[0] = t->table->weight[1] = 1.0;
    write_table(t, path);
    CKVC_AUTO(table_file_free_at) table_file *r = read_table(path);
    assert_true(!r->has_evidence && !r->evidence[CKVC_SIDE_HEAD].q);
    json_auto_t *d = table_file_describe(r, false), *cells = table_file_describe(r, true);
    holds(d, "evidence", "[]");
    holds(cells, "EDGEENT", "[]"); /* of one bin */
    assert_null(json_object_get(cells, "QHEAD"));
}

TEST(describe) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample();
    write_table(t, path);
    json_auto_t *cells = table_file_describe(t, true), *d = table_file_describe(t, false);
    holds(cells, "", /* what was never logged, -inf, is null */
          "{'meta.label': 'sample', 'WEIGHT': [[{}, {}]], 'QHEAD.0.0.0.1': null,"
          " 'SHAPE': [1, 4, 2, 2, 2, 2, 16, 0]}");
    /* [0][1][0] is entry 2 of [1][2][2] */
    assert_true((float)json_number_value(at(cells, "WEIGHT.0.1.0")) == t->table->weight[2]);
    holds(d, "evidence", "[{}, {}]");
    assert_string_equal(text_at(d, "content_id"), t->content_id);
}

TEST(describe_shares) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample_with_shares();
    json_auto_t *d = table_file_describe(t, false), *cells = table_file_describe(t, true);
    holds(d, "",
          "{'shares': [[[1.75, 1.5], [0.25, 0.5]]], 'layer_shares': [[1.0, 1.0]], 'c_min': "
          "[{'budget': 0.25, 'floor': 0.25, 'recent': 8}, {'budget': 64.0, 'floor': 0.5, "
          "'recent': 8}], 'score': [{'budget': 0.25, 'mode': 'heads', 'score': 'window', "
          "'window': 32, 'pool': 7, 'norm': true, 'features': 0}, {'budget': 64.0, 'mode': "
          "'layers', 'score': 'paper', 'window': 0, 'pool': 0, 'norm': false, 'features': 0}]}");
    holds(cells, "", "{'SCORE': [{}, {}], 'sSHARE': {}}");
    assert_null(json_object_get(d, "features"));
    assert_null(json_object_get(d, "length_shares"));
    CKVC_AUTO(table_file_free_at) table_file *lengths = sample_with_lengths();
    json_auto_t *of = table_file_describe(lengths, false);
    holds(of, "", "{'length_shares': [[1.0, 0.75]], 'score.0.mode': 'lengths'}");
}

TEST(describe_learned) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample_with_theta();
    json_auto_t *d = table_file_describe(t, false), *cells = table_file_describe(t, true);
    json_t *theta = at(d, "features.theta");
    holds(d, "features", "{'version': 1, 'n': 26, 'mass': [[0.75, 0.25]]}");
    assert_true(json_equal(at(cells, "THETA"), theta));
    assert_int_equal(json_array_size(at(theta, "0.1")), 26);
    assert_true((float)json_number_value(at(theta, "0.1.3")) == t->table->theta[29]);
}

TEST(refuses_to_write) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample();
    write_table(t, path);
    FAILS(table_file_write(t, path, false, &err), CKVC_E_CREATE); /* there already */
    t->table->weight[1] = 1.01f;
    SAYS(table_file_write(t, path2, true, &err), CKVC_E_BUG, "WEIGHT[1]");
    t->table->weight[1] = 1.0f;
    t->evidence[CKVC_SIDE_HEAD].q[1] = 0.0; /* never logged, must be -inf */
    SAYS(table_file_write(t, path2, true, &err), CKVC_E_BUG, "QHEAD[1]");
}

/* ---- blind damage ---- */
/* In one line that names the file once, as what it begins with. */
static void refuse(const char *what, const uint8_t *bytes, size_t size, const char *message) {
    table_file *t = NULL;
    write_bytes(path2, bytes, size);
    err = (ckvc_err){0};
    const ckvc_status st = table_file_read(path2, &t, &err);
    if (st != CKVC_E_DATA || t || !strstr(err.text, message) || strchr(err.text, '\n') ||
        strstr(err.text, path2) != err.text || strstr(err.text + 1, path2)) {
        fail_msg("%s: want a refusal with '%s', got '%s'", what, message, err.text);
    }
}

static uint8_t *sample_bytes(size_t *size) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample();
    write_table(t, path);
    return file_bytes(path, size);
}

TEST(every_byte_flipped) {
    size_t size;
    CKVC_AUTO_FREE uint8_t *bytes = sample_bytes(&size);
    static const uint8_t flips[] = {0x01, 0x80, 0xFF};
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            bytes[i] ^= flips[k];
            char what[64], message[256] = "";
            snprintf(what, sizeof what, "byte %zu ^ %02x", i, flips[k]);
            refuse(what, bytes, size, "");
            ckvc_table *p = NULL;
            int rc = ckvc_table_parse("t", bytes, size, &p, message, sizeof message);
            assert_int_equal(rc == 0, p != NULL);
            assert_int_equal(rc == 0, message[0] == 0);
            ckvc_table_free(p);
            bytes[i] ^= flips[k];
        }
    }
}

TEST(every_length) {
    size_t size;
    CKVC_AUTO_FREE uint8_t *bytes = sample_bytes(&size);
    char message[256];
    for (size_t n = 0; n < size; n++) {
        char what[64];
        snprintf(what, sizeof what, "cut to %zu", n);
        refuse(what, bytes, n, "");
        ckvc_table *p = NULL;
        uint8_t *exact = malloc(n ? n : 1); /* ASan sees a read behind the end */
        memcpy(exact, bytes, n);
        assert_int_equal(ckvc_table_parse("t", exact, n, &p, message, sizeof message), -1);
        free(exact);
    }
    CKVC_AUTO_FREE uint8_t *longer = calloc(1, size + 1);
    memcpy(longer, bytes, size);
    refuse("one byte more", longer, size + 1, "byte 32: file size");
}

/* ---- files taken apart and put together again ---- */
typedef struct part {
    uint8_t entry[CKVT_ENTRY_BYTES];
    uint8_t *stored;
    size_t size;
} part;
typedef struct kit {
    uint8_t header[CKVT_HEADER_BYTES];
    part parts[40];
    size_t n;
    uint8_t filler;   /* between sections */
    size_t extra_gap; /* before the last section */
    size_t overlap;   /* the last section begins so much too early */
    size_t trailing;
} kit;

static kit *take_apart(maker make) {
    CKVC_AUTO(table_file_free_at) table_file *t = make();
    write_table(t, path);
    size_t size;
    CKVC_AUTO_FREE uint8_t *bytes = file_bytes(path, &size);
    kit *k = calloc(1, sizeof *k);
    memcpy(k->header, bytes, sizeof k->header);
    k->n = ckvc_get_u32(bytes + CKVT_AT_N_SECTIONS);
    for (size_t i = 0; i < k->n; i++) {
        part *p = &k->parts[i];
        memcpy(p->entry, bytes + CKVT_HEADER_BYTES + i * CKVT_ENTRY_BYTES, CKVT_ENTRY_BYTES);
        p->size = ckvc_get_u64(p->entry + CKVT_ENTRY_STORED);
        p->stored = malloc(p->size + 1);
        memcpy(p->stored, bytes + ckvc_get_u64(p->entry + CKVT_ENTRY_OFFSET), p->size);
    }
    return k;
}

static void kit_free(kit *k) {
    for (size_t i = 0; i < k->n; i++) { free(k->parts[i].stored); }
    free(k);
}

static part *part_of(kit *k, const char *name) {
    for (size_t i = 0; i < k->n; i++) {
        if (!strncmp((const char *)k->parts[i].entry, name, 8)) { return &k->parts[i]; }
    }
    fail_msg("no section %s", name);
    return NULL;
}

/* New contents: bytes stored by `codec`. */
static void refill(part *p, const void *bytes, size_t size, uint16_t codec) {
    free(p->stored);
    p->stored = malloc(size + 1);
    memcpy(p->stored, bytes, size);
    p->size = size;
    ckvc_put_u16(p->entry + CKVT_ENTRY_CODEC, codec);
}

/* Dimension d of it, of the section's type. */
static void set_dim(part *p, int d, uint64_t n) {
    ckvc_put_u64(p->entry + CKVT_ENTRY_DIMS + 8 * d, n);
}

static part *add_part(kit *k, const char *name, uint16_t type, const void *bytes, size_t size,
                      uint16_t codec, uint64_t dim0) {
    part *p = &k->parts[k->n++];
    memset(p, 0, sizeof *p);
    memcpy(p->entry, name, strlen(name));
    ckvc_put_u16(p->entry + CKVT_ENTRY_TYPE, type);
    ckvc_put_u16(p->entry + CKVT_ENTRY_RANK, 1);
    refill(p, bytes, size, codec);
    set_dim(p, 0, dim0);
    return p;
}

static void drop_parts(kit *k, const char *names) {
    char name[16];
    for (int used; sscanf(names, "%15s%n", name, &used) == 1; names += used) {
        part *p = part_of(k, name);
        free(p->stored);
        memmove(p, p + 1, (size_t)(k->parts + k->n - (p + 1)) * sizeof *p);
        k->n--;
    }
}

enum { KEEP_HEADER_CRC = 1, KEEP_FIELDS = 2, KEEP_STORED = 4 };

/* The file, with every sum that follows from its parts made to fit. SHA-256 of packed sections
 * stays as it is. KEEP_FIELDS leaves sizes and counts of the header as they are in k->header;
 * KEEP_STORED the stored lengths of the entries. */
static uint8_t *assemble(kit *k, size_t *size, int flags) {
    static uint8_t file[1 << 16];
    memset(file, k->filler, sizeof file);
    size_t at = CKVT_HEADER_BYTES + k->n * CKVT_ENTRY_BYTES;
    for (size_t i = 0; i < k->n; i++) {
        part *p = &k->parts[i];
        at = (at + 63) / 64 * 64;
        if (i + 1 == k->n) { at = at + k->extra_gap - k->overlap; }
        memcpy(file + at, p->stored, p->size);
        ckvc_put_u64(p->entry + CKVT_ENTRY_OFFSET, at);
        if (!(flags & KEEP_STORED)) { ckvc_put_u64(p->entry + CKVT_ENTRY_STORED, p->size); }
        if (ckvc_get_u16(p->entry + CKVT_ENTRY_CODEC) == CKVT_RAW) {
            ckvc_sha256_bytes(p->stored, p->size, p->entry + CKVT_ENTRY_SHA256);
        }
        ckvc_put_u32(p->entry + CKVT_ENTRY_CRC, ckvc_crc32(0, p->stored, p->size));
        memcpy(file + CKVT_HEADER_BYTES + i * CKVT_ENTRY_BYTES, p->entry, CKVT_ENTRY_BYTES);
        at += p->size;
    }
    *size = at + k->trailing;
    uint8_t *h = k->header, digest[CKVC_SHA256_BYTES];
    if (!(flags & KEEP_FIELDS)) {
        ckvc_put_u64(h + CKVT_AT_FILE_SIZE, *size);
        ckvc_put_u32(h + CKVT_AT_N_SECTIONS, (uint32_t)k->n);
        ckvt_content_id(file + CKVT_HEADER_BYTES, k->n, digest);
        memcpy(h + CKVT_AT_CONTENT_ID, digest, sizeof digest);
    }
    ckvc_put_u32(h + CKVT_AT_DIRECTORY_CRC,
                 ckvc_crc32(0, file + CKVT_HEADER_BYTES, k->n * CKVT_ENTRY_BYTES));
    if (!(flags & KEEP_HEADER_CRC)) {
        ckvc_put_u32(h + CKVT_AT_HEADER_CRC, ckvc_crc32(0, h, CKVT_AT_HEADER_CRC));
    }
    memcpy(file, h, CKVT_HEADER_BYTES);
    return file;
}

static void refuse_kit(kit *k, int flags, const char *message) {
    size_t size;
    uint8_t *file = assemble(k, &size, flags);
    refuse(message, file, size, message);
    kit_free(k);
}

static table_file *read_kit(kit *k) {
    size_t size;
    uint8_t *file = assemble(k, &size, 0);
    write_bytes(path2, file, size);
    kit_free(k);
    return read_table(path2);
}

static void accept_kit(kit *k) { table_file_free(read_kit(k)); }

TEST(kit_is_sound) {
    accept_kit(take_apart(sample)); /* writes path2 */
    shell("cmp %s %s", path, path2);
}

TEST(accepted) {
    /* Unknown optional sections, a newer minor and unknown compatible flags are skipped. */
    kit *k = take_apart(sample);
    add_part(k, "zFuture1", CKVT_U32, "\1\0\0\0\2\0\0\0", 8, CKVT_RAW, 2);
    ckvc_put_u16(k->header + CKVT_AT_MINOR, 7);
    ckvc_put_u64(k->header + CKVT_AT_COMPATIBLE, UINT64_MAX);
    accept_kit(k);
    /* The same evidence stored raw has the same content id. */
    k = take_apart(sample);
    char id[CKVC_SHA256_HEX];
    ckvc_hex(k->header + CKVT_AT_CONTENT_ID, CKVC_SHA256_BYTES, id);
    part *p = part_of(k, "NHEAD");
    uint8_t raw[12 * 8];
    assert_int_equal(ZSTD_decompress(raw, sizeof raw, p->stored, p->size), sizeof raw);
    refill(p, raw, sizeof raw, CKVT_RAW);
    table_file *t = read_kit(k);
    assert_string_equal(t->content_id, id);
    table_file_free(t);
    /* Neither evidence nor optional sections. */
    k = take_apart(sample);
    drop_parts(k, "QHEAD QGATE NHEAD NGATE MHEAD MGATE LGATE sHEAD sGATE hSIG pROV xFER");
    accept_kit(k);
}

/* A field of an entry, or of the header, with another value; of a digest its first byte turned. */
static void refuse_field(const char *section, int at, size_t bytes, uint64_t value,
                         const char *message) {
    kit *k = take_apart(sample);
    size_t size;
    assemble(k, &size, 0);
    uint8_t field[8], *to = (section ? part_of(k, section)->entry : k->header) + at;
    ckvc_put_u64(field, value);
    if (at == (section ? CKVT_ENTRY_SHA256 : CKVT_AT_CONTENT_ID)) { field[0] = (uint8_t) ~*to; }
    memcpy(to, field, bytes);
    refuse_kit(k, section ? 0 : KEEP_FIELDS, message);
}

#define HEADER(field, ...)         refuse_field(NULL, CKVT_AT_##field, __VA_ARGS__)
#define ENTRY(section, field, ...) refuse_field(section, CKVT_ENTRY_##field, __VA_ARGS__)

TEST(header_refusals) {
    refuse_field(NULL, 0, 1, 'x', "not a ckvt table");
    refuse_field(NULL, 4, 1, 0x0A, "line ends were changed");
    HEADER(HEADER_SIZE, 2, 256, "byte 8: header size 256");
    HEADER(MAJOR, 2, 2, "byte 10: format 2.0, this reader knows 1.x; upgrade ckvc");
    HEADER(BYTE_ORDER, 2, 0x0201, "byte 14: byte order mark");
    HEADER(INCOMPATIBLE, 8, 64, "byte 24: incompatible flags 0x40");
    HEADER(INCOMPATIBLE, 8, 8,
           "byte 24: flag 8: the table has thresholds below shares, which this version of ckvc no "
           "longer has");
    HEADER(INCOMPATIBLE, 8, (uint64_t)1 << 63, "byte 24: incompatible flags 0x8000");
    HEADER(INCOMPATIBLE, 8, 4, "section SHARE is missing");
    HEADER(FILE_SIZE, 8, UINT64_MAX, "byte 32: file size");
    HEADER(DIRECTORY, 8, 192, "byte 40: directory offset");
    HEADER(N_SECTIONS, 4, 0, "byte 48: 0 sections");
    HEADER(N_SECTIONS, 4, 257, "byte 48: 257 sections");
    HEADER(N_SECTIONS, 4, 200, "byte 48: a directory of 200 sections does not fit");
    HEADER(N_SECTIONS, 4, 3, "byte 120: CRC-32 of the directory");
    HEADER(ENTRY_SIZE, 4, 113, "byte 52: directory entries");
    HEADER(CONTENT_ID, 1, 0, "byte 56: the content id");
    refuse_field(NULL, 92, 1, 1, "byte 92: reserved");
    refuse_field(NULL, 119, 1, 1, "byte 119: reserved");
    kit *k = take_apart(sample);
    k->header[CKVT_AT_WRITER] ^= 1;
    refuse_kit(k, KEEP_HEADER_CRC, "byte 124: CRC-32 of the header");
}

TEST(entry_refusals) {
    ENTRY("WEIGHT", NAME, 1, '_', "letters and digits, then NUL");
    ENTRY("WEIGHT", NAME, 1, '9', "name begins with a letter");
    ENTRY("WEIGHT", NAME + 2, 1, ' ', "letters and digits, then NUL");
    ENTRY("WEIGHT", NAME + 7, 1, 'x', "letters and digits, then NUL");
    ENTRY("WEIGHT", NAME, 1, 'X', "section XEIGHT is from a later format");
    ENTRY("WEIGHT", NAME, 1, 'w', "section WEIGHT is missing");
    ENTRY("META", NAME, 1, 'm', "section META is missing");
    ENTRY("SHAPE", NAME, 1, 's', "section SHAPE is missing");
    ENTRY("QHEAD", NAME, 1, 'q', "section QHEAD is missing: the evidence comes all together");
    ENTRY("WEIGHT", NAME, 8, 0x554154 /* TAU */, "section TAU is there twice");
    ENTRY("WEIGHT", CODEC, 2, 2, "section WEIGHT: codec 2");
    ENTRY("WEIGHT", CODEC, 2, 1, "section WEIGHT: codec 1");
    ENTRY("META", CODEC, 2, 1, "section META: codec 1");
    ENTRY("QHEAD", CODEC, 2, 0, "section QHEAD: ");
    ENTRY("WEIGHT", TYPE, 2, 6, "section WEIGHT: type 6");
    ENTRY("WEIGHT", TYPE, 2, CKVT_U32, "section WEIGHT: codec 0, type 3, rank 3, want 0, 1, 3");
    ENTRY("sHEAD", TYPE, 2, CKVT_U32, "section sHEAD: type 3, rank 4, want 1, 4");
    ENTRY("META", RANK, 2, 0, "section META: rank 0, want 1 for bytes");
    ENTRY("WEIGHT", RANK, 2, 6, "section WEIGHT: rank 6");
    ENTRY("WEIGHT", RANK, 2, 2, "section WEIGHT: unused dimension is 2");
    refuse_field("WEIGHT", 14, 2, 1, "reserved field");
    refuse_field("WEIGHT", 108, 4, 1, "reserved field");
    ENTRY("WEIGHT", DIMS, 8, 2, "section WEIGHT: 16 bytes stored, its dimensions want 32");
    ENTRY("WEIGHT", DIMS, 8, UINT64_MAX / 2, "section WEIGHT: its dimensions overflow");
    ENTRY("QHEAD", DIMS, 8, 2, "section QHEAD: dimension 0 is 2, SHAPE and the grids want 1");
    ENTRY("hSIG", DIMS + 16, 8, 4, "section hSIG: dimension 2 is 4");
    ENTRY("WEIGHT", DIMS + 32, 8, 1, "section WEIGHT: unused dimension is 1");
    ENTRY("QHEAD", SHA256, 1, 0, "section QHEAD: its SHA-256");
    /* Stored lengths that lie. */
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 4096, 1 << 20};
    for (int i = 0; i < 3; i++) {
        kit *k = take_apart(sample);
        size_t size;
        assemble(k, &size, 0);
        ckvc_put_u64(part_of(k, "QHEAD")->entry + CKVT_ENTRY_STORED, lengths[i]);
        refuse_kit(k, KEEP_STORED, "lie outside the file");
    }
}

TEST(layout_refusals) {
    kit *k = take_apart(sample);
    k->filler = 0x20;
    refuse_kit(k, 0, "padding before section");
    k = take_apart(sample);
    k->extra_gap = 64;
    refuse_kit(k, 0, "the next multiple of 64");
    k = take_apart(sample);
    uint8_t bytes[200] = {0};
    add_part(k, "zLast", CKVT_BYTES, bytes, sizeof bytes, CKVT_RAW, sizeof bytes);
    k->overlap = 64;
    refuse_kit(k, 0, "the next multiple of 64");
    k = take_apart(sample);
    k->trailing = 3;
    refuse_kit(k, 0, "the last section ends here, 3 bytes follow");
}

typedef struct bent_value {
    const char *section;
    size_t index;
    double value;
    const char *message;
} bent_value;

/* A table with each value changed alone. */
static void refuse_values(maker make, const bent_value *v, size_t n_values) {
    for (; n_values-- > 0; v++) {
        kit *k = take_apart(make);
        part *p = part_of(k, v->section);
        uint8_t raw[512];
        size_t n = p->size;
        if (ckvc_get_u16(p->entry + CKVT_ENTRY_CODEC) == CKVT_ZSTD) {
            n = ZSTD_decompress(raw, sizeof raw, p->stored, p->size);
        } else {
            memcpy(raw, p->stored, n);
        }
        assert_true(n <= sizeof raw);
        switch (ckvc_get_u16(p->entry + CKVT_ENTRY_TYPE)) {
        case CKVT_F32: memcpy(raw + 4 * v->index, &(float){(float)v->value}, 4); break;
        case CKVT_F64: ckvc_put_f64(raw + 8 * v->index, v->value); break;
        case CKVT_U32: ckvc_put_u32(raw + 4 * v->index, (uint32_t)v->value); break;
        default: ckvc_put_u64(raw + 8 * v->index, (uint64_t)v->value);
        }
        refill(p, raw, n, CKVT_RAW);
        refuse_kit(k, 0, v->message);
    }
}
#define REFUSE_VALUES(make, ...)                                                                   \
    refuse_values(make, (bent_value[]){__VA_ARGS__},                                               \
                  sizeof((bent_value[]){__VA_ARGS__}) / sizeof(bent_value))

/* A table without some of its sections, or without the flag that there are shares. */
static void refuse_without(maker make, bool flag, const char *names, const char *message) {
    kit *k = take_apart(make);
    drop_parts(k, names);
    if (!flag) { ckvc_put_u64(k->header + CKVT_AT_INCOMPATIBLE, CKVC_OPERATOR_NO_THRESHOLD); }
    refuse_kit(k, 0, message);
}

/* A table with a section of zeros, 4 bytes each, in the dimensions given. */
static void refuse_shape(const char *section, size_t n, const uint64_t dims[3],
                         const char *message) {
    const float zeros[64] = {0};
    kit *k = take_apart(sample_with_theta);
    part *p = part_of(k, section);
    refill(p, zeros, 4 * n, CKVT_RAW);
    for (int d = 0; d < 3; d++) { set_dim(p, d, dims[d]); }
    refuse_kit(k, 0, message);
}

static void refuse_codec(maker make, const char *section, const char *message) {
    kit *k = take_apart(make);
    ckvc_put_u16(part_of(k, section)->entry + CKVT_ENTRY_CODEC, CKVT_ZSTD);
    refuse_kit(k, 0, message);
}

TEST(value_refusals) {
    kit *longer = take_apart(sample);
    part *shape = part_of(longer, "SHAPE");
    uint8_t ten[40] = {0};
    memcpy(ten, shape->stored, 32);
    refill(shape, ten, sizeof ten, CKVT_RAW);
    set_dim(shape, 0, 10);
    refuse_kit(longer, 0, "SHAPE[8] and SHAPE[9] are 0: want a SHAPE of 8 numbers");
    REFUSE_VALUES(sample, {"SHAPE", 0, 0, "SHAPE[0] is 0"},
                  {"SHAPE", 0, 65536, "SHAPE[0] is 65536"},
                  {"SHAPE", 0, 65535, "section WEIGHT: dimension 0 is 1, SHAPE wants 65535"},
                  {"SHAPE", 1, 3, "SHAPE[1] is 3 query heads"},
                  {"SHAPE", 3, 3, "section TAU: dimension 1 is 2, SHAPE wants 3"},
                  {"SHAPE", 5, 3, "section BUDGET: dimension 0 is 2, SHAPE wants 3"},
                  {"SHAPE", 6, 0, "SHAPE[6] is 0"}, {"SHAPE", 6, 17, "section META: shape.window"},
                  {"SHAPE", 7, 2, "SHAPE[7] is 2"}, {"BUDGET", 0, -1, "BUDGET[0]"},
                  {"BUDGET", 1, NAN, "BUDGET[1]"}, {"GRIDHEAD", 2, 0.5, "GRIDHEAD[2]"},
                  {"GRIDGATE", 0, NAN, "GRIDGATE[0]"}, {"WEIGHT", 3, NAN, "WEIGHT[3]"},
                  {"WEIGHT", 0, 1.01, "WEIGHT[0]"}, {"TAU", 7, -INFINITY, "TAU[7]"},
                  {"TAU", 0, 0.905, "TAU[0]"}, {"EDGEENT", 0, INFINITY, "EDGEENT[0]"},
                  {"EDGEPPL", 0, NAN, "EDGEPPL[0]"}, {"sHEAD", 1, 1.5, "sHEAD[1]"},
                  {"sGATE", 1, NAN, "sGATE[1]"}, {"hSIG", 0, NAN, "hSIG[0]"},
                  {"QHEAD", 0, NAN, "QHEAD[0]"}, {"QHEAD", 0, -INFINITY, "QHEAD[0]"},
                  {"QHEAD", 1, 0.0, "QHEAD[1]"}, {"QGATE", 0, INFINITY, "QGATE[0]"},
                  {"NHEAD", 0, 0, "QHEAD[0]"}, {"NGATE", 0, 1e19, "NGATE[0]"},
                  {"MGATE", 3, NAN, "MGATE[3]"}, {"LGATE", 3, INFINITY, "LGATE[3]"});
}

/* Of a table with shares. */
TEST(share_refusals) {
    REFUSE_VALUES(
        sample_with_shares,
        {"SHARE", 1, -1e-9, "section SHARE[1] is -1e-09: shares are finite and not below 0"},
        {"SHARE", 3, NAN, "section SHARE[3] is nan"},
        {"SHARELAY", 0, INFINITY, "section SHARELAY[0] is inf"},
        {"SHARELAY", 1, 0, "section SHARELAY: no share of budget 1 is above 0"},
        {"CMIN", 0, 1.25, "section CMIN[0]: a floor of 1.25"},
        {"CMIN", 1, 0.5, "section CMIN[0]: 0.5 recent positions"},
        {"CMIN", 3, 64, "section CMIN[1]: c_min is 65, above the 64 tokens of its budget"},
        {"SCORE", 0, 4, "section SCORE[0]: score 4 is none that this reader knows"},
        {"SCORE", 0, 3, "section SCORE[0]: ranks by the bank's attention, but section BANK"},
        {"SCORE", 0, 2, "section SCORE[0]: features of version 0 are none"},
        {"SCORE", 4, 1, "section SCORE[0]: features of version 1, but section THETA is missing"},
        {"SCORE", 1, 0, "section SCORE[0]: window 0, pool 7"},
        {"SCORE", 5, 3, "section SCORE[0]: mode lengths, but section SHARELEN is missing"},
        {"SCORE", 5, 4, "section SCORE[0]: mode 4 is none that this reader knows"},
        {"sSHARE", 1, 0, "section sSHARE[0] is 1.625 ... 0"},
        {"sSHARE", 6, NAN, "section sSHARE[3] is nan"},
        {"sSHARE", 6, -0.5, "section sSHARE[3] is -0.5"});
    refuse_without(sample_with_shares, true, "SHARE", "section SHARE is missing");
    refuse_without(sample_with_shares, true, "CMIN", "section CMIN is missing");
    refuse_without(sample_with_shares, true, "SCORE", "section SCORE is missing");
    refuse_without(sample_with_shares, true, "SHARELAY",
                   "SCORE[1]: mode layers, but section SHARELAY is missing");
    refuse_without(sample_with_lengths, true, "SHARELEN",
                   "SCORE[0]: mode lengths, but section SHARELEN is missing");
    refuse_without(sample_with_shares, false, "",
                   "byte 24: section SHARE is there, but flag 0x4 is not set");
    kit *k = take_apart(sample_with_shares);
    set_dim(part_of(k, "SHARE"), 0, 2); /* [2][1][2] of [1][2][2] */
    set_dim(part_of(k, "SHARE"), 1, 1);
    refuse_kit(k, 0, "section SHARE: dimension 0 is 2, SHAPE wants 1");
    refuse_codec(sample_with_shares, "SHARE", "section SHARE: codec 1");
    k = take_apart(sample);
    const double intervals[8] = {0};
    part *p = add_part(k, "sSHARE", CKVT_F64, intervals, sizeof intervals, CKVT_RAW, 1);
    ckvc_put_u16(p->entry + CKVT_ENTRY_RANK, 4);
    for (int d = 1; d < 4; d++) { set_dim(p, d, 2); }
    refuse_kit(k, 0, "section sSHARE is there, but section SHARE is not");
}

/* Of a table with a bank. */
TEST(bank_refusals) {
    REFUSE_VALUES(
        sample_with_bank, {"RIDGE", 1, -0.5, "section RIDGE[1] is -0.5, want a finite"},
        {"RIDGE", 0, NAN, "section RIDGE[0] is nan"},
        {"BANKUSE", 0, 3, "section BANKUSE[0]: 3 queries over 96 positions, want 1 ... 2"},
        {"BANKUSE", 2, 0, "section BANKUSE[1]: 0 queries"},
        {"BANKUSE", 3, 0, "section BANKUSE[1]: 1 queries over 0 positions"});
    refuse_without(sample_with_bank, true, "BANK", "section BANK is missing");
    refuse_without(sample_with_bank, true, "RIDGE", "section RIDGE is missing");
    refuse_without(sample_with_bank, true, "BANKUSE", "section BANKUSE is missing");
    refuse_codec(sample_with_bank, "BANK", "section BANK: codec 1");
    kit *k = take_apart(sample_with_bank);
    ckvc_put_u64(k->header + CKVT_AT_INCOMPATIBLE, CKVC_OPERATOR_NO_THRESHOLD | CKVT_FLAG_SHARES);
    refuse_kit(k, 0, "byte 24: section BANK is there, but flag 0x10 is not set");
    k = take_apart(sample_with_bank);
    ckvc_put_u16(part_of(k, "BANK")->stored + 2 * 3, 0x7C00); /* infinity */
    refuse_kit(k, 0, "section BANK[3] is inf, want a finite value");
    k = take_apart(sample_with_bank);
    set_dim(part_of(k, "BANK"), 2, 4); /* [1][4][4][1] of [1][4][2][2] */
    set_dim(part_of(k, "BANK"), 3, 1);
    refuse_kit(k, 0, "section BANK: queries of 1 numbers, want an even number");
    k = take_apart(sample_with_bank);
    set_dim(part_of(k, "BANK"), 1, 2); /* [1][2][4][2] */
    set_dim(part_of(k, "BANK"), 2, 4);
    refuse_kit(k, 0, "section BANK: dimension 1 is 2, SHAPE wants 4");
}

/* Of a table whose budgets were chosen in bytes. */
TEST(bytes_refusals) {
    REFUSE_VALUES(
        sample_with_bytes, {"BYTES", 0, 1, "section BYTES[0] is 1, want a share of the whole"},
        {"BYTES", 1, -0.5, "section BYTES[1] is -0.5, want a share"},
        {"BYTES", 0, NAN, "section BYTES[0] is nan, want a share"},
        {"BYTES", 1, 0.125, "section BYTES[1] is 0.125, which BYTES[0] is already"},
        {"HELD", 1, 12,
         "section HELD[0]: format 8 of keys or 12 of values is none that this reader knows"},
        {"HELD", 0, 14,
         "section HELD[0]: format 14 of keys or 11 of values is none that this reader knows"},
        {"HELD", 2, 4e9, "section HELD[1]: format 4000000000 of keys or 4 of values is none"});
    refuse_without(sample_with_bytes, true, "BYTES", "section BYTES is missing");
    refuse_without(sample_with_bytes, true, "HELD", "section HELD is missing");
    refuse_codec(sample_with_bytes, "BYTES", "section BYTES: codec 1");
    kit *k = take_apart(sample_with_bytes);
    ckvc_put_u64(k->header + CKVT_AT_INCOMPATIBLE,
                 CKVC_OPERATOR_NO_THRESHOLD | CKVT_FLAG_SHARES | CKVT_FLAG_BANK);
    refuse_kit(k, 0, "byte 24: section BYTES is there, but flag 0x20 is not set");
    k = take_apart(sample_with_bytes);
    ckvc_put_u64(k->header + CKVT_AT_INCOMPATIBLE, CKVC_OPERATOR_NO_THRESHOLD | CKVT_FLAG_BYTES);
    refuse_kit(k, 0, "byte 24: flag 32, formats, without flag 4, shares");
}

/* A clone has the formats, and so has what is read back. The description names them. */
TEST(bytes_are_kept) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample_with_bytes();
    ckvc_table *clone = ckvc_table_clone(t->table);
    assert_true(clone->byte_share[0] == 0.125 && clone->byte_share[1] == 0);
    assert_memory_equal(clone->held, t->table->held, 2 * sizeof *clone->held);
    ckvc_table_free(clone);
    write_table(t, path);
    CKVC_AUTO(table_file_free_at) table_file *read = read_table(path);
    assert_true(read->table->byte_share[0] == 0.125 && read->table->byte_share[1] == 0);
    assert_memory_equal(read->table->held, t->table->held, 2 * sizeof *t->table->held);
    json_auto_t *what = table_file_describe(read, false);
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(json_object_get(what, "bytes"));
    assert_string_equal(
        text, "[{\"budget\":0.25,\"bytes\":0.125,\"keys\":\"q8_0\",\"values\":\"q4_0+rot\"},"
              "{\"budget\":64,\"bytes\":null,\"keys\":\"f16\",\"values\":\"bf16\"}]");
}

/* Of each section the values of one budget stay, and the file is still whole. */
TEST(budgets_taken) {
    CKVC_AUTO(table_file_free_at) table_file *t = sample_with_bytes();
    CKVC_AUTO(table_file_free_at) table_file *all = sample_with_bytes();
    const ckvc_table *c = t->table, *from = all->table;
    json_object_set_new(t->meta, "select",
                        json_pack("{s:[i,n], s:[{s:[f,f], s:s}]}", "chosen", 7, "candidates", "kl",
                                  0.5, 0.25, "score", "window"));
    json_object_set_new(t->meta, "diagnostics",
                        json_pack("{s:{s:[s,s]}}", "demand", "by_budget", "a", "b"));
    const uint32_t second = 1;
    table_file_take_budgets(t, &second, 1);
    assert_int_equal(c->n_budgets, 1);
    assert_true(c->budgets[0] == from->budgets[1] && c->byte_share[0] == 0);
    assert_memory_equal(c->held, from->held + 1, sizeof *c->held);
    assert_memory_equal(c->c_min, from->c_min + 1, sizeof *c->c_min);
    assert_memory_equal(c->score, from->score + 1, sizeof *c->score);
    assert_memory_equal(c->bank_use, from->bank_use + 1, sizeof *c->bank_use);
    assert_true(c->layer_share[0] == from->layer_share[1] && c->ridge[0] == from->ridge[1]);
    for (size_t i = 0; i < 2; i++) { /* the heads */
        assert_true(c->share[i] == from->share[2 * i + 1]);
        assert_true(c->weight[i] == from->weight[2 * i + 1]);
        for (size_t k = 0; k < 2; k++) {
            assert_true(t->share_interval[2 * i + k] == all->share_interval[4 * i + 2 + k]);
        }
        const size_t A = c->n_head_actions;
        assert_memory_equal(t->evidence[CKVC_SIDE_HEAD].n + i * A,
                            all->evidence[CKVC_SIDE_HEAD].n + (2 * i + 1) * A,
                            A * sizeof(uint64_t));
    }
    json_t *select = json_object_get(t->meta, "select");
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(select);
    assert_string_equal(
        text, "{\"candidates\":[{\"kl\":[0.25],\"score\":\"window\"}],\"chosen\":[null]}");
    assert_int_equal(
        json_array_size(json_object_get(
            json_object_get(json_object_get(t->meta, "diagnostics"), "demand"), "by_budget")),
        1);
    write_table(t, path);
    table_file_free(read_table(path));
}

/* Of a table with a learned ranking. */
TEST(learned_refusals) {
    REFUSE_VALUES(
        sample_with_theta, {"THETA", 51, NAN, "section THETA[51] is nan, want a finite value"},
        {"MASS", 1, -1, "section MASS[1] is -1, want a finite value from 0 up"},
        {"SCORE", 1, 32, "section SCORE[0]: window 32, pool 0, norm 0: features of version 1 need"},
        {"SCORE", 4, 3, "section SCORE[0]: features of version 3 are none that this reader knows"},
        {"SCORE", 4, 2, "section SCORE[0]: window 64, pool 0, norm 0: features of version 2 need"},
        {"SCORE", 10, 2, "section SCORE[1]: features of version 2, but of version 1 in SCORE[0]"});
    refuse_without(sample_with_theta, true, "THETA", "section THETA is missing");
    refuse_without(sample_with_theta, true, "MASS", "section MASS is missing");
    refuse_without(sample_with_theta, true, "THETA MASS",
                   "section SCORE[0]: features of version 1, but section THETA is missing");
    refuse_without(sample_with_theta, false, "SHARE CMIN SCORE SHARELAY",
                   "byte 24: section THETA is there, but flag 0x4 is not set");
    refuse_shape("THETA", 50, (uint64_t[]){1, 2, 25},
                 "section THETA: 25 features, version 1 has 24");
    refuse_shape("THETA", 0, (uint64_t[]){1, 2, 0}, "section THETA: 0 features, version 1 has 24");
    refuse_shape("THETA", 52, (uint64_t[]){2, 1, 26},
                 "section THETA: dimension 0 is 2, SHAPE wants 1");
    refuse_shape("MASS", 4, (uint64_t[]){2, 1, 0}, "section MASS: dimension 0 is 2, SHAPE wants 1");
    refuse_codec(sample_with_theta, "MASS", "section MASS: codec 1");
}

TEST(json_refusals) {
#define SHAPE                                                                                      \
    "'head_axis':0,'n_budgets':2,'n_entropy_bins':2,'n_kv_heads':2,'n_layers':1,"                  \
    "'n_perplexity_bins':2,'window':16"
    static const struct {
        const char *section, *text, *message;
    } cases[] = {
        {"META", "", "section META:"},
        {"META", "[1]", "section META: not a JSON object"},
        {"META", "{'schema':'ckvc-table-1',", "section META:1:"},
        {"META", "{'a':1,'a':2}", "section META:1:"},
        {"META", "{} x", "section META:1:"},
        {"META", "{'schema':NaN}", "section META:1:"},
        {"META", "{}", "section META: schema is missing"},
        {"META", "{'schema':'ckvc-table-9'}", "section META: schema is ckvc-table-9"},
        {"META", "{'schema':'ckvc-table-1'}", "section META: shape.n_layers"},
        {"META", "{'schema':'ckvc-table-1','shape':{" SHAPE ",'n_heads':4,'x':1}}",
         "section META: shape has 9 keys"},
        {"META", "{'probe':'mean-pool','schema':'ckvc-table-1'}",
         "section META: probe is mean-pool, but the header's flags say the operator paper"},
        {"META", "{'schema':'ckvc-table-1','shape':{" SHAPE ",'n_heads':8}}",
         "section META: shape.n_heads is not the 4 of SHAPE"},
        {"pROV", "7", "section pROV: not a JSON object"},
        {"xFER", "{", "section xFER:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kit *k = take_apart(sample);
        const char *text = json_of(cases[i].text);
        part *p = part_of(k, cases[i].section);
        refill(p, text, strlen(text), CKVT_RAW);
        set_dim(p, 0, strlen(text));
        refuse_kit(k, 0, cases[i].message);
    }
}

/* Packs `raw` by hand-picked settings into section p. */
static void repack(part *p, const void *raw, size_t size, int content_size, int frames) {
    uint8_t packed[4096];
    size_t n = 0;
    ZSTD_CCtx *cctx = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, content_size);
    for (int f = 0; f < frames; f++) {
        size_t from = size * (size_t)f / (size_t)frames,
               to = size * (size_t)(f + 1) / (size_t)frames;
        size_t k = ZSTD_compress2(cctx, packed + n, sizeof packed - n, (const uint8_t *)raw + from,
                                  to - from);
        assert_false(ZSTD_isError(k));
        n += k;
    }
    ZSTD_freeCCtx(cctx);
    refill(p, packed, n, CKVT_ZSTD);
}

static void refuse_packed(const void *bytes, size_t size, const char *message) {
    kit *k = take_apart(sample);
    refill(part_of(k, "QHEAD"), bytes, size, CKVT_ZSTD);
    refuse_kit(k, 0, message);
}

TEST(zstd_refusals) {
    uint8_t raw[12 * 8];
    kit *k = take_apart(sample);
    part *p = part_of(k, "QHEAD");
    assert_int_equal(ZSTD_decompress(raw, sizeof raw, p->stored, p->size), sizeof raw);
    repack(p, raw, sizeof raw, 1, 1);
    accept_kit(k);

    static const int other_sizes[][3] = {
        {sizeof raw, 0, 1}, {sizeof raw - 8, 1, 1}, {sizeof raw, 1, 2}};
    for (int i = 0; i < 3; i++) {
        const int *o = other_sizes[i];
        k = take_apart(sample);
        repack(part_of(k, "QHEAD"), raw, (size_t)o[0], o[1], o[2]);
        refuse_kit(k, 0, "section QHEAD: the zstd frame's content size is not the 96 bytes");
    }

    /* A right first frame and a skippable one behind it, or before it; and no frame at all. */
    k = take_apart(sample);
    p = part_of(k, "QHEAD");
    uint8_t two[4096];
    const size_t n = p->size;
    memcpy(two + 8, p->stored, n);
    for (size_t at = 0; at <= 8 + n; at += 8 + n) {
        ckvc_put_u32(two + at, 0x184D2A50u);
        ckvc_put_u32(two + at + 4, 0);
    }
    refuse_packed(two + 8, n + 8, "section QHEAD: want exactly one zstd frame");
    refuse_packed(two, n + 8, "section QHEAD: not a zstd frame");
    refuse_packed("", 0, "section QHEAD: not a zstd frame");
    /* Damage inside the frame that its sums hide. */
    p->stored[n - 1] ^= 0x40;
    refuse_kit(k, 0, "section QHEAD: ");

    /* A window over the limit: 96 bytes in one raw block under a window of 16 MiB (RFC 8878). */
    uint8_t frame[4 + 1 + 1 + 4 + 3 + sizeof raw] = {0x28,    0xB5,       0x2F, 0xFD, 0x80,
                                                     14 << 3, sizeof raw, 0,    0,    0};
    frame[10] = 1 | (sizeof raw << 3 & 0xFF); /* last block, raw, its length */
    frame[11] = sizeof raw >> 5;
    memcpy(frame + 13, raw, sizeof raw);
    refuse_packed(frame, sizeof frame, "section QHEAD: zstd window of 16777216 bytes");
    k = take_apart(sample);
    frame[5] = 13 << 3; /* 8 MiB is allowed */
    refill(part_of(k, "QHEAD"), frame, sizeof frame, CKVT_ZSTD);
    accept_kit(k);

    /* An optional section of ours to come that claims terabytes. */
    k = take_apart(sample);
    uint8_t claim[] = {0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0};
    add_part(k, "zBig", CKVT_BYTES, claim, sizeof claim, CKVT_ZSTD, (uint64_t)1 << 40);
    refuse_kit(k, 0, "section zBig: ");
    /* Three of them within the limit each, over it together: nothing is unpacked to find out. A
     * frame of 2^29 bytes that is all zeros: 4,096 blocks of one byte, 128 KiB each. */
    k = take_apart(sample);
    const uint32_t n_blocks = 1u << 12;
    const uint8_t head[] = {0x28, 0xB5, 0x2F, 0xFD, 0x80, 13 << 3, 0, 0, 0, 0x20};
    const size_t size = sizeof head + 4 * (size_t)n_blocks;
    CKVC_AUTO_FREE uint8_t *zeros = calloc(size, 1);
    memcpy(zeros, head, sizeof head);
    for (uint32_t i = 0; i < n_blocks; i++) {
        const uint32_t block = (1u << 17) << 3 | 1u << 1 | (i + 1 == n_blocks);
        ckvc_put_u32(zeros + sizeof head + 4 * (size_t)i, block & 0xFFFFFF);
    }
    static const char *const names[] = {"zBig1", "zBig2", "zBig3"};
    for (int i = 0; i < 3; i++) {
        add_part(k, names[i], CKVT_BYTES, zeros, size, CKVT_ZSTD, (uint64_t)1 << 29);
    }
    refuse_kit(k, 0, "section zBig2: 536870912 bytes when unpacked, at most 1073741824 allowed");
}

TEST(not_files) {
    table_file *t = NULL;
    ckvc_table *p = NULL;
    char message[256];
    FAILS(table_file_read("/nonexistent/t.ckvt", &t, &err), CKVC_E_NOINPUT);
    assert_int_equal(ckvc_table_read("/nonexistent/t.ckvt", &p, message, sizeof message), -1);
    assert_int_equal(ckvc_table_read(temp_folder, &p, message, sizeof message), -1);
    const char *fifo = in_temp_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    /* and does not wait for a writer */
    assert_int_equal(ckvc_table_read(fifo, &p, message, sizeof message), -1);
    assert_non_null(strstr(message, "not a regular file"));
    unlink(fifo);
    assert_int_equal(ckvc_table_read("/dev/zero", &p, NULL, 0), -1);
    assert_int_equal(ckvc_table_parse("t", "", 0, &p, message, 4), -1); /* no room for a name */
}

RUN_TESTS(setup, temp_folder_remove)
