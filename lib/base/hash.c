/* Hashes: see hash.h. */
#include "lib/base/hash.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <time.h>
#include <xxhash.h>
#include <zlib.h>
#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"

void ckvc_sha256_init(ckvc_sha256 *s) { sha256_init(&s->ctx); }

void ckvc_sha256_update(ckvc_sha256 *s, const void *data, size_t n) {
    sha256_update(&s->ctx, n, data);
}

void ckvc_sha256_final(ckvc_sha256 *s, uint8_t digest[CKVC_SHA256_BYTES]) {
    sha256_digest(&s->ctx, CKVC_SHA256_BYTES, digest);
}

void ckvc_sha256_bytes(const void *data, size_t n, uint8_t digest[CKVC_SHA256_BYTES]) {
    ckvc_sha256 s;
    ckvc_sha256_init(&s);
    ckvc_sha256_update(&s, data, n);
    ckvc_sha256_final(&s, digest);
}

void ckvc_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = 0;
}

void ckvc_sha256_hex(const void *data, size_t n, char out[CKVC_SHA256_HEX]) {
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_bytes(data, n, digest);
    ckvc_hex(digest, sizeof digest, out);
}

ckvc_status ckvc_sha256_file(const char *path, char out[CKVC_SHA256_HEX], ckvc_err *err) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    CKVC_TRY(ckvc_map_open(path, &map, err));
    ckvc_sha256_hex(map.data, (size_t)map.size, out);
    return CKVC_OK;
}

uint32_t ckvc_crc32(uint32_t crc, const void *data, size_t n) {
    const uint8_t *p = data;
    while (n > 0) {
        uInt part = n > (1u << 30) ? 1u << 30 : (uInt)n;
        crc = (uint32_t)crc32(crc, p, part);
        p += part;
        n -= part;
    }
    return crc;
}

uint64_t ckvc_xxh64(const void *data, size_t n) { return XXH64(data, n, 0); }

uint64_t ckvc_xxh64_keyed(const void *data, size_t n, uint64_t key) { return XXH64(data, n, key); }

uint64_t ckvc_hash_key(void) {
    static _Atomic uint64_t key;
    uint64_t have = atomic_load(&key), fresh = 0;
    if (have) { return have; }
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh) {
        /* early at boot there may be no random numbers, but addresses are random, too */
        fresh = (uint64_t)(uintptr_t)&fresh * 0x9E3779B97F4A7C15u ^ (uint64_t)clock();
    }
    fresh |= 1;
    return atomic_compare_exchange_strong(&key, &have, fresh) ? fresh : have;
}

/* The upper half of the counter names the stream (key and stage), the lower half counts blocks; the
 * Philox key is the seed. */
void ckvc_rng_init(ckvc_rng *rng, uint64_t seed, uint64_t key, uint32_t stage) {
    memset(rng, 0, sizeof *rng);
    rng->key[0] = (uint32_t)seed;
    rng->key[1] = (uint32_t)(seed >> 32);
    rng->counter[1] = stage;
    rng->counter[2] = (uint32_t)key;
    rng->counter[3] = (uint32_t)(key >> 32);
    rng->used = 4;
}

uint64_t ckvc_rng_key(const char *text) { return ckvc_xxh64(text, strlen(text)); }

static void philox_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t ckvc_rng_u32(ckvc_rng *rng) {
    if (rng->used == 4) {
        philox_block(rng->key, rng->counter, rng->block);
        rng->counter[0]++; /* a stream has 2^32 blocks, far more than are used here */
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

uint64_t ckvc_rng_u64(ckvc_rng *rng) {
    uint64_t low = ckvc_rng_u32(rng);
    return low | (uint64_t)ckvc_rng_u32(rng) << 32;
}

double ckvc_rng_double(ckvc_rng *rng) { return (double)(ckvc_rng_u64(rng) >> 11) * 0x1p-53; }

uint64_t ckvc_rng_below(ckvc_rng *rng, uint64_t bound) {
    assert(bound >= 1);
    /* Values below 2^64 mod bound would favour small results, so they are drawn again. */
    uint64_t reject = (0 - bound) % bound;
    uint64_t v;
    do { v = ckvc_rng_u64(rng); } while (v < reject);
    return v % bound;
}

void ckvc_rng_shuffle_u32(ckvc_rng *rng, uint32_t *items, uint64_t n) {
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = ckvc_rng_below(rng, i);
        uint32_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}

uint32_t ckvc_rng_poisson1(ckvc_rng *rng) {
    double u = ckvc_rng_double(rng), p = exp(-1.0), sum = p;
    uint32_t k = 0;
    while (u >= sum && k < 32) { /* P(k > 32) < 1e-36 */
        k++;
        p /= k;
        sum += p;
    }
    return k;
}
