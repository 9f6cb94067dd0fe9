/* What most verbs open before they work: threads, backend, model, tokenizer, manifest, prompts; and
 * the option rows for them, so that the same option means the same in every verb. */
#ifndef CKVC_OPENED_INPUTS_H
#define CKVC_OPENED_INPUTS_H

#include "calib/prompt/prompts.h"
#include "cmd/common/options.h"
#include "formats/lines/manifest.h"
#include "formats/table/table_file.h"
#include "lib/backend/backend.h"
#include "lib/base/pool.h"
#include "lib/model/model.h"
#include "lib/token/tokenizer.h"

typedef struct inputs_options {
    const char *model, *manifest, *backend, *compute;
    int64_t threads, memory; /* memory in bytes, 0: three quarters of what is free */
    bool quiet, json;
    /* prompts */
    opt_list split;
    int64_t window, continuation, max_tokens, limit, seed;
    bool skip_short;
    const char *chat_template, *chat_date;
    double holdout;
    const char *alpha;
    int64_t keep_window;
} inputs_options;

inputs_options inputs_defaults(void);

#define OPTS_MODEL(o)                                                                               \
    {OPT_TITLE, "model and machine", 0, NULL, NULL, NULL, 0, 0},                                    \
        {OPT_TEXT, "model", 'm', &(o).model, "DIR", "Hugging Face model directory, or GGUF file",   \
         0,        0},                                                                              \
        {OPT_CHOICE,         "backend", 0, &(o).backend, "auto|cpu|openblas|cuda",                  \
         "where to compute", 0,         0},                                                         \
        {OPT_CHOICE, "compute", 0, &(o).compute, "f32|bf16", "arithmetic of products with weights", \
         0,          0},                                                                            \
        {OPT_INT, "threads", 't', &(o).threads, "N", "worker threads; results do not depend on it", \
         1,       1024},                                                                            \
        {OPT_SIZE,    "memory", 0,                                                                  \
         &(o).memory, "SIZE",   "use at most, as far as a model allows; 0: 3/4 of what is free",    \
         0,           0},                                                                           \
        {OPT_FLAG, "quiet", 'q', &(o).quiet, "", "no progress on stderr", 0, 0}, {                  \
        OPT_FLAG, "json", 0, &(o).json, "", "machine-readable output", 0, 0                         \
    }

#define OPT_CHAT_TEMPLATE(o)                                                                       \
    {OPT_CHOICE,                                                                                   \
     "chat-template",                                                                              \
     0,                                                                                            \
     &(o).chat_template,                                                                           \
     "auto|llama3|mistral|chatml|internlm2|none",                                                  \
     "how \"messages\" become text; auto: by the tokenizer's tokens",                              \
     0,                                                                                            \
     0},                                                                                           \
    {                                                                                              \
        OPT_TEXT, "chat-date", 0, &(o).chat_date, "TEXT",                                          \
            "\"Today Date\" of Llama 3.1's and 3.2's template", 0, 0                               \
    }

#define OPTS_PROMPTS(o)                                                                            \
    {OPT_TITLE, "prompts", 0, NULL, NULL, NULL, 0, 0},                                             \
        {OPT_TEXT, "manifest", 0, &(o).manifest, "FILE", "prompts, one JSON object a line", 0, 0}, \
        {OPT_LIST, "split", 0, &(o).split, "NAME,...", "only prompts of these splits", 0, 0},      \
        {OPT_INT, "limit", 0, &(o).limit, "N", "prompts at most; 0: all", 0, 4e9},                 \
        {OPT_INT, "max-tokens",                                                                    \
         0,       &(o).max_tokens,                                                                 \
         "N",     "cut longer prompts in the middle; 0: context - continuation",                   \
         0,       1e9},                                                                            \
        OPT_CHAT_TEMPLATE(o), {                                                                    \
        OPT_FLAG, "skip-short", 0, &(o).skip_short, "",                                            \
            "drop prompts of window tokens or fewer instead of refusing them", 0, 0                \
    }

#define OPTS_STATISTICS(o, min_continuation)                                                         \
    {OPT_TITLE, "statistics", 0, NULL, NULL, NULL, 0, 0},                                            \
        {OPT_INT, "window", 'W', &(o).window, "N", "observation window, the prompt's last N tokens", \
         1,       1e6},                                                                              \
        {OPT_INT,                                                                                    \
         "continuation",                                                                             \
         'C',                                                                                        \
         &(o).continuation,                                                                          \
         "N",                                                                                        \
         "tokens that a decision is scored on",                                                      \
         min_continuation,                                                                           \
         1e6},                                                                                       \
        {OPT_CHOICE,                                                                                 \
         "alpha",                                                                                    \
         0,                                                                                          \
         &(o).alpha,                                                                                 \
         "paper|visible",                                                                            \
         "attention mass as the paper has it, or per row that can see it",                           \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_INT, "keep-window",                                                                     \
         0,       &(o).keep_window,                                                                  \
         "N",     "always keep the last N tokens (within the budget)",                               \
         0,       1e6},                                                                              \
        {OPT_DOUBLE, "holdout",                                                                      \
         0,          &(o).holdout,                                                                   \
         "F",        "share of prompts held out, drawn by seed and id, not by document",             \
         0,          1},                                                                             \
    {                                                                                                \
        OPT_INT, "seed", 0, &(o).seed, "N", "names every random stream", 0, 9e15                     \
    }

#define OPT_LAYER_BUDGETS(value)                                                                   \
    {                                                                                              \
        OPT_TEXT, "layer-budgets", 0, &(value), "FILE",                                            \
            "a budget of its own for each layer, one number a line", 0, 0                          \
    }

typedef struct opened_inputs {
    ckvc_pool *pool;
    backend *be;
    model *model;
    tokenizer *tok; /* NULL: the directory has none */
    manifest *manifest;
    prompt_list *prompts;
    prompt_options prompt_options;
    chat_template chat;
} opened_inputs;

/* Threads and backend alone. Warns on stderr of a slow BLAS kernel. */
ckvc_status inputs_open_machine(const inputs_options *o, opened_inputs *e,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Threads, backend, model, tokenizer (when the directory has one) and chat template. */
ckvc_status inputs_open_model(const inputs_options *o, opened_inputs *e,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* The tokenizer of a model directory; NULL when it has none. */
ckvc_status inputs_open_tokenizer(const char *dir, tokenizer **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Then the manifest and its prompts. */
ckvc_status inputs_open_prompts(const inputs_options *o, opened_inputs *e,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* A table for this model that was made under this run's --alpha, --keep-window and --window;
 * otherwise CKVC_E_MISMATCH that says what differs. table_file_free it. */
ckvc_status inputs_read_table(const inputs_options *o, const opened_inputs *e, const char *path,
                              table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
void inputs_close(opened_inputs *e);
/* --budget values: >= 1 whole tokens, < 1 a share of T; distinct. [256] */
ckvc_status inputs_budgets(const opt_list *list, double *budgets, uint32_t *n,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* --variants: distinct rollouts, -1 for all. */
ckvc_status inputs_variants(const char *text, int64_t *variants, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_alpha_kind inputs_alpha(const inputs_options *o);
/* Warns, once, when --keep-window leaves nothing of a budget for the rest of the prompt: of the
 * shortest prompt, under the smallest of budgets [n]. */
void inputs_warn_kept_window(const inputs_options *o, const opened_inputs *e, const double *budgets,
                             size_t n);

#endif
