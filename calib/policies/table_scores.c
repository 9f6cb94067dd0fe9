/* Scores of tables: see table_scores.h. */
#include "calib/policies/table_scores.h"

#include "calib/demand/head_features.h"
#include "calib/policies/rules/window_attention.h"

/* ---- paper: log of alpha * rho ---- */

static ckvc_status finish_paper(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self, (void)err;
    for (size_t u = 0; u < (size_t)p->n_layers * p->n_heads; u++) {
        ckvc_score_paper(p->n_tokens, p->stats->alpha_f32, p->stats->rho + u * p->n_tokens, 1.0,
                         p->s + u * p->n_tokens);
    }
    return CKVC_OK;
}

/* ---- window: log of the window's mean attention, pooled ---- */

static void see_window(const head_score *self, const prefill_head *h, const score_room *to) {
    window_mean(h, self->window, to->scratch);
    ckvc_score_window((uint32_t)h->n_tokens, to->scratch, self->pool,
                      self->norm ? h->value_norms : NULL, to->s);
}

/* ---- learned: a linear form of features ---- */

/* Without the late features. */
static void see_learned(const head_score *self, const prefill_head *h, const score_room *to) {
    const ckvc_table *t = self->table;
    const ckvc_head_view v = head_features_view(h, to->frequencies);
    double *f = to->scratch + 2 * h->n_tokens;
    ckvc_features(t->score->features, &v, f, to->scratch);
    const size_t head = (size_t)h->layer * t->n_heads + (size_t)h->head;
    ckvc_linear_form(v.n_tokens, t->n_features, f, t->theta + head * t->n_features, to->s);
}

/* Adds the late features' part to every head, and makes scores of the forms. */
static ckvc_status finish_learned(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)err;
    const ckvc_table *t = self->table;
    const uint32_t T = p->n_tokens, D = t->n_features;
    const bool has_late = ckvc_features_rows(t->score->features) > 0;
    double *late = p->scratch;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        if (has_late) {
            ckvc_features_late(T, p->layer_attention + (size_t)l * T, p->stats->alpha, 2, late);
        }
        for (uint32_t g = 0; g < p->n_heads; g++) {
            const size_t head = (size_t)l * p->n_heads + g;
            const float *theta = t->theta + head * D + CKVC_FEATURES_LATE;
            double *s = p->s + head * T;
            for (uint32_t i = 0; has_late && i < T; i++) {
                s[i] += (double)theta[0] * late[2 * i] + (double)theta[1] * late[2 * i + 1];
            }
            ckvc_score_learned(T, t->mass[head], p->norms + head * T, s);
        }
    }
    return CKVC_OK;
}

static size_t scratch_learned(size_t T, size_t D, size_t group) {
    (void)group;
    return T * (2 + ckvc_features_count(CKVC_FEATURES_1, (uint32_t)D));
}

head_score table_score(ckvc_score of, const ckvc_table *table, uint32_t recent) {
    static const head_score kinds[] = {[CKVC_SCORE_PAPER] = {.finish = finish_paper},
                                       [CKVC_SCORE_WINDOW] = {.see = see_window},
                                       [CKVC_SCORE_LEARNED] = {.see = see_learned,
                                                               .finish = finish_learned,
                                                               .scratch = scratch_learned}};
    head_score s = kinds[of.kind];
    s.window = of.window;
    s.pool = of.pool;
    s.norm = of.norm;
    s.first = 1;
    s.last = recent;
    s.table = of.kind == CKVC_SCORE_LEARNED ? table : NULL;
    return s;
}
