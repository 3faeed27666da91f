/* ctrun config: what a configuration comes to, and what may be in one. */
#ifndef CT_CTRUN_CONFIG_CMD_H
#define CT_CTRUN_CONFIG_CMD_H

/* Runs "config ARGUMENTS" (argv[0] is "config"): prints to stdout, complains on stderr, returns the
 * exit status. */
int ct_cmd_config(int argc, char **argv);

#endif
