/* See fit_result.h. */
#include "fit/fit_result.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/json.h"

fit_options fit_defaults(void) {
    return (fit_options){.cql_alpha = REWARD_CQL_ALPHA,
                         .mode = CKVC_MODE_HEADS,
                         .score = CKVC_SCORE_LEARNED,
                         .features = CKVC_FEATURES_1,
                         .c_min = 0.2,
                         .seed = 1,
                         .memory_max = (size_t)4 << 30};
}

const char *fit_unsupported_name(fit_unsupported u) {
    static const char *const names[] = {"incoming", "safest", "neighbour"};
    return names[u];
}

void fit_result_free(fit_result *r) {
    if (!r) { return; }
    table_file_free(r->table);
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        free(r->sides[i].choices);
        decided_fini(&r->sides[i].why);
    }
    CKVC_FREE(r->demand.blocks, r);
}

/* A NaN is no JSON: it is left out. */
static void set_real(json_t *o, const char *key, double v) {
    if (isfinite(v)) { json_object_set_new(o, key, json_real(v)); }
}

/* How many prompts, and of how many documents where some share one. */
static void set_prompts(json_t *o, uint64_t prompts, uint64_t documents) {
    JSON_NUMBERS(o, {"prompts", prompts});
    if (documents < prompts) { JSON_NUMBERS(o, {"documents", documents}); }
}

static json_t *side_numbers(const fitted_side *s, bool penalty) {
    const decided *d = &s->why;
    const uint64_t *records = d->records;
    const size_t n = d->n_supported;
    json_t *o = json_pack("{s:b}", "fitted", s->fitted);
    set_prompts(o, s->n_prompts, s->n_documents);
    JSON_NUMBERS(o, {"records", s->n_records}, {"states", s->n_states}, {"supported", n},
                 {"records_per_state_min", n ? records[0] : 0},
                 {"records_per_state_median", n ? d->median : 0},
                 {"records_per_state_max", n ? records[n - 1] : 0}, {"alpha_decided", d->n_alpha},
                 {"changed", s->n_changed}, {"shrunk", s->n_shrunk});
    set_real(o, "alpha_decided_share", n ? (double)d->n_alpha / (double)n : NAN);
    set_real(o, "count_correlation", d->correlation);
    set_real(o, "adamw_distance", s->adamw_distance);
    if (penalty) {
        const decided_split all = decided_sum(d, d->nB);
        JSON_NUMBERS(o, {"by_loss", all.by_loss}, {"by_penalty", all.supported - all.by_loss},
                     {"flat_loss", all.flat});
    }
    return o;
}

static json_t *units_numbers(const demand_units *u) {
    const shares_halves *h = &u->halves;
    json_t *o = json_object(), *rho = json_object(), *groups = json_array();
    set_real(rho, "overall", h->overall.mean);
    set_real(rho, "lo", h->overall.lo);
    set_real(rho, "hi", h->overall.hi);
    for (size_t g = 0; g < h->n_groups; ++g) {
        json_array_append_new(groups, ckvc_json_real(h->groups[g].mean));
    }
    json_object_set_new(rho, "layer_groups", groups);
    JSON_NUMBERS(o, {"entries", u->n}, {"undecided", u->undecided});
    json_object_set_new(o, "split_halves", rho);
    return o;
}

json_t *fit_demand_numbers(const fitted_demand *d, const double *budgets) {
    json_t *o = json_pack("{s:b}", "fitted", d->fitted), *list = json_array();
    set_prompts(o, d->n_prompts, d->n_documents);
    JSON_NUMBERS(o, {"replicates", d->n_replicates}, {"splits", d->n_splits});
    for (uint32_t b = 0; b < d->n_blocks; ++b) {
        const demand_block *block = &d->blocks[b];
        json_t *of =
            json_pack("{s:f, s:o, s:o}", "budget", budgets[b], "heads",
                      units_numbers(&block->heads), "layers", units_numbers(&block->layers));
        if (block->mix > 0) { json_object_set_new(of, "mix", json_real(block->mix)); }
        json_array_append_new(list, JSON_NUMBERS(of, {"prompts", block->n_prompts}));
    }
    json_object_set_new(o, "by_budget", list);
    return o;
}

static json_t *learned_numbers(const fitted_learned *l) {
    json_t *o = json_pack("{s:b}", "fitted", l->fitted);
    JSON_NUMBERS(o, {"prompts", l->n_prompts}, {"heldout_prompts", l->n_heldout},
                 {"positions", l->positions});
    set_real(o, "gradient", l->gradient);
    set_real(o, "cross_entropy", l->loss);
    set_real(o, "heldout_cross_entropy", l->heldout);
    set_real(o, "heldout_cross_entropy_window", l->heldout_window);
    set_real(o, "heldout_cross_entropy_expected", l->heldout_expected);
    return o;
}

double fit_mix(const table_file *t, uint32_t b) {
    const json_t *of = json_object_get(json_object_get(t->meta, "diagnostics"), "demand");
    return json_number_value(
        json_object_get(json_array_get(json_object_get(of, "by_budget"), b), "mix"));
}

json_t *fit_diagnostics(const fit_result *r) {
    json_t *o = json_object();
    if (r->learned.fitted) { json_object_set_new(o, "learned", learned_numbers(&r->learned)); }
    if (r->demand.fitted) {
        json_object_set_new(o, "demand", fit_demand_numbers(&r->demand, r->table->table->budgets));
    }
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const ckvc_side which = (ckvc_side)i;
        json_object_set_new(o, ckvc_side_name(which),
                            side_numbers(&r->sides[i], side_kind_of(which)->penalty));
    }
    return o;
}

/* Choices per budget of the table: by the loss, by the penalty. */
static json_t *split_json(const double *budgets, const decided *d) {
    json_t *list = json_array();
    for (size_t b = 0; b < d->nB; ++b) {
        const decided_split s = decided_sum(d, b);
        json_array_append_new(list, JSON_NUMBERS(json_pack("{s:f}", "budget", budgets[b]),
                                                 {"supported", s.supported}, {"by_loss", s.by_loss},
                                                 {"by_penalty", s.supported - s.by_loss},
                                                 {"flat_loss", s.flat}));
    }
    return list;
}

json_t *fit_describe(const fit_result *r) {
    json_t *o = fit_diagnostics(r);
    /* not in META, which is hashed: content ids of tables must not depend on what is printed beside
     * them */
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fitted_side *s = &r->sides[i];
        json_t *of = json_object_get(o, ckvc_side_name((ckvc_side)i));
        set_real(of, "count_noise_share", s->count_noise);
        if (s->why.split) {
            json_object_set_new(of, "by_budget", split_json(r->table->table->budgets, &s->why));
        }
    }
    static const char *const of_meta[] = {"solver", "reward", "unsupported"};
    for (int i = 0; i < 3; ++i) {
        json_object_set(o, of_meta[i], json_object_get(r->table->meta, of_meta[i]));
    }
    return JSON_NUMBERS(o, {"replicates", r->n_replicates}, {"heldout_prompts", r->n_heldout},
                        {"filtered_prompts", r->n_filtered},
                        {"duplicate_prompts", r->n_duplicates});
}
