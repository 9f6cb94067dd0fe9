/* What a path is: see artifact.h. */
#include "cmd/common/artifact.h"

#include <stdio.h>
#include <sys/stat.h>

#include "formats/model/gguf.h"

const char *artifact_name(artifact kind) {
    static const char *const names[] = {"table", "shard", "run", "model", "manifest"};
    return names[kind];
}

static bool ends_with(const char *path, const char *suffix) {
    size_t n = strlen(path), k = strlen(suffix);
    return n >= k && strcmp(path + n - k, suffix) == 0;
}

static bool folder_has(const char *folder, const char *name) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(folder, name);
    return ckvc_file_exists(path);
}

static ckvc_status kind_of_folder(const char *path, artifact *out, ckvc_err *err) {
    const bool run = folder_has(path, "run.json");
    if (!run && !folder_has(path, "config.json")) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: a folder with neither run.json (a run) nor config.json (a model)",
                         path);
    }
    *out = run ? ARTIFACT_RUN : ARTIFACT_MODEL;
    return CKVC_OK;
}

ckvc_status artifact_of(const char *path, artifact *out, ckvc_err *err) {
    struct stat s;
    if (stat(path, &s) != 0) { return ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s", path); }
    if (S_ISDIR(s.st_mode)) { return kind_of_folder(path, out, err); }
    if (!S_ISREG(s.st_mode)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: not a regular file or folder", path);
    }
    FILE *f = fopen(path, "rb");
    if (!f) { return ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s", path); }
    unsigned char head[4] = {0};
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    static const unsigned char table[4] = {0x89, 'C', 'K', 'V'}, hdf5[4] = {0x89, 'H', 'D', 'F'};
    if ((n == 4 && memcmp(head, table, 4) == 0) || ends_with(path, ".ckvt")) {
        *out = ARTIFACT_TABLE;
    } else if ((n == 4 && memcmp(head, hdf5, 4) == 0) || ends_with(path, ".h5")) {
        *out = ARTIFACT_SHARD;
    } else if (gguf_is_file(path)) {
        *out = ARTIFACT_MODEL;
    } else if (ends_with(path, ".jsonl")) {
        *out = ARTIFACT_MANIFEST;
    } else {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: not a table (.ckvt), a shard (.h5), a model (.gguf) or a manifest "
                         "(.jsonl); of a run or a model in a folder give the folder",
                         path);
    }
    return CKVC_OK;
}
