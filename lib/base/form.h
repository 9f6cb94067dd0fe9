/* Fills a text for people from a JSON value, so that a program prints the facts that it gives out
 * as JSON a second time without formatting each of them again.
 *
 * A form is text in which braces hold what to put there:
 *
 *     {name}             the value: a text as it is, a number in its shortest form, "-" for null
 *     {name:-15s}        the same, as printf writes it with this sign, width, precision and
 *                        conversion (s, d, f or g)
 *     {name:10t}         a number of seconds in words (ckvc_duration), in a field of that width
 *     {name:j}           a text as a JSON string, in ASCII
 *     {name*100/of:.1f}  a number times a number or another value, or divided by it; by 0 gives 0
 *     {name|text}        the value, or the text where there is none
 *     {name?text}        the text, where there is a value: not null, false, 0, "" or empty
 *     {name!text}        the text, where there is none
 *     {name=word?text}   the text, where the value is that word; {name<1?text} and {name>1?text}
 *                        where it is a number below or above; with ! in place of ? where it is not
 *     {name&text}        the text, where there is a value, with names looked up in it first
 *     {name#text}        the text for each item of a list or member of an object, in order
 *     {,text}            within #: the text for every item but the first
 *     {~-22 text}        the text in a field of that width; below 0 to the left
 *
 * A text in braces is a form itself. A name is looked up in the item of the innermost #, then in
 * those around it. "." is the item itself, and "@" is the key of a member, or the number of an item
 * counted from 1. a.b is member b of a, a.0 is the first item of the list a, and a.@ is the item of
 * a that has this item's number.
 *
 * Whether there is a number depends on its type: a real number is always there, since it was
 * measured, but a whole number is a count, and is there only where it is not 0. */
#pragma once

#include <jansson.h>

#include "lib/base/json.h"

/* A value as {name} puts it, as one line for a terminal (ckvc_utf8_tame). The caller frees it. */
char *ckvc_form_text(const json_t *value);

/* Appends the filled form to `out`. Names that `value` does not have are looked up in `beside`,
 * which may be NULL. Texts of values become fit for a terminal, each of one line (ckvc_utf8_tame).
 * The program aborts at a form that lacks a closing brace. */
void ckvc_form_fill(ckvc_buffer *out, const char *form, const json_t *value, const json_t *beside);
