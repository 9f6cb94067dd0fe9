/* The page: the verdict, where it holds, what supports it; folded, everything else and where it
 * came from; and report.json. */
#include "lib/base/names.h"
#include "report/sections/sections.h"

TABLE(diagnostics_columns, report_numbers, OBJECTS(utilities, n_utilities, utility_columns),
      JSON_AS(peaks, "weights", OF(peaks_columns), BY(n_peaks)),
      JSON_AS(damages, "damage", OF(damage_columns), BY(n_damages)));
TABLE(report_columns, report_numbers, OBJECTS(tables, n_tables, table_columns),
      OBJECTS(pairs, n_pairs, pair_columns), OBJECTS(runs, n_runs, run_columns),
      OBJECT(scores, score_columns), JSON_AS(benches, "answers", OF(answer_columns), BY(n_benches)),
      OBJECTS(attention, n_attention, attention_columns), GROUP("diagnostics", diagnostics_columns),
      GROUP("transfers", transfer_columns));

json_t *report_json(const report_numbers *n) {
    json_t *o = columns_json(report_columns, n);
    json_object_set_new(o, "schema", json_string("ckvc-report-1"));
    json_object_set_new(o, "ckvc_version", json_string(CKVC_VERSION));
    return o;
}

/* One line a section, in the order of the page; a folded one shows its heading alone. */
typedef struct section {
    bool there, folded;
    const char *id, *word, *heading; /* its anchor; in the table of contents */
    section_writer *write;
} section;

static void contents(ckvc_buffer *b, const section *list, size_t n, bool folded) {
    const char *before = folded ? " <span>Folded:</span> " : "";
    EACH(section, s, list, n) {
        if (!s->there || s->folded != folded) { continue; }
        ckvc_buffer_printf(b, "%s<a href=\"#%s\">%s</a>", before, s->id, s->word);
        before = "";
    }
}

void report_page(const report_numbers *n, view *v) {
    const size_t tables = n->n_tables, runs = n->n_runs, files = n->in->scores.n_files,
                 asked = n->in->answers.n_files;
    const section sections[] = {
        {tables || files || !asked, false, "verdict", "Verdict", "Verdict", verdict_section},
        {where_known(n), false, "where", "Where it holds", "Where it holds and where not",
         where_section},
        {n->n_benches, false, "answers", "Answers", "Answers to tasks", answers_section},
        {n->n_pairs, false, "agreement", "Agreement", "Do tables agree?", agreement_section},
        {shares_known(n), false, "shares", "Budgets", "Budgets of heads", shares_section},
        {tables, false, "trust", "Entries", "How sure their entries are", trust_section},
        {files, true, "comparisons", "Comparisons", "Every comparison", comparisons_section},
        {n->n_transfers, true, "transfer", "Transfer", "What a transfer costs", transfer_section},
        {weights_known(n), true, "heads", "Head weights", "Head weights", weights_section},
        {gates_known(n), true, "gate", "Gate", "Gate thresholds", gate_section},
        {tables, true, "evidence", "Evidence", "What the choices rest on", evidence_section},
        {runs, true, "prompts", "Prompts", "Prompts", prompts_section},
        {savings_known(n), true, "memo", "Rollouts saved", "Rollouts saved", savings_section},
        {runs, true, "binding", "Can the gate act?", "Can the gate act?", binding_section},
        {n->n_attention, true, "attention", "Attention left out",
         "Attention that is left out, against the paper's bound", attention_section},
        {tables || files, true, "diagnostics", "Diagnostics", "The paper's diagnostics",
         diagnostics_section},
        {true, true, "provenance", "Provenance", "Where this came from", provenance_section},
        {true, true, "words", "Words", "What the words mean", words_section}};
    const size_t n_sections = sizeof sections / sizeof *sections;
    ckvc_buffer *b = &v->html;
    html_page_begin(b, "ckvc report");
    ckvc_buffer_text(b, "<header>\n");
    const char *deploy = "";
    EACH(table_numbers, t, n->tables, tables) {
        if (t->verdict.word == verdict_deploy) { deploy = say_more(deploy, ", ", "%s", t->tag); }
    }
    html_element(b, "h1", NULL, "%s",
                 tables == 1 ? say("This table: %s", n->tables->verdict.word)
                 : tables    ? say("To deploy: %s", *deploy ? deploy : "none of these tables yet")
                 : asked     ? "What do tasks lose?"
                             : "What do policies lose?");
    const struct {
        size_t n;
        const char *of;
    } read[] = {{tables, "table"}, {runs, "run"}, {files, "score file"}, {asked, "answer file"}};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer over = {0};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        if (!read[i].n) { continue; }
        ckvc_buffer_printf(&over, "%s%zu %s%s", over.size ? ", " : "", read[i].n, read[i].of,
                           read[i].n == 1 ? "" : "s");
    }
    page_note(v, "ckvc %s report over %s. All numbers: report.json.", CKVC_VERSION,
              (const char *)over.data);
    ckvc_buffer_text(b, "<nav>");
    contents(b, sections, n_sections, false);
    contents(b, sections, n_sections, true);
    ckvc_buffer_text(b, "</nav>\n</header>\n<main>\n");
    EACH(section, s, sections, n_sections) {
        if (!s->there) { continue; }
        html_section_begin(b, s->id, s->heading, s->folded);
        s->write(n, v);
        html_section_end(page(v), s->folded);
    }
    ckvc_buffer_text(b, "</main>\n");
    html_page_end(b);
}
