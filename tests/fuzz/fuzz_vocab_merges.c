/* vocab.json, merges.txt and tokenizer_config.json of a directory, NUL bytes between them. */
#include "tests/fuzz/fuzz_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    size_t at = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint8_t *part;
        size_t n;
        unlink(fuzz_path(names[i]));
        if (fuzz_part(data, size, &at, &part, &n)) { fuzz_file(names[i], part, n); }
    }
    fuzz_tokens(fuzz_folder());
    return 0;
}
