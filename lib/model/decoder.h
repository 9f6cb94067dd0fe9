/* Decoding: sequences that hold only what is kept of their prompts, and grow by one token in each
 * step.
 *
 *   sessions_prefill(...)                        the whole cache, in the session
 *   sessions_next(&s, 1, logits, NULL)           gives the first token
 *   sequence_create(s, sets, room, &sequence)    gathers the kept rows; s may take the next prompt
 *   decoder_step(d, sequences, tokens, n, logits, NULL)
 *
 * A step computes LlamaModel.forward (model.h) of one token at position_ids T + i, where i tokens
 * follow the prompt, on a cache from which the dropped positions have been removed. A sequence's
 * logits have the same bits in every batch and for any number of threads. With our own kernels, the
 * hidden states behind them are those of sessions_rollouts, bit by bit. A step allocates nothing; a
 * sequence takes its memory from the backend in one piece. */
#pragma once

#include "lib/model/model.h"

/* The keys and values of one sequence. For each layer and KV head it holds only the kept positions,
 * and room for tokens to come after them. It borrows the model, but not the session. */
typedef struct sequence sequence;

/* Creates a sequence from what sets[l] keep of the prompt that s has prefilled (sets NULL: all of
 * it), in the formats of sets[l], with room for at most `room` >= 0 more tokens. Under dynamic rope
 * scaling the prefill's n_total must cover these. CKVC_E_DATA where prompt and room go beyond the
 * model's context; other errors are the backend's, such as CKVC_E_MEMORY. Free *out with
 * sequence_free, also after a failure, when it may be NULL or a sequence that is of no use. */
ckvc_status sequence_create(session *s, const kept_set *sets, int64_t room, sequence **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void sequence_free(sequence *q); /* does nothing with NULL */
CKVC_AUTO_OF(sequence, sequence_free)
/* Return how many (layer, KV head, position) are kept of the prompt, and the bytes that their keys
 * and values take in their formats. */
int64_t sequence_entries(const sequence *q);
size_t sequence_kept_bytes(const sequence *q);
/* Returns the bytes of memory that the sequence takes: its keys and values, with the room for
 * tokens to come, and the list of kept positions where it holds one. */
size_t sequence_bytes(const sequence *q);

/* The activations of a batch, which one thread drives. decoder_create makes them for steps of at
 * most max_sequences >= 1 sequences. The model is borrowed and must outlive the decoder. Its
 * weights are acquired once (model_acquire), and a failure of that is returned. Free *out with
 * decoder_destroy; it is NULL after a failure. */
typedef struct decoder decoder;
ckvc_status decoder_create(model *m, int64_t max_sequences, decoder **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
void decoder_destroy(decoder *d);
CKVC_AUTO_OF(decoder, decoder_destroy)

/* Feeds tokens[i] to sequences[i], for 1 <= n <= max_sequences sequences of this decoder's model.
 * No sequence may be named twice, and each must have room left. It writes the logits of the tokens
 * that follow, [n][V]. Where `logits` is NULL it writes the likeliest tokens instead, next [n], and
 * the logits stay with the backend. CKVC_E_DATA for a token outside the vocabulary, before any
 * sequence has changed. After another error, the backend's, the sequences are of no use. */
ckvc_status decoder_step(decoder *d, sequence *const *sequences, const int32_t *tokens, int64_t n,
                         float *logits, be_greedy *next, ckvc_err *err) CKVC_MUST_CHECK;
