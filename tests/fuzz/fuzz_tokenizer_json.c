/* tokenizer.json of a directory and, behind a NUL byte, its tokenizer_config.json. */
#include "tests/fuzz/fuzz_tokens.h"

FUZZ {
    fuzz_parts(data, size, "tokenizer.json", "tokenizer_config.json");
    fuzz_tokens(fuzz_folder(), err);
}
