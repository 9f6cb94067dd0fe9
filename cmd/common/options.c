/* One option table a verb: see options.h. Values: command line > environment CKVC_* > --config FILE
 * > built-in default. */
#include "cmd/common/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"

/* Where a value came from; kept beside the table so that the table itself stays plain. */
typedef enum origin { FROM_DEFAULT, FROM_CONFIG, FROM_ENV, FROM_FLAG } origin;
enum { MAX_OPTIONS = 96, CONFIG_MAX_BYTES = 1 << 20 };
static origin origins[MAX_OPTIONS];
/* Texts that values point into; they live as long as the process. */
static char *config_text;
static char **list_texts;
static size_t n_list_texts, cap_list_texts;
static bool errors_as_json;

static size_t count_options(const opt *opts) {
    size_t n = 0;
    while (opts[n].name) {
        n++;
    }
    assert(n < MAX_OPTIONS);
    return n;
}

bool opts_given(const opt *opts, const char *name) {
    for (size_t i = 0; opts[i].name; i++) {
        if (opts[i].type != OPT_TITLE && strcmp(opts[i].name, name) == 0) {
            return origins[i] != FROM_DEFAULT;
        }
    }
    return false;
}

int cmd_fail(const char *verb, const ckvc_err *err) {
    fflush(stdout);
    fprintf(stderr, "ckvc %s: %s\n", verb, err->text);
    int code = ckvc_exit_code(err->status);
    if (errors_as_json) {
        json_t *o = json_pack("{s:s,s:i,s:s}", "verb", verb, "code", code, "error", err->text);
        char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        if (text) { fprintf(stderr, "%s\n", text); }
        free(text);
        json_decref(o);
    }
    return code;
}

int cmd_usage(const char *verb, const char *fmt, ...) {
    ckvc_err err = {0};
    va_list args;
    va_start(args, fmt);
    ckvc_vfail(&err, CKVC_E_USAGE, fmt, args);
    va_end(args);
    return cmd_fail(verb, &err);
}

/* ---- help ---- */

static void print_value(FILE *f, const opt *o) {
    switch (o->type) {
    case OPT_FLAG:
        fputs(*(bool *)o->value ? "true" : "false", f);
        break;
    case OPT_INT:
    case OPT_SIZE:
        fprintf(f, "%lld", (long long)*(int64_t *)o->value);
        break;
    case OPT_DOUBLE:
        fprintf(f, "%.10g", *(double *)o->value);
        break;
    case OPT_TEXT:
    case OPT_CHOICE:
        fputs(*(const char **)o->value ? *(const char **)o->value : "", f);
        break;
    case OPT_LIST: {
        const opt_list *list = o->value;
        for (size_t i = 0; i < list->n; i++) {
            fprintf(f, "%s%s", i ? "," : "", list->items[i]);
        }
        break;
    }
    case OPT_TITLE:
        break;
    }
}

static bool has_default(const opt *o) {
    switch (o->type) {
    case OPT_INT:
    case OPT_SIZE:
    case OPT_DOUBLE:
        return true;
    case OPT_TEXT:
    case OPT_CHOICE:
        return *(const char **)o->value != NULL;
    case OPT_LIST:
        return ((const opt_list *)o->value)->n > 0;
    case OPT_FLAG:
    case OPT_TITLE:
        return false;
    }
    return false;
}

static void print_help(const verb_text *verb, const opt *opts) {
    printf("ckvc %s: %s\n\nusage: %s\n\nexamples:\n%s", verb->name, verb->summary, verb->usage,
           verb->examples);
    bool titled = false;
    for (const opt *o = opts; o->name; o++) {
        if (o->type == OPT_TITLE) {
            printf("\n%s:\n", o->name);
            titled = true;
            continue;
        }
        if (!titled) {
            printf("\noptions:\n");
            titled = true;
        }
        char left[256];
        char letter[8] = "    ";
        if (o->letter) { snprintf(letter, sizeof letter, "-%c, ", o->letter); }
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->type == OPT_FLAG ? "" : " ",
                 o->type == OPT_FLAG ? "" : o->arg);
        if (strlen(left) > 34) { /* the explanation on a line of its own */
            printf("  %s\n  %-34s %s", left, "", o->help);
        } else {
            printf("  %-34s %s", left, o->help);
        }
        if (has_default(o)) {
            printf(" [");
            print_value(stdout, o);
            printf("]");
        }
        printf("\n");
    }
    printf("\n      --config FILE                  option = value lines; below flags and CKVC_* "
           "variables\n"
           "      --print-config                 each value with its origin, then exit\n"
           "      --help                         this text\n");
}

static void print_config(const opt *opts) {
    static const char *const names[] = {"default", "config file", "environment", "flag"};
    for (size_t i = 0; opts[i].name; i++) {
        if (opts[i].type == OPT_TITLE) { continue; }
        if (opts[i].type != OPT_FLAG && !has_default(&opts[i])) {
            printf("# %s is not set\n", opts[i].name);
            continue;
        }
        printf("%s = ", opts[i].name);
        print_value(stdout, &opts[i]);
        printf("  # %s\n", names[origins[i]]);
    }
}

/* ---- values ---- */

static ckvc_status set_value(const opt *o, const char *text, const char *where, ckvc_err *err) {
    char *end;
    errno = 0;
    switch (o->type) {
    case OPT_FLAG:
        if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0) {
            *(bool *)o->value = true;
        } else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0) {
            *(bool *)o->value = false;
        } else {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got '%s', wanted true or false", where, text);
        }
        return CKVC_OK;
    case OPT_INT: {
        long long v = strtoll(text, &end, 10);
        if (end == text || *end || errno) {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got '%s', wanted a whole number", where, text);
        }
        if (o->min < o->max && ((double)v < o->min || (double)v > o->max)) {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got %lld, wanted %.10g to %.10g", where, v,
                             o->min, o->max);
        }
        *(int64_t *)o->value = v;
        return CKVC_OK;
    }
    case OPT_DOUBLE: {
        double v = strtod(text, &end);
        if (end == text || *end || !isfinite(v)) {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got '%s', wanted a number", where, text);
        }
        if (o->min < o->max && (v < o->min || v > o->max)) {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got %.10g, wanted %.10g to %.10g", where, v,
                             o->min, o->max);
        }
        *(double *)o->value = v;
        return CKVC_OK;
    }
    case OPT_SIZE: {
        double v = strtod(text, &end);
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
        if (end == text || end[shift ? 1 : 0] || !(v >= 0) || v * (double)(1LL << shift) > 9e18) {
            return ckvc_fail(err, CKVC_E_USAGE, "%s: got '%s', wanted a size such as 512M or 8G",
                             where, text);
        }
        *(int64_t *)o->value = (int64_t)(v * (double)(1LL << shift));
        return CKVC_OK;
    }
    case OPT_TEXT:
        *(const char **)o->value = text;
        return CKVC_OK;
    case OPT_CHOICE: {
        size_t n = strlen(text);
        for (const char *p = o->arg; *p;) {
            size_t len = strcspn(p, "|");
            if (len == n && strncmp(p, text, n) == 0) {
                *(const char **)o->value = text;
                return CKVC_OK;
            }
            p += len + (p[len] == '|');
        }
        return ckvc_fail(err, CKVC_E_USAGE, "%s: got '%s', wanted one of %s", where, text, o->arg);
    }
    case OPT_LIST: {
        opt_list *list = o->value;
        if (ckvc_grow((void **)&list_texts, &cap_list_texts, n_list_texts + 1, sizeof *list_texts,
                      err) != CKVC_OK) {
            return CKVC_E_MEMORY;
        }
        char *copy = ckvc_strdup(text);
        list_texts[n_list_texts++] = copy;
        for (char *p = copy;;) {
            size_t len = strcspn(p, ",");
            bool last = p[len] == 0;
            p[len] = 0;
            if (len == 0) {
                return ckvc_fail(err, CKVC_E_USAGE,
                                 "%s: got '%s', wanted values separated by single commas", where,
                                 text);
            }
            if (list->n == sizeof list->items / sizeof *list->items) {
                return ckvc_fail(err, CKVC_E_USAGE, "%s: more than %zu values", where, list->n);
            }
            list->items[list->n++] = p;
            if (last) { return CKVC_OK; }
            p += len + 1;
        }
    }
    case OPT_TITLE:
        break;
    }
    return ckvc_fail(err, CKVC_E_BUG, "%s: an option without a type", where);
}

static ckvc_status store(opt *opts, size_t i, const char *text, origin from, const char *where,
                         ckvc_err *err) {
    /* A list from a stronger source replaces the weaker one's; the same source appends. */
    if (opts[i].type == OPT_LIST && origins[i] != from) { ((opt_list *)opts[i].value)->n = 0; }
    origins[i] = from;
    return set_value(&opts[i], text, where, err);
}

/* Edit distance for suggestions; words of options are short. */
static size_t distance(const char *a, const char *b) {
    size_t row[65], n = strlen(b);
    if (strlen(a) > 64 || n > 64) { return 99; }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            best = up + 1 < best ? up + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[n];
}

static const char *nearest(const opt *opts, const char *name) {
    const char *best = NULL;
    size_t best_distance = 3;
    for (const opt *o = opts; o->name; o++) {
        size_t d = o->type == OPT_TITLE ? 99 : distance(name, o->name);
        if (d < best_distance) {
            best_distance = d;
            best = o->name;
        }
    }
    return best;
}

static long find(const opt *opts, const char *name, size_t n) {
    for (long i = 0; opts[i].name; i++) {
        if (opts[i].type != OPT_TITLE && strlen(opts[i].name) == n &&
            strncmp(opts[i].name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

static char *trim(char *s) {
    while (isspace((unsigned char)*s)) {
        s++;
    }
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) {
        s[--n] = 0;
    }
    return s;
}

/* A config file serves several verbs, so that one file can describe a whole run: a key that this
 * verb lacks is fine when some verb has it. The known keys of all verbs: */
static const char *const known_keys[] = {
#include "cmd/common/config_keys.inc"
};

static bool known_elsewhere(const char *key) {
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
        if (strcmp(known_keys[i], key) == 0) { return true; }
    }
    return false;
}

static ckvc_status read_config(opt *opts, const char *path, ckvc_err *err) {
    size_t n;
    ckvc_status st = ckvc_file_read(path, CONFIG_MAX_BYTES, &config_text, &n, err);
    if (st != CKVC_OK) { return st; }
    int line = 0;
    for (char *p = config_text, *next; p && *p; p = next) {
        line++;
        next = strchr(p, '\n');
        if (next) { *next++ = 0; }
        char *hash = strchr(p, '#');
        if (hash) { *hash = 0; }
        char *key = trim(p);
        if (!*key) { continue; }
        char *equals = strchr(key, '=');
        if (!equals) {
            return ckvc_fail(err, CKVC_E_CONFIG, "%s:%d: got '%s', wanted option = value", path,
                             line, key);
        }
        *equals = 0;
        char *value = trim(equals + 1);
        key = trim(key);
        long i = find(opts, key, strlen(key));
        if (i < 0 && known_elsewhere(key)) { continue; }
        if (i < 0) {
            const char *near = nearest(opts, key);
            return ckvc_fail(err, CKVC_E_CONFIG, "%s:%d: unknown option '%s'%s%s%s", path, line,
                             key, near ? "; did you mean '" : "", near ? near : "",
                             near ? "'?" : "");
        }
        char *where = ckvc_format("%s:%d: %s", path, line, key);
        st = store(opts, (size_t)i, value, FROM_CONFIG, where ? where : key, err);
        free(where);
        if (st != CKVC_OK) {
            if (err->status == CKVC_E_USAGE) { err->status = CKVC_E_CONFIG; }
            return CKVC_E_CONFIG;
        }
    }
    return CKVC_OK;
}

static ckvc_status read_environment(opt *opts, ckvc_err *err) {
    for (size_t i = 0; opts[i].name; i++) {
        char name[96] = "CKVC_";
        size_t k = 5;
        if (opts[i].type == OPT_TITLE) { continue; }
        for (const char *p = opts[i].name; *p && k < sizeof name - 1; p++) {
            name[k++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        }
        const char *value = getenv(name);
        if (value && *value) {
            ckvc_status st = store(opts, i, value, FROM_ENV, name, err);
            if (st != CKVC_OK) {
                err->status = CKVC_E_CONFIG;
                return CKVC_E_CONFIG;
            }
        }
    }
    return CKVC_OK;
}

static ckvc_status read_flags(opt *opts, int argc, char **argv, opt_args *args, bool *help,
                              bool *config, ckvc_err *err) {
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (only_args || word[0] != '-' || word[1] == 0) {
            args->items[args->n++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_args = true;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *help = true;
            continue;
        }
        if (strcmp(word, "--print-config") == 0) {
            *config = true;
            continue;
        }
        const char *value = NULL;
        long at = -1;
        if (word[1] == '-') {
            size_t n = strcspn(word + 2, "=");
            value = word[2 + n] == '=' ? word + 3 + n : NULL;
            if (n == 6 && strncmp(word + 2, "config", 6) == 0) {
                i += value ? 0 : 1; /* read before */
                continue;
            }
            at = find(opts, word + 2, n);
            if (at < 0) {
                char name[65];
                snprintf(name, sizeof name, "%.*s", (int)n, word + 2);
                const char *near = nearest(opts, name);
                return ckvc_fail(err, CKVC_E_USAGE, "unknown option --%s%s%s%s; see --help", name,
                                 near ? ", did you mean --" : "", near ? near : "",
                                 near ? "?" : "");
            }
        } else {
            for (long k = 0; opts[k].name && at < 0; k++) {
                if (opts[k].type != OPT_TITLE && opts[k].letter && opts[k].letter == word[1]) {
                    at = k;
                }
            }
            if (at < 0) {
                return ckvc_fail(err, CKVC_E_USAGE, "unknown option %s; see --help", word);
            }
            value = word[2] ? word + 2 : NULL;
        }
        char where[80];
        snprintf(where, sizeof where, "--%s", opts[at].name);
        if (opts[at].type == OPT_FLAG && !value) {
            value = "true";
        } else if (!value) {
            if (i + 1 >= argc) {
                return ckvc_fail(err, CKVC_E_USAGE, "%s needs a value (%s)", where, opts[at].arg);
            }
            value = argv[++i];
        }
        ckvc_status st = store(opts, (size_t)at, value, FROM_FLAG, where, err);
        if (st != CKVC_OK) { return st; }
    }
    return CKVC_OK;
}

bool opts_parse(const verb_text *verb, opt *opts, int argc, char **argv, opt_args *args, int *rc) {
    ckvc_err err = {0};
    bool help = false, config = false;
    const char *config_path = getenv("CKVC_CONFIG");
    memset(origins, 0, sizeof origins);
    count_options(opts);
    *rc = 0;
    *args = (opt_args){ckvc_calloc((size_t)argc + 1, sizeof(char *)), 0};
    if (!args->items) {
        ckvc_fail_memory(&err, "arguments", (size_t)argc * sizeof(char *));
        goto fail;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            errors_as_json = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(verb, opts); /* with the built-in defaults, before anything is read */
            goto over;
        } else if (strncmp(argv[i], "--config=", 9) == 0) {
            config_path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0) {
            if (i + 1 >= argc) {
                ckvc_fail(&err, CKVC_E_USAGE, "--config needs a value (FILE)");
                goto fail;
            }
            config_path = argv[++i];
        }
    }
    if (config_path && *config_path && read_config(opts, config_path, &err) != CKVC_OK) {
        goto fail;
    }
    if (read_environment(opts, &err) != CKVC_OK ||
        read_flags(opts, argc, argv, args, &help, &config, &err) != CKVC_OK) {
        goto fail;
    }
    if (config) {
        print_config(opts);
        goto over;
    }
    return true;
fail:
    *rc = cmd_fail(verb->name, &err);
over:
    free(args->items);
    *args = (opt_args){0};
    return false;
}

int verb_run(const verb_text *verb, opt *opts, const char *instead, int argc, char **argv,
             verb_work *work, void *cli) {
    opt_args args;
    int rc;
    if (!opts_parse(verb, opts, argc, argv, &args, &rc)) { return rc; }
    const int extra = args.n;
    free(args.items);
    if (extra) { return cmd_usage(verb->name, "takes no arguments besides options; %s", instead); }
    ckvc_err err = {0};
    return work(cli, opts, &err) == CKVC_OK ? 0 : cmd_fail(verb->name, &err);
}
