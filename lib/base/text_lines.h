/* Walks over the lines of a text: for (ckvc_lines at = ckvc_lines_of(text, n);
 * ckvc_next_line(&at);) ... This header has no .c file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct ckvc_lines {
    const char *text; /* this line, without its newline; not NUL-terminated */
    size_t n;
    uint32_t number; /* 1-based */
    bool ended;      /* whether a newline ends it: only the last line may lack one */
    const char *next, *end;
} ckvc_lines;

static inline ckvc_lines ckvc_lines_of(const void *text, size_t n) {
    return (ckvc_lines){.next = text, .end = (const char *)text + n};
}

static inline bool ckvc_next_line(ckvc_lines *at) {
    if (at->next >= at->end) { return false; }
    const char *newline = memchr(at->next, '\n', (size_t)(at->end - at->next));
    at->text = at->next;
    at->n = (size_t)((newline ? newline : at->end) - at->text);
    at->ended = newline != NULL;
    at->next = at->text + at->n + at->ended;
    at->number++;
    return true;
}
