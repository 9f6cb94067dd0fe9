/* Reader of a SentencePiece model (tokenizer.model: protobuf, BPE with scores) into a token_spec.
 *
 * Field numbers: google/sentencepiece, src/sentencepiece_model.proto. What decides ids follows
 * src/bpe_model.cc (merging), src/normalizer.cc (white space) and, for the special tokens around
 * and in the text, the slow tokenizers of transformers. */
#ifndef CKVC_SENTENCEPIECE_H
#define CKVC_SENTENCEPIECE_H

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* MODEL_DIR/tokenizer.model (ModelProto: pieces, trainer_spec, normalizer_spec) and
 * tokenizer_config.json; as transformers' LlamaConverter (convert_slow_tokenizer.py) and
 * InternLM2's tokenization_internlm2.py read them. *out is the caller's (token_spec_free, or handed
 * to tokenizer_build). */
ckvc_status sentencepiece_read(const char *model_dir, token_spec **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

#endif
