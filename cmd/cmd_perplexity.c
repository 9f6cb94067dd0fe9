/* ckvc perplexity: teacher-forced losses of token sequences. Compare them with another
 * implementation to see whether the runtime is right for a model. The sequence is all tokens of the
 * prompt: no continuation is cut off. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "lib/base/buffer.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
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
    manifest *manifest;
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
    manifest_free(j->manifest);
    inputs_close(&j->e);
}

/* Ids of one manifest line, cut in the middle to max_tokens (0: not cut): the first half rounded
 * up, the last rounded down. */
static ckvc_status read_sequence(const perplexity_job *j, const manifest_entry *entry,
                                 int64_t max_tokens, sequence *out, ckvc_err *err) {
    const model_shape *shape = model_get_shape(j->e.model);
    const char *path = j->manifest->path;
    *out = (sequence){.entry = entry};
    ckvc_status st = prompt_ids(j->manifest, entry, j->e.tok, &j->e.chat, &out->ids, &out->n, err);
    if (st != CKVC_OK) { return st; }
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
        if (*end || end == list->items[i] || errno || v < 0) {
            return ckvc_fail(err, CKVC_E_USAGE,
                             "--logits: got '%s', wanted positions counted from 0", list->items[i]);
        }
        j->positions[j->n_positions++] = v;
    }
    return CKVC_OK;
}

static ckvc_status open_job(perplexity_job *j, const inputs_options *o, ckvc_err *err) {
    if (!o->manifest) {
        return ckvc_fail(
            err, CKVC_E_USAGE,
            "--manifest FILE is needed: one JSON object a line with id and text or tokens");
    }
    ckvc_status st = inputs_open_model(o, &j->e, err);
    if (st == CKVC_OK) { st = manifest_read(o->manifest, &j->manifest, err); }
    if (st != CKVC_OK) { return st; }
    size_t n = j->manifest->n_entries;
    if (o->limit && n > (size_t)o->limit) { n = (size_t)o->limit; }
    j->sequences = ckvc_calloc(n, sizeof *j->sequences);
    for (; j->n < n; j->n++) {
        sequence *s = &j->sequences[j->n];
        st = read_sequence(j, &j->manifest->entries[j->n], o->max_tokens, s, err);
        if (st != CKVC_OK) {
            free(s->ids);
            return st;
        }
        j->longest = s->n > j->longest ? s->n : j->longest;
        for (size_t k = 0; k < j->n_positions; k++) {
            if ((size_t)j->positions[k] >= s->n) {
                free(s->ids);
                return ckvc_fail(err, CKVC_E_USAGE,
                                 "--logits %lld: %s:%u has %zu tokens, positions are 0 ... %zu",
                                 (long long)j->positions[k], j->manifest->path, s->entry->line,
                                 s->n, s->n - 1);
            }
        }
    }
    if (n == 0) { return CKVC_OK; }
    j->nll = ckvc_alloc(j->longest, sizeof *j->nll);
    j->logits =
        ckvc_alloc(j->n_positions * (size_t)model_get_shape(j->e.model)->vocab, sizeof *j->logits);
    if (!j->nll || !j->logits) {
        return ckvc_fail_memory(err, "the losses", j->longest * sizeof *j->nll);
    }
    return session_create(j->e.model, (session_limits){.max_prompt = (int64_t)j->longest},
                          &j->session, err);
}

/* One float32 so that it reads back to the same bits. */
static void append_float(ckvc_buffer *b, float v) {
    if (isfinite(v)) {
        ckvc_buffer_printf(b, "%.9g", (double)v);
    } else {
        ckvc_buffer_text(b, "null");
    }
}

static void append_number(ckvc_buffer *b, double v) {
    json_t *real = ckvc_json_real(v);
    ckvc_json_append(b, real);
    json_decref(real);
}

static ckvc_status print_json(const perplexity_job *j, const sequence *s, double mean, bool tokens,
                              ckvc_err *err) {
    ckvc_buffer b = {0};
    json_t *id = json_string(s->entry->id);
    const size_t vocab = (size_t)model_get_shape(j->e.model)->vocab;
    ckvc_buffer_text(&b, "{\"id\":");
    ckvc_json_append(&b, id);
    json_decref(id);
    ckvc_buffer_printf(&b, ",\"n\":%zu,\"mean_nll\":", s->n);
    append_number(&b, mean);
    ckvc_buffer_text(&b, ",\"ppl\":");
    append_number(&b, exp(mean));
    if (tokens) {
        ckvc_buffer_text(&b, ",\"nll\":[");
        for (size_t i = 0; i + 1 < s->n; i++) {
            ckvc_buffer_text(&b, i ? "," : "");
            append_number(&b, j->nll[i]);
        }
        ckvc_buffer_text(&b, "]");
    }
    for (size_t k = 0; k < j->n_positions; k++) {
        ckvc_buffer_printf(&b, "%s\"%lld\":[", k ? "," : ",\"logits\":{",
                           (long long)j->positions[k]);
        for (size_t v = 0; v < vocab; v++) {
            ckvc_buffer_text(&b, v ? "," : "");
            append_float(&b, j->logits[k * vocab + v]);
        }
        ckvc_buffer_text(&b, k + 1 == j->n_positions ? "]}" : "]");
    }
    ckvc_buffer_text(&b, "}\n");
    ckvc_status st = b.failed ? ckvc_fail_memory(err, "a line of output", b.size) : CKVC_OK;
    if (st == CKVC_OK) { fwrite(b.data, 1, b.size, stdout); }
    ckvc_buffer_fini(&b);
    return st;
}

static ckvc_status run_job(perplexity_job *j, const inputs_options *o, bool tokens, ckvc_err *err) {
    if (!o->json) { printf("%-24s %8s %12s %12s\n", "id", "n", "mean_nll", "ppl"); }
    for (size_t i = 0; i < j->n; i++) {
        const sequence *s = &j->sequences[i];
        ckvc_status st = session_score(j->session, s->ids, (int64_t)s->n, j->nll, j->positions,
                                       (int64_t)j->n_positions, j->logits, err);
        if (st != CKVC_OK) { return st; }
        const double mean = nll_mean(j->nll, (int64_t)s->n - 1);
        if (o->json) {
            st = print_json(j, s, mean, tokens, err);
            if (st != CKVC_OK) { return st; }
        } else {
            printf("%-24s %8zu %12.6f %12.4f\n", s->entry->id, s->n, mean, exp(mean));
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
    return CKVC_OK;
}

static ckvc_status perplexity(void *cli, const opt *opts, ckvc_err *err) {
    const perplexity_cli *c = cli;
    (void)opts;
    if (c->logits.n && !c->inputs.json) {
        return ckvc_fail(err, CKVC_E_USAGE, "--logits needs --json");
    }
    perplexity_job j = {0};
    ckvc_stop_install();
    ckvc_status st = read_positions(&j, &c->logits, err);
    if (st == CKVC_OK) { st = open_job(&j, &c->inputs, err); }
    if (st == CKVC_OK) { st = run_job(&j, &c->inputs, c->tokens, err); }
    job_fini(&j);
    return st;
}

int cmd_perplexity(int argc, char **argv) {
    static const verb_text verb = {
        "perplexity",
        "teacher-forced losses of token sequences: is the runtime right for my model?",
        "ckvc perplexity --model DIR --manifest FILE [options]",
        "  ckvc perplexity --model models/ckvc-tiny-8l --manifest prompts.jsonl\n"
        "  ckvc perplexity --model DIR --manifest prompts.jsonl --json --tokens --logits 0,17\n"};
    perplexity_cli c = {.inputs = inputs_defaults()};
    opt opts[] = {
        OPTS_MODEL(c.inputs),
        {OPT_TITLE, "prompts", 0, NULL, NULL, NULL, 0, 0},
        {OPT_TEXT, "manifest", 0, &c.inputs.manifest, "FILE", "prompts, one JSON object a line", 0,
         0},
        {OPT_INT, "limit", 0, &c.inputs.limit, "N", "prompts at most; 0: all", 0, 4e9},
        {OPT_INT, "max-tokens", 0, &c.inputs.max_tokens, "N",
         "cut longer prompts in the middle; 0: never", 0, 1e9},
        OPT_CHAT_TEMPLATE(c.inputs),
        {OPT_TITLE, "output", 0, NULL, NULL, NULL, 0, 0},
        {OPT_FLAG, "tokens", 0, &c.tokens, "", "the loss of every token", 0, 0},
        {OPT_LIST, "logits", 0, &c.logits, "I,J,...",
         "logits of these positions (from 0; needs --json)", 0, 0},
        {0},
    };
    return verb_run(&verb, opts, "prompts come from --manifest", argc, argv, perplexity, &c);
}
