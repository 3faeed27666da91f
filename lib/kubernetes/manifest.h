/* A manifest for Kubernetes: the YAML that `ctrun k8s` writes. Pure.
 *
 *      Service NAME      headless: pod i of the job is NAME-i.NAME, known before it is ready
 *      ConfigMap NAME    train.yaml
 *      Job NAME          Indexed, a pod a node; pods find each other at the first three of these
 *        pod  ctrun --rdzv_id NAME --rdzv_endpoint ... --key_file ... WORDS
 *             volumes: the key (a Secret), train.yaml, the work folder, /dev/shm
 *
 * Of each pod Kubernetes says its index in JOB_COMPLETION_INDEX, which is the node's rank. What its
 * end means is in the Job: 0 is success; a pod that Kubernetes itself takes away, one that ends
 * with 75 or 79, and one that SIGKILL or SIGTERM ended get a successor with their index; any other
 * status is the job's, on all nodes. */
#ifndef CT_KUBERNETES_MANIFEST_H
#define CT_KUBERNETES_MANIFEST_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_manifest {
    const char *name;      /* of the job, and of all that belongs to it */
    const char *space;     /* namespace, or NULL: kubectl's */
    const char *image;     /* with ctrun in PATH */
    int64_t nodes_min;     /* below nodes_max: the job goes on with fewer */
    int64_t nodes_max;     /* pods */
    int64_t grace_s;       /* that ctrun gives its workers */
    const char *secret;    /* that has the key, or NULL: one node, or the words name a file */
    const char *claim;     /* PersistentVolumeClaim of the work folder, or NULL: the pod's own */
    const char *cpu;       /* "4", or NULL: not said */
    const char *memory;    /* "8Gi", or NULL */
    const char *gpus;      /* "8", or NULL: none */
    const char *folder;    /* where train.yaml is in the container */
    const char *file_name; /* of train.yaml, or NULL: a program of the image */
    const char *file_text; /* its content */
    const char *const *arguments; /* of ctrun, after its name, NULL-terminated */
};

enum { CT_MANIFEST_NAME = 52 }; /* with an index behind it, still a host name */

/* Is `name` one that a Service may have: lower-case letters, digits and dashes, a letter first? */
bool ct_manifest_name_is_good(const char *name);

/* Make such a name of a file's: "configs/digits_mlp.yaml" gives "digits-mlp". */
void ct_manifest_name_of(const char *path, char name[CT_MANIFEST_NAME + 1]);

/* Append the manifest. */
void ct_manifest_print(const struct ct_manifest *manifest, struct ct_buf *to);

#endif
