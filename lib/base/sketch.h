/* A model's sketch: one short text by which two files are known to hold one model, whatever their
 * weights are stored as (docs/formats.md, "The same model in another file"). lib/model makes it,
 * and python/ckvc/fingerprint.py of a model in torch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKETCH_TEXT   256 /* NUL included */
#define SKETCH_TENSOR ((uint32_t)1 << 24)
enum { SKETCH_NUMBERS = 24, SKETCH_LAYERS = 16 };

/* 32 signs, a bit each: of column i, or of tensor i - SKETCH_TENSOR (the last steps of XXH32). */
uint32_t sketch_signs(uint32_t i);
/* 48 bits of a text's SHA-256. */
uint64_t sketch_digest(const void *text, size_t n);
/* Are both sketches, and of one model? `why` receives what tells, as a clause. */
bool sketch_same(const char *a, const char *b, char why[SKETCH_TEXT]);
