/* Freeing a token_spec: every string and array in it is its own. And the spelling of bytes that specs use. */
#include "lib/token/token_spec.h"

#include <stdlib.h>

void token_spec_free(token_spec *spec)
{
    if (!spec)
        return;
    for (size_t i = 0; spec->pieces && i < spec->n_pieces; i++)
        free(spec->pieces[i].text.bytes);
    for (size_t i = 0; spec->merges && i < spec->n_merges; i++) {
        free(spec->merges[i].left.bytes);
        free(spec->merges[i].right.bytes);
    }
    for (size_t i = 0; spec->added && i < spec->n_added; i++)
        free(spec->added[i].text.bytes);
    for (size_t i = 0; spec->normalizers && i < spec->n_normalizers; i++) {
        free(spec->normalizers[i].from.bytes);
        free(spec->normalizers[i].to.bytes);
    }
    for (size_t i = 0; spec->splits && i < spec->n_splits; i++)
        free(spec->splits[i].bytes);
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

size_t token_spell_bytes(const unsigned char *raw, size_t n, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        /* bytes_to_unicode of GPT-2's encoder.py: printable Latin-1 stands for itself, the other bytes in order for U+0100 ... U+0143 */
        unsigned c = raw[i];
        if (c <= 32)
            c += 0x100;
        else if (c >= 127 && c <= 160)
            c += 0x121 - 127;
        else if (c == 173)
            c = 0x143;
        if (c >= 0x80) {
            out[used++] = (char)(0xC0 | c >> 6);
            c = 0x80 | (c & 0x3F);
        }
        out[used++] = (char)c;
    }
    return used;
}
