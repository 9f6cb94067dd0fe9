/* One list of a struct's members, and its JSON. */
#include "report/fields/fields.h"
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

FIELDS(ends_fields, ends, MEMBERS(lo, hi));
FIELDS(thing_fields, thing, MEMBERS(name, n, share, maybe),
       LIST(cells, BY(rows, cols), WHEN(known), .omit = true), F_OBJECT(ends, ends_fields),
       ARRAYS(parts, n_parts, ends_fields));
FIELDS(named_fields, thing, KEY(name), MEMBERS(n));
FIELDS(things_fields, thing, OBJECTS(parts, n_parts, ends_fields));

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

static void check_json(fields_of *of, const thing *t, const char *want) {
    json_auto_t *o = fields_json(of, t);
    CKVC_AUTO_FREE char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, want);
}

TEST(json_has_every_member) {
    thing t = sample();
    check_json(
        thing_fields, &t,
        "{\"cells\":[[1.0,2.0],[3.0,null]],\"ends\":{\"hi\":2.0,\"lo\":1.0},\"hi\":[1.0,3.0],"
        "\"lo\":[0.0,2.0],\"maybe\":null,\"n\":3,\"name\":\"a \\\"b\\\"\",\"share\":0.25}");
    check_json(things_fields, &t, "{\"parts\":[{\"hi\":1.0,\"lo\":0.0},{\"hi\":3.0,\"lo\":2.0}]}");
    t.known = false; /* left out */
    t.maybe = 1;
    t.n_parts = 0;
    t.name = NULL; /* null */
    check_json(thing_fields, &t,
               "{\"ends\":{\"hi\":2.0,\"lo\":1.0},\"hi\":[],\"lo\":[],\"maybe\":true,\"n\":3,"
               "\"name\":null,\"share\":0.25}");
}

typedef struct pair {
    thing things[2];
    size_t n;
} pair;
FIELDS(pair_fields_of, pair, LIST(things, BY(n), .of = named_fields, .as = AS_MEMBERS));

TEST(json_members_by_name) {
    pair p = {.things = {sample(), sample()}, .n = 2};
    p.things[0].name = "first";
    p.things[1].name = NULL; /* left out */
    json_auto_t *o = fields_json(pair_fields_of, &p);
    CKVC_AUTO_FREE char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"things\":{\"first\":{\"n\":3}}}");
}

RUN_TESTS(NULL, NULL)
