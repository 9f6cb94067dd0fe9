/* RULER's variable tracking: a value, and variables that get it from each other in four hops, among
 * one line repeated; the question is for all of them. A short example comes first, as there. */

#include "lib/base/order.h"
#include "tasks/task_kind.h"

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

static void ask(ckvc_buffer *out, unsigned value) {
    ckvc_buffer_printf(out, "Which five variables have the value %u?", value);
}

static void reply(ckvc_buffer *out, unsigned value) {
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
    ask(&d->text, example.value);
    reply(&d->text, example.value);
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
    ask(&d->text, real.value);
    d->item->reply_at = d->text.size;
    reply(&d->text, real.value);
    for (int i = 0; i < CHAIN; i++) { task_answer(d, real.names[i]); }
}

const task_kind task_tracking[] = {{.name = "variable-tracking",
                                    .group = "ruler",
                                    .write = write_tracking,
                                    .least_units = 1,
                                    .max_new = 40,
                                    .metric = TASK_MATCH_ALL},
                                   {0}};
