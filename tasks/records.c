/* Retrieval of one record among many of its form: the JSON object of Liu et al., "Lost in the
 * Middle: How Language Models Use Long Contexts" (TACL 2024), keys and values UUIDs; the lines of
 * LongEval (Li et al., "How Long Can Open-Source LLMs Truly Promise on Context Length?", 2023),
 * keys words, values numbers of five digits. */
#include "tasks/lexicon.h"
#include "tasks/task_kind.h"

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

const task_kind task_records[] = {{.name = "kv-retrieval",
                                   .group = "records",
                                   .write = write_pairs,
                                   .least_units = 1,
                                   .max_new = 48,
                                   .metric = TASK_MATCH_PART,
                                   .times = 1,
                                   .placed = true},
                                  {.name = "lines",
                                   .group = "records",
                                   .write = write_lines,
                                   .least_units = 1,
                                   .most_units = 6600,
                                   .max_new = 16,
                                   .metric = TASK_MATCH_PART,
                                   .times = 1,
                                   .placed = true},
                                  {0}};
