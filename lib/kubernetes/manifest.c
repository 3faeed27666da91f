/* See manifest.h. */
#include "kubernetes/manifest.h"

#include "base/assert.h"
#include "base/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ENDPOINTS = 3, /* one of them is there for a pod that comes later */
    PORT = 29400,
    SPARE_S = 20, /* beyond what ctrun gives its workers, to end itself */
    RETRIES = 10, /* of each pod, on average */
    USER = 65532, /* nobody's of the image */
};

/* ---- names ---------------------------------------------------------------------------------- */

bool ct_manifest_name_is_good(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && length <= CT_MANIFEST_NAME && name[0] >= 'a' && name[0] <= 'z' &&
           name[length - 1] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

void ct_manifest_name_of(const char *path, char name[CT_MANIFEST_NAME + 1])
{
    const char *slash = strrchr(path, '/');
    const char *at = slash != NULL ? slash + 1 : path;
    size_t size = 0;

    for (; *at != '\0' && *at != '.' && size < CT_MANIFEST_NAME; at++) {
        bool fits = isalnum((unsigned char)*at) != 0 && (unsigned char)*at < 0x80;
        if (size == 0 && !isalpha((unsigned char)*at))
            continue;
        name[size++] = fits ? (char)tolower((unsigned char)*at) : '-';
    }
    while (size > 0 && name[size - 1] == '-')
        size--;
    name[size] = '\0';
    if (!ct_manifest_name_is_good(name))
        memcpy(name, "ctrun", sizeof "ctrun");
}

/* ---- YAML ----------------------------------------------------------------------------------- */

/* A key and its value, which is quoted as JSON does it: YAML reads that alike. */
static void put(struct ct_buf *to, const char *key, const char *value)
{
    (void)ct_buf_printf(to, "%s: ", key);
    ct_json_string(to, value);
    (void)ct_buf_puts(to, "\n");
}

/* A word of the command as an item of a list. Kubernetes replaces $(NAME) in it, and $$ by $. */
static void put_word(struct ct_buf *to, const char *word)
{
    struct ct_buf kept;

    ct_buf_init(&kept, 0);
    for (const char *at = word; *at != '\0'; at++)
        (void)ct_buf_append(&kept, *at == '$' ? "$$" : at, *at == '$' ? 2 : 1);
    (void)ct_buf_puts(to, "        - ");
    ct_json_string(to, ct_buf_str(&kept));
    (void)ct_buf_puts(to, "\n");
    ct_buf_deinit(&kept);
}

/* Whether a block of YAML keeps the text as it is. */
static bool fits_block(const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)
            return false;
    return text[0] != '\0' && text[strlen(text) - 1] == '\n';
}

static void put_text(struct ct_buf *to, const char *key, const char *text)
{
    (void)ct_buf_puts(to, "  ");
    if (!fits_block(text)) {
        ct_json_string(to, key);
        (void)ct_buf_puts(to, ": ");
        ct_json_string(to, text);
        (void)ct_buf_puts(to, "\n");
        return;
    }
    ct_json_string(to, key);
    (void)ct_buf_puts(to, ": |2+\n");
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        (void)ct_buf_printf(to, "%s%.*s\n", length > 0 ? "    " : "", (int)length, text);
        text += length + 1;
    }
}

/* Names are of letters, digits and dashes: they need no more than quotes. */
static void begin(const struct ct_manifest *m, const char *version, const char *kind,
                  struct ct_buf *to)
{
    (void)ct_buf_printf(to, "---\napiVersion: %s\nkind: %s\nmetadata:\n", version, kind);
    put(to, "  name", m->name);
    if (m->space != NULL)
        put(to, "  namespace", m->space);
    (void)ct_buf_printf(to,
                        "  labels: {app.kubernetes.io/managed-by: ctrun, "
                        "app.kubernetes.io/name: \"%s\"}\n",
                        m->name);
}

/* ---- the documents -------------------------------------------------------------------------- */

static void print_service(const struct ct_manifest *m, struct ct_buf *to)
{
    begin(m, "v1", "Service", to);
    (void)ct_buf_printf(to,
                        "spec:\n"
                        "  clusterIP: None\n"
                        "  publishNotReadyAddresses: true # pods meet before they are ready\n"
                        "  selector: {batch.kubernetes.io/job-name: \"%s\"}\n"
                        "  ports: [{name: rendezvous, port: %d}]\n",
                        m->name, PORT);
}

static void print_file(const struct ct_manifest *m, struct ct_buf *to)
{
    begin(m, "v1", "ConfigMap", to);
    (void)ct_buf_puts(to, "data:\n");
    put_text(to, m->file_name, m->file_text);
}

/* Which end of a pod means what. */
static void print_ends(const struct ct_manifest *m, struct ct_buf *to)
{
    bool elastic = m->nodes_min < m->nodes_max;

    (void)ct_buf_printf(to,
                        "spec:\n"
                        "  completionMode: Indexed\n"
                        "  completions: %" PRId64 "\n"
                        "  parallelism: %" PRId64 "\n"
                        "  backoffLimit: %" PRId64 "\n",
                        m->nodes_max, m->nodes_max, m->nodes_max * RETRIES);
    if (elastic)
        (void)ct_buf_printf(to,
                            "  successPolicy: # pods that found no machine need not end\n"
                            "    rules: [{succeededCount: %" PRId64 "}]\n",
                            m->nodes_min);
    (void)ct_buf_puts(
        to, "  podFailurePolicy:\n"
            "    rules:\n"
            "    - action: Ignore # evicted, preempted, its machine drained\n"
            "      onPodConditions: [{type: DisruptionTarget, status: \"True\"}]\n"
            "    - action: FailJob # the status of the job's root cause, on every node;\n"
            "      # a lost node (79), a wait that was given up (75), a kill: another pod\n"
            "      onExitCodes: {containerName: ctrun, operator: NotIn, "
            "values: [75, 79, 137, 143]}\n");
}

static void print_command(const struct ct_manifest *m, struct ct_buf *to)
{
    char endpoints[ENDPOINTS * (2 * CT_MANIFEST_NAME + 32)];
    size_t used = 0;

    put(to, "        image", m->image);
    (void)ct_buf_puts(to, "        command: [ctrun]\n        args:\n");
    put_word(to, "--rdzv_id");
    put_word(to, m->name);
    for (int i = 0; i < CT_MIN(m->nodes_max, (int64_t)ENDPOINTS); i++)
        used += (size_t)snprintf(endpoints + used, sizeof endpoints - used, "%s%s-%d.%s:%d",
                                 i > 0 ? "," : "", m->name, i, m->name, PORT);
    if (m->nodes_max > 1) {
        put_word(to, "--rdzv_endpoint");
        put_word(to, endpoints);
    }
    if (m->secret != NULL) {
        put_word(to, "--key_file");
        put_word(to, "/run/ctrun/key/key");
    }
    for (const char *const *word = m->arguments; *word != NULL; word++)
        put_word(to, *word);
    (void)ct_buf_puts(to, "        workingDir: /work\n"
                          "        env:\n"
                          "        - {name: CTRUN_TERMINATION_MESSAGE, value: "
                          "/dev/termination-log}\n"
                          "        - {name: HOME, value: /work}\n"
                          "        terminationMessagePolicy: FallbackToLogsOnError\n"
                          "        securityContext: {allowPrivilegeEscalation: false, "
                          "capabilities: {drop: [ALL]}}\n");
}

static void print_resources(const struct ct_manifest *m, struct ct_buf *to)
{
    const struct {
        const char *name, *value;
    } rows[] = {{"cpu", m->cpu}, {"memory", m->memory}, {"nvidia.com/gpu", m->gpus}};
    const char *indent = "        resources:\n          requests:\n";
    bool any = false;

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        if (rows[i].value != NULL) {
            (void)ct_buf_printf(to, "%s            %s: ", any ? "" : indent, rows[i].name);
            ct_json_string(to, rows[i].value);
            (void)ct_buf_puts(to, "\n");
            any = true;
        }
    if (m->gpus == NULL)
        return;
    (void)ct_buf_puts(to, "          limits: {nvidia.com/gpu: ");
    ct_json_string(to, m->gpus);
    (void)ct_buf_puts(to, "}\n");
}

static void print_mounts(const struct ct_manifest *m, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "        volumeMounts:\n"
                          "        - {name: work, mountPath: /work}\n"
                          "        - {name: memory, mountPath: /dev/shm}\n");
    if (m->secret != NULL)
        (void)ct_buf_puts(to, "        - {name: key, mountPath: /run/ctrun/key, readOnly: true}\n");
    if (m->file_name == NULL)
        return;
    (void)ct_buf_puts(to, "        - name: config\n          readOnly: true\n");
    put(to, "          subPath", m->file_name);
    (void)ct_buf_puts(to, "          mountPath: ");
    struct ct_buf path;
    ct_buf_init(&path, 0);
    (void)ct_buf_printf(&path, "%s/%s", m->folder, m->file_name);
    ct_json_string(to, ct_buf_str(&path));
    ct_buf_deinit(&path);
    (void)ct_buf_puts(to, "\n");
}

static void print_volumes(const struct ct_manifest *m, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "      volumes:\n"
                          "      - {name: memory, emptyDir: {medium: Memory}}\n");
    if (m->claim == NULL) {
        (void)ct_buf_puts(to, "      - {name: work, emptyDir: {}}\n");
    } else {
        (void)ct_buf_puts(to, "      - name: work\n        persistentVolumeClaim: {claimName: ");
        ct_json_string(to, m->claim);
        (void)ct_buf_puts(to, "}\n");
    }
    if (m->secret != NULL) {
        (void)ct_buf_puts(to,
                          "      - name: key\n        secret: {defaultMode: 0440, secretName: ");
        ct_json_string(to, m->secret);
        (void)ct_buf_puts(to, "}\n");
    }
    if (m->file_name != NULL)
        (void)ct_buf_printf(to, "      - {name: config, configMap: {name: \"%s\"}}\n", m->name);
}

static void print_job(const struct ct_manifest *m, struct ct_buf *to)
{
    begin(m, "batch/v1", "Job", to);
    print_ends(m, to);
    (void)ct_buf_printf(to,
                        "  template:\n"
                        "    metadata:\n"
                        "      labels: {app.kubernetes.io/name: \"%s\"}\n"
                        "    spec:\n"
                        "      restartPolicy: Never\n",
                        m->name);
    if (m->nodes_max > 1)
        (void)ct_buf_printf(to, "      subdomain: \"%s\"\n", m->name);
    (void)ct_buf_printf(
        to,
        "%s"
        "      terminationGracePeriodSeconds: %" PRId64 "\n"
        "      securityContext: {runAsNonRoot: true, runAsUser: %d, runAsGroup: %d, fsGroup: %d,\n"
        "        seccompProfile: {type: RuntimeDefault}}\n"
        "      containers:\n"
        "      - name: ctrun\n",
        m->nodes_min < m->nodes_max
            ? "      # SIGTERM drains a node: its workers end their step, the others go on\n"
            : "      # SIGTERM stops the job, which saves where it is\n",
        m->grace_s + SPARE_S, USER, USER, USER);
    print_command(m, to);
    print_resources(m, to);
    print_mounts(m, to);
    print_volumes(m, to);
}

void ct_manifest_print(const struct ct_manifest *m, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "# Written by `ctrun k8s`; `kubectl apply -f` submits it.\n");
    if (m->secret != NULL)
        (void)ct_buf_printf(to,
                            "# The key, once: ctrun key new job.key &&\n"
                            "#   kubectl create secret generic %s --from-file=key=job.key\n",
                            m->secret);
    if (m->nodes_max > 1)
        print_service(m, to);
    if (m->file_name != NULL)
        print_file(m, to);
    print_job(m, to);
}
