/* What runs say: prompts per risk cell, where the gate can change anything, tokens kept, provenance. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "report/report_internal.h"

static void add(report_binding *into, const report_binding *c)
{
    into->n += c->n;
    into->binding += c->binding;
    into->differ += c->differ;
    into->kept += c->kept;
    into->window += c->window;
    into->budget += c->budget;
}

static json_t *binding_json(const report_binding *c)
{
    double n = (double)c->n;
    json_t *o = json_object();
    json_object_set_new(o, "n", json_integer((json_int_t)c->n));
    json_object_set_new(o, "binding", ckvc_json_real((double)c->binding / n));
    json_object_set_new(o, "sets_differ", ckvc_json_real((double)c->differ / n));
    json_object_set_new(o, "kept_mean", ckvc_json_real((double)c->kept / n));
    json_object_set_new(o, "budget_mean", ckvc_json_real((double)c->budget / n));
    json_object_set_new(o, "share_of_kept_in_window", ckvc_json_real((double)c->window / (double)c->kept));
    return o;
}

/* One budget of a run: all, per source, per layer, per cell [E][P]. */
static json_t *budget_json(const report_run *run, size_t b)
{
    const shard_header *h = &run->h;
    json_t *o = json_object(), *sources = json_array(), *layers = json_array(), *cells = json_array();
    report_binding all = {0};
    for (size_t l = 0; l < h->n_layers; l++) {
        report_binding layer = {0};
        for (size_t i = 0; i < (size_t)h->n_entropy_bins * h->n_ppl_bins; i++) {
            add(&layer, &run->cells[report_cell(h, b, l, 0, 0) + i]);
        }
        add(&all, &layer);
        json_array_append_new(layers, binding_json(&layer));
    }
    for (size_t s = 0; s < run->n_sources; s++) {
        json_t *of = binding_json(&run->sources_sum[s * h->n_budgets + b]);
        json_object_set_new(of, "source", json_string(run->sources[s]));
        json_array_append_new(sources, of);
    }
    for (size_t e = 0; e < h->n_entropy_bins; e++) {
        json_t *row = json_array();
        for (size_t p = 0; p < h->n_ppl_bins; p++) {
            report_binding cell = {0};
            for (size_t l = 0; l < h->n_layers; l++) {
                add(&cell, &run->cells[report_cell(h, b, l, e, p)]);
            }
            json_array_append_new(row, binding_json(&cell));
        }
        json_array_append_new(cells, row);
    }
    json_object_set_new(o, "budget", ckvc_json_real(h->budgets[b]));
    json_object_set_new(o, "all", binding_json(&all));
    json_object_set_new(o, "sources", sources);
    json_object_set_new(o, "layers", layers);
    json_object_set_new(o, "cells", cells);
    return o;
}

static json_t *occupancy_json(const report_run *run)
{
    const shard_header *h = &run->h;
    json_t *rows = json_array();
    for (size_t e = 0; e < h->n_entropy_bins; e++) {
        json_t *row = json_array();
        for (size_t p = 0; p < h->n_ppl_bins; p++) {
            json_int_t count = 0;
            for (size_t i = 0; i < run->n_prompts; i++) {
                const report_prompt *q = &run->prompts[i];
                count += !q->heldout && q->bin_entropy == e && q->bin_ppl == p;
            }
            json_array_append_new(row, json_integer(count));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

ckvc_status report_runs_json(report *r, ckvc_err *err)
{
    (void)err;
    json_t *list = json_array();
    json_object_set_new(r->json, "runs", list);
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = &r->runs[i];
        const shard_header *h = &run->h;
        json_t *o = json_object(), *passes = json_array(), *prompts = json_array(), *budgets = json_array(),
               *sources = json_array();
        json_array_append_new(list, o);
        json_object_set_new(o, "tag", json_string(run->tag));
        json_object_set_new(o, "name", json_string(run->name));
        json_object_set_new(o, "plan_hash", json_string(run_plan_hash(run->dir)));
        json_object_set(o, "plan", (json_t *)(uintptr_t)run_plan(run->dir));
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            const run_pass *p = run_pass_at(run->dir, k);
            json_t *pass = json_object();
            json_object_set_new(pass, "name", json_string(p->name));
            json_object_set_new(pass, "prompts", json_integer(p->n_prompts_done));
            json_object_set_new(pass, "complete", json_boolean(p->complete));
            json_array_append_new(passes, pass);
        }
        json_object_set_new(o, "passes", passes);
        json_object_set_new(o, "skipped", json_integer((json_int_t)json_array_size(run_skipped(run->dir))));
        json_object_set_new(o, "pass", run->pass ? json_string(run->pass->name) : json_null());
        json_object_set_new(o, "records", json_integer((json_int_t)run->n_records));
        json_object_set_new(o, "model", json_string(h->model_name));
        json_object_set_new(o, "fingerprint", json_string(h->fingerprint));
        json_object_set_new(o, "manifest", json_string(h->manifest));
        json_object_set_new(o, "behaviour", json_string(h->behaviour));
        json_object_set_new(o, "alpha_kind", json_string(h->alpha_kind));
        json_object_set_new(o, "window", json_integer(h->window));
        json_object_set_new(o, "continuation", json_integer(h->continuation));
        json_object_set_new(o, "keep_window", json_integer(h->keep_window));
        json_object_set_new(o, "lambda", ckvc_json_real(h->lambda));
        json_object_set_new(o, "seed", json_integer((json_int_t)h->seed));
        size_t heldout = 0;
        for (size_t k = 0; k < run->n_prompts; k++) {
            const report_prompt *q = &run->prompts[k];
            json_t *p = json_object();
            heldout += q->heldout;
            json_object_set_new(p, "id", json_string(q->id));
            json_object_set_new(p, "source", json_integer(q->source));
            json_object_set_new(p, "T", json_integer(q->n_tokens));
            json_object_set_new(p, "heldout", json_boolean(q->heldout));
            json_object_set_new(p, "r_struct", ckvc_json_real(q->r_struct));
            json_object_set_new(p, "r_sem", ckvc_json_real(q->r_sem));
            json_array_append_new(prompts, p);
        }
        for (size_t k = 0; k < run->n_sources; k++) {
            json_array_append_new(sources, json_string(run->sources[k]));
        }
        json_object_set_new(o, "n_prompts", json_integer((json_int_t)run->n_prompts));
        json_object_set_new(o, "n_heldout", json_integer((json_int_t)heldout));
        json_object_set_new(o, "sources", sources);
        json_object_set_new(o, "prompts", prompts);
        if (run->binned) {
            json_object_set_new(o, "occupancy", occupancy_json(run));
            for (size_t b = 0; b < h->n_budgets; b++) {
                json_array_append_new(budgets, budget_json(run, b));
            }
        }
        json_object_set_new(o, "budgets", budgets);
    }
    return CKVC_OK;
}
