/* See report.h: load, compute, write. */
#include "report/report.h"

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/numbers/numbers.h"
#include "report/sections/sections.h"

static ckvc_status publish(const report_options *o, const char *stem, const char *ending,
                           const ckvc_buffer *b, ckvc_err *err) {
    CKVC_AUTO_FREE char *name = ckvc_format("%s%s", stem, ending);
    CKVC_AUTO_FREE char *path = ckvc_path_join(o->out, name);
    return ckvc_publish_bytes(path, b->data ? b->data : (const uint8_t *)"", b->size, o->force,
                              err);
}

/* Before any work: an earlier report is not mixed with a new one unless asked. */
static ckvc_status check_out(const report_options *o, ckvc_err *err) {
    static const char *const files[] = {"report.html", "report.json"};
    for (size_t i = 0; i < 2; i++) {
        CKVC_AUTO_FREE char *path = ckvc_path_join(o->out, files[i]);
        CKVC_FAIL_IF(ckvc_file_exists(path) && !o->force, err, CKVC_E_CREATE,
                     "%s: holds a report already; give another --out, or --force to replace it",
                     o->out);
    }
    return CKVC_OK;
}

static ckvc_status publish_all(const report_options *o, const view *v, const ckvc_buffer *json,
                               ckvc_err *err) {
    CKVC_TRY(ckvc_make_dirs(o->out, err));
    for (size_t i = 0; i < v->n_figures; i++) {
        CKVC_TRY(publish(o, v->figures[i].name, ".svg", &v->figures[i].svg, err));
        CKVC_TRY(publish(o, v->figures[i].name, ".csv", &v->figures[i].csv, err));
    }
    CKVC_TRY(publish(o, "report", ".json", json, err));
    /* last: where the page is, the rest is */
    return publish(o, "report", ".html", &v->html, err);
}

ckvc_status report_write(const report_options *o, char **summary, char **json, ckvc_err *err) {
    CKVC_AUTO(inputs_free) inputs in = {0};
    CKVC_AUTO(view_fini) view v = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    report_numbers n;
    CKVC_TRY(check_out(o, err));
    CKVC_TRY(inputs_load(&in, o, err));
    CKVC_TRY(numbers_make(&n, &in, err));
    json_auto_t *all = report_json(&n);
    ckvc_json_append(&text, all);
    ckvc_buffer_text(&text, "\n");
    report_page(&n, &v);
    CKVC_TRY(publish_all(o, &v, &text, err));
    *summary = ckvc_strdup(v.summary.data ? (const char *)v.summary.data : "");
    *json = ckvc_strdup((const char *)text.data);
    return CKVC_OK;
}
