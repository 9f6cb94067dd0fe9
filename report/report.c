/* See report.h: load, compute, write. */
#include "report/report.h"

#include <dirent.h>
#include <fnmatch.h>
#include <unistd.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "report/load/inputs.h"
#include "report/page/page.h"
#include "report/words/words.h"

/* `ckvc transfer --report` writes this file into the folder, and it stays. */
static const char scores_name[] = "scores.jsonl";

/* Checks before any work that the folder holds nothing but a report's files, and that an earlier
 * report goes only when that was asked for. */
static ckvc_status check_folder(const report_options *o, ckvc_err *err) {
    DIR *folder = opendir(o->out);
    bool report = false;
    CKVC_AUTO_FREE char *other = NULL;
    CKVC_FAIL_IF(!folder && ckvc_file_exists(o->out), err, CKVC_E_CREATE,
                 "%s: is no folder that can be looked into; give another --out", o->out);
    for (struct dirent *e; folder && !other && (e = readdir(folder));) {
        const char *name = e->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, scores_name) == 0) {
            continue;
        }
        report = true;
        if (strcmp(name, "report.html") != 0 && strcmp(name, "report.json") != 0 &&
            fnmatch("?*.svg", name, 0) != 0 && fnmatch("?*.csv", name, 0) != 0) {
            other = ckvc_strdup(name);
        }
    }
    if (folder) { closedir(folder); }
    CKVC_FAIL_IF(other, err, CKVC_E_CREATE,
                 "%s: this folder is there already and holds %s, which is no report's. A report "
                 "has a folder of its own: give another --out",
                 o->out, other);
    CKVC_FAIL_IF(report && !o->force, err, CKVC_E_CREATE,
                 "%s: holds a report already; give another --out, or --force to replace it",
                 o->out);
    return CKVC_OK;
}

static ckvc_status put_file(const ckvc_new_folder *to, const char *name, const ckvc_buffer *b,
                            ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(to->tmp_path, name);
    return ckvc_publish_bytes(path, b->data, b->size, false, err);
}

static ckvc_status publish_report(const report_options *o, const ckvc_buffer *json,
                                  const ckvc_buffer *page, ckvc_err *err) {
    CKVC_AUTO(ckvc_new_folder_abort) ckvc_new_folder to = {0};
    CKVC_TRY(ckvc_new_folder_begin(&to, o->out, err));
    CKVC_TRY(put_file(&to, "report.json", json, err));
    CKVC_TRY(put_file(&to, "report.html", page, err));
    CKVC_AUTO_FREE char *was = ckvc_path_join(to.path, scores_name);
    CKVC_AUTO_FREE char *stays = ckvc_path_join(to.tmp_path, scores_name);
    const bool there = ckvc_file_exists(was);
    CKVC_FAIL_ERRNO_IF(there && link(was, stays) != 0, err, CKVC_E_CREATE, "%s: cannot link", was);
    return ckvc_new_folder_commit(&to, o->force || there, err);
}

static ckvc_status check_verdicts(const report_numbers *n, ckvc_err *err) {
    CKVC_FAIL_IF(n->n_tables == 0, err, CKVC_CHECK_FAILED,
                 "no table was given, so none is required to be deployed; name its .ckvt file");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        CKVC_FAIL_IF(t->verdict.word != verdict_deploy, err, CKVC_CHECK_FAILED,
                     "%s: %s, wanted deploy; the report says why", t->in->title, t->verdict.word);
    }
    return CKVC_OK;
}

/* Copies the buffer's text, for the caller to free. */
static char *copy_buffer_text(const ckvc_buffer *b) {
    return ckvc_strdup(b->data ? (const char *)b->data : "");
}

ckvc_status report_write(const report_options *o, char **summary, char **json, ckvc_err *err) {
    CKVC_AUTO(inputs_free) inputs in = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0}, page = {0}, found = {0};
    CKVC_AUTO(numbers_free) report_numbers n = {0};
    CKVC_TRY(check_folder(o, err));
    CKVC_TRY(inputs_load(&in, o, err));
    CKVC_TRY(numbers_make(&n, &in, err));
    findings_make(&n);
    ADD_MEMBERS(n.json, {"schema", J("ckvc-report-1")}, {"ckvc_version", J(CKVC_VERSION)},
                {"replicates", J(o->replicates)});
    ckvc_json_append(&text, n.json);
    ckvc_buffer_text(&text, "\n");
    page_write(&page, n.json);
    CKVC_TRY(publish_report(o, &text, &page, err));
    findings_text(&n, &found);
    *summary = copy_buffer_text(&found);
    *json = copy_buffer_text(&text);
    return o->require_deploy ? check_verdicts(&n, err) : CKVC_OK;
}

ckvc_status report_answers(const uint8_t *lines, size_t n, char **text, ckvc_err *err) {
    enum { REPLICATES = 1000, SEED = 1 }; /* the built-in values of `ckvc report` */
    const report_options o = {.replicates = REPLICATES, .seed = SEED};
    CKVC_AUTO(inputs_free) inputs in = {.o = &o};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    CKVC_AUTO(numbers_free) report_numbers of = {.in = &in, .json = json_object()};
    in.answers.files = arena_alloc(&in.arena, 1, sizeof(answers *));
    CKVC_TRY(answers_read_lines("answers", lines, n, &in.answers.files[0], err));
    in.answers.n_files = 1;
    CKVC_TRY(answer_rows_take(&in, err));
    answer_numbers_make(&of);
    answers_text(&of, &b);
    *text = copy_buffer_text(&b);
    return CKVC_OK;
}
