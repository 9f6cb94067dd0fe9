/* The linear assignment problem (Kuhn 1955, "The Hungarian method"; with potentials and shortest
 * augmenting paths, Jonker and Volgenant 1987): every row gets a column of its own at the least
 * total cost. */
#pragma once

#include <stdint.h>

enum { ASSIGNMENT_MAX = 4096 }; /* rows and columns: 128 MiB of costs */

/* cost [n][m] finite, 1 <= n <= m <= ASSIGNMENT_MAX; column [n] receives each row's. O(n^2 m). The
 * same costs give the same assignment. */
void assignment_solve(uint32_t n, uint32_t m, const double *cost, uint32_t *column);
