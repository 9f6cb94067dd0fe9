/* One step through UTF-8, on which everything else is built. It needs no table; it follows Unicode
 * 15, table 3-7. The other function makes a text fit for a terminal. This header has no .c file
 * because the code for errors needs it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The number of bytes of the character that begins at text, 1 to 4, or 0 when no well-formed one
 * begins there. In that case *bad (bad may be NULL) is the length of the ill-formed run that one
 * U+FFFD stands for ("maximal subpart", Unicode 3.9, which Python and WHATWG follow). n >= 1. */
static inline size_t ckvc_utf8_step(const char *text, size_t n, size_t *bad) {
    const uint8_t *p = (const uint8_t *)text;
    uint8_t lead = p[0], low = 0x80, high = 0xBF;
    size_t need;
    if (lead < 0x80) { return 1; }
    if (lead >= 0xC2 && lead <= 0xDF) {
        need = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        need = 3;
        if (lead == 0xE0) { low = 0xA0; /* shorter forms exist below */ }
        if (lead == 0xED) { high = 0x9F; /* surrogates */ }
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        need = 4;
        if (lead == 0xF0) { low = 0x90; }
        if (lead == 0xF4) { high = 0x8F; /* beyond U+10FFFF */ }
    } else {
        if (bad) { *bad = 1; }
        return 0;
    }
    for (size_t i = 1; i < need; i++, low = 0x80, high = 0xBF) {
        if (i >= n || p[i] < low || p[i] > high) {
            if (bad) { *bad = i; }
            return 0;
        }
    }
    return need;
}

static inline bool ckvc_moves_cursor(const uint8_t *p) {
    return p[0] < 0x20 || p[0] == 0x7F || (p[0] == 0xC2 && p[1] < 0xA0) ||
           (p[0] == 0xD8 && p[1] == 0x9C) ||
           (p[0] == 0xE2 && p[1] == 0x80 &&
            (p[2] == 0x8E || p[2] == 0x8F || (p[2] >= 0xA8 && p[2] <= 0xAE))) ||
           (p[0] == 0xE2 && p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9);
}

/* Makes a text that contains something from outside fit for a terminal, in place. These become '?',
 * or ' ' if they are white space: control characters (U+0000 to 001F, 007F to 009F), the marks that
 * change the direction of writing (U+061C, 200E, 200F, 202A to 202E, 2066 to 2069), the line ends
 * U+2028 and 2029, and bytes that are not UTF-8. The bytes in `kept` stay. */
static inline void ckvc_utf8_tame(char *text, const char *kept) {
    char *to = text;
    for (size_t n = strlen(text), step; n > 0; text += step, n -= step) {
        step = ckvc_utf8_step(text, n, NULL);
        if (step && (!ckvc_moves_cursor((const uint8_t *)text) || strchr(kept, *text))) {
            memmove(to, text, step);
            to += step;
        } else {
            step = step ? step : 1;
            *to++ = *text >= '\t' && *text <= '\r' ? ' ' : '?';
        }
    }
    *to = 0;
}
