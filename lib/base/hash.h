/* Hashes: SHA-256 (libmd) for identity, CRC-32 (zlib) for damage, XXH64 (xxhash) for hints. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sha256.h> /* libmd's SHA2_CTX */

#include "lib/base/status.h"

#define CKVC_SHA256_BYTES 32
#define CKVC_SHA256_HEX   65 /* 64 lower-case digits and a NUL */

/* Streaming: init, any number of updates, final. */
typedef struct ckvc_sha256 {
    SHA2_CTX ctx;
} ckvc_sha256;
void ckvc_sha256_init(ckvc_sha256 *s);
void ckvc_sha256_update(ckvc_sha256 *s, const void *data, size_t n);
void ckvc_sha256_final(ckvc_sha256 *s, uint8_t digest[CKVC_SHA256_BYTES]);

void ckvc_sha256_bytes(const void *data, size_t n, uint8_t digest[CKVC_SHA256_BYTES]);
void ckvc_hex(const uint8_t *bytes, size_t n, char *out /* [2n+1] */);
void ckvc_sha256_hex(const void *data, size_t n, char out[CKVC_SHA256_HEX]);
/* Hash of a whole file, read in blocks. */
ckvc_status ckvc_sha256_file(const char *path, char out[CKVC_SHA256_HEX],
                             ckvc_err *err) CKVC_MUST_CHECK;

uint32_t ckvc_crc32(uint32_t crc /* 0 at the start */, const void *data, size_t n);
/* An odd number drawn once a process, for hash tables over what a file says: a file made to collide
 * does not know it. Decides no result. */
uint64_t ckvc_hash_key(void);
uint64_t ckvc_xxh64_keyed(const void *data, size_t n, uint64_t key);
uint64_t ckvc_xxh64(const void *data, size_t n); /* seed 0 */
