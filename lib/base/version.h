/* What this build is: for `ckvc version` and provenance. */
#pragma once

const char *ckvc_build_compiler(void);
const char *ckvc_build_flags(void);
const char *ckvc_build_git(void); /* "" when not built from a checkout */
