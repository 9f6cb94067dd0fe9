/* Writes the findings, in the order of the page. See words.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/words/words.h"

/* ---- numbers as text ---- */

/* Each of these functions returns a text that stays valid for the next 64 calls (one thread
 * makes a report), so that one line can hold many. A number that is not finite is "undefined". */
#define SAY_UNDEFINED "undefined"
#define SAY_REFITS    1000 /* an interval from fewer refits than this has their number beside it */

static const char *say_list(const char *fmt, va_list args) {
    enum { SLOTS = 64 };
    static char *slots[SLOTS];
    static unsigned next;
    char *text = NULL;
    if (vasprintf(&text, fmt, args) < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    char **slot = &slots[next++ % SLOTS];
    free(*slot); /* only now: an argument may stand in it */
    return *slot = text;
}

static const char *CKVC_PRINTF(1, 2) say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = say_list(fmt, args);
    va_end(args);
    return text;
}

/* Adds one more item, behind `joint`, to a list that begins as "". */
static const char *CKVC_PRINTF(3, 4)
    say_more(const char *list, const char *joint, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = say_list(fmt, args);
    va_end(args);
    return say("%s%s%s", list, *list ? joint : "", text);
}

static const char *say_fixed(double v, int decimals) {
    if (!isfinite(v)) { return SAY_UNDEFINED; }
    const char *digits = fabs(v) < 1e15 ? say("%.*f", decimals, v) : say("%.*g", decimals, v);
    if (digits[0] != '-') { return digits; }
    /* a minus sign proper, and none before zero */
    bool zero = strspn(digits + 1, "0.") == strlen(digits + 1);
    return say("%s%s", zero ? "" : "\u2212", digits + 1);
}

/* +0.0031 */
static const char *say_signed(double v, int decimals) {
    return say(v > 0 && isfinite(v) ? "+%s" : "%s", say_fixed(v, decimals));
}

/* 37.5% */
static const char *say_share(double v) {
    return isfinite(v) ? say("%.*f%%", v > 0 && v < 0.1 ? 1 : 0, 100 * v) : SAY_UNDEFINED;
}

/* 0.38%, 5%, 28.1% */
static const char *say_percent(double v) { return say("%.3g%%", 100 * v); }

static const char *with_ends(double mean, double lo, double hi, int decimals,
                             const char *(*one)(double v, int decimals)) {
    if (!isfinite(mean)) { return SAY_UNDEFINED; }
    if (!isfinite(lo) || !isfinite(hi)) { return say("%s (no interval)", one(mean, decimals)); }
    return say("%s (%s to %s)", one(mean, decimals), one(lo, decimals), one(hi, decimals));
}

/* +0.31 (-0.4 to +1.1) */
static const char *say_interval(double mean, double lo, double hi, int decimals) {
    return with_ends(mean, lo, hi, decimals, say_signed);
}

/* Like say_interval, without signs. */
static const char *say_spread(double mean, double lo, double hi, int decimals) {
    return with_ends(mean, lo, hi, decimals, say_fixed);
}

#define SAY_INTERVAL(x, decimals) say_interval((x).mean, (x).lo, (x).hi, decimals)
#define SAY_SPREAD(x, decimals)   say_spread((x).mean, (x).lo, (x).hi, decimals)

/* 96 tokens, 25% of T */
static const char *say_budget(double budget) {
    return budget < 1 ? say("%.4g%% of T", 100 * budget) : say("%g tokens", budget);
}

/* ", 312 refits", " (312 refits)", nothing where they are not few. */
static const char *say_few_refits(double n, bool brackets) {
    return n < SAY_REFITS ? say(brackets ? " (%.0f refits)" : ", %.0f refits", n) : "";
}

/* ---- findings ---- */

/* Returns the text for a terminal, which would obey control characters: '?' stands in their
 * place. */
static const char *without_controls(arena *r, const char *text) {
    char *copy = arena_keep(r, ckvc_strdup(text));
    for (char *c = copy; *c; c++) { *c = (unsigned char)*c < ' ' ? '?' : *c; }
    return copy;
}

/* Adds a sentence, with the verdict in front of it (NULL: none). */
static void add_finding(report_numbers *n, const char *section, const char *verdict,
                        const char *text) {
    arena *r = &n->in->arena;
    const char *word = verdict ? without_controls(r, verdict) : NULL;
    json_array_append_new(json_object_get(n->json, "findings"),
                          OBJECT({"section", J(section)}, {"verdict", J(word)},
                                 {"text", J(without_controls(r, text))}));
}

/* ---- numbers of report.json ---- */

/* Every element x, a const json_t *, of the list that an object has under a key. */
#define EACH_OF(x, o, key)                                                                         \
    for (size_t x##_i = 0; (x = json_array_get(json_object_get(o, key), x##_i)) != NULL; x##_i++)

/* ---- verdicts ---- */

static const char *passed(const json_t *leaks) {
    const bool scored = json_number_of(leaks, "scored_manifests") > 0;
    const double n = json_number_of(leaks, scored ? "scored_manifests" : "files");
    return say("Leak check passed: none of its %.0f prompts shares %.0f words in a row, a "
               "near-duplicate or an id with the %s%s%s%s.%s",
               json_number_of(leaks, "prompts"), json_number_of(leaks, "ngram"),
               n > 1 ? say("%.0f ", n) : "", scored ? "manifest" : "file", n > 1 ? "s" : "",
               scored ? " scored here" : " compared with",
               scored && json_number_of(leaks, "leaked_prompts") > 0
                   ? " Some share text with other evaluation files."
                   : "");
}

/* Says what came of a table's leak check. */
static const char *say_leak(const json_t *leaks) {
    static const char *const missing[][2] = {
        {"not compared", "Its prompts were checked for leaks, but not against all manifests that "
                         "it is scored on here"},
        {"in part", "Only a part of its prompts was checked for leaks"},
        {"not readable", "Its leak check cannot be read"},
        {"not checked", "Its prompts were not checked for leaks"}};
    const bool scored = json_number_of(leaks, "scored_manifests") > 0;
    const char *state = json_text_of(leaks, "state");
    if (strcmp(state, "passed") == 0) { return passed(leaks); }
    for (size_t k = 0; k < sizeof missing / sizeof *missing; k++) {
        if (strcmp(state, missing[k][0]) == 0) {
            return say("%s (`ckvc manifest check --against`, then --leak-check).", missing[k][1]);
        }
    }
    return say("At least %.0f of its %.0f prompts share text or ids with %s: this is no held-out "
               "result.",
               json_number_of(leaks, scored ? "leaked_in_scored" : "leaked_prompts"),
               json_number_of(leaks, "prompts"),
               scored ? "the prompts scored here" : "files that they were compared with");
}

static const char *word_of(const char *word, double needed) {
    return needed > 0 ? say("needs about %.0f more prompts that judge", needed) : word;
}

/* "the table is 0.484 better (0.353 to 0.615)" */
static const char *judged_by(const interval *d) {
    if (d->lo > 0 || d->hi < 0) {
        const bool better = d->lo > 0;
        return say("the table is %s %s (%s to %s)", say_fixed(fabs(d->mean), 3),
                   better ? "better" : "worse", say_fixed(better ? d->lo : -d->hi, 3),
                   say_fixed(better ? d->hi : -d->lo, 3));
    }
    return say("the table is ahead by %s%s", SAY_INTERVAL(*d, 3),
               d->lo < d->hi ? ", which decides nothing" : "");
}

/* Says what the base of a comparison loses and how far the table is from it, by KL where every
 * line has it: "snapkv, with a KL of 0.243: the table is 0.125 better (0.092 to 0.158)". `after`
 * stands between the two. */
static const char *say_beside(const char *base, const comparison *c, const char *after) {
    const difference *of = &c->all;
    const double lost = of->by_kl ? series_loss(&c->base, true).mean : -of->reward_base;
    return say("%s, with a %s of %s%s %s", base, of->by_kl ? "KL" : "loss", say_fixed(lost, 3),
               after, judged_by(of->by_kl ? &of->kl : &of->d));
}

static const char *say_against_identity(const verdict_need *need) {
    return !need->by ? "It was not scored beside identity, which needs no table."
           : !need->by->all.equal_tokens
               ? "It was not scored beside identity at as many entries: add matched to --policy."
               : say("Against %s.",
                     say_beside(say("%s (no table)", need->by->base.policy), need->by, ","));
}

static const char *against_reference(const verdict_need *need) {
    if (!need->by) {
        return "No simple reference was scored at as many entries: `ckvc score --policy "
               "snapkv,adakv`, with --equal-tokens where the table keeps fewer than it may.";
    }
    return say("The best simple reference at as many entries %s is %s.",
               difference_equal_in(&need->by->all),
               say_beside(need->by->base.policy, need->by, ":"));
}

/* Says what fitting entries brings, where this was scored. */
static const char *say_unfitted(const comparison *c) {
    return c ? say(" Against %s.", say_beside("the same entries without fitting", c, ",")) : "";
}

/* Says how a table at one budget stands against the whole cache in few bits; "": nobody scored
 * that. */
static const char *say_bytes(const verdict_at *x) {
    const byte_verdict *o = x->bytes;
    if (!o || !o->whole) { return ""; }
    const interval *d = difference_deciding(&o->by);
    const bool kl = o->by.by_kl, less = d->mean >= 0,
               decided = isfinite(d->lo) && (d->lo > 0 || d->hi < 0);
    const double lo = less ? d->lo : -d->hi, hi = less ? d->hi : -d->lo;
    return say(
        " At %s of the bytes it %s than the whole cache in %s does at %s: %s %s and %s, %s %s%s.",
        say_percent(isnan(o->asked) ? o->share : o->asked),
        !decided ? "is not decided whether it loses less"
        : less   ? "loses less"
                 : "loses more",
        o->whole_formats, say_percent(o->whole_share), kl ? "KL" : "losses",
        say_fixed(kl ? x->kl.mean : x->loss.mean, 4), say_fixed(series_loss(o->whole, kl).mean, 4),
        say_fixed(fabs(d->mean), 4), less ? "less" : "more",
        isfinite(lo) ? say(" (%s to %s)", say_fixed(lo, 4), say_fixed(hi, 4)) : "");
}

/* Says how much a table keeps at one budget. */
static const char *say_size(const verdict_at *x) {
    const double b = x->budget;
    const byte_verdict *o = x->bytes;
    const char *entries = b < 1 ? say("%.4g%% of the cache", 100 * b) : say("%g entries a head", b);
    return !o ? entries
              : say("%s of the bytes (%s in %s)",
                    say_percent(isnan(o->asked) ? o->share : o->asked),
                    b < 1 ? say("%.4g%% of the entries", 100 * b) : entries, o->formats);
}

/* Names a mode as --mode does. In files `uniform` is called `shared`. */
static const char *say_mode(ckvc_mode mode) {
    return mode == CKVC_MODE_SHARED ? "uniform" : ckvc_mode_name(mode);
}

/* Says why to deploy at a budget, or why not. */
static const char *say_reason(const verdict_at *x) {
    const ckvc_mode mode = x->of->setting.mode;
    const comparison *by = x->reference.by ? x->reference.by : x->gain.by;
    const size_t documents = by ? by->all.n_documents : 0;
    const bool decides =
        (!x->reference.by || x->reference.by->all.by_kl) && (!x->gain.by || x->gain.by->all.by_kl);
    return say(
        "at %s%s, on %.0f prompt%s%s, it loses %s nats per token more than the full cache%s. "
        "%s %s%s%s",
        say_size(x), mode == CKVC_MODE_HEADS ? "" : say(" in mode %s", say_mode(mode)), x->prompts,
        x->prompts == 1 ? "" : "s",
        documents && documents < by->all.n
            ? say(" of %zu document%s", documents, documents > 1 ? "s" : "")
            : "",
        say_fixed(x->loss.mean, 3),
        isnan(x->kl.mean) ? ""
                          : say(", and its KL%s is %s", decides ? ", which decides," : "",
                                say_fixed(x->kl.mean, 3)),
        against_reference(&x->reference), say_against_identity(&x->gain), say_unfitted(x->unfitted),
        say_bytes(x));
}

/* Says what stands against a table whatever its scores are; "" means that nothing does. */
static const char *objection_to(const report_numbers *n, const table_numbers *t,
                                const char *leaks) {
    const verdict_numbers *o = &t->verdict;
    const score_files *f = &n->in->scores;
    const char *text = "";
    if (o->n_budgets == 0) {
        text = f->n_files ? "The runs and scores that were given hold no line of this table: they "
                            "are of others."
                          : "No scores were given: name the run of compile that made it, or "
                            "make them by `ckvc score --table T.ckvt --policy "
                            "identity,matched,snapkv,adakv` on held-out prompts.";
    } else if (!o->held_out) {
        text = f->used_seen ? "It was scored on prompts that tables were fitted from: the "
                              "differences are too favourable."
                            : "Whether it was scored on prompts that it was fitted from is not "
                              "known: they are not marked as held out, and no run was given.";
    }
    return o->leak_passed ? text : say_more(text, " ", "%s", leaks);
}

static void verdicts(report_numbers *n) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const verdict_numbers *o = &t->verdict;
        json_t *leaks = json_object_get(t->json, "leak_check"),
               *verdict = json_object_get(t->json, "verdict"),
               *budgets = json_object_get(verdict, "budgets");
        json_object_set_new(leaks, "says", json_string(say_leak(leaks)));
        const char *title = t->in->title,
                   *objection = objection_to(n, t, json_text_of(leaks, "says"));
        json_object_set_new(verdict, "objection", json_string(objection));
        if (*objection) {
            add_finding(n, "verdict", word_of(o->word, o->needed), say("%s: %s", title, objection));
        }
        for (size_t b = 0; b < o->n_budgets; b++) {
            const verdict_at *x = &o->budgets[b];
            const char *reason = say_reason(x);
            json_object_set_new(json_array_get(budgets, b), "says", json_string(reason));
            add_finding(n, "verdict", word_of(x->word, x->needed), say("%s: %s", title, reason));
        }
    }
    if (n->n_tables == 0 && (n->in->scores.n_files || !n->in->answers.n_files)) {
        add_finding(n, "verdict", "no verdict",
                    "No table was given: name the .ckvt files that are to be judged, such as the "
                    "table.ckvt in the folder of a compile.");
    }
}

/* ---- agreement and entries ---- */

/* "0.71 at budget 25% of T (95% over prompts: 0.5 to 0.8; ...)" */
static const char *agreement_of(const json_t *heads) {
    const json_t *r = json_object_get(heads, "interval");
    const double lo = json_number_of(r, "lo"), hi = json_number_of(r, "hi"),
                 ceiling = json_number_of(r, "ceiling");
    const char *rho = say("%s at budget %s", say_fixed(json_number_of(heads, "overall"), 2),
                          say_budget(json_number_of(heads, "budget")));
    if (!isfinite(lo) || !isfinite(hi)) { return rho; }
    return say("%s (95%% over prompts%s: %s to %s; %s)", rho,
               say_few_refits(json_number_of(r, "replicates"), false), say_fixed(lo, 2),
               say_fixed(hi, 2),
               isfinite(ceiling)
                   ? say("two such corpora of one truth reach at most %s", say_fixed(ceiling, 2))
                   : "a corpus does not even agree with itself");
}

static bool has_shares(const report_numbers *n, const char *tag) {
    bool has = false;
    EACH(table_numbers, t, n->tables, n->n_tables) {
        has |= strcmp(t->in->tag, tag) == 0 && t->shape->share;
    }
    return has;
}

static void pairs(report_numbers *n) {
    const json_t *p, *h, *s;
    EACH_OF(p, n->json, "pairs") {
        const char *weights = "", *shares = "", *a = json_text_of(p, "a"),
                   *b = json_text_of(p, "b");
        const bool by_shares = has_shares(n, a) || has_shares(n, b);
        EACH_OF(h, p, "head") {
            /* these weights decide nothing */
            if (by_shares && isnan(json_number_of(h, "overall"))) { continue; }
            weights = say_more(weights, "; ", "%s", agreement_of(h));
        }
        if (*weights) {
            add_finding(n, "agreement", NULL,
                        say("Head weights of %s and %s, Spearman's ρ: %s.", a, b, weights));
        }
        EACH_OF(s, p, "shares") {
            const double lo = json_number_of(s, "lo"), hi = json_number_of(s, "hi");
            const char *ends =
                isfinite(lo) ? say("%s to %s", say_fixed(lo, 2), say_fixed(hi, 2)) : SAY_UNDEFINED;
            shares = say_more(shares, "; ", "%s at budget %s (95%% over heads: %s)",
                              say_fixed(json_number_of(s, "overall"), 3),
                              say_budget(json_number_of(s, "budget")), ends);
        }
        if (*shares) {
            add_finding(n, "agreement", NULL,
                        say("Shares of heads of %s and %s, Spearman's ρ: %s.", a, b, shares));
        }
    }
}

static void find_entries(report_numbers *n) {
    EACH(table_numbers, table, n->tables, n->n_tables) {
        const json_t *statistics = json_object_get(table->json, "statistics");
        const char *sides = "";
        for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
            const json_t *t = json_object_get(statistics, ckvc_side_name((ckvc_side)i));
            const double decided_ones = json_number_of(t, "decided"),
                         all = json_number_of(t, "states") - json_number_of(t, "without_records");
            if (isnan(decided_ones)) { continue; /* there are no refits */ }
            sides = say_more(sides, " and ", "%.0f of %.0f %s%s", decided_ones, all,
                             side_kind_of((ckvc_side)i)->entries,
                             say_few_refits(json_number_of(t, "replicates"), true));
        }
        if (*sides) {
            add_finding(n, "trust", NULL,
                        say("%s: %s are better than the neutral choice beyond chance.",
                            table->in->title, sides));
        }
    }
}

/* ---- transfers, gates, answers ---- */

static void transfers(report_numbers *n) {
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        const difference *of = &r->against_compiled;
        add_finding(
            n, "transfer", difference_judged(of),
            say("transfer %s to %s, heads by %s, budget %s: %s %s nats per token against %s, %zu "
                "prompts%s.",
                r->source_model, r->target_model, r->heads, say_budget(r->budget), r->transferred,
                SAY_INTERVAL(of->d, 4), r->compiled, of->n,
                of->by_kl ? say("; KL saved, which decides, %s", SAY_INTERVAL(of->kl, 4)) : ""));
    }
}

static void find_gates(report_numbers *n) {
    const json_t *run, *o;
    EACH_OF(run, n->json, "runs") {
        const char *shares = "", *title = json_text_of(run, "title");
        EACH_OF(o, run, "budgets") {
            if (json_is_null(json_object_get(o, "alive"))) {
                add_finding(
                    n, "binding", NULL,
                    say("%s has no thresholds: every layer keeps its whole budget.", title));
                break;
            }
            const double differ = json_number_of(json_object_get(o, "all"), "sets_differ");
            shares = say_more(shares, ", ", "%s at budget %s", say_share(differ),
                              say_budget(json_number_of(o, "budget")));
        }
        if (*shares) {
            add_finding(
                n, "binding", NULL,
                say("In %s the gate can change what is kept on this share of (prompt, layer): %s.",
                    title, shares));
        }
        EACH_OF(o, run, "budgets") {
            const char *advice = json_text_of(o, "advice");
            if (!json_is_false(json_object_get(o, "alive"))) { continue; }
            add_finding(n, "binding", NULL,
                        say("%s: at budget %s the gate is not alive: %s.", title,
                            say_budget(json_number_of(o, "budget")), advice ? advice : ""));
        }
    }
}

/* Reads a member of the JSON with its interval. */
static interval read_interval(const json_t *o, const char *name) {
    return (interval){json_number_of(o, name), json_number_of(o, say("%s_lo", name)),
                      json_number_of(o, say("%s_hi", name))};
}

/* "+0.031 (−0.4 to +1.1), decided" */
static const char *against_of(const json_t *line) {
    const interval against = read_interval(line, "against_table");
    return !isfinite(against.mean) ? ""
                                   : say("%s%s", SAY_INTERVAL(against, 3),
                                         json_flag_of(line, "decided") ? ", decided" : "");
}

static const char *scored(const json_t *line) {
    return say_fixed(json_number_of(line, "score"), 3);
}

/* Says at each budget how the full cache, the table and the best of the others do. */
static void bench(report_numbers *n, const json_t *o) {
    const json_t *lines = json_object_get(o, "lines"), *full = json_array_get(lines, 0);
    full = json_flag_of(full, "full") ? full : NULL;
    for (size_t i = 0, end; i < json_array_size(lines); i = end) {
        const json_t *x = json_array_get(lines, i), *best = NULL;
        const double budget = json_number_of(x, "budget");
        const bool base = json_flag_of(x, "base");
        for (end = i; end == i || json_number_of(json_array_get(lines, end), "budget") == budget;) {
            const json_t *y = json_array_get(lines, end++);
            const bool more = json_number_of(y, "score") > json_number_of(best, "score");
            if (!json_flag_of(y, "base") && (!best || more)) { best = y; }
        }
        if (json_flag_of(x, "full") || !isfinite(json_number_of(x, "score"))) { continue; }
        add_finding(n, "answers", NULL,
                    say("%s, question %s: %s%s%s%s.", say_budget(budget), json_text_of(o, "query"),
                        full ? say("full cache %s", scored(full)) : "",
                        base ? say("; %s %s", json_text_of(x, "policy"), scored(x)) : "",
                        best ? say("; %s%s %s", base ? "best other " : "best ",
                                   json_text_of(best, "policy"), scored(best))
                             : "",
                        best && base ? say(" (%s)", against_of(best)) : ""));
    }
}

void findings_make(report_numbers *n) {
    const json_t *o;
    verdicts(n);
    EACH_OF(o, n->json, "answers") { bench(n, o); }
    pairs(n);
    find_entries(n);
    transfers(n);
    find_gates(n);
}

void findings_text(const report_numbers *n, ckvc_buffer *text) {
    const json_t *f;
    EACH_OF(f, n->json, "findings") {
        const char *verdict = json_text_of(f, "verdict");
        ckvc_buffer_printf(text, "%s%s%s\n", verdict ? verdict : "", verdict ? ": " : "",
                           json_text_of(f, "text"));
    }
}

/* ---- the answers' table ---- */

enum { ACROSS = 9 };

/* Returns the columns that a text takes on a terminal: its characters, not its bytes. */
static size_t width_of(const char *words) {
    size_t n = 0;
    for (const char *c = words; *c; c++) { n += ((unsigned char)*c & 0xc0) != 0x80; }
    return n;
}

static void line_cells(arena *r, const json_t *o, const char **cells) {
    const bool full = json_flag_of(o, "full");
    const interval score = read_interval(o, "score"), tail = read_interval(o, "task_p10");
    const char *const texts[ACROSS] = {
        full ? "" : say_budget(json_number_of(o, "budget")),
        json_text_of(o, "policy"),
        say_fixed(json_number_of(o, "bytes") / 1e6, 2),
        SAY_SPREAD(score, 3),
        json_flag_of(o, "base") ? "(the table)" : against_of(o),
        SAY_SPREAD(tail, 3),
        say("%s%s", say_share(json_number_of(o, "share")),
            fabs(json_number_of(o, "entries_over_table") - 1) > 0.02 ? "*" : ""),
        full                             ? ""
        : json_flag_of(o, "query_aware") ? "the last rows"
                                         : "other",
        json_text_of(o, "costs_besides")};
    for (size_t k = 0; k < ACROSS; k++) { cells[k] = without_controls(r, texts[k]); }
}

static void lines_text(const report_numbers *n, const json_t *bench, ckvc_buffer *text) {
    static const char *const heads[ACROSS] = {"budget", "policy",         "MB",
                                              "score",  "less the table", "Task-P10",
                                              "kept",   "ranks by",       "costs besides"};
    static const bool right[ACROSS] = {[2] = true, [3] = true, [4] = true, [5] = true, [6] = true};
    const json_t *lines = json_object_get(bench, "lines");
    const size_t n_cells = ACROSS * (json_array_size(lines) + 1);
    const char **cells = NEW(n, n_cells, const char *);
    size_t width[ACROSS] = {0};
    memcpy(cells, heads, sizeof heads);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        line_cells(&n->in->arena, json_array_get(lines, i), cells + ACROSS * (i + 1));
    }
    for (size_t i = 0; i < n_cells; i++) {
        const size_t w = width_of(cells[i]);
        width[i % ACROSS] = w > width[i % ACROSS] ? w : width[i % ACROSS];
    }
    for (size_t i = 0; i < n_cells; i++) {
        const size_t k = i % ACROSS, blanks = width[k] - width_of(cells[i]);
        const bool last = k == ACROSS - 1;
        ckvc_buffer_printf(text, "%*s%s%*s%s", right[k] ? (int)blanks : 0, "", cells[i],
                           right[k] || last ? 0 : (int)blanks, "", last ? "\n" : "  ");
    }
}

void answers_text(const report_numbers *n, ckvc_buffer *text) {
    const json_t *o, *t;
    EACH_OF(o, n->json, "answers") {
        ckvc_buffer_printf(
            text, "question %s, model %.12s: %.0f of %zu tasks in averages, %.0f items\n",
            json_text_of(o, "query"), json_text_of(o, "model"), json_number_of(o, "n_counted"),
            json_array_size(json_object_get(o, "tasks")), json_number_of(o, "n_items"));
        EACH_OF(t, o, "tasks") {
            if (json_flag_of(t, "counted")) { continue; }
            ckvc_buffer_printf(text,
                               "left out of averages: %s: the full cache has %s, wrong "
                               "answers %s\n",
                               without_controls(&n->in->arena, json_text_of(t, "task")),
                               say_fixed(json_number_of(t, "full"), 3),
                               say_fixed(json_number_of(t, "control"), 3));
        }
        lines_text(n, o, text);
    }
}
