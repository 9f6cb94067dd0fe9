/* ckvc version: what this build is and what it runs on. */
#include <hdf5.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "lib/backend/backend.h"
#include "lib/base/names.h"
#include "lib/base/pool.h"
#include "lib/base/version.h"

int cmd_version(int argc, char **argv) {
    static const verb_text text = {"version", "build flags, libraries, BLAS kernel in use",
                                   "ckvc version [--json]", "  ckvc version\n"};
    bool json = false;
    opt opts[] = {{OPT_FLAG, "json", 0, &json, "", "one JSON object", 0, 0}, {0}};
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) { return rc; }
    free(args.items);
    ckvc_err err = {0};
    ckvc_pool *pool = NULL;
    backend *be = NULL;
    ckvc_status st = ckvc_pool_create(1, &pool, &err);
    if (st == CKVC_OK) { st = backend_create("cpu", pool, &be, &err); }
    if (st != CKVC_OK) {
        ckvc_pool_destroy(pool);
        return cmd_fail(text.name, &err);
    }
    unsigned major, minor, release;
    char pcre2[64] = "";
    H5get_libversion(&major, &minor, &release);
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    char hdf5[32];
    snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    const char *rows[][2] = {{"ckvc", CKVC_VERSION},
                             {"commit", ckvc_build_git()},
                             {"compiler", ckvc_build_compiler()},
                             {"flags", ckvc_build_flags()},
                             {"hdf5", hdf5},
                             {"zstd", ZSTD_versionString()},
                             {"jansson", JANSSON_VERSION},
                             {"pcre2", pcre2},
                             {"kernel", backend_kernel(be)},
                             {"backends", "cpu, openblas"}};
    const char *warning = backend_warning(be);
    if (json) {
        json_t *o = json_object();
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            json_object_set_new(o, rows[i][0], json_string(rows[i][1]));
        }
        json_object_set_new(o, "cores", json_integer(ckvc_cpu_count()));
        json_object_set_new(o, "warning", warning ? json_string(warning) : json_null());
        json_dumpf(o, stdout, JSON_COMPACT | JSON_SORT_KEYS);
        putchar('\n');
        json_decref(o);
    } else {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            printf("%-10s %s\n", rows[i][0], rows[i][1]);
        }
        printf("%-10s %d\n", "cores", ckvc_cpu_count());
        if (warning) { printf("%-10s %s\n", "warning", warning); }
    }
    backend_destroy(be);
    ckvc_pool_destroy(pool);
    return 0;
}
