/* The journal's files: what is kept comes back, one daemon at a time writes. */
#include "rendezvous/service/journal_file.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(journal_file, .timeout = 30);

enum { RECORDS = 40 };

struct records {
    size_t count;
    char text[RECORDS][64];
};

struct dir {
    char path[64];
    struct records back;     /* what was replayed */
    struct records snapshot; /* what a rewritten file holds */
    bool no_memory;          /* it cannot be emitted whole */
};

static void keep(struct records *records, const void *payload, size_t size)
{
    cr_assert(records->count < RECORDS && size < 64);
    memcpy(records->text[records->count], payload, size);
    records->text[records->count++][size] = '\0';
}

static int on_record(void *context, const void *payload, size_t size, struct ct_error *err)
{
    struct dir *dir = context;
    (void)err;
    keep(&dir->back, payload, size);
    return 0;
}

static int on_check(void *context, const void *payload, size_t size, struct ct_error *err)
{
    (void)context;
    return size == 4 && memcmp(payload, "news", 4) == 0
               ? ct_error_set(err, CT_EPROTOCOL, "a newer release wrote it")
               : 0;
}

static int on_snapshot(void *context, ct_journal_emit_fn emit, void *emit_context)
{
    struct dir *dir = context;
    int rc = dir->no_memory ? CT_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < dir->snapshot.count; i++)
        rc = emit(emit_context, dir->snapshot.text[i], strlen(dir->snapshot.text[i]));
    return rc;
}

static void make_dir(struct dir *dir)
{
    memset(dir, 0, sizeof(*dir));
    strcpy(dir->path, "/tmp/ct-journal-XXXXXX");
    cr_assert_not_null(mkdtemp(dir->path));
}

static void remove_dir(struct dir *dir)
{
    cr_assert_eq(ct_fs_remove_tree(dir->path), 0);
}

struct how {
    bool takeover;
    size_t compact_bytes;
    size_t limit_bytes;
};

static int try_open(struct dir *dir, struct how how, struct ct_journal_file **ret_file,
                    struct ct_error *err)
{
    struct ct_journal_options options = {
        .dir = dir->path,
        .takeover = how.takeover,
        .compact_bytes = how.compact_bytes,
        .limit_bytes = how.limit_bytes,
        .check = on_check,
        .replay = on_record,
        .snapshot = on_snapshot,
        .context = dir,
    };
    dir->back.count = 0;
    return ct_journal_open(ret_file, &options, err);
}

/* As a daemon does: replay, then begin the tenure with a snapshot of what was replayed. */
static struct ct_journal_file *open_as(struct dir *dir, struct how how)
{
    struct ct_error err = {0};
    struct ct_journal_file *file = NULL;
    cr_assert_eq(try_open(dir, how, &file, &err), 0, "%s", err.text);
    dir->snapshot = dir->back;
    if (dir->snapshot.count == 0)
        keep(&dir->snapshot, "first", 5);
    cr_assert_eq(ct_journal_begin(file, &err), 0, "%s", err.text);
    return file;
}

static struct ct_journal_file *open_journal(struct dir *dir)
{
    return open_as(dir, (struct how){.takeover = false});
}

static struct ct_journal_record compactable(const char *text)
{
    return (struct ct_journal_record){.data = text, .size = strlen(text), .may_compact = true};
}

static void append(struct ct_journal_file *file, const char *text)
{
    struct ct_error err = {0};
    cr_assert_eq(ct_journal_append(file, compactable(text), &err), 0, "%s", err.text);
}

static bool exists(const struct dir *dir, unsigned epoch)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/journal.%u", dir->path, epoch);
    return access(path, F_OK) == 0;
}

static size_t size_of(const struct dir *dir, unsigned epoch)
{
    char path[128];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%s/journal.%u", dir->path, epoch);
    cr_assert_eq(stat(path, &status), 0);
    return (size_t)status.st_size;
}

static void change_byte(const struct dir *dir, unsigned epoch, long at)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/journal.%u", dir->path, epoch);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    cr_assert_eq(fputc('?', file), '?');
    cr_assert_eq(fclose(file), 0);
}

/* ---- one daemon ---- */

Test(journal_file, records_come_back_after_a_restart_and_go_on)
{
    struct dir dir;
    make_dir(&dir);
    struct ct_journal_file *file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 0);
    append(file, "one");
    append(file, "two");
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 3);
    append(file, "three");
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 4);
    cr_assert_str_eq(dir.back.text[0], "first");
    cr_assert_str_eq(dir.back.text[3], "three");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, each_tenure_has_its_own_epoch_and_one_file_is_left)
{
    struct dir dir;
    make_dir(&dir);
    for (unsigned epoch = 1; epoch <= 3; epoch++) {
        struct ct_journal_file *file = open_journal(&dir);
        cr_assert_eq(ct_journal_epoch(file), epoch);
        cr_assert(exists(&dir, epoch) && !exists(&dir, epoch - 1));
        ct_journal_close(file);
    }
    remove_dir(&dir);
}

Test(journal_file, a_grown_file_is_replaced_by_what_is_still_needed)
{
    struct dir dir;
    make_dir(&dir);
    struct ct_journal_file *file = open_as(&dir, (struct how){.compact_bytes = 256});
    for (int i = 0; i < 100; i++)
        append(file, "something longer than that");
    cr_assert_lt(size_of(&dir, 1), 512);
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_str_eq(dir.back.text[0], "first");
    cr_assert_str_eq(dir.back.text[1], "something longer than that");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, a_record_in_the_midst_of_a_step_never_takes_the_place_of_those_before_it)
{
    struct dir dir;
    struct ct_error err = {0};
    make_dir(&dir);
    struct ct_journal_file *file = open_as(&dir, (struct how){.compact_bytes = 64});
    append(file, "a long one, after which the file has grown enough to be replaced");
    append(file, "kept, but the state does not have it yet");
    struct ct_journal_record second = compactable("of the same step");
    second.may_compact = false;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(ct_journal_append(file, second, &err), 0, "%s", err.text);
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 5);
    cr_assert_str_eq(dir.back.text[1], "kept, but the state does not have it yet");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, a_tail_that_was_torn_by_a_crash_is_left_out)
{
    struct dir dir;
    make_dir(&dir);
    struct ct_journal_file *file = open_journal(&dir);
    append(file, "one");
    append(file, "torn");
    size_t size = size_of(&dir, 1);
    ct_journal_close(file);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/journal.1", dir.path);
    cr_assert_eq(truncate(path, (off_t)size - 1), 0);
    file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 2);
    cr_assert_str_eq(dir.back.text[1], "one");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, a_damaged_record_refuses_the_start_and_leaves_the_file_as_it_is)
{
    struct dir dir;
    struct ct_error err = {0};
    make_dir(&dir);
    struct ct_journal_file *file = open_journal(&dir);
    append(file, "one");
    append(file, "two");
    ct_journal_close(file);
    change_byte(&dir, 1, CT_JOURNAL_HEADER + 2);
    cr_assert_eq(try_open(&dir, (struct how){.takeover = false}, &file, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "journal.1: the journal is damaged at byte 0"), "%s",
                       err.text);
    cr_assert(exists(&dir, 1) && !exists(&dir, 2), "nothing was claimed");
    remove_dir(&dir);
}

Test(journal_file, a_place_that_cannot_be_a_directory_gets_its_sentence)
{
    struct ct_journal_file *file;
    struct ct_error err = {0};
    struct ct_journal_options options = {.dir = "/dev/null/journal", .replay = on_record};
    cr_assert_eq(ct_journal_open(&file, &options, &err), CT_ECANTCREAT);
    cr_assert_not_null(strstr(err.text, "/dev/null"), "%s", err.text);
}

/* ---- the file ---- */

Test(journal_file, nobody_but_its_owner_reads_it)
{
    struct dir dir;
    struct stat status;
    char path[128];
    make_dir(&dir);
    struct ct_journal_file *file = open_as(&dir, (struct how){.compact_bytes = 64});
    (void)snprintf(path, sizeof(path), "%s/journal.1", dir.path);
    for (int i = 0; i < 10; i++) { /* replaced several times */
        append(file, "something longer than that, so that the file grows");
        cr_assert_eq(stat(path, &status), 0);
        cr_assert_eq(status.st_mode & 0777, 0600, "%o", status.st_mode);
    }
    ct_journal_close(file);
    remove_dir(&dir);
}

static void leave_file(const struct dir *dir, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fclose(file), 0);
}

static bool has_file(const struct dir *dir, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
    return access(path, F_OK) == 0;
}

Test(journal_file, what_a_crash_left_of_a_replacement_is_removed_by_the_next_daemon)
{
    struct dir dir;
    make_dir(&dir);
    ct_journal_close(open_journal(&dir));
    leave_file(&dir, "journal.1.aB3xYz");
    leave_file(&dir, "journal.77.aB3xYz"); /* of a newer daemon: it may be at work */
    leave_file(&dir, "journal.1.backup-of-mine");
    leave_file(&dir, "journal.old");
    ct_journal_close(open_journal(&dir));
    cr_assert(!has_file(&dir, "journal.1.aB3xYz"));
    cr_assert(has_file(&dir, "journal.77.aB3xYz"));
    cr_assert(has_file(&dir, "journal.1.backup-of-mine") && has_file(&dir, "journal.old"));
    remove_dir(&dir);
}

/* What would be too large to be read back is refused while it is written, and the daemon that
 * comes after reads all that was kept. */
Test(journal_file, what_was_kept_can_be_read_back_however_much_is_offered)
{
    struct dir dir;
    struct ct_error err = {0};
    const struct how how = {.compact_bytes = 1 << 20, .limit_bytes = 400};
    make_dir(&dir);
    struct ct_journal_file *file = open_as(&dir, how);
    struct ct_journal_record record =
        compactable("needed by a job that lives, for as long as it does");
    record.may_compact = false;
    int kept = 0;
    while (kept < RECORDS && ct_journal_append(file, record, &err) == 0)
        kept++;
    cr_assert(kept > 1 && kept < RECORDS);
    cr_assert_eq(err.code, CT_ELIMIT);
    cr_assert_not_null(strstr(err.text, "more than the 400 that are read back"), "%s", err.text);
    cr_assert_leq(size_of(&dir, 1), 400u);
    append(file, "kept: a snapshot takes the place of what is not needed");
    for (int i = 0; i < 7; i++) /* a snapshot that is too large itself */
        keep(&dir.snapshot, "needed by a job that lives, for as long as it does", 50);
    int rc = 0;
    for (int i = 0; i < 10 && rc == 0; i++)
        rc = ct_journal_append(file, compactable("one more"), &err);
    cr_assert_eq(rc, CT_ELIMIT);
    cr_assert_leq(size_of(&dir, 1), 400u);
    ct_journal_close(file);
    cr_assert_eq(try_open(&dir, how, &file, &err), 0, "%s", err.text);
    cr_assert_str_eq(dir.back.text[1], "kept: a snapshot takes the place of what is not needed");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, a_file_stays_as_it_is_when_its_replacement_cannot_be_made_whole)
{
    struct dir dir;
    struct ct_error err = {0};
    make_dir(&dir);
    struct ct_journal_file *file = open_as(&dir, (struct how){.compact_bytes = 100});
    dir.no_memory = true;
    append(file, "needed by a job that lives, for as long as it does");
    append(file, "and so is this one, which makes the file large enough");
    for (int i = 0; i < 3; i++)
        append(file, "kept behind them");
    ct_journal_close(file);
    cr_assert_eq(try_open(&dir, (struct how){0}, &file, &err), 0, "%s", err.text);
    cr_assert_eq(dir.back.count, 6);
    ct_journal_close(file);
    remove_dir(&dir);
}

/* ---- two daemons ---- */

Test(journal_file, a_second_daemon_is_kept_out_while_the_first_lives)
{
    struct dir dir;
    struct ct_error err = {0};
    struct ct_journal_file *other;
    make_dir(&dir);
    struct ct_journal_file *file = open_journal(&dir);
    cr_assert_eq(try_open(&dir, (struct how){.takeover = false}, &other, &err), CT_EFENCED);
    cr_assert_not_null(strstr(err.text, "another ctrund works with the journal"), "%s", err.text);
    append(file, "undisturbed");
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_str_eq(dir.back.text[1], "undisturbed");
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, who_takes_over_fences_the_old_daemon_and_has_all_that_it_let_be_seen)
{
    struct dir dir;
    struct ct_error err = {0};
    make_dir(&dir);
    struct ct_journal_file *old = open_journal(&dir);
    append(old, "seen");
    cr_assert_eq(ct_journal_check(old, &err), 0);
    struct ct_journal_file *new = open_as(&dir, (struct how){.takeover = true});
    cr_assert_eq(ct_journal_epoch(new), 2);
    cr_assert_str_eq(dir.back.text[1], "seen");
    cr_assert_eq(ct_journal_check(old, &err), CT_EFENCED);
    cr_assert_eq(ct_journal_append(old, compactable("late"), &err), CT_EFENCED);
    cr_assert_not_null(strstr(err.text, "a newer ctrund (epoch 2) has taken over"), "%s", err.text);
    append(new, "goes on");
    ct_journal_close(old);
    cr_assert_eq(ct_journal_check(new, &err), 0, "%s", err.text);
    ct_journal_close(new);
    new = open_journal(&dir);
    cr_assert_eq(dir.back.count, 3);
    cr_assert_str_eq(dir.back.text[2], "goes on");
    ct_journal_close(new);
    remove_dir(&dir);
}

/* The claim alone is the fence: from then on the new daemon may have read the old file. */
/* ... and that one goes on. */
Test(journal_file, who_cannot_read_a_journal_claims_no_epoch_and_fences_nobody)
{
    struct ct_journal_file *newer, *older = NULL;
    struct ct_error err = {0};
    struct dir dir;

    make_dir(&dir);
    newer = open_journal(&dir);
    cr_assert_eq(ct_journal_append(newer, compactable("news"), &err), 0, "%s", err.text);
    cr_assert_eq(try_open(&dir, (struct how){.takeover = true}, &older, &err), CT_EPROTOCOL);
    cr_assert_not_null(strstr(err.text, "journal.1: a newer release wrote it"), "%s", err.text);
    cr_assert_eq(dir.back.count, 0, "nothing was replayed");
    cr_assert_eq(ct_journal_check(newer, &err), 0, "%s", err.text);
    cr_assert_eq(ct_journal_append(newer, compactable("more"), &err), 0, "%s", err.text);
    ct_journal_close(newer);
    remove_dir(&dir);
}

Test(journal_file, the_old_daemon_shows_nothing_once_the_epoch_is_claimed)
{
    struct dir dir;
    struct ct_error err = {0};
    struct ct_journal_file *new;
    make_dir(&dir);
    struct ct_journal_file *old = open_journal(&dir);
    cr_assert_eq(try_open(&dir, (struct how){.takeover = true}, &new, &err), 0, "%s", err.text);
    cr_assert_eq(ct_journal_append(old, compactable("late"), &err), CT_EFENCED);
    ct_journal_close(new); /* it dies before it has begun: the claim is given back */
    cr_assert(!exists(&dir, 2));
    ct_journal_close(old);
    remove_dir(&dir);
}

Test(journal_file, an_epoch_that_was_claimed_by_a_daemon_that_died_is_never_used_again)
{
    struct dir dir;
    make_dir(&dir);
    struct ct_journal_file *file = open_journal(&dir);
    append(file, "one");
    ct_journal_close(file);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/journal.2", dir.path);
    FILE *claim = fopen(path, "w"); /* what is left of it */
    cr_assert_not_null(claim);
    cr_assert_eq(fclose(claim), 0);
    file = open_journal(&dir);
    cr_assert_eq(ct_journal_epoch(file), 3);
    cr_assert_eq(dir.back.count, 2);
    cr_assert(!exists(&dir, 1) && !exists(&dir, 2));
    ct_journal_close(file);
    remove_dir(&dir);
}

Test(journal_file, who_took_over_holds_the_lock_once_the_old_daemon_is_gone)
{
    struct dir dir;
    struct ct_error err = {0};
    struct ct_journal_file *third;
    make_dir(&dir);
    struct ct_journal_file *old = open_journal(&dir);
    struct ct_journal_file *new = open_as(&dir, (struct how){.takeover = true});
    ct_journal_close(old);
    cr_assert_eq(ct_journal_check(new, &err), 0);
    cr_assert_eq(try_open(&dir, (struct how){.takeover = false}, &third, &err), CT_EFENCED);
    ct_journal_close(new);
    remove_dir(&dir);
}

/* ---- no room ---- */

Test(journal_file, a_full_disk_does_not_hide_that_another_daemon_has_taken_over)
{
    struct dir dir;
    struct rlimit limit;
    struct ct_error err = {0};
    make_dir(&dir);
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t room = limit.rlim_cur;
    struct ct_journal_file *old = open_journal(&dir);
    append(old, "seen");
    size_t size = size_of(&dir, 1);
    struct ct_journal_file *new = open_as(&dir, (struct how){.takeover = true});
    limit.rlim_cur = size + 10;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 2; i++) /* the second begins with a snapshot, which has no room either */
        cr_assert_eq(ct_journal_append(old, compactable("no room"), &err), CT_EFENCED);
    limit.rlim_cur = room;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ct_journal_close(old);
    ct_journal_close(new);
    remove_dir(&dir);
}

Test(journal_file, a_full_disk_keeps_nothing_and_what_comes_after_it_is_kept)
{
    struct dir dir;
    struct rlimit limit;
    struct ct_error err = {0};
    make_dir(&dir);
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct ct_journal_file *file = open_journal(&dir);
    append(file, "before");
    rlim_t room = limit.rlim_cur;
    limit.rlim_cur = size_of(&dir, 1) + 10; /* in the midst of the next record */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(ct_journal_append(file, compactable("no room"), &err), CT_EIO);
        limit.rlim_cur = 10; /* now not even the snapshot can be written */
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    limit.rlim_cur = room;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    keep(&dir.snapshot, "before", 6);
    append(file, "after");
    ct_journal_close(file);
    file = open_journal(&dir);
    cr_assert_eq(dir.back.count, 3);
    cr_assert_str_eq(dir.back.text[1], "before");
    cr_assert_str_eq(dir.back.text[2], "after");
    ct_journal_close(file);
    remove_dir(&dir);
}
