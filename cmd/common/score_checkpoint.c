/* What a stopped score goes on from: see score_checkpoint.h. */
#include "cmd/common/score_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/run/durable_append.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

/* Takes the lock; of a checkpoint that its holder removed meanwhile it would be worth nothing. */
static ckvc_status take_lock(score_checkpoint *c, ckvc_err *err) {
    struct stat held;
    do {
        ckvc_close_at(&c->lock);
        c->lock = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        CKVC_FAIL_ERRNO_IF(c->lock < 0, err, CKVC_E_CREATE, "%s: cannot create", c->path);
        CKVC_FAIL_IF(flock(c->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, err,
                     CKVC_E_BUSY,
                     "%s: another process is writing this score; wait for it or stop it", c->path);
    } while (fstat(c->lock, &held) == 0 && held.st_nlink == 0);
    return CKVC_OK;
}

static ckvc_status compare(const char *path, json_t *ours, json_t *theirs, ckvc_err *err) {
    json_auto_t *all = json_copy(ours);
    json_object_update_missing(all, theirs);
    const char *key;
    json_t *value;
    json_object_foreach(all, key, value) {
        const char *a = json_string_value(json_object_get(theirs, key)),
                   *b = json_string_value(json_object_get(ours, key));
        CKVC_FAIL_IF(!a || !b || strcmp(a, b) != 0, err, CKVC_E_MISMATCH,
                     "%s: was begun with %s %s, this command has %s; give the same, or "
                     "begin anew with --force",
                     path, key, a ? a : "unset", b ? b : "unset");
    }
    return CKVC_OK;
}

/* Whole prompts of a text: how many, and where they end. */
static size_t whole_prompts(const char *text, size_t per_prompt, size_t *end) {
    size_t n_lines = 0;
    *end = 0;
    for (const char *p = text, *next; (next = strchr(p, '\n')); p = next + 1) {
        if (++n_lines % per_prompt == 0) { *end = (size_t)(next + 1 - text); }
    }
    return n_lines / per_prompt;
}

ckvc_status score_checkpoint_open(score_checkpoint *c, json_t *settings, ckvc_buffer *lines,
                                  ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    size_t n, end;
    c->path = ckvc_format("%s.checkpoint", c->out);
    c->lock = -1;
    CKVC_TRY(take_lock(c, err));
    CKVC_TRY(ckvc_file_read(c->path, SIZE_MAX - 1, &text, &n, err));
    char *rest = strchr(text, '\n');
    const bool begun =
        rest && strchr(rest + 1, '\n'); /* else it was killed before its first line */
    CKVC_FAIL_IF(begun && !c->resume && !c->force, err, CKVC_E_CREATE,
                 "%s: a score was stopped here; go on with --resume, or begin anew with --force",
                 c->path);
    if (!begun || !c->resume) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer head = {0};
        ckvc_json_append(&head, settings);
        ckvc_buffer_u8(&head, '\n');
        return durable_append(c->path, &c->size, head.data, head.size, err);
    }
    json_auto_t *theirs = NULL;
    CKVC_TRY(ckvc_json_parse(text, (size_t)(rest++ - text), c->path, &theirs, err));
    CKVC_TRY(compare(c->path, settings, theirs, err));
    c->n_done = whole_prompts(rest, c->per_prompt, &end);
    ckvc_buffer_append(lines, rest, end);
    c->size = (uint64_t)(rest - text) + end;
    return CKVC_OK;
}

ckvc_status score_checkpoint_keep(void *ctx, const void *lines, size_t size, ckvc_err *err) {
    score_checkpoint *c = ctx;
    c->n_done++;
    return durable_append(c->path, &c->size, lines, size, err);
}

void score_checkpoint_remove(const score_checkpoint *c) {
    if (c->path) { unlink(c->path); }
}

void score_checkpoint_fini(score_checkpoint *c) {
    if (c->path) { ckvc_close_at(&c->lock); }
    free(c->path);
}
