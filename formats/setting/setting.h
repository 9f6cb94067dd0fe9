/* The settings of a measurement: under what a prompt was looked at, sets were kept and losses
 * became rewards. One table of fields writes them into plans, shards, META and score lines, reads
 * them back and says where two measurements differ; nothing else spells a key or compares field by
 * field.
 *
 * A new setting is a field of the struct, a row of the table in setting.c, an option (cmd) and the
 * code that heeds it. A field of 0 bits in `unknown` is known, so a plain {0} is a setting of
 * zeros; setting_neutral() is the program's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"
#include "lib/base/record.h"
#include "lib/base/status.h"
#include "lib/policy/policy_parts.h"

#define SETTING_TEXT_SIZE 256 /* of a text in a setting, NUL included */

typedef struct setting_list {
    const double *v;
    uint32_t n;
} setting_list;

typedef struct setting {
    ckvc_alpha_kind alpha;
    ckvc_operator op; /* of the table: how sets are kept */
    ckvc_compute compute;
    uint32_t window;       /* W, tokens */
    uint32_t continuation; /* C at most, tokens */
    ckvc_mode mode;        /* of a score: what its sets are ... */
    ckvc_score_kind score; /* ... and by what they are ranked; elsewhere the paper's */
    /* Behind which of a conversation's user turns its cache is compressed: the last, or the first,
     * whose later ones are then asked of what is kept. */
    enum setting_turn { SETTING_TURN_LAST, SETTING_TURN_FIRST } compress_after;
    uint32_t keep_window; /* last positions that are kept whatever their score */
    double beta_bud;      /* the gate pays beta_bud / T for each candidate over the budget */
    uint64_t seed;
    ckvc_loss_reduction reduction;
    enum setting_loss { SETTING_NLL, SETTING_KL } loss; /* what rewards are made of */
    /* Borrowed, but for layer_budgets of a shard_header. */
    setting_list budgets, grid[CKVC_SIDE_COUNT]; /* axes of a table */
    setting_list layer_budgets;                  /* [L] B of each layer, or none */
    /* Of a demand pass, elsewhere 0 and "": the share of B that every head takes before the rest
     * goes by rank (of a score line: that it keeps at least), how many last positions all heads
     * keep, and the text before the repeated prompt
     * ("": no repeat pass, the continuation's attention is what counts). */
    double floor;
    uint32_t recent;
    double mix; /* of a score line: the weight w of the demand that a table's shares are of */
    char repeat[SETTING_TEXT_SIZE];
    /* Of demand and score passes, elsewhere 0: positions of a head that are logged, version of
     * their features, numbers of one (of the version and the model's heads). */
    uint32_t positions, features, n_features;
    uint32_t unknown; /* bit i: row i of the table was not said (META of other programs) */
} setting;

/* Where settings stand, each place with keys of its own. */
typedef enum setting_place {
    SETTING_PLAN,   /* run.json */
    SETTING_SHARD,  /* attributes */
    SETTING_META,   /* of tables */
    SETTING_LINE,   /* score lines */
    SETTING_REPORT, /* runs in report.json */
    SETTING_PLACES
} setting_place;

/* What a setting decides; comparisons name the groups that must agree. */
typedef enum setting_group {
    SETTING_WINDOW = 1,    /* whatever looks at prompts */
    SETTING_ATTENTION = 2, /* a prompt's attention statistics */
    SETTING_SCORE = 4,     /* the score under which sets are kept */
    SETTING_SCAN = 8,      /* all of a scan's numbers */
    SETTING_TABLE = 16,    /* what an entry of a table is */
    SETTING_MEASURE = 32,  /* losses and rewards */
    SETTING_LAYERS = 64,   /* which block a layer's records stand under */
    SETTING_PENALTY = 128, /* the gate's rewards alone */
    SETTING_LOGGED = 256,  /* rewards and sets: a scan knows none of it */
    SETTING_DEMAND = 512,  /* what a head's demand is: of demand passes alone */
    SETTING_SETS = 1024,   /* of score lines: a policy's own, as its name is */
    SETTING_LEARNED = 2048 /* what a learned ranking is fitted to */
} setting_group;

enum { SETTING_LIST = RECORD_OTHER }; /* the type of a setting_list */

typedef struct setting_field {
    record_member m; /* named as its option, without dashes; messages call it so */
    double neutral;  /* lists: none, or a default grid; texts: "" */
    unsigned groups;
    /* NULL: not there. "~key": written always, may be missing. "?key": written only where it is not
     * neutral. "!key": and must not be there where it is. */
    const char *key[SETTING_PLACES];
    const char *title; /* of a series of scores, around its value; "?": only where not neutral */
} setting_field;

extern const setting_field setting_fields[];
extern const size_t setting_n_fields;
/* The key in a place without its mark, NULL: none; *mark (may be NULL): ' ', '~', '?' or '!'. */
const char *setting_key(const setting_field *f, setting_place place, char *mark);
const setting_field *setting_of_option(const char *option);
const setting_field *setting_of_key(setting_place place, const char *key);

/* The program's defaults. */
setting setting_neutral(void);
bool setting_is_neutral(const setting_field *f, const setting *s);
void setting_reset(const setting_field *f, setting *s);  /* to its neutral value */
void setting_forget(const setting_field *f, setting *s); /* it is unknown from here on */
/* What is left of a setting without these groups: their fields become neutral. */
void setting_without(setting *s, unsigned groups);
/* A table's: its own fields, and what META says of the rest; budgets and grids are borrowed,
 * budgets by layer are not read. meta NULL: says nothing. */
setting setting_of_table(const ckvc_table *t, const json_t *meta);

/* ---- values ---- */
/* A name into a field of names; false where it is none, or a neutral one under the mark '!'. */
bool setting_set_name(const setting_field *f, char mark, setting *s, const char *name);
/* The value of a field that is no list, as a text in room. */
const char *setting_name(const setting_field *f, const setting *s, char *buffer, size_t size);
/* What a series of scores is called by it ("W = 64"); false: nothing. */
bool setting_title(const setting_field *f, const setting *s, char *out, size_t size);
/* "paper or visible", "a whole number, 1 to 1048576": for messages. */
void setting_wanted(const setting_field *f, char mark, char *out, size_t size);
/* In range, lists included; else CKVC_E_DATA "WHERE: attribute KEY is ..., must be ...". */
ckvc_status setting_check_values(const setting *s, setting_place place, const char *where,
                                 ckvc_err *err) CKVC_MUST_CHECK;

/* ---- JSON ---- */
json_t *setting_json(const setting_field *f, const setting *s); /* its value */
/* Into an object under the place's keys, those of `but` (groups) left out. */
void setting_write(json_t *o, setting_place place, const setting *s, unsigned but);
/* All of `groups`, neutral or not. */
void setting_write_all(json_t *o, setting_place place, const setting *s, unsigned groups);
/* From an object. Absent: neutral for a "?key", else unknown; lists are left alone. Returns the
 * first field whose value cannot be (it is then unknown), NULL: none. */
const setting_field *setting_read(const json_t *o, setting_place place, setting *s);

/* ---- comparison ---- */
/* By fields of `groups` in the table's order; unknown fields are equal to any. */
int setting_compare(const setting *a, const setting *b, unsigned groups);
/* CKVC_E_MISMATCH that names the first field of `groups` in which `made` (of file `where`, or NULL)
 * differs from `ours` (of `who`, "this run"): "WHERE: was made with --OPTION X, WHO has Y; ADVICE".
 * An advice that ends in "--" goes on with the option and `made`'s value; NULL: none. */
ckvc_status setting_match(const setting *made, const char *where, const setting *ours,
                          const char *who, unsigned groups, const char *advice,
                          ckvc_err *err) CKVC_MUST_CHECK;
