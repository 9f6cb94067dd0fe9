/* The JSON lines of `ckvc eval`: what is accepted is the same again when it is written and read. */
#include "formats/lines/answers.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    CKVC_AUTO(answers_free_at) answers *a = NULL;
    if (!fuzz_took(answers_read(fuzz_file("a.jsonl", data, size), &a, err), err)) { return; }
    for (size_t i = 0; i < a->n; i++) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer once = {0};
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer again = {0};
        CKVC_AUTO(answers_free_at) answers *back = NULL;
        answers_append(&once, &a->rows[i]);
        must(answers_read_lines("line", once.data, once.size, &back, err) == CKVC_OK);
        answers_append(&again, back->rows);
        must(once.size == again.size && memcmp(once.data, again.data, once.size) == 0);
        must(back->rows->score >= 0 && back->rows->score <= 1 && back->rows->share <= 1);
    }
}
