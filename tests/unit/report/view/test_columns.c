/* One list of a struct's columns: its JSON, its csv and its table on the page; numbers as text. */
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/view/view.h"
#include "tests/unit/unit.h"

typedef struct ends {
    double lo, hi;
} ends;
typedef struct thing {
    const char *name;
    size_t n, rows, cols;
    double share, *cells;
    bool known;
    signed char maybe;
    ends ends, *parts;
    size_t n_parts;
} thing;

SAY(range_of, ends, say("%s to %s", say_fixed(o->lo, 1), say_fixed(o->hi, 1)))
TABLE(ends_columns, ends, SHOWN(lo, "range", .say = range_of), MEMBERS(hi));
TABLE(part_columns, ends, MEMBERS(lo, hi));
TABLE(thing_columns, thing, SHOWN(name, "what"), BOTH(n, "count"),
      SHOWN(share, "share", SHARE, ELSE("none"), .csv = "share"), MEMBERS(maybe),
      JSON(cells, BY(rows, cols), WHEN(known), .omit = true), OBJECT(ends, ends_columns),
      ARRAYS(parts, n_parts, part_columns));
TABLE(named_columns, thing, KEY(name), MEMBERS(n));
TABLE(things_columns, thing, JSON_AS(parts, "list", OF(part_columns), BY(n_parts)));

static thing sample(void) {
    static double cells[] = {1, 2, 3, NAN};
    static ends parts[] = {{0, 1}, {2, 3}};
    return (thing){.name = "a \"b\"",
                   .n = 3,
                   .rows = 2,
                   .cols = 2,
                   .share = 0.25,
                   .cells = cells,
                   .known = true,
                   .maybe = -1,
                   .ends = {1, 2},
                   .parts = parts,
                   .n_parts = 2};
}

static void check_json(columns_of *of, const thing *t, const char *want) {
    json_auto_t *o = columns_json(of, t);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, want);
    free(text);
}

static void json_has_every_member(void **state) {
    thing t = sample();
    check_json(
        thing_columns, &t,
        "{\"cells\":[[1.0,2.0],[3.0,null]],\"ends\":{\"hi\":2.0,\"lo\":1.0},\"hi\":[1.0,3.0],"
        "\"lo\":[0.0,2.0],\"maybe\":null,\"n\":3,\"name\":\"a \\\"b\\\"\",\"share\":0.25}");
    check_json(things_columns, &t, "{\"list\":[{\"hi\":1.0,\"lo\":0.0},{\"hi\":3.0,\"lo\":2.0}]}");
    t.known = false; /* left out */
    t.maybe = 1;
    t.n_parts = 0;
    t.name = NULL; /* null */
    check_json(thing_columns, &t,
               "{\"ends\":{\"hi\":2.0,\"lo\":1.0},\"hi\":[],\"lo\":[],\"maybe\":true,\"n\":3,"
               "\"name\":null,\"share\":0.25}");
}

typedef struct pair {
    thing things[2];
    size_t n;
} pair;
TABLE(pair_columns, pair, JSON(things, OF(named_columns), BY(n), .as = AS_MEMBERS));

static void json_members_by_name(void **state) {
    pair p = {.things = {sample(), sample()}, .n = 2};
    p.things[0].name = "first";
    p.things[1].name = NULL; /* left out */
    json_auto_t *o = columns_json(pair_columns, &p);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"things\":{\"first\":{\"n\":3}}}");
    free(text);
}

static void csv_quotes_and_leaves_undefined_empty(void **state) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer csv = {0};
    thing t[2] = {sample(), sample()};
    t[1].share = NAN;
    csv_table(&csv, thing_columns, t, 2);
    csv_text(&csv, "a \"b\"");
    csv_numbers(&csv, (double[]){0.5, INFINITY}, 2);
    assert_string_equal((const char *)csv.data, "count,share\n3,0.25\n3,\n\"a \"\"b\"\"\",0.5,\n");
}

static void page_shows_what_has_a_head(void **state) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer html = {0};
    thing t = sample();
    t.name = "x";
    assert_int_equal(columns_on_page(thing_columns), 3);
    columns_table_begin(&html, NULL, thing_columns);
    ckvc_buffer_fini(&html);
    html = (ckvc_buffer){0};
    columns_row(&html, thing_columns, &t);
    t.share = NAN;
    t.name = NULL;
    columns_row(&html, thing_columns, &t);
    assert_string_equal((const char *)html.data,
                        "<tr><td class=\"l\">x</td><td class=\"r\">25%</td>"
                        "<td class=\"r\">1.0 to 2.0</td></tr>\n"
                        "<tr><td class=\"l\">undefined</td><td class=\"r\">none</td>"
                        "<td class=\"r\">1.0 to 2.0</td></tr>\n");
}

static void text_stands_in_columns(void **state) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    thing t[2] = {sample(), sample()};
    t[0].name = "\u03c4\x1b";
    t[1].share = 1;
    columns_text(&text, thing_columns, t, 2);
    assert_string_equal((const char *)text.data, "what   share       range\n"
                                                 "\u03c4?       25%  1.0 to 2.0\n"
                                                 "a \"b\"   100%  1.0 to 2.0\n");
}

static void figures_close_where_the_page_goes_on(void **state) {
    CKVC_AUTO(view_fini) view v = {0};
    const thing t = sample();
    page_text(&v, "before");
    figure_table(&v, thing_columns, &t, 1);
    figure_end(&v, "one", "caption");
    assert_true(v.in_figures);
    page_note(&v, "%s", "behind");
    assert_false(v.in_figures);
    finding(&v, "better", "by %d", 3);
    finding(&v, NULL, "only said");
    assert_int_equal(v.n_figures, 1);
    assert_string_equal((const char *)v.figures[0].csv.data, "count,share\n3,0.25\n");
    assert_string_equal((const char *)v.summary.data, "better: by 3\nonly said\n");
}

static void numbers_are_said_alike(void **state) {
    assert_string_equal(say_fixed(-0.0001, 2), "0.00");
    assert_string_equal(say_fixed(-1.5, 1), "\u22121.5");
    assert_string_equal(say_signed(0.25, 2), "+0.25");
    assert_string_equal(say_signed(NAN, 2), SAY_UNDEFINED);
    assert_string_equal(say_share(0.055), "5.5%");
    assert_string_equal(say_interval(1, NAN, 2, 1), "+1.0 (no interval)");
    assert_string_equal(say_spread(0.5, NAN, NAN, 1), "0.5 (no interval)");
    assert_string_equal(SAY_INTERVAL(((const struct { double mean, lo, hi; }){1, -1, 3}), 0),
                        "+1 (\u22121 to +3)");
    assert_string_equal(say_budget(0.25), "25% of T");
    assert_string_equal(say_budget(64), "64 tokens");
    assert_string_equal(say_more(say_more("", "; ", "%d", 1), "; ", "%d", 2), "1; 2");
    assert_string_equal(say_few_refits(312, true), " (312 refits)");
    assert_string_equal(say_few_refits(SAY_REFITS, true), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(json_has_every_member),
                                       cmocka_unit_test(json_members_by_name),
                                       cmocka_unit_test(csv_quotes_and_leaves_undefined_empty),
                                       cmocka_unit_test(page_shows_what_has_a_head),
                                       cmocka_unit_test(text_stands_in_columns),
                                       cmocka_unit_test(figures_close_where_the_page_goes_on),
                                       cmocka_unit_test(numbers_are_said_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
