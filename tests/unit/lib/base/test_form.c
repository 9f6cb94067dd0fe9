/* Forms: what each kind of brace puts into a text. */
#include "lib/base/form.h"

#include "tests/unit/unit.h"

static void fills(const char *form, const char *want) {
    static const char value[] =
        "{\"n\": 3, \"none\": 0, \"share\": 0.125, \"zero\": 0.0, \"name\": \"a\\nb\", \"gone\": "
        "null, \"yes\": true, \"list\": [1, 2.5, null], \"of\": {\"b\": 7, \"a\": 8}, \"rows\": "
        "[{\"id\": \"x\", \"n\": 1}, {\"id\": \"y\"}], \"seconds\": 65, \"empty\": [], \"pair\": "
        "[[4, 5]]}";
    json_auto_t *v = json_loads(value, 0, NULL), *beside = json_pack("{s:i, s:i}", "n", 9, "p", 4);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer out = {0};
    assert_non_null(v);
    ckvc_buffer_text(&out, "");
    ckvc_form_fill(&out, form, v, beside);
    assert_string_equal(out.data ? (char *)out.data : "", want);
}

TEST(values_are_put_as_printf_would) {
    fills("no braces", "no braces");
    fills("{n} {share} {gone} {absent} {yes}", "3 0.125 - - yes");
    fills("[{n:4d}] [{n:-4d}] [{gone:4d}] [{share:8.2f}] [{share:+.3f}]",
          "[   3] [3   ] [   -] [    0.12] [+0.125]");
    fills("[{rows.0.id:-3s}] [{name:.1s}] {share*100:.1f}% {share*100/n:.2f} {n/none:.0f}",
          "[x  ] [a] 12.5% 4.17 0");
    fills("[{~6 {n}/{p}}] [{~-4 {gone?x}}]", "[   3/4] [    ]");
    fills("{seconds:12t} {gone:5t}", "  1 min 05 s     -");
    fills("{name} {name:j}", "a b \"a\\nb\"");
}

TEST(conditions_tell_counts_from_measurements) {
    fills("{n?some}{none?none}{zero?measured}{gone?x}{empty?x}{absent?x}", "somemeasured");
    fills("{n!x}{none!no}{gone!gone}{empty! empty}", "nogone empty");
    fills("{gone|a word} {n|x} {gone|{n} of {p}}", "a word 3 3 of 4");
    fills("{rows.0.id=x?is x}{rows.0.id=y?x}{rows.0.id=y! not y}{n=3? three}", "is x not y three");
    fills("{share<1?below}{share<1!x}{share>0.125?x}{share>0.125! not above}{gone<1?x}",
          "below not above");
}

TEST(items_are_looked_up_from_the_inside) {
    fills("{list#{,, }{@}: {.}}", "1: 1, 2: 2.5, 3: -");
    fills("{of#{@}={.};}", "b=7;a=8;");
    fills("{rows#{id} {n} {p}{, and the last};}", "x 1 4;y 3 4 and the last;");
    fills("{rows#{list#{id}}}", "xxxyyy");
    fills("{pair#{.#{.}} {n}}", "45 3");
    fills("{rows#{id}{list.@}{list.@>2?!};}", "x1;y2.5!;");
    fills("{of&{a} {b} {n}}{none&x}{empty&x}{list#{rows.@&{id}}}", "8 7 3xy");
    fills("{empty#x}{absent#x}", "");
}

RUN_TESTS(NULL, NULL)
