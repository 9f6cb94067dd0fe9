/* The table of settings and what is done with it: see setting.h. */
#include "formats/setting/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/side/side.h"
#include "lib/base/json.h"

#define FIELD(option, of_type, member, of_names, plain, lo, hi, of_groups, text, ...)              \
    {                                                                                              \
        .m = RECORD(setting, option, member, .type = of_type, .names = of_names, .least = lo,      \
                    .most = hi),                                                                   \
        .neutral = plain, .groups = of_groups, .key = {__VA_ARGS__}, .title = text                 \
    }
#define NAME(option, member, names, last, groups, title, ...)                                      \
    FIELD(option, RECORD_NAME, member, names, 0, 0, last, groups, title, __VA_ARGS__)
#define COUNT(option, member, neutral, least, most, groups, title, ...)                            \
    FIELD(option, RECORD_COUNT, member, NULL, neutral, least, most, groups, title, __VA_ARGS__)
#define LIST(option, member, most, groups, ...)                                                    \
    FIELD(option, SETTING_LIST, member, NULL, 0, 0, most, groups, NULL, __VA_ARGS__)

/* The rows stand in the order of a shard's attributes. The last arguments are the keys: plan,
 * shard, META, score line, report.json. The keys of a new setting all begin with "?", so that files
 * without it stay as they were. */
const setting_field setting_fields[] = {
    NAME("alpha", alpha, "paper|visible", 1, SETTING_ATTENTION | SETTING_SCORE | SETTING_SCAN,
         "%s \u03B1", "alpha", "alpha_kind", "alpha_kind", "?alpha", "alpha_kind"),
    NAME("operator", op, "paper|no-utility|no-threshold|mean-pool", 3,
         SETTING_TABLE | SETTING_LOGGED, NULL, "?operator", "!operator", NULL, "!operator", NULL),
    NAME("compute", compute, "f32|bf16", 1, SETTING_SCAN | SETTING_MEASURE, NULL, "compute",
         "!compute", "?compute", NULL, NULL),
    COUNT("window", window, 64, 1, 1 << 20,
          SETTING_WINDOW | SETTING_ATTENTION | SETTING_SCORE | SETTING_SCAN, "W = %s", "window",
          "window", NULL, "?window", "window"),
    COUNT("continuation", continuation, 128, 0, 1 << 24, SETTING_SCAN | SETTING_MEASURE, NULL,
          "continuation", "continuation", "continuation", NULL, "continuation"),
    COUNT("keep-window", keep_window, 0, 0, 1 << 20, SETTING_SCORE, "?last %s kept", "keep_window",
          "~keep_window", "keep_window", "?keep_window", "keep_window"),
    FIELD("beta-bud", RECORD_REAL, beta_bud, NULL, 1, 0, HUGE_VAL, SETTING_PENALTY | SETTING_LOGGED,
          NULL, "lambda", "lambda", "lambda", NULL, "lambda"),
    FIELD("seed", RECORD_COUNT, seed, NULL, 1, 0, HUGE_VAL, 0, NULL, "seed", "seed", NULL, NULL,
          "seed"),
    NAME("loss-reduction", reduction, "mean|sum", 1, SETTING_MEASURE | SETTING_LOGGED, NULL,
         "?loss_reduction", "?loss_reduction", "?loss_reduction", NULL, "loss_reduction"),
    NAME("loss", loss, "nll|kl", 1, SETTING_MEASURE, NULL, "?loss", "?loss", "?loss", NULL, "loss"),
    LIST("budget", budgets, 1e9, SETTING_TABLE | SETTING_LOGGED, "budget", NULL),
#define X(NAME, name)                                                                              \
    LIST(#name "-grid", grid[CKVC_SIDE_##NAME], HUGE_VAL, SETTING_TABLE | SETTING_LOGGED,          \
         "?" #name "_grid", NULL),
    CKVC_SIDES(X)
#undef X
        LIST("layer-budgets", layer_budgets, 1e9, SETTING_LAYERS | SETTING_LOGGED, "?layer_budgets",
             "?layer_budgets", "?layer_budgets", "?layer_budgets", NULL),
    NAME("mode", mode, "shared|heads|layers|lengths", 3, SETTING_SETS, "?mode %s", NULL, NULL, NULL,
         "?mode", NULL),
    NAME("ranking", score, "paper|window|learned|bank", 3, SETTING_SETS, "?%s score", NULL, NULL,
         NULL, "?score", NULL),
    NAME("compress-after", compress_after, "last|first", 1, SETTING_SETS,
         "?compressed after the %s turn", NULL, NULL, NULL, "?compress_after", NULL),
    FIELD("demand-floor", RECORD_REAL, floor, NULL, 0, 0, 1, SETTING_DEMAND | SETTING_SETS, NULL,
          "?floor", "?floor", NULL, "?floor", NULL),
    COUNT("recent", recent, 0, 0, 1 << 20, SETTING_DEMAND, NULL, "?recent", "?recent", NULL, NULL,
          NULL),
    FIELD("mix", RECORD_REAL, mix, NULL, 0, 0, 1, SETTING_SETS, NULL, NULL, NULL, NULL, "?mix",
          NULL),
    FIELD("ridge", RECORD_REAL, ridge, NULL, 0, 0, 1e6, SETTING_SETS,
          "?entries fitted with ridge %s", NULL, NULL, NULL, "?ridge", NULL),
    NAME("cache-keys", cache_keys, CACHE_FORMAT_NAMES, CACHE_FORMATS - 1, SETTING_CACHE,
         "?keys in %s", "?cache_keys", NULL, NULL, "?cache_keys", NULL),
    NAME("cache-values", cache_values, CACHE_FORMAT_NAMES, CACHE_FORMATS - 1, SETTING_CACHE,
         "?values in %s", "?cache_values", NULL, NULL, "?cache_values", NULL),
    FIELD("repeat", RECORD_TEXT, repeat, NULL, 0, 0, SETTING_TEXT_SIZE - 1, SETTING_DEMAND, NULL,
          "?repeat", "?repeat", "?repeat", NULL, NULL),
    COUNT("positions", positions, 0, 0, 1 << 16, SETTING_LEARNED, NULL, "?positions", "!positions",
          NULL, NULL, NULL),
    COUNT("features", features, 0, 0, 1 << 16, SETTING_LEARNED, NULL, "?features", "!features",
          NULL, NULL, NULL),
    COUNT("n-features", n_features, 0, 0, 1 << 16, SETTING_LEARNED, NULL, NULL, "!n_features", NULL,
          NULL, NULL),
    COUNT("queries", queries, 0, 0, 1024, SETTING_LEARNED, NULL, "?queries", "?queries", NULL, NULL,
          NULL),
};
const size_t setting_n_fields = sizeof setting_fields / sizeof *setting_fields;
_Static_assert(sizeof(ckvc_alpha_kind) == sizeof(uint32_t), "names are read as uint32_t");
_Static_assert(sizeof setting_fields / sizeof *setting_fields <= 32, "a bit each in `unknown`");

static const char *member_text(const setting_field *f, const setting *s) {
    return (const char *)s + f->m.at;
}
static const setting_list *list_of(const setting_field *f, const setting *s) {
    return (const setting_list *)(const void *)member_text(f, s);
}
static uint32_t bit_of(const setting_field *f) { return (uint32_t)1 << (f - setting_fields); }
#define EACH_FIELD(f)                                                                              \
    const setting_field *f = setting_fields;                                                       \
    f < setting_fields + setting_n_fields;                                                         \
    f++

const char *setting_key(const setting_field *f, setting_place place, char *mark) {
    const char *key = f->key[place];
    const bool marked = key && strchr("~?!", *key);
    if (mark) { *mark = marked ? *key : ' '; }
    return marked ? key + 1 : key;
}

const setting_field *setting_of_option(const char *option) {
    for (EACH_FIELD(f)) {
        if (strcmp(f->m.name, option) == 0) { return f; }
    }
    return NULL;
}

const setting_field *setting_of_key(setting_place place, const char *name) {
    for (EACH_FIELD(f)) {
        const char *key = setting_key(f, place, NULL);
        if (key && strcmp(key, name) == 0) { return f; }
    }
    return NULL;
}

/* ---- values ---- */

bool setting_set_name(const setting_field *f, char mark, setting *s, const char *name) {
    const int place = record_place_of(f->m.names, name);
    return place >= (mark == '!') && record_set_number(&f->m, s, place);
}

const char *setting_name(const setting_field *f, const setting *s, char *buffer, size_t size) {
    if (f->m.type == RECORD_TEXT) {
        snprintf(buffer, size, "%s", member_text(f, s));
    } else if (f->m.type == RECORD_NAME) {
        size_t n;
        const char *name = record_name_at(f->m.names, (uint32_t)record_number(&f->m, s), &n);
        snprintf(buffer, size, "%.*s", (int)n, name ? name : "");
    } else {
        const double v = record_number(&f->m, s);
        snprintf(buffer, size, f->m.type == RECORD_REAL ? "%.10g" : "%.0f", v);
        if (strtod(buffer, NULL) != v) { snprintf(buffer, size, "%.17g", v); }
    }
    return buffer;
}

static bool is_default_grid(const setting_list *list, ckvc_side side) {
    const side_kind *kind = side_kind_of(side);
    bool same = list->n == kind->n_default;
    for (uint32_t a = 0; same && a < list->n; a++) {
        same = list->v[a] == kind->default_action((int)a);
    }
    return same;
}

bool setting_is_neutral(const setting_field *f, const setting *s) {
    if (f->m.type != SETTING_LIST) { return record_number(&f->m, s) == f->neutral; }
    const setting_list *list = list_of(f, s);
    bool neutral = list->n == 0;
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        neutral |= list == &s->grid[side] && is_default_grid(list, (ckvc_side)side);
    }
    return neutral;
}

void setting_reset(const setting_field *f, setting *s) {
    if (f->m.type == SETTING_LIST) {
        *(setting_list *)(void *)((char *)s + f->m.at) = (setting_list){0};
    } else if (f->m.type == RECORD_TEXT) {
        memset((char *)s + f->m.at, 0, SETTING_TEXT_SIZE);
    } else {
        record_set_number(&f->m, s, f->neutral);
    }
}

setting setting_neutral(void) {
    setting s = {0};
    for (EACH_FIELD(f)) { setting_reset(f, &s); }
    return s;
}

void setting_forget(const setting_field *f, setting *s) { s->unknown |= bit_of(f); }

void setting_without(setting *s, unsigned groups) {
    for (EACH_FIELD(f)) {
        if (f->groups & groups) { setting_reset(f, s); }
    }
}

setting setting_of_table(const ckvc_table *t, const json_t *meta) {
    setting s = setting_neutral();
    setting_read(meta, SETTING_META, &s);
    s.window = t->window;
    s.op = t->op;
    s.budgets = (setting_list){t->budgets, t->n_budgets};
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side side = side_of_table(t, (ckvc_side)i);
        s.grid[i] = (setting_list){side.grid, (uint32_t)side.actions.n};
    }
    return s;
}

bool setting_title(const setting_field *f, const setting *s, char *out, size_t size) {
    const char *title = f->title;
    if (!title || (*title == '?' && setting_is_neutral(f, s))) { return false; }
    title += *title == '?';
    char value[64];
    const char *hole = strstr(title, "%s");
    snprintf(out, size, "%.*s%s%s", (int)(hole - title), title,
             setting_name(f, s, value, sizeof value), hole + 2);
    return true;
}

void setting_wanted(const setting_field *f, char mark, char *out, size_t size) {
    if (f->m.type == RECORD_TEXT) {
        snprintf(out, size, "one line of text, at most %d bytes", SETTING_TEXT_SIZE - 1);
        return;
    }
    const char *what =
        f->m.type == RECORD_REAL || f->m.type == SETTING_LIST ? "a number" : "a whole number";
    if (f->m.type != RECORD_NAME) {
        snprintf(out, size, isfinite(f->m.most) ? "%s, %.10g to %.10g" : "%s of at least %.10g",
                 what, f->m.least, f->m.most);
        return;
    }
    size_t used = 0, n;
    for (uint32_t i = mark == '!'; i <= f->m.most && used < size; i++) {
        const char *name = record_name_at(f->m.names, i, &n),
                   *comma = i < f->m.most ? ", " : " or ";
        used +=
            (size_t)snprintf(out + used, size - used, "%s%.*s", used ? comma : "", (int)n, name);
    }
}

ckvc_status setting_check_values(const setting *s, setting_place place, const char *where,
                                 ckvc_err *err) {
    for (EACH_FIELD(f)) {
        char wanted[128], mark;
        const char *key = setting_key(f, place, &mark);
        if (!key) { continue; }
        setting_wanted(f, mark, wanted, sizeof wanted);
        if (f->m.type != SETTING_LIST) {
            const double v = record_number(&f->m, s);
            CKVC_FAIL_IF(!(v >= f->m.least && v <= f->m.most) || !isfinite(v), err, CKVC_E_DATA,
                         "%s: attribute %s is %.10g, must be %s", where, key, v, wanted);
            continue;
        }
        const setting_list *list = list_of(f, s);
        for (uint32_t i = 0; i < list->n; i++) {
            CKVC_FAIL_IF(!(list->v[i] > f->m.least && list->v[i] <= f->m.most), err, CKVC_E_DATA,
                         "%s: attribute %s[%u] is %g, must be above %g and at most %g", where, key,
                         i, list->v[i], f->m.least, f->m.most);
        }
    }
    return CKVC_OK;
}

/* ---- JSON ---- */

json_t *setting_json(const setting_field *f, const setting *s) {
    return f->m.type == SETTING_LIST ? ckvc_json_reals(list_of(f, s)->v, list_of(f, s)->n)
                                     : record_json(&f->m, s);
}

void setting_write(json_t *o, setting_place place, const setting *s, unsigned but) {
    for (EACH_FIELD(f)) {
        char mark;
        const char *key = setting_key(f, place, &mark);
        const bool sparse = mark == '?' || mark == '!';
        if (key && !(f->groups & but) && !(sparse && setting_is_neutral(f, s))) {
            json_object_set_new(o, key, setting_json(f, s));
        }
    }
}

void setting_write_all(json_t *o, setting_place place, const setting *s, unsigned groups) {
    for (EACH_FIELD(f)) {
        const char *key = setting_key(f, place, NULL);
        if (key && f->groups & groups) { json_object_set_new(o, key, setting_json(f, s)); }
    }
}

const setting_field *setting_read(const json_t *o, setting_place place, setting *s) {
    const setting_field *bad = NULL;
    for (EACH_FIELD(f)) {
        char mark;
        const char *key = setting_key(f, place, &mark);
        if (!key || f->m.type == SETTING_LIST) { continue; }
        const json_t *v = json_object_get(o, key);
        const bool fits =
            f->m.type == RECORD_NAME
                ? json_is_string(v) && setting_set_name(f, mark, s, json_string_value(v))
                : record_read(&f->m, v, s);
        if (!v && mark != ' ') {
            setting_reset(f, s);
        } else if (!fits) {
            setting_forget(f, s);
            bad = bad || !v ? bad : f;
        }
    }
    return bad;
}

/* ---- comparison ---- */

static int compare_numbers(double a, double b) { return (a > b) - (a < b); }

/* Compares one field as strcmp does. For a list, *i is the first place that differs. */
static int compare_field(const setting_field *f, const setting *a, const setting *b, uint32_t *i) {
    *i = 0;
    if ((a->unknown | b->unknown) & bit_of(f)) { return 0; }
    if (f->m.type == RECORD_TEXT) { return strcmp(member_text(f, a), member_text(f, b)); }
    if (f->m.type != SETTING_LIST) {
        return compare_numbers(record_number(&f->m, a), record_number(&f->m, b));
    }
    const setting_list *x = list_of(f, a), *y = list_of(f, b);
    int c = compare_numbers(x->n, y->n);
    for (; c == 0 && *i < x->n; ++*i) {
        c = compare_numbers(x->v[*i], y->v[*i]);
        if (c) { break; }
    }
    return c;
}

int setting_compare(const setting *a, const setting *b, unsigned groups) {
    uint32_t i;
    for (EACH_FIELD(f)) {
        const int c = f->groups & groups ? compare_field(f, a, b, &i) : 0;
        if (c) { return c; }
    }
    return 0;
}

/* Writes a list's values; returns false when they do not fit, because then they are too many for a
 * person to read. */
static bool list_text(const setting_list *list, char *out, size_t size) {
    size_t used = 0;
    *out = 0;
    for (uint32_t i = 0; i < list->n && used < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%.10g", i ? "," : "", list->v[i]);
    }
    return used < size;
}

/* What differs, as an option, and the value that each side has. */
typedef struct difference {
    char what[64], made[64], ours[64];
} difference;

static void describe_difference(const setting_field *f, const setting *made, const setting *ours,
                                uint32_t i, difference *d) {
    snprintf(d->what, sizeof d->what, "%s", f->m.name);
    if (f->m.type != SETTING_LIST) {
        const bool text = f->m.type == RECORD_TEXT;
        setting_name(f, made, d->made, sizeof d->made);
        setting_name(f, ours, d->ours, sizeof d->ours);
        if (text && !*d->made) { snprintf(d->made, sizeof d->made, "none"); }
        if (text && !*d->ours) { snprintf(d->ours, sizeof d->ours, "none"); }
        return;
    }
    const setting_list *a = list_of(f, made), *b = list_of(f, ours);
    const bool short_lists = list_text(a, d->made, 40) && list_text(b, d->ours, 40);
    if (!short_lists || strcmp(d->made, d->ours) == 0) {
        const bool same_length = a->n == b->n;
        snprintf(d->what, sizeof d->what, same_length ? "%s[%u]" : "%s of length", f->m.name, i);
        snprintf(d->made, sizeof d->made, "%.17g", same_length ? a->v[i] : a->n);
        snprintf(d->ours, sizeof d->ours, "%.17g", same_length ? b->v[i] : b->n);
    } else if (!b->n) {
        snprintf(d->ours, sizeof d->ours, "none");
    }
}

ckvc_status setting_match(const setting *made, const char *where, const setting *ours,
                          const char *who, unsigned groups, const char *advice, ckvc_err *err) {
    uint32_t i = 0;
    const setting_field *f = setting_fields, *end = f + setting_n_fields;
    while (f < end && (!(f->groups & groups) || compare_field(f, made, ours, &i) == 0)) { f++; }
    if (f == end) { return CKVC_OK; }
    difference d;
    describe_difference(f, made, ours, i, &d);
    const size_t n = advice ? strlen(advice) : 0;
    const bool goes_on = n > 2 && strcmp(advice + n - 2, "--") == 0;
    return ckvc_fail(err, CKVC_E_MISMATCH, "%s%swas made with --%s %s, %s has %s%s%s%s%s%s",
                     where ? where : "", where ? ": " : "", d.what, d.made, who, d.ours,
                     advice ? "; " : "", advice ? advice : "", goes_on ? d.what : "",
                     goes_on ? " " : "", goes_on ? d.made : "");
}

/* ---- formats of caches ---- */

static ckvc_status formats_check(cache_format f, const char *option, int32_t head_dim,
                                 ckvc_err *err) {
    const int32_t multiple = cache_format_multiple(f);
    if (head_dim % multiple == 0) { return CKVC_OK; }
    if (multiple == 32) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--%s: heads of %d numbers do not go into whole blocks of %d, which q8_0 "
                         "and q4_0 have; use f16, bf16 or fp8",
                         option, head_dim, multiple);
    }
    return ckvc_fail(
        err, CKVC_E_USAGE,
        "--%s: heads of %d numbers cannot be rotated: as in llama.cpp, their size must "
        "be a multiple of %d; leave out +rot",
        option, head_dim, multiple);
}

ckvc_status cache_formats_check(cache_formats f, int32_t head_dim, ckvc_err *err) {
    CKVC_TRY(formats_check(f.keys, "cache-keys", head_dim, err));
    CKVC_FAIL_IF(f.values >= CACHE_Q4_0_MEAN, err, CKVC_E_USAGE,
                 "--cache-values: %s is a format of keys, whose mean is taken out; leave out +mean",
                 cache_format_name(f.values));
    return formats_check(f.values, "cache-values", head_dim, err);
}
