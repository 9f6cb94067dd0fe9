/* Of a table: its shape, weights, thresholds and shares, what they rest on, how far to trust them,
 * whether to deploy it. */
#include "lib/base/json.h"
#include "report/fields/fields.h"
#include "report/words/words.h"

/* ---- weights and thresholds ---- */

FIELDS(weight_fields, weight_numbers, MEMBERS(budget, n, mean, min, max, share_at_1, supported),
       LIST(histogram, BY(n_actions)), LIST(weight, BY(n_layers, n_heads)));
FIELDS(monotone_fields, monotone, MEMBERS(pairs, non_increasing, non_decreasing, equal));
FIELDS(threshold_fields, threshold_numbers, MEMBERS(budget, cells, supported, mean_tau),
       F_OBJECT(along_entropy, monotone_fields), F_OBJECT(along_perplexity, monotone_fields),
       LIST(histogram, BY(n_actions)), LIST(tau, BY(n_layers, n_entropy, n_perplexity)));

/* ---- shares: [{budget, share [L][G], lo, hi}], the ends of each interval over prompts ---- */

static json_t *by_head(const ckvc_table *t, const double *of, size_t step, size_t first) {
    json_t *layers = json_array();
    for (size_t l = 0; l < t->n_layers; l++) {
        json_t *heads = json_array();
        for (size_t g = 0; g < t->n_heads; g++) {
            const double x = of[(l * t->n_heads + g) * step + first];
            json_array_append_new(heads, ckvc_json_real(x));
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

static json_t *shares_of(const void *row) {
    const table_numbers *o = row;
    const ckvc_table *t = o->shape;
    const size_t nB = t->n_budgets;
    const double *ends = o->f.share_interval;
    if (!t->share) { return json_null(); }
    json_t *list = json_array();
    for (size_t b = 0; b < nB; b++) {
        json_t *at = json_object();
        json_object_set_new(at, "budget", json_real(t->budgets[b]));
        json_object_set_new(at, "share", by_head(t, t->share, nB, b));
        json_object_set_new(at, "lo", ends ? by_head(t, ends, 2 * nB, 2 * b) : json_null());
        json_object_set_new(at, "hi", ends ? by_head(t, ends, 2 * nB, 2 * b + 1) : json_null());
        json_array_append_new(list, at);
    }
    return list;
}

/* ---- what the choices rest on ---- */

SHARED_FIELDS(rests_fields, rests, MEMBERS(supported, by_loss, by_penalty, loss_flat));
FIELDS(budget_rests_fields, budget_rests, MERGE(all, rests_fields),
       LIST(cells, BY(n_entropy, n_perplexity), .of = rests_fields));
FIELDS(all_rests_fields, side_evidence, AS(all.by_loss, "by_loss"),
       AS(all.by_penalty, "by_penalty"), AS(all.loss_flat, "loss_flat"));
FIELDS(entry_rests_fields, entry, MEMBERS(by_loss, loss_flat));
FIELDS(action_fields, action_count, MEMBERS(action, logged, chosen));
FIELDS(record_fields, side_evidence, MEMBERS(min, median, max, mean));
FIELDS(evidence_fields, side_evidence, KEY(name),
       MEMBERS(states, records, alpha_decided, count_correlation, choice_stability, supported,
               count_percentile),
       GROUP("records_per_supported_state", record_fields),
       INCLUDE(all_rests_fields, WHEN(penalty)), ARRAYS(actions, n_actions, action_fields),
       OBJECTS(budgets, n_budgets, budget_rests_fields, WHEN(penalty), .omit = true),
       {FIELD(entries), .name = "entries", BY(states), .of = entry_rests_fields, .as = AS_ARRAYS,
        WHEN(penalty), .omit = true});

/* ---- how far to trust a side ---- */

#define BOUND(m, name) AS(m, name, WHEN(bounded))
FIELDS(entry_bound_fields, entry, BOUND(bound.n_prompts, "n_prompts"),
       BOUND(bound.n_actions, "n_actions"), BOUND(bound.width, "width"),
       BOUND(bound.bound, "uniform"), BOUND(excess, "excess"), BOUND(bound.spread, "spread"));
FIELDS(bound_sum_fields, bound_sums, MEMBERS(delta, states, actions, mean_prompts, mean_width),
       MEMBERS(informative));
FIELDS(bound_fields, side_trust, MERGE(bound, bound_sum_fields),
       ARRAYS(entries, states, entry_bound_fields));

FIELDS(rank_interval_fields, rank_interval, MEMBERS(mean, lo, hi, n));
MAKE(premise_of, variance_split, json_string(say_premise(o)))
FIELDS(variance_fields, variance_split, AS(n_states, "states"), AS(n_prompts, "prompts_per_state"),
       MADE("premise", premise_of),
       MEMBERS(share_prompt_raw, share_prompt, share_action, share_rest, common_one, common_all),
       MEMBERS(prompt_raw, prompt, action, rest), F_OBJECT(action_interval, rank_interval_fields));

FIELDS(spread_fields, stability_spread, MEMBERS(mean, lo, hi), AS(n, "defined"));
FIELDS(curve_fields, curve_point, MEMBERS(prompts, records, rollouts, supported, corrected),
       F_OBJECT(rho, spread_fields), F_OBJECT(to_full, spread_fields));
FIELDS(left_out_fields, left_out_point, MERGE(gain, rank_interval_fields),
       MEMBERS(prompts, records, rollouts));
FIELDS(refits_fields, side_refits,
       MEMBERS(decided, undecided, neutral, without_records, agree, replicates, curve_repeats,
               neutral_choice),
       OBJECTS(curve, n_curve, curve_fields), OBJECTS(left_out, n_left_out, left_out_fields));
FIELDS(entry_refit_fields, entry, MEMBERS(agree, advantage, lower_bound, verdict));
FIELDS(refitted_fields, side_trust, MERGE(refits, refits_fields), MEMBERS(states),
       {FIELD(entries), .name = "entries", BY(states), .of = entry_refit_fields, .as = AS_ARRAYS});

FIELDS(alpha_fields, alpha_point, MEMBERS(alpha, changed_from_default, changed_from_0, mean_entry),
       F_OBJECT(left_out, rank_interval_fields));
FIELDS(known_fields, side_trust, MEMBERS(prompts, records, rollouts, even_counts),
       F_OBJECT(variance, variance_fields), GROUP("bound", bound_fields),
       {FIELD(alphas), .name = "alpha", BY(n_alphas), .of = alpha_fields},
       INCLUDE(refitted_fields, WHEN(has_refits)));
FIELDS(trust_fields, side_trust, KEY(name), MEMBERS(missing), INCLUDE(known_fields, WHEN(known)));

/* ---- whether to deploy it ---- */

MAKE(leak_of, leak_numbers, json_string(say_leak(o)))
FIELDS(leak_fields, leak_numbers,
       MEMBERS(state, prompts, files, leaked_prompts, scored_manifests, scored_not_compared,
               leaked_in_scored, ngram),
       MADE("says", leak_of));

/* What a condition was judged by; null: nothing there is. */
static json_t *need_json(const verdict_need *need) {
    const comparison *by = need->by;
    if (!by) { return json_null(); }
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:s?, s:s}", "against", by->base.title, "policy",
                          by->base.policy, "prompts", (json_int_t)by->all.n, "documents",
                          (json_int_t)by->all.n_documents, "equal_in",
                          difference_equal_in(&by->all), "by", by->all.by_kl ? "kl" : "loss");
    return JSON_NUMBERS(o, {"difference", by->all.d.mean}, {"lo", by->all.d.lo},
                        {"hi", by->all.d.hi}, {"kl_difference", by->all.kl.mean},
                        {"kl_lo", by->all.kl.lo}, {"kl_hi", by->all.kl.hi},
                        {"needed", need->prompts});
}
MAKE(gain_of, verdict_at, need_json(&o->gain))
MAKE(reference_of, verdict_at, need_json(&o->reference))
MAKE(title_of, verdict_at, json_string(o->of->title))
MAKE(reason_of, verdict_at, json_string(say_reason(o)))

/* What it turns on, by part of the prompts: against the best simple reference, or, where none was
 * scored, identity or matched. */
static json_t *parts_of(const void *row) {
    const verdict_at *o = row;
    const comparison *by = o->reference.by ? o->reference.by : o->gain.by;
    json_t *list = json_array();
    for (size_t i = 0; by && i <= by->n_kinds + by->n_sources + by->n_lengths; i++) {
        const difference *d = i ? &by->kinds[i - 1] : &by->all;
        json_t *part = difference_json(d);
        const char *name = i ? say_part(d) : "all prompts";
        json_object_set_new(part, "part", json_string(name));
        json_object_set_new(part, "against", json_string(by->base.policy));
        json_array_append_new(list, part);
    }
    return list;
}

FIELDS(loss_fields, interval, MEMBERS(mean, lo, hi));
FIELDS(cache_fields, cache_numbers,
       MEMBERS(tokens, layers, kv_heads, head_dim, entries, all_entries, bytes, all_bytes,
               saved_bytes));
FIELDS(at_fields, verdict_at, MADE("title", title_of), MEMBERS(budget, word, prompts, needed),
       MADE("says", reason_of), MADE("gain", gain_of), MADE("reference", reference_of),
       MADE("parts", parts_of), F_OBJECT(loss, loss_fields), F_OBJECT(kl, loss_fields),
       F_OBJECT(cache, cache_fields));
FIELDS(verdict_fields, verdict_numbers, MEMBERS(word, needed, leak_passed, held_out, objection),
       OBJECTS(budgets, n_budgets, at_fields));

/* ---- the table ---- */

MAKE(head_axis_of, ckvc_table, json_string(o->head_axis ? "query head" : "KV head"))
MAKE(budgets_of, ckvc_table, ckvc_json_reals(o->budgets, o->n_budgets))
MAKE(entropy_of, ckvc_table, ckvc_json_reals(o->edges_entropy, o->n_entropy_bins - 1))
MAKE(perplexity_of, ckvc_table, ckvc_json_reals(o->edges_ppl, o->n_ppl_bins - 1))
MAKE(head_grid_of, ckvc_table, ckvc_json_reals(o->head_grid, o->n_head_actions))
MAKE(gate_grid_of, ckvc_table, ckvc_json_reals(o->gate_grid, o->n_gate_actions))
FIELDS(shape_fields, ckvc_table, AS(n_layers, "layers"), AS(n_heads, "heads"),
       MADE("head_axis", head_axis_of), AS(n_entropy_bins, "entropy_bins"),
       AS(n_ppl_bins, "perplexity_bins"), MEMBERS(window), MADE("budgets", budgets_of),
       MADE("edges_entropy", entropy_of), MADE("edges_perplexity", perplexity_of),
       MADE("head_grid", head_grid_of), MADE("gate_grid", gate_grid_of));

static json_t *recommended_of(const void *row) {
    const ckvc_table *t = ((const table_numbers *)row)->shape;
    json_t *list = json_array();
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        const ckvc_score s = ckvc_table_score(t, b);
        json_t *o = json_pack("{s:f, s:s, s:s}", "budget", t->budgets[b], "score",
                              ckvc_score_name((ckvc_score_kind)s.kind), "mode",
                              ckvc_mode_name((ckvc_mode)s.mode));
        if (t->c_min) { json_object_set_new(o, "floor", json_real(t->c_min[b].floor)); }
        json_array_append_new(list, o);
    }
    return list;
}

SHARED_FIELDS(table_fields, table_numbers, MEMBERS(tag, name, title, file),
              AS(f.content_id, "content_id"), F_OBJECT(shape, shape_fields),
              MADE("recommends", recommended_of), MEMBERS(run, shares_alone), AS(f.meta, "meta"),
              OBJECTS(head, n_budgets, weight_fields), OBJECTS(gate, n_budgets, threshold_fields),
              MADE("shares", shares_of),
              {FIELD(evidence), .name = "evidence", BY(n_sides), .of = evidence_fields,
               .as = AS_MEMBERS, WHEN(f.has_evidence)},
              {FIELD(trust), .name = "statistics", BY(n_sides), .of = trust_fields,
               .as = AS_MEMBERS},
              AS(leaks, "leak_check", .of = leak_fields), F_OBJECT(verdict, verdict_fields),
              AS(f.xfer, "transfer", .omit = true));
