/* Shell completion: subcommands and their options from commands.def, keys from config.def. */
#include "base/str.h"
#include "commands.h"

#include <string.h>

/* The names of all subcommands, a blank between. */
static void put_commands(struct ct_buf *to)
{
    const struct ct_command *row;
    const char *blank = "";

    for (size_t i = 0; (row = ct_command_at(i)) != NULL; i++) {
        if (row->name == NULL)
            continue;
        (void)ct_buf_printf(to, "%s%s", blank, row->name);
        blank = " ";
    }
}

/* What both shells ask this program and the working directory. */
static const char functions[] =
    "_ctrun_runs()\n{\n"
    "    for run in runs/*/ runs/*/*/; do\n"
    "        run=${run%/}\n"
    "        [[ $run == */latest ]] || echo \"${run#runs/}\"\n"
    "    done\n}\n"
    "_ctrun_jobs()\n{\n"
    "    timeout 2 \"$1\" status --json 2>/dev/null | grep -o '\"job\":\"[^\"]*\"' | "
    "cut -d'\"' -f4\n}\n";

/* Cases for the values of subcommands' options: choices ("plan --device"), jobs, files or nothing
 * that is known. They set `values`, or end with `files` or `none`. */
static void put_choices(const char *program, const char *files, const char *none, struct ct_buf *to)
{
    const struct ct_command_option *option;

    for (size_t i = 0; (option = ct_command_option_at(i)) != NULL; i++) {
        if (option->value[0] == '\0')
            continue;
        (void)ct_buf_printf(to, "    '%s --%s') ", option->command, option->name);
        if (option->choices[0] != '\0')
            (void)ct_buf_printf(to, "values='%s' ;;\n", option->choices);
        else if (strcmp(option->value, "ID") == 0)
            (void)ct_buf_printf(to, "values=$(_ctrun_jobs \"%s\") ;;\n", program);
        else
            (void)ct_buf_printf(to, "%s ;;\n", strcmp(option->value, "FILE") == 0 ? files : none);
    }
}

/* A case a subcommand: its options when the word begins with a dash, else what its words are. */
static void put_bash_command(const struct ct_command *command, struct ct_buf *to)
{
    const struct ct_command_option *option;
    const char *arguments = command->arguments;

    (void)ct_buf_printf(to, "    %s)\n        own='--help", command->name);
    for (size_t i = 0; (option = ct_command_option_at(i)) != NULL; i++)
        if (strcmp(option->command, command->name) == 0)
            (void)ct_buf_printf(to, " --%s", option->name);
    (void)ct_buf_printf(to, "'\n        keys=%d\n", command->also == CT_COMMAND_RUN);
    if (strcmp(arguments, "@") == 0) {
        (void)ct_buf_puts(to, "        plain='");
        put_commands(to);
        (void)ct_buf_puts(to, "'\n");
    } else if (strcmp(arguments, "%") == 0) {
        (void)ct_buf_puts(to, "        plain=$(shopt -s nullglob; _ctrun_runs)\n");
    } else if (arguments[0] != '\0' && arguments[0] != '-') {
        (void)ct_buf_printf(to, "        plain='%s'\n", arguments);
    }
    (void)ct_buf_puts(to, "        ;;\n");
}

static void put_bash(struct ct_buf *to)
{
    const struct ct_command *row;

    (void)ct_buf_puts(to,
                      "_ctrun()\n{\n"
                      "    local word=${COMP_WORDS[COMP_CWORD]}\n"
                      "    local before=${COMP_WORDS[COMP_CWORD - 1]} command=run own='' keys=1 "
                      "plain='' values=''\n"
                      "    local name=${COMP_WORDS[1]}\n"
                      "    # --device=h comes as three words\n"
                      "    if [[ $word == = ]]; then word=''; "
                      "elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
                      "    if ((COMP_CWORD > 1)); then command=$name; fi\n"
                      "    case $command in\n");
    for (size_t i = 0; (row = ct_command_at(i)) != NULL; i++)
        if (row->name != NULL)
            put_bash_command(row, to);
    (void)ct_buf_puts(to, "    *) command=run ;;\n    esac\n"
                          "    if ((COMP_CWORD == 1)); then plain='");
    put_commands(to);
    (void)ct_buf_puts(to, "'; fi\n    case \"$command $before\" in\n");
    put_choices("${COMP_WORDS[0]}", "return", "return", to);
    (void)ct_buf_puts(to, "    esac\n"
                          "    if [[ -n $values ]]; then\n"
                          "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
                          "        return\n    fi\n"
                          "    if ((keys)); then _ctrun_keys \"$word\" \"$before\"; fi\n"
                          "    ((${#COMPREPLY[@]})) && [[ $word != -* ]] && return\n"
                          "    if [[ $word == -* ]]; then values=$own; else values=$plain; fi\n"
                          "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$values\" "
                          "-- \"$word\")\n"
                          "    if [[ -n $plain && $word != -* && $COMP_CWORD -eq 1 ]]; then\n"
                          "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "
                          "\"$word\")\n"
                          "    fi\n}\n"
                          "complete -o default -F _ctrun ctrun\n");
}

static void put_zsh_command(const struct ct_command *command, struct ct_buf *to)
{
    const struct ct_command_option *option;
    const char *arguments = command->arguments;

    (void)ct_buf_printf(to, "    %s)\n        compadd -- --help", command->name);
    for (size_t i = 0; (option = ct_command_option_at(i)) != NULL; i++)
        if (strcmp(option->command, command->name) == 0)
            (void)ct_buf_printf(to, " --%s", option->name);
    (void)ct_buf_puts(to, "\n");
    if (strcmp(arguments, "@") == 0) {
        (void)ct_buf_puts(to, "        compadd ");
        put_commands(to);
        (void)ct_buf_puts(to, "\n");
    } else if (strcmp(arguments, "%") == 0) {
        (void)ct_buf_puts(to, "        compadd -- ${(f)\"$(setopt nullglob; _ctrun_runs)\"}\n"
                              "        _files\n");
    } else if (arguments[0] == '\0') {
        (void)ct_buf_puts(to, "        _files\n");
    } else if (arguments[0] != '-') {
        (void)ct_buf_printf(to, "        compadd %s\n", arguments);
    }
    (void)ct_buf_puts(to, command->also == CT_COMMAND_RUN ? "        _ctrun_keys\n" : "");
    (void)ct_buf_puts(to, "        ;;\n");
}

/* Subcommands, then what the chosen one takes. */
static void put_zsh(struct ct_buf *to)
{
    const struct ct_command *row;

    (void)ct_buf_puts(to, "_ctrun()\n{\n    local values=''\n"
                          "    if ((CURRENT == 2)); then\n        compadd ");
    put_commands(to);
    (void)ct_buf_puts(to, "\n        _ctrun_keys\n        return\n    fi\n"
                          "    case \"$words[2] $words[CURRENT-1]\" in\n");
    put_choices("$words[1]", "_files; return", "return", to);
    (void)ct_buf_puts(to, "    esac\n    if [[ -n $values ]]; then\n"
                          "        compadd -- ${=values}\n        return\n    fi\n"
                          "    case $words[2] in\n");
    for (size_t i = 0; (row = ct_command_at(i)) != NULL; i++)
        if (row->name != NULL && strcmp(row->name, "run") != 0)
            put_zsh_command(row, to);
    (void)ct_buf_puts(to, "    *) _ctrun_keys ;;\n    esac\n}\n_ctrun \"$@\"\n");
}

int ct_command_completion(const char *shell, struct ct_buf *to)
{
    bool bash = strcmp(shell, "bash") == 0;

    (void)ct_buf_puts(to, bash ? "# bash completion of ctrun: source it, or put it where "
                                 "bash-completion looks\n"
                               : "#compdef ctrun\n");
    int code = ct_config_completion(shell, to);
    if (code != 0)
        return code;
    (void)ct_buf_puts(to, functions);
    if (bash)
        put_bash(to);
    else
        put_zsh(to);
    return 0;
}
