/* Values that the Makefile passes in: see version.h. */
#include "lib/base/version.h"

#ifndef CKVC_BUILD_FLAGS
#define CKVC_BUILD_FLAGS ""
#endif
#ifndef CKVC_GIT
#define CKVC_GIT ""
#endif

const char *ckvc_build_compiler(void) {
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

const char *ckvc_build_flags(void) { return CKVC_BUILD_FLAGS; }

const char *ckvc_build_git(void) { return CKVC_GIT; }
