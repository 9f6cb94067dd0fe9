/* One table's own numbers: its entries, weights and thresholds by budget, monotonicity, and what
 * the choices rest on. */
#include <math.h>

#include "cql/solve/variance.h"
#include "formats/lines/leak_record.h"
#include "lib/base/memory.h"
#include "report/numbers/numbers.h"

/* Whether the prompts behind a table were checked for leaks, and against the prompts that it is
 * scored on here (manifest.md, "Leaks"). */

/* The manifests that a table's score rows are of, as keys; true: every check so far compared it. */
static json_t *scored_manifests(const report_numbers *n, const table_numbers *t) {
    json_t *set = json_object();
    const score_files *f = &n->in->scores;
    const char *last = "";
    for (size_t i = 0; i < f->n_files; i++) {
        for (size_t k = 0; k < f->files[i]->n; k++) {
            const score_row *row = &f->files[i]->rows[k];
            if (strcmp(row->table, t->f.content_id) == 0 && strcmp(row->manifest, last) != 0) {
                json_object_set_new(set, row->manifest, json_true());
                last = row->manifest;
            }
        }
    }
    return set;
}

/* false: it is malformed. */
static bool add_check(leak_numbers *sums, const json_t *check, json_t *scored) {
    leak_record rec;
    ckvc_err why = {0};
    json_t *compared;
    const char *manifest;
    if (leak_record_parse(check, "META", &rec, &why) != CKVC_OK) { return false; }
    sums->prompts += rec.prompts;
    sums->leaked_prompts += rec.leaked_prompts;
    sums->files += rec.n_against;
    sums->ngram = rec.ngram > sums->ngram ? rec.ngram : sums->ngram;
    uint64_t leaked = 0; /* with one of them: two may share the same prompts */
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

static void leak_numbers_make(report_numbers *n, table_numbers *t) {
    const json_t *guard = json_object_get(t->f.meta, "leak_check"),
                 *checks = json_object_get(guard, "checks");
    json_auto_t *scored = scored_manifests(n, t);
    leak_numbers *sums = &t->leaks;
    bool readable = true;
    sums->scored_manifests = json_object_size(scored);
    for (size_t i = 0; readable && i < json_array_size(checks); i++) {
        readable = add_check(sums, json_array_get(checks, i), scored);
    }
    uint64_t leaked = sums->scored_manifests ? sums->leaked_in_scored : sums->leaked_prompts;
    sums->state = !readable                                              ? "not readable"
                  : json_array_size(checks) == 0                         ? "not checked"
                  : leaked                                               ? "shared"
                  : json_array_size(json_object_get(guard, "unchecked")) ? "in part"
                  : sums->scored_not_compared                            ? "not compared"
                                                                         : "passed";
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
                     .records = f->has_evidence ? 0 : NAN,
                     .by_loss = -1,
                     .loss_flat = -1,
                     .verdict = "",
                     .agree = NAN,
                     .advantage = NAN,
                     .lower_bound = NAN};
        for (size_t a = 0; f->has_evidence && a < A; a++) {
            e->records += (double)f->evidence[s->which].n[i * A + a];
        }
        e->supported = !(e->records == 0);
        e->value = e->action >= 0 ? s->grid[e->action] : NAN;
    }
    return list;
}

static weight_numbers weights_of(report_numbers *n, const table_numbers *t, size_t b) {
    const ckvc_table *k = t->shape;
    weight_numbers w = {.budget = k->budgets[b], .n_actions = k->n_head_actions};
    double neutral = 0;
    w.n_layers = k->n_layers;
    w.n_heads = k->n_heads;
    w.n = w.n_layers * w.n_heads;
    w.weight = NEW(n, w.n, double);
    w.histogram = NEW(n, w.n_actions, double);
    w.min = INFINITY;
    w.max = -INFINITY;
    for (size_t i = 0; i < w.n; i++) {
        const entry *e = &t->entries[CKVC_SIDE_HEAD][i * k->n_budgets + b];
        w.weight[i] = e->value;
        w.mean += e->value;
        w.min = fmin(w.min, e->value);
        w.max = fmax(w.max, e->value);
        neutral += e->value == 1.0;
        w.supported += e->supported;
        if (e->action >= 0) { w.histogram[e->action]++; }
    }
    w.mean /= (double)w.n;
    w.share_at_1 = neutral / (double)w.n;
    return w;
}

/* From each cell to the one that is `de` entropy bins and `dp` perplexity bins on. */
static monotone monotone_along(const table_numbers *t, size_t b, uint32_t de, uint32_t dp) {
    const ckvc_table *k = t->shape;
    const entry *cells = t->entries[CKVC_SIDE_GATE];
    const size_t step = (size_t)(de * k->n_ppl_bins + dp) * k->n_budgets;
    double not_up = 0, not_down = 0;
    monotone m = {0};
    for (size_t at = b; at < t->n_entries[CKVC_SIDE_GATE]; at += k->n_budgets) {
        const bool last = cells[at].entropy + de >= k->n_entropy_bins ||
                          cells[at].perplexity + dp >= k->n_ppl_bins;
        if (last || !cells[at].supported || !cells[at + step].supported) { continue; }
        m.pairs++;
        not_up += k->tau[at + step] <= k->tau[at];
        not_down += k->tau[at + step] >= k->tau[at];
    }
    const double pairs = (double)m.pairs; /* 0 / 0 is undefined */
    m.non_increasing = not_up / pairs;
    m.non_decreasing = not_down / pairs;
    m.equal = (not_up + not_down - pairs) / pairs;
    return m;
}

static threshold_numbers thresholds_of(report_numbers *n, const table_numbers *t, size_t b) {
    const ckvc_table *k = t->shape;
    threshold_numbers g = {.budget = k->budgets[b], .n_actions = k->n_gate_actions};
    g.n_layers = k->n_layers;
    g.n_entropy = k->n_entropy_bins;
    g.n_perplexity = k->n_ppl_bins;
    g.cells = g.n_layers * g.n_entropy * g.n_perplexity;
    g.along_entropy = monotone_along(t, b, 1, 0);
    g.along_perplexity = monotone_along(t, b, 0, 1);
    g.tau = NEW(n, g.cells, double);
    g.histogram = NEW(n, g.n_actions, double);
    for (size_t i = 0; i < g.cells; i++) {
        const entry *e = &t->entries[CKVC_SIDE_GATE][i * k->n_budgets + b];
        g.tau[i] = e->value;
        if (!e->supported) { continue; }
        g.supported++;
        g.mean_tau += e->value;
        if (e->action >= 0) { g.histogram[e->action]++; }
    }
    g.mean_tau /= (double)g.supported;
    return g;
}

/* ---- what the choices rest on ---- */

/* Where the chosen action's count stands among the state's logged counts: 0 lowest, 1 highest, ties
 * in the middle. */
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

static rests rests_of(decided_split s) {
    const double all = (double)s.supported, loss = (double)s.by_loss;
    return (rests){all, loss, all - loss, (double)s.flat};
}

static rests share_of(decided_split s, double n) {
    const double loss = (double)s.by_loss / n;
    return (rests){(double)s.supported, loss, 1 - loss, (double)s.flat / n};
}

/* What the penalty is to blame for: every entry, every budget and risk cell, all. */
static void penalty_make(report_numbers *n, const table_numbers *t, const decided *d,
                         side_evidence *o) {
    for (size_t i = 0; i < o->states; i++) {
        if (d->chosen[i] < 0) { continue; }
        o->entries[i].by_loss = (signed char)d->by_loss[i];
        o->entries[i].loss_flat = (signed char)d->flat[i];
    }
    o->n_budgets = d->nB;
    o->budgets = NEW(n, d->nB, budget_rests);
    for (size_t b = 0; b < d->nB; b++) {
        const decided_split all = decided_sum(d, b);
        budget_rests *of = &o->budgets[b];
        of->budget = t->shape->budgets[b];
        of->all = share_of(all, (double)all.supported);
        of->cells = NEW(n, d->X, rests);
        of->n_perplexity = o->side.P;
        of->n_entropy = d->X / o->side.P;
        for (size_t x = 0; x < d->X; x++) { of->cells[x] = rests_of(d->split[b * d->X + x]); }
    }
    o->all = share_of(decided_sum(d, d->nB), (double)d->n_supported);
}

static void evidence_make(report_numbers *n, const table_numbers *t, side_evidence *o) {
    /* cql_alpha is META's; a table without it cannot tell the loss part's own choice: the plain
     * mean stands in. */
    const double alpha = json_number_value(json_object_get(t->f.meta, "cql_alpha"));
    const table_evidence *e = &t->f.evidence[o->side.which];
    const size_t A = o->n_actions;
    const decided_from from = {.S = o->states,
                               .X = o->side.X,
                               .nB = o->side.nB,
                               .actions = o->side.actions,
                               .n = e->n,
                               .q = e->q,
                               .mean = e->m,
                               .part = e->l,
                               .cql_alpha = fmax(alpha, 0),
                               .exact = true};
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    double chosen = 0, percentile = 0, stability = 0;
    for (size_t i = 0; i < o->states * A; i++) {
        o->actions[i % A].logged += (double)e->n[i];
        o->records += (double)e->n[i];
    }
    for (size_t i = 0; i < o->states; i++) {
        const int a = d.chosen[i];
        if (a < 0) { continue; }
        o->actions[a].chosen++;
        chosen++;
        percentile += count_percentile(e->n + i * A, A, a);
        if (e->share) { stability += e->share[i * A + (size_t)a]; }
    }
    for (size_t a = 0; a < A; a++) { o->actions[a].action = o->side.grid[a]; }
    const size_t k = o->supported = d.n_supported;
    o->min = k ? (double)d.records[0] : NAN;
    o->median = d.median;
    o->mean = o->records / (double)k;
    o->max = k ? (double)d.records[k - 1] : NAN;
    o->alpha_decided = (double)d.n_alpha / (double)k;
    o->count_correlation = d.correlation;
    o->count_percentile = percentile / (double)k;
    o->choice_stability = e->share ? stability / (double)k : NAN;
    o->penalty = e->l != NULL;
    o->all = (rests){NAN, NAN, NAN, NAN};
    if (o->penalty) { penalty_make(n, t, &d, o); }
}

/* ---- all ---- */

static void sides_make(report_numbers *n, table_numbers *t) {
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t->shape, (ckvc_side)i);
        t->entries[i] = entries_of(n, &t->f, &s);
        t->n_entries[i] = s.n_states;
        t->evidence[i] = (side_evidence){.name = ckvc_side_name(s.which)};
        t->evidence[i].side = s;
        t->evidence[i].entries = t->entries[i];
        t->evidence[i].states = s.n_states;
        t->evidence[i].n_actions = s.actions.n;
        t->evidence[i].actions = NEW(n, s.actions.n, action_count);
        if (t->f.has_evidence) { evidence_make(n, t, &t->evidence[i]); }
    }
}

void table_numbers_make(report_numbers *n) {
    n->n_tables = n->in->n_tables;
    n->tables = NEW(n, n->n_tables, table_numbers);
    for (size_t i = 0; i < n->n_tables; i++) {
        const input_table *in = &n->in->tables[i];
        table_numbers *t = &n->tables[i];
        *t = (table_numbers){.in = in, .tag = in->tag, .name = in->name, .title = in->title};
        t->file = in->file;
        t->f = *in->f;
        t->shape = in->f->table;
        t->run = in->n_runs ? input_run_tags(n->in, in) : NULL;
        t->shares_alone = (t->shape->share || t->shape->layer_share) && !t->f.has_evidence;
        t->n_sides = CKVC_SIDE_COUNT;
        t->n_budgets = t->shape->n_budgets;
        t->head = NEW(n, t->n_budgets, weight_numbers);
        t->gate = NEW(n, t->n_budgets, threshold_numbers);
        sides_make(n, t);
        for (size_t b = 0; b < t->n_budgets; b++) {
            t->head[b] = weights_of(n, t, b);
            t->gate[b] = thresholds_of(n, t, b);
        }
        leak_numbers_make(n, t);
    }
}
