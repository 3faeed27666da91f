/* The command line of a worker's process, decided from the program that the user named.
 *
 *   named                          run
 *   train.yaml, train.yml          ctworker, from beside ctrun, with ctrun's own arguments
 *   NAME with --module             python3 -u -m NAME ARGS
 *   NAME with --run_path           python3 -u NAME ARGS, as torchrun does with every NAME
 *   NAME with --no_python          NAME ARGS, looked up in PATH
 *   train.py                       python3 -u train.py ARGS
 *   an executable file             itself, with ARGS: tool (a file of this folder), bin/tool
 *   -- NAME                        the same, but a NAME without a slash is looked up in PATH
 *
 * Anything else is refused with the remedy. A missing interpreter, script or program is found here,
 * before a rendezvous begins. */
#ifndef CT_LAUNCH_WORKER_PROGRAM_H
#define CT_LAUNCH_WORKER_PROGRAM_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_program_request {
    const char *yaml;  /* the YAML file, or NULL */
    const char *name;  /* program, script or module when there is no YAML file */
    char *const *args; /* that follow it, or (YAML) ctrun's own arguments; NULL-terminated */
    bool no_python, module;
    bool in_path;       /* a name without a slash is looked up in PATH, else in this folder alone */
    bool script;        /* the program is a Python script, whatever its name */
    bool templates;     /* every word is a template (template.h), not only those with the macro */
    const char *worker; /* the trainer of YAML files; "" for ctworker beside ctrun */
    const char *self;   /* ctrun's executable (/proc/self/exe) */
    char *const *env;   /* PATH; PYTHON_EXEC, which names another interpreter */
};

struct ct_program {
    bool native;      /* speaks the worker link: ctworker */
    bool script;      /* a Python script: argv is PYTHON -u SCRIPT ARGS */
    bool templates;   /* see the request */
    const char *path; /* to execute */
    char **argv;
};

/* Decide; texts live in `arena`. 0; CT_EUSAGE, CT_ENOINPUT (named file missing or unusable),
 * CT_EUNAVAILABLE (python3 or ctworker missing). */
int ct_program_decide(const struct ct_program_request *request, struct ct_arena *arena,
                      struct ct_program *ret_program, struct ct_error *err);

/* Find the interpreter of Python scripts: PYTHON_EXEC, that of the virtual environment that ctrun
 * was installed in, or python3 of PATH. CT_EUNAVAILABLE. */
int ct_program_python(char *const *env, struct ct_arena *arena, const char **ret_path,
                      struct ct_error *err);

/* Check that a name without a slash, which can only be a file here, is executable, for a job that
 * is started later from here. Other names may resolve differently there: 0. */
int ct_program_check_name(const struct ct_program_request *request, struct ct_arena *arena,
                          struct ct_error *err);

/* Return the command line of one worker: the macro ${local_rank} (or $local_rank) is replaced in
 * its arguments, as with torchrun, and "$$" in such arguments becomes "$". Other arguments stay as
 * they are, unless all are templates. A trainer's arguments never change. *ret_argv is NULL when
 * the program's own can be used. 0 or CT_ENOMEM. */
int ct_program_argv(const struct ct_program *program, uint32_t local_rank, struct ct_arena *arena,
                    char *const **ret_argv);

#endif
