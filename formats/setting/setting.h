/* The settings of a measurement: how a prompt was looked at, how the kept sets were chosen and how
 * losses became rewards. One table of fields writes the settings into plans, shards, META and score
 * lines, reads them back and says where two measurements differ. Nothing else in the program spells
 * a key or compares field by field.
 *
 * A new setting is a field of the struct, a row of the table in setting.c, an option (cmd) and the
 * code that heeds it. A field is known when its bit in `unknown` is 0, so that a plain {0} is a
 * setting whose values are all zero. setting_neutral() gives the program's defaults. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/cache_format.h"
#include "lib/base/names.h"
#include "lib/base/record.h"
#include "lib/base/status.h"
#include "lib/policy/policy_parts.h"

#define SETTING_TEXT_SIZE 256 /* the size of a text in a setting, NUL included */

typedef struct setting_list {
    const double *v;
    uint32_t n;
} setting_list;

typedef struct setting {
    ckvc_alpha_kind alpha;
    ckvc_operator op; /* the table's operator, by which kept sets are chosen */
    ckvc_compute compute;
    uint32_t window;       /* W, tokens */
    uint32_t continuation; /* the continuation C has at most this many tokens */
    ckvc_mode mode;        /* of `ckvc score`: what its kept sets are; elsewhere the paper's */
    /* of `ckvc score`: by what positions are ranked; elsewhere the paper's */
    ckvc_score_kind score;
    /* The user turn of a conversation behind which the cache is compressed: the last turn, or the
     * first. In the latter case the later turns are asked of what is kept. */
    enum setting_turn { SETTING_TURN_LAST, SETTING_TURN_FIRST } compress_after;
    uint32_t keep_window; /* how many last positions are kept, whatever their score */
    double beta_bud;      /* the gate pays beta_bud / T for each candidate over the budget */
    uint64_t seed;
    ckvc_loss_reduction reduction;
    enum setting_loss { SETTING_NLL, SETTING_KL } loss; /* which loss rewards are made of */
    /* Lists are borrowed, except layer_budgets in a shard_header, which owns it. */
    setting_list budgets, grid[CKVC_SIDE_COUNT]; /* the axes of a table */
    /* [L] the budget of each layer; n is 0 when all layers have the same */
    setting_list layer_budgets;
    /* `floor`, `recent` and `repeat` belong to demand passes; in other passes they are 0 and "".
     * `floor` is the share of B that every head takes before the rest goes by rank; on a score line
     * it is the share that a head keeps at least. `recent` is how many last positions all heads
     * keep. `repeat` is the text before the repeated prompt; when it is "", there is no repeat pass
     * and the continuation's attention is what counts. */
    double floor;
    uint32_t recent;
    /* of a score line: the weight w of the demand from which a table's shares were made */
    double mix;
    /* of a score line: the largest ridge by which kept entries are fitted; 0: they are not */
    double ridge;
    /* How the keys and values of what is kept are held, where sets are judged: score, eval,
     * generate, compile. Records know no other format than float32. */
    cache_format cache_keys, cache_values;
    char repeat[SETTING_TEXT_SIZE];
    /* The next three belong to demand and score passes; in other passes they are 0. They say how
     * many positions of a head are logged, the version of their features, and how many numbers a
     * feature vector has, which the version and the model's heads decide. */
    uint32_t positions, features, n_features;
    /* of demand passes: of how many positions of the prompt, and of as many of the continuation,
     * query vectors are logged */
    uint32_t queries;
    /* bit i says that row i of the table was not given, as in META of other programs */
    uint32_t unknown;
} setting;
static inline cache_formats setting_formats(const setting *s) {
    return (cache_formats){s->cache_keys, s->cache_values};
}
/* CKVC_E_USAGE, which names the option, where heads of this size do not go into whole blocks or
 * cannot be rotated, or where values have a format of keys alone. */
ckvc_status cache_formats_check(cache_formats f, int32_t head_dim, ckvc_err *err) CKVC_MUST_CHECK;

/* The places where settings are written. Each has keys of its own. */
typedef enum setting_place {
    SETTING_PLAN,   /* run.json */
    SETTING_SHARD,  /* attributes */
    SETTING_META,   /* META of a table */
    SETTING_LINE,   /* score lines */
    SETTING_REPORT, /* runs in report.json */
    SETTING_PLACES
} setting_place;

/* What a setting decides; comparisons name the groups that must agree. */
typedef enum setting_group {
    SETTING_WINDOW = 1,    /* for whatever looks at prompts */
    SETTING_ATTENTION = 2, /* a prompt's attention statistics */
    SETTING_SCORE = 4,     /* the score under which sets are kept */
    SETTING_SCAN = 8,      /* all of a scan's numbers */
    SETTING_TABLE = 16,    /* what an entry of a table is */
    SETTING_MEASURE = 32,  /* losses and rewards */
    SETTING_LAYERS = 64,   /* which block a layer's records stand under */
    SETTING_PENALTY = 128, /* for the gate's rewards alone */
    SETTING_LOGGED = 256,  /* for rewards and kept sets; a scan has neither */
    SETTING_DEMAND = 512,  /* what a head's demand is; for demand passes alone */
    SETTING_SETS = 1024,   /* of a score line; it belongs to the policy as the policy's name does */
    SETTING_LEARNED = 2048, /* what a learned ranking is fitted to */
    SETTING_CACHE = 4096    /* like SETTING_SETS, and answers have it, too */
} setting_group;

enum { SETTING_LIST = RECORD_OTHER }; /* the type of a setting_list */

typedef struct setting_field {
    record_member m; /* named like its option without the dashes; messages use this name */
    double neutral;  /* the default; a list's is none or a default grid, a text's is "" */
    unsigned groups;
    /* The key in each place; NULL where the setting does not stand there. A mark may precede it.
     * "~key" is always written but may be missing when it is read. "?key" is written only where the
     * value is not neutral. "!key" is like "?key", and it must not be there when the value is
     * neutral. */
    const char *key[SETTING_PLACES];
    /* names a series of scores by the value (%s); with "?" in front only where it is not neutral */
    const char *title;
} setting_field;

extern const setting_field setting_fields[];
extern const size_t setting_n_fields;
/* Returns the key in a place without its mark, or NULL when there is none. *mark (which may be
 * NULL) becomes ' ', '~', '?' or '!'. */
const char *setting_key(const setting_field *f, setting_place place, char *mark);
const setting_field *setting_of_option(const char *option);
const setting_field *setting_of_key(setting_place place, const char *key);

/* Returns the program's defaults. */
setting setting_neutral(void);
bool setting_is_neutral(const setting_field *f, const setting *s);
void setting_reset(const setting_field *f, setting *s); /* puts the field to its neutral value */
/* marks the field as unknown from here on */
void setting_forget(const setting_field *f, setting *s);
/* Takes these groups out of a setting: their fields become neutral. */
void setting_without(setting *s, unsigned groups);
/* Returns the setting of a table: the fields that the table itself has, and for the rest what META
 * says. Budgets and grids are borrowed from the table; budgets by layer are not read. When `meta`
 * is NULL, META says nothing. */
setting setting_of_table(const ckvc_table *t, const json_t *meta);

/* ---- values ---- */
/* Sets a field of names by a name. It returns false when the name is none of them, or is the
 * neutral one under the mark '!'. */
bool setting_set_name(const setting_field *f, char mark, setting *s, const char *name);
/* Writes the value of a field that is no list as a text into `buffer`, and returns `buffer`. */
const char *setting_name(const setting_field *f, const setting *s, char *buffer, size_t size);
/* Writes what a series of scores is called by this setting ("W = 64"); returns false when that is
 * nothing. */
bool setting_title(const setting_field *f, const setting *s, char *out, size_t size);
/* Writes what a message says it wanted: "paper or visible", "a whole number, 1 to 1048576". */
void setting_wanted(const setting_field *f, char mark, char *out, size_t size);
/* Checks that all values are in range, those of lists included. Otherwise CKVC_E_DATA "WHERE:
 * attribute KEY is ..., must be ...". */
ckvc_status setting_check_values(const setting *s, setting_place place, const char *where,
                                 ckvc_err *err) CKVC_MUST_CHECK;

/* ---- JSON ---- */
/* the field's value; a new reference */
json_t *setting_json(const setting_field *f, const setting *s);
/* Writes the setting into an object under the place's keys, without the fields of the groups
 * `but`. */
void setting_write(json_t *o, setting_place place, const setting *s, unsigned but);
/* Writes all fields of `groups`, also those that are neutral. */
void setting_write_all(json_t *o, setting_place place, const setting *s, unsigned groups);
/* Reads a setting from an object. When a key is missing, its field becomes neutral if the key has a
 * mark, and unknown if it has none. Lists are left alone. Returns the first field whose value is
 * not allowed (the field is then unknown), or NULL when there is none. */
const setting_field *setting_read(const json_t *o, setting_place place, setting *s);

/* ---- comparison ---- */
/* Compares the fields of `groups` in the table's order, for sorting. An unknown field is equal to
 * any. */
int setting_compare(const setting *a, const setting *b, unsigned groups);
/* Compares `made`, which stands in the file `where` (or NULL), with `ours`, which belongs to `who`
 * ("this run"), in the fields of `groups`. At the first difference it returns CKVC_E_MISMATCH
 * "WHERE: was made with --OPTION X, WHO has Y; ADVICE". Advice that ends in "--" is completed with
 * the option and the value of `made`; NULL stands for no advice. */
ckvc_status setting_match(const setting *made, const char *where, const setting *ours,
                          const char *who, unsigned groups, const char *advice,
                          ckvc_err *err) CKVC_MUST_CHECK;
