/* The scan logs risks and statistics of every prompt, and its full-cache loss (paper.md section 8).
 */
#include <math.h>

#include "calib/log/pass.h"

static ckvc_status measure_scanned(pass *s, worker *const *w, const prompt *const *p, int64_t n,
                                   ckvc_err *err) {
    (void)s;
    CKVC_TRY(workers_prefill(w, p, n, err));
    return workers_full(w, n, err);
}

static ckvc_status scan_prompt(pass *s, const prompt *p, const char **bad, ckvc_err *err) {
    const worker *w = s->w;
    (void)err;
    struct shard_prompt row = pass_prompt_row(p, &w->stats);
    row.loss_full = w->losses.full;
    if (!isfinite(row.loss_full) || !isfinite(row.r_sem) || !isfinite(row.r_struct)) {
        *bad = "the full-cache loss or a risk is not finite";
        return CKVC_OK;
    }
    pass_put_statistics(w, shard_add_prompt(s->rows, &row), s->rows);
    return CKVC_OK;
}

const pass_type pass_scan = {
    .rows = SHARD_SCAN, .forwards = 2, .measure = measure_scanned, .log = scan_prompt};
