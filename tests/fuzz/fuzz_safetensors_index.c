/* model.safetensors.index.json of a directory, beside two files of one tensor each. */
#include "formats/model/model_readers.h"
#include "tests/fuzz/fuzz.h"

/* Its tensor has the name's first letter for a name. */
static void put_shard(const char *name) {
    char file[256] = {0};
    const int n =
        snprintf(file + 8, sizeof file - 8,
                 "{\"%c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", *name);
    file[0] = (char)n; /* of the header's length, eight bytes */
    fuzz_file(name, file, 8 + (size_t)n + 4);
}

FUZZ {
    if (!*fuzz_folder_name) { put_shard("a.safetensors"), put_shard("b.safetensors"); }
    fuzz_file("model.safetensors.index.json", data, size);
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(fuzz_folder());
    if (!fuzz_took(safetensors_read(fuzz_folder(), spec, err), err)) { return; }
    must(spec->n_tensors <= 2);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        fuzz_touch(spec->tensors[i].data, spec->tensors[i].bytes);
    }
}
