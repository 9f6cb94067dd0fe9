/* A file for --config, read for `ckvc calibrate` and for `ckvc score`: options of every type. */
#include "cmd/common/option_values.h"
#include "cmd/verbs.h"
#include "tests/fuzz/fuzz.h"

static bool known(const char *name, nearest *near) {
    nearest_try(near, "min-cell");
    return strcmp(name, "solver") == 0; /* another verb's */
}

/* A verb's options as they are before any file, which is what takes time; each input begins there.
 */
typedef struct fresh {
    opt_values values;
    void *options, *preset; /* what the values point into, and a copy */
} fresh;

static void prepare(fresh *f, const verb *v) {
    f->options = ckvc_calloc(1, v->size);
    opt_values_add(&f->values, v->options, f->options);
    f->preset = ckvc_copy(f->options, 1, v->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fresh of[2];
    static const verb *const verbs[] = {&verb_calibrate, &verb_score};
    const char *path = fuzz_file("ckvc.conf", data, size);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!of[i].options) { prepare(&of[i], verbs[i]); }
        memcpy(of[i].options, of[i].preset, verbs[i]->size);
        opt_values values = of[i].values;
        ckvc_err err = {0};
        const ckvc_status st = opt_values_config(&values, path, known, &err);
        if (st != CKVC_OK) { must_refuse_well(st, &err); }
        for (size_t k = 0; st == CKVC_OK && k < values.n; k++) {
            free(opt_value_text(&values.items[k]));
        }
    }
    return 0;
}
