/* The English tasks of LongBench (Bai et al., "LongBench: A Bilingual, Multitask Benchmark for Long
 * Context Understanding", ACL 2024) from a folder of the user's: NAME.jsonl as published, and
 * beside them LongBench's own dataset2prompt.json, whose prompts these are. Metrics, lengths of
 * answers and which tasks go without a chat template: its eval.py, dataset2maxlen.json and pred.py.
 */
#include <stdio.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"
#include "judge/tasks/task_kind.h"

enum {
    MAX_PROMPTS_FILE = 1 << 20,
    MAX_LINE_BYTES = 64 << 20,
    MAX_ANSWER_BYTES = 1 << 16,
    MAX_ANSWERS = 1000,
    /* of an item's answers together, where a score takes their length squared, or cubed */
    MAX_SUMMARY_BYTES = 1 << 14,
    MAX_CODE_BYTES = 1 << 12,
    UNIT_BYTES = 16 /* of either end of a prompt that is cut */
};

typedef struct longbench_file {
    char *path;
    json_t *prompts; /* dataset2prompt.json */
    const char *form;
    json_t *records;
} longbench_file;

static void close_longbench(void *file) {
    longbench_file *f = file;
    if (!f) { return; }
    json_decref(f->prompts);
    json_decref(f->records);
    CKVC_FREE(f->path, f);
}

/* A prompt's form has {context} once, {input} at most once, and no other brace. */
static bool good_form(const char *form) {
    int contexts = 0, inputs = 0;
    for (const char *at = form; (at = strpbrk(at, "{}")); at = strchr(at, '}') + 1) {
        if (strncmp(at, "{context}", 9) == 0) {
            contexts++;
        } else if (strncmp(at, "{input}", 7) == 0) {
            inputs++;
        } else {
            return false;
        }
    }
    return contexts == 1 && inputs <= 1;
}

static ckvc_status read_form(longbench_file *f, const char *folder, const char *name,
                             ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(folder, "dataset2prompt.json");
    CKVC_FAIL_IF(!ckvc_file_exists(path), err, CKVC_E_NOINPUT,
                 "%s: not there; it is LongBench's own, LongBench/config/dataset2prompt.json of "
                 "github.com/THUDM/LongBench",
                 path);
    CKVC_TRY(ckvc_json_read(path, MAX_PROMPTS_FILE, &f->prompts, err));
    f->form = json_string_value(json_object_get(f->prompts, name));
    CKVC_REFUSE_IF(
        !f->form || !good_form(f->form), err, path,
        "\"%s\" must be a text with {context} once, {input} at most once and no other brace", name);
    return CKVC_OK;
}

/* most: bytes of all together. */
static ckvc_status check_texts(const json_t *list, const char *where, const char *key, size_t most,
                               ckvc_err *err) {
    size_t n = 0;
    CKVC_REFUSE_IF(json_array_size(list) < 1 || json_array_size(list) > MAX_ANSWERS, err, where,
                   "\"%s\" must be an array of 1 to %d texts", key, MAX_ANSWERS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        CKVC_REFUSE_IF(!json_is_string(text) || json_string_length(text) > MAX_ANSWER_BYTES, err,
                       where, "\"%s\"[%zu] must be a text of at most %d bytes", key, i,
                       MAX_ANSWER_BYTES);
        n += json_string_length(text);
    }
    CKVC_REFUSE_IF(n > most, err, where,
                   "\"%s\" have %zu bytes together, at most %zu are compared; leave it out", key, n,
                   most);
    return CKVC_OK;
}

static ckvc_status read_record(longbench_file *f, const task_kind *kind, const ckvc_lines *line,
                               ckvc_err *err) {
    char where[512];
    json_error_t problem;
    snprintf(where, sizeof where, "%s:%u", f->path, line->number);
    CKVC_REFUSE_IF(line->n > MAX_LINE_BYTES, err, where, "line of %zu bytes; at most %d", line->n,
                   MAX_LINE_BYTES);
    json_auto_t *record = json_loadb(line->text, line->n, JSON_REJECT_DUPLICATES, &problem);
    CKVC_REFUSE_IF(!json_is_object(record), err, where, "not a JSON object%s%.200s",
                   record ? "" : ": ", record ? "" : problem.text);
    CKVC_REFUSE_IF(!json_is_string(json_object_get(record, "context")) ||
                       !json_is_string(json_object_get(record, "input")),
                   err, where, "\"context\" and \"input\" must be texts");
    const size_t most = kind->metric == TASK_ROUGE_L           ? MAX_SUMMARY_BYTES
                        : kind->metric == TASK_CODE_SIMILARITY ? MAX_CODE_BYTES
                                                               : SIZE_MAX;
    CKVC_TRY(check_texts(json_object_get(record, "answers"), where, "answers", most, err));
    if (kind->metric == TASK_CLASSIFICATION) {
        CKVC_TRY(check_texts(json_object_get(record, "all_classes"), where, "all_classes", SIZE_MAX,
                             err));
    }
    json_array_append(f->records, record);
    return CKVC_OK;
}

/* Of a folder that lacks the task's file: no records. */
static ckvc_status open_longbench(const task_kind *kind, const task_options *o, void **file,
                                  uint32_t *n, ckvc_err *err) {
    *n = 0;
    if (!o->longbench) { return CKVC_OK; }
    longbench_file *f = ckvc_calloc(1, sizeof *f);
    *file = f;
    CKVC_AUTO_FREE char *name = ckvc_format("%s.jsonl", kind->name);
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    f->records = json_array();
    f->path = ckvc_path_join(o->longbench, name);
    if (!ckvc_file_exists(f->path)) { return CKVC_OK; }
    CKVC_TRY(read_form(f, o->longbench, kind->name, err));
    CKVC_TRY(ckvc_map_open(f->path, &map, err));
    for (ckvc_lines line = ckvc_lines_of(map.data, (size_t)map.size);
         ckvc_next_line(&line) && json_array_size(f->records) < o->count;) {
        CKVC_TRY(read_record(f, kind, &line, err));
    }
    CKVC_REFUSE_IF(!json_array_size(f->records), err, f->path,
                   "no line; want one JSON object a line");
    *n = (uint32_t)json_array_size(f->records);
    return CKVC_OK;
}

/* The whole prompt; where its context ends. */
static size_t whole_prompt(const longbench_file *f, const json_t *record, ckvc_buffer *out) {
    size_t context_ends = 0;
    for (const char *at = f->form; *at;) {
        if (*at != '{') {
            ckvc_buffer_u8(out, (uint8_t)*at++);
        } else if (at[1] == 'c') {
            ckvc_buffer_text(out, json_string_value(json_object_get(record, "context")));
            context_ends = out->size;
            at += strlen("{context}");
        } else {
            ckvc_buffer_text(out, json_string_value(json_object_get(record, "input")));
            at += strlen("{input}");
        }
    }
    return context_ends;
}

static void copy_texts(const json_t *list, char ***out, size_t *n) {
    *out = ckvc_calloc(json_array_size(list), sizeof **out);
    for (; *n < json_array_size(list); ++*n) {
        (*out)[*n] = ckvc_strdup(json_string_value(json_array_get(list, *n)));
    }
}

/* A prompt that is too long loses its middle, as in pred.py (which cuts tokens; these are bytes).
 */
static void write_longbench(task_draft *d, uint32_t units) {
    const longbench_file *f = d->file;
    const json_t *record = json_array_get(f->records, d->record);
    task_item *item = d->item;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer whole = {0};
    const size_t question = whole_prompt(f, record, &whole), n = whole.size;
    const char *text = (const char *)whole.data;
    size_t head = (size_t)units * UNIT_BYTES, tail = n - head;
    item->question_at = question;
    d->full = head >= n || head >= n - head;
    if (d->full) {
        ckvc_buffer_append(&d->text, text, n);
    } else {
        head = ckvc_utf8_floor(text, head);
        while (tail < n && ((uint8_t)text[tail] & 0xC0) == 0x80) { tail++; }
        ckvc_buffer_append(&d->text, text, head);
        ckvc_buffer_append(&d->text, text + tail, n - tail);
        item->question_at = question > tail ? head + question - tail : head;
    }
    item->reply_at = d->text.size;
    copy_texts(json_object_get(record, "answers"), &item->answers, &item->n_answers);
    if (d->kind->metric == TASK_CLASSIFICATION) {
        copy_texts(json_object_get(record, "all_classes"), &item->classes, &item->n_classes);
    }
}

#define LONGBENCH(NAME, METRIC, TOKENS, FIRST_LINE, PLAIN)                                         \
    TASK(NAME, "longbench", write_longbench, 1, TOKENS, .metric = (METRIC),                        \
         .first_line = (FIRST_LINE), .plain = (PLAIN),                                             \
         .needs = "--longbench DIR with " NAME ".jsonl", .open = open_longbench,                   \
         .close = close_longbench)
const task_kind task_longbench[] = {
    LONGBENCH("narrativeqa", TASK_F1, 128, false, false),
    LONGBENCH("qasper", TASK_F1, 128, false, false),
    LONGBENCH("multifieldqa_en", TASK_F1, 64, false, false),
    LONGBENCH("hotpotqa", TASK_F1, 32, false, false),
    LONGBENCH("2wikimqa", TASK_F1, 32, false, false),
    LONGBENCH("musique", TASK_F1, 32, false, false),
    LONGBENCH("gov_report", TASK_ROUGE_L, 512, false, false),
    LONGBENCH("qmsum", TASK_ROUGE_L, 512, false, false),
    LONGBENCH("multi_news", TASK_ROUGE_L, 512, false, false),
    LONGBENCH("trec", TASK_CLASSIFICATION, 64, true, true),
    LONGBENCH("triviaqa", TASK_F1, 32, true, true),
    LONGBENCH("samsum", TASK_ROUGE_L, 128, true, true),
    LONGBENCH("passage_count", TASK_COUNT, 32, false, false),
    LONGBENCH("passage_retrieval_en", TASK_RETRIEVAL, 32, false, false),
    LONGBENCH("lcc", TASK_CODE_SIMILARITY, 64, false, true),
    LONGBENCH("repobench-p", TASK_CODE_SIMILARITY, 64, false, true),
    {0}};
