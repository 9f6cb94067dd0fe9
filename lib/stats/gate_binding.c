/* Where the gate can act: see gate_binding.h. */
#include "lib/stats/gate_binding.h"

#include <math.h>
#include <stdio.h>

void gate_binding_add(gate_binding *b, uint32_t budget, uint32_t lo, uint32_t hi, uint32_t kept,
                      uint32_t window, uint32_t n_tokens) {
    const gate_binding one = {.n = 1,
                              .binding = hi < budget,
                              .differ = (lo < budget ? lo : budget) != (hi < budget ? hi : budget),
                              .kept = kept,
                              .window = window,
                              .budget = budget,
                              .lo = lo,
                              .hi = hi,
                              .tokens = n_tokens};
    gate_binding_merge(b, &one);
}

void gate_binding_merge(gate_binding *into, const gate_binding *from) {
    uint64_t *sums = &into->n;
    const uint64_t *more = &from->n;
    _Static_assert(sizeof *into % sizeof *sums == 0, "sums and nothing else");
    for (size_t i = 0; i < sizeof *into / sizeof *sums; i++) { sums[i] += more[i]; }
}

static double ratio_or_nan(uint64_t a, uint64_t b) { return b ? (double)a / (double)b : NAN; }

double gate_binding_share(const gate_binding *b) { return ratio_or_nan(b->binding, b->n); }

double gate_binding_differ_share(const gate_binding *b) { return ratio_or_nan(b->differ, b->n); }

bool gate_is_alive(const gate_binding *b) {
    return gate_binding_differ_share(b) >= GATE_ALIVE_SHARE;
}

void gate_advice(const gate_binding *b, double top, char *out, size_t size) {
    /* The advised budget is the next hundredth of T above the mean number of candidates: there the
     * highest threshold leaves the budget unfilled about as often as not. */
    const double share = floor(ratio_or_nan(b->hi, b->tokens) * 100 + 1) / 100;
    if (gate_binding_share(b) >= GATE_ALIVE_SHARE) { /* the budget leaves room for the gate to
                                                        act */
        snprintf(out, size, "the grid's ends pass the same candidates, try a wider --gate-grid");
    } else if (share < 1) {
        snprintf(out, size,
                 "%.0f candidates of %.0f tokens pass even tau = %.3g on average, try a budget "
                 "above that (--budget %.2f), or a --gate-grid that goes higher",
                 ratio_or_nan(b->hi, b->n), ratio_or_nan(b->tokens, b->n), top, share);
    } else {
        snprintf(out, size, "all tokens pass even tau = %.3g, try a --gate-grid that goes higher",
                 top);
    }
}
