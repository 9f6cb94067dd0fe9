/* What an incoming table's side brings along: see fit_carry.h. */
#include "cql/fit/fit_carry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

static const char *kind_of(const json_t *meta, const char *object) {
    const char *kind = json_string_value(json_object_get(json_object_get(meta, object), "kind"));
    return kind ? kind : "";
}

bool fit_carries(const table_file *in, ckvc_side side, const fit_options *o) {
    if (!in || !in->has_evidence) { return false; }
    const json_t *fitted = json_object_get(
        json_object_get(json_object_get(in->meta, "diagnostics"), ckvc_side_name(side)), "fitted");
    return json_is_true(fitted) &&
           json_real_value(json_object_get(in->meta, "cql_alpha")) == o->cql_alpha &&
           strcmp(kind_of(in->meta, "reward"), o->reward == FIT_ADVANTAGE ? "advantage" : "raw") ==
               0 &&
           strcmp(kind_of(in->meta, "solver"), o->solver == FIT_EXACT ? "exact" : "adamw") == 0;
}

void fit_carry_evidence(table_file *to, const table_file *in, ckvc_side side) {
    const struct side shape = side_of_table(in->table, side);
    const size_t n = shape.n_states * shape.actions.n;
    const table_evidence *from = &in->evidence[side];
    table_evidence *e = &to->evidence[side];
    memcpy(e->q, from->q, n * sizeof *e->q);
    memcpy(e->m, from->m, n * sizeof *e->m);
    memcpy(e->n, from->n, n * sizeof *e->n);
    if (from->l) { memcpy(e->l, from->l, n * sizeof *e->l); }
    if (from->share) { e->share = ckvc_copy(from->share, n, sizeof *e->share); }
}

/* meta[object][key] = the incoming table's. */
static void take(json_t *meta, const json_t *from, const char *object, const char *key) {
    json_t *value = json_object_get(json_object_get(from, object), key);
    if (value) { json_object_set_new(json_object_get(meta, object), key, json_deep_copy(value)); }
}

static int by_text(const void *a, const void *b) {
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

json_t *fit_carry_names(const json_t *ours, const json_t *theirs) {
    const json_t *lists[2] = {ours, theirs};
    size_t n = 0, most = json_array_size(ours) + json_array_size(theirs);
    CKVC_AUTO_FREE json_t **all = ckvc_alloc(most, sizeof(json_t *));
    json_t *out = json_array();
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < json_array_size(lists[i]); k++) {
            json_t *text = json_array_get(lists[i], k);
            if (json_is_string(text)) { all[n++] = text; }
        }
    }
    qsort(all, n, sizeof(json_t *), by_text);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || by_text(&all[k - 1], &all[k]) != 0) { json_array_append(out, all[k]); }
    }
    return out;
}

/* meta[key] = those of both. */
static void unite(json_t *meta, const json_t *from, const char *key) {
    json_object_set_new(meta, key,
                        fit_carry_names(json_object_get(meta, key), json_object_get(from, key)));
}

void fit_carry_meta(json_t *meta, const table_file *in, ckvc_side side) {
    const char *name = ckvc_side_name(side);
    char scale[32];
    snprintf(scale, sizeof scale, "scale_%s", name);
    take(meta, in->meta, "diagnostics", name);
    take(meta, in->meta, "counts", name);
    take(meta, in->meta, "unsupported", name);
    take(meta, in->meta, "reward", scale);
    json_t *solver = json_object_get(meta, "solver");
    double ours = json_real_value(json_object_get(solver, "certificate")),
           theirs =
               json_real_value(json_object_get(json_object_get(in->meta, "solver"), "certificate"));
    json_object_set_new(solver, "certificate", json_real(fmax(ours, theirs)));
    unite(meta, in->meta, "plans");
    unite(meta, in->meta, "passes");
    const json_t *stable = json_object_get(in->meta, "until_stable");
    if (json_is_array(stable)) {
        json_t *both = json_deep_copy(stable);
        json_array_extend(both, json_object_get(meta, "until_stable"));
        json_object_set_new(meta, "until_stable", both);
    }
}
