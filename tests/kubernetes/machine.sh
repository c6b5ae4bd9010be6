# The first process of a machine with a real kubelet: what it mounts and starts goes with it.
# Arguments: the folder of the machine, its control group, an image, and the kubelet with its flags.
set -eu
folder=$1 cgroup=$2 image=$3
shift 3
for hidden in /run /var/lib /var/log; do
  mount -t tmpfs tmpfs "$hidden"
done
# A kubelet and a network plugin set these: those of the host stay as they are.
mkdir "$folder/sysctl"
for path in net/ipv4/ip_forward vm/overcommit_memory vm/panic_on_oom \
  kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  copy=$folder/sysctl/${path##*/}
  cat "/proc/sys/$path" >"$copy"
  mount --bind "$copy" "/proc/sys/$path"
done
containerd --config "$folder/containerd.toml" --log-level warn &
until ctr version >/dev/null 2>&1; do
  kill -0 $! 2>/dev/null
  sleep 0.1
done
ctr --namespace k8s.io images import --all-platforms "$folder/images.tar"
# What a container needs that a kubelet would wait for in vain: an overlay, a limit of memory, and the right to start it.
ctr --namespace k8s.io run --rm --cgroup "/$cgroup/probe" --memory-limit 67108864 "$image" probe true
"$@"
