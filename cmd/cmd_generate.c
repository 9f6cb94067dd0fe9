/* ckvc generate continues prompts from the full cache, or from what a table or another policy keeps
 * of it. */
#include "judge/generate/generate.h"

#include "calib/rollout/memory_plan.h"
#include "cmd/common/chosen_policies.h"
#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "lib/base/files.h"
#include "lib/base/progress.h"
#include "lib/base/text_lines.h"

typedef struct generate_cli {
    inputs_options inputs;
    const char *prompt, *then, *table, *policy;
    budget_list budget, bytes;
    policy_choice choice; /* mode, score */
    bool chat, compare, as_manifest;
    unsigned max_new, batch;
    double temperature, top_p;
} generate_cli;

enum { MAX_TURNS = 64, MAX_THEN_BYTES = 1 << 20 };

/* Sums over all prompts that were continued in one way. */
typedef struct way_total {
    double first_s, decode_s; /* decode_s: that of a batch counts once */
    uint64_t tokens,
        later; /* later: without the first token of a prompt, which its prefill gives */
    uint64_t bytes;
    size_t n;
} way_total;

typedef struct generate_job {
    const generate_cli *c;
    opened_inputs e;
    table_file *table;
    named_policy named; /* --policy */
    asked_policy policy;
    held_budgets by_bytes;    /* of --bytes */
    double budget;            /* in entries */
    int32_t *then[MAX_TURNS]; /* tokens of later turns */
    size_t then_size[MAX_TURNS], n_then;
    way_total total[2]; /* the full cache, the policy */
} generate_job;

static void job_fini(generate_job *j) {
    for (size_t i = 0; i < j->n_then; i++) { free(j->then[i]); }
    table_file_free(j->table);
    inputs_close(&j->e);
}

/* ---- what there is to do ---- */

/* Makes a manifest of one line from --prompt or standard input. */
static ckvc_status make_prompt_manifest(const generate_cli *c, generate_job *j, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer in = {0};
    if (c->inputs.manifest) { return CKVC_OK; }
    if (!c->prompt) {
        CKVC_TRY(inputs_read_stdin(&in, err));
        if (in.size && in.data[in.size - 1] == '\n') { in.size--; }
    }
    const char *text = c->prompt ? c->prompt : (const char *)in.data;
    const size_t size = c->prompt ? strlen(c->prompt) : in.size;
    USAGE_IF(size == 0, "no prompt: give --prompt TEXT, text on standard input or --manifest FILE");
    manifest *m = j->e.manifest = ckvc_calloc(1, sizeof *m);
    manifest_entry *e = m->entries = ckvc_calloc(1, sizeof *e);
    m->path = ckvc_strdup(c->prompt ? "--prompt" : "standard input");
    m->n_entries = 1;
    *e = (manifest_entry){.line = 1, .id = ckvc_strdup("prompt")};
    if (c->chat) {
        e->n_messages = 1;
        e->messages = ckvc_calloc(1, sizeof *e->messages);
        e->messages[0] = (chat_message){ckvc_strdup("user"), ckvc_text_copy(text, size), size};
    } else {
        e->text = ckvc_text_copy(text, size);
        e->text_size = size;
    }
    return CKVC_OK;
}

/* Makes the text between an answer and the next one, in which the user's turn is `line`. */
static ckvc_status text_between(const generate_job *j, bool chat, const ckvc_lines *line,
                                char **out, ckvc_err *err) {
    static const char answer[] = "\1"; /* no template writes or trims it */
    const chat_message turns[] = {
        {"user", "x", 1}, {"assistant", answer, 1}, {"user", line->text, line->n}};
    CKVC_AUTO_FREE char *all = NULL;
    size_t n;
    if (chat) { CKVC_TRY(chat_render(&j->e.chat, turns, 3, &all, &n, err)); }
    *out = chat ? ckvc_strdup(strchr(all, *answer) + 1)
                : ckvc_format("\n%.*s", (int)line->n, line->text);
    return CKVC_OK;
}

/* Reads the lines of --then as tokens. */
static ckvc_status take_turns(const generate_cli *c, generate_job *j, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    size_t size;
    if (!c->then) { return CKVC_OK; }
    USAGE_IF(!j->e.tok, "--then: the model has no tokenizer; add its tokenizer.json");
    const bool chat = j->e.manifest->entries->n_messages > 0;
    for (size_t i = 0; i < j->e.manifest->n_entries; i++) {
        USAGE_IF((j->e.manifest->entries[i].n_messages > 0) != chat,
                 "--then: %s has prompts that are conversations and others that are not",
                 j->e.manifest->path);
    }
    CKVC_TRY(ckvc_file_read(c->then, MAX_THEN_BYTES, &text, &size, err));
    for (ckvc_lines at = ckvc_lines_of(text, size); ckvc_next_line(&at);) {
        CKVC_AUTO_FREE char *between = NULL;
        const size_t t = j->n_then;
        at.n -= at.n && at.text[at.n - 1] == '\r';
        bool empty = at.n == 0 || memchr(at.text, 0, at.n) || t == MAX_TURNS;
        if (!empty) {
            CKVC_TRY(text_between(j, chat, &at, &between, err));
            CKVC_TRY(tokenizer_encode(j->e.tok, between, strlen(between), false, &j->then[t],
                                      &j->then_size[t], err));
            j->n_then++;
            empty = j->then_size[t] == 0;
        }
        FAIL_IF(empty, CKVC_E_DATA, "%s:%u: want a turn of the user on each line, %d at most",
                c->then, at.number, MAX_TURNS);
    }
    return CKVC_OK;
}

static ckvc_status choose_policy(const generate_cli *c, const inputs_options *o, generate_job *j,
                                 ckvc_err *err) {
    j->policy = (asked_policy){.kind = POLICY_TABLE, .table = j->table};
    if (!c->policy) { return CKVC_OK; }
    CKVC_TRY(policy_named(c->policy, &j->named, err));
    j->policy.kind = j->named.kind;
    j->policy.formats = j->named.has_formats ? &j->named.formats : NULL;
    USAGE_IF(j->named.fitted,
             "--policy %s: references are fitted by `ckvc score` and `ckvc eval` alone", c->policy);
    USAGE_IF(j->policy.kind == POLICY_MATCHED,
             "--policy matched needs a threshold that is found on held-out prompts, which `ckvc "
             "score` alone does; leave it out here");
    USAGE_IF((policy_is_control(j->policy.kind) || policy_needs_table(j->policy.kind)) && !j->table,
             "--policy %s needs a --table", c->policy);
    if (j->policy.kind != POLICY_KVZIP) { return CKVC_OK; }
    return inputs_open_kvzip(o, &j->e, err);
}

/* Opens the prompts, and cuts those that would leave no room in the context for the answer. */
static ckvc_status open_prompts(inputs_options *o, const generate_cli *c, generate_job *j,
                                ckvc_err *err) {
    const int64_t context = model_shape_context(model_get_shape(j->e.model));
    int64_t most = context - (int64_t)c->max_new * (1 + (int64_t)j->n_then);
    for (size_t i = 0; i < j->n_then; i++) { most -= (int64_t)j->then_size[i]; }
    USAGE_IF(
        most < (int64_t)o->setting.window + 1,
        "--max-new %u%s and a prompt of at least %u tokens do not fit the model's context of %lld",
        c->max_new, c->then ? " a turn" : "", o->setting.window + 1, (long long)context);
    o->max_tokens = o->max_tokens ? o->max_tokens : most;
    o->setting.continuation = 0;
    j->e.short_too = true;
    CKVC_TRY(inputs_open_prompts(o, &j->e, err));
    if (j->e.prompts->n_cut && j->e.prompts->max_tokens == most) {
        ckvc_warn("%zu prompt%s cut in the middle to at most %lld tokens: with --max-new %u the "
                  "model's context of %lld holds no more",
                  j->e.prompts->n_cut, j->e.prompts->n_cut == 1 ? " is" : "s are",
                  (long long)o->max_tokens, c->max_new, (long long)context);
    }
    return CKVC_OK;
}

/* Refuses a batch whose caches and activations exceed --memory. */
static ckvc_status check_memory(const inputs_options *o, const generate_options *g,
                                const generate_job *j, ckvc_err *err) {
    const size_t limit = memory_plan_limit(j->e.be, o->memory),
                 weights = model_converted_least(j->e.model);
    size_t bytes;
    CKVC_TRY(generate_bytes(g, &bytes, err));
    FAIL_IF(bytes > limit || weights > limit - bytes, CKVC_E_MEMORY,
            "%u prompts of %u + %u tokens side by side need %.1f MB (weights %.1f), there are "
            "%.1f: allow more with --memory, or give a smaller --batch or --max-tokens",
            g->batch, g->prompts->max_tokens, g->max_new, ((double)bytes + (double)weights) / 1e6,
            (double)weights / 1e6, (double)limit / 1e6);
    return CKVC_OK;
}

/* ---- what came of it ---- */

static const char *way_name(const generate_job *j, const generated *g) {
    return g->compressed ? policy_kind_name(j->policy.kind) : "full";
}

/* NaN if there is nothing to divide. */
static double per_second(uint64_t n, double seconds) {
    return n > 0 && seconds > 0 ? (double)n / seconds : NAN;
}

/* What came of a prompt in one way. text [size]: the tokens decoded; NULL without a tokenizer. A
 * new reference. */
static json_t *way_json(const generate_job *j, const generated *g, const char *text, size_t size) {
    json_t *tokens = json_array(), *nll = json_array();
    for (uint32_t i = 0; i < g->n; i++) {
        json_array_append_new(tokens, json_integer(g->tokens[i]));
        json_array_append_new(nll, ckvc_json_real(g->nll[i]));
    }
    json_t *o =
        json_pack("{s:s, s:s, s:s?, s:o, s:o, s:s, s:o}", "id", g->prompt->entry->id, "policy",
                  way_name(j, g), "table", g->compressed && j->table ? j->table->content_id : NULL,
                  "tokens", tokens, "nll", nll, "end", generate_end_name(g->end), "text",
                  text ? json_stringn(text, size) : json_null());
    JSON_NUMBERS(o, {"T", g->prompt->n_tokens}, {"budget", g->compressed ? j->budget : NAN},
                 {"entries", (double)g->entries}, {"cache_bytes", (double)g->cache_bytes},
                 {"first_token_s", g->first_s}, {"decode_s", g->decode_s},
                 {"tokens_per_s", per_second(g->n ? g->n - 1 : 0, g->decode_s)});
    if (g->whole) { json_object_set_new(o, "whole", json_true()); }
    if (j->n_then) { json_object_set_new(o, "turn", json_integer(1 + g->turn)); }
    const uint32_t later = g->prompt->n_later;
    if (later) { json_object_set_new(o, "later_tokens", json_integer(later)); }
    return o;
}

/* Prints the prompt's manifest line with the model's answer as its continuation. A prompt whose
 * answer is empty has nothing to score and is left out. */
static void print_answer(const generated *g) {
    manifest_entry e = *g->prompt->entry;
    e.continuation = NULL;
    e.continuation_tokens = (int32_t *)g->tokens; /* is only read */
    e.n_continuation_tokens = g->n;
    if (g->n == 0) {
        ckvc_warn("%s: the model's answer is empty; the prompt is left out", e.id);
        return;
    }
    CKVC_AUTO_FREE char *line = manifest_line(&e);
    puts(line);
}

/* Lines of the text stand behind a bar, so that a reader sees where it begins and ends. */
static const char way_form[] =
    "  {policy:-12s} {entries/units:8.1f} of {T} tokens held a head, {cache_bytes/1e6:.2f} MB"
    "{first_token_s?; first token {first_token_s:.3f} s}"
    "{tokens_per_s?, {tokens_per_s:.1f} tokens/s}; {n} tokens"
    "{end=stop?, the model's end}{end=context?, the context is full}"
    "{whole?; kept whole, being no longer than the window}\n"
    "{text!  |{tokens# {.}}\n}{lines#  | {.}\n}";

static ckvc_status print_way(const generate_job *j, const generated *g, bool json, ckvc_err *err) {
    const model_shape *s = model_get_shape(j->e.model);
    CKVC_AUTO_FREE char *text = NULL;
    size_t size = 0;
    if (j->e.tok) {
        CKVC_TRY(tokenizer_decode(j->e.tok, g->tokens, g->n, true, &text, &size, err));
    }
    json_auto_t *o = way_json(j, g, text, size);
    if (json) {
        json_print(o);
        return CKVC_OK;
    }
    json_t *lines = json_array();
    for (ckvc_lines at = ckvc_lines_of(text, size); ckvc_next_line(&at);) {
        json_array_append_new(lines, json_stringn(at.text, at.n));
    }
    form_print(stdout, way_form, o,
               JSON_NUMBERS(json_pack("{s:o}", "lines", lines), {"n", g->n},
                            {"units", (double)s->n_layers * s->n_kv_heads}));
    return CKVC_OK;
}

static ckvc_status take_generated(void *ctx, const generated *ways, size_t n, ckvc_err *err) {
    generate_job *j = ctx;
    const bool as_manifest = j->c->as_manifest, json = j->c->inputs.json || as_manifest;
    const char *id = ways[0].prompt->entry->id;
    if (!json && j->n_then) { tell("%s, turn %u\n", id, 1 + ways[0].turn); }
    if (!json && !j->n_then) { tell("%s\n", id); }
    for (size_t w = 0; w < n; w++) {
        const generated *g = &ways[w];
        way_total *t = &j->total[g->compressed];
        if (as_manifest) {
            print_answer(g);
        } else {
            CKVC_TRY(print_way(j, g, json, err));
        }
        const bool first = g->turn == 0; /* counted once for a prompt */
        *t = (way_total){t->first_s + (first ? g->first_s : 0),
                         t->decode_s + g->own_s,
                         t->tokens + g->n,
                         t->later + (g->n ? g->n - 1 : 0),
                         t->bytes + (first ? g->cache_bytes : 0),
                         t->n + first};
    }
    if (n == 2 && !json) {
        uint32_t same = 0;
        while (same < ways[0].n && same < ways[1].n &&
               ways[0].tokens[same] == ways[1].tokens[same]) {
            same++;
        }
        tell("  the first %u tokens are the same; the cache is %.1f %% of the full one\n", same,
             100.0 * (double)ways[1].cache_bytes / (double)ways[0].cache_bytes);
    }
    fflush(stdout);
    return CKVC_OK;
}

static void print_totals(const generate_job *j) {
    for (int w = 0; w < 2; w++) {
        const way_total *t = &j->total[w];
        if (t->n < 2) { continue; }
        say("%-12s %zu prompts, %.2f MB a prompt, first token %.3f s, %.1f tokens/s side by side\n",
            w ? policy_kind_name(j->policy.kind) : "full", t->n,
            (double)t->bytes / 1e6 / (double)t->n, t->first_s / (double)t->n,
            per_second(t->later, t->decode_s));
    }
}

static ckvc_status generate_verb(const verb_call *call, ckvc_err *err) {
    const generate_cli *c = call->options;
    inputs_options o = c->inputs;
    CKVC_AUTO(job_fini) generate_job j = {.c = c};
    USAGE_IF(c->prompt && o.manifest, "--prompt and --manifest: give one of them");
    USAGE_IF(c->chat && o.manifest, "--chat goes with --prompt: conversations of a manifest are "
                                    "its \"messages\"; leave --chat out");
    USAGE_IF(opts_given("top-p") && c->temperature == 0,
             "--top-p draws tokens, which takes a --temperature above 0; give one");
    USAGE_IF(c->budget.n != 1, "--budget: got several budgets, wanted one");
    USAGE_IF(c->bytes.n > 1, "--bytes: got several shares, wanted one");
    const bool compressed = c->table || c->policy;
    USAGE_IF(!compressed && !cache_is_plain(setting_formats(&o.setting)),
             "--cache-keys and --cache-values say how what a --table or --policy keeps is held: "
             "name one, or --policy full for the whole cache");
    USAGE_IF(c->compare && !compressed, "--compare needs a --table or --policy to compare with");
    USAGE_IF(c->as_manifest && (compressed || c->then || o.json),
             "--as-manifest prints answers from the full cache: leave out --table, --policy, "
             "--then and --json");
    USAGE_IF((opts_said("budget") || c->bytes.n) && !compressed,
             "--%s says what a --table or --policy keeps: name one",
             c->bytes.n ? "bytes" : "budget");
    USAGE_IF((opts_said("mode") || opts_said("ranking")) && !c->table,
             "--mode and --ranking say how a --table is used: name one");
    CKVC_TRY(inputs_open_model(&o, &j.e, err));
    if (c->table) {
        CKVC_TRY(inputs_take_setting(&o, c->table, err));
        CKVC_TRY(inputs_read_table(&o, &j.e, c->table, &j.table, err));
    }
    CKVC_TRY(choose_policy(c, &o, &j, err));
    if (!compressed) { o.setting.window = 1; } /* no statistic of it is needed */
    CKVC_TRY(make_prompt_manifest(c, &j, err));
    if (!j.e.manifest) { CKVC_TRY(manifest_read(o.manifest, &j.e.manifest, err)); }
    CKVC_TRY(take_turns(c, &j, err));
    CKVC_TRY(open_prompts(&o, c, &j, err));
    const size_t n = j.e.prompts->n;
    generate_options g = {.model = j.e.model,
                          .be = j.e.be,
                          .memory = o.memory,
                          .prompts = j.e.prompts,
                          .choice = c->choice,
                          .full = c->compare || !compressed,
                          .then = (const int32_t *const *)j.then,
                          .then_size = j.then_size,
                          .n_then = (uint32_t)j.n_then,
                          .max_new = c->max_new,
                          .batch = n < c->batch ? (unsigned)n : c->batch,
                          .how = {c->temperature, c->top_p}};
    g.choice.list = &j.policy;
    g.choice.n = compressed;
    g.choice.nearest_budget = true;
    g.choice.texts = j.e.kvzip;
    g.choice.setting = o.setting;
    j.budget = c->budget.items[0];
    if (c->bytes.n) {
        j.by_bytes.head_dim = model_get_shape(j.e.model)->head_dim;
        CKVC_TRY(
            bytes_budgets(&c->bytes, &o, &j.table, &c->table, j.table != NULL, &j.by_bytes, err));
        j.budget = j.by_bytes.budgets[0];
        g.choice.held = j.by_bytes.held;
    }
    g.choice.setting.budgets = (setting_list){&j.budget, 1};
    if (compressed) { CKVC_TRY(inputs_judge_budgets(&o, &j.e, g.choice.setting.budgets, err)); }
    CKVC_TRY(check_memory(&o, &g, &j, err));
    ckvc_stop_install(0);
    CKVC_TRY(generate(&g, take_generated, &j, err));
    if (!o.quiet && !c->as_manifest) { print_totals(&j); }
    return CKVC_OK;
}

#define OPTIONS_OF generate_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_TITLE("prompts"),
    OPT_TEXT("prompt", prompt, "TEXT",
             "Take this text as the only prompt; without --prompt and --manifest it is read from "
             "standard input.",
             .letter = 'p'),
    OPT_FLAG("chat", chat, "Put the prompt as a user's message, by the model's chat template."),
    OPT_INPUT("manifest", inputs.manifest, "FILE",
              "Read the prompts from this file, one JSON object a line."),
    OPT_INPUT("then", then, "FILE",
              "Read later turns of the user from this file, one a line, and ask them of the same "
              "cache one after the other."),
    OPT_LIST("split", inputs.split, "NAME,...", "Take only the prompts of these splits."),
    OPT_DOUBLE("holdout", inputs.holdout, "F", 0, 1,
               "Hold out this share of the prompts, drawn by --seed and the prompt's id, not by "
               "document."),
    OPT_INT("limit", inputs.limit, "N", 0, 4e9, "Take at most N prompts; 0 means all."),
    OPT_INT("max-tokens", inputs.max_tokens, "N", 0, 1e9,
            "Cut the middle out of prompts of more than N tokens; 0 means the model's context less "
            "--max-new."),
    OPT_GROUP(opts_chat, inputs),
    OPT_FLAG("skip-short", inputs.skip_short,
             "Drop prompts that are no longer than the window; without this option score and "
             "generate keep them whole, and other verbs refuse them."),
    OPT_TITLE("what is kept"),
    OPT_INPUT("table", table, "T.ckvt",
              "Keep what this table keeps; without --table and --policy everything is kept."),
    OPT_TEXT("policy", policy, "NAME", "Keep what this policy of `ckvc score` keeps."),
    OPT_BUDGETS(budget, "N",
                "Keep N entries per layer and KV head on average, or below 1 this share of the "
                "prompt; a table is read at its nearest budget."),
    OPT_BYTES(bytes, "S",
              "Keep what fits into this share of the bytes that the whole cache takes in 16 bits: "
              "as many entries, in such formats, as --table says of it, or without a table as many "
              "as fit in the formats of --cache-keys and --cache-values."),
    OPT_ENUM("mode", choice.mode, "uniform|heads|layers|lengths|table",
             "Let a table keep one set per layer (uniform), a set per KV head or per layer by its "
             "shares, sets per KV head that have one length in each layer (lengths), or what it "
             "recommends (table).",
             .preset = "table", .word_was = {"shared", "uniform"}),
    OPT_ENUM(
        "ranking", choice.score, "paper|window|learned|bank|table",
        "Rank a table's entries by this ranking, or by the one that it recommends (table); bank "
        "is the learned ranking, mixed with what the table's bank attends to.",
        .preset = "table", .was = "score"),
    OPT_SETTING("window", inputs.setting, "N", 1, 1e6,
                "Observe attention in a window of the prompt's last N tokens; with --table it is "
                "that of the table.",
                .letter = 'W'),
    OPT_SETTING_NAME("alpha", inputs.setting,
                     "Measure a position's attention mass as the paper does, or per row that can "
                     "see the position; with --table it is measured as for the table."),
    OPT_SETTING("keep-window", inputs.setting, "N", 0, 1e6,
                "Always keep the last N tokens, within the budget; with --table, as many as the "
                "table says."),
    OPT_SETTING_NAME("compress-after", inputs.setting,
                     "Compress a manifest's conversation behind the user's last turn, or behind "
                     "the first; the rest of it is then fed to what is kept."),
    OPT_GROUP(opts_formats, inputs),
    OPT_FLAG("compare", compare, "Also show the text of the full cache."),
    OPT_FLAG("as-manifest", as_manifest,
             "Print the manifest again, with the model's own answers as continuations."),
    OPT_TITLE("tokens"),
    OPT_COUNT("max-new", max_new, "N", 1, 1e6, "Write at most N tokens of a text.", .letter = 'n',
              .preset = "64"),
    OPT_COUNT("batch", batch, "N", 1, 1024,
              "Run N prompts side by side; texts do not depend on it.", .preset = "8"),
    OPT_DOUBLE("temperature", temperature, "F", 0, 100,
               "Draw tokens at this temperature; 0 always takes the likeliest one."),
    OPT_DOUBLE("top-p", top_p, "F", 0, 1,
               "Draw from the likeliest tokens that together have this probability.",
               .preset = "1"),
    OPT_SETTING("seed", inputs.setting, "N", 0, 9e15, "Draw every random number from this seed."),
    {0}};

const verb verb_generate = {
    .name = "generate",
    .about = "write texts from a full or a compressed cache",
    .summary =
        "write texts from the full cache, or from a cache that holds only what a table keeps",
    .usage =
        "ckvc generate --model DIR [--prompt TEXT | --manifest FILE] [--table T.ckvt] [--compare]",
    .examples =
        "  ckvc generate --model DIR --prompt 'Once upon a time' --max-new 40\n"
        "  ckvc generate --model DIR --table t.ckvt --manifest m.jsonl --split heldout --limit 1 "
        "--compare\n"
        "  ckvc generate --model DIR --policy snapkv --budget 0.5 --chat --json < question.txt\n",
    .common =
        " model prompt chat then manifest table policy budget compare max-new temperature limit "
        "threads json ",
    VERB_OPTIONS(rows),
    .instead = "prompts come from --prompt, standard input or --manifest",
    .work = generate_verb};
