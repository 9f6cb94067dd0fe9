/* Hostile score files: every key replaced, extreme numbers (noise: fuzz_scores). Each ends as a
 * report without a broken number, or as one line with exit code 65 and no page. */
#include <ctype.h>
#include <dirent.h>

#include "lib/base/json.h"
#include "tests/unit/report_fixture.h"

enum { PROMPTS = 12 };
static const char *scores_path, *out_path;

static int setup(void **state) {
    if (temp_folder_make(state) != 0) { return -1; }
    scores_path = in_temp_folder("s.jsonl");
    out_path = in_temp_folder("out");
    return 0;
}

/* A line's members, of which each can be replaced. L = 2, G = 1, C = 5. */
static const char line_text[] =
    "id:\"p%d\" source:\"s\" split:\"heldout\" model:\"m\" manifest:\"f\" policy:\"identity\" "
    "table:null T:100 C:5 budget:32 r_struct:%g r_sem:12.25 bin_entropy:null bin_perplexity:null "
    "n_candidates:[40,30] n_kept:[32,30] n_kept_window:[8,7] loss_full:2 loss_comp:%g reward:%g "
    "attention_epsilon:[0.25,0.5] attention_bound:[1,2] attention_error:[0.5,1] "
    "attention_drift:[0.5,2.5] alpha_quantiles:[0,1,2,3,4,5,6] "
    "utility_quantiles:[[[0,1,2,3,4,5,6]],[[0,1,2,3,4,5,7]]] tau:null";

/* Line i; key `at` has another value instead, or is left out (NULL). */
static void line(ckvc_buffer *b, int i, const char *at, const char *instead) {
    char text[1024];
    const char *comma = "";
    snprintf(text, sizeof text, line_text, i, 4 + 0.25 * (i * 5 % PROMPTS), 2 + 0.125 * i,
             -0.125 * i);
    ckvc_buffer_text(b, "{");
    for (char *key = strtok(text, ":"); key; key = strtok(NULL, ":")) {
        const char *value = strtok(NULL, " ");
        if (strcmp(key, at) == 0) { value = instead; }
        if (value) {
            ckvc_buffer_printf(b, "%s\"%s\":", comma, key);
            ckvc_buffer_text(b, value);
            comma = ",";
        }
    }
    ckvc_buffer_text(b, "}\n");
}

/* No nan or inf that is not part of a word. */
static void check_numbers(const char *name, const char *text, const char *what) {
    static const char *const broken[] = {"nan", "inf"};
    for (int i = 0; i < 2; i++) {
        for (const char *p = text; (p = strstr(p, broken[i])) != NULL; p += 3) {
            if ((p == text || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[3])) {
                fail_msg("%s: %s holds %s: %.60s", what, name, broken[i],
                         p > text + 30 ? p - 30 : text);
            }
        }
    }
}

static int n_reports, n_refused;

static void report_on(const ckvc_buffer *b, const char *what) {
    err = (ckvc_err){0};
    write_bytes(scores_path, b->data, b->size);
    if (access(out_path, F_OK) == 0) { shell("rm -r %s", out_path); }
    report_options o = report_of(NULL, 0, &scores_path, 1);
    o.out = out_path;
    o.replicates = 20;
    ckvc_status st = write_report(&o);
    if (st != CKVC_OK) {
        if (st != CKVC_E_DATA || !*err.text || strchr(err.text, '\n') || strlen(err.text) > 1000 ||
            !strstr(err.text, "s.jsonl")) {
            fail_msg("%s: status %d, \"%s\"", what, (int)st, err.text);
        }
        assert_int_not_equal(access(out_path, F_OK), 0);
        n_refused++;
        return;
    }
    n_reports++;
    DIR *dir = opendir(out_path);
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        char path[800];
        if (d->d_name[0] == '.') { continue; }
        snprintf(path, sizeof path, "%s/%s", out_path, d->d_name);
        CKVC_AUTO_FREE char *text = file_bytes(path, NULL);
        check_numbers(d->d_name, text, what);
    }
    closedir(dir);
}

/* Every key, once in the first and once in the last line, as each of these. */
TEST(every_key) {
    char values[] =
        "- null true \"\" \"x\" -1 0 7 1e308 -1e308 5e-324 1e999 [] {} [1] [1,1] [null,null] "
        "[[],[]] [[[]],[[]]] [1e308,1e308] [-0.0,-0.0] 99999999999999999999 \"\\u0000\" "
        "\"<script>\" [0,0,0,0,0,0,0] [0,0,0,1e308,1e308,1e308,1e308] "
        "[[[0,0,0,0,0,0,0]],[[0,0,0,0,1e308,1e308,1e308]]]";
    char keys[sizeof line_text];
    size_t v = 0, n_tried = 0;
    for (char *next = values, *value; (value = strsep(&next, " ")); v++) {
        const char *instead = v ? value : NULL; /* the first: missing */
        size_t k = 0;
        strcpy(keys, line_text);
        for (char *rest = keys, *key; (key = strsep(&rest, " ")); k++, n_tried++) {
            CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
            char what[160];
            key[strcspn(key, ":")] = '\0';
            snprintf(what, sizeof what, "%s: %s", key, value);
            for (int i = 0; i < PROMPTS; i++) {
                line(&b, i, i == ((v + k) % 2 ? 0 : PROMPTS - 1) ? key : "", instead);
            }
            report_on(&b, what);
        }
    }
    assert_int_equal(n_tried, 27 * 27);
    assert_true(n_reports > 50 && n_refused > 300);
}

/* Numbers that overflow in sums and differences, in every line. */
TEST(extremes) {
    static const char *const cases[][2] = {{"r_struct", "1e308"}, {"r_struct", "-1e308"},
                                           {"r_sem", "1.7e308"},  {"r_sem", "5e-324"},
                                           {"budget", "1e308"},   {"budget", "1e-300"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
        for (int i = 0; i < PROMPTS; i++) {
            line(&b, i, i % 2 || cases[c][0][0] == 'b' ? cases[c][0] : "", cases[c][1]);
        }
        report_on(&b, cases[c][1]);
    }
    /* losses whose difference is no number */
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    for (int i = 0; i < PROMPTS; i++) { line(&b, i, "loss_full", i % 2 ? "-1.7e308" : "1.7e308"); }
    report_on(&b, "losses");
}

/* Arrays as large as a line holds: refused, or taken without more memory than they bring. */
TEST(large_arrays) {
    static const char *const at[] = {"n_kept", "attention_epsilon", "alpha_quantiles",
                                     "utility_quantiles", "utility_quantiles"};
    for (size_t c = 0; c < sizeof at / sizeof *at; c++) { /* the last deep instead */
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer list = {0}, b = {0};
        ckvc_buffer_text(&list, "[");
        for (int i = 0; i < 200000; i++) { ckvc_buffer_text(&list, c == 4 ? "[" : i ? ",1" : "1"); }
        ckvc_buffer_append(&list, "]", 2);
        line(&b, 0, at[c], (const char *)list.data);
        report_on(&b, at[c]);
    }
}

RUN_TESTS(setup, temp_folder_remove)
