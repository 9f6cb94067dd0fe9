/* Reads and writes the lines of `ckvc eval`. answers.md says what the keys mean. See answers.h. */
#include "formats/lines/answers.h"

#include <math.h>
#include <string.h>

#include "formats/lines/rows.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

const char *const answer_queries[] = {"seen", "unseen", "all-seen"};

static const record_member columns[] = {
#define C(key, rule, member) RECORD(answer_row, key, member, rule)
    C("id", ROW_TEXT, id),
    C("task", ROW_TEXT, task),
    C("group", ROW_TEXT, group),
    C("model", ROW_TEXT, model),
    C("policy", ROW_TEXT, policy),
    C("metric", ROW_TEXT, metric),
    C("end", ROW_TEXT, end),
    C("answer", ROW_TEXT, answer),
    C("table", ROW_TEXT_OR_NULL, table),
    C("length", ROW_COUNT, n_tokens),
    C("question", ROW_COUNT_OR_0, n_question),
    C("aimed", ROW_COUNT_OR_0, aimed),
    C("tokens", ROW_COUNT, n_answer),
    C("depth", ROW_REAL_OR_NULL, depth),
    C("budget", ROW_REAL_OR_NULL, budget),
    C("entries", ROW_REAL, entries),
    C("share", ROW_REAL, share),
    C("bytes", ROW_REAL, bytes),
    C("score", ROW_REAL, score),
    C("control", ROW_REAL_IF_ANY, control),
    C("nll", ROW_REAL_OR_NULL, nll),
    C("reference_nll", ROW_REAL_IF_ANY, reference_nll),
    C("repeat_tokens", ROW_REAL_IF_ANY, repeat_tokens),
#undef C
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

bool answer_is_full(const answer_row *row) {
    return strcmp(row->policy, ANSWERS_FULL) == 0 && cache_is_plain(setting_formats(&row->setting));
}

/* ---- writing ---- */

void answers_append(ckvc_buffer *b, const answer_row *row) {
    json_auto_t *o = json_object();
    record_write(columns, N_COLUMNS, row, o);
    json_object_set_new(o, "query", json_string(answer_queries[row->query]));
    if (row->whole) { json_object_set_new(o, "whole", json_true()); }
    setting_write(o, SETTING_LINE, &row->setting, SETTING_SETS);
    ckvc_json_append(b, o);
}

/* ---- reading ---- */

static ckvc_status get_others(const row_reader *r, answer_row *row) {
    const json_t *query = json_object_get(r->o, "query");
    const char *said = json_is_string(query) ? json_string_value(query) : "";
    row->whole = json_object_get(r->o, "whole");
    for (row->query = 0; strcmp(said, answer_queries[row->query]) != 0; row->query++) {
        if (row->query + 1 == ANSWER_QUERIES) {
            return row_wrong(r, "query", "\"seen\", \"unseen\" or \"all-seen\"");
        }
    }
    json_object_del(r->o, "score"); /* this key is a metric here, but a setting on score lines */
    return row_get_setting(r, &row->setting);
}

static bool is_share(double v) { return v >= 0 && v <= 1; }

static ckvc_status check_answer_line(const row_reader *r, const answer_row *row) {
    const bool full = answer_is_full(row);
    ROW_MUST(r, is_share(row->score) && (isnan(row->control) || is_share(row->control)),
             "score %g and control %g, wanted both from 0 to 1", row->score, row->control);
    ROW_MUST(r, isnan(row->depth) || is_share(row->depth), "depth %g, wanted 0 to 1", row->depth);
    ROW_MUST(r, isnan(row->budget) == full && !(row->budget <= 0),
             "policy \"%s\" under budget %g, wanted one above 0, null for the full cache",
             row->policy, row->budget);
    ROW_MUST(
        r, row->n_tokens > 0 && row->entries >= 0 && fmod(row->entries, 1) == 0 && row->bytes >= 0,
        "length %u, entries %g and bytes %g, wanted a prompt and whole numbers of at least 0",
        row->n_tokens, row->entries, row->bytes);
    ROW_MUST(r,
             is_share(row->share) && (!full || row->share == 1) &&
                 (row->share > 0) == (row->entries > 0),
             "share %g of entries %.0f, wanted 0 to 1, and all of the full cache", row->share,
             row->entries);
    ROW_MUST(r,
             row->query == ANSWER_UNSEEN || row->n_question == 0 ||
                 (row->query == ANSWER_SEEN && strcmp(row->group, "turns") == 0),
             "%u tokens of a question that was seen", row->n_question);
    ROW_MUST(r,
             !row->table || ckvc_json_is_hex(json_object_get(r->o, "table"), CKVC_SHA256_HEX - 1),
             "\"table\" is %s, wanted a table's content id, 64 hexadecimal digits", row->table);
    return CKVC_OK;
}

static int compare_texts(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int compare_rows(const void *pa, const void *pb) {
    const answer_row *a = *(const answer_row *const *)pa, *b = *(const answer_row *const *)pb;
    int c = strcmp(a->id, b->id);
    c = c ? c : strcmp(a->policy, b->policy);
    c = c ? c : compare_texts(a->table, b->table);
    c = c ? c : strcmp(a->model, b->model);
    c = c ? c : (int)a->query - (int)b->query;
    c = c ? c : (a->budget > b->budget) - (a->budget < b->budget);
    return c ? c : setting_compare(&a->setting, &b->setting, SETTING_SCORE | SETTING_CACHE);
}

static bool is_other(const char *key, const json_t *value) {
    const setting_field *f = setting_of_key(SETTING_LINE, key);
    return strcmp(key, "query") == 0 || (strcmp(key, "whole") == 0 && json_is_true(value)) ||
           (f && !(f->groups & SETTING_SETS));
}

static ckvc_status read_row(const row_reader *r, void *list) {
    answers *a = list;
    CKVC_GROW(a->rows, a->capacity, a->n + 1);
    /* counted before it is read, so that a row that is read in part is freed with the others */
    answer_row *row = &a->rows[a->n++];
    *row = (answer_row){.line = r->line};
    for (size_t i = 0; i < N_COLUMNS; i++) { CKVC_TRY(row_get(r, &columns[i], row)); }
    CKVC_TRY(get_others(r, row));
    return check_answer_line(r, row);
}

static const row_kind kind = {"ckvc eval", columns, N_COLUMNS, is_other, read_row, compare_rows};

ckvc_status answers_read(const char *path, answers **out, ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    *out = NULL;
    CKVC_TRY(ckvc_map_open(path, &map, err));
    return answers_read_lines(path, map.data, (size_t)map.size, out, err);
}

ckvc_status answers_read_lines(const char *path, const uint8_t *data, size_t n, answers **out,
                               ckvc_err *err) {
    CKVC_AUTO(answers_free_at) answers *a = ckvc_calloc(1, sizeof *a);
    const void *pair[2];
    *out = NULL;
    CKVC_TRY(rows_read(&kind, path, data, n, a, err));
    if (rows_repeat(&kind, a->rows, a->n, sizeof *a->rows, pair)) {
        const answer_row *first = pair[0], *again = pair[1];
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s:%u: item \"%s\", policy \"%s\", budget %g is on line %u already", path,
                         again->line, again->id, again->policy, again->budget, first->line);
    }
    *out = ckvc_take(&a);
    return CKVC_OK;
}

void answers_free(answers *a) {
    if (!a) { return; }
    for (size_t i = 0; i < a->n; i++) { record_fini(columns, N_COLUMNS, &a->rows[i]); }
    CKVC_FREE(a->rows, a);
}
