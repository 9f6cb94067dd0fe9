/* Retrieval of one record among many of the same form. One task has the JSON object of Liu et al.,
 * "Lost in the Middle: How Language Models Use Long Contexts" (TACL 2024), whose keys and values
 * are UUIDs. The other has the lines of LongEval (Li et al., "How Long Can Open-Source LLMs Truly
 * Promise on Context Length?", 2023), whose keys are words and whose values are numbers of five
 * digits. */
#include "judge/tasks/lexicon.h"
#include "judge/tasks/task_kind.h"
#include "lib/base/order.h"

static void write_pairs(task_draft *d, uint32_t units) {
    char key[LEXICON_NAME_BYTES], value[LEXICON_NAME_BYTES];
    lexicon_uuid(&d->rng, key);
    lexicon_uuid(&d->rng, value);
    ckvc_buffer_text(&d->text, "This is an object in JSON.\n\n{");
    for (uint32_t i = 0, place = task_place(d->depth, units); i <= units; i++) {
        char other[2][LEXICON_NAME_BYTES];
        if (i != place) {
            lexicon_uuid(&d->rng, other[0]);
            lexicon_uuid(&d->rng, other[1]);
        }
        ckvc_buffer_printf(&d->text, "%s\"%s\": \"%s\"", i ? ",\n " : "",
                           i == place ? key : other[0], i == place ? value : other[1]);
    }
    ckvc_buffer_text(&d->text, "}\n\n");
    d->item->question_at = d->text.size;
    ckvc_buffer_printf(&d->text, "What does the object hold under \"%s\"?", key);
    d->item->reply_at = d->text.size;
    ckvc_buffer_printf(&d->text, " Under \"%s\" the object holds \"", key);
    task_answer(d, value);
}

static void write_lines(task_draft *d, uint32_t units) {
    CKVC_AUTO_FREE uint32_t *names = ckvc_alloc(lexicon_names(), sizeof *names);
    char key[LEXICON_NAME_BYTES], other[LEXICON_NAME_BYTES];
    lexicon_draw(&d->rng, lexicon_names(), names, lexicon_names());
    const unsigned value = 10000 + (unsigned)ckvc_rng_below(&d->rng, 90000);
    lexicon_name(names[0], key);
    ckvc_buffer_text(&d->text, "These are the meters of a waterworks and what they show.\n\n");
    for (uint32_t i = 0, place = task_place(d->depth, units); i <= units; i++) {
        unsigned shown = value;
        lexicon_name(names[1 + i], other);
        while (i != place && shown == value) {
            shown = 10000 + (unsigned)ckvc_rng_below(&d->rng, 90000);
        }
        ckvc_buffer_printf(&d->text, "Meter %s shows %u litres.\n", i == place ? key : other,
                           shown);
    }
    ckvc_buffer_text(&d->text, "\n");
    d->item->question_at = d->text.size;
    ckvc_buffer_printf(&d->text, "How much does meter %s show?", key);
    d->item->reply_at = d->text.size;
    ckvc_buffer_printf(&d->text, " Meter %s shows", key);
    CKVC_AUTO_FREE char *answer = ckvc_format("%u", value);
    task_answer(d, answer);
}

/* Copying. One task asks for a motto of eight words. The other repeats the text from one of its
 * sentences on, which needs no instruction to be understood. */

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

/* The length of the first words of a text of n bytes; n where the text has no more words. */
static size_t first_words(const char *text, size_t n, int words) {
    size_t end = 0;
    for (; end < n && !(text[end] == ' ' && --words == 0); end++) {}
    return end;
}

/* Writes a sentence again and the first words of the next one; the words after these are the
 * answer. Where the next sentence has too few words, all of it is the answer. */
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
    ckvc_buffer_append(&d->text, again, (size_t)(answer - again) - 1); /* without the space */
    d->item->reply_at = d->text.size;
    task_answer(d, words);
}

/* RULER's variable tracking: a value, and variables that take it from each other in four hops,
 * between repetitions of one line. The question asks for all of them. As in RULER, a short example
 * comes first. */

enum { CHAIN = 5, NAME_LETTERS = 5, EXAMPLE_LETTERS = 3 };

typedef struct chain {
    char names[CHAIN][NAME_LETTERS + 1];
    unsigned value;
} chain;

static void draw_chain(ckvc_rng *rng, int letters, chain *c) {
    *c = (chain){.value = 10000 + (unsigned)ckvc_rng_below(rng, 90000)};
    for (int i = 0; i < CHAIN;) {
        bool repeated = false;
        for (int k = 0; k < letters; k++) {
            c->names[i][k] = (char)('A' + ckvc_rng_below(rng, 26));
        }
        for (int k = 0; k < i; k++) { repeated |= strcmp(c->names[k], c->names[i]) == 0; }
        i += !repeated;
    }
}

static void assign(ckvc_buffer *out, const chain *c, int i) {
    if (i) {
        ckvc_buffer_printf(out, "Let %s = %s.\n", c->names[i], c->names[i - 1]);
    } else {
        ckvc_buffer_printf(out, "Let %s = %u.\n", c->names[0], c->value);
    }
}

static void write_question(ckvc_buffer *out, unsigned value) {
    ckvc_buffer_printf(out, "Which five variables have the value %u?", value);
}

static void write_answer(ckvc_buffer *out, unsigned value) {
    ckvc_buffer_printf(out, " The variables that have the value %u are", value);
}

static void write_tracking(task_draft *d, uint32_t units) {
    chain example, real;
    double places[CHAIN];
    draw_chain(&d->rng, EXAMPLE_LETTERS, &example);
    do { draw_chain(&d->rng, NAME_LETTERS, &real); } while (real.value == example.value);
    for (int i = 0; i < CHAIN; i++) { places[i] = ckvc_rng_double(&d->rng); }
    qsort(places, CHAIN, sizeof *places, ckvc_order_double);
    ckvc_buffer_text(&d->text, "Follow the variables through each text.\n\n");
    for (int i = 0; i < CHAIN; i++) { assign(&d->text, &example, i); }
    write_question(&d->text, example.value);
    write_answer(&d->text, example.value);
    for (int i = 0; i < CHAIN; i++) {
        ckvc_buffer_printf(&d->text, "%s %s", i ? "," : "", example.names[i]);
    }
    ckvc_buffer_text(&d->text, ".\n\n");
    int placed = 0;
    for (uint32_t i = 0; i <= units; i++) {
        for (; placed < CHAIN && task_place(places[placed], units) <= i; placed++) {
            assign(&d->text, &real, placed);
        }
        if (i < units) { ckvc_buffer_text(&d->text, HAYSTACK_REPEATED "\n"); }
    }
    d->item->question_at = d->text.size;
    write_question(&d->text, real.value);
    d->item->reply_at = d->text.size;
    write_answer(&d->text, real.value);
    for (int i = 0; i < CHAIN; i++) { task_answer(d, real.names[i]); }
}

const task_kind task_tracking[] = {
    TASK("variable-tracking", "ruler", write_tracking, 1, 40, .metric = TASK_MATCH_ALL), {0}};

/* Labels that are learned from examples: things and their kinds, and then one more thing, which is
 * in none of the examples. Guessing is right once in five times. */

enum { KINDS = 5, THINGS = 12 };
static const struct {
    const char *label;
    const char *things[THINGS];
} kinds[KINDS] = {
    {"animal",
     {"falcon", "badger", "salmon", "donkey", "lizard", "monkey", "rabbit", "spider", "turtle",
      "zebra", "camel", "goose"}},
    {"food",
     {"cheese", "bread", "potato", "pepper", "honey", "butter", "tomato", "sausage", "carrot",
      "noodles", "biscuit", "soup"}},
    {"clothing",
     {"jacket", "sandal", "trousers", "shirt", "glove", "sweater", "scarf", "skirt", "boots",
      "mitten", "cap", "socks"}},
    {"building",
     {"castle", "temple", "cottage", "hospital", "school", "museum", "factory", "library", "palace",
      "theatre", "barn", "lighthouse"}},
    {"instrument",
     {"violin", "guitar", "trumpet", "piano", "flute", "drum", "banjo", "clarinet", "harp",
      "trombone", "cello", "mandolin"}},
};

static void write_labels(task_draft *d, uint32_t units) {
    uint32_t first[KINDS];
    task_item *item = d->item;
    const uint32_t asked = (uint32_t)ckvc_rng_below(&d->rng, KINDS),
                   thing = (uint32_t)ckvc_rng_below(&d->rng, THINGS);
    lexicon_draw(&d->rng, KINDS, first, KINDS);
    for (uint32_t i = 0; i < units; i++) {
        const uint32_t k = i < KINDS ? first[i] : (uint32_t)ckvc_rng_below(&d->rng, KINDS);
        uint32_t t;
        do { t = (uint32_t)ckvc_rng_below(&d->rng, THINGS); } while (k == asked && t == thing);
        ckvc_buffer_printf(&d->text, "Thing: %s\nKind: %s\n\n", kinds[k].things[t], kinds[k].label);
    }
    item->question_at = d->text.size;
    ckvc_buffer_printf(&d->text, "Thing: %s\nKind:", kinds[asked].things[thing]);
    item->reply_at = d->text.size;
    task_answer(d, kinds[asked].label);
    item->classes = ckvc_alloc(KINDS, sizeof *item->classes);
    for (; item->n_classes < KINDS; item->n_classes++) {
        item->classes[item->n_classes] = ckvc_strdup(kinds[item->n_classes].label);
    }
}

const task_kind task_records[] = {
    TASK("kv-retrieval", "records", write_pairs, 1, 48, .metric = TASK_MATCH_PART, .times = 1,
         .placed = true),
    TASK("lines", "records", write_lines, 1, 16, .metric = TASK_MATCH_PART, .most_units = 6600,
         .times = 1, .placed = true),
    TASK("copy", "copying", write_copy, 1, 32, .metric = TASK_MATCH_PART, .times = 1,
         .placed = true),
    TASK("repeat", "copying", write_repeat, 2, 32, .metric = TASK_MATCH_PART, .times = 1,
         .placed = true, .first_line = true, .plain = true),
    TASK("few-shot", "few-shot", write_labels, KINDS, 6, .metric = TASK_CLASSIFICATION,
         .first_line = true, .plain = true),
    {0}};
