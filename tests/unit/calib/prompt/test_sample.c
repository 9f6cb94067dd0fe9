/* Stratified sampling: cells as even as the corpus allows, picks by id and never by place, new
 * prompts leave the old picks alone; the coverage file, and what it refuses. */
#include <sys/stat.h>

#include "calib/prompt/sample.h"
#include "lib/base/json.h"
#include "tests/unit/temp_folder.h"

enum { MOST = 400 };

static char ids[MOST][16];

/* n items over cells of very different sizes (cell = a squared uniform draw), ids p<first> ... */
static void make(sample_item *items, size_t n, size_t first, uint64_t cells, uint64_t seed) {
    ckvc_rng rng = rng_of(seed, 7, first);
    for (size_t i = 0; i < n; i++) {
        const double u = ckvc_rng_double(&rng);
        snprintf(ids[first + i], sizeof *ids, "p%zu", first + i);
        items[i] = (sample_item){ids[first + i], (uint64_t)(u * u * (double)cells) << 32 | (i % 2)};
    }
}

TEST(hash) {
    assert_true(sample_hash(1, "p01") == UINT64_C(0xc4460fd5f80f869e));
    assert_true(sample_hash(UINT64_MAX, "na\xc3\xafve \xe6\x97\xa5") ==
                UINT64_C(0x9ed294eb61f47a64));
}

TEST(even) {
    sample_item items[MOST];
    bool drawn[MOST];
    for (uint64_t seed = 1; seed < 20; seed++) {
        const size_t n = 30 + 19 * seed;
        make(items, n, 0, 5 + seed, seed);
        for (size_t want = 0; want <= n + 3; want += 1 + want / 5) {
            sample_draw(items, n, want, seed, drawn);
            size_t total = 0, least_cut = SIZE_MAX, most = 0;
            for (size_t i = 0; i < n; i++) {
                size_t there = 0, taken = 0;
                total += drawn[i];
                for (size_t j = 0; j < n; j++) {
                    there += items[j].cell == items[i].cell;
                    taken += items[j].cell == items[i].cell && drawn[j];
                }
                /* of cells that are not taken whole */
                if (taken < there && taken < least_cut) { least_cut = taken; }
                most = taken > most ? taken : most;
            }
            assert_int_equal(total, want < n ? want : n);
            assert_true(least_cut == SIZE_MAX || most <= least_cut + 1);
        }
    }
}

TEST(places_do_not_matter) {
    sample_item items[MOST], mixed[MOST];
    bool drawn[MOST], again[MOST];
    make(items, 300, 0, 12, 3);
    sample_draw(items, 300, 77, 5, drawn);
    for (size_t i = 0; i < 300; i++) { mixed[i] = items[(i * 71 + 13) % 300]; }
    sample_draw(mixed, 300, 77, 5, again);
    size_t other = 0;
    for (size_t i = 0; i < 300; i++) { assert_int_equal(again[i], drawn[(i * 71 + 13) % 300]); }
    sample_draw(items, 300, 77, 6, again); /* another seed is another draw */
    for (size_t i = 0; i < 300; i++) { other += drawn[i] != again[i]; }
    assert_true(other > 20);
}

/* In a cell the picks are the first of one order. Prompts that are added push out at most as many
 * as they bring; in a cell without new prompts no prompt comes in that was not drawn before. */
TEST(adding_prompts) {
    sample_item items[MOST];
    bool before[MOST], after[MOST];
    for (uint64_t seed = 1; seed < 12; seed++) {
        const size_t old = 200, all = 200 + 15 * (size_t)seed, want = 60 + 9 * (size_t)seed;
        make(items, old, 0, 10, seed);
        make(items + old, all - old, old, seed % 2 ? 10 : 30, seed + 100);
        sample_draw(items, old, want, seed, before);
        sample_draw(items, all, want, seed, after);
        size_t lost = 0, brought = 0;
        for (size_t i = old; i < all; i++) { brought += after[i]; }
        for (size_t i = 0; i < old; i++) {
            size_t fresh = 0, quota_before = 0, quota_after = 0;
            for (size_t j = 0; j < all; j++) {
                if (items[j].cell == items[i].cell) {
                    fresh += j >= old;
                    quota_before += j < old && before[j];
                    quota_after += after[j];
                }
            }
            lost += before[i] && !after[i];
            assert_false(after[i] && !before[i]);
            if (fresh == 0 && quota_before == quota_after) {
                assert_int_equal(before[i], after[i]);
            }
            for (size_t j = 0; j < all; j++) { /* one order in a cell */
                if (items[j].cell == items[i].cell &&
                    sample_hash(seed, items[j].id) < sample_hash(seed, items[i].id)) {
                    assert_true(after[j] || !after[i]);
                }
            }
        }
        assert_int_equal(lost, brought);
    }
}

/* ---- prompts, scan, coverage ---- */
typedef struct world {
    manifest_entry entries[40];
    prompt prompts[40];
    prompt_list list;
    scanned scan;
} world;

/* 40 prompts: the first 36 scanned, every seventh held out, p5 of other tokens; two sources. */
static void make_world(world *w) {
    *w = (world){.list = {.items = w->prompts, .n = 40}};
    for (size_t i = 0; i < 40; i++) {
        snprintf(ids[i], sizeof *ids, "p%zu", i);
        w->entries[i].id = ids[i];
        w->prompts[i] =
            (prompt){.entry = &w->entries[i], .heldout = i % 7 == 0, .token_hash = 1000 + i};
        w->list.n_heldout += i % 7 == 0;
        if (i < 36 && i % 7 != 0) {
            CKVC_GROW(w->scan.items, w->scan.capacity, w->scan.n + 1);
            w->scan.items[w->scan.n++] =
                (struct scanned_prompt){.id = ckvc_strdup(ids[i]),
                                        .source = ckvc_strdup(i % 2 ? "b" : "a\xc3\xa9"),
                                        .token_hash = 1000 + i + (i == 5),
                                        .r_struct = (double)(i % 4),
                                        .r_sem = 10.0 * (double)(i % 3)};
        }
    }
}

static void end_world(world *w) { scanned_fini(&w->scan); }

static double edges_entropy[] = {0.5, 1.5, 2.5}, edges_ppl[] = {5};

static sample_options options(int64_t sample) {
    return (sample_options){.edges = {4, 2, edges_entropy, edges_ppl},
                            .min_cell = 3,
                            .from = "this run's scan",
                            .logged = true,
                            .sample = sample,
                            .seed = 9};
}

TEST(prompts) {
    CKVC_AUTO(end_world) world w;
    coverage c;
    make_world(&w);
    const sample_options all = options(0), some = options(8);
    OK(sample_prompts(&w.scan, &all, &w.list, &c, &err));
    for (size_t i = 0; i < 40; i++) { assert_false(w.prompts[i].passed_over); }
    assert_int_equal(c.n_sources, 2);
    assert_string_equal(c.sources[0], "a\xc3\xa9");
    assert_int_equal(c.n_unscanned, 5); /* p5, p36 ... p39; p35 and the like are held out */
    uint32_t prompts = 0;
    for (size_t i = 0; i < c.n_rows; i++) {
        assert_int_equal(c.rows[i].prompts, c.rows[i].drawn);
        prompts += c.rows[i].prompts;
    }
    assert_int_equal(prompts, 29);
    coverage_fini(&c);

    OK(sample_prompts(&w.scan, &some, &w.list, &c, &err));
    uint32_t drawn = 0, over = 0;
    for (size_t i = 0; i < c.n_rows; i++) { drawn += c.rows[i].drawn; }
    assert_int_equal(drawn, 8);
    for (size_t i = 0; i < 40; i++) {
        assert_false(w.prompts[i].heldout && w.prompts[i].passed_over);
        assert_true(i < 36 || w.prompts[i].passed_over || w.prompts[i].heldout);
        over += w.prompts[i].passed_over;
    }
    assert_int_equal(over, 40 - 6 - 8);
    assert_true(w.prompts[5].passed_over);
    coverage_fini(&c);

    scanned none = {0};
    SAYS(sample_prompts(&none, &some, &w.list, &c, &err), CKVC_E_DATA, "--sample-prompts");
    coverage_fini(&c);
}

static int make_folder(void **state) {
    return temp_folder_make(state) || mkdir(in_temp_folder("scan"), 0777);
}

TEST(file) {
    CKVC_AUTO(end_world) world w;
    CKVC_AUTO(coverage_fini) coverage c = {0}, back = {0};
    bool there = true;
    OK(coverage_read(temp_folder, &back, &there, &err));
    assert_false(there);
    make_world(&w);
    const sample_options some = options(8);
    OK(sample_prompts(&w.scan, &some, &w.list, &c, &err));
    json_auto_t *o = coverage_json(&c);
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(o);
    put_text(COVERAGE_FILE, text);
    OK(coverage_read(temp_folder, &back, &there, &err));
    assert_true(there && back.logged && back.sample == 8 && back.min_cell == 3);
    assert_true(back.n_unscanned == c.n_unscanned && back.n_rows == c.n_rows);
    assert_memory_equal(back.rows, c.rows, c.n_rows * sizeof *c.rows);
    assert_memory_equal(back.edges_entropy, edges_entropy, sizeof edges_entropy);
    assert_string_equal(back.sources[0], c.sources[0]);
    assert_string_equal(back.from, "this run's scan");
}

#define FILE_OF(bins, entropy, ppl, sources, cells)                                                \
    "{\"schema\":\"ckvc-coverage-1\",\"bins\":" bins ",\"edges_entropy\":" entropy                 \
    ",\"edges_perplexity\":" ppl ",\"from\":\"x\",\"min_cell\":8,\"sample\":0,\"unscanned\":0,"    \
    "\"prompts\":3,\"drawn\":null,\"sources\":" sources ",\"cells\":" cells "}"

TEST(hostile_file) {
    static const struct {
        const char *text, *member;
    } cases[] = {
        {"", ""},
        {"[]", "schema"},
        {"{\"schema\":\"ckvc-coverage-2\"}", "schema"},
        {FILE_OF("[2]", "[1]", "[]", "[\"a\"]", "[]"), "bins"},
        {FILE_OF("[2,5000000000]", "[1]", "[]", "[\"a\"]", "[]"), "bins"},
        {FILE_OF("[2,0]", "[1]", "[]", "[\"a\"]", "[]"), "bins"},
        {FILE_OF("[2,1]", "[1,2]", "[]", "[\"a\"]", "[]"), "edges_entropy"},
        {FILE_OF("[3,1]", "[2,1]", "[]", "[\"a\"]", "[]"), "edges_entropy"},
        {FILE_OF("[2,2]", "[1]", "[null]", "[\"a\"]", "[]"), "edges_perplexity"},
        {FILE_OF("[2,1]", "[1]", "[]", "[1]", "[]"), "sources"},
        {FILE_OF("[2,1]", "[1]", "[]", "{}", "[]"), "sources"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,0,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[2,0,0,1,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,1,0,1,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,1,1,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[]", "[[0,0,0,1,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,0,1,2]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,0,-1,-1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,0,9999999999,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[1,0,0,1,1],[0,0,0,1,1]]"), "cells"},
        {FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[1,0,0,1,1],[1,0,0,1,1]]"), "cells"},
    };
    coverage c;
    bool there;
    put_text(COVERAGE_FILE, FILE_OF("[2,1]", "[1]", "[]", "[\"a\"]", "[[0,0,0,2,0],[1,0,0,1,0]]"));
    OK(coverage_read(temp_folder, &c, &there, &err));
    assert_false(c.logged);
    coverage_fini(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text(COVERAGE_FILE, cases[i].text);
        FAILS(coverage_read(temp_folder, &c, &there, &err), CKVC_E_DATA);
        if (!strstr(err.text, cases[i].member) || !strstr(err.text, "coverage.json")) {
            fail_msg("case %zu says: %s", i, err.text);
        }
        assert_null(c.rows);
    }
}

RUN_TESTS(make_folder, temp_folder_remove)
