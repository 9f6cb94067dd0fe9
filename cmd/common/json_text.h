/* A verb's result has two printings: one line of JSON for programs, and text for people, which is a
 * form (lib/base/form.h) that the same object fills. A fact that is added to the object is in both.
 */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "budgets/select.h"
#include "formats/run/run_status.h"
#include "formats/run/run_dir.h"

/* Prints one canonical line, that is, with sorted keys. */
void json_print(const json_t *o);
/* The same with keys in the order in which they were set. */
void json_print_as_given(const json_t *o);
/* Prints a form that o fills, to stdout or stderr; o is borrowed. beside: what the text says and
 * the JSON does not. It takes that reference; NULL is none. */
void form_print(FILE *to, const char *form, const json_t *o, json_t *beside);
/* Prints a result in one of its two ways: as a canonical line of JSON, or as a form. Takes both
 * references. */
void result_print(bool json, FILE *to, const char *form, json_t *o, json_t *beside);
/* Aligned keys, short lists on one line, lists of objects as small tables. */
void json_text(const json_t *object, int indent);

/* On stderr: how many risk cells hold prompts and how many prompts are drawn, and, where the run
 * tries thresholds, which cells are below --min-cell. With `cells` on stdout, too: a line of
 * tab-separated counts for each cell that holds prompts, its bins, all sources together, and each
 * source. */
void coverage_say(const coverage *c, bool thresholds, bool cells);

/* Where the gate of a pass can act: a member `gate` of o, which lists {alive, binding, budget,
 * sets_differ} by budget, and `beside` it what the text says more, such as what to change at a
 * budget where the gate is not alive. GATE_FORM is the text, of whole lines. */
ckvc_status gate_add(const run_dir *run, const char *pass, json_t *o, json_t *beside,
                     ckvc_err *err) CKVC_MUST_CHECK;
#define BUDGET_FORM "{budget<1?{budget:.4g} of the prompt}{budget<1!{budget:.0f}}"
#define GATE_FORM                                                                                  \
    "{no_thresholds?gate: no thresholds are in use\n}"                                             \
    "{gate?gate: thresholds keep different sets on {gate#{,, }{sets_differ*100:.1f}%"              \
    "{@=1? of (prompt, layer) at budget}{, at} " BUDGET_FORM "}\n}"                                \
    "{advice#gate: not alive at budget " BUDGET_FORM                                               \
    ", choices there rest on its penalty: {text}\n}"
/* A mean with its 95% interval: a new reference, and the form of a member of that kind. */
json_t *gain_json(rank_interval g);
#define GAIN(of)                                                                                   \
    "{" of ".mean:+.5f} {" of ".documents>1?[{" of ".lo:+.5f}, {" of ".hi:+.5f}]}"                 \
    "{" of ".documents<2?[one {" of ".prompts>1?document}{" of ".prompts<2?prompt}]}"
/* What was tried on the prompts that choose, by budget, and what each budget recommends. */
void choice_say(const select_losses *s, const double *budgets);
