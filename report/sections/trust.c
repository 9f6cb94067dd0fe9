/* How far to trust a table: undecided entries, the paper's premise, the calibration bound, other
 * settings of the fit. */
#include <math.h>

#include "report/sections/sections.h"

#define EVEN_SHARE 0.5 /* of a profile that is common: more signal than noise */

/* ---- entries ---- */

SHARED_TABLE(refit_entry_columns, entry, BOTH(agree, "agreeing_refits"),
             BOTH(advantage, "advantage_over_neutral"), BOTH(lower_bound, "lower_bound"),
             JSON(verdict, .csv = "verdict", .bare = true));

#define BOUND(m, name, in_csv) JSON_AS(m, name, .csv = (in_csv), WHEN(bounded))
TABLE(bound_entry_columns, entry, BOUND(bound.n_prompts, "n_prompts", "prompts"),
      BOUND(bound.n_actions, "n_actions", "actions"), BOUND(bound.width, "width", "width"),
      BOUND(bound.width_raw, "width_raw", "width_raw_rewards"),
      BOUND(bound.bound, "uniform", "uniform_bound"), BOUND(excess, "excess", "excess_bound"),
      BOUND(excess_raw, "excess_raw", "excess_bound_raw_rewards"),
      BOUND(bound.spread, "spread", "spread_of_means"));

/* ---- variance ---- */

TABLE(interval_columns, rank_interval, MEMBERS(mean, lo, hi, n));

static const char *premise(const void *row) {
    const variance_split *v = row;
    const double lo = v->action_interval.lo, hi = v->action_interval.hi;
    if (!isfinite(lo) || !isfinite(hi)) { return "not testable"; }
    if (lo > 0 && lo / (lo + v->rest) > EVEN_SHARE) { return "refuted: one prompt is enough"; }
    if (!(hi > 0) || hi / (hi + v->rest / v->n_prompts) < EVEN_SHARE) {
        return "refuted: prompts share too little";
    }
    const bool shared = lo > 0 && v->common_one < EVEN_SHARE && v->common_all > EVEN_SHARE;
    return shared ? "supported" : "undecided";
}

/* The standard deviation of a component; below 0 there is none. */
static const char *deviation(double component) {
    return say_fixed(component > 0 ? sqrt(component) : component, 4);
}
SAY(deviation_of, variance_split,
    say("%s (%s to %s)", deviation(o->action), deviation(fmax(o->action_interval.lo, 0)),
        deviation(fmax(o->action_interval.hi, 0))))

TABLE(variance_columns, variance_split, JSON_AS(n_states, "states"),
      PAGE(action, "premise", .say = premise, .align = "ll"),
      SHOWN_AS(n_prompts, "prompts_per_state", "prompts/state", FIXED(1)),
      SHOWN(share_prompt_raw, "raw: prompts", NEAR_ONE), SHOWN(share_prompt, "prompts", NEAR_ONE),
      SHOWN(share_action, "actions", NEAR_ONE), SHOWN(share_rest, "the rest", NEAR_ONE),
      SHOWN(common_one, "shared, 1", NEAR_ONE), SHOWN(common_all, "shared, all", NEAR_ONE),
      PAGE(action, "actions, nats (95%)", .say = deviation_of),
      MEMBERS(prompt_raw, prompt, action, rest), OBJECT(action_interval, interval_columns));

SAY(part_of, side_trust, o->kind->penalty ? say("%s, loss part", o->name) : o->name)
TABLE(variance_table, side_trust, PAGE(title, "table"), PAGE(name, "side", .say = part_of),
      MERGE(variance, variance_columns));

/* ---- refits ---- */

TABLE(curve_columns, curve_point, MEMBERS(prompts, keep, records, rollouts, supported, corrected),
      OBJECT(rho, spread_columns), OBJECT(to_full, spread_columns));
TABLE(left_out_columns, left_out_point, MERGE(gain, interval_columns),
      MEMBERS(prompts, records, rollouts));
TABLE(refits_columns, side_refits, SHOWN(decided, "decided"), SHOWN(undecided, "undecided"),
      SHOWN(neutral, "neutral"), SHOWN(without_records, "no records"),
      SHOWN(agree, "same choice in refits", SHARE), SHOWN(replicates, "refits"),
      MEMBERS(curve_repeats, neutral_choice), OBJECTS(curve, n_curve, curve_columns),
      JSON_AS(thinned, "curve_fewer_states", OF(curve_columns), BY(n_thinned)),
      OBJECTS(left_out, n_left_out, left_out_columns));

SAY(neutral_of, side_trust,
    say("%s %s", o->kind->axis == SIDE_OF_HEADS ? "weight" : "threshold",
        say_fixed(o->refits.neutral_choice, 2)))
TABLE(refits_table, side_trust, PAGE(title, "table"), PAGE(name, "side"),
      PAGE(refits.neutral_choice, "neutral choice", .say = neutral_of),
      MERGE(refits, refits_columns), PAGE(prompts, "prompts"), PAGE(rollouts, "rollouts"));

/* ---- other settings of the fit ---- */

SAY(alpha_of, alpha_point, o->vacuous ? "0 to 5" : say_fixed(o->alpha, 2))
TABLE(alpha_columns, alpha_point, SHOWN(alpha, "α", .say = alpha_of),
      SHOWN(changed_from_default, "changed from 0.75", SHARE),
      SHOWN(changed_from_0, "changed from 0", SHARE), SHOWN(mean_entry, "mean entry", FIXED(3)),
      SHOWN(left_out, "advantage on prompts left out (half)", OF(interval_columns), INTERVAL(4)));

#define IF_RAN WHEN(ran), .omit = true
SAY(distance_of, adamw_numbers, o->ran ? say_fixed(o->distance, 2) : o->skipped)
TABLE(adamw_columns, adamw_numbers, JSON(skipped, .omit = true),
      SHOWN(changed, "AdamW: changed", SHARE, IF_RAN, ABSENT("left out")),
      SHOWN(distance, "distance of Q", .say = distance_of, IF_RAN),
      SHOWN(updates, "updates", IF_RAN, ABSENT("")));
TABLE(settings_table, side_trust, PAGE(title, "table"), PAGE(name, "side"),
      PAGE(alpha_decided, "decided by α", SHARE),
      PAGE(count_noise, "turned by random counts", SHARE), PAGE(other_reward, "other rewards"),
      PAGE(other_changed, "changed", SHARE), MERGE(adamw, adamw_columns));

/* ---- all of a side's JSON ---- */

TABLE(bound_columns, bound_sums,
      MEMBERS(delta, states, actions, mean_prompts, mean_width, informative, informative_raw));
TABLE(bound_part_columns, side_trust, MERGE(bound, bound_columns),
      ARRAYS(entries, states, bound_entry_columns));
TABLE(other_reward_columns, side_trust, JSON_AS(other_reward, "kind"),
      JSON_AS(other_changed, "changed"));
TABLE(rank_columns, rank_point, MEMBERS(same, lo, hi, other));
TABLE(ranks_columns, side_trust, JSON_AS(rank_states, "states"),
      ARRAYS(ranks, n_ranks, rank_columns));
TABLE(refitted_columns, side_trust, MERGE(refits, refits_columns), MEMBERS(states),
      JSON(entries, OF(refit_entry_columns), BY(states), .as = AS_ARRAYS));
TABLE(known_columns, side_trust, MEMBERS(prompts, records, rollouts, even_counts, count_noise),
      OBJECT(variance, variance_columns), GROUP("bound", bound_part_columns),
      GROUP("other_reward", other_reward_columns),
      JSON_AS(alphas, "alpha", OF(alpha_columns), BY(n_alphas)), OBJECT(adamw, adamw_columns),
      GROUP("ranks", ranks_columns), INCLUDE(refitted_columns, WHEN(has_refits)));
SHARED_TABLE(trust_columns, side_trust, KEY(name), MEMBERS(missing),
             INCLUDE(known_columns, WHEN(known)));

/* ---- findings ---- */

static void entry_findings(const report_numbers *n, view *v) {
    EACH(table_numbers, table, n->tables, n->n_tables) {
        const char *sides = "";
        EACH(side_trust, t, table->trust, CKVC_SIDE_COUNT) {
            if (!t->has_refits) { continue; }
            sides = say_more(sides, " and ", "%zu of %zu %s%s", t->refits.decided,
                             t->states - t->refits.without_records, t->kind->entries,
                             say_few_refits((double)t->refits.replicates, true));
        }
        if (*sides) {
            finding(v, NULL, "%s: %s are better than the neutral choice beyond chance.",
                    table->title, sides);
        }
    }
}

/* ---- page ---- */

/* One sentence per table: what a single prompt is worth beside all of them. */
static void premise_sentence(const table_numbers *table, view *v) {
    const side_trust *t = &table->trust[CKVC_SIDE_HEAD];
    const variance_split *w = &t->variance;
    if (!t->has_variance || t->refits.n_curve == 0 || t->refits.n_left_out == 0) { return; }
    const left_out_point *first = t->refits.left_out, *last = first + t->refits.n_left_out - 1;
    page_text(v,
              "%s, head weights: the premise is %s. Of one prompt's ranking of actions %s is "
              "shared by other prompts, of %.0f prompts' mean %s. A table of one prompt agrees "
              "with the whole table at ρ = %s; on prompts left out one change chosen by 1 prompt "
              "(%.0f rollouts) brings %s nats per token, by %.0f prompts (%.0f rollouts) %s.",
              table->title, premise(w), say_share(w->common_one), w->n_prompts,
              say_share(w->common_all), say_fixed(t->refits.curve->to_full.mean, 2),
              first->rollouts, SAY_INTERVAL(first->gain, 4), last->prompts, last->rollouts,
              SAY_INTERVAL(last->gain, 4));
}

/* A table of the sides where a flag stands. */
static void side_table(const report_numbers *n, view *v, const char *caption, columns_of *of,
                       size_t flag) {
    page_table_begin(v, caption, of);
    EACH(side_trust, t, n->trust, n->n_trust) {
        if (*((const bool *)t + flag)) { page_row(v, of, t); }
    }
    page_table_end(v);
}

static void variance_part(const report_numbers *n, view *v) {
    bool any = false;
    EACH(side_trust, t, n->trust, n->n_trust) { any |= t->has_variance; }
    if (!any) {
        page_note(v, "No state has two prompts that logged its whole grid: where rewards vary "
                     "cannot be said.");
        return;
    }
    side_table(
        n, v,
        "Where rewards vary: shares of the sums of squares of advantages within states, pooled",
        variance_table, offsetof(side_trust, has_variance));
    page_note(v,
              "Two-way analysis per state, reward = prompt + action + rest, over prompts that "
              "logged the whole grid; raw: the same of rewards before the baseline is taken "
              "off. Shared: the variance of actions over itself plus the rest divided by the "
              "number of prompts. Supported: one prompt's ranking is mostly its own (below 50%% "
              "shared), that of all prompts mostly shared, and the variance of actions is above "
              "0 (jackknife over documents). Refuted: 50%% is out of reach even at the upper end, "
              "or reached by one prompt. Last column: standard deviation between actions.");
}

static void bound_sentence(const side_trust *t, view *v) {
    const bound_sums *o = &t->bound;
    page_note(v,
              "%s, %s: the paper's bound on the excess, 2Δ√(log(2|A|/δ)/2N) with δ = %.2g, |A| = "
              "%zu and, on average, N = %.1f prompts and Δ = %s nats (advantages, as seen), is "
              "below the spread of the actions' means in %zu of %zu states (raw rewards: %zu): %s.",
              t->title, t->name, o->delta, o->actions, o->mean_prompts, say_fixed(o->mean_width, 3),
              o->informative, o->states, o->informative_raw,
              o->informative == 0              ? "it says nothing here"
              : 2 * o->informative < o->states ? "it says something in few states"
                                               : "it says something");
}

static void alpha_rows(const side_trust *t, view *v) {
    page_group(v, alpha_columns, "%s, %s%s", t->title, t->name,
               t->even_counts
                   ? ": counts are equal within states, so no α can change a choice (vacuous)"
                   : "");
    EACH(alpha_point, p, t->alphas, t->n_alphas) {
        if (!t->even_counts || p->alpha == 0.75) { page_row(v, alpha_columns, p); }
    }
}

static void settings_part(const report_numbers *n, view *v) {
    page_table_begin(v, "The same records under other weights of conservatism", alpha_columns);
    EACH(side_trust, t, n->trust, n->n_trust) {
        if (t->known) { alpha_rows(t, v); }
    }
    page_table_end(v);
    side_table(n, v, "Other ways to fit the same records", settings_table,
               offsetof(side_trust, known));
    page_note(
        v,
        "Decided by α: states whose choice is not that of the plain mean reward. Turned by random "
        "counts: choices that would change had as many records been drawn uniformly, with the same "
        "means. AdamW: the paper's optimiser from zeros, 10 epochs of batches of 4,096 at 3e-4; "
        "each update moves an entry by about that much, so few updates end far from the minimum.");
}

/* With the records of some table at hand. */
static void known_part(const report_numbers *n, view *v) {
    bool cut = false;
    page_text(
        v, "The paper's premise is that heads and risks show more regularity across prompts than "
           "one prompt can show: then curves rise with prompts, and few choices stay undecided.");
    EACH(table_numbers, t, n->tables, n->n_tables) { premise_sentence(t, v); }
    side_table(n, v, "Entries: better than the neutral choice beyond chance?", refits_table,
               offsetof(side_trust, has_refits));
    EACH(side_trust, t, n->trust, n->n_trust) {
        cut |= t->has_refits && t->refits.replicates < n->in->o->replicates;
    }
    if (cut) {
        page_note(v,
                  "%u refits were asked for; under uniform logging or with large grids they are "
                  "cut to what takes seconds, to 100 at least. The column says how many there are.",
                  (unsigned)n->in->o->replicates);
    }
    draw_learning(n, v);
    page_fold(v, "Where rewards vary, the paper's bound, other settings of the fit");
    variance_part(n, v);
    EACH(side_trust, t, n->trust, n->n_trust) {
        if (t->known && t->bound.states) { bound_sentence(t, v); }
    }
    settings_part(n, v);
    page_fold_end(v);
}

void trust_section(const report_numbers *n, view *v) {
    const char *missing = "";
    bool any = false;
    EACH(side_trust, t, n->trust, n->n_trust) { any |= t->known; }
    entry_findings(n, v);
    if (any) { known_part(n, v); }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const side_trust *head = &t->trust[CKVC_SIDE_HEAD], *gate = &t->trust[CKVC_SIDE_GATE],
                         *of = head->known ? gate : head;
        if (of->known) { continue; }
        const bool some = head->known || gate->known;
        missing = say_more(missing, "; ", "of %s%s%s, because %s", t->tag, some ? "\u2019s " : "",
                           some ? of->kind->entries : "",
                           t->shares_alone ? "it holds budgets alone, whose undecided ones are "
                                             "marked above"
                                           : of->missing);
    }
    if (*missing) { page_note(v, "Nothing is said here %s.", missing); }
}
