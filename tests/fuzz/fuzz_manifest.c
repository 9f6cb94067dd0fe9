/* A manifest, or a request of a chat API; beside it the file "text" that its lines may name. An
 * entry that is read is the same when it is written and read again. */
#include "corpus/build/conversations.h"
#include "tests/fuzz/fuzz.h"

static void there_and_back(const char *path, const manifest_entry *e, ckvc_err *err) {
    manifest_entry again;
    CKVC_AUTO_FREE char *line = manifest_line(e);
    if (manifest_read_line(path, 1, line, strlen(line), &again, err) != CKVC_OK) {
        fprintf(stderr, "%s\n%s\n", line, err->text);
        abort();
    }
    CKVC_AUTO_FREE char *line_again = manifest_line(&again);
    must(strcmp(line, line_again) == 0);
    must(e->n_tokens == again.n_tokens && e->n_messages == again.n_messages);
    manifest_entry_fini(&again);
}

FUZZ {
    if (!*fuzz_folder_name) { fuzz_file("text", "of a file\n", 10); }
    const char *path = fuzz_file("m.jsonl", data, size);
    CKVC_AUTO(manifest_free_at) manifest *m = NULL;
    CKVC_AUTO(manifest_entry_fini) manifest_entry asked;
    if (fuzz_took(conversation_read(path, 1, (const char *)data, size, &asked, err), err)) {
        must(asked.continuation && strlen(asked.text) <= asked.text_size);
        there_and_back(path, &asked, err);
    }
    if (!fuzz_took(manifest_read(path, &m, err), err)) { return; }
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        must(e->id && (e->text != NULL) + (e->tokens != NULL) == 1);
        if (!e->has_file) { there_and_back(path, e, err); }
    }
}
