/* Where a verdict holds and where not: a column for each table and budget, a row for each part of
 * the prompts. */
#include "report/sections/sections.h"

/* What the verdict turns on at one budget of a table: against the best simple reference, or, where
 * none was scored, identity or matched. */
typedef struct judgement {
    const table_numbers *table;
    const verdict_at *at;
    const comparison *by;
} judgement;
typedef struct judgements {
    judgement *of;
    size_t n, parts;
} judgements;

static judgements judgements_of(const report_numbers *n) {
    size_t most = 0;
    EACH(table_numbers, t, n->tables, n->n_tables) { most += t->verdict.n_budgets; }
    judgements g = {.of = NEW(n, most, judgement)};
    EACH(table_numbers, t, n->tables, n->n_tables) {
        EACH(verdict_at, x, t->verdict.budgets, t->verdict.n_budgets) {
            const comparison *by = x->reference.by ? x->reference.by : x->gain.by;
            if (!by) { continue; }
            g.of[g.n++] = (judgement){t, x, by};
            g.parts += by->n_kinds + by->n_sources + by->n_lengths;
        }
    }
    return g;
}

bool where_known(const report_numbers *n) { return judgements_of(n).parts > 0; }

static const char *name_part(const difference *of) {
    return of->has_lengths ? say("T from %u to %u", of->T_lo, of->T_hi) : difference_part(of);
}

/* The part of a comparison that has the name; NULL: there is none. */
static const difference *part_named(const comparison *c, const char *name) {
    EACH(difference, d, c->kinds, c->n_kinds + c->n_sources + c->n_lengths) {
        if (strcmp(name_part(d), name) == 0) { return d; }
    }
    return NULL;
}

/* "+1.310", green or red where decided; "*": not at as many entries. */
static void cell(ckvc_buffer *b, const difference *of) {
    html_cell(b,
              !of || !difference_decided(of) ? 'u'
              : of->d.mean > 0               ? 'g'
                                             : 'b',
              "%s%s", of ? say_signed(of->d.mean, 3) : "", !of || of->equal_tokens ? "" : "*");
}

/* "51", "48 to 51": prompts of a part in all columns. */
static const char *prompts_of(const judgements *g, const char *name) {
    size_t least = SIZE_MAX, most = 0;
    EACH(judgement, j, g->of, g->n) {
        const difference *of = name ? part_named(j->by, name) : &j->by->all;
        if (!of) { continue; }
        least = of->n < least ? of->n : least;
        most = of->n > most ? of->n : most;
    }
    return least == most ? say("%zu", most) : say("%zu to %zu", least, most);
}

static void part_row(ckvc_buffer *b, const judgements *g, const char *name) {
    html_row_begin(b);
    html_cell(b, 'n', "%s", name ? name : "all prompts");
    html_cell(b, 'r', "%s", prompts_of(g, name));
    EACH(judgement, j, g->of, g->n) { cell(b, name ? part_named(j->by, name) : &j->by->all); }
    html_row_end(b);
}

/* A row for each part that this column has and none before it. */
static void part_rows(ckvc_buffer *b, const judgements *g, const judgement *j) {
    const comparison *by = j->by;
    EACH(difference, d, by->kinds, by->n_kinds + by->n_sources + by->n_lengths) {
        char name[256];
        bool said = false;
        snprintf(name, sizeof name, "%s", name_part(d));
        for (const judgement *e = g->of; e < j; e++) { said |= part_named(e->by, name) != NULL; }
        if (!said) { part_row(b, g, name); }
    }
}

void where_section(const report_numbers *n, view *v) {
    const judgements g = judgements_of(n);
    ckvc_buffer *b = page(v);
    html_table_begin(b, "Nats per token that a table saves, by the prompts\u2019 kind, source and "
                        "length");
    html_head(b, 0, "prompts");
    html_head(b, 'r', "n");
    EACH(judgement, j, g.of, g.n) {
        html_head(b, 'r', "%s, %s against %s", j->table->tag, say_budget(j->at->budget),
                  j->by->base.policy);
    }
    html_table_body(b);
    part_row(b, &g, NULL);
    EACH(judgement, j, g.of, g.n) { part_rows(b, &g, j); }
    page_table_end(v);
    page_note(
        v,
        "Above 0 the table loses less. Bold: the 95%% interval leaves 0 out, on %d prompts or "
        "more; not corrected for the number of parts: of twenty without a difference, one is "
        "expected to look decided. * not at as many entries (within 2%%) on this part. "
        "Intervals are in report.json.",
        PART_MIN);
}
