/* ckvc perplexity prints teacher-forced losses of token sequences. Compare them with those of
 * another implementation to see whether the runtime is right for a model. A sequence is all tokens
 * of a prompt: no continuation is cut off. */
#include <errno.h>

#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

typedef struct perplexity_cli {
    inputs_options inputs;
    opt_list logits;
    bool tokens;
} perplexity_cli;

typedef struct perplexity_job {
    opened_inputs e;
    int64_t positions[256]; /* --logits */
    size_t n_positions;
    session *session;
    double *nll;   /* [max T - 1] */
    float *logits; /* [n_positions][V] */
} perplexity_job;

static void job_fini(perplexity_job *j) {
    CKVC_FREE(j->nll, j->logits);
    session_destroy(j->session);
    inputs_close(&j->e);
}

static ckvc_status read_positions(perplexity_job *j, const opt_list *list, ckvc_err *err) {
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        errno = 0;
        const long long v = strtoll(list->items[i], &end, 10);
        USAGE_IF(*end || end == list->items[i] || errno || v < 0,
                 "--logits: got '%s', wanted positions counted from 0", list->items[i]);
        j->positions[j->n_positions++] = v;
    }
    return CKVC_OK;
}

/* Opens prompts as for a window of one token and no continuation, so that all their tokens are
 * scored. They are cut only if --max-tokens asks for it. */
static ckvc_status open_job(perplexity_job *j, inputs_options o, ckvc_err *err) {
    o.setting.window = 1;
    o.setting.continuation = 0;
    o.max_tokens = o.max_tokens ? o.max_tokens : INT64_MAX;
    CKVC_TRY(inputs_open_model(&o, &j->e, err));
    CKVC_TRY(inputs_open_prompts(&o, &j->e, err));
    const prompt_list *list = j->e.prompts;
    for (size_t i = 0; i < list->n * j->n_positions; i++) {
        const prompt *p = &list->items[i / j->n_positions];
        const int64_t at = j->positions[i % j->n_positions];
        USAGE_IF(at >= p->n_tokens, "--logits %lld: %s:%u has %u tokens, positions are 0 ... %u",
                 (long long)at, j->e.manifest->path, p->entry->line, p->n_tokens, p->n_tokens - 1);
    }
    j->nll = ckvc_alloc(list->max_tokens, sizeof *j->nll);
    j->logits =
        ckvc_alloc(j->n_positions * (size_t)model_get_shape(j->e.model)->vocab, sizeof *j->logits);
    return sessions_create(j->e.model, (session_limits){.max_prompt = list->max_tokens}, 1,
                           &j->session, err);
}

/* Prints a line of JSON, where --logits asks for it with the logits. They are many and float32, of
 * which nine digits read back to the same bits. */
static void print_json(const perplexity_job *j, const json_t *o) {
    const size_t vocab = (size_t)model_get_shape(j->e.model)->vocab;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    line.size--;
    for (size_t k = 0; k < j->n_positions; k++) {
        ckvc_buffer_printf(&line, "%s\"%lld\":[", k ? "," : ",\"logits\":{",
                           (long long)j->positions[k]);
        for (size_t v = 0; v < vocab; v++) {
            const double logit = (double)j->logits[k * vocab + v];
            ckvc_buffer_printf(&line, isfinite(logit) ? "%s%.9g" : "%snull", v ? "," : "", logit);
        }
        ckvc_buffer_text(&line, k + 1 == j->n_positions ? "]}" : "]");
    }
    ckvc_buffer_text(&line, "}\n");
    fwrite(line.data, 1, line.size, stdout);
}

static const char head_form[] = "id                              n     mean_nll          ppl\n",
                  prompt_form[] = "{id:-24s} {n:8d} {mean_nll:12.6f} {ppl:12.4f}\n",
                  mean_form[] =
                      "{mean&mean over prompts        {prompts:8d} {mean_nll.over_prompts:12.6f} "
                      "{ppl.over_prompts:12.4f}\n"
                      "mean over tokens         {scored_tokens:8d} {mean_nll.over_tokens:12.6f} "
                      "{ppl.over_tokens:12.4f}\n}";

static void print_prompt(const perplexity_job *j, const perplexity_cli *c, const prompt *p,
                         double mean) {
    json_auto_t *o = json_pack("{s:s}", "id", p->entry->id);
    JSON_NUMBERS(o, {"n", p->n_tokens}, {"mean_nll", mean}, {"ppl", exp(mean)});
    if (c->inputs.json) {
        if (c->tokens) { json_object_set_new(o, "nll", ckvc_json_reals(j->nll, p->n_tokens - 1)); }
        print_json(j, o);
        return;
    }
    form_print(stdout, prompt_form, o, NULL);
    for (uint32_t k = 0; c->tokens && k + 1 < p->n_tokens; k++) {
        tell("  nll[%u] %.6f (id %d)\n", k, j->nll[k], p->tokens[k + 1]);
    }
}

/* Prints means over prompts and over tokens, which are the first to compare. */
static void print_means(size_t n, size_t scored, double by_prompt, double by_token, bool json) {
    json_t *nll =
               JSON_NUMBERS(json_object(), {"over_prompts", by_prompt}, {"over_tokens", by_token}),
           *ppl = JSON_NUMBERS(json_object(), {"over_prompts", exp(by_prompt)},
                               {"over_tokens", exp(by_token)}),
           *mean = JSON_NUMBERS(json_object(), {"prompts", n}, {"scored_tokens", scored});
    json_object_set_new(mean, "mean_nll", nll);
    json_object_set_new(mean, "ppl", ppl);
    json_auto_t *o = json_pack("{s:o}", "mean", mean);
    if (json) {
        json_print_as_given(o);
    } else {
        form_print(stdout, mean_form, o, NULL);
    }
}

static ckvc_status run_job(perplexity_job *j, const perplexity_cli *c, ckvc_err *err) {
    const size_t vocab = (size_t)model_get_shape(j->e.model)->vocab, n = j->e.prompts->n;
    double sum_of_means = 0, sum = 0;
    size_t scored = 0;
    if (!c->inputs.json) { tell("%s", head_form); }
    for (size_t i = 0; i < n; i++) {
        const prompt *p = &j->e.prompts->items[i];
        CKVC_TRY(session_score(j->session, p->tokens, p->n_tokens, j->nll, err));
        CKVC_TRY(nll_check(j->nll, p->n_tokens - 1, p->entry->id, 1, err));
        for (size_t k = 0; k < j->n_positions; k++) {
            CKVC_TRY(session_logits(j->session, j->positions[k], j->logits + k * vocab, err));
        }
        const double mean = nll_mean(j->nll, p->n_tokens - 1);
        sum_of_means += mean;
        sum += mean * (p->n_tokens - 1);
        scored += p->n_tokens - 1;
        print_prompt(j, c, p, mean);
        FAIL_IF(ckvc_stop_requested(), CKVC_E_STOPPED,
                "stopped after %zu of %zu prompts; what is printed is complete", i + 1, n);
    }
    print_means(n, scored, sum_of_means / (double)n, sum / (double)scored, c->inputs.json);
    return CKVC_OK;
}

static ckvc_status perplexity(const verb_call *call, ckvc_err *err) {
    const perplexity_cli *c = call->options;
    USAGE_IF(c->logits.n && !c->inputs.json, "--logits needs --json");
    CKVC_AUTO(job_fini) perplexity_job j = {0};
    ckvc_stop_install(0);
    CKVC_TRY(read_positions(&j, &c->logits, err));
    CKVC_TRY(open_job(&j, c->inputs, err));
    return run_job(&j, c, err);
}

#define OPTIONS_OF perplexity_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_TITLE("prompts"),
    OPT_INPUT("manifest", inputs.manifest, "FILE",
              "Read the prompts from this file, one JSON object a line."),
    OPT_INT("limit", inputs.limit, "N", 0, 4e9, "Take at most N prompts; 0 means all."),
    OPT_INT("max-tokens", inputs.max_tokens, "N", 0, 1e9,
            "Cut the middle out of prompts of more than N tokens; 0 means that none is cut."),
    OPT_GROUP(opts_chat, inputs),
    OPT_FLAG("skip-short", inputs.skip_short,
             "Drop prompts of one token instead of refusing them."),
    OPT_TITLE("output"),
    OPT_FLAG("tokens", tokens, "Print the loss of every token."),
    OPT_LIST("logits", logits, "I,J,...",
             "Print the logits of these positions, counted from 0; this needs --json."),
    {0}};

const verb verb_perplexity = {
    .name = "perplexity",
    .about = "measure teacher-forced losses: is the runtime right for my model?",
    .summary =
        "measure the teacher-forced losses of token sequences: is the runtime right for my model?",
    .usage = "ckvc perplexity --model DIR --manifest FILE [options]",
    .examples =
        "  ckvc perplexity --model models/ckvc-tiny-8l --manifest prompts.jsonl\n"
        "  ckvc perplexity --model DIR --manifest prompts.jsonl --json --tokens --logits 0,17\n",
    .common = " model manifest limit threads tokens json ",
    VERB_OPTIONS(rows),
    .instead = "prompts come from --manifest",
    .work = perplexity};
