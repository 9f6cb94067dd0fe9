/* Runs one fuzz target over files and folders of them, once each: what libFuzzer's own main does
 * with files, for compilers without it. Says how many there were. */
#include <dirent.h>
#include <sys/stat.h>

#include "lib/base/files.h"
#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX = 1 << 20 };

static char running[4096]; /* named when the target crashes */

static void say_which(void) {
    if (*running) { fprintf(stderr, "input: %s\n", running); }
}

static unsigned replay_file(const char *path) {
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
    free(exact);
    free(bytes);
    return 1;
}

static unsigned replay(const char *path) {
    if (!ckvc_is_dir(path)) { return replay_file(path); }
    struct dirent **found;
    const int n = scandir(path, &found, NULL, alphasort);
    unsigned count = 0;
    for (int i = 0; i < n; i++) {
        if (*found[i]->d_name != '.') {
            CKVC_AUTO_FREE char *file = ckvc_path_join(path, found[i]->d_name);
            count += replay(file);
        }
        free(found[i]);
    }
    if (n >= 0) { free(found); }
    return count;
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
    for (int i = 1; i < argc; i++) { count += replay(argv[i]); }
    printf("replayed: %u\n", count);
    return count ? 0 : 1;
}
