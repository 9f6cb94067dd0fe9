/* What most verbs open before they work: threads, backend, model, tokenizer, manifest and
 * prompts. The rows of options for them stand here as well, so that the same option means the
 * same in every verb. */
#pragma once

#include "judge/policies/rules/reconstruction.h"
#include "calib/prompt/prompts.h"
#include "cmd/common/options.h"
#include "formats/lines/manifest.h"
#include "formats/table/table_file.h"
#include "lib/backend/backend.h"
#include "lib/base/json.h"
#include "lib/base/pool.h"
#include "lib/model/model.h"
#include "lib/token/tokenizer.h"

typedef struct inputs_options {
    const char *model, *manifest, *backend;
    int64_t threads;
    size_t memory; /* bytes; 0: three quarters of what is free */
    bool quiet, json;
    /* prompts */
    opt_list split;
    int64_t max_tokens, limit;
    bool skip_short;
    const char *chat_template, *chat_date;
    double holdout, select;
    setting setting;
} inputs_options;

/* Rows of inputs_options. */
extern const opt opts_model[];      /* model and machine */
extern const opt opts_prompts[];    /* prompts */
extern const opt opts_statistics[]; /* statistics; --continuation 0 is for verbs that take it */
extern const opt opts_formats[];    /* in which what is kept is held */
extern const opt opts_chat[];       /* how messages become text; opts_prompts has them */
#define OPT_CHAT_TEMPLATE                                                                          \
    OPT_CHOICE("chat-template", chat_template, CHAT_STYLES,                                        \
               "Turn the \"messages\" of a line into text by this template; auto takes the "       \
               "model's own, if ckvc knows its text.")
/* A verb that can be stopped has this option, and gives its value to ckvc_stop_install. */
#define OPT_LIMIT_TIME(member)                                                                     \
    OPT_INT("limit-time", member, "S", 0, 1e9,                                                     \
            "Stop cleanly after S seconds, with exit code 75; 0 means no limit.")
#define OPT_LAYER_BUDGETS(member)                                                                  \
    OPT_INPUT("layer-budgets", member, "FILE",                                                     \
              "Read a budget of its own for each layer from this file, one number a line.")

typedef struct opened_inputs {
    ckvc_pool *pool;
    backend *be;
    model *model;
    tokenizer *tok; /* NULL: the directory has none */
    manifest *manifest;
    bool short_too;  /* prompts of W tokens or fewer are taken, too */
    int64_t longest; /* prompts are cut to that many tokens, too; 0: only to what was asked for */
    /* The token ids with which a prompt's repetition is asked for (inputs_open_instruction), and
     * the name of what asks for it. kvzip has a second text, for later chunks. */
    int32_t *instruction, *later;
    uint32_t n_instruction;
    const char *instruction_of;
    reconstruction_texts kvzip;
    prompt_list *prompts;
    prompt_options prompt_options;
    chat_template chat;
} opened_inputs;

/* Opens threads and backend alone. Warns on stderr of a slow BLAS kernel. *e must be zero
 * before, and the caller closes it with inputs_close, also after a failure. */
ckvc_status inputs_open_machine(const inputs_options *o, opened_inputs *e,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Opens threads, backend, model, tokenizer (when the directory has one) and chat template. */
ckvc_status inputs_open_model(const inputs_options *o, opened_inputs *e,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the tokenizer of a model directory and checks that it fits the model's vocabulary. *out
 * is NULL when the directory has none. */
ckvc_status inputs_open_tokenizer(const char *dir, int32_t vocab, tokenizer **out,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the tokenizer alone. A directory without one is CKVC_E_NOINPUT. */
ckvc_status inputs_need_tokenizer(const char *dir, tokenizer **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Turns a blank line and --repeat's text, with which a prompt's repetition is asked for, into
 * token ids. Prompts that are opened after this call are cut, with a warning, to what the
 * context holds beside the text and the repetition. */
ckvc_status inputs_open_instruction(const inputs_options *o, opened_inputs *e,
                                    ckvc_err *err) CKVC_MUST_CHECK;
/* Does the same for the texts of kvzip, and leaves them in e->kvzip. */
ckvc_status inputs_open_kvzip(const inputs_options *o, opened_inputs *e,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Reads all of standard input, and puts a NUL behind it. */
ckvc_status inputs_read_stdin(ckvc_buffer *in, ckvc_err *err) CKVC_MUST_CHECK;
/* Comes after the functions above: reads the manifest, unless there is one already, and its
 * prompts. */
ckvc_status inputs_open_prompts(const inputs_options *o, opened_inputs *e,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Takes what decides kept sets from the table at `path`, except where an option was given. */
ckvc_status inputs_take_setting(inputs_options *o, const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads a table that was made for this model under this run's --alpha, --keep-window and
 * --window. Otherwise CKVC_E_MISMATCH says what differs. The caller releases the table with
 * table_file_free. */
ckvc_status inputs_read_table(const inputs_options *o, const opened_inputs *e, const char *path,
                              table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Checks that what `path` was made for is this model. Its fingerprint says so (NULL: it is not
 * known), or, with a line on stderr that names both models, its sketch does (lib/base/sketch.h;
 * "": there is none). `name` is the model's name, or NULL. Another model is CKVC_E_MISMATCH. */
ckvc_status inputs_same_model(const opened_inputs *e, const char *path, const char *name,
                              const char *fingerprint, const char *sketch,
                              ckvc_err *err) CKVC_MUST_CHECK;
void inputs_close(opened_inputs *e);
/* Reads --variants: the number of distinct rollouts, or -1 for all. */
ckvc_status inputs_variants(const char *text, int64_t *variants, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the two numbers of --bins. */
ckvc_status inputs_bins(const opt_list *list, uint32_t *n_entropy, uint32_t *n_ppl,
                        ckvc_err *err) CKVC_MUST_CHECK;
/* Compares budgets with the prompts. When a budget keeps nothing of a prompt that is longer than
 * the window, CKVC_E_USAGE names that prompt. This warns of budgets that leave nothing to
 * decide: either --keep-window takes the whole budget (looked at for the shortest prompt, and
 * said once), or the budget keeps all of a prompt. */
ckvc_status inputs_judge_budgets(const inputs_options *o, const opened_inputs *e,
                                 setting_list budgets, ckvc_err *err) CKVC_MUST_CHECK;
