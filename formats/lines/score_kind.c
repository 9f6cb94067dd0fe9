/* Names of policies: see score_kind.h. */
#include "formats/lines/score_kind.h"

#include <string.h>

static const char *const names[SCORE_KIND_COUNT] = {"table",
                                                    "identity",
                                                    "full",
                                                    "matched",
                                                    "recent",
                                                    "sink-recent",
                                                    "random",
                                                    "top-k",
                                                    "window",
                                                    "window-pooled",
                                                    "streamingllm",
                                                    "h2o",
                                                    "snapkv",
                                                    "pyramidkv",
                                                    "adakv",
                                                    "cake",
                                                    "expected-attention",
                                                    "tova",
                                                    "keydiff",
                                                    "kvzip",
                                                    "dynamickv",
                                                    "chunkkv",
                                                    "fastkv-selection",
                                                    "pooled",
                                                    "headkv",
                                                    "duoattention",
                                                    "no-utility",
                                                    "no-threshold",
                                                    "mean-gate",
                                                    "mean-pool",
                                                    "head-only",
                                                    "gate-only"};

const char *score_kind_name(score_kind kind) { return names[kind]; }

score_kind score_kind_named(const char *name) {
    int kind = 0;
    while (kind < SCORE_KIND_COUNT && strcmp(name, names[kind]) != 0) { kind++; }
    return (score_kind)kind;
}
