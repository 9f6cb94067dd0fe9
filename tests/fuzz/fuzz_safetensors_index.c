/* model.safetensors.index.json of a directory, beside two files of one tensor each. */
#include "formats/model/model_readers.h"
#include "lib/base/bytes.h"
#include "tests/fuzz/fuzz.h"

static void put_shard(const char *name, const char *tensor) {
    uint8_t file[256] = {0};
    char *header =
        ckvc_format("{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    const size_t n = strlen(header);
    ckvc_put_u64(file, n);
    memcpy(file + 8, header, n);
    free(header);
    fuzz_file(name, file, 8 + n + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ckvc_err err = {0};
    if (!*fuzz_folder_name) {
        put_shard("a.safetensors", "a");
        put_shard("b.safetensors", "b");
    }
    fuzz_file("model.safetensors.index.json", data, size);
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(fuzz_folder());
    const ckvc_status st = safetensors_read(fuzz_folder(), spec, &err);
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return 0;
    }
    must(spec->n_tensors <= 2);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        fuzz_touch(spec->tensors[i].data, spec->tensors[i].bytes);
    }
    return 0;
}
