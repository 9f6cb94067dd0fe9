/* See report.h: load, compute, write.
 *
 * Files are published one by one, the page last. UNFINISHED lies among them, locked, from before
 * the first to behind the last: where it is found and nobody holds it, the files beside it are
 * those of a report that was cut short. */
#include "report/report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/load/inputs.h"
#include "report/numbers/numbers.h"
#include "report/sections/sections.h"

#define UNFINISHED "report.unfinished"

typedef struct part {
    char *path;
    const ckvc_buffer *bytes;
} part;

/* The folder on its way to a report. */
typedef struct publication {
    const char *out;
    bool replace; /* what is there: --force, or it is of a report that was cut short */
    char *unfinished;
    part *parts;
    size_t n, cap;
} publication;

static void publication_fini(publication *p) {
    for (size_t i = 0; i < p->n; i++) { free(p->parts[i].path); }
    free(p->parts);
    free(p->unfinished);
}

static void add_part(publication *p, const char *stem, const char *ending, const ckvc_buffer *b) {
    CKVC_AUTO_FREE char *name = ckvc_format("%s%s", stem, ending);
    CKVC_GROW(p->parts, p->cap, p->n + 1);
    p->parts[p->n++] = (part){ckvc_path_join(p->out, name), b};
}

/* Before any work: an earlier report is not mixed with a new one unless asked. */
static ckvc_status publication_begin(publication *p, const report_options *o, ckvc_err *err) {
    static const char *const files[] = {"report.html", "report.json"};
    p->out = o->out;
    p->unfinished = ckvc_path_join(o->out, UNFINISHED);
    p->replace = o->force || ckvc_file_exists(p->unfinished);
    for (size_t i = 0; i < 2; i++) {
        CKVC_AUTO_FREE char *path = ckvc_path_join(o->out, files[i]);
        CKVC_FAIL_IF(ckvc_file_exists(path) && !p->replace, err, CKVC_E_CREATE,
                     "%s: holds a report already; give another --out, or --force to replace it",
                     o->out);
    }
    return CKVC_OK;
}

static bool is_temporary(const publication *p, const char *name) {
    for (size_t i = 0; i < p->n; i++) {
        const char *final = strrchr(p->parts[i].path, '/') + 1;
        const size_t n = strlen(final);
        if (strncmp(name, final, n) == 0 && strncmp(name + n, ".tmp.", 5) == 0) { return true; }
    }
    return false;
}

/* Of a report that was killed; the lock says that it is gone. */
static void remove_temporaries(const publication *p) {
    DIR *folder = opendir(p->out);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (is_temporary(p, e->d_name)) { unlinkat(dirfd(folder), e->d_name, 0); }
    }
    if (folder) { closedir(folder); }
}

static ckvc_status publish(const publication *p, ckvc_err *err) {
    CKVC_TRY(ckvc_make_dirs(p->out, err));
    for (size_t i = 0; i < p->n; i++) { /* before the first is written */
        CKVC_TRY(ckvc_publish_check(p->parts[i].path, p->replace, err));
    }
    const bool cut_short = ckvc_file_exists(p->unfinished);
    CKVC_AUTO(ckvc_close_at) int lock = open(p->unfinished, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    CKVC_FAIL_ERRNO_IF(lock < 0, err, CKVC_E_CREATE, "%s: cannot create", p->unfinished);
    CKVC_FAIL_IF(flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, err, CKVC_E_BUSY,
                 "%s: another process is writing a report there; wait for it or stop it", p->out);
    if (cut_short) { remove_temporaries(p); }
    for (size_t i = 0; i < p->n; i++) {
        const ckvc_buffer *b = p->parts[i].bytes;
        CKVC_TRY(ckvc_publish_bytes(p->parts[i].path, b->data ? b->data : (const uint8_t *)"",
                                    b->size, p->replace, err));
    }
    CKVC_FAIL_ERRNO_IF(unlink(p->unfinished) != 0, err, CKVC_E_IO, "%s: cannot remove",
                       p->unfinished);
    return CKVC_OK;
}

static ckvc_status check_verdicts(const report_numbers *n, ckvc_err *err) {
    CKVC_FAIL_IF(n->n_tables == 0, err, CKVC_CHECK_FAILED,
                 "no table was given, so none is required to be deployed; name its .ckvt file");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        CKVC_FAIL_IF(t->verdict.word != verdict_deploy, err, CKVC_CHECK_FAILED,
                     "%s: %s, wanted deploy; the report says why", t->title, t->verdict.word);
    }
    return CKVC_OK;
}

ckvc_status report_write(const report_options *o, char **summary, char **json, ckvc_err *err) {
    CKVC_AUTO(publication_fini) publication p = {0};
    CKVC_AUTO(inputs_free) inputs in = {0};
    CKVC_AUTO(view_fini) view v = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    report_numbers n;
    CKVC_TRY(publication_begin(&p, o, err));
    CKVC_TRY(inputs_load(&in, o, err));
    CKVC_TRY(numbers_make(&n, &in, err));
    json_auto_t *all = report_json(&n);
    ckvc_json_append(&text, all);
    ckvc_buffer_text(&text, "\n");
    report_page(&n, &v);
    for (size_t i = 0; i < v.n_figures; i++) {
        add_part(&p, v.figures[i].name, ".svg", &v.figures[i].svg);
        add_part(&p, v.figures[i].name, ".csv", &v.figures[i].csv);
    }
    add_part(&p, "report", ".json", &text);
    add_part(&p, "report", ".html", &v.html);
    CKVC_TRY(publish(&p, err));
    *summary = ckvc_strdup(v.summary.data ? (const char *)v.summary.data : "");
    *json = ckvc_strdup((const char *)text.data);
    return o->require_deploy ? check_verdicts(&n, err) : CKVC_OK;
}

ckvc_status report_answers(const uint8_t *lines, size_t n, uint64_t seed, char **text,
                           ckvc_err *err) {
    enum { REPLICATES = 1000 };
    const report_options o = {.replicates = REPLICATES, .seed = seed};
    CKVC_AUTO(inputs_free) inputs in = {.o = &o};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    report_numbers of = {.in = &in};
    in.answers.files = room_for(&in.room, 1, sizeof(answers *));
    CKVC_TRY(answers_read_lines("answers", lines, n, &in.answers.files[0], err));
    in.answers.n_files = 1;
    CKVC_TRY(answer_rows_take(&in, err));
    answer_numbers_make(&of);
    answers_text(&of, &b);
    *text = ckvc_strdup(b.data ? (const char *)b.data : "");
    return CKVC_OK;
}
