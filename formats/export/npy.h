/* numpy's array files (.npy, format 1.0 to 3.0: numpy.lib.format) of the types that tables have,
 * row-major. */
#pragma once

#include "formats/table/table_arrays.h"

/* Appends a file with the array's numbers. */
void npy_append(ckvc_buffer *b, const table_array *a);
/* Appends a file of float32 with the values of dims [rank]. */
void npy_append_f32(ckvc_buffer *b, const double *values, const uint64_t *dims, unsigned rank);
/* The array in bytes that are taken for hostile; its data are borrowed from them, its name is left
 * alone. `where` is for messages. */
ckvc_status npy_parse(const char *where, const uint8_t *bytes, size_t size, table_array *out,
                      ckvc_err *err) CKVC_MUST_CHECK;
/* Item i of an array of f32 or f64. */
double npy_real(const table_array *a, size_t i);
/* An array of f32 or f64 of one of two ranks (the same twice: of one), read from a file; finite
 * values alone. *memory is the caller's to free, and the array borrows from it. */
ckvc_status npy_read_reals(const char *path, unsigned rank, unsigned or_rank, char **memory,
                           table_array *out, ckvc_err *err) CKVC_MUST_CHECK;
