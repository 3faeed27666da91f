// Clients and servers of a TCPStore, for scripts/bench/store: libtorch's own classes, without
// Python.
//
//     store_client torch uv|poll       serve PyTorch's own store, with or without libuv
//     store_client bound spin|sleep    serve the least that this client takes for a store
//     store_client run SECONDS TURNS NAME=PORT:PID...
//                                      use the stores at these ports of 127.0.0.1, which these
//                                      processes serve, by turns; STORE_FIGURE in the environment:
//                                      only for figures whose name begins so
//
// A server prints its port and serves until its input ends. `run` prints JSON: for each figure and
// each name a list of [value, microseconds of CPU that the server took a call].
//
// Clients are processes, forked before they connect, as the workers of a job are.
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define SINCE(major, minor)           \
    (TORCH_VERSION_MAJOR > (major) || \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
#define IS_NEW SINCE(2, 4)       // handshake, today's numbering, multi_get, libuv
#define HAS_BARRIER SINCE(2, 14) // as one request

#if SINCE(2, 0) && !IS_NEW
#error "PyTorch 1.13 or 2.4 and later: between them the protocol changed step by step"
#endif

// PyTorch asks for the name of each end of each connection, for a line of its log. What a name
// server makes of that is no store's speed: names are digits here, on both sides.
extern "C" int getnameinfo(const sockaddr *address, socklen_t, char *host, socklen_t host_room,
                           char *service, socklen_t service_room, int)
{
    const auto *in6 = reinterpret_cast<const sockaddr_in6 *>(address);
    const auto *in = reinterpret_cast<const sockaddr_in *>(address);
    const bool six = address->sa_family == AF_INET6;

    if (host != nullptr)
        inet_ntop(address->sa_family,
                  six ? static_cast<const void *>(&in6->sin6_addr) : &in->sin_addr, host,
                  host_room);
    if (service != nullptr)
        std::snprintf(service, service_room, "%u", ntohs(six ? in6->sin6_port : in->sin_port));
    return 0;
}

namespace
{

using Bytes = std::vector<uint8_t>;
using Store = c10d::TCPStore;
using std::chrono::milliseconds;

constexpr milliseconds PATIENCE{60000};
const Bytes VALUE(64, 'x');
const Bytes LARGE(1 << 20, 'x');
constexpr int MANY = 64;

[[noreturn]] void fail(const std::string &what)
{
    std::fprintf(stderr, "store_client: %s: %s\n", what.c_str(), std::strerror(errno));
    std::_Exit(1);
}

double now_s()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void serve_until_input_ends(uint16_t port)
{
    char byte;

    std::printf("%u\n", port);
    std::fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    std::_Exit(0);
}

// ---- PyTorch's server ---------------------------------------------------------------------------

void serve_torch([[maybe_unused]] bool uv)
{
    c10d::TCPStoreOptions options;

    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
#if IS_NEW
    options.useLibUV = uv;
#endif
    Store store("127.0.0.1", options);
    serve_until_input_ends(store.getPort());
}

// ---- the bound: no keys, no limits, answers that are always the same ----------------------------

#if IS_NEW
enum Code : uint8_t {
    VALIDATE = 0,
    SET = 1,
    GET = 3,
    ADD = 4,
    CHECK = 5,
    WAIT = 6,
    MULTI_GET = 10,
    MULTI_SET = 11,
    PING = 13,
    BARRIER = 18
};
#else
enum Code : uint8_t {
    SET = 0,
    GET = 2,
    ADD = 3,
    CHECK = 4,
    WAIT = 5,
    MULTI_GET = 100,
    MULTI_SET,
    VALIDATE,
    PING,
    BARRIER
};
#endif

struct Bound {
    std::string in, out;
    static inline size_t value_size; // of the last that was set

    uint64_t number(size_t at) const
    {
        uint64_t value = UINT64_MAX / 2;
        if (at + 8 <= in.size())
            std::memcpy(&value, &in[at], 8);
        return value;
    }

    // Where the field of bytes at `at` ends.
    size_t field(size_t at) const
    {
        return at + 8 + number(at);
    }

    size_t fields(size_t at, uint64_t count) const
    {
        for (; count > 0 && at <= in.size(); count--)
            at = field(at);
        return at;
    }

    void answer_value()
    {
        uint64_t size = value_size;
        out.append(reinterpret_cast<char *>(&size), 8);
        out.append(size, 'x');
    }

    // Where the request at `at` ends; beyond what has come: not yet. Its answer is put into `out`.
    size_t serve(size_t at)
    {
        const uint8_t code = static_cast<uint8_t>(in[at++]);
        size_t end = in.size() + 1;
        switch (code) {
        case VALIDATE:
            return at + 4;
        case PING:
            if (at + 4 <= in.size())
                out.append(in, at, 4);
            return at + 4;
        case SET:
            end = fields(at, 2);
            if (end <= in.size())
                value_size = number(field(at));
            return end;
        case GET:
            if ((end = field(at)) <= in.size())
                answer_value();
            return end;
        case ADD:
        case BARRIER:
            if ((end = field(at) + 8) <= in.size())
                out.append(code == ADD ? "\1\0\0\0\0\0\0\0" : "\0", code == ADD ? 8 : 1);
            return end;
        case CHECK:
        case WAIT:
            if ((end = fields(at + 8, number(at))) <= in.size())
                out.append(1, '\0');
            return end;
        case MULTI_SET:
            end = fields(at + 8, number(at) * 2);
            if (end <= in.size())
                value_size = number(field(at + 8));
            return end;
        case MULTI_GET:
            if ((end = fields(at + 8, number(at))) <= in.size())
                for (uint64_t i = number(at); i > 0; i--)
                    answer_value();
            return end;
        default:
            errno = EPROTO;
            fail("request " + std::to_string(code));
        }
    }

    // False: the client is gone.
    bool run(int fd)
    {
        static char buffer[256 << 10];
        ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got <= 0)
            return got < 0 && errno == EAGAIN;
        in.append(buffer, static_cast<size_t>(got));
        size_t at = 0;
        for (size_t end; at < in.size() && (end = serve(at)) <= in.size();)
            at = end;
        in.erase(0, at);
        for (size_t sent = 0; sent < out.size();) {
            ssize_t count = send(fd, &out[sent], out.size() - sent, MSG_NOSIGNAL);
            if (count <= 0)
                return false;
            sent += static_cast<size_t>(count);
        }
        out.clear();
        return true;
    }
};

void answer_for_ever(int listener, bool spin)
{
    const int one = 1, poller = epoll_create1(0);
    std::map<int, Bound> clients;
    epoll_event events[64], wanted{};

    wanted.events = EPOLLIN;
    wanted.data.fd = listener;
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &wanted) != 0)
        fail("epoll");
    for (;;) {
        const int count = epoll_wait(poller, events, 64, spin && !clients.empty() ? 0 : -1);
        for (int i = 0; i < count; i++) {
            const int fd = events[i].data.fd;
            if (fd == listener) {
                wanted.data.fd = accept(listener, nullptr, nullptr);
                setsockopt(wanted.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(poller, EPOLL_CTL_ADD, wanted.data.fd, &wanted);
            } else if (!clients[fd].run(fd)) {
                clients.erase(fd);
                close(fd);
            }
        }
    }
}

void serve_bound(bool spin)
{
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    socklen_t size = sizeof address;

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), size) != 0 ||
        listen(listener, 4096) != 0)
        fail("cannot listen");
    getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size);
    std::thread(answer_for_ever, listener, spin).detach();
    serve_until_input_ends(ntohs(address.sin_port));
}

// ---- clients ------------------------------------------------------------------------------------

struct Figure {
    double value, cpu_us; // of the server, a call
};
using Work = std::function<Figure(int index)>;

struct Server {
    std::string name;
    uint16_t port;
    std::string pid;
};

// Seconds that the threads of the server have run.
double cpu_s(const Server &server)
{
    double total = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/" + server.pid + "/task")) {
        double ran = 0;
        std::ifstream(task.path() / "schedstat") >> ran;
        total += ran / 1e9;
    }
    return total;
}

std::unique_ptr<Store> connect_store(const Server &server)
{
    c10d::TCPStoreOptions options;

    options.port = server.port;
    options.waitWorkers = false;
    options.timeout = PATIENCE;
    return std::make_unique<Store>("127.0.0.1", options);
}

// The barrier that every version of PyTorch builds out of requests.
void meet(Store &store, const std::string &name, int clients)
{
    if (store.add(name + "/number", 1) == clients)
        store.set(name + "/last", Bytes{'1'});
    store.wait({name + "/last"}, PATIENCE);
}

// What `work` returned in each of so many processes. They begin together, when all are there.
std::vector<Figure> fork_clients(int clients, const Work &work)
{
    int gate[2], answers[2];
    std::vector<Figure> figures;
    char byte = 0;

    if (pipe(gate) != 0 || pipe(answers) != 0)
        fail("pipe");
    for (int index = 0; index < clients; index++) {
        const pid_t pid = fork();
        if (pid < 0)
            fail("fork");
        if (pid > 0)
            continue;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 0)
            std::_Exit(1);
        const Figure figure = work(index);
        std::_Exit(write(answers[1], &figure, sizeof figure) == sizeof figure ? 0 : 1);
    }
    close(gate[0]);
    close(answers[1]);
    usleep(20000); // the forks settle down
    close(gate[1]);
    Figure figure;
    while (read(answers[0], &figure, sizeof figure) == sizeof figure)
        figures.push_back(figure);
    close(answers[0]);
    while (wait(nullptr) > 0) {
    }
    if (figures.size() != static_cast<size_t>(clients)) {
        errno = EPROTO;
        fail("a client failed");
    }
    return figures;
}

#if IS_NEW
std::vector<std::string> many_keys()
{
    std::vector<std::string> keys;

    for (int i = 0; i < MANY; i++)
        keys.push_back("many" + std::to_string(i));
    return keys;
}
#endif

using Call = std::function<void(Store &, int index)>;

// Calls a second of all clients together.
Figure rate(const Server &server, const std::string &name, int clients, double seconds,
            const Call &call)
{
    const auto figures = fork_clients(clients, [&](int index) -> Figure {
        auto store = connect_store(server);
        store->set("key" + std::to_string(index), VALUE);
        meet(*store, name, clients);
        const double begin = now_s(), cpu = cpu_s(server);
        double took = 0;
        int calls = 0;
        for (; took < seconds; took = now_s() - begin)
            for (int i = 0; i < 10; i++, calls++)
                call(*store, index);
        store->add("end", 0); // what is under way has been done
        took = now_s() - begin;
        return {calls / took, (cpu_s(server) - cpu) / took};
    });
    Figure sum{0, 0};
    for (const auto &figure : figures) {
        sum.value += figure.value;
        sum.cpu_us += figure.cpu_us / clients;
    }
    return {sum.value, sum.cpu_us / sum.value * 1e6};
}

// Milliseconds until the last of the clients is through.
Figure slowest(const std::vector<Figure> &figures)
{
    Figure last{0, 0};
    for (const auto &figure : figures) {
        last.value = std::max(last.value, figure.value);
        last.cpu_us = std::max(last.cpu_us, figure.cpu_us);
    }
    return last;
}

using Barrier = std::function<void(Store &, const std::string &name, int clients)>;

Figure barrier(const Server &server, const std::string &name, int clients, const Barrier &call)
{
    constexpr int TIMES = 10;
    return slowest(fork_clients(clients, [&](int index) -> Figure {
        auto store = connect_store(server);
        meet(*store, name, clients);
        const double begin = now_s(), cpu = index == 0 ? cpu_s(server) : 0;
        for (int i = 0; i < TIMES; i++)
            call(*store, name + "/" + std::to_string(i), clients);
        const double took = (now_s() - begin) / TIMES;
        return {took * 1e3, index == 0 ? (cpu_s(server) - cpu) / TIMES * 1e6 : 0};
    }));
}

// From the first connection until all are connected and through a barrier: what a job's start
// feels.
Figure storm(const Server &server, const std::string &name, int clients)
{
    const double cpu = cpu_s(server);
    const auto figures = fork_clients(clients, [&](int) -> Figure {
        const double begin = now_s();
        auto store = connect_store(server);
        meet(*store, name, clients);
        return {(now_s() - begin) * 1e3, 0};
    });
    return {slowest(figures).value, (cpu_s(server) - cpu) * 1e6};
}

std::vector<std::pair<std::string, Call>> all_calls()
{
    const auto mine = [](int index) { return "key" + std::to_string(index); };
    std::vector<std::pair<std::string, Call>> calls = {
        {"set", [=](Store &store, int index) { store.set(mine(index), VALUE); }},
        {"add", [](Store &store, int index) { store.add("count" + std::to_string(index), 1); }},
        {"check", [=](Store &store, int index) { store.check({mine(index)}); }},
        {"wait", [=](Store &store, int index) { store.wait({mine(index)}, PATIENCE); }},
        {"get", [=](Store &store, int index) { store.get(mine(index)); }},
        {"set and get 1 MiB",
         [](Store &store, int index) {
             store.set("large" + std::to_string(index), LARGE);
             store.get("large" + std::to_string(index));
         }},
    };
#if IS_NEW
    const std::vector<std::string> keys = many_keys();
    calls.push_back({"multi_get of 64", [=](Store &store, int) { store.multiGet(keys); }});
#endif
    return calls;
}

std::vector<std::pair<std::string, Barrier>> all_barriers()
{
    std::vector<std::pair<std::string, Barrier>> barriers = {{"barrier", meet}};
#if HAS_BARRIER
    barriers.push_back(
        {"barrier as one request", [](Store &store, const std::string &name, int clients) {
             store.barrier(name, clients, PATIENCE);
         }});
#endif
    return barriers;
}

using Measure = std::function<Figure(const Server &, const std::string &name)>;

std::vector<std::pair<std::string, Measure>> all_figures(double seconds)
{
    std::vector<std::pair<std::string, Measure>> figures;

    for (const int clients : {1, 8})
        for (const auto &[name, call] : all_calls())
            figures.push_back({name + ", " + std::to_string(clients),
                               [=, call = call](const Server &server, const std::string &turn) {
                                   return rate(server, turn, clients, seconds, call);
                               }});
    for (const int clients : {64, 256}) {
        for (const auto &[name, call] : all_barriers())
            figures.push_back({name + ", " + std::to_string(clients),
                               [=, call = call](const Server &server, const std::string &turn) {
                                   return barrier(server, turn, clients, call);
                               }});
        figures.push_back({"storm, " + std::to_string(clients),
                           [=](const Server &server, const std::string &turn) {
                               return storm(server, turn, clients);
                           }});
    }
    return figures;
}

void run(double seconds, int turns, const std::vector<Server> &servers)
{
    const char *only = std::getenv("STORE_FIGURE");
    const char *comma = "{";

#if IS_NEW
    const std::vector<std::string> keys = many_keys();
    for (const auto &server : servers)
        connect_store(server)->multiSet(keys, std::vector<Bytes>(keys.size(), VALUE));
#endif
    for (const auto &[name, measure] : all_figures(seconds)) {
        if (only != nullptr && name.rfind(only, 0) != 0)
            continue;
        std::vector<std::string> lists(servers.size());
        for (int turn = 0; turn < turns; turn++)
            for (size_t i = 0; i < servers.size(); i++) {
                const Figure figure = measure(servers[i], name + "/" + std::to_string(turn));
                lists[i] += (turn > 0 ? ", [" : "[") + std::to_string(figure.value) + ", " +
                            std::to_string(figure.cpu_us) + "]";
            }
        std::printf("%s\"%s\": {", comma, name.c_str());
        for (size_t i = 0; i < servers.size(); i++)
            std::printf("%s\"%s\": [%s]", i > 0 ? ", " : "", servers[i].name.c_str(),
                        lists[i].c_str());
        std::printf("}");
        std::fflush(stdout); // no child may write it again
        comma = ",\n";
    }
    std::printf("}\n");
}

} // namespace

int main(int argc, char **argv)
{
    const std::vector<std::string> words(argv + 1, argv + argc);

    if (words.size() == 2 && words[0] == "torch") {
        serve_torch(words[1] == "uv");
    } else if (words.size() == 2 && words[0] == "bound") {
        serve_bound(words[1] == "spin");
    } else if (words.size() >= 4 && words[0] == "run") {
        std::vector<Server> servers;
        for (size_t i = 3; i < words.size(); i++) {
            const size_t equals = words[i].find('='), colon = words[i].find(':');
            servers.push_back({words[i].substr(0, equals),
                               static_cast<uint16_t>(std::stoi(words[i].substr(equals + 1))),
                               words[i].substr(colon + 1)});
        }
        run(std::stod(words[1]), std::stoi(words[2]), servers);
    } else {
        std::fprintf(stderr,
                     "usage: store_client torch uv|poll, bound spin|sleep, run SECONDS TURNS "
                     "NAME=PORT:PID...\n");
        return 2;
    }
    return 0;
}
