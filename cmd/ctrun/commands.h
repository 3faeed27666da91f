/* The subcommands of ctrun, one file each. Every function gets its own name in argv[0] and returns
 * the exit status. */
#ifndef CT_CTRUN_COMMANDS_H
#define CT_CTRUN_COMMANDS_H

#include "config/config.h"

#include <stdbool.h>

/* run_cmd.c: start the workers of a job on this node. */
int ct_cmd_run(int argc, char **argv);

/* run_cmd.c: the same. `for_output`: what the workers print is the result, and a job of which it
 * could not be written has failed. */
int ct_run_job(int argc, char **argv, bool for_output);

/* key_cmd.c: make a job key. */
int ct_cmd_key(int argc, char **argv);

/* bench_cmd.c: measure the collectives of this job's machines. */
int ct_cmd_bench(int argc, char **argv);

/* plan_cmd.c: what a training would take. */
int ct_cmd_plan(int argc, char **argv);

/* sample_cmd.c: text by a trained GPT. */
int ct_cmd_sample(int argc, char **argv);

/* export_cmd.c: a trained GPT-2 for other programs. */
int ct_cmd_export(int argc, char **argv);

/* slurm_cmd.c: write or submit a batch script for Slurm. */
int ct_cmd_slurm(int argc, char **argv);

/* admin_cmd.c: look at a job that runs, or take hosts out of it: argv[0] is status, drain, cordon
 * or uncordon. */
int ct_cmd_admin(int argc, char **argv);

/* flight_cmd.c: the flight recorders of the ranks on this machine, or of a whole job. */
int ct_cmd_flight(int argc, char **argv);

/* gpus_cmd.c: this machine's GPUs and what is wrong with them. */
int ct_cmd_gpus(int argc, char **argv);

/* main.c: what ctrun can do, or the subcommand that argv[1] names; its version. */
int ct_cmd_help(int argc, char **argv);
int ct_cmd_version(int argc, char **argv);

/* main.c: the subcommand that `word` may be a misspelling of; NULL: none. */
const char *ct_command_like(const char *word);

/* run_cmd.c: errors and notes of the configuration, to standard error. */
void ct_complain(const struct ct_config_errors *errs, bool notes);

/* main.c: was it called as torchrun (through a symbolic link of that name)? Then there are no
 * subcommands, and a program is a Python script unless --no_python says otherwise. */
bool ct_called_torchrun(const char *name);

#endif
