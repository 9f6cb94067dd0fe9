/* Loads what a report is made from: tables, runs, then what is said of them. See inputs.h. */
#include "report/load/inputs.h"

#include <stdlib.h>

#include "formats/run/prompt_records.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

static ckvc_status load_table(inputs *in, const char *path, ckvc_err *err) {
    input_table *t = &in->tables[in->n_tables];
    CKVC_TRY(table_file_read(path, &t->f, err));
    t->tag = arena_text(&in->arena, "T%zu", ++in->n_tables);
    t->file = arena_keep(&in->arena, ckvc_path_name(path));
    const char *label = json_string_value(json_object_get(t->f->meta, "label")),
               *dot = strrchr(t->file, '.');
    if (label && *label) { /* a transferred table has the label of its source */
        t->name = arena_text(&in->arena, "%s%s", label, t->f->xfer ? ", transferred" : "");
    } else {
        t->name = arena_text(&in->arena, "%.*s", (int)(dot ? dot - t->file : (long)strlen(t->file)),
                             t->file);
    }
    t->title = arena_text(&in->arena, "%s %s", t->tag, t->name);
    return CKVC_OK;
}

/* ---- runs ---- */

static size_t source_of(inputs *in, input_run *run, const char *name) {
    for (size_t i = 0; i < run->n_sources; i++) {
        if (strcmp(run->sources[i].name, name) == 0) { return i; }
    }
    CKVC_GROW(run->sources, run->cap_sources, run->n_sources + 1);
    run->sources[run->n_sources] =
        (input_source){arena_text(&in->arena, "%s", name),
                       arena_alloc(&in->arena, run->h.n_budgets, sizeof(gate_binding))};
    return run->n_sources++;
}

static void take_prompts(inputs *in, input_run *run, const shard *s) {
    CKVC_GROW(run->prompts, run->cap_prompts, run->n_prompts + s->n_prompts);
    for (size_t i = 0; i < s->n_prompts; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        run->prompts[run->n_prompts++] = (input_prompt){.id = arena_text(&in->arena, "%s", p->id),
                                                        .source = source_of(in, run, p->source),
                                                        .n_tokens = p->n_tokens,
                                                        .heldout = strcmp(p->split, "heldout") == 0,
                                                        .token_hash = p->token_hash,
                                                        .r_struct = p->r_struct,
                                                        .r_sem = p->r_sem,
                                                        .bin_entropy = p->bin_entropy,
                                                        .bin_ppl = p->bin_ppl};
    }
}

static void take_baselines(input_run *run, const shard *s, size_t first_prompt) {
    const uint32_t L = run->h.n_layers;
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        const input_prompt *p = &run->prompts[first_prompt + b->prompt];
        for (uint32_t l = 0; l < L; l++) {
            uint32_t budget;
            if (!shard_layer_budget(&run->h, b->budget, l, p->n_tokens, &budget)) { continue; }
            const size_t at = i * L + l;
            gate_binding *sums[2] = {
                &run->cells[input_cell(&run->h, b->budget, l, p->bin_entropy, p->bin_ppl)],
                &run->sources[p->source].sums[b->budget]};
            for (int k = 0; k < 2; k++) {
                gate_binding_add(sums[k], budget, s->n_candidates_lo[at], s->n_candidates_hi[at],
                                 s->n_kept[at], s->n_kept_window[at], p->n_tokens);
            }
        }
    }
}

static ckvc_status take_savings(input_run *run, const shard *s, ckvc_err *err) {
    CKVC_AUTO(prompt_records_fini) prompt_records x = {0};
    CKVC_AUTO_FREE rollout *list = ckvc_alloc(s->n_records, sizeof *list);
    const uint32_t L = run->h.n_layers;
    size_t n = 0;
    if (s->n_records == 0) { return CKVC_OK; }
    CKVC_TRY(prompt_records_open(&x, s, run->name, err));
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        rollout_counts *counts = &run->savings[(size_t)r->side * L + r->layer];
        const bool at_baseline = r->loss == prompt_records_baseline(&x, r);
        counts->actions++;
        counts->at_baseline += at_baseline;
        if (!at_baseline) { list[n++] = rollout_of(r); }
    }
    n = rollouts_distinct(list, n);
    for (size_t i = 0; i < n; i++) { run->savings[list[i].side * L + list[i].layer].distinct++; }
    return CKVC_OK;
}

/* Makes the coverage of a run of an older program, or of one whose file is of other bins. The
 * run's logged prompts stand for all prompts that there were. */
static coverage coverage_from_prompts(const input_run *run) {
    const size_t E = run->h.n_entropy_bins, P = run->h.n_ppl_bins, S = run->n_sources,
                 n = E * P * S;
    CKVC_AUTO_FREE uint32_t *counts = ckvc_calloc(n, sizeof *counts);
    coverage c = {.n_entropy_bins = (uint32_t)E,
                  .n_ppl_bins = (uint32_t)P,
                  .logged = true,
                  .sources = ckvc_calloc(S, sizeof *c.sources),
                  .n_sources = S,
                  .rows = ckvc_calloc(n < run->n_prompts ? n : run->n_prompts, sizeof *c.rows)};
    for (size_t s = 0; s < S; s++) { c.sources[s] = ckvc_strdup(run->sources[s].name); }
    for (size_t i = 0; i < run->n_prompts; i++) {
        const input_prompt *q = &run->prompts[i];
        counts[(q->bin_entropy * P + q->bin_ppl) * S + q->source] += !q->heldout;
    }
    for (size_t i = 0; i < n; i++) {
        if (counts[i]) {
            c.rows[c.n_rows++] = (coverage_row){(uint32_t)(i / S / P), (uint32_t)(i / S % P),
                                                (uint32_t)(i % S), counts[i], counts[i]};
        }
    }
    return c;
}

/* Whether what a run gathers of two shards has the same axes. The reader of shards has checked that
 * each shard's rows are within its own. */
static bool same_axes(const shard_header *a, const shard_header *b) {
    return a->n_layers == b->n_layers && a->n_kv_heads == b->n_kv_heads &&
           a->n_budgets == b->n_budgets && a->n_entropy_bins == b->n_entropy_bins &&
           a->n_ppl_bins == b->n_ppl_bins;
}

static ckvc_status load_run(inputs *in, const char *path, ckvc_err *err) {
    input_run *run = &in->runs[in->n_runs];
    CKVC_TRY(run_open(path, &run->dir, err));
    run->tag = arena_text(&in->arena, "R%zu", ++in->n_runs);
    run->name = arena_keep(&in->arena, ckvc_path_name(path));
    run->title = arena_text(&in->arena, "%s %s", run->tag, run->name);
    for (size_t i = 0; i < run_pass_count(run->dir); i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        const shard_kind kind = shard_pass_named(p->kind)->kind;
        const bool scan = kind == SHARD_SCAN, /* and what says of prompts as much */
            repeat = kind != SHARD_SCAN && kind != SHARD_LOGGED;
        if (p->n_shards == 0) { continue; }
        run->taken |= !scan;
        if (!repeat || !run->scan) { *(scan || repeat ? &run->scan : &run->pass) = p; }
    }
    CKVC_TRY(fitted_starts(in, run, err));
    const run_pass *use = run->pass ? run->pass : run->scan;
    run->head = shard_create();
    for (size_t k = 0; use && k < use->n_shards; k++) {
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        CKVC_TRY(run_read_shard(run->dir, use, k, &s, err));
        if (k == 0) {
            shard_header_copy(&run->head->h, &s->h);
            run->h = run->head->h;
            run->binned = use == run->pass;
            run->cells = arena_alloc(&in->arena, input_cell(&run->h, run->h.n_budgets, 0, 0, 0),
                                     sizeof *run->cells);
            run->savings = arena_alloc(&in->arena, (size_t)CKVC_SIDE_COUNT * run->h.n_layers,
                                       sizeof *run->savings);
        }
        CKVC_FAIL_IF(!same_axes(&run->h, &s->h), err, CKVC_E_DATA,
                     "%s: shard %zu of pass %s has other numbers of layers, heads, budgets or bins "
                     "than the first one: the run was damaged, and has to be made again",
                     path, k, use->name);
        const size_t first = run->n_prompts;
        take_prompts(in, run, s);
        take_baselines(run, s, first);
        CKVC_TRY(take_savings(run, s, err));
        run->n_records += s->n_records;
    }
    bool there;
    CKVC_TRY(coverage_read(run_path(run->dir), &run->coverage, &there, err));
    if (run->binned && (!there || run->coverage.n_entropy_bins != run->h.n_entropy_bins ||
                        run->coverage.n_ppl_bins != run->h.n_ppl_bins)) {
        coverage_fini(&run->coverage);
        run->coverage = coverage_from_prompts(run);
    }
    return CKVC_OK;
}

ckvc_status inputs_load(inputs *in, const report_options *o, ckvc_err *err) {
    *in = (inputs){.o = o};
    in->tables = arena_alloc(&in->arena, o->n_inputs, sizeof *in->tables);
    in->runs = arena_alloc(&in->arena, o->n_inputs, sizeof *in->runs);
    for (size_t i = 0; i < o->n_inputs; i++) {
        CKVC_TRY(ckvc_is_dir(o->inputs[i]) ? load_run(in, o->inputs[i], err)
                                           : load_table(in, o->inputs[i], err));
    }
    for (size_t t = 0; t < in->n_tables; t++) { fitted_from(in, &in->tables[t]); }
    CKVC_TRY(score_rows_load(in, err));
    CKVC_TRY(answer_rows_load(in, err));
    return own_records_load(in, err);
}

void inputs_free(inputs *in) {
    for (size_t i = 0; i < in->n_tables; i++) {
        table_file_free(in->tables[i].f);
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            own_records_free(&in->tables[i].sides[side]);
        }
    }
    for (size_t i = 0; i < in->n_runs; i++) {
        run_close(in->runs[i].dir);
        shard_free(in->runs[i].head);
        coverage_fini(&in->runs[i].coverage);
        free(in->runs[i].prompts);
        free(in->runs[i].sources);
    }
    for (size_t i = 0; i < in->scores.n_files; i++) { scores_free(in->scores.files[i]); }
    for (size_t i = 0; i < in->answers.n_files; i++) { answers_free(in->answers.files[i]); }
    arena_fini(&in->arena);
}
