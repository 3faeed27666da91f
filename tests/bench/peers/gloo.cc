// Gloo's tcp transport on the loop of loop.h.
//
//     gloo RANK SIZE FOLDER ADDRESS [WORD ...]      FOLDER: where ranks find each other
#include "loop.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

namespace
{

using Context = std::shared_ptr<gloo::Context>;

void largest(void *to, const void *a, const void *b, size_t n)
{
    const double *x = static_cast<const double *>(a), *y = static_cast<const double *>(b);

    for (size_t i = 0; i < n; i++)
        static_cast<double *>(to)[i] = std::max(x[i], y[i]);
}

void run(void *context, enum bench_op op, float *data, size_t count)
{
    const Context &members = *static_cast<Context *>(context);
    size_t part = count / static_cast<size_t>(members->size);

    if (op == BENCH_ALL_REDUCE) {
        gloo::AllreduceOptions options(members);
        void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;

        options.setInput(data, count);
        options.setOutput(data, count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    } else if (op == BENCH_BROADCAST) {
        gloo::BroadcastOptions options(members);

        options.setOutput(data, count);
        options.setRoot(0);
        gloo::broadcast(options);
    } else {
        gloo::AllgatherOptions options(members);

        options.setInput(data + static_cast<size_t>(members->rank) * part, part);
        options.setOutput(data, count);
        gloo::allgather(options);
    }
}

double most(void *context, double value)
{
    gloo::AllreduceOptions options(*static_cast<Context *>(context));
    void (*function)(void *, const void *, const void *, size_t) = &largest;

    options.setInput(&value, 1);
    options.setOutput(&value, 1);
    options.setReduceFunction(function);
    gloo::allreduce(options);
    return value;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 5) {
        (void)fprintf(stderr, "usage: gloo RANK SIZE FOLDER ADDRESS [WORD ...]\n");
        return 2;
    }
    try {
        gloo::transport::tcp::attr address(argv[4]);
        auto device = gloo::transport::tcp::CreateDevice(address);
        gloo::rendezvous::FileStore store(argv[3]);
        auto members =
            std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[1]), std::atoi(argv[2]));
        members->connectFullMesh(store, device);
        Context context = members;
        struct bench_peer peer = {members->rank, members->size, &context, run, nullptr, most, nullptr};

        bench_all(&peer, argc - 4, argv + 4);
        (void)most(&context, 0); // nobody leaves before all have it
    } catch (const std::exception &error) {
        (void)fprintf(stderr, "gloo: %s\n", error.what());
        return 1;
    }
    return 0;
}
