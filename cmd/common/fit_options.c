/* Options of a fit: see fit_options.h. */
#include "cmd/common/fit_options.h"

#define OPTIONS_OF fit_options
const opt opts_fit[] = {
    OPT_TITLE("the fit"),
    OPT_CQL_ALPHA(cql.cql_alpha),
    OPT_ENUM("solver", cql.solver, "exact|adamw",
             "Solve for the exact minimum, or run the paper's optimiser (adamw)."),
    OPT_REWARD(cql.reward),
    OPT_ENUM("unsupported", cql.unsupported, "incoming|safest|neighbour",
             "Fill cells without records with the incoming table's value, with the safest one, or "
             "with that of the nearest cell that has records."),
    OPT_COUNT("bootstrap", resampled.n_replicates, "R", 0, 100000,
              "Fit again over R resamples of the prompts and store how often each action is "
              "chosen; 0 means none for actions and 400 for shares."),
    OPT_ENUM("mode", budgets.mode, "uniform|heads|layers|lengths",
             "Give a budget and a kept set of its own to each KV head (heads) or to each layer "
             "(layers); or give each layer a budget, and each of its heads a set of that length "
             "(lengths); or give every layer one set of the same budget (uniform).",
             .preset = "heads", .word_was = {"shared", "uniform"}),
    OPT_COUNT("classes", budgets.classes, "K", 0, 64,
              "With --mode lengths, put the layers into K classes of one length each, for engines "
              "that group layers; 0 gives every layer a length of its own."),
    OPT_ENUM("ranking", budgets.score, "paper|window|learned",
             "Rank entries by this ranking; learned needs logged features, and without them window "
             "is taken.",
             .preset = "learned", .was = "score"),
    OPT_COUNT("features", budgets.features, "1|2", 1, 2,
              "Fit the learned ranking on this set of features; set 2 is without those of the "
              "attention's last rows.",
              .preset = "1"),
    OPT_DOUBLE(
        "kept-floor", budgets.c_min, "F", 0, 1,
        "Keep at least this share of the budget in every head, even if demand was counted with "
        "less (--demand-floor); with 1 all heads keep the same number, for caches of one length.",
        .preset = "0.2", .was = "c-min"),
    OPT_COUNT("bank", budgets.bank.n, "N", 0, 1024,
              "Give the table a bank of N query vectors for each query head, drawn from those that "
              "prompts logged (--queries); 0 gives it none.",
              .preset = "48"),
    OPT_ENUM("bank-of", budgets.bank.of, "prompt|continuation|both",
             "Draw the bank's query vectors from the prompts themselves, from their continuations, "
             "or half from each.",
             .preset = "both"),
    OPT_FLAG("shrink", cql.shrink,
             "Keep weight 1.0, or the threshold nearest to 0.90, unless the bootstrap shows that "
             "another action is better."),
    OPT_TEXT("label", label, "TEXT",
             "Call the table this in reports; without this option it has the model's name."),
    {0}};

/* A program that starts many processes of one command, and the environment variables in which it
 * tells each of them which one it is. */
typedef struct launcher {
    /* Names of variables; first and last hold the ends of an array's numbers. */
    const char *index, *count, *first, *last;
    /* It starts processes inside a Slurm allocation. Their SLURM_PROCID is not their own but
     * that of the batch script. */
    bool within;
} launcher;

static const launcher launchers[] = {
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_MAX", false},
    {.index = "OMPI_COMM_WORLD_RANK", .count = "OMPI_COMM_WORLD_SIZE", .within = true},
    {.index = "PMI_RANK", .count = "PMI_SIZE", .within = true},
    {.index = "RANK", .count = "WORLD_SIZE", .within = true}, /* torchrun */
    {.index = "SLURM_PROCID", .count = "SLURM_NTASKS"},
    /* Kubernetes tells a pod only its index. The Job's manifest must set JOB_COMPLETIONS to the
     * number of pods. */
    {.index = "JOB_COMPLETION_INDEX", .count = "JOB_COMPLETIONS"}};

/* Reads a number that consists of one to nine digits and nothing else. Anything else, and NULL,
 * gives -1. */
static long number_of(const char *text) {
    const size_t n = text ? strspn(text, "0123456789") : 0;
    return n > 0 && n < 10 && !text[n] ? strtol(text, NULL, 10) : -1;
}

static long number_variable(const char *name) { return name ? number_of(getenv(name)) : -1; }

static ckvc_status read_launcher(const launcher *l, run_part *out, ckvc_err *err) {
    const long first = number_variable(l->first) > 0 ? number_variable(l->first) : 0,
               last = number_variable(l->last);
    const long index = number_variable(l->index) - first, count = number_variable(l->count);
    USAGE_IF(index < 0 || count < 1, "--shard auto: %s is '%s' and %s is %s%s%s; say --shard I/N",
             l->index, getenv(l->index), l->count, getenv(l->count) ? "'" : "",
             getenv(l->count) ? getenv(l->count) : "not set", getenv(l->count) ? "'" : "");
    USAGE_IF(index >= count || count > RUN_MAX_PARTS || (last >= 0 && last - first + 1 != count),
             "--shard auto: %s is %ld of %ld, numbered from %ld%s; say --shard I/N", l->index,
             index + first, count, first, last >= 0 ? " with gaps" : "");
    *out = (run_part){(uint32_t)index, (uint32_t)count};
    return CKVC_OK;
}

/* Is this the SLURM_PROCID of a batch script's shell? Every job has that one: it is 0, and
 * belongs to no step. */
static bool batch_shell(const launcher *l) {
    return strcmp(l->index, "SLURM_PROCID") == 0 && getenv("SLURM_JOB_ID") &&
           !getenv("SLURM_STEP_ID");
}

static bool parts_differ(run_part a, run_part b) {
    return a.index != b.index || a.count != b.count;
}

static ckvc_status ask_all(run_part *out, ckvc_err *err) {
    const launcher *by = NULL;
    bool within = false;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        run_part part;
        if (!getenv(l->index) || batch_shell(l)) { continue; }
        if (within && strcmp(l->index, "SLURM_PROCID") == 0) { continue; }
        CKVC_TRY(read_launcher(l, &part, err));
        within = within || l->within;
        /* Each job of an array has one task, so this launcher does not say which part it is. */
        if (by && part.count == 1) { continue; }
        USAGE_IF(by && out->count > 1 && parts_differ(part, *out),
                 "--shard auto: %s says %u/%u, and %s %u/%u; say --shard I/N", by->index,
                 out->index, out->count, l->index, part.index, part.count);
        by = l;
        *out = part;
    }
    USAGE_IF(!by, "--shard auto: no launcher has said which part this is (SLURM_ARRAY_TASK_ID, "
                  "SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK, RANK, JOB_COMPLETION_INDEX); say "
                  "--shard I/N");
    say("part %u/%u, by %s\n", out->index, out->count, by->index);
    return CKVC_OK;
}

ckvc_status shard_option(const char *text, run_part *out, ckvc_err *err) {
    *out = RUN_WHOLE;
    if (!text) { return CKVC_OK; }
    if (strcmp(text, "auto") == 0) { return ask_all(out, err); }
    CKVC_AUTO_FREE char *index_text = ckvc_format("%.*s", (int)strcspn(text, "/"), text);
    const char *slash = strchr(text, '/');
    const long index = number_of(index_text), count = slash ? number_of(slash + 1) : -1;
    USAGE_IF(index < 0 || count < 1 || index >= count || count > RUN_MAX_PARTS,
             "--shard: got '%s', wanted I/N with I from 0 to N-1, N up to %d, or auto", text,
             RUN_MAX_PARTS);
    *out = (run_part){(uint32_t)index, (uint32_t)count};
    return CKVC_OK;
}
