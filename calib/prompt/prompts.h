/* Prompts as calibration takes them: lines of a manifest that are tokenised, cut, and checked
 * against the model's context (formats/lines/manifest.md). */
#pragma once

#include "formats/lines/manifest.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "lib/model/model_spec.h"
#include "lib/token/chat_template.h"
#include "lib/token/tokenizer.h"

typedef struct prompt {
    const manifest_entry *entry;       /* borrowed from the manifest */
    int32_t *tokens;                   /* [n_tokens + n_continuation], owned by the list */
    uint32_t n_tokens, n_continuation; /* T, and the number of tokens behind them */
    /* How many of the tokens behind the prompt belong to later turns. They come first, and are fed
     * and not scored; the others are the C tokens of the continuation. */
    uint32_t n_later;
    bool cut;     /* whether it was shortened in the middle to max_tokens */
    bool heldout; /* whether it is held out: no fit sees it */
    /* Whether it is held out, and settings are chosen by it, so that it judges no table. */
    bool select;
    /* Whether --sample-prompts did not draw it (sample.h), so that it has no part in a logging
     * pass. */
    bool passed_over;
    uint64_t token_hash; /* XXH64 of T, C and the ids */
    /* The entry's document, where other prompts of the list are from it, too; else NULL. */
    const char *document;
} prompt;

typedef struct prompt_options {
    /* Only prompts of these splits. "heldout" means those that the manifest or `holdout` holds out,
     * without those of "select". */
    const char *const *splits;
    size_t n_splits;              /* 0: all */
    int64_t window, continuation; /* W, C */
    int64_t max_tokens; /* the most tokens of T and later turns together; 0: context - C */
    bool after_first;   /* whether a conversation's prompt ends behind its first user turn */
    bool skip_short;    /* whether prompts with T < W + 1 are dropped instead of refused */
    int64_t limit;      /* the most prompts; 0: all */
    double holdout;     /* the share F of prompts that are held out, by a hash of (seed, id) */
    /* The share of the held-out prompts that choose and do not judge, by another hash of (seed,
     * id). A manifest with prompts of split "select" has named them itself. */
    double select;
    uint64_t seed;
    chat_template chat; /* for "messages" */
} prompt_options;

typedef struct prompt_list {
    prompt *items;
    size_t n;
    size_t n_short, n_cut, n_heldout;      /* n_heldout includes those that choose */
    uint32_t max_tokens, max_continuation; /* the largest of the list */
} prompt_list;

/* Builds the list of prompts from a manifest; prompts_free frees it. The tokenizer may be NULL when
 * every prompt is given as ids. */
ckvc_status prompts_build(const manifest *m, const tokenizer *tok, const model_shape *shape,
                          const prompt_options *o, prompt_list **out,
                          ckvc_err *err) CKVC_MUST_CHECK;
void prompts_free(prompt_list *list);
CKVC_AUTO_OF(prompt_list, prompts_free)
/* Sets `select` of each prompt by the manifest's splits or o->select. */
void prompts_divide(prompt_list *list, const manifest *m, const prompt_options *o);
/* Takes the prompt at items[n] into the list and its counts. */
void prompts_add(prompt_list *list);
/* Returns the first 8 bytes, big-endian, of SHA-256(what, seed in decimal, LF, id): a place in an
 * order that depends on seed and id alone. `what` names the order and ends in LF; "" is the order
 * of the hold-out. */
uint64_t prompt_hash(const char *what, uint64_t seed, const char *id);
/* A prompt is held out when prompt_hash / 2^64 < holdout (formats.md), or when its manifest puts it
 * into the split "heldout" or "select". */
bool prompt_held_out(const manifest_entry *e, uint64_t seed, double holdout);
