/* What the words mean. */
#include "report/sections/sections.h"

void words_section(const report_numbers *n, view *v) {
    static const char *const words[][2] = {
        {"reward", "\u2212(loss with the compressed cache \u2212 loss with the full cache) on the "
                   "continuation, nats per token; 0 is best, negative is loss"},
        {"identity",
         "every head weight 1.0, every threshold 0.90: what runs start from, at their own grid's "
         "nearest threshold"},
        {"matched",
         "identity with the one threshold that keeps as many tokens as a table does: the fair "
         "opponent"},
        {"budget", "most tokens that a layer may keep; a percentage is a share of the prompt"},
        {"kept/layer", "tokens kept, mean over layers and prompts"},
        {"head weight",
         "factor on a KV head's utility before the maximum over heads; 1.0 changes nothing"},
        {"threshold τ", "utility from which a token is a candidate; lower keeps more"},
        {"entropy, perplexity",
         "the two risks of a prompt: R_struct of the window's attention, in nats; R_sem of the "
         "window's tokens"},
        {"Spearman's ρ",
         "correlation of ranks, average ranks for ties; undefined where one side is constant"},
        {"95% interval",
         "of a mean: Student's t over prompts, the table held fixed; of ρ: percentiles over refits "
         "from resampled prompts, whose added noise draws it towards 0; prompts of one document "
         "are drawn together everywhere"},
        {"split half",
         "mean ρ between refits from random halves of one run's prompts, corrected to the whole "
         "run (Spearman and Brown), with 95% of the splits: how far a corpus agrees with itself"},
        {"limit",
         "root of the product of two corpora's split halves: the ρ that they can reach when both "
         "show one truth"},
        {"decided",
         "the entry's advantage over the neutral choice (weight 1.0; threshold 0.90, or the one of "
         "the grid nearest to it) is above 0 by a one-sided 95% bound from the bootstrap, which "
         "allows for its having been picked as the best of many; else undecided"},
        {"advantage on prompts left out", "mean advantage of a choice over prompts that it was not "
                                          "fitted from, one change at a time"},
        {"damage", "minus the reward of a policy that compresses every prompt alike"},
        {"partial correlation",
         "correlation of what is left of two quantities when a third has explained what it can of "
         "each"},
        {"decided by α", "states whose choice differs from that of the plain mean reward"},
        {"choice against counts",
         "Spearman, over logged actions, of being chosen against how often the action was logged"},
        {"same choice in refits",
         "share of bootstrap refits that choose what the table chose, mean over states"},
    };
    (void)n;
    page_heads(v, NULL, "ll", "word", "meaning");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        html_row(page(v), "ll", words[i][0], words[i][1]);
    }
    page_table_end(v);
}
