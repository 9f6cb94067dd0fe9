/* Opens a golden file of prompts with its model, and takes one prompt at a time. */
#pragma once

#include "calib/prompt/prompts.h"
#include "tests/unit/golden_model.h"

enum { MOST_PROMPTS = 3 };

static struct rig {
    bench b;
    model *m;
    const model_shape *shape;
    json_t *root;
    int32_t *instruction;
    int64_t n_instruction;
    manifest_entry entries[MOST_PROMPTS];
    prompt_list *prompts;
    prompt *items; /* the list's */
} rig;

/* Opens a rig on b, which belongs to the rig from here on. If `model` is NULL, the file names
 * the model. */
static inline void rig_open(bench b, const char *model, const char *golden) {
    static char names[MOST_PROMPTS][8] = {"p0", "p1", "p2"};
    rig.b = b;
    rig.root = golden_read(golden);
    OK(model_open_path(model ? model : json_string_value(json_object_get(rig.root, "model")),
                       rig.b.be, &rig.m, &err));
    rig.shape = model_get_shape(rig.m);
    rig.instruction = golden_ids(json_object_get(rig.root, "instruction"), &rig.n_instruction);
    const json_t *prompts = json_object_get(rig.root, "prompts");
    rig.prompts = ckvc_calloc(1, sizeof *rig.prompts);
    rig.items = rig.prompts->items = ckvc_calloc(MOST_PROMPTS, sizeof *rig.items);
    assert_in_range(json_array_size(prompts), 1, MOST_PROMPTS);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        int64_t T, C;
        int32_t *tokens = golden_tokens(json_array_get(prompts, i), &T, &C);
        rig.entries[i].id = names[i];
        rig.items[i] = (prompt){.entry = &rig.entries[i],
                                .tokens = tokens,
                                .n_tokens = (uint32_t)T,
                                .n_continuation = (uint32_t)C};
        prompts_add(rig.prompts);
    }
}

static inline void rig_close(void) {
    prompts_free(rig.prompts);
    free(rig.instruction);
    json_decref(rig.root);
    model_close(rig.m);
    bench_close(&rig.b);
}

static inline json_t *of_prompt(size_t i, const char *key) {
    return json_object_get(json_array_get(json_object_get(rig.root, "prompts"), i), key);
}

static inline json_t *of_budget(const json_t *o, double budget) {
    char key[16];
    snprintf(key, sizeof key, "%.0f", budget);
    return json_object_get(o, key);
}

/* Returns row l, column g of a JSON matrix. */
static inline json_t *cell_of(const json_t *rows, uint32_t l, uint32_t g) {
    return json_array_get(json_array_get(rows, l), g);
}

/* Counts the positions of `want` that a set does not have. */
static inline uint32_t lacking(const kept_set *of, uint32_t g, const json_t *want) {
    const uint32_t end = of->offsets[g + 1];
    uint32_t lacks = 0, k = of->offsets[g];
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_int_t t = json_integer_value(json_array_get(want, i));
        while (k < end && of->positions[k] < t) { k++; }
        lacks += k == end || of->positions[k] != t;
    }
    return lacks;
}
