/* The table of a machine: sizes of select.def that were measured there, by backend and by the
 * number of ranks that shared the machine. `ctrun bench collectives --tune` writes it, groups read
 * it.
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

/* Return the name of a size. */
const char *ct_tunable_name(enum ct_tunable size);

/* Return whether a backend uses the size. */
bool ct_tunable_concerns(enum ct_tunable size, const char *backend);

static inline size_t *ct_tuning_at(struct ct_tuning *tuning, enum ct_tunable size)
{
    return (size_t *)(void *)tuning + size;
}

/* ---- pure ------------------------------------------------------------------------------------*/

/* Parse the sizes in `text` of table->machine, which the caller has set, or of the first machine if
 * that is empty; lines of others are only checked. 0, or CT_ECONFIG with a sentence that begins
 * with the line. */
int ct_table_parse(struct ct_table *table, const char *text, size_t bytes, struct ct_error *err);

/* Set a size, in its line or a new one. Return false if there is no room. */
bool ct_table_set(struct ct_table *table, const struct ct_table_line *line);

/* Find the line for a group of so many ranks: that of as many, or else of the next fewer, or else
 * of the next more. NULL if none. */
const struct ct_table_line *ct_table_find(const struct ct_table *table, const char *backend,
                                          int ranks, enum ct_tunable size);

/* Return each size: as given, or else of the table, or else of defaults.def, or else of
 * select.def. A cut-over that was measured with another number of ranks is carried over (cost.h).
 * */
struct ct_tuning ct_table_tuning(const struct ct_table *table, const char *backend, int ranks,
                                 const struct ct_tuning *given);

/* Append a file with this machine only. */
void ct_table_print(const struct ct_table *table, struct ct_buf *to);

/* Append `text`, a file that ct_table_parse accepts, with the machine's lines replaced by
 * `table`. */
void ct_table_merge(const struct ct_table *table, const char *text, size_t bytes,
                    struct ct_buf *to);

/* ---- the file --------------------------------------------------------------------------------*/

/* Write the path of this machine's table, whether it exists or not; "" for none. */
void ct_table_path(char *path, size_t room);

/* Load this machine's table, an empty one if it does not exist. 0, or an error with its
 * sentence. */
int ct_table_load(struct ct_table *ret_table, struct ct_error *err);

/* Replace this machine's lines in the file, at once or not at all. A file that is no table is not
 * changed. 0, or an error with its sentence. */
int ct_table_save(struct ct_table *table, struct ct_error *err);

#endif
