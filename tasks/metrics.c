#include "tasks/metrics.h"

#include <utf8proc.h>

#include "lib/base/buffer.h"
#include "lib/base/memory.h"

const char *task_metric_name(task_metric metric) {
#define X(NAME, name) name,
    static const char *const names[] = {TASK_METRICS(X)};
#undef X
    return names[metric];
}

static char *lower(const char *text) {
    ckvc_buffer out = {0};
    const size_t n = strlen(text);
    ckvc_buffer_text(&out, "");
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t step =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
        if (step <= 0) { /* of no character: as it is */
            ckvc_buffer_u8(&out, (uint8_t)text[at++]);
            continue;
        }
        utf8proc_uint8_t bytes[4];
        ckvc_buffer_append(&out, bytes, (size_t)utf8proc_encode_char(utf8proc_tolower(c), bytes));
        at += (size_t)step;
    }
    ckvc_buffer_u8(&out, 0);
    return (char *)out.data;
}

static bool holds(const char *answer, const char *expected) {
    CKVC_AUTO_FREE char *in = lower(answer);
    CKVC_AUTO_FREE char *what = lower(expected);
    return strstr(in, what) != NULL;
}

double metric_score(task_metric metric, const char *const *expected, size_t n, const char *answer) {
    double found = 0;
    for (size_t i = 0; i < n; i++) { found += holds(answer, expected[i]); }
    return metric == TASK_MATCH_ALL ? found / (double)n : found > 0;
}
