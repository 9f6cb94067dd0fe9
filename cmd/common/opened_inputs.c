/* Opening what most verbs need: see opened_inputs.h. */
#include "cmd/common/opened_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer_files.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"

inputs_options inputs_defaults(void) {
    return (inputs_options){.backend = "auto",
                            .compute = "f32",
                            .threads = ckvc_cpu_count(),
                            .window = 64,
                            .continuation = 128,
                            .seed = 1,
                            .alpha = "paper",
                            .chat_template = "auto",
                            .chat_date = CHAT_DATE};
}

ckvc_alpha_kind inputs_alpha(const inputs_options *o) {
    return strcmp(o->alpha, "visible") == 0 ? CKVC_ALPHA_VISIBLE : CKVC_ALPHA_PAPER;
}

void inputs_warn_kept_window(const inputs_options *o, const opened_inputs *e, const double *budgets,
                             size_t n) {
    uint32_t shortest = UINT32_MAX;
    for (size_t i = 0; i < e->prompts->n; i++) {
        const uint32_t T = e->prompts->items[i].n_tokens;
        shortest = T < shortest ? T : shortest;
    }
    for (size_t b = 0; o->keep_window > 0 && e->prompts->n && b < n; b++) {
        const uint32_t tokens = ckvc_budget_tokens(budgets[b], shortest);
        if (o->keep_window >= tokens) {
            ckvc_warn("--keep-window %lld takes all of budget %g, %u tokens of a prompt of %u: "
                      "nothing outside the window can be "
                      "kept there; "
                      "give a smaller --keep-window or a larger --budget",
                      (long long)o->keep_window, budgets[b], tokens, shortest);
            return;
        }
    }
}

ckvc_status inputs_open_machine(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    *e = (opened_inputs){0};
    ckvc_status st = ckvc_pool_create((int)o->threads, &e->pool, err);
    if (st == CKVC_OK) { st = backend_create(o->backend, e->pool, &e->be, err); }
    if (st == CKVC_OK && strcmp(o->compute, "bf16") == 0) {
        st = backend_set_compute(e->be, BE_COMPUTE_BF16, err);
    }
    if (st == CKVC_OK && backend_compute_warning(e->be)) {
        ckvc_warn("%s", backend_compute_warning(e->be));
    }
    if (st == CKVC_OK) {
        e->be->ops->weight_limit(e->be, o->memory > 0 ? (size_t)o->memory
                                                      : ckvc_available_memory() / 4 * 3);
    }
    if (st == CKVC_OK && backend_warning(e->be)) { ckvc_warn("%s", backend_warning(e->be)); }
    if (st != CKVC_OK) { inputs_close(e); }
    return st;
}

ckvc_status inputs_open_tokenizer(const char *dir, tokenizer **out, ckvc_err *err) {
    *out = NULL;
    token_spec *spec = NULL;
    char *path = NULL;
    ckvc_err missing = {0};
    ckvc_status st = tokenizer_files_read(dir, &spec, &path, &missing);
    if (st == CKVC_E_NOINPUT) { return CKVC_OK; /* prompts may be given as ids */ }
    if (st != CKVC_OK) { return ckvc_fail(err, st, "%s", missing.text); }
    st = tokenizer_build(spec, path, out, err);
    free(path);
    return st;
}

ckvc_status inputs_open_model(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    *e = (opened_inputs){0};
    if (!o->model) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--model DIR is needed: a Hugging Face model directory, or a GGUF file");
    }
    ckvc_status st = inputs_open_machine(o, e, err);
    if (st == CKVC_OK) { st = model_open(o->model, e->be, &e->model, err); }
    if (st == CKVC_OK) { st = inputs_open_tokenizer(o->model, &e->tok, err); }
    if (st == CKVC_OK) {
        st = chat_template_choose(o->chat_template, model_get_shape(e->model)->family, e->tok,
                                  &e->chat, err);
    }
    if (st == CKVC_OK && strcmp(o->chat_date, CHAT_DATE) != 0) {
        st = chat_template_date(&e->chat, o->chat_date, err);
    }
    if (st != CKVC_OK) { inputs_close(e); }
    return st;
}

ckvc_status inputs_open_prompts(const inputs_options *o, opened_inputs *e, ckvc_err *err) {
    if (!o->manifest) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--manifest FILE is needed: `ckvc manifest build` makes one from text");
    }
    e->prompt_options = (prompt_options){.splits = o->split.items,
                                         .n_splits = o->split.n,
                                         .window = o->window,
                                         .continuation = o->continuation,
                                         .max_tokens = o->max_tokens,
                                         .skip_short = o->skip_short,
                                         .limit = o->limit,
                                         .holdout = o->holdout,
                                         .seed = (uint64_t)o->seed,
                                         .chat = e->chat};
    ckvc_status st = manifest_read(o->manifest, &e->manifest, err);
    if (st == CKVC_OK) {
        st = prompts_build(e->manifest, e->tok, model_get_shape(e->model), &e->prompt_options,
                           &e->prompts, err);
    }
    return st;
}

ckvc_status inputs_read_table(const inputs_options *o, const opened_inputs *e, const char *path,
                              table_file **out, ckvc_err *err) {
    const model_shape *s = model_get_shape(e->model);
    table_file *f = NULL;
    *out = NULL;
    ckvc_status st = table_file_read(path, &f, err);
    if (st != CKVC_OK) { return st; }
    const ckvc_table *t = f->table;
    const char *fingerprint = json_string_value(json_object_get(f->meta, "fingerprint"));
    if (t->n_layers != (uint32_t)s->n_layers || t->n_heads != (uint32_t)s->n_kv_heads ||
        t->head_axis != 0) {
        st = ckvc_fail(err, CKVC_E_MISMATCH,
                       "%s: is for %u layers x %u %s heads, the model has %d x %d KV heads; `ckvc "
                       "transfer` maps it",
                       path, t->n_layers, t->n_heads, t->head_axis ? "query" : "KV", s->n_layers,
                       s->n_kv_heads);
    } else if (fingerprint && strcmp(fingerprint, model_fingerprint(e->model)) != 0) {
        st = ckvc_fail(
            err, CKVC_E_MISMATCH,
            "%s: was made for model %.12s..., this one is %.12s...; `ckvc transfer` maps it", path,
            fingerprint, model_fingerprint(e->model));
    } else {
        const setting made = setting_of_table(t, f->meta),
                      ours = {.alpha = inputs_alpha(o),
                              .window = (uint32_t)o->window,
                              .keep_window = (uint32_t)o->keep_window};
        st = setting_match(&made, path, &ours, "this run", SETTING_SCORE, "give --", err);
    }
    if (st != CKVC_OK) {
        table_file_free(f);
        return st;
    }
    *out = f;
    return CKVC_OK;
}

void inputs_close(opened_inputs *e) {
    prompts_free(e->prompts);
    manifest_free(e->manifest);
    tokenizer_free(e->tok);
    model_close(e->model);
    backend_destroy(e->be);
    ckvc_pool_destroy(e->pool);
    *e = (opened_inputs){0};
}

ckvc_status inputs_variants(const char *text, int64_t *variants, ckvc_err *err) {
    char *end;
    long v = strtol(text, &end, 10);
    if (strcmp(text, "all") == 0) {
        v = -1;
    } else if (*end || end == text || v < 1) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--variants: got '%s', wanted a number from 1 up, or all", text);
    }
    *variants = v;
    return CKVC_OK;
}

ckvc_status inputs_budgets(const opt_list *list, double *budgets, uint32_t *n, ckvc_err *err) {
    *n = 0;
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        double v = strtod(list->items[i], &end);
        if (*end || end == list->items[i] || !(v > 0) || v > 1e9 || (v >= 1 && v != floor(v))) {
            return ckvc_fail(err, CKVC_E_USAGE,
                             "--budget: got '%s', wanted whole tokens (256) or a share of the "
                             "prompt below 1 (0.25)",
                             list->items[i]);
        }
        for (uint32_t k = 0; k < *n; k++) {
            if (budgets[k] == v) {
                return ckvc_fail(err, CKVC_E_USAGE, "--budget: %s is given twice", list->items[i]);
            }
        }
        budgets[(*n)++] = v;
    }
    return CKVC_OK;
}
