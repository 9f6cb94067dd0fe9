/* Makes items of tasks, in which words and punctuation stand for tokens. */
#pragma once

#include <ctype.h>

#include "judge/tasks/task.h"
#include "tests/unit/unit.h"

/* Counts runs of letters, single digits and other characters except spaces, which is close to
 * what tokenizers do. */
static inline ckvc_status count_words(void *of, const char *text, size_t n, size_t *tokens,
                                      ckvc_err *err) {
    (void)of, (void)err;
    *tokens = 0;
    for (size_t i = 0; i < n; i++) {
        *tokens += text[i] != ' ' &&
                   !(isalpha((unsigned char)text[i]) && i && isalpha((unsigned char)text[i - 1]));
    }
    return CKVC_OK;
}

static inline task_options options_of(const uint32_t *lengths, uint32_t n, uint32_t count) {
    return (task_options){
        .lengths = lengths, .n_lengths = n, .count = count, .count_tokens = count_words};
}

static inline task_items make_with(const char *names, const task_options *options) {
    task_items list;
    OK(task_items_make(names, options, &list, &err));
    return list;
}

static inline task_items make_items(const char *names, uint32_t length, uint32_t count) {
    task_options options = options_of(&length, 1, count);
    options.seed = 7;
    return make_with(names, &options);
}

static inline void refused(const char *names, const task_options *options, ckvc_status status,
                           const char *says) {
    task_items list;
    SAYS(task_items_make(names, options, &list, &err), status, says);
    task_items_fini(&list);
}

/* Returns how often `word` stands in the first n bytes of a text. */
static inline size_t times_found(const char *text, size_t n, const char *word) {
    size_t found = 0;
    const char *at = text;
    while ((at = memmem(at, n - (size_t)(at - text), word, strlen(word)))) { at++, found++; }
    return found;
}

static inline size_t item_tokens(const task_item *item) {
    size_t tokens = 0;
    assert_int_equal(count_words(NULL, item->prompt, item->prompt_size, &tokens, NULL), CKVC_OK);
    return tokens;
}
