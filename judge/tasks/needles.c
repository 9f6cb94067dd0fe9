/* Needle in a haystack (G. Kamradt's test) and RULER's eight kinds of it (Hsieh et al., "RULER:
 * What's the Real Context Size of Your Long-Context Language Models?", COLM 2024, appendix B):
 * facts with a key and a value, which stand between sentences, between repetitions of one line, or
 * between facts of the same form. */

#include "lib/base/order.h"
#include "judge/tasks/lexicon.h"
#include "judge/tasks/task_kind.h"

enum { MOST_FACTS = 4 };

/* %k stands for the key or keys, %v for the value */
static const struct wording {
    /* the forms for one value, and for several */
    const char *fact, *question, *reply, *questions, *replies;
} wordings[] = {
    {"The number of the boat %k is %v.", "What is the number of the boat %k?",
     "The number of the boat %k is", "What are the numbers of the boat %k? Name every one of them.",
     "The numbers of the boat %k are:"},
    {"The stamp on the parcel %k is %v.", "What is the stamp on the parcel %k?",
     "The stamp on the parcel %k is", "What are the stamps on the parcel %k? Give every stamp.",
     "The stamps on the parcel %k are:"},
    {"Whoever telephones %k has to dial %v first.", "What has to be dialled first to telephone %k?",
     "Whoever telephones %k has to dial",
     "What can be dialled first to telephone %k? Name every possibility.",
     "Whoever telephones %k can dial:"},
    {"The serial number of the engine %k is %v.", "What is the serial number of the engine %k?",
     "The serial number of the engine %k is",
     "What are the serial numbers of the engine %k? Give all of them.",
     "The serial numbers of the engine %k are:"},
};
enum { N_WORDINGS = sizeof wordings / sizeof *wordings };

typedef enum hay_kind { HAY_SENTENCES, HAY_REPEATED, HAY_NEEDLES } hay_kind;
static const struct needle_shape {
    hay_kind hay;
    bool uuid_keys, uuid_values;
    uint32_t keys, values, asked; /* there are keys * values facts */
} shapes[] = {
    {HAY_SENTENCES, false, false, 1, 1, 1}, /* niah: one fact, at the depth asked for */
    {HAY_SENTENCES, false, false, 3, 1, 3}, /* niah-several */
    {HAY_REPEATED, false, false, 1, 1, 1},  {HAY_SENTENCES, false, false, 1, 1, 1},
    {HAY_SENTENCES, false, true, 1, 1, 1},  {HAY_SENTENCES, false, false, 4, 1, 1},
    {HAY_NEEDLES, false, false, 1, 1, 1},   {HAY_NEEDLES, true, true, 1, 1, 1},
    {HAY_SENTENCES, false, false, 1, 4, 1}, {HAY_SENTENCES, false, false, 4, 1, 4},
    {HAY_SENTENCES, false, false, 4, 1, 1}, /* niah-turn-1 */
    {HAY_SENTENCES, false, false, 4, 1, 2}, {HAY_SENTENCES, false, false, 4, 1, 3},
};

/* In this shape and the later ones facts are asked for one after the other; the answer to the last
 * question is the item's. */
enum { FIRST_OF_TURNS = 10 };

typedef struct facts {
    char keys[MOST_FACTS][LEXICON_NAME_BYTES];
    char values[MOST_FACTS][LEXICON_NAME_BYTES];
    double places[MOST_FACTS]; /* ascending; the fact order[i] stands at places[i] */
    uint32_t order[MOST_FACTS], asked[MOST_FACTS];
    uint32_t n;
    uint32_t *names; /* all numbers of lexicon_names(), shuffled; those of the keys come first */
    const struct wording *wording;
} facts;

static void facts_fini(facts *f) { free(f->names); }

static void draw_key(ckvc_rng *rng, bool uuid, uint32_t name, char out[LEXICON_NAME_BYTES]) {
    if (uuid) {
        lexicon_uuid(rng, out);
    } else {
        lexicon_name(name, out);
    }
}

static void draw_value(ckvc_rng *rng, bool uuid, char out[LEXICON_NAME_BYTES]) {
    if (uuid) {
        lexicon_uuid(rng, out);
    } else {
        lexicon_number(rng, out);
    }
}

static void draw_facts(task_draft *d, const struct needle_shape *s, bool placed, facts *f) {
    f->names = ckvc_alloc(lexicon_names(), sizeof *f->names);
    f->n = s->keys * s->values;
    f->wording = &wordings[ckvc_rng_below(&d->rng, N_WORDINGS)];
    lexicon_draw(&d->rng, lexicon_names(), f->names, lexicon_names());
    for (uint32_t i = 0; i < f->n; i++) {
        if (i % s->values == 0) {
            draw_key(&d->rng, s->uuid_keys, f->names[i / s->values], f->keys[i]);
        } else {
            memcpy(f->keys[i], f->keys[i - 1], LEXICON_NAME_BYTES);
        }
        draw_value(&d->rng, s->uuid_values, f->values[i]);
        f->places[i] = placed ? d->depth : ckvc_rng_double(&d->rng);
    }
    qsort(f->places, f->n, sizeof *f->places, ckvc_order_double);
    lexicon_draw(&d->rng, f->n, f->order, f->n);
    lexicon_draw(&d->rng, s->keys, f->asked, s->asked);
    if (f->n == 1) { d->item->depth = f->places[0]; }
}

static void write_needle(ckvc_buffer *out, const char *form, const char *key, const char *value) {
    for (; *form; form++) {
        if (*form == '%') {
            ckvc_buffer_text(out, *++form == 'k' ? key : value);
        } else {
            ckvc_buffer_u8(out, (uint8_t)*form);
        }
    }
}

/* Writes filler that is itself a fact, with another key (keys repeat only where words run out) and
 * another value. */
static void distractor(task_draft *d, const struct needle_shape *s, const facts *f, uint32_t i) {
    char key[LEXICON_NAME_BYTES], value[LEXICON_NAME_BYTES];
    draw_key(&d->rng, s->uuid_keys, f->names[1 + i % (lexicon_names() - 1)], key);
    do { draw_value(&d->rng, s->uuid_values, value); } while (strcmp(value, f->values[0]) == 0);
    write_needle(&d->text, f->wording->fact, key, value);
}

static void write_context(task_draft *d, const struct needle_shape *s, const facts *f,
                          uint32_t units) {
    haystack_walk walk = haystack_begin(d->hay, &d->rng);
    const char *gap = s->hay == HAY_SENTENCES ? " " : "\n";
    uint32_t placed = 0;
    for (uint32_t i = 0; i <= units; i++) {
        for (; placed < f->n && task_place(f->places[placed], units) <= i; placed++) {
            const uint32_t k = f->order[placed];
            write_needle(&d->text, f->wording->fact, f->keys[k], f->values[k]);
            ckvc_buffer_text(&d->text, gap);
        }
        if (i == units) { break; }
        if (s->hay == HAY_SENTENCES) {
            haystack_sentence(&walk, &d->rng, &d->text);
        } else if (s->hay == HAY_NEEDLES) {
            distractor(d, s, f, i);
        } else {
            ckvc_buffer_text(&d->text, HAYSTACK_REPEATED);
        }
        ckvc_buffer_text(&d->text, gap);
    }
    d->text.size--; /* removes the last gap */
}

static void ask(task_draft *d, const struct wording *w, bool several, const char *keys) {
    write_needle(&d->text, several ? w->questions : w->question, keys, "");
    d->item->reply_at = d->text.size;
    ckvc_buffer_text(&d->text, " ");
    write_needle(&d->text, several ? w->replies : w->reply, keys, "");
}

/* Writes a turn before the item's own, with its right answer. */
static void write_turn(task_draft *d, const facts *f, uint32_t i) {
    task_item *item = d->item;
    ask(d, f->wording, false, f->keys[f->asked[i]]);
    ckvc_buffer_printf(&d->text, " %s.", f->values[f->asked[i]]);
    item->earlier[item->n_earlier].reply_at = item->reply_at;
    item->earlier[item->n_earlier++].end = d->text.size;
    ckvc_buffer_text(&d->text, "\n\n");
}

static void write_needles(task_draft *d, uint32_t units) {
    const struct needle_shape *s = &shapes[d->kind->variant];
    const uint32_t first_asked = d->kind->variant >= FIRST_OF_TURNS ? s->asked - 1 : 0;
    CKVC_AUTO(facts_fini) facts f = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer keys = {0};
    draw_facts(d, s, d->kind->placed, &f);
    ckvc_buffer_text(&d->text, "Read this text carefully; a question about it follows.\n\n");
    write_context(d, s, &f, units);
    ckvc_buffer_text(&d->text, "\n\n");
    d->item->question_at = d->text.size;
    for (uint32_t i = 0; i < first_asked; i++) { write_turn(d, &f, i); }
    for (uint32_t i = first_asked; i < s->asked; i++) {
        const uint32_t first = f.asked[i] * s->values;
        ckvc_buffer_printf(&keys, "%s%s",
                           i == first_asked    ? ""
                           : i + 1 == s->asked ? " and "
                                               : ", ",
                           f.keys[first]);
        for (uint32_t v = 0; v < s->values; v++) { task_answer(d, f.values[first + v]); }
    }
    ask(d, f.wording, (s->asked - first_asked) * s->values > 1, (const char *)keys.data);
}

#define NEEDLE(NAME, GROUP, VARIANT, TOKENS, PLACED)                                               \
    TASK(NAME, GROUP, write_needles, 1, TOKENS, .metric = TASK_MATCH_ALL, .variant = (VARIANT),    \
         .times = 1, .placed = (PLACED))
const task_kind task_needles[] = {NEEDLE("niah", "needle", 0, 24, true),
                                  NEEDLE("niah-several", "needle", 1, 64, false),
                                  NEEDLE("niah-single-1", "ruler", 2, 24, false),
                                  NEEDLE("niah-single-2", "ruler", 3, 24, false),
                                  NEEDLE("niah-single-3", "ruler", 4, 48, false),
                                  NEEDLE("niah-multikey-1", "ruler", 5, 24, false),
                                  NEEDLE("niah-multikey-2", "ruler", 6, 24, false),
                                  NEEDLE("niah-multikey-3", "ruler", 7, 48, false),
                                  NEEDLE("niah-multivalue", "ruler", 8, 96, false),
                                  NEEDLE("niah-multiquery", "ruler", 9, 96, false),
                                  NEEDLE("niah-turn-1", "turns", 10, 24, false),
                                  NEEDLE("niah-turn-2", "turns", 11, 24, false),
                                  NEEDLE("niah-turn-3", "turns", 12, 24, false),
                                  {0}};
