/* The lock and the appended lines of a durable file. */
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "formats/run/durable.h"
#include "lib/base/files.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

TEST(a_lock_may_be_shared_and_stands_against_others_until_its_file_is_removed) {
    const char *path = in_temp_folder("locked");
    CKVC_AUTO(ckvc_close_at) int first = -1, second = -1;
    bool busy;
    OK(durable_lock(path, LOCK_SH, &first, &busy, &err));
    assert_false(busy);
    OK(durable_lock(path, LOCK_SH, &second, &busy, &err));
    assert_false(busy); /* two may share it */
    OK(durable_lock(path, LOCK_EX, &second, &busy, &err));
    assert_true(busy);
    assert_int_equal(unlink(path), 0); /* as its holder does with a checkpoint at the end */
    OK(durable_lock(path, LOCK_EX, &second, &busy, &err));
    assert_false(busy);
    assert_int_equal(access(path, F_OK), 0); /* of the new file */
    FAILS(durable_lock(in_temp_folder("."), LOCK_EX, &second, &busy, &err), CKVC_E_CREATE);
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
