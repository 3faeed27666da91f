/* The Python that tests of PyTorch use. */
#ifndef TESTS_E2E_TORCH_INTERPRETER_H
#define TESTS_E2E_TORCH_INTERPRETER_H

/* Return TEST_TORCH, or Debian's interpreter; the test is skipped when it has no PyTorch. */
const char *torch_python(void);

/* Put the words into `env` that have ctrun run scripts with it, one thread each, this tree's Python
 * package, the library beside the programs under test, and addresses of loopback; at most `room`.
 * How many. They stay valid. */
int torch_environment(const char **env, int room);

#endif
