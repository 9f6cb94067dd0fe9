/* The values of a verb's options: see option_values.h. */
#include "cmd/common/option_values.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "lib/base/json.h"
#include "lib/base/files.h"
#include "lib/base/utf8.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

/* ---- the list ---- */

/* The options that were added first, of the verb that this process runs. */
static opt_values *running;

/* Returns the word at place `at` of "a|b|c", which must have one there. The caller frees it. */
static char *word_at(const char *choices, unsigned at) {
    size_t n;
    const char *word = record_name_at(choices, at, &n);
    return ckvc_format("%.*s", (int)n, word);
}

static bool is_word(const char *word, const char *text, size_t n) {
    return word && strlen(word) == n && strncmp(word, text, n) == 0;
}

bool opt_is_named(const opt *o, const char *name, size_t n) {
    return o->type != OPT_IS_TITLE && (is_word(o->name, name, n) || is_word(o->was, name, n));
}

static opt_value *find_option(opt_values *v, const char *name, size_t n) {
    for (size_t i = 0; i < v->n; i++) {
        if (opt_is_named(v->items[i].o, name, n)) { return &v->items[i]; }
    }
    return NULL;
}

/* Warns if an option was called by its name of the last release. `where` is the line of a file,
 * or the variable, that called it so; NULL means a flag. */
static void warn_of_old_name(const opt *o, const char *name, size_t n, const char *where) {
    if (!is_word(o->was, name, n)) { return; }
    ckvc_warn("%s%s--%s is called --%s now", where ? where : "", where ? ": " : "", o->was,
              o->name);
}

static opt_origin origin_of(const char *name) {
    const opt_value *v = running ? find_option(running, name, strlen(name)) : NULL;
    return v ? v->from : FROM_DEFAULT;
}

bool opts_given(const char *name) { return origin_of(name) != FROM_DEFAULT; }

bool opts_said(const char *name) { return origin_of(name) >= FROM_ENVIRONMENT; }

/* Empties a value that is a list, and leaves others alone. */
static void empty_list(opt_value *v) {
    const opt_type type = v->o->type;
    if (type == OPT_IS_LIST || type == OPT_IS_INPUTS) { ((opt_list *)v->at)->n = 0; }
    if (type == OPT_IS_BUDGETS || type == OPT_IS_SHARES) { ((budget_list *)v->at)->n = 0; }
}

const char *opt_metavar(const opt *o) {
    const bool names = o->type == OPT_IS_SETTING && !o->metavar;
    return names ? setting_of_option(o->name)->m.names : o->metavar;
}

char *opt_value_text(const opt_value *v) {
    const char *const *text = v->at;
    char buffer[SETTING_TEXT_SIZE];
    switch (v->o->type) {
    case OPT_IS_FLAG: return ckvc_strdup(*(bool *)v->at ? "true" : "false");
    case OPT_IS_INT:
    case OPT_IS_SIZE: return ckvc_format("%lld", (long long)*(int64_t *)v->at);
    case OPT_IS_COUNT: return ckvc_format("%u", *(unsigned *)v->at);
    case OPT_IS_DOUBLE: return ckvc_format("%.10g", *(double *)v->at);
    case OPT_IS_TEXT:
    case OPT_IS_CHOICE:
    case OPT_IS_INPUT:
    case OPT_IS_OUTPUT: return *text ? ckvc_strdup(*text) : NULL;
    case OPT_IS_ENUM: return word_at(v->o->metavar, *(unsigned *)v->at);
    case OPT_IS_SETTING:
        return ckvc_strdup(
            setting_name(setting_of_option(v->o->name), v->at, buffer, sizeof buffer));
    case OPT_IS_LIST:
    case OPT_IS_INPUTS: {
        const opt_list *list = v->at;
        ckvc_buffer b = {0};
        for (size_t i = 0; i < list->n; i++) {
            ckvc_buffer_printf(&b, "%s%s", i ? "," : "", list->items[i]);
        }
        return (char *)b.data;
    }
    case OPT_IS_BUDGETS:
    case OPT_IS_SHARES: {
        const budget_list *list = v->at;
        ckvc_buffer b = {0};
        for (uint32_t i = 0; i < list->n; i++) {
            ckvc_buffer_printf(&b, "%s%.15g", i ? "," : "", list->items[i]);
        }
        return (char *)b.data;
    }
    default: return NULL;
    }
}

json_t *opts_json(void) {
    json_t *o = json_object();
    for (size_t i = 0; i < running->n; i++) {
        CKVC_AUTO_FREE char *text = opt_value_text(&running->items[i]);
        if (text) { json_object_set_new(o, running->items[i].o->name, json_string(text)); }
    }
    return o;
}

/* ---- one value ---- */

static ckvc_status set_flag(bool *value, const char *text, const char *where, ckvc_err *err) {
    const bool yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    USAGE_IF(!yes && strcmp(text, "false") != 0 && strcmp(text, "0") != 0,
             "%s: got '%s', wanted true or false", where, text);
    *value = yes;
    return CKVC_OK;
}

/* Sets a whole number, a real number, or a size. */
static ckvc_status set_number(const opt *o, void *at, const char *text, const char *where,
                              ckvc_err *err) {
    const bool whole = o->type == OPT_IS_INT || o->type == OPT_IS_COUNT,
               size = o->type == OPT_IS_SIZE;
    char *end;
    errno = 0;
    const int64_t n = whole ? strtoll(text, &end, 10) : 0;
    double v = whole ? (double)n : strtod(text, &end);
    const char *units = "KMGT", *unit = size && *end ? strchr(units, *end) : NULL;
    if (unit) {
        v *= (double)(1024LL << 10 * (unit - units));
        end++;
    }
    USAGE_IF(end == text || *end || !isfinite(v) || (whole && errno) ||
                 (size && !(v >= 0 && v < 9e18)),
             "%s: got '%s', wanted a %s", where, text,
             whole  ? "whole number"
             : size ? "size such as 512M or 8G"
                    : "number");
    USAGE_IF(!size && (v < o->min || v > o->max), "%s: got %s, wanted %.10g to %.10g", where, text,
             o->min, o->max);
    if (o->type == OPT_IS_DOUBLE) {
        *(double *)at = v;
    } else if (o->type == OPT_IS_COUNT) {
        *(unsigned *)at = (unsigned)n;
    } else {
        *(int64_t *)at = whole ? n : (int64_t)v;
    }
    return CKVC_OK;
}

static ckvc_status set_setting(const opt *o, setting *s, const char *text, const char *where,
                               ckvc_err *err) {
    const setting_field *f = setting_of_option(o->name);
    opt plain = *o;
    union {
        int64_t n;
        double v;
    } got = {0};
    if (f->m.type == RECORD_NAME) {
        USAGE_IF(!setting_set_name(f, ' ', s, text), "%s: got '%s', wanted one of %s", where, text,
                 f->m.names);
        return CKVC_OK;
    }
    if (f->m.type == RECORD_TEXT) {
        char wanted[64];
        setting_wanted(f, ' ', wanted, sizeof wanted);
        USAGE_IF(!record_set_text(&f->m, s, text), "%s: wanted %s", where, wanted);
        return CKVC_OK;
    }
    plain.type = f->m.type == RECORD_REAL ? OPT_IS_DOUBLE : OPT_IS_INT;
    CKVC_TRY(set_number(&plain, &got, text, where, err));
    record_set_number(&f->m, s, f->m.type == RECORD_REAL ? got.v : (double)got.n);
    return CKVC_OK;
}

/* Keeps a text for as long as the running verb's values, which free it. */
static char *keep_text(char *text) {
    CKVC_GROW(running->kept, running->capacity, running->n_kept + 1);
    return running->kept[running->n_kept++] = text;
}

static ckvc_status add_items(opt_list *list, const char *text, const char *where, ckvc_err *err) {
    char *p = keep_text(ckvc_strdup(text));
    for (bool last = false; !last;) {
        const size_t length = strcspn(p, ",");
        last = p[length] == 0;
        p[length] = 0;
        USAGE_IF(length == 0, "%s: got '%s', wanted values separated by single commas", where,
                 text);
        USAGE_IF(list->n == sizeof list->items / sizeof *list->items, "%s: more than %zu values",
                 where, list->n);
        list->items[list->n++] = p;
        p += length + 1;
    }
    return CKVC_OK;
}

/* Reads a budget, or with `shares` a share of the bytes, from an item of a list. */
static ckvc_status read_budget(const char *item, bool shares, const char *where, double *out,
                               ckvc_err *err) {
    char *end;
    const double v = strtod(item, &end);
    const bool number = !*end && end != item && v > 0 && v <= 1e9;
    *out = v;
    USAGE_IF(shares && !(number && v <= 1),
             "%s: got '%s', wanted a share of the bytes of the whole cache, as in 0.1", where,
             item);
    if (shares) { return CKVC_OK; }
    USAGE_IF(!number || (v >= 1 && v != floor(v)),
             "%s: got '%s', wanted whole tokens (256) or a share of the prompt below 1 (0.25)",
             where, item);
    USAGE_IF(v >= 1 && strchr(item, '.'),
             "%s: got '%s', which may be tokens or a share: write %.0f for %.0f token%s, 0.99 "
             "for nearly all of a prompt",
             where, item, v, v, v == 1 ? "" : "s");
    return CKVC_OK;
}

static ckvc_status add_budgets(budget_list *list, bool shares, const char *text, const char *where,
                               ckvc_err *err) {
    opt_list of = {0};
    CKVC_TRY(add_items(&of, text, where, err));
    for (size_t i = 0; i < of.n; i++) {
        const char *item = of.items[i];
        double v;
        CKVC_TRY(read_budget(item, shares, where, &v, err));
        for (uint32_t k = 0; k < list->n; k++) {
            USAGE_IF(list->items[k] == v, "%s: %s is given twice", where, item);
        }
        USAGE_IF(list->n == sizeof list->items / sizeof *list->items, "%s: more than %u values",
                 where, list->n);
        list->items[list->n++] = v;
    }
    return CKVC_OK;
}

/* Refuses a word of the command line, or a value, that is not UTF-8: it could not be written to
 * manifests, runs and JSON, which are. */
static ckvc_status check_text(const char *text, const char *where, ckvc_err *err) {
    const size_t n = strlen(text), bad = ckvc_utf8_check(text, n);
    USAGE_IF(bad < n,
             "%s: got text whose byte %zu is not UTF-8, wanted UTF-8, in names of files, too",
             where, bad);
    return CKVC_OK;
}

static ckvc_status set_value(opt_value *v, const char *text, opt_origin from, const char *where,
                             ckvc_err *err) {
    CKVC_TRY(check_text(text, where, err));
    /* A list from a stronger source replaces the weaker one's; the same source appends. */
    if (v->from != from) { empty_list(v); }
    v->from = from;
    switch (v->o->type) {
    case OPT_IS_FLAG: return set_flag(v->at, text, where, err);
    case OPT_IS_INT:
    case OPT_IS_COUNT:
    case OPT_IS_DOUBLE:
    case OPT_IS_SIZE: return set_number(v->o, v->at, text, where, err);
    case OPT_IS_SETTING: return set_setting(v->o, v->at, text, where, err);
    case OPT_IS_CHOICE:
    case OPT_IS_ENUM: {
        const bool was = v->o->word_was[0] && strcmp(text, v->o->word_was[0]) == 0;
        const int place = record_place_of(v->o->metavar, was ? v->o->word_was[1] : text);
        if (was) { ckvc_warn("%s: %s is called %s now", where, text, v->o->word_was[1]); }
        USAGE_IF(place < 0, "%s: got '%s', wanted one of %s", where, text, v->o->metavar);
        if (v->o->type == OPT_IS_CHOICE) { break; }
        *(unsigned *)v->at = (unsigned)place;
        return CKVC_OK;
    }
    case OPT_IS_INPUT:
    case OPT_IS_OUTPUT:
        USAGE_IF(!*text, "%s: got an empty name, wanted %s", where, v->o->metavar);
        break;
    case OPT_IS_LIST:
    case OPT_IS_INPUTS: return add_items(v->at, text, where, err);
    case OPT_IS_BUDGETS:
    case OPT_IS_SHARES: return add_budgets(v->at, v->o->type == OPT_IS_SHARES, text, where, err);
    default: break;
    }
    *(const char **)v->at = text;
    return CKVC_OK;
}

/* Sets the built-in value. A mistake in one is a mistake of the program, so an assertion catches
 * it. */
static void set_preset(opt_value *v) {
    const opt *o = v->o;
    const char *text = o->preset_at ? *o->preset_at : o->preset;
    ckvc_err err = {0};
    if (o->type == OPT_IS_CHOICE && !text) { text = keep_text(word_at(o->metavar, 0)); }
    empty_list(v);
    if (o->type == OPT_IS_SETTING) { setting_reset(setting_of_option(o->name), v->at); }
    if (o->preset_of) { *(int64_t *)v->at = o->preset_of(); }
    if (text) { (void)!set_value(v, text, FROM_DEFAULT, o->name, &err); }
    assert(err.status == CKVC_OK);
}

static void add_table(opt_values *v, const opt *table, void *base, bool offered) {
    for (const opt *o = table; o && o->name; o++) {
        opt_value value = {o, (char *)base + o->at, FROM_DEFAULT};
        if (o->type == OPT_IS_GROUP || o->type == OPT_IS_PRESET) {
            add_table(v, o->group, value.at, offered && o->type == OPT_IS_GROUP);
            continue;
        }
        if (o->type != OPT_IS_TITLE) { set_preset(&value); }
        assert(v->n < OPT_VALUES_MAX);
        if (offered) { v->items[v->n++] = value; }
    }
}

void opt_values_add(opt_values *v, const opt *table, void *base) {
    running = running ? running : v;
    add_table(v, table, base, true);
}

void opt_values_fini(opt_values *v) {
    for (size_t i = 0; i < v->n_kept; i++) { free(v->kept[i]); }
    free(v->kept);
    running = running == v ? NULL : running;
}

/* Sets a value from a file or the environment, where a wrong one is CKVC_E_CONFIG. */
static ckvc_status configure(opt_value *v, const char *text, opt_origin from, const char *where,
                             ckvc_err *err) {
    if (set_value(v, text, from, where, err) == CKVC_OK) { return CKVC_OK; }
    err->status = CKVC_E_CONFIG;
    return CKVC_E_CONFIG;
}

/* ---- config files ---- */

static char *trim(char *s) {
    while (isspace((unsigned char)*s)) { s++; }
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) { s[--n] = 0; }
    return s;
}

char *opt_shipped_path(const char *folder, const char *name) {
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0) { return NULL; }
    program[n] = 0;
    CKVC_AUTO_FREE char *bin = ckvc_path_dir(program);
    CKVC_AUTO_FREE char *installed = ckvc_format("%s/../share/ckvc/%s", bin, name);
    CKVC_AUTO_FREE char *built = ckvc_format("%s/../../%s/%s", bin, folder, name);
    if (ckvc_file_exists(installed)) { return ckvc_take(&installed); }
    return ckvc_file_exists(built) ? ckvc_take(&built) : NULL;
}

/* Finds the file that --config names. A name such as `default` is one of the configurations that
 * come with the program. *out is the caller's to free. */
static ckvc_status find_config(const char *name, char **out, ckvc_err *err) {
    if (strchr(name, '/') || ckvc_file_exists(name)) {
        *out = ckvc_strdup(name);
        return CKVC_OK;
    }
    CKVC_AUTO_FREE char *file = ckvc_format("%s.conf", name);
    *out = opt_shipped_path("configs", file);
    if (*out) { return CKVC_OK; }
    static const char *const shipped[] = {"default", "demo", "paper", "quick", "shared"};
    nearest near = {.word = name};
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        nearest_try(&near, shipped[i]);
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean '", "'?");
    return ckvc_fail(err, CKVC_E_NOINPUT,
                     "--config %s: no such file, and none comes with the program by that name: "
                     "default, demo, paper, quick and shared do%s",
                     name, hint);
}

ckvc_status opt_values_config(opt_values *v, const char *path, opt_known_fn *known, ckvc_err *err) {
    char *text;
    size_t n;
    CKVC_AUTO_FREE char *found = NULL;
    CKVC_TRY(find_config(path, &found, err));
    CKVC_TRY(ckvc_file_read(found, CONFIG_MAX_BYTES, &text, &n, err));
    (void)keep_text(text);
    int line = 0;
    for (char *p = text, *next; p && *p; p = next) {
        line++;
        next = strchr(p, '\n');
        if (next) { *next++ = 0; }
        p[strcspn(p, "#")] = 0;
        char *key = trim(p);
        if (!*key) { continue; }
        char *equals = strchr(key, '=');
        FAIL_IF(!equals, CKVC_E_CONFIG, "%s:%d: got '%s', wanted option = value", found, line, key);
        *equals = 0;
        key = trim(key);
        opt_value *value = find_option(v, key, strlen(key));
        nearest near = {.word = key};
        if (value) {
            CKVC_AUTO_FREE char *where = ckvc_format("%s:%d: %s", found, line, key);
            warn_of_old_name(value->o, key, strlen(key), where);
            CKVC_TRY(configure(value, trim(equals + 1), FROM_CONFIG, where, err));
        } else if (!known(key, &near)) {
            CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean '", "'?");
            return ckvc_fail(err, CKVC_E_CONFIG, "%s:%d: unknown option '%s'%s", found, line, key,
                             hint);
        }
    }
    return CKVC_OK;
}

/* ---- the environment ---- */

/* Variables that belong to no option: --config's own, the Python package's library, and what the
 * tests tell each other. */
#define OTHER_VARIABLES "config|library|asan|shared"

/* Turns min-cell into MIN_CELL, as it stands in the name of a variable, or back. */
static void rename_word(char *word, bool to_variable) {
    for (char *p = word; *p; p++) {
        const int c = (unsigned char)*p;
        *p = (char)(c == '-' || c == '_' ? "-_"[to_variable]
                    : to_variable        ? toupper(c)
                                         : tolower(c));
    }
}

ckvc_status opt_values_environment(opt_values *v, opt_known_fn *known, ckvc_err *err) {
    for (char **e = environ; *e; e++) {
        CKVC_AUTO_FREE char *variable = ckvc_strdup(*e);
        char *value = strchr(variable, '=');
        if (strncmp(variable, "CKVC_", 5) != 0 || !value || !value[1]) { continue; }
        *value = 0;
        CKVC_AUTO_FREE char *option = ckvc_strdup(variable + 5);
        rename_word(option, false);
        opt_value *at = find_option(v, option, strlen(option));
        nearest near = {.word = option};
        if (at) {
            warn_of_old_name(at->o, option, strlen(option), variable);
            CKVC_TRY(configure(at, *e + (value + 1 - variable), FROM_ENVIRONMENT, variable, err));
        } else if (record_place_of(OTHER_VARIABLES, option) < 0 && !known(option, &near)) {
            rename_word(near.found, true);
            CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean CKVC_", "?");
            ckvc_warn("%s is set, but no option has this name%s", variable, hint);
        }
    }
    return CKVC_OK;
}

/* ---- flags ---- */

/* Returns the option of a flag; NULL means that there is none, and err says so. */
static opt_value *find_flag(opt_values *v, const char *word, size_t n, ckvc_err *err) {
    if (word[1] != '-') {
        for (size_t i = 0; i < v->n; i++) {
            if (v->items[i].o->letter == word[1]) { return &v->items[i]; }
        }
        ckvc_fail(err, CKVC_E_USAGE, "unknown option %s; see --help", word);
        return NULL;
    }
    opt_value *at = find_option(v, word + 2, n);
    if (at) { return at; }
    CKVC_AUTO_FREE char *name = ckvc_format("%.*s", (int)n, word + 2);
    nearest near = {.word = name};
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i].o->type != OPT_IS_TITLE) { nearest_try(&near, v->items[i].o->name); }
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, ", did you mean --", "?");
    ckvc_fail(err, CKVC_E_USAGE, "unknown option --%s%s; see --help", name, hint);
    return NULL;
}

bool opt_values_takes_next(opt_values *v, const char *word) {
    const bool is_long = word[0] == '-' && word[1] == '-';
    const size_t n = is_long ? strcspn(word + 2, "=") : 0;
    if (word[0] != '-' || word[1] == 0 || word[2 + n]) { return false; }
    const opt_value *at = find_flag(v, word, n, NULL);
    return at && at->o->type != OPT_IS_FLAG;
}

ckvc_status opt_values_flags(opt_values *v, int argc, char **argv, const char **args,
                             size_t *n_args, ckvc_err *err) {
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (only_args || word[0] != '-' || word[1] == 0) {
            CKVC_TRY(check_text(word, word, err));
            args[(*n_args)++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_args = true;
            continue;
        }
        if (strcmp(word, "--print-config") == 0) { continue; }
        const bool is_long = word[1] == '-';
        const size_t n = is_long ? strcspn(word + 2, "=") : 0;
        const char *value =
            is_long ? (word[2 + n] ? word + 3 + n : NULL) : (word[2] ? word + 2 : NULL);
        if (n == 6 && strncmp(word + 2, "config", 6) == 0) {
            i += value ? 0 : 1;
            continue;
        }
        opt_value *at = find_flag(v, word, n, err);
        if (!at) { return err->status; }
        if (is_long) { warn_of_old_name(at->o, word + 2, n, NULL); }
        if (!value && at->o->type == OPT_IS_FLAG) { value = "true"; }
        USAGE_IF(!value && i + 1 >= argc, "--%s needs a value (%s)", at->o->name,
                 opt_metavar(at->o));
        CKVC_AUTO_FREE char *where = ckvc_format("--%s", at->o->name);
        CKVC_TRY(set_value(at, value ? value : argv[++i], FROM_FLAG, where, err));
    }
    return CKVC_OK;
}
