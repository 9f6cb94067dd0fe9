/* The file of --layer-budgets, for models of 1 to 8 layers: as many as its lines. */
#include "formats/lines/layer_budgets.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    const char *path = fuzz_file("budgets", data, size);
    for (uint32_t L = 1; L <= 8; L++) {
        CKVC_AUTO_FREE double *budgets = NULL;
        if (!fuzz_took(layer_budgets_read(path, L, &budgets, err), err)) { continue; }
        double distinct[8];
        const uint32_t n = layer_budgets_distinct(budgets, L, distinct, 8);
        must(n >= 1 && n <= L);
        for (uint32_t l = 0; l < L; l++) { must(budgets[l] > 0.0 && budgets[l] <= 1e9); }
        for (uint32_t i = 1; i < n; i++) { must(distinct[i - 1] < distinct[i]); }
    }
}
