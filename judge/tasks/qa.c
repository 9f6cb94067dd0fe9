/* RULER's two tasks of question answering: the documents of a question among others, from a file in
 * SQuAD's JSON (an object whose "data" has articles) or HotpotQA's (an array of questions). Of
 * SQuAD the other paragraphs of the question's article come first among the others, as in RULER. */
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "judge/tasks/lexicon.h"
#include "judge/tasks/task_kind.h"

enum { SQUAD, HOTPOT, MAX_FILE = 512 << 20, NO_ARTICLE = -1 };

typedef struct qa_doc {
    char *text; /* first: they are sorted by it */
    int64_t article;
} qa_doc;

typedef struct qa_question {
    const char *question; /* of root */
    const char **answers;
    uint32_t n_answers, n_gold, *gold; /* documents */
} qa_question;

typedef struct qa_file {
    const char *path;
    json_t *root;
    qa_doc *docs; /* each once, in the order of their bytes */
    qa_question *questions;
    size_t n_docs, docs_room, n_questions, questions_room;
} qa_file;

static void close_qa(void *file) {
    qa_file *f = file;
    if (!f) { return; }
    for (size_t i = 0; i < f->n_docs; i++) { free(f->docs[i].text); }
    for (size_t i = 0; i < f->n_questions; i++) {
        CKVC_FREE(f->questions[i].answers, f->questions[i].gold);
    }
    json_decref(f->root);
    CKVC_FREE(f->docs, f->questions, f);
}

/* ---- reading: documents first, then the questions, which look theirs up ---- */
static void add_doc(qa_file *f, const char *text, int64_t article) {
    CKVC_GROW(f->docs, f->docs_room, f->n_docs + 1);
    f->docs[f->n_docs++] = (qa_doc){ckvc_strdup(text), article};
}

static void sort_docs(qa_file *f) {
    size_t n = 0;
    if (f->n_docs) { qsort(f->docs, f->n_docs, sizeof *f->docs, ckvc_order_text); }
    for (size_t i = 0; i < f->n_docs; i++) {
        if (n && strcmp(f->docs[n - 1].text, f->docs[i].text) == 0) {
            free(f->docs[i].text);
        } else {
            f->docs[n++] = f->docs[i];
        }
    }
    f->n_docs = n;
}

static uint32_t find_doc(const qa_file *f, const char *text) {
    const qa_doc key = {ckvc_unconst(text), 0};
    const qa_doc *found = bsearch(&key, f->docs, f->n_docs, sizeof key, ckvc_order_text);
    return (uint32_t)(found - f->docs);
}

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text && *text ? text : NULL;
}

static void add_answer(qa_question *q, const char *answer) {
    for (uint32_t i = 0; i < q->n_answers; i++) {
        if (strcmp(q->answers[i], answer) == 0) { return; }
    }
    q->answers = ckvc_realloc_array(q->answers, q->n_answers + 1, sizeof *q->answers);
    q->answers[q->n_answers++] = answer;
}

static qa_question *new_question(qa_file *f, const char *question) {
    CKVC_GROW(f->questions, f->questions_room, f->n_questions + 1);
    qa_question *q = &f->questions[f->n_questions++];
    *q = (qa_question){.question = question};
    return q;
}

/* Those of a paragraph that have an answer, which stands in it. */
static ckvc_status squad_questions(qa_file *f, const json_t *paragraph, const char *doc,
                                   ckvc_err *err) {
    size_t i, k;
    json_t *qa, *answer;
    json_array_foreach(ckvc_unconst(json_object_get(paragraph, "qas")), i, qa) {
        const char *question = text_of(qa, "question");
        CKVC_REFUSE_IF(!question, err, f->path, "a question of \"qas\" has no text \"question\"");
        if (json_is_true(json_object_get(qa, "is_impossible"))) { continue; }
        qa_question *q = NULL;
        json_array_foreach(json_object_get(qa, "answers"), k, answer) {
            const char *text = text_of(answer, "text");
            CKVC_REFUSE_IF(!text, err, f->path, "an answer to \"%.60s\" has no \"text\"", question);
            if (!strstr(doc, text)) { continue; }
            if (!q) { q = new_question(f, question); }
            add_answer(q, text);
        }
        if (q) {
            q->gold = ckvc_alloc(q->n_gold = 1, sizeof *q->gold);
            *q->gold = find_doc(f, doc);
        }
    }
    return CKVC_OK;
}

static ckvc_status squad_pass(qa_file *f, bool questions, ckvc_err *err) {
    size_t a, p;
    json_t *article, *paragraph;
    json_array_foreach(json_object_get(f->root, "data"), a, article) {
        json_array_foreach(json_object_get(article, "paragraphs"), p, paragraph) {
            const char *doc = text_of(paragraph, "context");
            CKVC_REFUSE_IF(!doc, err, f->path, "paragraph %zu of \"data\"[%zu] has no \"context\"",
                           p, a);
            if (questions) {
                CKVC_TRY(squad_questions(f, paragraph, doc, err));
            } else {
                add_doc(f, doc, (int64_t)a);
            }
        }
    }
    return CKVC_OK;
}

/* A document is its title and its sentences. */
static ckvc_status hotpot_doc(const qa_file *f, const json_t *pair, ckvc_buffer *out,
                              ckvc_err *err) {
    const char *title = json_string_value(json_array_get(pair, 0));
    const json_t *sentences = json_array_get(pair, 1);
    CKVC_REFUSE_IF(!title || !json_is_array(sentences), err, f->path,
                   "a document of \"context\" is not a title and an array of sentences");
    out->size = 0;
    ckvc_buffer_printf(out, "%s\n", title);
    for (size_t i = 0; i < json_array_size(sentences); i++) {
        const char *sentence = json_string_value(json_array_get(sentences, i));
        CKVC_REFUSE_IF(!sentence, err, f->path, "a sentence of \"%.60s\" is no text", title);
        ckvc_buffer_text(out, sentence);
    }
    return CKVC_OK;
}

static ckvc_status hotpot_pass(qa_file *f, bool questions, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer doc = {0};
    size_t i, k;
    json_t *item, *pair;
    json_array_foreach(f->root, i, item) {
        const char *question = text_of(item, "question"), *answer = text_of(item, "answer");
        const json_t *context = json_object_get(item, "context");
        CKVC_REFUSE_IF(
            !question || !answer || !json_array_size(context), err, f->path,
            "item %zu lacks a text \"question\", a text \"answer\" or the array \"context\"", i);
        qa_question *q = questions ? new_question(f, question) : NULL;
        if (q) {
            add_answer(q, answer);
            q->gold = ckvc_alloc(json_array_size(context), sizeof *q->gold);
        }
        json_array_foreach(ckvc_unconst(context), k, pair) {
            CKVC_TRY(hotpot_doc(f, pair, &doc, err));
            if (q) {
                q->gold[q->n_gold++] = find_doc(f, (const char *)doc.data);
            } else {
                add_doc(f, (const char *)doc.data, NO_ARTICLE);
            }
        }
    }
    return CKVC_OK;
}

static ckvc_status read_qa(qa_file *f, ckvc_err *err) {
    ckvc_status (*const pass)(qa_file *, bool, ckvc_err *) =
        json_is_array(f->root) ? hotpot_pass : squad_pass;
    CKVC_REFUSE_IF(!json_is_array(f->root) && !json_is_array(json_object_get(f->root, "data")), err,
                   f->path, "neither SQuAD's object with an array \"data\" nor HotpotQA's array");
    CKVC_TRY(pass(f, false, err));
    sort_docs(f);
    CKVC_TRY(pass(f, true, err));
    CKVC_REFUSE_IF(!f->n_questions, err, f->path, "no question that has an answer");
    return CKVC_OK;
}

static void shuffle_questions(qa_file *f, uint64_t seed, const char *task) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, ckvc_rng_key(task), 0);
    for (size_t i = f->n_questions; i > 1; i--) {
        const size_t k = ckvc_rng_below(&rng, i);
        const qa_question q = f->questions[k];
        f->questions[k] = f->questions[i - 1];
        f->questions[i - 1] = q;
    }
}

/* The one of the files that has the kind's format. */
static ckvc_status open_qa(const task_kind *kind, const task_options *o, void **file, uint32_t *n,
                           ckvc_err *err) {
    *n = 0;
    for (size_t i = 0; i < o->n_qa; i++) {
        json_auto_t *root = NULL;
        CKVC_TRY(ckvc_json_read(o->qa[i], MAX_FILE, &root, err));
        if (json_is_array(root) != (kind->variant == HOTPOT)) { continue; }
        qa_file *f = *file;
        CKVC_FAIL_IF(f, err, CKVC_E_USAGE,
                     "task %s: of %s and %s only one can be read; join them or leave one out",
                     kind->name, f->path, o->qa[i]);
        *file = f = ckvc_calloc(1, sizeof *f);
        f->path = o->qa[i];
        f->root = json_incref(root);
        CKVC_TRY(read_qa(f, err));
        shuffle_questions(f, o->seed, kind->name);
        *n = (uint32_t)f->n_questions;
    }
    return CKVC_OK;
}

/* ---- writing ---- */
/* Its own documents, then `units` others: those of its article first. */
static uint32_t choose_docs(task_draft *d, const qa_file *f, const qa_question *q, uint32_t units,
                            uint32_t *out) {
    const uint32_t n = (uint32_t)f->n_docs;
    const int64_t article = f->docs[q->gold[0]].article;
    uint32_t chosen = 0;
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(n, sizeof *order);
    CKVC_AUTO_FREE bool *taken = ckvc_calloc(n, sizeof *taken);
    lexicon_draw(&d->rng, n, order, n);
    for (uint32_t i = 0; i < q->n_gold; i++) {
        if (!taken[q->gold[i]]) { out[chosen++] = q->gold[i]; }
        taken[q->gold[i]] = true;
    }
    const uint32_t all = units < n - chosen ? chosen + units : n;
    for (int others = 0; others < 2; others++) {
        for (uint32_t i = 0; i < n && chosen < all; i++) {
            const bool near = article != NO_ARTICLE && f->docs[order[i]].article == article;
            if (!taken[order[i]] && near != (others == 1)) {
                out[chosen++] = order[i];
                taken[order[i]] = true;
            }
        }
    }
    return chosen;
}

static void write_qa(task_draft *d, uint32_t units) {
    const qa_file *f = d->file;
    const qa_question *q = &f->questions[d->record];
    CKVC_AUTO_FREE uint32_t *docs = ckvc_alloc(f->n_docs, sizeof *docs);
    const uint32_t n = choose_docs(d, f, q, units, docs);
    ckvc_rng_shuffle_u32(&d->rng, docs, n);
    ckvc_buffer_text(&d->text, "Here are documents to answer a question from.\n\n");
    for (uint32_t i = 0; i < n; i++) {
        ckvc_buffer_printf(&d->text, "Document %u:\n%s\n\n", i + 1, f->docs[docs[i]].text);
        if (d->kind->variant == SQUAD && docs[i] == q->gold[0]) {
            d->item->depth = n > 1 ? i / (n - 1.0) : 0;
        }
    }
    d->item->question_at = d->text.size;
    ckvc_buffer_printf(&d->text,
                       "Answer from the documents, in a few words and no sentence.\n\nQuestion: %s",
                       q->question);
    d->item->reply_at = d->text.size;
    ckvc_buffer_text(&d->text, " Answer:");
    for (uint32_t i = 0; i < q->n_answers; i++) { task_answer(d, q->answers[i]); }
    d->full = n == f->n_docs;
}

#define QA(NAME, VARIANT, WHOSE)                                                                   \
    TASK(NAME, "ruler", write_qa, 0, 32, .metric = TASK_MATCH_PART, .variant = (VARIANT),          \
         .needs = "--qa FILE in " WHOSE "'s JSON", .open = open_qa, .close = close_qa)
const task_kind task_qa[] = {QA("qa-1", SQUAD, "SQuAD"), QA("qa-2", HOTPOT, "HotpotQA"), {0}};
