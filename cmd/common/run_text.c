/* What a run says to people: see run_text.h. */
#include "cmd/common/run_text.h"

#include "calib/log/calibrate.h"
#include "cmd/common/options.h"
#include "lib/base/json.h"

enum { NAMED = 60 }; /* thin cells in a message; the file names all */

/* Rows of one cell stand together: its end, and its sums. */
static size_t next_cell(const coverage *c, size_t i, uint64_t *prompts, uint64_t *drawn) {
    const coverage_row *first = &c->rows[i];
    *prompts = *drawn = 0;
    for (; i < c->n_rows && c->rows[i].entropy == first->entropy && c->rows[i].ppl == first->ppl;
         i++) {
        *prompts += c->rows[i].prompts;
        *drawn += c->rows[i].drawn;
    }
    return i;
}

void coverage_say(const coverage *c, bool thresholds) {
    uint64_t prompts, drawn, all = 0, all_drawn = 0, occupied = 0, thin = 0;
    const uint64_t cells = (uint64_t)c->n_entropy_bins * c->n_ppl_bins;
    for (size_t i = 0; i < c->n_rows; occupied++) {
        i = next_cell(c, i, &prompts, &drawn);
        all += prompts;
        all_drawn += drawn;
        thin += (c->logged ? drawn : prompts) < c->min_cell;
    }
    say("risk cells: %llu of %llu hold the %llu scanned prompts", (unsigned long long)occupied,
        (unsigned long long)cells, (unsigned long long)all);
    if (c->sample > 0) { say("; %llu of them drawn for logging", (unsigned long long)all_drawn); }
    if (c->n_unscanned) {
        say("; %u prompts are not in the scan%s", c->n_unscanned,
            c->sample > 0 ? " and cannot be drawn" : "");
    }
    say("\n");
    if (!thresholds || (thin == 0 && occupied == cells)) { return; }
    say("risk cells below --min-cell %u, whose thresholds rest on little: %llu", c->min_cell,
        (unsigned long long)thin);
    if (occupied < cells) { say(", and %llu empty ones", (unsigned long long)(cells - occupied)); }
    if (thin) {
        say("\n  entropy/perplexity bin: prompts%s:", c->sample > 0 ? " drawn of those there" : "");
    }
    uint64_t named = 0;
    for (size_t i = 0; i < c->n_rows && named <= NAMED;) {
        const coverage_row *at = &c->rows[i];
        i = next_cell(c, i, &prompts, &drawn);
        if ((c->logged ? drawn : prompts) >= c->min_cell) { continue; }
        if (named++ == NAMED) {
            say(" and %llu more in " COVERAGE_FILE, (unsigned long long)(thin - NAMED));
        } else if (c->sample > 0) {
            say(" %u/%u: %llu of %llu%s", at->entropy, at->ppl, (unsigned long long)drawn,
                (unsigned long long)prompts, named < thin ? "," : "");
        } else {
            say(" %u/%u: %llu%s", at->entropy, at->ppl, (unsigned long long)prompts,
                named < thin ? "," : "");
        }
    }
    say("\n");
}

void coverage_print(const coverage *c) {
    printf("entropy_bin\tperplexity_bin\tprompts");
    for (size_t s = 0; s < c->n_sources; s++) {
        putchar('\t');
        for (const char *p = c->sources[s]; *p; p++) { /* names come from a manifest */
            putchar((unsigned char)*p < 0x20 ? ' ' : *p);
        }
    }
    putchar('\n');
    for (size_t i = 0; i < c->n_rows;) {
        uint64_t prompts, drawn;
        const size_t end = next_cell(c, i, &prompts, &drawn);
        printf("%u\t%u\t%llu", c->rows[i].entropy, c->rows[i].ppl, (unsigned long long)prompts);
        for (size_t s = 0; s < c->n_sources; s++) { /* a cell's rows ascend by source */
            const bool here = i < end && c->rows[i].source == s;
            printf("\t%u", here ? c->rows[i].prompts : 0);
            i += here;
        }
        putchar('\n');
    }
}

static void say_budget(double budget) { say(budget < 1 ? "%.4g of the prompt" : "%.0f", budget); }

ckvc_status gate_say(const run_dir *run, const char *pass, bool talk, json_t **json,
                     ckvc_err *err) {
    pass_binding binding;
    CKVC_TRY(calibrate_binding(run, pass, &binding, err));
    const gate_binding *of = binding.by_budget;
    const double *budgets = binding.budgets;
    const uint32_t n = binding.n_budgets;
    if (talk && n == 0 && run_pass_named(run, pass)) { say("gate: no thresholds are in use\n"); }
    for (uint32_t b = 0; talk && b < n; b++) {
        say(b ? ", %.1f%% at "
              : "gate: thresholds keep different sets on %.1f%% of (prompt, layer) at budget ",
            100 * gate_binding_differ_share(&of[b]));
        say_budget(budgets[b]);
        if (b + 1 == n) { say("\n"); }
    }
    for (uint32_t b = 0; talk && b < n; b++) {
        char advice[256];
        if (gate_is_alive(&of[b])) { continue; }
        gate_advice(&of[b], binding.top, advice, sizeof advice);
        say("gate: not alive at budget ");
        say_budget(budgets[b]);
        say(", choices there rest on its penalty: %s\n", advice);
    }
    if (json) {
        *json = json_array();
        for (uint32_t b = 0; b < n; b++) {
            json_array_append_new(
                *json, json_pack("{s:b, s:o, s:f, s:o}", "alive", gate_is_alive(&of[b]), "binding",
                                 ckvc_json_real(gate_binding_share(&of[b])), "budget", budgets[b],
                                 "sets_differ", ckvc_json_real(gate_binding_differ_share(&of[b]))));
        }
    }
    return CKVC_OK;
}
