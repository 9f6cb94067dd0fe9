/* Where a text may be cut, and which of it is prose.
 *
 * A cut stands before white space that follows a word, so that both sides are tokenised as the
 * whole would be. Scripts without spaces have cuts of their own: good ones behind the punctuation
 * that ends a clause, and where none is near, fine ones between any two characters that a line may
 * be broken between. Offsets are bytes. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Of ASCII: space, tab, line end. */
bool cut_is_space(char c);
typedef enum cut_kind { CUT_NONE, CUT_FINE, CUT_GOOD } cut_kind;
/* Whether the text [n] may be cut before the byte at `at`; its end is a good cut. */
cut_kind cut_at(const char *text, size_t n, size_t at);
/* The last cut up to `at`, 0 where there is none / the first from `at` on, n at the latest: good
 * ones first, fine ones where they lie more than 256 bytes off. */
size_t cut_before(const char *text, size_t n, size_t at);
size_t cut_after(const char *text, size_t n, size_t at);
/* The next cut of any kind. */
size_t cut_after_fine(const char *text, size_t n, size_t at);

/* Where the paragraph ends that begins at text: at an empty line; of one longer than `most` bytes
 * at the end of its next line, or of its sentence where only scripts with marks of their own say
 * where that is; n where nothing ends it. */
size_t cut_paragraph(const char *text, size_t n, size_t most);

/* Prose is letters: tables, tables of contents, listings of numbers, addresses and rules are not.
 * ascii: of a text that is mostly ASCII, where those of other scripts are formulas' and count as
 * none; else letters of any script. */
bool is_prose(const char *text, size_t n, bool ascii);
