/* Reads the inputs: tables whole, runs one shard at a time into sums, score files whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

/* Last part of a path, its slashes at the end dropped; the caller frees. */
static char *base_name(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    size_t start = n;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    return ckvc_format("%.*s", (int)(n - start), path + start);
}

static ckvc_status load_table(report *r, const char *path, ckvc_err *err) {
    report_table *t = &r->tables[r->n_tables];
    ckvc_status rc = table_file_read(path, &t->f, err);
    if (rc) { return rc; }
    r->n_tables++;
    snprintf(t->tag, sizeof t->tag, "T%zu", r->n_tables);
    t->file = base_name(path);
    const char *label = json_string_value(json_object_get(t->f->meta, "label"));
    if (label && *label) {
        t->name = t->f->xfer ? ckvc_format("%s, transferred", label)
                             : ckvc_strdup(label); /* the label is its source's */
    } else if (t->file) {
        char *dot = strrchr(t->file, '.');
        t->name = ckvc_format("%.*s", dot ? (int)(dot - t->file) : (int)strlen(t->file), t->file);
    }
    t->title = t->name ? ckvc_format("%s %s", t->tag, t->name) : NULL;
    return t->title ? CKVC_OK : ckvc_fail_memory(err, "report", strlen(path));
}

size_t report_cell(const shard_header *h, size_t b, size_t l, size_t e, size_t p) {
    return ((b * h->n_layers + l) * h->n_entropy_bins + e) * h->n_ppl_bins + p;
}

static ckvc_status find_source(report_run *run, const char *name, uint32_t *out, ckvc_err *err) {
    for (size_t i = 0; i < run->n_sources; i++) {
        if (strcmp(run->sources[i], name) == 0) {
            *out = (uint32_t)i;
            return CKVC_OK;
        }
    }
    ckvc_status rc = ckvc_grow((void **)&run->sources, &run->cap_sources, run->n_sources + 1,
                               sizeof *run->sources, err);
    if (rc) { return rc; }
    char *copy = ckvc_strdup(name);
    gate_binding *sums = ckvc_realloc_array(
        run->sources_sum, (run->n_sources + 1) * (run->h.n_budgets ? run->h.n_budgets : 1),
        sizeof *sums);
    if (sums) { run->sources_sum = sums; }
    memset(sums + run->n_sources * run->h.n_budgets, 0, run->h.n_budgets * sizeof *sums);
    *out = (uint32_t)run->n_sources;
    run->sources[run->n_sources++] = copy;
    return CKVC_OK;
}

static ckvc_status take_prompts(report_run *run, const shard *s, ckvc_err *err) {
    ckvc_status rc = ckvc_grow((void **)&run->prompts, &run->cap_prompts,
                               run->n_prompts + s->n_prompts, sizeof *run->prompts, err);
    for (size_t i = 0; i < s->n_prompts && rc == CKVC_OK; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        report_prompt *q = &run->prompts[run->n_prompts];
        *q = (report_prompt){.id = ckvc_strdup(p->id),
                             .n_tokens = p->n_tokens,
                             .heldout = strcmp(p->split, "heldout") == 0,
                             .token_hash = p->token_hash,
                             .r_struct = p->r_struct,
                             .r_sem = p->r_sem,
                             .bin_entropy = p->bin_entropy,
                             .bin_ppl = p->bin_ppl};
        if (!q->id) { return ckvc_fail_memory(err, "report", sizeof *q); }
        run->n_prompts++;
        rc = find_source(run, p->source, &q->source, err);
    }
    return rc;
}

static void take_baselines(report_run *run, const shard *s, size_t first_prompt) {
    uint32_t L = run->h.n_layers;
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        const report_prompt *p = &run->prompts[first_prompt + b->prompt];
        for (uint32_t l = 0; l < L; l++) {
            uint32_t budget;
            if (!shard_layer_budget(&run->h, b->budget, l, p->n_tokens, &budget)) { continue; }
            size_t at = i * L + l;
            uint32_t lo = s->n_candidates_lo[at], hi = s->n_candidates_hi[at], kept = s->n_kept[at],
                     window = s->n_kept_window[at];
            gate_binding_add(
                &run->cells[report_cell(&run->h, b->budget, l, p->bin_entropy, p->bin_ppl)], budget,
                lo, hi, kept, window, p->n_tokens);
            gate_binding_add(&run->sources_sum[(size_t)p->source * run->h.n_budgets + b->budget],
                             budget, lo, hi, kept, window, p->n_tokens);
        }
    }
}

static ckvc_status load_run(report *r, const char *path, ckvc_err *err) {
    report_run *run = &r->runs[r->n_runs];
    ckvc_status rc = run_open(path, &run->dir, err);
    if (rc) { return rc; }
    r->n_runs++;
    snprintf(run->tag, sizeof run->tag, "R%zu", r->n_runs);
    run->name = base_name(path);
    run->title = run->name ? ckvc_format("%s %s", run->tag, run->name) : NULL;
    for (size_t i = 0; i < run_pass_count(run->dir); i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        if (p->n_shards > 0) { *(strcmp(p->kind, "scan") == 0 ? &run->scan : &run->pass) = p; }
    }
    if ((rc = report_origins(run, err))) { return rc; }
    const run_pass *use = run->pass ? run->pass : run->scan;
    for (size_t k = 0; use && k < use->n_shards; k++) {
        shard *s = NULL;
        if ((rc = run_read_shard(run->dir, use, k, &s, err))) { return rc; }
        if (k == 0) {
            shard_header_copy(&run->h, &s->h);
            run->binned = use == run->pass;
            size_t cells = report_cell(&run->h, run->h.n_budgets, 0, 0, 0);
            run->cells = rc ? NULL : ckvc_calloc(cells, sizeof *run->cells);
            if (!rc && !run->cells) {
                rc = ckvc_fail_memory(err, "report", cells * sizeof *run->cells);
            }
        }
        size_t first = run->n_prompts;
        if (rc == CKVC_OK && (rc = take_prompts(run, s, err)) == CKVC_OK) {
            take_baselines(run, s, first);
            run->n_records += s->n_records;
            rc = s->n_records ? report_take_memo(run, s, err) : CKVC_OK;
        }
        shard_free(s);
        if (rc) { return rc; }
    }
    return CKVC_OK;
}

ckvc_status report_load(report *r, ckvc_err *err) {
    const report_options *o = r->o;
    r->tables = ckvc_calloc(o->n_inputs + 1, sizeof *r->tables);
    r->runs = ckvc_calloc(o->n_inputs + 1, sizeof *r->runs);
    r->scores = ckvc_calloc(o->n_scores + 1, sizeof *r->scores);
    r->json = json_object();
    for (size_t i = 0; i < o->n_inputs; i++) {
        ckvc_status rc = ckvc_is_dir(o->inputs[i]) ? load_run(r, o->inputs[i], err)
                                                   : load_table(r, o->inputs[i], err);
        if (rc) { return rc; }
    }
    for (size_t i = 0; i < o->n_scores; i++) {
        ckvc_status rc = scores_read(o->scores[i], &r->scores[i], err);
        if (rc) { return rc; }
        r->n_scores++;
    }
    ckvc_status rc = CKVC_OK;
    for (size_t t = 0; t < r->n_tables && rc == CKVC_OK; t++) {
        rc = report_fitted_from(r, &r->tables[t], err);
    }
    return rc;
}

void report_unload(report *r) {
    for (size_t i = 0; i < r->n_tables; i++) {
        table_file_free(r->tables[i].f);
        free(r->tables[i].name);
        free(r->tables[i].title);
        free(r->tables[i].file);
        free(r->tables[i].runs);
        report_records_free(&r->tables[i].sides[CKVC_SIDE_HEAD]);
        report_records_free(&r->tables[i].sides[CKVC_SIDE_GATE]);
    }
    for (size_t i = 0; i < r->n_runs; i++) {
        report_run *run = &r->runs[i];
        run_close(run->dir);
        free(run->origins);
        free(run->name);
        free(run->title);
        for (size_t k = 0; k < run->n_prompts; k++) {
            free(run->prompts[k].id);
        }
        for (size_t k = 0; k < run->n_sources; k++) {
            free(run->sources[k]);
        }
        free(run->prompts);
        free(run->sources);
        free(run->cells);
        free(run->memo);
        free(run->sources_sum);
        shard_header_fini(&run->h);
    }
    for (size_t i = 0; i < r->n_scores; i++) {
        scores_free(r->scores[i]);
    }
    for (size_t i = 0; i < r->n_figures; i++) {
        report_figure *f = &r->figures[i];
        free(f->name);
        free(f->caption);
        ckvc_buffer_fini(&f->inline_svg);
        ckvc_buffer_fini(&f->file_svg);
        ckvc_buffer_fini(&f->csv);
    }
    free(r->tables);
    free(r->runs);
    free(r->scores);
    free(r->figures);
    json_decref(r->json);
    memset(r, 0, sizeof *r);
}

static bool any_count(const uint64_t *n, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (n[i]) { return true; }
    }
    return false;
}

bool report_gate_supported(const report_table *t, size_t l, size_t e, size_t p, size_t b) {
    const ckvc_table *k = t->f->table;
    if (!t->f->has_evidence) {
        return true; /* nothing is known: a transferred table shows all of its cells */
    }
    size_t cell = ckvc_tau_index(k, (uint32_t)l, (uint32_t)e, (uint32_t)p, (uint32_t)b);
    return any_count(t->f->evidence[CKVC_SIDE_GATE].n + cell * k->n_gate_actions,
                     k->n_gate_actions);
}

bool report_head_supported(const report_table *t, size_t l, size_t g, size_t b) {
    const ckvc_table *k = t->f->table;
    if (!t->f->has_evidence) { return true; }
    size_t state = ckvc_weight_index(k, (uint32_t)l, (uint32_t)g, (uint32_t)b);
    return any_count(t->f->evidence[CKVC_SIDE_HEAD].n + state * k->n_head_actions,
                     k->n_head_actions);
}

double report_num(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *report_str(const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

enum { SLOTS = 64, SLOT_SIZE = 128 };

/* The next static buffer: one call of printf uses far fewer. */
static char *ring(void) {
    static char text[SLOTS][SLOT_SIZE];
    static unsigned next;
    return text[next++ % SLOTS];
}

const char *report_fixed(double v, int decimals) {
    char digits[64];
    if (!isfinite(v)) { return REPORT_UNDEFINED; }
    snprintf(digits, sizeof digits, fabs(v) < 1e15 ? "%.*f" : "%.*g", decimals, v);
    if (digits[0] != '-') { return strcpy(ring(), digits); }
    /* a minus sign proper, and none before zero */
    char *out = ring();
    bool zero = strspn(digits + 1, "0.") == strlen(digits + 1);
    snprintf(out, SLOT_SIZE, "%s%s", zero ? "" : "\u2212", digits + 1);
    return out;
}

const char *report_signed(double v, int decimals) {
    const char *text = report_fixed(v, decimals);
    if (!isfinite(v) || v <= 0 || text[0] == '\xE2') { return text; }
    char *out = ring();
    snprintf(out, SLOT_SIZE, "+%s", text);
    return out;
}

const char *report_share(double v) {
    char *out = ring();
    if (!isfinite(v)) { return REPORT_UNDEFINED; }
    snprintf(out, SLOT_SIZE, "%.*f%%", v > 0 && v < 0.1 ? 1 : 0, 100 * v);
    return out;
}

const char *report_interval(double mean, double lo, double hi, int decimals) {
    if (!isfinite(mean)) { return REPORT_UNDEFINED; }
    char *out = ring();
    if (!isfinite(lo) || !isfinite(hi)) {
        snprintf(out, SLOT_SIZE, "%s (no interval)", report_signed(mean, decimals));
    } else {
        snprintf(out, SLOT_SIZE, "%s (%s to %s)", report_signed(mean, decimals),
                 report_signed(lo, decimals), report_signed(hi, decimals));
    }
    return out;
}

const char *report_budget(double budget) {
    char *out = ring();
    if (budget < 1) {
        snprintf(out, SLOT_SIZE, "%.4g%% of T", 100 * budget);
    } else {
        snprintf(out, SLOT_SIZE, "%g tokens", budget);
    }
    return out;
}

const char *report_more_tokens(double ratio) {
    char *out = ring();
    if (!isfinite(ratio)) { return "other numbers of tokens"; }
    double percent = 100 * fabs(ratio - 1);
    snprintf(out, SLOT_SIZE, "%.*f%% %s tokens", percent < 10 ? 1 : 0, percent,
             ratio > 1 ? "more" : "fewer");
    return out;
}

const char *report_few_refits(double n, bool brackets) {
    char *out = ring();
    *out = 0;
    if (n < REPORT_REFITS) {
        snprintf(out, SLOT_SIZE, brackets ? " (%.0f refits)" : ", %.0f refits", n);
    }
    return out;
}
