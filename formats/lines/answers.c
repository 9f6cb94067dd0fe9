/* See answers.h; what the keys mean is in answers.md. */
#include "formats/lines/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/text_lines.h"

#define LINE_MAX_BYTES ((size_t)64 << 20)

typedef struct reader {
    const char *path;
    uint32_t line;
    const json_t *o; /* the line's object */
    answer_row *row;
    ckvc_err *err;
} reader;

/* A rule of a line. */
#define MUST(r, holds, fmt, ...)                                                                   \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA, "%s:%u: " fmt, (r)->path, (r)->line, __VA_ARGS__)

typedef enum column_type {
    TEXT,         /* char * */
    TEXT_OR_NULL, /* null: NULL */
    COUNT,        /* uint32_t */
    COUNT_OR_0,   /* null or missing: 0, which is not written */
    REAL,         /* double */
    REAL_OR_NULL, /* null: NaN */
    REAL_IF_ANY   /* or missing: NaN, which is not written */
} column_type;

static const struct {
    const char *key;
    column_type type;
    size_t offset;
} columns[] = {
#define C(key, type, member)                                                                       \
    { key, type, offsetof(answer_row, member) }
    C("id", TEXT, id),
    C("task", TEXT, task),
    C("group", TEXT, group),
    C("model", TEXT, model),
    C("policy", TEXT, policy),
    C("metric", TEXT, metric),
    C("end", TEXT, end),
    C("answer", TEXT, answer),
    C("table", TEXT_OR_NULL, table),
    C("length", COUNT, n_tokens),
    C("question", COUNT_OR_0, n_question),
    C("aimed", COUNT_OR_0, aimed),
    C("tokens", COUNT, n_answer),
    C("depth", REAL_OR_NULL, depth),
    C("budget", REAL_OR_NULL, budget),
    C("entries", REAL, entries),
    C("share", REAL, share),
    C("bytes", REAL, bytes),
    C("score", REAL, score),
    C("control", REAL_IF_ANY, control),
    C("nll", REAL_OR_NULL, nll),
    C("reference_nll", REAL_IF_ANY, reference_nll),
    C("repeat_tokens", REAL_IF_ANY, repeat_tokens),
#undef C
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

bool answer_is_full(const answer_row *row) { return strcmp(row->policy, ANSWERS_FULL) == 0; }

/* ---- writing ---- */

static json_t *column_json(const answer_row *row, size_t i) {
    const void *at = (const char *)row + columns[i].offset;
    const char *text;
    uint32_t count;
    double real;
    switch (columns[i].type) {
    case TEXT:
    case TEXT_OR_NULL: text = *(char *const *)at; return text ? json_string(text) : json_null();
    case COUNT:
    case COUNT_OR_0:
        count = *(const uint32_t *)at;
        return count || columns[i].type == COUNT ? json_integer(count) : NULL;
    default:
        real = *(const double *)at;
        if (isnan(real) && columns[i].type == REAL_IF_ANY) { return NULL; }
        return real == floor(real) && fabs(real) < 1e15 ? json_integer((json_int_t)real)
                                                        : ckvc_json_real(real);
    }
}

void answers_append(ckvc_buffer *b, const answer_row *row) {
    json_auto_t *o = json_object();
    for (size_t i = 0; i < N_COLUMNS; i++) {
        json_t *v = column_json(row, i);
        if (v) { json_object_set_new(o, columns[i].key, v); }
    }
    json_object_set_new(o, "query", json_string(row->unseen ? "unseen" : "seen"));
    setting_write(o, SETTING_LINE, &row->setting, SETTING_SETS);
    ckvc_json_append(b, o);
}

/* ---- reading ---- */

static ckvc_status wrong(const reader *r, const char *key, const char *wanted) {
    static const char *const names[] = {"object", "array", "string", "whole number",
                                        "number", "true",  "false",  "null"};
    const json_t *got = json_object_get(r->o, key);
    return ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: \"%s\" is %s, wanted %s", r->path, r->line, key,
                     got ? names[json_typeof(got)] : "missing", wanted);
}

static ckvc_status get_column(const reader *r, size_t i) {
    const char *key = columns[i].key;
    const column_type type = columns[i].type;
    const json_t *v = json_object_get(r->o, key);
    const bool none = json_is_null(v), absent = !v || none;
    void *out = (char *)r->row + columns[i].offset;
    switch (type) {
    case TEXT:
    case TEXT_OR_NULL:
        if (type == TEXT_OR_NULL && none) { return CKVC_OK; }
        if (!json_is_string(v)) {
            return wrong(r, key, type == TEXT ? "a string" : "a string or null");
        }
        *(char **)out = ckvc_strdup(json_string_value(v));
        return CKVC_OK;
    case COUNT:
    case COUNT_OR_0:
        if (type == COUNT_OR_0 && absent) { return CKVC_OK; }
        if (!ckvc_json_is_count(v, UINT32_MAX)) {
            return wrong(r, key, "a whole number, 0 to 4294967295");
        }
        *(uint32_t *)out = (uint32_t)json_integer_value(v);
        return CKVC_OK;
    default:
        if (!((type >= REAL_OR_NULL && none) || (type == REAL_IF_ANY && !v) ||
              ckvc_json_is_finite(v))) {
            return wrong(r, key, type == REAL ? "a number" : "a number or null");
        }
        *(double *)out = absent ? NAN : json_number_value(v);
        return CKVC_OK;
    }
}

static ckvc_status get_others(const reader *r) {
    const json_t *query = json_object_get(r->o, "query");
    const char *said = json_is_string(query) ? json_string_value(query) : "";
    r->row->unseen = strcmp(said, "unseen") == 0;
    if (!r->row->unseen && strcmp(said, "seen") != 0) {
        return wrong(r, "query", "\"seen\" or \"unseen\"");
    }
    json_auto_t *without = json_copy(ckvc_unconst(r->o)); /* score lines have another "score" */
    json_object_del(without, "score");
    r->row->setting = setting_neutral();
    const setting_field *bad = setting_read(without, SETTING_LINE, &r->row->setting);
    if (bad) {
        char wanted[128], mark;
        const char *key = setting_key(bad, SETTING_LINE, &mark);
        setting_wanted(bad, mark, wanted, sizeof wanted);
        return wrong(r, key, wanted);
    }
    return CKVC_OK;
}

static bool is_share(double v) { return v >= 0 && v <= 1; }

static ckvc_status check_row(const reader *r) {
    const answer_row *row = r->row;
    const bool full = answer_is_full(row);
    MUST(r, is_share(row->score) && (isnan(row->control) || is_share(row->control)),
         "score %g and control %g, wanted both from 0 to 1", row->score, row->control);
    MUST(r, isnan(row->depth) || is_share(row->depth), "depth %g, wanted 0 to 1", row->depth);
    MUST(r, isnan(row->budget) == full && !(row->budget <= 0),
         "policy \"%s\" under budget %g, wanted one above 0, null for the full cache", row->policy,
         row->budget);
    MUST(r, row->n_tokens > 0 && row->entries >= 0 && fmod(row->entries, 1) == 0 && row->bytes >= 0,
         "length %u, entries %g and bytes %g, wanted a prompt and whole numbers of at least 0",
         row->n_tokens, row->entries, row->bytes);
    MUST(r,
         is_share(row->share) && (!full || row->share == 1) &&
             (row->share > 0) == (row->entries > 0),
         "share %g of entries %.0f, wanted 0 to 1, and all of the full cache", row->share,
         row->entries);
    MUST(r, row->unseen || row->n_question == 0, "%u tokens of a question that was seen",
         row->n_question);
    MUST(r, !row->table || ckvc_json_is_hex(json_object_get(r->o, "table"), CKVC_SHA256_HEX - 1),
         "\"table\" is %s, wanted a table's content id, 64 hexadecimal digits", row->table);
    return CKVC_OK;
}

static ckvc_status read_row(const reader *r) {
    const char *key;
    json_t *value;
    CKVC_FAIL_IF(!json_is_object(r->o), r->err, CKVC_E_DATA,
                 "%s:%u: not an object, wanted one row of `ckvc eval`", r->path, r->line);
    json_object_foreach(ckvc_unconst(r->o), key, value) {
        const setting_field *f = setting_of_key(SETTING_LINE, key);
        bool known = strcmp(key, "query") == 0 || (f && !(f->groups & SETTING_SETS));
        for (size_t i = 0; i < N_COLUMNS; i++) { known |= strcmp(key, columns[i].key) == 0; }
        MUST(r, known, "unknown key \"%s\", wanted a row of `ckvc eval`", key);
    }
    for (size_t i = 0; i < N_COLUMNS; i++) { CKVC_TRY(get_column(r, i)); }
    CKVC_TRY(get_others(r));
    return check_row(r);
}

ckvc_status answers_read_line(const char *path, uint32_t line, const char *text, size_t n,
                              answer_row *out, ckvc_err *err) {
    CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", path, line);
    json_auto_t *object = NULL;
    *out = (answer_row){.line = line};
    CKVC_FAIL_IF(n > LINE_MAX_BYTES, err, CKVC_E_DATA, "%s: line of %zu bytes, wanted at most %zu",
                 where, n, LINE_MAX_BYTES);
    CKVC_TRY(ckvc_json_parse(text, n, where, &object, err));
    return read_row(&(reader){path, line, object, out, err});
}

static int compare_texts(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int compare_rows(const void *pa, const void *pb) {
    const answer_row *a = *(const answer_row *const *)pa, *b = *(const answer_row *const *)pb;
    int c = strcmp(a->id, b->id);
    c = c ? c : strcmp(a->policy, b->policy);
    c = c ? c : compare_texts(a->table, b->table);
    c = c ? c : strcmp(a->model, b->model);
    c = c ? c : a->unseen - b->unseen;
    c = c ? c : (a->budget > b->budget) - (a->budget < b->budget);
    return c ? c : setting_compare(&a->setting, &b->setting, SETTING_SCORE);
}

static ckvc_status refuse_duplicates(const answers *a, ckvc_err *err) {
    CKVC_AUTO_FREE const answer_row **order = ckvc_alloc(a->n, sizeof(void *));
    for (size_t i = 0; i < a->n; i++) { order[i] = &a->rows[i]; }
    qsort(order, a->n, sizeof(void *), compare_rows);
    for (size_t i = 1; i < a->n; i++) {
        const uint32_t x = order[i - 1]->line, y = order[i]->line;
        CKVC_FAIL_IF(compare_rows(&order[i - 1], &order[i]) == 0, err, CKVC_E_DATA,
                     "%s:%u: item \"%s\", policy \"%s\", budget %g is on line %u already", a->path,
                     x > y ? x : y, order[i]->id, order[i]->policy, order[i]->budget,
                     x > y ? y : x);
    }
    return CKVC_OK;
}

ckvc_status answers_read(const char *path, answers **out, ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    *out = NULL;
    CKVC_TRY(ckvc_map_open(path, &map, err));
    return answers_read_lines(path, map.data, (size_t)map.size, out, err);
}

ckvc_status answers_read_lines(const char *path, const uint8_t *data, size_t n, answers **out,
                               ckvc_err *err) {
    CKVC_AUTO(answers_free_at) answers *a = ckvc_calloc(1, sizeof *a);
    *out = NULL;
    a->path = ckvc_strdup(path);
    for (ckvc_lines at = ckvc_lines_of(data, n); ckvc_next_line(&at);) {
        CKVC_GROW(a->rows, a->capacity, a->n + 1);
        /* counted before it is read: a half-read row is freed with the rest */
        CKVC_TRY(answers_read_line(path, at.number, at.text, at.n, &a->rows[a->n++], err));
    }
    CKVC_FAIL_IF(a->n == 0, err, CKVC_E_DATA, "%s: no rows, wanted the output of `ckvc eval`",
                 path);
    CKVC_TRY(refuse_duplicates(a, err));
    *out = ckvc_take(&a);
    return CKVC_OK;
}

void answer_row_fini(answer_row *row) {
    CKVC_FREE(row->id, row->task, row->group, row->model, row->policy, row->metric, row->end,
              row->table, row->answer);
}

void answers_free(answers *a) {
    if (!a) { return; }
    for (size_t i = 0; i < a->n; i++) { answer_row_fini(&a->rows[i]); }
    CKVC_FREE(a->rows, a->path, a);
}
