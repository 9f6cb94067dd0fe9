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

/* Prints a canonical line of JSON, whose keys are sorted. */
void json_print(const json_t *o);
/* Prints a line with the keys in the order in which they were set. */
void json_print_as_given(const json_t *o);
/* Prints a form that o fills, to stdout or stderr. o is borrowed. The reference `beside`, which may
 * be NULL, is taken: it holds what the text says and the JSON does not. */
void form_print(FILE *to, const char *form, const json_t *o, json_t *beside);
/* Prints a result in one of its two ways, as a canonical line of JSON or as a form. It takes both
 * references. */
void result_print(bool json, FILE *to, const char *form, json_t *o, json_t *beside);
/* Prints any object as text: aligned keys, a list on one line, a list of objects as a table. */
void json_text(const json_t *object, int indent);

/* Says on stderr how many risk cells hold prompts and how many prompts are drawn, and, if the run
 * tries thresholds, which cells have fewer than --min-cell. With `cells` it also prints a line of
 * tab-separated counts on stdout for each cell that holds prompts: its bins, all sources together,
 * and each source. */
void coverage_say(const coverage *c, bool thresholds, bool cells);

/* Adds to o where the gate of a pass can act, as a member `gate` that lists {alive, binding,
 * budget, sets_differ} by budget. `beside` receives what the text alone says, such as what to
 * change at a budget where the gate is not alive. GATE_FORM is that text. */
ckvc_status gate_add(const run_dir *run, const char *pass, json_t *o, json_t *beside,
                     ckvc_err *err) CKVC_MUST_CHECK;
#define BUDGET_FORM "{budget<1?{budget:.4g} of the prompt}{budget<1!{budget:.0f}}"
#define GATE_FORM                                                                                  \
    "{no_thresholds?gate: no thresholds are in use\n}"                                             \
    "{gate?gate: thresholds keep different sets on {gate#{,, }{sets_differ*100:.1f}%"              \
    "{@=1? of (prompt, layer) at budget}{, at} " BUDGET_FORM "}\n}"                                \
    "{advice#gate: not alive at budget " BUDGET_FORM                                               \
    ", choices there rest on its penalty: {text}\n}"
/* Returns a mean with its 95% interval as a new reference. GAIN_FORM is the form of a member that
 * holds such an object. */
json_t *gain_json(rank_interval g);
#define GAIN_FORM                                                                                  \
    "{mean:+.5f} {documents>1?[{lo:+.5f}, {hi:+.5f}]}"                                             \
    "{documents<2?[one {prompts>1?document}{prompts<2?prompt}]}"
/* Says on stderr what was tried on the prompts of split select, and what each budget recommends. */
void choice_say(const select_losses *s, const double *budgets);
