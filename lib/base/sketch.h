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

/* 32 signs, one in each bit, of column i, or of tensor i - SKETCH_TENSOR. They are computed by the
 * last steps of XXH32. */
uint32_t sketch_signs(uint32_t i);
/* 48 bits of the SHA-256 of a text. */
uint64_t sketch_digest(const void *text, size_t n);
/* Whether a and b are both sketches, and sketches of one model. `why` receives the reason as a
 * clause. */
bool sketch_same(const char *a, const char *b, char why[SKETCH_TEXT]);
