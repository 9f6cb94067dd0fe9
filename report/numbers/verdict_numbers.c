/* Decides whether to deploy a table, by the rule of docs/method.md, section 7.
 *
 * At each budget it must be better than identity and not worse than the best simple reference,
 * both at as many entries, on held-out prompts. Both must be decided: the whole 95% interval
 * says so. The table's prompts must have passed the leak check. Where only the number of prompts
 * is in the way, the verdict says how many more it takes, because an interval shrinks as
 * 1/sqrt(n). */
#include <math.h>

#include "report/numbers/numbers.h"

const char verdict_deploy[] = "deploy";
static const char more_prompts[] = "needs more prompts", not_yet[] = "do not deploy";

/* Does the policy need neither a table nor a second pass over the prompt? Such policies stand
 * ready in serving engines. */
static bool is_simple(const score_series *s) {
    return policy_is_reference(s->kind) && !policy_needs_table(s->kind) &&
           !policy_is_fitted(s->policy) && !series_reads_twice(s);
}

/* Rounds up to two digits, which are as many as such an estimate has. */
static double round_up(double v) {
    const double unit = v < 100 ? 1 : pow(10, floor(log10(v)) - 1);
    return ceil(v / unit) * unit;
}

/* Returns what a condition needs. With `tie`, an interval that ends at 0 holds. Prompts of one
 * document count as one towards the least number of prompts. An interval is undefined for one
 * document alone. */
static verdict_need need_of(const comparison *by, bool tie) {
    const verdict_need never = {by, NAN};
    if (!by || !by->all.equal_tokens || by->all.n == 0) { return never; }
    const interval *d = difference_deciding(&by->all);
    const double n = (double)by->all.n, least = fmax(PART_MIN - (double)by->all.n_documents, 0);
    if (!isfinite(d->lo) || d->lo > 0 || (tie && d->lo == 0)) { return (verdict_need){by, least}; }
    if (!(d->mean > 0)) { return never; }
    const double width = (d->mean - d->lo) / d->mean;
    return (verdict_need){by, fmax(fmax(round_up(n * (width * width - 1)), 1), least)};
}

static bool is_opponent(const comparison *c, const score_series *table) {
    return series_alike(&c->of, table) && is_simple(&c->base) && c->all.equal_tokens &&
           strncmp(c->base.policy, "KVzip", 5) != 0; /* a press that reads twice */
}

/* Returns the reference against which a table does worst, by KL where all have it. NULL means
 * that none keeps as many entries. */
static const comparison *best_reference(const score_numbers *s, const score_series *table) {
    const comparison_list *list = &s->lists[AT_EQUAL_TOKENS];
    const comparison *best = NULL;
    bool kl = true;
    EACH(comparison, c, list->of, list->n) { kl &= c->all.by_kl || !is_opponent(c, table); }
    EACH(comparison, c, list->of, list->n) {
        if (is_opponent(c, table) && (!best || (kl ? c->all.kl.mean < best->all.kl.mean
                                                   : c->all.d.mean < best->all.d.mean))) {
            best = c;
        }
    }
    return best;
}

/* Returns the comparison that says what a table gains over identity. Where identity keeps
 * another number of entries, top-k stands for it: it is what identity would keep with as many. */
static const comparison *find_gain_over_identity(const score_numbers *s,
                                                 const score_series *table) {
    const comparison_list *list = &s->lists[AGAINST_IDENTITY], *equal = &s->lists[AT_EQUAL_TOKENS];
    const comparison *found = NULL;
    EACH(comparison, c, list->of, list->n) {
        if (!found && series_alike(&c->of, table)) { found = comparison_gain(s, c); }
    }
    if (found && found->all.equal_tokens) { return found; }
    EACH(comparison, c, equal->of, equal->n) {
        if (series_alike(&c->of, table) && c->base.kind == POLICY_TOP_K && c->all.equal_tokens) {
            return c;
        }
    }
    return found;
}

/* Returns what the cache of a request takes. */
static json_t *cache_of(const score_series *s) {
    const cache_size o = series_cache(s);
    return OBJECT(OF(&o, tokens), OF(&o, layers), OF(&o, kv_heads), OF(&o, head_dim),
                  OF(&o, entries), OF(&o, all_entries), OF(&o, bytes), OF(&o, all_bytes),
                  {"saved_bytes", J(o.all_bytes - o.bytes)});
}

/* Returns the comparison that says what fitting entries brings, or NULL. */
static const comparison *find_unfitted(const score_numbers *s, const score_series *table) {
    const comparison_list *list = &s->lists[AGAINST_CONTROLS];
    EACH(comparison, c, list->of, list->n) {
        if (series_alike(&c->of, table) && c->base.kind == POLICY_TABLE) { return c; }
    }
    return NULL;
}

static const char *word_of(double needed) {
    return needed == 0 ? verdict_deploy : needed > 0 ? more_prompts : not_yet;
}

/* Returns the worse of two needs; NaN is the worst. */
static double worse_of(double a, double b) { return isnan(a) || a > b ? a : b; }

static verdict_at verdict_of(const report_numbers *n, const table_numbers *t,
                             const score_series *s) {
    verdict_at o = {.of = s, .budget = s->budget, .loss = series_loss(s, false)};
    o.kl = series_loss(s, true);
    o.prompts = (double)s->n;
    o.gain = need_of(find_gain_over_identity(&n->scores, s), false);
    o.reference = need_of(best_reference(&n->scores, s), true);
    o.unfitted = find_unfitted(&n->scores, s);
    o.needed = t->verdict.leak_passed && t->verdict.held_out
                   ? worse_of(o.gain.prompts, o.reference.prompts)
                   : NAN;
    o.word = word_of(o.needed);
    return o;
}

/* Is this series scored as the table recommends for its budget? A budget that the table lacks
 * counts as recommended. */
static bool is_recommended(const table_numbers *t, const score_series *s) {
    for (uint32_t b = 0; b < t->shape->n_budgets; b++) {
        const ckvc_score like = ckvc_table_score(t->shape, b);
        const cache_formats held = table_file_held(t->f, b);
        if (t->shape->budgets[b] == s->budget) {
            return s->setting.mode == (ckvc_mode)like.mode &&
                   s->setting.score == (ckvc_score_kind)like.kind &&
                   s->setting.ridge == ckvc_table_ridge(t->shape, b) &&
                   (!t->shape->held || (s->setting.cache_keys == held.keys &&
                                        s->setting.cache_values == held.values)) &&
                   (!t->shape->c_min || like.mode == CKVC_MODE_SHARED ||
                    s->setting.floor == t->shape->c_min[b].floor);
        }
    }
    return true;
}

/* Is a table judged by this series? A score that is not recommended counts only where the
 * recommended one was not scored. What a later turn loses judges no table. */
static bool is_judged(const report_numbers *n, const table_numbers *t, const score_series *s) {
    const bool own = strcmp(s->table, t->f->content_id) == 0 && s->kind == POLICY_TABLE &&
                     s->setting.compress_after == SETTING_TURN_LAST;
    if (!own) { return false; }
    bool other = false;
    EACH(score_series, x, n->scores.series, n->scores.n_series) {
        other |= x->kind == POLICY_TABLE && strcmp(x->table, s->table) == 0 &&
                 series_of_one_setting(x, s) && is_recommended(t, x);
    }
    return is_recommended(t, s) || !other;
}

/* ---- JSON ---- */

/* Returns what a condition was judged by; null means that there is nothing. */
static json_t *need_json(const verdict_need *need) {
    const comparison *by = need->by;
    if (!by) { return json_null(); }
    return OBJECT(
        {"against", J(by->base.title)}, {"policy", J(by->base.policy)}, {"prompts", J(by->all.n)},
        {"documents", J(by->all.n_documents)}, {"equal_in", J(difference_equal_in(&by->all))},
        {"by", J(by->all.by_kl ? "kl" : "loss")}, {"difference", J(by->all.d.mean)},
        {"lo", J(by->all.d.lo)}, {"hi", J(by->all.d.hi)}, {"kl_difference", J(by->all.kl.mean)},
        {"kl_lo", J(by->all.kl.lo)}, {"kl_hi", J(by->all.kl.hi)}, {"needed", J(need->prompts)});
}

static json_t *part_name(const difference *of) {
    if (of->has_lengths) { return json_sprintf("T from %u to %u", of->T_lo, of->T_hi); }
    if (of->kind) {
        return J(strcmp(of->kind, "text") == 0 ? "text prompts" : "retrieval prompts");
    }
    return of->source && *of->source ? json_sprintf("source: %s", of->source) : J("(no source)");
}

/* Returns what the verdict turns on, by part of the prompts: the comparison with the best simple
 * reference or, where none was scored, with identity or matched. */
static json_t *verdict_parts_json(const verdict_at *o) {
    const comparison *by = o->reference.by ? o->reference.by : o->gain.by;
    json_t *list = json_array();
    for (size_t i = 0; by && i <= by->n_kinds + by->n_sources + by->n_lengths; i++) {
        const difference *d = i ? &by->kinds[i - 1] : &by->all;
        json_array_append_new(list, ADD_MEMBERS(difference_json(d),
                                                {"part", i ? part_name(d) : J("all prompts")},
                                                {"against", J(by->base.policy)}));
    }
    return list;
}

static json_t *interval_json(const interval *x) {
    return OBJECT(OF(x, mean), OF(x, lo), OF(x, hi));
}

/* Returns what is lost without fitting, and what fitting saves; NULL: this was not scored. */
static json_t *unfitted_json(const comparison *c) {
    if (!c) { return NULL; }
    const interval loss = series_loss(&c->base, false), kl = series_loss(&c->base, true);
    return ADD_MEMBERS(difference_json(&c->all), {"loss", interval_json(&loss)},
                       {"kl", interval_json(&kl)});
}

static json_t *at_json(const verdict_at *o) {
    return OBJECT(OF(o->of, title), OF(o, budget), OF(o, word), OF(o, prompts), OF(o, needed),
                  {"says", json_null()}, /* by findings_make */
                  {"gain", need_json(&o->gain)}, {"reference", need_json(&o->reference)},
                  {"parts", verdict_parts_json(o)}, {"loss", interval_json(&o->loss)},
                  {"kl", interval_json(&o->kl)}, {"cache", cache_of(o->of)},
                  {"unfitted", unfitted_json(o->unfitted)});
}

void verdict_numbers_make(report_numbers *n) {
    for (size_t i = 0; i < n->n_tables; i++) {
        table_numbers *t = &n->tables[i];
        verdict_numbers *v = &t->verdict;
        json_t *list = json_array();
        const char *leaks = json_text_of(json_object_get(t->json, "leak_check"), "state");
        *v = (verdict_numbers){.leak_passed = strcmp(leaks, "passed") == 0,
                               .held_out = n->scores.held_out_checked,
                               .budgets = NEW(n, n->scores.n_series, verdict_at)};
        EACH(score_series, s, n->scores.series, n->scores.n_series) {
            if (is_judged(n, t, s)) {
                verdict_at *at = &v->budgets[v->n_budgets++];
                *at = verdict_of(n, t, s);
                v->needed = worse_of(v->needed, at->needed);
                json_array_append_new(list, at_json(at));
            }
        }
        if (v->n_budgets == 0) { v->needed = NAN; }
        v->word = v->n_budgets ? word_of(v->needed) : "no verdict";
        json_t *o = OBJECT(OF(v, word), OF(v, needed), OF(v, leak_passed), OF(v, held_out),
                           {"budgets", list});
        json_object_set_new(t->json, "verdict", o);
    }
}
