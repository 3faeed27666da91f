/* A real ctrund as a service: its file, and what it tells the manager that started it, which is a
 * socket of ours. */
#include "e2e.h"
#include "test_pem.h"

#include "base/assert.h"
#include "base/str.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(daemon, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* ---- the service manager --------------------------------------------------------------------- */

/* NOTIFY_SOCKET's end of the manager: a path, or "@name". */
static int manager_open(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t length = strlen(name);

    cr_assert_geq(fd, 0);
    cr_assert_lt(length, sizeof address.sun_path);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    cr_assert_eq(bind(fd, (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)),
                 0);
    return fd;
}

/* The next datagram that begins with `words`; others are passed over. Static, one at a time. */
static const char *manager_await(int fd, const char *words)
{
    static char text[1024];
    double until_s = proc_now_s() + 10;

    while (proc_now_s() < until_s) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 100) != 1)
            continue;
        ssize_t size = recv(fd, text, sizeof text - 1, 0);
        cr_assert_geq(size, 0);
        text[size] = '\0';
        if (strncmp(text, words, strlen(words)) == 0)
            return text;
    }
    cr_assert(false, "the daemon never says %s", words);
    return "";
}

static void start_service(struct proc *daemon, const char *socket, const char *watchdog_usec)
{
    char notify[128], watchdog[64];
    const char *const argv[] = {proc_program("ctrund"), "--listen", "127.0.0.1:0", NULL};
    const char *const env[] = {notify, watchdog, NULL};

    (void)snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s", socket);
    (void)snprintf(watchdog, sizeof watchdog, "WATCHDOG_USEC=%s", watchdog_usec);
    proc_start(daemon, argv, env);
}

static void end(struct proc *daemon, int status)
{
    cr_assert_eq(proc_finish(daemon, 10), status, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

Test(daemon, tells_its_manager_that_it_is_ready_lives_reads_again_and_ends)
{
    struct proc daemon;
    const char *name = e2e_in_folder("notify");
    int fd = manager_open(name);

    start_service(&daemon, name, "60000");
    const char *said = manager_await(fd, "READY=1\n");
    cr_assert_not_null(strstr(said, "STATUS=jobs: 0, of which 0 run; connections: 0\n"), "%s",
                       said);
    (void)proc_wait_text(&daemon, "listens on 127.0.0.1:", 10);
    (void)manager_await(fd, "WATCHDOG=1\n");
    (void)manager_await(fd, "WATCHDOG=1\n");
    (void)kill(daemon.pid, SIGHUP);
    said = manager_await(fd, "RELOADING=1\n");
    cr_assert_not_null(strstr(said, "MONOTONIC_USEC="), "%s", said);
    (void)manager_await(fd, "READY=1\n");
    (void)kill(daemon.pid, SIGTERM);
    (void)manager_await(fd, "STOPPING=1\n");
    end(&daemon, 0);
    (void)close(fd);
}

/* A stopped process is what a hanging loop looks like from outside. */
Test(daemon, a_loop_that_stands_still_gives_no_sign_and_one_that_goes_on_does)
{
    struct proc daemon;
    struct pollfd ready = {.events = POLLIN};
    char rest[1024];

    (void)snprintf(rest, sizeof rest, "@ctrun-test-%d", (int)getpid());
    ready.fd = manager_open(rest);
    start_service(&daemon, rest, "30000");
    (void)manager_await(ready.fd, "WATCHDOG=1\n");
    (void)kill(daemon.pid, SIGSTOP);
    while (poll(&ready, 1, 300) == 1) /* ten times the time between two signs */
        cr_assert_geq(recv(ready.fd, rest, sizeof rest, 0), 0);
    (void)kill(daemon.pid, SIGCONT);
    (void)manager_await(ready.fd, "WATCHDOG=1\n");
    (void)kill(daemon.pid, SIGTERM);
    end(&daemon, 0);
    (void)close(ready.fd);
}

Test(daemon, waits_for_no_manager_that_reads_nothing)
{
    struct proc daemon;
    const char *name = e2e_in_folder("notify");
    int fd = manager_open(name);

    start_service(&daemon, name, "3000"); /* 1,000 signs a second; a socket holds some hundred */
    (void)proc_wait_text(&daemon, "listens on", 10);
    struct pollfd full = {.fd = fd, .events = POLLIN};
    cr_assert_eq(poll(&full, 1, 5000), 1);
    (void)kill(daemon.pid, SIGHUP);
    (void)proc_wait_text(&daemon, "SIGHUP", 10);
    (void)kill(daemon.pid, SIGTERM);
    end(&daemon, 0);
    (void)close(fd);
}

Test(daemon, tells_its_manager_why_it_does_not_start)
{
    struct proc daemon;
    const char *name = e2e_in_folder("notify");
    char notify[128];
    int fd = manager_open(name);
    const char *const argv[] = {proc_program("ctrund"), "--listen", "0.0.0.0:0", NULL};
    const char *const env[] = {notify, NULL};

    (void)snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s", name);
    proc_start(&daemon, argv, env);
    const char *said = manager_await(fd, "STOPPING=1\n");
    cr_assert_not_null(strstr(said, "STATUS=refusing to listen on 0.0.0.0:0 without a key"), "%s",
                       said);
    end(&daemon, 77);
    (void)close(fd);
}

Test(daemon, lines_to_the_journal_have_a_priority_and_no_time)
{
    struct proc daemon;
    char command[512];
    (void)snprintf(
        command, sizeof command,
        "JOURNAL_STREAM=$(stat -L -c %%d:%%i /proc/self/fd/2) exec %s --listen 0.0.0.0:0",
        proc_program("ctrund"));
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};

    proc_start(&daemon, argv, NULL);
    cr_assert_eq(proc_finish(&daemon, 10), 77);
    cr_assert_eq(strncmp(ct_buf_str(&daemon.text), "<3>ctrund: error: refusing", 26), 0, "%s",
                 ct_buf_str(&daemon.text));
    proc_free(&daemon);
}

/* ---- the file -------------------------------------------------------------------------------- */

Test(daemon, takes_its_options_from_a_file_and_what_is_given_before_them)
{
    struct proc daemon;
    char port[300], text[900], ours[128];

    (void)snprintf(ours, sizeof ours, "unix:%s", e2e_in_folder("ours"));
    (void)snprintf(port, sizeof port, "%s", e2e_in_folder("port"));
    (void)snprintf(text, sizeof text,
                   "# a daemon\nlisten: [127.0.0.1:0, \"unix:%s\"]\nlog-level: debug\n"
                   "port_file: %s\n",
                   e2e_in_folder("theirs"), port);
    const char *file = e2e_write("ctrund.yaml", text);
    const char *const all[] = {proc_program("ctrund"), "--config", file, NULL};
    proc_start(&daemon, all, NULL);
    cr_assert_gt(atoi(e2e_wait_file(port, 10)), 0);
    (void)proc_wait_text(&daemon, "/theirs", 10);
    (void)kill(daemon.pid, SIGTERM);
    end(&daemon, 0);

    const char *const some[] = {proc_program("ctrund"), "--listen", ours, "--config", file, NULL};
    proc_start(&daemon, some, NULL);
    (void)proc_wait_text(&daemon, "/ours", 10);
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    e2e_not_said(&daemon, "/theirs");
    e2e_not_said(&daemon, "listens on 127.0.0.1");
    proc_free(&daemon);
}

Test(daemon, names_the_place_of_a_mistake_in_its_file)
{
    static const struct {
        const char *text, *words;
        int status;
    } rows[] = {
        {"listen: 127.0.0.1:0\nkeyfile: k\n",
         "ctrund.yaml:2:10: unknown key keyfile: did you mean key_file?", 2},
        {"listen: {a: b}\n", "ctrund.yaml:1:9: listen wants one value or a list of values", 2},
        {"journal: [a, b]\n", "ctrund.yaml:1:10: journal wants one value", 2},
        {"journal: a\njournal: b\n", "ctrund.yaml:2:1: the file says the same name twice", 2},
        {"listen: [a\n", "ctrund.yaml:2:1: the file is not valid YAML", 2},
        {"config: other.yaml\n", "ctrund.yaml:1:9: config names another file", 2},
        {"- a\n", "ctrund.yaml:1:1: the file wants lines such as", 2},
        {"", "ctrund.yaml:1:1: the file is empty", 2},
        {"listen: 127.0.0.1:0\nlog_level: loud\n", "log level \"loud\" is none of", 2},
        {"listen: 0.0.0.0:0\n", "refusing to listen on 0.0.0.0:0 without a key", 77},
    };
    struct proc daemon;

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const char *const argv[] = {proc_program("ctrund"), "--config",
                                    e2e_write("ctrund.yaml", rows[i].text), NULL};
        cr_assert_eq(proc_run(&daemon, argv, NULL, 10), rows[i].status, "%s",
                     ct_buf_str(&daemon.text));
        e2e_said(&daemon, rows[i].words);
        proc_free(&daemon);
    }
    const char *const argv[] = {proc_program("ctrund"), "--config", "nowhere.yaml", NULL};
    cr_assert_eq(proc_run(&daemon, argv, NULL, 10), 66);
    e2e_said(&daemon, "nowhere.yaml");
    proc_free(&daemon);
}

/* ---- what the package has -------------------------------------------------------------------- */

Test(daemon, the_packages_file_has_a_line_for_every_option)
{
    const char *const argv[] = {proc_program("ctrund"), "--help", NULL};
    char file[1 << 14], name[64], line[80];
    struct proc help;
    int options = 0;

    (void)ct_str_copy(file, sizeof file,
                      e2e_read(e2e_in_root("scripts/package/debian/ctrund.yaml")));
    cr_assert_eq(proc_run(&help, argv, NULL, 10), 0);
    for (const char *at = ct_buf_str(&help.text); (at = strstr(at, "\n  --")) != NULL; at += 5) {
        cr_assert_eq(sscanf(at + 5, "%63[a-z_]", name), 1);
        if (strcmp(name, "config") == 0 || strcmp(name, "help") == 0)
            continue;
        options++;
        (void)snprintf(line, sizeof line, "\n%s: ", name);
        bool is_set = strstr(file, line) != NULL;
        (void)snprintf(line, sizeof line, "\n# %s: ", name);
        cr_assert(is_set || strstr(file, line) != NULL, "ctrund.yaml does not tell of %s", name);
    }
    cr_assert_geq(options, 9);
    proc_free(&help);
}

/* As it is, but for the program, which is not installed here. */
Test(daemon, the_packages_unit_is_valid_and_exposed_to_little)
{
    const char *const valid[] = {"systemd-analyze", "verify", "--man=no",
                                 e2e_in_folder("ctrund.service"), NULL};
    const char *const exposed[] = {"systemd-analyze",
                                   "security",
                                   "--no-pager",
                                   "--offline=true",
                                   "--threshold=30",
                                   e2e_in_folder("ctrund.service"),
                                   NULL};
    const char *unit = e2e_read(e2e_in_root("scripts/package/debian/ctrun.ctrund.service"));
    static const char program[] = "/usr/bin/ctrund ";
    const char *at = strstr(unit, program);
    struct proc proc;
    char text[1 << 13];

    if (access("/usr/bin/systemd-analyze", X_OK) != 0)
        cr_skip_test("there is no systemd-analyze here");
    cr_assert_not_null(at);
    cr_assert_lt(snprintf(text, sizeof text, "%.*s%s %s", (int)(at - unit), unit,
                          proc_program("ctrund"), at + strlen(program)),
                 (int)sizeof text);
    (void)e2e_write("ctrund.service", text);
    cr_assert_eq(proc_run(&proc, valid, NULL, 20), 0, "%s", ct_buf_str(&proc.text));
    cr_assert_str_eq(ct_buf_str(&proc.text), "");
    proc_free(&proc);
    cr_assert_eq(proc_run(&proc, exposed, NULL, 20), 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
}

/* ---- the page, beyond this machine ----------------------------------------------------------- */

static void write_secret(const char *name, const char *text)
{
    cr_assert_eq(chmod(e2e_write(name, text), 0600), 0);
}

/* Python's client with the certificate as its authority: without a token, with a wrong one, with
 * the right one in both forms, and a stream; what is no TLS gets nothing. */
Test(daemon, its_page_is_for_who_has_the_token_over_https)
{
    struct proc daemon, client;
    char port_line[32];
    static const char ask[] =
        "import base64, http.client, ssl, sys\n"
        "port = int(sys.argv[1])\n"
        "context = ssl.create_default_context(cafile='page.pem')\n"
        "def get(path, word=None):\n"
        "    link = http.client.HTTPSConnection('localhost', port, context=context, timeout=10)\n"
        "    link.request('GET', path, headers={'Authorization': word} if word else {})\n"
        "    return link.getresponse()\n"
        "token = open('token').read().strip()\n"
        "print('none', get('/metrics').status, get('/metrics').headers['WWW-Authenticate'])\n"
        "print('wrong', get('/metrics', 'Bearer ' + token[:-1] + 'x').status)\n"
        "print('bearer', 'ctrun_epoch 1' in get('/metrics', 'Bearer ' + token).read().decode())\n"
        "basic = base64.b64encode(('me:' + token).encode()).decode()\n"
        "print('basic', get('/', 'Basic ' + basic).status)\n"
        "stream = get('/events', 'Basic ' + basic)\n"
        "print('stream', [stream.readline() for _ in range(6)].count(b'event: jobs\\n'))\n"
        "plain = http.client.HTTPConnection('127.0.0.1', port, timeout=10)\n"
        "try:\n"
        "    plain.request('GET', '/')\n"
        "    print('clear', plain.getresponse().status)\n"
        "except (http.client.HTTPException, OSError):\n"
        "    print('clear nothing')\n";

    write_secret("page.pem", test_pem);
    write_secret("token", "0123456789abcdef0123456789abcdef\n");
    const char *const argv[] = {
        proc_program("ctrund"), "--listen", "127.0.0.1:0",    "--status", "127.0.0.1:0",
        "--status_tls",         "page.pem", "--status_token", "token",    NULL};
    proc_start(&daemon, argv, NULL);
    const char *at = proc_wait_text(&daemon, "answers HTTPS on 127.0.0.1:", 10);
    cr_assert_not_null(at);
    (void)snprintf(port_line, sizeof port_line, "%d",
                   atoi(at + strlen("answers HTTPS on 127.0.0.1:")));
    const char *const python[] = {"python3", "-c", ask, port_line, NULL};
    cr_assert_eq(proc_run(&client, python, NULL, 30), 0, "%s", ct_buf_str(&client.text));
    e2e_said(&client, "none 401 Basic realm=\"ctrun\"\nwrong 401\nbearer True\nbasic 200\n"
                      "stream 2\nclear nothing\n");
    proc_free(&client);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    end(&daemon, 0);
}

Test(daemon, a_page_for_others_without_a_token_or_a_certificate_is_refused)
{
    struct proc daemon;
    const char *const open[] = {
        proc_program("ctrund"), "--listen", "127.0.0.1:0", "--status", "0.0.0.0:0", NULL};
    const char *const half[] = {proc_program("ctrund"), "--listen",     "127.0.0.1:0", "--status",
                                "127.0.0.1:0",          "--status_tls", "page.pem",    NULL};

    cr_assert_eq(proc_run(&daemon, open, NULL, 10), 77, "%s", ct_buf_str(&daemon.text));
    e2e_said(&daemon, "give a certificate and a token (--status_tls, --status_token)");
    proc_free(&daemon);
    cr_assert_eq(proc_run(&daemon, half, NULL, 10), 2, "%s", ct_buf_str(&daemon.text));
    e2e_said(&daemon, "--status_token is missing");
    proc_free(&daemon);
}
