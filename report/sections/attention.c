/* Attention that compression leaves out, against the paper's bound. */
#include "report/sections/sections.h"

TABLE(layer_columns, attention_layer, CSV(layer), BOTH(epsilon, "epsilon"), BOTH(bound, "bound"),
      BOTH(error, "error"), BOTH(drift, "drift"),
      BOTH(drift_above_bound, "drift_above_bound_share"),
      MEMBERS(error_of_bound, most_error_of_bound));
TABLE(correlation_columns, partial_result, JSON_AS(r, "spearman"), MEMBERS(lo, hi));

/* Policy, title, model, budget, C of what was measured under one series. */
SHARED_TABLE(under_columns, score_series, SHOWN(title, "policy"), MEMBERS(policy, model, budget),
             JSON_AS(continuation, "C"));

SHARED_TABLE(
    attention_columns, attention_numbers, MERGE(of, under_columns), SHOWN(n, "n"),
    PAGE(mean.epsilon, "ε", FIXED(3)), PAGE(mean.bound, "bound", FIXED(2)),
    PAGE(mean.error, "measured", FIXED(2)), PAGE(mean.error_of_bound, "of the bound", SHARE),
    PAGE(mean.most_error_of_bound, "closest", SHARE), PAGE(mean.drift, "with drift", FIXED(2)),
    PAGE(mean.drift_above_bound, "drift above bound", SHARE),
    SHOWN(bound_with_damage, "bound against damage, ρ", OF(correlation_columns), INTERVAL(2)),
    SHOWN(error_with_damage, "measured against damage, ρ", OF(correlation_columns), INTERVAL(2)),
    OBJECT(drift_with_damage, correlation_columns), OBJECTS(layers, n_layers, layer_columns));

static void draw_layers(const report_numbers *n, view *v, const attention_numbers *o,
                        size_t number) {
    const attention_layer *l = o->layers;
    const size_t L = o->n_layers, size = sizeof *l;
    const int dots = L <= 64 ? CURVE_DOTS : 0, own = series_of_table(n, &o->of);
    const chart_curve curves[] = {
        {"bound, 2·√(C−1)·ε", L, size, &l->layer, &l->bound, dots | CURVE_DASHED, VIEW_REFERENCE},
        {"measured", L, size, &l->layer, &l->error, dots, own},
        {"with drift of hidden states", L, size, &l->layer, &l->drift, dots | CURVE_DASHED, own}};
    figure_table(v, layer_columns, l, L);
    figure_curves(
        v, curves, 3, CHART_Y_LOG,
        say("Attention left out by layer: %s, budget %s", o->of.title, say_budget(o->of.budget)),
        "layer", "Frobenius norm, mean over heads");
    figure_end(v, say("attention-%zu", number),
               "Mean over held-out prompts. The measured error never passes the bound; the "
               "rollout's own attention, whose hidden states have moved too, may.");
}

/* A table before identity before the rest. */
static int rank_of(const attention_numbers *o) {
    return o->of.kind == SCORE_TABLE ? 0 : o->of.kind == SCORE_IDENTITY ? 1 : 2;
}

/* The first of the best in its setting. */
static bool is_drawn(const report_numbers *n, const attention_numbers *o) {
    EACH(attention_numbers, other, n->attention, n->n_attention) {
        if (series_of_one_setting(&o->of, &other->of) &&
            (rank_of(other) < rank_of(o) || (rank_of(other) == rank_of(o) && other < o))) {
            return false;
        }
    }
    return true;
}

void attention_section(const report_numbers *n, view *v) {
    size_t number = 0;
    page_text(
        v,
        "The tail bound of the paper's Proposition, on each layer: with m the attention mass that "
        "a continuation query puts on dropped prompt positions, a row restricted to what is kept "
        "and renormalised differs from the full row by exactly 2m in sum, so the mean over heads "
        "of \u2016A \u2212 A\u2032\u2016 (Frobenius) is at most 2\u00B7√(C\u22121)\u00B7ε, ε being "
        "the mean over heads of the root mean square of m over the C\u22121 queries.");
    EACH(attention_numbers, o, n->attention, n->n_attention) {
        if (is_drawn(n, o)) { draw_layers(n, v, o, ++number); }
    }
    page_table_begin(v, "Every policy, means over layers and prompts", attention_columns);
    EACH(attention_numbers, o, n->attention, n->n_attention) {
        if (o == n->attention || !series_of_one_setting(&o->of, &o[-1].of)) {
            page_group(v, attention_columns, "budget %s, C = %u, model %.12s",
                       say_budget(o->of.budget), o->of.continuation, o->of.model);
        }
        page_row(v, attention_columns, o);
    }
    page_table_end(v);
    page_note(v, "Closest: the largest share of the bound that any layer of any prompt reaches. "
                 "With drift: against the rows of the compressed rollout itself, whose hidden "
                 "states have moved in the layers below; the Proposition says nothing about these, "
                 "so they may pass the bound. Against damage: Spearman over prompts of the mean "
                 "over layers with the rise of the loss, 95%% interval over resampled prompts.");
}
