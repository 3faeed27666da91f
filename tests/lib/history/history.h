/* What clients of a job asked of its rendezvous and were answered, and whether that could be: the
 * store of a round (rendezvous/store/store.h), and publications.
 *
 *      clients (one file each)      history_open_file, history_invoke, history_answer
 *      all files of a folder        history_read
 *      is it linearizable?          history_check: each key of each generation, all publications
 *
 * A line is written before a request is sent, and one when its answer is there: nothing is missing
 * of a client that is killed. Times are CLOCK_MONOTONIC of one machine. Values are numbers. */
#ifndef TESTS_HISTORY_HISTORY_H
#define TESTS_HISTORY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_kind {
    HISTORY_SET,     /* a */
    HISTORY_GET,     /* value; CT_ENOTFOUND */
    HISTORY_ADD,     /* a; value: the sum */
    HISTORY_CAS,     /* a: expected, b: desired; value: what the key holds now */
    HISTORY_WAIT,    /* value; CT_ETIMEOUT */
    HISTORY_DELETE,  /* 0; CT_ENOTFOUND */
    HISTORY_PUBLISH, /* a: the step, in `generation`; 0: it counts; CT_EFENCED: it never will */
    HISTORY_SEE,     /* what has counted: value is the step, a its generation; 0: nothing */
    HISTORY_KINDS
};

enum { HISTORY_KEY = 24, HISTORY_TEXT = 512 };

#define HISTORY_ABSENT INT64_MIN /* in place of a value */
#define HISTORY_OPEN UINT64_MAX  /* in place of the time of an answer */

struct history_op {
    enum history_kind kind;
    int file; /* of which client, for reports */
    uint64_t generation;
    char key[HISTORY_KEY]; /* without blanks; of publications "-" */
    int64_t a, b;
    uint64_t begin_ns, end_ns;
    int code; /* 0 or CT_E...: those that are not above leave open whether it took effect */
    int64_t value;
};

struct history {
    struct history_op *ops;
    size_t count, room;
};

/* ---- writing -------------------------------------------------------------------------------- */

struct history_file {
    int fd;
    uint64_t next; /* number of the next operation */
};

/* Create the file history.NAME in the folder. 0 or a negative errno. */
int history_open_file(struct history_file *file, const char *folder, const char *name);
void history_close_file(struct history_file *file);

/* Record an invocation at op->begin_ns, before it is sent; its number. */
uint64_t history_invoke(struct history_file *file, const struct history_op *op);

/* Record the answer to it. */
void history_answer(struct history_file *file, uint64_t number, uint64_t end_ns, int code,
                    int64_t value);

/* ---- reading -------------------------------------------------------------------------------- */

void history_deinit(struct history *history);

/* Add an operation. False without memory. */
bool history_add(struct history *history, const struct history_op *op);

/* Add what the files history.* of a folder hold. False, with a sentence in `text`. */
bool history_read(struct history *history, const char *folder, char text[HISTORY_TEXT]);

/* ---- checking ------------------------------------------------------------------------------- */

struct history_report {
    size_t answered, open;   /* operations */
    size_t objects, largest; /* keys of generations, and the publications; operations of one */
    size_t visited;          /* configurations of all searches */
    size_t published, seen;  /* publications that count, reads of them */
    char text[HISTORY_TEXT]; /* what no order explains; "": all is well */
};

/* Is each object's history linearizable? A key belongs to its generation. */
bool history_check(const struct history *history, struct history_report *ret_report);

/* May this publication count after the last one that did? */
bool history_follows(uint64_t generation, uint64_t step, uint64_t last_generation,
                     uint64_t last_step);

/* "get k3 = 17 in g5 of history 2". */
void history_print(const struct history_op *op, char *text, size_t room);

#endif
