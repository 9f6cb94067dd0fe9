/* Lines of a manifest that stay: see manifest_clean.h. */
#include "corpus/leaks/manifest_clean.h"

#include <stdio.h>
#include <sys/stat.h>

#include "corpus/leaks/line_stream.h"
#include "lib/base/files.h"

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* "file" of a line is relative to its manifest's folder. */
static ckvc_status check_folder(const manifest *m, const char *path, ckvc_err *err) {
    size_t i = 0;
    while (i < m->n_entries && !m->entries[i].has_file) { i++; }
    if (i == m->n_entries) { return CKVC_OK; }
    CKVC_AUTO_FREE char *mine = ckvc_path_dir(m->path);
    CKVC_AUTO_FREE char *theirs = ckvc_path_dir(path);
    CKVC_FAIL_IF(!same_file(mine, theirs), err, CKVC_E_USAGE,
                 "%s: %s:%u names a \"file\" of the manifest's folder; write the clean manifest "
                 "there, too",
                 path, m->path, m->entries[i].line);
    return CKVC_OK;
}

ckvc_status manifest_clean_ready(const manifest *m, const char *const *read, size_t n_read,
                                 const char *path, bool force, ckvc_err *err) {
    CKVC_FAIL_IF(same_file(path, m->path), err, CKVC_E_USAGE,
                 "%s: is the manifest itself; give the clean one another name", path);
    for (size_t i = 0; i < n_read; i++) {
        CKVC_FAIL_IF(
            same_file(path, read[i]), err, CKVC_E_USAGE,
            "%s: is what the prompts are compared with; give the clean manifest another name",
            path);
    }
    CKVC_TRY(ckvc_publish_check(path, force, err));
    return check_folder(m, path, err);
}

/* Every line's LF is written when the next line, or the file's end, shows that it has one. */
static ckvc_status copy_lines(const manifest *m, const bool *left_out, line_stream *s, FILE *f,
                              const char *path, ckvc_err *err) {
    char *text, sha256[CKVC_SHA256_HEX];
    size_t n, i = 0;
    uint64_t line, with_newlines = 0, bytes;
    bool pending = false;
    for (;;) {
        CKVC_TRY(line_stream_next(s, &text, &n, &line, err));
        if (!text || i == m->n_entries) { break; }
        if (pending) { putc('\n', f); }
        pending = !left_out[i++];
        if (pending) { fwrite(text, 1, n, f); }
        with_newlines += n + 1;
        CKVC_FAIL_ERRNO_IF(ferror(f), err, CKVC_E_IO, "%s: writing failed at line %llu", path,
                           (unsigned long long)line);
    }
    line_stream_digest(s, sha256, &bytes);
    CKVC_FAIL_IF(text || i < m->n_entries || strcmp(sha256, m->sha256) != 0, err, CKVC_E_DATA,
                 "%s: changed while it was checked; check it again", m->path);
    if (pending && bytes == with_newlines) { putc('\n', f); }
    return CKVC_OK;
}

ckvc_status manifest_clean_write(const manifest *m, const bool *left_out, const char *path,
                                 bool force, ckvc_err *err) {
    size_t kept = 0;
    for (size_t i = 0; i < m->n_entries; i++) { kept += !left_out[i]; }
    CKVC_FAIL_IF(kept == 0, err, CKVC_E_DATA,
                 "%s: none of its %zu prompts is left; %s is not written", m->path, m->n_entries,
                 path);
    CKVC_AUTO(ckvc_publish_abort) ckvc_publish p = {0};
    CKVC_AUTO(line_stream_close_at) line_stream *s = NULL;
    CKVC_TRY(ckvc_publish_begin(&p, path, force, err));
    CKVC_TRY(line_stream_open(m->path, &s, err));
    FILE *f = fopen(p.tmp_path, "wbe");
    CKVC_FAIL_ERRNO_IF(!f, err, CKVC_E_CREATE, "%s: cannot create", p.tmp_path);
    const ckvc_status st = copy_lines(m, left_out, s, f, path, err);
    CKVC_FAIL_ERRNO_IF(fclose(f) != 0 && st == CKVC_OK, err, CKVC_E_IO,
                       "%s: writing failed at the end", path);
    CKVC_TRY(st);
    return ckvc_publish_commit(&p, err);
}
