/* What an incoming table's side brings along: see fit_carry.h. */
#include "cql/fit/fit_carry.h"

#include <math.h>
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
static int take(json_t *meta, const json_t *from, const char *object, const char *key) {
    json_t *value = json_object_get(json_object_get(from, object), key);
    return value ? json_object_set_new(json_object_get(meta, object), key, json_deep_copy(value))
                 : 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* meta[key] = the texts of both lists, sorted, each once. */
static int unite(json_t *meta, const json_t *from, const char *key) {
    const json_t *lists[2] = {json_object_get(meta, key), json_object_get(from, key)};
    size_t n = 0, most = json_array_size(lists[0]) + json_array_size(lists[1]);
    json_t **all = ckvc_alloc(most + 1, sizeof(json_t *)), *out = json_array();
    for (int i = 0; all && i < 2; i++) {
        for (size_t k = 0; k < json_array_size(lists[i]); k++) {
            json_t *text = json_array_get(lists[i], k);
            if (json_is_string(text)) { all[n++] = text; }
        }
    }
    int bad = !all || !out;
    if (!bad) { qsort(all, n, sizeof(json_t *), by_text); }
    for (size_t k = 0; !bad && k < n; k++) {
        bad |=
            (k == 0 || by_text(&all[k - 1], &all[k]) != 0) && json_array_append(out, all[k]) != 0;
    }
    free(all);
    if (bad) {
        json_decref(out);
        return -1;
    }
    return json_object_set_new(meta, key, out);
}

ckvc_status fit_carry_meta(json_t *meta, const table_file *in, ckvc_side side, ckvc_err *err) {
    const char *name = ckvc_side_name(side);
    int bad = take(meta, in->meta, "diagnostics", name) | take(meta, in->meta, "counts", name) |
              take(meta, in->meta, "unsupported", name) |
              take(meta, in->meta, "reward", side == CKVC_SIDE_HEAD ? "scale_head" : "scale_gate");
    json_t *solver = json_object_get(meta, "solver");
    double ours = json_real_value(json_object_get(solver, "certificate")),
           theirs =
               json_real_value(json_object_get(json_object_get(in->meta, "solver"), "certificate"));
    bad |= json_object_set_new(solver, "certificate", json_real(fmax(ours, theirs)));
    bad |= unite(meta, in->meta, "plans") | unite(meta, in->meta, "passes");
    const json_t *stable = json_object_get(in->meta, "until_stable");
    if (json_is_array(stable)) {
        json_t *both = json_deep_copy(stable);
        const json_t *own = json_object_get(meta, "until_stable");
        bad |= !both || (own && json_array_extend(both, (json_t *)(uintptr_t)own)) ||
               json_object_set_new(meta, "until_stable", both);
    }
    return bad ? ckvc_fail_memory(err, "a table's META", 4096) : CKVC_OK;
}
