/* Opening what most verbs need: see opened_inputs.h. */
#include "cmd/common/opened_inputs.h"

#include "calib/demand/demand_meter.h"
#include "calib/rollout/memory_plan.h"
#include "formats/model/model_files.h"
#include "formats/tokenizer/tokenizer_files.h"
#include "lib/base/progress.h"

#define OPTIONS_OF inputs_options
const opt opts_model[] = {
    OPT_TITLE("model and machine"),
    OPT_INPUT("model", model, "DIR",
              "Read the model from this Hugging Face directory or GGUF file.", .letter = 'm'),
    OPT_CHOICE("backend", backend, "auto|cpu|openblas|cuda",
               "Compute on this backend; auto takes a GPU where there is one."),
    OPT_SETTING_NAME(
        "compute", setting,
        "Multiply with weights in this arithmetic; bf16 rounds the operands and sums in float32."),
    OPT_INT("threads", threads, "N", 1, 1024,
            "Work with N threads; results do not depend on their number.", .letter = 't',
            .preset_of = ckvc_cpu_count),
    OPT_SIZE("memory", memory,
             "Use at most this much memory, as far as the model allows it; 0 means three quarters "
             "of what is free."),
    OPT_FLAG("quiet", quiet, "Show no progress on standard error.", .letter = 'q'),
    OPT_FLAG("json", json, "Print the result as JSON."),
    {0}};

const opt opts_chat[] = {
    OPT_CHAT_TEMPLATE,
    OPT_TEXT("chat-date", chat_date, "TEXT",
             "Name this date as \"Today Date\" in the templates of Llama 3.1 and 3.2.",
             .preset = CHAT_DATE),
    {0}};

const opt opts_prompts[] = {
    OPT_TITLE("prompts"),
    OPT_INPUT("manifest", manifest, "FILE",
              "Read the prompts from this file, one JSON object a line."),
    OPT_LIST("split", split, "NAME,...", "Take only the prompts of these splits."),
    OPT_INT("limit", limit, "N", 0, 4e9, "Take at most N prompts; 0 means all."),
    OPT_INT("max-tokens", max_tokens, "N", 0, 1e9,
            "Cut the middle out of prompts of more than N tokens; 0 means the model's context less "
            "the continuation."),
    OPT_ROWS(opts_chat),
    OPT_FLAG("skip-short", skip_short,
             "Drop prompts that are no longer than the window; without this option score and "
             "generate keep them whole, and other verbs refuse them."),
    {0}};

const opt opts_statistics[] = {
    OPT_TITLE("statistics"),
    OPT_SETTING("window", setting, "N", 1, 1e6,
                "Observe attention in a window of the prompt's last N tokens.", .letter = 'W'),
    OPT_SETTING("continuation", setting, "N", 0, 1e6,
                "Measure losses over N tokens behind the prompt.", .letter = 'C'),
    OPT_SETTING_NAME("alpha", setting,
                     "Measure a position's attention mass as the paper does, or per row that can "
                     "see the position."),
    OPT_SETTING("keep-window", setting, "N", 0, 1e6,
                "Always keep the last N tokens, within the budget."),
    OPT_DOUBLE("holdout", holdout, "F", 0, 1,
               "Hold out this share of the prompts, drawn by --seed and the prompt's id, not by "
               "document."),
    OPT_SETTING("seed", setting, "N", 0, 9e15, "Draw every random number from this seed."),
    {0}};

const opt opts_formats[] = {
    OPT_SETTING_NAME("cache-keys", setting,
                     "Hold the keys of what is kept, and of the tokens behind it, in this format; "
                     "with +mean the mean key of each head is taken out first, and with +rot each "
                     "head is rotated, as in llama.cpp."),
    OPT_SETTING_NAME("cache-values", setting,
                     "Hold their values in this format; those with +mean are for keys alone."),
    {0}};

static void warn_kept_window(const inputs_options *o, setting_list budgets, uint32_t shortest) {
    for (uint32_t b = 0; o->setting.keep_window > 0 && b < budgets.n; b++) {
        const uint32_t tokens = ckvc_budget_tokens(budgets.v[b], shortest);
        if (o->setting.keep_window >= tokens) {
            ckvc_warn("--keep-window %u takes all of budget %g, %u tokens of a prompt of %u: "
                      "nothing outside the window can be kept there; give a smaller --keep-window "
                      "or a larger --budget",
                      o->setting.keep_window, budgets.v[b], tokens, shortest);
            return;
        }
    }
}

ckvc_status inputs_judge_budgets(const inputs_options *o, const opened_inputs *e,
                                 setting_list budgets, ckvc_err *err) {
    const prompt_list *list = e->prompts;
    const long long context = model_shape_context(model_get_shape(e->model));
    uint32_t shortest = UINT32_MAX;
    bool noted = o->quiet;
    for (size_t i = 0; i < list->n; i++) {
        const uint32_t T = list->items[i].n_tokens;
        shortest = T < shortest ? T : shortest;
    }
    if (list->n == 0) { return CKVC_OK; }
    if (shortest > o->setting.window) { warn_kept_window(o, budgets, shortest); }
    for (uint32_t b = 0; b < budgets.n; b++) {
        /* whole: the number of prompts that the budget keeps all of. same: the first budget of
         * this value. */
        size_t whole = 0, same = 0;
        for (size_t i = 0; i < list->n; i++) {
            const uint32_t T = list->items[i].n_tokens, B = ckvc_budget_tokens(budgets.v[b], T);
            USAGE_IF(
                B == 0 && T > o->setting.window,
                "budget %.10g keeps none of the %u tokens of prompt \"%s\": give at least %.3g "
                "(--budget), or leave out prompts that are this short",
                budgets.v[b], T, list->items[i].entry->id, ceil(1e3 / T) / 1e3);
            whole += B >= T;
        }
        if (budgets.v[b] >= 1 && 20 * budgets.v[b] < list->max_tokens && !noted) {
            /* somebody may have meant per cent; once, as layers may have budgets of their own */
            say("note: budget %.10g keeps %.10g tokens of each head, %.2g%% of the longest prompt; "
                "a share is a number below 1, such as 0.25\n",
                budgets.v[b], budgets.v[b], 100 * budgets.v[b] / list->max_tokens);
            noted = true;
        }
        while (budgets.v[same] != budgets.v[b]) { same++; }
        if (same < b || whole == 0) { continue; }
        if (budgets.v[b] >= (double)context) {
            ckvc_warn("budget %.10g is not below the model's context of %lld tokens: nothing is "
                      "evicted; give a smaller --budget",
                      budgets.v[b], context);
        } else {
            ckvc_warn("budget %.10g keeps all of %zu of the %zu prompts (%u to %u tokens): nothing "
                      "is evicted there; give a smaller --budget",
                      budgets.v[b], whole, list->n, shortest, list->max_tokens);
        }
    }
    return CKVC_OK;
}

ckvc_status inputs_open_machine(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    ckvc_progress_quiet(o->quiet);
    CKVC_TRY(ckvc_pool_create((int)o->threads, &e->pool, err));
    CKVC_TRY(backend_create(o->backend, o->setting.compute, e->pool, &e->be, err));
    if (e->be->compute_warning[0]) { ckvc_warn("%s", e->be->compute_warning); }
    if (e->be->warning[0]) { ckvc_warn("%s", e->be->warning); }
    e->be->ops->weight_limit(e->be, memory_plan_limit(e->be, o->memory));
    return CKVC_OK;
}

ckvc_status inputs_need_tokenizer(const char *dir, tokenizer **out, ckvc_err *err) {
    token_spec *spec = NULL;
    CKVC_AUTO_FREE char *path = NULL;
    *out = NULL;
    CKVC_TRY(tokenizer_files_read(dir, &spec, &path, err));
    return tokenizer_build(spec, path, out, err);
}

ckvc_status inputs_open_tokenizer(const char *dir, int32_t vocab, tokenizer **out, ckvc_err *err) {
    ckvc_err problem = {0};
    const ckvc_status st = inputs_need_tokenizer(dir, out, &problem);
    if (st == CKVC_OK) { return tokenizer_fits(*out, vocab, err); }
    if (st == CKVC_E_NOINPUT) { return CKVC_OK; /* prompts may be given as ids */ }
    return ckvc_fail(err, st, "%s", problem.text);
}

ckvc_status inputs_open_model(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    USAGE_IF(!o->model, "--model DIR is needed: a Hugging Face model directory, or a GGUF file");
    CKVC_TRY(inputs_open_machine(o, e, err));
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    CKVC_TRY(model_files_read(o->model, &spec, err));
    CKVC_TRY(inputs_open_tokenizer(o->model, spec->shape.vocab, &e->tok, err));
    if (e->tok) { spec->words = tokenizer_words(e->tok); }
    CKVC_TRY(model_open(ckvc_take(&spec), e->be, &e->model, err));
    CKVC_TRY(chat_template_choose(o->chat_template, e->tok, &e->chat, err));
    return strcmp(o->chat_date, CHAT_DATE) == 0 ? CKVC_OK
                                                : chat_template_date(&e->chat, o->chat_date, err);
}

static ckvc_status text_ids(const opened_inputs *e, const char *text, int32_t **ids, uint32_t *n,
                            ckvc_err *err) {
    size_t count;
    CKVC_TRY(tokenizer_encode(e->tok, text, strlen(text), false, ids, &count, err));
    *n = (uint32_t)count;
    return CKVC_OK;
}

/* Has prompts cut to `longest` tokens, which leaves room in the context for their repetition. */
static ckvc_status cut_prompts(const inputs_options *o, opened_inputs *e, int64_t longest,
                               const char *of, ckvc_err *err) {
    const int64_t context = model_shape_context(model_get_shape(e->model));
    USAGE_IF(
        longest <= o->setting.window,
        "%s has %u tokens: the model's context of %" PRId64
        " does not hold a prompt of more than --window %u tokens, this text and the prompt again",
        of, e->n_instruction, context, o->setting.window);
    if (longest < context - o->setting.continuation) { e->longest = longest; }
    e->instruction_of = of;
    return CKVC_OK;
}

ckvc_status inputs_open_instruction(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    const int64_t context = model_shape_context(model_get_shape(e->model));
    CKVC_AUTO_FREE char *text = ckvc_format("\n\n%s", o->setting.repeat);
    USAGE_IF(!e->tok,
             "%s: has no tokenizer for --repeat's text; add its tokenizer.json, or say --no-repeat",
             o->model);
    CKVC_TRY(text_ids(e, text, &e->instruction, &e->n_instruction, err));
    return cut_prompts(o, e, repeat_longest(context, e->n_instruction), "--repeat", err);
}

ckvc_status inputs_open_kvzip(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    const int64_t context = model_shape_context(model_get_shape(e->model));
    USAGE_IF(!e->tok,
             "%s: has no tokenizer for kvzip's text; add its tokenizer.json, or leave out kvzip",
             o->model);
    CKVC_TRY(text_ids(e, RECONSTRUCTION_TEXT, &e->instruction, &e->n_instruction, err));
    CKVC_TRY(text_ids(e, RECONSTRUCTION_LATER, &e->later, &e->kvzip.n_later, err));
    e->kvzip.first = e->instruction;
    e->kvzip.n_first = e->n_instruction;
    e->kvzip.later = e->later;
    return cut_prompts(o, e, reconstruction_longest(&e->kvzip, context), "kvzip", err);
}

enum { MAX_INPUT_BYTES = 1 << 30 };

ckvc_status inputs_read_stdin(ckvc_buffer *in, ckvc_err *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0 && in->size <= MAX_INPUT_BYTES) {
        ckvc_buffer_append(in, block, n);
    }
    CKVC_FAIL_ERRNO_IF(ferror(stdin), err, CKVC_E_IO, "standard input");
    FAIL_IF(in->size > MAX_INPUT_BYTES, CKVC_E_DATA,
            "standard input: more than %d bytes; split the text", MAX_INPUT_BYTES);
    ckvc_buffer_append(in, "", 0);
    return CKVC_OK;
}

ckvc_status inputs_open_prompts(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    USAGE_IF(!o->manifest && !e->manifest,
             "--manifest FILE is needed: `ckvc manifest build` makes one from text");
    e->prompt_options = (prompt_options){
        .splits = o->split.items,
        .n_splits = o->split.n,
        .window = e->short_too && !o->skip_short ? 0 : o->setting.window,
        .continuation = o->setting.continuation,
        .max_tokens = e->longest && (o->max_tokens == 0 || o->max_tokens > e->longest)
                          ? e->longest
                          : o->max_tokens,
        .skip_short = o->skip_short,
        .after_first = o->setting.compress_after == SETTING_TURN_FIRST,
        .limit = o->limit,
        .holdout = o->holdout,
        .select = o->select,
        .seed = o->setting.seed,
        .chat = e->chat};
    if (!e->manifest) { CKVC_TRY(manifest_read(o->manifest, &e->manifest, err)); }
    CKVC_TRY(prompts_build(e->manifest, e->tok, model_get_shape(e->model), &e->prompt_options,
                           &e->prompts, err));
    if (e->longest && e->prompts->n_cut && e->prompts->max_tokens == e->longest) {
        ckvc_warn("prompts are cut to %" PRId64 " tokens: the model's context of %" PRId64
                  " holds no more beside the %u tokens of %s and the prompt's repetition",
                  e->longest, model_shape_context(model_get_shape(e->model)), e->n_instruction,
                  e->instruction_of);
    }
    return CKVC_OK;
}

ckvc_status inputs_take_setting(inputs_options *o, const char *path, ckvc_err *err) {
    CKVC_AUTO(table_file_free_at) table_file *f = NULL;
    CKVC_TRY(table_file_read(path, &f, err));
    const setting made = setting_of_table(f->table, f->meta);
    for (size_t i = 0; i < setting_n_fields; i++) {
        const setting_field *field = &setting_fields[i];
        if ((field->groups & SETTING_SCORE) && !opts_given(field->m.name) &&
            !(made.unknown >> i & 1)) {
            record_set_number(&field->m, &o->setting, record_number(&field->m, &made));
        }
    }
    return CKVC_OK;
}

ckvc_status inputs_same_model(const opened_inputs *e, const char *path, const char *name,
                              const char *fingerprint, const char *sketch, ckvc_err *err) {
    char why[SKETCH_TEXT];
    const char *ours = model_fingerprint(e->model);
    if (!fingerprint || strcmp(fingerprint, ours) == 0) { return CKVC_OK; }
    FAIL_IF(!sketch_same(sketch, model_get_sketch(e->model), why), CKVC_E_MISMATCH,
            "%s: was made for model %.12s..., this one is %.12s..., and %s; `ckvc transfer` maps a "
            "table to another model",
            path, fingerprint, ours, why);
    ckvc_warn(
        "%s: was made for %s (%.12s...) and is used for %s (%.12s...), whose weights are the same "
        "as far as rounding lets one tell (%s)",
        path, name ? name : "a model", fingerprint, model_name(e->model), ours, why);
    return CKVC_OK;
}

ckvc_status inputs_read_table(const inputs_options *o, const opened_inputs *e, const char *path,
                              table_file **out, ckvc_err *err) {
    const model_shape *s = model_get_shape(e->model);
    CKVC_AUTO(table_file_free_at) table_file *f = NULL;
    *out = NULL;
    CKVC_TRY(table_file_read(path, &f, err));
    const ckvc_table *t = f->table;
    FAIL_IF(t->n_layers != (uint32_t)s->n_layers || t->n_heads != (uint32_t)s->n_kv_heads ||
                t->head_axis != 0,
            CKVC_E_MISMATCH,
            "%s: is for %u layers x %u %s heads, the model has %d x %d KV heads; `ckvc transfer` "
            "maps a table to another model",
            path, t->n_layers, t->n_heads, t->head_axis ? "query" : "KV", s->n_layers,
            s->n_kv_heads);
    FAIL_IF(t->theta &&
                t->n_features != ckvc_features_count(t->score[0].features, (uint32_t)s->head_dim),
            CKVC_E_MISMATCH,
            "%s: its learned ranking has %u features, for keys of another length than the model's "
            "%d; calibrate it for this model",
            path, t->n_features, s->head_dim);
    CKVC_TRY(inputs_same_model(e, path, json_string_value(json_object_get(f->meta, "model_name")),
                               json_string_value(json_object_get(f->meta, "fingerprint")),
                               table_file_sketch(f), err));
    const setting made = setting_of_table(t, f->meta);
    CKVC_TRY(setting_match(&made, path, &o->setting, "this run", SETTING_SCORE, "give --", err));
    *out = ckvc_take(&f);
    return CKVC_OK;
}

void inputs_close(opened_inputs *e) {
    prompts_free(e->prompts);
    manifest_free(e->manifest);
    tokenizer_free(e->tok);
    CKVC_FREE(e->instruction, e->later);
    model_close(e->model);
    backend_destroy(e->be);
    ckvc_pool_destroy(e->pool);
    *e = (opened_inputs){0};
}

ckvc_status inputs_variants(const char *text, int64_t *variants, ckvc_err *err) {
    char *end;
    const long v = strtol(text, &end, 10);
    const bool all = strcmp(text, "all") == 0;
    USAGE_IF(!all && (*end || end == text || v < 1),
             "--variants: got '%s', wanted a number from 1 up, or all", text);
    *variants = all ? -1 : v;
    return CKVC_OK;
}

ckvc_status inputs_bins(const opt_list *list, uint32_t *n_entropy, uint32_t *n_ppl, ckvc_err *err) {
    long v[2] = {0, 0};
    for (size_t i = 0; i < list->n && i < 2; i++) {
        char *end;
        v[i] = strtol(list->items[i], &end, 10);
        v[i] = *end ? 0 : v[i];
    }
    USAGE_IF(
        list->n != 2 || v[0] < 1 || v[1] < 1 || v[0] > 1024 || v[1] > 1024,
        "--bins: got %zu values, wanted two numbers from 1 to 1024, entropy bins and perplexity "
        "bins, as in 20,4%s",
        list->n, list->n > 2 ? "; a list that is given again adds to the one before" : "");
    *n_entropy = (uint32_t)v[0];
    *n_ppl = (uint32_t)v[1];
    return CKVC_OK;
}
