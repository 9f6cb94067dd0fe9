/* Answers of `ckvc eval` on an embedded model: against the session's own losses and against a
 * decoder that takes one sequence a token at a time; items as token ids; what is summed up. */
#include "judge/eval/eval.h"
#include "formats/lines/answers.h"
#include "lib/model/decoder.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/load_tokenizer.h"

enum { N_ITEMS = 3, MAX_NEW = 9, WINDOW = 8 };

/* The model's own kind of text, so that answers are words. */
static const char *const texts[N_ITEMS] = {
    "The baker's colour is blue. The miller had three sons, and the youngest of them went out "
    "into the forest. The sailor's colour is red. When he had gone a little way he met an old "
    "man. What is the baker's colour? The baker's colour is",
    "Once upon a time there was a king who had a daughter, and she was so proud that no one was "
    "good enough for her. The weaver's number is 41. She laughed at every one of them. What is "
    "the weaver's number? The weaver's number is",
    "A soldier came marching along the road: left, right, left, right. He had his knapsack on "
    "his back and a sword at his side, for he had been to the wars. Where had he been? He had "
    "been to the"};
static const char *const questions[N_ITEMS] = {"What is", "What is", "Where had"};
static char answers_of[N_ITEMS][8] = {"blue", "41", "wars"}, *answer_at[N_ITEMS];

static bench b;
static model *m;
static tokenizer *tok;
static task_item tasks[N_ITEMS];

static int open_all(void **state) {
    b = bench_open(2);
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    OK(load_tokenizer("models/ckvc-tiny-4l", &tok, &err));
    for (int i = 0; i < N_ITEMS; i++) {
        static char ids[N_ITEMS][8] = {"facts/0", "facts/1", "story/0"};
        answer_at[i] = answers_of[i];
        char *text = ckvc_unconst(texts[i]);
        tasks[i] = (task_item){.id = ids[i],
                               .task = i < 2 ? "facts" : "story",
                               .group = "test",
                               .prompt = text,
                               .prompt_size = strlen(text),
                               .question_at = (size_t)(strstr(text, questions[i]) - text),
                               .reply_at = strlen(text),
                               .answers = &answer_at[i],
                               .n_answers = 1,
                               .metric = TASK_MATCH_ALL,
                               .max_new = MAX_NEW - (uint32_t)i,
                               .depth = NAN};
    }
    return 0;
}

static int close_all(void **state) {
    tokenizer_free(tok);
    model_close(m);
    bench_close(&b);
    return 0;
}

static eval_items *items_of(answer_query query) {
    const eval_text how = {.tok = tok, .shape = model_get_shape(m), .query = query};
    eval_items *items = NULL;
    OK(eval_items_make(&how, &(task_items){tasks, N_ITEMS}, &items, &err));
    return items;
}

static double budgets[] = {0.25, 24};
static const asked_policy policies[] = {
    {.kind = POLICY_SNAPKV}, {.kind = POLICY_KEYDIFF}, {.kind = POLICY_FASTKV}};
enum { N_WAYS = 7 };

static eval_options options_of(const eval_items *items, uint32_t batch) {
    setting made = setting_neutral();
    made.window = WINDOW;
    made.budgets = (setting_list){budgets, 2};
    return (eval_options){.model = m,
                          .be = b.be,
                          .tok = tok,
                          .items = items,
                          .choice = {.list = policies,
                                     .n = (N_WAYS - 1) / 2,
                                     .setting = made,
                                     .mode = CKVC_MODE_COUNT,
                                     .score = CKVC_SCORE_COUNT},
                          .batch = batch,
                          .memory = (size_t)1 << 32};
}

/* One way's answer by a decoder with one sequence: text, mean losses of it and the right answer. */
typedef struct oracle {
    char *text;
    double nll, reference_nll;
    uint32_t n;
    uint64_t entries;
} oracle;

static void feed(decoder *d, sequence *q, int32_t token, float *logits) {
    OK(decoder_step(d, &q, &token, 1, logits, NULL, &err));
}

static oracle answer_alone(const eval_items *items, size_t i, size_t way, const eval_options *o) {
    const prompt *p = &items->prompts.items[i];
    const eval_item *x = &items->items[i];
    const int32_t V = model_get_shape(m)->vocab;
    CKVC_AUTO(policy_sets_free_at) policy_sets *k = NULL;
    CKVC_AUTO(session_destroy_at) session *s = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    CKVC_AUTO_FREE float *behind = ckvc_alloc((size_t)V, sizeof *behind);
    CKVC_AUTO_FREE float *logits = ckvc_alloc((size_t)V, sizeof *logits);
    const policy_kept *kept = NULL;
    prefill_stats stats;
    oracle out = {0};
    int32_t tokens[MAX_NEW];
    session_limits limits = {.max_prompt = p->n_tokens, .max_window = WINDOW};
    OK(policy_sets_create(&o->choice, model_get_shape(m), &items->prompts, &k, &err));
    policy_sets_need(k, &limits);
    OK(sessions_create(m, limits, 1, &s, &err));
    OK(decoder_create(m, 1, &d, &err));
    OK(policy_sets_prefill(k, s, p, &stats, &err));
    if (way) { OK(policy_sets_decide(k, (way - 1) / 2, (way - 1) % 2, &kept, &err)); }
    for (int reference = 0; reference < 2; reference++) {
        CKVC_AUTO(sequence_free_at) sequence *q = NULL;
        OK(sequence_create(s, kept ? kept->sets : NULL, x->n_question + MAX_NEW, &q, &err));
        out.entries = (uint64_t)sequence_entries(q);
        OK(sessions_next(&s, 1, behind, NULL, &err));
        memcpy(logits, behind, (size_t)V * sizeof *logits);
        for (uint32_t t = 0; t < x->n_question; t++) {
            feed(d, q, p->tokens[p->n_tokens + t], logits);
        }
        const uint32_t most = reference ? x->n_reference : x->task->max_new;
        for (uint32_t t = 0; t < most; t++) {
            int32_t id = 0;
            for (int32_t v = 1; v < V; v++) { id = logits[v] > logits[id] ? v : id; }
            if (reference) { id = p->tokens[p->n_tokens + x->n_question + t]; }
            double *sum = reference ? &out.reference_nll : &out.nll;
            *sum += logits_loss(logits, V, id);
            if (!reference) { tokens[out.n++] = id; }
            if (!reference && model_shape_stops(model_get_shape(m), id)) { break; }
            if (t + 1 < most) { feed(d, q, id, logits); }
        }
    }
    size_t n;
    OK(tokenizer_decode(tok, tokens, out.n, true, &out.text, &n, &err));
    out.nll /= out.n;
    out.reference_nll /= x->n_reference;
    return out;
}

/* Every line of a run, in order, against the decoder with one sequence. The answer's losses come
 * from the same kernels row by row: 1e-9. The right answer's from another path (rows of a
 * continuation through OpenBLAS or our kernels): 2e-6 nats, as in tests/cli/generate.bats. */
static void is_what_one_sequence_gives(answer_query query) {
    CKVC_AUTO(eval_items_free_at) eval_items *items = items_of(query);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    const eval_options o = options_of(items, 2);
    size_t n = 0;
    OK(eval_answers(&o, &lines, &err));
    CKVC_AUTO(answers_free_at) answers *read = NULL;
    OK(answers_read_lines("a", lines.data, lines.size, &read, &err));
    for (; n < read->n; n++) {
        const answer_row r = read->rows[n];
        const size_t i = n / N_WAYS, way = n % N_WAYS;
        oracle want = answer_alone(items, i, way, &o);
        assert_string_equal(r.id, tasks[i].id);
        assert_string_equal(r.policy, way == 0  ? "full"
                                      : way < 3 ? "snapkv"
                                      : way < 5 ? "keydiff"
                                                : "fastkv");
        assert_true(way ? r.budget == budgets[(way - 1) % 2] : isnan(r.budget));
        assert_string_equal(r.answer, want.text);
        assert_int_equal(r.n_answer, want.n);
        assert_true(r.entries == (double)want.entries && r.query == query);
        assert_true(r.score == task_score(&tasks[i], r.answer));
        assert_true(fabs(r.nll - want.nll) < 1e-9);
        assert_true(fabs(r.reference_nll - want.reference_nll) < 2e-6);
        const uint32_t T = items->prompts.items[i].n_tokens;
        assert_true(r.n_tokens == T && r.n_question == items->items[i].n_question);
        assert_true(way == 0 ? r.share == 1 : r.share < 0.26 || r.budget == 24);
        /* "41" and "blue" are each other's wrong answers; the story has no other */
        assert_true(i < 2 ? r.control == 0 : isnan(r.control));
        free(want.text);
    }
    assert_int_equal(n, N_ITEMS * N_WAYS);
}

TEST(seen) { is_what_one_sequence_gives(ANSWER_SEEN); }

TEST(unseen) { is_what_one_sequence_gives(ANSWER_UNSEEN); }

static ckvc_status take(void *ctx, const void *lines, size_t size, ckvc_err *err) {
    (void)err;
    ckvc_buffer_append(ctx, lines, size);
    return CKVC_OK;
}

/* Memory does not grow with the items: lines that somebody keeps are held by nobody else. */
TEST(kept_lines_are_let_go) {
    CKVC_AUTO(eval_items_free_at) eval_items *items = items_of(ANSWER_SEEN);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0}, whole = {0}, kept = {0};
    eval_options o = options_of(items, 2);
    OK(eval_answers(&o, &whole, &err));
    o.keep = take;
    o.keep_ctx = &kept;
    OK(eval_answers(&o, &lines, &err));
    assert_int_equal(lines.size, 0);
    assert_true(lines.capacity < whole.size);
    assert_int_equal(kept.size, whole.size);
    assert_memory_equal(kept.data, whole.data, whole.size);
}

/* Seen or not, the model reads the same tokens. */
TEST(splits_at_the_question) {
    CKVC_AUTO(eval_items_free_at) eval_items *whole = items_of(ANSWER_SEEN);
    CKVC_AUTO(eval_items_free_at) eval_items *split = items_of(ANSWER_UNSEEN);
    for (int i = 0; i < N_ITEMS; i++) {
        const prompt *a = &whole->prompts.items[i], *c = &split->prompts.items[i];
        const uint32_t n_question = split->items[i].n_question;
        assert_true(n_question > 0 && whole->items[i].n_question == 0);
        assert_int_equal(a->n_tokens, c->n_tokens + n_question);
        assert_int_equal(a->n_continuation + n_question, c->n_continuation);
        assert_memory_equal(a->tokens, c->tokens,
                            (a->n_tokens + a->n_continuation) * sizeof *a->tokens);
        CKVC_AUTO_FREE char *text = NULL;
        size_t n;
        OK(tokenizer_decode(tok, c->tokens + c->n_tokens, n_question, true, &text, &n, &err));
        assert_string_equal(text + (*text == ' '), tasks[i].prompt + tasks[i].question_at);
    }
    assert_true(memcmp(whole->sha256, split->sha256, CKVC_SHA256_HEX) != 0);
}

/* What is too long is cut in the middle, unless made for a length; nothing left is refused. */
TEST(fits_the_context) {
    const model_shape *shape = model_get_shape(m);
    const size_t context = (size_t)model_shape_context(shape), size = 12 * context;
    CKVC_AUTO_FREE char *text = ckvc_alloc(size + 1, 1);
    for (size_t i = 0; i + 8 <= size; i += 8) { snprintf(text + i, 9, "%7zu ", i); }
    task_item item = tasks[0];
    item.prompt = text;
    item.prompt_size = item.reply_at = size;
    item.question_at = size - 64;
    eval_text how = {.tok = tok, .shape = shape};
    eval_items *items = NULL;
    const task_items one = {&item, 1};
    OK(eval_items_make(&how, &one, &items, &err));
    assert_int_equal(items->prompts.n_cut, 1);
    const prompt *p = &items->prompts.items[0];
    CKVC_AUTO_FREE char *left = NULL;
    size_t n_left;
    assert_int_equal(p->n_tokens + item.max_new, context);
    OK(tokenizer_decode(tok, p->tokens, p->n_tokens, true, &left, &n_left, &err));
    assert_memory_equal(left, text, 500); /* its beginning and its end, the question behind it */
    assert_memory_equal(left + n_left - 500, text + size - 500, 500);
    eval_items_free(items);
    how.longest = 100; /* beside a repetition */
    OK(eval_items_make(&how, &one, &items, &err));
    assert_int_equal(items->prompts.items[0].n_tokens, 100);
    eval_items_free(items);
    how.longest = 0;
    item.length = (uint32_t)context;
    SAYS(eval_items_make(&how, &one, &items, &err), CKVC_E_DATA, "more than the model's context");
    item.prompt_size = item.reply_at = 4;
    item.question_at = 2;
    OK(eval_items_make(&how, &one, &items, &err));
    assert_true(items->prompts.items[0].n_tokens < 8); /* no window is too long for an item */
    eval_items_free(items);
    /* a question and an answer that leave a text of no length no room */
    item.length = 0;
    item.prompt_size = item.reply_at = size;
    item.question_at = 20;
    SAYS(eval_items_make(&how, &one, &items, &err), CKVC_E_DATA, "more than the model's context");
}

RUN_TESTS(open_all, close_all)
