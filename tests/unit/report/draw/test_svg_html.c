/* The drawing and page writers: what they write is well-formed whatever the labels hold, ticks are
 * nice, colours are ordered. */
#include <ctype.h>
#include <stdio.h>

#include "lib/base/memory.h"
#include "report/draw/html.h"
#include "report/draw/svg_chart.h"
#include "tests/unit/unit.h"

/* Every element closed in order, every attribute quoted, every & the start of an entity that XML
 * knows, no stray <. Returns NULL, or where it stopped. */
static const char *malformed(const char *p) {
    char open[64][32];
    size_t depth = 0;
    while (*p) {
        if (*p == '&') {
            static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
            bool ok = false;
            for (size_t i = 0; i < 5; i++) {
                ok = ok || strncmp(p, known[i], strlen(known[i])) == 0;
            }
            if (!ok) { return p; }
        }
        if (*p != '<') {
            p++;
            continue;
        }
        const char *start = p++;
        if (*p == '?' || *p == '!') {
            p = strchr(p, '>');
            if (!p++) { return start; }
            continue;
        }
        bool closing = *p == '/';
        p += closing;
        char name[32] = "";
        for (size_t n = 0; isalnum((unsigned char)*p) && n < 31; n++) { name[n] = *p++; }
        if (!*name) { return start; }
        if (closing) {
            if (*p++ != '>' || depth == 0 || strcmp(open[--depth], name) != 0) { return start; }
            continue;
        }
        bool empty = false;
        for (;;) {
            while (isspace((unsigned char)*p)) { p++; }
            if (*p == '/' && p[1] == '>') {
                empty = true;
                p += 2;
                break;
            }
            if (*p == '>') {
                p++;
                break;
            }
            while (isalnum((unsigned char)*p) || *p == '-' || *p == ':') { p++; }
            if (p[0] != '=' || p[1] != '"') { return start; }
            p += 2;
            while (*p && *p != '"') {
                if (*p == '<') { return p; }
                p++;
            }
            if (*p++ != '"') { return start; }
        }
        if (!empty) {
            if (depth == 64) { return start; }
            strcpy(open[depth++], name);
        }
    }
    return depth ? p : NULL;
}

static const char hostile[] =
    "</text></svg><script>alert(\"1\" & '2')</script>\x01\xff\xe2\x80\xae";

static void checker_sees_faults(void **state) {
    assert_null(malformed("<a b=\"c\">d &amp; e<f/></a>"));
    assert_non_null(malformed("<a>"));
    assert_non_null(malformed("<a></b>"));
    assert_non_null(malformed("<a b=c></a>"));
    assert_non_null(malformed("a & b"));
    assert_non_null(malformed("a < b"));
}

static void text_is_escaped(void **state) {
    ckvc_buffer b = {0};
    html_text(&b, "a<b> & \"c\" 'd' \xCF\x84");
    assert_string_equal((char *)b.data, "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; \xCF\x84");
    ckvc_buffer_fini(&b);
    /* Control characters, stray and overlong bytes, surrogates, a right-to-left override: one
     * replacement a byte. */
    html_text(&b, "\x01|\xff|\xc0\xaf|\xed\xa0\x80|\xe2\x80\xae|\xe2");
#define R "\xEF\xBF\xBD"
    assert_string_equal((char *)b.data, R "|" R "|" R R "|" R R R "|" R R R "|" R);
    ckvc_buffer_fini(&b);
    html_text(&b, NULL);
    assert_int_equal(b.size, 0);
    ckvc_buffer_fini(&b);
}

static void page_is_well_formed(void **state) {
    ckvc_buffer b = {0}, picture = {0};
    svg s;
    svg_init(&s, 100);
    svg_label(&s, 1, 2, SVG_START, (svg_font){.size = 10, .look = "t"}, hostile);
    s.height = 20;
    s.title = ckvc_strdup(hostile);
    svg_render(&s, false, &picture);
    assert_null(malformed((char *)picture.data));
    html_page_begin(&b, hostile);
    html_section_begin(&b, "one", hostile, false);
    html_paragraph(&b, "note", "%s", hostile);
    html_table_begin(&b, hostile);
    html_head(&b, 'l', "%s", hostile);
    html_head(&b, 0, "n");
    html_table_body(&b);
    html_group(&b, 2, "%s", hostile);
    html_row_begin(&b);
    html_cell(&b, 'l', "%s", hostile);
    html_cell(&b, 'r', "%d", 3);
    html_row_end(&b);
    html_table_end(&b);
    html_figures_begin(&b);
    html_figure(&b, NULL, &picture, hostile, "a");
    html_figures_end(&b);
    html_section_end(&b, false);
    html_section_begin(&b, "two", hostile, true);
    html_paragraph(&b, NULL, "%s", hostile);
    html_section_end(&b, true);
    html_page_end(&b);
    const char *page = (const char *)b.data;
    assert_null(malformed(page));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "http://www.w3.org/2000/svg\" src"));
    assert_null(strstr(page, "url("));
    assert_null(strstr(page, "@import"));
    ckvc_buffer_fini(&b);
    ckvc_buffer_fini(&picture);
    svg_fini(&s);
}

static void standalone_svg_needs_no_style_sheet(void **state) {
    ckvc_buffer b = {0};
    svg s;
    svg_init(&s, 10);
    s.height = 5.5;
    svg_rect(&s, 0, 0, -1, 2.25, svg_rgb(0x0a0b0c),
             NULL); /* a negative width is nothing, not an error of the file */
    svg_line(&s, -0.001, NAN, 1, 2, "ax");
    s.title = ckvc_strdup("t");
    svg_render(&s, true, &b);
    const char *text = (const char *)b.data;
    assert_null(malformed(text));
    assert_non_null(strstr(text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
                                 "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 5.5\""));
    assert_non_null(strstr(text, "width=\"0\" height=\"2.25\" fill=\"#0a0b0c\""));
    assert_non_null(strstr(text, "<line x1=\"0\" y1=\"0\""));
    assert_null(strstr(text, "var("));
    ckvc_buffer_fini(&b);
    svg_fini(&s);
}

static void check_ticks(double lo, double hi, size_t want, size_t n, const double *expected,
                        int decimals) {
    double ticks[SVG_TICKS_MAX];
    int got;
    assert_int_equal(svg_ticks(lo, hi, want, ticks, &got), n);
    for (size_t i = 0; i < n; i++) { assert_true(fabs(ticks[i] - expected[i]) < 1e-12); }
    if (n > 1) { assert_int_equal(got, decimals); }
}

static void ticks_are_nice(void **state) {
    check_ticks(0, 10, 5, 6, (double[]){0, 2, 4, 6, 8, 10}, 0);
    check_ticks(0.8, 1.0, 5, 5, (double[]){0.8, 0.85, 0.9, 0.95, 1.0}, 2);
    check_ticks(-0.011, 0.012, 4, 3, (double[]){-0.01, 0, 0.01}, 2);
    check_ticks(3, 3, 5, 1, (double[]){3}, 0);
    check_ticks(0, 23000, 5, 5, (double[]){0, 5000, 10000, 15000, 20000}, 0);
    check_ticks(1, 0, 5, 0, NULL, 0);
    check_ticks(NAN, 1, 5, 0, NULL, 0);
    check_ticks(0, INFINITY, 5, 0, NULL, 0);
    /* Whatever the range, never more than there is room for, inside it and rising. */
    double ticks[SVG_TICKS_MAX];
    int decimals;
    for (int k = -300; k <= 300; k += 7) {
        double hi = pow(10, k);
        size_t n = svg_ticks(-hi / 3, hi, 5, ticks, &decimals);
        assert_in_range(n, 2, SVG_TICKS_MAX);
        for (size_t i = 1; i < n; i++) {
            assert_true(ticks[i] > ticks[i - 1] && ticks[i] <= hi * (1 + 1e-9));
        }
    }
}

static double luminance(uint32_t rgb) {
    return 0.2126 * (rgb >> 16 & 255) + 0.7152 * (rgb >> 8 & 255) + 0.0722 * (rgb & 255);
}

static void colours_are_ordered(void **state) {
    for (int i = 1; i <= 100; i++) {
        assert_true(luminance(svg_sequential(i / 100.0)) >
                    luminance(svg_sequential((i - 1) / 100.0)) - 0.51); /* rounding */
    }
    assert_true(luminance(svg_diverging(0)) > luminance(svg_diverging(-1)) + 100);
    assert_true(luminance(svg_diverging(0)) > luminance(svg_diverging(1)) + 100);
    assert_int_equal(svg_text_on(0xffffff), 0x000000);
    assert_int_equal(svg_text_on(0x440154), 0xffffff);
    assert_int_equal(svg_sequential(NAN), svg_sequential(0));
}

static void text_width_counts_characters(void **state) {
    assert_true(svg_text_width("τ", 10) == svg_text_width("o", 10));
    assert_true(svg_text_width("", 10) == 0);
    assert_true(svg_text_width("WW", 10) > svg_text_width("ll", 10));
}

static void check_chart(svg *s) {
    ckvc_buffer b = {0};
    svg_render(s, true, &b);
    assert_null(malformed((char *)b.data));
    assert_null(strstr((char *)b.data, "nan"));
    assert_null(strstr((char *)b.data, "inf"));
    assert_true(s->height > 20);
    ckvc_buffer_fini(&b);
    svg_fini(s);
}

/* A model's name breaks at a hyphen rather than anywhere; what is a sign is no hyphen. */
static void long_labels_break_at_hyphens(void **state) {
    static const struct {
        const char *text, *lines;
    } cases[] = {{"T1 SmolLM2-135M-Instruct.Q4_1", ">T1 SmolLM2-135M-</text>\n>Instruct.Q4_1<"},
                 {"by the name of a b --policy all", ">by the name of a b</text>\n>--policy all<"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        svg s;
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0}, lines = {0};
        svg_init(&s, 400);
        svg_paragraph(&s, 0, 0, 150, (svg_font){.size = 12, .look = "t"}, cases[i].text);
        svg_render(&s, false, &b);
        svg_fini(&s);
        for (const char *p = strstr((char *)b.data, "<text"); p; p = strstr(p + 1, "<text")) {
            const char *from = strchr(p, '>');
            ckvc_buffer_append(&lines, from, strcspn(from, "\n") + 1);
        }
        ckvc_buffer_u8(&lines, 0);
        if (!strstr((char *)lines.data, cases[i].lines)) { fail_msg("%s", (char *)lines.data); }
    }
}

static void heat_maps_are_well_formed(void **state) {
    svg s;
    /* From one cell to many, with every cell missing, flat scales, hostile words; the
     * marked cells stand behind their values. */
    struct chart_cell {
        double value;
        bool marked;
    };
    const size_t shapes[][3] = {{1, 1, 1}, {5, 8, 2}, {20, 32, 4}, {80, 8, 1}, {2, 128, 3}};
    for (size_t i = 0; i < 5; i++) {
        size_t rows = shapes[i][0], cols = shapes[i][1], panels = shapes[i][2];
        struct chart_cell *v = calloc(rows * cols, sizeof *v);
        const double *all[4] = {&v->value, &v->value, &v->value, &v->value};
        const char *titles[4] = {hostile, "b", "c", "d"};
        for (int kind = 0; kind < 4; kind++) {
            for (size_t k = 0; k < rows * cols; k++) {
                v[k].value = kind == 0 ? NAN : kind == 1 ? 0.0 : k % 3 ? sin((double)k) : NAN;
                v[k].marked = kind == 1 && k < rows * cols / 2;
            }
            svg_init(&s, CHART_WIDTH);
            chart_heat(&s,
                       &(chart_heat_spec){.text = {hostile, hostile, hostile},
                                          .grid = {rows, cols, cols * sizeof *v, sizeof *v, panels},
                                          .values = all,
                                          .zero_is_blank = kind == 3,
                                          .panel_titles = titles,
                                          .y_up = kind == 1,
                                          .scale = {hostile, 2, kind == 1 ? 0 : -1,
                                                    kind == 1 ? 0 : 1, 0, kind == 2},
                                          .missing = hostile,
                                          .marked = offsetof(struct chart_cell, marked),
                                          .marked_label = hostile});
            check_chart(&s);
        }
        free(v);
    }
    svg_init(&s, CHART_WIDTH); /* too large to draw: says so */
    chart_heat(&s, &(chart_heat_spec){.text = {.title = "t"},
                                      .grid = {.rows = SIZE_MAX / 2, .cols = 4, .panels = 1}});
    check_chart(&s);
}

/* Where the text begins (middle: of it) that a drawing has once. */
static double x_of_text(const svg *s, const char *text) {
    char end[64];
    snprintf(end, sizeof end, ">%s</text>", text);
    const char *at = strstr((const char *)s->body.data, end);
    assert_non_null(at);
    while (strncmp(at, "<text x=\"", 9) != 0) { at--; }
    return strtod(at + 9, NULL);
}

/* A panel narrower than its title leaves it its room: what is beside it begins behind. */
static void titles_of_narrow_heat_maps_have_room(void **state) {
    const double v = 1, *all[3] = {&v, &v, &v};
    svg s;
    svg_init(&s, CHART_WIDTH);
    chart_heat(&s,
               &(chart_heat_spec){.text = {"t", "length", "depth"},
                                  .grid = {1, 1, sizeof v, sizeof v, 3},
                                  .values = all,
                                  .panel_titles = (const char *[]){"an expected title", "b", "c"},
                                  .scale = {"score", 2, 0, 1, 0, false, false}});
    ckvc_buffer_u8(&s.body, 0);
    assert_true(x_of_text(&s, "b") >=
                x_of_text(&s, "an expected title") + svg_text_width("an expected title", 11));
    svg_fini(&s);
}

static void intervals_are_well_formed(void **state) {
    svg s;
    const chart_interval_row rows[] = {
        {"heading", hostile, hostile, 0.5, 0.25, 0.75, 0, 2.0},
        {NULL, "no interval, and a label of many words that takes several lines", NULL, 1, NAN, NAN,
         7, NAN}};
    svg_init(&s, CHART_WIDTH);
    chart_intervals(&s, &(chart_interval_spec){.title = hostile,
                                               .x_label = "x",
                                               .reference_label = hostile,
                                               .remark_label = hostile,
                                               .n = 2,
                                               .rows = rows,
                                               .limit_label = hostile});
    check_chart(&s);
    svg_init(&s, CHART_WIDTH);
    chart_intervals(
        &s, &(chart_interval_spec){.title = "none", .x_label = "x", .reference_label = "0"});
    check_chart(&s);
}

static void curves_are_well_formed(void **state) {
    svg s;
    /* Undefined and, on logarithmic axes, negative values are left out; bands that are
     * undefined shrink to the line. */
    const struct {
        double x, y, lo, hi;
    } at[4] = {{1, 0.1, -1, 1}, {2, NAN, 0, 2}, {4, -3, NAN, 3}, {128, 5000, 10, 6000}};
    for (int kind = 0; kind < 8; kind++) {
        for (size_t n = 0; n <= 4; n++) {
            const chart_curve curves[] = {
                {hostile, n, sizeof *at, &at->x, &at->y, CURVE_BAND | CURVE_DASHED | CURVE_DOTS, 0},
                {"b", n, sizeof *at, &at->x, &at->hi, 0, 40}};
            svg_init(&s, CHART_WIDTH);
            chart_curves(&s, (chart_text){hostile, "x", "y"}, curves, 2, kind);
            check_chart(&s);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(checker_sees_faults),
                                       cmocka_unit_test(text_is_escaped),
                                       cmocka_unit_test(page_is_well_formed),
                                       cmocka_unit_test(standalone_svg_needs_no_style_sheet),
                                       cmocka_unit_test(ticks_are_nice),
                                       cmocka_unit_test(colours_are_ordered),
                                       cmocka_unit_test(text_width_counts_characters),
                                       cmocka_unit_test(long_labels_break_at_hyphens),
                                       cmocka_unit_test(heat_maps_are_well_formed),
                                       cmocka_unit_test(titles_of_narrow_heat_maps_have_room),
                                       cmocka_unit_test(intervals_are_well_formed),
                                       cmocka_unit_test(curves_are_well_formed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
