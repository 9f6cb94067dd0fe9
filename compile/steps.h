/* What both ways to a table do between their passes: checkpoints, tables, held-out scores, and the
 * end of a round. Internal to compile. */
#pragma once

#include "compile/compile.h"
#include "judge/score/score.h"

typedef struct steps {
    run_dir *run;
    const compile_options *o;
    compile_result *result;
    calibrate_options pass_options; /* of the pass in hand */
    table_file *table;              /* of the pass before; NULL: the start table, or none */
    prompt_list select, judges;     /* of the held-out prompts who chooses, who judges; items
                                       borrowed */
    heldout *scores;                /* of the judges under `table`; NULL: not measured */
} steps;

steps steps_of(run_dir *run, const compile_options *o, compile_result *result);
void steps_close(steps *s);

/* What `calibrate` would do where it logs what `options` says: the plan of a pass. */
plan steps_plan(const compile_options *o, const calibrate_options *options);
/* What the run logs from here on carries this plan. */
void steps_set_plan(run_dir *run, const plan *p);

/* A pass begins: the next of the result's, with number and name. The result owns it. */
compile_pass *steps_begin(steps *s, pass_kind kind, const char *name);
/* Writes the name of a checkpoint: "tables/pass-%02zu.ckvt" and a number to file. */
void steps_file(char file[48], const char *pattern, size_t number);
/* CKVC_E_STOPPED where a stop was asked for: between two checkpoints. */
ckvc_status steps_check_stop(const steps *s, ckvc_err *err) CKVC_MUST_CHECK;
/* Fits what passes of this number logged, over the table before. probe: META's, NULL by what was
 * fitted. *out is the caller's. */
ckvc_status steps_fit(const steps *s, size_t number, const char *probe, table_file **out,
                      ckvc_err *err) CKVC_MUST_CHECK;
/* Writes a table as a checkpoint. */
ckvc_status steps_publish(const steps *s, table_file *t, const char *file,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Reads a checkpoint whose bytes are those that the journal names. A table of another shape than
 * the run's is CKVC_E_DATA. *path is to be freed. */
ckvc_status steps_path(const steps *s, const char *file, char **path,
                       ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status steps_read_table(const steps *s, const char *file, table_file **out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* The table of the pass in hand takes the place of the one before, as it stands in its file. */
ckvc_status steps_take_table(steps *s, compile_pass *p, ckvc_err *err) CKVC_MUST_CHECK;

/* Policies of held-out prompts. */
typedef struct step_policies {
    const asked_policy *list;
    size_t n;
    ckvc_mode mode; /* of rules; CKVC_MODE_COUNT: as each has it */
} step_policies;
/* Scores policies on prompts as checkpoint `file`, behind the lines of another ("": none). */
ckvc_status steps_score(const steps *s, const prompt_list *prompts, const step_policies *policies,
                        const char *before, const char *file, ckvc_err *err) CKVC_MUST_CHECK;
/* Scores a table and rules (kinds, the last of which is POLICY_TABLE) on the prompts that judge, as
 * checkpoint `file`, and reads the scores. *out becomes NULL without such prompts. */
ckvc_status steps_judge(const steps *s, const table_file *table, const policy_kind *kinds,
                        ckvc_mode mode, const char *file, heldout **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
/* Judges the pass's table so, and says in the pass what was found. */
ckvc_status steps_judge_pass(steps *s, compile_pass *p, const policy_kind *kinds, ckvc_mode mode,
                             ckvc_err *err) CKVC_MUST_CHECK;

/* A round ends: its numbers, held against `start` (NULL: against identity in its own scores), are
 * those of the passes from first_pass on. */
void steps_end_round(steps *s, size_t first_pass, const heldout *start);
/* The round's last word goes into the journal, once. */
ckvc_status steps_note_round(steps *s, stop_rule stop, ckvc_err *err) CKVC_MUST_CHECK;
/* table.ckvt becomes the table of round result->best, byte for byte. */
ckvc_status steps_give_out(steps *s, ckvc_err *err) CKVC_MUST_CHECK;
