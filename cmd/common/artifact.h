/* What a path is, for `ckvc inspect` and `ckvc verify`. */
#ifndef CKVC_ARTIFACT_H
#define CKVC_ARTIFACT_H

#include "lib/base/status.h"

typedef enum artifact {
    ARTIFACT_TABLE,
    ARTIFACT_SHARD,
    ARTIFACT_RUN,
    ARTIFACT_MODEL,
    ARTIFACT_MANIFEST,
} artifact;

const char *artifact_name(artifact kind);
/* A file by its first bytes, then by its name; a folder by the file that every run or model has. A
 * file that is damaged at its very beginning is still what its name says, so that the message is
 * about the damage. */
ckvc_status artifact_of(const char *path, artifact *out, ckvc_err *err) CKVC_MUST_CHECK;

#define ARTIFACTS_WANTED "a table, shard, run, model or manifest"

#endif
