/* vocab.json, merges.txt and tokenizer_config.json of a directory, NUL bytes between them. */
#include "tests/fuzz/fuzz_tokens.h"

FUZZ {
    fuzz_parts(data, size, "vocab.json", "merges.txt", "tokenizer_config.json");
    fuzz_tokens(fuzz_folder(), err);
}
