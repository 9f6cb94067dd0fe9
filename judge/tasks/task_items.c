/* Makes the items of tasks: finds the kinds by their names, fits prompts to their lengths, and
 * counts answers. See task.h. */
#include <math.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/utf8.h"
#include "lib/base/progress.h"
#include "judge/tasks/task_kind.h"

static const task_kind *const families[] = {task_needles, task_tracking, task_word_lists,
                                            task_records};
enum { N_FAMILIES = sizeof families / sizeof *families, ATTEMPTS = 32, MOST_UNITS = 1 << 22 };
static const double even_depths[] = {0, 0.25, 0.5, 0.75, 1};

/* ---- items ---- */
static void free_texts(char **list, size_t n) {
    for (size_t i = 0; i < n; i++) { free(list[i]); }
    free(list);
}

static void item_fini(task_item *item) {
    CKVC_FREE(item->id, item->prompt);
    free_texts(item->answers, item->n_answers);
    free_texts(item->classes, item->n_classes);
    *item = (task_item){0};
}

void task_items_fini(task_items *list) {
    for (size_t i = 0; i < list->n; i++) { item_fini(&list->items[i]); }
    free(list->items);
    *list = (task_items){0};
}

json_t *task_item_json(const task_item *item) {
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(item->id));
    json_object_set_new(o, "task", json_string(item->task));
    json_object_set_new(o, "group", json_string(item->group));
    json_object_set_new(o, "prompt", json_stringn(item->prompt, item->prompt_size));
    json_object_set_new(o, "answers",
                        ckvc_json_texts((const char *const *)item->answers, item->n_answers));
    if (item->n_classes) {
        json_object_set_new(o, "classes",
                            ckvc_json_texts((const char *const *)item->classes, item->n_classes));
    }
    json_object_set_new(o, "metric", json_string(task_metric_name(item->metric)));
    json_object_set_new(o, "depth", ckvc_json_real(item->depth));
    return JSON_NUMBERS(o, {"question_at", (double)item->question_at},
                        {"reply_at", (double)item->reply_at}, {"max_new", item->max_new},
                        {"length", item->length});
}

/* ---- one prompt ---- */
typedef struct maker {
    const task_options *options;
    haystack hay;
    task_draft draft;
    uint64_t n_past; /* items that earlier kinds could have made */
    bool by_name;    /* the kind was asked for by its own name, not by a group's */
    size_t room;     /* places in the list of items */
    ckvc_err *err;
} maker;

/* Writes the draft again with so many units. Every call of an attempt gets the same random
 * numbers. */
static ckvc_status write_units(maker *m, uint32_t units, uint32_t attempt, size_t *tokens) {
    task_draft *d = &m->draft;
    task_item *item = d->item;
    free_texts(item->answers, item->n_answers);
    free_texts(item->classes, item->n_classes);
    item->answers = item->classes = NULL;
    item->n_answers = item->n_classes = 0;
    item->depth = NAN;
    item->n_earlier = 0;
    d->text.size = 0;
    ckvc_rng_init(&d->rng, m->options->seed, ckvc_rng_key(item->id), attempt);
    d->kind->write(d, units);
    return m->options->count_tokens(m->options->counter, (const char *)d->text.data, d->text.size,
                                    tokens, m->err);
}

/* Finds the largest number of filler units whose prompt still fits in `length` tokens, and leaves
 * the draft written with that many. It guesses in proportion between a number that fits and one
 * that does not, and halves the range where that does not help. *least_tokens receives the tokens
 * of the prompt with the fewest units, which is too long where they are more than the length. */
static ckvc_status fit_length(maker *m, uint32_t attempt, size_t *least_tokens) {
    const uint32_t least = m->draft.kind->least_units, length = m->draft.length;
    uint32_t low = least, at = least,
             high = m->draft.kind->most_units ? m->draft.kind->most_units + 1 : MOST_UNITS;
    size_t low_tokens = 0, tokens;
    CKVC_TRY(write_units(m, low, attempt, &low_tokens));
    *least_tokens = low_tokens;
    if (low_tokens > length) { return CKVC_OK; }
    bool bounded = false; /* whether a number of units that was tried did not fit */
    double each = 0;      /* tokens of a unit */
    for (int step = 0; high - low > 1; step++) {
        const double guess = each > 0 ? low + (double)(length - low_tokens) / each : 2.0 * low + 8;
        at = step % 4 == 3 && bounded ? low + (high - low) / 2
             : guess < high - 1       ? (uint32_t)guess
                                      : high - 1;
        if (at <= low) { at = low + 1; }
        CKVC_TRY(write_units(m, at, attempt, &tokens));
        each = ((double)tokens - (double)low_tokens) / ((double)at - low);
        if (tokens <= length) {
            low = at;
            low_tokens = tokens;
        } else {
            high = at;
            bounded = true;
        }
    }
    return at == low ? CKVC_OK : write_units(m, low, attempt, &tokens);
}

static size_t times_in(const char *text, size_t n, const char *word) {
    size_t found = 0;
    const size_t size = strlen(word);
    for (const char *at = text; (at = memmem(at, n - (size_t)(at - text), word, size)); at++) {
        found++;
    }
    return found;
}

static bool answers_stand(const task_kind *kind, const task_item *item) {
    for (size_t i = 0; i < item->n_answers && kind->times; i++) {
        if (times_in(item->prompt, item->question_at, item->answers[i]) != kind->times) {
            return false;
        }
    }
    return true;
}

/* Makes an item. It makes none where the length is too short for a task that was not asked for by
 * its name. */
static ckvc_status make_item(maker *m, uint32_t length, double depth, uint32_t number,
                             task_item *item) {
    const task_kind *kind = m->draft.kind;
    task_draft *d = &m->draft;
    item->id = kind->placed ? ckvc_format("%s/%u/%g/%u", kind->name, length, depth, number)
                            : ckvc_format("%s/%u/%u", kind->name, length, number);
    item->task = kind->name;
    item->group = kind->group;
    item->metric = kind->metric;
    item->max_new = kind->max_new;
    item->length = length;
    item->first_line = kind->first_line;
    item->plain = kind->plain;
    d->item = item;
    d->depth = depth;
    d->length = length;
    d->hay = &m->hay;
    size_t least = 0;
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        CKVC_TRY(fit_length(m, attempt, &least));
        if (least > length) { break; }
        free(item->prompt);
        item->prompt = ckvc_text_copy((const char *)d->text.data, d->text.size);
        item->prompt_size = d->text.size;
        if (kind->placed) { item->depth = depth; }
        if (answers_stand(kind, item)) { return CKVC_OK; }
    }
    if (least > length && !m->by_name) {
        ckvc_warn("task %s is left out at %u tokens: it needs at least %zu", kind->name, length,
                  least);
        return CKVC_OK;
    }
    CKVC_FAIL_IF(least > length, m->err, CKVC_E_DATA,
                 "task %s: needs at least %zu tokens, and a prompt has %u; leave it out, or ask "
                 "for longer prompts",
                 kind->name, least, length);
    return ckvc_fail(m->err, CKVC_E_DATA,
                     "task item %s: in each of %d draws its answer also stood in the haystack; "
                     "take another haystack",
                     item->id, ATTEMPTS);
}

static size_t depths_of(const task_options *o, const task_kind *kind) {
    return !kind->placed     ? 1
           : o->n_depths > 0 ? o->n_depths
                             : sizeof even_depths / sizeof *even_depths;
}

static ckvc_status make_kind(maker *m, task_items *out) {
    const task_options *o = m->options;
    const double *depths = o->n_depths > 0 ? o->depths : even_depths;
    const size_t n_depths = depths_of(o, m->draft.kind);
    uint64_t n_tried = m->n_past;
    const uint32_t count = o->count;
    for (size_t l = 0; l < o->n_lengths; l++) {
        const size_t before = out->n;
        bool fits = true;
        for (size_t i = 0; i < n_depths * count && fits; i++) {
            CKVC_GROW(out->items, m->room, out->n + 1);
            task_item *item = &out->items[out->n++];
            *item = (task_item){0};
            CKVC_TRY(make_item(m, o->lengths[l], depths[i / count], (uint32_t)(i % count), item));
            fits = item->prompt != NULL;
            ckvc_progress_update(++n_tried, out->n);
        }
        while (!fits && out->n > before) { item_fini(&out->items[--out->n]); }
    }
    m->n_past += (uint64_t)o->n_lengths * n_depths * count;
    return CKVC_OK;
}

/* ---- names ---- */
static bool in_list(const char *names, const char *wanted) {
    for (const char *at = names;; at += strcspn(at, ",") + 1) {
        const size_t n = strcspn(at, ",");
        if (strlen(wanted) == n && memcmp(at, wanted, n) == 0) { return true; }
        if (!at[n]) { return false; }
    }
}

static bool is_asked(const char *names, const task_kind *kind) {
    return in_list(names, kind->name) || in_list(names, kind->group) || in_list(names, "all");
}

/* The number of items that the names ask for among these kinds. */
static uint64_t n_asked(const char *names, const task_options *o, const task_kind *kinds) {
    uint64_t n = 0;
    for (const task_kind *k = kinds; k->name; k++) {
        if (is_asked(names, k)) { n += (uint64_t)o->n_lengths * depths_of(o, k) * o->count; }
    }
    return n;
}

/* Reports an unknown name; `known` has the names that there are, between commas. */
static ckvc_status fail_unknown(const char *name, const ckvc_buffer *known, ckvc_err *err) {
    const char *all = (const char *)known->data;
    nearest near = {.word = name};
    for (const char *at = all; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        CKVC_AUTO_FREE char *one = ckvc_text_copy(at, n);
        nearest_try(&near, one);
        at += n;
    }
    CKVC_AUTO_FREE char *hint = nearest_hint(&near, "; did you mean \"", "\"?");
    return ckvc_fail(err, CKVC_E_USAGE, "no task \"%s\"; there are %s%s", name, all, hint);
}

/* Checks that every one of the names is known; if not, it lists those that are, each once. */
static ckvc_status check_names(const char *names, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer known = {0};
    ckvc_buffer_text(&known, "all");
    for (size_t i = 0; i < 2 * N_FAMILIES; i++) { /* first groups, then tasks */
        for (const task_kind *k = families[i % N_FAMILIES]; k->name; k++) {
            const char *name = i < N_FAMILIES ? k->group : k->name;
            if (!in_list((const char *)known.data, name)) {
                ckvc_buffer_printf(&known, ",%s", name);
            }
        }
    }
    for (const char *at = names;; at += strcspn(at, ",") + 1) {
        const size_t n = strcspn(at, ",");
        CKVC_AUTO_FREE char *name = ckvc_text_copy(at, n);
        if (!in_list((const char *)known.data, name)) { return fail_unknown(name, &known, err); }
        if (!at[n]) { return CKVC_OK; }
    }
}

static void maker_fini(maker *m) {
    haystack_fini(&m->hay);
    ckvc_buffer_fini(&m->draft.text);
}

ckvc_status task_items_make(const char *names, const task_options *options, task_items *out,
                            ckvc_err *err) {
    CKVC_AUTO(maker_fini) maker m = {.options = options, .err = err};
    *out = (task_items){0};
    CKVC_TRY(check_names(names, err));
    if (options->haystack) { CKVC_TRY(haystack_read(options->haystack, &m.hay, err)); }
    uint64_t total = 0;
    for (size_t f = 0; f < N_FAMILIES; f++) { total += n_asked(names, options, families[f]); }
    ckvc_progress_start("making items", "prompts", "prompts", total, 0);
    for (size_t f = 0; f < N_FAMILIES; f++) {
        for (m.draft.kind = families[f]; m.draft.kind->name; m.draft.kind++) {
            m.by_name = in_list(names, m.draft.kind->name);
            if (!is_asked(names, m.draft.kind)) { continue; }
            CKVC_TRY(make_kind(&m, out));
        }
    }
    ckvc_progress_clear();
    CKVC_FAIL_IF(!out->n, err, CKVC_E_DATA,
                 "tasks \"%s\": all are left out; ask for longer prompts", names);
    return CKVC_OK;
}

double task_score(const task_item *item, const char *answer) {
    const metric_texts texts = {(const char *const *)item->answers, item->n_answers,
                                (const char *const *)item->classes, item->n_classes};
    const char *line = answer + strspn(answer, "\n");
    CKVC_AUTO_FREE char *first =
        item->first_line ? ckvc_text_copy(line, strcspn(line, "\n")) : NULL;
    return metric_score(item->metric, &texts, first ? first : answer);
}
