/* Hashes: SHA-256 (nettle) for identity, CRC-32 (zlib) for damage, XXH64 (xxhash) for hints. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <nettle/sha2.h>

#include "lib/base/status.h"

#define CKVC_SHA256_BYTES 32
#define CKVC_SHA256_HEX   65 /* 64 lower-case digits and a NUL */

/* Streaming: init, any number of updates, final. */
typedef struct ckvc_sha256 {
    struct sha256_ctx ctx;
} ckvc_sha256;
void ckvc_sha256_init(ckvc_sha256 *s);
void ckvc_sha256_update(ckvc_sha256 *s, const void *data, size_t n);
void ckvc_sha256_final(ckvc_sha256 *s, uint8_t digest[CKVC_SHA256_BYTES]);

/* All three steps in one call; ckvc_sha256_hex writes the digest as text. */
void ckvc_sha256_bytes(const void *data, size_t n, uint8_t digest[CKVC_SHA256_BYTES]);
void ckvc_hex(const uint8_t *bytes, size_t n, char *out /* [2n+1] */);
void ckvc_sha256_hex(const void *data, size_t n, char out[CKVC_SHA256_HEX]);
/* Writes the hash of a whole file, which is mapped for the time of the call. The errors are those
 * of ckvc_map_open (files.h). */
ckvc_status ckvc_sha256_file(const char *path, char out[CKVC_SHA256_HEX],
                             ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the CRC-32 of n more bytes. `crc` is what the call for the bytes before returned, or 0 at
 * the start. */
uint32_t ckvc_crc32(uint32_t crc, const void *data, size_t n);
/* An odd number that is drawn once in each process. A hash table whose keys come from a file uses
 * it with ckvc_xxh64_keyed, since otherwise somebody could make a file whose keys all collide. It
 * may decide where an entry lies in such a table, but no result may depend on it. */
uint64_t ckvc_hash_key(void);
uint64_t ckvc_xxh64_keyed(const void *data, size_t n, uint64_t key);
uint64_t ckvc_xxh64(const void *data, size_t n); /* seed 0 */

/* Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011).
 *
 * A stream is named by (seed, key, stage), never by thread, time or the order of work; key is
 * usually ckvc_rng_key(prompt id). The same name gives the same numbers on every machine, and a
 * test pins the first values. */
typedef struct ckvc_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    int used; /* words of block already handed out */
} ckvc_rng;

uint64_t ckvc_rng_key(const char *text); /* XXH64 of the text */
/* Begins the stream of that name. */
void ckvc_rng_init(ckvc_rng *rng, uint64_t seed, uint64_t key, uint32_t stage);
uint32_t ckvc_rng_u32(ckvc_rng *rng);
uint64_t ckvc_rng_u64(ckvc_rng *rng);
double ckvc_rng_double(ckvc_rng *rng);                  /* [0, 1), 53 bits */
uint64_t ckvc_rng_below(ckvc_rng *rng, uint64_t bound); /* unbiased; bound >= 1 */
/* Shuffles by Fisher and Yates' method, from the last item down. */
void ckvc_rng_shuffle_u32(ckvc_rng *rng, uint32_t *items, uint64_t n);
/* A Poisson number with mean 1, by inversion: the weight of an item in the bootstrap. */
uint32_t ckvc_rng_poisson1(ckvc_rng *rng);
