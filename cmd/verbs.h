/* The verbs, in one list in main.c. */
#pragma once

#include "cmd/common/verb.h"

extern const verb verb_calibrate, verb_compile, verb_eval, verb_fit, verb_generate, verb_inspect,
    verb_manifest, verb_manifest_build, verb_manifest_check, verb_merge, verb_perplexity,
    verb_report, verb_scan, verb_score, verb_status, verb_tables, verb_tokenize, verb_transfer,
    verb_verify, verb_version;
