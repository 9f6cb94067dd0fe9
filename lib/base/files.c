/* Reading whole files and publishing whole files: see files.h. */
#include "lib/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/memory.h"

void ckvc_close_at(int *fd) {
    const int was = ckvc_take_fd(fd);
    if (was >= 0) { close(was); }
}

ckvc_status ckvc_file_open(const char *path, int *fd, struct stat *info, ckvc_err *err) {
    char begin[64];
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CKVC_FAIL_ERRNO_IF(*fd < 0, err, CKVC_E_NOINPUT, "%s: cannot open", path);
    CKVC_FAIL_ERRNO_IF(fstat(*fd, info) != 0, err, CKVC_E_NOINPUT, "%s: cannot look at", path);
    CKVC_FAIL_IF(!S_ISREG(info->st_mode), err, CKVC_E_NOINPUT, "%s: not a regular file%s", path,
                 S_ISDIR(info->st_mode) ? " but a folder" : "");
    const ssize_t n = pread(*fd, begin, sizeof begin, 0);
    CKVC_REFUSE_IF(n > 0 && ckvc_is_lfs_pointer(begin, (size_t)n), err, path, CKVC_LFS_ADVICE);
    return CKVC_OK;
}

ckvc_status ckvc_download_check(const char *path, const void *bytes, size_t n, ckvc_err *err) {
    const bool html = (n >= 5 && strncasecmp(bytes, "<html", 5) == 0) ||
                      (n >= 9 && strncasecmp(bytes, "<!doctype", 9) == 0);
    CKVC_REFUSE_IF(n == 0, err, path, "an empty file; was its download or copy cut off?");
    CKVC_REFUSE_IF(html, err, path,
                   "an HTML page in the file's place, as a download without a login leaves one; "
                   "download the file again");
    return CKVC_OK;
}

/* ---- maps: a file must not change while it is read through one ---- */
typedef struct mapped {
    struct mapped *next;
    char *path;
    const uint8_t *data;
    struct stat was;
} mapped;
static mapped *maps;
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;

static void remember_map(const char *path, const uint8_t *data, const struct stat *was) {
    mapped *m = ckvc_alloc(1, sizeof *m);
    *m = (mapped){.path = ckvc_strdup(path), .data = data, .was = *was};
    pthread_mutex_lock(&maps_lock);
    m->next = maps;
    maps = m;
    pthread_mutex_unlock(&maps_lock);
}

static void forget_map(const uint8_t *data) {
    pthread_mutex_lock(&maps_lock);
    mapped **at = &maps;
    while (*at && (*at)->data != data) { at = &(*at)->next; }
    mapped *m = *at;
    if (m) {
        *at = m->next;
        CKVC_FREE(m->path, m);
    }
    pthread_mutex_unlock(&maps_lock);
}

const char *ckvc_map_at(const void *address) {
    for (const mapped *m = maps; m; m = m->next) {
        const uintptr_t from = (uintptr_t)m->data, at = (uintptr_t)address;
        if (at >= from && at - from < (uintptr_t)m->was.st_size) { return m->path; }
    }
    return NULL;
}

ckvc_status ckvc_maps_check(ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    pthread_mutex_lock(&maps_lock);
    for (const mapped *m = maps; m && st == CKVC_OK; m = m->next) {
        struct stat now;
        const struct stat *was = &m->was;
        if (stat(m->path, &now) == 0 && now.st_dev == was->st_dev && now.st_ino == was->st_ino &&
            (now.st_size != was->st_size || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
             now.st_mtim.tv_nsec != was->st_mtim.tv_nsec)) {
            st = ckvc_fail(err, CKVC_E_DATA,
                           "%s: was written to while it was being read; replace a file by renaming "
                           "a new one over it, and run this again",
                           m->path);
        }
    }
    pthread_mutex_unlock(&maps_lock);
    return st;
}

ckvc_status ckvc_map_open(const char *path, ckvc_map *out, ckvc_err *err) {
    *out = (ckvc_map){.data = (const uint8_t *)""};
    CKVC_AUTO(ckvc_close_at) int fd = -1;
    struct stat info;
    CKVC_TRY(ckvc_file_open(path, &fd, &info, err));
    if (info.st_size == 0) { return CKVC_OK; }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CKVC_FAIL_ERRNO_IF(data == MAP_FAILED, err, CKVC_E_SYSTEM, "%s: cannot map", path);
    *out = (ckvc_map){data, (uint64_t)info.st_size};
    remember_map(path, data, &info);
    return CKVC_OK;
}

void ckvc_map_close(ckvc_map *map) {
    if (map->size) {
        forget_map(map->data);
        munmap(ckvc_unconst(map->data), (size_t)map->size);
    }
    *map = (ckvc_map){0};
}

ckvc_status ckvc_file_read(const char *path, size_t cap, char **out, size_t *size, ckvc_err *err) {
    CKVC_AUTO(ckvc_close_at) int fd = -1;
    struct stat info;
    *out = NULL;
    *size = 0;
    CKVC_TRY(ckvc_file_open(path, &fd, &info, err));
    const uint64_t length = (uint64_t)info.st_size;
    CKVC_FAIL_IF(length > cap, err, CKVC_E_DATA, "%s: %llu bytes, at most %zu are read", path,
                 (unsigned long long)length, cap);
    CKVC_AUTO_FREE char *text = ckvc_alloc((size_t)length + 1, 1);
    size_t got = 0;
    while (got < length) {
        const ssize_t n = read(fd, text + got, (size_t)length - got);
        if (n < 0 && errno == EINTR) { continue; }
        CKVC_FAIL_ERRNO_IF(n < 0, err, CKVC_E_IO, "%s: reading failed at byte %zu", path, got);
        if (n == 0) { break; /* it has become shorter while it was read */ }
        got += (size_t)n;
    }
    text[got] = 0;
    *out = ckvc_take(&text);
    *size = got;
    return CKVC_OK;
}

ckvc_status ckvc_open_kept(const char *path, int *fd, ckvc_err *err) {
    struct stat info;
    CKVC_AUTO(ckvc_close_at)
    int ours = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    CKVC_FAIL_IF(ours < 0 && errno == ELOOP, err, CKVC_E_CREATE,
                 "%s: is a symbolic link, and nothing is written through one; remove it", path);
    CKVC_FAIL_ERRNO_IF(ours < 0 || fstat(ours, &info) != 0, err, CKVC_E_CREATE, "%s: cannot create",
                       path);
    CKVC_FAIL_IF(!S_ISREG(info.st_mode), err, CKVC_E_CREATE,
                 "%s: is no regular file, and nothing is written to it; remove it", path);
    *fd = ckvc_take_fd(&ours);
    return CKVC_OK;
}

bool ckvc_file_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

bool ckvc_file_holds(const char *path, const void *data, size_t n) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    return ckvc_map_open(path, &map, NULL) == CKVC_OK && map.size == n &&
           memcmp(map.data, data, n) == 0;
}

bool ckvc_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool same_file(const char *path, const struct stat *other) {
    struct stat info;
    return stat(path, &info) == 0 && info.st_dev == other->st_dev && info.st_ino == other->st_ino;
}

bool ckvc_path_within(const char *path, const char *other) {
    struct stat info;
    if (stat(other, &info) != 0) { return false; }
    char *at = ckvc_strdup(path), *real = NULL;
    while (!(real = realpath(at, NULL)) && strcmp(at, ".") != 0 && strcmp(at, "/") != 0) {
        char *up = ckvc_path_dir(at);
        free(at);
        at = up;
    }
    free(at);
    bool within = real && same_file(real, &info);
    while (real && !within && strcmp(real, "/") != 0) {
        char *up = ckvc_path_dir(real);
        free(real);
        real = up;
        within = same_file(real, &info);
    }
    free(real);
    return within;
}

ckvc_status ckvc_make_dirs(const char *path, ckvc_err *err) {
    CKVC_FAIL_IF(path[0] == 0, err, CKVC_E_CREATE, "an empty path names no folder");
    CKVC_AUTO_FREE char *part = ckvc_strdup(path);
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i] != 0) { continue; }
        part[i] = 0;
        if (mkdir(part, 0777) == 0) {
            CKVC_AUTO_FREE char *parent = ckvc_path_dir(part);
            CKVC_TRY(ckvc_fsync_dir(parent, err));
        } else {
            CKVC_FAIL_ERRNO_IF(errno != EEXIST || !ckvc_is_dir(part), err, CKVC_E_CREATE,
                               "%s: cannot create the folder", part);
        }
        if (path[i] == 0) { return CKVC_OK; }
        part[i] = '/';
    }
}

ckvc_status ckvc_make_dir_in(const char *folder, const char *name, ckvc_err *err) {
    struct stat info;
    CKVC_AUTO_FREE char *path = ckvc_path_join(folder, name);
    CKVC_TRY(ckvc_make_dirs(path, err));
    CKVC_FAIL_IF(
        lstat(path, &info) != 0 || !S_ISDIR(info.st_mode), err, CKVC_E_CREATE,
        "%s: is a symbolic link, and nothing is written through one; put the folder itself "
        "in its place",
        path);
    return CKVC_OK;
}

char *ckvc_path_dir(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) { return ckvc_strdup("."); }
    return slash == path ? ckvc_strdup("/") : ckvc_format("%.*s", (int)(slash - path), path);
}

char *ckvc_path_name(const char *path) {
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') { end--; }
    for (begin = end; begin > 0 && path[begin - 1] != '/';) { begin--; }
    return ckvc_format("%.*s", (int)(end - begin), path + begin);
}

char *ckvc_path_join(const char *dir, const char *name) {
    if (!dir || name[0] == '/') { return ckvc_strdup(name); }
    size_t n = strlen(dir);
    return ckvc_format("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

ckvc_status ckvc_fsync_dir(const char *path, ckvc_err *err) {
    CKVC_AUTO(ckvc_close_at) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CKVC_FAIL_ERRNO_IF(fd < 0, err, CKVC_E_IO, "%s: cannot open the folder", path);
    if (fsync(fd) != 0 && errno != EINVAL) { /* EINVAL: the file system cannot sync */
        return ckvc_fail_errno(err, CKVC_E_IO, "%s: cannot sync the folder", path);
    }
    return CKVC_OK;
}

/* Removes a folder that holds only files. */
static void remove_folder(int at, const char *name) {
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder));) { unlinkat(fd, e->d_name, 0); }
    if (folder) {
        closedir(folder);
        unlinkat(at, name, AT_REMOVEDIR);
    }
}

/* ---- temporaries: PATH.tmp.R, where R is 16 random hex digits. Whoever makes one holds a lock on
 * it, so that one without an owner can be recognised: a pid says nothing across containers and
 * machines. ---- */
static void sweep_temporaries(const char *path, const char *dir) {
    CKVC_AUTO_FREE char *name = ckvc_path_name(path);
    CKVC_AUTO_FREE char *begin = ckvc_format("%s.tmp.", name);
    const size_t n = strlen(begin);
    DIR *folder = opendir(dir);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (strncmp(e->d_name, begin, n) != 0 || strlen(e->d_name + n) != 16 ||
            strspn(e->d_name + n, "0123456789abcdef") != 16) {
            continue;
        }
        CKVC_AUTO(ckvc_close_at)
        int fd = openat(dirfd(folder), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        /* flock also fails where a file system has no locks; nothing is removed there. */
        if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) != 0) { continue; }
        if (unlinkat(dirfd(folder), e->d_name, 0) != 0) { remove_folder(dirfd(folder), e->d_name); }
    }
    if (folder) { closedir(folder); }
}

static char *temporary_of(const char *path) {
    uint64_t random = 0;
    while (getrandom(&random, sizeof random, 0) < 0 && errno == EINTR) {}
    return ckvc_format("%s.tmp.%016" PRIx64, path, random);
}

/* Makes a file or a folder with such a name, and holds its lock. */
static ckvc_status make_temporary(const char *path, bool folder, char **tmp_path, int *held,
                                  ckvc_err *err) {
    struct stat info;
    do { /* repeats if a sweep has come between the making and the lock */
        ckvc_close_at(held);
        free(*tmp_path);
        *tmp_path = temporary_of(path);
        const int flags = folder ? O_RDONLY | O_DIRECTORY : O_WRONLY | O_CREAT | O_EXCL;
        const bool made = !folder || mkdir(*tmp_path, 0777) == 0;
        *held = made ? open(*tmp_path, flags | O_CLOEXEC, 0666) : -1;
        CKVC_FAIL_ERRNO_IF(*held < 0, err, CKVC_E_CREATE, "%s: cannot create", *tmp_path);
        (void)!flock(*held, LOCK_EX);
    } while (fstat(*held, &info) == 0 && !same_file(*tmp_path, &info));
    return CKVC_OK;
}

static ckvc_status may_publish(const char *path, const char *dir, bool force, ckvc_err *err) {
    struct stat info;
    const bool exists = lstat(path, &info) == 0;
    CKVC_FAIL_IF(exists && S_ISDIR(info.st_mode), err, CKVC_E_CREATE,
                 "%s: is a folder; give a file name", path);
    CKVC_FAIL_IF(exists && !S_ISREG(info.st_mode), err, CKVC_E_CREATE,
                 "%s: is %s, which nothing replaces; give another name", path,
                 S_ISLNK(info.st_mode) ? "a symbolic link" : "no regular file");
    CKVC_FAIL_IF(exists && !force, err, CKVC_E_CREATE,
                 "%s: exists already; use --force to replace it", path);
    CKVC_FAIL_IF(!ckvc_is_dir(dir), err, CKVC_E_CREATE,
                 "%s: the folder %s does not exist; create it first", path, dir);
    return CKVC_OK;
}

ckvc_status ckvc_publish_check(const char *path, bool force, ckvc_err *err) {
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(path);
    return may_publish(path, dir, force, err);
}

ckvc_status ckvc_publish_begin(ckvc_publish *p, const char *path, bool force, ckvc_err *err) {
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(path);
    *p = (ckvc_publish){.held = -1, .force = force};
    CKVC_TRY(may_publish(path, dir, force, err));
    sweep_temporaries(path, dir);
    p->path = ckvc_strdup(path);
    return make_temporary(path, false, &p->tmp_path, &p->held, err);
}

void ckvc_publish_abort(ckvc_publish *p) {
    if (p->tmp_path) {
        unlink(p->tmp_path);
        ckvc_close_at(&p->held);
    }
    CKVC_FREE(p->path, p->tmp_path);
    *p = (ckvc_publish){0};
}

static ckvc_status into_place(const ckvc_publish *p, ckvc_err *err) {
    CKVC_TRY(ckvc_maps_check(err));
    CKVC_FAIL_ERRNO_IF(fsync(p->held) != 0, err, CKVC_E_IO, "%s: cannot sync", p->tmp_path);
    /* Nothing is overwritten without force, not even a file whose name has appeared since begin.
     * File systems that cannot promise that (NFS) get a plain rename after a second look. */
    if (!p->force && renameat2(AT_FDCWD, p->tmp_path, AT_FDCWD, p->path, RENAME_NOREPLACE) == 0) {
        return CKVC_OK;
    }
    CKVC_FAIL_IF(!p->force && (errno == EEXIST || ckvc_file_exists(p->path)), err, CKVC_E_CREATE,
                 "%s: exists already; use --force to replace it", p->path);
    CKVC_FAIL_ERRNO_IF(rename(p->tmp_path, p->path) != 0, err, CKVC_E_CREATE,
                       "%s: cannot rename into place", p->path);
    return CKVC_OK;
}

ckvc_status ckvc_publish_commit(ckvc_publish *p, ckvc_err *err) {
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(p->path);
    ckvc_status st = into_place(p, err);
    if (st == CKVC_OK) { st = ckvc_fsync_dir(dir, err); }
    ckvc_publish_abort(p);
    return st;
}

ckvc_status ckvc_publish_bytes(const char *path, const void *data, size_t n, bool force,
                               ckvc_err *err) {
    CKVC_AUTO(ckvc_publish_abort) ckvc_publish p = {0};
    CKVC_TRY(ckvc_publish_begin(&p, path, force, err));
    for (size_t put = 0; put < n;) {
        const ssize_t got = write(p.held, (const uint8_t *)data + put, n - put);
        if (got < 0 && errno == EINTR) { continue; }
        CKVC_FAIL_ERRNO_IF(got <= 0, err, CKVC_E_IO, "%s: writing failed at byte %zu of %zu", path,
                           put, n);
        put += (size_t)got;
    }
    return ckvc_publish_commit(&p, err);
}

ckvc_status ckvc_new_folder_begin(ckvc_new_folder *f, const char *path, ckvc_err *err) {
    CKVC_AUTO_FREE char *name = ckvc_path_name(path);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') { n--; }
    CKVC_AUTO_FREE char *there = realpath(path, NULL); /* the path without symbolic links */
    *f = (ckvc_new_folder){.held = -1, .path = there ? ckvc_take(&there) : ckvc_text_copy(path, n)};
    CKVC_FAIL_IF(strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "/") == 0, err,
                 CKVC_E_CREATE, "%s: has no name that a new folder could take; give one", path);
    CKVC_AUTO_FREE char *above = ckvc_path_dir(f->path);
    CKVC_TRY(ckvc_make_dirs(above, err));
    sweep_temporaries(f->path, above);
    return make_temporary(f->path, true, &f->tmp_path, &f->held, err);
}

/* *old receives the place where the old folder lies now, which the caller frees. */
static ckvc_status folder_into_place(const ckvc_new_folder *f, bool force, char **old,
                                     ckvc_err *err) {
    CKVC_TRY(ckvc_fsync_dir(f->tmp_path, err));
    if (rename(f->tmp_path, f->path) == 0) { return CKVC_OK; }
    CKVC_FAIL_ERRNO_IF(!force || (errno != ENOTEMPTY && errno != EEXIST), err, CKVC_E_CREATE,
                       "%s: cannot rename into place", f->path);
    /* This is one step where kernel and file system can do it; else there is no folder for an
     * instant. */
    if (renameat2(AT_FDCWD, f->tmp_path, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0) {
        *old = ckvc_strdup(f->tmp_path);
        return CKVC_OK;
    }
    CKVC_AUTO(ckvc_close_at) int held = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)!flock(held, LOCK_EX); /* so that no sweep of another process removes it */
    *old = temporary_of(f->path);
    CKVC_FAIL_ERRNO_IF(rename(f->path, *old) != 0, err, CKVC_E_CREATE, "%s: cannot rename away",
                       f->path);
    if (rename(f->tmp_path, f->path) == 0) { return CKVC_OK; }
    const ckvc_status st =
        ckvc_fail_errno(err, CKVC_E_CREATE, "%s: cannot rename into place", f->path);
    rename(*old, f->path);
    return st;
}

ckvc_status ckvc_new_folder_commit(ckvc_new_folder *f, bool force, ckvc_err *err) {
    CKVC_AUTO_FREE char *above = ckvc_path_dir(f->path);
    CKVC_AUTO_FREE char *old = NULL;
    CKVC_TRY(folder_into_place(f, force, &old, err));
    CKVC_TRY(ckvc_fsync_dir(above, err));
    if (old) { remove_folder(AT_FDCWD, old); }
    return CKVC_OK;
}

void ckvc_new_folder_abort(ckvc_new_folder *f) {
    if (f->tmp_path) {
        remove_folder(AT_FDCWD, f->tmp_path);
        ckvc_close_at(&f->held);
    }
    CKVC_FREE(f->path, f->tmp_path);
    *f = (ckvc_new_folder){0};
}
