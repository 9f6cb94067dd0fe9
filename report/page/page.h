/* The page holds report.json and what draws it, in one file that needs no network. */
#pragma once

#include "lib/base/json.h"

/* Appends the page of a report [JSON]. Where scripts are off, the page shows the JSON's plain
 * tables. Text from outside is escaped in both. */
void page_write(ckvc_buffer *html, json_t *report);
