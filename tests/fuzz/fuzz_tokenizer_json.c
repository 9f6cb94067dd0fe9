/* tokenizer.json of a directory and, behind a NUL byte, its tokenizer_config.json. */
#include "tests/fuzz/fuzz_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *part;
    size_t at = 0, n;
    unlink(fuzz_path("tokenizer_config.json"));
    (void)fuzz_part(data, size, &at, &part, &n);
    fuzz_file("tokenizer.json", part, n);
    if (fuzz_part(data, size, &at, &part, &n)) { fuzz_file("tokenizer_config.json", part, n); }
    fuzz_tokens(fuzz_folder());
    return 0;
}
