/* Verbs: dispatch, help, errors: see verb.h. */
#include "cmd/common/verb.h"

#include <jansson.h>

#include "cmd/common/option_values.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/progress.h"
#include "lib/base/utf8.h"

static const verb *const *all_verbs; /* NULL after the last */
static const char *config_path;
static bool errors_as_json;

void put_text(FILE *f, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    va_end(args);
    ckvc_utf8_tame(text, "\n\t");
    if (f == stderr) { fflush(stdout); } /* in one file, lines stand in the order of the calls */
    fputs(text, f);
    free(text);
}

static int fail(const verb *v, const ckvc_err *err) {
    const int code = ckvc_exit_code(err->status);
    ckvc_progress_clear(); /* so that the message does not stand behind a half line */
    say("ckvc %s: %s\n", v->name, err->text);
    if (errors_as_json) {
        json_auto_t *o =
            json_pack("{s:s,s:i,s:s}", "verb", v->name, "code", code, "error", err->text);
        json_dumpf(o, stderr, JSON_COMPACT | JSON_SORT_KEYS);
        fputc('\n', stderr);
    }
    return code;
}

/* ---- what there is ---- */

static bool table_has(const opt *table, const char *name, nearest *near) {
    bool found = false;
    for (const opt *o = table; o && o->name && !found; o++) {
        if (o->type == OPT_IS_GROUP || o->type == OPT_IS_PRESET) {
            found = table_has(o->group, name, near);
        } else if (o->type != OPT_IS_TITLE) {
            found = opt_is_named(o, name, strlen(name));
            nearest_try(near, o->name);
        }
    }
    return found;
}

static bool some_verb_has(const char *name, nearest *near) {
    for (const verb *const *v = all_verbs; *v; v++) {
        if (table_has((*v)->options, name, near)) { return true; }
    }
    return false;
}

/* Finds the verb that the first word or the first two name, and sets *n_words to their number. */
static const verb *find_verb(char **words, int n, int *n_words) {
    CKVC_AUTO_FREE char *two = ckvc_format("%s %s", words[0], n > 1 ? words[1] : "");
    const verb *one = NULL;
    *n_words = 2;
    for (const verb *const *v = all_verbs; *v; v++) {
        const char *name = (*v)->name;
        if (name && strcmp(name, two) == 0) { return *v; }
        if (name && strcmp(name, words[0]) == 0) { one = *v; }
    }
    *n_words = 1;
    return one;
}

static void print_verbs(FILE *f) {
    fprintf(
        f,
        "ckvc %s: compiles KV-cache eviction policies offline\n\nusage: ckvc VERB [options]    "
        "  ckvc help VERB [all]\n"
        "begin: ckvc compile --model DIR --budget 0.125,0.25 --out run   makes a table for a "
        "model\n"
        "       ckvc report run/table.ckvt run --out run-report          says whether to deploy "
        "it\n",
        CKVC_VERSION);
    for (const verb *const *v = all_verbs; *v; v++) {
        if (!(*v)->name) {
            fprintf(f, "\n%s\n", (*v)->about);
        } else if ((*v)->about) {
            fprintf(f, "  %-12s %s\n", (*v)->name, (*v)->about);
        }
    }
}

/* Verbs of earlier releases, and where each went. The program says so for one release. */
static const char *const gone_verbs[][2] = {
    {"export", "is `python3 -m ckvc export` now (pip install ckvc, or PYTHONPATH=python)"},
    {"import", "is `python3 -m ckvc import` now (pip install ckvc, or PYTHONPATH=python)"},
    {"bench", "is a program of the source tree now: `make bench`"}};

static int unknown_verb(const char *name) {
    for (size_t i = 0; i < sizeof gone_verbs / sizeof *gone_verbs; i++) {
        if (strcmp(name, gone_verbs[i][0]) == 0) {
            say("ckvc: verb '%s' %s\n", name, gone_verbs[i][1]);
            return 64;
        }
    }
    nearest near = {.word = name};
    for (const verb *const *v = all_verbs; *v; v++) {
        if ((*v)->name) { nearest_try(&near, (*v)->name); }
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, ", did you mean '", "'?");
    say("ckvc: unknown verb '%s'%s; `ckvc help` lists them\n", name, hint);
    return 64;
}

/* ---- one verb's options ---- */

/* The column of help in which explanations begin, and the most columns that a line has. */
enum { EXPLAINED_AT = 37, LINE_MAX_COLUMNS = 100 };

/* Prints a text and ends its line, with the cursor already where explanations begin. Lines break
 * between words; a word that is longer than a line stands alone. */
static void print_explained(const char *text) {
    size_t at = EXPLAINED_AT;
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (at > EXPLAINED_AT && at + 1 + n > LINE_MAX_COLUMNS) {
            tell("\n%*s", EXPLAINED_AT, "");
            at = EXPLAINED_AT;
        }
        const bool begins = at == EXPLAINED_AT;
        tell("%s%.*s", begins ? "" : " ", (int)n, text);
        at += n + !begins;
        text += n + (text[n] == ' ');
    }
    tell("\n");
}

static void print_option(const opt_value *v) {
    const opt *o = v->o;
    CKVC_AUTO_FREE char *value = o->type == OPT_IS_FLAG ? NULL : opt_value_text(v);
    const char *metavar = opt_metavar(o);
    CKVC_AUTO_FREE char *left =
        ckvc_format("%s%c%s--%s%s%s", o->letter ? "-" : " ", o->letter ? o->letter : ' ',
                    o->letter ? ", " : "  ", o->name, metavar ? " " : "", metavar ? metavar : "");
    CKVC_AUTO_FREE char *text =
        ckvc_format("%s%s%s%s", o->help, value ? " [" : "", value ? value : "", value ? "]" : "");
    const bool wide = strlen(left) > 33; /* the explanation begins on a line of its own */
    tell(wide ? "  %s\n  %34s " : "  %-34s%s ", left, "");
    print_explained(text);
}

static bool is_common(const verb *v, const opt *o) {
    CKVC_AUTO_FREE char *word = ckvc_format(" %s ", o->name);
    return !v->common || strstr(v->common, word);
}

/* Prints the options that people use, or all of them. A title stands before the first of its
 * options. */
static void print_options(const verb *v, const opt_values *values, bool all) {
    const char *title = "options";
    size_t n_more = 2; /* --config, --print-config */
    for (size_t i = 0; i < values->n; i++) {
        const opt *o = values->items[i].o;
        if (o->type == OPT_IS_TITLE) {
            title = o->name;
        } else if (all || is_common(v, o)) {
            if (title) { tell("\n%s:\n", title); }
            title = NULL;
            print_option(&values->items[i]);
        } else {
            n_more++;
        }
    }
    if (all || !v->common) {
        tell("\n      --config FILE                  Read lines `option = value`; flags and "
             "CKVC_* variables win.\n"
             "      --print-config                 Print each value with its origin, and stop.\n"
             "      --help                         Print this text; behind it, `all` shows every "
             "option.\n");
    } else {
        tell("\n%zu more options: ckvc %s --help all\n", n_more, v->name);
    }
}

static void print_help(const verb *v, const opt_values *values, bool all) {
    tell("ckvc %s: %s\n\nusage: %s\n\nexamples:\n%s", v->name, v->summary ? v->summary : v->about,
         v->usage, v->examples);
    if (v->more) { v->more(); }
    print_options(v, values, all);
}

static void print_config(const opt_values *values) {
    static const char *const origins[] = {"default", "config file", "environment", "flag"};
    for (size_t i = 0; i < values->n; i++) {
        const opt_value *v = &values->items[i];
        CKVC_AUTO_FREE char *text = opt_value_text(v);
        if (text) {
            tell("%s = %s  # %s\n", v->o->name, text, origins[v->from]);
        } else if (v->o->type != OPT_IS_TITLE) {
            tell("# %s is not set\n", v->o->name);
        }
    }
}

/* ---- running one ---- */

static ckvc_status read_values(opt_values *values, ckvc_err *err) {
    if (config_path && *config_path) {
        CKVC_TRY(opt_values_config(values, config_path, some_verb_has, err));
    }
    return opt_values_environment(values, some_verb_has, err);
}

ckvc_status verb_values(const verb *v, void *options, ckvc_err *err) {
    opt_values values = {0};
    memset(options, 0, v->size);
    opt_values_add(&values, v->options, options);
    return read_values(&values, err);
}

/* Returns the run that a shard stands in; another path stays as it is. The caller frees it. */
static char *whole_input(const char *path) {
    const char *dot = strrchr(path, '.');
    CKVC_AUTO_FREE char *pass = ckvc_path_dir(path);
    CKVC_AUTO_FREE char *run = ckvc_path_dir(pass);
    CKVC_AUTO_FREE char *plan = ckvc_path_join(run, "run.json");
    const bool shard = dot && strcmp(dot, ".h5") == 0 && ckvc_file_exists(plan);
    return shard ? ckvc_take(&run) : ckvc_strdup(path);
}

/* Checks that an output is no input: an input is never written to, whatever --force says. */
static ckvc_status check_output(const char *path, const char *option, const char *input,
                                ckvc_err *err) {
    CKVC_AUTO_FREE char *whole = whole_input(input);
    USAGE_IF(ckvc_path_within(path, whole),
             "--%s %s: is %s, which is read; an input is never written to", option, path, whole);
    return CKVC_OK;
}

static ckvc_status check_outputs(const verb *v, const opt_values *values, const verb_call *call,
                                 ckvc_err *err) {
    for (size_t i = 0; i < values->n; i++) {
        const opt_value *out = &values->items[i];
        const char *path = out->o->type == OPT_IS_OUTPUT ? *(const char **)out->at : NULL;
        for (size_t k = 0; path && k < values->n; k++) {
            const opt_type type = values->items[k].o->type;
            const void *at = values->items[k].at;
            const opt_list one = {{type == OPT_IS_INPUT ? *(const char *const *)at : NULL}, 1},
                           *list = type == OPT_IS_INPUTS ? at : &one;
            for (size_t j = 0; j < list->n && list->items[j]; j++) {
                CKVC_TRY(check_output(path, out->o->name, list->items[j], err));
            }
        }
        for (size_t k = 0; path && v->reads_args && k < call->n; k++) {
            CKVC_TRY(check_output(path, out->o->name, call->items[k], err));
        }
    }
    return CKVC_OK;
}

/* Does the work for one argument after the other. Returns the first failure's exit code. */
static int work_each(const verb *v, const verb_call *call) {
    int rc = 0;
    for (size_t i = 0; i < call->n; i++) {
        const verb_call one = {call->options, &call->items[i], 1, call->argc, call->argv};
        ckvc_err err = {0};
        if (v->work(&one, &err) == CKVC_OK) { continue; }
        const int code = fail(v, &err);
        rc = rc ? rc : code;
    }
    return rc;
}

static int run_verb(const verb *v, const opt_values *values, const verb_call *call) {
    ckvc_err err = {0};
    ckvc_status st = check_outputs(v, values, call, &err);
    if (v->instead && call->n) {
        st = ckvc_fail(&err, CKVC_E_USAGE, "takes no arguments besides options; %s", v->instead);
    } else if (v->each && call->n == 0) {
        st = ckvc_fail(&err, CKVC_E_USAGE, "wanted %s: ckvc %s PATH...", v->each, v->name);
    }
    if (st == CKVC_OK && v->each) { return work_each(v, call); }
    return st == CKVC_OK && v->work(call, &err) == CKVC_OK ? 0 : fail(v, &err);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Finds the flags that count wherever they stand, except as another option's value, before other
 * flags are looked at. */
static ckvc_status look_ahead(opt_values *values, int argc, char **argv, bool *help, bool *config,
                              ckvc_err *err) {
    config_path = getenv("CKVC_CONFIG");
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        *help = *help || is_help(argv[i]);
        *config = *config || strcmp(argv[i], "--print-config") == 0;
        errors_as_json = errors_as_json || strcmp(argv[i], "--json") == 0;
        if (strncmp(argv[i], "--config=", 9) == 0) {
            config_path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0) {
            USAGE_IF(i + 1 >= argc, "--config needs a value (FILE)");
            config_path = argv[++i];
        } else if (opt_values_takes_next(values, argv[i])) {
            i++;
        }
    }
    return CKVC_OK;
}

static int verb_run(const verb *v, bool help, int argc, char **argv) {
    CKVC_AUTO_FREE void *options = ckvc_calloc(1, v->size);
    CKVC_AUTO_FREE const char **items = ckvc_calloc((size_t)argc, sizeof *items);
    CKVC_AUTO(opt_values_fini) opt_values values = {0};
    verb_call call = {.options = options, .items = items, .argc = argc, .argv = argv};
    bool config = false;
    ckvc_err err = {0};
    opt_values_add(&values, v->options, options);
    const ckvc_status ahead = look_ahead(&values, argc, argv, &help, &config, &err);
    if (help) { /* with the built-in defaults */
        print_help(v, &values, strcmp(argv[argc - 1], "all") == 0);
        return 0;
    }
    if (ahead != CKVC_OK || read_values(&values, &err) != CKVC_OK ||
        opt_values_flags(&values, argc, argv, items, &call.n, &err) != CKVC_OK) {
        return fail(v, &err);
    }
    if (config) {
        print_config(&values);
        return 0;
    }
    return run_verb(v, &values, &call);
}

int verbs_run(const verb *const *all, int argc, char **argv) {
    all_verbs = all;
    if (argc < 2) {
        print_verbs(stderr);
        return 64;
    }
    const bool help = strcmp(argv[1], "help") == 0;
    if (is_help(argv[1]) || (help && argc == 2)) {
        print_verbs(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        tell("ckvc %s\n", CKVC_VERSION);
        return 0;
    }
    int n_words;
    const int first = help ? 2 : 1;
    const verb *v = find_verb(argv + first, argc - first, &n_words);
    if (!v) { return unknown_verb(argv[first]); }
    const int at = first + n_words - 1;
    return verb_run(v, help, argc - at, argv + at);
}
