/* ckvc perplexity: teacher-forced losses of token sequences. Compare them with another
 * implementation to see whether the runtime is right for a model. The sequence is all tokens of the
 * prompt: no continuation is cut off. */
#include <errno.h>

#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

typedef struct sequence {
    const manifest_entry *entry;
    int32_t *ids; /* owned */
    size_t n;
} sequence;

typedef struct perplexity_cli {
    inputs_options inputs;
    opt_list logits;
    bool tokens;
} perplexity_cli;

typedef struct perplexity_job {
    opened_inputs e;
    sequence *sequences;
    size_t n, longest;
    int64_t positions[256]; /* --logits */
    size_t n_positions;
    session *session;
    double *nll;
    float *logits;
} perplexity_job;

static void job_fini(perplexity_job *j) {
    for (size_t i = 0; i < j->n; i++) {
        free(j->sequences[i].ids);
    }
    free(j->sequences);
    free(j->nll);
    free(j->logits);
    session_destroy(j->session);
    inputs_close(&j->e);
}

/* Ids of one manifest line, cut in the middle to max_tokens (0: not cut): the first half rounded
 * up, the last rounded down. */
static ckvc_status read_sequence(const opened_inputs *e, const manifest_entry *entry,
                                 int64_t max_tokens, sequence *out, ckvc_err *err) {
    const model_shape *shape = model_get_shape(e->model);
    const char *path = e->manifest->path;
    *out = (sequence){.entry = entry};
    CKVC_TRY(prompt_ids(e->manifest, entry, e->tok, &e->chat, &out->ids, &out->n, err));
    for (size_t i = 0; i < out->n; i++) {
        if (out->ids[i] < 0 || out->ids[i] >= shape->vocab) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s:%u: token %zu is id %d, outside the model's vocabulary of %d",
                             path, entry->line, i, out->ids[i], shape->vocab);
        }
    }
    const size_t cap = (size_t)max_tokens;
    if (cap && out->n > cap) {
        const size_t tail = cap / 2;
        memmove(out->ids + (cap - tail), out->ids + (out->n - tail), tail * sizeof *out->ids);
        out->n = cap;
    }
    if (out->n < 2) {
        return ckvc_fail(err, CKVC_E_DATA, "%s:%u: the prompt has %zu tokens, need at least 2",
                         path, entry->line, out->n);
    }
    const int64_t context = model_shape_context(shape);
    if (out->n > (size_t)context) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s:%u: the prompt has %zu tokens, the model's context is %lld; cut it "
                         "with --max-tokens %lld",
                         path, entry->line, out->n, (long long)context, (long long)context);
    }
    return CKVC_OK;
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

static ckvc_status open_job(perplexity_job *j, const inputs_options *o, ckvc_err *err) {
    USAGE_IF(!o->manifest,
             "--manifest FILE is needed: one JSON object a line with id and text or tokens");
    CKVC_TRY(inputs_open_model(o, &j->e, err));
    CKVC_TRY(manifest_read(o->manifest, &j->e.manifest, err));
    size_t n = j->e.manifest->n_entries;
    if (o->limit && n > (size_t)o->limit) { n = (size_t)o->limit; }
    j->sequences = ckvc_calloc(n, sizeof *j->sequences);
    while (j->n < n) {
        sequence *s = &j->sequences[j->n];
        const manifest_entry *entry = &j->e.manifest->entries[j->n++];
        CKVC_TRY(read_sequence(&j->e, entry, o->max_tokens, s, err));
        j->longest = s->n > j->longest ? s->n : j->longest;
        for (size_t k = 0; k < j->n_positions; k++) {
            USAGE_IF((size_t)j->positions[k] >= s->n,
                     "--logits %lld: %s:%u has %zu tokens, positions are 0 ... %zu",
                     (long long)j->positions[k], j->e.manifest->path, entry->line, s->n, s->n - 1);
        }
    }
    if (n == 0) { return CKVC_OK; }
    j->nll = ckvc_alloc(j->longest, sizeof *j->nll);
    j->logits =
        ckvc_alloc(j->n_positions * (size_t)model_get_shape(j->e.model)->vocab, sizeof *j->logits);
    return session_create(j->e.model, (session_limits){.max_prompt = (int64_t)j->longest},
                          &j->session, err);
}

static void print_json(const perplexity_job *j, const sequence *s, double mean, bool tokens) {
    const size_t vocab = (size_t)model_get_shape(j->e.model)->vocab;
    json_t *o = json_pack("{s:s}", "id", s->entry->id);
    JSON_NUMBERS(o, {"n", s->n}, {"mean_nll", mean}, {"ppl", exp(mean)});
    if (tokens) { json_object_set_new(o, "nll", ckvc_json_reals(j->nll, s->n - 1)); }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    json_decref(o);
    /* Logits are many and float32: nine digits read back to the same bits. */
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

#define ROW "%-24s %8zu %12.6f %12.4f\n"

/* Over prompts and over tokens: what one would compare first. */
static void print_means(const perplexity_job *j, double sum_of_means, double sum, size_t scored,
                        bool json) {
    const double by_prompt = sum_of_means / (double)j->n, by_token = sum / (double)scored;
    if (json) {
        json_t *nll = JSON_NUMBERS(json_object(), {"over_prompts", by_prompt},
                                   {"over_tokens", by_token}),
               *ppl = JSON_NUMBERS(json_object(), {"over_prompts", exp(by_prompt)},
                                   {"over_tokens", exp(by_token)}),
               *o = JSON_NUMBERS(json_object(), {"prompts", j->n}, {"scored_tokens", scored});
        json_object_set_new(o, "mean_nll", nll);
        json_object_set_new(o, "ppl", ppl);
        json_print_as_given(json_pack("{s:o}", "mean", o));
        return;
    }
    printf(ROW, "mean over prompts", j->n, by_prompt, exp(by_prompt));
    printf(ROW, "mean over tokens", scored, by_token, exp(by_token));
}

static ckvc_status run_job(perplexity_job *j, const inputs_options *o, bool tokens, ckvc_err *err) {
    const size_t vocab = (size_t)model_get_shape(j->e.model)->vocab;
    double sum_of_means = 0, sum = 0;
    size_t scored = 0;
    if (!o->json) { printf("%-24s %8s %12s %12s\n", "id", "n", "mean_nll", "ppl"); }
    for (size_t i = 0; i < j->n; i++) {
        const sequence *s = &j->sequences[i];
        CKVC_TRY(session_score(j->session, s->ids, (int64_t)s->n, j->nll, err));
        for (size_t k = 0; k < j->n_positions; k++) {
            CKVC_TRY(session_logits(j->session, j->positions[k], j->logits + k * vocab, err));
        }
        const double mean = nll_mean(j->nll, (int64_t)s->n - 1);
        sum_of_means += mean;
        sum += mean * (double)(s->n - 1);
        scored += s->n - 1;
        if (o->json) {
            print_json(j, s, mean, tokens);
        } else {
            printf(ROW, s->entry->id, s->n, mean, exp(mean));
            for (size_t k = 0; tokens && k + 1 < s->n; k++) {
                printf("  nll[%zu] %.6f (id %d)\n", k, j->nll[k], s->ids[k + 1]);
            }
        }
        if (ckvc_stop_requested()) {
            return ckvc_fail(err, CKVC_E_STOPPED,
                             "stopped after %zu of %zu prompts; what is printed is complete", i + 1,
                             j->n);
        }
    }
    if (j->n) { print_means(j, sum_of_means, sum, scored, o->json); }
    return CKVC_OK;
}

static ckvc_status perplexity(const verb_call *call, ckvc_err *err) {
    const perplexity_cli *c = call->options;
    USAGE_IF(c->logits.n && !c->inputs.json, "--logits needs --json");
    CKVC_AUTO(job_fini) perplexity_job j = {0};
    ckvc_stop_install();
    CKVC_TRY(read_positions(&j, &c->logits, err));
    CKVC_TRY(open_job(&j, &c->inputs, err));
    return run_job(&j, &c->inputs, c->tokens, err);
}

#define OPTIONS_OF perplexity_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_TITLE("prompts"),
    OPT_INPUT("manifest", inputs.manifest, "FILE", "prompts, one JSON object a line"),
    OPT_INT("limit", inputs.limit, "N", 0, 4e9, "prompts at most; 0: all"),
    OPT_INT("max-tokens", inputs.max_tokens, "N", 0, 1e9,
            "cut longer prompts in the middle; 0: never"),
    OPT_GROUP(opts_chat, inputs),
    OPT_TITLE("output"),
    OPT_FLAG("tokens", tokens, "the loss of every token"),
    OPT_LIST("logits", logits, "I,J,...", "logits of these positions (from 0; needs --json)"),
    {0}};

const verb verb_perplexity = {
    .name = "perplexity",
    .about = "teacher-forced losses: is the runtime right for my model?",
    .summary = "teacher-forced losses of token sequences: is the runtime right for my model?",
    .usage = "ckvc perplexity --model DIR --manifest FILE [options]",
    .examples =
        "  ckvc perplexity --model models/ckvc-tiny-8l --manifest prompts.jsonl\n"
        "  ckvc perplexity --model DIR --manifest prompts.jsonl --json --tokens --logits 0,17\n",
    VERB_OPTIONS(rows),
    .instead = "prompts come from --manifest",
    .work = perplexity};
