/* Computes what tables bring on prompts that they were not fitted on: paired differences of
 * reward, with the tokens that paid for them.
 *
 * Rows are paired by model, manifest, prompt, budget and C, and under one score, except in
 * comparisons of scores. Intervals hold the table fixed: they are over the prompts that it is
 * scored on, by Student's t and by a bootstrap. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>

#include "lib/stats/resample.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"
#include "lib/stats/rank.h"
#include "report/numbers/numbers.h"

void add_sorted(const char **names, size_t *n, const char *name) {
    size_t i = 0;
    while (i < *n && strcmp(names[i], name) < 0) { i++; }
    if (i < *n && strcmp(names[i], name) == 0) { return; }
    memmove(names + i + 1, names + i, (*n - i) * sizeof(char *));
    names[i] = name;
    ++*n;
}

#define EQUAL_TOKENS                                                                               \
    0.02               /* tokens kept by two policies are equal within this share of each other */
#define SOURCES_MAX 64 /* more sources are not told apart */

/* ---- which prompts ---- */

typedef struct subset {
    const char *source;  /* NULL: any */
    const char *kind;    /* of source: "text", "retrieval"; NULL: any */
    uint32_t T_lo, T_hi; /* lengths from T_lo up to T_hi */
} subset;
static const subset everything = {NULL, NULL, 0, UINT32_MAX};
static const subset kinds[2] = {{NULL, "text", 0, UINT32_MAX}, {NULL, "retrieval", 0, UINT32_MAX}};

/* Returns the kind of a source. Retrieval prompts are those of sources whose names end so, as
 * `manifest` names them: they reward reach, and text rewards nearness. */
static const char *source_kind(const char *source) {
    return source && fnmatch("*retrieval", source, 0) == 0 ? "retrieval" : "text";
}

static bool in_subset(const subset *of, const score_row *x) {
    return (!of->source || strcmp(x->source ? x->source : "", of->source) == 0) &&
           (!of->kind || strcmp(source_kind(x->source), of->kind) == 0) &&
           x->n_tokens >= of->T_lo && x->n_tokens <= of->T_hi;
}

/* Divides a series' prompts by length into thirds; equal lengths stay together. Returns how many
 * of the groups have prompts, and 0 when there are fewer than 3 prompts or all are of one
 * length. */
static size_t length_groups(const score_series *of, subset groups[3]) {
    CKVC_AUTO_FREE uint32_t *T = ckvc_alloc(of->n, sizeof *T);
    for (size_t i = 0; i < of->n; i++) { T[i] = of->rows[i]->n_tokens; }
    qsort(T, of->n, sizeof *T, ckvc_order_u32);
    size_t n = 0;
    for (size_t g = 0, from = 0; of->n >= 3 && g < 3 && from < of->n; g++) {
        size_t to = (of->n * (g + 1) + 2) / 3; /* the place behind the group */
        while (to < of->n && to > 0 && T[to] == T[to - 1]) { to++; }
        if (to > from) {
            groups[n++] = (subset){NULL, NULL, T[from], T[to - 1]};
            from = to;
        }
    }
    return n > 1 ? n : 0;
}

/* Collects the sources of all rows, sorted; none when there are too many. */
static size_t sources_of(const score_files *f, subset out[SOURCES_MAX]) {
    const char *names[SOURCES_MAX + 1];
    size_t n = 0;
    EACH(score_series, s, f->series, f->n_series) {
        for (size_t i = 0; n <= SOURCES_MAX && i < s->n; i++) {
            add_sorted(names, &n, s->rows[i]->source ? s->rows[i]->source : "");
        }
    }
    n = n > SOURCES_MAX ? 0 : n;
    for (size_t i = 0; i < n; i++) { out[i] = (subset){names[i], NULL, 0, UINT32_MAX}; }
    return n;
}

/* ---- differences ---- */

/* What differences are computed with: scratch memory, and the sums for a bootstrap over prompts,
 * in which prompts have Poisson(1) weights. A prompt has the same weights in every comparison,
 * and all prompts of a document have the weights of its first. */
typedef struct worker {
    report_numbers *n;
    subset sources[SOURCES_MAX];
    size_t n_sources;
    uint32_t replicates;
    uint8_t *weight;     /* [replicates] */
    double *sum, *count; /* [replicates] */
    double *d, *kl;      /* [rows] */
    const score_row **x; /* [rows] */
} worker;

/* Returns the mean and interval of what n rows say, by the documents of their prompts. cluster
 * [n] receives these. */
static rank_interval mean_by_document(const double *d, const score_row *const *rows, size_t n,
                                      size_t *cluster) {
    CKVC_AUTO_FREE const char **names = ckvc_alloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++) { names[i] = rows[i]->document; }
    rank_clusters(names, n, cluster);
    return rank_mean_interval(d, cluster, n);
}

static void resample(worker *w, const char *id, double d) {
    resample_weights(w->n->in->o->seed, ckvc_rng_key(id), RESAMPLE_BOOTSTRAP, w->replicates,
                     w->weight);
    for (uint32_t k = 0; k < w->replicates; k++) {
        w->sum[k] += w->weight[k] * d;
        w->count[k] += w->weight[k];
    }
}

/* Takes the 2.5% and 97.5% quantiles of the replicates' means. A replicate that drew no prompt
 * has no mean. */
static void take_bootstrap(worker *w, difference *o) {
    size_t n = 0;
    for (uint32_t k = 0; k < w->replicates; k++) {
        if (w->count[k] > 0) { w->sum[n++] = w->sum[k] / w->count[k]; }
    }
    o->has_bootstrap = n >= 2;
    o->bootstrap.replicates = n;
    if (o->has_bootstrap) { rank_ends(w->sum, n, &o->bootstrap.lo, &o->bootstrap.hi); }
    memset(w->sum, 0, w->replicates * sizeof *w->sum);
    memset(w->count, 0, w->replicates * sizeof *w->count);
}

/* Returns where two rows of one model keep as many entries: 2, in each layer; 1, in all layers
 * together; 0, nowhere. Where a layer has one set, each of its heads keeps it. Entries are
 * compared in whole numbers, because means of as many entries may differ in their last bits. */
static int equal_in(const score_row *x, const score_row *y) {
    uint64_t all_x = 0, all_y = 0;
    bool layers = true;
    for (uint32_t l = 0; l < x->n_layers; l++) {
        uint64_t a = 0, b = 0;
        for (uint32_t i = 0; i < x->n_sets; i++) { a += x->n_kept[l * x->n_sets + i]; }
        for (uint32_t i = 0; i < y->n_sets; i++) { b += y->n_kept[l * y->n_sets + i]; }
        layers &= a * y->n_sets == b * x->n_sets;
        all_x += a * y->n_sets;
        all_y += b * x->n_sets;
    }
    return layers ? 2 : all_x == all_y;
}

/* Computes the difference of series a from series b on the prompts of both. False means that
 * there are none. */
static bool subtract(worker *w, const score_series *a, const score_series *b, const subset *of,
                     bool bootstrap, difference *o) {
    *o = (difference){.source = of->source, .kind = of->kind, .T_lo = of->T_lo, .T_hi = of->T_hi};
    o->has_lengths = of->T_hi != UINT32_MAX;
    o->equal_prompts = o->equal_layers = o->by_kl = true;
    for (size_t i = 0, k = 0; i < a->n; i++) {
        const score_row *x = a->rows[i];
        if (!in_subset(of, x)) { continue; }
        while (k < b->n && score_compare_prompts(b->rows[k], x) < 0) { k++; }
        if (k == b->n) { break; }
        const score_row *y = b->rows[k];
        if (score_compare_prompts(y, x) != 0) { continue; /* not scored under b */ }
        if (isnan(x->reward) || isnan(y->reward)) {
            o->undefined++;
            continue;
        }
        w->x[o->n] = x;
        w->kl[o->n] = y->kl - x->kl;
        o->kl_of += x->kl;
        o->by_kl &= !isnan(w->kl[o->n]);
        w->d[o->n++] = x->reward - y->reward;
        o->kept += score_row_kept(x);
        o->kept_base += score_row_kept(y);
        const int equal = x->n_layers == y->n_layers ? equal_in(x, y) : 0;
        o->equal_layers &= equal == 2;
        o->equal_prompts &= equal > 0;
        o->reward += x->reward;
        o->reward_base += y->reward;
    }
    if (o->n == 0 && o->undefined == 0) { return false; }
    const size_t n = o->n;
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(n, sizeof *cluster);
    const rank_interval kl = mean_by_document(w->kl, w->x, n, cluster),
                        v = mean_by_document(w->d, w->x, n, cluster);
    for (size_t i = 0; bootstrap && i < n; i++) { resample(w, w->x[cluster[i]]->id, w->d[i]); }
    o->n_documents = v.n_clusters;
    const double count = (double)n;
    o->d = (interval){v.mean, v.lo, v.hi};
    o->kl = (interval){kl.mean, kl.lo, kl.hi};
    o->standard_error = v.se;
    qsort(w->d, n, sizeof *w->d, ckvc_order_double);
    o->median = n ? (w->d[(n - 1) / 2] + w->d[n / 2]) / 2 : NAN;
    o->largest_share = n ? (v.mean < 0 ? w->d[0] : w->d[n - 1]) / (v.mean * count) : NAN;
    o->kept_ratio = o->kept / o->kept_base;
    o->equal_tokens = fabs(o->kept_ratio - 1) <= EQUAL_TOKENS;
    o->kl_of /= count;
    o->reward /= count;
    o->reward_base /= count;
    o->kept /= count;
    o->kept_base /= count;
    return true;
}

bool series_difference(report_numbers *n, const score_series *a, const score_series *b,
                       difference *out) {
    const size_t rows = n->in->scores.n_rows;
    worker w = {.n = n, .d = NEW(n, rows, double), .kl = NEW(n, rows, double)};
    w.x = NEW(n, rows, const score_row *);
    return subtract(&w, a, b, &everything, false, out);
}

/* Computes the parts of a comparison, when there are several. Returns how many have prompts. */
static size_t compare_parts(worker *w, const comparison *c, const subset *parts, size_t n,
                            difference *out) {
    size_t k = 0;
    for (size_t i = 0; n > 1 && i < n; i++) {
        k += subtract(w, &c->of, &c->base, &parts[i], false, &out[k]);
    }
    return k;
}

/* Adds the comparison of series a with b to a list: all prompts together, then by kind, source
 * and length. Adds nothing when they share no prompt. */
static void compare_series(worker *w, const score_series *a, const score_series *b,
                           comparison_list *list) {
    comparison c = {.of = *a, .base = *b, .one_score = score_same_setting(a, b)};
    subset lengths[3];
    if (!subtract(w, a, b, &everything, true, &c.all)) { return; }
    take_bootstrap(w, &c.all);
    /* of tables whose sets are not alike only equal entries can be compared */
    if (a->kind == POLICY_TABLE && b->kind == POLICY_TABLE && !c.all.equal_tokens &&
        setting_compare(&a->setting, &b->setting, SETTING_SETS) != 0) {
        return;
    }
    c.kinds = NEW(w->n, 2 + w->n_sources + 3, difference);
    c.n_kinds = compare_parts(w, &c, kinds, 2, c.kinds);
    if (c.n_kinds < 2) { c.n_kinds = 0; /* all of one kind: that is "all" */ }
    c.sources = c.kinds + c.n_kinds;
    c.n_sources = compare_parts(w, &c, w->sources, w->n_sources, c.sources);
    c.lengths = c.sources + c.n_sources;
    c.n_lengths = compare_parts(w, &c, lengths, length_groups(a, lengths), c.lengths);
    if (list->n == list->cap) {
        comparison *more = NEW(w->n, list->cap = 2 * list->cap + 8, comparison);
        if (list->n) { memcpy(more, list->of, list->n * sizeof *more); }
        list->of = more;
    }
    list->of[list->n++] = c;
}

/* ---- what is compared with what ---- */

bool series_is_unfitted(const score_series *y, const score_series *x) {
    setting fitted = y->setting;
    fitted.ridge = x->setting.ridge;
    return x->kind == POLICY_TABLE && y->kind == POLICY_TABLE && strcmp(x->table, y->table) == 0 &&
           x->setting.ridge > 0 && y->setting.ridge == 0 && score_same_budget(x, y) &&
           setting_compare(&x->setting, &fitted, SETTING_SCORE | SETTING_SETS | SETTING_CACHE) == 0;
}

/* Compares series x with series y of its model, budget and C, in every list that the two belong
 * to. */
static void compare_two(worker *w, const score_series *x, const score_series *y,
                        comparison_list *lists) {
    const bool own = strcmp(x->table, y->table) == 0, table = x->kind == POLICY_TABLE;
    const bool one_score = score_same_setting(x, y),
               other_score = setting_compare(&x->setting, &y->setting, SETTING_SCORE) != 0;
    const bool in[SCORE_LISTS] = {
        [AGAINST_IDENTITY] = one_score && y->kind == POLICY_IDENTITY,
        /* a table's matched control is no measure for another table, but is one for references */
        [AGAINST_MATCHED] = one_score && y->kind == POLICY_MATCHED && x->kind != POLICY_MATCHED &&
                            (own || !*x->table),
        [BETWEEN_TABLES] = table && y->kind == POLICY_TABLE && x > y && !series_is_unfitted(x, y) &&
                           !series_is_unfitted(y, x),
        /* what needs no table, under two scores */
        [BETWEEN_SCORES] = other_score && x > y && !*x->table &&
                           strcmp(x->policy, y->policy) == 0 &&
                           (x->kind == POLICY_IDENTITY || x->kind == POLICY_TOP_K),
        /* its own matched control and references; sort_opponents sorts out those that do not keep
           as many */
        [AT_EQUAL_TOKENS] = one_score && table && y->kind != POLICY_TABLE &&
                            y->kind != POLICY_IDENTITY && !policy_is_control(y->kind) &&
                            (own || !*y->table),
        [AGAINST_CONTROLS] =
            (one_score && table && own && policy_is_control(y->kind)) || series_is_unfitted(y, x),
    };
    for (size_t k = 0; k < SCORE_LISTS; k++) {
        if (in[k]) { compare_series(w, x, y, &lists[k]); }
    }
}

bool series_of_one_setting(const score_series *a, const score_series *b) {
    return strcmp(a->model, b->model) == 0 && a->budget == b->budget &&
           a->continuation == b->continuation &&
           a->setting.compress_after == b->setting.compress_after;
}

bool series_alike(const score_series *a, const score_series *b) {
    return strcmp(a->title, b->title) == 0 && series_of_one_setting(a, b);
}

bool series_reads_twice(const score_series *s) {
    return s->kind == POLICY_KVZIP || (s->n > 0 && isfinite(s->rows[0]->repeat_tokens));
}

/* Do both compare one table in one setting with one reference, which in the first has the
 * table's tokens, and in the second its own? */
static bool supersedes(const comparison *a, const comparison *b) {
    return series_alike(&a->of, &b->of) && !a->of.layer_budgets == !b->of.layer_budgets &&
           strcmp(a->base.policy, b->base.policy) == 0 && *a->base.table && !*b->base.table;
}

/* Sorts a table's opponents. Of a reference that was scored both ways, only the one with the
 * table's tokens stays. References that keep more or fewer entries go to a list of their own,
 * since comparisons with them are not at equal tokens. A table's matched control stays in any
 * case: it says itself how near it came. */
static void sort_opponents(report_numbers *n, comparison_list *fair, comparison_list *other) {
    comparison_list all = *fair;
    *fair = (comparison_list){.of = NEW(n, all.n, comparison)};
    *other = (comparison_list){.of = NEW(n, all.n, comparison)};
    for (size_t i = 0; i < all.n; i++) {
        const comparison *c = &all.of[i];
        bool superseded = false;
        for (size_t k = 0; k < all.n; k++) { superseded |= supersedes(&all.of[k], c); }
        if (superseded) { continue; }
        comparison_list *to = c->base.kind == POLICY_MATCHED || c->all.equal_tokens ? fair : other;
        to->of[to->n++] = *c;
    }
}

/* ---- JSON ---- */

json_t *series_named(const score_series *s) {
    return OBJECT(OF(s, title), OF(s, policy), OF(s, model), OF(s, budget),
                  {"C", J(s->continuation)});
}

json_t *difference_json(const difference *of) {
    const bool decided_one = difference_decided(of), ends = of->has_bootstrap;
    return OBJECT(
        OF(of, source), OF(of, undefined), OF(of, standard_error), OF(of, largest_share),
        OF(of, kept_ratio), OF(of, equal_tokens), {"equal_in", J(difference_equal_in(of))},
        {"kind", of->kind ? J(of->kind) : NULL}, {"T_lo", of->has_lengths ? J(of->T_lo) : NULL},
        {"T_hi", of->has_lengths ? J(of->T_hi) : NULL}, {"difference", J(of->d.mean)},
        {"lo", J(of->d.lo)}, {"hi", J(of->d.hi)}, {"kl_difference", J(of->kl.mean)},
        {"kl_lo", J(of->kl.lo)}, {"kl_hi", J(of->kl.hi)}, OF(of, kl_of), OF(of, by_kl),
        {"bootstrap", ends ? OBJECT({"lo", J(of->bootstrap.lo)}, {"hi", J(of->bootstrap.hi)},
                                    {"replicates", J(of->bootstrap.replicates)})
                           : NULL},
        OF(of, n), OF(of, n_documents), OF(of, reward), OF(of, reward_base), OF(of, kept),
        OF(of, kept_base), OF(of, median), {"judged", J(difference_judged(of))},
        {"decided", J(decided_one)});
}

static json_t *differences_json(const difference *of, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) { json_array_append_new(list, difference_json(&of[i])); }
    return list;
}

static json_t *table_json(const score_series *s) { return J(*s->table ? s->table : NULL); }

static json_t *series_json(const score_series *s) {
    const bool by_layer = s->layer_budgets != 0;
    json_t *o = OBJECT(OF(s, title), OF(s, model), OF(s, policy), OF(s, budget),
                       {"table", table_json(s)}, {"C", J(s->continuation)},
                       {"taus", ckvc_json_reals(s->taus, s->n_taus)}, M(by_layer));
    setting_write_all(o, SETTING_LINE, &s->setting, SETTING_SCORE);
    return o;
}

static json_t *comparison_json(const comparison *c) {
    return ADD_MEMBERS(series_json(&c->of), {"base", J(c->base.title)},
                       {"base_policy", J(c->base.policy)}, {"base_table", table_json(&c->base)},
                       {"base_taus", ckvc_json_reals(c->base.taus, c->base.n_taus)},
                       OF(c, one_score), {"all", difference_json(&c->all)},
                       {"kinds", differences_json(c->kinds, c->n_kinds)},
                       {"sources", differences_json(c->sources, c->n_sources)},
                       {"lengths", differences_json(c->lengths, c->n_lengths)});
}

static void set_scores(const report_numbers *n) {
    static const struct {
        const char *name;
        int list;
    } lists[] = {{"against_identity", AGAINST_IDENTITY}, {"against_matched", AGAINST_MATCHED},
                 {"between_tables", BETWEEN_TABLES},     {"at_equal_tokens", AT_EQUAL_TOKENS},
                 {"at_other_tokens", AT_OTHER_TOKENS},   {"against_controls", AGAINST_CONTROLS},
                 {"between_scores", BETWEEN_SCORES}};
    const score_numbers *s = &n->scores;
    const score_files *f = &n->in->scores;
    json_t *files = json_array(), *series = json_array();
    for (size_t i = 0; i < f->n_files; i++) {
        CKVC_AUTO_FREE char *name = ckvc_path_name(f->files[i]->path);
        APPEND_OBJECT(files, {"file", J(name)}, {"rows", J(f->files[i]->n)});
    }
    EACH(score_series, x, s->series, s->n_series) { json_array_append_new(series, series_json(x)); }
    json_t *o = OBJECT({"prompts_used_in_calibration_left_out", J(f->dropped_seen)},
                       {"rows_of_other_splits_left_out", J(f->dropped_split)},
                       {"rows_in_several_files", J(f->dropped_twice)}, {"rows", J(f->n_rows)},
                       {"rows_used_in_calibration", J(f->used_seen)}, OF(s, held_out_checked),
                       {"files", files}, {"series", series}, {"losses", json_array()});
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const comparison_list *of = &s->lists[lists[i].list];
        json_t *list = json_array();
        EACH(comparison, c, of->of, of->n) { json_array_append_new(list, comparison_json(c)); }
        json_object_set_new(o, lists[i].name, list);
    }
    json_object_set_new(n->json, "scores", o);
}

/* ---- all ---- */

/* Orders series: tables first, then their controls, then the references. */
static int series_rank(const score_series *s) {
    return s->kind == POLICY_TABLE ? 0 : *s->table && !policy_is_reference(s->kind) ? 1 : 2;
}

void score_numbers_make(report_numbers *n) {
    const score_files *f = &n->in->scores;
    const uint32_t R = n->in->o->replicates;
    score_numbers *o = &n->scores;
    worker *w = NEW(n, 1, worker);
    *w = (worker){.n = n, .replicates = R, .weight = NEW(n, R, uint8_t), .sum = NEW(n, R, double)};
    w->count = NEW(n, R, double);
    w->d = NEW(n, f->n_rows, double);
    w->kl = NEW(n, f->n_rows, double);
    w->x = NEW(n, f->n_rows, const score_row *);
    w->n_sources = sources_of(f, w->sources);
    o->series = NEW(n, f->n_series, score_series);
    for (int rank = 0; rank < 3; rank++) {
        EACH(score_series, x, f->series, f->n_series) {
            if (series_rank(x) != rank) { continue; }
            o->series[o->n_series++] = *x;
            EACH(score_series, y, f->series, f->n_series) {
                if (x != y && score_same_budget(x, y)) { compare_two(w, x, y, o->lists); }
            }
        }
    }
    sort_opponents(n, &o->lists[AT_EQUAL_TOKENS], &o->lists[AT_OTHER_TOKENS]);
    o->held_out_checked =
        f->n_rows > 0 && f->used_seen == 0 && (f->n_marked == f->n_rows || n->in->n_runs > 0);
    set_scores(n);
}

/* ---- what a difference says ---- */

const interval *difference_deciding(const difference *of) { return of->by_kl ? &of->kl : &of->d; }

const char *difference_judged(const difference *of) {
    const interval *d = difference_deciding(of);
    if (!isfinite(d->lo) || !isfinite(d->hi)) { return "too few prompts to tell"; }
    return d->lo > 0 ? "better" : d->hi < 0 ? "worse" : "no difference shown";
}

bool difference_decided(const difference *of) {
    const interval *d = difference_deciding(of);
    return of->n >= PART_MIN && (d->lo > 0 || d->hi < 0);
}

const char *difference_equal_in(const difference *of) {
    return of->equal_layers    ? "in each layer of each prompt"
           : of->equal_prompts ? "in each prompt"
           : of->equal_tokens  ? "on average"
                               : NULL;
}

interval series_loss(const score_series *s, bool kl) {
    CKVC_AUTO_FREE double *v = ckvc_alloc(s->n, sizeof *v);
    CKVC_AUTO_FREE const score_row **rows = ckvc_alloc(s->n, sizeof *rows);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(s->n, sizeof *cluster);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        rows[n] = s->rows[i];
        v[n] = -s->rows[i]->reward;
        if (isnan(v[n])) { continue; }
        if (kl) { v[n] = s->rows[i]->kl; /* NaN of one: of all, or it would be of other prompts */ }
        n++;
    }
    const rank_interval of = mean_by_document(v, rows, n, cluster);
    return (interval){of.mean, of.lo, of.hi};
}

const char *series_formats(const report_numbers *n, const score_series *s) {
    char name[CACHE_FORMATS_TEXT];
    return arena_text(&n->in->arena, "%s", cache_formats_name(setting_formats(&s->setting), name));
}

const comparison *comparison_gain(const score_numbers *s, const comparison *c) {
    EACH(comparison, fair, s->lists[AT_EQUAL_TOKENS].of, s->lists[AT_EQUAL_TOKENS].n) {
        if (series_alike(&fair->of, &c->of) && fair->base.kind == POLICY_MATCHED) { return fair; }
    }
    return c;
}
