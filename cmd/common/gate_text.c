/* Where the gate can act, in words: see gate_text.h. */
#include "cmd/common/gate_text.h"

#include "calib/log/calibrate.h"
#include "lib/base/json.h"

static void print_budget(FILE *f, double budget) {
    fprintf(f, budget < 1 ? "%.4g of the prompt" : "%.0f", budget);
}

ckvc_status gate_say(const run_dir *run, const char *pass, FILE *f, json_t **json, ckvc_err *err) {
    gate_binding of[PROMPT_SETS_MAX_BUDGETS];
    double budgets[PROMPT_SETS_MAX_BUDGETS], top;
    uint32_t n;
    ckvc_status st = calibrate_binding(run, pass, of, budgets, &n, &top, err);
    if (st != CKVC_OK) { return st; }
    if (f && n == 0) { fputs("gate: no thresholds are in use\n", f); }
    for (uint32_t b = 0; f && b < n; b++) {
        fprintf(f,
                b ? ", %.1f%% at "
                  : "gate: thresholds keep different sets on %.1f%% of (prompt, layer) at budget ",
                100 * gate_binding_differ_share(&of[b]));
        print_budget(f, budgets[b]);
        if (b + 1 == n) { fputc('\n', f); }
    }
    for (uint32_t b = 0; f && b < n; b++) {
        char advice[256];
        if (gate_is_alive(&of[b])) { continue; }
        gate_advice(&of[b], top, advice, sizeof advice);
        fputs("gate: not alive at budget ", f);
        print_budget(f, budgets[b]);
        fprintf(f, ", choices there rest on its penalty: %s\n", advice);
    }
    if (json) {
        *json = json_array();
        for (uint32_t b = 0; b < n; b++) {
            json_array_append_new(
                *json, json_pack("{s:f, s:o, s:o, s:b}", "budget", budgets[b], "binding",
                                 ckvc_json_real(gate_binding_share(&of[b])), "sets_differ",
                                 ckvc_json_real(gate_binding_differ_share(&of[b])), "alive",
                                 gate_is_alive(&of[b])));
        }
    }
    return CKVC_OK;
}
