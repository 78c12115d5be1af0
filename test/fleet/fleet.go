// Package fleet runs a fleet of real processes for the ledger test and for the demonstration, demo
// below it: members and workers of the router's binary, with a sink that records their
// deliveries. natstest has the NATS servers, sandboxtest the API server.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Options describe a fleet.
type Options struct {
	Router           string   // path of the binary
	Dir              string   // of the configuration, states and logs
	Name             string   // of the fleet
	Namespace        string   // of the Lease
	Members, Workers int      // number of processes
	NATS             []string // URLs of the servers; none: the members are routers without a fleet
	Kubeconfig       string
	Receiver         string   // address of the receiver, see [Receiver]
	Args             []string // further arguments of all processes
	Credentials      string   // the mapping fleet.nats.credentials; empty: none
	Lease            string   // empty: 6s
	// Ways returns other URLs of the NATS servers and another kubeconfig for a process, such as those
	// of proxies of its own; nil: all processes have the same.
	Ways func(name string) (nats []string, kubeconfig string)
}

// Fleet is a number of processes with one configuration file.
type Fleet struct {
	Members, Workers []*Node

	file, head, lease, namespace string
}

// leases are the resource by which a fleet elects its leader.
var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"} //nolint:gochecknoglobals // a constant

const head = `version: 1
cluster: {name: test, kubeconfig: "${FLEET_KUBECONFIG}"}
state: {dir: "${FLEET_DIR}/state"}
listen: {probes: "127.0.0.1:0", api: "unix:${FLEET_DIR}/api.sock"}
`

// New prepares a fleet. It starts nothing. config is the part of the configuration after the
// sections that the package writes: version, cluster, state, listen and fleet.
func New(o Options, config string) (*Fleet, error) {
	f := &Fleet{file: filepath.Join(o.Dir, "config.yaml"), head: head, lease: "deltarouter-" + o.Name, namespace: o.Namespace}
	if len(o.NATS) > 0 {
		var servers []string
		for i := range o.NATS {
			servers = append(servers, fmt.Sprintf(`"${FLEET_NATS%d}"`, i))
		}
		f.head += fmt.Sprintf("fleet: {name: %s, nats: {servers: [%s], credentials: {%s}}, replicas: %d, lease: %s}\n",
			o.Name, strings.Join(servers, ", "), o.Credentials, len(o.NATS), cmp.Or(o.Lease, "6s"))
	}
	for i := range o.Members {
		f.Members = append(f.Members, o.node(fmt.Sprintf("member-%d", i), append(o.Args[:len(o.Args):len(o.Args)], "-config", f.file)...))
	}
	for i := range o.Workers {
		f.Workers = append(f.Workers, o.node(fmt.Sprintf("worker-%d", i), append(append([]string{"worker", "-log-level", "debug"}, o.Args...), "-config", f.file)...))
	}
	for _, n := range f.Nodes() {
		if err := os.MkdirAll(n.dir, 0o700); err != nil {
			return nil, err
		}
	}
	return f, f.Configure(config)
}

// node returns a process that is not started.
func (o *Options) node(name string, args ...string) *Node {
	nats, kubeconfig := o.NATS, o.Kubeconfig
	if o.Ways != nil {
		nats, kubeconfig = o.Ways(name)
	}
	n := &Node{Name: name, dir: filepath.Join(o.Dir, name), binary: o.Router, args: args}
	n.env = []string{
		"FLEET_DIR=" + n.dir, "FLEET_KUBECONFIG=" + kubeconfig, "POD_NAME=" + name, "POD_NAMESPACE=" + o.Namespace,
		// The receiver learns from the credentials of its proxy which process delivers.
		"HTTP_PROXY=http://" + name + ":none@" + o.Receiver,
	}
	for i, url := range nats {
		n.env = append(n.env, fmt.Sprintf("FLEET_NATS%d=%s", i, url))
	}
	return n
}

// Nodes returns all processes.
func (f *Fleet) Nodes() []*Node { return append(append([]*Node(nil), f.Members...), f.Workers...) }

// Configure replaces the configuration file atomically. Running processes notice it.
func (f *Fleet) Configure(config string) error {
	beside := f.file + ".new"
	return errors.Join(os.WriteFile(beside, []byte(f.head+config), 0o600), os.Rename(beside, f.file))
}

// Start starts all processes.
func (f *Fleet) Start() error {
	for _, n := range f.Nodes() {
		if err := n.Launch(); err != nil {
			return err
		}
	}
	return nil
}

// Leader returns the member that leads and is ready.
func (f *Fleet) Leader(ctx context.Context, cluster dynamic.Interface) (*Node, error) {
	if f.alone() {
		return f.Members[0], f.Members[0].Ready()
	}
	lease, err := cluster.Resource(leases).Namespace(f.namespace).Get(ctx, f.lease, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	for _, n := range f.Members {
		if !strings.HasPrefix(holder, n.Name+"-") { // each life of a process has another identity
			continue
		}
		if err := n.Ready(); err != nil {
			return nil, err
		}
		if n.Metric("deltarouter_fleet_leader") != 1 {
			return nil, fmt.Errorf("%s does not say that it leads", n.Name)
		}
		return n, nil
	}
	return nil, fmt.Errorf("the holder of the Lease is %q", holder)
}

// Follows returns nil if a member is a standby that has all checkpoints of the leader.
func Follows(n *Node) error {
	if code, body := n.Get("/readyz"); code != http.StatusOK || !strings.Contains(body, "standby") {
		return fmt.Errorf("%s: %s", n.Name, body)
	}
	if behind := n.Metric("deltarouter_fleet_frames_behind"); behind != 0 {
		return fmt.Errorf("%s is %v frames behind", n.Name, behind)
	}
	return nil
}

// Lost counts the leaders that were lost with what they did since their last cut, and the
// partitions that workers have lost, as the processes say in their logs.
func (f *Fleet) Lost() (leaders, partitions int) {
	for _, n := range f.Members {
		leaders += n.Count("fleet: this member was deposed") + n.Count("fleet: the last cut did not reach NATS")
	}
	for _, n := range f.Workers {
		partitions += n.Count(`"level":"DEBUG","msg":"a partition was lost`) // one for each
	}
	return leaders, partitions
}

// alone reports whether the only member is a router without a fleet.
func (f *Fleet) alone() bool { return f.head == head }

// Close kills all processes.
func (f *Fleet) Close() {
	for _, n := range f.Nodes() {
		n.Kill()
	}
}

// Control runs a command of the router with the configuration of a process, such as status.
func (n *Node) Control(args ...string) (string, error) {
	cmd := exec.Command(n.binary, append(args, n.args[len(n.args)-2:]...)...)
	cmd.Env = append(os.Environ(), n.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
