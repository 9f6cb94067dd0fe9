/* Computes what is lost against the bytes that are kept, where score lines say formats of the cache
 * (docs/method.md, section 11), and holds each table against the whole cache in few bits. */
#include <math.h>
#include <stdlib.h>

#include "report/numbers/numbers.h"

/* What engines hold a number in, which is what float32 stands for here. */
enum { CACHE_BYTES = 2 };
#define HEAD_DIM_MAX 65536 /* lines say more than any model has: their bytes are not known */

static double number_bytes(cache_format f, double head_dim) {
    if (!(head_dim <= HEAD_DIM_MAX)) { return NAN; }
    return f <= CACHE_F32_ROT ? CACHE_BYTES * head_dim : (double)cache_bytes(f, (size_t)head_dim);
}

cache_size series_cache(const score_series *s) {
    const double n = (double)s->n;
    const cache_formats f = setting_formats(&s->setting);
    cache_size o = {0};
    for (size_t i = 0; i < s->n; i++) {
        const score_row *x = s->rows[i];
        o.layers = x->n_layers;
        /* alike on every line */
        o.kv_heads = round(x->entries / (score_row_kept(x) * x->n_layers));
        o.head_dim = x->head_dim;
        o.tokens += (double)x->n_tokens / n;
        o.entries += x->entries / n;
    }
    o.all_entries = o.layers * o.kv_heads * o.tokens;
    const double numbers = number_bytes(f.keys, o.head_dim) + number_bytes(f.values, o.head_dim);
    o.bytes = o.entries * (numbers + (cache_takes_mean(f) ? CACHE_POSITION_BYTES : 0));
    o.all_bytes = o.all_entries * 2 * number_bytes(CACHE_F32, o.head_dim);
    return o;
}

/* The share of the bytes that a table was asked for under the budget of a series; NaN: none. */
static double asked_share(const table_numbers *t, const score_series *s) {
    for (uint32_t b = 0; t && t->shape->byte_share && b < t->shape->n_budgets; b++) {
        const cache_formats held = table_file_held(t->f, b), f = setting_formats(&s->setting);
        if (t->shape->budgets[b] == s->budget && t->shape->byte_share[b] > 0 &&
            held.keys == f.keys && held.values == f.values) {
            return t->shape->byte_share[b];
        }
    }
    return NAN;
}

/* ---- the whole cache in few bits ---- */

/* Is x a whole cache in some format, against which a series can be held? */
static bool is_whole(const score_series *x, const score_series *s) {
    return x->kind == POLICY_FULL && series_has_formats(x) && strcmp(x->model, s->model) == 0 &&
           x->continuation == s->continuation &&
           x->setting.compress_after == s->setting.compress_after;
}

static double whole_share(const score_series *x) {
    const cache_size size = series_cache(x);
    return size.bytes / size.all_bytes;
}

/* Whole caches in 4 bits take 9/32 of the bytes, and up to a ninth more where positions are held
 * beside them. They are of one kind, so that none is compared with the one that loses more. */
#define ALIKE 1.125

/* Returns, of the whole caches that a series can be held against and that take the fewest bytes or
 * nearly so, the one that loses least. NULL: none was scored. */
static const score_series *find_whole(const report_numbers *n, const score_series *s) {
    const score_series *best = NULL;
    double fewest = INFINITY, loss = INFINITY;
    EACH(score_series, x, n->scores.series, n->scores.n_series) {
        if (is_whole(x, s)) { fewest = fmin(fewest, whole_share(x)); }
    }
    EACH(score_series, x, n->scores.series, n->scores.n_series) {
        if (!is_whole(x, s) || whole_share(x) > fewest * ALIKE) { continue; }
        const double kl = series_loss(x, true).mean,
                     lost = isnan(kl) ? series_loss(x, false).mean : kl;
        if (!best || lost < loss) {
            best = x;
            loss = lost;
        }
    }
    return best;
}

static json_t *whole_json(const byte_verdict *o) {
    const interval loss = series_loss(o->whole, false), kl = series_loss(o->whole, true);
    return ADD_MEMBERS(difference_json(&o->by), {"against", J(o->whole->title)},
                       {"formats", J(o->whole_formats)}, {"share", J(o->whole_share)},
                       {"loss", J(loss.mean)}, {"kl", J(kl.mean)});
}

/* Says of a table's budget what it takes, and holds it against the whole cache. */
static void judge_bytes(report_numbers *n, const table_numbers *t, verdict_at *at, json_t *json) {
    const cache_size size = series_cache(at->of);
    byte_verdict *o = at->bytes = NEW(n, 1, byte_verdict);
    o->asked = asked_share(t, at->of);
    o->share = size.bytes / size.all_bytes;
    o->entries = size.entries / size.all_entries;
    o->formats = series_formats(n, at->of);
    const score_series *whole = find_whole(n, at->of);
    if (whole && series_difference(n, at->of, whole, &o->by)) {
        const cache_size its = series_cache(whole);
        o->whole = whole;
        o->whole_formats = series_formats(n, whole);
        o->whole_share = its.bytes / its.all_bytes;
    }
    json_object_set_new(json, "bytes",
                        OBJECT(OF(o, asked), OF(o, share), OF(o, entries), OF(o, formats),
                               {"whole", o->whole ? whole_json(o) : json_null()}));
}

/* ---- all ---- */

static json_t *row_json(const report_numbers *n, const score_series *s) {
    const table_numbers *t = series_table(n, s);
    const cache_size size = series_cache(s);
    const interval loss = series_loss(s, false), kl = series_loss(s, true);
    const char *label = s->kind == POLICY_FULL ? "the whole cache" : series_label(n, s);
    return OBJECT({"label", J(label)},
                  {"table", J(t && s->kind == POLICY_TABLE ? t->in->tag : NULL)},
                  {"formats", J(series_formats(n, s))}, {"asked", J(asked_share(t, s))},
                  {"share", J(size.bytes / size.all_bytes)}, {"bytes", J(size.bytes)},
                  {"entries", J(size.entries / size.all_entries)}, OF(s, budget), OF(s, n),
                  OF(s, model), {"loss", J(loss.mean)}, {"lo", J(loss.lo)}, {"hi", J(loss.hi)},
                  {"kl", J(kl.mean)}, {"kl_lo", J(kl.lo)}, {"kl_hi", J(kl.hi)});
}

/* Is this the whole cache in formats of which a series before says the same? It loses as much under
 * every budget. */
static bool is_said(const report_numbers *n, const score_series *s) {
    for (const score_series *x = n->scores.series; s->kind == POLICY_FULL && x < s; x++) {
        if (x->kind == POLICY_FULL && strcmp(x->title, s->title) == 0 &&
            strcmp(x->model, s->model) == 0 && x->continuation == s->continuation) {
            return true;
        }
    }
    return false;
}

void byte_numbers_make(report_numbers *n) {
    const score_numbers *s = &n->scores;
    bool any = false;
    json_t *list = json_array();
    EACH(score_series, x, s->series, s->n_series) { any |= series_has_formats(x); }
    EACH(score_series, x, s->series, s->n_series) {
        const bool shown = x->kind == POLICY_FULL ? series_has_formats(x) : series_is_shown(x);
        if (any && shown && !is_said(n, x)) { json_array_append_new(list, row_json(n, x)); }
    }
    for (size_t i = 0; any && i < n->n_tables; i++) {
        table_numbers *t = &n->tables[i];
        const json_t *budgets = json_object_get(json_object_get(t->json, "verdict"), "budgets");
        for (size_t b = 0; b < t->verdict.n_budgets; b++) {
            if (series_has_formats(t->verdict.budgets[b].of)) {
                judge_bytes(n, t, &t->verdict.budgets[b], json_array_get(budgets, b));
            }
        }
    }
    if (any) { json_object_set(json_object_get(n->json, "scores"), "bytes", list); }
    json_decref(list);
}
