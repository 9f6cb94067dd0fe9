/* See report.h: load, compute, draw, write. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "report/report_diagnostics.h"

static ckvc_status publish(const report *r, const char *stem, const char *ending,
                           const ckvc_buffer *b, ckvc_err *err) {
    char *name = ckvc_format("%s%s", stem, ending),
         *path = name ? ckvc_path_join(r->o->out, name) : NULL;
    ckvc_status rc = path ? ckvc_publish_bytes(path, b->data ? b->data : (const uint8_t *)"",
                                               b->size, r->o->force, err)
                          : ckvc_fail_memory(err, "report", strlen(stem));
    free(name);
    free(path);
    return rc;
}

static ckvc_status publish_all(const report *r, const ckvc_buffer *html, const ckvc_buffer *json,
                               ckvc_err *err) {
    ckvc_status rc = CKVC_OK;
    for (size_t i = 0; i < r->n_figures && rc == CKVC_OK; i++) {
        const report_figure *f = &r->figures[i];
        if ((rc = publish(r, f->name, ".svg", &f->file_svg, err)) == CKVC_OK) {
            rc = publish(r, f->name, ".csv", &f->csv, err);
        }
    }
    if (rc == CKVC_OK) { rc = publish(r, "report", ".json", json, err); }
    return rc ? rc
              : publish(r, "report", ".html", html, err); /* last: where the page is, the rest is */
}

/* Before any work: an earlier report is not mixed with a new one unless asked. */
static ckvc_status check_out(const report_options *o, ckvc_err *err) {
    static const char *const files[] = {"report.html", "report.json"};
    for (size_t i = 0; i < 2; i++) {
        char *path = ckvc_path_join(o->out, files[i]);
        bool exists = ckvc_file_exists(path);
        free(path);
        if (exists && !o->force) {
            return ckvc_fail(
                err, CKVC_E_CREATE,
                "%s: holds a report already; give another --out, or --force to replace it", o->out);
        }
    }
    return CKVC_OK;
}

ckvc_status report_write(const report_options *o, char **summary, char **json, ckvc_err *err) {
    report r = {.o = o};
    ckvc_buffer html = {0}, text = {0}, numbers = {0};
    ckvc_status rc = check_out(o, err);
    if (rc == CKVC_OK) { rc = report_load(&r, err); }
    if (rc == CKVC_OK) {
        json_object_set_new(r.json, "schema", json_string("ckvc-report-1"));
        json_object_set_new(r.json, "ckvc_version", json_string(CKVC_VERSION));
        ckvc_status (*const steps[])(report *, ckvc_err *) = {report_records,
                                                              report_tables_json,
                                                              report_leaks_json,
                                                              report_stats_json,
                                                              report_pairs_json,
                                                              report_runs_json,
                                                              report_coverage_json,
                                                              report_binding_json,
                                                              report_scores_json,
                                                              report_attention_json,
                                                              report_diagnostics_json,
                                                              report_transfer_json,
                                                              report_draw};
        for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == CKVC_OK; i++) {
            rc = steps[i](&r, err);
        }
    }
    if (rc == CKVC_OK) { rc = report_page(&r, &html, &text, err); }
    if (rc == CKVC_OK) {
        ckvc_json_append(&numbers, r.json);
        ckvc_buffer_text(&numbers, "\n");
        rc = numbers.failed ? ckvc_fail_memory(err, "report", numbers.size)
                            : ckvc_make_dirs(o->out, err);
    }
    if (rc == CKVC_OK) { rc = publish_all(&r, &html, &numbers, err); }
    if (rc == CKVC_OK) {
        *summary = ckvc_strdup(text.data ? (const char *)text.data : "");
        *json = ckvc_strdup((const char *)numbers.data);
        rc = *summary && *json ? CKVC_OK : ckvc_fail_memory(err, "report", numbers.size);
    }
    ckvc_buffer_fini(&html);
    ckvc_buffer_fini(&text);
    ckvc_buffer_fini(&numbers);
    report_unload(&r);
    return rc;
}
