/* The health of a node's GPUs: records from the process that queries NVML, and texts for people.
 *
 *   {"driver":"580.95.05","gpus":8}
 *   {"index":0,"address":"0000:17:00.0","name":"NVIDIA H100 80GB HBM3",...}     one per GPU
 *   {"error":"NVML does not start: ..."}                     instead of others, or after them
 *   {"absent":"libnvidia-ml.so.1 cannot be loaded; ..."}     instead: no query was possible
 *
 * A record is a line of JSON, so that the results before a hanging call are known, and the GPU at
 * which it hangs. Pure. */
#ifndef CT_HARDWARE_HEALTH_H
#define CT_HARDWARE_HEALTH_H

#include "base/bytes.h"
#include "hardware/gpus.h"
#include "hardware/nvml.h"

enum { CT_HEALTH_LINE_MAX = 4096 };

struct ct_health {
    bool begun; /* the first record is here */
    char driver[96];
    uint32_t count;    /* of cards that NVML sees */
    uint32_t received; /* of these, how many are here */
    struct ct_nvml_card cards[CT_GPUS_MAX];
    char error[1024]; /* "": none */
    bool is_absent;   /* that says who could not be asked: nothing is wrong */
};

/* Append a record. */
void ct_health_print_driver(struct ct_buf *to, const char *version, uint32_t count);
void ct_health_print_card(struct ct_buf *to, const struct ct_nvml_card *card);
void ct_health_print_error(struct ct_buf *to, const struct ct_error *err); /* ct_nvml_query's */

/* Parse a record, without its newline. 0, or CT_EPROTOCOL for an invalid one. */
int ct_health_parse(struct ct_health *health, const char *line);

/* Which cards are meant; the others are not spoken of. */
struct ct_health_scope {
    const struct ct_gpus *gpus; /* those of this node by the driver's files */
    const bool *used;           /* by the job, of each; NULL: all */
    uint64_t late_ms;           /* the answer was given up after so long; 0: it is whole */
};

/* Return whether the card is in the scope. One without an address may belong to any worker; one
 * that this user may not query belongs to another user. */
bool ct_health_means(const struct ct_health_scope *scope, const struct ct_nvml_card *card);

/* Memory that processes which have ended still hold. */
struct ct_health_held {
    uint64_t bytes;           /* of all cards; 0: none */
    struct ct_nvml_card card; /* the one with the most */
};

/* Return what the cards in the scope hold above what they held at `before`, and above
 * CT_HEALTH_IDLE_BYTES. Cards that do not tell hold nothing. */
enum { CT_HEALTH_IDLE_BYTES = 512 << 20 };
struct ct_health_held ct_health_held(const struct ct_health *now, const struct ct_health *before,
                                     const struct ct_health_scope *scope);

/* Write "GPU 3 (NVIDIA H100, 0000:65:00.0)", as much of it as is known. */
void ct_health_name(const struct ct_nvml_card *card, char *text, size_t room);

/* Report the health, one call a sentence: a summary of the cards, then each fault with its remedy,
 * for which `is_wrong` is set. */
void ct_health_report(const struct ct_health *health, const struct ct_health_scope *scope,
                      void (*emit)(void *context, bool is_wrong, const char *sentence),
                      void *context);

#endif
