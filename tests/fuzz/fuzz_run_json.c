/* run.json of a run directory without a pass: the plan, the settings and the leak record in it, and
 * the same run resumed with its own plan. */
#include <sys/stat.h>

#include "formats/lines/leak_record.h"
#include "formats/run/run_dir.h"
#include "formats/setting/setting.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    if (!*fuzz_folder_name) { must(mkdir(fuzz_path("run"), 0700) == 0); }
    fuzz_file("run/run.json", data, size);
    CKVC_AUTO(run_close_at) run_dir *run = NULL, *resumed = NULL;
    if (!fuzz_took(run_open(fuzz_path("run"), &run, err), err)) { return; }
    json_decref(run_describe(run));
    setting read = setting_neutral(), neutral = setting_neutral();
    setting_read(run_plan(run), SETTING_PLAN, &read);
    json_auto_t *written = json_object();
    setting_write(written, SETTING_PLAN, &read, 0);
    if (setting_match(&read, "run", &neutral, "this run", SETTING_SCAN, "give --", err) !=
        CKVC_OK) {
        fuzz_took(CKVC_E_MISMATCH, err);
    }
    leak_record leaks = {0};
    const json_t *record = json_object_get(run_plan(run), "leak_check");
    if (record && leak_record_parse(record, "run.json", &leaks, err) != CKVC_OK) {
        fuzz_took(CKVC_E_DATA, err);
    }
    leak_record_fini(&leaks);
    must(run_create(fuzz_path("run"), run_plan(run), RUN_WHOLE, true, &resumed, err) == CKVC_OK);
    must(strcmp(run_plan_hash(run), run_plan_hash(resumed)) == 0);
}
