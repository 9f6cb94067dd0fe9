/* Rounds keys to q4_0 by the queries that will ask for them, so that products change little
 * (docs/method.md, section 11).
 *
 * A key's numbers are rounded one after another. What the rounding of one does to products with
 * typical queries is made up for by the numbers still to come: this is GPTQ (Frantar et al. 2022,
 * arXiv 2210.17323), with a key in place of a row of weights and queries in place of inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The ridge of the queries' products, as a part of the mean of their diagonal. */
#define KEY_ROUNDING_RIDGE 0.03

/* Prepares the rounding of keys by n queries [n][D] that are rotated as the keys are. u [D][D]
 * receives for k > j what is taken off number k of a key where rounding takes 1 off number j; work
 * holds [D][D]. Sums are double, in one fixed order. Returns false where the queries say too
 * little: they are fewer than 2 D, or 0, or not finite. With few queries, what they do not ask for
 * would be rounded far off. */
bool key_rounding_prepare(const float *queries, size_t n, size_t D, double *u, double *work);
/* Rounds a key x [D], rotated, to numbers that q4_0 holds without rounding them again. D is a
 * multiple of 32. A key that is not finite stays as it is. */
void key_rounding_apply(const double *u, size_t D, float *x);
