/* Freeing a token_spec: every string and array in it is its own. */
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
    free(spec->decode_from.bytes);
    free(spec->decode_to.bytes);
    free(spec);
}
