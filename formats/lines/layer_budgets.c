/* Reads the file of --layer-budgets. See layer_budgets.h. */
#include "formats/lines/layer_budgets.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/text_lines.h"

enum { FILE_MAX = 1 << 20, NUMBER_MAX = 64 };

#define WANTED "wanted whole tokens (256) or a share of the prompt below 1 (0.25)"

/* Reads the number of one line without its comment and the blanks around it. *found says whether
 * there is one. */
static ckvc_status read_line(const char *path, const ckvc_lines *at, double *value, bool *found,
                             ckvc_err *err) {
    const char *text = at->text, *hash = memchr(text, '#', at->n);
    size_t n = hash ? (size_t)(hash - text) : at->n;
    while (n && strchr(" \t\r", text[n - 1])) { n--; }
    while (n && strchr(" \t", *text)) {
        text++;
        n--;
    }
    *found = n > 0;
    if (!*found) { return CKVC_OK; }
    char number[NUMBER_MAX], *end = number;
    double v = 0.0;
    if (n < sizeof number) {
        memcpy(number, text, n);
        number[n] = 0;
        v = strspn(number, "0123456789.eE+-") == n ? strtod(number, &end) : 0.0;
    }
    CKVC_FAIL_IF(n >= sizeof number || *end || !(v > 0.0) || v > 1e9 || (v >= 1.0 && v != floor(v)),
                 err, CKVC_E_DATA, "%s:%u: got '%.*s', " WANTED, path, at->number,
                 n < 40 ? (int)n : 40, text);
    *value = v;
    return CKVC_OK;
}

static const char *budget_unit(double budget) {
    return budget < 1.0 ? "a share of the prompt" : "tokens";
}

ckvc_status layer_budgets_read(const char *path, uint32_t n_layers, double **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    CKVC_AUTO_FREE double *budgets = ckvc_calloc(n_layers, sizeof *budgets);
    size_t size = 0;
    uint32_t n = 0;
    *out = NULL;
    CKVC_TRY(ckvc_file_read(path, FILE_MAX, &text, &size, err));
    for (ckvc_lines at = ckvc_lines_of(text, size); ckvc_next_line(&at);) {
        double value = 0.0;
        bool found;
        CKVC_TRY(read_line(path, &at, &value, &found, err));
        if (!found) { continue; }
        CKVC_FAIL_IF(n == n_layers, err, CKVC_E_DATA,
                     "%s:%u: one number more than the model's %u layers", path, at.number,
                     n_layers);
        CKVC_FAIL_IF(n && (budgets[0] < 1.0) != (value < 1.0), err, CKVC_E_DATA,
                     "%s:%u: %.10g is %s, the first layer's %.10g is %s: give all layers one kind",
                     path, at.number, value, budget_unit(value), budgets[0],
                     budget_unit(budgets[0]));
        budgets[n++] = value;
    }
    CKVC_FAIL_IF(n != n_layers, err, CKVC_E_DATA,
                 "%s: %u numbers, wanted one for each of the model's %u layers", path, n, n_layers);
    *out = ckvc_take(&budgets);
    return CKVC_OK;
}

uint32_t layer_budgets_distinct(const double *budgets, uint32_t n_layers, double *out,
                                uint32_t max) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        uint32_t before = 0;
        while (before < l && budgets[before] != budgets[l]) { before++; }
        if (before == l && n++ < max) { out[n - 1] = budgets[l]; }
    }
    qsort(out, n < max ? n : max, sizeof *out, ckvc_order_double);
    return n;
}
