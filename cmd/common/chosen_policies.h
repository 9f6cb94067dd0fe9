/* The policies that `ckvc score` and `ckvc eval` look at. Both verbs take --table, --policy,
 * --equal-tokens, --budget and --bytes, and the options mean the same in both. */
#pragma once

#include "judge/policies/policy_sets.h"
#include "cmd/common/opened_inputs.h"
#include "formats/run/durable_output.h"

enum { MAX_TABLES = 64 }; /* the most tables that --table names */

typedef struct policies_options {
    opt_list tables, names;
    budget_list budget, bytes;
    bool equal_tokens;
} policies_options;
extern const opt opts_policies[]; /* rows of policies_options */
/* Prints every reference policy with its source. The columns say what decides whether policies
 * may stand in one column (whether a policy has seen the question, and whether it keeps exactly
 * as many entries as it is told), and what each costs beside the prefill. It is the `more` of a
 * verb (verb.h). */
void policies_explain(void);

/* A policy as --policy names it. */
typedef struct named_policy {
    char name[64]; /* without the formats, such as cake+fit */
    policy_kind kind;
    bool fitted, has_formats;
    cache_formats formats;
} named_policy;
/* Finds the policy that --policy means by `text`: a name, behind which @KEYS/VALUES or @BOTH may
 * say the formats in which it holds what it keeps. Another name, or format, is CKVC_E_USAGE, and
 * the message lists all names and offers the nearest one. */
ckvc_status policy_named(const char *text, named_policy *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Budgets in entries, and how what is kept under each is held. */
typedef struct held_budgets {
    double budgets[PROMPT_SETS_MAX_BUDGETS];
    cache_formats held[PROMPT_SETS_MAX_BUDGETS];
    uint32_t n;
    int32_t head_dim; /* of the model, set by the caller */
} held_budgets;
/* Finds what --bytes means. With tables [n], read from `paths`, it is what all of them say of these
 * byte shares. Without, it is as many entries as fit in the formats of --cache-keys and
 * --cache-values. CKVC_E_USAGE where tables do not have a byte share or say different things of it,
 * or where the whole cache takes no more. */
ckvc_status bytes_budgets(const budget_list *bytes, const inputs_options *inputs,
                          table_file *const *tables, const char *const *paths, size_t n,
                          held_budgets *out, ckvc_err *err) CKVC_MUST_CHECK;

typedef struct chosen_policies {
    table_file *tables[MAX_TABLES];
    size_t n_tables;
    /* First the policies that --policy names, each once for every table if it needs one; then
     * the tables. */
    asked_policy *list;
    size_t n;
    named_policy *named;  /* those that --policy names */
    setting_list budgets; /* borrowed: of the options, of the first table, or of by_bytes */
    held_budgets by_bytes;
    const cache_formats *held; /* of policy_choice: by_bytes.held, or NULL */
} chosen_policies;

/* Turns into tokens the text with which kvzip has a prompt repeated, if kvzip is among the
 * policies. This comes before the prompts are opened, because they are then cut to leave room
 * for their repetition. */
ckvc_status policies_open_kvzip(const policies_options *o, const inputs_options *inputs,
                                opened_inputs *e, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the tables, and lists the policies in their order. *out must be zero before, and the
 * caller releases it with policies_close. */
ckvc_status policies_open(const policies_options *o, const inputs_options *inputs,
                          const opened_inputs *e, chosen_policies *out,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Sets out->budgets to those of --bytes or --budget. If there are tables and the running verb was
 * given neither, they are the first table's, with the formats that it says, if no others are asked
 * for. Two policies that keep and hold the same are CKVC_E_USAGE. */
ckvc_status policies_budgets(const policies_options *o, const inputs_options *inputs,
                             const opened_inputs *e, chosen_policies *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Returns what decides the lines under these policies, as texts by name: the running verb's
 * options by their values, the model by its fingerprint, the tables by their content ids, and
 * the kernel and the program's version. This is a new reference, to which the verb adds its
 * other inputs. */
json_t *policies_settings(const chosen_policies *of, const opened_inputs *e);
/* Ends the lines of the running verb (durable_output_end). If no --out names a file, it prints
 * `lines`, also when they were stopped. If this process has made one part, it says how parts are
 * joined, unless quiet. */
ckvc_status policies_end_lines(durable_output *o, const ckvc_buffer *lines, ckvc_status st,
                               const ckvc_err *why, const char *printed, bool quiet,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Releases what policies_open and policies_budgets made; *p may be zero. */
void policies_close(chosen_policies *p);
