/* ckvc version says how this program was built and what it runs on. */
#include <hdf5.h>
#include <zstd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "cmd/common/json_text.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"

#ifndef CKVC_BUILD_FLAGS /* the Makefile defines both; CKVC_GIT is "" outside a checkout */
#define CKVC_BUILD_FLAGS ""
#define CKVC_GIT         ""
#endif
#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

typedef struct version_cli {
    bool json;
} version_cli;

static ckvc_status version(const verb_call *call, ckvc_err *err) {
    const version_cli *c = call->options;
    CKVC_AUTO(inputs_close) opened_inputs e = {0};
    CKVC_TRY(ckvc_pool_create(ckvc_cpu_count(), &e.pool, err));
    CKVC_TRY(backend_create("cpu", CKVC_COMPUTE_F32, e.pool, &e.be, err));
    unsigned major, minor, release;
    char pcre2[64] = "", hdf5[32], gpu[640];
    H5get_libversion(&major, &minor, &release);
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    backend_cuda_text(gpu, sizeof gpu);
    const char *warning = e.be->warning[0] ? e.be->warning : NULL;
    const char *rows[][2] = {{"ckvc", CKVC_VERSION},
                             {"commit", CKVC_GIT},
                             {"compiler", COMPILER},
                             {"flags", CKVC_BUILD_FLAGS},
                             {"hdf5", hdf5},
                             {"zstd", ZSTD_versionString()},
                             {"jansson", JANSSON_VERSION},
                             {"pcre2", pcre2},
                             {"kernel", e.be->kernel},
                             {"bf16", "emulated"},
                             {"backends", backend_kinds()},
                             {"cuda", gpu}};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_object_set_new(o, rows[i][0], json_string(rows[i][1]));
    }
    json_object_set_new(o, "cores", json_integer(ckvc_cpu_count()));
    if (warning || c->json) { json_object_set_new(o, "warning", json_pack("s?", warning)); }
    result_print(c->json, stdout, "{.#{@:-10s} {.}\n}", o, NULL);
    return CKVC_OK;
}

#define OPTIONS_OF version_cli
static const opt options_rows[] = {OPT_FLAG("json", json, "Print one JSON object."), {0}};

const verb verb_version = {.name = "version",
                           .about = "show build flags, libraries, BLAS kernel and GPU",
                           .summary =
                               "show build flags, libraries, the BLAS kernel in use and the GPU",
                           .usage = "ckvc version [--json]",
                           .examples = "  ckvc version\n",
                           VERB_OPTIONS(options_rows),
                           .work = version};
