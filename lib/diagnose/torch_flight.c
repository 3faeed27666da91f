/* See torch_flight.h. */
#include "diagnose/torch_flight.h"

#include "base/assert.h"
#include "base/capture.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Arguments: the file, seconds of patience, the pid. A dump that is still being written cannot be
 * loaded, whatever Python calls the error. Stacks are printed as py-spy does. */
static const char reader[] =
    "import pickle, sys, time\n"
    "\n"
    "class Plain(pickle.Unpickler):\n"
    "    def find_class(self, module, name):\n"
    "        raise pickle.UnpicklingError(name)\n"
    "\n"
    "def load(path, end):\n"
    "    while True:\n"
    "        try:\n"
    "            with open(path, 'rb') as file:\n"
    "                return Plain(file).load()['entries']\n"
    "        except Exception:\n"
    "            if time.monotonic() >= end:\n"
    "                sys.exit()\n"
    "            time.sleep(0.05)\n"
    "\n"
    "def waits(call):\n"
    "    return call['state'] != 'completed' and not call['retired']\n"
    "\n"
    "def line(text):\n"
    "    print(''.join(c if ' ' <= c <= '~' else '?' for c in text))\n"
    "\n"
    "path, patience, pid = sys.argv[1:]\n"
    "entries = load(path, time.monotonic() + float(patience))\n"
    "groups = {tuple(call['process_group']): call for call in entries if not call['is_p2p']}\n"
    "for (name, about), call in groups.items():\n"
    "    line(f\"{call['collective_seq_id']} calls, the last {'waits' if waits(call) else 'has "
    "ended'}, \"\n"
    "         f'of group {about} ({name})')\n"
    "for call in [call for call in entries if waits(call)][:1]:\n"
    "    number = call['p2p_seq_id'] if call['is_p2p'] else call['collective_seq_id']\n"
    "    line(f\"waits in {call['profiling_name']}, number {number}, \"\n"
    "         f\"of {call['input_sizes']} {call['input_dtypes']}\")\n"
    "    line(f'Process {pid}: flight recorder')\n"
    "    line('Thread 0 (idle): \"MainThread\"')\n"
    "    for frame in call.get('frames', []):\n"
    "        line(f\"    {frame['name']} ({frame['filename']}:{frame['line']})\")\n";

bool ct_torch_flight_ask(const char *path)
{
    char pipe[PATH_MAX + 32];

    (void)snprintf(pipe, sizeof pipe, "%s.pipe", path);
    int fd = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    bool asked = fd >= 0 && write(fd, "1", 1) == 1;

    if (fd >= 0)
        (void)close(fd);
    return asked;
}

void ct_torch_flight_read(const char *path, pid_t pid, uint64_t patience_ms, uint64_t deadline_ms,
                          struct ct_buf *to)
{
    char python[PATH_MAX], file[PATH_MAX], seconds[32], number[16], code[sizeof reader];
    char isolated[] = "-I", plain[] = "-S", command[] = "-c";
    char *argv[] = {python, isolated, plain, command, code, file, seconds, number, NULL};

    (void)snprintf(file, sizeof file, "/proc/%d/exe", (int)pid);
    ssize_t length = readlink(file, python, sizeof python - 1);
    if (length <= 0 || (patience_ms == 0 && access(path, R_OK) != 0))
        return;
    python[length] = '\0';
    memcpy(code, reader, sizeof reader);
    (void)snprintf(file, sizeof file, "%s", path);
    (void)snprintf(seconds, sizeof seconds, "%.3f", (double)patience_ms / 1000);
    (void)snprintf(number, sizeof number, "%d", (int)pid);
    if (ct_capture(python, argv, deadline_ms, NULL, to) != 0)
        ct_buf_clear(to);
}

/* "41 calls, the last waits, of group default_pg (0)" */
static bool read_group(const char *line, size_t size, struct ct_torch_group *ret_group)
{
    static const char calls[] = " calls, the last ", of[] = ", of group ";
    char *end;

    if (size == 0 || line[0] < '0' || line[0] > '9')
        return false;
    unsigned long long count = strtoull(line, &end, 10);
    size_t digits = (size_t)(end - line);
    if (digits > size || size - digits < sizeof calls || memcmp(end, calls, sizeof calls - 1) != 0)
        return false;
    const char *name = memmem(end, size - digits, of, sizeof of - 1);
    if (name == NULL)
        return false;
    name += sizeof of - 1;
    size_t length = CT_MIN((size_t)(line + size - name), sizeof ret_group->name - 1);
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        ret_group->name[i] = name[i] < ' ' || name[i] > '~' ? '?' : name[i];
    ret_group->name[length] = '\0';
    ret_group->calls = count;
    return true;
}

bool ct_torch_flight_parse(const char *text, int pid, struct ct_torch_flight *ret_flight)
{
    size_t count = 0;

    memset(ret_flight, 0, sizeof *ret_flight);
    for (const char *line = text; *line != '\0' && count < CT_FLIGHT_GROUPS;) {
        size_t size = strcspn(line, "\n");

        count += read_group(line, size, &ret_flight->groups[count]);
        line += size + (line[size] == '\n');
    }
    ret_flight->group_count = count;
    (void)ct_python_place_find(text, pid, &ret_flight->waits);
    return count > 0;
}
