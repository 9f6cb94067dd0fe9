/* Computes one table's own numbers: its entries, weights and thresholds by budget, monotonicity,
 * and what the choices rest on. */
#include <math.h>

#include "cql/solve/variance.h"
#include "formats/lines/leak_record.h"
#include "lib/base/memory.h"
#include "report/numbers/numbers.h"

/* These functions say whether the prompts behind a table were checked for leaks, and whether
 * against the prompts that it is scored on here (manifest.md, "Leaks"). */

/* Returns an object whose keys are the manifests of a table's score rows. A value of true means
 * that every check so far compared that manifest. */
static json_t *scored_manifests(const report_numbers *n, const table_numbers *t) {
    json_t *set = json_object();
    const score_files *f = &n->in->scores;
    const char *last = "";
    for (size_t i = 0; i < f->n_files; i++) {
        for (size_t k = 0; k < f->files[i]->n; k++) {
            const score_row *row = &f->files[i]->rows[k];
            if (strcmp(row->table, t->f->content_id) == 0 && strcmp(row->manifest, last) != 0) {
                json_object_set_new(set, row->manifest, json_true());
                last = row->manifest;
            }
        }
    }
    return set;
}

typedef struct leak_sums { /* Sums over the checks of a table's manifests. */
    size_t prompts, files, leaked_prompts, leaked_in_scored; /* leaked_in_scored is a lower bound */
    size_t scored_manifests, scored_not_compared;
    unsigned ngram;
} leak_sums;

/* Adds a check to the sums. False means that it is malformed. */
static bool add_check(leak_sums *sums, const json_t *check, json_t *scored) {
    leak_record rec;
    ckvc_err why = {0};
    json_t *compared;
    const char *manifest;
    if (leak_record_parse(check, "META", &rec, &why) != CKVC_OK) { return false; }
    sums->prompts += rec.prompts;
    sums->leaked_prompts += rec.leaked_prompts;
    sums->files += rec.n_against;
    sums->ngram = rec.ngram > sums->ngram ? rec.ngram : sums->ngram;
    uint64_t leaked = 0; /* counts one manifest only, because two may share the same prompts */
    json_object_foreach(scored, manifest, compared) {
        const leak_against *a = leak_record_find(&rec, manifest);
        leaked = a && a->leaked_prompts > leaked ? a->leaked_prompts : leaked;
        if (!a && json_is_true(compared)) {
            sums->scored_not_compared++;
            json_object_set_new(scored, manifest, json_false());
        }
    }
    sums->leaked_in_scored += leaked;
    leak_record_fini(&rec);
    return true;
}

static json_t *leaks_of(const report_numbers *n, const table_numbers *t) {
    const json_t *guard = json_object_get(t->f->meta, "leak_check"),
                 *checks = json_object_get(guard, "checks");
    json_auto_t *scored = scored_manifests(n, t);
    leak_sums sums = {.scored_manifests = json_object_size(scored)};
    bool readable = true;
    for (size_t i = 0; readable && i < json_array_size(checks); i++) {
        readable = add_check(&sums, json_array_get(checks, i), scored);
    }
    const size_t leaked = sums.scored_manifests ? sums.leaked_in_scored : sums.leaked_prompts;
    const char *state = !readable                                              ? "not readable"
                        : json_array_size(checks) == 0                         ? "not checked"
                        : leaked                                               ? "shared"
                        : json_array_size(json_object_get(guard, "unchecked")) ? "in part"
                        : sums.scored_not_compared                             ? "not compared"
                                                                               : "passed";
    return OBJECT(M(state), {"prompts", J(sums.prompts)}, {"files", J(sums.files)},
                  {"leaked_prompts", J(sums.leaked_prompts)},
                  {"scored_manifests", J(sums.scored_manifests)},
                  {"scored_not_compared", J(sums.scored_not_compared)},
                  {"leaked_in_scored", J(sums.leaked_in_scored)}, {"ngram", J(sums.ngram)});
}

static entry *entries_of(report_numbers *n, const table_file *f, const struct side *s) {
    const size_t A = s->actions.n;
    const bool heads = s->kind->axis == SIDE_OF_HEADS;
    entry *list = NEW(n, s->n_states, entry);
    for (size_t i = 0; i < s->n_states; i++) {
        const size_t l = i / s->nB / s->X, x = i / s->nB % s->X, row = x / s->P;
        entry *e = &list[i];
        *e = (entry){.layer = (double)l,
                     .entropy = heads ? 0 : (double)row,
                     .perplexity = heads ? 0 : (double)(x % s->P),
                     .budget = f->table->budgets[i % s->nB],
                     .action = side_action(s, s->entries[i]),
                     .supported = !f->has_evidence};
        for (size_t a = 0; f->has_evidence && a < A; a++) {
            e->supported |= f->evidence[s->which].n[i * A + a] > 0;
        }
        e->value = e->action >= 0 ? s->grid[e->action] : NAN;
    }
    return list;
}

/* Returns the numbers of the heads' weights at one budget. */
static json_t *weights_of(report_numbers *n, const table_numbers *t, size_t b) {
    const ckvc_table *k = t->shape;
    const size_t N = (size_t)k->n_layers * k->n_heads;
    double *weight = NEW(n, N, double), *histogram = NEW(n, k->n_head_actions, double);
    double mean = 0, neutral = 0, min = INFINITY, max = -INFINITY;
    size_t supported = 0;
    for (size_t i = 0; i < N; i++) {
        const entry *e = &t->entries[CKVC_SIDE_HEAD][i * k->n_budgets + b];
        weight[i] = e->value;
        mean += e->value;
        min = fmin(min, e->value);
        max = fmax(max, e->value);
        neutral += e->value == 1.0;
        supported += e->supported;
        if (e->action >= 0) { histogram[e->action]++; }
    }
    return OBJECT({"budget", J(k->budgets[b])}, {"n", J(N)}, {"mean", J(mean / (double)N)}, M(min),
                  M(max), {"share_at_1", J(neutral / (double)N)}, M(supported),
                  {"histogram", ckvc_json_reals(histogram, k->n_head_actions)},
                  {"weight", json_grid(weight, k->n_layers, k->n_heads)});
}

/* Compares neighbouring cells that both have records, each with the one that is `de` entropy
 * bins and `dp` perplexity bins on. Higher risk should not raise the threshold. */
static json_t *monotone_along(const table_numbers *t, size_t b, uint32_t de, uint32_t dp) {
    const ckvc_table *k = t->shape;
    const entry *cells = t->entries[CKVC_SIDE_GATE];
    const size_t step = (size_t)(de * k->n_ppl_bins + dp) * k->n_budgets;
    double not_up = 0, not_down = 0, pairs = 0;
    for (size_t at = b; at < t->n_entries[CKVC_SIDE_GATE]; at += k->n_budgets) {
        const bool last = cells[at].entropy + de >= k->n_entropy_bins ||
                          cells[at].perplexity + dp >= k->n_ppl_bins;
        if (last || !cells[at].supported || !cells[at + step].supported) { continue; }
        pairs++;
        not_up += k->tau[at + step] <= k->tau[at];
        not_down += k->tau[at + step] >= k->tau[at];
    }
    /* 0 / 0 is undefined */
    return OBJECT(M(pairs), {"non_increasing", J(not_up / pairs)},
                  {"non_decreasing", J(not_down / pairs)},
                  {"equal", J((not_up + not_down - pairs) / pairs)});
}

/* Returns the numbers of the risk cells' thresholds at one budget. */
static json_t *thresholds_of(report_numbers *n, const table_numbers *t, size_t b) {
    const ckvc_table *k = t->shape;
    const size_t E = k->n_entropy_bins, P = k->n_ppl_bins, cells = k->n_layers * E * P;
    double *tau = NEW(n, cells, double), *histogram = NEW(n, k->n_gate_actions, double), mean = 0;
    size_t supported = 0;
    for (size_t i = 0; i < cells; i++) {
        const entry *e = &t->entries[CKVC_SIDE_GATE][i * k->n_budgets + b];
        tau[i] = e->value;
        if (!e->supported) { continue; }
        supported++;
        mean += e->value;
        if (e->action >= 0) { histogram[e->action]++; }
    }
    return OBJECT({"budget", J(k->budgets[b])}, M(cells), M(supported),
                  {"mean_tau", J(mean / (double)supported)},
                  {"along_entropy", monotone_along(t, b, 1, 0)},
                  {"along_perplexity", monotone_along(t, b, 0, 1)},
                  {"histogram", ckvc_json_reals(histogram, k->n_gate_actions)},
                  {"tau", json_rows_of(json_grid(tau, k->n_layers * E, P), E)});
}

static json_t *by_head(const ckvc_table *t, const double *of, size_t step, size_t first) {
    json_t *list = json_array();
    for (size_t i = 0; i < (size_t)t->n_layers * t->n_heads; i++) {
        json_array_append_new(list, J(of[i * step + first]));
    }
    return json_rows_of(list, t->n_heads);
}

/* Returns the shares by budget, with the ends of each share's interval over prompts. It is null
 * if the table has no shares. */
static json_t *shares_json(const table_numbers *t) {
    const ckvc_table *k = t->shape;
    const size_t nB = k->n_budgets;
    const double *ends = t->f->share_interval;
    if (!k->share) { return json_null(); }
    json_t *list = json_array();
    for (size_t b = 0; b < nB; b++) {
        json_t *lo = ends ? by_head(k, ends, 2 * nB, 2 * b) : json_null(),
               *hi = ends ? by_head(k, ends, 2 * nB, 2 * b + 1) : json_null();
        APPEND_OBJECT(list, {"budget", J(k->budgets[b])}, {"share", by_head(k, k->share, nB, b)},
                      {"lo", lo}, {"hi", hi});
    }
    return list;
}

/* ---- what the choices rest on ---- */

/* Returns where the chosen action's count stands among the state's logged counts: 0 is the
 * lowest, 1 the highest, and ties are in the middle. */
static double count_percentile(const uint64_t *n, size_t actions, int chosen) {
    double below = 0, others = 0;
    for (size_t a = 0; a < actions; a++) {
        if (n[a] && (int)a != chosen) {
            below += n[a] < n[chosen] ? 1 : n[a] == n[chosen] ? 0.5 : 0;
            others++;
        }
    }
    return others > 0 ? below / others : 0.5;
}

/* Returns what thresholds rest on, as numbers of thresholds. */
static json_t *rests_of(decided_split s) {
    return OBJECT({"supported", J(s.supported)}, {"by_loss", J(s.by_loss)},
                  {"by_penalty", J(s.supported - s.by_loss)}, {"loss_flat", J(s.flat)});
}

/* Returns the same as shares of n. Those of a side leave out how many have records. */
static json_t *rest_shares(decided_split s, size_t n, bool of_side) {
    const double loss = (double)s.by_loss / (double)n;
    return OBJECT({"supported", of_side ? NULL : J(s.supported)}, {"by_loss", J(loss)},
                  {"by_penalty", J(1 - loss)}, {"loss_flat", J((double)s.flat / (double)n)});
}

/* Adds what the penalty decided: at each budget, in each risk cell, and for each entry. */
static void add_penalty(json_t *o, const struct side *side, const decided *d) {
    json_t *budgets = json_array(), *entries = json_array();
    for (size_t b = 0; b < d->nB; b++) {
        const decided_split all = decided_sum(d, b);
        json_t *of = rest_shares(all, all.supported, false), *cells = json_array();
        for (size_t x = 0; x < d->X; x++) {
            json_array_append_new(cells, rests_of(d->split[b * d->X + x]));
        }
        ADD_MEMBERS(of, {"cells", json_rows_of(cells, side->P)});
        json_array_append_new(budgets, of);
    }
    for (size_t i = 0; i < side->n_states; i++) {
        const bool known = d->chosen[i] >= 0;
        APPEND_OBJECT(entries, {"by_loss", known ? J(d->by_loss[i]) : json_null()},
                      {"loss_flat", known ? J(d->flat[i]) : json_null()});
    }
    ADD_MEMBERS(o, {"budgets", budgets}, {"entries", json_add_columns(json_object(), entries)});
}

/* What the choices of a side rest on. */
static json_t *evidence_of(report_numbers *n, const table_numbers *t, const struct side *side) {
    /* META has cql_alpha. In a table without it, what the loss part alone would have chosen
     * cannot be told, and the plain mean stands in. */
    const double alpha = json_number_value(json_object_get(t->f->meta, "cql_alpha"));
    const table_evidence *e = &t->f->evidence[side->which];
    const size_t A = side->actions.n, S = side->n_states;
    const decided_from from = {.S = S,
                               .X = side->X,
                               .nB = side->nB,
                               .actions = side->actions,
                               .n = e->n,
                               .q = e->q,
                               .mean = e->m,
                               .part = e->l,
                               .cql_alpha = fmax(alpha, 0),
                               .exact = true};
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    double *logged = NEW(n, A, double), *chosen = NEW(n, A, double);
    double records = 0, percentile = 0, stability = 0;
    const size_t k = d.n_supported;
    for (size_t i = 0; i < S * A; i++) {
        logged[i % A] += (double)e->n[i];
        records += (double)e->n[i];
    }
    for (size_t i = 0; i < S; i++) {
        const int a = d.chosen[i];
        if (a < 0) { continue; }
        chosen[a]++;
        percentile += count_percentile(e->n + i * A, A, a);
        if (e->share) { stability += e->share[i * A + (size_t)a]; }
    }
    json_t *per_state =
        OBJECT({"min", k ? J(d.records[0]) : json_null()}, {"median", J(d.median)},
               {"max", k ? J(d.records[k - 1]) : json_null()}, {"mean", J(records / (double)k)});
    json_t *o = OBJECT(
        {"states", J(S)}, M(records), {"alpha_decided", J((double)d.n_alpha / (double)k)},
        {"count_correlation", J(d.correlation)},
        {"choice_stability", e->share ? J(stability / (double)k) : json_null()},
        {"supported", J(k)}, {"count_percentile", J(percentile / (double)k)},
        {"records_per_supported_state", per_state}, {"action", ckvc_json_reals(side->grid, A)},
        {"logged", ckvc_json_reals(logged, A)}, {"chosen", ckvc_json_reals(chosen, A)});
    if (e->l) { /* a penalty is paid beside the loss */
        json_auto_t *all = rest_shares(decided_sum(&d, d.nB), k, true);
        json_object_update(o, all);
        add_penalty(o, side, &d);
    }
    return o;
}

/* ---- all ---- */

static json_t *shape_of(const ckvc_table *t) {
    return OBJECT({"layers", J(t->n_layers)}, {"heads", J(t->n_heads)},
                  {"head_axis", J(t->head_axis ? "query head" : "KV head")},
                  {"entropy_bins", J(t->n_entropy_bins)}, {"perplexity_bins", J(t->n_ppl_bins)},
                  OF(t, window), {"budgets", ckvc_json_reals(t->budgets, t->n_budgets)},
                  {"edges_entropy", ckvc_json_reals(t->edges_entropy, t->n_entropy_bins - 1)},
                  {"edges_perplexity", ckvc_json_reals(t->edges_ppl, t->n_ppl_bins - 1)},
                  {"head_grid", ckvc_json_reals(t->head_grid, t->n_head_actions)},
                  {"gate_grid", ckvc_json_reals(t->gate_grid, t->n_gate_actions)});
}

static json_t *recommended_of(const ckvc_table *t) {
    json_t *list = json_array();
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        const ckvc_score s = ckvc_table_score(t, b);
        APPEND_OBJECT(list, {"budget", J(t->budgets[b])},
                      {"score", J(ckvc_score_name((ckvc_score_kind)s.kind))},
                      {"mode", J(ckvc_mode_name((ckvc_mode)s.mode))},
                      {"floor", t->c_min ? J((double)t->c_min[b].floor) : NULL});
    }
    return list;
}

static json_t *table_json(report_numbers *n, table_numbers *t) {
    const input_table *in = t->in;
    json_t *heads = json_array(), *gates = json_array(),
           *evidence = t->f->has_evidence ? json_object() : json_null();
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t->shape, (ckvc_side)i);
        t->entries[i] = entries_of(n, t->f, &s);
        t->n_entries[i] = s.n_states;
        if (t->f->has_evidence) {
            json_object_set_new(evidence, ckvc_side_name(s.which), evidence_of(n, t, &s));
        }
    }
    for (size_t b = 0; b < t->n_budgets; b++) {
        json_array_append_new(heads, weights_of(n, t, b));
        json_array_append_new(gates, thresholds_of(n, t, b));
    }
    return OBJECT(OF(in, tag), OF(in, name), OF(in, title), OF(in, file), OF(t->f, content_id),
                  {"shape", shape_of(t->shape)}, {"recommends", recommended_of(t->shape)},
                  {"run", in->n_runs ? J(input_run_tags(n->in, in)) : json_null()},
                  OF(t, shares_alone), OF(t->f, meta), {"head", heads}, {"gate", gates},
                  {"shares", shares_json(t)}, {"evidence", evidence}, {"statistics", json_object()},
                  {"leak_check", leaks_of(n, t)});
}

void table_numbers_make(report_numbers *n) {
    json_t *list = json_array();
    n->n_tables = n->in->n_tables;
    n->tables = NEW(n, n->n_tables, table_numbers);
    for (size_t i = 0; i < n->n_tables; i++) {
        const input_table *in = &n->in->tables[i];
        table_numbers *t = &n->tables[i];
        *t = (table_numbers){.in = in, .f = in->f, .shape = in->f->table};
        t->shares_alone = (t->shape->share || t->shape->layer_share) && !t->f->has_evidence;
        t->n_budgets = t->shape->n_budgets;
        json_array_append_new(list, t->json = table_json(n, t));
    }
    json_object_set_new(n->json, "tables", list);
}
