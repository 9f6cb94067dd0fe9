/* Prompts that compile makes of texts where no manifest is named: what `manifest build` and
 * `manifest check --clean` do, in one step. The texts are those that come with the program, those
 * of --texts, or both. A manifest of the same bytes, given as --manifest with its record as
 * --leak-check, makes the same run. */
#pragma once

#include "cmd/common/opened_inputs.h"
#include "cmd/common/options.h"
#include "corpus/build/documents.h"
#include "lib/base/json.h"

typedef struct texts_options {
    opt_list texts, lengths;
    int64_t prompts;
    unsigned default_texts; /* 0: yes */
    unsigned query;         /* 0: seen, 1: unseen */
} texts_options;
extern const opt opts_texts[]; /* rows of texts_options */

/* --query of compile and of manifest build, whose structs have it as `query`. */
#define OPT_QUERY                                                                                  \
    OPT_ENUM("query", query, "seen|unseen",                                                        \
             "Let retrieval prompts end inside their first question (seen), or before it "         \
             "(unseen), so that a table is compiled for questions that are not there yet.")

/* The folders of the default texts, each of which is a source; the build takes one after the other
 * in turns, and a quarter of them is of languages other than English (default-texts/README.md). */
#define DEFAULT_TEXTS                                                                              \
    "prose", "plays", "manuals", "python", "programs", "data", "european", "scripts"

/* Adds the texts that come with the program to a collection. The status is CKVC_E_NOINPUT where
 * they are not beside the installed program. */
ckvc_status default_texts_add(corpus *c, ckvc_err *err) CKVC_MUST_CHECK;

/* The files of a run that hold its prompts and the record of their leak check. */
#define MADE_PROMPTS_FILE "prompts.jsonl"
#define MADE_CHECK_FILE   "prompts-check.json"

typedef struct made_prompts {
    ckvc_buffer bytes; /* of the manifest */
    json_t *record;    /* of its leak check */
} made_prompts;
void made_prompts_fini(made_prompts *made);
CKVC_AUTO_OF(made_prompts, made_prompts_fini)

/* Makes the prompts in memory: e->manifest, whose path is that of MADE_PROMPTS_FILE in `run` (which
 * may be NULL), and *out, which the caller releases. e must hold the model, and the text with which
 * a repetition is asked for. A prompt of split fit that shares text with one that chooses or judges
 * is left out. Says on stderr what was made, unless quiet, and warns where the tokenizer splits a
 * script into bytes. The status is CKVC_E_USAGE without a tokenizer and with lengths that the
 * model's context does not hold, and CKVC_E_DATA without enough text. */
ckvc_status prompts_make(const texts_options *o, const inputs_options *in, const char *run,
                         opened_inputs *e, made_prompts *out, ckvc_err *err) CKVC_MUST_CHECK;
