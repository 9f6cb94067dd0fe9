/* Needles: where they lie, how often, what surrounds them. */
#include "tests/unit/judge/tasks/task_fixture.h"
#include "tests/unit/temp_folder.h"

TEST(needle_lies_at_its_depth) {
    const double depths[] = {0, 0.1, 0.5, 0.9, 1};
    const uint32_t lengths[] = {256, 1024, 4096};
    task_options options = options_of(lengths, 3, 4);
    options.seed = 3;
    options.depths = depths;
    options.n_depths = 5;
    CKVC_AUTO(task_items_fini) task_items list = make_with("niah", &options);
    assert_int_equal(list.n, 3 * 5 * 4);
    for (size_t i = 0; i < list.n; i++) {
        const task_item *item = &list.items[i];
        const size_t begin = (size_t)(strstr(item->prompt, "\n\n") + 2 - item->prompt);
        const char *at = strstr(item->prompt + begin, item->answers[0]);
        assert_int_equal(item->length, lengths[i / 20]);
        assert_true(item->depth == depths[i / 4 % 5]);
        assert_int_equal(item->n_answers, 1);
        assert_int_equal(times_found(item->prompt, item->prompt_size, item->answers[0]), 1);
        const double place = (double)(at - item->prompt - (long)begin),
                     room = (double)(item->question_at - begin);
        assert_true(fabs(place - item->depth * room) < 160); /* a sentence and the needle */
    }
}

TEST(prompts_hit_their_length) {
    for (uint32_t length = 300; length < 20000; length = length * 3 + 1) {
        CKVC_AUTO(task_items_fini) task_items list = make_items("all", length, 2);
        for (size_t i = 0; i < list.n; i++) {
            const size_t tokens = item_tokens(&list.items[i]);
            if (tokens > length || tokens + 90 < length) {
                fail_msg("%s: %zu tokens", list.items[i].id, tokens);
            }
        }
    }
}

TEST(items_depend_on_seed_and_id_alone) {
    CKVC_AUTO(task_items_fini) task_items all = make_items("all", 700, 3);
    CKVC_AUTO(task_items_fini) task_items one = make_items("niah-multikey-2", 700, 2);
    size_t found = 0;
    for (size_t i = 0; i < all.n; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(all.items[i].id, all.items[k].id);
            assert_string_not_equal(all.items[i].prompt, all.items[k].prompt);
        }
        for (size_t k = 0; k < one.n; k++) {
            if (strcmp(all.items[i].id, one.items[k].id) == 0) {
                assert_string_equal(all.items[i].prompt, one.items[k].prompt);
                assert_string_equal(all.items[i].answers[0], one.items[k].answers[0]);
                found++;
            }
        }
    }
    assert_int_equal(found, 2);
}

/* Each answer once in the context, the keys asked for in the question, the answer not in it. */
TEST(answers_follow_from_the_context) {
    static const char *const tasks[] = {"niah",
                                        "niah-single-1",
                                        "niah-single-2",
                                        "niah-single-3",
                                        "niah-several",
                                        "niah-multikey-1",
                                        "niah-multikey-2",
                                        "niah-multikey-3",
                                        "niah-multivalue",
                                        "niah-multiquery"};
    for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
        CKVC_AUTO(task_items_fini) task_items list = make_items(tasks[t], 800, 6);
        for (const task_item *item = list.items; item < list.items + list.n; item++) {
            assert_int_equal(item->n_answers, t == 4 ? 3 : t < 8 ? 1 : 4);
            assert_true(item->question_at < item->reply_at && item->reply_at < item->prompt_size);
            for (size_t a = 0; a < item->n_answers; a++) {
                const char *answer = item->answers[a];
                assert_int_equal(times_found(item->prompt, item->question_at, answer), 1);
                assert_null(strstr(item->prompt + item->question_at, answer));
            }
            CKVC_AUTO_FREE char *said =
                ckvc_format("%s and %s", item->answers[0], item->answers[item->n_answers - 1]);
            const double share = item->n_answers > 1 ? 2.0 / (double)item->n_answers : 1;
            assert_true(fabs(task_score(item, said) - share) < 1e-12);
            assert_true(task_score(item, "nothing") == 0);
        }
    }
}

/* niah-multikey-2, -3: the context is lines of one form, whose keys and values all differ. */
TEST(distractors_differ) {
    CKVC_AUTO(task_items_fini) task_items words = make_items("niah-multikey-2", 2000, 2);
    for (const task_item *item = words.items; item < words.items + words.n; item++) {
        size_t n = 0;
        for (const char *at = item->prompt; (at = strchr(at, '-')); at++, n++) {
            if (at >= item->prompt + item->question_at) { break; }
            const char *first = at;
            while (islower((unsigned char)first[-1])) { first--; }
            const size_t size =
                (size_t)(at - first) + 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz");
            CKVC_AUTO_FREE char *key = ckvc_text_copy(first, size);
            assert_int_equal(times_found(item->prompt, item->question_at, key), 1);
        }
        assert_true(n > 40);
    }
    CKVC_AUTO(task_items_fini) task_items list = make_items("niah-multikey-3", 2000, 2);
    for (const task_item *item = list.items; item < list.items + list.n; item++) {
        size_t n = 0;
        for (const char *at = item->prompt; at < item->prompt + item->question_at; at++) {
            if (strspn(at, "0123456789abcdef") == 8 && at[8] == '-' && at[13] == '-') {
                char uuid[37] = {0};
                memcpy(uuid, at, 36);
                assert_int_equal(uuid[14], '4');
                assert_non_null(strchr("89ab", uuid[19]));
                assert_int_equal(times_found(item->prompt, item->question_at, uuid), 1);
                n++, at += 35;
            }
        }
        assert_true(n > 20 && n % 2 == 0);
    }
}

TEST(haystacks_of_a_file) {
    const char *path =
        put_text("hay.txt", "One  two three. Four\nfive six! Is that\n\nall 3.5 of it? Yes.");
    const uint32_t length = 200;
    task_options options = options_of(&length, 1, 3);
    options.haystack = path;
    CKVC_AUTO(task_items_fini) task_items list = make_with("niah-single-2", &options);
    for (size_t i = 0; i < list.n; i++) {
        const char *prompt = list.items[i].prompt;
        assert_non_null(strstr(prompt, "Four five six! "));
        assert_non_null(strstr(prompt, "all 3.5 of it? "));
        assert_non_null(strstr(prompt, "One two three. "));
    }
}

TEST(refusals) {
    uint32_t length = 20;
    task_options options = options_of(&length, 1, 1);
    refused("niah,nihil", &options, CKVC_E_USAGE, "no task \"nihil\"; there are all,needle,ruler,");
    refused("niah", &options, CKVC_E_DATA, "task niah: ");
    length = 80; /* of a group, what fits is there */
    CKVC_AUTO(task_items_fini) task_items some = make_items("copying,ruler", length, 1);
    bool copy = false, words = false;
    for (size_t i = 0; i < some.n; i++) {
        assert_non_null(some.items[i].prompt);
        copy |= strcmp(some.items[i].task, "copy") == 0;
        words |= strcmp(some.items[i].task, "common-words") == 0;
    }
    assert_true(copy && !words);
    options.haystack = put_text("empty.txt", "");
    refused("niah", &options, CKVC_E_DATA, "nothing but white space");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
