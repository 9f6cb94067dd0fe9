/* Computes every number of a report, part by part: each needs those before. */
#include "report/numbers/numbers.h"

ckvc_status numbers_make(report_numbers *n, inputs *in, ckvc_err *err) {
    *n = (report_numbers){.in = in, .json = OBJECT({"findings", json_array()})};
    table_numbers_make(n);
    CKVC_TRY(trust_numbers_make(n, err));
    pair_numbers_make(n);
    run_numbers_make(n);
    score_numbers_make(n);
    loss_numbers_make(n);
    verdict_numbers_make(n);
    byte_numbers_make(n);
    answer_numbers_make(n);
    attention_numbers_make(n);
    diagnostic_numbers_make(n);
    transfer_numbers_make(n);
    return CKVC_OK;
}

void numbers_free(report_numbers *n) { json_decref(n->json); }
