/* What a worker runs. */
#include "launch/worker_program.h"

#include "base/assert.h"
#include "tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tree tree;
static struct ct_arena arena;
static char path_env[128];
static char *env[2];

static void add_program(const char *path)
{
    tree_file(&tree, path, "#!/bin/sh\n");
    cr_assert_eq(chmod(tree_path(&tree, path), 0755), 0);
}

static void set_up(void)
{
    tree_init(&tree);
    ct_arena_init(&arena, 1 << 20);
    (void)snprintf(path_env, sizeof path_env, "PATH=/nowhere:%s/bin", tree.root);
    env[0] = path_env;
    add_program("/bin/python3");
    add_program("/bin/tool");
    add_program("/inst/ctworker");
    tree_file(&tree, "/train.py", "");
    tree_file(&tree, "/notes.txt", "");
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
    tree_deinit(&tree);
}

TestSuite(program, .timeout = 10, .init = set_up, .fini = tear_down);

static char *args[] = {(char[]){"--lr"}, (char[]){"3"}, NULL};

static struct ct_program_request request_for(const char *name)
{
    return (struct ct_program_request){
        .name = name,
        .args = args,
        .worker = "",
        .self = ct_arena_strdup(&arena, tree_path(&tree, "/inst/ctrun")),
        .env = env,
    };
}

/* The words of the command line with one blank between, the tree's root as "$". */
static const char *decided(const struct ct_program_request *request, struct ct_program *program)
{
    static char text[512];
    struct ct_error err = {0};
    size_t root = strlen(tree.root);

    cr_assert_eq(ct_program_decide(request, &arena, program, &err), 0, "%s", err.text);
    text[0] = '\0';
    for (char **word = program->argv; *word != NULL; word++) {
        bool inside = strncmp(*word, tree.root, root) == 0;
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s",
                       word == program->argv ? "" : " ", inside ? "$" : "",
                       inside ? *word + root : *word);
    }
    return text;
}

static void assert_refused(const struct ct_program_request *request, int code, const char *expected)
{
    struct ct_program program = {.path = "untouched"};
    struct ct_error err = {0};

    cr_assert_eq(ct_program_decide(request, &arena, &program, &err), code, "%s", err.text);
    cr_assert_not_null(strstr(err.text, expected), "%s", err.text);
    cr_assert_str_eq(program.path, "untouched");
}

Test(program, a_yaml_file_is_run_by_the_trainer_beside_ctrun)
{
    struct ct_program_request request = request_for(NULL);
    struct ct_program program;

    request.yaml = "train.yaml";
    cr_assert_str_eq(decided(&request, &program), "$/inst/ctworker --lr 3");
    cr_assert(program.native);
    request.worker = "tool";
    cr_assert_str_eq(decided(&request, &program), "$/bin/tool --lr 3");
    request.worker = "absent";
    assert_refused(&request, CT_EUNAVAILABLE, "the trainer absent");
    request.worker = "";
    request.self = "/nowhere/ctrun";
    assert_refused(&request, CT_EUNAVAILABLE, "/nowhere/ctworker");
}

Test(program, a_script_is_run_by_an_unbuffered_python3)
{
    struct ct_program_request request = request_for(tree_path(&tree, "/train.py"));
    struct ct_program program;

    request.name = ct_arena_strdup(&arena, request.name);
    cr_assert_str_eq(decided(&request, &program), "python3 -u $/train.py --lr 3");
    cr_assert_str_eq(program.path, tree_path(&tree, "/bin/python3"));
    cr_assert_not(program.native);
}

Test(program, a_script_of_any_name_is_run_by_python3_when_it_is_said_to_be_one)
{
    struct ct_program_request request = request_for(tree_path(&tree, "/notes.txt"));
    struct ct_program program;

    request.name = ct_arena_strdup(&arena, request.name);
    request.script = true;
    cr_assert_str_eq(decided(&request, &program), "python3 -u $/notes.txt --lr 3");
    request.no_python = true; /* torchrun's --run-path wins */
    cr_assert_str_eq(decided(&request, &program), "python3 -u $/notes.txt --lr 3");
    request.no_python = false;
    request.name = "tool"; /* not looked up in PATH */
    assert_refused(&request, CT_ENOINPUT, "tool cannot be read");
}

Test(program, the_macro_of_the_local_rank_is_replaced_in_words_that_name_it)
{
    char *expected[] = {(char[]){"--rank=${local_rank}"}, (char[]){"$local_rank$$"},
                        (char[]){"a$$b"}, NULL};
    struct ct_program_request request = request_for("tool");
    struct ct_program program;
    char *const *own;

    request.in_path = true;
    (void)decided(&request, &program);
    cr_assert_eq(ct_program_argv(&program, 3, &arena, &own), 0);
    cr_assert_null(own, "nothing to replace");
    request.args = expected;
    (void)decided(&request, &program);
    cr_assert_eq(ct_program_argv(&program, 3, &arena, &own), 0);
    cr_assert_str_eq(own[0], "tool");
    cr_assert_str_eq(own[1], "--rank=3");
    cr_assert_str_eq(own[2], "3$");
    cr_assert_str_eq(own[3], "a$$b");
    cr_assert_null(own[4]);
    program.templates = true;
    cr_assert_eq(ct_program_argv(&program, 3, &arena, &own), 0);
    cr_assert_str_eq(own[3], "a$b", "as torchrun");
    program.native = true;
    cr_assert_eq(ct_program_argv(&program, 3, &arena, &own), 0);
    cr_assert_null(own, "a trainer's words are ctrun's own");
}

Test(program, a_module_is_run_by_python3)
{
    struct ct_program_request request = request_for("pkg.train");
    struct ct_program program;

    request.module = true;
    cr_assert_str_eq(decided(&request, &program), "python3 -u -m pkg.train --lr 3");
    request.no_python = true;
    assert_refused(&request, CT_EUSAGE, "exclude each other");
}

Test(program, an_executable_is_run_itself)
{
    struct ct_program_request request = request_for("tool");
    struct ct_program program;

    request.in_path = true;
    cr_assert_str_eq(decided(&request, &program), "tool --lr 3");
    cr_assert_str_eq(program.path, tree_path(&tree, "/bin/tool"));
}

Test(program, a_program_of_path_is_run_only_by_who_says_so)
{
    struct ct_program_request request = request_for("tool");

    assert_refused(&request, CT_EUSAGE,
                   "tool is neither a subcommand nor an executable file here; to run ");
    assert_refused(&request, CT_EUSAGE, "/bin/tool, write: ctrun -- tool (or --no_python tool)");
}

Test(program, an_executable_of_this_folder_needs_no_slash_unless_path_is_asked_for)
{
    struct ct_program_request request = request_for("here");
    struct ct_program program;

    add_program("/here");
    cr_assert_eq(chdir(tree.root), 0);
    cr_assert_str_eq(decided(&request, &program), "here --lr 3");
    cr_assert_str_eq(program.path, "./here");
    request.in_path = true;
    assert_refused(&request, CT_ENOINPUT, "here is not in PATH; for the file here write ./here");
    cr_assert_eq(chdir("/"), 0);
}

Test(program, no_python_holds_for_a_script_too)
{
    struct ct_program_request request = request_for(tree_path(&tree, "/train.py"));

    request.no_python = true;
    assert_refused(&request, CT_ENOINPUT, "is not executable");
}

Test(program, what_cannot_be_run_is_refused_with_the_remedy)
{
    static const struct {
        const char *name, *expected;
    } rows[] = {
        {"/notes.txt", "is not executable"},
        {"/absent", "was not found; give"},
        {"/inst", "is a directory"},
        {"/absent.py", "cannot be read: No such file"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_program_request request = request_for(tree_path(&tree, rows[i].name));
        assert_refused(&request, CT_ENOINPUT, rows[i].expected);
    }
    struct ct_program_request request = request_for("absent");
    assert_refused(&request, CT_ENOINPUT, "here or in PATH");
    request = request_for("");
    assert_refused(&request, CT_ENOINPUT, "was not found");
}

/* A virtual environment need not be activated; one that is, elsewhere, is no matter to it. */
Test(program, a_ctrun_that_lies_in_a_virtual_environment_runs_scripts_with_its_python)
{
    struct ct_program_request request = request_for(tree_path(&tree, "/train.py"));
    struct ct_program program;

    tree_file(&tree, "/pyvenv.cfg", "");
    cr_assert_str_eq(decided(&request, &program), "python3 -u $/train.py --lr 3");
    add_program("/inst/python3");
    cr_assert_str_eq(decided(&request, &program), "$/inst/python3 -u $/train.py --lr 3");
    cr_assert_str_eq(program.path, program.argv[0]);
    env[0] = (char[]){"PYTHON_EXEC=/bin/true"};
    cr_assert_str_eq(decided(&request, &program), "/bin/true -u $/train.py --lr 3");
    env[0] = path_env;
    cr_assert_eq(unlink(tree_path(&tree, "/pyvenv.cfg")), 0);
    cr_assert_str_eq(decided(&request, &program), "python3 -u $/train.py --lr 3");
}

Test(program, a_missing_interpreter_is_named)
{
    struct ct_program_request request = request_for("pkg");

    request.module = true;
    env[0] = (char[]){"PATH=/nowhere"};
    assert_refused(&request, CT_EUNAVAILABLE, "python3, needed to run pkg");
    env[0] = (char[]){"PYTHON_EXEC=/opt/none/python"};
    assert_refused(&request, CT_EUNAVAILABLE, "/opt/none/python");
}
