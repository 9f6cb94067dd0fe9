/* Texts to prompts in one step: see made_prompts.h. */
#include "cmd/common/made_prompts.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calib/prompt/prompts.h"
#include "cmd/common/json_text.h"
#include "cmd/common/option_values.h"
#include "corpus/build/manifest_build.h"
#include "corpus/leaks/leak_check.h"
#include "corpus/texts.h"
#include "lib/base/files.h"
#include "lib/base/utf8.h"

#define OPTIONS_OF texts_options
const opt opts_texts[] = {
    OPT_TITLE("prompts of texts (without --manifest)"),
    OPT_INPUTS("texts", texts, "PATH,...",
               "Make half of the prompts of these files and folders of text, and the others of the "
               "texts that come with the program."),
    OPT_ENUM("default-texts", default_texts, "yes|no",
             "Take the texts that come with the program, or with no those of --texts alone."),
    OPT_LIST("lengths", lengths, "N,...",
             "Make prompts of at most N tokens and at least four fifths of that, or, of several "
             "lengths, of each in turn; what is built in is shortened to what the model's context "
             "holds.",
             .preset = "1024"),
    OPT_INT("prompts", prompts, "N", 8, 1000000,
            "Make N prompts, half of them retrieval; a fifth of the documents chooses, a fifth "
            "judges, the rest is to fit.",
            .preset = "48"),
    OPT_QUERY,
    {0}};

#define CHOOSE_SHARE    0.2
#define JUDGE_SHARE     0.2
#define RETRIEVAL_SHARE 0.5

void made_prompts_fini(made_prompts *made) {
    json_decref(made->record);
    ckvc_buffer_fini(&made->bytes);
}

/* ---- what is asked for ---- */

/* Reads --lengths. What is built in becomes what the context holds, beside the repetition. */
static ckvc_status read_lengths(const texts_options *o, const inputs_options *in,
                                const opened_inputs *e, build_options *b, ckvc_err *err) {
    const int64_t context = model_shape_context(model_get_shape(e->model));
    const int64_t most = e->longest ? e->longest : context - in->setting.continuation;
    USAGE_IF(o->lengths.n == 0 || o->lengths.n > BUILD_MAX_LENGTHS,
             "--lengths: got %zu lengths, wanted 1 to %d", o->lengths.n, BUILD_MAX_LENGTHS);
    for (size_t i = 0; i < o->lengths.n; i++) {
        char *end;
        long long length = strtoll(o->lengths.items[i], &end, 10);
        USAGE_IF(*end || end == o->lengths.items[i] || length < 1 || length > 1 << 24,
                 "--lengths: got '%s', wanted a number of tokens, as in 4096,8192",
                 o->lengths.items[i]);
        if (!opts_given("lengths") && length > most) { length = most; }
        USAGE_IF(length > most,
                 "--lengths %lld: the model's context of %lld tokens holds a prompt of at most "
                 "%lld beside %s: give --lengths %lld, or less",
                 length, (long long)context, (long long)most,
                 e->longest ? "its repetition" : "its continuation", (long long)most);
        USAGE_IF(4 * length <= 5 * (long long)in->setting.window,
                 "--lengths %lld: a prompt may have four fifths of that, which is no more than "
                 "--window %u: give longer --lengths, or a smaller --window",
                 length, in->setting.window);
        b->lengths[b->n_lengths++] = length;
        b->max_length = length > b->max_length ? length : b->max_length;
    }
    return CKVC_OK;
}

/* ---- texts ---- */

ckvc_status default_texts_add(corpus *c, ckvc_err *err) {
    static const char *const sources[] = {DEFAULT_TEXTS};
    CKVC_AUTO_FREE char *home = opt_shipped_path(".", "default-texts");
    FAIL_IF(!home, CKVC_E_NOINPUT,
            "the default texts are not beside this program (share/ckvc/default-texts of where it "
            "is installed): give texts of your own, as PATH to manifest build, or by --texts DIR "
            "--default-texts no to compile");
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        CKVC_AUTO_FREE char *path = ckvc_path_join(home, sources[i]);
        CKVC_TRY(corpus_add(c, sources[i], path, err));
    }
    return CKVC_OK;
}

/* Makes up to `most` prompts of one collection of texts. */
static ckvc_status build_of(corpus *c, const build_options *o, int64_t most, built_manifest *out,
                            ckvc_err *err) {
    build_options of = *o;
    of.most = most;
    return manifest_build(c, &of, out, err);
}

/* Says which of the user's files make no document. */
static void say_left_out(const corpus *c) {
    for (corpus_reason r = 0; r < CORPUS_REASON_COUNT; r++) {
        if (c->left_out[r].n == 0) { continue; }
        say("note: --texts: left out %zu %s (%s%s)\n", c->left_out[r].n, corpus_reasons[r].text,
            c->left_out[r].first, c->left_out[r].n > 1 ? " ..." : "");
    }
}

/* The prompts of the user's texts and of the default ones, in turns: half of all are the user's,
 * if their text is enough for that. */
static ckvc_status build_prompts(const texts_options *o, const build_options *b, bool quiet,
                                 built_manifest made[2], ckvc_err *err) {
    const bool defaults = o->default_texts == 0;
    const size_t longest = (size_t)(b->max_length + b->continuation) * 4; /* in bytes, roughly */
    const size_t part = 3 * longest > CORPUS_PART_BYTES ? 3 * longest : CORPUS_PART_BYTES;
    CKVC_AUTO(corpus_fini) corpus own = {.part_bytes = part}, shipped = {.part_bytes = part};
    USAGE_IF(!defaults && o->texts.n == 0, "--default-texts no: give --texts DIR, or leave it out");
    for (size_t i = 0; i < o->texts.n; i++) {
        CKVC_TRY(corpus_add(&own, "text", o->texts.items[i], err));
    }
    if (o->texts.n) {
        const int64_t wanted = defaults ? (o->prompts + 1) / 2 : o->prompts;
        ckvc_err why = {0};
        if (!quiet) { say_left_out(&own); }
        const ckvc_status st = build_of(&own, b, wanted, &made[0], &why);
        FAIL_IF(st == CKVC_E_DATA, st,
                "--texts %s: too little text in %zu documents. Prompts that fit, choose and judge "
                "are of different documents, each of which needs %lld tokens and %lld behind them: "
                "give more files or longer ones, or shorter --lengths",
                o->texts.items[0], own.n_documents, (long long)(4 * b->max_length / 5),
                (long long)b->continuation);
        FAIL_IF(st != CKVC_OK, st, "%s", why.text);
    }
    if (!defaults) { return CKVC_OK; }
    CKVC_TRY(default_texts_add(&shipped, err));
    return build_of(&shipped, b, o->prompts - (int64_t)made[0].n_entries, &made[1], err);
}

/* ---- the manifest ---- */

/* Writes the prompts of both, in turns. */
static void write_prompts(const built_manifest made[2], ckvc_buffer *out) {
    for (size_t i = 0; i < made[0].n_entries || i < made[1].n_entries; i++) {
        for (int k = 0; k < 2; k++) {
            if (i >= made[k].n_entries) { continue; }
            CKVC_AUTO_FREE char *line = manifest_line(&made[k].entries[i]);
            ckvc_buffer_text(out, line);
            ckvc_buffer_text(out, "\n");
        }
    }
}

/* Writes the prompts that are not marked. */
static void write_clean(const manifest *m, const bool *left_out, ckvc_buffer *out) {
    for (size_t i = 0; i < m->n_entries; i++) {
        if (left_out[i]) { continue; }
        CKVC_AUTO_FREE char *line = manifest_line(&m->entries[i]);
        ckvc_buffer_text(out, line);
        ckvc_buffer_text(out, "\n");
    }
}

static void close_file(const int *fd) {
    if (*fd >= 0) { close(*fd); }
}

/* Reads the manifest from memory, and holds its held-out prompts against the others. The check
 * reads a file, which lies in memory, too: a dry run writes nothing. */
static ckvc_status check(const ckvc_buffer *bytes, const inputs_options *in, const tokenizer *tok,
                         manifest **m, leak_result *found, ckvc_err *err) {
    CKVC_AUTO(close_file) int fd = memfd_create("prompts", MFD_CLOEXEC);
    CKVC_FAIL_ERRNO_IF(fd < 0, err, CKVC_E_IO, "prompts in memory");
    for (size_t at = 0; at < bytes->size;) {
        const ssize_t n = write(fd, bytes->data + at, bytes->size - at);
        CKVC_FAIL_ERRNO_IF(n < 0, err, CKVC_E_IO, "prompts in memory");
        at += (size_t)n;
    }
    CKVC_AUTO_FREE char *path = ckvc_format("/proc/self/fd/%d", fd);
    CKVC_TRY(manifest_read(path, m, err));
    CKVC_AUTO_FREE bool *held_out = ckvc_calloc((*m)->n_entries, sizeof *held_out);
    for (size_t i = 0; i < (*m)->n_entries; i++) {
        held_out[i] = prompt_held_out(&(*m)->entries[i], in->setting.seed, in->holdout);
    }
    const leak_options o = {.near = 0.5, .tok = tok, .held_out = held_out};
    const char *const against[] = {path};
    CKVC_TRY(leak_check(*m, against, 1, &o, found, err));
    found->record.holdout = in->holdout;
    found->record.seed = in->setting.seed;
    for (size_t i = 0; i < (*m)->n_entries; i++) {
        found->shares[i] = found->shares[i] && !held_out[i];
    }
    return CKVC_OK;
}

/* Leaves out of the bytes what may not be fitted, and takes manifest and record of the rest. */
static ckvc_status clean(const inputs_options *in, opened_inputs *e, made_prompts *out,
                         size_t *n_left_out, ckvc_err *err) {
    CKVC_AUTO(leak_result_fini) leak_result found = {0};
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    CKVC_TRY(check(&out->bytes, in, e->tok, &m, &found, err));
    size_t n_fit = 0;
    *n_left_out = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        n_fit += !prompt_held_out(&m->entries[i], in->setting.seed, in->holdout);
        *n_left_out += found.shares[i];
    }
    FAIL_IF(*n_left_out == n_fit, CKVC_E_DATA,
            "all %zu prompts to fit share text with those that judge: give other --texts", n_fit);
    if (*n_left_out) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer rest = {0};
        write_clean(m, found.shares, &rest);
        ckvc_buffer_fini(&out->bytes);
        out->bytes = rest;
        rest = (ckvc_buffer){0};
        leak_result_fini(&found);
        manifest_free(m);
        m = NULL;
        CKVC_TRY(check(&out->bytes, in, e->tok, &m, &found, err));
    }
    out->record = leak_record_json(&found.record);
    e->manifest = ckvc_take(&m);
    return CKVC_OK;
}

/* ---- what is said ---- */

/* Warns of prompts of which the tokenizer makes a token of every byte or two, although their
 * script takes two or three bytes for a character. */
static ckvc_status warn_of_bytes(const opened_inputs *e, ckvc_err *err) {
    size_t n_split = 0;
    double fewest = 2;
    for (size_t i = 0; i < e->manifest->n_entries; i++) {
        const manifest_entry *at = &e->manifest->entries[i];
        size_t n_chars = 0;
        for (size_t k = 0; k < at->text_size; n_chars++) {
            k += ckvc_utf8_step(at->text + k, at->text_size - k, NULL);
        }
        if (2 * at->text_size < 3 * n_chars) { continue; }
        int64_t length;
        CKVC_TRY(text_length(e->tok, at->text, at->text_size, true, &length, err));
        const double bytes = (double)at->text_size / (double)length;
        n_split += bytes < 2;
        fewest = bytes < fewest ? bytes : fewest;
    }
    if (n_split) {
        ckvc_warn(
            "of %zu prompts %zu are of scripts that this model's tokenizer splits into bytes: "
            "down to %.1f bytes per token, so these prompts hold little text; if you serve no "
            "such text, --texts DIR with --default-texts no takes your own alone",
            e->manifest->n_entries, n_split, fewest);
    }
    return CKVC_OK;
}

static const char made_form[] =
    "texts: {prompts} prompts ({retrieval} retrieval): {fit} to fit, {select} choose, {judge} "
    "judge{left_out?; {left_out} more share text with these and are left out}\n"
    "{fewer?note: the text gives no more than {built} of {asked} prompts\n}"
    "{judge<10?note: {judge} prompts judge, and a report says deploy only where 10 or more do: "
    "--prompts {enough} makes so many\n}";

static void say_made(const texts_options *o, const opened_inputs *e, const built_manifest made[2],
                     size_t n_left_out) {
    size_t n_of[3] = {0}; /* fit, select, heldout */
    const manifest *m = e->manifest;
    size_t n_retrieval = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        const char *split = m->entries[i].split;
        n_of[strcmp(split, "select") == 0 ? 1 : strcmp(split, "heldout") == 0 ? 2 : 0]++;
        n_retrieval += strcmp(m->entries[i].source, "retrieval") == 0;
    }
    const size_t built = made[0].n_entries + made[1].n_entries;
    json_auto_t *said = JSON_NUMBERS(
        json_pack("{s:b}", "fewer", built < (size_t)o->prompts), {"prompts", m->n_entries},
        {"retrieval", n_retrieval}, {"fit", n_of[0]}, {"select", n_of[1]}, {"judge", n_of[2]},
        {"left_out", n_left_out}, {"built", built}, {"asked", o->prompts},
        {"enough", ceil(10.0 * (double)o->prompts / (n_of[2] ? (double)n_of[2] : 1))});
    form_print(stderr, made_form, said, NULL);
}

/* ---- the whole ---- */

ckvc_status prompts_make(const texts_options *o, const inputs_options *in, const char *run,
                         opened_inputs *e, made_prompts *out, ckvc_err *err) {
    USAGE_IF(!e->tok,
             "%s: has no tokenizer to make prompts with; add its tokenizer.json, or give "
             "--manifest FILE with tokens",
             in->model);
    build_options b = {.tok = e->tok,
                       .chat = e->chat,
                       .continuation = in->setting.continuation,
                       .retrieval = RETRIEVAL_SHARE,
                       .retrieval_source = "retrieval",
                       .unseen = o->query == 1,
                       .splits = {{"select", CHOOSE_SHARE}, {"heldout", JUDGE_SHARE}},
                       .n_splits = 2,
                       .split_rest = "fit",
                       .even_splits = true,
                       .seed = in->setting.seed};
    CKVC_TRY(read_lengths(o, in, e, &b, err));
    built_manifest made[2] = {{0}, {0}};
    size_t n_left_out = 0;
    ckvc_status st = build_prompts(o, &b, in->quiet, made, err);
    if (st == CKVC_OK) {
        write_prompts(made, &out->bytes);
        st = clean(in, e, out, &n_left_out, err);
    }
    if (st == CKVC_OK && !in->quiet) { say_made(o, e, made, n_left_out); }
    built_manifest_fini(&made[0]);
    built_manifest_fini(&made[1]);
    CKVC_TRY(st);
    free(e->manifest->path);
    e->manifest->path = run ? ckvc_path_join(run, MADE_PROMPTS_FILE) : ckvc_strdup("the prompts");
    return warn_of_bytes(e, err);
}
