/* What `ctrun doctor` makes of the facts of a machine and of other hosts. */
#include "cmd/ctrun/doctor/core/doctor.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(doctor, .timeout = 10);

static const uint64_t mib = 1u << 20;

/* A machine on which nothing is wrong, for a job of several. */
static struct doctor_facts sound(void)
{
    const struct doctor_folder roomy = {
        .path = "/data", .free_bytes = 1u << 30, .free_files = 1000};

    return (struct doctor_facts){
        .beyond = true,
        .name = {.name = "node1", .count = 1, .first = "10.0.0.5"},
        .workers = 4,
        .cpus = 8,
        .cpus_online = 8,
        .files = 1 << 20,
        .memlock = UINT64_MAX,
        .processes = UINT64_MAX,
        .pids_max = UINT64_MAX,
        .shm = roomy,
        .folder = roomy,
        .tmpdir = roomy,
        .shm_bytes = 1u << 30,
        .has_key = true,
        .segment_bytes = 8u << 20,
        .memory_free = UINT64_C(8) << 30,
        .memory_limit = UINT64_MAX,
        .version = "1.2.3",
        .worker = "1.2.3",
        .library = "1.2.3",
        .has_library = true,
        .python = "/usr/bin/python3",
        .python_version = "3.11.2",
        .mpi = {.text = "there"},
        .ucx = {.text = "there"},
    };
}

/* The facts are wrong in one way alone, which one check says, with a remedy. */
static void expect(const struct doctor_facts *facts, enum doctor_check check, int code,
                   const char *words)
{
    struct doctor_finding findings[DOCTOR_CHECKS];
    size_t count = doctor_judge(facts, findings);

    cr_assert_eq(count, (size_t)DOCTOR_CHECKS);
    for (size_t i = 0; i < count; i++) {
        const struct doctor_finding *at = &findings[i];

        cr_expect(at->text[0] != '\0', "%s says nothing", at->check);
        if (i != (size_t)check)
            cr_expect_eq(at->level, DOCTOR_OK, "%s: %s", at->check, at->text);
    }
    const struct doctor_finding *found = &findings[check];

    cr_assert_eq(found->level, code == 0 ? DOCTOR_WARNING : DOCTOR_PROBLEM, "%s", found->text);
    cr_assert_eq(found->code, code);
    cr_assert_not_null(strstr(found->text, words), "\"%s\" in: %s", words, found->text);
    cr_assert_neq(found->remedy[0], '\0');
    cr_assert_eq(doctor_status(findings, count), ct_exit_status(code));
}

Test(doctor, nothing_is_said_against_a_sound_machine)
{
    struct doctor_facts facts = sound();
    struct doctor_finding findings[DOCTOR_CHECKS];
    size_t count = doctor_judge(&facts, findings);

    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(findings[i].level, DOCTOR_OK, "%s: %s", findings[i].check, findings[i].text);
        cr_expect_eq(findings[i].remedy[0], '\0');
    }
    cr_assert_eq(doctor_status(findings, count), 0);
}

Test(doctor, a_name_on_loopback_alone_matters_beyond_one_machine)
{
    struct doctor_facts facts = sound();

    facts.name.loopback = true;
    (void)snprintf(facts.name.first, sizeof facts.name.first, "127.0.1.1");
    expect(&facts, DOCTOR_name, 0, "loopback alone (127.0.1.1)");
    facts.beyond = false;
    struct doctor_finding findings[DOCTOR_CHECKS];
    (void)doctor_judge(&facts, findings);
    cr_assert_eq(findings[DOCTOR_name].level, DOCTOR_OK);
    facts = sound();
    (void)snprintf(facts.name.failure, sizeof facts.name.failure, "no such name");
    expect(&facts, DOCTOR_name, 0, "does not resolve: no such name");
}

Test(doctor, limits_are_held_against_what_the_workers_need)
{
    struct doctor_facts facts = sound();

    facts.files = 95; /* 64 and 8 a worker are 96 */
    expect(&facts, DOCTOR_files, CT_EOS, "about 96 are needed");
    facts.files = 96;
    expect(&facts, DOCTOR_files, 0, "fewer than programs expect");
    facts = sound();
    facts.processes = 135; /* 8 CPUs, 16 a worker, 64 */
    expect(&facts, DOCTOR_processes, CT_EOS, "about 136 are needed");
    facts = sound();
    facts.pids_max = 200;
    facts.pids_now = 65;
    expect(&facts, DOCTOR_processes, CT_EOS, "allows 135 more");
    facts = sound();
    facts.memlock = 8 * mib;
    facts.has_infiniband = true;
    expect(&facts, DOCTOR_memlock, 0, "8 MiB");
}

Test(doctor, a_container_s_small_shm_is_a_warning)
{
    struct doctor_facts facts = sound();

    facts.shm_bytes = 64 * mib;
    facts.shm.free_bytes = 63 * mib;
    expect(&facts, DOCTOR_shm, 0, "63 of 64 MiB free");
    facts.shm_bytes = 0;
    expect(&facts, DOCTOR_shm, 0, "no file system");
    facts = sound();
    facts.shm.error = EACCES;
    expect(&facts, DOCTOR_shm, 0, "Permission denied");
}

Test(doctor, a_key_is_needed_beyond_one_machine_and_a_bad_one_is_a_problem)
{
    struct doctor_facts facts = sound();

    facts.key = (struct doctor_outcome){.code = CT_EAUTH, .text = "open to others (mode 0644)"};
    expect(&facts, DOCTOR_key, CT_EAUTH, "mode 0644");
    facts = sound();
    facts.has_key = false;
    expect(&facts, DOCTOR_key, 0, "no --key_file");
}

Test(doctor, munge_in_place_of_a_key_file_has_to_answer)
{
    struct doctor_facts facts = sound();
    struct doctor_finding findings[DOCTOR_CHECKS];

    facts.by_munge = true;
    (void)doctor_judge(&facts, findings);
    cr_assert_eq(findings[DOCTOR_key].level, DOCTOR_OK);
    cr_assert_not_null(strstr(findings[DOCTOR_key].text, "munged answers"));
    facts.key = (struct doctor_outcome){.code = CT_EUNAVAILABLE, .text = "munged does not answer"};
    expect(&facts, DOCTOR_key, CT_EUNAVAILABLE, "munged does not answer");
}

Test(doctor, folders_must_be_writable_and_have_room)
{
    struct doctor_facts facts = sound();

    facts.folder.error = EROFS;
    expect(&facts, DOCTOR_folder, CT_ECANTCREAT, "Read-only file system");
    facts = sound();
    facts.tmpdir.free_bytes = 0;
    expect(&facts, DOCTOR_tmpdir, CT_ECANTCREAT, "is full");
    facts.tmpdir.free_bytes = 99 * mib;
    expect(&facts, DOCTOR_tmpdir, 0, "only 99 MiB");
    facts = sound();
    facts.folder.free_files = 0;
    expect(&facts, DOCTOR_folder, CT_ECANTCREAT, "is full");
}

Test(doctor, workers_clock_and_memory)
{
    struct doctor_facts facts = sound();

    facts.nproc = (struct doctor_outcome){.code = CT_EUNAVAILABLE, .text = "no NVIDIA GPU"};
    expect(&facts, DOCTOR_workers, CT_EUNAVAILABLE, "no NVIDIA GPU");
    facts = sound();
    facts.cpus = facts.cpus_online = 1;
    facts.workers = 5;
    expect(&facts, DOCTOR_workers, 0, "5 workers share 1 CPU");
    facts = sound();
    facts.clock_unsynced = true;
    expect(&facts, DOCTOR_clock, 0, "not synchronised");
    facts = sound();
    facts.memory_limit = 263 * mib; /* 4 times 64, and 8 */
    expect(&facts, DOCTOR_memory, 0, "263 MiB of the cgroup");
    facts = sound();
    facts.memory_free = 10 * mib;
    expect(&facts, DOCTOR_memory, 0, "10 MiB of this machine");
}

Test(doctor, a_library_is_missed_by_who_wants_it)
{
    struct doctor_facts facts = sound();
    struct doctor_finding findings[DOCTOR_CHECKS];

    facts.mpi = (struct doctor_outcome){.code = CT_EUNSUPPORTED, .text = "no MPI library"};
    (void)doctor_judge(&facts, findings);
    cr_assert_eq(findings[DOCTOR_mpi].level, DOCTOR_OK);
    facts.mpi.wanted = true;
    expect(&facts, DOCTOR_mpi, CT_EUNSUPPORTED, "no MPI library");
}

Test(doctor, programs_and_gpus)
{
    struct doctor_facts facts = sound();

    (void)snprintf(facts.worker, sizeof facts.worker, "1.2.2");
    expect(&facts, DOCTOR_programs, CT_EUNSUPPORTED, "1.2.3 is 1.2.2");
    facts = sound();
    facts.library[0] = '\0';
    expect(&facts, DOCTOR_programs, CT_EUNSUPPORTED, "none that can be loaded");
    facts = sound();
    facts.worker[0] = '\0';
    expect(&facts, DOCTOR_programs, 0, "YAML files cannot be trained");
    facts = sound();
    facts.python[0] = '\0';
    expect(&facts, DOCTOR_python, 0, "no python3 in PATH");
    facts = sound();
    facts.gpus_present = 2;
    facts.nvml = (struct doctor_outcome){.code = CT_EDEVICE, .text = "GPU 1 is lost"};
    expect(&facts, DOCTOR_gpus, 0, "GPU 1 is lost");
}

/* ---- other machines -------------------------------------------------------------------------- */

static struct doctor_host peer(void)
{
    return (struct doctor_host){
        .given = "node2",
        .port = 29400,
        .name = {.name = "node2", .count = 1, .first = "10.0.0.6"},
        .has_key = true,
        .protocol = 10,
        .at = {{.text = "10.0.0.6",
                .source = "10.0.0.5",
                .interface = "eth0",
                .mtu = 1500,
                .reached = DOCTOR_ANSWERED}},
    };
}

/* The last of `count` findings; 0 as a code: a warning. */
static void expect_host(const struct doctor_host *host, size_t count, int code, const char *words,
                        const char *remedy)
{
    struct doctor_finding findings[DOCTOR_HOST_CHECKS];

    cr_assert_eq(doctor_judge_host(host, findings), count);
    const struct doctor_finding *last = &findings[count - 1];

    cr_assert_eq(last->level, code == 0 ? DOCTOR_WARNING : DOCTOR_PROBLEM, "%s", last->text);
    cr_assert_eq(last->code, code);
    cr_assert_not_null(strstr(last->text, words), "\"%s\" in: %s", words, last->text);
    cr_assert_not_null(strstr(last->remedy, remedy), "\"%s\" in: %s", remedy, last->remedy);
    cr_assert_eq(doctor_status(findings, count), ct_exit_status(code));
}

Test(doctor_host, a_rendezvous_that_answers_is_fine_whatever_jobs_it_has)
{
    static const int codes[] = {0, CT_ENOTFOUND, CT_EUNAVAILABLE};
    struct doctor_host host = peer();
    struct doctor_finding findings[DOCTOR_HOST_CHECKS];

    for (size_t i = 0; i < CT_COUNT(codes); i++) {
        host.at[0].code = codes[i];
        cr_assert_eq(doctor_judge_host(&host, findings), (size_t)DOCTOR_HOST_CHECKS);
        for (size_t k = 0; k < DOCTOR_HOST_CHECKS; k++)
            cr_assert_eq(findings[k].level, DOCTOR_OK, "%s", findings[k].text);
        cr_assert_not_null(strstr(findings[DOCTOR_HOST_port].text, "protocol 10"));
    }
}

Test(doctor_host, what_a_failed_check_makes_pointless_is_left_out)
{
    struct doctor_host host = peer();

    (void)snprintf(host.name.failure, sizeof host.name.failure, "no such name");
    expect_host(&host, 1, CT_EUNAVAILABLE, "no such name", "/etc/hosts");
    host = peer();
    host.at[0].route = ENETUNREACH;
    host.at[0].reached = DOCTOR_NOT_CONNECTED;
    expect_host(&host, 2, CT_EUNAVAILABLE, "Network is unreachable", "ip route get 10.0.0.6");
}

Test(doctor_host, refused_filtered_and_silent_are_told_apart)
{
    struct doctor_host host = peer();

    host.at[0].reached = DOCTOR_NOT_CONNECTED;
    host.at[0].code = -ECONNREFUSED;
    expect_host(&host, 3, 0, "nothing listens at port 29400", "yet to be started");
    host.at[0].code = CT_ETIMEOUT;
    expect_host(&host, 3, CT_ETIMEOUT, "within 3 s", "firewall");
    host.at[0].code = -EHOSTUNREACH;
    expect_host(&host, 3, CT_EUNAVAILABLE, "cannot be connected", "is up");
    host.at[0].reached = DOCTOR_CONNECTED;
    host.at[0].code = CT_ETIMEOUT;
    expect_host(&host, 3, CT_ETIMEOUT, "does not answer", "listens there");
}

Test(doctor_host, a_wrong_key_a_missing_one_and_another_version_have_their_remedies)
{
    struct doctor_host host = peer();

    host.at[0].reached = DOCTOR_CONNECTED;
    host.at[0].code = CT_EAUTH;
    expect_host(&host, 3, CT_EAUTH, "10.0.0.6", "the same key file");
    host.by_munge = true;
    expect_host(&host, 3, CT_EAUTH, "10.0.0.6", "munge:ACCOUNT");
    host.by_munge = false;
    host.has_key = false;
    expect_host(&host, 3, CT_EAUTH, "10.0.0.6", "--key_file FILE");
    host = peer();
    host.at[0].code = CT_EPROTOCOL;
    expect_host(&host, 3, CT_EPROTOCOL, "10.0.0.6", "releases of ctrun that follow each other");
    host.at[0].reached = DOCTOR_ADMITTED; /* it never answered: HTTP, or SSH */
    expect_host(&host, 3, CT_EPROTOCOL, "10.0.0.6", "listens there");
}

Test(doctor_host, one_address_that_works_is_enough)
{
    struct doctor_host host = peer();
    struct doctor_finding findings[DOCTOR_HOST_CHECKS];

    host.at[1] = host.at[0];
    host.at[0] = (struct doctor_address){.text = "2001:db8::6", .route = ENETUNREACH};
    host.name.count = 2;
    cr_assert_eq(doctor_judge_host(&host, findings), (size_t)DOCTOR_HOST_CHECKS);
    for (size_t k = 0; k < DOCTOR_HOST_CHECKS; k++)
        cr_assert_eq(findings[k].level, DOCTOR_OK, "%s", findings[k].text);
}

Test(doctor_host, a_tiny_mtu_and_a_name_on_loopback_are_warnings)
{
    struct doctor_host host = peer();
    struct doctor_finding findings[DOCTOR_HOST_CHECKS];

    host.at[0].mtu = 576;
    host.name.loopback = true;
    (void)snprintf(host.name.first, sizeof host.name.first, "127.0.1.1");
    cr_assert_eq(doctor_judge_host(&host, findings), (size_t)DOCTOR_HOST_CHECKS);
    cr_assert_eq(findings[DOCTOR_HOST_name].level, DOCTOR_WARNING);
    cr_assert_eq(findings[DOCTOR_HOST_route].level, DOCTOR_WARNING);
    cr_assert_not_null(strstr(findings[DOCTOR_HOST_route].text, "MTU of 576"));
    cr_assert_eq(doctor_status(findings, DOCTOR_HOST_CHECKS), 0);
}
