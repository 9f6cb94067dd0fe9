/* See manifest_leaks.h. */
#include "cmd/common/manifest_leaks.h"

#include "calib/prompt/prompts.h"
#include "cmd/common/json_text.h"
#include "corpus/leaks/manifest_check.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"
#include "formats/lines/leak_record.h"

#define OPTIONS_OF leaks_cli
const opt opts_leaks[] = {
    OPT_TITLE("leaks"),
    OPT_INPUTS(
        "against", against, "EVAL.jsonl,...",
        "Look for shared spans and near-duplicates in these evaluation files, which may be .gz."),
    OPT_DOUBLE(
        "near", find.near, "J", 0.01, 1,
        "Call texts near-duplicates if they share this much of their 5-word shingles (Jaccard).",
        .preset = "0.5"),
    OPT_DOUBLE("holdout", holdout, "F", 0, 1,
               "Do not compare the prompts that a draw of this share holds out, as in calibrate."),
    OPT_INT("seed", seed, "N", 0, 9e15, "Draw the prompts of --holdout by this seed.",
            .preset = "1"),
    OPT_INT("max-findings", find.max_findings, "N", 0, 1e6,
            "Print at most N findings; all are counted.", .preset = "20"),
    OPT_OUTPUT(
        "out", out, "CHECK.json",
        "Write the record of the check, for --leak-check; with --clean it is of CLEAN.jsonl.",
        .letter = 'o'),
    OPT_OUTPUT("clean", clean, "CLEAN.jsonl",
               "Write the manifest without the prompts that share something or repeat others."),
    OPT_FLAG("force", force, "Overwrite CHECK.json and CLEAN.jsonl.", .letter = 'f'),
    {0}};

/* Ids and fields come from outside. As JSON strings they bring no control character to the
 * terminal.
 */
static const char found_form[] =
    "{findings#{kind}\t{prompt:j} line {prompt_line}\t{file|{manifest}}:{line} {id:j}"
    "{field? in {field:j}}\t{kind=span?{words} words}{kind=id?{words} words}"
    "{kind=near-duplicate?jaccard {jaccard:.3f}}"
    "{kind=near-duplicate-within?jaccard {jaccard:.3f}}\t{text}\n}"
    "{record.against#{paths.@}\t{lines} lines, {texts} texts, {words} words: {shared_spans} shared "
    "spans, {near_duplicates} near-duplicates, {duplicate_ids} ids; {leaked_lines} lines and "
    "{leaked_prompts} prompts touched\n}"
    "compared\t{record.prompts} prompts ({record.held_out} held out): {record.leaked_prompts} "
    "share something, {record.near_duplicates_within} near to an earlier one\n";

static json_t *finding_json(const leak_finding *f, const char *const *paths) {
    json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "kind", leak_kind_name(f->kind), "prompt",
                          f->entry->id, "id", f->id, "text", f->text);
    JSON_NUMBERS(o, {"prompt_line", f->entry->line}, {"line", f->line}, {"words", f->n_words},
                 {"jaccard", f->jaccard});
    if (f->kind != LEAK_WITHIN) { json_object_set_new(o, "file", json_string(paths[f->against])); }
    if (f->field) { json_object_set_new(o, "field", json_string(f->field)); }
    return o;
}

static ckvc_status write_record(const leaks_cli *c, const leak_record *r, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer bytes = {0};
    json_auto_t *o = leak_record_json(r);
    ckvc_json_append(&bytes, o);
    ckvc_buffer_text(&bytes, "\n");
    return ckvc_publish_bytes(c->out, bytes.data, bytes.size, c->force, err);
}

static ckvc_status refuse_repeats(const opt_list *list, ckvc_err *err) {
    for (size_t i = 0; i < list->n; i++) {
        for (size_t k = 0; k < i; k++) {
            USAGE_IF(strcmp(list->items[i], list->items[k]) == 0, "--against: %s is named twice",
                     list->items[i]);
        }
    }
    return CKVC_OK;
}

/* Writes the manifest without the prompts that share something or repeat. Held-out prompts stay,
 * since the others are compared with them. */
static ckvc_status write_clean(const leaks_cli *c, const manifest *m, const bool *held_out,
                               const bool *shares, const bool *repeats, json_t *found,
                               ckvc_err *err) {
    size_t n_left_out = 0, n_fit = 0;
    CKVC_AUTO_FREE bool *left_out = ckvc_calloc(m->n_entries, sizeof *left_out);
    for (size_t i = 0; i < m->n_entries; i++) {
        left_out[i] = !held_out[i] && (shares[i] || (repeats && repeats[i]));
        n_left_out += left_out[i];
        n_fit += !held_out[i];
    }
    CKVC_FAIL_IF(n_left_out == n_fit && n_fit && n_fit < m->n_entries, err, CKVC_E_DATA,
                 "%s: none is left that is not held out; %s is not written", m->path, c->clean);
    CKVC_TRY(manifest_clean_write(m, left_out, c->clean, c->force, err));
    json_object_set_new(found, "clean",
                        JSON_NUMBERS(json_object(), {"prompts", m->n_entries - n_left_out},
                                     {"left_out", n_left_out}));
    return CKVC_OK;
}

/* Refuses an output that is in the way before the work begins. */
static ckvc_status check_outputs(const leaks_cli *c, const manifest *m, ckvc_err *err) {
    if (c->out) { CKVC_TRY(ckvc_publish_check(c->out, c->force, err)); }
    if (!c->clean) { return CKVC_OK; }
    USAGE_IF(c->out && strcmp(c->out, c->clean) == 0, "--out and --clean both name %s", c->out);
    return manifest_clean_ready(m, c->against.items, c->against.n, c->clean, c->force, err);
}

static void say_speed(const leak_record *r, double seconds) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n_against; i++) { bytes += r->against[i].bytes; }
    say("leaks: %.1f MB in %.2f s (%.0f MB/s)\n", (double)bytes / 1e6, seconds,
        (double)bytes / 1e6 / seconds);
}

static json_t *findings_json(const leaks_cli *c, const leak_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->n_findings; i++) {
        json_array_append_new(list, finding_json(&result->findings[i], c->against.items));
    }
    return json_pack("{s:o, s:o}", "findings", list, "record", leak_record_json(&result->record));
}

/* Checks the cleaned manifest again, because the record written by --out must describe CLEAN, not
 * the original. Where the manifest was compared with itself, CLEAN is. */
static ckvc_status check_clean(const leaks_cli *c, const leak_record *r, const tokenizer *tok,
                               ckvc_err *err) {
    CKVC_AUTO(manifest_free_at) manifest *clean = NULL;
    json_auto_t *found = NULL;
    leaks_cli again = *c;
    again.clean = NULL;
    for (size_t i = 0; i < r->n_against; i++) {
        const bool self = strcmp(r->against[i].sha256, r->manifest) == 0;
        again.against.items[i] = self ? c->clean : c->against.items[i];
    }
    CKVC_TRY(manifest_read(c->clean, &clean, err));
    return manifest_leaks(&again, clean, tok, NULL, false, &found, err);
}

ckvc_status manifest_leaks(const leaks_cli *c, const manifest *m, const tokenizer *tok,
                           const bool *repeats, bool talk, json_t **found, ckvc_err *err) {
    *found = NULL;
    CKVC_AUTO(leak_result_fini) leak_result result = {0};
    CKVC_AUTO_FREE bool *held_out = ckvc_calloc(m->n_entries, sizeof *held_out);
    CKVC_TRY(refuse_repeats(&c->against, err));
    CKVC_TRY(check_outputs(c, m, err));
    for (size_t i = 0; i < m->n_entries; i++) {
        held_out[i] = prompt_held_out(&m->entries[i], c->seed, c->holdout);
    }
    leak_options o = c->find;
    o.tok = tok;
    o.held_out = held_out;
    const double start = ckvc_now_s();
    CKVC_TRY(leak_check(m, c->against.items, c->against.n, &o, &result, err));
    leak_record *r = &result.record;
    r->holdout = c->holdout;
    r->seed = c->seed;
    say_speed(r, ckvc_now_s() - start);
    *found = findings_json(c, &result);
    if (talk) {
        json_t *paths = ckvc_json_texts(c->against.items, c->against.n);
        form_print(stdout, found_form, *found,
                   json_pack("{s:s, s:o}", "manifest", m->path, "paths", paths));
    }
    if (c->clean) {
        CKVC_TRY(write_clean(c, m, held_out, result.shares, repeats, *found, err));
        if (talk) {
            form_print(stderr,
                       "{file}: {clean.prompts} of {lines} lines, {clean.left_out} left out\n",
                       *found,
                       JSON_NUMBERS(json_pack("{s:s}", "file", c->clean), {"lines", m->n_entries}));
        }
        return check_clean(c, r, tok, err);
    }
    if (c->out) { CKVC_TRY(write_record(c, r, err)); }
    static const char way_out[] = "--clean CLEAN.jsonl leaves them out, and --out is then of CLEAN";
    FAIL_IF(r->leaked_prompts, CKVC_CHECK_FAILED,
            "%s: %" PRIu64 " of %" PRIu64 " prompts share text or ids with the evaluation; %s",
            m->path, r->leaked_prompts, r->prompts, way_out);
    FAIL_IF(r->near_within, CKVC_CHECK_FAILED,
            "%s: %" PRIu64 " of %" PRIu64 " prompts are near-duplicates of earlier ones; %s",
            m->path, r->near_within, r->prompts, way_out);
    return CKVC_OK;
}

ckvc_status leak_guard_plan(const char *path, const opened_inputs *e, json_t **out, ckvc_err *err) {
    *out = NULL;
    if (!path) { return CKVC_OK; }
    CKVC_AUTO(leak_record_fini) leak_record r = {0};
    CKVC_TRY(leak_record_read(path, &r, err));
    const prompt_options *o = &e->prompt_options;
    FAIL_IF(strcmp(r.manifest, e->manifest->sha256) != 0, CKVC_E_MISMATCH,
            "%s: is the record of manifest %.12s..., but %s is %.12s...; check that one", path,
            r.manifest, e->manifest->path, e->manifest->sha256);
    FAIL_IF(r.holdout > 0 && (r.holdout != o->holdout || r.seed != o->seed), CKVC_E_MISMATCH,
            "%s: its check left out the prompts of --holdout %g --seed %" PRIu64
            ", but this run has %g and %" PRIu64 "; check with these",
            path, r.holdout, r.seed, o->holdout, o->seed);
    if (r.leaked_prompts) {
        ckvc_warn("%s: %" PRIu64 " of %" PRIu64
                  " prompts share text with an evaluation, so results on it are not clean",
                  path, r.leaked_prompts, r.prompts);
    }
    *out = leak_record_json(&r);
    return CKVC_OK;
}

void leak_guard_warn(const table_file *t, const char *path, const char *scored_manifest) {
    const json_t *guard = json_object_get(t->meta, "leak_check"),
                 *checks = json_object_get(guard, "checks");
    if (!json_array_size(checks) || json_array_size(json_object_get(guard, "unchecked"))) {
        ckvc_warn("%s: %s its prompts was not checked for leaks; `ckvc manifest check --against` "
                  "the scored prompts, then calibrate, compile or fit with --leak-check",
                  path, json_array_size(checks) ? "a part of" : "the manifest of");
        return;
    }
    size_t i;
    json_t *check;
    bool compared = true;
    uint64_t leaked = 0, leaked_elsewhere = 0, prompts = 0;
    json_array_foreach(checks, i, check) {
        leak_record r;
        ckvc_err why = {0};
        if (leak_record_parse(check, path, &r, &why) != CKVC_OK) {
            ckvc_warn("%s", why.text);
            return;
        }
        const leak_against *a = leak_record_find(&r, scored_manifest);
        compared = compared && a;
        leaked += a ? a->leaked_prompts : 0;
        leaked_elsewhere += r.leaked_prompts;
        prompts += r.prompts;
        leak_record_fini(&r);
    }
    if (leaked) {
        fflush(stdout);
        say("error: %s: LEAK: %" PRIu64 " of its %" PRIu64
            " prompts share text or ids with the prompts scored here; this is no held-out result\n",
            path, leaked, prompts);
    } else if (!compared) {
        ckvc_warn(
            "%s: was checked for leaks, but not against the manifest scored here (%.12s...)%s",
            path, scored_manifest, leaked_elsewhere ? "; it shares text with others" : "");
    } else if (leaked_elsewhere) {
        ckvc_warn("%s: shares nothing with the prompts scored here, but %" PRIu64 " of its %" PRIu64
                  " prompts share text with other evaluation files",
                  path, leaked_elsewhere, prompts);
    }
}
