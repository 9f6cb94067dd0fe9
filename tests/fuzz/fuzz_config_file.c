/* A file for --config, read for `ckvc calibrate` and for `ckvc score`: options of every type. */
#include "cmd/common/option_values.h"
#include "cmd/verbs.h"
#include "tests/fuzz/fuzz.h"

static bool known(const char *name, nearest *near) {
    nearest_try(near, "min-cell");
    return strcmp(name, "solver") == 0; /* another verb's */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const verb *const verbs[] = {&verb_calibrate, &verb_score};
    const char *path = fuzz_file("ckvc.conf", data, size);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        CKVC_AUTO_FREE void *options = ckvc_calloc(1, verbs[i]->size);
        CKVC_AUTO(opt_values_fini) opt_values values = {0};
        ckvc_err err = {0};
        opt_values_add(&values, verbs[i]->options, options);
        const ckvc_status st = opt_values_config(&values, path, known, &err);
        if (st != CKVC_OK) { must_refuse_well(st, &err); }
        for (size_t k = 0; st == CKVC_OK && k < values.n; k++) {
            free(opt_value_text(&values.items[k]));
        }
    }
    return 0;
}
