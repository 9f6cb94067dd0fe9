/* See fit_result.h. */
#include "fit/fit_result.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/json.h"

fit_options fit_defaults(void) {
    return (fit_options){.cql = {.cql_alpha = REWARD_CQL_ALPHA},
                         .budgets = {.mode = CKVC_MODE_HEADS,
                                     .score = CKVC_SCORE_LEARNED,
                                     .features = CKVC_FEATURES_1,
                                     .c_min = 0.2,
                                     .bank = {.n = 48, .of = BANK_OF_BOTH}},
                         .resampled = {.seed = 1},
                         .memory_max = (size_t)4 << 30};
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

json_t *fit_diagnostics(const fit_result *r) {
    json_t *o = json_object();
    if (r->learned.fitted) { json_object_set_new(o, "learned", fitted_learned_json(&r->learned)); }
    if (r->bank.n) { json_object_set_new(o, "bank", fitted_bank_json(&r->bank)); }
    if (r->demand.fitted) {
        json_object_set_new(o, "demand", fitted_demand_json(&r->demand, r->table->table->budgets));
    }
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const ckvc_side which = (ckvc_side)i;
        json_object_set_new(o, ckvc_side_name(which),
                            fitted_side_json(&r->sides[i], side_kind_of(which)->penalty));
    }
    return o;
}

/* Returns how many choices the loss decides, and how many the penalty decides, for each budget of
 * the table. */
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
    /* These are not in META, which is hashed: content ids of tables must not depend on what is
     * printed beside them. */
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fitted_side *s = &r->sides[i];
        json_t *of = json_object_get(o, ckvc_side_name((ckvc_side)i));
        ckvc_json_set_real(of, "count_noise_share", s->count_noise);
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
