/* The subcommands of ctrun, one file each, and the table of them (commands.def). Every function
 * gets its own name in argv[0] and returns the exit status. */
#ifndef CT_CTRUN_COMMANDS_H
#define CT_CTRUN_COMMANDS_H

#include "base/bytes.h"
#include "base/error.h"
#include "config/config.h"

#include <stdbool.h>

/* run_cmd.c: start the workers of a job on this node. */
int ct_cmd_run(int argc, char **argv);

/* run_cmd.c: the same. `for_output`: the workers' output is the result, and the job fails when it
 * cannot be written. */
int ct_run_job(int argc, char **argv, bool for_output);

/* key_cmd.c: make a job key. */
int ct_cmd_key(int argc, char **argv);

/* bench_cmd.c: measure the collectives of this job's machines. */
int ct_cmd_bench(int argc, char **argv);

/* plan_cmd.c: estimate the memory and time of a training. */
int ct_cmd_plan(int argc, char **argv);

/* sample_cmd.c: generate text with a trained GPT. */
int ct_cmd_sample(int argc, char **argv);

/* export_cmd.c: export a trained GPT-2 for other programs. */
int ct_cmd_export(int argc, char **argv);

/* resume_cmd.c: resume a run. */
int ct_cmd_resume(int argc, char **argv);

/* runs_cmd.c: list the runs here, or compare two. */
int ct_cmd_runs(int argc, char **argv);

/* plot/plot_cmd.c: draw the metrics of runs. */
int ct_cmd_plot(int argc, char **argv);

/* sweep/sweep_cmd.c: run a training with several settings. */
int ct_cmd_sweep(int argc, char **argv);

/* sweep/sweep_cmd.c: return whether the words of run have --sweep among them. */
bool ct_sweep_asked(int argc, char *const *argv);

/* slurm_cmd.c: write or submit a batch script for Slurm. */
int ct_cmd_slurm(int argc, char **argv);

/* k8s_cmd.c: write a manifest for Kubernetes. */
int ct_cmd_k8s(int argc, char **argv);

/* admin_cmd.c: query a running job, or remove hosts from it: argv[0] is status, drain, cordon or
 * uncordon. */
int ct_cmd_admin(int argc, char **argv);
int ct_cmd_events(int argc, char **argv);
int ct_cmd_logs(int argc, char **argv);

/* top/top_cmd.c: show running jobs in a terminal, and give orders. */
int ct_cmd_top(int argc, char **argv);

/* flight_cmd.c: print the flight recorders of the ranks on this machine, or of a whole job. */
int ct_cmd_flight(int argc, char **argv);

/* gpus_cmd.c: list this machine's GPUs and their faults. */
int ct_cmd_gpus(int argc, char **argv);

/* doctor_cmd.c: check what would keep a job from starting here, and between machines. */
int ct_cmd_doctor(int argc, char **argv);

/* config_cmd.c: print the effective configuration, or the keys that one may have. */
int ct_cmd_config(int argc, char **argv);

/* help.c: print the help of ctrun, or of the subcommand in argv[1]; print the version. */
int ct_cmd_help(int argc, char **argv);
int ct_cmd_version(int argc, char **argv);

/* A row of commands.def. */
struct ct_command {
    const char *name; /* NULL: `brief` is a heading of those that follow */
    int (*run)(int argc, char **argv);
    const char *usage, *brief;
    enum ct_command_also { CT_COMMAND_NONE, CT_COMMAND_WHERE, CT_COMMAND_RUN } also;
    const char *arguments;
};

struct ct_command_option {
    const char *command, *name;
    const char *value; /* what it is called in the help; "" for a flag */
    const char *standard, *help, *choices;
};

/* help.c: return the rows in order, then NULL. */
const struct ct_command *ct_command_at(size_t index);
const struct ct_command_option *ct_command_option_at(size_t index);

/* help.c: find the subcommand of this name, or an option of one ("_" and "-" are alike); NULL if
 * none. */
const struct ct_command *ct_command_find(const char *name);
const struct ct_command_option *ct_command_option_find(const char *command, const char *name);

/* help.c: suggest the subcommand of which `word` may be a misspelling; NULL if none. */
const char *ct_command_like(const char *word);

/* help.c: set CT_EUSAGE: `word` ("--wach", "--wach=1", "-x") is no option of `command`; the
 * sentence suggests a similar one. */
int ct_command_unknown(const char *command, const char *word, struct ct_error *err);

/* help.c: print usage, description, options and examples; for run, all its options. */
int ct_command_help(const char *name);

/* completion.c: append shell completion for "bash" or "zsh"; CT_EUSAGE for another shell. */
int ct_command_completion(const char *shell, struct ct_buf *to);

/* complaint.c: messages on standard error outside of a job, as text or as records. Open first, with
 * main's arguments; `who` is "ctrun status"; fail returns the exit status of `code`. */
void ct_complaints_open(char *const *argv);
bool ct_complaints_in_json(void);
int ct_command_fail(const char *who, int code, const char *text);
void ct_command_warn(const char *who, const char *text);
void ct_command_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* run_cmd.c: print errors and notes of the configuration to standard error. */
void ct_complain(const struct ct_config_errors *errs, bool notes);

/* main.c: return whether ctrun was called as torchrun (through a symbolic link of that name). Then
 * it has no subcommands, and a program is a Python script unless --no_python is given. */
bool ct_called_torchrun(const char *name);

#endif
