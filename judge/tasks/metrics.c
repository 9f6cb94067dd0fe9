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

/* ---- characters, as Python's str and re have them ---- */
static bool is_word(int32_t c) { /* \w of a text that has lost its underscores */
    const char kind = c < 0 ? 'C' : utf8proc_category_string(c)[0];
    return kind == 'L' || kind == 'N';
}

static bool is_digit(int32_t c) { return c >= 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }

static char *lower(const char *text) {
    ckvc_buffer out = {0};
    const size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        int32_t c;
        utf8proc_uint8_t bytes[4];
        const size_t step = char_next(text + at, n - at, &c);
        if (c < 0) {
            ckvc_buffer_append(&out, text + at, step); /* of no character: as it is */
        } else {
            ckvc_buffer_append(&out, bytes,
                               (size_t)utf8proc_encode_char(utf8proc_tolower(c), bytes));
        }
        at += step;
    }
    ckvc_buffer_u8(&out, 0);
    return (char *)out.data;
}

/* ---- lists of words ---- */
typedef struct word {
    const char *text;
    size_t n;
    uint32_t id; /* the same of equal ones */
} word;
typedef struct words {
    word *list;
    size_t n, room;
} words;

static void words_fini(words *w) { free(w->list); }

static void add_word(words *w, const char *text, size_t n) {
    CKVC_GROW(w->list, w->room, w->n + 1);
    w->list[w->n++] = (word){text, n, 0};
}

static void add_words(words *w, const char *text, size_t n) {
    size_t begin = 0, at = 0;
    while (at < n) {
        int32_t c;
        const size_t step = char_next(text + at, n - at, &c);
        if (is_python_space(c)) {
            if (at > begin) { add_word(w, text + begin, at - begin); }
            begin = at + step;
        }
        at += step;
    }
    if (at > begin) { add_word(w, text + begin, at - begin); }
}

static int by_text(const void *pa, const void *pb) {
    const word *a = *(const word *const *)pa, *b = *(const word *const *)pb;
    const size_t n = a->n < b->n ? a->n : b->n;
    const int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Gives every word its id; how many different ones there are. */
static uint32_t number_words(words *w) {
    uint32_t id = 0;
    CKVC_AUTO_FREE word **sorted = ckvc_alloc(w->n, sizeof(word *));
    for (size_t i = 0; i < w->n; i++) { sorted[i] = &w->list[i]; }
    qsort(sorted, w->n, sizeof *sorted, by_text);
    for (size_t i = 0; i < w->n; i++) {
        id += i > 0 && by_text(&sorted[i - 1], &sorted[i]) != 0;
        sorted[i]->id = id;
    }
    return w->n ? id + 1 : 0;
}

/* ---- matches ---- */
static bool stands_in(const char *answer, const char *expected) {
    CKVC_AUTO_FREE char *in = lower(answer);
    CKVC_AUTO_FREE char *what = lower(expected);
    return strstr(in, what) != NULL;
}

/* ---- F1 of words (SQuAD) ---- */
static void normalise(const char *text, ckvc_buffer *out) {
    CKVC_AUTO_FREE char *low = lower(text);
    size_t n = 0;
    for (const char *c = low; *c; c++) {
        if ((unsigned char)*c >= 0x80 || !ispunct((unsigned char)*c)) { low[n++] = *c; }
    }
    for (size_t at = 0, end; at < n; at = end) {
        int32_t c;
        for (end = at; end < n; end += char_next(low + end, n - end, &c)) {
            if (!is_word(char_at(low + end, n - end))) { break; }
        }
        if (end == at) {
            end += char_next(low + at, n - at, &c);
            ckvc_buffer_append(out, low + at, end - at);
        } else if (!((end - at == 1 && low[at] == 'a') ||
                     (end - at == 2 && memcmp(low + at, "an", 2) == 0) ||
                     (end - at == 3 && memcmp(low + at, "the", 3) == 0))) {
            ckvc_buffer_append(out, low + at, end - at);
        } else {
            ckvc_buffer_u8(out, ' ');
        }
    }
}

static double f1(const char *answer, const char *expected) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer said = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer gold = {0};
    CKVC_AUTO(words_fini) words w = {0};
    normalise(answer, &said);
    normalise(expected, &gold);
    add_words(&w, (const char *)said.data, said.size);
    const size_t n_said = w.n;
    add_words(&w, (const char *)gold.data, gold.size);
    const size_t n_gold = w.n - n_said;
    CKVC_AUTO_FREE uint32_t *left = ckvc_calloc(number_words(&w), sizeof *left);
    size_t same = 0;
    for (size_t i = 0; i < n_said; i++) { left[w.list[i].id]++; }
    for (size_t i = n_said; i < w.n; i++) {
        if (left[w.list[i].id] > 0) { left[w.list[i].id]--, same++; }
    }
    if (same == 0) { return 0; }
    const double precision = (double)same / (double)n_said, recall = (double)same / (double)n_gold;
    return 2 * precision * recall / (precision + recall);
}

/* ---- ROUGE-L of summaries ---- */
typedef struct sentences {
    size_t *ends; /* of each, in words */
    size_t n, room;
} sentences;

static void sentences_fini(sentences *s) { free(s->ends); }

/* At every full stop; what is white space alone is a sentence of one empty word. */
static void add_sentences(words *w, sentences *s, const char *text) {
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "."), before = w->n;
        if (n) {
            add_words(w, at, n);
            if (w->n == before) { add_word(w, "", 0); }
            CKVC_GROW(s->ends, s->room, s->n + 1);
            s->ends[s->n++] = w->n;
        }
        at += n + (at[n] == '.');
    }
}

/* Marks the words of the longest common subsequence of x and y that the package's walk back finds:
 * where both ways are as long it goes along y. */
static void mark_common(const word *x, size_t n, const word *y, size_t m, uint8_t *marked) {
    CKVC_AUTO_FREE uint32_t *table = ckvc_calloc((n + 1) * (m + 1), sizeof *table);
#define LCS(i, j) table[(i) * (m + 1) + (j)]
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            const uint32_t up = LCS(i - 1, j), left = LCS(i, j - 1);
            LCS(i, j) = x[i - 1].id == y[j - 1].id ? LCS(i - 1, j - 1) + 1 : up > left ? up : left;
        }
    }
    for (size_t i = n, j = m; i && j;) {
        if (x[i - 1].id == y[j - 1].id) {
            marked[x[i - 1].id] = 1;
            i--, j--;
        } else if (LCS(i - 1, j) > LCS(i, j - 1)) {
            i--;
        } else {
            j--;
        }
    }
#undef LCS
}

static size_t count_marked(const uint8_t *marked, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) { sum += marked[i]; }
    return sum;
}

static size_t n_different(const word *list, size_t n, uint32_t ids) {
    CKVC_AUTO_FREE uint8_t *marked = ckvc_calloc(ids, 1);
    for (size_t i = 0; i < n; i++) { marked[list[i].id] = 1; }
    return count_marked(marked, ids);
}

static double rouge_l(const char *answer, const char *expected) {
    CKVC_AUTO(words_fini) words w = {0};
    CKVC_AUTO(sentences_fini) sentences said = {0};
    CKVC_AUTO(sentences_fini) sentences gold = {0};
    add_sentences(&w, &said, answer);
    const size_t n_said = w.n;
    add_sentences(&w, &gold, expected);
    if (!said.n || !gold.n) { return 0; }
    const uint32_t ids = number_words(&w);
    CKVC_AUTO_FREE uint8_t *common = ckvc_calloc(ids, 1);
    for (size_t g = 0, x = n_said; g < gold.n; x = gold.ends[g++]) {
        for (size_t s = 0, y = 0; s < said.n; y = said.ends[s++]) {
            mark_common(w.list + x, gold.ends[g] - x, w.list + y, said.ends[s] - y, common);
        }
    }
    const double both = (double)count_marked(common, ids),
                 recall = both / (double)n_different(w.list + n_said, w.n - n_said, ids),
                 precision = both / (double)n_different(w.list, n_said, ids);
    return 2 * (precision * recall / (precision + recall + 1e-8));
}

/* ---- similarity of code: difflib.SequenceMatcher.ratio (Ratcliff and Obershelp, with difflib's
 * rule that characters making up over 1 % of 200 or more begin no match) ---- */
typedef struct code_points {
    int32_t *c;
    size_t n;
} code_points;

static void code_points_fini(code_points *p) { free(p->c); }

static code_points code_points_of(const char *text, size_t n) {
    code_points p = {ckvc_alloc(n, sizeof *p.c), 0};
    for (size_t at = 0; at < n;) { at += char_next(text + at, n - at, &p.c[p.n++]); }
    return p;
}

typedef struct match_span {
    size_t a, a_end, b, b_end;
} match_span;

/* *runs: [b.n + 1] of zeros, and of zeros again. */
static size_t longest_match(const code_points *a, const code_points *b, const bool *popular,
                            const match_span *in, size_t *runs, size_t *at_a, size_t *at_b) {
    size_t best = 0, i_best = in->a, j_best = in->b;
    for (size_t i = in->a; i < in->a_end; i++) {
        for (size_t j = in->b_end; j-- > in->b;) { /* from behind: runs[j] is still of row i - 1 */
            const bool same = a->c[i] == b->c[j] && !popular[j];
            runs[j + 1] = same ? (j > in->b ? runs[j] : 0) + 1 : 0;
        }
        for (size_t j = in->b; j < in->b_end; j++) {
            if (runs[j + 1] > best) {
                best = runs[j + 1];
                i_best = i + 1 - best;
                j_best = j + 1 - best;
            }
        }
    }
    memset(runs + in->b, 0, (in->b_end - in->b + 1) * sizeof *runs);
    while (i_best > in->a && j_best > in->b && a->c[i_best - 1] == b->c[j_best - 1]) {
        i_best--, j_best--, best++;
    }
    while (i_best + best < in->a_end && j_best + best < in->b_end &&
           a->c[i_best + best] == b->c[j_best + best]) {
        best++;
    }
    *at_a = i_best;
    *at_b = j_best;
    return best;
}

static size_t matching(const code_points *a, const code_points *b) {
    CKVC_AUTO_FREE bool *popular = ckvc_calloc(b->n, sizeof *popular);
    CKVC_AUTO_FREE size_t *runs = ckvc_calloc(b->n + 1, sizeof *runs);
    CKVC_AUTO_FREE match_span *left = NULL;
    size_t n = 0, room = 0, sum = 0;
    for (size_t j = 0; b->n >= 200 && j < b->n; j++) {
        size_t times = 0;
        for (size_t k = 0; k < b->n; k++) { times += b->c[k] == b->c[j]; }
        popular[j] = times > b->n / 100 + 1;
    }
    CKVC_GROW(left, room, 1);
    left[n++] = (match_span){0, a->n, 0, b->n};
    while (n > 0) {
        const match_span in = left[--n];
        size_t i, j;
        const size_t size = longest_match(a, b, popular, &in, runs, &i, &j);
        if (!size) { continue; }
        sum += size;
        CKVC_GROW(left, room, n + 2);
        left[n++] = (match_span){in.a, i, in.b, j};
        left[n++] = (match_span){i + size, in.a_end, j + size, in.b_end};
    }
    return sum;
}

static double code_similarity(const char *answer, const char *expected) {
    size_t n = 0;
    const char *line = answer + strspn(answer, "\n");
    for (;; line += n + 1) {
        n = strcspn(line, "\n");
        if (!memchr(line, '`', n) && !memchr(line, '#', n) && !memmem(line, n, "//", 2)) { break; }
        if (!line[n]) {
            n = 0;
            break;
        }
    }
    CKVC_AUTO(code_points_fini) code_points a = code_points_of(line, n);
    CKVC_AUTO(code_points_fini) code_points b = code_points_of(expected, strlen(expected));
    if (a.n + b.n == 0) { return 1; }
    if (a.n == 0 || b.n == 0) { return 0; }
    return rint(100 * (2.0 * (double)matching(&a, &b) / (double)(a.n + b.n))) / 100;
}

/* ---- labels and numbers ---- */
/* The labels in the answer, less those that are part of the right one; as in the original, which
 * takes them out of the list that it walks over, the label behind one taken out stays unlooked at.
 */
static double classification(const metric_texts *texts, const char *answer, const char *expected) {
    size_t n = 0, right = 0;
    CKVC_AUTO_FREE const char **found = ckvc_alloc(texts->n_classes, sizeof *found);
    for (size_t i = 0; i < texts->n_classes; i++) {
        if (strstr(answer, texts->classes[i])) { found[n++] = texts->classes[i]; }
    }
    for (size_t i = 0; i < n; i++) {
        if (strstr(expected, found[i]) && strcmp(found[i], expected) != 0) {
            size_t first = 0; /* list.remove takes the first of equal ones */
            while (strcmp(found[first], found[i]) != 0) { first++; }
            memmove(found + first, found + first + 1, (--n - first) * sizeof *found);
        }
    }
    for (size_t i = 0; i < n; i++) { right += strcmp(found[i], expected) == 0; }
    return right ? 1 / (double)n : 0;
}

/* Of the numbers in the answer, the share that are written like the n bytes of `wanted`. */
static double share_of_numbers(const char *answer, const char *wanted, size_t n) {
    size_t numbers = 0, right = 0;
    for (size_t at = 0, end, all = strlen(answer); at < all; at = end) {
        int32_t c;
        for (end = at; end < all && is_digit(char_at(answer + end, all - end));) {
            end += char_next(answer + end, all - end, &c);
        }
        numbers += end > at;
        right += end > at && end - at == n && memcmp(answer + at, wanted, n) == 0;
        if (end == at) { end += char_next(answer + at, all - at, &c); }
    }
    return numbers ? (double)right / (double)numbers : 0;
}

static double retrieval(const char *answer, const char *expected) {
    static const char before[] = "Paragraph ";
    const char *at = expected;
    while ((at = strstr(at, before))) {
        at += sizeof before - 1;
        size_t n = 0, all = strlen(at);
        while (n < all && is_digit(char_at(at + n, all - n))) {
            int32_t c;
            n += char_next(at + n, all - n, &c);
        }
        if (n) { return share_of_numbers(answer, at, n); }
    }
    return 0;
}

static double score_one(task_metric metric, const metric_texts *texts, const char *answer,
                        const char *expected) {
    switch (metric) {
    case TASK_F1: return f1(answer, expected);
    case TASK_ROUGE_L: return rouge_l(answer, expected);
    case TASK_CODE_SIMILARITY: return code_similarity(answer, expected);
    case TASK_CLASSIFICATION: return classification(texts, answer, expected);
    case TASK_RETRIEVAL: return retrieval(answer, expected);
    case TASK_COUNT: return share_of_numbers(answer, expected, strlen(expected));
    default: return stands_in(answer, expected);
    }
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
