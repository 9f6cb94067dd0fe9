/* config.json of a directory: a shape that is read is within its caps, and what follows from it. */
#include "formats/model/model_readers.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    model_shape s;
    fuzz_file("config.json", data, size);
    if (!fuzz_took(model_config_read(fuzz_folder(), &s, err), err)) { return; }
    must(s.n_layers > 0 && s.n_layers <= MODEL_LAYERS_MAX);
    must(s.n_kv_heads > 0 && s.n_heads <= MODEL_HEADS_MAX && s.n_heads % s.n_kv_heads == 0);
    must(s.head_dim > 0 && s.head_dim <= MODEL_HEAD_DIM_MAX && s.head_dim % 2 == 0);
    must(s.width > 0 && s.width <= MODEL_WIDTH_MAX && s.vocab > 0 && s.vocab <= MODEL_VOCAB_MAX);
    must(model_shape_context(&s) > 0 && model_shape_parameters(&s) > 0);
    for (int32_t l = 0; l < s.n_layers; l++) { must(model_shape_window(&s, l) >= 0); }
    double inv_freq[MODEL_HEAD_DIM_MAX];
    rope_frequencies(&s, 1, inv_freq);
    rope_frequencies(&s, model_shape_context(&s), inv_freq);
    free(model_shape_lines(&s, 17));
}
