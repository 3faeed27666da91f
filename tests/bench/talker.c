/* A worker that writes lines at a pace, for scripts/bench/log_stream.
 *
 *     ctrun ... talker LINES_A_SECOND SECONDS FOLDER
 *
 * Every 10 ms it writes the lines that are due, "attempt A rank R line N of a training", and then
 * notes their number in the file FOLDER/A.R: a word of memory that outlives its SIGKILL. So what
 * the file says was in the pipe by then; the last write may have been there as well. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PACE_NS = 10 * 1000 * 1000, LINE = 64, ROOM = 64 << 10 };

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static volatile uint64_t *open_count(const char *folder, const char *attempt, const char *rank)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/%s.%s", folder, attempt, rank);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0)
        fail(path);
    void *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        fail(path);
    return at;
}

static void write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, text, size);

        if (written < 0)
            fail("write");
        text += written;
        size -= (size_t)written;
    }
}

int main(int argc, char **argv)
{
    static char text[ROOM];
    const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT"), *rank = getenv("RANK");

    if (argc != 4 || attempt == NULL || rank == NULL) {
        (void)fprintf(stderr, "usage: ctrun ... talker LINES_A_SECOND SECONDS FOLDER\n");
        return 2;
    }
    uint64_t pace = strtoull(argv[1], NULL, 10), seconds = strtoull(argv[2], NULL, 10);
    volatile uint64_t *count = open_count(argv[3], attempt, rank);
    struct timespec begin, now;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t lines = 0; lines < pace * seconds;) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = PACE_NS}, NULL);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        double passed =
            (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
        uint64_t due = (uint64_t)(passed * (double)pace);
        size_t size = 0;

        for (due = due < pace * seconds ? due : pace * seconds;
             lines < due && size + 2 * LINE < ROOM; lines++)
            size += (size_t)snprintf(text + size, ROOM - size,
                                     "attempt %s rank %s line %llu of a training\n", attempt, rank,
                                     (unsigned long long)lines);
        write_all(text, size);
        *count = lines;
    }
    return 0;
}
