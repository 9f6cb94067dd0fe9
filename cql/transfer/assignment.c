/* Rows enter one by one; each along the shortest path, in reduced costs c[i][j] - u[i] - v[j] >= 0,
 * from itself to a free column. */
#include "cql/transfer/assignment.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "lib/base/memory.h"

void assignment_solve(uint32_t n, uint32_t m, const double *cost, uint32_t *column) {
    assert(n >= 1 && n <= m && m <= ASSIGNMENT_MAX);
    /* Rows and columns from 1; row 0 is none, column 0 where a path begins. */
    CKVC_AUTO_FREE double *u = ckvc_calloc(n + 1, sizeof *u);
    CKVC_AUTO_FREE double *v = ckvc_calloc(m + 1, sizeof *v);
    CKVC_AUTO_FREE double *least = ckvc_alloc(m + 1, sizeof *least);
    CKVC_AUTO_FREE uint32_t *row_of = ckvc_calloc(m + 1, sizeof *row_of);
    CKVC_AUTO_FREE uint32_t *before = ckvc_calloc(m + 1, sizeof *before);
    CKVC_AUTO_FREE bool *done = ckvc_alloc(m + 1, sizeof *done);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t at = 0;
        row_of[0] = i;
        for (uint32_t j = 0; j <= m; j++) {
            least[j] = INFINITY;
            done[j] = false;
        }
        do {
            done[at] = true;
            uint32_t row = row_of[at], next = 0;
            double step = INFINITY;
            for (uint32_t j = 1; j <= m; j++) {
                if (done[j]) { continue; }
                double reduced = cost[(size_t)(row - 1) * m + j - 1] - u[row] - v[j];
                if (reduced < least[j]) {
                    least[j] = reduced;
                    before[j] = at;
                }
                if (least[j] < step) {
                    step = least[j];
                    next = j;
                }
            }
            assert(next > 0); /* finite costs, and a column for every row */
            for (uint32_t j = 0; j <= m; j++) {
                if (done[j]) {
                    u[row_of[j]] += step;
                    v[j] -= step;
                } else {
                    least[j] -= step;
                }
            }
            at = next;
        } while (row_of[at] != 0);
        for (; at; at = before[at]) { /* turn the path */
            row_of[at] = row_of[before[at]];
        }
    }
    for (uint32_t j = 1; j <= m; j++) {
        if (row_of[j]) { column[row_of[j] - 1] = j - 1; }
    }
}
