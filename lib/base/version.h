/* What this build is: for `ckvc version` and provenance. */
#ifndef CKVC_BASE_VERSION_H
#define CKVC_BASE_VERSION_H

const char *ckvc_build_compiler(void);
const char *ckvc_build_flags(void);
const char *ckvc_build_git(void); /* "" when not built from a checkout */

#endif
