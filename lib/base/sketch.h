/* A model's sketch is a short text. From two sketches one can tell whether two files hold the same
 * model, even if they store its weights in different types (docs/formats.md, "The same model in
 * another file"). lib/model makes the sketch of an open model, python/ckvc/fingerprint.py that of a
 * model in torch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKETCH_TEXT   256 /* NUL included */
#define SKETCH_TENSOR ((uint32_t)1 << 24)
enum { SKETCH_NUMBERS = 24, SKETCH_LAYERS = 16 };

/* Returns 32 pseudo-random signs, one in each bit, with which values are added up. i names what
 * they belong to: a column of a weight, or, from SKETCH_TENSOR on, the weight of number i -
 * SKETCH_TENSOR. They are computed by the last steps of XXH32. */
uint32_t sketch_signs(uint32_t i);
/* Returns the first 48 bits of the SHA-256 of a text of n bytes, the first byte lowest. */
uint64_t sketch_digest(const void *text, size_t n);
/* Whether a and b, which may be any texts, are sketches of one model. `why` always receives a
 * clause for a message: what differs or is missing, or how far the weights are apart and how far
 * rounding may bring them. */
bool sketch_same(const char *a, const char *b, char why[SKETCH_TEXT]);
