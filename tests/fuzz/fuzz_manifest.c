/* A manifest; beside it the file "text" that its lines may name. An entry that is read is the same
 * when it is written and read again. */
#include "formats/lines/manifest.h"
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
    if (!fuzz_took(manifest_read(path, &m, err), err)) { return; }
    for (size_t i = 0; i < m->n_entries; i++) {
        const manifest_entry *e = &m->entries[i];
        must(e->id && (e->text != NULL) + (e->tokens != NULL) == 1);
        if (!e->has_file) { there_and_back(path, e, err); }
    }
}
