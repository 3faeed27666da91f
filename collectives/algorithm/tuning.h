/* The table of a machine: sizes of select.def that were measured there, by backend and by how many
 * ranks shared the machine. `ctrun bench collectives --tune` writes it, groups read it.
 *
 *     # what ctrun bench collectives --tune measured
 *     version 1
 *     machine 2 cores of AMD EPYC
 *     shm 2 local_flat_bytes 64KiB          backend, ranks, size, value
 *     tcp 4 tcp_flat_bytes 8KiB
 *     machine 64 cores of ...               a home that several machines share has all of them
 *
 * Where: $CTRUN_TUNING (a path, or "none"; `collectives.tuning` of a configuration sets it), or
 * else $XDG_CONFIG_HOME/ctrun/tuning, or else
 * ~/.config/ctrun/tuning. No file, and a machine that is not in it: the defaults.
 *
 * All members of a group must choose alike, so all of them use the table that member 0 finds on its
 * machine and sends to them while the group forms (group.c). Comparing tables instead would turn a
 * file that only one node has, or that is newer there, into a job that does not start. */
#ifndef CT_COLL_ALGORITHM_TUNING_H
#define CT_COLL_ALGORITHM_TUNING_H

#include "algorithm/select.h"

#include "base/bytes.h"

enum { CT_TABLE_LINES = 256, CT_TABLE_TEXT = 64 << 10, CT_MACHINE_TEXT = 128 };

struct ct_table_line {
    char backend[8];
    int ranks;
    enum ct_tunable size;
    size_t value;
};

struct ct_table {
    char machine[CT_MACHINE_TEXT];
    int count;
    struct ct_table_line lines[CT_TABLE_LINES];
};

/* ---- sizes by name ---------------------------------------------------------------------------*/

const char *ct_tunable_name(enum ct_tunable size);

/* Does it mean anything to a backend? */
bool ct_tunable_concerns(enum ct_tunable size, const char *backend);

static inline size_t *ct_tuning_at(struct ct_tuning *tuning, enum ct_tunable size)
{
    return (size_t *)(void *)tuning + size;
}

/* ---- pure ------------------------------------------------------------------------------------*/

/* What `text` says of table->machine, which the caller has set, or of the first one when that is
 * empty; what it says of others is checked alone. 0, or CT_ECONFIG with a sentence that begins with
 * the line. */
int ct_table_parse(struct ct_table *table, const char *text, size_t bytes, struct ct_error *err);

/* Set a size, whether it has a line or not. False: there is no room for another one. */
bool ct_table_set(struct ct_table *table, const struct ct_table_line *line);

/* The line that counts for a group of so many ranks: that of as many, or else of the next fewer, or
 * else of the next more. NULL: there is none. */
const struct ct_table_line *ct_table_find(const struct ct_table *table, const char *backend,
                                          int ranks, enum ct_tunable size);

/* Each size: as given, or else of the table, or else of defaults.def, or else of select.def. */
struct ct_tuning ct_table_tuning(const struct ct_table *table, const char *backend, int ranks,
                                 const struct ct_tuning *given);

/* Append a file with this machine alone. */
void ct_table_print(const struct ct_table *table, struct ct_buf *to);

/* Append `text`, a file that ct_table_parse takes, with `table` for what it said of the machine. */
void ct_table_merge(const struct ct_table *table, const char *text, size_t bytes,
                    struct ct_buf *to);

/* ---- the file --------------------------------------------------------------------------------*/

/* Where this machine's table is, or would be; "" for none. */
void ct_table_path(char *path, size_t room);

/* This machine's. An empty one when there is none; or an error with its sentence. */
int ct_table_load(struct ct_table *ret_table, struct ct_error *err);

/* Replace what the file says of this machine, at once or not at all. A file that is no table is
 * left alone, and the error says so. */
int ct_table_save(struct ct_table *table, struct ct_error *err);

#endif
