/* Whole files in, whole files out: see files.h. */
#include "lib/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/memory.h"

/* Opens a regular file for reading; a folder, FIFO or device is refused before anything is read
 * from it. */
static ckvc_status open_regular(const char *path, int *fd, uint64_t *size, ckvc_err *err) {
    *size = 0;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) { return ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s: cannot open", path); }
    struct stat info;
    if (fstat(*fd, &info) != 0) {
        ckvc_status st = ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s: cannot look at", path);
        close(*fd);
        return st;
    }
    if (!S_ISREG(info.st_mode)) {
        close(*fd);
        return ckvc_fail(err, CKVC_E_NOINPUT, "%s: not a regular file%s", path,
                         S_ISDIR(info.st_mode) ? " but a folder" : "");
    }
    *size = (uint64_t)info.st_size;
    return CKVC_OK;
}

ckvc_status ckvc_map_open(const char *path, ckvc_map *out, ckvc_err *err) {
    *out = (ckvc_map){0};
    int fd;
    uint64_t size;
    ckvc_status st = open_regular(path, &fd, &size, err);
    if (st != CKVC_OK) { return st; }
    if (size == 0) {
        out->data = (const uint8_t *)"";
    } else if (size > SIZE_MAX) {
        st = ckvc_fail(err, CKVC_E_SYSTEM, "%s: too large to map on this machine", path);
    } else {
        void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            st = ckvc_fail_errno(err, CKVC_E_SYSTEM, "%s: cannot map", path);
        } else {
            *out = (ckvc_map){data, size};
        }
    }
    close(fd);
    return st;
}

void ckvc_map_close(ckvc_map *map) {
    if (map->size) { munmap((void *)(uintptr_t)map->data, (size_t)map->size); }
    *map = (ckvc_map){0};
}

ckvc_status ckvc_file_read(const char *path, size_t cap, char **out, size_t *size, ckvc_err *err) {
    int fd;
    uint64_t length;
    *out = NULL;
    *size = 0;
    ckvc_status st = open_regular(path, &fd, &length, err);
    if (st != CKVC_OK) { return st; }
    char *text = NULL;
    if (length > cap) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: %llu bytes, at most %zu are read", path,
                       (unsigned long long)length, cap);
        goto done;
    }
    text = ckvc_alloc((size_t)length + 1, 1);
    if (!text) {
        st = ckvc_fail_memory(err, path, (size_t)length + 1);
        goto done;
    }
    size_t got = 0;
    while (got < length) {
        ssize_t n = read(fd, text + got, (size_t)length - got);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) {
            st = ckvc_fail_errno(err, CKVC_E_IO, "%s: reading failed at byte %zu", path, got);
            goto done;
        }
        if (n == 0) { /* became shorter while we read */
            break;
        }
        got += (size_t)n;
    }
    text[got] = 0;
    *out = text;
    *size = got;
    text = NULL;
done:
    free(text);
    close(fd);
    return st;
}

bool ckvc_file_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

bool ckvc_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

ckvc_status ckvc_make_dirs(const char *path, ckvc_err *err) {
    char *copy = ckvc_strdup(path);
    if (!copy) { return ckvc_fail_memory(err, "a path", strlen(path)); }
    ckvc_status st = CKVC_OK;
    for (char *p = copy + 1; st == CKVC_OK; p++) {
        if (*p == '/' || *p == 0) {
            char end = *p;
            *p = 0;
            if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && ckvc_is_dir(copy))) {
                st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot create the folder", copy);
            }
            *p = end;
            if (!end) { break; }
        }
    }
    free(copy);
    return st;
}

char *ckvc_path_dir(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) { return ckvc_strdup("."); }
    return slash == path ? ckvc_strdup("/") : ckvc_format("%.*s", (int)(slash - path), path);
}

char *ckvc_path_join(const char *dir, const char *name) {
    if (!dir || name[0] == '/') { return ckvc_strdup(name); }
    size_t n = strlen(dir);
    return ckvc_format("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

ckvc_status ckvc_fsync_dir(const char *path, ckvc_err *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { return ckvc_fail_errno(err, CKVC_E_IO, "%s: cannot open the folder", path); }
    ckvc_status st = CKVC_OK;
    if (fsync(fd) != 0 && errno != EINVAL) { /* EINVAL: a file system without it */
        st = ckvc_fail_errno(err, CKVC_E_IO, "%s: cannot sync the folder", path);
    }
    close(fd);
    return st;
}

ckvc_status ckvc_publish_begin(ckvc_publish *p, const char *path, bool force, ckvc_err *err) {
    static atomic_uint counter;
    *p = (ckvc_publish){.force = force};
    if (!force && ckvc_file_exists(path)) {
        return ckvc_fail(err, CKVC_E_CREATE, "%s: exists already; use --force to replace it", path);
    }
    if (ckvc_is_dir(path)) {
        return ckvc_fail(err, CKVC_E_CREATE, "%s: is a folder; give a file name", path);
    }
    p->path = ckvc_strdup(path);
    p->tmp_path = ckvc_format("%s.tmp.%ld.%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
    char *dir = ckvc_path_dir(path);
    ckvc_status st = CKVC_OK;
    if (!p->path || !p->tmp_path || !dir) {
        st = ckvc_fail_memory(err, "a path", strlen(path));
    } else if (!ckvc_is_dir(dir)) {
        st = ckvc_fail(err, CKVC_E_CREATE, "%s: the folder %s does not exist; create it first",
                       path, dir);
    }
    free(dir);
    if (st != CKVC_OK) { ckvc_publish_abort(p); }
    return st;
}

void ckvc_publish_abort(ckvc_publish *p) {
    if (p->tmp_path) { unlink(p->tmp_path); }
    free(p->path);
    free(p->tmp_path);
    *p = (ckvc_publish){0};
}

ckvc_status ckvc_publish_commit(ckvc_publish *p, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    char *dir = ckvc_path_dir(p->path);
    int fd = open(p->tmp_path, O_RDONLY | O_CLOEXEC);
    if (!dir) {
        st = ckvc_fail_memory(err, "a path", strlen(p->path));
    } else if (fd < 0 || fsync(fd) != 0) {
        st = ckvc_fail_errno(err, CKVC_E_IO, "%s: cannot sync", p->tmp_path);
    } else if (p->force) {
        if (rename(p->tmp_path, p->path) != 0) {
            st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot rename into place", p->path);
        }
    } else if (link(p->tmp_path, p->path) != 0) {
        /* link() fails where the name has appeared since begin: nothing is overwritten without
         * force. File systems without hard links fall back to a rename after a second look. */
        if (errno == EEXIST || ckvc_file_exists(p->path)) {
            st = ckvc_fail(err, CKVC_E_CREATE, "%s: exists already; use --force to replace it",
                           p->path);
        } else if (rename(p->tmp_path, p->path) != 0) {
            st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot rename into place", p->path);
        }
    }
    if (fd >= 0) { close(fd); }
    if (st == CKVC_OK) {
        unlink(p->tmp_path);
        st = ckvc_fsync_dir(dir, err);
    }
    free(dir);
    ckvc_publish_abort(p);
    return st;
}

ckvc_status ckvc_publish_bytes(const char *path, const void *data, size_t n, bool force,
                               ckvc_err *err) {
    ckvc_publish p;
    ckvc_status st = ckvc_publish_begin(&p, path, force, err);
    if (st != CKVC_OK) { return st; }
    int fd = open(p.tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        st = ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot create", p.tmp_path);
        ckvc_publish_abort(&p);
        return st;
    }
    const uint8_t *bytes = data;
    size_t put = 0;
    while (put < n) {
        ssize_t got = write(fd, bytes + put, n - put);
        if (got < 0 && errno == EINTR) { continue; }
        if (got <= 0) {
            st = ckvc_fail_errno(err, CKVC_E_IO, "%s: writing failed at byte %zu of %zu", path, put,
                                 n);
            break;
        }
        put += (size_t)got;
    }
    if (close(fd) != 0 && st == CKVC_OK) {
        st = ckvc_fail_errno(err, CKVC_E_IO, "%s: writing failed at the end", path);
    }
    if (st != CKVC_OK) {
        ckvc_publish_abort(&p);
        return st;
    }
    return ckvc_publish_commit(&p, err);
}
