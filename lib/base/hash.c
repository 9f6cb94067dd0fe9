/* Hashes: see hash.h. */
#include "lib/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"

void ckvc_sha256_init(ckvc_sha256 *s) { SHA256Init(&s->ctx); }

void ckvc_sha256_update(ckvc_sha256 *s, const void *data, size_t n) {
    SHA256Update(&s->ctx, data, n);
}

void ckvc_sha256_final(ckvc_sha256 *s, uint8_t digest[CKVC_SHA256_BYTES]) {
    SHA256Final(digest, &s->ctx);
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
    enum { BLOCK = 1 << 18 };
    uint64_t total = 0;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256 s;
    CKVC_AUTO_FREE uint8_t *block = ckvc_alloc(BLOCK, 1);
    CKVC_AUTO(ckvc_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC);
    CKVC_FAIL_ERRNO_IF(fd < 0, err, CKVC_E_NOINPUT, "%s: cannot open", path);
    ckvc_sha256_init(&s);
    for (;;) {
        const ssize_t got = read(fd, block, BLOCK);
        if (got < 0 && errno == EINTR) { continue; }
        CKVC_FAIL_ERRNO_IF(got < 0, err, CKVC_E_IO, "%s: reading failed at byte %llu", path,
                           (unsigned long long)total);
        if (got == 0) { break; }
        ckvc_sha256_update(&s, block, (size_t)got);
        total += (uint64_t)got;
    }
    ckvc_sha256_final(&s, digest);
    ckvc_hex(digest, sizeof digest, out);
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
        /* early at boot: addresses are random, too */
        fresh = (uint64_t)(uintptr_t)&fresh * 0x9E3779B97F4A7C15u ^ (uint64_t)clock();
    }
    fresh |= 1;
    return atomic_compare_exchange_strong(&key, &have, fresh) ? fresh : have;
}
