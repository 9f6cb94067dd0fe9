/* See budgets.h. */
#include "budgets/budgets.h"

#include "lib/base/json.h"

static json_t *units_numbers(const demand_units *u) {
    const shares_halves *h = &u->halves;
    json_t *o = json_object(), *rho = json_object(), *groups = json_array();
    ckvc_json_set_real(rho, "overall", h->overall.mean);
    ckvc_json_set_real(rho, "lo", h->overall.lo);
    ckvc_json_set_real(rho, "hi", h->overall.hi);
    for (size_t g = 0; g < h->n_groups; ++g) {
        json_array_append_new(groups, ckvc_json_real(h->groups[g].mean));
    }
    json_object_set_new(rho, "layer_groups", groups);
    JSON_NUMBERS(o, {"entries", u->n}, {"undecided", u->undecided});
    json_object_set_new(o, "split_halves", rho);
    return o;
}

json_t *fitted_demand_json(const fitted_demand *d, const double *budgets) {
    json_t *o = json_pack("{s:b}", "fitted", d->fitted), *list = json_array();
    JSON_NUMBERS(o, {"prompts", d->n_prompts});
    if (d->n_documents < d->n_prompts) { JSON_NUMBERS(o, {"documents", d->n_documents}); }
    JSON_NUMBERS(o, {"replicates", d->n_replicates}, {"splits", d->n_splits});
    for (uint32_t b = 0; b < d->n_blocks; ++b) {
        const demand_block *block = &d->blocks[b];
        json_t *of =
            json_pack("{s:f, s:o, s:o}", "budget", budgets[b], "heads",
                      units_numbers(&block->heads), "layers", units_numbers(&block->layers));
        if (block->lengths.n) {
            json_object_set_new(of, "lengths", units_numbers(&block->lengths));
        }
        if (block->mix > 0) { json_object_set_new(of, "mix", json_real(block->mix)); }
        json_array_append_new(list, JSON_NUMBERS(of, {"prompts", block->n_prompts}));
    }
    json_object_set_new(o, "by_budget", list);
    return o;
}

json_t *fitted_learned_json(const fitted_learned *l) {
    json_t *o = json_pack("{s:b}", "fitted", l->fitted);
    JSON_NUMBERS(o, {"prompts", l->n_prompts}, {"heldout_prompts", l->n_heldout},
                 {"positions", l->positions});
    ckvc_json_set_real(o, "gradient", l->gradient);
    ckvc_json_set_real(o, "cross_entropy", l->loss);
    ckvc_json_set_real(o, "heldout_cross_entropy", l->heldout);
    ckvc_json_set_real(o, "heldout_cross_entropy_window", l->heldout_window);
    ckvc_json_set_real(o, "heldout_cross_entropy_expected", l->heldout_expected);
    return o;
}

const char *bank_of_name(bank_of of) {
    static const char *const names[] = {"prompt", "continuation", "both"};
    return names[of];
}

json_t *fitted_bank_json(const fitted_bank *b) {
    return JSON_NUMBERS(json_pack("{s:s}", "of", bank_of_name(b->of)), {"queries", b->n},
                        {"prompts", b->n_prompts}, {"rows", b->n_rows});
}

double budgets_mix(const table_file *t, uint32_t b) {
    const json_t *of = json_object_get(json_object_get(t->meta, "diagnostics"), "demand");
    return json_number_value(
        json_object_get(json_array_get(json_object_get(of, "by_budget"), b), "mix"));
}
