/* Scores of answers' texts. See metrics.h. */
#include "judge/tasks/metrics.h"

#include <ctype.h>
#include <math.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/token/chars.h"

const char *task_metric_name(task_metric metric) {
#define X(NAME, name) name,
    static const char *const names[] = {TASK_METRICS(X)};
#undef X
    return names[metric];
}

static char *lower(const char *text) {
    ckvc_buffer out = {0};
    const size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        int32_t c;
        utf8proc_uint8_t bytes[4];
        const size_t step = char_next(text + at, n - at, &c);
        if (c < 0) {
            /* not part of a character, so it is copied */
            ckvc_buffer_append(&out, text + at, step);
        } else {
            ckvc_buffer_append(&out, bytes,
                               (size_t)utf8proc_encode_char(utf8proc_tolower(c), bytes));
        }
        at += step;
    }
    ckvc_buffer_u8(&out, 0);
    return (char *)out.data;
}

/* ---- matches ---- */
static bool stands_in(const char *answer, const char *expected) {
    CKVC_AUTO_FREE char *in = lower(answer);
    CKVC_AUTO_FREE char *what = lower(expected);
    return strstr(in, what) != NULL;
}

/* ---- labels ---- */
/* Counts the labels in the answer, without those that are part of the right one. The original
 * removes these from the list while it walks over it, and so skips the label after each removed
 * one; this does the same. */
static double classification(const metric_texts *texts, const char *answer, const char *expected) {
    size_t n = 0, right = 0;
    CKVC_AUTO_FREE const char **found = ckvc_alloc(texts->n_classes, sizeof *found);
    for (size_t i = 0; i < texts->n_classes; i++) {
        if (strstr(answer, texts->classes[i])) { found[n++] = texts->classes[i]; }
    }
    for (size_t i = 0; i < n; i++) {
        if (strstr(expected, found[i]) && strcmp(found[i], expected) != 0) {
            size_t first = 0; /* list.remove removes the first of equal ones */
            while (strcmp(found[first], found[i]) != 0) { first++; }
            memmove(found + first, found + first + 1, (--n - first) * sizeof *found);
        }
    }
    for (size_t i = 0; i < n; i++) { right += strcmp(found[i], expected) == 0; }
    return right ? 1 / (double)n : 0;
}

static double score_one(task_metric metric, const metric_texts *texts, const char *answer,
                        const char *expected) {
    return metric == TASK_CLASSIFICATION ? classification(texts, answer, expected)
                                         : stands_in(answer, expected);
}

double metric_score(task_metric metric, const metric_texts *texts, const char *answer) {
    double best = 0, sum = 0;
    for (size_t i = 0; i < texts->n_expected; i++) {
        const double score = score_one(metric, texts, answer, texts->expected[i]);
        best = score > best ? score : best;
        sum += score;
    }
    return metric == TASK_MATCH_ALL ? sum / (double)texts->n_expected : best;
}
