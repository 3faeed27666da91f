"""Network namespaces as nodes: two joined by a wire of a known rate, or some at a switch. Needs root."""
import os
import shlex
import subprocess


def sh(command):
    subprocess.run(shlex.split(command), check=True)


class Nodes:
    """Two namespaces and the wire between them; removed at the end."""

    def __init__(self):
        self.names = [f"wire{os.getpid()}-{i}" for i in range(2)]
        self.addresses = ["10.79.0.1", "10.79.0.2"]

    def __enter__(self):
        for name in self.names:
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        sh(f"ip link add wire0 netns {self.names[0]} type veth peer name wire0 netns {self.names[1]}")
        for name, address in zip(self.names, self.addresses):
            sh(f"ip -n {name} addr add {address}/24 dev wire0")
            sh(f"ip -n {name} link set wire0 up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def shape(self, rate):
        """A token bucket in each direction."""
        for name in self.names:
            sh(f"tc -n {name} qdisc replace dev wire0 root tbf rate {rate} burst 256kb latency 20ms")

    def on(self, node, command):
        return ["ip", "netns", "exec", self.names[node], *command]


class Switched:
    """Nodes at a switch, each a namespace with a cable; removed at the end."""

    def __init__(self, count):
        self.switch = f"switch{os.getpid()}"
        self.names = [f"{self.switch}-{i}" for i in range(count)]
        self.addresses = [f"10.80.0.{i + 1}" for i in range(count)]

    def __enter__(self):
        sh(f"ip netns add {self.switch}")
        sh(f"ip -n {self.switch} link add bridge type bridge")
        sh(f"ip -n {self.switch} link set bridge up")
        for i, (name, address) in enumerate(zip(self.names, self.addresses)):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
            sh(f"ip link add eth0 netns {name} type veth peer name port{i} netns {self.switch}")
            sh(f"ip -n {name} addr add {address}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
            sh(f"ip -n {self.switch} link set port{i} master bridge up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def cut(self, node):
        sh(f"ip -n {self.names[node]} link set eth0 down")

    def on(self, node, command):
        return ["ip", "netns", "exec", self.names[node], *command]
