/* The policies that a verb looks at: --table, --policy, --equal-tokens and --budget, the same for
 * `ckvc score` and `ckvc eval`. */
#pragma once

#include "judge/policies/policy_sets.h"
#include "cmd/common/opened_inputs.h"
#include "formats/run/durable_output.h"

enum { MAX_TABLES = 64 };

typedef struct policies_options {
    opt_list tables, names;
    budget_list budget;
    bool equal_tokens;
} policies_options;
extern const opt opts_policies[]; /* rows of policies_options */
/* A verb's `more`: what decides which policies may stand in one column, and what they cost. */
void policies_explain(void);

/* The policy that --policy means by a name. */
ckvc_status policy_named(const char *name, policy_kind *kind, ckvc_err *err) CKVC_MUST_CHECK;

typedef struct chosen_policies {
    table_file *tables[MAX_TABLES];
    size_t n_tables;
    asked_policy *list; /* what --policy names, each beside each table that it needs; then tables */
    size_t n;
    setting_list budgets; /* borrowed: of the options, or of the first table */
} chosen_policies;

/* Before the prompts are opened: what kvzip repeats them with, where it is among the policies. */
ckvc_status policies_open_kvzip(const policies_options *o, const inputs_options *inputs,
                                opened_inputs *e, ckvc_err *err) CKVC_MUST_CHECK;
/* The tables, and the policies in their order. *out is zero before, and the caller's to
 * policies_close. */
ckvc_status policies_open(const policies_options *o, const inputs_options *inputs,
                          const opened_inputs *e, chosen_policies *out,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* --budget; where the running verb was given none the first table's. */
ckvc_status policies_budgets(const policies_options *o, chosen_policies *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* What decides the lines under these policies, as texts: the running verb's options by their
 * values, model and tables by what they are. New reference, to which the verb adds its other
 * inputs. */
json_t *policies_settings(const chosen_policies *of, const opened_inputs *e);
/* Ends the lines of the running verb (durable_output_end). Prints `lines` where no --out names a
 * file, also when they were stopped, and says, unless quiet, how parts are joined. */
ckvc_status policies_end_lines(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed, bool quiet,
                               ckvc_err *err) CKVC_MUST_CHECK;
void policies_close(chosen_policies *p);
