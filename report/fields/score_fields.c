/* Of scores: every series and comparison of policies; what a transfer costs; the paper's
 * diagnostics: attention that is left out against its bound, scores by prompt and head, damage by
 * risk, the worst tenth. Of answers to tasks: a bench for each model, and for the question seen or
 * not. */
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "report/fields/fields.h"

#define LENGTHS(m) AS(m, #m, WHEN(has_lengths), .omit = true)

MAKE(equal_in_of, difference, json_pack("s?", difference_equal_in(o)))
MAKE(judged_of, difference, json_string(difference_judged(o)))
MAKE(is_decided, difference, json_boolean(difference_decided(o)))

FIELDS(bootstrap_fields, bootstrap_ends, MEMBERS(lo, hi, replicates));
SHARED_FIELDS(difference_fields, difference,
              MEMBERS(source, undefined, standard_error, largest_share, kept_ratio, equal_tokens),
              MADE("equal_in", equal_in_of), AS(kind, "kind", .omit = true), LENGTHS(T_lo),
              LENGTHS(T_hi), AS(d.mean, "difference"), AS(d.lo, "lo"), AS(d.hi, "hi"),
              AS(kl.mean, "kl_difference"), AS(kl.lo, "kl_lo"), AS(kl.hi, "kl_hi"), MEMBERS(by_kl),
              {FIELD(bootstrap), .name = "bootstrap", .of = bootstrap_fields, WHEN(has_bootstrap),
               .omit = true},
              MEMBERS(n, n_documents, reward, reward_base, kept, kept_base, median),
              MADE("judged", judged_of), MADE("decided", is_decided));

MAKE(table_of, score_series, *o->table ? json_string(o->table) : json_null())
MAKE(by_layer_of, score_series, json_boolean(o->layer_budgets != 0))
static void fill_setting(json_t *o, const void *row) {
    setting_write_all(o, SETTING_LINE, &((const score_series *)row)->setting, SETTING_SCORE);
}
FIELDS(series_fields, score_series, MEMBERS(title, model, policy, budget), MADE("table", table_of),
       AS(continuation, "C"), LIST(taus, BY(n_taus)), MADE("by_layer", by_layer_of),
       {.fill = fill_setting});
FIELDS(base_fields, score_series, AS(title, "base"), AS(policy, "base_policy"),
       MADE("base_table", table_of), AS(taus, "base_taus", BY(n_taus)));
FIELDS(comparison_fields, comparison, MERGE(of, series_fields), MERGE(base, base_fields),
       MEMBERS(one_score), F_OBJECT(all, difference_fields),
       OBJECTS(kinds, n_kinds, difference_fields), OBJECTS(sources, n_sources, difference_fields),
       OBJECTS(lengths, n_lengths, difference_fields));

/* What every policy loses against what it keeps, one row for each table and reference, the one that
 * loses least. */
FIELDS(loss_fields, loss_row, MEMBERS(setting, budget, label, table, n, kept),
       AS(loss.mean, "loss"), AS(loss.lo, "lo"), AS(loss.hi, "hi"), AS(kl.mean, "kl"),
       AS(kl.lo, "kl_lo"), AS(kl.hi, "kl_hi"));

static json_t *files_of(const void *row) {
    const score_files *f = ((const score_numbers *)row)->files;
    json_t *list = json_array();
    for (size_t i = 0; i < f->n_files; i++) {
        CKVC_AUTO_FREE char *name = ckvc_path_name(f->files[i]->path);
        const json_int_t rows = (json_int_t)f->files[i]->n;
        json_array_append_new(list, json_pack("{s:s, s:I}", "file", name, "rows", rows));
    }
    return list;
}
FIELDS(file_fields, score_files, AS(dropped_seen, "prompts_used_in_calibration_left_out"),
       AS(dropped_split, "rows_of_other_splits_left_out"),
       AS(dropped_twice, "rows_in_several_files"), AS(n_rows, "rows"),
       AS(used_seen, "rows_used_in_calibration"));
#define LIST_OF(as, i)                                                                             \
    { FIELD(lists[i].of), .name = as, BY(lists[i].n), .of = comparison_fields }
SHARED_FIELDS(score_fields, score_numbers, MERGE(files, file_fields), MEMBERS(held_out_checked),
              MADE("files", files_of), OBJECTS(series, n_series, series_fields),
              OBJECTS(losses, n_losses, loss_fields), LIST_OF("against_identity", AGAINST_IDENTITY),
              LIST_OF("against_matched", AGAINST_MATCHED),
              LIST_OF("between_tables", BETWEEN_TABLES),
              LIST_OF("at_equal_tokens", AT_EQUAL_TOKENS),
              LIST_OF("at_other_tokens", AT_OTHER_TOKENS),
              LIST_OF("against_controls", AGAINST_CONTROLS),
              LIST_OF("between_scores", BETWEEN_SCORES));
