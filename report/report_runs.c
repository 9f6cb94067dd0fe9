/* What runs say of themselves: plan, passes, prompts. Their cells and budgets are
 * report_coverage.c's and report_binding.c's. */

#include "lib/base/json.h"
#include "report/report_internal.h"

ckvc_status report_runs_json(report *r, ckvc_err *err) {
    (void)err;
    json_t *list = json_array();
    json_object_set_new(r->json, "runs", list);
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = &r->runs[i];
        const shard_header *h = &run->h;
        json_t *o = json_object(), *passes = json_array(), *prompts = json_array(),
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
        json_object_set_new(o, "skipped",
                            json_integer((json_int_t)json_array_size(run_skipped(run->dir))));
        json_object_set_new(o, "pass", run->pass ? json_string(run->pass->name) : json_null());
        json_object_set_new(o, "records", json_integer((json_int_t)run->n_records));
        json_object_set_new(o, "model", json_string(h->model_name));
        json_object_set_new(o, "fingerprint", json_string(h->fingerprint));
        json_object_set_new(o, "manifest", json_string(h->manifest));
        json_object_set_new(o, "behaviour", json_string(h->behaviour));
        setting_write(o, SETTING_REPORT, &h->setting, 0);
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
        json_object_set_new(o, "memo", report_memo_json(run));
    }
    return CKVC_OK;
}
