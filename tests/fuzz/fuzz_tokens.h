/* What a tokenizer that was read is put to: text of many kinds there and back. */
#pragma once

#include "formats/tokenizer/tokenizer_files.h"
#include "lib/token/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static inline void fuzz_tokens(const char *model, ckvc_err *err) {
    static const char text[] = "  Hello hello\tworld, it's 12345 <s>ab aba</s>\n\n"
                               "\xC3\x84nderung \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x99\x82 e\xCC\x81"
                               " \xD9\x85\xD8\xB1 \xFF\xC3 <0x41>\xE2\x96\x81";
    token_spec *spec;
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    if (!fuzz_took(tokenizer_files_read(model, &spec, &path, err), err) ||
        !fuzz_took(tokenizer_build(spec, path, &t, err), err)) {
        return;
    }
    must(strlen(tokenizer_fingerprint(t)) == 64);
    for (int special = 0; special < 2; special++) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        CKVC_AUTO_FREE char *back = NULL;
        size_t n_ids, n_back;
        if (!fuzz_took(tokenizer_encode(t, text, sizeof text - 1, special, &ids, &n_ids, err),
                       err)) {
            continue;
        }
        for (size_t i = 0; i < n_ids; i++) {
            must(ids[i] >= 0 && ids[i] < tokenizer_vocab_size(t));
        }
        must(!fuzz_took(tokenizer_decode(t, ids, n_ids, special, &back, &n_back, err), err) ||
             back[n_back] == 0);
    }
}
