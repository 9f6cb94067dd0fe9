/* Near misses: see nearest.h. */
#include "lib/base/nearest.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/memory.h"

enum { WORD_MAX = 64 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Letters to insert, leave out, replace or swap with their neighbour, to make b of a. Both are
 * shorter than WORD_MAX. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[3][WORD_MAX], n = strlen(b);
    size_t *before = row[0], *above = row[1], *now = row[2];
    for (size_t j = 0; j <= n; j++) { now[j] = j; }
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *oldest = before;
        before = above;
        above = now;
        now = oldest;
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            now[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = least(now[j], before[j - 2] + 1);
            }
        }
    }
    return now[n];
}

void nearest_try(nearest *n, const char *candidate) {
    const size_t length = strlen(n->word);
    if (length >= WORD_MAX || strlen(candidate) >= WORD_MAX) { return; }
    size_t d = edit_distance(n->word, candidate);
    if (length >= 3 && strncmp(n->word, candidate, length) == 0) { d = least(d, 1); }
    if (d <= least(2, length / 2) && (!n->found[0] || d < n->distance)) {
        snprintf(n->found, sizeof n->found, "%s", candidate);
        n->distance = d;
    }
}

char *nearest_hint(const nearest *n, const char *before, const char *after) {
    return n->found[0] ? ckvc_format("%s%s%s", before, n->found, after) : ckvc_strdup("");
}
