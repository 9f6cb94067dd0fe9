/* What builds report.json: members by type, what is left out, rows and columns. */
#include "report/numbers/members.h"

#include "tests/unit/unit.h"

/* Takes the value. */
static void is_text(json_t *v, const char *want) {
    CKVC_AUTO_FREE char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    assert_string_equal(text, want);
    json_decref(v);
}

TEST(members_by_type) {
    const bool known = true;
    const signed char yes = 1, maybe = -1;
    const size_t n = 3;
    const char *none = NULL;
    is_text(OBJECT({"name", J("a \"b\"")}, {"none", J(none)}, {"n", J(n)}, {"share", J(0.25)},
                   {"no_number", J(NAN)}, {"endless", J(INFINITY)}, {"known", J(known)},
                   {"yes", J(yes)}, {"maybe", J(maybe)}, {"left_out", NULL},
                   {"ends", OBJECT({"lo", J(1.0)}, {"hi", J(2.0)})}),
            "{\"endless\":null,\"ends\":{\"hi\":2.0,\"lo\":1.0},\"known\":true,\"maybe\":null,"
            "\"n\":3,\"name\":\"a \\\"b\\\"\",\"no_number\":null,\"none\":null,\"share\":0.25,"
            "\"yes\":true}");
}

/* Of JSON a copy: what is built on it leaves the first alone. */
TEST(json_is_copied) {
    json_auto_t *meta = OBJECT({"label", J("x")});
    json_t *o = OBJECT({"meta", J(meta)});
    ADD_MEMBERS(json_object_get(o, "meta"), {"more", J("y")});
    is_text(o, "{\"meta\":{\"label\":\"x\",\"more\":\"y\"}}");
    assert_int_equal(json_object_size(meta), 1);
    const json_t *none = NULL;
    is_text(J(none), "null");
}

TEST(rows_and_columns) {
    static const double cells[] = {1, 2, 3, NAN, 5, 6};
    is_text(json_grid(cells, 3, 2), "[[1.0,2.0],[3.0,null],[5.0,6.0]]");
    is_text(json_rows_of(json_grid(cells, 2, 1), 2), "[[[1.0],[2.0]]]");
    is_text(json_grid(cells, 0, 0), "[]");
    json_t *list = json_array(), *o = OBJECT({"n", J((size_t)2)});
    for (int i = 0; i < 2; i++) {
        json_array_append_new(list, OBJECT({"lo", J(2.0 * i)}, {"hi", i ? json_null() : J(1.0)}));
    }
    is_text(json_add_columns(o, list), "{\"hi\":[1.0,null],\"lo\":[0.0,2.0],\"n\":2}");
}

TEST(members_read) {
    json_auto_t *o = OBJECT({"n", J((size_t)3)}, {"share", J(0.25)}, {"none", json_null()},
                            {"title", J("T1")}, {"on", json_true()}, {"off", json_false()});
    assert_true(json_number_of(o, "n") == 3 && json_number_of(o, "share") == 0.25);
    assert_true(isnan(json_number_of(o, "none")) && isnan(json_number_of(o, "missing")) &&
                isnan(json_number_of(NULL, "n")));
    assert_string_equal(json_text_of(o, "title"), "T1");
    assert_null(json_text_of(o, "n"));
    assert_true(json_flag_of(o, "on") && !json_flag_of(o, "off") && !json_flag_of(o, "missing"));
}

RUN_TESTS(NULL, NULL)
