/* Freeing a token_spec: every string and array in it is its own. And the spelling of bytes that
 * specs use. */
#include "lib/token/token_spec.h"

#include <stdlib.h>

void token_spec_free(token_spec *spec) {
    if (!spec) { return; }
    for (size_t i = 0; spec->pieces && i < spec->n_pieces; i++) {
        free(spec->pieces[i].text.bytes);
    }
    for (size_t i = 0; spec->merges && i < spec->n_merges; i++) {
        free(spec->merges[i].left.bytes);
        free(spec->merges[i].right.bytes);
    }
    for (size_t i = 0; spec->added && i < spec->n_added; i++) {
        free(spec->added[i].text.bytes);
    }
    for (size_t i = 0; spec->normalizers && i < spec->n_normalizers; i++) {
        free(spec->normalizers[i].from.bytes);
        free(spec->normalizers[i].to.bytes);
    }
    for (size_t i = 0; spec->splits && i < spec->n_splits; i++) {
        free(spec->splits[i].bytes);
    }
    free(spec->pieces);
    free(spec->merges);
    free(spec->added);
    free(spec->normalizers);
    free(spec->splits);
    free(spec->prefix_ids);
    free(spec->suffix_ids);
    free(spec->metaspace.bytes);
    free(spec->decode_from.bytes);
    free(spec->decode_to.bytes);
    free(spec);
}

/* ---- GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100
 * ... U+0143 in order ---- */
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

static bool stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

bool token_unspell_bytes(const char *text, size_t n, char *raw, size_t *raw_size) {
    static const uint8_t shifted[68] = {
        /* the bytes that do not stand for themselves, ascending */
        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,
        17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,  31,  32,  127,
        128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144,
        145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};
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
        if (code < 256 ? !stands_for_itself(code) : code - 256 >= sizeof shifted) { return false; }
        raw[used++] = (char)(code < 256 ? code : shifted[code - 256]);
    }
    *raw_size = used;
    return true;
}
