/* See shipped_tables.h. */
#include "cmd/common/shipped_tables.h"

#include <string.h>

#include "cmd/common/option_values.h"
#include "cmd/common/options.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

enum { DESCRIPTIONS_MAX_BYTES = 1 << 20 };

ckvc_status shipped_tables_read(json_t **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = opt_shipped_path(".", "python/ckvc/tables/tables.json");
    FAIL_IF(!path, CKVC_E_NOINPUT,
            "no tables are beside this program (share/ckvc/python/ckvc/tables of where it is "
            "installed): make one with ckvc compile --model DIR --out run");
    json_auto_t *all = NULL;
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(path);
    CKVC_TRY(ckvc_json_read(path, DESCRIPTIONS_MAX_BYTES, &all, err));
    FAIL_IF(!json_is_array(all), CKVC_E_DATA, "%s: wanted a list of tables", path);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *name, *id;
        json_t *entry = json_array_get(all, i);
        FAIL_IF(json_unpack(entry, "{s:s, s:s}", "name", &name, "content_id", &id) != 0 ||
                    strchr(name, '/'),
                CKVC_E_DATA, "%s: entry %zu: wanted a name and a content_id", path, i);
        CKVC_AUTO_FREE char *inner = ckvc_format("%s/%s/table.ckvt", folder, name);
        CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
        CKVC_TRY(ckvc_map_open(inner, &map, err));
        JSON_NUMBERS(entry, {"bytes", (double)map.size});
        json_object_set_new(entry, "file", json_string(inner));
    }
    *out = json_incref(all);
    return CKVC_OK;
}

char *shipped_table_beside(const char *content_id) {
    ckvc_err ignored = {0};
    json_auto_t *all = NULL;
    const char *model = NULL;
    if (shipped_tables_read(&all, &ignored) != CKVC_OK) { return NULL; }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(entry, "content_id")), content_id) == 0) {
            model = json_string_value(json_object_get(entry, "made_from"));
        }
    }
    for (size_t i = 0; model && i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *from = json_string_value(json_object_get(entry, "made_from")),
                   *serves = json_string_value(json_object_get(entry, "serves"));
        if (from && strcmp(from, model) == 0 && serves && strncmp(serves, "vLLM", 4) == 0) {
            return ckvc_strdup(json_string_value(json_object_get(entry, "name")));
        }
    }
    return NULL;
}

void shipped_tables_say(const char *model) {
    ckvc_err ignored = {0};
    json_auto_t *all = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer names = {0};
    CKVC_AUTO_FREE char *file = ckvc_path_name(model);
    if (shipped_tables_read(&all, &ignored) != CKVC_OK) { return; }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *from = json_string_value(json_object_get(entry, "made_from"));
        if (from && strcmp(from, file) == 0) {
            ckvc_buffer_printf(&names, "%s%s", names.size ? ", " : "",
                               json_string_value(json_object_get(entry, "name")));
        }
    }
    if (names.size) {
        say("note: tables for a model of this file's name come along: %s; ckvc tables NAME says "
            "what each loses. Compile one of your own for other prompts or budgets.\n",
            (const char *)names.data);
    }
}
