/* Captures and graphs (runtime.h). A graph is what its streams were given, in that order: one of
 * those that its events allow. */
#include "runtime.h"

#include "base/assert.h"

#include <stdatomic.h>
#include <stdlib.h>

struct CUgraph_st {
    atomic_int users; /* the handle, graphs to run, launches under way */
    atomic_bool spoilt;
    struct hostcuda_work *nodes;
    size_t count, room;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

static _Thread_local struct CUgraph_st *capturing; /* begun by this thread */

bool hostcuda_forbidden(void)
{
    if (capturing == NULL)
        return false;
    atomic_store(&capturing->spoilt, true);
    return true;
}

void hostcuda_graph_add(struct CUgraph_st *graph, struct hostcuda_work work)
{
    if (graph->count == graph->room) {
        graph->room = graph->room == 0 ? 64 : 2 * graph->room;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
        CT_ASSERT(graph->nodes != NULL);
    }
    graph->nodes[graph->count++] = work;
}

size_t hostcuda_graph_count(const struct CUgraph_st *graph)
{
    return graph->count;
}

static void unuse(void *context)
{
    struct CUgraph_st *graph = context;

    if (atomic_fetch_sub(&graph->users, 1) > 1)
        return;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].release != NULL)
            graph->nodes[i].release(graph->nodes[i].context);
    free(graph->nodes);
    free(graph);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = hostcuda_state();

    if (error == cudaSuccess && (mode != cudaStreamCaptureModeThreadLocal || capturing != NULL))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return hostcuda_error(error);
    hostcuda_lock();
    if (hostcuda_capture_of(stream) != NULL) {
        error = cudaErrorStreamCaptureUnsupported;
    } else {
        capturing = calloc(1, sizeof *capturing);
        CT_ASSERT(capturing != NULL);
        atomic_store(&capturing->users, 1);
        hostcuda_capture_begin(stream, capturing);
    }
    hostcuda_unlock();
    return hostcuda_error(error);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret_graph)
{
    struct CUgraph_st *graph = capturing;

    *ret_graph = NULL;
    hostcuda_lock();
    bool own = graph != NULL && hostcuda_capture_of(stream) == graph;
    bool joined = own && hostcuda_capture_end(stream, graph);
    hostcuda_unlock();
    if (!own)
        return hostcuda_error(cudaErrorStreamCaptureUnmatched);
    capturing = NULL;
    cudaError_t error = atomic_load(&graph->spoilt) ? cudaErrorStreamCaptureInvalidated
                        : !joined                   ? cudaErrorStreamCaptureUnjoined
                                                    : cudaSuccess;

    if (error == cudaSuccess)
        *ret_graph = graph;
    else
        unuse(graph);
    return hostcuda_error(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);

    CT_ASSERT(exec != NULL && flags == 0);
    atomic_fetch_add(&graph->users, 1);
    exec->graph = graph;
    *ret_exec = exec;
    return hostcuda_error(hostcuda_state());
}

static void run_nodes(void *context)
{
    const struct CUgraph_st *graph = context;

    for (size_t i = 0; i < graph->count && hostcuda_state() == cudaSuccess; i++)
        graph->nodes[i].run(graph->nodes[i].context);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    atomic_fetch_add(&exec->graph->users, 1);
    return hostcuda_push_launch(stream, (struct hostcuda_work){run_nodes, unuse, exec->graph});
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    unuse(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    unuse(exec->graph);
    free(exec);
    return cudaSuccess;
}
