/* Frees a token_spec, which owns its strings and arrays; spells bytes as specs do. */
#include "lib/token/token_spec.h"

void token_spec_free(token_spec *spec) {
    if (!spec) { return; }
    for (size_t i = 0; i < spec->n_pieces; i++) { free(spec->pieces[i].text.bytes); }
    for (size_t i = 0; i < spec->n_merges; i++) {
        CKVC_FREE(spec->merges[i].left.bytes, spec->merges[i].right.bytes);
    }
    for (size_t i = 0; i < spec->n_added; i++) { free(spec->added[i].text.bytes); }
    for (size_t i = 0; i < spec->n_normalizers; i++) {
        CKVC_FREE(spec->normalizers[i].from.bytes, spec->normalizers[i].to.bytes);
    }
    for (size_t i = 0; i < spec->n_splits; i++) { free(spec->splits[i].bytes); }
    CKVC_FREE(spec->pieces, spec->merges, spec->added, spec->normalizers, spec->splits);
    CKVC_FREE(spec->prefix_ids, spec->metaspace.bytes);
    CKVC_FREE(spec->chat_template.bytes, spec->bos.bytes, spec->eos.bytes);
    CKVC_FREE(spec->decode_from.bytes, spec->decode_to.bytes, spec);
}

/* ---- GPT-2's byte alphabet: printable Latin-1; U+0100 ... U+0143 for the other 68 bytes ---- */
size_t token_spell_bytes(const unsigned char *raw, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned c = raw[i];
        if (c <= 32) {
            c += 0x100;
        } else if (c >= 127 && c <= 160) {
            c += 0x121 - 127;
        } else if (c == 173) {
            c = 0x143;
        }
        if (c >= 0x80) {
            out[used++] = (char)(0xC0 | c >> 6);
            c = 0x80 | (c & 0x3F);
        }
        out[used++] = (char)c;
    }
    return used;
}

bool token_unspell_bytes(const char *text, size_t n, char *raw, size_t *raw_size) {
    const uint8_t *p = (const uint8_t *)text;
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        unsigned code = p[i];
        if (code >= 0xC2 && code <= 0xC5 && i + 1 < n) {
            code = (code & 0x1F) << 6 | (p[i + 1] & 0x3F);
            i += 2;
        } else if (code < 0x80) {
            i++;
        } else {
            return false;
        }
        if (code >= 0x100) {
            code -= 0x100;
            if (code > 67) { return false; }
            code = code <= 32 ? code : code <= 66 ? code - 33 + 127 : 173;
        } else if (code <= 32 || (code >= 127 && code <= 160) || code == 173) {
            return false;
        }
        raw[used++] = (char)code;
    }
    *raw_size = used;
    return true;
}
