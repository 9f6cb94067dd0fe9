/* Runs one fuzz target over files and folders of them, once each: what libFuzzer's own main does
 * with files, for compilers without it. Says how many there were. */
#include <fts.h>

#include "lib/base/files.h"
#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX = 1 << 20 };

static char running[4096]; /* named when the target crashes */

static void say_which(void) {
    if (*running) { fprintf(stderr, "input: %s\n", running); }
}

static void replay(const char *path) {
    ckvc_err err = {0};
    char *bytes;
    size_t n;
    if (ckvc_file_read(path, INPUT_MAX, &bytes, &n, &err) != CKVC_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    snprintf(running, sizeof running, "%s", path);
    /* A copy of its very size, so that a byte read behind it is seen. */
    uint8_t *exact = ckvc_copy(bytes, n, 1);
    LLVMFuzzerTestOneInput(exact, n);
    *running = 0;
    free(exact), free(bytes);
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

#if defined __SANITIZE_ADDRESS__
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

int main(int argc, char **argv) {
    unsigned count = 0;
#if defined __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(say_which);
#endif
    atexit(say_which);
    FTS *tree = argc > 1 ? fts_open(argv + 1, FTS_PHYSICAL | FTS_NOCHDIR, by_name) : NULL;
    for (FTSENT *e; tree && (e = fts_read(tree));) {
        if (e->fts_info == FTS_D || e->fts_info == FTS_DP) { continue; }
        replay(e->fts_path);
        count++;
    }
    if (tree) { fts_close(tree); }
    printf("replayed: %u\n", count);
    return count ? 0 : 1;
}
