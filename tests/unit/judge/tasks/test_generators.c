/* Each task but needles: the answer is derived from the context again, by other means. */
#include "lib/base/json.h"
#include "tests/unit/judge/tasks/task_fixture.h"

enum { WORD_BYTES = 32 };

static char *context_of(const task_item *item) {
    return ckvc_text_copy(item->prompt, item->question_at);
}

static bool among(const char *word, char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], word) == 0) { return true; }
    }
    return false;
}

TEST(variables_are_followed) {
    CKVC_AUTO(task_items_fini) task_items list = make_items("variable-tracking", 600, 20);
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        CKVC_AUTO_FREE char *context = context_of(item);
        char value[8], name[8], from[8], known[8][8] = {{0}};
        size_t n = 0, read = 0;
        assert_int_equal(sscanf(item->prompt + item->question_at,
                                "Which five variables have the value %5[0-9]", value),
                         1);
        assert_int_equal(times_found(context, strlen(context), value), 1);
        for (char *line = strtok(context, "\n"); line; line = strtok(NULL, "\n")) {
            if (sscanf(line, "Let %7[A-Z] = %7[A-Z0-9].", name, from) != 2) { continue; }
            read++;
            if (strcmp(from, n ? known[n - 1] : value) != 0) { continue; } /* the example's */
            assert_int_equal(strlen(name), 5);
            assert_true(among(name, item->answers, item->n_answers));
            memcpy(known[n++], name, sizeof name);
        }
        assert_int_equal(item->n_answers, 5);
        assert_true(n == 5 && read == 10);
    }
}

typedef struct tally {
    char word[WORD_BYTES];
    size_t times;
} tally;

static size_t add_tally(tally *list, size_t n, const char *word) {
    size_t k = 0;
    while (k < n && strcmp(list[k].word, word) != 0) { k++; }
    if (k == n) {
        list[n] = (tally){.times = 0};
        snprintf(list[n++].word, sizeof list[0].word, "%s", word);
    }
    list[k].times++;
    return n;
}

TEST(common_words_are_common) {
    static const struct {
        uint32_t length;
        size_t answers, often, seldom;
    } want[] = {{400, 3, 6, 1}, {2000, 10, 6, 1}, {6000, 10, 30, 3}};
    static tally words[7000];
    for (size_t w = 0; w < 3; w++) {
        CKVC_AUTO(task_items_fini) task_items list = make_items("common-words", want[w].length, 5);
        for (const task_item *item = list.items; item < list.items + list.n; item++) {
            CKVC_AUTO_FREE char *context = context_of(item);
            char *real = strstr(strstr(strstr(context, "\n\n") + 2, "\n\n"), "1. ");
            size_t n = 0, seen = 0, number;
            char word[WORD_BYTES];
            int step;
            for (; sscanf(real, " %zu. %31s%n", &number, word, &step) == 2; real += step) {
                assert_int_equal(number, ++seen);
                n = add_tally(words, n, word);
            }
            assert_int_equal(item->n_answers, want[w].answers);
            for (size_t k = 0; k < n; k++) {
                const bool common = among(words[k].word, item->answers, item->n_answers);
                assert_int_equal(words[k].times, common ? want[w].often : want[w].seldom);
            }
            assert_true(n > item->n_answers);
        }
    }
}

static int by_times(const void *a, const void *b) {
    const size_t x = ((const tally *)a)->times, y = ((const tally *)b)->times;
    return (x < y) - (x > y);
}

TEST(frequent_words_are_frequent) {
    static tally words[2000];
    const uint32_t short_length = 140; /* where the fourth would stand as often as the fifth */
    const task_options options = options_of(&short_length, 1, 1);
    refused("frequent-words", &options, CKVC_E_DATA, "");
    for (uint32_t length = 150; length < 9000; length *= 3) {
        CKVC_AUTO(task_items_fini) task_items list = make_items("frequent-words", length, 5);
        for (const task_item *item = list.items; item < list.items + list.n; item++) {
            CKVC_AUTO_FREE char *context = context_of(item);
            size_t n = 0;
            for (char *w = strtok(strstr(context, "\n\n"), " \n"); w; w = strtok(NULL, " \n")) {
                if (strcmp(w, "...") != 0) { n = add_tally(words, n, w); }
            }
            qsort(words, n, sizeof *words, by_times);
            for (size_t k = 0; k < 3; k++) {
                assert_true(among(words[k].word, item->answers, item->n_answers));
            }
            assert_true(n > 3 && words[2].times > words[3].times);
        }
    }
}

TEST(pairs_are_an_object) {
    CKVC_AUTO(task_items_fini) task_items list = make_items("kv-retrieval", 3000, 2);
    assert_int_equal(list.n, 10);
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        const char *at = strchr(item->prompt, '{');
        json_auto_t *object;
        json_t *value;
        const char *key, *asked = strchr(item->prompt + item->question_at, '"') + 1;
        OK(ckvc_json_parse(at, (size_t)(strchr(at, '}') + 1 - at), "context", &object, &err));
        CKVC_AUTO_FREE char *wanted = ckvc_text_copy(asked, 36);
        assert_string_equal(json_string_value(json_object_get(object, wanted)), item->answers[0]);
        size_t n = json_object_size(object), place = 0, others = 0;
        json_object_foreach(object, key, value) {
            if (strcmp(key, wanted) == 0) { place = others; }
            others++;
        }
        assert_true(n > 20 && fabs((double)place - item->depth * (double)(n - 1)) <= 1);
    }
}

TEST(lines_differ) {
    CKVC_AUTO(task_items_fini) task_items list = make_items("lines", 3000, 2);
    static tally names[1000];
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        CKVC_AUTO_FREE char *context = context_of(item);
        char asked[WORD_BYTES], name[WORD_BYTES], value[8];
        size_t n = 0, place = 0;
        assert_int_equal(
            sscanf(item->prompt + item->question_at, "How much does meter %31s", asked), 1);
        for (char *line = strtok(strstr(context, "\n\n"), "\n"); line; line = strtok(NULL, "\n")) {
            assert_int_equal(sscanf(line, "Meter %31s shows %5[0-9] litres.", name, value), 2);
            assert_int_equal(add_tally(names, n, name), n + 1);
            assert_true((strcmp(name, asked) == 0) == (strcmp(value, item->answers[0]) == 0));
            if (strcmp(name, asked) == 0) { place = n; }
            n++;
        }
        assert_true(n > 100 && fabs((double)place - item->depth * (double)(n - 1)) <= 1);
    }
}

TEST(copies_stand_in_the_text) {
    CKVC_AUTO(task_items_fini) task_items list = make_items("copy,repeat", 900, 3);
    assert_int_equal(list.n, 30);
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        const char *context = strstr(item->prompt, "\n\n") + 2;
        const bool copy = strcmp(item->task, "copy") == 0;
        if (!copy) { context = item->prompt; }
        const char *at = strstr(context, item->answers[0]);
        const double room = (double)(item->prompt + item->question_at - context);
        assert_true(fabs((double)(at - context) - item->depth * room) < 200);
        if (copy) {
            size_t words = 1;
            for (const char *c = item->answers[0]; *c; c++) { words += *c == ' '; }
            assert_int_equal(words, 8);
            assert_memory_equal(at - 21, "The club's motto is: ", 21);
        } else { /* what stands in front of the answer is the prompt's end */
            const size_t said = item->prompt_size - item->question_at;
            assert_memory_equal(at - 1 - said, item->prompt + item->question_at, said);
            assert_int_equal(at[-1], ' ');
            assert_true(said > 20);
        }
    }
}

/* A thing has one label wherever it stands, and that asked for has the answer. */
TEST(labels_are_learnt_from_others) {
    CKVC_AUTO(task_items_fini) task_items list = make_items("few-shot", 400, 40);
    static tally known[100];
    size_t n = 0;
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        CKVC_AUTO_FREE char *context = context_of(item);
        char asked[WORD_BYTES], thing[WORD_BYTES], label[WORD_BYTES], pair[WORD_BYTES];
        assert_int_equal(sscanf(item->prompt + item->question_at, "Thing: %31s", asked), 1);
        assert_int_equal(item->n_classes, 5);
        for (size_t c = 0; c < 5; c++) { assert_non_null(strstr(context, item->classes[c])); }
        for (const char *at = context; (at = strstr(at, "Thing: ")); at++) {
            assert_int_equal(sscanf(at, "Thing: %31s\nKind: %31s", thing, label), 2);
            assert_string_not_equal(thing, asked);
            snprintf(pair, sizeof pair, "%.15s=%.15s", thing, label);
            n = add_tally(known, n, pair);
        }
    }
    assert_int_equal(n, 60); /* 5 * 12 pairs, and none of a thing with another label */
    for (size_t i = 0; i < list.n; i++) {
        char asked[WORD_BYTES], pair[WORD_BYTES];
        assert_int_equal(
            sscanf(list.items[i].prompt + list.items[i].question_at, "Thing: %31s", asked), 1);
        snprintf(pair, sizeof pair, "%.15s=%.15s", asked, list.items[i].answers[0]);
        assert_int_equal(add_tally(known, n, pair), n);
        assert_true(task_score(&list.items[i], list.items[i].answers[0]) == 1);
        assert_true(task_score(&list.items[i], "thing") == 0);
    }
}

/* A length that is too short for one item of a task is left out for all of them. */
TEST(too_short_for_one_is_for_all) {
    size_t some = 0;
    for (uint32_t length = 220; length < 250; length += 3) {
        const uint32_t lengths[] = {length, 600};
        task_options options = options_of(lengths, 2, 2);
        options.seed = 7;
        CKVC_AUTO(task_items_fini) task_items list = make_with("records", &options);
        size_t pairs = 0;
        for (size_t i = 0; i < list.n; i++) {
            pairs += strcmp(list.items[i].task, "kv-retrieval") == 0;
        }
        assert_true(pairs == 10 || pairs == 20); /* five depths */
        some += pairs == 20;
    }
    assert_true(some > 0 && some < 10);
}

RUN_TESTS(NULL, NULL)
