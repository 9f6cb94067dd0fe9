/* Reading whole files and publishing new ones atomically: every file that ckvc makes passes through
 * here.
 *
 * Publishing: temporary name in the same folder -> write -> fsync -> rename -> fsync of the folder.
 * A file is never seen half-written and never overwritten without force. A write error at any step
 * removes the temporary file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* For CKVC_AUTO(ckvc_close_at) int fd = ...; none: -1. ckvc_take_fd hands it on and leaves none. */
void ckvc_close_at(int *fd);
static inline int ckvc_take_fd(int *fd) {
    const int taken = *fd;
    *fd = -1;
    return taken;
}

/* Opens a regular file for reading. A folder, FIFO or device is refused (CKVC_E_NOINPUT) before
 * anything is read from it, a Git LFS pointer by that name (CKVC_E_DATA). *fd is the caller's, also
 * after a failure. */
struct stat;
ckvc_status ckvc_file_open(const char *path, int *fd, struct stat *info,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* CKVC_E_DATA where the bytes are none of any format of ours, but what a download leaves that went
 * wrong: nothing, or an HTML page. */
ckvc_status ckvc_download_check(const char *path, const void *bytes, size_t n,
                                ckvc_err *err) CKVC_MUST_CHECK;

/* A read-only mapping of a regular file (symbolic links are followed, anything else is refused).
 * Valid until unmapped. A file of 0 bytes gives data "" and size 0. */
typedef struct ckvc_map {
    const uint8_t *data;
    uint64_t size;
} ckvc_map;
ckvc_status ckvc_map_open(const char *path, ckvc_map *out, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_map_close(ckvc_map *map);
/* CKVC_E_DATA where a mapped file has been written to since, in place: what was computed may be of
 * both. (Another file under its name does no harm, the map is of the one that was there.) Asked
 * before anything becomes durable: publish_commit here, appends in formats/run. */
ckvc_status ckvc_maps_check(ckvc_err *err) CKVC_MUST_CHECK;
/* The path of the map that address lies in, NULL: none. For a signal handler: takes no lock. */
const char *ckvc_map_at(const void *address);

/* Reads a regular file of at most cap bytes; *out (NUL-terminated) is the caller's to free. */
ckvc_status ckvc_file_read(const char *path, size_t cap, char **out, size_t *size,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Opens a file that we go on writing, to read and write; makes it where there is none. A name that
 * is there is taken for a regular file alone, and what is in it stays: behind a link stands
 * somebody else's file, and a pipe has nobody at its end. Of anything else it is CKVC_E_CREATE. */
ckvc_status ckvc_open_kept(const char *path, int *fd, ckvc_err *err) CKVC_MUST_CHECK;
bool ckvc_file_exists(const char *path);
bool ckvc_is_dir(const char *path);
/* Is path the file or folder `other`, or below it, links followed? Also where path is not there
 * yet. */
bool ckvc_path_within(const char *path, const char *other);
/* mkdir -p of path itself; an existing folder is fine. What is made is on disk. */
ckvc_status ckvc_make_dirs(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* The same of a folder in one that may come from elsewhere: a link in its place is refused. */
ckvc_status ckvc_make_dir_in(const char *folder, const char *name, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status ckvc_fsync_dir(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* "dir/name", the caller's to free. An absolute name, or dir NULL, gives name alone. */
char *ckvc_path_join(const char *dir, const char *name);
/* The last component of path, trailing slashes left out; the caller's to free. */
char *ckvc_path_name(const char *path);
/* The folder part of path ("." if none), the caller's to free. */
char *ckvc_path_dir(const char *path);

typedef struct ckvc_publish {
    char *path;     /* final name */
    char *tmp_path; /* where to write, by this name or by held: there, empty, in the same folder */
    int held;       /* open for writing, with the lock that says that it has an owner */
    bool force;
} ckvc_publish;
/* Refuses (CKVC_E_CREATE) when path exists and force is false, when it is anything but a regular
 * file, or the folder is missing. Removes what killed processes left half written for this name. */
ckvc_status ckvc_publish_begin(ckvc_publish *p, const char *path, bool force,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Would publish_begin take it? Asked before the work whose result goes there. */
ckvc_status ckvc_publish_check(const char *path, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* The file at tmp_path is complete, and flushed by whoever wrote it: fsync, rename, fsync folder.
 * Frees p's strings in every case. */
ckvc_status ckvc_publish_commit(ckvc_publish *p, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_publish_abort(ckvc_publish *p); /* removes tmp_path; fine after commit */
/* All in one for bytes in memory. */
ckvc_status ckvc_publish_bytes(const char *path, const void *data, size_t n, bool force,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* A folder that appears whole: filled under tmp_path beside its final name, then renamed. */
typedef struct ckvc_new_folder {
    char *path, *tmp_path;
    int held; /* as of ckvc_publish */
} ckvc_new_folder;
/* Makes the temporary folder, and what is missing above it. Removes what killed processes left for
 * this name. */
ckvc_status ckvc_new_folder_begin(ckvc_new_folder *f, const char *path,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* All files in it are published: sync, rename, sync the folder above. An empty folder gives way,
 * one of files alone with force: the two change names (renameat2), or where the file system cannot
 * it is renamed away first, so that for an instant there is none; it is removed last. */
ckvc_status ckvc_new_folder_commit(ckvc_new_folder *f, bool force, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_new_folder_abort(ckvc_new_folder *f); /* removes it; frees; fine after commit */
