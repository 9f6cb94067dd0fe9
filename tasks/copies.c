/* Copying: a motto of eight words, asked for; and the text repeated from one of its sentences on,
 * which takes no instruction to be understood. */
#include "tasks/lexicon.h"
#include "tasks/task_kind.h"

enum { MOTTO_WORDS = 8, GIVEN_WORDS = 3, ASKED_WORDS = 5 };

static void write_copy(task_draft *d, uint32_t units) {
    uint32_t nouns[MOTTO_WORDS];
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer motto = {0};
    lexicon_draw(&d->rng, lexicon_nouns(), nouns, MOTTO_WORDS);
    for (int i = 0; i < MOTTO_WORDS; i++) {
        ckvc_buffer_printf(&motto, "%s%s", i ? " " : "", lexicon_noun(nouns[i]));
    }
    haystack_walk walk = haystack_begin(d->hay, &d->rng);
    const uint32_t place = task_place(d->depth, units);
    ckvc_buffer_text(&d->text, "The following text has the motto of a club in it.\n\n");
    for (uint32_t i = 0; i <= units; i++) {
        if (i) { ckvc_buffer_text(&d->text, " "); }
        if (i == place) {
            ckvc_buffer_printf(&d->text, "The club's motto is: %s.", (const char *)motto.data);
        } else {
            haystack_sentence(&walk, &d->rng, &d->text);
        }
    }
    ckvc_buffer_text(&d->text, "\n\n");
    d->item->question_at = d->text.size;
    ckvc_buffer_text(&d->text, "Copy the motto of the club word for word.");
    d->item->reply_at = d->text.size;
    ckvc_buffer_text(&d->text, " The club's motto is:");
    task_answer(d, (const char *)motto.data);
}

/* The length of the first words of a text of n bytes; of all of it where it has no more. */
static size_t first_words(const char *text, size_t n, int words) {
    size_t end = 0;
    for (; end < n && !(text[end] == ' ' && --words == 0); end++) {}
    return end;
}

/* A sentence and the next one's first words; the words behind these are the answer. Where that has
 * too few words it is the answer as a whole. */
static void write_repeat(task_draft *d, uint32_t units) {
    haystack_walk walk = haystack_begin(d->hay, &d->rng);
    const uint32_t place = task_place(d->depth, units - 2);
    size_t begin = 0, next = 0, end = 0;
    for (uint32_t i = 0; i < units; i++) {
        if (i) { ckvc_buffer_text(&d->text, " "); }
        if (i == place) { begin = d->text.size; }
        if (i == place + 1) { next = d->text.size; }
        haystack_sentence(&walk, &d->rng, &d->text);
        if (i == place + 1) { end = d->text.size; }
    }
    ckvc_buffer_text(&d->text, "\n\n");
    d->item->question_at = d->text.size;
    CKVC_AUTO_FREE char *again = ckvc_text_copy((const char *)d->text.data + begin, end - begin);
    const char *sentence = again + (next - begin), *stop = again + (end - begin);
    const char *answer = sentence + first_words(sentence, (size_t)(stop - sentence), GIVEN_WORDS);
    answer = answer < stop ? answer + 1 : sentence;
    const size_t n = first_words(answer, (size_t)(stop - answer), ASKED_WORDS);
    CKVC_AUTO_FREE char *words = ckvc_text_copy(answer, n);
    ckvc_buffer_append(&d->text, again, (size_t)(answer - again) - 1); /* but for the space */
    d->item->reply_at = d->text.size;
    task_answer(d, words);
}

const task_kind task_copies[] = {{.name = "copy",
                                  .group = "copying",
                                  .write = write_copy,
                                  .least_units = 1,
                                  .max_new = 32,
                                  .metric = TASK_MATCH_PART,
                                  .times = 1,
                                  .placed = true},
                                 {.name = "repeat",
                                  .group = "copying",
                                  .write = write_repeat,
                                  .least_units = 2,
                                  .max_new = 32,
                                  .metric = TASK_MATCH_PART,
                                  .times = 1,
                                  .placed = true,
                                  .first_line = true,
                                  .plain = true},
                                 {0}};
