/* Reading whole files, and publishing new ones atomically. Every file that ckvc makes passes
 * through here.
 *
 * A file is published in these steps: it is written under a temporary name in the same folder,
 * fsynced and renamed, and then the folder is fsynced. So nobody ever sees a half-written file, and
 * an existing file is overwritten only with force. A write error at any step removes the temporary
 * file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Closes *fd, for CKVC_AUTO(ckvc_close_at) int fd = ...; -1 stands for no descriptor. ckvc_take_fd
 * hands the descriptor on and leaves -1 behind. */
void ckvc_close_at(int *fd);
static inline int ckvc_take_fd(int *fd) {
    const int taken = *fd;
    *fd = -1;
    return taken;
}

/* Opens a regular file for reading. A folder, FIFO or device is refused (CKVC_E_NOINPUT) before
 * anything is read from it, and a Git LFS pointer in the file's place is CKVC_E_DATA. *fd is the
 * caller's to close, also after a failure. */
struct stat;
ckvc_status ckvc_file_open(const char *path, int *fd, struct stat *info,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Asked when the first n bytes of the file `path` belong to no format of ours. It is CKVC_E_DATA
 * where they look like what a failed download leaves, namely nothing or an HTML page. */
ckvc_status ckvc_download_check(const char *path, const void *bytes, size_t n,
                                ckvc_err *err) CKVC_MUST_CHECK;

/* A read-only mapping of a regular file, symbolic links followed. A file of 0 bytes gives data ""
 * and size 0. The bytes are valid until ckvc_map_close, which also accepts a zeroed struct and one
 * that could not be opened. The errors are those of ckvc_file_open, and CKVC_E_SYSTEM where the
 * file cannot be mapped. */
typedef struct ckvc_map {
    const uint8_t *data;
    uint64_t size;
} ckvc_map;
ckvc_status ckvc_map_open(const char *path, ckvc_map *out, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_map_close(ckvc_map *map);
/* CKVC_E_DATA if a mapped file has been written to in place since it was mapped, because what was
 * computed may then mix old and new bytes. (Another file that has taken its name does no harm: the
 * map still shows the file that was there.) It is called before anything becomes durable: here by
 * ckvc_publish_commit, in formats/run before each append. */
ckvc_status ckvc_maps_check(ckvc_err *err) CKVC_MUST_CHECK;
/* The path of the map that the address lies in, or NULL if it lies in none. It takes no lock, so
 * that a signal handler can call it. */
const char *ckvc_map_at(const void *address);

/* Reads a regular file of at most cap bytes. *out has a NUL after its *size bytes and is the
 * caller's to free. CKVC_E_DATA for a larger file, CKVC_E_IO where reading fails; the other errors
 * are those of ckvc_file_open. */
ckvc_status ckvc_file_read(const char *path, size_t cap, char **out, size_t *size,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Opens a file that we go on writing for reading and writing, and makes it if it is missing. What
 * an existing file holds stays. Only a regular file is accepted, because a link may lead to
 * somebody else's file and a pipe may have no reader; anything else is CKVC_E_CREATE. */
ckvc_status ckvc_open_kept(const char *path, int *fd, ckvc_err *err) CKVC_MUST_CHECK;
/* Whether anything has this name, be it a file, a folder or a symbolic link that leads nowhere. */
bool ckvc_file_exists(const char *path);
/* Whether path is a regular file that holds these n bytes and nothing else. */
bool ckvc_file_holds(const char *path, const void *data, size_t n);
/* Whether path is a folder, or a symbolic link to one. */
bool ckvc_is_dir(const char *path);
/* Whether path is the file or folder `other` or lies below it, symbolic links followed. It also
 * answers for a path that does not exist yet. */
bool ckvc_path_within(const char *path, const char *other);
/* Makes the folder and all that is missing above it, as mkdir -p does; an existing folder is fine.
 * The folders that it makes are on disk when it returns. */
ckvc_status ckvc_make_dirs(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes the folder `name` inside `folder`, which may come from elsewhere: a symbolic link in the
 * place of `name` is refused. */
ckvc_status ckvc_make_dir_in(const char *folder, const char *name, ckvc_err *err) CKVC_MUST_CHECK;
/* Makes durable which names the folder holds. CKVC_E_IO when that fails. */
ckvc_status ckvc_fsync_dir(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
/* "dir/name", which the caller frees. An absolute name, or a dir of NULL, gives name alone. */
char *ckvc_path_join(const char *dir, const char *name);
/* The last component of path, without trailing slashes. The caller frees it. */
char *ckvc_path_name(const char *path);
/* The folder part of path, "." if it has none. The caller frees it. */
char *ckvc_path_dir(const char *path);

typedef struct ckvc_publish {
    char *path; /* final name */
    /* An empty file in the same folder, to be written by this name or through held. */
    char *tmp_path;
    /* Open for writing. Its lock tells other processes that the temporary file has an owner. */
    int held;
    bool force;
} ckvc_publish;
/* Refuses (CKVC_E_CREATE) a path that exists when force is false, a path that is anything but a
 * regular file, and a missing folder. It removes what killed processes left half written for this
 * name. */
ckvc_status ckvc_publish_begin(ckvc_publish *p, const char *path, bool force,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Whether ckvc_publish_begin would accept the path, with the same errors. Ask it before the work
 * whose result goes there. */
ckvc_status ckvc_publish_check(const char *path, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* Fsyncs the file at tmp_path, which must be complete and flushed, renames it to its final name and
 * fsyncs the folder. Frees p's strings in every case. */
ckvc_status ckvc_publish_commit(ckvc_publish *p, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_publish_abort(ckvc_publish *p); /* removes tmp_path; may be called after commit */
/* Begins, writes and commits in one call, for bytes in memory. */
ckvc_status ckvc_publish_bytes(const char *path, const void *data, size_t n, bool force,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* A folder that appears whole: filled under tmp_path beside its final name, then renamed. */
typedef struct ckvc_new_folder {
    char *path, *tmp_path;
    int held; /* a descriptor whose lock tells other processes that tmp_path has an owner */
} ckvc_new_folder;
/* Makes the temporary folder and all that is missing above it. It removes what killed processes
 * left for this name. */
ckvc_status ckvc_new_folder_begin(ckvc_new_folder *f, const char *path,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Syncs the temporary folder, in which all files must be published, renames it to its final name,
 * and syncs the folder above. An empty folder of that name gives way without force. With force a
 * folder that holds only files gives way too: the two folders exchange their names (renameat2), and
 * the old one is removed at the end. Where the file system cannot exchange names the old folder is
 * renamed away first, so that for an instant there is no folder of that name. */
ckvc_status ckvc_new_folder_commit(ckvc_new_folder *f, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* Removes the temporary folder and frees f's strings; may be called after commit. */
void ckvc_new_folder_abort(ckvc_new_folder *f);
