/* Small JSON files of a run: scan/coverage.json, and the record of a leak check, each read from the
 * same input. */
#include <sys/stat.h>

#include "formats/lines/leak_record.h"
#include "formats/run/run_status.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckvc_err err = {0};
    coverage cover;
    bool there;
    if (!*fuzz_folder_name) { must(mkdir(fuzz_path("scan"), 0700) == 0); }
    const char *path = fuzz_file(COVERAGE_FILE, data, size);
    ckvc_status st = coverage_read(fuzz_folder(), &cover, &there, &err);
    if (st == CKVC_OK) {
        must(there);
        json_decref(coverage_json(&cover));
        coverage_fini(&cover);
    } else {
        must_refuse_well(st, &err);
    }
    leak_record leaks;
    err = (ckvc_err){0};
    st = leak_record_read(path, &leaks, &err);
    if (st == CKVC_OK) {
        json_decref(leak_record_json(&leaks));
        leak_record_fini(&leaks);
    } else {
        must_refuse_well(st, &err);
    }
    return 0;
}
