/* Decoding: sequences that hold only what is kept of their prompts, a token each a step.
 *
 *   sessions_prefill(...)                        the whole cache, in the session
 *   sessions_next_logits(&s, 1, logits)          -> the first token
 *   sequence_create(s, sets, room, &sequence)    gathers the kept rows; s may take the next prompt
 *   decoder_step(d, sequences, tokens, n, logits)
 *
 * What a step computes is LlamaModel.forward (model.h) of one token at position_ids T + i, i tokens
 * after the prompt, on a cache whose dropped positions are gone. A sequence's logits are the same
 * bits in any batch and for any number of threads; with kernels of ours the hidden states behind
 * them are sessions_rollouts', bit by bit. Nothing in a step allocates; a sequence takes its memory
 * from the backend in one piece. */
#pragma once

#include "lib/model/model.h"

/* The keys and values of one sequence: per layer and KV head the kept positions alone, and behind
 * them room for tokens to come. It borrows the model, not the session. */
typedef struct sequence sequence;

/* Takes what sets[l] keep of s's prefilled prompt (sets NULL: all), and room for at most `room` >=
 * 0 tokens, which the prefill's n_total has to hold under dynamic rope scaling. CKVC_E_DATA where
 * prompt and room go beyond the model's context. */
ckvc_status sequence_create(session *s, const kept_set *sets, int64_t room, sequence **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void sequence_free(sequence *q);
CKVC_AUTO_OF(sequence, sequence_free)
int64_t sequence_entries(const sequence *q); /* (layer, KV head, position) kept of the prompt */
size_t sequence_bytes(const sequence *q);    /* that its keys and values take, room and all */

typedef struct decoder decoder; /* activations of a batch; one thread drives it */
ckvc_status decoder_create(model *m, int64_t max_sequences, decoder **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
void decoder_destroy(decoder *d);
CKVC_AUTO_OF(decoder, decoder_destroy)

/* Feeds tokens[i] to sequences[i], n <= max_sequences of this decoder's model, no sequence twice,
 * each with room left; logits [n][V] of the tokens that follow. */
ckvc_status decoder_step(decoder *d, sequence *const *sequences, const int32_t *tokens, int64_t n,
                         float *logits, ckvc_err *err) CKVC_MUST_CHECK;
/* The same step -> the likeliest tokens that follow, [n]; the logits stay with the backend. */
ckvc_status decoder_step_greedy(decoder *d, sequence *const *sequences, const int32_t *tokens,
                                int64_t n, be_greedy *next, ckvc_err *err) CKVC_MUST_CHECK;
