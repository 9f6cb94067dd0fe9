/* RULER's common words and frequent words: which words of a list occur most often. */
#include <math.h>

#include "judge/tasks/lexicon.h"
#include "judge/tasks/task_kind.h"

enum { FREQUENT = 3, CODED_LETTERS = 6 };

/* ---- common words: a numbered list, in which ten words occur 30 times and the others 3 times.
 * Below 4,096 tokens these are 6 times and once, as in RULER; below 1,024 tokens only three words
 * are asked for, unlike in RULER ---- */
typedef struct common_plan {
    uint32_t common, often, seldom;
    uint32_t example_others, example_often, example_seldom;
} common_plan;

static common_plan common_plan_of(uint32_t length) {
    if (length >= 4096) { return (common_plan){10, 30, 3, 30, 10, 3}; }
    if (length >= 1024) { return (common_plan){10, 6, 1, 10, 3, 1}; }
    return (common_plan){3, 6, 1, 3, 3, 1};
}

static void write_list(task_draft *d, const uint32_t *names, uint32_t common, uint32_t often,
                       uint32_t others, uint32_t seldom) {
    const uint32_t n = common * often + others * seldom;
    CKVC_AUTO_FREE uint32_t *list = ckvc_alloc(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        list[i] =
            i < common * often ? names[i / often] : names[common + (i - common * often) / seldom];
    }
    ckvc_rng_shuffle_u32(&d->rng, list, n);
    for (uint32_t i = 0; i < n; i++) {
        char name[LEXICON_NAME_BYTES];
        lexicon_name(list[i], name);
        ckvc_buffer_printf(&d->text, "%s%u. %s", i ? " " : "", i + 1, name);
    }
    ckvc_buffer_text(&d->text, "\n");
}

static void ask_common(ckvc_buffer *out, uint32_t n) {
    ckvc_buffer_printf(out, "Which %u words does this list have most often?", n);
}

static const char common_reply[] = " Most often it has:";

static void write_common(task_draft *d, uint32_t units) {
    const common_plan p = common_plan_of(d->length);
    CKVC_AUTO_FREE uint32_t *names = ckvc_alloc(lexicon_names(), sizeof *names);
    lexicon_draw(&d->rng, lexicon_names(), names, lexicon_names());
    const uint32_t *real = names + p.common + p.example_others;
    ckvc_buffer_text(&d->text, "Some words of a list stand in it more often than the others.\n\n");
    write_list(d, names, p.common, p.example_often, p.example_others, p.example_seldom);
    ask_common(&d->text, p.common);
    ckvc_buffer_text(&d->text, common_reply);
    for (uint32_t i = 0; i < p.common; i++) {
        char name[LEXICON_NAME_BYTES];
        lexicon_name(names[i], name);
        ckvc_buffer_printf(&d->text, " %u. %s", i + 1, name);
        lexicon_name(real[i], name);
        task_answer(d, name);
    }
    ckvc_buffer_text(&d->text, "\n\n");
    write_list(d, real, p.common, p.often, units, p.seldom);
    d->item->question_at = d->text.size;
    ask_common(&d->text, p.common);
    d->item->reply_at = d->text.size;
    ckvc_buffer_text(&d->text, common_reply);
}

/* ---- frequent words: coded words, of which the k-th most frequent of N words occurs N k^-2 /
 * zeta(2) times. The first is dots, which do not count. From 54 words on, the fourth occurs more
 * often than the fifth ---- */
static void draw_coded(ckvc_rng *rng, char (*coded)[CODED_LETTERS + 1], uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        bool repeated = false;
        for (int k = 0; k < CODED_LETTERS; k++) {
            coded[i][k] = (char)('a' + ckvc_rng_below(rng, 26));
        }
        coded[i][CODED_LETTERS] = 0;
        /* those that are asked for differ from all others; among the others a repetition does no
         * harm */
        for (uint32_t k = 0; k < i && k <= FREQUENT; k++) {
            repeated |= strcmp(coded[k], coded[i]) == 0;
        }
        i += !repeated;
    }
}

static void write_frequent(task_draft *d, uint32_t units) {
    const uint32_t kinds = d->length / 50 > 8 ? d->length / 50 : 8;
    CKVC_AUTO_FREE char(*coded)[CODED_LETTERS + 1] = ckvc_alloc(kinds, sizeof *coded);
    CKVC_AUTO_FREE uint32_t *list = ckvc_alloc(units, sizeof *list);
    uint32_t n = 0;
    const double zeta2 = 9.8696044010893586 / 6; /* pi^2 / 6 */
    draw_coded(&d->rng, coded, kinds);
    for (uint32_t k = 0; k < kinds; k++) {
        const uint32_t times = (uint32_t)floor(units / ((k + 1.0) * (k + 1.0)) / zeta2);
        for (uint32_t i = 0; i < times; i++) { list[n++] = k; }
    }
    ckvc_rng_shuffle_u32(&d->rng, list, n);
    ckvc_buffer_text(&d->text, "This is a message in code; its dots mean nothing.\n\n");
    for (uint32_t i = 0; i < n; i++) {
        ckvc_buffer_printf(&d->text, "%s%s", i ? " " : "", list[i] ? coded[list[i]] : "...");
    }
    ckvc_buffer_text(&d->text, "\n\n");
    d->item->question_at = d->text.size;
    ckvc_buffer_text(&d->text, "Which three coded words does the message have most often?");
    d->item->reply_at = d->text.size;
    ckvc_buffer_text(&d->text, " The three most frequent words of the message are:");
    for (uint32_t k = 1; k <= FREQUENT; k++) { task_answer(d, coded[k]); }
}

const task_kind task_word_lists[] = {
    TASK("common-words", "ruler", write_common, 1, 120, .metric = TASK_MATCH_ALL,
         .most_units = 6000),
    TASK("frequent-words", "ruler", write_frequent, 54, 50, .metric = TASK_MATCH_ALL),
    {0}};
