/* A file for --config, read for `ckvc calibrate` and for `ckvc score`: options of every type. */
#include "cmd/common/option_values.h"
#include "cmd/verbs.h"
#include "tests/fuzz/fuzz.h"

static bool known(const char *name, nearest *near) {
    nearest_try(near, "min-cell");
    return strcmp(name, "solver") == 0; /* another verb's */
}

static void read_for(const verb *v, const char *path, ckvc_err *err) {
    CKVC_AUTO_FREE void *options = ckvc_calloc(1, v->size);
    CKVC_AUTO(opt_values_fini) opt_values values = {0};
    opt_values_add(&values, v->options, options);
    if (!fuzz_took(opt_values_config(&values, path, known, err), err)) { return; }
    for (size_t k = 0; k < values.n; k++) { free(opt_value_text(&values.items[k])); }
}

FUZZ {
    const char *path = fuzz_file("ckvc.conf", data, size);
    read_for(&verb_calibrate, path, err);
    read_for(&verb_score, path, err);
}
