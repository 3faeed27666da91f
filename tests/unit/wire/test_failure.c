/* A failure that is kept. */
#include "wire/failure.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(failure, .timeout = 10);

Test(failure, a_kept_one_has_strings_of_its_own)
{
    char host[] = "node1", text[] = "last words", path[] = "/logs/error.json";
    char room[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)];
    struct ct_wire_failure kept;

    ct_failure_keep(&kept,
                    &(struct ct_wire_failure){
                        .rank = 3, .signal = 9, .host = host, .text = text, .error_file = path},
                    room, sizeof room);
    host[0] = text[0] = path[0] = 'x';
    cr_assert(kept.rank == 3 && kept.signal == 9);
    cr_assert_str_eq(kept.host, "node1");
    cr_assert_str_eq(kept.text, "last words");
    cr_assert_str_eq(kept.error_file, "/logs/error.json");
}

Test(failure, of_a_long_text_the_last_lines_are_kept_and_of_a_long_path_nothing)
{
    char path[CT_FAILURE_PATH_BYTES + 1], host[2 * CT_FAILURE_HOST_BYTES];
    char room[CT_FAILURE_ROOM(16)];
    struct ct_wire_failure kept;

    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    ct_failure_keep(&kept,
                    &(struct ct_wire_failure){
                        .host = host, .text = "one\ntwo\nthree\nfour\n", .error_file = path},
                    room, sizeof room);
    cr_assert_str_eq(kept.text, "three\nfour\n");
    cr_assert_str_eq(kept.error_file, "");
    cr_assert_eq(strlen(kept.host), CT_FAILURE_HOST_BYTES - 1);
    path[CT_FAILURE_PATH_BYTES - 1] = '\0';
    ct_failure_keep(&kept, &(struct ct_wire_failure){.error_file = path}, room, sizeof room);
    cr_assert_str_eq(kept.error_file, path);
    cr_assert_str_eq(kept.text, "");
    cr_assert_str_eq(kept.host, "");
}
