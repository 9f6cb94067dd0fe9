/* What a tokenizer that was read is put to: text of many kinds there and back. */
#pragma once

#include "formats/tokenizer/tokenizer_files.h"
#include "lib/token/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static inline void fuzz_tokens(const char *model) {
    static const char text[] = "  Hello hello\tworld, it's 12345 <s>ab aba</s>\n\n"
                               "\xC3\x84nderung \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x99\x82 e\xCC\x81"
                               " \xD9\x85\xD8\xB1 \xFF\xC3 <0x41>\xE2\x96\x81";
    ckvc_err err = {0};
    token_spec *spec;
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    ckvc_status st = tokenizer_files_read(model, &spec, &path, &err);
    if (st == CKVC_OK) { st = tokenizer_build(spec, path, &t, &err); }
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return;
    }
    must(strlen(tokenizer_fingerprint(t)) == 64);
    for (int special = 0; special < 2; special++) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        CKVC_AUTO_FREE char *back = NULL;
        size_t n_ids, n_back;
        st = tokenizer_encode(t, text, sizeof text - 1, special, &ids, &n_ids, &err);
        if (st == CKVC_OK) {
            for (size_t i = 0; i < n_ids; i++) {
                must(ids[i] >= 0 && ids[i] < tokenizer_vocab_size(t));
            }
            st = tokenizer_decode(t, ids, n_ids, special, &back, &n_back, &err);
        }
        if (st == CKVC_OK) {
            must(back[n_back] == 0);
        } else {
            must_refuse_well(st, &err);
        }
        err = (ckvc_err){0};
    }
}
