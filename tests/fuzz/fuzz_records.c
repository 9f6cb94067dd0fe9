/* Small JSON files of a run, from one input: scan/coverage.json, the record of a leak check. */
#include <sys/stat.h>

#include "formats/lines/leak_record.h"
#include "formats/run/run_status.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    coverage cover;
    leak_record leaks;
    bool there;
    if (!*fuzz_folder_name) { must(mkdir(fuzz_path("scan"), 0700) == 0); }
    const char *path = fuzz_file(COVERAGE_FILE, data, size);
    if (fuzz_took(coverage_read(fuzz_folder(), &cover, &there, err), err)) {
        must(there);
        json_decref(coverage_json(&cover));
        coverage_fini(&cover);
    }
    if (fuzz_took(leak_record_read(path, &leaks, err), err)) {
        json_decref(leak_record_json(&leaks));
        leak_record_fini(&leaks);
    }
}
