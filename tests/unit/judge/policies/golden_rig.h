/* A golden file of kept sets, with its model and its prompts: one at a time. */
#pragma once

#include "judge/policies/policy_sets.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/sets_fixture.h"

enum { MOST_PROMPTS = 3 };

static struct rig {
    bench b;
    model *m;
    const model_shape *shape;
    json_t *root;
    int32_t *instruction;
    int64_t n_instruction;
    manifest_entry entries[MOST_PROMPTS];
    prompt items[MOST_PROMPTS];
    prompt_list prompts;
} rig;

static inline void rig_open(const char *model, const char *golden) {
    static char names[MOST_PROMPTS][8] = {"p0", "p1", "p2"};
    rig.b = bench_open(2);
    rig.root = golden_read(golden);
    OK(model_open_path(model ? model : json_string_value(json_object_get(rig.root, "model")),
                       rig.b.be, &rig.m, &err));
    rig.shape = model_get_shape(rig.m);
    rig.instruction = golden_ids(json_object_get(rig.root, "instruction"), &rig.n_instruction);
    const json_t *prompts = json_object_get(rig.root, "prompts");
    rig.prompts = (prompt_list){.items = rig.items, .n = json_array_size(prompts)};
    assert_in_range(rig.prompts.n, 1, MOST_PROMPTS);
    for (size_t i = 0; i < rig.prompts.n; i++) {
        int64_t n;
        int32_t *tokens = golden_ids(json_object_get(json_array_get(prompts, i), "tokens"), &n);
        rig.entries[i].id = names[i];
        rig.items[i] =
            (prompt){.entry = &rig.entries[i], .tokens = tokens, .n_tokens = (uint32_t)n};
        if (n > rig.prompts.max_tokens) { rig.prompts.max_tokens = (uint32_t)n; }
    }
}

static inline void rig_close(void) {
    for (size_t i = 0; i < rig.prompts.n; i++) { free(rig.items[i].tokens); }
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

/* Row l, column g of a JSON matrix. */
static inline json_t *cell_of(const json_t *rows, uint32_t l, uint32_t g) {
    return json_array_get(json_array_get(rows, l), g);
}

/* Positions of `want` that a set does not have. */
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
