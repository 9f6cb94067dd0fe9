/* Operations on texts in UTF-8: see utf8.h. */
#include "lib/base/utf8.h"

#include <stdint.h>
#include <string.h>
#include <stdio.h>

#include "lib/base/memory.h"

size_t ckvc_utf8_check(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t block;
        if (n - at >= 8 && (memcpy(&block, text + at, 8), (block & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        size_t step = ckvc_utf8_step(text + at, n - at, NULL);
        if (step == 0) { return at; }
        at += step;
    }
    return n;
}

bool ckvc_utf8_is_line(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) { return false; }
    }
    return ckvc_utf8_check(text, n) == n;
}

char *ckvc_utf8_replace(const char *text, size_t n, size_t *out_size) {
    size_t bad;
    char *out = ckvc_alloc(n + 1, 3); /* one bad byte becomes three bytes */
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        size_t step = ckvc_utf8_step(text + at, n - at, &bad);
        if (step) {
            memcpy(out + used, text + at, step);
            used += step;
            at += step;
        } else {
            memcpy(out + used, "\xEF\xBF\xBD", 3);
            used += 3;
            at += bad;
        }
    }
    out[used] = '\0';
    *out_size = used;
    return out;
}

size_t ckvc_utf8_floor(const char *text, size_t n) {
    size_t start = n;
    while (start > 0 && ((uint8_t)text[start - 1] & 0xC0) == 0x80) { start--; }
    if (start == 0) { return n; }
    uint8_t lead = (uint8_t)text[start - 1];
    size_t need = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return start - 1 + need <= n ? n : start - 1;
}

enum { WORD_MAX = 64 };

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* The number of letters to insert, leave out, replace or swap with their neighbour to turn a into
 * b. Both are shorter than WORD_MAX. */
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
            now[j] =
                min_size(above[j - 1] + (a[i - 1] != b[j - 1]), min_size(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = min_size(now[j], before[j - 2] + 1);
            }
        }
    }
    return now[n];
}

void nearest_try(nearest *n, const char *candidate) {
    const size_t length = strlen(n->word);
    if (length >= WORD_MAX || strlen(candidate) >= WORD_MAX) { return; }
    size_t d = edit_distance(n->word, candidate);
    if (length >= 3 && strncmp(n->word, candidate, length) == 0) { d = min_size(d, 1); }
    if (d <= min_size(2, length / 2) && (!n->found[0] || d < n->distance)) {
        snprintf(n->found, sizeof n->found, "%s", candidate);
        n->distance = d;
    }
}

char *nearest_hint(const nearest *n, const char *before, const char *after) {
    return n->found[0] ? ckvc_format("%s%s%s", before, n->found, after) : ckvc_strdup("");
}
