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

FUZZ {
    static const char *const names[] = {"qasper.jsonl", "multi_news.jsonl",           "trec.jsonl",
                                        "samsum.jsonl", "passage_retrieval_en.jsonl", "lcc.jsonl"};
    const uint32_t length = 256;
    if (size < 1) { return; }
    CKVC_AUTO(task_items_fini) task_items list = {0};
    const char *qa = NULL;
    task_options options = {
        .lengths = &length, .n_lengths = 1, .count = 3, .count_tokens = count_bytes};
    if (*data == 0 || *data == 7) {
        qa = fuzz_file("qa.json", data + 1, size - 1);
        options.qa = &qa;
        options.n_qa = 1;
    } else {
        const char *name = names[*data % (sizeof names / sizeof *names)];
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) { unlink(fuzz_path(names[i])); }
        fuzz_parts(data + 1, size - 1, name, "dataset2prompt.json");
        options.longbench = fuzz_folder();
    }
    const char *kind = *data == 0 ? "qa-1" : *data == 7 ? "qa-2" : "longbench";
    if (!fuzz_took(task_items_make(kind, &options, &list, err), err)) { return; }
    for (size_t i = 0; i < list.n; i++) { must_be_well(&list.items[i]); }
}
