/* Durable appends: see durable_append.h. */
#include "formats/run/durable_append.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"

static ckvc_status write_synced(int fd, const char *path, uint64_t at, const uint8_t *bytes,
                                size_t n, ckvc_err *err) {
    struct stat info;
    CKVC_FAIL_IF(
        fstat(fd, &info) != 0 || (uint64_t)info.st_size < at, err, CKVC_E_IO,
        "%s: is shorter than the %llu bytes written to it; has another program touched it?", path,
        (unsigned long long)at);
    CKVC_FAIL_ERRNO_IF((uint64_t)info.st_size > at && ftruncate(fd, (off_t)at) != 0, err, CKVC_E_IO,
                       "%s: the torn end at byte %llu cannot be cut off", path,
                       (unsigned long long)at);
    for (size_t put = 0; put < n;) {
        const ssize_t got = pwrite(fd, bytes + put, n - put, (off_t)(at + put));
        if (got < 0 && errno == EINTR) { continue; }
        CKVC_FAIL_ERRNO_IF(got <= 0, err, CKVC_E_IO, "%s: writing failed at byte %llu", path,
                           (unsigned long long)at + put);
        put += (size_t)got;
    }
    CKVC_FAIL_ERRNO_IF(fsync(fd) != 0, err, CKVC_E_IO, "%s: cannot sync", path);
    if (at > 0) { return CKVC_OK; }
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(path); /* a new file: its name must last as well */
    return ckvc_fsync_dir(dir, err);
}

ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) {
    CKVC_TRY(ckvc_maps_check(err));
    CKVC_AUTO(ckvc_close_at) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CKVC_FAIL_ERRNO_IF(fd < 0, err, CKVC_E_CREATE, "%s: cannot create", path);
    const ckvc_status st = write_synced(fd, path, *size, bytes, n, err);
    if (st == CKVC_OK) {
        *size += n;
    } else if (ftruncate(fd, (off_t)*size) != 0) {
        errno = 0; /* readers drop a torn end, and the first error is the one to tell */
    }
    return st;
}
