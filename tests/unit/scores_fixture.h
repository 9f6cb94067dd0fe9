/* One file of score lines, written and read back, for the tests of their reader. */
#pragma once

#include "formats/lines/scores.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

static inline ckvc_status read_text(const char *text, scores **out, ckvc_err *err) {
    *err = (ckvc_err){0};
    return scores_read(put_text("s.jsonl", text), out, err);
}
