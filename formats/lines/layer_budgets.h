/* A budget for each layer, as a text file (docs/formats.md), which --layer-budgets names. */
#pragma once

#include <stdint.h>

#include "lib/base/status.h"

/* Reads n_layers numbers, one a line, layer 0 first. They are whole tokens from 1 up, or shares of
 * T below 1, and a file has only one of these kinds. '#' starts a comment, and lines without a
 * number are skipped. *out [n_layers] is the caller's to free. CKVC_E_DATA names the line. */
ckvc_status layer_budgets_read(const char *path, uint32_t n_layers, double **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the distinct values in ascending order into out [max]. Returns how many there are, which
 * may be more than max. */
uint32_t layer_budgets_distinct(const double *budgets, uint32_t n_layers, double *out,
                                uint32_t max);
