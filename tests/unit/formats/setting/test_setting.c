/* formats/setting: the table against the enums it names, JSON there and back, what is compared. */
#include "formats/setting/setting.h"
#include "tests/unit/unit.h"

/* Names in the table are those of the enums, in their order; neutral values are in range. */
TEST(names) {
    char buffer[64];
    setting s = setting_neutral();
    for (int op = 0; op < CKVC_OPERATOR_COUNT; op++) {
        s.op = (ckvc_operator)op;
        assert_string_equal(setting_name(setting_of_option("operator"), &s, buffer, sizeof buffer),
                            ckvc_operator_name(s.op));
    }
    for (int compute = 0; compute < 2; compute++) {
        s.compute = (ckvc_compute)compute;
        assert_string_equal(setting_name(setting_of_option("compute"), &s, buffer, sizeof buffer),
                            compute == CKVC_COMPUTE_BF16 ? "bf16" : "f32");
    }
    s = setting_neutral();
    OK(setting_check_values(&s, SETTING_SHARD, "it", &err));
    for (size_t i = 0; i < setting_n_fields; i++) {
        const setting_field *f = &setting_fields[i];
        assert_ptr_equal(setting_of_option(f->m.name), f);
        assert_true(setting_is_neutral(f, &s));
        assert_true(f->m.type != RECORD_NAME || !setting_set_name(f, ' ', &s, "bogus"));
        for (int place = 0; place < SETTING_PLACES; place++) {
            const char *key = setting_key(f, (setting_place)place, NULL);
            if (key) { assert_ptr_equal(setting_of_key((setting_place)place, key), f); }
        }
    }
    assert_null(setting_of_option("keep"));
}

static setting unusual(void) {
    return (setting){.alpha = CKVC_ALPHA_VISIBLE,
                     .op = CKVC_OPERATOR_MEAN_POOL,
                     .compute = CKVC_COMPUTE_BF16,
                     .window = 24,
                     .continuation = 96,
                     .mode = CKVC_MODE_LAYERS,
                     .score = CKVC_SCORE_WINDOW,
                     .compress_after = SETTING_TURN_FIRST,
                     .keep_window = 8,
                     .beta_bud = 0.5,
                     .seed = UINT64_C(1) << 60,
                     .reduction = CKVC_LOSS_SUM,
                     .loss = SETTING_KL,
                     .floor = 0.25,
                     .recent = 4,
                     .mix = 0.5,
                     .ridge = 0.5,
                     .cache_keys = CACHE_Q8_0,
                     .cache_values = CACHE_Q4_0_ROT,
                     .repeat = "Say it again.",
                     .positions = 32,
                     .features = 1,
                     .n_features = 88,
                     .queries = 8};
}

/* Every place that has a key gives the value back; what is neutral leaves no sparse key. */
TEST(json) {
    const setting from = unusual(), plain = setting_neutral();
    for (int place = 0; place < SETTING_PLACES; place++) {
        json_auto_t *o = json_object(), *less = json_object();
        setting_write(o, (setting_place)place, &from, 0);
        setting_write(less, (setting_place)place, &plain, SETTING_LOGGED);
        setting to = setting_neutral();
        assert_null(setting_read(o, (setting_place)place, &to));
        for (size_t i = 0; i < setting_n_fields; i++) {
            const setting_field *f = &setting_fields[i];
            char mark;
            const char *key = setting_key(f, (setting_place)place, &mark);
            const bool sparse = mark == '?' || mark == '!';
            if (!key || f->m.type == SETTING_LIST) { continue; }
            assert_non_null(json_object_get(o, key));
            assert_true((json_object_get(less, key) != NULL) ==
                        !(sparse || f->groups & SETTING_LOGGED));
            assert_true(record_number(&f->m, &to) == record_number(&f->m, &from));
            if (f->m.type == RECORD_TEXT) { assert_string_equal(to.repeat, from.repeat); }
        }
    }
    json_auto_t *bad = json_pack("{s:s, s:i}", "alpha", "visible", "window", 0);
    setting s = setting_neutral();
    assert_string_equal(setting_read(bad, SETTING_LINE, &s)->m.name, "window");
}

/* A table's setting against a run's: each difference alone; what META lacks is not compared. */
TEST(match) {
    const struct {
        const char *option, *key;
        json_t *value;
        const char *text;
    } differ[] = {
        {"alpha", "alpha_kind", json_string("paper"),
         "t: was made with --alpha paper, this run has visible; give --alpha paper"},
        {"keep-window", "keep_window", json_integer(0), /* the default is a value, too */
         "t: was made with --keep-window 0, this run has 8; give --keep-window 0"},
    };
    ckvc_table *t = ckvc_table_create(1, 1, 1, 1, 1, 1, 1);
    json_t *meta = json_object();
    const setting ours = unusual();
    t->window = 24;
    setting made = setting_of_table(t, meta);
    OK(setting_match(&made, "t", &ours, "this run", SETTING_SCORE, "give --", &err));
    setting_write(meta, SETTING_META, &ours, 0);
    made = setting_of_table(t, meta);
    OK(setting_match(&made, "t", &ours, "this run", SETTING_SCORE, "give --", &err));
    for (size_t i = 0; i < 2; i++) {
        json_auto_t *other = json_deep_copy(meta);
        json_object_set_new(other, differ[i].key, differ[i].value);
        made = setting_of_table(t, other);
        FAILS(setting_match(&made, "t", &ours, "this run", SETTING_SCORE, "give --", &err),
              CKVC_E_MISMATCH);
        assert_string_equal(err.text, differ[i].text);
    }
    t->window = 32;
    made = setting_of_table(t, meta);
    FAILS(setting_match(&made, NULL, &ours, "the scan", SETTING_WINDOW, NULL, &err),
          CKVC_E_MISMATCH);
    assert_string_equal(err.text, "was made with --window 32, the scan has 24");
    double more[] = {0.25, 64}, less[] = {0.25, 128};
    setting a = ours, b = ours;
    a.budgets = (setting_list){more, 2};
    b.budgets = (setting_list){less, 2};
    assert_true(setting_compare(&a, &b, SETTING_TABLE) < 0);
    FAILS(setting_match(&a, "a", &b, "b", SETTING_TABLE, "fit them apart", &err), CKVC_E_MISMATCH);
    assert_string_equal(err.text,
                        "a: was made with --budget 0.25,64, b has 0.25,128; fit them apart");
    b.budgets.n = 1;
    FAILS(setting_match(&a, "a", &b, "b", SETTING_TABLE, NULL, &err), CKVC_E_MISMATCH);
    assert_string_equal(err.text, "a: was made with --budget 0.25,64, b has 0.25");
    json_decref(meta), ckvc_table_free(t);
}

/* Of a scan, what only rewards know is neutral; titles name what is not. */
TEST(scans_and_titles) {
    setting s = unusual();
    char title[64];
    setting_without(&s, SETTING_LOGGED);
    assert_true(s.op == CKVC_OPERATOR_PAPER && s.reduction == CKVC_LOSS_MEAN && s.beta_bud == 1);
    assert_true(s.keep_window == 8 && s.alpha == CKVC_ALPHA_VISIBLE);
    assert_true(setting_title(setting_of_option("keep-window"), &s, title, sizeof title));
    assert_string_equal(title, "last 8 kept");
    assert_true(setting_title(setting_of_option("window"), &s, title, sizeof title));
    assert_string_equal(title, "W = 24");
    s.keep_window = 0;
    assert_false(setting_title(setting_of_option("keep-window"), &s, title, sizeof title));
    assert_false(setting_title(setting_of_option("seed"), &s, title, sizeof title));
    setting_without(&s, SETTING_DEMAND);
    assert_true(s.floor == 0 && s.recent == 0 && !*s.repeat);
}

/* One line of UTF-8 that fits; what is refused changes nothing. */
TEST(texts) {
    const setting_field *f = setting_of_option("repeat");
    char most[SETTING_TEXT_SIZE + 1] = "";
    setting s = setting_neutral(), other = s;
    assert_true(record_set_text(&f->m, &s, "Again, s\xc3\xa9nor."));
    memset(most, 'x', SETTING_TEXT_SIZE);
    assert_false(record_set_text(&f->m, &s, most));
    assert_false(record_set_text(&f->m, &s, "a\nb"));
    assert_false(record_set_text(&f->m, &s, "\xff"));
    assert_string_equal(s.repeat, "Again, s\xc3\xa9nor.");
    FAILS(setting_match(&s, "a", &other, "b", SETTING_DEMAND, NULL, &err), CKVC_E_MISMATCH);
    assert_string_equal(err.text, "a: was made with --repeat Again, s\xc3\xa9nor., b has none");
    most[SETTING_TEXT_SIZE - 1] = 0;
    assert_true(record_set_text(&f->m, &s, most));
}

TEST(heads_that_do_not_fit) {
    const cache_formats blocks = {CACHE_F16, CACHE_Q8_0}, rotated = {CACHE_F16_ROT, CACHE_F32},
                        bytes = {CACHE_FP8, CACHE_BF16};
    OK(cache_formats_check(blocks, 96, &err));
    OK(cache_formats_check(bytes, 7, &err));
    OK(cache_formats_check(rotated, 192, &err));
    SAYS(cache_formats_check(blocks, 48, &err), CKVC_E_USAGE,
         "--cache-values: heads of 48 numbers do not go into whole blocks of 32");
    SAYS(cache_formats_check(rotated, 96, &err), CKVC_E_USAGE,
         "--cache-keys: heads of 96 numbers cannot be rotated");
    const cache_formats mean = {CACHE_Q4_0_MEAN, CACHE_Q4_0};
    OK(cache_formats_check(mean, 96, &err));
    SAYS(cache_formats_check((cache_formats){CACHE_F16, CACHE_Q4_0_MEAN_ROT}, 128, &err),
         CKVC_E_USAGE, "--cache-values: q4_0+mean+rot is a format of keys");
    SAYS(cache_formats_check((cache_formats){CACHE_Q4_0_MEAN_ROT, CACHE_F16}, 96, &err),
         CKVC_E_USAGE, "--cache-keys: heads of 96 numbers cannot be rotated");
}

RUN_TESTS(NULL, NULL)
