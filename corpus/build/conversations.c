/* Makes entries of a manifest from requests of chat APIs: see conversations.h. */
#include "corpus/build/conversations.h"

#include "lib/base/json.h"

/* Whether a member says nothing. Clients log null or an empty array in place of what is not there,
 * and v is NULL where they leave the member out. */
static bool is_nothing(const json_t *v) {
    return !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
}

/* Removes the members that say nothing from each message. */
static void keep_said(json_t *messages) {
    size_t i;
    json_t *message, *value;
    json_array_foreach(messages, i, message) {
        const char *key;
        void *next;
        json_object_foreach_safe(message, next, key, value) {
            if (is_nothing(value)) { json_object_del(message, key); }
        }
    }
}

/* Reads a request into an entry of a manifest, with all turns as its messages. */
static ckvc_status read_request(const char *path, uint32_t number, json_t *request,
                                manifest_entry *out, ckvc_err *err) {
    static const char *const written[] = {"tools", "functions", "system", "documents"};
    json_t *messages = json_object_get(request, "messages"),
           *document = json_object_get(request, "document");
    CKVC_FAIL_IF(!json_is_array(messages), err, CKVC_E_DATA,
                 "%s:%u: want an object with \"messages\", an array", path, number);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        CKVC_FAIL_IF(!is_nothing(json_object_get(request, written[i])), err, CKVC_E_DATA,
                     "%s:%u: \"%s\" is written into the prompt, which ckvc makes of \"messages\" "
                     "alone; render such requests to \"text\", or leave them out",
                     path, number, written[i]);
    }
    keep_said(messages);
    json_auto_t *line = json_pack("{s:s, s:O*, s:O}", "id", "-", "document",
                                  is_nothing(document) ? NULL : document, "messages", messages);
    CKVC_AUTO_FREE char *text = ckvc_json_canonical(line);
    return manifest_read_line(path, number, text, strlen(text), out, err);
}

/* Makes the last turn the entry's continuation, and takes it off the messages and off `text`, which
 * ends with "assistant LF content LF". */
static ckvc_status split_last(const char *path, manifest_entry *e, ckvc_err *err) {
    const chat_message last = e->messages[e->n_messages - 1];
    const bool answer = e->n_messages > 1 && strcmp(last.role, "assistant") == 0 &&
                        strcmp(e->messages[e->n_messages - 2].role, "assistant") != 0 &&
                        last.content_size > 0;
    CKVC_FAIL_IF(!answer, err, CKVC_E_DATA,
                 "%s:%u: the last of %zu \"messages\" is the %s's%s: want an answer of the "
                 "assistant, which is the continuation, behind another's turn",
                 path, e->line, e->n_messages, last.role, last.content_size ? "" : ", and empty");
    e->n_messages--;
    e->text_size -= strlen(last.role) + last.content_size + 2;
    e->text[e->text_size] = '\0';
    e->continuation = ckvc_unconst(last.content);
    e->continuation_size = last.content_size;
    CKVC_FREE(last.role, e->id);
    e->id = ckvc_format("%s:%u", path, e->line);
    return CKVC_OK;
}

ckvc_status conversation_read(const char *path, uint32_t line, const char *text, size_t n,
                              manifest_entry *out, ckvc_err *err) {
    json_error_t problem;
    json_auto_t *request = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    *out = (manifest_entry){0};
    CKVC_FAIL_IF(!request, err, CKVC_E_DATA, "%s:%u: column %d: not valid JSON: %.200s", path, line,
                 problem.column, problem.text);
    CKVC_TRY(read_request(path, line, request, out, err));
    return split_last(path, out, err);
}
