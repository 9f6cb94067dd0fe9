/* ckvc manifest build cuts texts into a manifest of prompts; ckvc manifest check reads one. */
#include "cmd/common/json_text.h"
#include "cmd/common/made_prompts.h"
#include "cmd/common/manifest_leaks.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "corpus/build/manifest_build.h"
#include "corpus/leaks/manifest_check.h"
#include "lib/base/files.h"
#include "lib/base/utf8.h"

/* ---- build ---- */

typedef struct build_cli {
    build_options build; /* its tokenizer and template are opened later */
    unsigned query;      /* 1: unseen */
    const char *model, *out, *source, *encoding, *chat_template;
    unsigned keep; /* 0: kinds */
    bool chat, force, json, even_splits;
    opt_list shares;
} build_cli;

typedef struct build_job {
    corpus documents;
    built_manifest built;
    tokenizer *tok;
    ckvc_buffer bytes;
    char *split_names[BUILD_MAX_SPLITS];
} build_job;

static void build_job_fini(build_job *j) {
    for (int i = 0; i < BUILD_MAX_SPLITS; i++) { free(j->split_names[i]); }
    ckvc_buffer_fini(&j->bytes);
    built_manifest_fini(&j->built);
    corpus_fini(&j->documents);
    tokenizer_free(j->tok);
}

/* Checks the name of a source or a split, n bytes, by what a manifest may hold. */
static ckvc_status check_name(const char *what, const char *name, size_t n, ckvc_err *err) {
    USAGE_IF(n == 0 || n > 255 || !ckvc_utf8_is_line(name, n),
             "%s: got '%.*s', wanted a name of 1 to 255 bytes on one line", what, (int)n, name);
    return CKVC_OK;
}

/* Reads --split-share "heldout=0.3,test=0.1". */
static ckvc_status parse_shares(const opt_list *shares, build_job *j, build_options *o,
                                ckvc_err *err) {
    double total = 0.0;
    for (size_t i = 0; i < shares->n; i++) {
        const char *text = shares->items[i], *equals = strchr(text, '=');
        char *end = NULL;
        const double share = equals ? strtod(equals + 1, &end) : -1.0;
        USAGE_IF(!equals || equals == text || *end || end == equals + 1 ||
                     !(share >= 0.0 && share <= 1.0),
                 "--split-share %s: want NAME=SHARE with a share from 0 to 1", text);
        USAGE_IF(o->n_splits == BUILD_MAX_SPLITS, "--split-share: more than %d splits",
                 BUILD_MAX_SPLITS);
        CKVC_TRY(check_name("--split-share", text, (size_t)(equals - text), err));
        char *name = ckvc_format("%.*s", (int)(equals - text), text);
        o->splits[o->n_splits].name = j->split_names[o->n_splits] = name;
        o->splits[o->n_splits++].share = share;
        total += share;
    }
    return total > 1.0 + 1e-9
               ? ckvc_fail(err, CKVC_E_USAGE, "--split-share: the shares add up to %.3g; at most 1",
                           total)
               : CKVC_OK;
}

/* Adds "SOURCE=PATH", or a path alone, which belongs to the default source. A text must not be
 * overwritten by --out. */
static ckvc_status add_input(const build_cli *c, corpus *documents, const char *arg,
                             ckvc_err *err) {
    const char *equals = strchr(arg, '=');
    const bool named = equals && !ckvc_file_exists(arg);
    const size_t n = named ? (size_t)(equals - arg) : strlen(c->source);
    const char *path = named ? equals + 1 : arg;
    CKVC_TRY(check_name(named ? "the name before =" : "--source", named ? arg : c->source, n, err));
    USAGE_IF(ckvc_file_exists(c->out) && ckvc_path_within(c->out, path),
             "--out %s: is in %s, which is read; an input is never written to", c->out, path);
    CKVC_AUTO_FREE char *source = ckvc_format("%.*s", (int)n, named ? arg : c->source);
    return corpus_add(documents, source, path, err);
}

/* How many files stand in documents as they are, by kind: {"code": N, ...}. New reference. */
static json_t *kept_json(const corpus *d) {
    json_t *o = json_object();
    for (corpus_kind k = 0; k < CORPUS_KIND_COUNT; k++) {
        json_object_set_new(o, corpus_kinds[k], json_integer((json_int_t)d->n_kept[k]));
    }
    return o;
}

/* How much of the text made no prompt, by reason: {"short": N, ...}. New reference. */
static json_t *left_out_json(const corpus *d, const built_manifest *m) {
    json_t *o = JSON_NUMBERS(json_object(), {"no_prose", m->n_junk},
                             {"other_lengths", m->n_other_lengths}, {"repeated", m->n_repeated},
                             {"repeated_paragraphs", d->n_repeated_paragraphs});
    for (corpus_reason r = 0; r < CORPUS_REASON_COUNT; r++) {
        json_object_set_new(o, corpus_reasons[r].key, json_integer((json_int_t)d->left_out[r].n));
    }
    return o;
}

static const char built_form[] =
    "{out}: {prompts} prompts ({retrieval} retrieval) of {shortest} to {longest} {unit} from "
    "{texts} documents in {documents} parts\n"
    "{documents_in_several_splits?note: {documents_in_several_splits} of {texts} documents have "
    "prompts in several splits ({dealt?too few to be drawn: prompts were}{dealt!long ones are "
    "drawn in parts of three prompts, at least 32 KB}): numbers judged on them are not numbers "
    "on unseen documents. To keep documents whole, build the prompts that judge from files of "
    "their "
    "own, with --split-rest heldout, and join the manifests\n}"
    "{kept?kept as they stand: files of {kept#{,, }{@} ({.})}\n}"
    "{chat?left out: {left_out.other_lengths} conversations of other lengths, {left_out.repeated} "
    "repeated\n}"
    "{chat!left out: {reasons#{n} {text} ({first}{n>1? ...}), }{left_out.repeated_paragraphs} "
    "repeated paragraphs, {left_out.no_prose} spans that are no prose\n}";

/* What the text alone says: an example of each reason for leaving something out, and how many whole
 * texts there were, whose parts lie side by side. New reference. */
static json_t *beside_built(const build_cli *c, const corpus *d, const built_manifest *m) {
    json_t *kept = json_object(), *reasons = json_array();
    size_t n_whole = 0;
    for (corpus_kind k = 0; k < CORPUS_KIND_COUNT; k++) {
        if (d->n_kept[k]) { JSON_NUMBERS(kept, {corpus_kinds[k], d->n_kept[k]}); }
    }
    for (corpus_reason r = 0; r < CORPUS_REASON_COUNT; r++) {
        if (d->left_out[r].n == 0) { continue; }
        json_t *first =
            json_pack("{s:s, s:s}", "text", corpus_reasons[r].text, "first", d->left_out[r].first);
        json_array_append_new(reasons, JSON_NUMBERS(first, {"n", d->left_out[r].n}));
    }
    for (size_t i = 0; i < d->n_documents; i++) {
        const corpus_document *at = &d->documents[i];
        n_whole += i == 0 || strcmp(at->full_name, at[-1].full_name) != 0 ||
                   strcmp(at->source, at[-1].source) != 0;
    }
    return JSON_NUMBERS(json_pack("{s:s, s:s, s:o, s:o, s:b, s:b}", "out", c->out, "unit",
                                  c->model ? "tokens" : "characters", "kept", kept, "reasons",
                                  reasons, "dealt", m->dealt, "chat", c->chat),
                        {"texts", n_whole});
}

static void print_built(const build_cli *c, const build_job *j, size_t n_split) {
    const built_manifest *m = &j->built;
    const corpus *d = &j->documents;
    char sha[CKVC_SHA256_HEX];
    ckvc_sha256_hex(j->bytes.data, j->bytes.size, sha);
    json_t *o = json_pack("{s:s, s:o, s:o}", "sha256", sha, "kept_as_is", kept_json(d), "left_out",
                          left_out_json(d, m));
    JSON_NUMBERS(o, {"documents", d->n_documents}, {"documents_in_several_splits", n_split},
                 {"files", d->n_files}, {"longest", m->longest}, {"prompts", m->n_entries},
                 {"retrieval", m->n_retrieval}, {"shortest", m->shortest});
    result_print(c->json, stderr, built_form, o, beside_built(c, d, m));
}

static ckvc_status build(const verb_call *call, ckvc_err *err) {
    const build_cli *c = call->options;
    const int64_t unit = c->model ? 1 : 4;
    CKVC_AUTO(build_job_fini) build_job j = {0};
    build_options o = c->build;
    o.unseen = c->query == 1;
    if (o.min_length == 0) { o.min_length = c->chat ? 1 : 320 * unit; }
    if (o.max_length == 0) { o.max_length = c->chat ? INT32_MAX : 448 * unit; }
    if (o.continuation < 0) { o.continuation = c->chat ? 1 : 128 * unit; }
    USAGE_IF(call->n == 0 && c->chat, "no PATH to take conversations from; see --help");
    USAGE_IF(!c->out, "--out FILE is needed");
    USAGE_IF(o.min_length > o.max_length, "--min-length %lld is above --max-length %lld",
             (long long)o.min_length, (long long)o.max_length);
    USAGE_IF(c->chat && (o.retrieval > 0 || c->keep || c->encoding),
             "--retrieval, --keep and --encoding are for texts, not for the conversations of "
             "--chat: leave them out");
    USAGE_IF(o.unseen && o.retrieval <= 0,
             "--query unseen is for the prompts of --retrieval: give --retrieval, or leave it out");
    USAGE_IF(strcmp(c->chat_template, "auto") != 0 && !(c->chat && c->model),
             "--chat-template is used by --chat with --model alone: give both, or leave it out");
    CKVC_TRY(parse_shares(&c->shares, &j, &o, err));
    CKVC_TRY(check_name("--split-rest", o.split_rest, strlen(o.split_rest), err));
    CKVC_TRY(check_name("--retrieval-source", o.retrieval_source, strlen(o.retrieval_source), err));
    CKVC_TRY(ckvc_publish_check(c->out, c->force, err));
    if (c->model) { CKVC_TRY(inputs_need_tokenizer(c->model, &j.tok, err)); }
    if (c->model && c->chat) {
        CKVC_TRY(chat_template_choose(c->chat_template, j.tok, &o.chat, err));
    }
    o.tok = j.tok;
    j.documents.chat = c->chat;
    j.documents.encoding = c->encoding;
    j.documents.keep_all = c->keep == 1;
    const size_t longest = (size_t)(o.max_length + o.continuation) * 4; /* in bytes, roughly */
    j.documents.part_bytes = 3 * longest > CORPUS_PART_BYTES ? 3 * longest : CORPUS_PART_BYTES;
    for (size_t i = 0; i < call->n; i++) {
        CKVC_TRY(add_input(c, &j.documents, call->items[i], err));
    }
    o.even_splits = c->even_splits || call->n == 0; /* so the prompts are those of compile */
    if (c->even_splits) {
        o.most = o.prompts;
        o.prompts = 0;
    }
    if (call->n == 0) { CKVC_TRY(default_texts_add(&j.documents, err)); }
    CKVC_TRY(manifest_build(&j.documents, &o, &j.built, err));
    built_manifest_write(&j.built, &j.bytes);
    CKVC_TRY(ckvc_publish_bytes(c->out, j.bytes.data, j.bytes.size, c->force, err));
    CKVC_AUTO(manifest_facts_fini) manifest_facts facts = {0};
    const manifest made = {.entries = j.built.entries, .n_entries = j.built.n_entries};
    CKVC_TRY(manifest_look(&made, NULL, NULL, 0, &facts, err));
    print_built(c, &j, facts.n_split_documents);
    return CKVC_OK;
}

#define OPTIONS_OF build_cli
static const opt build_rows[] = {
    OPT_TITLE("prompts"),
    OPT_OUTPUT("out", out, "FILE", "Write the manifest to this file.", .letter = 'o'),
    OPT_TEXT("source", source, "NAME", "Give this source to the PATHs that name none of their own.",
             .preset = "text"),
    OPT_TEXT("encoding", encoding, "NAME",
             "Read files that are not UTF-8 in this encoding, by its name in iconv, such as "
             "latin1; without this option they are an error."),
    OPT_ENUM("keep", keep, "kinds|all",
             "Take a file as it stands, prose or not, if its ending says code, data or Markdown "
             "(kinds), or whatever text it is (all)."),
    OPT_FLAG("chat", chat,
             "Read conversations as chat APIs have them, a line {\"messages\": [...]} each; the "
             "last turn, the assistant's, is the continuation."),
    OPT_INT("prompts", build.prompts, "N", 0, 1000000,
            "Make N prompts, those of --retrieval included; 0 means as many as the text gives, at "
            "most 100, or with --chat all.",
            .letter = 'n'),
    OPT_DOUBLE("retrieval", build.retrieval, "SHARE", 0, 1,
               "Make this share of the prompts ask for facts that are hidden in the text."),
    OPT_TEXT("retrieval-source", build.retrieval_source, "NAME",
             "Give this source to the prompts of --retrieval.", .preset = "retrieval"),
    OPT_QUERY,
    OPT_TITLE("lengths"),
    OPT_INPUT("model", model, "DIR",
              "Count lengths in this model's tokens, BOS and chat template included; without this "
              "option in characters.",
              .letter = 'm'),
    OPT_CHAT_TEMPLATE,
    OPT_INT("min-length", build.min_length, "N", 0, 1 << 24,
            "Make no prompt shorter than N; 0 means 320 tokens or 1280 characters, and with --chat "
            "no limit."),
    OPT_INT("max-length", build.max_length, "N", 0, 1 << 24,
            "Make no prompt longer than N; 0 means 448 tokens or 1792 characters, and with --chat "
            "no limit."),
    OPT_INT("continuation", build.continuation, "N", -1, 1 << 20,
            "Leave at least N behind each prompt as its continuation; -1 means 128 tokens or 512 "
            "characters, and with --chat 1.",
            .preset = "-1"),
    OPT_TITLE("splits and order"),
    OPT_LIST("split-share", shares, "NAME=SHARE",
             "Give the split NAME to the prompts of this share of the documents; long documents "
             "are dealt out in parts of three prompts and at least 32 KB."),
    OPT_FLAG("even-splits", even_splits,
             "Spread the documents of each source evenly over the splits, and make fewer than "
             "--prompts where the text gives no more, as compile does."),
    OPT_TEXT("split-rest", build.split_rest, "NAME", "Give this split to the other prompts.",
             .preset = "fit"),
    OPT_INT("seed", build.seed, "N", 0, 9007199254740992.0, "Draw and shuffle by this seed.",
            .preset = "1"),
    OPT_TITLE("output"),
    OPT_FLAG("force", force, "Overwrite the file of --out.", .letter = 'f'),
    OPT_FLAG("json", json, "Print what was made as JSON."),
    {0}};
const verb verb_manifest_build = {
    .name = "manifest build",
    .summary = "cut text files into prompts",
    .usage = "ckvc manifest build [[SOURCE=]PATH...] --out FILE [options]",
    .examples =
        "  ckvc manifest build notes.txt --out prompts.jsonl\n"
        "  ckvc manifest build --model models/ckvc-tiny-8l --prompts 100 "
        "postfix=doc/postfix tcl=doc/tcl --out tech.jsonl\n"
        "  ckvc manifest build --min-length 320 --max-length 448 --continuation 64 "
        "--retrieval 0.25 --split-share heldout=0.3 ... \n"
        "  ckvc manifest build --chat --model DIR requests.jsonl --out chat.jsonl\n"
        "  ckvc manifest build --model DIR --retrieval 0.5 --out prompts.jsonl\n"
        "    # makes prompts of the texts that come with ckvc\n"
        "\nPATH is a file or a folder of plain text or reStructuredText, which may be .gz; "
        "scripts/plain_text.py makes text of HTML, man\n"
        "pages and info. Without a PATH the prompts are made of the texts that come with ckvc, "
        "whose documents are spread evenly over the\n"
        "splits. Any language is read, as UTF-8. Of text only prose is used: short documents, "
        "repeated paragraphs and spans that are no\n"
        "prose are left out and named. Code, data and Markdown are used as they stand. With --chat "
        "one conversation becomes one prompt;\n"
        "tools and roles that the template does not know are refused by name.\n",
    .common =
        " out keep chat model prompts min-length max-length continuation retrieval split-share "
        "seed force ",
    VERB_OPTIONS(build_rows),
    .work = build};

/* ---- check ---- */

typedef struct check_cli {
    const char *model, *chat_template;
    int64_t min_length;
    bool json;
    leaks_cli leaks;
} check_cli;

static const char facts_form[] =
    "source\tsplit\tprompts\tshortest\tmean\tlongest\t({unit})\n"
    "{groups#{source|-}\t{split|-}\t{prompts}\t{shortest}\t{total/prompts:.1f}\t{longest}\n}";

/* leaks: what --against found, borrowed; NULL: nothing was compared. */
static void print_facts(const manifest *m, const manifest_facts *f, const char *unit, bool json,
                        json_t *leaks) {
    json_t *groups = json_array();
    for (size_t i = 0; i < f->n_groups; i++) {
        const check_group *g = &f->groups[i];
        json_array_append_new(
            groups, JSON_NUMBERS(json_pack("{s:s, s:s}", "source", g->source, "split", g->split),
                                 {"prompts", g->n}, {"shortest", g->shortest},
                                 {"longest", g->longest}, {"total", g->total}));
    }
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:O*}", "manifest", m->path, "sha256", m->sha256,
                          "unit", unit, "groups", groups, "leaks", leaks);
    JSON_NUMBERS(o, {"prompts", m->n_entries}, {"shortest", f->all.shortest},
                 {"longest", f->all.longest}, {"total", f->all.total},
                 {"shortest_continuation", f->shortest_continuation}, {"repeated", f->n_repeated},
                 {"short", f->n_short}, {"documents_in_several_splits", f->n_split_documents});
    result_print(json, stdout, facts_form, o, NULL);
}

static ckvc_status check(const verb_call *call, ckvc_err *err) {
    const check_cli *c = call->options;
    const char *unit = c->model ? "tokens" : "characters";
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    CKVC_AUTO(manifest_facts_fini) manifest_facts facts = {0};
    chat_template chat = {0};
    USAGE_IF(call->n != 1, "want one manifest, got %zu", call->n);
    USAGE_IF((c->leaks.out || c->leaks.clean) && c->leaks.against.n == 0,
             "%s it needs --against EVAL.jsonl",
             c->leaks.out ? "--out is the record of a comparison:"
                          : "--clean leaves out what a comparison finds:");
    USAGE_IF(
        strcmp(c->chat_template, "auto") != 0 && !c->model,
        "--chat-template is used where --model counts messages: give --model, or leave it out");
    if (c->model) { CKVC_TRY(inputs_need_tokenizer(c->model, &tok, err)); }
    CKVC_TRY(manifest_read(call->items[0], &m, err));
    bool conversations = false;
    for (size_t i = 0; i < m->n_entries; i++) { conversations |= m->entries[i].n_messages > 0; }
    if (tok && conversations) { CKVC_TRY(chat_template_choose(c->chat_template, tok, &chat, err)); }
    CKVC_TRY(manifest_look(m, tok, &chat, c->min_length, &facts, err));
    ckvc_err leaked = {0};
    json_auto_t *found = NULL;
    CKVC_FAIL_IF(c->leaks.against.n &&
                     manifest_leaks(&c->leaks, m, tok, facts.repeats, !c->json, &found, &leaked) !=
                         CKVC_OK &&
                     leaked.status != CKVC_CHECK_FAILED,
                 err, leaked.status, "%s", leaked.text);
    print_facts(m, &facts, unit, c->json, found);
    if (facts.n_split_documents) {
        say("%s:%u: note: is of the same document as line %u, which is in another split (%zu such "
            "documents): numbers judged on them are not numbers on unseen documents\n",
            m->path, facts.first_split, facts.first_other, facts.n_split_documents);
    }
    CKVC_FAIL_IF(leaked.status != CKVC_OK, err, leaked.status, "%s", leaked.text);
    FAIL_IF(facts.n_repeated && !c->leaks.clean, CKVC_CHECK_FAILED,
            "%s:%u: repeats the prompt of line %u (%zu such prompts)", m->path,
            facts.first_repeated, facts.first_original, facts.n_repeated);
    FAIL_IF(facts.n_short, CKVC_CHECK_FAILED, "%s:%u: shorter than %lld %s (%zu such prompts)",
            m->path, facts.first_short, (long long)c->min_length, unit, facts.n_short);
    return CKVC_OK;
}

#undef OPTIONS_OF
#define OPTIONS_OF check_cli
static const opt check_rows[] = {
    OPT_INPUT("model", model, "DIR",
              "Count lengths in this model's tokens, and check token ids against its vocabulary; "
              "without this option lengths are in characters.",
              .letter = 'm'),
    OPT_CHAT_TEMPLATE,
    OPT_INT("min-length", min_length, "N", 0, 1 << 24,
            "Fail the check if a prompt is shorter than N; a window of W tokens needs W + 1."),
    OPT_FLAG("json", json, "Print one JSON object."),
    OPT_GROUP(opts_leaks, leaks),
    {0}};

const verb verb_manifest_check = {
    .name = "manifest check",
    .summary = "read every line of a manifest, and say what repeats, how long the prompts are, and "
               "what an\nevaluation shares with them",
    .usage = "ckvc manifest check FILE [--model DIR] [--min-length N] [--against EVAL.jsonl,... "
             "[--out CHECK.json] [--clean CLEAN.jsonl]]",
    .examples =
        "  ckvc manifest check prompts.jsonl --model models/ckvc-tiny-8l --min-length 97\n"
        "  ckvc manifest check prompts.jsonl --against longbench/multi_news.jsonl,heldout.jsonl "
        "--out check.json\n"
        "  ckvc manifest check prompts.jsonl --against prompts.jsonl    # its held-out prompts "
        "against the others\n"
        "  ckvc manifest check all.jsonl --against all.jsonl --clean prompts.jsonl --out check.json"
        "    # a manifest of what shares nothing, and its record\n"
        "\nPrompts share something when they have 13 words in a row in common (apart from case, "
        "punctuation and spacing), are\n"
        "near-duplicates, or have the same id. Every string of a line is read. The exit code is 1 "
        "when something is shared, with --clean\n"
        "when CLEAN.jsonl still shares something, and 65 when nothing would be left in it.\n",
    VERB_OPTIONS(check_rows),
    .reads_args = true,
    .work = check};

static ckvc_status no_verb(const verb_call *call, ckvc_err *err) {
    return call->n ? ckvc_fail(err, CKVC_E_USAGE, "'%s' is neither build nor check", call->items[0])
                   : ckvc_fail(err, CKVC_E_USAGE, "want build or check; see --help");
}

const verb verb_manifest = {
    .name = "manifest",
    .about = "build prompt manifests from text, and check them",
    .usage = "ckvc manifest build [[SOURCE=]PATH...] --out FILE | ckvc manifest check FILE",
    .examples = "  ckvc manifest build --help\n"
                "  ckvc manifest check --help\n",
    .work = no_verb};
