/* Forced in front of every source of `make coverage`: the program leaves by _exit, which runs no
 * exit handler, so that the counts are written first. */
#include <unistd.h>
void __gcov_dump(void);
#define _exit(code) (__gcov_dump(), _exit(code))
/* What reads shards (formats/shard/shard_hostile.c) has to write them, too. */
#define CKVC_UNCONFINED 1
