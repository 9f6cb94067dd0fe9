/* A JSON object as text for people: aligned keys, short lists on one line, lists of objects as
 * small tables. */
#ifndef CKVC_JSON_TEXT_H
#define CKVC_JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

void json_text(FILE *out, const json_t *object, int indent);

#endif
