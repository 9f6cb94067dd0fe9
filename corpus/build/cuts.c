/* Cuts: see cuts.h. What characters may not begin or end a line is the core of Unicode's line
 * breaking (UAX #14) and of kinsoku. */
#include "corpus/build/cuts.h"

#include <ctype.h>
#include <string.h>

#include "corpus/texts.h"

enum { REACH = 256, MAX_LINE = 20000 };

bool cut_is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

/* ---- characters ---- */

enum { WIDE_SPACE = 0x3000 };

/* Punctuation of scripts without spaces that ends a clause or closes a bracket or quotation. */
static bool ends_clause(int32_t c) {
    static const char closing[] = "\u3001\u3002\uFF01\uFF0C\uFF0E\uFF1A\uFF1B\uFF1F\uFF61\uFF64"
                                  "\u3009\u300B\u300D\u300F\u3011\u3015\u3017\u3019\u301F\uFF09"
                                  "\uFF3D\uFF5D\uFF63\u104A\u104B\u17D4\u17D5";
    char bytes[5] = "";
    return c >= 0x1000 && utf8proc_encode_char(c, (utf8proc_uint8_t *)bytes) == 3 &&
           strstr(closing, bytes);
}

/* Full stops and question marks of scripts that have their own: ideographic, full-width, danda,
 * Arabic's and Urdu's, Burmese, Khmer, Ethiopic. */
static bool ends_sentence(int32_t c) {
    static const int32_t marks[] = {0x3002, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61, 0x0964, 0x0965,
                                    0x061F, 0x06D4, 0x104B, 0x17D4, 0x17D5, 0x1362};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (c == marks[i]) { return true; }
    }
    return false;
}

/* The same, but only before a letter of such a script: elsewhere it means something else. */
static bool may_end_clause(int32_t c) {
    return c == 0x2019 || c == 0x201D || c == 0x2026 || (c > 0 && c < 128 && strchr(",.;:!?)", c));
}

/* Never begins a line: what closes, repeats, lengthens or belongs to the character before it. */
static bool begins_no_line(int32_t before, int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return ends_clause(c) || kind == UTF8PROC_CATEGORY_PE || kind == UTF8PROC_CATEGORY_PF ||
           (c < 128 && ispunct(c)) || c == 0x2014 || c == 0x2026 || c == 0x3005 || c == 0x30FB ||
           c == 0x30FC || !utf8proc_grapheme_break(before, c);
}

/* Never ends a line: what opens or joins, vowels written before their consonant, and signs that put
 * the next consonant below. */
static bool ends_no_line(int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return kind == UTF8PROC_CATEGORY_PS || kind == UTF8PROC_CATEGORY_PI ||
           (c < 128 && ispunct(c)) || c == 0x30FB || (c >= 0x0E40 && c <= 0x0E44) ||
           (c >= 0x0EC0 && c <= 0x0EC4) || c == 0x17D2 || c == 0x1039;
}

static bool char_begins(const char *text, size_t at) { return ((uint8_t)text[at] & 0xC0) != 0x80; }

static int32_t last_char(const char *text, size_t at) {
    const size_t start = char_before(text, at);
    return char_at(text + start, at - start);
}

/* ---- cuts ---- */

cut_kind cut_at(const char *text, size_t n, size_t at) {
    if (at == 0 || at >= n) { return at ? CUT_GOOD : CUT_NONE; }
    if (cut_is_space(text[at - 1])) { return CUT_NONE; }
    if (cut_is_space(text[at])) { return CUT_GOOD; }
    if (((uint8_t)text[at] < 128 && (uint8_t)text[at - 1] < 128) || !char_begins(text, at)) {
        return CUT_NONE; /* no script without spaces is near */
    }
    const int32_t c = char_at(text + at, n - at), before = last_char(text, at);
    if (before == WIDE_SPACE) { return CUT_NONE; }
    if (c == WIDE_SPACE) { return CUT_GOOD; }
    if (begins_no_line(before, c)) { return CUT_NONE; }
    if (ends_clause(before) || (may_end_clause(before) && char_without_spaces(c))) {
        return CUT_GOOD;
    }
    return (char_without_spaces(before) || char_without_spaces(c)) && !ends_no_line(before)
               ? CUT_FINE
               : CUT_NONE;
}

size_t cut_before(const char *text, size_t n, size_t at) {
    size_t fine = 0;
    for (size_t from = at; at > 0 && cut_at(text, n, at) < CUT_GOOD; at--) {
        if (fine == 0 && cut_at(text, n, at) == CUT_FINE) { fine = at; }
        if (fine && from - at > REACH) { return fine; }
    }
    return at ? at : fine;
}

size_t cut_after(const char *text, size_t n, size_t at) {
    size_t fine = 0;
    for (size_t from = at; at < n && cut_at(text, n, at) < CUT_GOOD; at++) {
        if (fine == 0 && cut_at(text, n, at) == CUT_FINE) { fine = at; }
        if (fine && at - from > REACH) { return fine; }
    }
    return at;
}

size_t cut_after_fine(const char *text, size_t n, size_t at) {
    while (at < n && cut_at(text, n, at) == CUT_NONE) { at++; }
    return at;
}

/* Behind the first sentence of another script than Latin; n where there is none. */
static size_t sentence_end(const char *text, size_t n) {
    int32_t c;
    for (size_t at = 0, step; at < n; at += step) {
        step = char_next(text + at, n - at, &c);
        if ((uint8_t)text[at] >= 128) {
            if (!ends_sentence(c)) { continue; }
            for (at += step; at < n; at += step) {
                step = char_next(text + at, n - at, &c);
                if (!begins_no_line('a', c)) { break; }
            }
            return at;
        }
        if (at == 0 || (uint8_t)text[at - 1] < 128) { continue; }
        /* "." as in Latin script, behind a letter of another / the space between Thai sentences */
        const bool dot = strchr(".!?", text[at]) && at + 1 < n && cut_is_space(text[at + 1]);
        const bool gap = cut_is_space(text[at]) && char_without_spaces(last_char(text, at));
        if (dot || gap) { return at + 1; }
    }
    return n;
}

size_t cut_paragraph(const char *text, size_t n, size_t most) {
    const char *stop = memmem(text, n, "\n\n", 2);
    if (stop && (size_t)(stop - text) <= most) { return (size_t)(stop - text); }
    stop = memchr(text, '\n', n);
    const size_t line = stop ? (size_t)(stop - text) : n;
    return line <= most ? line : sentence_end(text, line);
}

/* ---- prose ---- */

bool is_prose(const char *text, size_t n, bool ascii) {
    size_t letters = 0, marks = 0, solid = 0, line = 0, lines = 0, numbered = 0;
    for (size_t i = 0, step; i < n; i += step) {
        const unsigned char byte = (unsigned char)text[i];
        int32_t c = byte;
        bool letter = isalpha(byte), number = isdigit(byte), neutral = cut_is_space((char)byte);
        step = 1;
        if (byte >= 128 && !ascii) {
            step = char_next(text + i, n - i, &c);
            const char *kind = utf8proc_category_string(c);
            letter = *kind == 'L' || *kind == 'M';
            number = *kind == 'N';
            /* quotations and commas are every fourth character where a letter is a word */
            neutral =
                c == WIDE_SPACE || ends_clause(c) || (*kind == 'P' && strchr("seif", kind[1]));
        }
        line = c == '\n' ? 0 : line + 1;
        if (line == 1) {
            lines++;
            numbered += number;
        }
        if (line > MAX_LINE) { return false; }
        if (!ascii && ends_sentence(c)) { line = 1; /* such texts may have no line ends at all */ }
        if (neutral) { continue; }
        solid++;
        letters += letter;
        marks += c < 128 && strchr("|_=#*+~<>{}\\", c);
    }
    return (double)letters >= 0.75 * (double)solid && (double)marks <= 0.06 * (double)solid &&
           4 * numbered <= lines;
}
