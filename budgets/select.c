/* See select.h. */
#include "budgets/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lines/scores.h"
#include "formats/shard/shard.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

size_t select_candidates(uint32_t features, bool mixes, bool bank, ckvc_score_kind score,
                         double counted, double c_min, select_candidate out[SELECT_MAX]) {
    static const double little = 0.1, much = 0.5; /* ridges */
    static const ckvc_score_kind all[] = {CKVC_SCORE_WINDOW, CKVC_SCORE_LEARNED, CKVC_SCORE_PAPER};
    const bool learned = features != 0, equal = c_min >= 1.0,
               rowless = learned && ckvc_features_rows(features) == 0;
    counted = equal ? 1.0 : counted;
    /* Moves c_min to its place in ascending order behind the first floor. All others are higher
     * than the first, or equal to it and then skipped. */
    double floors[] = {counted, fmax(counted, 0.2), fmax(counted, 0.4), fmax(counted, c_min)};
    for (int i = 3; i > 1 && floors[i] < floors[i - 1]; i--) {
        const double one = floors[i];
        floors[i] = floors[i - 1];
        floors[i - 1] = one;
    }
    const bool several = score == CKVC_SCORE_LEARNED;
    const ckvc_score_kind own = several && !learned ? CKVC_SCORE_WINDOW : score;
    const ckvc_score_kind fitted = own == CKVC_SCORE_LEARNED ? CKVC_SCORE_BANK : own;
    const size_t n_floors = sizeof floors / sizeof *floors;
    double last = -1;
    size_t n = 0;
    for (size_t k = 0; k < (several ? 3 : 1); k++) {
        const ckvc_score_kind kind = several ? all[k] : score;
        if (kind == CKVC_SCORE_LEARNED ? !learned : several && rowless) { continue; }
        last = -1;
        for (size_t i = kind == own ? 0 : n_floors - 1; i < n_floors; i++) {
            if (floors[i] <= last) { continue; }
            last = floors[i];
            out[n++] = (select_candidate){kind, last, 0, 0};
            if (kind != own || !bank) { continue; }
            if (fitted != own) { out[n++] = (select_candidate){own, last, 0, much}; }
            out[n++] = (select_candidate){fitted, last, 0, little};
            out[n++] = (select_candidate){fitted, last, 0, much};
        }
        if (several && kind == CKVC_SCORE_WINDOW && last < 1.0) {
            out[n++] = (select_candidate){kind, 1.0, 0, 0};
        }
    }
    for (size_t i = 0; mixes && !equal && i < SHARD_N_MIXES; i++) {
        const double w = shard_mixes[i];
        if (!bank) {
            out[n++] = (select_candidate){own, floors[0], w, 0};
            if (last > floors[0]) { out[n++] = (select_candidate){own, last, w, 0}; }
        } else if (w <= 0.5) {
            out[n++] = (select_candidate){fitted, floors[0], w, little};
            if (fitted != own) { out[n++] = (select_candidate){own, floors[0], w, little}; }
        }
    }
    return n;
}

/* ---- losses ---- */

static size_t candidate_of(const select_losses *s, const score_row *r) {
    size_t i = 0;
    while (i < s->n &&
           (s->candidates[i].score != r->setting.score ||
            s->candidates[i].floor != r->setting.floor || s->candidates[i].mix != r->setting.mix ||
            s->candidates[i].ridge != r->setting.ridge)) {
        i++;
    }
    return i;
}

static uint32_t find_budget(const ckvc_table *t, const score_row *r) {
    uint32_t b = 0;
    while (b < t->n_budgets && t->budgets[b] != r->budget) { b++; }
    return b;
}

/* Checks that a row is of this table, in its mode, and under a budget of its own. */
static ckvc_status check_candidate_line(const scores *file, const score_row *r, const ckvc_table *t,
                                        ckvc_err *err) {
    const uint32_t b = find_budget(t, r);
    CKVC_FAIL_IF(b == t->n_budgets, err, CKVC_E_MISMATCH,
                 "%s:%u: budget %.10g is none of the table's budgets", file->path, r->line,
                 r->budget);
    CKVC_FAIL_IF(r->setting.mode != t->score[b].mode, err, CKVC_E_MISMATCH,
                 "%s:%u: was scored in mode %s, but the table recommends %s", file->path, r->line,
                 ckvc_mode_name(r->setting.mode), ckvc_mode_name((ckvc_mode)t->score[b].mode));
    CKVC_FAIL_IF((r->setting.ridge > 0 || r->setting.score == CKVC_SCORE_BANK) && !t->bank, err,
                 CKVC_E_MISMATCH, "%s:%u: was scored by a bank, which the table does not have",
                 file->path, r->line);
    CKVC_FAIL_IF(ckvc_score_learns(r->setting.score) && !t->theta, err, CKVC_E_MISMATCH,
                 "%s:%u: was scored by a learned ranking, which the table does not have",
                 file->path, r->line);
    return CKVC_OK;
}

/* Returns the index of the row's prompt, or n where it is new. */
static size_t find_prompt(const score_row *const *first, size_t n, const score_row *r) {
    size_t i = n; /* searches from the end, because lines of a prompt stand together */
    while (i > 0 && strcmp(first[i - 1]->id, r->id) != 0) { i--; }
    return i > 0 ? i - 1 : n;
}

/* Score lines from which losses are made. */
typedef struct select_rows {
    const score_row **first; /* [n_prompts] a row of each */
    /* [n_prompts][nB][SELECT_MAX]; NaN: there is no line; infinite: none that is finite */
    double *loss;
    size_t n_loss, capacity;
} select_rows;

static void rows_fini(select_rows *x) { CKVC_FREE(x->first, x->loss); }

/* Returns the index of candidate 0 of a prompt and budget. */
static size_t loss_offset(const select_losses *s, size_t p, uint32_t b) {
    return (p * s->n_budgets + b) * SELECT_MAX;
}

static bool has_line(const select_losses *s, const select_rows *x, size_t p, uint32_t b, size_t i) {
    return !isnan(x->loss[loss_offset(s, p, b) + i]);
}

/* Returns whether candidate i was not dropped at budget b. */
static bool is_left(const select_losses *s, const select_rows *x, uint32_t b, size_t i) {
    return has_line(s, x, s->n_prompts - 1, b, i);
}

/* Chooses the candidate with the least mean at budget b. Means are over prompts that have a finite
 * loss of every candidate that is left. */
static void choose_candidate(select_losses *s, const select_rows *x, uint32_t b) {
    const uint32_t nB = s->n_budgets;
    size_t counted = 0;
    for (size_t i = 0; i < s->n; i++) { s->loss[i * nB + b] = is_left(s, x, b, i) ? 0 : NAN; }
    for (size_t p = 0; p < s->n_prompts; p++) {
        const double *of = x->loss + loss_offset(s, p, b);
        double sum = 0;
        for (size_t i = 0; i < s->n; i++) { sum += is_left(s, x, b, i) ? of[i] : 0; }
        if (!isfinite(sum)) { continue; }
        for (size_t i = 0; i < s->n; i++) { s->loss[i * nB + b] += of[i]; }
        counted++;
    }
    s->chosen[b] = s->n;
    for (size_t i = 0; i < s->n; i++) {
        double *mean = &s->loss[i * nB + b];
        *mean = counted ? *mean / (double)counted : NAN;
        if (s->chosen[b] == s->n ? !isnan(*mean) : *mean < s->loss[s->chosen[b] * nB + b]) {
            s->chosen[b] = i;
        }
    }
}

/* Returns what candidate i loses more than the chosen one at budget b, paired by prompt. */
static rank_interval more_than_chosen(const select_losses *s, const select_rows *x, uint32_t b,
                                      size_t i) {
    CKVC_AUTO_FREE double *more = ckvc_alloc(s->n_prompts, sizeof *more);
    CKVC_AUTO_FREE const char **documents = ckvc_alloc(s->n_prompts, sizeof *documents);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(s->n_prompts, sizeof *cluster);
    size_t n = 0;
    for (size_t p = 0; p < s->n_prompts && i < s->n; p++) {
        const double *of = x->loss + loss_offset(s, p, b);
        documents[n] = x->first[p]->document;
        more[n] = of[i] - of[s->chosen[b]];
        n += isfinite(more[n]);
    }
    rank_clusters(documents, n, cluster);
    return rank_mean_interval(more, cluster, n);
}

size_t select_better_half(size_t left) { return left > 4 ? (left + 1) / 2 : left < 2 ? left : 2; }

/* Says which candidates are in the worse half at budget b, and by how much the best of those that
 * were not chosen loses more. */
static void compare_candidates(select_losses *s, const select_rows *x, uint32_t b) {
    const uint32_t nB = s->n_budgets;
    const size_t chosen = s->chosen[b];
    size_t next = s->n, left = 0;
    for (size_t i = 0; i < s->n; i++) {
        left += is_left(s, x, b, i);
        if (chosen == s->n || i == chosen) { continue; }
        const double loss = s->loss[i * nB + b], own = s->loss[chosen * nB + b],
                     best = next < s->n ? s->loss[next * nB + b] : INFINITY;
        /* a candidate with the same loss most likely keeps the same sets */
        next = loss != own && loss < best ? i : next;
    }
    const size_t half = select_better_half(left);
    for (size_t i = 0; i < s->n; i++) {
        size_t better = 0; /* of equal ones those before */
        for (size_t k = 0; k < s->n; k++) {
            const double loss = s->loss[i * nB + b], other = s->loss[k * nB + b];
            better += other < loss || (other == loss && k < i);
        }
        s->lost[i * nB + b] = !is_left(s, x, b, i) || better >= half;
    }
    s->more[b] = more_than_chosen(s, x, b, next);
}

/* Adds one line of a table. */
static ckvc_status add_score_line(select_losses *s, select_rows *x, const scores *file,
                                  const score_row *r, const ckvc_table *t, ckvc_err *err) {
    CKVC_TRY(check_candidate_line(file, r, t, err));
    const size_t p = find_prompt(x->first, s->n_prompts, r), i = candidate_of(s, r);
    CKVC_FAIL_IF(i == SELECT_MAX || (i == s->n && p > 0), err, CKVC_E_DATA,
                 "%s:%u: prompt \"%s\": its score, floor, mix and ridge are %s", file->path,
                 r->line, r->id,
                 p > 0 ? "none that the first prompt has" : "more than can be chosen among");
    if (p == s->n_prompts) {
        x->first[s->n_prompts++] = r;
        const size_t needed = loss_offset(s, s->n_prompts, 0);
        CKVC_GROW(x->loss, x->capacity, needed);
        while (x->n_loss < needed) { x->loss[x->n_loss++] = NAN; }
    }
    if (i == s->n) {
        s->candidates[s->n++] = (select_candidate){r->setting.score, r->setting.floor,
                                                   r->setting.mix, r->setting.ridge};
    }
    const size_t at = loss_offset(s, p, find_budget(t, r)) + i;
    CKVC_FAIL_IF(
        !isnan(x->loss[at]), err, CKVC_E_DATA,
        "%s:%u: prompt \"%s\": its line of this score, floor, mix, ridge and budget is there "
        "twice, from different tables",
        file->path, r->line, r->id);
    const double loss = s->by_kl ? r->kl : -r->reward;
    x->loss[at] = isfinite(loss) ? loss : INFINITY;
    return CKVC_OK;
}

/* Checks that every candidate and budget has lines of all prompts or, with `drops`, of all prompts
 * from the first one up to some prompt. */
static ckvc_status check_lines(const select_losses *s, const select_rows *x, bool drops,
                               const char *path, ckvc_err *err) {
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        for (size_t i = 0; i < s->n; i++) {
            for (size_t p = 0; p < s->n_prompts; p++) {
                const bool now = has_line(s, x, p, b, i),
                           before = p == 0 || has_line(s, x, p - 1, b, i);
                CKVC_FAIL_IF((!now && (p == 0 || !drops)) || (now && !before), err, CKVC_E_DATA,
                             "%s: prompt \"%s\" has no line of score %s, floor %g, mix %g under "
                             "budget number %u, which %s",
                             path, x->first[now ? p - 1 : p]->id,
                             ckvc_score_name(s->candidates[i].score), s->candidates[i].floor,
                             s->candidates[i].mix, b, now ? "a later prompt has" : "others have");
            }
        }
    }
    return CKVC_OK;
}

/* Adds all lines of tables. */
static ckvc_status add_score_lines(select_losses *s, select_rows *x, const scores *file,
                                   const ckvc_table *t, bool drops, ckvc_err *err) {
    x->first = ckvc_alloc(file->n, sizeof(void *));
    x->capacity = loss_offset(s, 1, 0);
    x->loss = ckvc_alloc(x->capacity, sizeof *x->loss);
    s->by_kl = true;
    for (size_t k = 0; k < file->n; k++) {
        const score_row *r = &file->rows[k];
        s->by_kl &= !isnan(r->kl) || isnan(r->reward);
    }
    for (size_t k = 0; k < file->n; k++) {
        const score_row *r = &file->rows[k];
        if (strcmp(r->policy, "table") == 0) { CKVC_TRY(add_score_line(s, x, file, r, t, err)); }
    }
    CKVC_FAIL_IF(s->n_prompts == 0, err, CKVC_E_DATA, "%s: holds no lines of a table", file->path);
    return check_lines(s, x, drops, file->path, err);
}

ckvc_status select_read(const char *path, const ckvc_table *t, bool drops, select_losses **out,
                        ckvc_err *err) {
    CKVC_AUTO(scores_free_at) scores *file = NULL;
    CKVC_AUTO(select_free_at) select_losses *s = ckvc_calloc(1, sizeof *s);
    CKVC_AUTO(rows_fini) select_rows x = {0};
    const uint32_t nB = s->n_budgets = t->n_budgets;
    *out = NULL;
    CKVC_TRY(scores_read(path, &file, err));
    CKVC_TRY(add_score_lines(s, &x, file, t, drops, err));
    s->loss = ckvc_alloc(s->n * nB, sizeof *s->loss);
    s->lost = ckvc_alloc(s->n * nB, sizeof *s->lost);
    s->chosen = ckvc_alloc(nB, sizeof *s->chosen);
    s->more = ckvc_alloc(nB, sizeof *s->more);
    for (uint32_t b = 0; b < nB; b++) {
        choose_candidate(s, &x, b);
        compare_candidates(s, &x, b);
    }
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void select_free(select_losses *s) {
    if (s) { CKVC_FREE(s->loss, s->lost, s->chosen, s->more); }
    free(s);
}

/* Returns how many of the candidates of budgets with b's byte share come before candidate i under
 * b: those that lose less, and of equal ones those before. *left receives how many there are. */
static size_t place_across(const select_losses *s, const double *share, uint32_t b, size_t i,
                           size_t *left) {
    const double own = s->loss[i * s->n_budgets + b];
    size_t place = 0;
    *left = 0;
    for (uint32_t c = 0; c < s->n_budgets; c++) {
        for (size_t k = 0; share[c] == share[b] && k < s->n; k++) {
            const double loss = s->loss[k * s->n_budgets + c];
            *left += !isnan(loss);
            place += loss < own || (loss == own && (c < b || (c == b && k < i)));
        }
    }
    return place;
}

void select_across(select_losses *s, const double *share) {
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        size_t left, chosen = s->n;
        for (size_t i = 0; i < s->n; i++) {
            const bool dropped = isnan(s->loss[i * s->n_budgets + b]);
            const size_t place = place_across(s, share, b, i, &left);
            s->lost[i * s->n_budgets + b] = dropped || place >= select_better_half(left);
            chosen = !dropped && place == 0 ? i : chosen;
        }
        s->more[b] = chosen < s->n ? s->more[b] : (rank_interval){0};
        s->chosen[b] = chosen;
    }
}

/* ---- what comes of it ---- */

json_t *select_json(const select_losses *s) {
    json_t *list = json_array(), *chosen = json_array();
    const char *by = s->by_kl ? "kl" : "loss";
    for (size_t i = 0; i < s->n; i++) {
        const select_candidate *c = &s->candidates[i];
        json_t *o =
            json_pack("{s:s, s:f, s:o}", "score", ckvc_score_name(c->score), "floor", c->floor, by,
                      ckvc_json_reals(s->loss + i * s->n_budgets, s->n_budgets));
        if (c->mix > 0) { json_object_set_new(o, "mix", json_real(c->mix)); }
        if (c->ridge > 0) { json_object_set_new(o, "ridge", json_real(c->ridge)); }
        json_array_append_new(list, o);
    }
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        json_array_append_new(chosen, s->chosen[b] < s->n ? json_integer((json_int_t)s->chosen[b])
                                                          : json_null());
    }
    return json_pack("{s:I, s:s, s:o, s:o}", "prompts", (json_int_t)s->n_prompts, "by", by,
                     "candidates", list, "chosen", chosen);
}

static void recommend_candidate(ckvc_table *t, uint32_t b, select_candidate c) {
    const uint32_t mode = t->score[b].mode;
    t->score[b] = ckvc_default_score(c.score, t->score[b].features);
    t->score[b].mode = mode;
    for (size_t l = 0; t->bank && l < t->n_layers; l++) {
        t->ridge[l * t->n_budgets + b] = c.ridge;
    }
    /* Where sets are uniform there is no floor, and score lines say 0. */
    if (mode != CKVC_MODE_SHARED) { t->c_min[b].floor = c.floor; }
}

bool select_mixes(const select_losses *s, double *mix) {
    bool any = false;
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        mix[b] = s->chosen[b] < s->n ? s->candidates[s->chosen[b]].mix : 0;
        any |= mix[b] > 0;
    }
    return any;
}

void select_take(const select_losses *s, table_file *t) {
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        if (s->chosen[b] < s->n) { recommend_candidate(t->table, b, s->candidates[s->chosen[b]]); }
    }
    json_object_set_new(t->meta, "select", select_json(s));
}
