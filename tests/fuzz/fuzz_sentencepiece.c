/* tokenizer.model: SentencePiece's protobuf, or tiktoken's ranks where its first bytes say so. */
#include "tests/fuzz/fuzz_tokens.h"

FUZZ {
    static const char config[] = "{\"tokenizer_class\": \"LlamaTokenizer\", \"legacy\": true}";
    if (!*fuzz_folder_name) { fuzz_file("tokenizer_config.json", config, sizeof config - 1); }
    fuzz_file("tokenizer.model", data, size);
    fuzz_tokens(fuzz_folder(), err);
}
