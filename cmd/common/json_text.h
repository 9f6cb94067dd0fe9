/* JSON on standard output: one line for programs, or text for people. */
#pragma once

#include "lib/base/json.h"

/* One canonical line; takes the reference. */
void json_print(json_t *o);
/* The same with keys in the order in which they were set. */
void json_print_as_given(json_t *o);
/* Aligned keys, short lists on one line, lists of objects as small tables. */
void json_text(json_t *object, int indent);
