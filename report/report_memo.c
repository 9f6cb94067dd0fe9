/* How much a run's merging of equal kept sets saved (method.md section 4), from its records: per
 * side and layer the logged actions, those at the baseline's set (their loss is the baseline's, bit
 * for bit) and the distinct sets of the others, once a prompt. Hashes of sets name the budget, so
 * budgets that share rollouts are counted each. */
#include <math.h>
#include <stdlib.h>

#include "report/draw/html.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

typedef struct asked {
    uint64_t set;
    uint32_t prompt;
    uint16_t layer;
    uint8_t side;
} asked;

static int by_place(const void *a, const void *b) {
    const asked *x = a, *y = b;
    if (x->prompt != y->prompt) { return x->prompt < y->prompt ? -1 : 1; }
    if (x->side != y->side || x->layer != y->layer) {
        return x->side * 65536 + x->layer < y->side * 65536 + y->layer ? -1 : 1;
    }
    return x->set < y->set ? -1 : x->set > y->set;
}

ckvc_status report_take_memo(report_run *run, const shard *s, ckvc_err *err) {
    const uint32_t L = run->h.n_layers, n_budgets = run->h.n_budgets;
    if (run->memo == NULL) { run->memo = ckvc_calloc(2 * (size_t)L, sizeof *run->memo); }
    asked *list = ckvc_alloc(s->n_records, sizeof *list);
    double *baseline = ckvc_alloc(s->n_prompts * n_budgets, sizeof *baseline);
    size_t n = 0;
    for (size_t i = 0; i < s->n_baselines; i++) {
        baseline[(size_t)s->baselines[i].prompt * n_budgets + s->baselines[i].budget] =
            s->baselines[i].loss;
    }
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        report_memo *m = &run->memo[(size_t)r->side * L + r->layer];
        m->actions++;
        if (r->loss == baseline[(size_t)r->prompt * n_budgets + r->budget]) {
            m->at_baseline++;
        } else {
            list[n++] = (asked){r->set_hash, r->prompt, r->layer, r->side};
        }
    }
    qsort(list, n, sizeof *list, by_place);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_place(&list[i - 1], &list[i]) != 0) {
            run->memo[(size_t)list[i].side * L + list[i].layer].distinct++;
        }
    }
    free(list);
    free(baseline);
    return CKVC_OK;
}

json_t *report_memo_json(const report_run *run) {
    static const char *const sides[] = {"head", "gate"};
    json_t *o = json_object();
    for (size_t side = 0; side < 2 && run->memo; side++) {
        json_t *actions = json_array(), *at_baseline = json_array(), *distinct = json_array();
        uint64_t total = 0;
        for (size_t l = 0; l < run->h.n_layers; l++) {
            const report_memo *m = &run->memo[side * run->h.n_layers + l];
            total += m->actions;
            json_array_append_new(actions, json_integer((json_int_t)m->actions));
            json_array_append_new(at_baseline, json_integer((json_int_t)m->at_baseline));
            json_array_append_new(distinct, json_integer((json_int_t)m->distinct));
        }
        json_t *of = json_pack("{s:o,s:o,s:o}", "actions", actions, "at_baseline", at_baseline,
                               "distinct", distinct);
        if (total > 0) {
            json_object_set_new(o, sides[side], of);
        } else {
            json_decref(of);
        }
    }
    return o;
}

static double total(const json_t *side, const char *key) {
    double sum = 0;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(side, key), i, v) {
        sum += json_number_value(v);
    }
    return sum;
}

/* Memo rate of one layer; NaN without actions. */
static double layer_rate(const json_t *side, size_t l) {
    const double actions = json_number_value(json_array_get(json_object_get(side, "actions"), l));
    return 1 - json_number_value(json_array_get(json_object_get(side, "distinct"), l)) / actions;
}

static void row(ckvc_buffer *b, const json_t *run, const char *name, const json_t *side) {
    const double actions = total(side, "actions"),
                 prompts = report_num(run, "n_prompts") - report_num(run, "n_heldout");
    size_t low = 0, high = 0;
    for (size_t l = 0; l < json_array_size(json_object_get(side, "actions")); l++) {
        low = !(layer_rate(side, l) >= layer_rate(side, low)) && !isnan(layer_rate(side, l))
                  ? l
                  : low; /* a layer may lack actions */
        high = !(layer_rate(side, l) <= layer_rate(side, high)) && !isnan(layer_rate(side, l))
                   ? l
                   : high;
    }
    html_row_begin(b);
    html_cell(b, 'l', "%s %s", report_str(run, "tag"), report_str(run, "name"));
    html_cell(b, 'l', "%s", name);
    html_cell(b, 'r', "%.0f", actions / prompts);
    html_cell(b, 'r', "%.0f", total(side, "distinct") / prompts);
    html_cell(b, 'r', "%s", report_share(total(side, "at_baseline") / actions));
    html_cell(b, 'r', "%s", report_share(1 - total(side, "distinct") / actions));
    html_cell(b, 'l', "%s (layer %zu) to %s (layer %zu)", report_share(layer_rate(side, low)), low,
              report_share(layer_rate(side, high)), high);
    html_row_end(b);
}

void report_memo_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {
        "run",         "side",      "actions a prompt",        "rollouts a prompt",
        "at baseline", "memo rate", "lowest and highest layer"};
    size_t i;
    json_t *run, *side;
    const char *name;
    bool any = false;
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        any = any || json_object_size(json_object_get(run, "memo")) > 0;
    }
    if (!any) { return; }
    html_section_begin(b, "memo", "Rollouts saved");
    html_paragraph(
        b, NULL,
        "Actions that keep the same tokens share a rollout, and those that keep the baseline's "
        "cost none: the memo rate "
        "is the share "
        "of the logged actions that cost nothing. Every layer's counts are in report.json.");
    html_table_old(b, NULL, "llrrrrl", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        json_object_foreach(json_object_get(run, "memo"), name, side) {
            row(b, run, name, side);
        }
    }
    html_table_end(b);
    html_section_end(b);
}
