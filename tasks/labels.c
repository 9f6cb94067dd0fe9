/* Labels learned from examples: things and their kinds, and one thing more, which is in none of the
 * examples. Chance is one in five. */
#include "tasks/lexicon.h"
#include "tasks/task_kind.h"

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

const task_kind task_labels[] = {{.name = "few-shot",
                                  .group = "few-shot",
                                  .write = write_labels,
                                  .least_units = KINDS,
                                  .max_new = 6,
                                  .metric = TASK_CLASSIFICATION,
                                  .first_line = true,
                                  .plain = true},
                                 {0}};
