/* ckvc manifest build | check: prompt manifests from text, and what is in one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/manifest_leaks.h"
#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "corpus/build/documents.h"
#include "corpus/build/manifest_build.h"
#include "corpus/leaks/manifest_check.h"
#include "formats/lines/manifest.h"
#include "formats/tokenizer/tokenizer_files.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/token/tokenizer.h"

static const verb_text overview = {
    "manifest", "build prompt manifests from text, check them",
    "ckvc manifest build [SOURCE=]PATH... --out FILE | ckvc manifest check FILE",
    "  ckvc manifest build --help\n"
    "  ckvc manifest check --help\n"};

static const verb_text build_verb = {
    "manifest build", "cut text files into prompts",
    "ckvc manifest build [SOURCE=]PATH... --out FILE [options]",
    "  ckvc manifest build notes.txt --out prompts.jsonl\n"
    "  ckvc manifest build --model models/ckvc-tiny-8l --prompts 100 postfix=doc/postfix "
    "tcl=doc/tcl --out tech.jsonl\n"
    "  ckvc manifest build --min-length 320 --max-length 448 --continuation 64 --retrieval 0.25 "
    "--split-share heldout=0.3 ... \n"
    "PATH is a file or a folder: plain text, HTML, man pages, info, reStructuredText, each also as "
    ".gz.\n"
    "Documents that are short or not mostly ASCII, repeated paragraphs and spans that are no prose "
    "are left out.\n"};

static const verb_text check_verb = {
    "manifest check",
    "read every line; repeats, lengths in tokens, and what an evaluation shares with it",
    "ckvc manifest check FILE [--model DIR] [--min-length N] [--against EVAL.jsonl,... [--out "
    "CHECK.json] [--clean CLEAN.jsonl]]",
    "  ckvc manifest check prompts.jsonl --model models/ckvc-tiny-8l --min-length 97\n"
    "  ckvc manifest check prompts.jsonl --against longbench/multi_news.jsonl,heldout.jsonl --out "
    "check.json\n"
    "  ckvc manifest check prompts.jsonl --against prompts.jsonl    # its held-out prompts against "
    "the others\n"
    "  ckvc manifest check all.jsonl --against all.jsonl --clean prompts.jsonl    # a manifest of "
    "what shares nothing\n"
    "Shared: 13 words in a row (case, punctuation and spacing apart), near-duplicates, ids. Every "
    "string of a line is read.\n"
    "Exit 1 when something is shared, with --clean, too; 65 when --clean leaves nothing.\n"};

static ckvc_status load_tokenizer(const char *model, tokenizer **out, ckvc_err *err) {
    *out = NULL;
    if (!model) { return CKVC_OK; }
    token_spec *spec;
    char *name;
    ckvc_status status = tokenizer_files_read(model, &spec, &name, err);
    if (status == CKVC_OK) { status = tokenizer_build(spec, name, out, err); }
    free(name);
    return status;
}

/* "heldout=0.3,test=0.1": names point into the option's own text, which is copied for that. */
static ckvc_status parse_shares(const opt_list *shares, build_options *o, char **copies,
                                ckvc_err *err) {
    double total = 0.0;
    for (size_t i = 0; i < shares->n; i++) {
        char *text = ckvc_strdup(shares->items[i]), *equals = text ? strchr(text, '=') : NULL,
             *end = NULL;
        copies[i] = text;
        double share = equals ? strtod(equals + 1, &end) : -1.0;
        if (!equals || equals == text || *end || end == equals + 1 ||
            !(share >= 0.0 && share <= 1.0)) {
            return ckvc_fail(err, CKVC_E_USAGE,
                             "--split-share %s: want NAME=SHARE with a share from 0 to 1",
                             shares->items[i]);
        }
        if (o->n_splits == BUILD_MAX_SPLITS) {
            return ckvc_fail(err, CKVC_E_USAGE, "--split-share: more than %d splits",
                             BUILD_MAX_SPLITS);
        }
        *equals = '\0';
        o->splits[o->n_splits].name = text;
        o->splits[o->n_splits++].share = share;
        total += share;
    }
    return total > 1.0 + 1e-9
               ? ckvc_fail(err, CKVC_E_USAGE, "--split-share: the shares add up to %.3g; at most 1",
                           total)
               : CKVC_OK;
}

/* "SOURCE=PATH", or a path alone that belongs to the default source. */
static ckvc_status add_input(corpus *c, const char *arg, const char *source, ckvc_err *err) {
    const char *equals = strchr(arg, '=');
    if (!equals || ckvc_file_exists(arg)) { return corpus_add(c, source, arg, err); }
    size_t n = (size_t)(equals - arg);
    if (n == 0 || n > 128) {
        return ckvc_fail(err, CKVC_E_USAGE, "%s: a source's name has 1 to 128 characters", arg);
    }
    char name[129];
    memcpy(name, arg, n);
    name[n] = '\0';
    return corpus_add(c, name, equals + 1, err);
}

static int run_build(int argc, char **argv) {
    const char *model = NULL, *out_path = NULL, *source = "text", *retrieval_source = "retrieval",
               *rest = "fit";
    int64_t prompts = 100, min_length = 0, max_length = 0, continuation = -1, seed = 1;
    double retrieval = 0.0;
    bool force = false, json = false;
    opt_list shares = {{0}, 0};
    opt opts[] = {
        {OPT_TITLE, "what", 0, NULL, NULL, NULL, 0, 0},
        {OPT_TEXT, "out", 'o', &out_path, "FILE", "manifest to write", 0, 0},
        {OPT_TEXT, "source", 0, &source, "NAME", "source of the PATHs without one of their own", 0,
         0},
        {OPT_INT, "prompts", 'n', &prompts, "N", "how many, retrieval included", 1, 1000000},
        {OPT_DOUBLE, "retrieval", 0, &retrieval, "SHARE",
         "of the prompts that ask for facts hidden in the text", 0, 1},
        {OPT_TEXT, "retrieval-source", 0, &retrieval_source, "NAME", "source of those", 0, 0},
        {OPT_TITLE, "lengths", 0, NULL, NULL, NULL, 0, 0},
        {OPT_TEXT, "model", 'm', &model, "DIR",
         "count its tokenizer's tokens (BOS included); without: characters", 0, 0},
        {OPT_INT, "min-length", 0, &min_length, "N",
         "shortest prompt; 0: 320 tokens, 1280 characters", 0, 1 << 24},
        {OPT_INT, "max-length", 0, &max_length, "N",
         "longest prompt; 0: 448 tokens, 1792 characters", 0, 1 << 24},
        {OPT_INT, "continuation", 0, &continuation, "N",
         "at least so much follows each; -1: 128 tokens, 512 characters", -1, 1 << 20},
        {OPT_TITLE, "splits and order", 0, NULL, NULL, NULL, 0, 0},
        {OPT_LIST, "split-share", 0, &shares, "NAME=SHARE",
         "share of the documents whose prompts get this split", 0, 0},
        {OPT_TEXT, "split-rest", 0, &rest, "NAME", "split of the others", 0, 0},
        {OPT_INT, "seed", 0, &seed, "N", "of every draw and shuffle", 0, 9007199254740992.0},
        {OPT_TITLE, "output", 0, NULL, NULL, NULL, 0, 0},
        {OPT_FLAG, "force", 'f', &force, NULL, "overwrite FILE", 0, 0},
        {OPT_FLAG, "json", 0, &json, NULL, "print what was made as JSON", 0, 0},
        {0}};
    opt_args args;
    int rc = 0;
    if (!opts_parse(&build_verb, opts, argc, argv, &args, &rc)) { return rc; }
    ckvc_err err = {0};
    corpus c = {0};
    built_manifest built = {0};
    tokenizer *tok = NULL;
    ckvc_buffer bytes = {0};
    char *copies[256] = {0};
    int64_t unit = model ? 1 : 4;
    build_options o = {.prompts = prompts,
                       .min_length = min_length ? min_length : 320 * unit,
                       .max_length = max_length ? max_length : 448 * unit,
                       .continuation = continuation >= 0 ? continuation : 128 * unit,
                       .retrieval = retrieval,
                       .retrieval_source = retrieval_source,
                       .split_rest = rest,
                       .seed = (uint64_t)seed};
    ckvc_publish publish = {0};
    ckvc_status status = CKVC_OK;
    if (args.n == 0 || !out_path) {
        status =
            ckvc_fail(&err, CKVC_E_USAGE,
                      args.n ? "--out FILE is needed" : "no PATH to take text from; see --help");
    } else if (o.min_length > o.max_length) {
        status = ckvc_fail(&err, CKVC_E_USAGE, "--min-length %lld is above --max-length %lld",
                           (long long)o.min_length, (long long)o.max_length);
    } else {
        status = parse_shares(&shares, &o, copies, &err);
    }
    if (status == CKVC_OK) { /* before the work: an output that is in the way is known at once */
        status = ckvc_publish_begin(&publish, out_path, force, &err);
        ckvc_publish_abort(&publish);
    }
    if (status == CKVC_OK) {
        status = load_tokenizer(model, &tok, &err);
        o.tok = tok;
    }
    for (int i = 0; i < args.n && status == CKVC_OK; i++) {
        status = add_input(&c, args.items[i], source, &err);
    }
    if (status == CKVC_OK) { status = manifest_build(&c, &o, &built, &err); }
    if (status == CKVC_OK) { status = built_manifest_write(&built, &bytes, &err); }
    if (status == CKVC_OK) {
        status = ckvc_publish_bytes(out_path, bytes.data, bytes.size, force, &err);
    }
    if (status == CKVC_OK && json) {
        char sha[CKVC_SHA256_HEX];
        ckvc_sha256_hex(bytes.data, bytes.size, sha);
        printf("{\"documents\":%zu,\"files\":%zu,\"longest\":%lld,\"prompts\":%zu,\"retrieval\":%"
               "zu,\"sha256\":\"%s\",\"shortest\":"
               "%lld}\n",
               c.n_documents, c.n_files, (long long)built.longest, built.n_entries,
               built.n_retrieval, sha, (long long)built.shortest);
    } else if (status == CKVC_OK) {
        fprintf(stderr,
                "%s: %zu prompts (%zu retrieval) of %lld to %lld %s from %zu documents; left out: "
                "%zu short, %zu not ASCII, %zu binary "
                "files, %zu repeated paragraphs, %zu spans that are no prose\n",
                out_path, built.n_entries, built.n_retrieval, (long long)built.shortest,
                (long long)built.longest, model ? "tokens" : "characters", c.n_documents, c.n_short,
                c.n_foreign, c.n_binary, c.n_repeated_paragraphs, built.n_junk);
    }
    for (size_t i = 0; i < shares.n; i++) {
        free(copies[i]);
    }
    free(args.items);
    ckvc_buffer_fini(&bytes);
    built_manifest_fini(&built);
    corpus_fini(&c);
    tokenizer_free(tok);
    return status == CKVC_OK ? 0 : cmd_fail(build_verb.name, &err);
}

static void print_facts(const manifest *m, const manifest_facts *f, const char *unit, bool json,
                        json_t *leaks) {
    if (json) {
        json_t *groups = json_array(), *root;
        for (size_t i = 0; i < f->n_groups; i++) {
            const check_group *g = &f->groups[i];
            json_array_append_new(groups,
                                  json_pack("{s:s,s:s,s:I,s:I,s:I,s:I}", "source", g->source,
                                            "split", g->split, "prompts", (json_int_t)g->n,
                                            "shortest", (json_int_t)g->shortest, "longest",
                                            (json_int_t)g->longest, "total", (json_int_t)g->total));
        }
        root =
            json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "manifest", m->path,
                      "sha256", m->sha256, "unit", unit, "prompts", (json_int_t)m->n_entries,
                      "shortest", (json_int_t)f->shortest, "longest", (json_int_t)f->longest,
                      "total", (json_int_t)f->total, "shortest_continuation",
                      (json_int_t)f->shortest_continuation, "repeated", (json_int_t)f->n_repeated,
                      "short", (json_int_t)f->n_short, "groups", groups);
        if (leaks) { json_object_set(root, "leaks", leaks); }
        char *text = root ? ckvc_json_canonical(root) : NULL;
        printf("%s\n", text ? text : "{}");
        free(text);
        json_decref(root);
        return;
    }
    printf("source\tsplit\tprompts\tshortest\tmean\tlongest\t(%s)\n", unit);
    for (size_t i = 0; i < f->n_groups; i++) {
        const check_group *g = &f->groups[i];
        printf("%s\t%s\t%zu\t%lld\t%.1f\t%lld\n", g->source[0] ? g->source : "-",
               g->split[0] ? g->split : "-", g->n, (long long)g->shortest,
               (double)g->total / (double)g->n, (long long)g->longest);
    }
}

static int run_check(int argc, char **argv) {
    const char *model = NULL;
    int64_t min_length = 0;
    bool json = false;
    leaks_cli leaks = LEAKS_DEFAULTS;
    opt opts[] = {{OPT_TEXT, "model", 'm', &model, "DIR",
                   "count its tokenizer's tokens, check ids against it; without: characters", 0, 0},
                  {OPT_INT, "min-length", 0, &min_length, "N",
                   "a shorter prompt fails the check (W + 1 tokens are needed)", 0, 1 << 24},
                  {OPT_FLAG, "json", 0, &json, NULL, "one JSON object", 0, 0},
                  OPTS_LEAKS(leaks),
                  {0}};
    opt_args args;
    int rc = 0;
    if (!opts_parse(&check_verb, opts, argc, argv, &args, &rc)) { return rc; }
    ckvc_err err = {0};
    manifest *m = NULL;
    tokenizer *tok = NULL;
    manifest_facts facts = {0};
    ckvc_status status = CKVC_OK;
    if (args.n != 1) {
        status = ckvc_fail(&err, CKVC_E_USAGE, "want one manifest, got %d", args.n);
    } else if ((leaks.out || leaks.clean) && leaks.against.n == 0) {
        status = ckvc_fail(&err, CKVC_E_USAGE, "%s it needs --against EVAL.jsonl",
                           leaks.out ? "--out is the record of a comparison:"
                                     : "--clean leaves out what a comparison finds:");
    } else {
        status = load_tokenizer(model, &tok, &err);
    }
    if (status == CKVC_OK) { status = manifest_read(args.items[0], &m, &err); }
    if (status == CKVC_OK) { status = manifest_look(m, tok, min_length, &facts, &err); }
    ckvc_status leaked = CKVC_OK;
    json_t *found = NULL;
    if (status == CKVC_OK && leaks.against.n) {
        leaked = manifest_leaks(&leaks, m, tok, facts.repeats, json, &found, &err);
        status = leaked == CKVC_CHECK_FAILED ? CKVC_OK : leaked;
    }
    if (status == CKVC_OK) {
        print_facts(m, &facts, model ? "tokens" : "characters", json, found);
        status = leaked;
        if (facts.n_repeated) {
            status = ckvc_fail(&err, CKVC_CHECK_FAILED,
                               "%s:%u: repeats the prompt of line %u (%zu such prompts)", m->path,
                               facts.first_repeated, facts.first_original, facts.n_repeated);
        } else if (facts.n_short) {
            status =
                ckvc_fail(&err, CKVC_CHECK_FAILED, "%s:%u: shorter than %lld %s (%zu such prompts)",
                          m->path, facts.first_short, (long long)min_length,
                          model ? "tokens" : "characters", facts.n_short);
        }
    }
    json_decref(found);
    free(args.items);
    manifest_facts_fini(&facts);
    manifest_free(m);
    tokenizer_free(tok);
    return status == CKVC_OK ? 0 : cmd_fail(check_verb.name, &err);
}

int cmd_manifest(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "build") == 0) { return run_build(argc - 1, argv + 1); }
    if (argc > 1 && strcmp(argv[1], "check") == 0) { return run_check(argc - 1, argv + 1); }
    opt none[] = {{0}};
    opt_args args;
    int rc = 0;
    if (!opts_parse(&overview, none, argc, argv, &args, &rc)) { return rc; }
    int rc_usage = args.n ? cmd_usage("manifest", "'%s' is neither build nor check", args.items[0])
                          : cmd_usage("manifest", "want build or check; see --help");
    free(args.items);
    return rc_usage;
}
