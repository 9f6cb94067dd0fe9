/* What both ways to a table do between their passes: checkpoints, tables, held-out scores, and the
 * end of a round. Internal to compile. */
#pragma once

#include "compile/compile.h"
#include "judge/score/score.h"

typedef struct steps {
    run_dir *run;
    const compile_options *o;
    compile_result *result;
    calibrate_options pass_options; /* options of the pass in hand */
    table_file *table; /* the table of the pass before; NULL: the start table, or none */
    /* The held-out prompts that choose, and those that judge. Their items are borrowed. */
    prompt_list select, judges;
    heldout *scores; /* scores of the judging prompts under `table`; NULL: not measured */
} steps;

/* Returns the steps of a run. All arguments are borrowed. The caller calls steps_close. */
steps steps_of(run_dir *run, const compile_options *o, compile_result *result);
void steps_close(steps *s);

/* Returns the plan of a pass: what `calibrate` would do if it logged what `options` says. */
plan steps_plan(const compile_options *o, const calibrate_options *options);
/* Makes everything that the run logs from here on carry this plan. */
void steps_set_plan(run_dir *run, const plan *p);

/* Begins a pass, which is the next of the result's, and gives it its number and name. The result
 * owns it. */
compile_pass *steps_begin(steps *s, pass_kind kind);
/* Writes the name of a pass's checkpoint to `file`, such as "tables/pass-01.ckvt". */
void steps_file(char file[48], const char *folder, size_t number, const char *ending);
/* Refuses formats of the cache that the model or the backend does not have, before anything is
 * logged. */
ckvc_status steps_check_formats(const steps *s, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns CKVC_E_STOPPED where a stop was asked for. It is called between two checkpoints. */
ckvc_status steps_check_stop(const steps *s, ckvc_err *err) CKVC_MUST_CHECK;
/* Fits what the passes of this number logged, over the table before. `probe` is META's; with NULL
 * it follows from what was fitted. The caller frees *out. */
ckvc_status steps_fit(const steps *s, size_t number, const char *probe, table_file **out,
                      ckvc_err *err) CKVC_MUST_CHECK;
/* Writes a table as a checkpoint. */
ckvc_status steps_publish(const steps *s, table_file *t, const char *file,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* steps_path returns the path of a checkpoint whose bytes are those that the journal names; the
 * caller frees *path. steps_read_table reads such a table. A table of another shape than the run's
 * is CKVC_E_DATA. */
ckvc_status steps_path(const steps *s, const char *file, char **path,
                       ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status steps_read_table(const steps *s, const char *file, table_file **out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Puts the table of the pass in hand in the place of the one before, as it stands in its file. */
ckvc_status steps_take_table(steps *s, compile_pass *p, ckvc_err *err) CKVC_MUST_CHECK;

/* Policies under which held-out prompts are scored. */
typedef struct step_policies {
    const asked_policy *list;
    size_t n;
    ckvc_mode mode;       /* the mode of rules; CKVC_MODE_COUNT: each rule has its own */
    setting_list budgets; /* n 0: the run's */
    /* [budgets] how what is kept is held; NULL: as the run's setting says */
    const cache_formats *held;
    score_progress job;
} step_policies;
/* Scores policies on prompts and publishes the lines as checkpoint `file`, behind the lines of the
 * checkpoint `before` ("": none). */
ckvc_status steps_score(const steps *s, const prompt_list *prompts, const step_policies *policies,
                        const char *before, const char *file, ckvc_err *err) CKVC_MUST_CHECK;
/* Scores a table and rules on the prompts that judge, publishes the lines as checkpoint `file`, and
 * reads them into *out. Under budgets at which the table fits entries, lines with its entries as
 * they are come before its own. Where budgets are in bytes, they are those of the table, and the
 * whole cache in 8 and 4 bits comes first. The last of `kinds` must be POLICY_TABLE. *out becomes
 * NULL where no prompt judges. */
ckvc_status steps_judge(const steps *s, const table_file *table, const policy_kind *kinds,
                        ckvc_mode mode, const char *file, heldout **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
/* Judges the pass's table in this way, and writes to the pass what was found. */
ckvc_status steps_judge_pass(steps *s, compile_pass *p, const policy_kind *kinds, ckvc_mode mode,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Writes to the result what the judged table is worth at each of its budgets. */
ckvc_status steps_judge_budgets(steps *s, ckvc_err *err) CKVC_MUST_CHECK;

/* Ends a round, whose numbers are those of the passes from first_pass on. Its table is compared
 * with `start` or, where that is NULL, with identity in its own scores. */
void steps_end_round(steps *s, size_t first_pass, const heldout *start);
/* Writes a note of how the round ended to the journal, once. */
ckvc_status steps_note_round(steps *s, stop_rule stop, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes table.ckvt the table of round result->best, byte for byte. */
ckvc_status steps_give_out(steps *s, ckvc_err *err) CKVC_MUST_CHECK;
