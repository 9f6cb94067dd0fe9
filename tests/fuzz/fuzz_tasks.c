/* A byte that chooses: 0 a file in SQuAD's JSON, 7 in HotpotQA's, else a task of LongBench: its
 * lines, NUL, dataset2prompt.json. What is accepted gives items whose parts lie in their prompts
 * and whose scores are within 0 and 1. */
#include "judge/tasks/task.h"
#include "tests/fuzz/fuzz.h"

static ckvc_status count_bytes(void *of, const char *text, size_t n, size_t *tokens,
                               ckvc_err *err) {
    (void)of, (void)text, (void)err;
    *tokens = (n + 3) / 4;
    return CKVC_OK;
}

static void must_be_well(const task_item *item) {
    must(item->prompt_size == strlen(item->prompt) && (item->prompt_size + 3) / 4 <= item->length);
    must(item->question_at <= item->reply_at && item->reply_at <= item->prompt_size);
    must(item->n_answers >= 1);
    static const char *const said[] = {"", "one. two", "1 Paragraph 2\n3"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const double score = task_score(item, said[i]);
        must(score >= 0 && score <= 1);
    }
    json_decref(task_item_json(item));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"qasper", "multi_news",           "trec",
                                        "samsum", "passage_retrieval_en", "lcc"};
    const uint32_t length = 256;
    if (size < 1) { return 0; }
    ckvc_err err = {0};
    CKVC_AUTO(task_items_fini) task_items list = {0};
    CKVC_AUTO_FREE char *name = NULL;
    const char *qa = NULL;
    task_options options = {
        .lengths = &length, .n_lengths = 1, .count = 3, .count_tokens = count_bytes};
    if (*data == 0 || *data == 7) {
        qa = fuzz_file("qa.json", data + 1, size - 1);
        options.qa = &qa;
        options.n_qa = 1;
    } else {
        const uint8_t *part;
        size_t at = 1, n;
        name = ckvc_format("%s.jsonl", names[*data % (sizeof names / sizeof *names)]);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            CKVC_AUTO_FREE char *other = ckvc_format("%s.jsonl", names[i]);
            (void)remove(fuzz_path(other));
        }
        if (fuzz_part(data, size, &at, &part, &n)) { fuzz_file(name, part, n); }
        if (fuzz_part(data, size, &at, &part, &n)) { fuzz_file("dataset2prompt.json", part, n); }
        options.longbench = fuzz_folder();
    }
    const ckvc_status st = task_items_make(*data == 0   ? "qa-1"
                                           : *data == 7 ? "qa-2"
                                                        : "longbench",
                                           &options, &list, &err);
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return 0;
    }
    for (size_t i = 0; i < list.n; i++) { must_be_well(&list.items[i]); }
    return 0;
}
