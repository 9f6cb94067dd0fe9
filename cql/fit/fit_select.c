/* See fit_select.h. */
#include "cql/fit/fit_select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lines/scores.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

size_t select_candidates(bool learned, ckvc_score_kind score, double counted, double c_min,
                         select_candidate out[SELECT_MAX]) {
    static const ckvc_score_kind all[] = {CKVC_SCORE_WINDOW, CKVC_SCORE_LEARNED, CKVC_SCORE_PAPER};
    double floors[] = {counted, 0.1, 0.2, c_min}; /* c_min in its place behind the first */
    for (int i = 3; i > 1 && floors[i] < floors[i - 1]; i--) {
        const double one = floors[i];
        floors[i] = floors[i - 1];
        floors[i - 1] = one;
    }
    const bool several = score == CKVC_SCORE_LEARNED;
    size_t n = 0;
    for (size_t k = 0; k < (several ? 3 : 1); k++) {
        const ckvc_score_kind kind = several ? all[k] : score;
        if (kind == CKVC_SCORE_LEARNED && !learned) { continue; }
        double last = -1;
        for (size_t i = 0; i < sizeof floors / sizeof *floors; i++) {
            if (floors[i] <= last) { continue; }
            out[n++] = (select_candidate){kind, last = floors[i]};
        }
    }
    return n;
}

/* ---- losses ---- */

static size_t candidate_of(const select_losses *s, const score_row *r) {
    size_t i = 0;
    while (i < s->n && (s->candidates[i].score != r->setting.score ||
                        s->candidates[i].floor != r->setting.floor)) {
        i++;
    }
    return i;
}

static uint32_t budget_of(const ckvc_table *t, const score_row *r) {
    uint32_t b = 0;
    while (b < t->n_budgets && t->budgets[b] != r->budget) { b++; }
    return b;
}

/* Rows of the table itself, under budgets of its own. */
static ckvc_status check_row(const scores *file, const score_row *r, const ckvc_table *t,
                             ckvc_err *err) {
    const uint32_t b = budget_of(t, r);
    CKVC_FAIL_IF(b == t->n_budgets, err, CKVC_E_MISMATCH,
                 "%s:%u: budget %.10g is none of the table's", file->path, r->line, r->budget);
    CKVC_FAIL_IF(r->setting.mode != t->score[b].mode, err, CKVC_E_MISMATCH,
                 "%s:%u: mode %s, the table recommends %s", file->path, r->line,
                 ckvc_mode_name(r->setting.mode), ckvc_mode_name((ckvc_mode)t->score[b].mode));
    CKVC_FAIL_IF(r->setting.score == CKVC_SCORE_LEARNED && !t->theta, err, CKVC_E_MISMATCH,
                 "%s:%u: by a learned score, which the table has not", file->path, r->line);
    return CKVC_OK;
}

/* The number of the prompt among names, or n. */
static size_t prompt_of(const score_row *const *first, size_t n, const score_row *r) {
    size_t i = n; /* lines of a prompt stand together */
    while (i > 0 && strcmp(first[i - 1]->id, r->id) != 0) { i--; }
    return i > 0 ? i - 1 : n;
}

/* The least of the candidates' means at budget b over prompts that have them all. */
static void choose(select_losses *s, uint32_t b, const double *loss) {
    const uint32_t nB = s->n_budgets;
    size_t counted = 0;
    for (size_t i = 0; i < s->n; i++) { s->loss[i * nB + b] = 0; }
    for (size_t p = 0; p < s->n_prompts; p++) {
        const double *of = loss + (p * nB + b) * SELECT_MAX;
        double sum = 0;
        for (size_t i = 0; i < s->n; i++) { sum += of[i]; }
        if (!isfinite(sum)) { continue; }
        for (size_t i = 0; i < s->n; i++) { s->loss[i * nB + b] += of[i]; }
        counted++;
    }
    s->chosen[b] = counted ? 0 : s->n;
    for (size_t i = 0; i < s->n; i++) {
        double *mean = &s->loss[i * nB + b];
        *mean = counted ? *mean / (double)counted : NAN;
        if (counted && *mean < s->loss[s->chosen[b] * nB + b]) { s->chosen[b] = i; }
    }
}

/* What the best of the others loses more, prompt by prompt. */
static void hold_against_next(select_losses *s, uint32_t b, const double *loss,
                              const score_row *const *first) {
    const uint32_t nB = s->n_budgets;
    const size_t chosen = s->chosen[b];
    size_t next = s->n, n = 0;
    for (size_t i = 0; i < s->n && chosen < s->n; i++) {
        const double x = s->loss[i * nB + b], own = s->loss[chosen * nB + b],
                     best = next < s->n ? s->loss[next * nB + b] : INFINITY;
        next = x != own && x < best ? i : next; /* as much loss: the same sets, most likely */
    }
    CKVC_AUTO_FREE double *more = ckvc_alloc(s->n_prompts, sizeof *more);
    CKVC_AUTO_FREE const char **documents = ckvc_alloc(s->n_prompts, sizeof *documents);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(s->n_prompts, sizeof *cluster);
    for (size_t p = 0; p < s->n_prompts && next < s->n; p++) {
        const double *of = loss + (p * nB + b) * SELECT_MAX;
        documents[n] = first[p]->document;
        more[n] = of[next] - of[chosen];
        n += isfinite(more[n]);
    }
    rank_clusters(documents, n, cluster);
    s->more[b] = rank_mean_interval(more, cluster, n);
}

ckvc_status select_read(const char *path, const ckvc_table *t, select_losses **out, ckvc_err *err) {
    CKVC_AUTO(scores_free_at) scores *file = NULL;
    CKVC_AUTO(select_free_at) select_losses *s = ckvc_calloc(1, sizeof *s);
    const uint32_t nB = s->n_budgets = t->n_budgets;
    *out = NULL;
    CKVC_TRY(scores_read(path, &file, err));
    CKVC_AUTO_FREE const score_row **first = ckvc_alloc(file->n, sizeof(void *));
    CKVC_AUTO_FREE double *loss = ckvc_alloc(file->n * nB * SELECT_MAX, sizeof *loss);
    CKVC_AUTO_FREE size_t *there = ckvc_calloc(file->n, sizeof *there);
    /* a line that is there twice may stand in the place of one that is not */
    for (size_t k = 0; k < file->n * nB * SELECT_MAX; k++) { loss[k] = NAN; }
    for (size_t k = 0; k < file->n; k++) {
        const score_row *r = &file->rows[k];
        if (strcmp(r->policy, "table") != 0) { continue; }
        CKVC_TRY(check_row(file, r, t, err));
        const size_t p = prompt_of(first, s->n_prompts, r), i = candidate_of(s, r);
        if (p == s->n_prompts) { first[s->n_prompts++] = r; }
        CKVC_FAIL_IF(i == SELECT_MAX || (i == s->n && p > 0), err, CKVC_E_DATA,
                     "%s:%u: prompt \"%s\": a score and floor that %s", path, r->line, r->id,
                     p > 0 ? "the first prompt has not" : "are too many");
        if (i == s->n) {
            s->candidates[s->n++] = (select_candidate){r->setting.score, r->setting.floor};
        }
        loss[(p * nB + budget_of(t, r)) * SELECT_MAX + i] = -r->reward;
        there[p]++;
    }
    for (size_t p = 0; p < s->n_prompts; p++) {
        CKVC_FAIL_IF(there[p] != s->n * nB, err, CKVC_E_DATA,
                     "%s:%u: prompt \"%s\": %zu lines of tables, wanted %zu, every score and floor "
                     "under every budget",
                     path, first[p]->line, first[p]->id, there[p], s->n * nB);
    }
    CKVC_FAIL_IF(s->n_prompts == 0, err, CKVC_E_DATA, "%s: no lines of a table", path);
    s->loss = ckvc_alloc(s->n * nB, sizeof *s->loss);
    s->chosen = ckvc_alloc(nB, sizeof *s->chosen);
    s->more = ckvc_alloc(nB, sizeof *s->more);
    for (uint32_t b = 0; b < nB; b++) {
        choose(s, b, loss);
        hold_against_next(s, b, loss, first);
    }
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void select_free(select_losses *s) {
    if (s) { CKVC_FREE(s->loss, s->chosen, s->more); }
    free(s);
}

/* ---- what comes of it ---- */

json_t *select_json(const select_losses *s) {
    json_t *list = json_array(), *chosen = json_array();
    for (size_t i = 0; i < s->n; i++) {
        const select_candidate *c = &s->candidates[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:o}", "score", ckvc_score_name(c->score),
                                        "floor", c->floor, "loss",
                                        ckvc_json_reals(s->loss + i * s->n_budgets, s->n_budgets)));
    }
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        json_array_append_new(chosen, s->chosen[b] < s->n ? json_integer((json_int_t)s->chosen[b])
                                                          : json_null());
    }
    return json_pack("{s:I, s:o, s:o}", "prompts", (json_int_t)s->n_prompts, "candidates", list,
                     "chosen", chosen);
}

static void recommend_candidate(ckvc_table *t, uint32_t b, select_candidate c) {
    const uint32_t mode = t->score[b].mode;
    t->score[b] = ckvc_default_score(c.score, t->score[b].features);
    t->score[b].mode = mode;
    t->c_min[b].floor = c.floor;
}

void select_take(const select_losses *s, table_file *t) {
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        if (s->chosen[b] < s->n) { recommend_candidate(t->table, b, s->candidates[s->chosen[b]]); }
    }
    json_object_set_new(t->meta, "select", select_json(s));
}
