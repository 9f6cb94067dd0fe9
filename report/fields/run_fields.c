/* Of a run: its settings and prompts, what risk cells they cover, where the gate can act, what
 * merging equal kept sets saved. */
#include "report/fields/fields.h"

FIELDS(share_fields, binding_numbers, MEMBERS(binding, sets_differ));
FIELDS(binding_fields, binding_numbers,
       MEMBERS(n, kept_mean, budget_mean, candidates_lo_mean, candidates_hi_mean,
               share_of_kept_in_window),
       INCLUDE(share_fields), AS(source, "source", .omit = true));
FIELDS(choices_fields, gate_choices, AS(tag, "table"), MERGE(all, rests_fields));
FIELDS(budget_fields, budget_numbers, MEMBERS(budget, alive, cells_occupied, cells_alive),
       AS(advice, "advice", .omit = true), F_OBJECT(all, binding_fields),
       OBJECTS(sources, n_sources, binding_fields), OBJECTS(layers, n_layers, binding_fields),
       LIST(cells, BY(n_entropy, n_perplexity), .of = binding_fields),
       OBJECTS(choices, n_choices, choices_fields));

FIELDS(cover_fields, cover_numbers, MEMBERS(prompts, drawn, occupied, thin),
       AS(source, "source", .omit = true), LIST(cells, BY(n_entropy, n_perplexity)),
       LIST(drawn_cells, BY(n_entropy, n_perplexity), WHEN(logged), .omit = true));
FIELDS(coverage_fields, coverage_numbers, MERGE(all, cover_fields),
       MEMBERS(min_cell, sample, unscanned), OBJECTS(sources, n_sources, cover_fields));

FIELDS(layer_fields, rollout_counts, MEMBERS(actions, at_baseline, distinct));
FIELDS(rate_fields, savings_numbers, KEY(side), AS(actions, "actions_a_prompt"),
       AS(rollouts, "rollouts_a_prompt"), AS(at_baseline, "at_baseline_share"),
       MEMBERS(rate, lowest, lowest_rate, highest, highest_rate));
FIELDS(savings_fields, savings_numbers, KEY(side), ARRAYS(layers, n_layers, layer_fields));

FIELDS(pass_fields, run_pass, MEMBERS(name, complete), AS(n_prompts_done, "prompts"));
FIELDS(prompt_fields, input_prompt, MEMBERS(id, source, heldout, r_struct, r_sem),
       AS(n_tokens, "T"));

static json_t *sources_of(const void *row) {
    const input_run *in = &((const run_numbers *)row)->in;
    json_t *list = json_array();
    for (size_t i = 0; i < in->n_sources; i++) {
        json_array_append_new(list, json_string(in->sources[i].name));
    }
    return list;
}
static void fill_setting(json_t *o, const void *row) {
    setting_write(o, SETTING_REPORT, &((const run_numbers *)row)->in.h.setting, 0);
}

SHARED_FIELDS(run_fields, run_numbers, AS(in.h.model_name, "model"),
              AS(in.h.fingerprint, "fingerprint"), AS(in.h.manifest, "manifest"),
              MEMBERS(plan_hash), AS(in.h.behaviour, "behaviour"), AS(in.n_prompts, "n_prompts"),
              MEMBERS(n_heldout, skipped, pass), AS(in.n_records, "records"),
              {.fill = fill_setting}, AS(in.tag, "tag"), AS(in.name, "name"), AS(in.title, "title"),
              MEMBERS(plan), OBJECTS(passes, n_passes, pass_fields),
              {FIELD(in.prompts), .name = "prompts", BY(in.n_prompts), .of = prompt_fields},
              MADE("sources", sources_of),
              {FIELD(savings), .name = "memo", BY(n_sides), .of = savings_fields, .as = AS_MEMBERS},
              {FIELD(savings), .name = "memo_rates", BY(n_sides), .of = rate_fields,
               .as = AS_MEMBERS},
              LIST(coverage, .of = coverage_fields, .omit = true),
              OBJECTS(budgets, n_budgets, budget_fields));
