#!/usr/bin/python3
"""Run a manifest of `ctrun k8s` as Kubernetes would: pods are namespaces of this machine. Needs root.

usage: pods.py PROGRAMS MANIFEST KEY SCENARIO [FOLDER]

Each pod has a network namespace with an address, a host name and the mounts of its volumes; its container is process 1
of a PID namespace, as user 65532 without capabilities, with exactly the variables that Kubernetes sets. Names resolve
once a pod has its address, and index 0 comes last. What a pod's end means is read from the Job: podFailurePolicy,
backoffLimit, successPolicy. FOLDER has what the image would have beside train.yaml, and is /run/image in the pods.

SCENARIO: run    until the Job is over
          evict  the same of a program that prints "world N" and ends when /work/enough exists: pod 1 is evicted
The last line is "Job complete" or "Job failed"; pods' output and termination messages stand above.
"""
import ctypes
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, IO, List, Optional

import yaml

USER = 65532
DEADLINE_S = 50
SETUP = r"""
set -eu
ip link set lo up
mount --make-rprivate /
mkdir -p "$POD/run" && mount -t tmpfs tmpfs "$POD/run"
mkdir -p "$POD/run/bin" "$POD/run/image" && mount --bind "$PROGRAMS" "$POD/run/bin"
[ -z "$IMAGE_FOLDER" ] || mount --bind "$IMAGE_FOLDER" "$POD/run/image"
mount --rbind "$POD/run" /run
mkdir -p "$POD/dev" && mount -t tmpfs tmpfs "$POD/dev"
for node in null zero full random urandom; do touch "$POD/dev/$node"; mount --bind "/dev/$node" "$POD/dev/$node"; done
mkdir -p "$POD/dev/shm"
touch "$POD/dev/termination-log" && mount --bind "$POD/message" "$POD/dev/termination-log"
mount --bind "$HOSTS" /etc/hosts
VOLUMES
mount --rbind "$POD/dev" /dev
mount -t tmpfs -o mode=1777 tmpfs /tmp
hostname "$POD_NAME"
exec setpriv --reuid USER --regid USER --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
""".replace("USER", str(USER))


def expand(word: str, variables: Dict[str, str]) -> str:
    """As kubelet does: $(NAME) is a variable's value if there is one, $$ is $."""
    def value(found: "re.Match[str]") -> str:
        return "$" if found.group(0) == "$$" else variables.get(found.group(1), found.group(0))
    return re.sub(r"\$\$|\$\((\w+)\)", value, word)


class Pod:
    """One try of an index."""

    def __init__(self, name: str, index: int, process: "subprocess.Popen[str]", folder: str, news: Any) -> None:
        self.name, self.index, self.process, self.folder, self.news = name, index, process, folder, news
        self.lines: List[str] = []
        self.disrupted = False
        assert process.stdout is not None
        self.reader = threading.Thread(target=self.read, args=(process.stdout,))
        self.reader.start()

    def read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append(line)
            print(f"{self.name}: {line}", end="", flush=True)
            self.news.put(None)
        self.process.wait()
        self.news.put(None)

    def end(self) -> int:
        self.reader.join()
        return self.process.wait()

    def signal(self, number: int) -> None:
        """To process 1 of the container, which `unshare` has for a child."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                os.kill(int(child), number)


class Cluster:
    def __init__(self, programs: str, manifest: str, key: str, image_folder: str) -> None:
        with open(manifest, encoding="utf-8") as file:
            documents = [one for one in yaml.safe_load_all(file) if one is not None]
        self.kinds: Dict[str, Any] = {one["kind"]: one for one in documents}
        self.job = self.kinds["Job"]
        self.name = self.job["metadata"]["name"]
        self.programs, self.key, self.image_folder = programs, key, image_folder
        self.tag = f"ctk{os.getpid()}"
        self.folder = tempfile.mkdtemp(prefix="ctrun-pods-")
        os.chmod(self.folder, 0o755)
        self.hosts = os.path.join(self.folder, "hosts")
        with open(self.hosts, "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n")
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        os.chown(self.work, USER, USER)
        self.spaces: List[str] = []
        self.news: "queue.SimpleQueue[None]" = queue.SimpleQueue()  # a line or an end of any pod
        self.tries = 0
        self.space("sw")
        self.ip("-n", f"{self.tag}sw", "link", "add", "bridge", "type", "bridge")
        self.ip("-n", f"{self.tag}sw", "link", "set", "bridge", "up")

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def space(self, suffix: str) -> str:
        name = self.tag + suffix
        self.ip("netns", "add", name)
        self.spaces.append(name)
        return name

    def close(self) -> None:
        for name in self.spaces:
            subprocess.run(["ip", "netns", "delete", name], check=False)
        shutil.rmtree(self.folder)

    def volumes(self, pod_spec: Dict[str, Any], container: Dict[str, Any], folder: str) -> str:
        """The mounts of the container as lines of a shell."""
        by_name = {volume["name"]: volume for volume in pod_spec["volumes"]}
        lines = []
        for mount in container["volumeMounts"]:
            volume, path, source = by_name[mount["name"]], mount["mountPath"], ""
            if "secret" in volume:
                source = os.path.join(folder, "secret")
                os.mkdir(source)
                target = os.path.join(source, "key")  # as kubelet does with fsGroup: root's, the group may read
                shutil.copyfile(self.key, target)
                os.chmod(target, volume["secret"]["defaultMode"])
                os.chown(target, 0, pod_spec["securityContext"]["fsGroup"])
            elif "configMap" in volume:
                source = os.path.join(folder, mount["subPath"])
                with open(source, "w", encoding="utf-8") as file:
                    file.write(self.kinds["ConfigMap"]["data"][mount["subPath"]])
            elif volume.get("emptyDir", {}).get("medium") == "Memory":
                lines.append(f"mount -t tmpfs -o mode=1777 tmpfs \"$POD{path}\"")
                continue
            else:
                source = self.work
            if os.path.isdir(source):
                lines.append(f"mkdir -p '{path}'; mount --bind '{source}' '{path}'")
            else:
                lines.append(f"mkdir -p '{os.path.dirname(path)}'; [ -e '{path}' ] || touch '{path}'; "
                             f"mount --bind '{source}' '{path}'")
        return "\n".join(sorted(lines, key=lambda line: "/work" in line))  # which hides this machine's own

    def start(self, index: int) -> Pod:
        self.tries += 1
        spec = self.job["spec"]["template"]["spec"]
        container = spec["containers"][0]
        name, address = f"{self.name}-{index}", f"10.79.0.{self.tries}"
        folder = os.path.join(self.folder, f"pod{self.tries}")
        os.mkdir(folder)
        with open(os.path.join(folder, "message"), "w", encoding="ascii"):
            pass
        os.chmod(os.path.join(folder, "message"), 0o666)
        space, port = self.space(f"p{self.tries}"), f"port{self.tries}"
        switch = f"{self.tag}sw"
        self.ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
        self.ip("-n", switch, "link", "set", port, "master", "bridge", "up")
        self.ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        self.ip("-n", space, "link", "set", "eth0", "up")
        with open(self.hosts, encoding="ascii") as file:  # a replaced pod has another address
            others = [line for line in file if f" {name} " not in line]
        with open(self.hosts, "w", encoding="ascii") as file:
            file.writelines(others + [f"{address} {name}.{spec['subdomain']} {name} \n"])
        variables = {
            "PATH": "/run/bin:/usr/bin:/bin", "HOSTNAME": name, "JOB_COMPLETION_INDEX": str(index),
            "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443",
            "KUBERNETES_SERVICE_PORT_HTTPS": "443",
            "KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
            "KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443",
            "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1"}
        variables.update({one["name"]: one["value"] for one in container["env"]})
        words = [expand(word, variables) for word in container["command"] + container["args"]]
        setup = SETUP.replace("VOLUMES", self.volumes(spec, container, folder))
        environment = {"PATH": os.environ["PATH"], "POD": folder, "POD_NAME": name, "HOSTS": self.hosts,
                       "PROGRAMS": self.programs, "IMAGE_FOLDER": self.image_folder}
        process = subprocess.Popen(
            ["ip", "netns", "exec", space,
             "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "/bin/sh", "-c", setup, "sh", "env", "-i", "--chdir", container["workingDir"],
             *[f"{key}={value}" for key, value in variables.items()], *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
        return Pod(name, index, process, folder, self.news)


class Controller:
    """The Job controller's part: which index has which pod, and when the Job is over."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.spec = cluster, cluster.job["spec"]
        self.pods: Dict[int, Pod] = {}
        self.succeeded: List[int] = []
        self.failures = 0
        self.result: Optional[str] = None

    def judge(self, pod: Pod, status: int) -> str:
        for rule in self.spec["podFailurePolicy"]["rules"]:
            if any(one["type"] == "DisruptionTarget" for one in rule.get("onPodConditions", [])) and pod.disrupted:
                return str(rule["action"])
            codes = rule.get("onExitCodes")
            if codes is not None and (status in codes["values"]) == (codes["operator"] == "In"):
                return str(rule["action"])
        return "Count"

    def turn(self) -> None:
        """Wait for news, then look at all pods."""
        try:
            self.cluster.news.get(timeout=1)
        except queue.Empty:
            pass
        for index, pod in list(self.pods.items()):
            if pod.process.poll() is None:
                continue
            status = pod.end()
            del self.pods[index]
            action = "Success" if status == 0 else self.judge(pod, status)
            print(f"pods: {pod.name} ended with {status}: {action}", flush=True)
            with open(os.path.join(pod.folder, "message"), encoding="utf-8") as file:
                for line in file:
                    print(f"message of {pod.name}: {line}", end="", flush=True)
            self.failures += action == "Count"
            if action == "Success":
                self.succeeded.append(index)
            elif action == "FailJob" or self.failures > self.spec["backoffLimit"]:
                self.result = self.result or "failed"
            elif self.result is None:
                self.pods[index] = self.cluster.start(index)
        policy = self.spec.get("successPolicy", {"rules": [{"succeededCount": self.spec["completions"]}]})
        wanted = policy["rules"][0]["succeededCount"]
        if self.result is None and len(self.succeeded) >= wanted:
            self.result = "complete"

    def said(self, words: str) -> int:
        return sum(words in line for pod in self.pods.values() for line in pod.lines)

    def until(self, condition: Any, deadline: float) -> None:
        while not condition():
            self.turn()
            if time.monotonic() > deadline or (self.result is not None and self.pods):
                raise TimeoutError("what the scenario waits for did not come")


def evict(controller: Controller, deadline: float) -> None:
    everybody = controller.spec["completions"]
    controller.until(lambda: controller.said(f"world {everybody}\n") >= everybody, deadline)
    leaver = controller.pods[1]
    leaver.disrupted = True
    leaver.signal(signal.SIGTERM)
    controller.until(lambda: controller.pods.get(1) not in (None, leaver), deadline)
    print("pods: pod 1 is another one", flush=True)
    newcomer = controller.pods[1]
    controller.until(lambda: any(f"world {everybody}\n" in line for line in newcomer.lines), deadline)
    with open(os.path.join(controller.cluster.work, "enough"), "w", encoding="ascii"):
        pass


def main() -> int:
    programs, manifest, key, scenario = sys.argv[1:5]
    cluster = Cluster(os.path.realpath(programs), manifest, key, sys.argv[5] if len(sys.argv) > 5 else "")
    controller = Controller(cluster)
    deadline = time.monotonic() + DEADLINE_S
    try:
        for index in reversed(range(controller.spec["completions"])):
            controller.pods[index] = cluster.start(index)
        if scenario == "evict":
            evict(controller, deadline)
        while controller.result is None or controller.pods:
            controller.turn()
            if time.monotonic() > deadline:
                raise TimeoutError("the Job does not end")
    finally:
        for pod in controller.pods.values():
            pod.process.kill()
            pod.end()
        cluster.close()
    print(f"Job {controller.result}", flush=True)
    return 0


sys.exit(main())
